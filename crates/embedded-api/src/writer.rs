//! The writer thread: takes every write that is waiting, decides them one after another against an
//! overlay, commits them in one transaction and only then answers. Owner of the store; the only
//! code that changes the mirror.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::sync::{mpsc, oneshot};

use crate::apply;
use crate::batch::Batch;
use crate::clock;
use crate::kinds;
use crate::mirror::{Change, Mirror, Objects, State, Stored};
use crate::request::{Job, WriteRequest, Written};
use crate::rules::Rules;
use crate::status::ApiError;
use crate::store::{OpenError, Snapshot, Store};

/// Writes committed together at most: bounds the time the first of them waits.
const BATCH_LIMIT: usize = 256;
/// Writes waiting at most; more callers wait to be let in.
const QUEUE_LIMIT: usize = 1024;

/// What the thread is asked to do.
enum Message {
    Write(Box<Job>),
    Stop(oneshot::Sender<()>),
}

/// Where writes are handed in.
#[derive(Clone)]
pub(crate) struct Writer {
    queue: mpsc::Sender<Message>,
}

impl Writer {
    /// Starts the thread.
    pub(crate) fn start(
        store: Store,
        mirror: Arc<Mirror>,
        rules: Rules,
    ) -> Result<(Self, JoinHandle<()>), OpenError> {
        let (queue, receiver) = mpsc::channel(QUEUE_LIMIT);
        let path = store.path().to_owned();
        let mut worker = Worker {
            path,
            store: Some(store),
            mirror,
            rules,
        };
        let thread = thread::Builder::new()
            .name("api-writer".to_owned())
            .spawn(move || worker.run(receiver))
            .map_err(OpenError::Thread)?;
        Ok((Self { queue }, thread))
    }

    /// Waits until the write is on disk or refused. A caller that goes away before its turn
    /// withdraws the write; later the write happens and nobody is told.
    pub(crate) async fn write(&self, request: WriteRequest) -> Result<Written, ApiError> {
        let (reply, answer) = oneshot::channel();
        let stopped = || ApiError::unavailable("the API is shutting down");
        let job = Message::Write(Box::new(Job { request, reply }));
        self.queue.send(job).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    /// Lets the thread finish what is queued, then stops it.
    pub(crate) async fn stop(&self) {
        let (reply, done) = oneshot::channel();
        if self.queue.send(Message::Stop(reply)).await.is_ok() {
            // an error means the thread has already gone, which is what was wanted
            done.await.ok();
        }
    }
}

/// What is left to say once the batch is on disk.
type Pending = (
    oneshot::Sender<Result<Written, ApiError>>,
    Result<Written, ApiError>,
);

struct Worker {
    path: PathBuf,
    /// None after a failed commit, until the file could be opened again.
    store: Option<Store>,
    mirror: Arc<Mirror>,
    rules: Rules,
}

impl Worker {
    fn run(&mut self, mut queue: mpsc::Receiver<Message>) {
        let mut stop = None;
        let mut messages = Vec::new();
        while stop.is_none() && queue.blocking_recv_many(&mut messages, BATCH_LIMIT) > 0 {
            let mut jobs = Vec::with_capacity(messages.len());
            for message in messages.drain(..) {
                match message {
                    Message::Write(job) => jobs.push(*job),
                    Message::Stop(reply) => stop = Some(reply),
                }
            }
            self.serve(jobs);
        }
        queue.close();
        // the file is closed before the caller hears of it
        self.store = None;
        if let Some(reply) = stop {
            // nobody may be waiting any more
            reply.send(()).ok();
        }
    }

    fn serve(&mut self, mut jobs: Vec<Job>) {
        jobs.retain(|job| !job.reply.is_closed());
        if let Err(error) = self.reopen_if_closed() {
            let refusal = refusal(&error);
            for job in jobs {
                // the caller may have gone
                job.reply.send(Err(refusal.clone())).ok();
            }
            return;
        }
        let (version, changes, pending) = self.decide(jobs);
        let outcome = if changes.is_empty() {
            Ok(())
        } else {
            self.commit(version, changes)
        };
        for (reply, answer) in pending {
            let answer = match (&outcome, answer) {
                (Err(error), Ok(_)) => Err(error.clone()),
                (_, answer) => answer,
            };
            // the caller may have gone
            reply.send(answer).ok();
        }
    }

    fn decide(&self, jobs: Vec<Job>) -> (u64, Vec<Change>, Vec<Pending>) {
        let state = self.mirror.read();
        let mut batch = Batch::new(&state.objects, state.version);
        let now = clock::now();
        let mut pending = Vec::with_capacity(jobs.len());
        for Job { request, reply } in jobs {
            let answer = apply::apply(&self.rules, &mut batch, &request, now);
            pending.push((reply, answer));
        }
        let (version, changes) = batch.into_changes();
        (version, changes, pending)
    }

    fn commit(&mut self, version: u64, changes: Vec<Change>) -> Result<(), ApiError> {
        let Some(store) = self.store.as_mut() else {
            return Err(ApiError::internal("the state file is not open"));
        };
        let entries = changes
            .iter()
            .map(|c| (&c.key, (!c.deleted).then_some(c.object.json.as_ref())));
        match store.commit(version, entries) {
            Ok(()) => {
                self.mirror.publish(changes);
                Ok(())
            }
            Err(error) => {
                self.store = None;
                Err(refusal(&error))
            }
        }
    }

    /// After a failed commit redb refuses the open file, and the commit may have reached the disk
    /// all the same: what the file says is what counts.
    fn reopen_if_closed(&mut self) -> Result<(), OpenError> {
        if self.store.is_some() {
            return Ok(());
        }
        let store = Store::open(&self.path)?;
        let state = load(store.load()?, &self.path)?;
        if state.version != self.mirror.read().version {
            self.mirror.reload(state);
        }
        self.store = Some(store);
        Ok(())
    }
}

/// Tells the log and the client why the disk did not take a write.
fn refusal(error: &dyn std::error::Error) -> ApiError {
    let cause = error
        .source()
        .map(|source| format!(": {source}"))
        .unwrap_or_default();
    tracing::error!("{error}{cause}");
    ApiError::internal(format!("{error}{cause}"))
}

/// The state in memory from what was on disk.
pub(crate) fn load(snapshot: Snapshot, path: &std::path::Path) -> Result<State, OpenError> {
    let mut objects = Objects::new();
    for (key, json) in snapshot.objects {
        let Some(kind) = kinds::by_collection(key.collection()) else {
            tracing::warn!(
                collection = key.collection(),
                "objects of an unknown kind are kept on disk only"
            );
            continue;
        };
        let object: serde_json::Value =
            serde_json::from_slice(&json).map_err(|source| OpenError::Object {
                path: path.to_owned(),
                key: key.as_str().replace('\0', "/"),
                source,
            })?;
        let version = crate::object::text_at(&object, "/metadata/resourceVersion");
        let version = version.parse().unwrap_or(snapshot.version);
        objects.insert(
            key,
            Stored {
                version,
                json,
                facts: Arc::new(kind.facts(&object)),
            },
        );
    }
    Ok(State::loaded(snapshot.version, objects))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use serde_json::json;

    use super::*;
    use crate::admission::AcceptAll;
    use crate::mirror::HistoryLimits;
    use crate::object_key::ObjectKey;
    use crate::request::{Action, FieldValidation};
    use crate::schemas::Schemas;
    use crate::store::FailingDisk;

    fn create(name: &str) -> WriteRequest {
        WriteRequest {
            kind: kinds::by_kind("SpiderIPPool").unwrap(),
            namespace: String::new(),
            name: String::new(),
            action: Action::Create(json!({"metadata": {"name": name}})),
            dry_run: false,
            validation: FieldValidation::Ignore,
        }
    }

    #[tokio::test]
    async fn a_disk_that_fails_is_told_and_the_file_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        // what the file holds when it is opened again: a commit that was reported as failed
        let key = ObjectKey::new("spiderippools", "", "landed");
        let landed = br#"{"metadata":{"name":"landed","resourceVersion":"7"}}"#;
        let mut file = Store::open(&path).unwrap();
        file.commit(7, std::iter::once((&key, Some(landed.as_slice()))))
            .unwrap();
        drop(file);

        let broken = Arc::new(AtomicBool::new(false));
        let store = Store::on_failing_disk(&path, FailingDisk::new(Arc::clone(&broken)));
        let mirror = Arc::new(Mirror::new(State::default(), HistoryLimits::default()));
        let admission = Arc::new(AcceptAll);
        let rules = Rules {
            schemas: Arc::new(Schemas::new()),
            admission,
        };
        let (writer, thread) = Writer::start(store, Arc::clone(&mirror), rules).unwrap();
        writer.write(create("a")).await.unwrap();
        broken.store(true, Ordering::SeqCst);
        let refused = writer.write(create("b")).await.unwrap_err();
        assert_eq!(refused.code(), 500);
        assert!(refused.to_string().contains("state.redb"), "{refused}");
        let key = |name| ObjectKey::new("spiderippools", "", name);
        assert!(
            !mirror.read().objects.contains_key(&key("b")),
            "seen before it was stored"
        );

        writer.write(create("c")).await.unwrap();
        {
            let state = mirror.read();
            let known = |name| state.objects.contains_key(&key(name));
            assert!(known("landed") && known("c"));
            assert_eq!(state.version, 8);
            assert!(
                state.changes_after(1, 9).is_none(),
                "watches must list again"
            );
        }
        writer.stop().await;
        thread.join().unwrap();
        let stored = Store::open(&path).unwrap().load().unwrap();
        assert_eq!(stored.objects.len(), 2);
    }
}

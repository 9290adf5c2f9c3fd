//! DELs that wait. The CNI binary writes those that found no agent to the folder `pending-del` and
//! answers success; the agent itself keeps those whose release the provider has not accepted.
//! Here they are run at start and once a minute (spec dataplane 1.5).
//!
//! Owns the folder from the agent's side: a file goes when its DEL has succeeded, stays while the
//! API is away or the provider refuses, and is set aside when it can never succeed.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use spiderpool_api::agent_v1::CniRequest;
use spiderpool_api::cni::{CniCode, CniCommand};
use spiderpool_controller::regular_file;

use crate::attachment::AttachmentKey;
use crate::files::{self, Durable};
use crate::flow::error::Failure;

/// Pause between two replays.
pub const REPLAY_PERIOD: Duration = Duration::from_secs(60);
/// What is appended to the name of a file that is set aside.
const ASIDE: &str = ".bad";
/// Largest file we read: the plugin takes a configuration of at most 8 MiB.
const MAX_FILE: u64 = 16 << 20;

/// What one replay did, for the log and for tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replay {
    /// DELs done, files gone.
    pub done: usize,
    /// Files that stay for the next time.
    pub kept: usize,
    /// Files set aside.
    pub aside: usize,
}

/// How a replayed DEL ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ran {
    /// Everything is freed.
    Done,
    /// It is to be run again.
    Waits,
}

/// A DEL could not be kept.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}; the agent needs to write there, choose another place with --run-dir", path.display())]
pub struct SpoolError {
    path: PathBuf,
    source: io::Error,
}

/// The folder.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    // Start, timer and an ADD that finds its own old DEL may meet.
    replaying: tokio::sync::Mutex<()>,
}

impl Spool {
    /// The spool in `dir`.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            replaying: tokio::sync::Mutex::new(()),
        }
    }

    /// Whether a DEL of this NIC waits: it must run before a new ADD of the same name.
    pub async fn holds(&self, container_id: &str, ifname: &str) -> bool {
        for path in self.files().await.unwrap_or_default() {
            if let Ok(request) = read(&path).await
                && request.container_id == container_id
                && request.ifname == ifname
            {
                return true;
            }
        }
        false
    }

    /// Keeps a DEL for the next replay; one of the same NIC that waits already is replaced.
    ///
    /// # Errors
    /// [`SpoolError`] names the file.
    pub async fn keep(&self, key: &AttachmentKey, del: &CniRequest) -> Result<(), SpoolError> {
        let path = self.dir.join(key.file_name());
        let unfinished = self.dir.join(format!(".{}", key.file_name()));
        let written = async {
            let text = serde_json::to_vec(del)?;
            files::make_dir(&self.dir).await?;
            files::replace(&path, &unfinished, text, Durable::Yes).await
        };
        written.await.map_err(|source| SpoolError { path, source })
    }

    /// A DEL of this NIC is done: one that waits has nothing left to do.
    pub async fn drop_done(&self, key: &AttachmentKey) {
        let path = self.dir.join(key.file_name());
        match files::remove(&path).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                // It runs once more, and finds nothing.
                tracing::warn!(path = %path.display(), %error, "cannot remove a DEL that is done");
            }
            _ => {}
        }
    }

    /// Runs every waiting DEL once, in the order of their names.
    pub async fn replay<F, R>(&self, run: F) -> Replay
    where
        F: Fn(CniRequest) -> R,
        R: Future<Output = Result<Ran, Failure>>,
    {
        let _alone = self.replaying.lock().await;
        let mut replay = Replay::default();
        let files = match self.files().await {
            Ok(files) => files,
            Err(error) => {
                tracing::warn!(dir = %self.dir.display(), %error, "cannot list the DELs that wait");
                return replay;
            }
        };
        for path in files {
            match self.replay_one(&path, &run).await {
                Outcome::Done => replay.done += 1,
                Outcome::Kept => replay.kept += 1,
                Outcome::Aside => replay.aside += 1,
            }
        }
        if replay != Replay::default() {
            let Replay { done, kept, aside } = replay;
            tracing::info!(done, kept, aside, "replayed DELs that wait");
        }
        replay
    }

    async fn replay_one<F, R>(&self, path: &Path, run: &F) -> Outcome
    where
        F: Fn(CniRequest) -> R,
        R: Future<Output = Result<Ran, Failure>>,
    {
        let request = match read(path).await {
            Ok(request) => request,
            Err(Unreadable::Gone) => return Outcome::Done,
            Err(Unreadable::Bad(reason)) => return set_aside(path, &reason).await,
        };
        match run(request).await {
            Ok(Ran::Waits) => Outcome::Kept,
            Ok(Ran::Done) => match files::remove(path).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    // It would run again every minute; harmless, as a DEL may be repeated.
                    tracing::warn!(path = %path.display(), %error, "cannot remove a replayed DEL");
                    Outcome::Kept
                }
                _ => Outcome::Done,
            },
            Err(error) if is_lasting(error.code) => {
                let reason = format!("code {}: {}", error.code.number(), error.msg);
                set_aside(path, &reason).await
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), code = error.code.number(), error = error.msg, "a DEL that waits failed again");
                Outcome::Kept
            }
        }
    }

    /// Only finished files: the writer renames them into place.
    async fn files(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = files::list(&self.dir).await?;
        found.retain(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(".json") && !name.starts_with('.')
        });
        found.sort();
        Ok(found)
    }
}

enum Outcome {
    Done,
    Kept,
    Aside,
}

enum Unreadable {
    Gone,
    Bad(String),
}

/// Repeating cannot help: the request itself is wrong.
const fn is_lasting(code: CniCode) -> bool {
    matches!(
        code,
        CniCode::Version | CniCode::Environment | CniCode::Decode | CniCode::Config
    )
}

async fn read(path: &Path) -> Result<CniRequest, Unreadable> {
    let file = path.to_owned();
    let text = match files::run(move || regular_file::read(&file, MAX_FILE)).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Unreadable::Gone),
        other => other.map_err(|error| Unreadable::Bad(error.to_string()))?,
    };
    let request: CniRequest =
        serde_json::from_slice(&text).map_err(|error| Unreadable::Bad(error.to_string()))?;
    if request.command == CniCommand::Del {
        Ok(request)
    } else {
        Err(Unreadable::Bad(format!(
            "it holds {}, not DEL",
            request.command
        )))
    }
}

async fn set_aside(path: &Path, reason: &str) -> Outcome {
    let mut aside = path.as_os_str().to_owned();
    aside.push(ASIDE);
    match files::rename(path, Path::new(&aside)).await {
        Ok(()) => {
            tracing::error!(path = %path.display(), reason, "a waiting DEL cannot be run; set aside with the suffix {ASIDE}, GC frees the address");
            Outcome::Aside
        }
        Err(error) => {
            tracing::error!(path = %path.display(), reason, %error, "a waiting DEL cannot be run nor set aside");
            Outcome::Kept
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn request(command: &str, container: &str) -> String {
        serde_json::json!({"v": 1, "command": command, "plugin": "eni-vlan", "containerID": container,
            "ifname": "net1", "conf": {"cniVersion": "1.0.0"}})
        .to_string()
    }

    fn failure(code: CniCode) -> Failure {
        let (msg, details) = ("bad".into(), String::new());
        Failure { code, msg, details }
    }

    fn spool(files: &[(&str, String)]) -> (tempfile::TempDir, Spool) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let spool = Spool::new(dir.path().to_owned());
        (dir, spool)
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn done_goes_bad_is_set_aside_and_the_rest_waits() {
        let (dir, spool) = spool(&[
            ("c-1-net1.json", request("DEL", "c-1")),
            ("c-2-net1.json", request("DEL", "c-2")),
            ("c-3-net1.json", "{".into()),
            ("c-4-net1.json", request("ADD", "c-4")),
            (".c-5-net1.json", "{".into()),
        ]);
        let seen = Mutex::new(Vec::new());
        let run = |request: CniRequest| {
            seen.lock().unwrap().push(request.container_id.clone());
            async move {
                match request.container_id.as_str() {
                    "c-1" => Ok(Ran::Done),
                    _ => Err(failure(CniCode::TryAgain)),
                }
            }
        };
        let want = Replay {
            done: 1,
            kept: 1,
            aside: 2,
        };
        assert_eq!(spool.replay(run).await, want);
        assert_eq!(
            names(dir.path()),
            [
                ".c-5-net1.json",
                "c-2-net1.json",
                "c-3-net1.json.bad",
                "c-4-net1.json.bad"
            ]
        );
        assert!(spool.holds("c-2", "net1").await);
        assert!(!spool.holds("c-1", "net1").await);
        let want = Replay {
            done: 0,
            kept: 1,
            aside: 0,
        };
        assert_eq!(spool.replay(run).await, want);
        assert_eq!(*seen.lock().unwrap(), ["c-1", "c-2", "c-2"]);
    }

    #[tokio::test]
    async fn what_is_kept_is_run_until_it_is_done() {
        let (dir, spool) = spool(&[("c-1-net1.json", request("DEL", "c-1"))]);
        let key = AttachmentKey::new("c-1", "net1".parse().unwrap()).unwrap();
        let mut again: CniRequest = serde_json::from_str(&request("DEL", "c-1")).unwrap();
        again.args = "again".into();
        spool.keep(&key, &again).await.unwrap();
        assert_eq!(names(dir.path()), ["c-1-net1.json"]);
        let run = |request: CniRequest| async move {
            assert_eq!(request.args, "again");
            Ok(Ran::Waits)
        };
        for _ in 0..2 {
            assert_eq!(spool.replay(run).await.kept, 1);
        }
        assert!(spool.holds("c-1", "net1").await);
        for _ in 0..2 {
            spool.drop_done(&key).await;
            assert!(names(dir.path()).is_empty());
        }
        std::fs::remove_dir_all(dir.path()).unwrap();
        spool.keep(&key, &again).await.unwrap();
        assert_eq!(spool.replay(|_| async { Ok(Ran::Done) }).await.done, 1);
        assert!(names(dir.path()).is_empty());
        std::fs::remove_dir(dir.path()).unwrap();
        std::fs::write(dir.path(), "").unwrap();
        let error = spool.keep(&key, &again).await.unwrap_err().to_string();
        assert!(error.contains("c-1-net1.json"), "{error}");
        std::fs::remove_file(dir.path()).unwrap();
    }

    #[tokio::test]
    async fn a_request_that_can_never_run_does_not_loop() {
        let (dir, spool) = spool(&[("c-1-net1.json", request("DEL", "c-1"))]);
        let run = |_| async { Err(failure(CniCode::Config)) };
        assert_eq!(spool.replay(run).await.aside, 1);
        assert_eq!(spool.replay(run).await, Replay::default());
        assert_eq!(names(dir.path()), ["c-1-net1.json.bad"]);
    }

    #[tokio::test]
    async fn a_pipe_in_the_folder_holds_nothing_up() {
        let (dir, spool) = spool(&[("c-2-net1.json", request("DEL", "c-2"))]);
        let pipe = dir.path().join("c-1-net1.json");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(!spool.holds("c-1", "net1").await);
        let run = |_| async { Ok(Ran::Done) };
        let replay = spool.replay(run).await;
        assert_eq!((replay.done, replay.aside), (1, 1));
        assert_eq!(names(dir.path()), ["c-1-net1.json.bad"]);
    }

    #[tokio::test]
    async fn no_folder_is_no_work() {
        let spool = Spool::new("/nonexistent/pending-del".into());
        let run = |_| async { Ok(Ran::Done) };
        assert_eq!(spool.replay(run).await, Replay::default());
    }
}

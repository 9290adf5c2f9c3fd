//! A list and a watch of one kind, read as compact rows, page by page; and the indexes that they keep.
//! kube's own watcher types whole metadata, which is most of a Pod.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::TryStreamExt;
use kube::Client;
use kube::api::{ListParams, WatchParams};
use kube::core::{Request, WatchEvent};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use super::pod_row::PodRow;
use crate::chain::full;
use crate::objects::error::store_error;
use crate::objects::{ObjectKey, StoreError};

/// Objects in a page.
const PAGE: u32 = 500;
/// The server ends a watch after so many seconds, below the idle limit of middle boxes.
const WATCH_SECONDS: u32 = 200;
/// A watch that says nothing for so long is dead.
const SILENCE: Duration = Duration::from_secs(205);
/// Before a broken list or watch begins anew.
const RETRY: Duration = Duration::from_secs(2);
/// So many watches in a row that only failed: the server may have been away, and its data been restored
/// from a copy. It would be silent until it has reached our version, so everything is listed anew.
const FAILURES: u32 = 2;

/// One page of a list.
#[derive(Debug, Deserialize)]
pub(super) struct Page<T> {
    metadata: PageMeta,
    items: Option<Vec<T>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageMeta {
    resource_version: String,
    r#continue: Option<String>,
}

/// A kind that can be followed.
pub(super) trait Raw: DeserializeOwned + Clone + Send + 'static {
    /// What is kept of an object.
    type Row: From<Self>;
    /// For messages.
    const KIND: &str;
    /// Path of the list of all.
    fn url() -> String;
    /// `metadata.resourceVersion`.
    fn version(&self) -> &str;
}

/// What became known of a kind.
#[derive(Debug)]
pub(super) enum News<R> {
    /// All objects there are follow.
    Begin,
    /// An object as it is.
    Is(R),
    /// An object as it was last.
    Gone(R),
    /// That were all.
    Listed,
}

/// Lists a kind page by page; the answer is the version of the list.
///
/// # Errors
/// [`StoreError`]: what came before it has been handed out.
pub(super) async fn list<T: DeserializeOwned>(
    client: &Client,
    url: &str,
    what: &str,
    mut each: impl FnMut(T),
) -> Result<String, StoreError> {
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let request = Request::new(url).list(&params);
        let request = request.map_err(kube::Error::BuildRequest);
        let request = request.map_err(|error| store_error(error, "list", what))?;
        let page: Result<Page<T>, _> = client.request(request).await;
        let page = page.map_err(|error| store_error(error, "list", what))?;
        page.items.into_iter().flatten().for_each(&mut each);
        match page.metadata.r#continue {
            Some(token) if !token.is_empty() => params.continue_token = Some(token),
            _ => return Ok(page.metadata.resource_version),
        }
    }
}

/// Tells about all objects of a kind and every change of one, for ever.
pub(super) async fn follow<T: Raw>(client: &Client, mut each: impl FnMut(News<T::Row>)) {
    loop {
        each(News::Begin);
        let listed = list(client, &T::url(), T::KIND, |raw: T| {
            each(News::Is(raw.into()))
        })
        .await;
        match listed {
            Ok(version) => {
                each(News::Listed);
                watch_from::<T>(client, version, &mut each).await;
            }
            Err(error) => tracing::warn!("{}", full(&error)),
        }
        sleep(RETRY).await;
    }
}

/// Until there is nothing to go on from.
async fn watch_from<T: Raw>(
    client: &Client,
    mut version: String,
    each: &mut impl FnMut(News<T::Row>),
) {
    let mut failures = 0;
    loop {
        let (begun, before) = (Instant::now(), version.clone());
        match watch::<T>(client, &mut version, each).await {
            Ok(Watched::Ended) => failures = 0,
            Ok(Watched::TooOld) => return,
            Err(kube::Error::Api(status)) if status.code == 410 => return,
            Err(error) => {
                failures = if version == before { failures + 1 } else { 1 };
                let (kind, error) = (T::KIND, full(&error));
                if failures == FAILURES {
                    tracing::warn!("the watch of {kind} fails, they are listed anew: {error}");
                    return;
                }
                tracing::debug!("the watch of {kind} begins anew: {error}");
            }
        }
        // Also where servers or middle boxes end every watch at once.
        if begun.elapsed() < RETRY {
            sleep(RETRY).await;
        }
    }
}

/// How a watch ended.
enum Watched {
    Ended,
    TooOld,
}

async fn watch<T: Raw>(
    client: &Client,
    version: &mut String,
    each: &mut impl FnMut(News<T::Row>),
) -> Result<Watched, kube::Error> {
    let params = WatchParams::default().timeout(WATCH_SECONDS);
    let request = Request::new(T::url()).watch(&params, version);
    let events = client.request_events::<T>(request.map_err(kube::Error::BuildRequest)?);
    let mut events = pin!(events.await?);
    while let Ok(next) = timeout(SILENCE, events.try_next()).await {
        let (row, gone) = match next? {
            None => break,
            Some(WatchEvent::Added(raw) | WatchEvent::Modified(raw)) => (raw, false),
            Some(WatchEvent::Deleted(raw)) => (raw, true),
            Some(WatchEvent::Bookmark(mark)) => {
                *version = mark.metadata.resource_version;
                continue;
            }
            Some(WatchEvent::Error(status)) if status.code == 410 => return Ok(Watched::TooOld),
            Some(WatchEvent::Error(status)) => return Err(kube::Error::Api(status)),
        };
        row.version().clone_into(version);
        each(if gone {
            News::Gone(row.into())
        } else {
            News::Is(row.into())
        });
    }
    Ok(Watched::Ended)
}

/// All Pods, as far as the watch knows.
#[derive(Debug, Default)]
pub(super) struct Pods(Mutex<PodTable>);

#[derive(Debug, Default)]
struct PodTable {
    by_key: BTreeMap<ObjectKey, Arc<PodRow>>,
    by_uid: BTreeMap<String, Arc<PodRow>>,
    /// While a list comes in: what it has had so far.
    listing: Option<BTreeSet<ObjectKey>>,
    filled: bool,
}

/// A change that may end a Pod's hold on its addresses.
#[derive(Debug, Clone)]
pub(super) enum PodChange {
    /// It is so now.
    Is(Arc<PodRow>),
    /// It is gone.
    Gone(Arc<PodRow>),
}

impl Pods {
    /// Takes news in; the answer is what changed by it.
    pub(super) fn take(&self, news: News<PodRow>) -> Vec<PodChange> {
        self.lock().take(news)
    }

    /// Whether all Pods have been listed once.
    pub(super) fn is_filled(&self) -> bool {
        self.lock().filled
    }

    /// The Pod of a record: that with its UID, else that of its key.
    pub(super) fn of(&self, key: &ObjectKey, uid: &str) -> Option<Arc<PodRow>> {
        let table = self.lock();
        let found = table.by_uid.get(uid).or_else(|| table.by_key.get(key));
        found.map(Arc::clone)
    }

    fn lock(&self) -> MutexGuard<'_, PodTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PodTable {
    fn take(&mut self, news: News<PodRow>) -> Vec<PodChange> {
        match news {
            News::Begin => {
                self.listing = Some(BTreeSet::new());
                Vec::new()
            }
            News::Is(row) => {
                if let Some(listed) = &mut self.listing {
                    listed.insert(row.key.clone());
                }
                self.put(Arc::new(row))
            }
            News::Gone(row) => self.remove(&row.key, &row.state.uid).into_iter().collect(),
            News::Listed => {
                self.filled = true;
                let listed = self.listing.take().unwrap_or_default();
                let rows = self.by_key.values();
                let gone = rows.filter(|row| !listed.contains(&row.key));
                let gone: Vec<Arc<PodRow>> = gone.map(Arc::clone).collect();
                let gone = gone.iter();
                gone.filter_map(|row| self.remove(&row.key, &row.state.uid))
                    .collect()
            }
        }
    }

    fn put(&mut self, row: Arc<PodRow>) -> Vec<PodChange> {
        let uid = row.state.uid.clone();
        let before = self.by_key.insert(row.key.clone(), Arc::clone(&row));
        self.by_uid.insert(uid.clone(), Arc::clone(&row));
        // A Pod of the same name in between was not seen to go.
        let replaced = before.filter(|before| before.state.uid != uid);
        let replaced = replaced.and_then(|before| self.by_uid.remove(&before.state.uid));
        let mut changes: Vec<PodChange> = replaced.map(PodChange::Gone).into_iter().collect();
        changes.push(PodChange::Is(row));
        changes
    }

    fn remove(&mut self, key: &ObjectKey, uid: &str) -> Option<PodChange> {
        let removed = self.by_uid.remove(uid)?;
        if self.by_key.get(key).is_some_and(|row| row.state.uid == uid) {
            self.by_key.remove(key);
        }
        Some(PodChange::Gone(removed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str, uid: &str) -> PodRow {
        let (namespace, name) = key.split_once('/').unwrap();
        let pod =
            serde_json::json!({"metadata": {"namespace": namespace, "name": name, "uid": uid}});
        PodRow::from(serde_json::from_value::<super::super::pod_row::RawPod>(pod).unwrap())
    }

    fn words(changes: Vec<PodChange>) -> Vec<String> {
        let word = |change| match change {
            PodChange::Is(row) => format!("is {}", row.state.uid),
            PodChange::Gone(row) => format!("gone {}", row.state.uid),
        };
        changes.into_iter().map(word).collect()
    }

    #[test]
    fn the_index_tells_every_end_of_a_pod() {
        let pods = Pods::default();
        let tell = |news| words(pods.take(news));
        assert!(tell(News::Begin).is_empty() && !pods.is_filled());
        for (key, uid) in [("ns/a", "1"), ("ns/b", "2"), ("ns/c", "3")] {
            assert_eq!(tell(News::Is(row(key, uid))), [format!("is {uid}")]);
        }
        assert!(tell(News::Listed).is_empty() && pods.is_filled());
        assert_eq!(tell(News::Gone(row("ns/a", "1"))), ["gone 1"]);
        assert!(tell(News::Gone(row("ns/a", "1"))).is_empty());
        // Deleted and made anew while nobody watched.
        assert_eq!(tell(News::Is(row("ns/b", "9"))), ["gone 2", "is 9"]);
        // The late news of the former Pod does not touch its successor.
        assert!(tell(News::Gone(row("ns/b", "2"))).is_empty());
        let key = ObjectKey::new("ns", "b");
        assert_eq!(pods.of(&key, "2").unwrap().state.uid, "9");
        // Gone while the list came in anew.
        tell(News::Begin);
        tell(News::Is(row("ns/b", "9")));
        assert_eq!(tell(News::Listed), ["gone 3"]);
        assert!(pods.of(&ObjectKey::new("ns", "c"), "3").is_none());
    }

    /// How many lists and watches there are in a minute when every watch is answered so.
    async fn requests(status: u16, body: &'static str) -> (u32, u32) {
        let counts = Arc::new(Mutex::new((0, 0)));
        let counted = Arc::clone(&counts);
        let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let is_watch = request.uri().query().unwrap_or_default().contains("watch=");
            let mut counts = counted.lock().unwrap();
            let (status, body) = if is_watch {
                counts.1 += 1;
                (status, body)
            } else {
                counts.0 += 1;
                (200, r#"{"metadata":{"resourceVersion":"5"},"items":[]}"#)
            };
            let answer = http::Response::builder().status(status);
            let answer = answer.body(kube::client::Body::from(body.as_bytes().to_vec()));
            async move { Ok::<_, tower::BoxError>(answer.unwrap()) }
        });
        let client = Client::new(server, "default");
        let following = follow::<super::super::pod_row::RawPod>(&client, |_| {});
        assert!(timeout(Duration::from_mins(1), following).await.is_err());
        *counts.lock().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_cannot_go_on_is_listed_anew() {
        let gone = r#"{"kind":"Status","status":"Failure","reason":"Expired","code":410}"#;
        let (lists, watches) = requests(410, gone).await;
        assert!(lists > 10 && watches == lists, "{lists} {watches}");
        // A server that is away.
        let ahead = r#"{"kind":"Status","status":"Failure","reason":"Timeout","code":504}"#;
        for (status, body) in [(504, ahead), (200, "<html>"), (502, "<html>")] {
            let (lists, watches) = requests(status, body).await;
            assert!(lists > 2 && watches > 10, "{status}: {lists} {watches}");
        }
        // Every watch ends at once: no reason to list, and none to ask without pause.
        let (lists, watches) = requests(200, "").await;
        assert!(
            lists == 1 && (10..=31).contains(&watches),
            "{lists} {watches}"
        );
    }
}

//! Watches: a stream of JSON lines over the mirror's history. A watch is pulled by its client and
//! holds a position only; see `mirror` for what that is good for.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::Stream;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::kinds::Kind;
use crate::mirror::{self, Change, Mirror, Stored};
use crate::object_key::ObjectKey;
use crate::params::ListParams;
use crate::selector::Selector;
use crate::status::ApiError;
use crate::view::View;

/// Length of a watch whose client names none.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(50);
/// How often a client that wants bookmarks gets one, so that a quiet watch can resume late.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// Changes sent in one piece.
const CHUNK: usize = 64;

/// One client's watch.
pub(crate) struct Watch {
    mirror: Arc<Mirror>,
    bell: watch::Receiver<u64>,
    stop: CancellationToken,
    kind: &'static Kind,
    view: View,
    prefix: String,
    selector: Selector,
    /// Objects to send as ADDED before the first change.
    initial: std::vec::IntoIter<Stored>,
    /// Whether the end of `initial` is still to be marked.
    mark_end: bool,
    position: u64,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    ended: bool,
}

impl Watch {
    /// Starts where the parameters say.
    pub(crate) fn start(
        mirror: &Arc<Mirror>,
        stop: CancellationToken,
        kind: &'static Kind,
        namespace: Option<&str>,
        view: View,
        params: ListParams,
    ) -> Result<Self, ApiError> {
        let bell = mirror.subscribe();
        let prefix = ObjectKey::prefix(kind.collection, namespace);
        let asked = params.version.filter(|version| *version > 0);
        let with_initial = params.send_initial.unwrap_or(asked.is_none());
        let (current, initial) = {
            let state = mirror.read();
            let mut initial = Vec::new();
            if with_initial {
                let all = mirror::range(&state.objects, &prefix, None);
                let selected = all.filter(|(key, o)| params.selector.matches(key, &o.facts));
                initial.extend(selected.map(|(_, object)| object.clone()));
            }
            (state.version, initial)
        };
        if let Some(asked) = asked.filter(|asked| with_initial && *asked > current) {
            return Err(ApiError::too_new(asked, current));
        }
        let timeout = params
            .timeout_seconds
            .map_or(DEFAULT_TIMEOUT, Duration::from_secs);
        let now = Instant::now();
        Ok(Self {
            mirror: Arc::clone(mirror),
            bell,
            stop,
            kind,
            view,
            prefix,
            selector: params.selector,
            mark_end: with_initial && params.send_initial.is_some(),
            initial: initial.into_iter(),
            position: if with_initial {
                current
            } else {
                asked.unwrap_or(current)
            },
            bookmarks: params.bookmarks,
            next_bookmark: now + BOOKMARK_EVERY,
            deadline: now + timeout.min(DEFAULT_TIMEOUT * 24),
            ended: false,
        })
    }

    /// The lines as a body.
    pub(crate) fn into_stream(
        self,
    ) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> + Send {
        futures::stream::unfold(self, |mut watch| async move {
            let chunk = watch.next().await?;
            Some((Ok(chunk), watch))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        if let Some(chunk) = self.initial_chunk() {
            return Some(chunk);
        }
        while !self.ended {
            let changes = self.mirror.read().changes_after(self.position, CHUNK);
            match changes {
                None => return Some(self.gone()),
                Some(changes) if !changes.is_empty() => {
                    if let Some(chunk) = self.lines(&changes) {
                        return Some(chunk);
                    }
                }
                Some(_) => {
                    if let Some(bookmark) = self.wait().await {
                        return Some(bookmark);
                    }
                }
            }
        }
        None
    }

    /// Sleeps until there may be something to send; gives a bookmark if one is due.
    async fn wait(&mut self) -> Option<Bytes> {
        let wake = self.deadline.min(self.next_bookmark);
        tokio::select! {
            rung = self.bell.changed() => self.ended = rung.is_err(),
            () = self.stop.cancelled() => self.ended = true,
            () = sleep_until(wake) => {
                self.next_bookmark = wake + BOOKMARK_EVERY;
                self.ended = wake >= self.deadline;
                return self.bookmarks.then(|| self.bookmark(false));
            }
        }
        None
    }

    fn initial_chunk(&mut self) -> Option<Bytes> {
        let now = clock::now();
        let mut chunk = BytesMut::new();
        for stored in self.initial.by_ref().take(CHUNK) {
            line(
                &mut chunk,
                "ADDED",
                &self.view.object(self.kind, &stored.json, now),
            );
        }
        if chunk.is_empty() && self.mark_end {
            self.mark_end = false;
            return Some(self.bookmark(true));
        }
        (!chunk.is_empty()).then(|| chunk.freeze())
    }

    fn lines(&mut self, changes: &[Change]) -> Option<Bytes> {
        let now = clock::now();
        let mut chunk = BytesMut::new();
        for change in changes {
            self.position = change.object.version;
            if let Some(event) = self.event(change) {
                line(
                    &mut chunk,
                    event,
                    &self.view.object(self.kind, &change.object.json, now),
                );
            }
        }
        (!chunk.is_empty()).then(|| chunk.freeze())
    }

    /// What a change is to this watch: objects enter and leave a selection without being created
    /// or deleted.
    fn event(&self, change: &Change) -> Option<&'static str> {
        if !change.key.as_str().starts_with(&self.prefix) {
            return None;
        }
        let selected = |facts| self.selector.matches(&change.key, facts);
        let before = change.before.as_ref().is_some_and(|facts| selected(facts));
        let after = !change.deleted && selected(&change.object.facts);
        match (before, after) {
            (false, true) => Some("ADDED"),
            (true, true) => Some("MODIFIED"),
            (true, false) => Some("DELETED"),
            (false, false) => None,
        }
    }

    fn bookmark(&self, initial_end: bool) -> Bytes {
        let object = self.view.bookmark(self.kind, self.position, initial_end);
        format!("{}\n", json!({"type": "BOOKMARK", "object": object})).into()
    }

    fn gone(&mut self) -> Bytes {
        self.ended = true;
        let current = self.mirror.read().version;
        let message = format!("too old resource version: {} ({current})", self.position);
        let status = ApiError::expired(message).body();
        format!("{}\n", json!({"type": "ERROR", "object": status})).into()
    }
}

fn line(chunk: &mut BytesMut, event: &str, object: &Bytes) {
    chunk.put_slice(b"{\"type\":\"");
    chunk.put_slice(event.as_bytes());
    chunk.put_slice(b"\",\"object\":");
    chunk.put_slice(object);
    chunk.put_slice(b"}\n");
}

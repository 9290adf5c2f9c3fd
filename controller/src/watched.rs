//! Watches that list anew whenever one could not be begun. A server whose data were restored from a
//! copy has lower versions than its clients remember; it answers a watch from such a version with
//! silence, and what changes until its versions have caught up is never told. A restore takes the
//! server away, so it is seen as a watch that cannot be begun.
//!
//! Owns no object and no word in the log.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::{BoxStream, unfold};
use futures::{Stream, StreamExt};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{Config, DefaultBackoff, Error, Event, Result, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

struct Watched<K, B> {
    begin: B,
    events: BoxStream<'static, Result<Event<K>>>,
    pauses: DefaultBackoff,
    /// Before the next look at the events.
    pause: Option<Duration>,
}

/// Every event of a watch, for ever. After a failure comes a pause, which grows with each until an
/// object changes or nothing has failed for two minutes; that a list is about to be asked for is no
/// success.
pub fn watched<K>(api: Api<K>, config: Config) -> impl Stream<Item = Result<Event<K>>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    relisting(move || watcher(api.clone(), config.clone()).boxed())
}

fn relisting<K, B>(begin: B) -> impl Stream<Item = Result<Event<K>>> + Send
where
    K: Send + 'static,
    B: Fn() -> BoxStream<'static, Result<Event<K>>> + Send,
{
    let events = begin();
    let watched = Watched {
        begin,
        events,
        pauses: DefaultBackoff::default(),
        pause: None,
    };
    unfold(watched, |mut watched| async move {
        if let Some(pause) = watched.pause.take() {
            sleep(pause).await;
        }
        let event = watched.events.next().await?;
        match &event {
            Ok(Event::Apply(_) | Event::Delete(_)) => watched.pauses.reset(),
            // A list may succeed again and again where no watch can be begun.
            Ok(Event::Init | Event::InitApply(_) | Event::InitDone) => {}
            Err(error) => {
                watched.pause = watched.pauses.next();
                if matches!(error, Error::WatchStartFailed(_)) {
                    watched.events = (watched.begin)();
                }
            }
        }
        Some((event, watched))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use kube::core::Status;
    use std::sync::{Arc, Mutex};
    use tokio::time::{Instant, timeout};

    fn refused() -> kube::Error {
        kube::Error::Api(Box::new(Status::failure("no", "Forbidden").with_code(403)))
    }

    /// What a stream says that is begun as often as there are scripts; the last one lasts.
    fn played(scripts: Vec<Vec<Result<Event<u8>>>>) -> impl Stream<Item = Result<Event<u8>>> {
        let scripts = Arc::new(Mutex::new(scripts.into_iter()));
        let begin = move || {
            let script = scripts.lock().unwrap().next().unwrap_or_default();
            stream::iter(script).chain(stream::pending()).boxed()
        };
        relisting(begin)
    }

    async fn heard(stream: impl Stream<Item = Result<Event<u8>>>, time: Duration) -> Vec<String> {
        let mut heard = Vec::new();
        let listening = stream.for_each(|event| {
            heard.push(match event {
                Ok(event) => format!("{event:?}"),
                Err(_) => "failed".to_owned(),
            });
            std::future::ready(())
        });
        assert!(timeout(time, listening).await.is_err());
        heard
    }

    #[tokio::test(start_paused = true)]
    async fn what_changed_during_an_outage_is_listed() {
        let cut = || Err(Error::WatchFailed(refused()));
        let away = || Err(Error::WatchStartFailed(refused()));
        let first = vec![
            Ok(Event::Init),
            Ok(Event::InitDone),
            cut(),
            Ok(Event::Apply(1)),
            away(),
        ];
        // What the server tells from the version it was asked for on; nothing, after a restore.
        let second = vec![
            Ok(Event::Init),
            Ok(Event::InitApply(2)),
            Ok(Event::InitDone),
        ];
        let heard = heard(played(vec![first, second]), Duration::from_secs(60)).await;
        let all = "Init InitDone failed Apply(1) failed Init InitApply(2) InitDone";
        assert_eq!(heard.join(" "), all);
    }

    #[tokio::test(start_paused = true)]
    async fn who_may_not_list_or_watch_does_not_ask_each_second() {
        let unlisted = || vec![Ok(Event::Init), Err(Error::InitialListFailed(refused()))];
        let no_list = unlisted()
            .into_iter()
            .chain((0..1000).flat_map(|_| unlisted()));
        let no_list = vec![no_list.collect()];
        let unwatched = || {
            let failed = Error::WatchStartFailed(refused());
            vec![Ok(Event::Init), Ok(Event::InitDone), Err(failed)]
        };
        let no_watch = (0..1000).map(|_| unwatched()).collect();
        for script in [no_list, no_watch] {
            let begun = Instant::now();
            let heard = heard(played(script), Duration::from_mins(10)).await;
            let tries = heard.iter().filter(|word| *word == "failed").count();
            assert!(
                (10..40).contains(&tries),
                "{tries} in {:?}",
                begun.elapsed()
            );
        }
    }
}

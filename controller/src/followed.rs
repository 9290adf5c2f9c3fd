//! Watches of the API as reconcilers and webhooks follow them: all end and begin anew in the same way,
//! and whoever reads the log learns once that one fails, why, what to do, and that it works again.
//!
//! Owns no object. What a failure means for the objects is the reader's business.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::{BoxStream, unfold};
use futures::{Stream, StreamExt};
use kube::runtime::watcher::{Config, Error, Event, Result};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};

use crate::chain::full;
use crate::complaints::Complaints;
use crate::watched::watched;

/// A watch ends by itself after this many seconds, below the idle limit of middle boxes.
const WATCH_SECONDS: u32 = 200;
/// A watch that did not fail for so long works, although no object changed: a try and the longest
/// pause before the next one, twice.
const QUIET: Duration = Duration::from_secs(90);

/// Every event of a watch, for ever. Failures are told here, and handed on.
pub fn follow<K>(api: Api<K>, config: Config, what: &str) -> impl Stream<Item = Result<Event<K>>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let events = watched(api, config.timeout(WATCH_SECONDS));
    told(events.boxed(), what)
}

fn told<K: Send + 'static>(
    events: BoxStream<'static, Result<Event<K>>>,
    what: &str,
) -> BoxStream<'static, Result<Event<K>>> {
    let health = Health::new(what);
    unfold((events, health), |(mut events, mut health)| async {
        let event = loop {
            let quiet = health.quiet;
            tokio::select! {
                biased;
                event = events.next() => break event?,
                () = until(quiet) => health.works(),
            }
        };
        match &event {
            // Said before each list, whether it will be answered or not.
            Ok(Event::Init) => {}
            Ok(_) => health.works(),
            Err(error) => health.fails(error),
        }
        Some((event, (events, health)))
    })
    .boxed()
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Whether the server does not have the kind at all, not just no such object.
#[must_use]
pub fn has_no_kind(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 && status.reason != "NotFound")
}

struct Health {
    about: String,
    complaints: Complaints,
    failures: u32,
    /// When it works unless it fails again.
    quiet: Option<Instant>,
}

impl Health {
    fn new(what: &str) -> Self {
        Self {
            about: format!("the watch of {what}"),
            complaints: Complaints::default(),
            failures: 0,
            quiet: None,
        }
    }

    fn works(&mut self) {
        self.failures = 0;
        self.quiet = None;
        self.complaints.over(&self.about);
    }

    fn fails(&mut self, error: &Error) {
        self.failures += 1;
        self.quiet = Some(Instant::now() + QUIET);
        // A watch that is cut off is the daily life of servers that restart; one that cannot be
        // begun anew is not.
        let is_cut = matches!(error, Error::WatchError(_) | Error::WatchFailed(_));
        if is_cut && self.failures == 1 {
            tracing::debug!("{} begins anew: {}", self.about, full(error));
        } else {
            let advice = advice(error);
            let words = format!("fails and is tried again: {}{advice}", full(error));
            self.complaints.say(&self.about, &words);
        }
    }
}

/// What somebody can do about it.
fn advice(error: &Error) -> &'static str {
    let cause = match error {
        Error::InitialListFailed(cause)
        | Error::WatchStartFailed(cause)
        | Error::WatchFailed(cause) => cause,
        Error::WatchError(status) if status.code == 403 => return RIGHTS,
        _ => return "",
    };
    match cause {
        kube::Error::Api(status) if status.code == 403 => RIGHTS,
        cause if has_no_kind(cause) => {
            "; the cluster has no such kind: install its CustomResourceDefinition"
        }
        _ => "",
    }
}

/// The API's own words name resource, verb and account.
const RIGHTS: &str = "; add this right to the account's ClusterRole";

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use kube::core::Status;

    fn refused() -> Error {
        let status = Status::failure(
            "spidersubnets is forbidden: User \"c\" cannot list resource \"spidersubnets\"",
            "Forbidden",
        );
        Error::InitialListFailed(kube::Error::Api(Box::new(status.with_code(403))))
    }

    #[test]
    fn a_refusal_is_one_line_with_advice() {
        let text = format!("{}{}", full(&refused()), advice(&refused()));
        assert_eq!(
            text,
            "cannot be listed: spidersubnets is forbidden: User \"c\" cannot list resource \"spidersubnets\" (Forbidden, HTTP 403); add this right to the account's ClusterRole"
        );
        let absent = Status::failure("404 page not found", "Failed to parse error data");
        let absent = kube::Error::Api(Box::new(absent.with_code(404)));
        assert!(has_no_kind(&absent));
        assert!(advice(&Error::InitialListFailed(absent)).contains("CustomResourceDefinition"));
        let other = Status::failure("no namespace", "NotFound").with_code(404);
        assert!(!has_no_kind(&kube::Error::Api(Box::new(other))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_works_again_with_an_event_or_after_a_quiet_time() {
        let events: Vec<Result<Event<u8>>> = vec![
            Ok(Event::Init),
            Err(refused()),
            Ok(Event::Init),
            Err(refused()),
        ];
        let silent = stream::iter(events).chain(stream::pending());
        let mut health = Health::new("Things");
        let mut told = told(silent.boxed(), "Things");
        for _ in 0..4 {
            match told.next().await {
                Some(Err(error)) => health.fails(&error),
                other => assert!(matches!(other, Some(Ok(Event::Init)))),
            }
        }
        assert_eq!((health.failures, health.quiet.is_some()), (2, true));
        let waited = tokio::time::timeout(QUIET * 2, told.next()).await;
        assert!(waited.is_err(), "what is quiet has no event");
        health.works();
        assert_eq!((health.failures, health.quiet), (0, None));
    }
}

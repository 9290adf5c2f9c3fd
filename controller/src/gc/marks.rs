//! Release markers of others in records: whose time they have, by the wall time they carry and by what
//! this process has watched. A marker that only looks old, because the own clock was set, is not taken over:
//! its owner's call may be under way, and would take the address from the next Pod.

use std::net::IpAddr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use spiderpool_api::allocation::{Record, Releasing};

use super::first_seen::FirstSeen;
use super::{Gc, TAKEOVER};

/// So long a marker is remembered. One that stands on is seen anew then, and waits once more.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// A marker: pool, address, whose, of when.
type Key = (String, IpAddr, String, String);

/// Markers of others, since they were seen first.
#[derive(Debug, Default)]
pub(super) struct ReleaseMarks(FirstSeen<Key>);

impl ReleaseMarks {
    pub(super) fn forget_old(&self) {
        self.0.forget_older(REMEMBERED);
    }

    /// How long the marker's owner still has; zero: it may be taken over.
    fn left(&self, pool: &str, address: IpAddr, mark: &Releasing, now: Timestamp) -> Duration {
        let key = (pool.to_owned(), address, mark.by.clone(), mark.at.clone());
        let unwatched = TAKEOVER.saturating_sub(self.0.see(key));
        let marked: Option<Timestamp> = mark.at.parse().ok();
        let age = marked.map(|at| now.duration_since(at));
        // Whole seconds count, and the next look must not come a moment too early.
        let needed = SignedDuration::try_from(TAKEOVER).unwrap_or(SignedDuration::MAX);
        let young = age.filter(|age| *age < needed);
        let left = young.map(|age| {
            needed
                .saturating_sub(age)
                .saturating_add(SignedDuration::from_secs(1))
        });
        let left = left.and_then(|left| Duration::try_from(left).ok());
        unwatched.max(left.unwrap_or_default())
    }
}

impl Gc {
    /// How long somebody else still has to give this address back; `None` when nobody has marked it but us.
    pub(super) fn marked(
        &self,
        pool: &str,
        address: IpAddr,
        record: &Record,
        now: Timestamp,
    ) -> Option<Duration> {
        let mark = record.releasing.as_ref();
        let mark = mark.filter(|mark| mark.by != self.actor)?;
        Some(self.marks.left(pool, address, mark, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn a_marker_has_its_time_by_both_clocks() {
        let marks = ReleaseMarks::default();
        let mark = Releasing {
            by: "agent/n1/7".into(),
            at: "2027-01-05T10:00:00Z".into(),
        };
        let address = "10.0.0.1".parse().unwrap();
        let begun: Timestamp = mark.at.parse().unwrap();
        let left = |after: i64| {
            let now = begun + SignedDuration::from_secs(after);
            marks.left("p", address, &mark, now).as_secs()
        };
        assert_eq!(left(1), 120);
        // The clock was set forward: the owner has had no more time for that.
        assert_eq!(left(3_600), 120);
        advance(TAKEOVER - Duration::from_secs(1)).await;
        assert_eq!((left(3_600), left(100)), (1, 21));
        advance(Duration::from_secs(1)).await;
        assert_eq!((left(120), left(119)), (0, 2));
        // Back: as long as that takes.
        assert_eq!(left(-60), 181);
    }
}

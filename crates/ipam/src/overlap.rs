//! Of two pools (or subnets) whose addresses overlap although both passed admission, the later one
//! gives out nothing (spec ipam 3.4, case B09). Every process computes the same loser from the
//! objects alone.

use std::sync::Arc;

use crate::pool::Pool;
use crate::range::IpRange;
use crate::range_set::RangeSet;

/// An object that owns addresses.
#[derive(Debug, Clone, Copy)]
pub struct Territory<'a> {
    /// Object name, unique within the kind.
    pub name: &'a str,
    /// `metadata.creationTimestamp` as stored; empty while the object is being created.
    pub created: &'a str,
    /// Its addresses.
    pub addresses: &'a RangeSet,
}

impl<'a> Territory<'a> {
    /// A pool with the addresses it may give out.
    #[must_use]
    pub fn of_pool(pool: &'a Pool) -> Self {
        Self {
            name: &pool.name,
            created: &pool.created,
            addresses: &pool.usable,
        }
    }

    /// Earlier ones win: by creation time, then by name.
    fn rank(&self) -> (bool, &str, &str) {
        (self.created.is_empty(), self.created, self.name)
    }
}

/// What an object loses to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    /// Name of the earliest object it overlaps.
    pub winner: String,
    /// First range they share.
    pub shared: IpRange,
}

/// What `one` loses to, if to any of `others`; itself among them does not count.
pub fn loses_to<'a>(
    one: Territory<'_>,
    others: impl IntoIterator<Item = Territory<'a>>,
) -> Option<Overlap> {
    let mut winner: Option<(Territory<'a>, IpRange)> = None;
    for other in others {
        if other.name == one.name || other.rank() >= one.rank() {
            continue;
        }
        let shared = other.addresses.intersect(one.addresses);
        let Some(range) = shared.ranges().first() else {
            continue;
        };
        if winner.is_none_or(|(known, _)| other.rank() < known.rank()) {
            winner = Some((other, *range));
        }
    }
    winner.map(|(other, shared)| Overlap {
        winner: other.name.to_owned(),
        shared,
    })
}

/// What a pool loses to among all pools.
#[must_use]
pub fn pool_loses_to(pool: &Pool, pools: &[Arc<Pool>]) -> Option<Overlap> {
    let others = pools.iter().map(|other| Territory::of_pool(other));
    loses_to(Territory::of_pool(pool), others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> RangeSet {
        RangeSet::from_texts(&[text]).unwrap()
    }

    /// Case B09: the loser is fixed by creation time, then by name.
    #[test]
    fn b09_the_loser_is_the_later_one() {
        let (first, second) = (set("10.36.0.10-10.36.0.29"), set("10.36.0.20-10.36.0.39"));
        let (early, late) = ("2027-01-05T10:00:00Z", "2027-01-05T10:00:01Z");
        let at = |name, created, addresses| Territory {
            name,
            created,
            addresses,
        };
        for (one, two, want) in [
            ((early, "r-1"), (late, "r-2"), [None, Some("r-1")]),
            ((late, "r-1"), (early, "r-2"), [Some("r-2"), None]),
            ((early, "r-1"), (early, "r-2"), [None, Some("r-1")]),
            ((early, "r-2"), (early, "r-1"), [Some("r-1"), None]),
            (("", "r-1"), (early, "r-2"), [Some("r-2"), None]),
        ] {
            let pair = [at(one.1, one.0, &first), at(two.1, two.0, &second)];
            let found = pair.map(|item| loses_to(item, pair));
            let names = found.clone().map(|found| found.map(|lost| lost.winner));
            assert_eq!(
                names.each_ref().map(Option::as_deref),
                want,
                "{one:?} {two:?}"
            );
            let shared = found.into_iter().flatten().next().unwrap().shared;
            assert_eq!(shared.to_string(), "10.36.0.20-10.36.0.29");
        }
        let apart = set("10.37.0.0-10.37.0.9");
        let pair = [at("a", early, &first), at("b", late, &apart)];
        assert_eq!(pair.map(|item| loses_to(item, pair)), [None, None]);
    }

    #[test]
    fn b09_subnets_lose_by_the_same_rule() {
        let whole: RangeSet =
            std::iter::once(IpRange::of_net("10.37.0.0/24".parse().unwrap())).collect();
        let half: RangeSet =
            std::iter::once(IpRange::of_net("10.37.0.0/25".parse().unwrap())).collect();
        let of = |name, addresses| Territory {
            name,
            created: "2027-01-05T10:00:00Z",
            addresses,
        };
        let lost = loses_to(of("s-b", &half), [of("s-a", &whole)]).unwrap();
        assert_eq!(
            (lost.winner.as_str(), lost.shared.to_string().as_str()),
            ("s-a", "10.37.0.0-10.37.0.127")
        );
        assert_eq!(loses_to(of("s-a", &whole), [of("s-b", &half)]), None);
    }

    #[test]
    fn the_earliest_of_several_winners_is_named() {
        let all = set("10.0.0.0-10.0.0.9");
        let of = |name, created| Territory {
            name,
            created,
            addresses: &all,
        };
        let three = [of("c", "3"), of("b", "2"), of("a", "1")];
        let winner = |index: usize| loses_to(three[index], three).map(|lost| lost.winner);
        assert_eq!(winner(0).as_deref(), Some("a"));
        assert_eq!(winner(1).as_deref(), Some("a"));
        assert_eq!(winner(2), None);
    }
}

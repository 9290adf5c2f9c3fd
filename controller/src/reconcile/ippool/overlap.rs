//! Pools whose addresses overlap although both passed admission: the later one gives out nothing, as
//! every process computes by itself ([`spiderpool_ipam::overlap`], case B09). Here its owner is told.
//!
//! Holds of each pool what the comparison needs. Pure but for what its caller does with the answers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource, ResourceExt};
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_ipam::overlap::{Overlap, Territory, loses_to};
use spiderpool_ipam::pool::PoolMeta;
use spiderpool_ipam::range_set::RangeSet;

/// A pool that gives out nothing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Loser {
    /// The pool.
    pub(super) about: ObjectReference,
    /// What it loses to.
    pub(super) winner: ObjectReference,
    /// For people.
    pub(super) text: String,
}

struct Known {
    created: String,
    addresses: RangeSet,
    about: ObjectReference,
    /// What was told of it last.
    told: Option<Overlap>,
}

/// The pools there are.
#[derive(Default)]
pub(super) struct Index {
    pools: BTreeMap<String, Known>,
}

impl Index {
    /// Takes a pool over as it is, and says who has become a loser by it. One that has been told is
    /// told again only with `again`, and then only about itself.
    pub(super) fn put(
        &mut self,
        pool: &SpiderIPPool,
        addresses: Option<RangeSet>,
        again: bool,
    ) -> Vec<Loser> {
        let name = pool.name_any();
        let told = self
            .pools
            .get_mut(&name)
            .and_then(|known| known.told.take());
        let known = Known {
            // As agents compare it.
            created: PoolMeta::from(pool).created,
            // One that cannot be read gives out nothing and takes nothing.
            addresses: addresses.unwrap_or_default(),
            about: pool.object_ref(&()),
            told: told.filter(|_| !again),
        };
        self.pools.insert(name.clone(), known);
        let lost_to_it = |other: &Known| {
            let told = other.told.as_ref();
            told.is_some_and(|lost| lost.winner == name)
        };
        let touched = self.pools.iter().filter(|(other, known)| {
            **other == name || self.meet(other, &name) || lost_to_it(known)
        });
        let touched: Vec<String> = touched.map(|(name, _)| name.clone()).collect();
        touched.iter().filter_map(|name| self.judge(name)).collect()
    }

    /// Forgets a pool; whoever lost to it may give out addresses again.
    pub(super) fn remove(&mut self, name: &str) {
        self.pools.remove(name);
        for known in self.pools.values_mut() {
            if known.told.as_ref().is_some_and(|lost| lost.winner == name) {
                known.told = None;
            }
        }
    }

    fn meet(&self, one: &str, other: &str) -> bool {
        let addresses = |name: &str| self.pools.get(name).map(|known| &known.addresses);
        let (Some(one), Some(other)) = (addresses(one), addresses(other)) else {
            return false;
        };
        !one.intersect(other).is_empty()
    }

    /// `Some`: it loses, and nobody was told that yet.
    fn judge(&mut self, name: &str) -> Option<Loser> {
        let all = self.pools.iter();
        let all = all.map(|(name, known)| territory(name, known));
        let one = self.pools.get(name)?;
        let lost = loses_to(territory(name, one), all);
        if lost == one.told {
            return None;
        }
        let loser = lost.as_ref().and_then(|lost| {
            let winner = &self.pools.get(&lost.winner)?.about;
            Some(Loser {
                about: one.about.clone(),
                winner: winner.clone(),
                text: format!(
                    "the pool gives out no address: it overlaps the older IPPool {} in {}; change or delete one of them",
                    lost.winner, lost.shared
                ),
            })
        });
        self.pools.get_mut(name)?.told = lost;
        loser
    }
}

fn territory<'a>(name: &'a str, known: &'a Known) -> Territory<'a> {
    Territory {
        name,
        created: &known.created,
        addresses: &known.addresses,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn put(index: &mut Index, name: &str, second: u8, ips: &str, again: bool) -> Vec<String> {
        let raw = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
            "metadata": {"name": name, "uid": name, "creationTimestamp": format!("2027-01-05T10:00:{second:02}Z")},
            "spec": {"subnet": "10.36.0.0/24", "ips": [ips]}});
        let pool = serde_json::from_value(raw).unwrap();
        let addresses = RangeSet::from_texts(&[ips]).ok();
        let told = index.put(&pool, addresses, again).into_iter();
        let told = told.map(|loser| {
            let (loser, winner) = (loser.about.name.unwrap(), loser.winner.name.unwrap());
            format!("{loser} to {winner}")
        });
        told.collect()
    }

    #[test]
    fn b09_the_later_pool_is_told_whichever_is_seen_first() {
        let (one, two) = ("10.36.0.10-10.36.0.29", "10.36.0.20-10.36.0.39");
        for names in [["r-1", "r-2"], ["r-2", "r-1"]] {
            let mut index = Index::default();
            let [first, second] = names;
            assert_eq!(put(&mut index, first, 0, one, false), [""; 0]);
            let told = put(&mut index, second, 0, two, false);
            // Made in one second: the name decides.
            assert_eq!(told, ["r-2 to r-1"]);
        }
        let mut index = Index::default();
        put(&mut index, "late", 9, one, false);
        assert_eq!(
            put(&mut index, "zz-early", 1, two, false),
            ["late to zz-early"]
        );
    }

    #[test]
    fn it_is_told_once_and_again_when_that_is_asked_for_or_changes() {
        let mut index = Index::default();
        put(&mut index, "a", 1, "10.36.0.10-10.36.0.19", false);
        let overlapping = "10.36.0.15-10.36.0.29";
        assert_eq!(put(&mut index, "b", 2, overlapping, false), ["b to a"]);
        assert_eq!(put(&mut index, "b", 2, overlapping, false), [""; 0]);
        assert_eq!(put(&mut index, "b", 2, overlapping, true), ["b to a"]);
        // Another range is another overlap, and the older one growing makes one.
        assert_eq!(
            put(&mut index, "b", 2, "10.36.0.18-10.36.0.29", false),
            ["b to a"]
        );
        assert_eq!(put(&mut index, "c", 3, "10.36.0.40", false), [""; 0]);
        assert_eq!(
            put(&mut index, "a", 1, "10.36.0.10-10.36.0.50", false),
            ["b to a", "c to a"]
        );
        // Apart again, and together again.
        assert_eq!(
            put(&mut index, "a", 1, "10.36.0.10-10.36.0.20", false),
            ["b to a"]
        );
        assert_eq!(
            put(&mut index, "a", 1, "10.36.0.10-10.36.0.50", false),
            ["b to a", "c to a"]
        );
        // Apart again; and what was told counts no more once the winner is gone.
        assert_eq!(put(&mut index, "c", 3, "10.36.0.60", false), [""; 0]);
        index.remove("a");
        assert_eq!(
            put(&mut index, "a", 1, "10.36.0.10-10.36.0.20", false),
            ["b to a"]
        );
    }

    #[test]
    fn a_pool_that_cannot_be_read_meets_nobody() {
        let mut index = Index::default();
        put(&mut index, "a", 1, "10.36.0.10", false);
        assert_eq!(put(&mut index, "b", 2, "ten", false), [""; 0]);
    }
}

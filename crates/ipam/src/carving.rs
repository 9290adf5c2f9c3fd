//! What pools hold of a subnet: `status.controlledIPPools` of a SpiderSubnet and its counts (spec api 1.2, 2.3).

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use spiderpool_api::ippool::SpiderIPPoolSpec;
use spiderpool_api::names;
use spiderpool_api::subnet::{SpiderSubnetSpec, SubnetStatus};

use crate::range_set::RangeSet;

/// A pool, as far as subnets look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Its network, if that is one.
    pub net: Option<IpNet>,
    /// `ips` less `excludeIPs`; `None` when a list cannot be read.
    pub usable: Option<RangeSet>,
    /// The application it was made for.
    pub application: Option<String>,
}

impl Pool {
    /// From its specification and labels.
    #[must_use]
    pub fn read(spec: &SpiderIPPoolSpec, labels: &BTreeMap<String, String>) -> Self {
        Self {
            net: spec.subnet.parse().ok(),
            usable: RangeSet::usable(spec.ips.as_deref(), spec.exclude_ips.as_deref()),
            application: application(labels),
        }
    }
}

/// `apps_v1_Deployment_shop_web`.
fn application(labels: &BTreeMap<String, String>) -> Option<String> {
    let [version, kind, namespace, name] = [
        names::OWNER_APPLICATION_GV,
        names::OWNER_APPLICATION_KIND,
        names::OWNER_APPLICATION_NAMESPACE,
        names::OWNER_APPLICATION_NAME,
    ]
    .map(|key| labels.get(key).map(String::as_str));
    let name = name?;
    let rest = [version, kind, namespace].map(Option::unwrap_or_default);
    Some(format!("{}_{name}", rest.join("_")))
}

/// One entry of `controlledIPPools`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    #[serde(default)]
    ips: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    application: Option<String>,
}

type Entries = BTreeMap<String, Entry>;

/// The entries of a status; what cannot be read holds nothing.
fn entries(status: Option<&SubnetStatus>) -> Entries {
    let text = status.and_then(|status| status.controlled_ip_pools.as_deref());
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// Entries of automatic pools that do not exist: reserved by whoever is about to make the pool.
#[must_use]
pub fn reservations(
    status: Option<&SubnetStatus>,
    exists: impl Fn(&str) -> bool,
) -> BTreeSet<String> {
    let all = entries(status).into_iter();
    let reserved = all.filter(|(name, entry)| entry.application.is_some() && !exists(name));
    reserved.map(|(name, _)| name).collect()
}

/// What there is besides the subnet itself.
#[derive(Debug, Clone, Default)]
pub struct Carvings<'a> {
    /// The pools that belong to it, by name.
    pub pools: BTreeMap<&'a str, &'a Pool>,
    /// Pools whose entries stay as they are: they cannot be read now, or are about to be made.
    pub kept: BTreeSet<&'a str>,
}

/// The status as it should be. The set of an automatic pool is what its entry says, whatever the pool
/// says; that of any other pool is what it has of the subnet.
#[must_use]
pub fn status(
    spec: &SpiderSubnetSpec,
    before: Option<&SubnetStatus>,
    carvings: &Carvings<'_>,
) -> SubnetStatus {
    let own = RangeSet::usable(spec.ips.as_deref(), spec.exclude_ips.as_deref());
    let mut known = entries(before);
    let mut wanted = Entries::new();
    for (name, pool) in &carvings.pools {
        let found = known.remove(*name);
        wanted.insert((*name).to_owned(), entry(pool, own.as_ref(), found));
    }
    for name in &carvings.kept {
        if let Some(entry) = known.remove(*name) {
            wanted.insert((*name).to_owned(), entry);
        }
    }
    let sets = wanted
        .values()
        .map(|entry| RangeSet::from_texts(&entry.ips));
    let held = sets.flatten().map(|set| set.count());
    SubnetStatus {
        total_ip_count: own
            .map(|own| own.count())
            .or_else(|| before.and_then(|before| before.total_ip_count)),
        allocated_ip_count: Some(held.fold(0, i64::saturating_add)),
        controlled_ip_pools: text(&wanted),
    }
}

fn entry(pool: &Pool, own: Option<&RangeSet>, found: Option<Entry>) -> Entry {
    let found = found.filter(|found| found.application == pool.application);
    match (&pool.application, &pool.usable, found) {
        // As it was reserved; or it cannot be read, and holds what it held.
        (Some(_), _, Some(found)) | (None, None, Some(found)) => found,
        (application, usable, _) => {
            let usable = usable.as_ref().zip(own);
            let held = usable.map(|(usable, own)| usable.intersect(own));
            let held = held.unwrap_or_default();
            Entry {
                ips: held.ranges().iter().map(ToString::to_string).collect(),
                application: application.clone(),
            }
        }
    }
}

/// Absent when empty.
fn text(entries: &Entries) -> Option<String> {
    if entries.is_empty() {
        return None;
    }
    serde_json::to_string(entries).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn subnet() -> SpiderSubnetSpec {
        serde_json::from_value(
            json!({"subnet": "10.37.0.0/24", "ips": ["10.37.0.10-10.37.0.49"],
            "excludeIPs": ["10.37.0.20"]}),
        )
        .unwrap()
    }

    fn pool(ips: &Value, application: bool) -> Pool {
        let spec: SpiderIPPoolSpec =
            serde_json::from_value(json!({"subnet": "10.37.0.0/24", "ips": ips})).unwrap();
        let mut labels = BTreeMap::new();
        if application {
            for (key, value) in [
                (names::OWNER_APPLICATION_GV, "apps_v1"),
                (names::OWNER_APPLICATION_KIND, "Deployment"),
                (names::OWNER_APPLICATION_NAMESPACE, "shop"),
                (names::OWNER_APPLICATION_NAME, "web"),
            ] {
                labels.insert(key.to_owned(), value.to_owned());
            }
        }
        Pool::read(&spec, &labels)
    }

    fn judged(before: Option<&Value>, pools: &[(&str, &Pool)], kept: &[&str]) -> (Value, i64) {
        let before = before.map(|held| SubnetStatus {
            controlled_ip_pools: Some(held.to_string()),
            ..SubnetStatus::default()
        });
        let carvings = Carvings {
            pools: pools.iter().copied().collect(),
            kept: kept.iter().copied().collect(),
        };
        let status = status(&subnet(), before.as_ref(), &carvings);
        assert_eq!(status.total_ip_count, Some(39));
        let held = status.controlled_ip_pools.as_deref();
        let held = held.map_or(Value::Null, |text| serde_json::from_str(text).unwrap());
        (held, status.allocated_ip_count.unwrap())
    }

    #[test]
    fn a_pool_holds_what_it_has_of_the_subnet() {
        assert_eq!(judged(None, &[], &[]), (Value::Null, 0));
        // Less what the subnet lacks, and one that has nothing is there all the same.
        let (one, none) = (
            pool(&json!(["10.37.0.5-10.37.0.21"]), false),
            pool(&json!([]), false),
        );
        let want = json!({"a": {"ips": ["10.37.0.10-10.37.0.19", "10.37.0.21"]}, "b": {"ips": []}});
        assert_eq!(
            judged(None, &[("a", &one), ("b", &none)], &[]),
            (want.clone(), 11)
        );
        // What is gone holds nothing any more; what cannot be read holds what it held.
        let before = json!({"a": {"ips": ["10.37.0.30"]}, "c": {"ips": ["10.37.0.40"]}});
        let want = json!({"c": {"ips": ["10.37.0.40"]}});
        assert_eq!(judged(Some(&before), &[], &["c", "d"]), (want, 1));
        let unreadable = pool(&json!(["ten"]), false);
        let want = json!({"a": {"ips": ["10.37.0.30"]}});
        assert_eq!(judged(Some(&before), &[("a", &unreadable)], &[]), (want, 1));
    }

    #[test]
    fn an_automatic_pool_holds_what_was_reserved_for_it() {
        let made = pool(&json!(["10.37.0.10-10.37.0.12"]), true);
        let application = "apps_v1_Deployment_shop_web";
        assert_eq!(made.application.as_deref(), Some(application));
        let reserved =
            json!({"auto": {"ips": ["10.37.0.10-10.37.0.14"], "application": application}});
        assert_eq!(
            judged(Some(&reserved), &[("auto", &made)], &[]),
            (reserved.clone(), 5)
        );
        let own = json!({"auto": {"ips": ["10.37.0.10-10.37.0.12"], "application": application}});
        assert_eq!(judged(None, &[("auto", &made)], &[]), (own, 3));
        let status = SubnetStatus {
            controlled_ip_pools: Some(reserved.to_string()),
            ..SubnetStatus::default()
        };
        let names = reservations(Some(&status), |_| false);
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["auto"]);
        assert!(reservations(Some(&status), |_| true).is_empty());
    }
}

//! Answers to ADDs and what sandboxes use since.

use std::collections::BTreeMap;
use std::net::IpAddr;

use provider_sim::cloud::State;
use provider_sim::service::Service;
use spiderpool_api::allocation::Record;
use spiderpool_api::value::{Mac, VlanId};
use spiderpool_ipam::range::Family;

use super::{Check, Usage, machine, pod_lives, shown};
use crate::api::Api;

/// What a Pod may be given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise {
    /// Prefixes of the names of pools of the highest class that is configured.
    pub(crate) allowed: &'static [&'static str],
    /// Addresses of a NIC.
    pub(crate) families: usize,
}

impl Check {
    /// An ADD is answered. 23, 5, 6, 14: judged before anything else may happen.
    pub(crate) fn answered(
        &mut self,
        api: &Api,
        cloud: Option<&Service>,
        container: &str,
        usage: Usage,
        promise: Promise,
    ) {
        self.counts.adds += 1;
        let who = format!("{} {} {}", usage.pod, usage.uid, usage.ifname);
        self.log(format!("ADD {who}: {:?}", usage.addresses));
        if !pod_lives(api, &usage.pod, &usage.uid) {
            return;
        }
        self.judge_records(api, &usage, promise, &who);
        let (got, families) = (&usage.addresses, promise.families);
        self.require(got.len() == families, 14, || {
            format!("{who} got {got:?}, not {families} families")
        });
        let first = self
            .answered
            .entry((usage.uid.clone(), usage.ifname.clone()))
            .or_insert_with(|| usage.addresses.clone())
            .clone();
        self.require(first == usage.addresses, 5, || {
            format!("{who} had {first:?} and got {:?}", usage.addresses)
        });
        let twin = self.usages.iter().find(|((of, ifname), other)| {
            of == container
                && *ifname != usage.ifname
                && other
                    .addresses
                    .iter()
                    .any(|ip| usage.addresses.contains(ip))
        });
        let twin = twin.map(|((_, ifname), _)| ifname.clone());
        self.require(twin.is_none(), 6, || {
            format!("{who} shares an address with {twin:?}")
        });
        self.judge_kept(api, &usage);
        let key = (container.to_owned(), usage.ifname.clone());
        self.usages.insert(key, usage);
        self.judge_usages(api, cloud);
    }

    /// 23, 12, 5: each address has a record of this Pod and NIC, in a pool of the right class, and
    /// there is no other of its family.
    fn judge_records(&mut self, api: &Api, usage: &Usage, promise: Promise, who: &str) {
        let Promise { allowed, .. } = promise;
        let begun = self.began.get(&usage.uid).copied();
        let pools = self.pools(api);
        let own = |record: &Record| {
            record.pod_uid == usage.uid && record.nic.as_deref() == Some(&usage.ifname)
        };
        for address in &usage.addresses {
            let mut holders = pools.iter();
            let holder = holders.find_map(|pool| Some((pool, pool.records.get(*address)?)));
            self.require(holder.is_some_and(|(_, record)| own(record)), 23, || {
                let record = holder.map_or("none".into(), |(_, record)| shown(record));
                format!("{who} was answered {address}, whose record is {record}")
            });
            if let Some((pool, _)) = holder {
                let fits = allowed.iter().any(|prefix| pool.name.starts_with(prefix));
                self.require(fits, 12, || {
                    format!("{who} got {address} of {}, not of {allowed:?}", pool.name)
                });
            }
        }
        for family in [Family::V4, Family::V6] {
            let records = pools.iter().flat_map(|pool| pool.records.iter());
            let held =
                records.filter(|(address, record)| own(record) && Family::of(*address) == family);
            let held: Vec<IpAddr> = held.map(|(address, _)| address).collect();
            // What could not be told to the API stays until the DEL.
            let excused = self.is_disturbed(&usage.uid, begun);
            self.require(held.len() <= 1 || excused, 5, || {
                format!("{who} has records for {held:?}")
            });
        }
    }

    /// 1, 4, 8, 10, 15: what a live Pod uses stays its own, and its sub-ENI bound.
    pub(crate) fn judge_usages(&mut self, api: &Api, cloud: Option<&Service>) {
        let pools = self.pools(api);
        let live: Vec<Usage> = self.live(api).cloned().collect();
        let mut seen: BTreeMap<IpAddr, &Usage> = BTreeMap::new();
        for usage in &live {
            for address in &usage.addresses {
                if let Some(other) = seen.insert(*address, usage)
                    && !machine::is_one(usage, other)
                {
                    self.broken(
                        1,
                        format!("{address} is used by {} and {}", other.uid, usage.uid),
                    );
                }
                let mut records = pools.iter().filter_map(|pool| pool.records.get(*address));
                let owned = records.any(|record| machine::is_of(usage, record));
                self.require(owned, 10, || {
                    format!("{} uses {address} and has no record of it", usage.uid)
                });
            }
            if let (Some(wanted), Some(cloud)) = (usage.sub_eni, cloud)
                && !self.superseded.contains(&usage.uid)
            {
                self.judge_binding(cloud, usage, wanted);
            }
        }
    }

    fn judge_binding(&mut self, cloud: &Service, usage: &Usage, wanted: (VlanId, Mac, Mac)) {
        let (vlan, mac, parent) = wanted;
        for address in &usage.addresses {
            let found = cloud.with(|world| world.cloud.by_address(*address).cloned());
            let bound = found.as_ref().is_some_and(|sub_eni| {
                matches!(sub_eni.state, State::Bound(at) if at.parent == parent && at.vlan == vlan)
                    && sub_eni.mac == mac
            });
            self.require(bound, 15, || {
                format!(
                    "{} uses {address} with VLAN {vlan} and MAC {mac} on {parent}, the cloud has {found:?}",
                    usage.uid
                )
            });
        }
    }
}

//! Whether cloud, memory, publications and claims agree (spec iaas 15.4). Meant for moments of
//! rest: a call under way is a finding.

use std::collections::BTreeMap;
use std::net::IpAddr;

use kube::api::ListParams;
use spiderpool_api::causes::with_causes;

use crate::cloud::{State, SubEni};
use crate::pool::{Pool, Published};
use crate::service::{Service, World};

impl Service {
    /// All contradictions, each naming its objects; publishes first what is due. Empty is good.
    pub async fn audit(&self) -> Vec<String> {
        self.flush().await;
        let mut pools = self.with(|world| world.memory.pools.clone());
        if let Some(publisher) = &self.publisher {
            match publisher.pools().list(&ListParams::default()).await {
                Ok(list) => {
                    let read = list.items.iter().filter_map(Pool::of_object);
                    pools = read.map(|pool| (pool.name.clone(), pool)).collect();
                }
                Err(cause) => {
                    return vec![format!(
                        "the pools cannot be listed: {}",
                        with_causes(&cause)
                    )];
                }
            }
        }
        let mut found = self.with(|world| {
            let mut found = world.cloud.audit();
            found.extend(world.audit_memory(&pools));
            found.extend(pools.values().flat_map(|pool| world.audit_claims(pool)));
            found.extend(world.audit_pairs(&pools));
            found
        });
        if self.publisher.is_some() {
            found.extend(pools.values().filter_map(|pool| self.audit_published(pool)));
        }
        found
    }

    fn audit_published(&self, pool: &Pool) -> Option<String> {
        let (_, metadata) = self.snapshot(pool)?;
        let due = Some(Published {
            generation: pool.generation,
            metadata,
        });
        (pool.published != due).then(|| {
            let (name, published) = (&pool.name, &pool.published);
            format!("pool {name}: published is {published:?}, due is {due:?}")
        })
    }
}

impl World {
    fn audit_memory(&self, pools: &BTreeMap<String, Pool>) -> Vec<String> {
        let mut found = Vec::new();
        for sub_eni in self.cloud.sub_enis() {
            let SubEni { mac, pool, .. } = sub_eni;
            let known = sub_eni.address().and_then(|ip| self.memory.find(ip));
            if known != Some(sub_eni) {
                found.push(format!(
                    "sub-ENI {mac} of the cloud is remembered as {known:?}"
                ));
            }
            if !pool.is_empty() && !pools.contains_key(pool) {
                found.push(format!(
                    "sub-ENI {mac} belongs to pool {pool}, which does not exist"
                ));
            }
        }
        for sub_eni in self.memory.all() {
            let mac = sub_eni.mac;
            if self.cloud.get(mac).is_none() {
                found.push(format!("sub-ENI {mac} is remembered, but not in the cloud"));
            }
        }
        found
    }

    /// One sub-ENI is one Pod's: whoever has its IPv6 address has its IPv4 address too. An IPv4
    /// address alone is a Pod's without IPv6.
    fn audit_pairs(&self, pools: &BTreeMap<String, Pool>) -> Vec<String> {
        let owner = |ip: IpAddr| pools.values().find_map(|pool| pool.claims.get(&ip));
        let mut found = Vec::new();
        for sub_eni in self.cloud.sub_enis() {
            let (Some(v4), Some(v6)) = (sub_eni.ipv4, sub_eni.ipv6) else {
                continue;
            };
            let (first, second) = (owner(v4.into()), owner(v6.into()));
            if second.is_some() && first != second {
                let mac = sub_eni.mac;
                found.push(format!(
                    "sub-ENI {mac}: {v4} is claimed by {first:?}, its partner {v6} by {second:?}"
                ));
            }
        }
        found
    }

    /// A claim is a promise to a Pod: its address has to be bound.
    fn audit_claims(&self, pool: &Pool) -> Vec<String> {
        let bound = |ip: IpAddr| {
            let sub_eni = self.cloud.by_address(ip);
            sub_eni.is_some_and(|sub_eni| matches!(sub_eni.state, State::Bound(_)))
        };
        let unbound = pool.claims.iter().filter(|(ip, _)| !bound(**ip));
        unbound
            .map(|(ip, uid)| format!("pool {}: {ip} is claimed by {uid} and not bound", pool.name))
            .collect()
    }
}

//! Keeps pairs together when their pools change (P15): a sub-ENI whose IPv6 address left the sibling
//! pool gets a free one, or none; one without gets one when there is one. MAC and VLAN stay. What is
//! claimed is left alone.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use tracing::{info, warn};

use crate::cloud::{State, SubEni};
use crate::reclaim::Entry;
use crate::refusal::Refusal;
use crate::service::{Service, World};

/// A sub-ENI and the partner it shall have.
type Mispaired = (SubEni, Option<Ipv6Addr>);

impl Service {
    /// Looks at all pairs once. Only with an API server: without one nobody knows what is claimed.
    pub(crate) async fn repair_pairs(&self) {
        if self.publisher.is_none() {
            return;
        }
        let found = self.look(|world| world.mispaired()).unwrap_or_default();
        for (sub_eni, ipv6) in found {
            let Some(key) = sub_eni.address() else {
                continue;
            };
            match self.repair(&sub_eni, key, ipv6).await {
                Ok(true) => info!(%key, ?ipv6, "a pair has another partner"),
                Ok(false) => {}
                Err(cause) => warn!(%key, ?ipv6, %cause, "a pair keeps its partner"),
            }
        }
    }

    /// False: somebody was first, or it cannot be announced now.
    async fn repair(
        &self,
        seen: &SubEni,
        key: IpAddr,
        ipv6: Option<Ipv6Addr>,
    ) -> Result<bool, Refusal> {
        let partners = [seen.ipv6, ipv6].into_iter().flatten().map(IpAddr::V6);
        let addresses = partners.chain([key]).collect::<BTreeSet<_>>();
        let _turns = self.locks.lock(&addresses).await;
        let unchanged = self.with(|world| {
            let unchanged = world.memory.find(key) == Some(seen);
            if unchanged {
                world.memory.withdrawn.insert(key);
            }
            unchanged
        });
        if !unchanged {
            return Ok(false);
        }
        let both = SubEni {
            ipv6,
            ..seen.clone()
        };
        // its entry is gone before the claims are read for the last time
        let free = self.publish_one(&seen.pool).await
            && self.is_free(seen, Entry::Leaving).await == Some(true)
            && self.is_free(&both, Entry::Leaving).await == Some(true);
        let changed = if free {
            self.repartner(seen.mac, ipv6, None).await.map(|()| true)
        } else {
            Ok(false)
        };
        self.with(|world| world.memory.withdrawn.remove(&key));
        self.publish_one(&seen.pool).await;
        self.changed.notify_one();
        self.hold_due.notify_one();
        changed
    }
}

impl World {
    /// Unclaimed sub-ENIs of pairs whose partner is missing or no longer of the sibling.
    pub(crate) fn mispaired(&self) -> Vec<Mispaired> {
        let memory = &self.memory;
        let mut taken = BTreeSet::new();
        let mut found = Vec::new();
        for sub_eni in memory.all() {
            let pool = memory.pools.get(&sub_eni.pool);
            let Some(pool) = pool.filter(|pool| !pool.deleting && !pool.is_sibling()) else {
                continue;
            };
            let Some(sibling) = pool.pair.as_ref().and_then(|name| memory.pools.get(name)) else {
                continue;
            };
            let settled = matches!(sub_eni.state, State::Bound(_) | State::Unbound);
            let kept = sub_eni
                .address()
                .is_some_and(|key| pool.addresses.contains(key));
            if !settled || !kept || memory.is_claimed(sub_eni) {
                continue;
            }
            let holds = |ip: Ipv6Addr| !sibling.deleting && sibling.addresses.contains(ip.into());
            if sub_eni.ipv6.is_some_and(holds) {
                continue;
            }
            let free = memory.free_partner(sibling, &taken);
            if free == sub_eni.ipv6 {
                continue;
            }
            taken.extend(free);
            found.push((sub_eni.clone(), free));
        }
        found
    }
}

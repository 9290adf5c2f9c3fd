//! Makes the sub-ENIs of prewarm pools ahead of demand and removes what no pool has any more (P9).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use ipnet::IpNet;
use spiderpool_api::value::Mac;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::cloud::{State, SubEni};
use crate::engine::Wanted;
use crate::pool::Pool;
use crate::service::{Service, World};

/// Before another try for what the cloud refused.
const RETRY: Duration = Duration::from_secs(5);

/// What a pool lacks.
struct Work {
    pool: String,
    /// Its generation and its sibling's.
    generations: (i64, Option<i64>),
    missing: Vec<Wanted>,
    /// The parent NIC carries no more than these.
    cut: bool,
}

impl Service {
    /// Follows the pools. Never ends.
    pub async fn prewarm_forever(&self) {
        loop {
            let unfinished = self.is_unfinished();
            let retry = async {
                if unfinished {
                    sleep(RETRY).await;
                } else {
                    std::future::pending().await
                }
            };
            tokio::select! {
                () = self.pools_changed.notified() => {}
                () = retry => {}
            }
            self.prewarm().await;
        }
    }

    /// Whether another pass may do what the last one could not.
    fn is_unfinished(&self) -> bool {
        let told = self.publisher.is_some();
        let look = |world: &mut World| {
            let mispaired = told && !world.mispaired().is_empty();
            mispaired || !world.memory.lacking.is_empty() || !world.surplus(told).is_empty()
        };
        self.look(look).unwrap_or(false)
    }

    /// One pass over all pools; ends when each address was tried.
    pub async fn prewarm(&self) {
        if !self.is_ready() {
            return;
        }
        let life = self.with(|world| world.memory.life);
        let told = self.publisher.is_some();
        let surplus = self.with(|world| world.surplus(told));
        self.remove_surplus(surplus).await;
        self.repair_pairs().await;
        let names = self.with(|world| world.memory.pools.keys().cloned().collect::<Vec<_>>());
        for name in names {
            let Some(work) = self.with(|world| world.work(&name)) else {
                continue;
            };
            let width = self.with(|world| world.settings.prewarm_concurrency);
            let made = work
                .missing
                .into_iter()
                .map(|wanted| self.prewarm_one(wanted));
            let made: Vec<bool> = stream::iter(made).buffer_unordered(width).collect().await;
            let complete = !work.cut && made.iter().all(|made| *made);
            info!(pool = work.pool, tried = made.len(), complete, "prewarmed");
            let aborted = self.with(|world| world.memory.life != life);
            if aborted {
                return;
            }
            self.with(|world| {
                let memory = &mut world.memory;
                memory.prewarmed.insert(work.pool.clone(), work.generations);
                if complete {
                    memory.lacking.remove(&work.pool);
                } else {
                    memory.lacking.insert(work.pool);
                }
            });
            self.changed.notify_one();
        }
    }

    async fn prewarm_one(&self, wanted: Wanted) -> bool {
        let bound = self.bind_alone(&wanted).await;
        if let Err(cause) = &bound {
            warn!(pool = wanted.pool, ip = ?wanted.key(), %cause, "a sub-ENI is not prewarmed");
        }
        bound.is_ok()
    }
}

impl World {
    /// What a pool lacks; `None` when it is no prewarm pool, cannot be served yet, or is done.
    fn work(&self, name: &str) -> Option<Work> {
        let memory = &self.memory;
        let pool = memory.pools.get(name)?;
        let node = pool.node.as_deref()?;
        if pool.is_sibling() || pool.deleting {
            return None;
        }
        let sibling = match &pool.pair {
            Some(pair) => Some(memory.pools.get(pair)?),
            None => None,
        };
        let parent = self.parent_of(pool, node)?;
        let generations = (pool.generation, sibling.map(|sibling| sibling.generation));
        if memory.prewarmed.get(name) == Some(&generations) && !memory.lacking.contains(name) {
            return None;
        }
        // one more than there is room for: whether there are more
        let limit = self.cloud.limit_of(parent).unwrap_or_default();
        let room = limit.saturating_sub(self.cloud.attached_to(parent));
        let mut missing = self.missing(pool, sibling, parent, room + 1);
        let cut = missing.len() > room;
        missing.truncate(room);
        Some(Work {
            pool: name.to_owned(),
            generations,
            missing,
            cut,
        })
    }

    /// The parent NIC the agent named, if the topology has it on that node; without an agent to
    /// name one, the node's first.
    fn parent_of(&self, pool: &Pool, node: &str) -> Option<Mac> {
        let mut parents = self
            .topology
            .parents
            .iter()
            .filter(|parent| parent.node == node);
        let from_topology = self
            .topology
            .pools
            .iter()
            .any(|spec| spec.name == pool.name);
        match pool.parent {
            Some(mac) => parents.find(|parent| parent.mac == mac),
            None if from_topology => parents.next(),
            None => None,
        }
        .map(|parent| parent.mac)
    }

    /// At most `most`: a pool may have more addresses than a cloud has sub-ENIs.
    fn missing(
        &self,
        pool: &Pool,
        sibling: Option<&Pool>,
        parent: Mac,
        most: usize,
    ) -> Vec<Wanted> {
        let mut taken = BTreeSet::new();
        let mut missing = Vec::new();
        if matches!(pool.subnet, IpNet::V6(_)) {
            // nothing is made for IPv6 alone, and of its addresses there are more than can be looked at
            return missing;
        }
        for ip in pool.addresses.iter() {
            if missing.len() == most {
                break;
            }
            let IpAddr::V4(ipv4) = ip else {
                continue;
            };
            let known = self.memory.find(ip);
            let bound =
                |sub_eni: &SubEni| matches!(sub_eni.state, State::Bound(at) if at.parent == parent);
            if known.is_some_and(bound) {
                continue;
            }
            let ipv6 = match (known.and_then(|sub_eni| sub_eni.ipv6), sibling) {
                (Some(ipv6), _) => Some(ipv6),
                (None, Some(sibling)) => {
                    let Some(free) = self.memory.free_partner(sibling, &taken) else {
                        continue;
                    };
                    taken.insert(free);
                    Some(free)
                }
                (None, None) => None,
            };
            missing.push(Wanted {
                ipv4: Some(ipv4),
                ipv6,
                pool: pool.name.clone(),
                parent,
            });
        }
        missing
    }

    /// Unclaimed sub-ENIs whose address their pool no longer has, or whose pool is to go or gone.
    /// Gone, if an API server tells of pools, is what it lacks: but the topology's sub-ENIs may be
    /// there before their pools.
    fn surplus(&self, told: bool) -> Vec<SubEni> {
        let given = |mac| self.topology.bindings.iter().any(|given| given.mac == mac);
        let surplus = self.memory.all().filter(|sub_eni| {
            let pool = self.memory.pools.get(&sub_eni.pool);
            let (Some(pool), Some(key)) = (pool, sub_eni.address()) else {
                return told && !sub_eni.pool.is_empty() && !given(sub_eni.mac);
            };
            let unwanted = pool.deleting || !pool.addresses.contains(key);
            unwanted && !self.memory.is_claimed(sub_eni)
        });
        surplus.cloned().collect()
    }
}

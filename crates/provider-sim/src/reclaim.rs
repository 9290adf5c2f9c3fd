//! Makes room on a full parent NIC out of idle cache (P14), in the order that cannot take an
//! address from under a Pod (P13): announce, look at the claims again, detach.

use std::collections::BTreeSet;
use std::net::IpAddr;

use spiderpool_api::causes::with_causes;
use spiderpool_api::value::Mac;
use tracing::{info, warn};

use crate::cloud::{State, SubEni};
use crate::pool::Pool;
use crate::service::{Service, World};

impl Service {
    /// Frees a place on a parent NIC if it has none and somebody's is idle. Whether it did shows
    /// at the attach.
    pub(crate) async fn make_room(&self, parent: Mac) {
        let idle = self.with(|world| world.idle_on_full(parent));
        for sub_eni in idle {
            let Some(key) = sub_eni.address() else {
                continue;
            };
            // Without waiting: we hold turns ourselves, and an address in turn is not idle.
            let Some(_turn) = self.locks.try_lock(key) else {
                continue;
            };
            self.with(|world| world.memory.leaving.insert(key));
            let free = self.flush().await && self.is_unclaimed(&sub_eni).await;
            if free {
                let detached = self.detach(sub_eni.mac, None).await;
                self.with(|world| world.memory.leaving.remove(&key));
                match detached {
                    Ok(()) => {
                        info!(%key, %parent, "idle sub-ENI detached to make room");
                        return;
                    }
                    Err(cause) => warn!(%key, %parent, %cause, "an idle sub-ENI is not detached"),
                }
            }
            self.with(|world| world.memory.leaving.remove(&key));
            self.changed.notify_one();
        }
    }

    /// Asks the API server: what the watch brought may be old.
    async fn is_unclaimed(&self, sub_eni: &SubEni) -> bool {
        let Some(publisher) = &self.publisher else {
            return false;
        };
        let sibling = self.with(|world| {
            let pool = world.memory.pools.get(&sub_eni.pool);
            pool.and_then(|pool| pool.pair.clone())
        });
        for name in [Some(sub_eni.pool.clone()), sibling].into_iter().flatten() {
            let object = match publisher.pools().get_opt(&name).await {
                Ok(object) => object,
                Err(cause) => {
                    warn!(pool = name, cause = %with_causes(&cause), "claims cannot be read");
                    return false;
                }
            };
            let pool = object.as_ref().and_then(Pool::of_object);
            if pool.is_none_or(|pool| pool.claims.keys().any(|ip| sub_eni.has(*ip))) {
                return false;
            }
        }
        true
    }
}

impl World {
    /// Sub-ENIs of global pools on a parent without a free place that nobody claims, as far as is
    /// known.
    fn idle_on_full(&self, parent: Mac) -> Vec<SubEni> {
        let limit = self.cloud.limit_of(parent);
        if limit.is_none_or(|limit| self.cloud.attached_to(parent) < limit) {
            return Vec::new();
        }
        let pools = &self.memory.pools;
        let claimed: BTreeSet<IpAddr> = pools
            .values()
            .flat_map(|p| p.claims.keys().copied())
            .collect();
        let idle = self.memory.all().filter(|sub_eni| {
            let here = matches!(sub_eni.state, State::Bound(at) if at.parent == parent);
            let global = pools
                .get(&sub_eni.pool)
                .is_some_and(|pool| pool.node.is_none());
            here && global && !claimed.iter().any(|ip| sub_eni.has(*ip))
        });
        idle.cloned().collect()
    }
}

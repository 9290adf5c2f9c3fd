//! What the provider does for a release call (P8, P10). The answer says accepted; by then the
//! sub-ENI is either left usable or its entry is withdrawn.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use spiderpool_api::provider::ReleaseRequest;
use tracing::warn;

use crate::cloud::SubEni;
use crate::refusal::Refusal;
use crate::service::{Service, World};
use crate::settings::ReleasePolicy;

/// What is to be done.
enum Verdict {
    /// Nothing is there, or it is somebody else's by now.
    Nothing,
    /// Left as it is, for the next Pod.
    Keep,
    /// Withdrawn and torn down; a prewarm pool gets a new one.
    Remove(SubEni, IpAddr),
}

impl World {
    fn judge_release(&self, request: &ReleaseRequest) -> Verdict {
        let Some(sub_eni) = self.memory.find(request.ip_address) else {
            return Verdict::Nothing;
        };
        let node = sub_eni
            .state
            .attachment()
            .and_then(|at| self.cloud.node_of(at.parent));
        if node.is_some_and(|node| node != request.node_name) {
            return Verdict::Nothing;
        }
        let prewarm = self
            .memory
            .pools
            .get(&sub_eni.pool)
            .is_some_and(|pool| pool.node.is_some());
        if prewarm && self.settings.release_policy == ReleasePolicy::Keep {
            return Verdict::Keep;
        }
        sub_eni.address().map_or(Verdict::Nothing, |key| {
            Verdict::Remove(sub_eni.clone(), key)
        })
    }
}

impl Service {
    /// Takes a release; returns the status to answer with.
    ///
    /// # Errors
    /// [`Refusal`] for a request that is wrong, or when clean-up is awaited and fails.
    pub async fn release(self: Arc<Self>, request: ReleaseRequest) -> Result<u16, Refusal> {
        let sync = self.with(|world| world.settings.sync_release);
        let accepted = if sync { 204 } else { 202 };
        // either address of a pair is the whole sub-ENI, which has one turn
        let find = |world: &mut World| {
            let found = world.memory.find(request.ip_address);
            found.and_then(SubEni::address)
        };
        let Some(key) = self.look(find)? else {
            return Ok(204);
        };
        let turns = self
            .locks
            .lock(&BTreeSet::from([key, request.ip_address]))
            .await;
        match self.look(|world| world.judge_release(&request))? {
            Verdict::Nothing => Ok(204),
            Verdict::Keep => Ok(accepted),
            Verdict::Remove(sub_eni, key) => {
                self.with(|world| world.memory.withdrawn.insert(key));
                if !self.is_withdrawn(&sub_eni).await {
                    // else the freed address would be given out with a triple that is about to die
                    self.with(|world| world.memory.withdrawn.remove(&key));
                    let message = format!("the entry of {key} cannot be withdrawn now");
                    return Err(Refusal::new(503, "NotReady", message));
                }
                let mac = sub_eni.mac;
                let service = Arc::clone(&self);
                let work = async move {
                    let _turns = turns;
                    let removed = service.tear_down(mac, None).await;
                    service.with(|world| world.memory.withdrawn.remove(&key));
                    service.pools_changed_for(key);
                    removed
                };
                if sync {
                    work.await?;
                    return Ok(accepted);
                }
                tokio::spawn(async move {
                    if let Err(cause) = work.await {
                        warn!(%key, %cause, "a released sub-ENI is not removed");
                    }
                });
                Ok(accepted)
            }
        }
    }

    /// The pool of an address may lack it now.
    fn pools_changed_for(&self, key: IpAddr) {
        self.with(|world| {
            let pools = world.memory.pools.values();
            let holder = pools.filter(|pool| pool.addresses.contains(key));
            let names: Vec<String> = holder.map(|pool| pool.name.clone()).collect();
            world.memory.lacking.extend(names);
        });
        self.pools_changed.notify_one();
        self.changed.notify_one();
    }

    /// Removes what nobody needs any more, for pools that changed or went.
    pub async fn remove_surplus(&self, surplus: Vec<SubEni>) {
        for sub_eni in surplus {
            let Some(key) = sub_eni.address() else {
                continue;
            };
            let _turns = self.locks.lock(&BTreeSet::from([key])).await;
            if let Err(cause) = self.tear_down(sub_eni.mac, None).await {
                warn!(%key, %cause, "a surplus sub-ENI is not removed");
            }
        }
    }
}

//! Claims of earlier tries. A claim whose answer was lost leaves a record that nobody was told of; a
//! retry finds it again unless its pool gives nothing any more by then and another one does. A NIC
//! has one record a family (spec ipam 10, invariant 5), so the older one goes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use spiderpool_ipam::facts::Snapshot;
use spiderpool_ipam::plan::Allocation;
use spiderpool_ipam::pool::Pool;
use tokio::time::Instant;

use super::unbind::{Owner, SubEni, sub_enis};
use crate::agent::Agent;
use crate::store::ObjectKey;

/// A Pod and where its claims of all tries may be.
pub(super) struct Tried {
    pod: ObjectKey,
    uid: String,
    pools: BTreeSet<String>,
}

/// A record that its NIC has no use for.
struct Leftover {
    pool: String,
    nic: String,
    address: IpAddr,
}

impl Agent {
    /// Where the Pod's records may be: as we wrote them, and as the caches show them.
    pub(super) fn tried(&self, snapshot: &Snapshot) -> Tried {
        let pod = &snapshot.pod;
        let mut pools = self.memory.pools_of(&pod.uid);
        let holding = snapshot.pools.iter();
        let holding = holding.filter(|pool| !pool.records_of(&pod.uid).is_empty());
        pools.extend(holding.map(|pool| pool.name.clone()));
        Tried {
            pod: ObjectKey::new(&pod.namespace, &pod.name),
            uid: pod.uid.clone(),
            pools,
        }
    }

    /// Frees what these NICs hold besides what they were given. What a sandbox may still use is its
    /// DEL's to free; so is what fails here.
    pub(super) async fn free_leftovers(
        &self,
        tried: &Tried,
        given: &[Allocation],
        deadline: Instant,
    ) {
        let owner = Owner {
            pod: &tried.pod,
            uid: &tried.uid,
            endpoint: None,
            deadline,
        };
        let Ok(known) = self.known_pools(&tried.pools).await else {
            return;
        };
        for leftover in self.leftovers(owner.uid, &known, given) {
            let (pod, pool, ip) = (owner.pod, &leftover.pool, leftover.address);
            match self.free_leftover(owner, &known, &leftover).await {
                Ok(()) => {
                    tracing::info!(%pod, nic = leftover.nic, pool, %ip, "freed the claim of an earlier try");
                }
                Err(error) => {
                    tracing::warn!(%pod, nic = leftover.nic, pool, %ip, error, "the claim of an earlier try stays until DEL");
                }
            }
        }
    }

    fn leftovers(
        &self,
        uid: &str,
        known: &BTreeMap<String, Arc<Pool>>,
        given: &[Allocation],
    ) -> Vec<Leftover> {
        let mut found = Vec::new();
        for pool in known.values() {
            for (address, record) in pool.records_of(uid) {
                let of_nic = |nic: &&Allocation| record.nic.as_ref() == Some(&nic.nic);
                let Some(nic) = given.iter().find(of_nic) else {
                    continue;
                };
                let wanted = nic.ips.iter().any(|ip| ip.address.addr() == address);
                if wanted || record.releasing.is_some() || self.is_attached(uid, address) {
                    continue;
                }
                found.push(Leftover {
                    pool: pool.name.clone(),
                    nic: nic.nic.clone(),
                    address,
                });
            }
        }
        found
    }

    /// Whether a sandbox of the Pod was given it.
    pub(super) fn is_attached(&self, uid: &str, address: IpAddr) -> bool {
        let files = self.attachments.select(|file| file.pod_uid == uid);
        let mut ips = files.iter().flat_map(|file| &file.ips);
        ips.any(|ip| ip.address.addr() == address)
    }

    async fn free_leftover(
        &self,
        owner: Owner<'_>,
        known: &BTreeMap<String, Arc<Pool>>,
        leftover: &Leftover,
    ) -> Result<(), String> {
        if let Some(provider) = &self.provider {
            let mut enis = sub_enis(owner.uid, known, self.unwritten(owner)).into_iter();
            let is_it =
                |eni: &SubEni| eni.pool.name == leftover.pool && eni.address == leftover.address;
            if let Some(eni) = enis.find(is_it) {
                return self.give_back(provider.as_ref(), owner, &eni).await;
            }
        }
        let Leftover { pool, nic, address } = leftover;
        self.free_of(owner, nic, pool, *address).await
    }
}

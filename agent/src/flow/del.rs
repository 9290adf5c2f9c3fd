//! DEL (spec dataplane 4.4, ipam 1.7): first the link, and only this sandbox's; then the records,
//! guarded by UID; the attachment file last. Nothing that is gone already makes it fail.

use std::collections::BTreeSet;

use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_ipam::plan::{self, DelFacts, DelPlan, NothingToFree, ReleaseFrom};
use tokio::time::Instant;

use super::call::NicCall;
use super::error::{FlowError, full};
use super::identity::named_by;
use super::leaving::{Leaving, Released};
use super::release::PoolAddress;
use super::snapshot::pools_of;
use super::unbind::Owner;
use crate::agent::Agent;
use crate::attachment::{Attachment, AttachmentKey};
use crate::failpoint::del_step;
use crate::nic::{NicError, NicTarget};
use crate::store::{Caches, Freshness, ObjectKey, PodObject, StandalonePod};

impl Agent {
    /// Serves DEL. A release that has to wait is kept in the spool by then.
    pub(crate) async fn del(&self, call: NicCall) -> Result<Released, FlowError> {
        let file = self.attachments.get(&call.key);
        let leaving = self.leaving(&call, file.as_ref());
        let uid = leaving.as_ref().and_then(|leaving| leaving.uid.clone());
        let owner = uid.unwrap_or_else(|| call.key.container_id().to_owned());
        let key = (owner, call.key.ifname().clone());
        let limits = &call.call.limits;
        let waiting = "another call for this NIC was under way";
        let locked = limits.wait(waiting, self.locks.lock(key)).await;
        let _alone = locked.map_err(FlowError::Ended)?;
        // An ADD that was under way may have written it only now.
        let file = self.attachments.get(&call.key);
        let leaving = self.leaving(&call, file.as_ref());
        if let Some(target) = target_of(&call, file.as_ref()) {
            let taken = self.take_nic(target, file.as_ref()).await;
            taken.map_err(FlowError::nic)?;
        }
        let mut released = Released::Nothing;
        match leaving {
            Some(leaving) if self.is_newest(&call, &leaving) => {
                released = self.release_pod(&leaving).await?;
                self.keep_for_later(&call.key, &leaving, &released).await?;
            }
            Some(leaving) => {
                tracing::info!(pod = %leaving.pod, container = call.key.container_id(), "a newer sandbox has this NIC; its address stays");
            }
            None => {
                tracing::warn!(
                    container = call.key.container_id(),
                    "nobody says which Pod this was; if it has an address, GC frees it"
                );
            }
        }
        if released == Released::Done {
            self.spool.drop_done(&call.key).await;
        }
        self.remove_file(&call.key).await?;
        Ok(released)
    }

    /// Before the file goes: either of them says to the next agent that there is work left.
    async fn keep_for_later(
        &self,
        key: &AttachmentKey,
        leaving: &Leaving,
        released: &Released,
    ) -> Result<(), FlowError> {
        let Released::Waiting(uid) = released else {
            return Ok(());
        };
        let again = leaving.again(key, uid);
        let kept = del_step!(KeepForLater, self.spool.keep(key, &again));
        kept.map_err(FlowError::Spool)
    }

    async fn remove_file(&self, key: &AttachmentKey) -> Result<(), FlowError> {
        let removed = del_step!(RemoveFile, self.attachments.remove(key));
        removed.map_err(FlowError::Attachment)
    }

    /// The attachment file knows best; then the runtime; a bare container has its own Pod.
    fn leaving(&self, call: &NicCall, file: Option<&Attachment>) -> Option<Leaving> {
        let of = |pod, uid, pools| Leaving {
            pod,
            uid,
            ifname: call.key.ifname().clone(),
            pools,
            deadline: call.call.limits.deadline,
        };
        if let Some(file) = file {
            let pod = ObjectKey::new(&file.pod_namespace, &file.pod_name);
            let pools = file.ips.iter().map(|ip| ip.pool.clone()).collect();
            return Some(of(pod, Some(file.pod_uid.clone()), pools));
        }
        if let Some(named) = named_by(&call.args) {
            return Some(of(named.key, named.uid, Vec::new()));
        }
        self.settings.standalone.then(|| {
            let pod = StandalonePod::of(call.key.container_id(), &self.settings.node);
            of(pod.key, Some(pod.uid), Vec::new())
        })
    }

    fn is_newest(&self, call: &NicCall, leaving: &Leaving) -> bool {
        let Some(uid) = &leaving.uid else { return true };
        let newest = self.attachments.newest(uid, &leaving.ifname);
        newest.is_none_or(|newest| newest.container_id == call.key.container_id())
    }

    /// Frees what the Pod held, if it may be freed.
    async fn release_pod(&self, leaving: &Leaving) -> Result<Released, FlowError> {
        let Ending {
            mut facts,
            endpoint,
            records,
        } = self.ending(leaving).await?;
        let mut plan = plan::plan_del(&facts);
        if plan == DelPlan::DeletePodFirst
            && let Some(pod) = facts.pod.take()
        {
            let deleted = del_step!(DeletePod, self.store.delete_pod(&leaving.pod, &pod.uid));
            deleted.map_err(FlowError::store("delete the Pod object of this container"))?;
            facts.uid = Some(pod.uid);
            plan = plan::plan_del(&facts);
        }
        match plan {
            DelPlan::Release { uid, from } => {
                let endpoint = endpoint.filter(|_| matches!(from, ReleaseFrom::Endpoint(_)));
                self.release_all(leaving, &facts, &uid, endpoint).await
            }
            DelPlan::Nothing(why) => {
                let (pod, ifname) = (&leaving.pod, &leaving.ifname);
                tracing::info!(%pod, %ifname, why = why.reason(), "DEL frees nothing");
                match (why, endpoint, facts.uid) {
                    (NothingToFree::Kept(_) | NothingToFree::Shared, Some(endpoint), Some(uid)) => {
                        let kept = plan::held_by(&endpoint.status.current);
                        let is_kept =
                            |at: &PoolAddress| kept.iter().any(|held| held.address == at.1);
                        let mut surplus: BTreeSet<PoolAddress> = records.into_iter().collect();
                        surplus.retain(|at| !is_kept(at));
                        self.release_surplus(leaving, uid, surplus).await
                    }
                    _ => Ok(Released::Nothing),
                }
            }
            // Only a Pod object that lives asks for it, and it is gone.
            DelPlan::DeletePodFirst => Ok(Released::Nothing),
        }
    }

    /// Frees everything of this UID, and of the Pod that leaves, where the endpoint was written for
    /// another one of its identity.
    async fn release_all(
        &self,
        leaving: &Leaving,
        facts: &DelFacts,
        uid: &str,
        endpoint: Option<SpiderEndpoint>,
    ) -> Result<Released, FlowError> {
        let mut pools: BTreeSet<String> = facts.known_pools.iter().cloned().collect();
        pools.extend(endpoint.iter().flat_map(pools_of));
        let mut uids = BTreeSet::from([uid]);
        uids.extend(facts.uid.as_deref());
        for uid in uids {
            self.detach_all(uid).await?;
            let owner = Owner {
                pod: &leaving.pod,
                uid,
                endpoint: endpoint.as_ref(),
                deadline: leaving.deadline,
            };
            if !self.release(owner, &pools).await? {
                // Claim and endpoint stay, the runtime need not care.
                return Ok(Released::Waiting(uid.to_owned()));
            }
            self.memory.forget(uid);
            if let Some(endpoint) = endpoint
                .as_ref()
                .filter(|endpoint| endpoint.status.current.uid == uid)
            {
                let told = self.unbind_orphans(owner, endpoint).await;
                told.map_err(FlowError::store("look for who has the Pod's addresses"))?;
            }
        }
        if let Some(endpoint) = endpoint {
            self.delete_endpoint(&endpoint).await?;
        }
        Ok(Released::Done)
    }

    /// Frees what the Pod that leaves holds besides what its identity keeps: claims that no answer
    /// told of, and what was given up while a sandbox still used it.
    async fn release_surplus(
        &self,
        leaving: &Leaving,
        uid: String,
        surplus: BTreeSet<PoolAddress>,
    ) -> Result<Released, FlowError> {
        if surplus.is_empty() {
            return Ok(Released::Nothing);
        }
        self.detach_all(&uid).await?;
        let owner = Owner {
            pod: &leaving.pod,
            uid: &uid,
            endpoint: None,
            deadline: leaving.deadline,
        };
        let done = self.release_only(owner, surplus).await?;
        Ok(if done {
            Released::Nothing
        } else {
            Released::Waiting(uid)
        })
    }

    /// Read past the caches: a DEL is rare, and a stale answer frees a living Pod's address.
    async fn ending(&self, leaving: &Leaving) -> Result<Ending, FlowError> {
        let pod = self.read_pod(&leaving.pod, Freshness::Fresh).await?;
        let mut uid = leaving.uid.clone();
        if let (Some(pod), Some(named)) = (&pod, &mut uid)
            && pod.answers_to(named)
        {
            // A static Pod's hash becomes the UID that the records carry.
            pod.uid().clone_into(named);
        }
        let asked = uid.clone().unwrap_or_default();
        let caches = self.store.caches(&leaving.pod.namespace).await;
        let caches = caches.map_err(FlowError::store("read the pools"))?;
        let records = records_of(&asked, &caches);
        let key = match &pod {
            Some(pod) => pod.endpoint_key(self.settings.switches),
            // The Pod is gone and cannot say of which machine it was; its records can.
            None => records
                .first()
                .and_then(|(_, key)| key.clone())
                .unwrap_or_else(|| leaving.pod.clone()),
        };
        let endpoint = self.store.endpoint(&key, Freshness::Fresh).await;
        let endpoint = endpoint.map_err(FlowError::store("read the SpiderEndpoint"))?;
        let identity = match &endpoint {
            Some(endpoint) if !is_alive(pod.as_ref(), uid.as_deref()) => {
                self.identity(&key, endpoint, uid.as_deref(), pod.as_ref())
                    .await?
            }
            _ => None,
        };
        let mut known_pools = self.memory.pools_of(&asked);
        known_pools.extend(leaving.pools.iter().cloned());
        known_pools.extend(records.iter().map(|((pool, _), _)| pool.clone()));
        let facts = DelFacts {
            ifname: leaving.ifname.to_string(),
            known_pools: match uid {
                Some(_) => known_pools.into_iter().collect(),
                None => Vec::new(),
            },
            uid,
            pod: pod.map(|pod| pod.facts),
            endpoint: endpoint.as_ref().map(|endpoint| endpoint.status.clone()),
            identity,
        };
        Ok(Ending {
            facts,
            endpoint,
            records: records.into_iter().map(|(at, _)| at).collect(),
        })
    }

    /// No address is freed while a link of the Pod still uses it: of its other NICs and older
    /// sandboxes too, as all of them are freed at once.
    pub(super) async fn detach_all(&self, uid: &str) -> Result<(), FlowError> {
        for file in self.attachments.select(|file| file.pod_uid == uid) {
            if let Some(target) = target_of_file(&file) {
                let taken = self.take_nic(target, Some(&file)).await;
                taken.map_err(FlowError::nic)?;
            }
        }
        Ok(())
    }

    async fn delete_endpoint(&self, endpoint: &SpiderEndpoint) -> Result<(), FlowError> {
        let deleted = self.store.delete_endpoint(endpoint).await;
        deleted.map_err(FlowError::store("delete the SpiderEndpoint"))
    }

    /// Cleans up one attachment whose Pod is gone; for GC.
    pub(super) async fn collect(&self, file: &Attachment, deadline: Instant) -> Result<(), String> {
        let key = (file.pod_uid.clone(), file.ifname.clone());
        let _alone = tokio::time::timeout_at(deadline, self.locks.lock(key))
            .await
            .map_err(|_| {
                "the deadline came while another call for this NIC was under way".to_owned()
            })?;
        let text = |error: FlowError| full(&error);
        if let Some(target) = target_of_file(file) {
            let taken: Result<(), NicError> = self.take_nic(target, Some(file)).await;
            taken.map_err(|error| full(&error))?;
        }
        let leaving = Leaving {
            pod: ObjectKey::new(&file.pod_namespace, &file.pod_name),
            uid: Some(file.pod_uid.clone()),
            ifname: file.ifname.clone(),
            pools: file.ips.iter().map(|ip| ip.pool.clone()).collect(),
            deadline,
        };
        let released = self.release_pod(&leaving).await.map_err(text)?;
        let key = file.key();
        let kept = self.keep_for_later(&key, &leaving, &released).await;
        kept.map_err(text)?;
        self.remove_file(&key).await.map_err(text)
    }
}

/// What is known at the end of a Pod's NIC.
struct Ending {
    facts: DelFacts,
    endpoint: Option<SpiderEndpoint>,
    /// The UID's records, as the caches show them.
    records: Vec<PoolAddress>,
}

/// The cached records of this UID, each with the key it is kept under.
fn records_of(uid: &str, caches: &Caches) -> Vec<(PoolAddress, Option<ObjectKey>)> {
    let pools = caches.pools.iter().filter_map(|object| object.pool().ok());
    pools
        .flat_map(|pool| {
            let own = pool.records_of(uid).into_iter();
            own.map(|(address, record)| {
                let key = record.pod.split_once('/');
                let key = key.map(|(namespace, name)| ObjectKey::new(namespace, name));
                ((pool.name.clone(), address), key)
            })
        })
        .collect()
}

/// Whether this is the very Pod that was asked about, and it lives: then nothing more has to be read.
fn is_alive(pod: Option<&PodObject>, uid: Option<&str>) -> bool {
    pod.is_some_and(|pod| pod.is_alive() && uid.is_none_or(|uid| uid == pod.uid()))
}

/// The link of this sandbox: as its file describes it, else as the runtime does. Without either
/// there is none to look for.
fn target_of(call: &NicCall, file: Option<&Attachment>) -> Option<NicTarget> {
    if let Some(file) = file {
        return target_of_file(file);
    }
    let eni = call.call.conf.eni.as_ref()?;
    Some(NicTarget {
        ifname: call.key.ifname().clone(),
        netns: call.netns.clone()?,
        netns_id: None,
        master: Some(eni.master.clone()),
        vlan: None,
        mac: None,
    })
}

/// Only a file of `eni-vlan` is about a link of ours.
pub(super) fn target_of_file(file: &Attachment) -> Option<NicTarget> {
    file.master.as_ref()?;
    Some(NicTarget {
        ifname: file.ifname.clone(),
        netns: file.netns.clone(),
        netns_id: file.netns_id,
        master: file.master.clone(),
        vlan: file.vlan,
        mac: file.mac,
    })
}

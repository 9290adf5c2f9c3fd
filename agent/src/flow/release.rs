//! Release: a Pod's records leave the pools, guarded by its UID. Sub-ENIs that go with their Pod go back
//! to the provider first, where there is one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use futures::future::join_all;
use spiderpool_iaas::provider::Provider;
use spiderpool_ipam::batch::{Op, Outcome};
use spiderpool_ipam::pick::Rules;
use spiderpool_ipam::plan::Allocation;
use spiderpool_ipam::pool::Pool;
use tokio::time::Instant;

use super::error::{FlowError, full};
use super::unbind::{Owner, SubEni, is_primary, sub_enis};
use crate::agent::Agent;
use crate::events::{Notice, PodUid};
use crate::failpoint::del_step;
use crate::store::{Freshness, PodObject};
use crate::writer::{Change, Committed, WriteError};

/// Reason of the event when an address is given up (spec dataplane 4.3).
const EVENT_VALIDATION: &str = "SubENIValidationFailed";

/// What has to be done about one pool.
enum Task {
    /// Free the UID's records, or only these.
    Records(String, Option<Vec<IpAddr>>),
    /// The provider first.
    SubEni(SubEni),
}

/// A pool and an address in it.
pub(super) type PoolAddress = (String, IpAddr);

/// Which of a UID's records go.
enum Which {
    All,
    Only(BTreeSet<PoolAddress>),
}

impl Which {
    fn has(&self, pool: &str, address: IpAddr) -> bool {
        match self {
            Self::All => true,
            Self::Only(addresses) => addresses.contains(&(pool.to_owned(), address)),
        }
    }

    /// The addresses of one pool; `None`: all.
    fn of(&self, pool: &str) -> Option<Vec<IpAddr>> {
        match self {
            Self::All => None,
            Self::Only(addresses) => {
                let own = addresses.iter().filter(|(name, _)| name == pool);
                Some(own.map(|(_, address)| *address).collect())
            }
        }
    }
}

impl Agent {
    /// Frees every record of this UID in these pools, side by side. A pool that is gone or
    /// unreadable is GC's, with a log line. `false`: the provider has not accepted all of it, and
    /// what it has not stays claimed.
    ///
    /// # Errors
    /// [`FlowError::Release`] when trying again helps; the other pools are done all the same.
    pub(super) async fn release(
        &self,
        owner: Owner<'_>,
        pools: &BTreeSet<String>,
    ) -> Result<bool, FlowError> {
        self.release_which(owner, pools, &Which::All).await
    }

    /// The same for these addresses alone.
    ///
    /// # Errors
    /// As [`Agent::release`].
    pub(super) async fn release_only(
        &self,
        owner: Owner<'_>,
        addresses: BTreeSet<PoolAddress>,
    ) -> Result<bool, FlowError> {
        let pools = addresses.iter().map(|(pool, _)| pool.clone()).collect();
        let which = Which::Only(addresses);
        self.release_which(owner, &pools, &which).await
    }

    async fn release_which(
        &self,
        owner: Owner<'_>,
        pools: &BTreeSet<String>,
        which: &Which,
    ) -> Result<bool, FlowError> {
        let failed = |source| FlowError::Release {
            pod: owner.pod.clone(),
            source: Box::new(source),
        };
        // Two calls for one Pod would tell the provider twice, the second perhaps too late.
        let uid = owner.uid.to_owned();
        let locked = tokio::time::timeout_at(owner.deadline, self.releases.lock(uid)).await;
        let _alone = locked.map_err(|_| {
            let pools: Vec<&str> = pools.iter().map(String::as_str).collect();
            failed(WriteError::Deadline(pools.join(", ")))
        })?;
        let tasks = self.release_tasks(owner, pools, which).await?;
        let results = join_all(tasks.iter().map(|task| self.release_one(owner, task))).await;
        let (mut done, mut error) = (true, None);
        for result in results {
            match result {
                Ok(one) => done &= one,
                Err(WriteError::NoPool(_)) => {}
                Err(other) if other.is_this_pool_only() => {
                    let (pod, uid) = (owner.pod, owner.uid);
                    tracing::warn!(%pod, uid, error = %full(&other), "records are not freed; GC's work");
                }
                Err(other) => error = Some(other),
            }
        }
        error.map_or(Ok(done), |error| Err(failed(error)))
    }

    async fn release_tasks(
        &self,
        owner: Owner<'_>,
        pools: &BTreeSet<String>,
        which: &Which,
    ) -> Result<Vec<Task>, FlowError> {
        if self.provider.is_none() {
            let records = |pool: &String| Task::Records(pool.clone(), which.of(pool));
            return Ok(pools.iter().map(records).collect());
        }
        let known = self.known_pools(pools).await?;
        let uid = owner.uid;
        let mut enis = sub_enis(uid, &known, self.unwritten(owner));
        enis.retain(|eni| which.has(&eni.pool.name, eni.address));
        let mut tasks = Vec::new();
        for name in pools {
            if known.get(name).is_some_and(|pool| is_primary(pool, &known)) {
                continue;
            }
            let halves = enis.iter().filter_map(|eni| eni.half.as_ref());
            let halves = halves.map(|(pool, address)| (pool, *address));
            let own = enis.iter().map(|eni| (&eni.pool.name, eni.address));
            let kept: Vec<IpAddr> = halves
                .chain(own)
                .filter(|(pool, _)| *pool == name)
                .map(|(_, address)| address)
                .collect();
            let own = |pool: &Arc<Pool>| {
                let own = pool.records_of(uid).into_iter().map(|(address, _)| address);
                own.filter(|address| which.has(name, *address) && !kept.contains(address))
                    .collect()
            };
            let only = match known.get(name) {
                Some(pool) if !kept.is_empty() => Some(own(pool)),
                _ => which.of(name),
            };
            tasks.push(Task::Records(name.clone(), only));
        }
        tasks.extend(enis.into_iter().map(Task::SubEni));
        Ok(tasks)
    }

    /// The pools of these names that can be read.
    pub(super) async fn known_pools(
        &self,
        names: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, Arc<Pool>>, FlowError> {
        let mut pools = BTreeMap::new();
        for name in names {
            let read = self.store.pool(name, Freshness::Cached).await;
            let read = read.map_err(FlowError::store("read a pool of the Pod"))?;
            if let Some(Ok(pool)) = read.as_ref().map(|object| object.pool()) {
                pools.insert(name.clone(), Arc::clone(pool));
            }
        }
        Ok(pools)
    }

    async fn release_one(&self, owner: Owner<'_>, task: &Task) -> Result<bool, WriteError> {
        match (task, &self.provider) {
            (Task::SubEni(eni), Some(provider)) => self.unbind(provider.as_ref(), owner, eni).await,
            (Task::SubEni(_), None) => Ok(false),
            (Task::Records(pool, only), _) => {
                let op = Op::Release {
                    uid: owner.uid.to_owned(),
                    nic: None,
                    addresses: only.clone(),
                    by: None,
                };
                let freed = self.release_in(pool, op, owner.deadline).await;
                freed.map(|()| true)
            }
        }
    }

    /// One change that claims nothing.
    pub(super) async fn change(
        &self,
        pool: &str,
        op: Op,
        deadline: Instant,
    ) -> Result<Committed, WriteError> {
        let change = Change {
            pool: pool.to_owned(),
            sibling: None,
            op,
            rules: Arc::new(Rules::default()),
            deadline,
        };
        self.writers.commit(change).await
    }

    pub(super) async fn release_in(
        &self,
        pool: &str,
        op: Op,
        deadline: Instant,
    ) -> Result<(), WriteError> {
        let committed = del_step!(Free, self.change(pool, op, deadline))?;
        if let Outcome::Released(freed) = committed.outcome
            && !freed.is_empty()
        {
            let freed: Vec<String> = freed.iter().map(ToString::to_string).collect();
            tracing::info!(pool, freed = freed.join(","), "released");
        }
        Ok(())
    }

    /// Gives up addresses that failed their validation too often: releases them by the mode of
    /// their pool and does not take them again on this node for a while. What fails here is GC's.
    pub(super) async fn give_up(&self, pod: &PodObject, allocation: &Allocation) {
        let (nic, uid) = (&allocation.nic, pod.uid());
        let endpoint = pod.endpoint_key(self.settings.switches);
        self.unrecord(&endpoint, uid, nic).await;
        let pod = pod.key();
        let owner = Owner {
            pod: &pod,
            uid,
            endpoint: None,
            deadline: self.undo_deadline(),
        };
        let given: Vec<IpAddr> = allocation.ips.iter().map(|ip| ip.address.addr()).collect();
        for address in &given {
            self.memory.shun(*address);
        }
        if let Err(error) = self.release_nic(owner, allocation, &given).await {
            tracing::warn!(%pod, uid, nic, error, "addresses that keep failing their validation are not released; GC's work");
        }
        let addresses: Vec<String> = given.iter().map(ToString::to_string).collect();
        let message = format!(
            "sub-ENI validation of NIC {nic} failed five times in a row; {} released and not used on node {} for 5 minutes",
            addresses.join(" and "),
            self.settings.node
        );
        tracing::warn!(%pod, uid, message);
        self.events.tell(Notice {
            pod,
            uid: PodUid::Known(uid.to_owned()),
            reason: EVENT_VALIDATION,
            about: nic.clone(),
            message,
        });
    }

    /// One NIC's addresses, the Pod's others stay.
    async fn release_nic(
        &self,
        owner: Owner<'_>,
        allocation: &Allocation,
        given: &[IpAddr],
    ) -> Result<(), String> {
        let names = allocation.ips.iter().map(|ip| ip.pool.clone()).collect();
        let known = self.known_pools(&names).await;
        let known = known.map_err(|error| full(&error))?;
        if let Some(provider) = &self.provider {
            let enis = sub_enis(owner.uid, &known, self.unwritten(owner)).into_iter();
            if let Some(eni) = enis.into_iter().find(|eni| given.contains(&eni.address)) {
                return self.give_back(provider.as_ref(), owner, &eni).await;
            }
        }
        for ip in &allocation.ips {
            let address = ip.address.addr();
            self.free_of(owner, &allocation.nic, &ip.pool, address)
                .await?;
        }
        Ok(())
    }

    /// A sub-ENI goes back whole; the text says why not.
    pub(super) async fn give_back(
        &self,
        provider: &dyn Provider,
        owner: Owner<'_>,
        eni: &SubEni,
    ) -> Result<(), String> {
        match self.unbind(provider, owner, eni).await {
            Ok(true) => Ok(()),
            Ok(false) => Err("the provider has not accepted it".to_owned()),
            Err(error) => Err(full(&error)),
        }
    }

    /// Frees one record of one NIC; the text says why not.
    pub(super) async fn free_of(
        &self,
        owner: Owner<'_>,
        nic: &str,
        pool: &str,
        address: IpAddr,
    ) -> Result<(), String> {
        let op = Op::Release {
            uid: owner.uid.to_owned(),
            nic: Some(nic.to_owned()),
            addresses: Some(vec![address]),
            by: None,
        };
        let freed = self.release_in(pool, op, owner.deadline).await;
        freed.map_err(|error| full(&error))
    }
}

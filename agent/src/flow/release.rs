//! Release: a Pod's records leave the pools, guarded by its UID.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use spiderpool_ipam::batch::{Op, Outcome};
use spiderpool_ipam::pick::Rules;
use spiderpool_ipam::plan::Allocation;
use tokio::time::Instant;

use super::error::{FlowError, full};
use crate::agent::Agent;
use crate::store::{ObjectKey, PodEvent};
use crate::writer::{Change, WriteError};

/// Reason of the event when an address is given up (spec dataplane 4.3).
const EVENT_VALIDATION: &str = "SubENIValidationFailed";

impl Agent {
    /// Frees every record of this UID in these pools, side by side. A pool that is gone or
    /// unreadable is GC's, with a log line.
    ///
    /// # Errors
    /// [`FlowError::Release`] when trying again helps; the other pools are done all the same.
    pub(super) async fn release(
        &self,
        pod: &ObjectKey,
        uid: &str,
        pools: &BTreeSet<String>,
        deadline: Instant,
    ) -> Result<(), FlowError> {
        let op = Op::Release {
            uid: uid.to_owned(),
            nic: None,
            addresses: None,
        };
        let releases = pools
            .iter()
            .map(|pool| self.release_in(pool, op.clone(), deadline));
        let mut failed = None;
        for (pool, result) in pools.iter().zip(join_all(releases).await) {
            match result {
                Ok(()) | Err(WriteError::NoPool(_)) => {}
                Err(error) if error.is_this_pool_only() => {
                    tracing::warn!(%pod, uid, pool, error = %full(&error), "records are not freed; GC's work");
                }
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            None => Ok(()),
            Some(source) => Err(FlowError::Release {
                pod: pod.clone(),
                source: Box::new(source),
            }),
        }
    }

    async fn release_in(&self, pool: &str, op: Op, deadline: Instant) -> Result<(), WriteError> {
        let change = Change {
            pool: pool.to_owned(),
            sibling: None,
            op,
            rules: Arc::new(Rules::default()),
            deadline,
        };
        let committed = self.writers.commit(change).await?;
        if let Outcome::Released(freed) = committed.outcome
            && !freed.is_empty()
        {
            let freed: Vec<String> = freed.iter().map(ToString::to_string).collect();
            tracing::info!(pool, freed = freed.join(","), "released");
        }
        Ok(())
    }

    /// Gives up addresses that failed their validation too often: releases them and does not
    /// take them again on this node for a while. What fails here is GC's.
    pub(super) async fn give_up(&self, pod: &ObjectKey, uid: &str, allocation: &Allocation) {
        let nic = &allocation.nic;
        self.unrecord(pod, uid, nic).await;
        for ip in &allocation.ips {
            let address = ip.address.addr();
            self.memory.shun(address);
            let op = Op::Release {
                uid: uid.to_owned(),
                nic: Some(nic.clone()),
                addresses: Some(vec![address]),
            };
            if let Err(error) = self.release_in(&ip.pool, op, self.undo_deadline()).await {
                tracing::warn!(%pod, uid, pool = ip.pool, %address, error = %full(&error), "cannot release an address that keeps failing its validation");
            }
        }
        let addresses: Vec<String> = allocation
            .ips
            .iter()
            .map(|ip| ip.address.addr().to_string())
            .collect();
        let message = format!(
            "sub-ENI validation of NIC {nic} failed five times in a row; {} released and not used on node {} for 5 minutes",
            addresses.join(" and "),
            self.settings.node
        );
        tracing::warn!(%pod, uid, message);
        let event = PodEvent {
            pod: pod.clone(),
            uid: uid.to_owned(),
            reason: EVENT_VALIDATION,
            message,
        };
        self.store.event(event).await;
    }
}

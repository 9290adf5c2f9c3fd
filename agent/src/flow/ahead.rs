//! The endpoint of a new Pod, written while the claims are: both are one round trip to the API, and
//! in a pool that nobody else changes the claim of an address that works already comes out as it was
//! planned. Where it does not, [`Agent::record`] rewrites the endpoint before the answer; a reader never trusts an endpoint
//! whose addresses have no record (design section 3).

use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_ipam::batch::Outcome;
use spiderpool_ipam::candidates::NicCandidates;
use spiderpool_ipam::facts::Snapshot;
use spiderpool_ipam::plan;
use spiderpool_ipam::pool::RouteTo;
use tokio::sync::oneshot;

use super::claim::{Claimed, assemble};
use super::error::full;
use crate::agent::Agent;
use crate::writer::{Committed, Promise};

/// What each family of each NIC, by its index, is told ahead.
type Told = Vec<(usize, oneshot::Receiver<Committed>)>;

/// A promise for each family of all NICs; none when there is an endpoint already.
pub(super) fn promises_for(nics: &[NicCandidates], new: bool) -> (Vec<Promise>, Told) {
    let families = nics.iter().enumerate().filter(|_| new);
    families
        .flat_map(|(index, nic)| nic.families.iter().map(move |_| index))
        .map(|index| {
            let (promise, told) = oneshot::channel();
            (promise, (index, told))
        })
        .unzip()
}

impl Agent {
    /// Writes the endpoint as soon as all families are promised their addresses. `None`: there is
    /// something to wait for, or the write failed and is to be made after the claims.
    pub(super) async fn record_ahead(
        &self,
        snapshot: &Snapshot,
        nics: &[NicCandidates],
        routes: &[RouteTo],
        told: Told,
    ) -> Option<SpiderEndpoint> {
        if told.is_empty() {
            return None;
        }
        let mut claimed = Vec::new();
        for (nic, told) in told {
            let Committed { outcome, pool } = told.await.ok()?;
            let Outcome::Claimed(pick) = outcome else {
                return None;
            };
            claimed.push(Claimed {
                nic,
                pool,
                pick,
                half: false,
                parent: None,
            });
        }
        let mut allocations = assemble(nics, &claimed).ok()?.allocations;
        // Routes that nothing reaches are told of after the claims.
        drop(plan::attach_routes(&mut allocations, routes));
        let status = plan::endpoint_after(snapshot, &allocations);
        let object = SpiderEndpoint::new(self.endpoint_meta(snapshot), status);
        match self.write_endpoint(object).await {
            Ok(written) => Some(written),
            Err(error) => {
                let pod = snapshot.pod.key();
                tracing::debug!(pod, error = %full(&error), "the SpiderEndpoint is written after the claims");
                None
            }
        }
    }

    /// The claims failed: the endpoint tells of addresses that the Pod does not have.
    pub(super) async fn take_back(&self, written: Option<SpiderEndpoint>) {
        let Some(endpoint) = written else { return };
        if let Err(error) = self.store.delete_endpoint(&endpoint).await {
            let pod = &endpoint.status.current.uid;
            tracing::warn!(pod, error = %full(&error), "a SpiderEndpoint without addresses is left behind; the next ADD of the Pod mends it");
        }
    }
}

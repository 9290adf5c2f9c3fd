//! The addresses of an identity move to its next Pod: static retrieve (spec ipam 1.3 row 6, 7.5). The
//! records first, each by one change that claims a lost one again; then the provider, where a
//! sub-ENI has to come to this node; then the endpoint.

use spiderpool_api::allocation::Record;
use spiderpool_api::endpoint::{EndpointNic, SpiderEndpoint};
use spiderpool_api::value::Mac;
use spiderpool_ipam::batch::Op;
use spiderpool_ipam::candidates::NicCandidates;
use spiderpool_ipam::pick::PickError;
use spiderpool_ipam::plan::{self, Adoption, Allocation, Take};

use super::allocate::claim_failed;
use super::allocation::AllocationError;
use super::claim::{Claimed, Claimer};
use crate::store::StoreError;
use crate::writer::WriteError;

/// What an adoption came to.
pub(super) enum Adopted {
    /// The NIC's addresses are this Pod's, with the MAC of the parent NIC where the provider was told
    /// one.
    Done(Box<Allocation>, Option<Mac>),
    /// One of them is not to be had: the NIC needs others.
    Lost,
    /// Somebody else wrote the endpoint, or took an address, meanwhile.
    Again,
}

/// Addresses that are this Pod's now.
#[derive(Default)]
struct Taken {
    /// Of the NIC being added.
    own: Vec<Claimed>,
    /// Of others, by their names; sub-ENIs that are not on this node yet wait for their own ADD.
    others: Vec<(String, Claimed)>,
    /// Other NICs whose addresses somebody else has.
    lost: Vec<String>,
}

impl Claimer<'_> {
    /// Moves what the endpoint names to this Pod.
    pub(super) async fn adopt(
        &self,
        endpoint: SpiderEndpoint,
        adoption: &Adoption,
    ) -> Result<Adopted, AllocationError> {
        let mut taken = match self.take_all(adoption).await? {
            Ok(taken) => taken,
            Err(adopted) => return Ok(adopted),
        };
        let nics = [NicCandidates {
            nic: adoption.nic.interface.clone(),
            clean_gateway: adoption.nic.clean_gateway.unwrap_or(false),
            families: Vec::new(),
        }];
        if let Err(error) = self.bind(&nics, &mut taken.own).await {
            self.undo(&nics, &taken.own, &error).await;
            return Err(error);
        }
        let nic = with_binding(&adoption.nic, taken.own.iter());
        let allocation = plan::from_endpoint(&nic).map_err(AllocationError::Result)?;
        let Some(mut status) = plan::endpoint_adopted(self.snapshot, &nic, &taken.lost) else {
            return Ok(Adopted::Again);
        };
        let moves = self.agent.is_first_generation()
            && self
                .snapshot
                .endpoint
                .as_ref()
                .is_some_and(|endpoint| endpoint.current.node != self.agent.settings.node);
        for other in &mut status.current.ips {
            if moves && other.interface != nic.interface {
                // Bound on the node it left; its own ADD asks for this one.
                (other.vlan, other.mac) = (0, None);
            }
            let claims = taken.others.iter();
            let claims = claims.filter(|(name, _)| *name == other.interface);
            *other = with_binding(other, claims.map(|(_, claim)| claim));
        }
        let rewritten = self.agent.rewritten(self.snapshot, Some(endpoint), status);
        match self.agent.write_endpoint(rewritten.await?).await {
            Ok(_) => {}
            Err(StoreError::Conflict(_)) => return Ok(Adopted::Again),
            Err(error) => return Err(AllocationError::store("write the SpiderEndpoint")(error)),
        }
        let parent = taken.own.iter().find_map(|claim| claim.parent);
        Ok(Adopted::Done(Box::new(allocation), parent))
    }

    /// What stops it is the inner error.
    async fn take_all(
        &self,
        adoption: &Adoption,
    ) -> Result<Result<Taken, Adopted>, AllocationError> {
        let mut taken = Taken::default();
        for take in &adoption.take {
            let is_own = take.nic == adoption.nic.interface;
            if taken.lost.contains(&take.nic) {
                continue;
            }
            match self.take(take).await {
                Ok(claim) if is_own => taken.own.push(claim),
                Ok(claim) => taken.others.push((take.nic.clone(), claim)),
                Err(WriteError::Pick(PickError::Moved { .. })) => return Ok(Err(Adopted::Again)),
                Err(error) if is_own && is_for_good(&error) => return Ok(Err(Adopted::Lost)),
                Err(error) if is_for_good(&error) => taken.lost.push(take.nic.clone()),
                // What cannot be said now of another NIC is asked again by its own ADD.
                Err(error) if !is_own && error.is_this_pool_only() => {}
                Err(error) => return Err(claim_failed(&take.nic, &take.held, error)),
            }
        }
        Ok(Ok(taken))
    }

    /// Whether the endpoint tells of an ADD on this node whose Pod has the record.
    fn is_settled(&self, record: Option<&Record>) -> bool {
        let endpoint = self.snapshot.endpoint.as_ref();
        endpoint.zip(record).is_some_and(|(endpoint, record)| {
            let current = &endpoint.current;
            current.uid == record.pod_uid && current.node == self.agent.settings.node
        })
    }

    async fn take(&self, take: &Take) -> Result<Claimed, WriteError> {
        let pool = self.snapshot.pool(&take.held.pool);
        let record = pool.and_then(|pool| pool.records.get(take.held.address));
        let op = Op::Adopt {
            who: plan::claimant(self.snapshot, &take.nic),
            address: take.held.address,
            half: take.held.half,
            settled: self.is_settled(record),
            from: record.map(|record| record.pod_uid.clone()),
        };
        let (pool, pick) = self.commit(&take.held.pool, None, op).await?;
        Ok(Claimed {
            nic: 0,
            pool,
            pick,
            half: take.held.half,
            parent: None,
        })
    }
}

/// Whether waiting does not bring the address: then the NIC needs another one.
const fn is_for_good(error: &WriteError) -> bool {
    match error {
        WriteError::Pick(error) => !matches!(error, PickError::NotReady(_)),
        WriteError::NoPool(_) => true,
        _ => false,
    }
}

/// The detail with VLAN and MAC as these claims found them.
fn with_binding<'a>(nic: &EndpointNic, claims: impl Iterator<Item = &'a Claimed>) -> EndpointNic {
    let mut nic = nic.clone();
    for binding in claims.filter_map(|claim| claim.pick.binding) {
        nic.vlan = i64::from(binding.vlan.get());
        nic.mac = Some(binding.mac.to_string());
    }
    nic
}

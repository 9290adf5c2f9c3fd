//! The requests about one subnet and its pools. Each is conditional on what was read, or says nothing
//! but what is to be.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_api::names;
use spiderpool_api::subnet::{SpiderSubnet, SubnetStatus};

use crate::reconcile::finalizer;

/// Finalizers by which the cluster's garbage collector handles what an object owns.
const FOREGROUND: &str = "foregroundDeletion";
/// The other way: what it owns stays.
const ORPHAN: &str = "orphan";
/// Longest value of a label, bytes.
const LONGEST_LABEL: usize = 63;
/// Writes of one pool in a row that may meet somebody else's.
const TRIES: u32 = 5;

/// A subnet or its pool could not be brought in line; which one is said with it.
#[derive(Debug, thiserror::Error)]
#[error("cannot {tried}")]
pub(super) struct SubnetError {
    tried: &'static str,
    source: Box<kube::Error>,
}

/// How a pool belongs to a subnet.
pub(super) enum Joined {
    /// As before.
    Already,
    /// The pool's metadata as it was written.
    Now(Box<ObjectMeta>),
    /// It has another controller.
    OfAnother(String),
}

pub(super) struct Writer {
    client: Client,
}

impl Writer {
    pub(super) const fn new(client: Client) -> Self {
        Self { client }
    }

    fn subnets(&self) -> Api<PartialObjectMeta<SpiderSubnet>> {
        Api::all(self.client.clone())
    }

    /// Names of the pools that the subnet owns, as they are now.
    pub(super) async fn owned_by(
        &self,
        subnet: &SpiderSubnet,
    ) -> Result<BTreeSet<String>, SubnetError> {
        let pools: Api<SpiderIPPool> = Api::all(self.client.clone());
        let listed = pools.list_metadata(&ListParams::default()).await;
        let listed = listed.map_err(failed("list its pools"))?;
        let uid = subnet.uid();
        let is_own = |pool: &&PartialObjectMeta<SpiderIPPool>| {
            let mut owners = pool.owner_references().iter();
            owners.any(|owner| Some(&owner.uid) == uid.as_ref())
        };
        let own = listed.items.iter().filter(is_own);
        Ok(own.map(ResourceExt::name_any).collect())
    }

    /// Conditional: the specification that the counts are of must still be the stored one.
    pub(super) async fn write_status(
        &self,
        subnet: &SpiderSubnet,
        wanted: &SubnetStatus,
    ) -> Result<(), SubnetError> {
        if subnet.status.as_ref() == Some(wanted) {
            return Ok(());
        }
        let patch = json!({"metadata": {"resourceVersion": subnet.resource_version()},
            "status": {"controlledIPPools": wanted.controlled_ip_pools,
                "totalIPCount": wanted.total_ip_count,
                "allocatedIPCount": wanted.allocated_ip_count}});
        let subnets: Api<SpiderSubnet> = Api::all(self.client.clone());
        let params = PatchParams::default();
        let name = subnet.name_any();
        let written = subnets
            .patch_status(&name, &params, &Patch::Merge(patch))
            .await;
        changed_meanwhile(written.map(drop)).map_err(failed("write its status"))
    }

    /// A deletion in the foreground: the garbage collector takes what the subnet owns first. Nobody asks
    /// for that by default. One that leaves its pools alone stays as it was asked for.
    pub(super) async fn delete_pools_first(
        &self,
        subnet: &SpiderSubnet,
    ) -> Result<(), SubnetError> {
        let mut finalizers = subnet.finalizers().iter();
        if finalizers.any(|name| name == FOREGROUND || name == ORPHAN) {
            return Ok(());
        }
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Foreground),
            preconditions: Some(Preconditions {
                uid: subnet.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let asked = self.subnets().delete(&subnet.name_any(), &params).await;
        changed_meanwhile(asked.map(drop)).map_err(failed("delete its pools before it"))
    }

    pub(super) async fn let_go(&self, subnet: &SpiderSubnet) -> Result<(), SubnetError> {
        let Some(patch) = finalizer::removal(subnet) else {
            return Ok(());
        };
        let (name, params) = (subnet.name_any(), PatchParams::default());
        let subnets = self.subnets();
        let written = subnets
            .patch_metadata(&name, &params, &Patch::Merge(patch))
            .await;
        changed_meanwhile(written.map(drop)).map_err(failed("take its finalizer off"))
    }

    /// Adds the controller reference and the label that say to which subnet a pool belongs; `known` is
    /// what was last seen of it, which may be old.
    pub(super) async fn join(
        &self,
        known: &ObjectMeta,
        subnet: &OwnerReference,
    ) -> Result<Joined, SubnetError> {
        match patch(known, subnet) {
            Wanted::Nothing => return Ok(Joined::Already),
            Wanted::OfAnother(whose) => return Ok(Joined::OfAnother(whose)),
            Wanted::Patch(_) => {}
        }
        let pools: Api<PartialObjectMeta<SpiderIPPool>> = Api::all(self.client.clone());
        let name = known.name.as_deref().unwrap_or_default();
        let failed = || failed("let it belong to the subnet");
        let mut tries = 0;
        loop {
            let found = pools.get_metadata_opt(name).await.map_err(failed())?;
            let Some(found) = found else {
                return Ok(Joined::Already);
            };
            let patch = match patch(&found.metadata, subnet) {
                Wanted::Nothing => return Ok(Joined::Now(Box::new(found.metadata))),
                Wanted::OfAnother(whose) => return Ok(Joined::OfAnother(whose)),
                Wanted::Patch(patch) => Patch::Merge(patch),
            };
            tries += 1;
            let params = PatchParams::default();
            match pools.patch_metadata(name, &params, &patch).await {
                Ok(written) => return Ok(Joined::Now(Box::new(written.metadata))),
                // An agent wrote a record meanwhile; the reference is ours all the same.
                Err(kube::Error::Api(status)) if status.code == 409 && tries < TRIES => {}
                Err(error) => return Err(failed()(error)),
            }
        }
    }
}

/// What a pool lacks to belong to a subnet.
#[derive(Debug, PartialEq)]
enum Wanted {
    Nothing,
    /// Another controller has it.
    OfAnother(String),
    Patch(Value),
}

fn patch(pool: &ObjectMeta, subnet: &OwnerReference) -> Wanted {
    let owners = pool.owner_references.clone().unwrap_or_default();
    let labels = pool.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(names::OWNER_SPIDER_SUBNET));
    let of_same =
        |owner: &OwnerReference| (&owner.kind, &owner.name) == (&subnet.kind, &subnet.name);
    let controller = owners.iter().find(|owner| owner.controller == Some(true));
    match controller {
        Some(known) if known.uid == subnet.uid && label == Some(&subnet.name) => {
            return Wanted::Nothing;
        }
        Some(other) if !of_same(other) => {
            return Wanted::OfAnother(format!("{} {}", other.kind, other.name));
        }
        _ => {}
    }
    // As admission does: the name of the subnet must be one of a label.
    if pool.deletion_timestamp.is_some() || subnet.name.len() > LONGEST_LABEL {
        return Wanted::Nothing;
    }
    let mut owners: Vec<OwnerReference> = owners.into_iter().filter(|one| !of_same(one)).collect();
    owners.push(OwnerReference {
        block_owner_deletion: Some(true),
        ..subnet.clone()
    });
    Wanted::Patch(
        json!({"metadata": {"resourceVersion": pool.resource_version,
        "ownerReferences": owners, "labels": {names::OWNER_SPIDER_SUBNET: subnet.name}}}),
    )
}

/// Somebody's change, or the end of the object: its event is on the way.
fn changed_meanwhile(written: kube::Result<()>) -> kube::Result<()> {
    match written {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        written => written,
    }
}

fn failed(tried: &'static str) -> impl FnOnce(kube::Error) -> SubnetError {
    move |source| SubnetError {
        tried,
        source: Box::new(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(kind: &str, name: &str, uid: &str) -> Value {
        json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": kind, "name": name,
            "uid": uid, "controller": true})
    }

    fn judged(owners: &Value, label: Option<&str>) -> Wanted {
        let pool = json!({"name": "p", "resourceVersion": "7", "ownerReferences": owners,
            "labels": {names::OWNER_SPIDER_SUBNET: label.unwrap_or_default()}});
        let subnet = serde_json::from_value(owner("SpiderSubnet", "s", "u-1")).unwrap();
        patch(&serde_json::from_value(pool).unwrap(), &subnet)
    }

    #[test]
    fn a_pool_belongs_to_the_subnet_that_there_is() {
        let own = owner("SpiderSubnet", "s", "u-1");
        assert_eq!(judged(&json!([own]), Some("s")), Wanted::Nothing);
        let mut blocking = own.clone();
        blocking["blockOwnerDeletion"] = json!(true);
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u-8"});
        for (owners, want) in [
            (json!([]), json!([blocking])),
            (json!([other]), json!([other, blocking])),
            // made again under the same name
            (
                json!([owner("SpiderSubnet", "s", "u-0")]),
                json!([blocking]),
            ),
            // the label alone is lacking
            (json!([own]), json!([blocking])),
        ] {
            let Wanted::Patch(patch) = judged(&owners, None) else {
                panic!("{owners}");
            };
            assert_eq!(patch["metadata"]["ownerReferences"], want);
            assert_eq!(patch["metadata"]["resourceVersion"], "7");
        }
        let whose = judged(&json!([owner("Other", "o", "u-9")]), None);
        assert_eq!(whose, Wanted::OfAnother("Other o".to_owned()));
    }
}

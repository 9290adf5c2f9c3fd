//! Endpoints that no record answers for (spec ipam 6.4), and those of an earlier Pod of the name.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::{Api, Resource, ResourceExt};
use serde::Deserialize;
use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_ipam::gc::{EndpointVerdict, Knobs, judge_endpoint};
use spiderpool_ipam::plan::{held_by, sub_enis_of};
use spiderpool_ipam::pool::Pool;

use super::scan::Found;
use super::{Gc, follow};
use crate::chain::full;
use crate::objects::endpoint::{self, Deleted, Still};
use crate::objects::{ObjectKey, StoreError};

/// An endpoint of a living Pod is that of an ADD on its way until it is older than any call can be.
const SETTLED: SignedDuration = SignedDuration::from_secs(120);

/// An endpoint's JSON, as far as it is read.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct RawEndpoint {
    metadata: RawMeta,
    status: RawStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawMeta {
    namespace: String,
    name: String,
    deletion_timestamp: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct RawStatus {
    current: RawCurrent,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct RawCurrent {
    uid: String,
}

/// Why an endpoint is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suspicion {
    /// The living Pod of the name has another UID, and a record of its own.
    Stale,
    /// No record has its key.
    Unrecorded,
    /// The same, and it is deleted: only our finalizer holds it, in the way of the next Pod of the name.
    Deleted,
}

impl Gc {
    /// Looks at all endpoints, after the records.
    ///
    /// # Errors
    /// [`StoreError`] when they cannot be listed.
    pub(super) async fn scan_endpoints(&self, found: &Found) -> Result<(), StoreError> {
        let mut suspects = Vec::new();
        let url = SpiderEndpoint::url_path(&(), None);
        let each = |raw: RawEndpoint| {
            let key = ObjectKey::new(&raw.metadata.namespace, &raw.metadata.name);
            if let Some(why) = self.suspicion(&key, &raw, found) {
                suspects.push((key, why));
            }
        };
        follow::list(&self.client, &url, "all SpiderEndpoints", each).await?;
        for (key, why) in suspects {
            match self.leftover(&key, why).await {
                Ok(Some(endpoint)) => self.remove_endpoint(&endpoint).await,
                Ok(None) => {}
                Err(error) => tracing::warn!(endpoint = %key, "it is left alone: {}", full(&error)),
            }
        }
        Ok(())
    }

    fn suspicion(&self, key: &ObjectKey, raw: &RawEndpoint, found: &Found) -> Option<Suspicion> {
        let uid = &raw.status.current.uid;
        let Some(living) = found.keys.get(key.to_string().as_str()) else {
            if raw.metadata.deletion_timestamp.is_some() {
                return Some(Suspicion::Deleted);
            }
            let wanted = self.knobs.clean_outdated_endpoints;
            return wanted.then_some(Suspicion::Unrecorded);
        };
        let pod = self.pods.of(key, uid).filter(|pod| pod.key == *key)?;
        let stateless = self.reader.sticky().of_owner(&pod.owner).is_none();
        let stale = *living && stateless && pod.state.uid != *uid;
        stale.then_some(Suspicion::Stale)
    }

    /// Reads past the watches; the endpoint, if it goes.
    async fn leftover(
        &self,
        key: &ObjectKey,
        why: Suspicion,
    ) -> Result<Option<SpiderEndpoint>, StoreError> {
        let pod = self.reader.pod(key).await?;
        let Some(endpoint) = self.reader.endpoint(key).await? else {
            return Ok(None);
        };
        let current = &endpoint.status.current;
        let own = pod.filter(|pod| !pod.state.phase.ended());
        if why == Suspicion::Stale {
            let stale = own.is_some_and(|pod| {
                let stateless = self.reader.sticky().of_owner(&pod.owner).is_none();
                stateless && pod.state.uid != current.uid
            });
            let kept = stale && self.is_kept(key, &endpoint).await?;
            return Ok(Some(endpoint).filter(|_| stale && !kept));
        }
        let lives = own.is_some_and(|pod| pod.state.uid == current.uid);
        if lives && self.is_young(&endpoint) {
            return Ok(None);
        }
        let mut pools: Vec<Arc<Pool>> = Vec::new();
        for held in held_by(current) {
            match self.pools.get(&held.pool).await {
                // One that cannot be understood may have a record.
                Ok(read) => match read.pool() {
                    Ok(pool) => pools.push(Arc::clone(pool)),
                    Err(_) => return Ok(None),
                },
                // It alone knows of the sub-ENI that the Pod uses, and the provider has to hear of that.
                Err(StoreError::NotFound(_)) if lives && !sub_enis_of(current).is_empty() => {
                    return Ok(None);
                }
                Err(StoreError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let pools = pools.iter().map(Arc::as_ref);
        let knobs = Knobs {
            clean_outdated_endpoints: true,
            ..self.knobs.clone()
        };
        let verdict = judge_endpoint(&knobs, &key.to_string(), &endpoint.status, pools);
        Ok(Some(endpoint).filter(|_| verdict == EndpointVerdict::Delete))
    }

    /// Whether it is of something that outlives Pods and shares its name with a Pod of another kind.
    async fn is_kept(
        &self,
        key: &ObjectKey,
        endpoint: &SpiderEndpoint,
    ) -> Result<bool, StoreError> {
        let identity = self.reader.identity(key, None, Some(&endpoint.status));
        Ok(identity.await?.is_some_and(|identity| identity.valid))
    }

    fn is_young(&self, endpoint: &SpiderEndpoint) -> bool {
        let created: Option<Timestamp> = endpoint.creation_timestamp().map(|time| time.0);
        created.is_none_or(|at| self.now().duration_since(at) < SETTLED)
    }

    /// Deletes an endpoint that is still as it was read; a failure is for the next scan. Sub-ENIs that only
    /// it knows are told to the provider before.
    pub(super) async fn remove_endpoint(&self, found: &SpiderEndpoint) {
        let key = endpoint_key(found);
        let api: Api<SpiderEndpoint> = Api::namespaced(self.client.clone(), &key.namespace);
        let removed = async {
            self.unbind_orphans(found).await?;
            match endpoint::delete(&api, found, Still::AsRead).await? {
                Deleted::Waits => endpoint::drop_finalizer(&api, found).await,
                Deleted::Gone => Ok(()),
            }
        };
        match removed.await {
            Ok(()) => tracing::info!(endpoint = %key, uid = found.status.current.uid, "removed"),
            Err(error) => tracing::warn!("{}", full(&error)),
        }
    }

    /// Takes our finalizer off; who owns the endpoint deletes it. Sub-ENIs that only it knows are told to
    /// the provider before.
    pub(super) async fn let_go(&self, found: &SpiderEndpoint) -> Result<(), StoreError> {
        self.unbind_orphans(found).await?;
        let api = Api::namespaced(self.client.clone(), &endpoint_key(found).namespace);
        endpoint::drop_finalizer(&api, found).await
    }
}

fn endpoint_key(endpoint: &SpiderEndpoint) -> ObjectKey {
    ObjectKey::new(
        endpoint.namespace().unwrap_or_default(),
        endpoint.name_any(),
    )
}

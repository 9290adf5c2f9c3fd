//! Holds pools until their sub-ENIs are gone (P16): a finalizer of the provider's own on each marked
//! pool, of a pair on both. Reads and writes `metadata.finalizers`, conditionally, nothing else.

use std::time::Duration;

use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::json;
use spiderpool_api::causes::with_causes;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::cloud::SubEni;
use crate::pool::Pool;
use crate::service::{Service, World};

/// The finalizer.
pub const FINALIZER: &str = "iaas.spidernet.io/provider-sim";

/// Before another look at a pool that somebody else wrote meanwhile.
const CONFLICT_PAUSE: Duration = Duration::from_millis(5);
/// Before another try with a server that fails.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// What a pool needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Hold,
    LetGo,
}

impl Service {
    /// Follows pools and sub-ENIs. Never ends.
    pub async fn hold_pools_forever(&self) {
        loop {
            self.hold_due.notified().await;
            if !self.hold_pools().await {
                sleep(FAILURE_PAUSE).await;
                self.hold_due.notify_one();
            }
        }
    }

    /// Adds the finalizer where it is missing and takes it off pools that may go; false when the
    /// server failed.
    pub async fn hold_pools(&self) -> bool {
        let Some(publisher) = &self.publisher else {
            return true;
        };
        let needs = self.look(|world| world.needs()).unwrap_or_default();
        let mut done = true;
        for (name, need) in needs {
            if let Err(cause) = change(publisher.pools(), &name, need).await {
                warn!(pool = name, cause = %with_causes(&cause), "a pool's finalizer is not changed");
                done = false;
            }
        }
        done
    }
}

impl World {
    fn needs(&self) -> Vec<(String, Need)> {
        let memory = &self.memory;
        let marked = memory.pools.values().filter_map(|pool| {
            let need = match (pool.deleting, pool.held) {
                (false, false) => Need::Hold,
                (true, true) if self.is_empty(pool) => Need::LetGo,
                _ => return None,
            };
            Some((pool.name.clone(), need))
        });
        let abandoned = memory.abandoned.iter();
        let abandoned = abandoned.filter(|name| memory.of_pool(name).next().is_none());
        let abandoned = abandoned.map(|name| (name.clone(), Need::LetGo));
        marked.chain(abandoned).collect()
    }

    /// Whether no sub-ENI is of a pool or has an address of it, in the cloud too.
    fn is_empty(&self, pool: &Pool) -> bool {
        let has = |sub_eni: &SubEni| {
            let partner = |ip| pool.is_sibling() && pool.addresses.contains(ip);
            sub_eni.pool == pool.name || sub_eni.ipv6.is_some_and(|ip| partner(ip.into()))
        };
        !self.memory.all().chain(self.cloud.sub_enis()).any(has)
    }
}

async fn change(pools: &Api<DynamicObject>, name: &str, need: Need) -> Result<(), kube::Error> {
    loop {
        let Some(object) = pools.get_opt(name).await? else {
            return Ok(());
        };
        let mut finalizers = object.finalizers().to_vec();
        let held = finalizers.iter().any(|name| name == FINALIZER);
        let deleting = object.metadata.deletion_timestamp.is_some();
        match need {
            // an object that is going away takes no new ones
            Need::Hold if held || deleting => return Ok(()),
            Need::LetGo if !held => return Ok(()),
            Need::Hold => finalizers.push(FINALIZER.to_owned()),
            Need::LetGo => finalizers.retain(|name| name != FINALIZER),
        }
        let patch = json!({ "metadata": {
            "resourceVersion": object.resource_version(),
            "finalizers": finalizers,
        }});
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        match pools.patch(name, &params, &patch).await {
            Ok(_) => {
                info!(pool = name, ?need, "the finalizer is changed");
                return Ok(());
            }
            Err(kube::Error::Api(status)) if status.code == 409 => sleep(CONFLICT_PAUSE).await,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

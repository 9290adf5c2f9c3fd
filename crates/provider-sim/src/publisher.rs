//! Writes `status.ipMetaData` of the pools (P9, P11): whole snapshots, conditional on the version
//! that was read, with the generation they are for. Touches no other field.

use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use spiderpool_api::causes::with_causes;
use spiderpool_api::names;
use tokio::sync::Mutex;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::pool::{Pool, Published};
use crate::service::Service;

/// Before another look at a pool that somebody else wrote meanwhile.
const CONFLICT_PAUSE: Duration = Duration::from_millis(5);
/// Before another try with a server that fails.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// The way to the pools.
#[derive(Debug)]
pub struct Publisher {
    pools: Api<DynamicObject>,
    /// One publication at a time: a snapshot never overtakes a newer one.
    turn: Mutex<()>,
}

/// Pools of an API server.
#[must_use]
pub fn pools(client: Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(names::GROUP, names::VERSION, "SpiderIPPool");
    let resource = ApiResource::from_gvk_with_plural(&kind, "spiderippools");
    Api::all_with(client, &resource)
}

impl Publisher {
    /// Publishes through this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            pools: pools(client),
            turn: Mutex::new(()),
        }
    }

    /// The pools of its API server.
    #[must_use]
    pub const fn pools(&self) -> &Api<DynamicObject> {
        &self.pools
    }
}

impl Service {
    /// Publishes after each change: at once what was never published, the rest a moment later,
    /// many changes together. Never ends.
    pub async fn publish_forever(&self) {
        loop {
            self.changed.notified().await;
            let pause = self.with(|world| {
                let mut pools = world.memory.pools.values();
                let new = pools.any(|pool| pool.published.is_none() && pool.node.is_none());
                Duration::from_millis(if new { 0 } else { world.settings.flush_ms })
            });
            sleep(pause).await;
            let differing = self.differing();
            if !self.publish_pools(differing).await {
                sleep(FAILURE_PAUSE).await;
                self.changed.notify_one();
            }
        }
    }

    /// Publishes whatever differs from what is published, which is read anew; false when the
    /// server failed. Without an API server there is nothing to do.
    pub async fn flush(&self) -> bool {
        let names = self.with(|world| world.memory.pools.keys().cloned().collect());
        self.publish_pools(names).await
    }

    /// As [`Self::flush`], of one pool.
    pub(crate) async fn publish_one(&self, pool: &str) -> bool {
        self.publish_pools(vec![pool.to_owned()]).await
    }

    /// Pools that differ from what was last heard of them. That may be old, but then there is
    /// more to hear, and another round.
    fn differing(&self) -> Vec<String> {
        let pools: Vec<Pool> = self.with(|world| world.memory.pools.values().cloned().collect());
        let differs = |pool: &Pool| {
            let due = self.snapshot(pool).map(|(_, metadata)| Published {
                generation: pool.generation,
                metadata,
            });
            due.is_some() && due != pool.published
        };
        let pools = pools.into_iter().filter(differs);
        pools.map(|pool| pool.name).collect()
    }

    async fn publish_pools(&self, names: Vec<String>) -> bool {
        let Some(publisher) = &self.publisher else {
            return true;
        };
        let _turn = publisher.turn.lock().await;
        let mut done = true;
        for name in names {
            if let Err(cause) = self.publish_pool(publisher, &name).await {
                warn!(pool = name, cause = %with_causes(&cause), "a pool's metadata is not published");
                done = false;
            }
        }
        done
    }

    async fn publish_pool(&self, publisher: &Publisher, name: &str) -> Result<(), kube::Error> {
        loop {
            let Some(object) = publisher.pools.get_opt(name).await? else {
                return Ok(());
            };
            let (Some(pool), Some(version)) = (Pool::of_object(&object), object.resource_version())
            else {
                return Ok(());
            };
            let Some((count, metadata)) = self.snapshot(&pool) else {
                return Ok(());
            };
            let published = Some(Published {
                generation: pool.generation,
                metadata,
            });
            if pool.published == published {
                return Ok(());
            }
            let patch = patch(&pool, &version, count, published.as_ref());
            let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
            match publisher.pools.patch_status(name, &params, &patch).await {
                Ok(_) => {
                    info!(pool = name, entries = count, "metadata is published");
                    self.with(|world| {
                        if let Some(known) = world.memory.pools.get_mut(name) {
                            known.published = published;
                        }
                    });
                    return Ok(());
                }
                // an agent claimed: its write counts, ours is made anew from what is true now
                Err(kube::Error::Api(status)) if status.code == 409 => sleep(CONFLICT_PAUSE).await,
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Number of entries and text for a pool; `None` while nothing may be said of it.
    pub(crate) fn snapshot(&self, pool: &Pool) -> Option<(usize, String)> {
        if !self.is_ready() {
            return None;
        }
        self.with(|world| {
            let tried = world.memory.prewarmed.get(&pool.name);
            let tried = tried.is_some_and(|(generation, _)| *generation == pool.generation);
            let untried = pool.node.is_some() && !tried;
            if untried || pool.is_sibling() || world.faults.stalls(&pool.name) {
                return None;
            }
            let (count, text) = world.memory.envelope(pool, &world.cloud);
            Some((count, world.faults.bad_metadata(&pool.name).unwrap_or(text)))
        })
    }
}

fn patch(pool: &Pool, version: &str, count: usize, published: Option<&Published>) -> Value {
    let total = i64::try_from(pool.addresses.count()).unwrap_or(i64::MAX);
    let ready = i64::try_from(count).unwrap_or(i64::MAX);
    json!({
        "metadata": { "resourceVersion": version },
        "status": { "ipMetaData": {
            "observedGeneration": pool.generation,
            "readyIPCount": ready,
            "unreadyIPCount": total.saturating_sub(ready).max(0),
            "metadata": published.map(|published| &published.metadata),
        }},
    })
}

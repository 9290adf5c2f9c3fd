//! The pool reconciler against the embedded API.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its helpers too"
)]

use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_controller::events::Events;
use spiderpool_controller::reconcile::ippool;
use spiderpool_embedded_api::{EmbeddedApi, IpamAdmission};
use spiderpool_ipam::admission::Settings;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until the pool looks as wanted; `None` is a pool that is gone.
async fn wait_for(
    pools: &Api<SpiderIPPool>,
    what: &str,
    wanted: impl Fn(Option<&SpiderIPPool>) -> bool,
) {
    let seen = tokio::time::timeout(PATIENCE, async {
        loop {
            if wanted(pools.get_opt("p").await.unwrap().as_ref()) {
                return;
            }
            tokio::task::yield_now().await;
        }
    });
    seen.await
        .unwrap_or_else(|_| panic!("{what} did not happen in {PATIENCE:?}"));
}

async fn create(pools: &Api<SpiderIPPool>) {
    let object = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
        "metadata": {"name": "p"}, "spec": {"subnet": "10.0.0.0/24", "ips": ["10.0.0.9-10.0.0.20"]}});
    let object = serde_json::from_value(object).unwrap();
    let created = pools.create(&PostParams::default(), &object).await.unwrap();
    assert!(!created.finalizers().is_empty());
}

async fn set_status(pools: &Api<SpiderIPPool>, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    pools
        .patch_status("p", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_counted_and_goes_when_its_last_record_goes() {
    let dir = tempfile::tempdir().unwrap();
    // Deletion of a pool in use, which the default refuses: the finalizer must hold it then.
    let settings = Settings {
        protect_deletion: false,
        ..Settings::default()
    };
    let admission = Arc::new(IpamAdmission::new(settings));
    let api = EmbeddedApi::open(&dir.path().join("state.redb"), admission).unwrap();
    let client = Client::new(api.router(), "default");
    let stop = CancellationToken::new();
    let events = Events::new(client.clone(), "c-0");
    let resync = Duration::from_secs(300);
    let task = tokio::spawn(ippool::run(client.clone(), events, resync, stop.clone()));
    let pools: Api<SpiderIPPool> = Api::all(client);
    let total =
        |pool: Option<&SpiderIPPool>| pool.and_then(|pool| pool.status.as_ref()?.total_ip_count);

    create(&pools).await;
    wait_for(&pools, "the count", |pool| total(pool) == Some(12)).await;
    let grow = Patch::Merge(json!({"spec": {"ips": ["10.0.0.9-10.0.0.30"]}}));
    pools
        .patch("p", &PatchParams::default(), &grow)
        .await
        .unwrap();
    wait_for(&pools, "the new count", |pool| total(pool) == Some(22)).await;

    set_status(
        &pools,
        json!({"allocatedIPs": "{\"10.0.0.9\":{\"pod\":\"a/b\",\"podUid\":\"u\"}}"}),
    )
    .await;
    pools.delete("p", &DeleteParams::default()).await.unwrap();
    let dying = |pool: Option<&SpiderIPPool>| {
        pool.is_some_and(|pool| pool.metadata.deletion_timestamp.is_some())
    };
    wait_for(&pools, "the deletion mark", dying).await;
    set_status(&pools, json!({"allocatedIPs": null})).await;
    wait_for(&pools, "the end", |pool| pool.is_none()).await;

    stop.cancel();
    task.await.unwrap();
    api.close().await;
}

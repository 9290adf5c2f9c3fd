//! Pools: claims as conditional writes, and copies that follow what others write.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use spiderpool_agent::store::kube::{KubeStore, Waits};
use spiderpool_agent::store::{Freshness, PoolObject, Store, StoreError};
use spiderpool_embedded_api::EmbeddedApi;
use spiderpool_embedded_api::admission::AcceptAll;

use crate::rig::{PATIENCE, bench, pool, pools, record, records, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_a_conditional_write_that_keeps_foreign_fields() {
    let bench = bench().await;
    let status = json!({"status": {"ipMetaData": {"metadata": "{}", "readyIPCount": 3}, "totalIPCount": 12}});
    let patch = Patch::Merge(&status);
    pools(&bench.client)
        .patch_status("p", &PatchParams::default(), &patch)
        .await
        .unwrap();

    let read = bench
        .store
        .pool("p", Freshness::Fresh)
        .await
        .unwrap()
        .unwrap();
    let mut records = records(&read);
    records.insert("10.0.0.9".parse().unwrap(), record("u-1"));
    let written = bench.store.put_pool_status(&read, &records).await.unwrap();
    assert_eq!(written.raw()["status"]["allocatedIPCount"], 1);
    assert_eq!(written.raw()["status"]["ipMetaData"]["readyIPCount"], 3);
    assert_eq!(written.raw()["status"]["totalIPCount"], 12);

    // The copy read before is outdated now: its writer must lose.
    let lost = bench.store.put_pool_status(&read, &records).await;
    assert!(matches!(lost, Err(StoreError::Conflict(what)) if what.contains("p")));
    // And the own write is what a cached read sees at once.
    let cached = bench
        .store
        .pool("p", Freshness::Cached)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(cached.resource_version(), written.resource_version());
}

#[tokio::test(flavor = "multi_thread")]
async fn specifications_and_deletions_of_pools_reach_the_caches() {
    let bench = bench().await;
    let api = pools(&bench.client);
    let cached = || async { bench.store.pool("q", Freshness::Cached).await.unwrap() };
    api.create(&PostParams::default(), &pool("q"))
        .await
        .unwrap();
    wait_for("the new pool", cached).await;

    let disable = json!({"spec": {"disable": true}});
    api.patch("q", &PatchParams::default(), &Patch::Merge(&disable))
        .await
        .unwrap();
    wait_for("the changed specification", || async {
        let pools = bench.store.caches("default").await.unwrap().pools;
        let changed =
            |pool: &Arc<PoolObject>| pool.name() == "q" && pool.typed().spec.disable == Some(true);
        pools.iter().any(changed).then_some(())
    })
    .await;

    api.delete("q", &DeleteParams::default()).await.unwrap();
    wait_for("the deletion", || async {
        cached().await.is_none().then_some(())
    })
    .await;
    assert!(
        bench
            .store
            .pool("q", Freshness::Fresh)
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_status_is_read_by_whoever_is_about_to_claim() {
    let bench = bench().await;
    let status =
        json!({"status": {"allocatedIPs": "{\"10.0.0.9\":{\"pod\":\"x/y\",\"podUid\":\"u\"}}"}});
    pools(&bench.client)
        .patch_status("p", &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
    wait_for("the foreign record", || async {
        let pool = bench
            .store
            .pool("p", Freshness::Cached)
            .await
            .unwrap()
            .unwrap();
        (records(&pool).count() == 1).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_records_were_repaired_is_used_again() {
    let bench = bench().await;
    let usable = async || {
        let caches = bench.store.caches("default").await.unwrap();
        caches.pools.iter().all(|pool| pool.pool().is_ok())
    };
    let write = async |text: &str| {
        let status = json!({"status": {"allocatedIPs": text}});
        let patch = Patch::Merge(&status);
        let params = PatchParams::default();
        pools(&bench.client)
            .patch_status("p", &params, &patch)
            .await
            .unwrap();
    };
    write("{").await;
    bench.store.pool("p", Freshness::Fresh).await.unwrap();
    assert!(!usable().await);
    write("{}").await;
    wait_for("the repaired pool", async || usable().await.then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_pool_whose_first_read_fails_is_read_by_the_next_call() {
    let dir = tempfile::tempdir().unwrap();
    let api = EmbeddedApi::open(&dir.path().join("state.redb"), Arc::new(AcceptAll)).unwrap();
    let refusals = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&refusals);
    let router = api
        .router()
        .layer(from_fn(move |request: Request, next: Next| {
            let is_it = request.method() == "GET" && request.uri().path().ends_with("/late");
            let refused = is_it && seen.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if refused {
                    return StatusCode::SERVICE_UNAVAILABLE.into_response();
                }
                next.run(request).await
            }
        }));
    let client = Client::new(router, "default");
    let store = KubeStore::start(client.clone(), "n1", Waits::new(PATIENCE))
        .await
        .unwrap();
    pools(&client)
        .create(&PostParams::default(), &pool("late"))
        .await
        .unwrap();
    wait_for("the refused read", async || {
        (refusals.load(Ordering::SeqCst) > 0).then_some(())
    })
    .await;
    wait_for("the pool", async || {
        let caches = store.caches("default").await.unwrap();
        (caches.pools.len() == 1).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_without_an_answer_puts_the_copy_in_doubt() {
    let dir = tempfile::tempdir().unwrap();
    let api = EmbeddedApi::open(&dir.path().join("state.redb"), Arc::new(AcceptAll)).unwrap();
    let client = Client::new(api.router(), "default");
    pools(&client)
        .create(&PostParams::default(), &pool("p"))
        .await
        .unwrap();
    // Stored, but the answer is lost; and the watches are told of nothing any more.
    let router = api
        .router()
        .layer(from_fn(|request: Request, next: Next| async move {
            let query = request.uri().query().unwrap_or_default();
            if request.method() == "GET" && query.contains("watch=true") {
                return std::future::pending().await;
            }
            let lost = request.method() == "PUT";
            let answer = next.run(request).await;
            if lost {
                return StatusCode::BAD_GATEWAY.into_response();
            }
            answer
        }));
    let store = KubeStore::start(Client::new(router, "default"), "n1", Waits::new(PATIENCE))
        .await
        .unwrap();
    let read = async |freshness| store.pool("p", freshness).await.unwrap().unwrap();
    let before = read(Freshness::Cached).await;
    let mut wanted = records(&before);
    wanted.insert("10.0.0.9".parse().unwrap(), record("u-1"));
    store.put_pool_status(&before, &wanted).await.unwrap_err();
    let after: Arc<PoolObject> = read(Freshness::Cached).await;
    assert_eq!(records(&after), wanted);
}

/// Read from the API: no watch has told of it yet.
#[tokio::test(flavor = "multi_thread")]
async fn who_has_an_address_is_asked_past_the_caches() {
    let dir = tempfile::tempdir().unwrap();
    let api = EmbeddedApi::open(&dir.path().join("state.redb"), Arc::new(AcceptAll)).unwrap();
    let router = api
        .router()
        .layer(from_fn(|request: Request, next: Next| async move {
            let query = request.uri().query().unwrap_or_default();
            let pools = request.uri().path().ends_with("/spiderippools");
            let watch = query.contains("watch=true");
            if request.method() == "GET" && pools && watch {
                return std::future::pending().await;
            }
            next.run(request).await
        }));
    let client = Client::new(router, "default");
    let store = KubeStore::start(client.clone(), "n1", Waits::new(PATIENCE))
        .await
        .unwrap();
    let holder = async |ip: &str| store.holder_of(ip.parse().unwrap()).await.unwrap();
    assert_eq!(holder("10.0.0.9").await, None);
    pools(&client)
        .create(&PostParams::default(), &pool("newer"))
        .await
        .unwrap();
    assert_eq!(holder("10.0.0.9").await.as_deref(), Some("newer"));
    assert_eq!(holder("10.0.0.30").await, None);
    let held = json!({"10.0.0.30": record("u-1")}).to_string();
    let patch = json!({"status": {"allocatedIPs": held}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
    let api = pools(&client);
    api.patch_status("newer", &params, &patch).await.unwrap();
    assert_eq!(holder("10.0.0.30").await.as_deref(), Some("newer"));
}

//! The Kubernetes store against the embedded API, through the same client code a cluster gets.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its helpers too"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use spiderpool_agent::nic::NicError;
use spiderpool_agent::parent_nic::{HostNics, ParentNicPublisher};
use spiderpool_agent::store::kube::{KubeStore, Waits};
use spiderpool_agent::store::{
    Freshness, ObjectKey, PodEvent, PoolObject, StandalonePod, Store, StoreError,
};
use spiderpool_api::allocation::{Record, Records};
use spiderpool_api::endpoint::{EndpointStatus, SpiderEndpoint};
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_api::names;
use spiderpool_api::value::{IfName, Mac};
use spiderpool_embedded_api::EmbeddedApi;
use spiderpool_embedded_api::admission::AcceptAll;

const PATIENCE: Duration = Duration::from_secs(20);

struct Bench {
    _dir: tempfile::TempDir,
    _api: EmbeddedApi,
    client: Client,
    store: Arc<KubeStore>,
}

fn open(dir: &Path) -> (EmbeddedApi, Client) {
    let api = EmbeddedApi::open(&dir.join("state.redb"), Arc::new(AcceptAll)).unwrap();
    let client = Client::new(api.router(), "default");
    (api, client)
}

async fn bench() -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let (api, client) = open(dir.path());
    pools(&client)
        .create(&PostParams::default(), &pool("p"))
        .await
        .unwrap();
    let store = KubeStore::start(client.clone(), "n1", Waits::new(PATIENCE))
        .await
        .unwrap();
    Bench {
        _dir: dir,
        _api: api,
        client,
        store: Arc::new(store),
    }
}

fn pools(client: &Client) -> Api<SpiderIPPool> {
    Api::all(client.clone())
}

fn pool(name: &str) -> SpiderIPPool {
    serde_json::from_value(json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
        "metadata": {"name": name}, "spec": {"subnet": "10.0.0.0/24", "ips": ["10.0.0.9-10.0.0.20"], "ipVersion": 4}}))
    .unwrap()
}

/// Waits until `look` gives something.
async fn wait_for<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let found = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::task::yield_now().await;
        }
    });
    found
        .await
        .unwrap_or_else(|_| panic!("{what} did not happen in {PATIENCE:?}"))
}

fn records(pool: &PoolObject) -> Records {
    pool.pool().unwrap().records.clone()
}

fn record(uid: &str) -> Record {
    serde_json::from_value(json!({"pod": "default/a", "podUid": uid, "nic": "eth0"})).unwrap()
}

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
async fn pods_of_bare_containers_keep_their_uid_and_make_room() {
    let bench = bench().await;
    let first = StandalonePod::of("aaaabbbbccccdddd-1", "n1");
    let made = bench.store.ensure_pod(&first).await.unwrap();
    assert_eq!(made.uid(), first.uid);
    assert_eq!(
        bench.store.ensure_pod(&first).await.unwrap().uid(),
        first.uid
    );

    // Another container with the same first 12 characters takes the name over.
    let second = StandalonePod::of("aaaabbbbccccdddd-2", "n1");
    assert_eq!(second.key, first.key);
    assert_eq!(
        bench.store.ensure_pod(&second).await.unwrap().uid(),
        second.uid
    );

    // The late DEL of the first leaves the second alone.
    bench
        .store
        .delete_pod(&first.key, &first.uid)
        .await
        .unwrap();
    assert!(
        bench
            .store
            .pod(&second.key, Freshness::Fresh)
            .await
            .unwrap()
            .is_some()
    );
    bench
        .store
        .delete_pod(&second.key, &second.uid)
        .await
        .unwrap();
    bench
        .store
        .delete_pod(&second.key, &second.uid)
        .await
        .unwrap();
    assert!(
        bench
            .store
            .pod(&second.key, Freshness::Fresh)
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_the_cache_lacks_are_read_and_others_come_by_watch() {
    let bench = bench().await;
    let api: Api<Pod> = Api::namespaced(bench.client.clone(), "default");
    let pod = |name: &str, node: &str| -> Pod {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c"}]}})).unwrap()
    };
    api.create(&PostParams::default(), &pod("far", "n2"))
        .await
        .unwrap();
    let far = ObjectKey::new("default", "far");
    assert!(
        bench
            .store
            .pod(&far, Freshness::Cached)
            .await
            .unwrap()
            .is_some()
    );
    assert!(
        bench
            .store
            .pod(&ObjectKey::new("default", "none"), Freshness::Cached)
            .await
            .unwrap()
            .is_none()
    );

    let labels = json!({"metadata": {"labels": {"team": "red"}}});
    let namespaces: Api<Namespace> = Api::all(bench.client.clone());
    namespaces
        .patch("default", &PatchParams::default(), &Patch::Merge(&labels))
        .await
        .unwrap();
    wait_for("the namespace's label", || async {
        let labels = bench
            .store
            .caches("default")
            .await
            .unwrap()
            .namespace
            .labels;
        (labels.get("team").map(String::as_str) == Some("red")).then_some(())
    })
    .await;
}

fn endpoint(uid: &str) -> SpiderEndpoint {
    let mut status = EndpointStatus {
        owner_controller_type: "Pod".into(),
        owner_controller_name: "a".into(),
        ..EndpointStatus::default()
    };
    status.current.uid = uid.into();
    status.current.node = "n1".into();
    let metadata = json!({"name": "a", "namespace": "default", "finalizers": [names::FINALIZER], "labels": {names::LABEL_NODE: "n1"}});
    SpiderEndpoint::new(serde_json::from_value(metadata).unwrap(), status)
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_are_created_replaced_and_removed_by_identity() {
    let bench = bench().await;
    let key = ObjectKey::new("default", "a");
    let created = bench.store.put_endpoint(endpoint("u-1")).await.unwrap();
    assert!(
        bench
            .store
            .endpoint(&key, Freshness::Cached)
            .await
            .unwrap()
            .is_some()
    );
    assert!(matches!(
        bench.store.put_endpoint(endpoint("u-1")).await,
        Err(StoreError::Conflict(_))
    ));

    let mut changed = created.clone();
    changed.status.current.uid = "u-2".into();
    let replaced = bench.store.put_endpoint(changed.clone()).await.unwrap();
    assert_ne!(replaced.resource_version(), created.resource_version());
    assert!(matches!(
        bench.store.put_endpoint(changed).await,
        Err(StoreError::Conflict(_))
    ));

    bench.store.delete_endpoint(&replaced).await.unwrap();
    assert!(
        bench
            .store
            .endpoint(&key, Freshness::Fresh)
            .await
            .unwrap()
            .is_none()
    );
    // Of the next object of that name, a late removal of the first takes nothing.
    bench.store.put_endpoint(endpoint("u-3")).await.unwrap();
    bench.store.delete_endpoint(&replaced).await.unwrap();
    let kept = bench
        .store
        .endpoint(&key, Freshness::Fresh)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (
            kept.status.current.uid.as_str(),
            kept.metadata.deletion_timestamp
        ),
        ("u-3", None)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn warnings_reach_the_pod() {
    let bench = bench().await;
    let event = PodEvent {
        pod: ObjectKey::new("default", "a"),
        uid: "u-1".into(),
        reason: "SubENIValidationFailed",
        message: "no answer".into(),
    };
    bench.store.event(event).await;
    let events: Api<k8s_openapi::api::core::v1::Event> =
        Api::namespaced(bench.client.clone(), "default");
    let listed = events.list(&Default::default()).await.unwrap();
    let found = listed.items.first().unwrap();
    assert_eq!(found.reason.as_deref(), Some("SubENIValidationFailed"));
    assert_eq!(found.involved_object.uid.as_deref(), Some("u-1"));
}

struct OneNic;

impl HostNics for OneNic {
    fn mac<'a>(
        &'a self,
        name: &'a IfName,
    ) -> futures::future::BoxFuture<'a, Result<Option<Mac>, NicError>> {
        let mac = (name.as_str() == "eth1").then_some(Mac::new([2, 0, 0, 0, 0, 1]));
        Box::pin(async move { Ok(mac) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_parent_nic_of_a_prewarm_pool_is_published_once() {
    let bench = bench().await;
    let mut prewarm = pool("warm");
    prewarm.spec.node_name = Some(vec!["n1".into()]);
    prewarm
        .annotations_mut()
        .insert(names::IAAS_PROVIDER.into(), "x".into());
    prewarm
        .annotations_mut()
        .insert(names::PARENT_NIC.into(), "eth1".into());
    pools(&bench.client)
        .create(&PostParams::default(), &prewarm)
        .await
        .unwrap();
    wait_for("the pool", || async {
        bench.store.pool("warm", Freshness::Cached).await.unwrap()
    })
    .await;

    let mut publisher = ParentNicPublisher::new(Arc::clone(&bench.store), Arc::new(OneNic), "n1");
    publisher.publish_all().await;
    let read = || async {
        bench
            .store
            .pool("warm", Freshness::Fresh)
            .await
            .unwrap()
            .unwrap()
    };
    let written = read().await;
    let want: Value = json!({"name": "eth1", "mac": "02:00:00:00:00:01"});
    assert_eq!(written.raw()["status"]["parentNic"], want);
    publisher.publish_all().await;
    assert_eq!(read().await.resource_version(), written.resource_version());
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

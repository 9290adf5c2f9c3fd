//! Objects that are not of their type, as under another release's schema: the watch goes on beside them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use http_body_util::BodyExt;
use kube::api::{ApiResource, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::{Api, Client};
use serde_json::{Value, json};
use spiderpool_agent::store::kube::{KubeStore, Waits};
use spiderpool_agent::store::{Freshness, ObjectKey, Reservation, Store};
use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_api::names;
use spiderpool_api::reserved_ip::SpiderReservedIP;
use spiderpool_embedded_api::EmbeddedApi;

use crate::rig::{PATIENCE, open, pool, pools, wait_for};

/// What is stored, and what the agent is shown for it: another release's shape, which this API would
/// not store.
const ODD: [(&str, &str); 4] = [
    (r#""10.9.9.9""#, r#"{"first":"10.9.9.9"}"#),
    (r#"["10.9.9.8"]"#, "7"),
    (r#""interface":"odd""#, r#""interface":7"#),
    (r#""subnet":"10.0.9.0/24""#, r#""subnet":9"#),
];

struct Bench {
    _dir: tempfile::TempDir,
    _api: EmbeddedApi,
    /// Stores what is odd.
    client: Client,
    store: KubeStore,
    /// How often a single pool was asked for.
    reads: Arc<AtomicUsize>,
}

/// A store that is shown odd things.
async fn bench(stored: &[(&str, Value)]) -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let (api, client) = open(dir.path());
    for (name, spec) in stored {
        reserve(&client, name, spec).await;
    }
    let reads = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reads);
    let router = api
        .router()
        .layer(from_fn(move |request: Request, next: Next| {
            let of_pool = request.uri().path().contains("/spiderippools/");
            count.fetch_add(usize::from(of_pool), Ordering::SeqCst);
            async move {
                let shown = next
                    .run(request)
                    .await
                    .map(|body| body.map_frame(|frame| frame.map_data(|data| odd(&data))));
                shown.map(Body::new)
            }
        }));
    let store = KubeStore::start(Client::new(router, "default"), "n1", Waits::new(PATIENCE));
    Bench {
        store: store.await.unwrap(),
        _dir: dir,
        _api: api,
        client,
        reads,
    }
}

fn odd(data: &[u8]) -> Bytes {
    let mut text = String::from_utf8(data.to_vec()).unwrap();
    for (stored, shown) in ODD {
        text = text.replace(stored, shown);
    }
    text.into()
}

fn reservations(client: &Client) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<SpiderReservedIP>(&());
    Api::all_with(client.clone(), &resource)
}

async fn reserve(client: &Client, name: &str, spec: &Value) {
    let object = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderReservedIP",
        "metadata": {"name": name}, "spec": spec});
    let object = serde_json::from_value(object).unwrap();
    let params = PostParams::default();
    reservations(client).create(&params, &object).await.unwrap();
}

async fn reservation(store: &KubeStore, name: &str) -> Option<Arc<Reservation>> {
    let caches = store.caches("default").await.unwrap();
    caches.reserved.into_iter().find(|one| one.name == name)
}

fn has(reservation: &Reservation, ip: &str) -> bool {
    reservation.addresses.contains(ip.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_that_cannot_be_read_opens_nothing_and_stops_nothing() {
    let bench = bench(&[]).await;
    let (client, store) = (&bench.client, &bench.store);
    reserve(client, "r1", &json!({"ips": ["10.0.0.9"]})).await;
    wait_for("the reservation", || reservation(store, "r1")).await;
    let shape = json!({"spec": {"ips": ["10.9.9.9", "10.0.0.11"]}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(&shape));
    let api = reservations(client);
    api.patch("r1", &params, &patch).await.unwrap();
    let kept = wait_for("the other shape", || async {
        let read = reservation(store, "r1").await?;
        read.complaint.is_some().then_some(read)
    })
    .await;
    assert!(has(&kept, "10.0.0.9") && has(&kept, "10.0.0.11"));
    assert_eq!(kept.unknown, None);
    // One that has never been read, and one behind it.
    reserve(client, "r2", &json!({"ipVersion": 4, "ips": ["10.9.9.8"]})).await;
    reserve(client, "r3", &json!({"ips": ["10.0.0.13"]})).await;
    let behind = wait_for("the one behind", || reservation(store, "r3")).await;
    assert!(has(&behind, "10.0.0.13"));
    let broken = reservation(store, "r2").await.unwrap();
    assert!(broken.unknown.is_some());
    let complaint = broken.complaint.clone().unwrap();
    assert!(
        complaint.contains("SpiderReservedIP r2 cannot be read: spec.ips"),
        "{complaint}"
    );
    api.delete("r2", &DeleteParams::default()).await.unwrap();
    wait_for("its end", || async {
        reservation(store, "r2").await.is_none().then_some(())
    })
    .await;
    // Corrected, it says what it says.
    let good = json!({"spec": {"ips": ["10.0.0.14"]}});
    api.patch("r1", &params, &Patch::Merge(&good))
        .await
        .unwrap();
    let good = wait_for("the corrected one", || async {
        let read = reservation(store, "r1").await?;
        read.complaint.is_none().then_some(read)
    })
    .await;
    assert!(has(&good, "10.0.0.14") && !has(&good, "10.0.0.9"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_at_start_does_not_keep_the_store_from_starting() {
    let bench = bench(&[("r1", json!({"ips": ["10.9.9.8"]}))]).await;
    let read = reservation(&bench.store, "r1").await.unwrap();
    assert!(read.unknown.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_cannot_be_read_is_an_error_for_its_pod_alone() {
    let bench = bench(&[]).await;
    let resource = ApiResource::erase::<SpiderEndpoint>(&());
    let endpoints: Api<DynamicObject> =
        Api::namespaced_with(bench.client.clone(), "default", &resource);
    for (name, ips) in [
        ("broken", json!([{"interface": "odd"}])),
        ("good", json!([])),
    ] {
        let object = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderEndpoint",
            "metadata": {"name": name, "namespace": "default", "labels": {names::LABEL_NODE: "n1"}},
            "status": {"ownerControllerType": "Pod", "ownerControllerName": name,
                "current": {"uid": "u-1", "node": "n1", "ips": ips}}});
        let object = serde_json::from_value(object).unwrap();
        let params = PostParams::default();
        endpoints.create(&params, &object).await.unwrap();
    }
    let (good, broken) = (
        ObjectKey::new("default", "good"),
        ObjectKey::new("default", "broken"),
    );
    let cached = Freshness::Cached;
    wait_for("the one behind", || async {
        bench.store.endpoint(&good, cached).await.unwrap()
    })
    .await;
    for freshness in [cached, Freshness::Fresh] {
        let error = bench.store.endpoint(&broken, freshness).await.unwrap_err();
        assert!(
            error.to_string().contains("SpiderEndpoint default/broken"),
            "{error}"
        );
    }
}

/// One line of the log and one request for each, not for each call.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_cannot_be_understood_is_asked_for_once_per_version() {
    let bench = bench(&[]).await;
    let (api, params) = (pools(&bench.client), PostParams::default());
    let mut odd = pool("odd");
    odd.spec.subnet = "10.0.9.0/24".into();
    odd.spec.ips = Some(vec!["10.0.9.9".into()]);
    api.create(&params, &odd).await.unwrap();
    api.create(&params, &pool("behind")).await.unwrap();
    let named = async || {
        let pools = bench.store.caches("default").await.unwrap().pools;
        let names: Vec<String> = pools.iter().map(|pool| pool.name().to_owned()).collect();
        names
    };
    wait_for("the one behind", async || {
        (named().await == ["behind"]).then_some(())
    })
    .await;
    let reads = || bench.reads.load(Ordering::SeqCst);
    let before = reads();
    for _ in 0..10 {
        assert_eq!(named().await, ["behind"]);
    }
    assert_eq!(reads(), before);
    let change = async |patch: Value| {
        let params = PatchParams::default();
        api.patch("odd", &params, &Patch::Merge(&patch))
            .await
            .unwrap();
    };
    // Another version, and no better: asked for once more.
    change(json!({"metadata": {"labels": {"a": "b"}}})).await;
    wait_for("the look at the change", async || {
        (reads() > before).then_some(())
    })
    .await;
    assert_eq!(named().await, ["behind"]);
    assert_eq!(reads(), before + 1);
    change(json!({"spec": {"subnet": "10.0.0.0/24", "ips": ["10.0.0.30"]}})).await;
    wait_for("the corrected pool", async || {
        (named().await.len() == 2).then_some(())
    })
    .await;
}

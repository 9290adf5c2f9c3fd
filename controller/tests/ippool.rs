//! The pool reconciler against the embedded API.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its helpers too"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_controller::events::Events;
use spiderpool_controller::reconcile::ippool;
use spiderpool_embedded_api::admission::AcceptAll;
use spiderpool_embedded_api::{EmbeddedApi, IpamAdmission};
use spiderpool_ipam::admission::Settings;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const RESYNC: Duration = Duration::from_secs(300);

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
            tokio::time::sleep(LOOK_AGAIN).await;
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
    let task = tokio::spawn(ippool::run(client.clone(), events, RESYNC, stop.clone()));
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

/// Everything of a test on an API that judges nothing, as when two replicas judge at once.
struct Bench {
    pools: Api<SpiderIPPool>,
    client: Client,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    _api: EmbeddedApi,
    _dir: tempfile::TempDir,
}

fn bench() -> Bench {
    bench_through(|_| Fate::Served)
}

/// What becomes of a request of the reconciler's.
enum Fate {
    Served,
    Refused,
}

/// The reconciler's requests pass `judge` first: method and path in one.
fn bench_through(judge: impl Fn(&str) -> Fate + Send + Sync + 'static) -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let api = EmbeddedApi::open(&dir.path().join("state.redb"), Arc::new(AcceptAll)).unwrap();
    let client = Client::new(api.router(), "default");
    let (direct, judge) = (client.clone(), Arc::new(judge));
    let judged = tower::service_fn(move |request: http::Request<Body>| {
        let (direct, judge) = (direct.clone(), Arc::clone(&judge));
        async move {
            let asked = format!("{} {}", request.method(), request.uri().path());
            match judge(&asked) {
                Fate::Served => direct.send(request).await,
                Fate::Refused => {
                    let refused = http::Response::builder().status(403);
                    Ok(refused.body(Body::empty()).unwrap())
                }
            }
        }
    });
    let judged = Client::new(judged, "default");
    let stop = CancellationToken::new();
    let events = Events::new(client.clone(), "c-0");
    let task = tokio::spawn(ippool::run(judged, events, RESYNC, stop.clone()));
    Bench {
        pools: Api::all(client.clone()),
        client,
        stop,
        task,
        _api: api,
        _dir: dir,
    }
}

async fn make(bench: &Bench, name: &str, ips: &str) {
    let object = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
        "metadata": {"name": name, "finalizers": ["spiderpool.spidernet.io"]},
        "spec": {"subnet": "10.36.0.0/24", "ips": [ips]}});
    let object = serde_json::from_value(object).unwrap();
    let params = PostParams::default();
    bench.pools.create(&params, &object).await.unwrap();
}

/// Case B09 behind admission, on the API of a lone node.
#[tokio::test(flavor = "multi_thread")]
async fn b09_the_owner_of_a_pool_that_gives_out_nothing_is_told() {
    let bench = bench();
    make(&bench, "p", "10.36.0.10-10.36.0.29").await;
    make(&bench, "q", "10.36.0.20-10.36.0.39").await;
    let events: Api<Event> = Api::namespaced(bench.client.clone(), "default");
    let told = tokio::time::timeout(PATIENCE, async {
        loop {
            let listed = events.list(&ListParams::default()).await.unwrap().items;
            if let Some(event) = listed.into_iter().next() {
                return event;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    });
    let told = told.await.expect("an event");
    let about = told.involved_object;
    assert_eq!(
        about.name.as_deref(),
        Some("q"),
        "made later, or of the greater name"
    );
    assert_eq!(about.kind.as_deref(), Some("SpiderIPPool"));
    let text = told.message.unwrap();
    assert!(text.contains("IPPool p in 10.36.0.20-10.36.0.29"), "{text}");
    bench.stop.cancel();
    bench.task.await.unwrap();
}

/// Records that were written as `{}` or as nothing at all are none (spec api 8.9).
#[tokio::test(flavor = "multi_thread")]
async fn a_dying_pool_with_empty_records_goes() {
    let bench = bench();
    for none in ["{}", ""] {
        make(&bench, "p", "10.36.0.10").await;
        let held = r#"{"10.36.0.10":{"pod":"a/b","podUid":"u"}}"#;
        set_status(&bench.pools, json!({"allocatedIPs": held})).await;
        bench
            .pools
            .delete("p", &DeleteParams::default())
            .await
            .unwrap();
        set_status(&bench.pools, json!({"allocatedIPs": none})).await;
        wait_for(&bench.pools, "the end", |pool| pool.is_none()).await;
    }
    bench.stop.cancel();
    bench.task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_cannot_be_written_holds_up_no_other() {
    let bench = bench_through(|asked| match asked.contains("/spiderippools/bad/status") {
        true => Fate::Refused,
        false => Fate::Served,
    });
    make(&bench, "bad", "10.36.0.10").await;
    make(&bench, "p", "10.36.0.20-10.36.0.29").await;
    let counted = |pool: Option<&SpiderIPPool>| {
        let status = pool.and_then(|pool| pool.status.as_ref());
        status.and_then(|status| status.total_ip_count) == Some(10)
    };
    wait_for(&bench.pools, "the count of the other", counted).await;
    let bad = bench.pools.get("bad").await.unwrap();
    assert!(
        bad.status
            .is_none_or(|status| status.total_ip_count.is_none())
    );
    bench.stop.cancel();
    bench.task.await.unwrap();
}

/// A full pool is large, and every ADD writes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_read_for_its_specification_not_for_its_records() {
    let reads = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&reads);
    let bench = bench_through(move |asked| {
        let read = asked.starts_with("GET ") && asked.ends_with("/spiderippools/p");
        counter.fetch_add(usize::from(read), Ordering::Relaxed);
        Fate::Served
    });
    make(&bench, "p", "10.36.0.10-10.36.0.29").await;
    let total = |wanted| {
        move |pool: Option<&SpiderIPPool>| {
            let status = pool.and_then(|pool| pool.status.as_ref());
            status.and_then(|status| status.total_ip_count) == Some(wanted)
        }
    };
    wait_for(&bench.pools, "the count", total(20)).await;
    let before = reads.load(Ordering::Relaxed);
    for host in 10..30 {
        let record = format!(r#"{{"10.36.0.{host}":{{"pod":"a/b","podUid":"u"}}}}"#);
        set_status(&bench.pools, json!({"allocatedIPs": record})).await;
    }
    // The next change of the specification comes after all of them in the watch.
    let grown = Patch::Merge(json!({"spec": {"ips": ["10.36.0.10-10.36.0.39"]}}));
    let params = PatchParams::default();
    bench.pools.patch("p", &params, &grown).await.unwrap();
    wait_for(&bench.pools, "the new count", total(30)).await;
    assert_eq!(reads.load(Ordering::Relaxed) - before, 1);
    bench.stop.cancel();
    bench.task.await.unwrap();
}

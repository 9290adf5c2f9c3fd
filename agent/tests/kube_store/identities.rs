//! What stands behind identities: a StatefulSet, a machine and its Pods. The embedded API has none of
//! these kinds; routes before it play a cluster that has.

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use spiderpool_agent::store::kube::{KubeStore, Waits};
use spiderpool_agent::store::{ObjectKey, Store, StoreError};
use spiderpool_embedded_api::EmbeddedApi;
use spiderpool_ipam::sticky::{MachineFacts, StatefulSetFacts, VmiFacts};

use crate::rig::{PATIENCE, open};

struct Cluster {
    _dir: tempfile::TempDir,
    _api: EmbeddedApi,
    client: Client,
    store: KubeStore,
}

async fn cluster(kinds: Router) -> Cluster {
    let dir = tempfile::tempdir().unwrap();
    let (api, _) = open(dir.path());
    let client = Client::new(kinds.fallback_service(api.router()), "default");
    let waits = Waits::new(PATIENCE);
    let store = KubeStore::start(client.clone(), "n1", waits).await.unwrap();
    Cluster {
        _dir: dir,
        _api: api,
        client,
        store,
    }
}

fn db(name: &str) -> ObjectKey {
    ObjectKey::new("db", name)
}

/// As an API server that has the kind, and no object of the name.
fn not_found() -> Response {
    let status = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "code": 404, "reason": "NotFound", "message": "not found"});
    (StatusCode::NOT_FOUND, status.to_string()).into_response()
}

fn objects(
    list: Vec<(&'static str, Value)>,
) -> impl Fn(Path<String>) -> std::future::Ready<Response> + Clone {
    let list: Arc<[(&'static str, Value)]> = list.into();
    move |Path(name)| {
        let found = list.iter().find(|(known, _)| *known == name);
        std::future::ready(
            found.map_or_else(not_found, |(_, object)| object.to_string().into_response()),
        )
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_says_which_ordinals_it_wants() {
    let set = |spec: Value| {
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"namespace": "db", "name": "x"}, "spec": spec})
    };
    let sets = objects(vec![
        ("plain", set(json!({"replicas": 3, "selector": {}}))),
        (
            "late",
            set(json!({"replicas": 2, "ordinals": {"start": 5}, "selector": {}})),
        ),
    ]);
    let path = "/apis/apps/v1/namespaces/db/statefulsets/{name}";
    let broken = "/apis/apps/v1/namespaces/ill/statefulsets/{name}";
    let down = get(|| async { (StatusCode::SERVICE_UNAVAILABLE, "etcd is away") });
    let cluster = cluster(Router::new().route(path, get(sets)).route(broken, down)).await;
    let read = async |key: ObjectKey| cluster.store.stateful_set(&key).await;
    for (name, want) in [
        ("plain", Some((Some(3), None))),
        ("late", Some((Some(2), Some(5)))),
        ("none", None),
    ] {
        let want = want.map(|(replicas, start)| StatefulSetFacts { replicas, start });
        assert_eq!(read(db(name)).await.unwrap(), want, "{name}");
    }
    // Without an answer nothing is known of it.
    let error = read(ObjectKey::new("ill", "db")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_told_by_its_instance_and_its_user_object() {
    let meta = |meta: Value| json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": meta});
    let owner = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "a",
        "uid": "u", "controller": true}]);
    let ends = "2027-01-05T10:00:00Z";
    let instances = objects(vec![
        (
            "run",
            meta(json!({"name": "run", "ownerReferences": owner})),
        ),
        (
            "bare",
            meta(json!({"name": "bare", "deletionTimestamp": ends})),
        ),
    ]);
    let machines = objects(vec![
        ("run", meta(json!({"name": "run"}))),
        ("stopped", meta(json!({"name": "stopped"}))),
        (
            "going",
            meta(json!({"name": "going", "deletionTimestamp": ends})),
        ),
    ]);
    let path = |plural: &str| format!("/apis/kubevirt.io/v1/namespaces/db/{plural}/{{name}}");
    let kinds = Router::new()
        .route(&path("virtualmachineinstances"), get(instances))
        .route(&path("virtualmachines"), get(machines));
    let cluster = cluster(kinds).await;
    let vmi = |terminating, of_vm| Some(VmiFacts { terminating, of_vm });
    for (name, vmi, vm_terminating) in [
        ("run", vmi(false, true), Some(false)),
        ("bare", vmi(true, false), None),
        ("stopped", None, Some(false)),
        ("going", None, Some(true)),
        ("none", None, None),
    ] {
        let want = MachineFacts {
            vmi,
            vm_terminating,
        };
        assert_eq!(
            cluster.store.machine(&db(name)).await.unwrap(),
            want,
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_kubevirt_there_is_no_machine_and_with_it_two_pods_may_be_one() {
    // As an API server answers that has not the kind; and as somebody between here and one that has.
    let of = |namespace: &str| format!("/apis/kubevirt.io/v1/namespaces/{namespace}/{{*rest}}");
    let page = |text: &'static str| get(move || async move { (StatusCode::NOT_FOUND, text) });
    let kinds = Router::new()
        .route(&of("db"), page("404 page not found\n"))
        .route(&of("shop"), page("<h1>404 Not Found</h1>"));
    let cluster = cluster(kinds).await;
    let none = cluster.store.machine(&db("vm")).await.unwrap();
    assert_eq!(none, MachineFacts::default());
    let unknown = cluster.store.machine(&ObjectKey::new("shop", "vm")).await;
    let error = unknown.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "default");
    for (name, label, kind, owner) in [
        ("source", "virt-launcher", "VirtualMachineInstance", "vm"),
        ("target", "virt-launcher", "VirtualMachineInstance", "vm"),
        ("other", "virt-launcher", "VirtualMachineInstance", "vm2"),
        ("web", "virt-api", "VirtualMachineInstance", "vm"),
        ("set", "virt-launcher", "StatefulSet", "vm"),
    ] {
        let pod = json!({"metadata": {"name": name, "labels": {"kubevirt.io": label},
                "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": kind, "name": owner,
                    "uid": "u", "controller": true}]},
            "spec": {"containers": [{"name": "c"}]}});
        let pod = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    let key = ObjectKey::new("default", "vm");
    let found = cluster.store.machine_pods(&key).await.unwrap();
    let mut names: Vec<_> = found.iter().map(|pod| pod.facts.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["source", "target"]);
}

//! SpiderMultusConfigs and SpiderCoordinators on the API of a lone node.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its helpers too"
)]

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use spiderpool_api::attachment_definition::NetworkAttachmentDefinition;
use spiderpool_api::coordinator::SpiderCoordinator;
use spiderpool_api::multus_config::SpiderMultusConfig;
use spiderpool_controller::config::Settings;
use spiderpool_controller::reconcile::{coordinator, multus_config};
use spiderpool_controller::tasks::{Context, Ends, Group, Tasks};
use spiderpool_embedded_api::EmbeddedApi;
use spiderpool_embedded_api::admission::AcceptAll;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

struct Bench {
    client: Client,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    _api: EmbeddedApi,
    dir: tempfile::TempDir,
}

/// Both reconcilers, with their switches as given.
fn bench(enabled: bool) -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let api = EmbeddedApi::open(&dir.path().join("state.redb"), Arc::new(AcceptAll)).unwrap();
    let client = Client::new(api.router(), "default");
    let mut settings = Settings::new("c-0", "spiderpool");
    settings.env.coordinator.enabled = enabled;
    settings.env.coordinator.resync = Duration::from_millis(100);
    settings.env.multus_config.enabled = enabled;
    settings.env.cni_config_dir = dir.path().join("cni");
    let context = Context::new(client.clone(), settings);
    let stop = CancellationToken::new();
    let ends = Ends {
        stop: stop.clone(),
        lost: CancellationToken::new(),
    };
    let task = tokio::spawn(async move {
        let tasks = Tasks::new()
            .on_leader("multus-config", multus_config::run)
            .on_leader("coordinator", coordinator::run);
        tasks.run(Group::Leader, &context, &ends).await.unwrap();
    });
    Bench {
        client,
        stop,
        task,
        _api: api,
        dir,
    }
}

impl Bench {
    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn merge<K>(api: &Api<K>, name: &str, patch: Value)
where
    K: Clone + Debug + DeserializeOwned,
{
    let params = PatchParams::default();
    api.patch(name, &params, &Patch::Merge(patch))
        .await
        .unwrap();
}

/// Waits until the object looks as wanted; `None` is one that is gone.
async fn wait_for<K>(api: &Api<K>, name: &str, what: &str, wanted: impl Fn(Option<&K>) -> bool)
where
    K: Clone + Debug + DeserializeOwned,
{
    let seen = tokio::time::timeout(PATIENCE, async {
        while !wanted(api.get_opt(name).await.unwrap().as_ref()) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    });
    if seen.await.is_err() {
        let last = api.get_opt(name).await.unwrap();
        panic!("{what} did not happen in {PATIENCE:?}: {last:?}");
    }
}

fn coordinator(kind: &str) -> Value {
    json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderCoordinator",
        "metadata": {"name": "default", "finalizers": ["spiderpool.spidernet.io"]},
        "spec": {"podCIDRType": kind}})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attachment_follows_its_configuration() {
    let bench = bench(true);
    let configs: Api<SpiderMultusConfig> = Api::namespaced(bench.client.clone(), "default");
    let attachments: Api<NetworkAttachmentDefinition> =
        Api::namespaced(bench.client.clone(), "default");
    let object = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderMultusConfig",
        "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"cniType": "eni-vlan", "enivlan": {"master": ["eth1"]}, "enableCoordinator": false}});
    create(&configs, object).await;
    let with_master = |master: &'static str| {
        move |nad: Option<&NetworkAttachmentDefinition>| {
            let config = nad.and_then(|nad| nad.spec.config.as_deref());
            config.is_some_and(|config| config.contains(&format!("\"master\":{master:?}")))
        }
    };
    wait_for(&attachments, "edge", "the attachment", with_master("eth1")).await;
    merge(&attachments, "edge", json!({"spec": {"config": "{}"}})).await;
    wait_for(&attachments, "edge", "the repair", with_master("eth1")).await;
    merge(
        &configs,
        "edge",
        json!({"spec": {"enivlan": {"master": ["eth2"]}}}),
    )
    .await;
    wait_for(&attachments, "edge", "the change", with_master("eth2")).await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_gets_its_status_and_goes() {
    let bench = bench(true);
    let coordinators: Api<SpiderCoordinator> = Api::all(bench.client.clone());
    create(&coordinators, coordinator("auto")).await;
    let phase = |wanted: &'static str, pods: &'static [&'static str]| {
        move |object: Option<&SpiderCoordinator>| {
            let status = object.and_then(|object| object.status.as_ref());
            status.is_some_and(|status| status.phase == wanted && status.overlay_pod_cidr == pods)
        }
    };
    wait_for(
        &coordinators,
        "default",
        "the first look",
        phase("NotReady", &[]),
    )
    .await;
    let namespaces: Api<Namespace> = Api::all(bench.client.clone());
    let system =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}});
    if namespaces.get_opt("kube-system").await.unwrap().is_none() {
        create(&namespaces, system).await;
    }
    let pods: Api<Pod> = Api::namespaced(bench.client.clone(), "kube-system");
    let manager = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "kcm", "namespace": "kube-system", "labels": {"component": "kube-controller-manager"}},
        "spec": {"containers": [{"name": "kcm", "image": "kcm", "command": ["kcm", "--cluster-cidr=10.244.0.0/16"],
            "args": ["--service-cluster-ip-range=10.96.0.0/12"]}]}});
    create(&pods, manager).await;
    wait_for(&coordinators, "default", "no overlay", phase("Synced", &[])).await;
    let cni = bench.dir.path().join("cni");
    std::fs::create_dir(&cni).unwrap();
    std::fs::write(cni.join("10-f.conflist"), r#"{"name":"flannel"}"#).unwrap();
    wait_for(
        &coordinators,
        "default",
        "an overlay",
        phase("Synced", &["10.244.0.0/16"]),
    )
    .await;
    coordinators
        .delete("default", &DeleteParams::default())
        .await
        .unwrap();
    wait_for(&coordinators, "default", "the end", |object| {
        object.is_none()
    })
    .await;
    bench.end().await;
}

/// Admission gives every coordinator the finalizer, whoever is switched off.
#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_goes_where_its_reconciler_is_switched_off() {
    let bench = bench(false);
    let coordinators: Api<SpiderCoordinator> = Api::all(bench.client.clone());
    create(&coordinators, coordinator("none")).await;
    coordinators
        .delete("default", &DeleteParams::default())
        .await
        .unwrap();
    wait_for(&coordinators, "default", "the end", |object| {
        object.is_none()
    })
    .await;
    bench.end().await;
}

//! A node that is its whole cluster: what admission puts a finalizer on goes when it is deleted, also
//! where nothing else of it is switched on.
#![expect(
    clippy::unwrap_used,
    reason = "functions that tests share fail as tests do"
)]

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use spiderpool_api::coordinator::SpiderCoordinator;
use spiderpool_api::subnet::SpiderSubnet;
use spiderpool_controller::config::Settings;
use spiderpool_controller::run::run_alone;
use spiderpool_controller::tasks::Context;
use spiderpool_embedded_api::{EmbeddedApi, IpamAdmission};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

async fn comes_and_goes<K>(client: &Client, spec: Value)
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    K: Resource<Scope = kube::core::ClusterResourceScope>,
{
    let object = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": K::kind(&()),
        "metadata": {"name": "going"}, "spec": spec});
    let object: K = serde_json::from_value(object).unwrap();
    let all: Api<K> = Api::all(client.clone());
    let made = all.create(&PostParams::default(), &object).await.unwrap();
    assert_eq!(made.finalizers(), ["spiderpool.spidernet.io"]);
    all.delete("going", &DeleteParams::default()).await.unwrap();
    let gone = async {
        while all.get_opt("going").await.unwrap().is_some() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    timeout(PATIENCE, gone).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_goes() {
    let dir = tempfile::tempdir().unwrap();
    let admission = Arc::new(IpamAdmission::default());
    let api = EmbeddedApi::open(&dir.path().join("state.redb"), admission).unwrap();
    let client = Client::new(api.router(), "default");
    let stop = CancellationToken::new();
    let context = Context::new(client.clone(), Settings::new("n1", "default"));
    let running = tokio::spawn(run_alone(context, stop.clone()));
    comes_and_goes::<SpiderSubnet>(&client, json!({"subnet": "10.0.0.0/24"})).await;
    comes_and_goes::<SpiderCoordinator>(&client, json!({"podCIDRType": "none"})).await;
    stop.cancel();
    running.await.unwrap().unwrap();
    api.close().await;
}

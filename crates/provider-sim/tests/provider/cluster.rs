//! An API server that a provider follows and publishes to, and what agents do there.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::{Method, Request};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use provider_sim::publisher::{Publisher, pools};
use provider_sim::topology::Topology;
use serde_json::{Value, json};
use spiderpool_api::ip_meta::Metadata;
use spiderpool_embedded_api::{EmbeddedApi, IpamAdmission};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use crate::rig::{Rig, parent, rig_with, settings, topology};

/// A provider that follows an API server with the admission of a cluster.
pub(crate) struct Cluster {
    pub(crate) rig: Rig,
    pub(crate) pools: Api<DynamicObject>,
    wire: Arc<Wire>,
    _api: EmbeddedApi,
    _folder: TempDir,
}

/// The pools of an API server, for an agent or a person.
pub(crate) fn pools_of(api: &EmbeddedApi) -> Api<DynamicObject> {
    pools(Client::new(api.router(), "default"))
}

/// Creates a global pool for the provider.
pub(crate) async fn marked(api: &EmbeddedApi, name: &str) -> Api<DynamicObject> {
    let pools = pools_of(api);
    create(&pools, name, json!({}), global()).await;
    pools
}

fn global() -> Value {
    json!({ "subnet": "10.72.0.0/24", "ips": ["10.72.0.10-10.72.0.19"] })
}

async fn create(pools: &Api<DynamicObject>, name: &str, mut annotations: Value, spec: Value) {
    annotations["ipam.spidernet.io/iaas-provider"] = "sim".into();
    let object = json!({ "apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
        "metadata": { "name": name, "annotations": annotations }, "spec": spec });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    pools.create(&PostParams::default(), &object).await.unwrap();
}

/// Waits for a publication that holds, ten seconds at most; returns the pool's status.
pub(crate) async fn until(
    pools: &Api<DynamicObject>,
    pool: &str,
    what: &str,
    holds: impl Fn(&Value, &Metadata) -> bool,
) -> Value {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let object = pools.get(pool).await.unwrap();
        let published = &object.data["status"]["ipMetaData"];
        let text = published["metadata"].as_str();
        let read = text.map(|text| Metadata::decode(text).unwrap());
        if let Some(read) = read
            && read.bad.is_empty()
            && holds(published, &read)
        {
            return object.data["status"].clone();
        }
        assert!(Instant::now() < deadline, "never: {what}; last {published}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// What happens on the provider's way to the API server: nothing, until an [`Intruder`] is there.
#[derive(Default)]
struct Wire {
    /// Claims this once, right before the next write of the provider.
    claim: Mutex<Option<(String, String)>>,
    /// Statuses of the provider's writes from then on.
    answers: Mutex<Vec<u16>>,
}

/// An agent that always comes first.
pub(crate) struct Intruder(Arc<Wire>);

impl Intruder {
    pub(crate) fn new(cluster: &Cluster, ip: &str, uid: &str) -> Self {
        let wire = Arc::clone(&cluster.wire);
        wire.answers.lock().unwrap().clear();
        *wire.claim.lock().unwrap() = Some((ip.to_owned(), uid.to_owned()));
        Self(wire)
    }

    /// Statuses of the provider's writes since.
    pub(crate) fn answers(&self) -> Vec<u16> {
        self.0.answers.lock().unwrap().clone()
    }
}

/// A client whose writes of pool `g` the wire sees.
fn watched(router: Router, wire: &Arc<Wire>) -> Client {
    let wire = Arc::clone(wire);
    let agent = pools(Client::new(router.clone(), "default"));
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (router, wire, agent) = (router.clone(), Arc::clone(&wire), agent.clone());
        async move {
            let writes = request.method() == Method::PATCH;
            let claim = wire.claim.lock().unwrap().take_if(|_| writes);
            if let Some((ip, uid)) = claim {
                try_claim(&agent, "g", &ip, &uid).await.unwrap();
            }
            let response = router.oneshot(request.map(axum::body::Body::new)).await;
            if let (true, Ok(response)) = (writes, &response) {
                wire.answers
                    .lock()
                    .unwrap()
                    .push(response.status().as_u16());
            }
            response
        }
    });
    Client::new(service, "default")
}

/// A claim as an agent makes it: the status as read, conditionally.
async fn try_claim(
    pools: &Api<DynamicObject>,
    pool: &str,
    ip: &str,
    uid: &str,
) -> Result<(), kube::Error> {
    let mut object = pools.get(pool).await?;
    let status = &mut object.data["status"];
    let claims = status["allocatedIPs"].as_str().unwrap_or("{}");
    let mut claims: Value = serde_json::from_str(claims).unwrap();
    claims[ip] = json!({ "pod": "shop/web", "podUid": uid });
    status["allocatedIPs"] = claims.to_string().into();
    let params = PostParams::default();
    pools.replace_status(pool, &params, &object).await.map(drop)
}

pub(crate) async fn cluster() -> Cluster {
    let folder = tempfile::tempdir().unwrap();
    let admission = Arc::new(IpamAdmission::default());
    let api = EmbeddedApi::open(&folder.path().join("state.redb"), admission).unwrap();
    let client = Client::new(api.router(), "default");
    let wire = Arc::default();
    let bare = Topology {
        pools: Vec::new(),
        ..topology()
    };
    let publisher = Some(Publisher::new(watched(api.router(), &wire)));
    let mut rig = rig_with(settings(), bare, publisher).await;
    let service = || Arc::clone(&rig.service);
    let (watching, publishing, prewarming) = (service(), service(), service());
    let followed = pools(client.clone());
    rig.run(async move { watching.watch_pools(followed).await });
    rig.run(async move { publishing.publish_forever().await });
    rig.run(async move { prewarming.prewarm_forever().await });
    Cluster {
        rig,
        wire,
        pools: pools(client),
        _api: api,
        _folder: folder,
    }
}

impl Cluster {
    pub(crate) async fn create(&self, name: &str, annotations: Value, spec: Value) {
        create(&self.pools, name, annotations, spec).await;
    }

    pub(crate) async fn global(&self) {
        create(&self.pools, "g", json!({}), global()).await;
    }

    pub(crate) async fn prewarm(&self) {
        let annotations = json!({ "ipam.spidernet.io/parent-nic": "eth1" });
        let spec = json!({ "subnet": "10.72.0.0/24", "ips": ["10.72.0.30-10.72.0.33"],
            "excludeIPs": ["10.72.0.31"], "nodeName": ["n1"] });
        self.create("w", annotations, spec).await;
    }

    /// The agent of n1 names its parent NIC.
    pub(crate) async fn name_parent(&self, pool: &str) {
        let patch = json!({ "status": { "parentNic": { "name": "eth1", "mac": parent("n1") } } });
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        self.pools
            .patch_status(pool, &params, &patch)
            .await
            .unwrap();
    }

    /// Waits for a publication that holds; returns the pool's status.
    pub(crate) async fn until(
        &self,
        pool: &str,
        what: &str,
        holds: impl Fn(&Value, &Metadata) -> bool,
    ) -> Value {
        until(&self.pools, pool, what, holds).await
    }

    /// A claim that is made again until nobody comes in between.
    pub(crate) async fn claim(&self, pool: &str, ip: &str, uid: &str) {
        while let Err(error) = self.try_claim(pool, ip, uid).await {
            let conflict = matches!(&error, kube::Error::Api(status) if status.code == 409);
            assert!(conflict, "{error}");
        }
    }

    /// A claim that may come too late.
    pub(crate) async fn try_claim(
        &self,
        pool: &str,
        ip: &str,
        uid: &str,
    ) -> Result<(), kube::Error> {
        try_claim(&self.pools, pool, ip, uid).await
    }

    pub(crate) async fn audit(&self) {
        self.rig.audit().await;
    }
}

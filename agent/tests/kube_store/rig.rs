//! A store over an embedded API with one pool.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use spiderpool_agent::store::PoolObject;
use spiderpool_agent::store::kube::{KubeStore, Waits};
use spiderpool_api::allocation::{Record, Records};
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_embedded_api::EmbeddedApi;
use spiderpool_embedded_api::admission::AcceptAll;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Bench {
    _dir: tempfile::TempDir,
    _api: EmbeddedApi,
    pub(crate) client: Client,
    pub(crate) store: Arc<KubeStore>,
}

pub(crate) fn open(dir: &Path) -> (EmbeddedApi, Client) {
    let api = EmbeddedApi::open(&dir.join("state.redb"), Arc::new(AcceptAll)).unwrap();
    let client = Client::new(api.router(), "default");
    (api, client)
}

pub(crate) async fn bench() -> Bench {
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

pub(crate) fn pools(client: &Client) -> Api<SpiderIPPool> {
    Api::all(client.clone())
}

pub(crate) fn pool(name: &str) -> SpiderIPPool {
    serde_json::from_value(json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
        "metadata": {"name": name}, "spec": {"subnet": "10.0.0.0/24", "ips": ["10.0.0.9-10.0.0.20"], "ipVersion": 4}}))
    .unwrap()
}

/// Waits until `look` gives something.
pub(crate) async fn wait_for<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
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

pub(crate) fn records(pool: &PoolObject) -> Records {
    pool.pool().unwrap().records.clone()
}

pub(crate) fn record(uid: &str) -> Record {
    serde_json::from_value(json!({"pod": "default/a", "podUid": uid, "nic": "eth0"})).unwrap()
}

//! A collector over the embedded API, with a way between them that a test bends: reads fail, watches
//! fall silent, StatefulSets exist that the embedded API does not know.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Api, Client};
use serde_json::{Value, json};
use spiderpool_api::allocation::Records;
use spiderpool_controller::clock::FakeClock;
use spiderpool_controller::config::Settings;
use spiderpool_controller::gc;
use spiderpool_controller::tasks::{Context, TaskError};
use spiderpool_embedded_api::{EmbeddedApi, IpamAdmission};
use spiderpool_iaas::fake::FakeProvider;
use spiderpool_ipam::admission;
use spiderpool_ipam::gc::Knobs;
use tokio_util::sync::CancellationToken;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks at whether a state is reached.
const POLL: Duration = Duration::from_millis(1);
pub(crate) const NODE: &str = "n1";

/// What the way does to requests whose path holds a text.
#[derive(Debug, Clone)]
pub(crate) enum Bend {
    /// Answers with this status and body.
    Answer(u16, Value),
    /// Answers with a page of somebody who is no API server.
    Page(u16),
    /// Watches stay silent.
    SilentWatch,
}

#[derive(Default)]
struct Way {
    bends: Mutex<BTreeMap<String, Bend>>,
    /// Paths of GETs, in order.
    gets: Mutex<Vec<String>>,
}

/// A UID as the embedded API keeps it, of a short word.
pub(crate) fn uid(word: &str) -> String {
    let hex: String = word.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("00000000-0000-4000-8000-{hex:0>12}")
}

pub(crate) struct Rig {
    _dir: tempfile::TempDir,
    api: EmbeddedApi,
    way: Arc<Way>,
    pub(crate) clock: Arc<FakeClock>,
    pub(crate) provider: Arc<FakeProvider>,
    pub(crate) context: Context,
    stop: CancellationToken,
    running: Option<tokio::task::JoinHandle<()>>,
}

impl Rig {
    /// A collector that is asked for scans only, with a provider.
    pub(crate) fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let rules = admission::Settings {
            protect_deletion: false,
            ..admission::Settings::default()
        };
        let admission = Arc::new(IpamAdmission::new(rules));
        let api = EmbeddedApi::open(&dir.path().join("state.redb"), admission).unwrap();
        let way = Arc::<Way>::default();
        let client = bent(Client::new(api.router(), "default"), Arc::clone(&way));
        let mut settings = Settings::new("c-0", "spiderpool");
        settings.env.gc = Knobs {
            request_gap: jiff::SignedDuration::ZERO,
            trace_gap: jiff::SignedDuration::ZERO,
            ..Knobs::default()
        };
        change(&mut settings);
        let clock = Arc::new(FakeClock::default());
        clock.set("2027-01-05T10:00:00Z".parse().unwrap());
        let provider = Arc::new(FakeProvider::default());
        let context = Context {
            clock: Arc::clone(&clock) as _,
            provider: Some(Arc::clone(&provider) as _),
            ..Context::new(client, settings)
        };
        Self {
            _dir: dir,
            api,
            way,
            clock,
            provider,
            context,
            stop: CancellationToken::new(),
            running: None,
        }
    }

    pub(crate) fn start(&mut self) {
        let (context, stop) = (self.context.clone(), self.stop.clone());
        self.running = Some(tokio::spawn(async move {
            gc::task(context, stop).await.unwrap()
        }));
    }

    /// Ends the collector and starts one that knows nothing.
    pub(crate) async fn restart(&mut self) {
        self.stop.cancel();
        if let Some(running) = self.running.take() {
            running.await.unwrap();
        }
        self.stop = CancellationToken::new();
        self.start();
    }

    pub(crate) fn bend(&self, path: &str, bend: Bend) {
        self.way.bends.lock().unwrap().insert(path.to_owned(), bend);
    }

    pub(crate) fn straighten(&self, path: &str) {
        self.way.bends.lock().unwrap().remove(path);
    }

    /// Two scans that end after now: the second has begun after it, and what it frees is freed.
    pub(crate) async fn scan(&self) {
        let ended = || self.gets("/apis/spiderpool.spidernet.io/v2beta1/spiderendpoints");
        let before = ended();
        self.until("three scans end", async || {
            self.context.scans.ask();
            ended() > before + 2
        })
        .await;
    }

    pub(crate) fn gets(&self, path: &str) -> usize {
        let gets = self.way.gets.lock().unwrap();
        gets.iter().filter(|get| get.as_str() == path).count()
    }

    /// Waits for a state.
    pub(crate) async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let reached = tokio::time::timeout(PATIENCE, async {
            while !holds().await {
                tokio::time::sleep(POLL).await;
            }
        });
        reached
            .await
            .unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"));
    }

    fn objects(&self, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version) = match kind {
            "Pod" | "Node" | "Namespace" => ("", "v1"),
            "Event" => ("events.k8s.io", "v1"),
            _ => ("spiderpool.spidernet.io", "v2beta1"),
        };
        let gvk = kube::core::GroupVersionKind::gvk(group, version, kind);
        let plural = format!("{}s", kind.to_lowercase());
        let resource = ApiResource::from_gvk_with_plural(&gvk, &plural);
        let client = Client::new(self.api.router(), "default");
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }

    /// Creates an object, and its namespace first.
    pub(crate) async fn create(&self, kind: &str, object: Value) {
        let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
        if let Some(namespace) = &namespace {
            let object =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            let made = self
                .objects("Namespace", None)
                .create(&PostParams::default(), &object)
                .await;
            drop(made);
        }
        let api = self.objects(kind, namespace.as_deref());
        let mut object = object;
        object["kind"] = json!(kind);
        object["apiVersion"] = json!(match kind {
            "Pod" | "Node" | "Namespace" => "v1",
            _ => "spiderpool.spidernet.io/v2beta1",
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    pub(crate) async fn pod(&self, key: &str, uid: &str, status: Value) {
        let (namespace, name) = key.split_once('/').unwrap();
        let pod = json!({"metadata": {"namespace": namespace, "name": name, "uid": uid},
            "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]}});
        self.pod_of(pod, status).await;
    }

    /// A Pod whose UID is a word.
    pub(crate) async fn pod_of(&self, mut pod: Value, status: Value) {
        let meta = &mut pod["metadata"];
        meta["uid"] = json!(uid(meta["uid"].as_str().unwrap()));
        meta["labels"]["spiderpool.spidernet.io/owned-by"] = json!("standalone");
        let key = format!(
            "{}/{}",
            meta["namespace"].as_str().unwrap(),
            meta["name"].as_str().unwrap()
        );
        self.create("Pod", pod).await;
        self.patch_status("Pod", &key, status).await;
    }

    pub(crate) async fn patch_status(&self, kind: &str, key: &str, status: Value) {
        let (namespace, name) = key
            .split_once('/')
            .map_or((None, key), |(ns, n)| (Some(ns), n));
        let patch = Patch::Merge(json!({"status": status}));
        let api = self.objects(kind, namespace);
        api.patch_status(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    pub(crate) async fn delete_pod(&self, key: &str) {
        let (namespace, name) = key.split_once('/').unwrap();
        let now = DeleteParams::default().grace_period(0);
        self.objects("Pod", Some(namespace))
            .delete(name, &now)
            .await
            .unwrap();
    }

    /// A plain pool with records `(address, pod, uid)`.
    pub(crate) async fn pool(
        &self,
        name: &str,
        annotations: Value,
        records: &[(&str, &str, &str)],
    ) {
        let v6 = records.iter().any(|(ip, _, _)| ip.contains(':'));
        let (subnet, ips) = match v6 {
            true => ("fd00:7::/64", "fd00:7::9-fd00:7::40"),
            false => ("10.7.0.0/24", "10.7.0.9-10.7.0.40"),
        };
        let mut pool = json!({"metadata": {"name": name, "annotations": annotations},
            "spec": {"subnet": subnet, "ips": [ips]}});
        if annotations["ipam.spidernet.io/parent-nic"].is_string() {
            pool["spec"]["nodeName"] = json!([NODE]);
        }
        self.create("SpiderIPPool", pool).await;
        self.record(name, records).await;
    }

    /// Writes records `(address, pod, uid)`, a UID perhaps with a mark `+by@at`.
    pub(crate) async fn record(&self, pool: &str, records: &[(&str, &str, &str)]) {
        let text = records.iter().map(|(ip, pod, word)| {
            let (word, mark) = word.split_once('+').unwrap_or((word, ""));
            let mut record = json!({"pod": pod, "podUid": uid(word), "nic": "eth0", "novel": 7});
            if let Some((by, at)) = mark.split_once('@') {
                record["releasing"] = json!({"by": by, "at": at});
            }
            ((*ip).to_owned(), record)
        });
        let text = Value::Object(text.collect()).to_string();
        let status = json!({"allocatedIPs": text, "allocatedIPCount": records.len()});
        self.patch_status("SpiderIPPool", pool, status).await;
    }

    pub(crate) async fn endpoint(
        &self,
        key: &str,
        word: &str,
        owner: (&str, &str),
        ips: &[(&str, &str)],
    ) {
        let nics: Vec<Value> = ips
            .iter()
            .map(|(pool, ip)| json!({"interface": "eth0", "ipv4": format!("{ip}/24"), "ipv4Pool": pool}))
            .collect();
        self.endpoint_of(key, word, owner, &json!({"node": NODE, "ips": nics}))
            .await;
    }

    /// An endpoint whose NIC is a sub-ENI.
    pub(crate) async fn sub_eni(
        &self,
        key: &str,
        word: &str,
        node: &str,
        (pool, ip): (&str, &str),
    ) {
        let nic = json!({"interface": "eth0", "ipv4": format!("{ip}/24"), "ipv4Pool": pool, "vlan": 301,
            "mac": "fa:16:3e:00:01:64"});
        let current = json!({"node": node, "ips": [nic]});
        self.endpoint_of(key, word, ("Pod", ""), &current).await;
    }

    async fn endpoint_of(&self, key: &str, word: &str, owner: (&str, &str), current: &Value) {
        let (namespace, name) = key.split_once('/').unwrap();
        let mut current = current.clone();
        current["uid"] = json!(uid(word));
        let endpoint = json!({"metadata": {"namespace": namespace, "name": name,
                "finalizers": ["spiderpool.spidernet.io"]},
            "status": {"current": current, "ownerControllerType": owner.0, "ownerControllerName": owner.1}});
        self.create("SpiderEndpoint", endpoint).await;
    }

    /// Deletes an endpoint; its finalizer holds it.
    pub(crate) async fn delete_endpoint(&self, key: &str) {
        let (namespace, name) = key.split_once('/').unwrap();
        self.objects("SpiderEndpoint", Some(namespace))
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    /// Notes of the events with this reason, by the name of what they are about.
    pub(crate) async fn events(&self, reason: &str) -> Vec<(String, String)> {
        let all = self.objects("Event", None);
        let listed = all.list(&kube::api::ListParams::default()).await.unwrap();
        let events = listed.items.into_iter().map(|event| event.data);
        let events = events.filter(|event| event["reason"] == reason);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events
            .map(|event| (text(&event["regarding"]["name"]), text(&event["note"])))
            .collect()
    }

    pub(crate) async fn has_endpoint(&self, key: &str) -> bool {
        let (namespace, name) = key.split_once('/').unwrap();
        self.objects("SpiderEndpoint", Some(namespace))
            .get_opt(name)
            .await
            .unwrap()
            .is_some()
    }

    pub(crate) async fn status(&self, pool: &str) -> Value {
        let object = self.objects("SpiderIPPool", None).get(pool).await.unwrap();
        object.data["status"].clone()
    }

    pub(crate) async fn records(&self, pool: &str) -> Records {
        let status = self.status(pool).await;
        Records::decode(status["allocatedIPs"].as_str()).unwrap()
    }

    /// Addresses with a record, in text order.
    pub(crate) async fn recorded(&self, pool: &str) -> Vec<String> {
        let records = self.records(pool).await;
        records
            .iter()
            .map(|(address, _)| address.to_string())
            .collect()
    }

    pub(crate) fn stateful_set(&self, key: &str, replicas: Option<u32>) {
        let (namespace, name) = key.split_once('/').unwrap();
        let path = format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}");
        let set = replicas.map(|replicas| {
            json!({"metadata": {"name": name, "namespace": namespace},
                "spec": {"replicas": replicas, "selector": {}, "serviceName": "s", "template": {}}})
        });
        self.bend(&path, object_or_none(set));
    }

    /// KubeVirt's objects behind a machine, of kinds that the embedded API does not know.
    pub(crate) fn machine(&self, key: &str, runs: bool, exists: bool) {
        let (namespace, name) = key.split_once('/').unwrap();
        for (plural, there) in [
            ("virtualmachineinstances", runs),
            ("virtualmachines", exists),
        ] {
            let path = format!("/apis/kubevirt.io/v1/namespaces/{namespace}/{plural}/{name}");
            let object = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {"name": name, "namespace": namespace, "ownerReferences": [
                    {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name, "uid": "m", "controller": true}]}});
            self.bend(&path, object_or_none(there.then_some(object)));
        }
    }
}

fn object_or_none(object: Option<Value>) -> Bend {
    let none = || json!({"kind": "Status", "code": 404, "reason": "NotFound", "status": "Failure", "message": "none"});
    match object {
        Some(object) => Bend::Answer(200, object),
        None => Bend::Answer(404, none()),
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn bent(inner: Client, way: Arc<Way>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, way) = (inner.clone(), Arc::clone(&way));
        async move {
            let path = request.uri().path().to_owned();
            let watches = request
                .uri()
                .query()
                .is_some_and(|query| query.contains("watch="));
            if request.method() == Method::GET && !watches {
                way.gets.lock().unwrap().push(path.clone());
            }
            let bend = way.bends.lock().unwrap().get(&path).cloned();
            let answer = |code: u16, body: Vec<u8>| {
                Response::builder()
                    .status(code)
                    .body(Body::from(body))
                    .map_err(TaskError::from)
            };
            match bend {
                Some(Bend::SilentWatch) if watches => std::future::pending().await,
                Some(Bend::Answer(code, body)) => answer(code, serde_json::to_vec(&body)?),
                Some(Bend::Page(code)) => answer(code, b"<html>not here</html>".to_vec()),
                _ => inner.send(request).await.map_err(TaskError::from),
            }
        }
    });
    Client::new(service, "default")
}

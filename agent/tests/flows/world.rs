//! A node to play on: agent, store and kernel in memory, and short ways to call and to look.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use spiderpool_agent::agent::{Agent, Seams, Settings};
use spiderpool_agent::clock::{FakeClock, Jitter};
use spiderpool_agent::flow::call::Limits;
use spiderpool_agent::flow::error::Failure;
use spiderpool_agent::observer::NoObserver;
use spiderpool_agent::paths::Paths;
use spiderpool_agent::store::memory::{MemoryStore, pool_json};
use spiderpool_agent::store::{ObjectKey, OwnerRef, PodEvent, PodObject};
use spiderpool_api::agent_v1::CniRequest;
use spiderpool_api::cni::CniResult;
use spiderpool_iaas::provider::Provider;
use spiderpool_ipam::sticky::StatefulSetFacts;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::fake_nic::FakeNic;

pub(crate) const NODE: &str = "n1";
pub(crate) const MASTER_MAC: &str = "fa:16:3e:30:00:01";

pub(crate) struct World {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) nic: Arc<FakeNic>,
    pub(crate) agent: Arc<Agent>,
    pub(crate) paths: Paths,
    settings: Settings,
    provider: Option<Arc<dyn Provider>>,
    _dir: tempfile::TempDir,
}

impl World {
    /// A node of a cluster with master eth1 and namespaces /ns/a to /ns/d.
    pub(crate) fn new() -> Self {
        Self::with(Settings::new(NODE))
    }

    pub(crate) fn standalone() -> Self {
        Self::with(Settings {
            standalone: true,
            ..Settings::new(NODE)
        })
    }

    /// A node of a cluster with a provider.
    pub(crate) fn with_provider(provider: Arc<dyn Provider>) -> Self {
        Self::build(Settings::new(NODE), Some(provider))
    }

    pub(crate) fn with(settings: Settings) -> Self {
        Self::build(settings, None)
    }

    fn build(settings: Settings, provider: Option<Arc<dyn Provider>>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path());
        paths.prepare().unwrap();
        let store = Arc::new(MemoryStore::new(NODE));
        let nic = Arc::new(FakeNic::default());
        nic.add_master("eth1", MASTER_MAC);
        for (index, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
            nic.add_netns(&format!("/ns/{name}"), 100 + index as u64);
        }
        let agent = agent_over(&store, &nic, &paths, settings.clone(), provider.clone());
        Self {
            store,
            nic,
            agent,
            paths,
            settings,
            provider,
            _dir: dir,
        }
    }

    /// The agent stops and another starts over what is left.
    pub(crate) fn restart(&mut self) {
        let (settings, provider) = (self.settings.clone(), self.provider.clone());
        self.agent = agent_over(&self.store, &self.nic, &self.paths, settings, provider);
    }

    pub(crate) fn pod(&self, key: &str, uid: &str) -> PodObject {
        self.annotated_pod(key, uid, &[])
    }

    pub(crate) fn annotated_pod(&self, key: &str, uid: &str, notes: &[(&str, &str)]) -> PodObject {
        let pod = pod_object(key, uid, notes);
        self.store.set_pod(pod.clone());
        pod
    }

    /// A Pod of a StatefulSet, named after it.
    pub(crate) fn member(&self, key: &str, uid: &str, notes: &[(&str, &str)]) -> PodObject {
        let name = key.rsplit_once('-').unwrap().0.rsplit('/').next().unwrap();
        let pod = owned(pod_object(key, uid, notes), "apps/v1", "StatefulSet", name);
        self.store.set_pod(pod.clone());
        pod
    }

    /// How many Pods the StatefulSet wants; `None`: it is gone.
    pub(crate) fn scale(&self, set: &str, replicas: Option<i64>) {
        let facts = replicas.map(|replicas| StatefulSetFacts {
            replicas: Some(replicas),
            start: None,
        });
        self.store.set_stateful_set(object_key(set), facts);
    }

    /// The Pod is asked to end.
    pub(crate) fn end(&self, mut pod: PodObject) {
        pod.facts.terminating = true;
        self.store.set_pod(pod);
    }

    pub(crate) fn plain_pool(&self, name: &str, subnet: &str, ips: &[&str]) {
        self.store.set_pool(pool_json(name, subnet, ips)).unwrap();
    }

    /// A prewarm pool of this node with gateway .1: (address, VLAN) entries, MACs by VLAN.
    pub(crate) fn prewarm_pool(&self, name: &str, subnet: &str, entries: &[(&str, i64)]) {
        self.marked_pool(name, subnet, entries, Some(NODE));
    }

    pub(crate) fn marked_pool(
        &self,
        name: &str,
        subnet: &str,
        entries: &[(&str, i64)],
        node: Option<&str>,
    ) {
        let ips: Vec<&str> = entries.iter().map(|(ip, _)| *ip).collect();
        let mut raw = pool_json(name, subnet, &ips);
        raw["metadata"]["annotations"] = json!({"ipam.spidernet.io/iaas-provider": "lab", "ipam.spidernet.io/parent-nic": "eth1"});
        let (network, _) = subnet.split_once("0/").unwrap();
        raw["spec"]["gateway"] = json!(format!("{network}1"));
        let mut map = json!({});
        for (ip, vlan) in entries {
            map[ip] = json!({"mac": mac_of(*vlan), "vlan": vlan});
            if node.is_none() {
                map[ip]["node"] = json!(NODE);
            }
        }
        if let Some(node) = node {
            raw["spec"]["nodeName"] = json!([node]);
            raw["status"] = json!({"parentNic": {"name": "eth1", "mac": MASTER_MAC}});
        }
        let metadata = json!({"scope": node.unwrap_or_default(), "ips": map}).to_string();
        raw["status"]["ipMetaData"] = json!({"observedGeneration": 1, "metadata": metadata});
        self.store.set_pool(raw).unwrap();
    }

    pub(crate) fn set_record(&self, pool: &str, ip: &str, pod: &str, uid: &str, nic: Option<&str>) {
        let mut raw = self.store.current_pool(pool).unwrap().raw().clone();
        let text = raw["status"]["allocatedIPs"].as_str().unwrap_or("{}");
        let mut map: Value = serde_json::from_str(text).unwrap();
        map[ip] = json!({"pod": pod, "podUid": uid});
        if let Some(nic) = nic {
            map[ip]["nic"] = json!(nic);
        }
        raw["status"]["allocatedIPs"] = json!(map.to_string());
        raw["status"]["allocatedIPCount"] = json!(map.as_object().unwrap().len());
        self.store.set_pool(raw).unwrap();
    }

    pub(crate) fn set_endpoint(&self, key: &str, uid: &str, node: &str, ips: Value) {
        let (namespace, name) = key.split_once('/').unwrap();
        let object = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderEndpoint",
            "metadata": {"namespace": namespace, "name": name, "finalizers": ["spiderpool.spidernet.io"]},
            "status": {"current": {"uid": uid, "node": node, "ips": ips},
                "ownerControllerType": "Pod", "ownerControllerName": name}});
        self.store
            .set_endpoint(serde_json::from_value(object).unwrap());
    }

    /// `address uid` of every record, and that the count agrees.
    pub(crate) fn records(&self, pool: &str) -> Vec<String> {
        let object = self.store.current_pool(pool).unwrap();
        let pool = object.pool().unwrap();
        let status = object.typed().status.clone().unwrap_or_default();
        assert_eq!(status.allocated_ip_count.unwrap_or(0), pool.records.count());
        pool.records
            .iter()
            .map(|(ip, record)| format!("{ip} {}", record.pod_uid))
            .collect()
    }

    pub(crate) fn endpoint_uid(&self, key: &str) -> Option<String> {
        let object = self.store.current_endpoint(&object_key(key))?;
        Some(object.status.current.uid)
    }

    /// Events so far. They are written beside the calls: whoever is ready runs first.
    pub(crate) async fn events(&self) -> Vec<PodEvent> {
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        self.store.events()
    }

    /// File names in the attachments folder.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.paths.attachments_dir()).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    pub(crate) async fn call(&self, request: CniRequest) -> Result<Option<Value>, Failure> {
        self.agent.cni(request, limits()).await
    }

    pub(crate) async fn add(&self, request: &Request) -> Result<CniResult, Failure> {
        let result = self.call(request.build("ADD")).await?;
        Ok(serde_json::from_value(result.unwrap()).unwrap())
    }

    pub(crate) async fn del(&self, request: &Request) -> Result<(), Failure> {
        let result = self.call(request.build("DEL")).await?;
        assert_eq!(result, None);
        Ok(())
    }
}

fn agent_over(
    store: &Arc<MemoryStore>,
    nic: &Arc<FakeNic>,
    paths: &Paths,
    settings: Settings,
    provider: Option<Arc<dyn Provider>>,
) -> Arc<Agent> {
    let seams = Seams {
        store: Arc::clone(store) as _,
        nic: Arc::clone(nic) as _,
        provider,
        observer: Arc::new(NoObserver),
        clock: Arc::new(FakeClock::default()),
        jitter: Arc::new(Jitter::from_seed(1)),
    };
    Arc::new(Agent::new(settings, seams, paths).unwrap())
}

pub(crate) fn limits() -> Limits {
    Limits {
        deadline: Instant::now() + Duration::from_secs(97),
        cancel: CancellationToken::new(),
    }
}

pub(crate) fn object_key(key: &str) -> ObjectKey {
    let (namespace, name) = key.split_once('/').unwrap();
    ObjectKey::new(namespace, name)
}

pub(crate) fn pod_object(key: &str, uid: &str, notes: &[(&str, &str)]) -> PodObject {
    let key = object_key(key);
    let mut pod = PodObject::default();
    pod.facts.namespace = key.namespace;
    pod.facts.name = key.name;
    pod.facts.uid = uid.into();
    pod.facts.node = NODE.into();
    pod.facts.phase = "Pending".into();
    for (note, value) in notes {
        pod.facts
            .annotations
            .insert((*note).into(), (*value).into());
    }
    pod
}

/// The Pod with a controller.
pub(crate) fn owned(mut pod: PodObject, api_version: &str, kind: &str, name: &str) -> PodObject {
    pod.controller = Some(OwnerRef {
        api_version: api_version.into(),
        kind: kind.into(),
        name: name.into(),
        uid: format!("uid-{name}"),
    });
    pod
}

pub(crate) fn mac_of(vlan: i64) -> String {
    format!("fa:16:3e:01:{:02x}:{:02x}", (vlan >> 8) & 0xff, vlan & 0xff)
}

/// A CNI call in the making.
#[derive(Clone)]
pub(crate) struct Request(Value);

impl Request {
    /// Plugin eni-vlan on eth1 with validation, pools p4.
    pub(crate) fn eni(container: &str, netns: &str, ifname: &str) -> Self {
        Self(
            json!({"v": 1, "plugin": "eni-vlan", "containerID": container, "netns": netns, "ifname": ifname,
            "conf": {"cniVersion": "1.1.0", "name": "lab", "type": "eni-vlan", "master": "eth1",
                "validateIaasNetConfig": true,
                "ipam": {"type": "spiderpool", "default_ipv4_ippool": ["p4"]}}}),
        )
    }

    /// The IPAM plugin behind another main plugin.
    pub(crate) fn ipam(container: &str, ifname: &str, pools: &[&str]) -> Self {
        Self(
            json!({"v": 1, "plugin": "spiderpool", "containerID": container, "netns": "/proc/self/ns/net",
            "ifname": ifname,
            "conf": {"cniVersion": "0.4.0", "name": "lab", "type": "macvlan",
                "ipam": {"type": "spiderpool", "default_ipv4_ippool": pools}}}),
        )
    }

    pub(crate) fn pod(mut self, key: &str, uid: &str) -> Self {
        let (namespace, name) = key.split_once('/').unwrap();
        let mut args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}");
        if !uid.is_empty() {
            args.push_str(&format!(";K8S_POD_UID={uid}"));
        }
        self.0["args"] = json!(args);
        self
    }

    pub(crate) fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0[key] = value.into();
        self
    }

    pub(crate) fn conf(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0["conf"][key] = value.into();
        self
    }

    pub(crate) fn pools(mut self, family: &str, pools: &[&str]) -> Self {
        self.0["conf"]["ipam"][format!("default_{family}_ippool")] = json!(pools);
        self
    }

    pub(crate) fn build(&self, command: &str) -> CniRequest {
        let mut request = self.0.clone();
        request["command"] = json!(command);
        serde_json::from_value(request).unwrap()
    }
}

pub(crate) fn addresses(result: &CniResult) -> Vec<String> {
    result.ips.iter().map(|ip| ip.address.to_string()).collect()
}

//! A control plane of the test's own and one agent in daemon mode beside it. Objects are made as a
//! user makes them; calls are those of the real CNI binary.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use vm_tests::control_plane::ControlPlane;
use vm_tests::control_plane::relay::Relay;
use vm_tests::lab::api_client::{ApiClient, POOLS, records};
use vm_tests::lab::cni_call::{CniCall, CniOutcome, kubernetes_args, with_key};
use vm_tests::lab::http::{Request, exchange};
use vm_tests::lab::process::{Daemon, DaemonSpec, HERE, Lifetime};
use vm_tests::lab::wait;

/// For states that a healthy system reaches at once.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// The node of the agent under test.
pub(crate) const NODE: &str = "n1";
/// Interface every call asks for.
pub(crate) const IFNAME: &str = "eth0";
/// Pods of the tests.
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
/// Their endpoints.
pub(crate) const ENDPOINTS: &str =
    "/apis/spiderpool.spidernet.io/v2beta1/namespaces/default/spiderendpoints";

pub(crate) struct Rig {
    // dropped in this order: the agent first, the folder last
    agent: Option<Daemon>,
    pub(crate) plane: ControlPlane,
    pub(crate) api: ApiClient,
    bin_dir: PathBuf,
    relayed: Option<Relayed>,
    metrics: SocketAddr,
    dir: tempfile::TempDir,
}

/// The way of an agent that reaches the API through a relay.
struct Relayed {
    relay: Relay,
    watch_seconds: u32,
}

impl Rig {
    /// A control plane with the node, a pool `plain` of 10.81.0.10 to 10.81.0.`last`, and the agent.
    pub(crate) fn start(last: u8) -> Self {
        Self::with(last, None)
    }

    /// The same; between agent and API is a relay, and the agent's watches end after so many seconds.
    pub(crate) fn start_behind_relay(last: u8, watch_seconds: u32) -> Self {
        Self::with(last, Some(watch_seconds))
    }

    /// Whatever the relay carries now is dead from now on, and nobody is told.
    pub(crate) fn forget_connections(&self) {
        self.relayed.as_ref().unwrap().relay.forget();
    }

    fn with(last: u8, watch_seconds: Option<u32>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (plane, bin_dir) = ControlPlane::for_test(dir.path()).unwrap();
        let api = plane.api().unwrap();
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
        api.create("/api/v1/nodes", &node).unwrap();
        let relayed = watch_seconds.map(|watch_seconds| Relayed {
            relay: Relay::start(&plane).unwrap(),
            watch_seconds,
        });
        // Free until the agent takes it.
        let metrics = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| listener.local_addr())
            .unwrap();
        let mut rig = Self {
            agent: None,
            plane,
            api,
            bin_dir,
            relayed,
            metrics,
            dir,
        };
        rig.pool("plain", 81, last);
        rig.start_agent();
        rig
    }

    /// Makes a default pool of 10.`net`.0.10 to 10.`net`.0.`last`.
    pub(crate) fn pool(&self, name: &str, net: u8, last: u8) {
        let pool = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
            "metadata": {"name": name},
            "spec": {"subnet": format!("10.{net}.0.0/24"), "ips": [format!("10.{net}.0.10-10.{net}.0.{last}")],
                "gateway": format!("10.{net}.0.1"), "ipVersion": 4, "default": true}});
        self.api.create(POOLS, &pool).unwrap();
    }

    pub(crate) fn start_agent(&mut self) {
        let daemon = Daemon::start(&DaemonSpec {
            name: "the agent",
            bin_dir: &self.bin_dir,
            netns: Path::new(HERE),
            argv: self.agent_argv(),
            env: &[],
            log_path: self.dir.path().join("agent.log"),
            lifetime: Lifetime::Lab,
        })
        .unwrap();
        self.agent = Some(daemon);
        let healthy = wait::until(SOON, "an agent that answers STATUS", || {
            self.agent.as_mut().unwrap().still_runs()?;
            Ok(self.status().silent().is_ok().then_some(()))
        });
        healthy.unwrap_or_else(|error| panic!("{error:#}\n{}", self.agent_log()));
    }

    fn agent_argv(&self) -> Vec<OsString> {
        let dir = self.dir.path();
        let mut kubeconfig = self.plane.kubeconfig();
        let mut argv: Vec<OsString> = ["spiderpool-agent", "daemon", "--log-level=info"]
            .map(OsString::from)
            .into();
        if let Some(relayed) = &self.relayed {
            kubeconfig = dir.join("relayed.kubeconfig");
            relayed.relay.kubeconfig(&self.plane, &kubeconfig).unwrap();
            argv.push(format!("--watch-seconds={}", relayed.watch_seconds).into());
        }
        let port = self.metrics.port().to_string();
        for (flag, value) in [
            ("--kubeconfig", kubeconfig.into_os_string()),
            ("--config-path", dir.join("conf.yml").into()),
            ("--node-name", NODE.into()),
            ("--run-dir", self.run_dir().into()),
            ("--bpf-dir", dir.join("bpf").into()),
            ("--sub-eni-observer", "false".into()),
            ("--enable-metrics", "true".into()),
            ("--metrics-port", port.into()),
        ] {
            argv.extend([flag.into(), value]);
        }
        argv
    }

    /// The sum of a counter's series, as Prometheus would scrape it.
    pub(crate) fn counter(&self, name: &str) -> f64 {
        let mut stream = TcpStream::connect(self.metrics).unwrap();
        let request = Request {
            method: "GET",
            path: "/metrics",
            headers: &[],
            body: b"",
        };
        let text = exchange(&mut stream, &request).unwrap().body;
        let text = String::from_utf8(text).unwrap();
        let series = text.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with('{'))
        });
        let values: Vec<f64> = series
            .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
            .collect();
        assert!(!values.is_empty(), "no {name} in\n{text}");
        values.iter().sum()
    }

    /// SIGKILL.
    pub(crate) fn kill_agent(&mut self) {
        self.agent.take().unwrap().kill().unwrap();
    }

    pub(crate) fn agent_pid(&mut self) -> u32 {
        let agent = self.agent.as_mut().unwrap();
        agent.still_runs().unwrap();
        agent.pid()
    }

    pub(crate) fn agent_log(&self) -> String {
        self.agent
            .as_ref()
            .map(Daemon::log_tail)
            .unwrap_or_default()
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    /// Makes a Pod of this node; its UID.
    pub(crate) fn create_pod(&self, name: &str) -> String {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "none"}]}});
        let made = self.api.create(PODS, &pod).unwrap();
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Marks a Pod for deletion, as a user does; its runtime tears it down afterwards.
    pub(crate) fn end_pod(&self, name: &str) {
        self.api.delete(&format!("{PODS}/{name}")).unwrap();
    }

    /// Removes a Pod at once, as the kubelet does when its containers are gone.
    pub(crate) fn remove_pod(&self, name: &str) {
        let path = format!("{PODS}/{name}?gracePeriodSeconds=0");
        self.api.delete(&path).unwrap();
    }

    pub(crate) fn call(&self, command: &str, pod: &str, uid: &str) -> CniOutcome {
        self.cni_call(command, pod, uid)
            .run_here(&self.bin_dir)
            .unwrap()
    }

    /// CHECK, with the result of the ADD, as the runtime keeps it.
    pub(crate) fn check(&self, pod: &str, uid: &str, added: &CniOutcome) -> CniOutcome {
        let mut call = self.cni_call("CHECK", pod, uid);
        let conf = serde_json::from_str(&call.stdin).unwrap();
        let result = serde_json::from_str(&added.stdout).unwrap();
        call.stdin = with_key(&conf, "prevResult", result).to_string();
        call.run_here(&self.bin_dir).unwrap()
    }

    /// Runs ADD or DEL for many Pods at the same time, as a node's runtime does at its start.
    pub(crate) fn call_at_once(&self, command: &str, pods: &[(String, String)]) -> Vec<CniOutcome> {
        std::thread::scope(|scope| {
            let running: Vec<_> = pods
                .iter()
                .map(|(pod, uid)| scope.spawn(|| self.call(command, pod, uid)))
                .collect();
            running
                .into_iter()
                .map(|call| call.join().unwrap())
                .collect()
        })
    }

    fn status(&self) -> CniOutcome {
        self.call("STATUS", "", "")
    }

    fn cni_call(&self, command: &str, pod: &str, uid: &str) -> CniCall {
        let socket = self.run_dir().join("spiderpool.sock");
        let container_id = format!("box-{pod}");
        let conf = json!({"cniVersion": "1.1.0", "name": "lab", "type": "macvlan",
            "ipam": {"type": "spiderpool", "ipam_unix_socket_path": socket,
                "log_file_path": self.dir.path().join("cni.log")}});
        CniCall {
            plugin: "spiderpool".to_owned(),
            command: command.to_owned(),
            args: kubernetes_args("default", pod, uid, &container_id),
            container_id,
            netns: "/proc/self/ns/net".to_owned(),
            ifname: IFNAME.to_owned(),
            stdin: conf.to_string(),
        }
    }

    /// Records of a pool: address to record.
    pub(crate) fn records(&self, pool: &str) -> Value {
        records(&self.api.pool(pool).unwrap()).unwrap()
    }

    /// Waits until a pool holds nothing.
    pub(crate) fn wait_until_empty(&self, pool: &str) {
        wait::until(SOON, &format!("an empty pool {pool}"), || {
            Ok((self.records(pool) == json!({})).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", self.agent_log()));
    }

    pub(crate) fn endpoint(&self, pod: &str) -> Option<Value> {
        self.api.get(&format!("{ENDPOINTS}/{pod}")).unwrap()
    }
}

/// The one address of an ADD.
pub(crate) fn address(outcome: &CniOutcome) -> String {
    let result = outcome.result().unwrap();
    let result = serde_json::to_value(result).unwrap();
    assert_eq!(result["ips"].as_array().unwrap().len(), 1, "{result}");
    result["ips"][0]["address"].as_str().unwrap().to_owned()
}

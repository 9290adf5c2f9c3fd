//! A control plane of the test's own, controllers and an agent beside it that may do what the chart
//! lets them and nothing else, and a provider that writes down what it is told.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use serde_json::{Value, json};
use vm_tests::control_plane::ControlPlane;
use vm_tests::lab::api_client::{ApiClient, POOLS, records};
use vm_tests::lab::http::{Request, exchange};
use vm_tests::lab::process::{Daemon, DaemonSpec, HERE, Lifetime};
use vm_tests::lab::rights::{self, NAMESPACE};
use vm_tests::lab::wait;

/// For states that a healthy system reaches at once.
pub(crate) const SOON: Duration = Duration::from_secs(40);
/// So long a release that somebody else has marked is left to him, by this process's own clock.
pub(crate) const TAKEOVER: Duration = Duration::from_secs(120);
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const ENDPOINTS: &str =
    "/apis/spiderpool.spidernet.io/v2beta1/namespaces/default/spiderendpoints";
pub(crate) const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/spiderpool/leases/spiderpool-controller-leases";

pub(crate) struct Rig {
    // dropped in this order: the processes first, the folder last
    running: Vec<(String, Daemon)>,
    pub(crate) plane: ControlPlane,
    pub(crate) api: ApiClient,
    pub(crate) bin_dir: PathBuf,
    pub(crate) provider: Provider,
    pub(crate) dir: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (plane, bin_dir) = ControlPlane::for_test(dir.path()).unwrap();
        let api = plane.api().unwrap();
        let rig = Self {
            running: Vec::new(),
            plane,
            api,
            bin_dir,
            provider: Provider::start(),
            dir,
        };
        rights::install(&rig.api).unwrap();
        for account in ["spiderpool-controller", "spiderpool-agent"] {
            let out = rig.kubeconfig(account);
            rights::kubeconfig(&rig.api, &rig.plane.kubeconfig(), account, &out).unwrap();
        }
        let url = rig.provider.url.clone();
        let conf = json!({"iaasNetworkProvider": {"url": url, "httpRequestTimeout": "20s"}});
        std::fs::write(rig.conf_path(), conf.to_string()).unwrap();
        rig
    }

    fn conf_path(&self) -> PathBuf {
        self.dir.path().join("conf.yml")
    }

    fn kubeconfig(&self, account: &str) -> PathBuf {
        self.dir.path().join(format!("{account}.kubeconfig"))
    }

    /// Starts a replica with these knobs; the answer is its health port.
    pub(crate) fn start_controller(&mut self, name: &str, knobs: &[(&str, &str)]) -> u16 {
        let port = free_port();
        let (port_text, webhooks) = (port.to_string(), free_port().to_string());
        let usual = [
            ("POD_NAME", name),
            ("POD_NAMESPACE", NAMESPACE),
            ("HEALTH_PORT", port_text.as_str()),
            ("WEBHOOK_PORT", webhooks.as_str()),
            ("COORDINATOR_ENABLED", "true"),
            ("MULTUS_CONFIG_ENABLED", "true"),
        ];
        let settings = usual.iter().chain(knobs);
        let settings: Vec<(String, &str)> = settings
            .map(|(knob, value)| (format!("SPIDERPOOL_{knob}"), *value))
            .collect();
        let settings: Vec<(&str, &str)> = settings
            .iter()
            .map(|(knob, value)| (knob.as_str(), *value))
            .collect();
        let mut argv: Vec<OsString> = vec!["spiderpool-controller".into()];
        argv.extend([
            "daemon".into(),
            "--config-path".into(),
            self.conf_path().into(),
        ]);
        argv.extend([
            "--kubeconfig".into(),
            self.kubeconfig("spiderpool-controller").into(),
        ]);
        self.run(name, argv, &settings);
        port
    }

    pub(crate) fn start_agent(&mut self, node: &str) {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
        self.api.create("/api/v1/nodes", &object).unwrap();
        let dir = self.dir.path();
        let mut argv: Vec<OsString> = ["spiderpool-agent", "daemon"].map(OsString::from).into();
        for (flag, value) in [
            (
                "--kubeconfig",
                self.kubeconfig("spiderpool-agent").into_os_string(),
            ),
            ("--config-path", self.conf_path().into()),
            ("--node-name", node.into()),
            ("--run-dir", self.run_dir(node).into()),
            ("--bpf-dir", dir.join(format!("bpf-{node}")).into()),
            ("--sub-eni-observer", "false".into()),
        ] {
            argv.extend([flag.into(), value]);
        }
        self.run(&format!("agent-{node}"), argv, &[]);
    }

    /// Where an agent's socket is.
    pub(crate) fn run_dir(&self, node: &str) -> PathBuf {
        self.dir.path().join(format!("run-{node}"))
    }

    fn run(&mut self, name: &str, argv: Vec<OsString>, env: &[(&str, &str)]) {
        let daemon = Daemon::start(&DaemonSpec {
            name,
            bin_dir: &self.bin_dir,
            netns: Path::new(HERE),
            argv,
            env,
            log_path: self.dir.path().join(format!("{name}.log")),
            lifetime: Lifetime::Lab,
        })
        .unwrap();
        self.running.push((name.to_owned(), daemon));
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, name: &str) {
        let index = self
            .running
            .iter()
            .position(|(running, _)| running == name)
            .unwrap();
        self.running.remove(index).1.kill().unwrap();
    }

    pub(crate) fn pid(&self, name: &str) -> Pid {
        let (_, daemon) = self
            .running
            .iter()
            .find(|(running, _)| running == name)
            .unwrap();
        Pid::from_raw(i32::try_from(daemon.pid()).unwrap())
    }

    pub(crate) fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(format!("{name}.log"))).unwrap_or_default()
    }

    /// Waits for a state; with the logs when it does not come.
    pub(crate) fn until(&self, what: &str, holds: impl FnMut() -> bool) {
        self.until_within(SOON, what, holds);
    }

    pub(crate) fn until_within(
        &self,
        limit: Duration,
        what: &str,
        mut holds: impl FnMut() -> bool,
    ) {
        let reached = wait::until(limit, what, || Ok(holds().then_some(())));
        reached.unwrap_or_else(|error| {
            let logs: String = self
                .running
                .iter()
                .map(|(name, daemon)| format!("{name}:\n{}", daemon.log_tail()))
                .collect();
            panic!("{error:#}\n{logs}");
        });
    }

    pub(crate) fn leader(&self) -> String {
        let lease = self.api.get(LEASE).unwrap().unwrap_or_default();
        lease["spec"]["holderIdentity"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// A pool 10.`net`.0.10-99 with these records: address, Pod, UID.
    pub(crate) fn pool(
        &self,
        name: &str,
        net: u8,
        annotations: &Value,
        held: &[(String, String, String)],
    ) {
        let mut pool = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"subnet": format!("10.{net}.0.0/24"), "ips": [format!("10.{net}.0.10-10.{net}.0.99")],
                "ipVersion": 4, "default": true}});
        if !annotations.is_null() {
            pool["spec"]["nodeName"] = json!(["n1"]);
        }
        self.api.create(POOLS, &pool).unwrap();
        let map = held.iter().map(|(ip, pod, uid)| {
            (
                ip.clone(),
                json!({"pod": format!("default/{pod}"), "podUid": uid, "nic": "eth0"}),
            )
        });
        self.set_records(name, &Value::Object(map.collect()));
    }

    pub(crate) fn set_records(&self, pool: &str, map: &Value) {
        let status = json!({"status": {"allocatedIPs": map.to_string(),
            "allocatedIPCount": map.as_object().unwrap().len()}});
        self.api
            .merge(&format!("{POOLS}/{pool}/status"), &status)
            .unwrap();
    }

    pub(crate) fn records(&self, pool: &str) -> serde_json::Map<String, Value> {
        let map = records(&self.api.pool(pool).unwrap()).unwrap();
        map.as_object().cloned().unwrap_or_default()
    }

    /// Makes a Pod; its UID.
    pub(crate) fn create_pod(
        &self,
        name: &str,
        node: &str,
        grace: u32,
        owner: Option<&Value>,
    ) -> String {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": grace,
                "containers": [{"name": "c", "image": "none"}]}});
        if let Some(owner) = owner {
            pod["metadata"]["ownerReferences"] = json!([owner]);
        }
        let made = self.api.create(PODS, &pod).unwrap();
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    pub(crate) fn pod_runs(&self, name: &str, ip: &str) {
        let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}});
        self.api
            .merge(&format!("{PODS}/{name}/status"), &status)
            .unwrap();
    }

    /// The answer to a probe or request on a controller's health port.
    pub(crate) fn ask(port: u16, method: &str, path: &str) -> Option<u16> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        let request = Request {
            method,
            path,
            headers: &[],
            body: b"",
        };
        Some(exchange(&mut stream, &request).ok()?.status)
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// A provider that accepts every release after a while.
pub(crate) struct Provider {
    pub(crate) url: String,
    calls: Arc<Mutex<Vec<(Instant, Value)>>>,
}

/// How long it takes for one release.
const RELEASE_TIME: Duration = Duration::from_millis(1500);

impl Provider {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let calls = Arc::<Mutex<Vec<(Instant, Value)>>>::default();
        let known = Arc::clone(&calls);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let known = Arc::clone(&known);
                std::thread::spawn(move || serve(stream, &known));
            }
        });
        Self { url, calls }
    }

    /// Release calls so far: when, and what.
    pub(crate) fn calls(&self) -> Vec<(Instant, Value)> {
        self.calls.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, calls: &Mutex<Vec<(Instant, Value)>>) {
    let mut text = Vec::new();
    let mut part = [0; 4096];
    while let Ok(read) = stream.read(&mut part) {
        if read == 0 {
            return;
        }
        text.extend_from_slice(&part[..read]);
        let Some(head) = text.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let Ok(body) = serde_json::from_slice(&text[head + 4..]) else {
            continue;
        };
        calls.lock().unwrap().push((Instant::now(), body));
        std::thread::sleep(RELEASE_TIME);
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"));
        text.clear();
    }
}

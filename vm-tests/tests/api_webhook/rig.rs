//! A control plane whose API server asks controllers of the test's own.

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use vm_tests::control_plane::ControlPlane;
use vm_tests::lab::api_client::ApiClient;
use vm_tests::lab::http::{Request, exchange};
use vm_tests::lab::process::{Daemon, DaemonSpec, HERE, Lifetime};
use vm_tests::lab::{rights, wait, webhooks};

use crate::balancer::Balancer;

/// For states that a healthy system reaches at once.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// Of the controllers: they may do what the chart lets them and nothing else.
const KUBECONFIG: &str = "controller.kubeconfig";
/// Prefix of our kinds.
pub(crate) const OURS: &str = "/apis/spiderpool.spidernet.io/v2beta1";
/// The Secret of the certificate.
pub(crate) const SECRET: &str =
    "/api/v1/namespaces/spiderpool/secrets/spiderpool-controller-server-certs";

/// Pods are asked about, and nodes advertise parent NICs.
pub(crate) const WITH_PODS: &str = "podResourceInject: {enabled: true}
agent:
  networkResourcePlugin:
    enabled: true
    resourceAdvertisement:
      masterNIC: {rules: [{includeInterfaces: [eth1]}]}
      subENI: {rules: [{resourceName: spidernet.io/sub-eni, defaultMaxCount: 9}]}
";

pub(crate) struct Rig {
    // dropped in this order: the controllers first, the folder last
    controllers: Vec<Controller>,
    started: usize,
    pub(crate) api: ApiClient,
    _plane: ControlPlane,
    bin_dir: PathBuf,
    dir: tempfile::TempDir,
}

struct Controller {
    daemon: Daemon,
    webhook: u16,
    health: u16,
}

impl Rig {
    /// With so many replicas; the first is asked to change objects, the last to judge them.
    pub(crate) fn start(replicas: usize, conf: &str) -> Self {
        let mut rig = Self::without_controllers(conf);
        for _ in 0..replicas {
            rig.add_controller();
        }
        let ports = rig.webhook_ports();
        rig.ask(ports[0], ports[replicas - 1]);
        rig
    }

    /// With so many replicas behind a port.
    pub(crate) fn behind(balancer: &Balancer, replicas: usize) -> Self {
        let mut rig = Self::without_controllers("");
        for _ in 0..replicas {
            balancer.put(rig.add_controller());
        }
        rig.ask(balancer.port, balancer.port);
        rig
    }

    fn without_controllers(conf: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (plane, bin_dir) = ControlPlane::for_test(dir.path()).unwrap();
        std::fs::write(dir.path().join("conf.yml"), conf).unwrap();
        let api = plane.api().unwrap();
        rights::install(&api).unwrap();
        let rights = dir.path().join(KUBECONFIG);
        rights::kubeconfig(&api, &plane.kubeconfig(), "spiderpool-controller", &rights).unwrap();
        Self {
            controllers: Vec::new(),
            started: 0,
            api,
            _plane: plane,
            bin_dir,
            dir,
        }
    }

    /// One more replica, which is ready; its webhook port.
    pub(crate) fn add_controller(&mut self) -> u16 {
        let mut controller = self.controller(self.started);
        self.started += 1;
        let ready = wait::until(SOON, "a controller that is ready", || {
            controller.daemon.still_runs()?;
            Ok((probe(controller.health) == Some(200)).then_some(()))
        });
        ready.unwrap_or_else(|error| panic!("{error:#}\n{}", controller.daemon.log_tail()));
        let port = controller.webhook;
        self.controllers.push(controller);
        port
    }

    /// SIGTERM for the oldest replica; its webhook port.
    pub(crate) fn tell_oldest_to_stop(&self) -> u16 {
        let oldest = &self.controllers[0];
        let pid = Pid::from_raw(i32::try_from(oldest.daemon.pid()).unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        oldest.webhook
    }

    pub(crate) fn wait_for_end_of_oldest(&mut self) {
        let mut oldest = self.controllers.remove(0);
        wait::until(SOON, "the end of a replica", || {
            Ok(oldest.daemon.has_ended()?.then_some(()))
        })
        .unwrap();
    }

    fn controller(&self, number: usize) -> Controller {
        let [webhook, health] = free_ports();
        let dir = self.dir.path();
        let argv: Vec<OsString> = vec![
            "spiderpool-controller".into(),
            "daemon".into(),
            "--kubeconfig".into(),
            dir.join(KUBECONFIG).into(),
            "--config-path".into(),
            dir.join("conf.yml").into(),
        ];
        let (webhook_text, health_text) = (webhook.to_string(), health.to_string());
        let name = format!("c-{number}");
        let daemon = Daemon::start(&DaemonSpec {
            name: "the controller",
            bin_dir: &self.bin_dir,
            netns: Path::new(HERE),
            argv,
            env: &[
                ("SPIDERPOOL_POD_NAME", &name),
                ("SPIDERPOOL_POD_NAMESPACE", rights::NAMESPACE),
                ("SPIDERPOOL_WEBHOOK_PORT", &webhook_text),
                ("SPIDERPOOL_HEALTH_PORT", &health_text),
                ("SPIDERPOOL_TLS_EXTRA_NAMES", webhooks::HOST),
                ("SPIDERPOOL_MULTUS_CONFIG_ENABLED", "true"),
                ("SPIDERPOOL_COORDINATOR_ENABLED", "true"),
            ],
            log_path: dir.join(format!("{name}.log")),
            lifetime: Lifetime::Lab,
        })
        .unwrap();
        Controller {
            daemon,
            webhook,
            health,
        }
    }

    /// Lets the API server ask these ports, and waits until it does.
    fn ask(&self, mutating: u16, validating: u16) {
        webhooks::install(&self.api, mutating, validating).unwrap();
        let trusted = wait::until(SOON, "a caBundle in every webhook", || {
            let bundles = webhooks::bundles(&self.api)?;
            Ok(bundles
                .iter()
                .all(|bundle| !bundle.is_empty())
                .then_some(()))
        });
        trusted.unwrap_or_else(|error| panic!("{error:#}\n{}", self.logs()));
        // The API server reads its configurations a moment later.
        let object = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
            "metadata": {"name": "asked"}, "spec": {"subnet": "192.0.2.0/24"}});
        let asked = wait::until(SOON, "an object that a webhook filled in", || {
            let path = format!("{OURS}/spiderippools?dryRun=All");
            let made = self.api.create(&path, &object);
            Ok(made.ok().filter(|made| made["spec"]["ipVersion"] == 4))
        });
        asked.unwrap_or_else(|error| panic!("{error:#}\n{}", self.logs()));
    }

    /// What the chart lets the controllers do was enough.
    pub(crate) fn assert_allowed(&self) {
        for controller in &self.controllers {
            let log = controller.daemon.log();
            // A refusal of the rules says Forbidden as well.
            assert!(!log.contains("is forbidden: User"), "{log}");
        }
    }

    pub(crate) fn logs(&self) -> String {
        let tails = self.controllers.iter().map(|known| known.daemon.log_tail());
        tails.collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn webhook_ports(&self) -> Vec<u16> {
        self.controllers.iter().map(|known| known.webhook).collect()
    }

    /// Creates an object of ours as `kubectl --validate=strict` does; status and answer.
    pub(crate) fn create(&self, object: &Value) -> (u16, Value) {
        let path = format!("{}?fieldValidation=Strict", collection(object));
        self.send("POST", &path, "application/json", object)
    }

    /// Changes one by a merge patch.
    pub(crate) fn merge(&self, path: &str, patch: &Value) -> (u16, Value) {
        self.send("PATCH", path, "application/merge-patch+json", patch)
    }

    pub(crate) fn delete(&self, path: &str) -> (u16, Value) {
        self.send("DELETE", path, "application/json", &Value::Null)
    }

    fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let response = self.api.request(method, path, kind, body);
        let response = response.unwrap_or_else(|error| panic!("{error:#}\n{}", self.logs()));
        let answer = serde_json::from_slice(&response.body).unwrap();
        (response.status, answer)
    }
}

/// Where an object is created.
pub(crate) fn collection(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap();
    let namespace = object["metadata"]["namespace"]
        .as_str()
        .unwrap_or("default");
    match kind {
        "Pod" => format!("/api/v1/namespaces/{namespace}/pods"),
        "SpiderMultusConfig" => format!("{OURS}/namespaces/{namespace}/spidermultusconfigs"),
        _ => format!("{OURS}/{}s", kind.to_ascii_lowercase()),
    }
}

/// Free until somebody takes them.
fn free_ports() -> [u16; 2] {
    [(); 2]
        .map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())
        .map(|listener| listener.local_addr().unwrap().port())
}

fn probe(port: u16) -> Option<u16> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    let request = Request {
        method: "GET",
        path: "/v1/runtime/readiness",
        headers: &[],
        body: b"",
    };
    Some(exchange(&mut stream, &request).ok()?.status)
}

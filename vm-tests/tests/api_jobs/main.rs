//! The chart's jobs on a real kube-apiserver, with the rights of the chart: `spiderpoolctl init` and
//! `spiderpoolctl clean`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "functions that tests share fail as tests do"
)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use vm_tests::control_plane::ControlPlane;
use vm_tests::lab::api_client::{ApiClient, POOLS};
use vm_tests::lab::{rights, wait};

/// For states that a healthy system reaches at once.
const SOON: Duration = Duration::from_secs(60);
const OURS: &str = "/apis/spiderpool.spidernet.io/v2beta1";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1";
const FINALIZER: &str = "spiderpool.spidernet.io";

struct Rig {
    api: ApiClient,
    _plane: ControlPlane,
    bin_dir: PathBuf,
    dir: tempfile::TempDir,
}

impl Rig {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (plane, bin_dir) = ControlPlane::for_test(dir.path()).unwrap();
        let api = plane.api().unwrap();
        rights::install(&api).unwrap();
        for account in ["spiderpool-init", "spiderpool-clean"] {
            let out = dir.path().join(account);
            rights::kubeconfig(&api, &plane.kubeconfig(), account, &out).unwrap();
        }
        Self {
            api,
            _plane: plane,
            bin_dir,
            dir,
        }
    }

    fn begin(&self, account: &str, args: &[&str], env: &[(&str, &str)]) -> Job {
        let log_path = self.dir.path().join("job.log");
        let log = File::create(&log_path).unwrap();
        let child = Command::new(self.bin_dir.join("spiderpoolctl"))
            .args(args)
            .arg("--kubeconfig")
            .arg(self.dir.path().join(account))
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Job { child, log_path }
    }

    fn clean(&self, args: &[&str]) -> (Option<i32>, String) {
        let args: Vec<&str> = ["clean"].iter().chain(args).copied().collect();
        self.begin(
            "spiderpool-clean",
            &args,
            &[("SPIDERPOOL_NAMESPACE", "spiderpool")],
        )
        .end()
    }
}

/// A command that runs; it is killed with the test.
struct Job {
    child: Child,
    log_path: PathBuf,
}

impl Job {
    fn log(&self) -> String {
        std::fs::read_to_string(&self.log_path).unwrap()
    }

    /// Exit code and everything it said.
    fn end(mut self) -> (Option<i32>, String) {
        let ended = wait::until(SOON, "the end of the job", || Ok(self.child.try_wait()?));
        let ended = ended.unwrap_or_else(|error| panic!("{error:#}\n{}", self.log()));
        (ended.code(), self.log())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // It may have ended; there is nobody left to tell.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn cni_dir(dir: &Path) -> PathBuf {
    let cni = dir.join("cni");
    std::fs::create_dir(&cni).unwrap();
    std::fs::write(
        cni.join("00-multus.conf"),
        r#"{"name":"multus-cni-network"}"#,
    )
    .unwrap();
    std::fs::write(
        cni.join("10-calico.conflist"),
        r#"{"name":"k8s-pod-network"}"#,
    )
    .unwrap();
    cni
}

const INIT: &[(&str, &str)] = &[
    ("SPIDERPOOL_NAMESPACE", "spiderpool"),
    ("SPIDERPOOL_CONTROLLER_NAME", "ctl"),
    ("SPIDERPOOL_INIT_DEFAULT_COORDINATOR_NAME", "default"),
    (
        "SPIDERPOOL_INIT_DEFAULT_COORDINATOR_HIJACK_CIDR",
        r#"["169.254.0.0/16"]"#,
    ),
    ("SPIDERPOOL_INIT_DEFAULT_IPV4_SUBNET_NAME", "subnet"),
    ("SPIDERPOOL_INIT_DEFAULT_IPV4_IPPOOL_NAME", "pool"),
    ("SPIDERPOOL_INIT_DEFAULT_IPV4_IPPOOL_SUBNET", "10.70.0.0/24"),
    (
        "SPIDERPOOL_INIT_DEFAULT_IPV4_IPPOOL_IPRANGES",
        r#"["10.70.0.10-10.70.0.99"]"#,
    ),
    ("SPIDERPOOL_INIT_ENABLE_MULTUS_CONFIG", "true"),
];

fn spec(rig: &Rig, path: &str) -> Value {
    let found = rig.api.get(&format!("{OURS}/{path}")).unwrap();
    found.unwrap()["spec"].clone()
}

/// `init` as the chart runs it.
fn init(rig: &Rig, cni: &Path) -> Job {
    let dir = ("SPIDERPOOL_INIT_DEFAULT_CNI_DIR", cni.to_str().unwrap());
    let env: Vec<_> = INIT.iter().copied().chain([dir]).collect();
    rig.begin("spiderpool-init", &["init"], &env)
}

#[test]
#[ignore = "api level"]
fn init_waits_for_a_controller_and_makes_what_is_missing() {
    let rig = Rig::start();
    let cni = cni_dir(rig.dir.path());
    let job = init(&rig, &cni);
    wait::until(SOON, "a word on why it waits", || {
        Ok(job.log().contains("no controller is ready").then_some(()))
    })
    .unwrap();
    let coordinator = format!("{OURS}/spidercoordinators/default");
    assert_eq!(rig.api.get(&coordinator).unwrap(), None);
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "ctl"},
        "subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 5722}]}]});
    rig.api
        .create("/api/v1/namespaces/spiderpool/endpoints", &endpoints)
        .unwrap();
    let (code, log) = job.end();
    assert_eq!(code, Some(0), "{log}");
    assert_made(&rig);
    // What somebody changed since stays as it is.
    let changed = json!({"spec": {"ips": ["10.70.0.10"]}});
    rig.api.merge(&format!("{POOLS}/pool"), &changed).unwrap();
    let (code, log) = init(&rig, &cni).end();
    assert_eq!(code, Some(0), "{log}");
    let left = "SpiderIPPool pool exists and is left as it is";
    assert!(log.contains(left), "{log}");
    assert_eq!(
        spec(&rig, "spiderippools/pool")["ips"],
        json!(["10.70.0.10"])
    );
    // What can never be is no reason to wait.
    let variable = "SPIDERPOOL_INIT_ENABLE_MULTUS_CONFIG";
    let wrong = [("SPIDERPOOL_NAMESPACE", "spiderpool"), (variable, "x")];
    let (code, log) = rig.begin("spiderpool-init", &["init"], &wrong).end();
    assert_eq!(code, Some(1), "{log}");
    let text = format!("{variable}=\"x\" is not true or false");
    assert!(log.contains(&text), "{log}");
}

/// Admission lets a pool belong to its subnet in the name of who makes it; nothing more is needed.
#[test]
#[ignore = "api level"]
fn init_may_make_a_pool_of_a_subnet_and_delete_none() {
    let rig = Rig::start();
    let init = ApiClient::here(&rig.dir.path().join("spiderpool-init")).unwrap();
    let object = |kind: &str, metadata: Value| {
        json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": kind, "metadata": metadata,
            "spec": {"ipVersion": 4, "subnet": "10.70.0.0/24"}})
    };
    let subnet = object("SpiderSubnet", json!({"name": "s"}));
    let subnet = init.create(&format!("{OURS}/spidersubnets"), &subnet);
    let owner = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderSubnet", "name": "s",
        "uid": subnet.unwrap()["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
    let pool = object(
        "SpiderIPPool",
        json!({"name": "p", "ownerReferences": [owner]}),
    );
    init.create(POOLS, &pool).unwrap();
    let refused = init.delete(&format!("{POOLS}/p")).unwrap_err();
    assert!(format!("{refused:#}").contains("403"), "{refused:#}");
    assert!(rig.api.pool("p").is_ok());
}

fn assert_made(rig: &Rig) {
    let coordinator = spec(rig, "spidercoordinators/default");
    assert_eq!(coordinator["podCIDRType"], "auto");
    assert_eq!(coordinator["hijackCIDR"], json!(["169.254.0.0/16"]));
    assert_eq!(spec(rig, "spidersubnets/subnet")["subnet"], "10.70.0.0/24");
    let pool = spec(rig, "spiderippools/pool");
    assert_eq!(pool["default"], true);
    assert_eq!(pool["ips"], json!(["10.70.0.10-10.70.0.99"]));
    let network = format!("{OURS}/namespaces/spiderpool/spidermultusconfigs/calico");
    let network = rig.api.get(&network).unwrap().unwrap();
    assert_eq!(
        network["metadata"]["annotations"]["multus.spidernet.io/cr-name"],
        "k8s-pod-network"
    );
    assert_eq!(network["spec"]["cniType"], "custom");
}

/// Objects of all kinds with our finalizer.
fn fill(rig: &Rig) {
    let metadata = json!({"name": "x", "finalizers": [FINALIZER]});
    let object = |kind: &str, spec: &Value| {
        json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": kind,
            "metadata": metadata, "spec": spec})
    };
    let net = json!({"subnet": "10.71.0.0/24", "ips": ["10.71.0.10"]});
    for (path, kind, spec) in [
        ("spiderippools", "SpiderIPPool", &net),
        ("spidersubnets", "SpiderSubnet", &net),
        (
            "spiderreservedips",
            "SpiderReservedIP",
            &json!({"ips": ["10.71.0.11"]}),
        ),
        (
            "spidercoordinators",
            "SpiderCoordinator",
            &json!({"podCIDRType": "none"}),
        ),
        (
            "namespaces/default/spidermultusconfigs",
            "SpiderMultusConfig",
            &json!({}),
        ),
    ] {
        rig.api
            .create(&format!("{OURS}/{path}"), &object(kind, spec))
            .unwrap();
    }
    let record = r#"{"10.71.0.10":{"pod":"default/web","podUid":"u"}}"#;
    let status = json!({"status": {"allocatedIPs": record, "allocatedIPCount": 1}});
    rig.api
        .merge(&format!("{POOLS}/x/status"), &status)
        .unwrap();
    let endpoint = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderEndpoint",
        "metadata": metadata, "status": {"ownerControllerType": "Pod", "ownerControllerName": "x",
            "current": {"uid": "u", "node": "n1", "ips": []}}});
    rig.api
        .create(
            &format!("{OURS}/namespaces/default/spiderendpoints"),
            &endpoint,
        )
        .unwrap();
}

/// Webhooks that nobody answers, of ours and of others; waits until ours are asked.
fn add_webhooks(rig: &Rig) {
    for (kind, plural, operations) in [
        (
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            json!(["CREATE", "UPDATE", "DELETE"]),
        ),
        (
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            json!(["CREATE", "UPDATE"]),
        ),
    ] {
        for (name, group) in [
            ("spiderpool-controller", "spiderpool.spidernet.io"),
            ("other", "example.com"),
        ] {
            let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": {"name": name}, "webhooks": [{"name": "a.example.com",
                    "clientConfig": {"url": "https://127.0.0.1:1/none"}, "failurePolicy": "Fail",
                    "sideEffects": "None", "admissionReviewVersions": ["v1"],
                    "rules": [{"apiGroups": [group], "apiVersions": ["*"], "resources": ["*"],
                        "operations": operations}]}]});
            let path = format!("{WEBHOOKS}/{plural}");
            rig.api.create(&path, &configuration).unwrap();
        }
    }
    let change = json!({"metadata": {"labels": {"a": "b"}}});
    wait::until(SOON, "webhooks that refuse", || {
        let refused = rig.api.merge(&format!("{POOLS}/x"), &change);
        Ok(refused.is_err().then_some(()))
    })
    .unwrap();
}

#[test]
#[ignore = "api level"]
fn clean_leaves_nothing_of_ours_and_everything_of_others() {
    let rig = Rig::start();
    fill(&rig);
    add_webhooks(&rig);
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "spiderpool-init"},
        "spec": {"template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i"}]}}}});
    let jobs = "/apis/batch/v1/namespaces/spiderpool/jobs";
    rig.api.create(jobs, &job).unwrap();
    // Nothing happens by mistake.
    let (code, log) = rig.clean(&[]);
    assert_eq!(code, Some(2), "{log}");
    assert!(rig.api.pool("x").is_ok());
    let (code, log) = rig.clean(&["--yes"]);
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("1 SpiderIPPools deleted"), "{log}");
    let names = |path: &str| -> Vec<String> {
        let all = rig.api.list(path).unwrap();
        all.iter()
            .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    wait::until(SOON, "the end of our kinds", || {
        let left = names(DEFINITIONS);
        Ok((left == ["network-attachment-definitions.k8s.cni.cncf.io"]).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error:#}: {:?}", names(DEFINITIONS)));
    for plural in [
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
    ] {
        assert_eq!(names(&format!("{WEBHOOKS}/{plural}")), ["other"]);
    }
    assert!(names(jobs).is_empty());
    // Once more there is nothing to do.
    let (code, log) = rig.clean(&["--yes"]);
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("SpiderIPPool is no kind there"), "{log}");
}

/// A provider waits until the addresses of Pods are freed, and they are freed through the kinds.
#[test]
#[ignore = "api level"]
fn clean_ends_well_once_what_a_provider_waits_for_is_gone() {
    let rig = Rig::start();
    fill(&rig);
    let pool = format!("{POOLS}/x");
    let held = json!({"metadata": {"finalizers": [FINALIZER, "cloud.example.com/claims"]}});
    rig.api.merge(&pool, &held).unwrap();
    let (code, log) = rig.clean(&["--yes", "--wait", "2"]);
    assert_eq!(code, Some(1), "{log}");
    for part in [
        "SpiderIPPool x, held by finalizer cloud.example.com/claims, with records of 1 addresses: 10.71.0.10 of Pod default/web",
        "the CustomResourceDefinitions stay",
    ] {
        assert!(log.contains(part), "{part:?} is not in {log}");
    }
    let freed = json!({"status": {"allocatedIPs": null, "allocatedIPCount": 0}});
    rig.api.merge(&format!("{pool}/status"), &freed).unwrap();
    let free = json!({"metadata": {"finalizers": null}});
    rig.api.merge(&pool, &free).unwrap();
    let (code, log) = rig.clean(&["--yes", "--wait", "2"]);
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("0 SpiderIPPools deleted"), "{log}");
    wait::until(SOON, "the end of the kind", || {
        Ok(rig.api.get(&pool)?.is_none().then_some(()))
    })
    .unwrap();
}

//! A control plane of the test's own and one controller beside it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use vm_tests::control_plane::ControlPlane;
use vm_tests::lab::api_client::ApiClient;
use vm_tests::lab::process::{Daemon, DaemonSpec, HERE, Lifetime};
use vm_tests::lab::wait;

/// For states that a healthy system reaches at once, or with its next look.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// Our kinds.
pub(crate) const OURS: &str = "/apis/spiderpool.spidernet.io/v2beta1";
/// Where the objects with a namespace are.
pub(crate) const NAMESPACE: &str = "default";

pub(crate) struct Rig {
    // dropped in this order: the controller first, the folder last
    controller: Daemon,
    pub(crate) api: ApiClient,
    pub(crate) plane: ControlPlane,
    dir: tempfile::TempDir,
}

impl Rig {
    /// A cluster with its controller; everything that has a switch is on.
    pub(crate) fn start() -> Self {
        Self::start_in(|_| ())
    }

    /// The same, in a cluster that was made so before the controller started.
    pub(crate) fn start_in(made: impl FnOnce(&ApiClient)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("cni")).unwrap();
        let (plane, bin_dir) = ControlPlane::for_test(dir.path()).unwrap();
        let api = plane.api().unwrap();
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "spiderpool"}});
        api.create("/api/v1/namespaces", &namespace).unwrap();
        made(&api);
        let controller = start_controller(&bin_dir, &plane, dir.path());
        Self {
            controller,
            api,
            plane,
            dir,
        }
    }

    /// Folder of CNI files that the controller reads.
    pub(crate) fn cni_dir(&self) -> PathBuf {
        self.dir.path().join("cni")
    }

    /// Waits for a state; its failure shows the controller's log.
    pub(crate) fn until<T>(
        &mut self,
        what: &str,
        mut found: impl FnMut(&ApiClient) -> Option<T>,
    ) -> T {
        let api = &self.api;
        let controller = &mut self.controller;
        let waited = wait::until(SOON, what, || {
            controller.still_runs()?;
            Ok(found(api))
        });
        waited.unwrap_or_else(|error| panic!("{error:#}\n{}", self.controller.log_tail()))
    }

    /// Lines of the controller's log at these levels that hold `part`.
    pub(crate) fn logged(&self, levels: &[&str], part: &str) -> Vec<String> {
        let log = self.controller.log();
        let lines = log.lines().filter(|line| {
            let of = |level: &&str| line.contains(&format!("\"level\":\"{level}\""));
            levels.iter().any(of) && line.contains(part)
        });
        lines.map(str::to_owned).collect()
    }

    /// Waits for a line of the controller's log.
    pub(crate) fn until_logged(&mut self, level: &str, part: &str) {
        wait::until(
            SOON,
            &format!("a line of level {level} with {part:?}"),
            || {
                self.controller.still_runs()?;
                Ok(self.logged(&[level], part).pop())
            },
        )
        .unwrap_or_else(|error| panic!("{error:#}\n{}", self.controller.log_tail()));
    }

    /// Waits for an event about an object; its message.
    pub(crate) fn event(&mut self, kind: &str, name: &str, reason: &str) -> String {
        self.until(&format!("event {reason} on {kind} {name}"), |api| {
            let events = api.list("/api/v1/events").ok()?;
            let event = events.into_iter().find(|event| {
                event["involvedObject"]["kind"] == kind
                    && event["involvedObject"]["name"] == name
                    && event["reason"] == reason
            })?;
            Some(event["message"].as_str()?.to_owned())
        })
    }
}

fn start_controller(bin_dir: &Path, plane: &ControlPlane, dir: &Path) -> Daemon {
    let argv: Vec<OsString> = vec![
        "spiderpool-controller".into(),
        "daemon".into(),
        "--kubeconfig".into(),
        plane.kubeconfig().into(),
        "--config-path".into(),
        dir.join("conf.yml").into(),
    ];
    let cni = dir.join("cni");
    Daemon::start(&DaemonSpec {
        name: "the controller",
        bin_dir,
        netns: Path::new(HERE),
        argv,
        env: &[
            ("SPIDERPOOL_POD_NAME", "c-0"),
            ("SPIDERPOOL_POD_NAMESPACE", "spiderpool"),
            ("SPIDERPOOL_HEALTH_PORT", "0"),
            ("SPIDERPOOL_METRIC_HTTP_PORT", "0"),
            ("SPIDERPOOL_WEBHOOK_PORT", "0"),
            ("SPIDERPOOL_MULTUS_CONFIG_ENABLED", "true"),
            ("SPIDERPOOL_COORDINATOR_ENABLED", "true"),
            ("SPIDERPOOL_COORDINATOR_INFORMER_RESYNC_PERIOD", "2"),
            ("CNI_CONFIG_DIR", cni.to_str().unwrap()),
        ],
        log_path: dir.join("controller.log"),
        lifetime: Lifetime::Lab,
    })
    .unwrap()
}

/// An object of our group.
pub(crate) fn ours(kind: &str, metadata: &Value, spec: &Value) -> Value {
    json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": kind,
        "metadata": metadata, "spec": spec})
}

/// Path of our CustomResourceDefinition of a kind.
pub(crate) fn definition(plural: &str) -> String {
    format!(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.spiderpool.spidernet.io"
    )
}

/// Lets the API server take any object of our kind, as one with somebody else's schema does.
pub(crate) fn take_everything(api: &ApiClient, plural: &str) {
    let path = definition(plural);
    let mut found = api.get(&path).unwrap().unwrap();
    let open = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    found["spec"]["versions"][0]["schema"] = open;
    let written = api
        .request("PUT", &path, "application/json", &found)
        .unwrap();
    assert_eq!(written.status, 200);
}

/// Creates an object that the new schema takes; the API server reads that a moment later.
pub(crate) fn create_unchecked(api: &ApiClient, path: &str, object: &Value) -> Value {
    wait::until(SOON, "a schema that takes everything", || {
        Ok(api.create(path, object).ok())
    })
    .unwrap()
}

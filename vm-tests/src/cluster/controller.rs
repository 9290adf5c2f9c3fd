//! The controller of a cluster, with its webhooks asked by the API server and its collector
//! scanning when told to.
#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON object lacks is null, and all of these are objects"
)]

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::control_plane::ports;
use crate::lab::http::{Request, exchange};
use crate::lab::process::{Daemon, HERE};
use crate::lab::{rights, wait, webhooks};

use super::keeper::Program;
use super::settings::merge;
use super::{Cluster, SOON, pools, provider_conf};

/// Asks for a scan.
const SCAN: &str = "/v1/gc/scan";

/// A running controller.
#[derive(Debug)]
pub struct Controller {
    daemon: Daemon,
    webhook: u16,
    health: u16,
}

impl Controller {
    pub(super) fn log_tail(&self) -> String {
        self.daemon.log_tail()
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        self.daemon.log()
    }
}

impl Cluster {
    /// Starts a controller, if none runs, and lets the API server ask it; it stays for the tests to
    /// come.
    ///
    /// # Errors
    /// It is not ready within 30 s; with its log.
    pub fn need_controller(&mut self) -> Result<()> {
        if self.controller.is_some() {
            return Ok(());
        }
        let controller = self.run_controller("controller", &Value::Null)?;
        let (webhook, health) = (controller.webhook, controller.health);
        self.controller = Some(controller);
        self.until("a controller that is ready", || {
            let controller = self.controller.as_ref().context("no controller")?;
            ensure!(!controller.log().contains("panicked"), "it panicked");
            Ok(ask(health, "GET", "/v1/runtime/readiness").ok() == Some(200))
        })?;
        webhooks::install(&self.api, webhook, webhook)?;
        self.until("a caBundle in every webhook", || {
            let bundles = webhooks::bundles(&self.api)?;
            Ok(bundles.iter().all(|bundle| !bundle.is_empty()))
        })?;
        // The API server reads its configurations a moment later.
        self.until("an object that a webhook filled in", || {
            let mut pool = pools::plain("asked", "10.72.3.250");
            pool["spec"]["ipVersion"] = Value::Null;
            let path = format!("{}?dryRun=All", crate::lab::api_client::POOLS);
            let made = self.api.create(&path, &pool);
            Ok(made.is_ok_and(|made| made["spec"]["ipVersion"] == 4))
        })
    }

    /// The controller.
    ///
    /// # Errors
    /// None runs.
    pub fn controller(&self) -> Result<&Controller> {
        self.controller.as_ref().context("no controller runs")
    }

    /// Has the collector look at everything once.
    ///
    /// # Errors
    /// It does not accept that within 30 s.
    pub fn scan(&self) -> Result<()> {
        let health = self.controller()?.health;
        self.until("a scan that begins", || {
            Ok((200..300).contains(&ask(health, "POST", SCAN)?))
        })
    }

    /// Starts a controller that cannot use its settings; what it logs until it ends.
    ///
    /// # Errors
    /// It goes on.
    pub fn controller_that_ends(&self, conf: &Value) -> Result<String> {
        let mut controller = self.run_controller("controller-that-ends", conf)?;
        log_of_failed(&mut controller.daemon)
    }

    fn run_controller(&self, name: &str, keys: &Value) -> Result<Controller> {
        let mut conf = provider_conf(&self.dir, self.ports[1]);
        // The API server asks about Pods as well.
        conf["podResourceInject"] = json!({ "enabled": true });
        merge(&mut conf, keys);
        let file = |end: &str| self.dir.join(format!("{name}.{end}"));
        fs::write(file("yml"), conf.to_string()).context("write conf.yml")?;
        fs::write(file("log"), "").context("empty the log")?;
        let admin = self.plane.kubeconfig();
        let account = "spiderpool-controller";
        rights::kubeconfig(&self.api, &admin, account, &file("kubeconfig"))?;
        let [webhook, health] = ports::free()?;
        let mut argv = vec!["spiderpool-controller".into(), "daemon".into()];
        argv.extend(["--kubeconfig".into(), file("kubeconfig").into_os_string()]);
        argv.extend(["--config-path".into(), file("yml").into_os_string()]);
        let env = [
            ("POD_NAME", name.to_owned()),
            ("POD_NAMESPACE", rights::NAMESPACE.to_owned()),
            ("WEBHOOK_PORT", webhook.to_string()),
            ("HEALTH_PORT", health.to_string()),
            ("TLS_EXTRA_NAMES", webhooks::HOST.to_owned()),
            ("MULTUS_CONFIG_ENABLED", "true".to_owned()),
            ("COORDINATOR_ENABLED", "true".to_owned()),
            ("GC_ADDITIONAL_GRACE_DELAY", "0".to_owned()),
            ("GC_TRACE_POD_GAP_DURATION", "1".to_owned()),
        ];
        let env = env.into_iter();
        let env = env.map(|(key, value)| (format!("SPIDERPOOL_{key}"), value));
        let daemon = Program {
            name: name.to_owned(),
            bin_dir: self.bin_dir.clone(),
            netns: Path::new(HERE).to_owned(),
            argv,
            env: env.collect(),
            log_path: file("log"),
        }
        .start()?;
        Ok(Controller {
            daemon,
            webhook,
            health,
        })
    }
}

/// What a process logs until it ends, which it has to do without success.
pub(super) fn log_of_failed(daemon: &mut Daemon) -> Result<String> {
    wait::until(SOON, "the end of a process", || {
        Ok(daemon.has_ended()?.then_some(()))
    })
    .with_context(|| daemon.log_tail())?;
    let ended = daemon.still_runs();
    let how = ended.err().context("it runs")?.to_string();
    ensure!(
        how.contains("exit code ") && !how.contains("exit code 0"),
        "{how}"
    );
    Ok(daemon.log())
}

fn ask(port: u16, method: &str, path: &str) -> Result<u16> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("connect")?;
    let request = Request {
        method,
        path,
        headers: &[],
        body: b"",
    };
    Ok(exchange(&mut stream, &request)?.status)
}

/// Objects of SpiderMultusConfigs in the tests' namespace.
pub const MULTUS_CONFIGS: &str =
    "/apis/spiderpool.spidernet.io/v2beta1/namespaces/default/spidermultusconfigs";
/// What the controller makes of them.
pub const ATTACHMENTS: &str =
    "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions";

impl Cluster {
    /// Creates a SpiderMultusConfig and waits for the network configuration the controller makes.
    ///
    /// # Errors
    /// It makes none within 30 s.
    pub fn multus_network(&self, name: &str, spec: &Value) -> Result<Value> {
        let object = json!({ "apiVersion": "spiderpool.spidernet.io/v2beta1",
            "kind": "SpiderMultusConfig", "metadata": { "name": name }, "spec": spec });
        self.api.create(MULTUS_CONFIGS, &object)?;
        let text = self.until_some("a NetworkAttachmentDefinition", || {
            let made = self.api.get(&format!("{ATTACHMENTS}/{name}"))?;
            let text = made
                .as_ref()
                .and_then(|made| made["spec"]["config"].as_str());
            Ok(text.map(str::to_owned))
        })?;
        serde_json::from_str(&text).with_context(|| format!("configuration {text}"))
    }
}

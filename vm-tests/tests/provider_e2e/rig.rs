//! One node in a network namespace: agent, cloud and plugin, with a global and a prewarm pool.

use std::ffi::OsStr;
use std::fs;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use spiderpool_api::cni::{CniError, CniResult};
use spiderpool_api::names;
use spiderpool_netops::rtnl::VethSpec;
use tempfile::TempDir;
use vm_tests::lab::api_client::{ApiClient, ENDPOINTS, records};
use vm_tests::lab::cni_call::{CniCall, CniOutcome};
use vm_tests::lab::http::{Request, exchange};
use vm_tests::lab::namespace::{NamedNetns, connect};
use vm_tests::lab::process::{Daemon, DaemonSpec, Lifetime, argv};
use vm_tests::lab::wait;

use crate::binaries;
use crate::simulator::{SimSpec, Simulator, quick};

/// MAC of the node's eth1.
pub(crate) const PARENT_MAC: &str = "fa:16:3e:01:00:01";
/// The global pool, 10.72.0.10 to .12.
pub(crate) const GLOBAL: &str = "g-1";
/// The prewarm pool, 10.72.0.30 and .31.
pub(crate) const PREWARM: &str = "w-1";
/// The plain pool, 10.72.0.50 to .52.
pub(crate) const PLAIN_POOL: &str = "p-1";
/// `httpRequestTimeout` of the agent, seconds.
pub(crate) const TIMEOUT_S: u64 = 2;
const LIMIT: Duration = Duration::from_secs(30);

/// Everything; processes end before the namespaces they are in.
#[derive(Debug)]
pub(crate) struct Rig {
    agent: Daemon,
    sim: Option<Simulator>,
    sim_spec: SimSpec,
    api: ApiClient,
    node: NamedNetns,
    sandbox: NamedNetns,
    dir: TempDir,
}

/// What an ADD gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) ip: IpAddr,
    pub(crate) mac: String,
    pub(crate) vlan: i64,
}

impl Rig {
    /// The agent calls the provider without TLS; `None` when this machine cannot run `test`.
    pub(crate) fn plain(test: &str) -> Option<Self> {
        let section = json!({ "url": format!("http://{}", crate::simulator::PLAIN) });
        Self::with(test, &section, |_| ())
    }

    /// With this section `iaasNetworkProvider`; `before` may prepare the folder of the rig, with a
    /// cloud that has no pools.
    pub(crate) fn with(test: &str, section: &Value, before: impl FnOnce(&SimSpec)) -> Option<Self> {
        let bin_dir = binaries::ready(test)?;
        let dir = tempfile::tempdir().unwrap();
        let node = NamedNetns::create("node").unwrap();
        let sandbox = NamedNetns::create("pod").unwrap();
        let wire = VethSpec {
            name: "eth1",
            peer: "port-1",
            peer_target: None,
            mac: Some(PARENT_MAC.parse().unwrap()),
            peer_mac: None,
        };
        connect(&node, &wire, &node).unwrap();
        let mut sim_spec = SimSpec {
            bin_dir: bin_dir.clone(),
            dir: dir.path().to_owned(),
            netns: node.clone(),
            kubeconfig: None,
            settings: quick(),
        };
        before(&sim_spec);
        let mut section = section.clone();
        section["httpRequestTimeout"] = json!(format!("{TIMEOUT_S}s"));
        write_etc(dir.path(), &json!({ "iaasNetworkProvider": section }));
        let agent = start_agent(&bin_dir, dir.path(), &node);
        let kubeconfig = dir.path().join("kubeconfig");
        let api = ApiClient::new(&kubeconfig, &node).unwrap();
        sim_spec.kubeconfig = Some(kubeconfig);
        let rig = Self {
            agent,
            sim: Some(Simulator::start(&sim_spec)),
            sim_spec,
            api,
            node,
            sandbox,
            dir,
        };
        rig.await_entries(GLOBAL, 0);
        rig.await_entries(PREWARM, 2);
        Some(rig)
    }

    pub(crate) fn sim(&self) -> &Simulator {
        self.sim.as_ref().expect("a cloud runs")
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The provider as a new process, with these settings and what the cloud had.
    pub(crate) fn restart_sim(&mut self, settings: Value) {
        if let Some(sim) = self.sim.take() {
            sim.kill();
        }
        self.sim_spec.settings = settings;
        self.sim = Some(Simulator::start(&self.sim_spec));
    }

    /// Waits until the provider has published this many entries for the pool as it is.
    pub(crate) fn await_entries(&self, pool: &str, entries: usize) {
        let what = format!("{entries} entries of {pool}");
        let seen = wait::until(LIMIT, &what, || {
            let object = self.api.pool(pool)?;
            let published = &object["status"]["ipMetaData"];
            let text = published["metadata"].as_str().unwrap_or("{}");
            let metadata: Value = serde_json::from_str(text).unwrap_or_default();
            let fits = published["observedGeneration"] == object["metadata"]["generation"]
                && metadata["ips"].as_object().map(|ips| ips.len()) == Some(entries);
            Ok(fits.then_some(()))
        });
        if let Err(error) = seen {
            panic!(
                "{error:#}\n{}\n{}",
                self.agent.log_tail(),
                self.sim().log_tail()
            );
        }
    }

    /// Waits until the text that is published for the pool is exactly this.
    pub(crate) fn await_text(&self, pool: &str, text: &str) {
        wait::until(LIMIT, text, || {
            let object = self.api.pool(pool)?;
            Ok((object["status"]["ipMetaData"]["metadata"] == text).then_some(()))
        })
        .unwrap();
    }

    /// ADD for a bare container, whatever comes of it.
    pub(crate) fn add(&self, container: &str, pool: &str) -> CniOutcome {
        self.run("ADD", container, pool)
    }

    /// ADD that succeeds: address, MAC and VLAN, which the SpiderEndpoint has too.
    pub(crate) fn given(&self, container: &str, pool: &str) -> Given {
        let outcome = self.add(container, pool);
        let result: CniResult = match outcome.result() {
            Ok(result) => result,
            Err(error) => panic!("{error:#}\n{}", self.agent.log_tail()),
        };
        let sub_eni = result.sub_eni.expect("the result has the sub-ENI");
        assert_eq!(sub_eni.parent_mac.to_string(), PARENT_MAC);
        assert_eq!(sub_eni.node_name, "n1");
        let given = Given {
            ip: result.ips[0].address.addr(),
            mac: sub_eni.mac.to_string(),
            vlan: sub_eni.vlan.get().into(),
        };
        let nic = &self.endpoint(container).unwrap()["status"]["current"]["ips"][0];
        let told = (nic["mac"].as_str(), nic["vlan"].as_i64());
        assert_eq!(told, (Some(given.mac.as_str()), Some(given.vlan)), "{nic}");
        given
    }

    /// ADD that fails: its error object.
    pub(crate) fn refused(&self, container: &str, pool: &str) -> CniError {
        self.add(container, pool).error().unwrap()
    }

    /// DEL, which never fails and prints nothing.
    pub(crate) fn del(&self, container: &str, pool: &str) {
        self.run("DEL", container, pool).silent().unwrap();
    }

    /// Address to record, as the pool has them.
    pub(crate) fn records(&self, pool: &str) -> Value {
        records(&self.api.pool(pool).unwrap()).unwrap()
    }

    /// Number of records, and the counter that says the same.
    pub(crate) fn count(&self, pool: &str) -> usize {
        let object = self.api.pool(pool).unwrap();
        let count = records(&object).unwrap().as_object().unwrap().len();
        let told = object["status"]["allocatedIPCount"]
            .as_u64()
            .unwrap_or_default();
        assert_eq!(told, count as u64, "{object}");
        count
    }

    /// The SpiderEndpoint of a bare container.
    pub(crate) fn endpoint(&self, container: &str) -> Option<Value> {
        let all = self.api.list(ENDPOINTS).unwrap();
        let name = format!("c-{container}");
        all.into_iter()
            .find(|object| object["metadata"]["name"] == name.as_str())
    }

    /// What the agent's socket answers.
    pub(crate) fn ask(&self, path: &str) -> (u16, Value) {
        let mut stream = UnixStream::connect(socket_of(self.dir.path())).unwrap();
        let request = Request {
            method: "GET",
            path,
            headers: &[],
            body: &[],
        };
        let answer = exchange(&mut stream, &request).unwrap();
        let body = serde_json::from_slice(&answer.body).unwrap_or_default();
        (answer.status, body)
    }

    /// How often the agent logged this.
    pub(crate) fn logged(&self, text: &str) -> usize {
        self.agent.log().matches(text).count()
    }

    /// What the cloud has for an address, as a result has it.
    pub(crate) fn in_cloud(&self, ip: &str) -> Given {
        let sub_eni = self.sim().sub_eni(ip).expect("the cloud has it");
        Given {
            ip: ip.parse().unwrap(),
            mac: sub_eni["mac"].as_str().unwrap().to_owned(),
            vlan: sub_eni["state"]["vlan"].as_i64().unwrap_or_default(),
        }
    }

    /// Nothing is left of any Pod, and cloud, provider and pools agree.
    pub(crate) fn clean(&self) {
        assert_eq!((self.count(GLOBAL), self.count(PREWARM)), (0, 0));
        assert_eq!(self.api.list(ENDPOINTS).unwrap(), Vec::<Value>::new());
        self.sim().audit();
    }

    fn run(&self, command: &str, container: &str, pool: &str) -> CniOutcome {
        let conf = json!({
            "cniVersion": "1.1.0", "name": "e2e", "type": names::PLUGIN_ENI_VLAN, "master": "eth1",
            "ipam": {
                "type": names::PLUGIN_IPAM,
                "ipam_unix_socket_path": socket_of(self.dir.path()),
                "log_file_path": self.dir.path().join("cni.log"),
                "default_ipv4_ippool": [pool],
            },
        });
        let call = CniCall {
            plugin: names::PLUGIN_IPAM.to_owned(),
            command: command.to_owned(),
            container_id: container.to_owned(),
            netns: self.sandbox.path().display().to_string(),
            ifname: "net1".to_owned(),
            args: String::new(),
            stdin: conf.to_string(),
        };
        call.run(&self.sim_spec.bin_dir, &self.node).unwrap()
    }
}

fn socket_of(dir: &Path) -> PathBuf {
    dir.join("agent.sock")
}

fn write_etc(dir: &Path, conf: &Value) {
    let manifests = dir.join("etc").join("manifests");
    fs::create_dir_all(&manifests).unwrap();
    fs::write(dir.join("etc").join("conf.yml"), conf.to_string()).unwrap();
    let pool = |name: &str, ips: &str, annotations: Value, nodes: Value| {
        json!({
            "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
            "kind": "SpiderIPPool",
            "metadata": { "name": name, "annotations": annotations },
            "spec": { "subnet": "10.72.0.0/24", "gateway": "10.72.0.1", "ips": [ips], "nodeName": nodes },
        })
        .to_string()
    };
    let pools = [
        pool(
            GLOBAL,
            "10.72.0.10-10.72.0.12",
            json!({ names::IAAS_PROVIDER: "sim" }),
            json!([]),
        ),
        pool(
            PREWARM,
            "10.72.0.30-10.72.0.31",
            json!({ names::IAAS_PROVIDER: "sim", names::PARENT_NIC: "eth1" }),
            json!(["n1"]),
        ),
        pool(PLAIN_POOL, "10.72.0.50-10.72.0.52", json!({}), json!([])),
    ];
    fs::write(manifests.join("pools.yaml"), pools.join("\n---\n")).unwrap();
}

fn start_agent(bin_dir: &Path, dir: &Path, node: &NamedNetns) -> Daemon {
    let path = |name: &str| dir.join(name);
    let socket = socket_of(dir);
    let mut daemon = Daemon::start(&DaemonSpec {
        name: "the agent",
        bin_dir,
        netns: node.path(),
        argv: argv([
            OsStr::new("spiderpool-agent"),
            OsStr::new("standalone"),
            OsStr::new("--dir"),
            path("etc").as_os_str(),
            OsStr::new("--run-dir"),
            path("run").as_os_str(),
            OsStr::new("--socket"),
            socket.as_os_str(),
            OsStr::new("--state"),
            path("state.redb").as_os_str(),
            OsStr::new("--node-name"),
            OsStr::new("n1"),
            OsStr::new("--kubeconfig-out"),
            path("kubeconfig").as_os_str(),
            // There is no link whose frames could be counted.
            OsStr::new("--sub-eni-observer"),
            OsStr::new("false"),
        ]),
        env: &[],
        log_path: path("agent.log"),
        lifetime: Lifetime::Lab,
    })
    .unwrap();
    wait::until(LIMIT, "a healthy agent", || {
        daemon.still_runs()?;
        Ok(is_healthy(&socket).then_some(()))
    })
    .unwrap();
    daemon
}

fn is_healthy(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket) else {
        return false;
    };
    let request = Request {
        method: "GET",
        path: names::ROUTE_HEALTHY,
        headers: &[],
        body: &[],
    };
    exchange(&mut stream, &request).is_ok_and(|answer| answer.status == 200)
}

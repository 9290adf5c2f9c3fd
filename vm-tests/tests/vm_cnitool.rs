//! libcni drives the conflist, as container runtimes do: with its own command `cnitool`, and with
//! `cni-gc` where a runtime would hand over the attachments that are still valid.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "functions that tests share fail as tests do, and say what they skip"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use vm_tests::lab::api_client::records;
use vm_tests::lab::cni_call::with_key;
use vm_tests::lab::node::IFNAME;
use vm_tests::lab::{Cloud, LabSpec, Node, Pod, Stack, inspect, leaks, writes};

/// Where libcni keeps what it has added.
const CACHE: &str = "/var/lib/cni";
/// Name of the network.
const NETWORK: &str = "libcni";

/// libcni on a node, with a conflist of its own.
struct Runtime<'a> {
    node: &'a Node,
    net_dir: PathBuf,
}

impl<'a> Runtime<'a> {
    /// `None`, and a line that says so, where its commands were not built.
    fn new(test: &str, node: &'a Node, version: &str) -> Option<Self> {
        if !node.program("cnitool").is_file() {
            eprintln!("SKIPPED {test}: needs cnitool, which needs a Go toolchain, 1.21 or newer");
            return None;
        }
        let net_dir = node.run_dir().join("net.d");
        fs::create_dir_all(&net_dir).unwrap();
        let plugin = with_key(&node.conf(Stack::V4), "cniVersion", Value::Null);
        let plugin = with_key(&plugin, "name", Value::Null);
        let list = json!({ "cniVersion": version, "name": NETWORK, "plugins": [plugin] });
        fs::write(net_dir.join("10-lab.conflist"), list.to_string()).unwrap();
        forget();
        Some(Self { node, net_dir })
    }

    fn command(&self, program: &str, args: &[&str], pod_args: &str) -> Output {
        let path = self.node.program(program);
        let plugins = path.parent().unwrap();
        let mut command = Command::new(&path);
        command
            .args(args)
            .env_clear()
            .env("NETCONFPATH", &self.net_dir)
            .env("CNI_PATH", plugins)
            .env("CNI_ARGS", pod_args);
        self.node.netns().run(|| command.output()).unwrap().unwrap()
    }

    fn cnitool(&self, verb: &str, pod: &Pod) -> Output {
        let path = pod.netns_path().to_str().unwrap();
        self.command("cnitool", &[verb, NETWORK, path, "-i", IFNAME], &pod.args)
    }

    /// ADD; the name of the sandbox that cnitool made up.
    fn attach(&self, pod: &Pod) -> (Value, String) {
        let before = self.files();
        let result = serde_json::from_str(&said(&self.cnitool("add", pod))).unwrap();
        let mut new = self.files();
        new.retain(|file| !before.contains(file));
        let [file] = new.as_slice() else {
            panic!("{new:?}")
        };
        let container = file.strip_suffix(&format!("-{IFNAME}.json")).unwrap();
        (result, container.to_owned())
    }

    fn files(&self) -> Vec<String> {
        self.node.attachments().unwrap()
    }

    fn records(&self) -> Value {
        let api = self.node.api().unwrap();
        records(&api.pool(&self.node.plan.pool()).unwrap()).unwrap()
    }

    /// The record, the link and the attachment file of a Pod: whether they are there.
    fn has(&self, held: &Held) -> (bool, bool, bool) {
        let file = format!("{}-{IFNAME}.json", held.container);
        (
            self.records().get(&held.address).is_some(),
            held.pod.nic().unwrap().is_some(),
            self.files().contains(&file),
        )
    }

    fn held(&self, pod: Pod) -> Held {
        let (result, container) = self.attach(&pod);
        let address = result["ips"][0]["address"].as_str().unwrap();
        let (address, _) = address.split_once('/').unwrap();
        Held {
            address: address.to_owned(),
            container,
            pod,
        }
    }
}

/// An attached Pod.
struct Held {
    pod: Pod,
    container: String,
    address: String,
}

/// libcni has lost its cache, as on a node that was set up anew.
fn forget() {
    match fs::remove_dir_all(CACHE) {
        Err(error) if Path::new(CACHE).exists() => panic!("{CACHE}: {error}"),
        _ => {}
    }
}

/// Standard output of a command that succeeded.
fn said(output: &Output) -> String {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}: {out}{err}", output.status);
    out
}

/// What a command that failed printed.
fn failed(output: &Output) -> String {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(!output.status.success(), "it succeeded: {out}{err}");
    format!("{out}{err}")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn add_check_del(test: &str, version: &str) {
    let cloud = Cloud::start(&LabSpec::for_test(1, 2).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let Some(runtime) = Runtime::new(test, node, version) else {
        return;
    };
    let pod = cloud.pod("a").unwrap();
    let (result, _) = runtime.attach(&pod);
    assert_eq!(result["cniVersion"], version);
    let first = &node.plan.sub_enis[0];
    assert_eq!(result["ips"][0]["address"], format!("{}/24", first.ipv4));
    assert_eq!(
        result["ips"][0]["version"].is_string(),
        version == "0.4.0",
        "{result}"
    );
    assert_eq!(result["interfaces"][0]["mac"], json!(first.mac));
    let link = pod.nic().unwrap().unwrap().link;
    assert_eq!((link.vlan, link.mac), (Some(first.vlan), Some(first.mac)));
    assert_eq!(said(&runtime.cnitool("check", &pod)), "");
    inspect::delete_link(pod.netns(), IFNAME).unwrap();
    let broken = failed(&runtime.cnitool("check", &pod));
    assert!(broken.contains(IFNAME), "{broken}");
    for _ in 0..2 {
        assert_eq!(said(&runtime.cnitool("del", &pod)), "");
        assert_eq!(leaks::find(&cloud, &[&pod]).unwrap(), Vec::<String>::new());
    }
}

#[test]
#[ignore = "vm level"]
fn cnitool_adds_checks_and_deletes_at_0_4_0() {
    add_check_del("cnitool_adds_checks_and_deletes_at_0_4_0", "0.4.0");
}

#[test]
#[ignore = "vm level"]
fn cnitool_adds_checks_and_deletes_at_1_0_0() {
    add_check_del("cnitool_adds_checks_and_deletes_at_1_0_0", "1.0.0");
}

#[test]
#[ignore = "vm level"]
fn cnitool_adds_checks_and_deletes_at_1_1_0() {
    add_check_del("cnitool_adds_checks_and_deletes_at_1_1_0", "1.1.0");
}

#[test]
#[ignore = "vm level"]
fn cnitool_status_tells_whether_pods_can_be_attached() {
    let mut cloud = Cloud::start(&LabSpec::for_test(1, 2).unwrap()).unwrap();
    let pod = cloud.pod("a").unwrap();
    {
        let node = cloud.node(0).unwrap();
        let name = "cnitool_status_tells_whether_pods_can_be_attached";
        let Some(runtime) = Runtime::new(name, node, "1.1.0") else {
            return;
        };
        assert_eq!(said(&runtime.cnitool("status", &pod)), "");
    }
    cloud.nodes[0].kill_agent().unwrap();
    let node = cloud.node(0).unwrap();
    let runtime = Runtime::new("", node, "1.1.0").unwrap();
    let told = failed(&runtime.cnitool("status", &pod));
    assert!(told.contains("no agent listens at"), "{told}");
}

/// A bare container, a Pod that is alive, one that is gone, and one that is gone but whose
/// attachment the runtime still lists.
fn attach_four(cloud: &Cloud, runtime: &Runtime<'_>) -> [Held; 4] {
    let node = runtime.node;
    let bare = cloud.pod("bare").unwrap();
    let [alive, gone, listed] = ["alive", "gone", "listed"].map(|name| {
        let uid = writes::create_pod(node, name).unwrap();
        writes::sandbox(cloud, name, name, &uid).unwrap()
    });
    let held = [bare, alive, gone, listed].map(|pod| runtime.held(pod));
    for name in ["gone", "listed"] {
        writes::delete_pod(node, name).unwrap();
    }
    for pod in &held {
        assert_eq!(runtime.has(pod), (true, true, true), "{}", pod.container);
    }
    held
}

/// DEL for what is left, and nothing stays.
fn end(cloud: &Cloud, runtime: &Runtime<'_>, held: &[Held; 4]) {
    writes::delete_pod(runtime.node, "alive").unwrap();
    for held in held {
        assert_eq!(said(&runtime.cnitool("del", &held.pod)), "");
    }
    let pods = held.each_ref().map(|held| &held.pod);
    assert_eq!(leaks::find(cloud, &pods).unwrap(), Vec::<String>::new());
}

/// libcni first deletes what it has cached and is not listed: a DEL like any other.
#[test]
#[ignore = "vm level"]
fn cnitool_gc_deletes_what_libcni_has_cached() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 6).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let name = "cnitool_gc_deletes_what_libcni_has_cached";
    let Some(runtime) = Runtime::new(name, node, "1.1.0") else {
        return;
    };
    let held = attach_four(&cloud, &runtime);
    let [bare, alive, gone, listed] = &held;
    let valid = format!("{}/{IFNAME}", listed.container);
    assert_eq!(said(&runtime.command("cni-gc", &[NETWORK, &valid], "")), "");
    assert_eq!(runtime.has(bare), (false, false, false));
    assert_eq!(runtime.has(gone), (false, false, false));
    assert_eq!(runtime.has(listed), (true, true, true));
    // Of a Pod that lives a DEL takes the link alone: its next sandbox gets the same address.
    assert_eq!(runtime.has(alive), (true, false, false));
    // cnitool lists nothing as valid, so that libcni deletes all the rest.
    assert_eq!(said(&runtime.cnitool("gc", &listed.pod)), "");
    assert_eq!(runtime.has(listed), (false, false, false));
    let again = runtime.held(writes::sandbox(&cloud, "again", "alive", &uid(node)).unwrap());
    assert_eq!(again.address, alive.address);
    assert_eq!(said(&runtime.cnitool("del", &again.pod)), "");
    end(&cloud, &runtime, &held);
}

/// UID of the Pod that lives.
fn uid(node: &Node) -> String {
    let pod = writes::pod_object(node, "alive").unwrap().unwrap();
    pod["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// What libcni knows nothing of is the plugin's: the verb GC.
#[test]
#[ignore = "vm level"]
fn cnitool_gc_without_a_cache_frees_what_is_not_valid_and_whose_pod_is_gone() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 6).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let name = "cnitool_gc_without_a_cache_frees_what_is_not_valid_and_whose_pod_is_gone";
    let Some(runtime) = Runtime::new(name, node, "1.1.0") else {
        return;
    };
    let held = attach_four(&cloud, &runtime);
    let [bare, alive, gone, listed] = &held;
    forget();
    // Without the key nothing is known to be invalid.
    assert_eq!(said(&runtime.cnitool("gc", &bare.pod)), "");
    for held in &held {
        assert_eq!(runtime.has(held), (true, true, true), "{}", held.container);
    }
    let valid = format!("{}/{IFNAME}", listed.container);
    assert_eq!(said(&runtime.command("cni-gc", &[NETWORK, &valid], "")), "");
    assert_eq!(runtime.has(bare), (false, false, false));
    assert_eq!(runtime.has(gone), (false, false, false));
    assert_eq!(runtime.has(listed), (true, true, true));
    assert_eq!(runtime.has(alive), (true, true, true));
    end(&cloud, &runtime, &held);
}

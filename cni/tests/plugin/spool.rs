//! DEL without an agent (case B20 g).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::fake_agent::{FakeAgent, http};
use crate::runtime::{ARGS, Node};

fn spooled(node: &Node) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(node.path("pending-del"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_del_is_kept_once_and_the_agent_is_asked_when_it_is_back() {
    let node = Node::new();
    for _ in 0..2 {
        node.call("DEL")
            .with("CNI_NETNS", "")
            .run()
            .is_silent_success();
        let path = node.path("pending-del/c-1-eth0.json");
        assert_eq!(spooled(&node), std::slice::from_ref(&path));
        let want = json!({"v": 1, "command": "DEL", "plugin": "spiderpool", "containerID": "c-1",
            "netns": "", "ifname": "eth0", "args": ARGS, "path": "/opt/cni/bin",
            "conf": node.conf(), "budgetMs": 100_000});
        assert_eq!(read(&path), want);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(&node.path("pending-del")), 0o700);
    }
    let agent = FakeAgent::answering(&node.socket(), vec![http(200, r#"{"result":null}"#)]);
    node.call("DEL").run().is_silent_success();
    assert_eq!(agent.asked().body["command"], "DEL");
}

#[test]
fn a_del_waits_for_an_agent_that_is_restarting() {
    let node = Node::new();
    let mut conf = node.conf();
    conf["ipam"]["log_level"] = json!("debug");
    let waiting = node.call("DEL").stdin(&conf).start();
    node.wait_for("the call", |node| node.log().exists());
    let agent = FakeAgent::answering(&node.socket(), vec![http(200, r#"{"result":null}"#)]);
    waiting.end().is_silent_success();
    agent.asked();
    assert!(!node.path("pending-del").exists());
}

#[test]
fn a_folder_that_is_no_folder_means_try_again() {
    let node = Node::new();
    fs::write(node.path("pending-del"), "").unwrap();
    let done = node.call("DEL").run();
    done.is_refused(11, node.path("pending-del").to_str().unwrap());
    let details = done.error()["details"].as_str().unwrap().to_owned();
    assert!(details.contains("no agent listens at"), "{details}");
    fs::remove_file(node.path("pending-del")).unwrap();
    node.call("DEL").run().is_silent_success();
    assert_eq!(spooled(&node).len(), 1);
}

#[test]
fn the_run_folder_may_be_gone_after_a_reboot() {
    let node = Node::new();
    let mut conf = node.conf();
    conf["ipam"]["ipam_unix_socket_path"] = json!(node.path("run/spidernet/agent.sock"));
    node.call("DEL").stdin(&conf).run().is_silent_success();
    let path = node.path("run/spidernet/pending-del/c-1-eth0.json");
    assert_eq!(read(&path)["conf"], conf);
}

#[test]
fn an_agent_that_dies_over_a_del_does_not_hold_the_pod() {
    let node = Node::new();
    let agent = FakeAgent::answering(
        &node.socket(),
        vec![b"HTTP/1.1 200 OK\r\n".to_vec(), vec![]],
    );
    node.call("DEL").run().is_silent_success();
    agent.asked();
    agent.asked();
    assert_eq!(spooled(&node), [node.path("pending-del/c-1-eth0.json")]);
}

#[test]
fn dels_at_once_leave_one_whole_file_each() {
    let node = Node::new();
    let calls: Vec<_> = [("c-1", "eth0"), ("c-1", "net1"), ("c-2", "eth0")]
        .iter()
        .flat_map(|pair| [pair; 4])
        .map(|(id, ifname)| {
            let call = node.call("DEL").with("CNI_CONTAINERID", id);
            call.with("CNI_IFNAME", ifname).start()
        })
        .collect();
    for call in calls {
        call.end().is_silent_success();
    }
    let paths = spooled(&node);
    let want = ["c-1-eth0.json", "c-1-net1.json", "c-2-eth0.json"];
    assert_eq!(paths, want.map(|name| node.path("pending-del").join(name)));
    for path in paths {
        assert_eq!(read(&path)["command"], "DEL");
    }
}

#[test]
fn hostile_names_write_nothing() {
    let node = Node::new();
    for id in ["../../x", "..", "a/../../../x", "/etc/x"] {
        let done = node.call("DEL").with("CNI_CONTAINERID", id).run();
        done.is_refused(4, "CNI_CONTAINERID");
    }
    assert!(!node.path("pending-del").exists());
    // legal for the kernel, awkward in a file name
    let call = node.call("DEL").with("CNI_IFNAME", "a-b\\\"#2d");
    call.run().is_silent_success();
    assert_eq!(
        spooled(&node),
        [node.path("pending-del/c-1-a%2db%5c%22%232d.json")]
    );
}

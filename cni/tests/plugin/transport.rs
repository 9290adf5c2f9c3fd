//! Finding the agent, waiting for it, and answers that are none.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::fake_agent::{FakeAgent, chunked, http};
use crate::runtime::Node;

const RESULT: &str = r#"{"result":{"cniVersion":"1.1.0"}}"#;

#[test]
fn the_first_named_socket_is_asked() {
    let node = Node::new();
    let paths = ["ipam.sock", "top.sock", "env.sock"].map(|name| node.path(name));
    let agents = paths
        .each_ref()
        .map(|path| FakeAgent::answering(path, vec![http(200, RESULT); 2]));
    let [ipam, top, env] = &paths;
    for (keys, asked) in [(json!({"IPAM_unix_socket_PATH": ipam}), 0), (json!({}), 1)] {
        let mut conf = json!({"cniVersion": "1.1.0", "UnixSocketPath": top, "ipam": keys});
        conf["ipam"]["log_file_path"] = json!(node.log());
        let call = node.call("ADD").stdin(&conf);
        let done = call.with("SPIDERPOOL_SOCKET", env.to_str().unwrap()).run();
        assert_eq!(done.exit(), 0);
        agents[asked].asked();
        assert!(agents.iter().all(FakeAgent::is_idle));
    }
    let conf = json!({"cniVersion": "1.1.0", "ipam": {"log_file_path": node.log()}});
    let call = node.call("ADD").stdin(&conf);
    let done = call.with("SPIDERPOOL_SOCKET", env.to_str().unwrap()).run();
    assert_eq!(done.exit(), 0);
    agents[2].asked();
}

#[test]
fn add_waits_for_an_agent_that_is_starting() {
    let node = Node::new();
    let mut conf = node.conf();
    conf["ipam"]["log_level"] = json!("debug");
    let waiting = node.call("ADD").stdin(&conf).start();
    node.wait_for("the call", |node| node.log().exists());
    let agent = FakeAgent::answering(&node.socket(), vec![http(200, RESULT)]);
    let done = waiting.end();
    assert_eq!(
        (done.exit(), done.stdout()),
        (0, r#"{"cniVersion":"1.1.0"}"#)
    );
    agent.asked();
}

#[test]
fn add_waits_behind_a_socket_nobody_listens_at() {
    let node = Node::new();
    // the file of an agent that was killed: connecting is refused
    drop(FakeAgent::answering(&node.socket(), vec![]));
    node.wait_for("the end of the listener", |node| {
        std::os::unix::net::UnixStream::connect(node.socket()).is_err()
    });
    let mut conf = node.conf();
    conf["ipam"]["log_level"] = json!("debug");
    let waiting = node.call("ADD").stdin(&conf).start();
    node.wait_for("the call", |node| node.log().exists());
    std::fs::remove_file(node.socket()).unwrap();
    let _agent = FakeAgent::answering(&node.socket(), vec![http(200, RESULT)]);
    assert_eq!(waiting.end().exit(), 0);
}

#[test]
fn the_other_verbs_do_not_wait() {
    let node = Node::new();
    for (command, code) in [("CHECK", 11), ("GC", 11), ("STATUS", 50)] {
        let started = Instant::now();
        let done = node.call(command).run();
        done.is_refused(code, "no agent listens at");
        done.is_refused(code, node.socket().to_str().unwrap());
        assert!(started.elapsed() < Duration::from_secs(10), "{command}");
    }
}

#[test]
fn chunked_answers_are_read() {
    for size in [1, 7, 4096] {
        let node = Node::new();
        let _agent = FakeAgent::answering(&node.socket(), vec![chunked(RESULT, size)]);
        let done = node.call("ADD").run();
        assert_eq!(
            (done.exit(), done.stdout()),
            (0, r#"{"cniVersion":"1.1.0"}"#)
        );
    }
}

#[test]
fn cut_answers_leave_nothing_half_printed() {
    let whole = http(200, RESULT);
    for cut in [0, 5, 20, whole.len() - 1] {
        let node = Node::new();
        let answers = vec![whole[..cut].to_vec(); 3];
        let agent = FakeAgent::answering(&node.socket(), answers);
        for (command, code) in [("ADD", 11), ("CHECK", 11), ("STATUS", 50)] {
            let done = node.call(command).run();
            done.is_refused(code, "before its answer was complete");
            agent.asked();
        }
        assert!(agent.is_idle(), "ADD asks once");
    }
}

#[test]
fn strangers_and_floods_are_refused() {
    let flood = format!(r#"{{"result":"{}"}}"#, "a".repeat(10 << 20));
    for (answer, part) in [
        (http(200, &flood), "larger than 4194304 bytes"),
        (chunked(&flood, 1 << 20), "larger than 4194304 bytes"),
        (b"SSH-2.0-x\r\n".to_vec(), "does not speak HTTP/1"),
        (http(404, "not found"), "HTTP 404, body \"not found\""),
        (http(500, r#""unknown route""#), "not a JSON object"),
        (http(200, "{}"), "neither result nor error code"),
        (http(200, r#"{"result":{"a":"#), "not a JSON object"),
        (
            http(500, r#"{"code":"x","msg":"m"}"#),
            "a broken error object",
        ),
    ] {
        let node = Node::new();
        let _agent = FakeAgent::answering(&node.socket(), vec![answer.clone(), answer]);
        node.call("ADD").run().is_refused(5, part);
        node.call("STATUS").run().is_refused(50, part);
    }
}

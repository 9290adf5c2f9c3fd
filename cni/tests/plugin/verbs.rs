//! What each verb sends and prints.

use serde_json::{Value, json};

use crate::fake_agent::{FakeAgent, http};
use crate::runtime::{ARGS, Node};

const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

#[test]
fn every_verb_sends_the_call_as_it_came() {
    for command in ["ADD", "DEL", "CHECK"] {
        let node = Node::new();
        let answers = vec![http(200, r#"{"result":{}}"#)];
        let agent = FakeAgent::answering(&node.socket(), answers);
        assert_eq!(node.call(command).run().exit(), 0);
        let asked = agent.asked();
        assert_eq!(asked.head[0], "POST /v1/cni HTTP/1.1");
        let want = json!({"v": 1, "command": command, "plugin": "spiderpool", "containerID": "c-1",
            "netns": "/var/run/netns/web-1", "ifname": "eth0", "args": ARGS,
            "path": "/opt/cni/bin", "conf": node.conf(), "budgetMs": 100_000});
        assert_eq!(asked.body, want);
    }
}

#[test]
fn gc_and_status_need_no_attachment() {
    for (command, budget) in [("GC", 100_000), ("STATUS", 10_000)] {
        let node = Node::new();
        let agent = FakeAgent::answering(&node.socket(), vec![http(200, r#"{"result":null}"#)]);
        let call = node.call(command).without("CNI_CONTAINERID");
        let call = call.without("CNI_NETNS").without("CNI_IFNAME");
        call.run().is_silent_success();
        let body = agent.asked().body;
        assert_eq!(body["command"], command);
        assert_eq!(body["containerID"], "");
        assert_eq!(body["budgetMs"], budget);
    }
}

#[test]
fn the_file_name_chooses_the_plugin() {
    let node = Node::new();
    let agent = FakeAgent::answering(&node.socket(), vec![http(200, r#"{"result":{}}"#)]);
    let call = node.call_of("eni-vlan", "ADD").stdin(node.eni_conf());
    assert_eq!(call.run().exit(), 0);
    let body = agent.asked().body;
    assert_eq!(body["plugin"], "eni-vlan");
    assert_eq!(body["conf"], node.eni_conf());
}

#[test]
fn results_are_printed_byte_for_byte() {
    let result = r#"{ "z":[1.0, 10e2],  "cniVersion" : "1.1.0","a":"ü" }"#;
    let node = Node::new();
    let answer = http(200, &format!(r#"{{"result": {result} }}"#));
    let _agent = FakeAgent::answering(&node.socket(), vec![answer]);
    let done = node.call("ADD").run();
    assert_eq!((done.exit(), done.stdout()), (0, result));
}

#[test]
fn verbs_without_a_result_print_nothing() {
    for command in ["DEL", "CHECK", "GC", "STATUS"] {
        let node = Node::new();
        let _agent = FakeAgent::answering(&node.socket(), vec![http(200, r#"{"result":null}"#)]);
        node.call(command).run().is_silent_success();
    }
    let node = Node::new();
    let _agent = FakeAgent::answering(&node.socket(), vec![http(200, r#"{"result":null}"#)]);
    let done = node.call("ADD").run();
    done.is_refused(5, "ADD was answered without a result");
}

#[test]
fn the_agents_errors_are_printed_as_they_are_whatever_the_status() {
    for code in [
        1, 4, 5, 6, 7, 11, 50, 51, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 999,
    ] {
        for command in ["ADD", "DEL"] {
            let node = Node::new();
            let error =
                format!(r#"{{"msg":"m","code":{code}, "cniVersion":"1.1.0","details":"d"}}"#);
            let status = if code == 105 { 200 } else { 409 };
            let _agent = FakeAgent::answering(&node.socket(), vec![http(status, &error)]);
            let done = node.call(command).run();
            assert_eq!((done.exit(), done.stdout()), (1, error.as_str()));
        }
    }
}

#[test]
fn a_del_needs_no_netns() {
    let node = Node::new();
    let agent = FakeAgent::answering(&node.socket(), vec![http(200, r#"{"result":null}"#); 2]);
    let thin = json!({"cniVersion": "0.3.1", "name": "lab", "type": "x", "ipam": {
        "type": "spiderpool", "ipam_unix_socket_path": node.socket(), "log_file_path": node.log()}});
    for call in [
        node.call("DEL").with("CNI_NETNS", ""),
        node.call("DEL").without("CNI_NETNS").without("CNI_ARGS"),
    ] {
        call.stdin(&thin).run().is_silent_success();
        assert_eq!(agent.asked().body["netns"], "");
    }
}

#[test]
fn version_answers_alone() {
    let node = Node::new();
    for (stdin, version) in [
        ("", "1.1.0"),
        (r#"{"cniVersion":"0.4.0"}"#, "0.4.0"),
        (r#"{"cniVersion":"9.0.0"}"#, "1.1.0"),
        ("{", "1.1.0"),
    ] {
        let done = node.call("VERSION").stdin(stdin).run();
        let want = json!({"cniVersion": version, "supportedVersions": VERSIONS});
        assert_eq!(done.exit(), 0);
        assert_eq!(serde_json::from_str::<Value>(done.stdout()).unwrap(), want);
    }
    let done = node.call("VERSION").stdin(node.conf()).run();
    assert_eq!(done.exit(), 0);
    assert!(!node.log().exists(), "VERSION touches no log");
}

#[test]
fn a_person_gets_version_and_usage() {
    let node = Node::new();
    let ask = |word: &str| node.call("").arg(word);
    let done = ask("--version").run();
    assert_eq!(done.exit(), 0);
    assert!(
        done.stdout()
            .starts_with(concat!("spiderpool-cni ", env!("CARGO_PKG_VERSION")))
    );
    assert_eq!(ask("version").run().stdout(), done.stdout());
    let json = ask("version").arg("--json").run();
    let json: Value = serde_json::from_str(json.stdout()).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert!(json["commit"].is_string());
    assert!(ask("--help").run().stdout().contains("SPIDERPOOL_SOCKET"));
    for call in [ask("--frobnicate"), node.call("").without("CNI_COMMAND")] {
        call.run().is_refused(4, "CNI_COMMAND is not set");
    }
}

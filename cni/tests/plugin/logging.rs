//! The log, and that it never fails a call.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::fake_agent::{FakeAgent, http};
use crate::runtime::Node;

const RESULT: &str = r#"{"result":{}}"#;

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn one_line_a_call_with_the_fields_operators_search_for() {
    let node = Node::new();
    let error = r#"{"cniVersion":"1.1.0","code":103,"msg":"no reply","details":"why"}"#;
    let answers = vec![http(200, RESULT), http(502, error)];
    let _agent = FakeAgent::answering(&node.socket(), answers);
    assert_eq!(node.call("ADD").run().exit(), 0);
    assert_eq!(node.call("ADD").run().exit(), 1);
    let lines = lines(&node.log());
    assert_eq!(lines.len(), 2);
    for line in &lines {
        for (key, want) in [
            ("logger", "spiderpool"),
            ("Action", "ADD"),
            ("ContainerID", "c-1"),
            ("Netns", "/var/run/netns/web-1"),
            ("IfName", "eth0"),
            ("PodName", "web-1"),
            ("PodNamespace", "shop"),
            ("PodUID", "u-1"),
        ] {
            assert_eq!(line[key], want, "{line}");
        }
        let time = line["ts"].as_str().unwrap();
        assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
        assert!(line["caller"].as_str().unwrap().contains("main.rs:"));
        assert!(line["durationMs"].is_u64());
    }
    assert_eq!(lines[0]["level"], "INFO");
    let failed = &lines[1];
    assert_eq!(failed["level"], "ERROR");
    assert_eq!(failed["msg"], "no reply");
    assert_eq!(
        (&failed["code"], &failed["details"]),
        (&json!(103), &json!("why"))
    );
}

#[test]
fn levels_choose_the_lines() {
    for (level, count) in [("debug", 2), ("INFO", 1), ("warn", 0), ("panic", 0)] {
        let node = Node::new();
        let _agent = FakeAgent::answering(&node.socket(), vec![http(200, RESULT)]);
        let mut conf = node.eni_conf();
        conf["logOptions"]["LogLevel"] = json!(level);
        let done = node.call_of("eni-vlan", "ADD").stdin(&conf).run();
        assert_eq!(done.exit(), 0);
        match count {
            0 => assert!(!node.log().exists()),
            _ => assert_eq!(lines(&node.log()).len(), count),
        }
    }
}

#[test]
fn a_log_that_cannot_be_written_fails_nothing() {
    let node = Node::new();
    fs::write(node.path("file"), "").unwrap();
    for path in [
        "/dev/full".into(),
        node.path("file/below.log"),
        node.path("."),
        node.path("made/for/it.log"),
    ] {
        let socket = node.socket();
        fs::remove_file(&socket).ok();
        let _agent = FakeAgent::answering(&socket, vec![http(200, RESULT)]);
        let mut conf = node.conf();
        conf["ipam"]["log_file_path"] = json!(path);
        let done = node.call("ADD").stdin(&conf).run();
        assert_eq!(
            (done.exit(), done.stdout()),
            (0, "{}"),
            "{}",
            path.display()
        );
    }
    assert_eq!(lines(&node.path("made/for/it.log")).len(), 1);
}

#[test]
fn a_reader_that_is_gone_is_a_failure_without_a_panic() {
    let node = Node::new();
    let _agent = FakeAgent::answering(&node.socket(), vec![http(200, RESULT)]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let done = node.call("ADD").stdout(writer).end();
    assert_eq!(done.exit(), 1, "the runtime has no result");
    let lines = lines(&node.log());
    assert!(
        lines[0]["msg"]
            .as_str()
            .unwrap()
            .contains("could not be printed")
    );
}

#[test]
fn two_processes_rotate_without_losing_a_line() {
    const CALLS: usize = 24;
    let node = Node::new();
    let mut conf = node.conf();
    conf["ipam"]["log_file_max_size"] = json!(1);
    // full but for a few lines: the calls below must rotate it
    let filler = format!("{}\n", json!({"msg": "f".repeat(1 << 10)}));
    let mut file = File::create(node.log()).unwrap();
    let filled = (1 << 20) / filler.len() - 1;
    for _ in 0..filled {
        file.write_all(filler.as_bytes()).unwrap();
    }
    let _agent = FakeAgent::answering(&node.socket(), vec![http(200, RESULT); CALLS]);
    for _ in 0..CALLS / 2 {
        let pair = [(); 2].map(|()| node.call("ADD").stdin(&conf).start());
        for call in pair {
            assert_eq!(call.end().exit(), 0);
        }
    }
    let mut files = 0;
    let mut found = 0;
    for entry in fs::read_dir(node.path(".")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            files += 1;
            found += lines(&path).len();
        }
    }
    assert_eq!((files, found), (2, filled + CALLS));
}

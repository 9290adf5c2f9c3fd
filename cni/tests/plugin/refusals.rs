//! Calls that are refused before anybody is asked. No agent listens in these tests: a code
//! other than the expected one shows that one was asked.

use serde_json::json;

use crate::runtime::Node;

#[test]
fn the_environment_is_checked_per_verb() {
    let node = Node::new();
    for (command, name) in [
        ("ADD", "CNI_CONTAINERID"),
        ("ADD", "CNI_NETNS"),
        ("ADD", "CNI_IFNAME"),
        ("CHECK", "CNI_CONTAINERID"),
        ("CHECK", "CNI_NETNS"),
        ("CHECK", "CNI_IFNAME"),
        ("DEL", "CNI_CONTAINERID"),
        ("DEL", "CNI_IFNAME"),
    ] {
        let text = format!("{name} is not set, and {command} needs it");
        node.call(command).without(name).run().is_refused(4, &text);
        node.call(command).with(name, "").run().is_refused(4, &text);
    }
}

#[test]
fn wrong_values_are_named() {
    let node = Node::new();
    for (name, value) in [
        ("CNI_CONTAINERID", "../../x"),
        ("CNI_CONTAINERID", "-c"),
        ("CNI_CONTAINERID", "a b"),
        ("CNI_IFNAME", "a/b"),
        ("CNI_IFNAME", ".."),
        ("CNI_IFNAME", "sixteen-chars-xx"),
    ] {
        for command in ["ADD", "DEL", "CHECK"] {
            let done = node.call(command).with(name, value).run();
            done.is_refused(4, name);
            done.is_refused(4, value);
        }
    }
    node.call("add").run().is_refused(4, "CNI_COMMAND \"add\"");
    let done = node.call_of("vlan", "ADD").run();
    done.is_refused(4, "\"vlan\"");
    done.is_refused(4, "spiderpool or eni-vlan");
    let done = node.call_of("vlan", "VERSION").run();
    done.is_refused(4, "spiderpool or eni-vlan");
}

#[test]
fn bad_configurations_have_the_codes_of_the_specification() {
    let node = Node::new();
    let versioned = |version: &str| json!({"cniVersion": version}).to_string();
    for (command, stdin, code, part) in [
        ("ADD", String::new(), 6, "standard input is empty"),
        ("ADD", "{\n\"a\": x}".into(), 6, "line 2 column 6"),
        ("DEL", "{".into(), 6, "line 1 column 1"),
        ("ADD", "[]".into(), 6, "not a JSON object"),
        ("ADD", "{}".into(), 1, "no cniVersion"),
        (
            "ADD",
            versioned("0.2.0"),
            1,
            "0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0",
        ),
        (
            "CHECK",
            versioned("0.3.1"),
            1,
            "CHECK needs cniVersion 0.4.0",
        ),
        ("GC", versioned("1.0.0"), 1, "GC needs cniVersion 1.1.0"),
        (
            "STATUS",
            versioned("1.0.0"),
            1,
            "STATUS needs cniVersion 1.1.0",
        ),
    ] {
        node.call(command).stdin(stdin).run().is_refused(code, part);
    }
    let mut conf = node.conf();
    conf["ipam"]["ipam_unix_socket_path"] = json!(7);
    let done = node.call("ADD").stdin(&conf).run();
    done.is_refused(6, "ipam.ipam_unix_socket_path: expected a string, found 7");
    conf["ipam"]["ipam_unix_socket_path"] = json!("agent.sock");
    let done = node.call("ADD").stdin(&conf).run();
    done.is_refused(7, "ipam.ipam_unix_socket_path: \"agent.sock\"");
}

#[test]
fn errors_have_the_callers_version_when_it_is_known() {
    let node = Node::new();
    let old = json!({"cniVersion": "0.3.1", "ipam": {"log_file_path": node.log()}});
    for (call, version) in [
        (node.call("ADD").without("CNI_NETNS").stdin(&old), "0.3.1"),
        (node.call("CHECK").stdin(&old), "0.3.1"),
        (node.call("FROB").stdin(&old), "0.3.1"),
        (node.call_of("vlan", "ADD").stdin(&old), "0.3.1"),
        (node.call("ADD").stdin(r#"{"cniVersion":"0.2.0"}"#), "1.1.0"),
        (node.call("ADD").stdin("{"), "1.1.0"),
    ] {
        assert_eq!(call.run().error()["cniVersion"], version);
    }
}

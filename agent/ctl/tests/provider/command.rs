//! The command line, TLS, and a run that ends before its end.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use provider_sim::contract;
use provider_sim::tls::Tls;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;

use crate::breakage::whole;
use crate::rig::{Report, ctl, rig, settings};

/// What the command says on standard error when it cannot be run.
async fn refused(words: &[&str]) -> String {
    let output = ctl(&["provider", "verify"])
        .args(words)
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_run_ends_with_2_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.yaml");
    std::fs::write(&file, "parents: []\npools: []\n").unwrap();
    let file = file.to_str().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let nobody = format!("http://{free}");
    std::fs::write(dir.path().join("g.yaml"), crate::rig::TOPOLOGY).unwrap();
    let good = dir.path().join("g.yaml");
    let good = good.to_str().unwrap();
    for (words, part) in [
        (vec![], "<URL>"),
        (
            vec!["ftp://x", "--topology", good],
            "neither http nor https",
        ),
        (vec!["https://x", "--topology", good], "--ca FILE is needed"),
        (
            vec!["https://x", "--ca", "/nowhere", "--topology", good],
            "/nowhere",
        ),
        (vec!["http://x"], "--topology"),
        (
            vec!["http://x", "--topology", "/nowhere"],
            "cannot read /nowhere",
        ),
        (vec!["http://x", "--topology", file], "none of the pools"),
        (
            vec!["http://x", "--topology", good, "--pool", "g"],
            "cannot be used with",
        ),
        (
            vec!["http://x", "--topology", good, "--only", "nothing"],
            "no check or group \"nothing\"",
        ),
        (
            vec!["http://x", "--topology", good, "--node", "n1=zz"],
            "six hexadecimal octets",
        ),
        (
            vec![&nobody, "--topology", good],
            "cannot connect to provider",
        ),
    ] {
        let text = refused(&words).await;
        assert!(text.contains(part), "{words:?}: {text}");
    }
}

/// Before anything is sent: nobody listens there.
#[tokio::test]
async fn a_topology_that_cannot_be_is_not_driven() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = file("t.yaml", crate::rig::TOPOLOGY);
    let one_nic = "n1=fa:16:3e:01:00:01,n2=fa:16:3e:01:00:01";
    let text = crate::rig::TOPOLOGY.replace("[10.72.0.10-10.72.0.19]", "[11.0.0.9]");
    let unfit = file("u.yaml", &text);
    for (words, part) in [
        (
            vec!["http://127.0.0.1:1", "--topology", &unfit],
            "u.yaml cannot be used: pool g: 11.0.0.9 is not in its subnet 10.72.0.0/24",
        ),
        (
            vec!["http://127.0.0.1:1", "--topology", &good, "--node", "n7"],
            "t.yaml cannot be used: it has no parent NIC of node n7",
        ),
        (
            vec!["http://127.0.0.1:1", "--topology", &good, "--node", "n1,n1"],
            "--node names n1 twice",
        ),
        (
            vec!["http://127.0.0.1:1", "--topology", &good, "--node", one_nic],
            "--node gives n1 and n2 the same parent NIC fa:16:3e:01:00:01",
        ),
        (
            vec!["http://x", "--node", "n1=01:00:5e:00:00:01"],
            "no NIC has the MAC 01:00:5e:00:00:01",
        ),
        (
            vec!["http://x", "--v1", "--only", "pair"],
            "no check of those is one of contract version 1",
        ),
        (
            vec!["http://u:geheim@127.0.0.1:1", "--topology", &good],
            "\"http://***@127.0.0.1:1\" is not like https://host:port: it has a user name",
        ),
    ] {
        let text = refused(&words).await;
        assert!(text.contains(part) && !text.contains("geheim"), "{text}");
    }
}

#[tokio::test]
async fn the_checks_are_listed_without_a_provider() {
    let output = ctl(&["provider", "verify", "--list"])
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(
        text.contains("\nanswer.vlan ") && text.contains("\nrelease.prewarm "),
        "{text}"
    );
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("CHECK ") && lines.len() > 50, "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_gets_a_line_a_check_and_the_reasons() {
    let rig = rig(settings(), whole).await;
    rig.faults(json!([{ "op": "allocate", "kind": "vlan-range" }]));
    let output = rig
        .command(&["--only", "allocate.repeat,answer.vlan,header.zero"])
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in [
        "\nfail     answer.vlan      allocate 10.72.0.19 on n1",
        "\nskipped  allocate.repeat",
        "\npass     header.zero      allocate 10.72.0.19 on n1, budget \"0\"",
        "VLAN 70000",
        "VLAN id 70000 is not in 1-4094",
        "clause: SubEniResponse.vlanId of docs/iaas-provider.openapi.yaml; docs/provider.md, \"Answers\"",
        "1 passed, 1 failed, 0 advice, 1 skipped",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "no colours in a file: {text}");
    let progress = String::from_utf8(output.stderr).unwrap();
    assert_eq!(progress.lines().count(), 3, "{progress}");
    assert!(
        progress.starts_with("[1/3] allocate.repeat skipped\n"),
        "{progress}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_certificate_is_verified_by_the_ca_that_is_named() {
    let rig = rig(settings(), whole).await;
    let dir = tempfile::tempdir().unwrap();
    let (ca, other) = (dir.path().join("ca.crt"), dir.path().join("other.crt"));
    let name = "iaas-network-provider.iaas-network-provider-system.svc";
    let start = |ca: &Path| Tls::start(vec![name.to_owned()], Some(ca.to_owned()), None);
    let tls = Arc::new(start(&ca).await.unwrap());
    start(&other).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(tls.serve(listener, contract::router(Arc::clone(&rig.service))));
    let verify = async |words: &[&str]| {
        let mut command = ctl(&[
            "provider",
            "verify",
            &url,
            "--only",
            "tls,allocate.create",
            "-o",
            "json",
        ]);
        command
            .arg("--topology")
            .arg(rig.dir.path().join("t.yaml"))
            .args(words);
        Report::of(&command.output().await.unwrap())
    };
    let (ca, other) = (ca.to_str().unwrap(), other.to_str().unwrap());
    let report = verify(&["--ca", ca, "--server-name", name]).await;
    assert_eq!(
        report.having("pass"),
        ["allocate.create", "tls.verified"].into()
    );
    for wrong in [vec!["--ca", other, "--server-name", name], vec!["--ca", ca]] {
        let report = verify(&wrong).await;
        report.fails_exactly(&["tls.verified"], &wrong.join(" "));
        assert!(report.why("allocate.create").contains("see tls.verified"));
    }
    let report = verify(&["--insecure-skip-verify"]).await;
    assert!(report.why("tls.verified").contains("asked not to"));
    assert_eq!(report.having("skipped"), ["tls.verified"].into());
    server.abort();
}

/// Ctrl-C in the middle of a call: what was bound is given back all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_run_gives_back_what_it_bound() {
    let rig = rig(settings(), whole).await;
    rig.faults(
        json!([{ "op": "allocate", "match": { "ip": "10.72.0.18" }, "kind": "late-success" }]),
    );
    let mut command = rig.command(&["--only", "allocate.create,allocate.two-items"]);
    let mut child = command
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert_eq!(
        lines.next_line().await.unwrap().unwrap(),
        "[1/2] allocate.create pass"
    );
    let bound = |ip: &str| {
        let ip = ip.parse().unwrap();
        rig.service.with(|world| world.memory.find(ip).is_some())
    };
    while !bound("10.72.0.18") {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap());
    kill(pid, Signal::SIGINT).unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("1 passed, 0 failed, 0 advice, 0 skipped, interrupted"),
        "{text}"
    );
    assert!(!text.contains("left behind"), "{text}");
    rig.is_clean().await;
}

/// A provider that dies is told as the fault of the check that met it, and as what is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_dies_fails_one_check() {
    let dying: crate::rig::Wrap = |router, _| {
        use axum::extract::Request;
        use axum::middleware::{Next, from_fn};
        router.layer(from_fn(async |request: Request, next: Next| {
            if request
                .headers()
                .get("X-Request-Timeout-Ms")
                .is_some_and(|value| value == "0")
            {
                // as a panic of the whole process: nothing is answered, nobody listens
                std::future::pending::<()>().await;
            }
            next.run(request).await
        }))
    };
    let rig = rig(settings(), dying).await;
    let report = rig.verify(&["--timeout", "1", "--only", "header"]).await;
    report.fails_exactly(&["header.zero"], "no answer to one call");
    assert!(report.why("header.zero").contains("no answer within"));
}

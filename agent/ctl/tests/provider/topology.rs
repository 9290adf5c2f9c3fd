//! Without a cluster: the simulator's own file says what is there.

use serde_json::json;

use crate::breakage::whole;
use crate::rig::{rig, settings};

/// What cannot be seen without a cluster, or without TLS.
const UNSEEN: &[&str] = &[
    "allocate.late",
    "publish.claims",
    "publish.counters",
    "publish.entries",
    "publish.generation",
    "publish.global-entry",
    "publish.pair-entry",
    "publish.scope",
    "publish.sibling",
    "publish.skeleton",
    "release.prewarm",
    "tls.verified",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_keeps_the_contract_passes() {
    let rig = rig(settings(), whole).await;
    rig.service.prewarm().await;
    let report = rig.verify(&[]).await;
    report.fails_exactly(&[], "the simulator as it is");
    assert_eq!(report.having("advice"), [].into());
    assert_eq!(report.having("skipped"), UNSEEN.iter().copied().collect());
    assert_eq!(report.json["left"], json!([]));
    rig.is_clean().await;
}

/// Each fault of an answer breaks its rule alone: the other checks go on or say which to see.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_answer_fails_its_rule_and_no_other() {
    for (kind, failed) in [
        ("bad-json", "answer.json"),
        ("extra-ip", "answer.unknown"),
        ("missing-ip", "answer.missing"),
        ("duplicate", "answer.duplicate"),
        ("wrong-v6", "answer.ipv6"),
        ("wrong-pool", "answer.pool"),
        ("vlan-zero", "answer.binding"),
        ("vlan-range", "answer.vlan"),
    ] {
        let rig = rig(settings(), whole).await;
        rig.faults(json!([{ "op": "allocate", "kind": kind }]));
        let report = rig.verify(&[]).await;
        report.fails_exactly(&[failed], kind);
        rig.is_clean().await;
    }
}

/// The same provider, asked in the words of version 1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_1_is_tested_by_what_it_has_in_common() {
    let mut both = settings();
    both.accept_v1 = true;
    for (kind, failed) in [
        ("", None),
        ("bad-json", Some("answer.json")),
        ("missing-ip", Some("answer.missing")),
        ("vlan-range", Some("answer.vlan")),
        ("vlan-zero", Some("answer.binding")),
    ] {
        let rig = rig(both.clone(), whole).await;
        if !kind.is_empty() {
            rig.faults(json!([{ "op": "allocate", "kind": kind }]));
        }
        let report = rig.verify(&["--v1"]).await;
        report.fails_exactly(failed.as_slice(), kind);
        let sent = &report.json["checks"][1]["exchanges"][0]["body"];
        assert!(
            sent.as_str().unwrap().contains("iaasIPsAllocationRequest"),
            "{sent}"
        );
        rig.is_clean().await;
    }
    let second = rig(settings(), whole).await;
    let report = second.verify(&["--v1", "--only", "allocate,answer"]).await;
    report.fails_exactly(&["allocate.create"], "version 1 is not served");
}

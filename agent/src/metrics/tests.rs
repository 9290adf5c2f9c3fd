//! Every name, with its type, labels and bounds, as the specification has them.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use spiderpool_api::observer_v1::ObserverReport;
use spiderpool_iaas::error::{CallError, Op};
use spiderpool_ipam::pick::{Path, PickError};
use spiderpool_ipam::pool::{NotReady, Pool, PoolMeta};

use super::*;
use crate::nic::{Family, PreflightReport, PreflightResult};
use crate::writer::WriteError;

/// Families of spec ipam 8, iaas 14 and dataplane 5.6, with the type. Not the agent's, and so not
/// here: `ip_gc_*`, `total_*_counts`, `debug_ippool_*`, `debug_subnet_*` (controller), and
/// `debug_auto_pool_waited_for_available_counts` (comes with automatic pools).
const FAMILIES: &[&str] = &[
    "spiderpool_ipam_allocation_counts counter",
    "spiderpool_ipam_allocation_failure_counts counter",
    "spiderpool_ipam_allocation_update_ippool_conflict_counts counter",
    "spiderpool_ipam_allocation_err_internal_counts counter",
    "spiderpool_ipam_allocation_err_no_available_pool_counts counter",
    "spiderpool_ipam_allocation_err_retries_exhausted_counts counter",
    "spiderpool_ipam_allocation_err_ip_used_out_counts counter",
    "spiderpool_ipam_allocation_err_wrong_input_counts counter",
    "spiderpool_ipam_allocation_average_duration_seconds gauge",
    "spiderpool_ipam_allocation_max_duration_seconds gauge",
    "spiderpool_ipam_allocation_min_duration_seconds gauge",
    "spiderpool_ipam_allocation_latest_duration_seconds gauge",
    "spiderpool_ipam_allocation_duration_seconds histogram",
    "spiderpool_ipam_allocation_average_limit_duration_seconds gauge",
    "spiderpool_ipam_allocation_max_limit_duration_seconds gauge",
    "spiderpool_ipam_allocation_min_limit_duration_seconds gauge",
    "spiderpool_ipam_allocation_latest_limit_duration_seconds gauge",
    "spiderpool_ipam_allocation_limit_duration_seconds histogram",
    "spiderpool_ipam_release_counts counter",
    "spiderpool_ipam_release_failure_counts counter",
    "spiderpool_ipam_release_update_ippool_conflict_counts counter",
    "spiderpool_ipam_release_err_internal_counts counter",
    "spiderpool_ipam_release_err_retries_exhausted_counts counter",
    "spiderpool_ipam_release_average_duration_seconds gauge",
    "spiderpool_ipam_release_max_duration_seconds gauge",
    "spiderpool_ipam_release_min_duration_seconds gauge",
    "spiderpool_ipam_release_latest_duration_seconds gauge",
    "spiderpool_ipam_release_duration_seconds histogram",
    "spiderpool_ipam_release_average_limit_duration_seconds gauge",
    "spiderpool_ipam_release_max_limit_duration_seconds gauge",
    "spiderpool_ipam_release_min_limit_duration_seconds gauge",
    "spiderpool_ipam_release_latest_limit_duration_seconds gauge",
    "spiderpool_ipam_release_limit_duration_seconds histogram",
    "spiderpool_iaas_allocation counter",
    "spiderpool_iaas_allocation_failure counter",
    "spiderpool_iaas_allocation_duration_seconds histogram",
    "spiderpool_iaas_rpc_duration_seconds histogram",
    "spiderpool_iaas_rpc_failure counter",
    "spiderpool_iaas_claim_rollback counter",
    "spiderpool_iaas_metadata_decode_failure counter",
    "spiderpool_subeni_info gauge",
    "spiderpool_subeni_rx_packets counter",
    "spiderpool_subeni_rx_bytes counter",
    "spiderpool_subeni_tx_packets counter",
    "spiderpool_subeni_tx_bytes counter",
    "spiderpool_subeni_drops counter",
    "spiderpool_subeni_mismatch counter",
    "spiderpool_subeni_neighbor counter",
    "spiderpool_subeni_unknown_vlan_packets counter",
    "spiderpool_subeni_untagged_packets counter",
    "spiderpool_subeni_preflight counter",
    "spiderpool_subeni_preflight_duration_seconds histogram",
    "spiderpool_subeni_observer_up gauge",
    "spiderpool_subeni_observer_mode gauge",
    "spiderpool_subeni_events_lost counter",
    "spiderpool_subeni_map_entries gauge",
    "spiderpool_subeni_map_max_entries gauge",
];

fn pool() -> Pool {
    let mut meta = PoolMeta {
        name: "p4".into(),
        ..PoolMeta::default()
    };
    let mark = (
        spiderpool_api::names::IAAS_PROVIDER.to_owned(),
        "lab".to_owned(),
    );
    meta.annotations.extend([mark]);
    let spec = serde_json::from_value(json!({"subnet": "10.0.0.0/24"})).unwrap();
    Pool::from_parts(&meta, &spec, &Default::default()).unwrap()
}

fn report() -> ObserverReport {
    let counters = json!({"rx_frames": 1, "rx_packets": 2, "rx_bytes": 3,
        "tx_frames": 4, "tx_packets": 5, "tx_bytes": 6});
    let mut web = json!({"nic": "eth1", "vlan": 2014, "mac": "fa:16:3e:aa:00:10",
        "ipv4": "172.91.0.100", "ipv6": null, "interface": "net1", "pod_namespace": "default",
        "pod_name": "web-0", "pool": "p1", "state": "active", "drops": 9,
        "dropped": {"rx": {"device": 9}, "tx": {"device": 0}},
        "mismatch": {"src_ip4": 12}, "neighbor": {"rx": {"arp_reply": 7}}});
    let fields = counters.as_object().unwrap().clone();
    web.as_object_mut().unwrap().extend(fields);
    let unknown = |vlan: u16| {
        json!({"nic": "eth1", "vlan": vlan, "direction": "rx", "packets": 3,
            "bytes": 180, "last_mac": "fa:16:3e:aa:00:99", "last_seconds_ago": 1.5})
    };
    let nics = json!([{"nic": "eth1", "ifindex": 7, "attach": "tcx", "untagged": counters,
        "tagged": counters}]);
    let report = json!({"nics": nics, "subeni": [web], "unknown": [unknown(8), unknown(9)],
        "events_lost": 4});
    serde_json::from_value(report).unwrap()
}

/// Everything has happened once.
fn busy() -> Metrics {
    let metrics = Metrics::new();
    let pool = pool();
    let iaas = &metrics.iaas;
    iaas.allocated(&pool, Path::CacheHit, Duration::from_millis(200));
    let not_ready = WriteError::Pick(PickError::NotReady(NotReady {
        reason: Some("bad_json"),
        text: String::new(),
    }));
    iaas.refused(&pool, false, &not_ready);
    iaas.undecodable("bad_json");
    let op = Op::Release;
    let error = CallError::ParentExpired { op, sent: true };
    iaas.calls.called(op, Duration::from_secs(2), Some(&error));
    let reports = [PreflightReport {
        family: Family::V4,
        result: PreflightResult::Ok,
        attempts: 1,
        duration: Duration::from_millis(2),
    }];
    metrics.preflight.passed(&"eth1".parse().unwrap(), &reports);
    metrics
}

#[test]
fn all_names_are_those_of_the_specification() {
    let text = busy().text(&report()).unwrap();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut have: BTreeSet<&str> = types.collect();
    assert!(have.remove("target info"));
    let want: BTreeSet<&str> = FAMILIES.iter().copied().collect();
    let none = Vec::<&&str>::new();
    assert_eq!(have.difference(&want).collect::<Vec<_>>(), none);
    assert_eq!(want.difference(&have).collect::<Vec<_>>(), none);
    assert!(text.contains("target_info{service_name=\"spiderpool.spidernet.io\"} 1\n"));
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn bounds_are_upstreams() {
    let text = Metrics::new().text(&ObserverReport::default()).unwrap();
    let bucket = "spiderpool_ipam_release_limit_duration_seconds_bucket";
    let lines = text.lines().filter(|line| line.starts_with(bucket));
    let bounds: Vec<&str> = lines
        .filter_map(|line| line.split("le=\"").nth(1)?.split('"').next())
        .collect();
    assert_eq!(
        bounds.join(" "),
        "0.1 0.3 0.5 1.0 3.0 5.0 7.0 10.0 15.0 +Inf"
    );
}

#[test]
fn sub_enis_are_shown_with_their_pods_and_end_with_them() {
    let metrics = busy();
    let scope = format!(
        r#"otel_scope_name="spiderpool-agent",otel_scope_version="{}","#,
        env!("CARGO_PKG_VERSION")
    );
    let text = metrics.text(&report()).unwrap().replace(&scope, "");
    let web = r#"nic="eth1",vlan="2014",interface="net1",pod_namespace="default",pod_name="web-0""#;
    for line in [
        format!(
            r#"spiderpool_subeni_info{{{web},mac="fa:16:3e:aa:00:10",ipv4="172.91.0.100",ipv6="",pool="p1",state="active"}} 1"#
        ),
        format!("spiderpool_subeni_rx_packets_total{{{web}}} 2"),
        format!("spiderpool_subeni_rx_bytes_total{{{web}}} 3"),
        format!("spiderpool_subeni_tx_packets_total{{{web}}} 5"),
        format!("spiderpool_subeni_tx_bytes_total{{{web}}} 6"),
        format!(r#"spiderpool_subeni_drops_total{{{web},direction="rx",reason="device"}} 9"#),
        format!(r#"spiderpool_subeni_drops_total{{{web},direction="tx",reason="device"}} 0"#),
        format!(r#"spiderpool_subeni_mismatch_total{{{web},direction="tx",kind="src_ip4"}} 12"#),
        format!(r#"spiderpool_subeni_neighbor_total{{{web},direction="rx",type="arp_reply"}} 7"#),
        r#"spiderpool_subeni_unknown_vlan_packets_total{nic="eth1",direction="rx"} 6"#.to_owned(),
        r#"spiderpool_subeni_untagged_packets_total{nic="eth1",direction="tx"} 5"#.to_owned(),
        r#"spiderpool_subeni_observer_up{nic="eth1",attach="tcx"} 1"#.to_owned(),
        r#"spiderpool_subeni_observer_mode{mode="monitor"} 1"#.to_owned(),
        r#"spiderpool_subeni_map_max_entries{map="SUBENI"} 4096"#.to_owned(),
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is not in\n{text}"
        );
    }
    assert!(text.contains("\nspiderpool_subeni_events_lost_total{"));
    let after = metrics.text(&ObserverReport::default()).unwrap();
    assert!(!after.contains("web-0"));
}

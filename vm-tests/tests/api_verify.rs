//! `spiderpoolctl provider verify` as whoever writes a provider runs it: against a provider that
//! follows and publishes to a real kube-apiserver.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test states what must hold by them, in its shared code too"
)]

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use vm_tests::control_plane::ControlPlane;
use vm_tests::lab::api_client::{ApiClient, POOLS, records};
use vm_tests::lab::process::{Daemon, DaemonSpec, HERE, Lifetime};
use vm_tests::lab::wait;

const SOON: Duration = Duration::from_secs(30);

const TOPOLOGY: &str = r#"
parents:
  - {node: n1, mac: "fa:16:3e:01:00:01", ifname: p1}
  - {node: n2, mac: "fa:16:3e:01:00:02", ifname: p2}
subnets:
  - {ipv4: 10.72.0.0/24, ipv6: "fd72::/64", gatewayIpv4: 10.72.0.1, gatewayMac: "fa:16:3e:ff:ff:fe"}
gateway: {ifname: gw0}
"#;

/// A cloud that takes milliseconds.
const SETTINGS: &str = "{rate: {qps: 1000, burst: 1000}, flushMs: 5, releasePolicy: recycle, latency: {createMs: 2, attachMs: 2, detachMs: 2, deleteMs: 2}}";

fn make_pools(api: &ApiClient) {
    let make = |name: &str, annotations: Value, spec: Value| {
        let mut all = json!({ "ipam.spidernet.io/iaas-provider": "sim" });
        let more = annotations.as_object().unwrap().clone();
        all.as_object_mut().unwrap().extend(more);
        let pool = json!({ "apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
            "metadata": { "name": name, "annotations": all }, "spec": spec });
        api.create(POOLS, &pool).unwrap();
    };
    let v4 = |ips: &str| json!({ "ipVersion": 4, "subnet": "10.72.0.0/24", "ips": [ips] });
    let pair = |other: &str| json!({ "ipam.spidernet.io/pair-pool": other });
    let v6 = json!({ "ipVersion": 6, "subnet": "fd72::/64", "ips": ["fd72::20-fd72::24"] });
    make("g", json!({}), v4("10.72.0.10-10.72.0.19"));
    make("p4", pair("p6"), v4("10.72.0.20-10.72.0.24"));
    make("p6", pair("p4"), v6);
    let mut warm = v4("10.72.0.30-10.72.0.33");
    warm["nodeName"] = json!(["n1"]);
    make("w", json!({ "ipam.spidernet.io/parent-nic": "eth1" }), warm);
    let parent = json!({ "name": "eth1", "mac": "fa:16:3e:01:00:01" });
    let patch = json!({ "status": { "parentNic": parent } });
    api.merge(&format!("{POOLS}/w/status"), &patch).unwrap();
}

/// Free until somebody takes it.
fn free() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap()
}

fn provider(bin_dir: &Path, dir: &Path, kubeconfig: &Path, listen: SocketAddr) -> Daemon {
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let mut argv: Vec<OsString> = vec!["provider-sim".into(), "serve".into()];
    let flags: [(&str, PathBuf); 4] = [
        ("--topology", file("t.yaml", TOPOLOGY)),
        ("--settings", file("s.yaml", SETTINGS)),
        ("--kubeconfig", kubeconfig.to_owned()),
        ("--tls-ca-file", dir.join("ca.crt")),
    ];
    for (flag, value) in flags {
        argv.extend([flag.into(), value.into()]);
    }
    for (flag, value) in [
        ("--tls-listen", listen.to_string()),
        ("--listen", free().to_string()),
        ("--admin", free().to_string()),
    ] {
        argv.extend([flag.into(), value.into()]);
    }
    let spec = DaemonSpec {
        name: "the provider",
        bin_dir,
        netns: Path::new(HERE),
        argv,
        env: &[],
        log_path: dir.join("provider.log"),
        lifetime: Lifetime::Lab,
    };
    Daemon::start(&spec).unwrap()
}

#[test]
#[ignore = "api level"]
fn the_simulator_passes_everything_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let (plane, bin_dir) = ControlPlane::for_test(dir.path()).unwrap();
    let api = plane.api().unwrap();
    make_pools(&api);
    let listen = free();
    let mut provider = provider(&bin_dir, dir.path(), &plane.kubeconfig(), listen);
    let ready = wait::until(SOON, "a prewarmed pool", || {
        provider.still_runs()?;
        let ready = &api.pool("w")?["status"]["ipMetaData"]["readyIPCount"];
        Ok((*ready == 4).then_some(()))
    });
    assert!(ready.is_ok(), "{ready:?}\n{}", provider.log_tail());
    let url = format!("https://localhost:{}", listen.port());
    let output = Command::new(bin_dir.join("spiderpoolctl"))
        .args(["provider", "verify", &url, "-o", "json", "--pool", "g,p4,w"])
        .args(["--node", "n1=fa:16:3e:01:00:01,n2=fa:16:3e:01:00:02"])
        .arg("--ca")
        .arg(dir.path().join("ca.crt"))
        .arg("--kubeconfig")
        .arg(plane.kubeconfig())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let checks = report["checks"].as_array().into_iter().flatten();
    let amiss = checks.filter(|check| check["verdict"] != "pass");
    let amiss: Vec<String> = amiss
        .map(|check| format!("{} {}: {}", check["verdict"], check["check"], check["why"]))
        .collect();
    let advice = amiss.len() == 1 && amiss[0].starts_with("\"advice\" \"allocate.late\"");
    assert!(output.status.success(), "{amiss:#?}\n{stderr}");
    assert!(amiss.is_empty() || advice, "{amiss:#?}");
    assert_eq!(report["left"], json!([]));
    for pool in ["g", "p4", "p6", "w"] {
        let records = records(&api.pool(pool).unwrap()).unwrap();
        assert_eq!(records, json!({}), "{pool}");
    }
}

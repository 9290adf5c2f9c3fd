//! SpiderMultusConfigs of users, as they stand in articles and guides.

use serde_json::Value;

use crate::rig::{OURS, Rig};

const FILES: [&str; 3] = [
    include_str!("../../../crates/api/testdata/manifests/generation-2.yaml"),
    include_str!("../../../crates/api/testdata/manifests/master-nic.yaml"),
    include_str!("../../../crates/api/testdata/manifests/multi-nic.yaml"),
];

/// Of each configuration, what its network attachment must have, in this order.
const ATTACHMENTS: [(&str, &[&str]); 6] = [
    (
        "iaas-prewarm-config",
        &[
            r#""type":"eni-vlan","master":"eth1","validateIaasNetConfig":true,"validationRetries":3,"validationTimeoutMs":500"#,
            r#""ipam":{"type":"spiderpool","default_ipv4_ippool":["worker-*-pool"]}"#,
            r#""type":"coordinator""#,
        ],
    ),
    (
        "iaas-global-config",
        &[r#""default_ipv4_ippool":["app-global-pool"]"#],
    ),
    (
        "master-nic-network",
        &[r#""type":"macvlan","master":"eth1","mode":"bridge","mtu":0}"#],
    ),
    (
        "macvlan-ens192",
        &[
            r#"{"vlanID":100,"type":"ifacer","interfaces":["ens192"]}"#,
            r#""type":"macvlan","master":"ens192.100""#,
            r#""default_ipv4_ippool":["ippool-ens192-v4"]"#,
        ],
    ),
    (
        "macvlan-ens224",
        &[r#""master":"ens224.200""#, r#"["ippool-ens224-v4"]"#],
    ),
    (
        "sriov-match-master-subnet",
        &[
            r#""type":"sriov""#,
            r#""default_ipv4_ippool":["rdmarail1-*"]"#,
            r#"{"type":"rdma"}"#,
            r#""mode":"underlay""#,
        ],
    ),
];

fn has_in_order(text: &str, parts: &[&str]) -> bool {
    let end = parts.iter().try_fold(0, |from, part| {
        let at = text[from..].find(part)?;
        Some(from + at + part.len())
    });
    end.is_some()
}

#[test]
#[ignore = "api level"]
fn every_configuration_of_the_guides_becomes_an_attachment() {
    let mut rig = Rig::start();
    let documents = FILES.iter().flat_map(|file| file.split("\n---\n"));
    let objects = documents.map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
    let configs: Vec<Value> = objects
        .filter(|object| object["kind"] == "SpiderMultusConfig")
        .collect();
    let names: Vec<&str> = configs
        .iter()
        .map(|config| config["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ATTACHMENTS.map(|(name, _)| name));
    for (config, (name, parts)) in configs.iter().zip(ATTACHMENTS) {
        let namespace = config["metadata"]["namespace"].as_str().unwrap();
        let path = format!("{OURS}/namespaces/{namespace}/spidermultusconfigs");
        rig.api.create(&path, config).unwrap();
        let path = format!(
            "/apis/k8s.cni.cncf.io/v1/namespaces/{namespace}/network-attachment-definitions/{name}"
        );
        let nad = rig.until(&format!("NAD {name}"), |api| api.get(&path).unwrap());
        let text = nad["spec"]["config"].as_str().unwrap();
        assert!(has_in_order(text, parts), "{name}: {text}");
        let resource = &nad["metadata"]["annotations"]["k8s.v1.cni.cncf.io/resourceName"];
        assert_eq!(
            resource.as_str().is_some(),
            name.starts_with("sriov"),
            "{nad}"
        );
    }
}

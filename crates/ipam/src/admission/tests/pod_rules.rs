use std::collections::BTreeMap;

use super::*;
use pod::{NetworkView, PodRequest, PodSettings};

fn network(namespace: &str, name: &str, annotations: Value, spec: Value) -> NetworkView {
    let mut object = json!({"metadata": {"name": name, "namespace": namespace,
        "annotations": annotations}, "spec": spec});
    fill(Kind::MultusConfig, &mut object, None);
    NetworkView::read(&object).unwrap()
}

/// All networks of these tests.
fn networks() -> Vec<NetworkView> {
    let rail = json!({names::RDMA_RESOURCE_INJECT: "rail"});
    let macvlan = |master: &[&str], resource: &str| {
        json!({"cniType": "macvlan", "macvlan": {
        "master": master, "bond": {"name": "bnd0", "mode": 1}, "rdmaResourceName": resource, "ippools": {"ipv4": ["p"]}}})
    };
    vec![
        network("lab", "plain", json!({}), macvlan(&["eth1"], "")),
        network("lab", "bonded", json!({}), macvlan(&["eth2", "eth3"], "")),
        network(
            "lab",
            "renamed",
            json!({names::MULTUS_CR_NAME: "other"}),
            macvlan(&["eth4"], ""),
        ),
        network(
            "lab",
            "eni",
            json!({}),
            json!({"cniType": "eni-vlan", "enivlan": {"master": ["eth5"]}}),
        ),
        network(
            "lab",
            "ib",
            json!({}),
            json!({"cniType": "ipoib", "ipoib": {"master": "ibp9"}}),
        ),
        network(
            "lab",
            "first",
            json!({}),
            json!({"cniType": "vlan", "vlan": {"master": ["eth6"]}}),
        ),
        network(
            "lab",
            "static",
            json!({}),
            json!({"cniType": "vlan", "vlan": {"master": ["eth7"], "vlanID": 0}}),
        ),
        network("b", "rail-2", rail.clone(), macvlan(&["eth9"], "rdma/b")),
        network("a", "rail-1", rail.clone(), macvlan(&["eth8"], "rdma/a")),
        network("a", "rail-3", rail, macvlan(&["x1", "x2"], "rdma/a")),
    ]
}

/// The Pod `shop/web` after the webhook, and its warnings.
fn run(
    annotations: Value,
    namespace: &[(&str, &str)],
    settings: PodSettings,
    spec: Value,
) -> Result<(Value, Vec<String>), FieldError> {
    let mut object =
        json!({"metadata": {"generateName": "web-", "annotations": annotations}, "spec": spec});
    let networks = networks();
    let annotations: BTreeMap<String, String> = namespace
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let request = PodRequest {
        namespace: "lab",
        namespace_annotations: &annotations,
        networks: &networks.iter().collect::<Vec<_>>(),
        settings,
    };
    let warnings = pod::mutate(&mut object, &request)?;
    Ok((object, warnings))
}

const ALL: PodSettings = PodSettings {
    master_nics: true,
    sub_enis: true,
};

fn containers() -> Value {
    json!({"containers": [{"name": "a"}, {"name": "b"}]})
}

/// Requests of the first container, which are its limits as well.
fn resources(networks: &str, settings: PodSettings) -> Value {
    let (pod, _) = run(
        json!({names::POD_NETWORKS: networks}),
        &[],
        settings,
        containers(),
    )
    .unwrap();
    let resources = &pod["spec"]["containers"][0]["resources"];
    assert_eq!(resources["requests"], resources["limits"]);
    assert!(pod["spec"]["containers"][1].get("resources").is_none());
    resources["requests"].clone()
}

#[test]
fn parent_nics_become_resources_of_the_first_container() {
    let nics = PodSettings {
        master_nics: true,
        sub_enis: false,
    };
    for (networks, want) in [
        ("plain", json!({"spidernet.io/eth1-nic": "1"})),
        (
            "lab/plain@net1, lab/plain",
            json!({"spidernet.io/eth1-nic": "1"}),
        ),
        (
            "bonded",
            json!({"spidernet.io/eth2-nic": "1", "spidernet.io/eth3-nic": "1"}),
        ),
        ("other", json!({"spidernet.io/eth4-nic": "1"})),
        ("renamed", Value::Null),
        (
            r#"[{"name":"eni"},{"name":"ib","namespace":"lab"}]"#,
            json!({"spidernet.io/eth5-nic": "1", "spidernet.io/ibp9-nic": "1"}),
        ),
        ("first", json!({"spidernet.io/eth6-nic": "1"})),
        ("static", json!({"spidernet.io/eth7-nic": "1"})),
        ("shop/plain,unknown", Value::Null),
    ] {
        assert_eq!(resources(networks, nics), want, "{networks}");
    }
    assert_eq!(resources("plain", PodSettings::default()), Value::Null);
}

#[test]
fn sub_enis_are_those_of_the_first_generation() {
    let sub_enis = PodSettings {
        master_nics: false,
        sub_enis: true,
    };
    assert_eq!(
        resources("first,first,static,eni", sub_enis),
        json!({"spidernet.io/sub-eni": "2"})
    );
    assert_eq!(resources("eni,static", sub_enis), Value::Null);
}

#[test]
fn what_the_user_asks_for_is_kept() {
    for spec in [
        json!({"containers": [{}, {"resources": {"limits": {"spidernet.io/eth1-nic": "3"}}}]}),
        json!({"initContainers": [{"resources": {"requests": {"spidernet.io/eth1-nic": "3"}}}], "containers": [{}]}),
        json!({"containers": []}),
        json!({}),
        json!({"hostNetwork": true, "containers": [{}]}),
    ] {
        let annotations = json!({names::POD_NETWORKS: "plain"});
        let (pod, _) = run(annotations, &[], ALL, spec.clone()).unwrap();
        assert_eq!(pod["spec"], spec);
    }
    let odd = run(
        json!({names::POD_NETWORKS: "a/b/c"}),
        &[],
        ALL,
        containers(),
    );
    assert!(odd.unwrap_err().message.contains("a/b/c"));
    // Nothing applies: the annotation is Multus' business.
    run(
        json!({names::POD_NETWORKS: "a/b/c"}),
        &[],
        PodSettings::default(),
        containers(),
    )
    .unwrap();
}

#[test]
fn a_group_gives_networks_and_resources() {
    let key = names::RDMA_RESOURCE_INJECT;
    for (annotations, namespace) in [
        (json!({key: "rail"}), vec![]),
        (json!({names::POD_NETWORKS: "x"}), vec![(key, "rail")]),
        (json!({key: "rail"}), vec![(key, "other")]),
    ] {
        let (pod, _) = run(
            annotations,
            &namespace,
            PodSettings::default(),
            containers(),
        )
        .unwrap();
        // By bond, else by NIC.
        assert_eq!(
            pod["metadata"]["annotations"][names::POD_NETWORKS],
            "a/rail-3,a/rail-1,b/rail-2"
        );
        let resources = &pod["spec"]["containers"][0]["resources"];
        assert_eq!(
            *resources,
            json!({"limits": {"rdma/a": "1", "rdma/b": "1"}})
        );
    }
    let nobody = run(json!({key: "none"}), &[], ALL, containers()).unwrap_err();
    assert_eq!(nobody.field, format!("metadata.annotations[{key}]"));
    // The NICs of the group's members count.
    let (pod, _) = run(json!({key: "rail"}), &[], ALL, containers()).unwrap();
    assert_eq!(
        pod["spec"]["containers"][0]["resources"]["requests"]["spidernet.io/x2-nic"],
        "1"
    );
}

#[test]
fn the_annotation_taken_for_multus_is_copied() {
    let mistaken = names::POD_DEFAULT_NETWORK_MISTAKEN;
    let nics = PodSettings {
        master_nics: true,
        sub_enis: false,
    };
    let (pod, warnings) = run(json!({mistaken: "lab/plain"}), &[], nics, containers()).unwrap();
    assert_eq!(
        pod["metadata"]["annotations"][names::POD_DEFAULT_NETWORK],
        "lab/plain"
    );
    assert_eq!(
        pod["spec"]["containers"][0]["resources"]["limits"]["spidernet.io/eth1-nic"],
        "1"
    );
    assert!(warnings[0].contains(mistaken), "{warnings:?}");
    let both = json!({mistaken: "lab/plain", names::POD_DEFAULT_NETWORK: "lab/eni"});
    let (pod, warnings) = run(both, &[], nics, containers()).unwrap();
    assert_eq!(
        pod["metadata"]["annotations"][names::POD_DEFAULT_NETWORK],
        "lab/eni"
    );
    assert!(warnings.is_empty());
}

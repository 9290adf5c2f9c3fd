#![expect(
    clippy::too_many_lines,
    reason = "tables with one row a case read best in one piece"
)]

use super::*;

/// A SpiderMultusConfig `lab/net` as the judge sees it, and what its writer is told.
fn network(spec: Value, annotations: Value) -> (Value, Vec<String>) {
    let mut object = json!({"metadata": {"name": "net", "namespace": "lab",
        "annotations": annotations}, "spec": spec});
    let warnings = fill(Kind::MultusConfig, &mut object, None);
    (object, warnings)
}

fn judged(op: Op, new: &Value, old: Option<&Value>, settings: &Settings) -> Result<(), Refusal> {
    let world = World::default();
    validate(op, Kind::MultusConfig, Some(new), old, &world, settings)
}

/// The one error on creation, which is that of an update from a legal object as well.
fn verdict(spec: Value, annotations: Value) -> String {
    let settings = Settings::default();
    let (new, _) = network(spec, annotations.clone());
    let created = said(judged(Op::Create, &new, None, &settings));
    let (old, _) = network(json!({"cniType": "custom"}), annotations);
    let updated = said(judged(Op::Update, &new, Some(&old), &settings));
    assert_eq!(created, updated);
    assert!(created.len() <= 1, "{created:?}");
    created.into_iter().next().unwrap_or_default()
}

/// Case B29. Rows f and l of the wrong type are the schema's as well.
#[test]
fn b29_odd_configurations_are_refused_by_name() {
    let rdma = json!({names::RDMA_RESOURCE_INJECT: "rail"});
    for (spec, annotations, want) in [
        (json!({}), json!({}), ""),
        (
            json!({"cniType": "macvlan"}),
            json!({}),
            "Required spec.macvlan ",
        ),
        (
            json!({"cniType": "macvlan", "ipvlan": {"master": ["eth1"]}}),
            json!({}),
            "Required spec.macvlan ",
        ),
        (
            json!({"cniType": "macvlan", "macvlan": {"master": ["eth1"]}, "ipvlan": {"master": ["eth1"]}}),
            json!({}),
            "Forbidden spec.ipvlan ",
        ),
        (
            json!({"cniType": "sriov", "sriov": {"resourceName": "a.io/vf", "mtu": -1}}),
            json!({}),
            "Invalid spec.sriov.mtu ",
        ),
        (
            json!({"cniType": "ovs", "ovs": {"bridge": "br9", "trunk": [{"maxID": 20}]}}),
            json!({}),
            "Required spec.ovs.trunk[0].minID ",
        ),
        (
            json!({"cniType": "macvlan", "macvlan": {"master": ["eth1", "eth2"]}}),
            json!({}),
            "Required spec.macvlan.bond ",
        ),
        (
            json!({"cniType": "eni-vlan", "enivlan": {"master": []}}),
            json!({}),
            "Required spec.enivlan.master ",
        ),
        (
            json!({"cniType": "eni-vlan", "enivlan": {"master": ["eth1"]}, "disableIPAM": true}),
            json!({}),
            "Forbidden spec.disableIPAM ",
        ),
        (
            json!({"cniType": "macvlan", "macvlan": {"master": ["eth1"]}}),
            rdma,
            "Forbidden metadata.annotations[cni.spidernet.io/rdma-resource-inject] ",
        ),
        (
            json!({"cniType": "custom", "customCNI": "{"}),
            json!({}),
            "Invalid spec.customCNI ",
        ),
        (json!({"cniType": "bogus"}), json!({}), "Invalid spec "),
    ] {
        let said = verdict(spec.clone(), annotations);
        assert!(
            said.starts_with(want) && said.is_empty() == want.is_empty(),
            "{spec}: {said}"
        );
    }
}

#[test]
fn sections_are_judged() {
    let master = || json!(["eth1"]);
    for (spec, want) in [
        (
            json!({"cniType": "ipvlan", "ipvlan": {"master": master(), "vlanID": 4095}}),
            "Invalid spec.ipvlan.vlanID",
        ),
        (
            json!({"cniType": "macvlan", "macvlan": {"master": master(), "ippools": {"matchMasterSubnet": true}}}),
            "Forbidden spec.macvlan.ippools.matchMasterSubnet",
        ),
        (
            json!({"cniType": "macvlan", "macvlan": {"master": [" "]}}),
            "Invalid spec.macvlan.master[0]",
        ),
        (
            json!({"cniType": "ipvlan", "ipvlan": {"master": ["a", "b"], "bond": {"name": "", "mode": 1}}}),
            "Required spec.ipvlan.bond.name",
        ),
        (
            json!({"cniType": "ipvlan", "ipvlan": {"master": ["a", "b"], "bond": {"name": "b0", "mode": 7}}}),
            "Invalid spec.ipvlan.bond.mode",
        ),
        (
            json!({"cniType": "ipvlan", "ipvlan": {"master": ["a", "b"], "bond": {"name": "b0", "mode": 6}}}),
            "",
        ),
        (
            json!({"cniType": "vlan", "vlan": {"master": master(), "vlanID": 7}}),
            "",
        ),
        (
            json!({"cniType": "vlan", "vlan": {"master": master(), "vlanID": 7, "vlanMode": "manual"}}),
            "",
        ),
        (
            json!({"cniType": "vlan", "vlan": {"master": master(), "vlanMode": "manual"}}),
            "Required spec.vlan.vlanID",
        ),
        (
            json!({"cniType": "sriov", "sriov": {}}),
            "Required spec.sriov.resourceName",
        ),
        (
            json!({"cniType": "sriov", "sriov": {"resourceName": "a/b", "minTxRateMbps": 9, "maxTxRateMbps": 8}}),
            "Invalid spec.sriov.minTxRateMbps",
        ),
        (
            json!({"cniType": "sriov", "sriov": {"resourceName": "a/b", "maxTxRateMbps": -8}}),
            "Invalid spec.sriov.maxTxRateMbps",
        ),
        (
            json!({"cniType": "ib-sriov", "ibsriov": {"resourceName": ""}}),
            "Required spec.ibsriov.resourceName",
        ),
        (
            json!({"cniType": "ipoib", "ipoib": {}}),
            "Required spec.ipoib.master",
        ),
        (json!({"cniType": "ipoib", "ipoib": {"master": "ibp9"}}), ""),
        (
            json!({"cniType": "ovs", "ovs": {"bridge": "b", "vlan": -1}}),
            "Invalid spec.ovs.vlan",
        ),
        (
            json!({"cniType": "ovs", "ovs": {"bridge": "b", "trunk": [{"minID": 9, "maxID": 5}]}}),
            "Invalid spec.ovs.trunk[0].minID",
        ),
        (
            json!({"cniType": "ovs", "ovs": {"bridge": "b", "trunk": [{"id": 4095}]}}),
            "Invalid spec.ovs.trunk[0].id",
        ),
        (
            json!({"cniType": "ovs", "ovs": {"bridge": "b", "trunk": [{"minID": 20, "maxID": 29}]}}),
            "",
        ),
        (
            json!({"cniType": "eni-vlan", "enivlan": {"master": master()}, "ipam": {"enabled": false}}),
            "Forbidden spec.ipam.enabled",
        ),
        (
            json!({"cniType": "eni-vlan", "enivlan": {"master": master()}, "ipam": {"enabled": true}, "disableIPAM": true}),
            "",
        ),
        (
            json!({"cniType": "eni-vlan", "enivlan": {"master": master(), "validationRetries": -1}}),
            "Invalid spec.enivlan.validationRetries",
        ),
        (
            json!({"cniType": "macvlan", "macvlan": {"master": master()}, "coordinator": {"hijackCIDR": ["x"]}}),
            "Invalid spec.coordinator.hijackCIDR[0]",
        ),
        (
            json!({"cniType": "macvlan", "macvlan": {"master": master()}, "chainCNIJsonData": ["{\"type\":\"tuning\"}", "{}"]}),
            "Invalid spec.chainCNIJsonData[1]",
        ),
        (
            json!({"cniType": "macvlan", "macvlan": {"master": master()}, "chainCNIJsonData": ["["]}),
            "Invalid spec.chainCNIJsonData[0]",
        ),
    ] {
        let said = verdict(spec.clone(), json!({}));
        assert!(
            said.starts_with(want) && said.is_empty() == want.is_empty(),
            "{spec}: {said}"
        );
    }
}

#[test]
fn vlan_without_an_id_is_the_first_generations() {
    let spec =
        |mode: Value| json!({"cniType": "vlan", "vlan": {"master": ["eth1"], "vlanMode": mode}});
    assert!(verdict(spec(Value::Null), json!({})).contains("use cniType eni-vlan"));
    assert!(verdict(spec(json!("auto")), json!({})).contains("cniType eni-vlan"));
    let settings = Settings {
        generation_1: true,
        ..Settings::default()
    };
    let judge = |spec: Value| {
        let (new, _) = network(spec, json!({}));
        said(judged(Op::Create, &new, None, &settings)).join("")
    };
    assert_eq!(judge(spec(Value::Null)), "");
    assert_eq!(judge(spec(json!("auto"))), "");
    let mut both = spec(json!("auto"));
    both["vlan"]["vlanID"] = json!(0);
    assert!(judge(both).starts_with("Forbidden spec.vlan.vlanID"));
}

#[test]
fn groups_need_a_resource_and_pools() {
    let rdma = json!({names::RDMA_RESOURCE_INJECT: "rail"});
    let network = json!({names::NETWORK_RESOURCE_INJECT: "rail"});
    let macvlan = |resource: &str, pools: Value| {
        json!({"cniType": "macvlan", "macvlan": {
        "master": ["eth1"], "rdmaResourceName": resource, "ippools": pools}})
    };
    let named = json!({"ipv4": ["p"]});
    for (spec, annotations, want) in [
        (macvlan("a/b", named.clone()), &rdma, ""),
        (macvlan("a/b", json!({})), &rdma, "at least one pool"),
        (macvlan("", named.clone()), &rdma, "RDMA resource"),
        (macvlan("", json!({})), &network, ""),
        (macvlan("a/b", json!({})), &network, "at least one pool"),
        (
            json!({"cniType": "ovs", "ovs": {"bridge": "b"}}),
            &network,
            "not for cniType ovs",
        ),
        (json!({}), &rdma, "not for cniType custom"),
    ] {
        let said = verdict(spec.clone(), annotations.clone());
        assert!(
            said.contains(want) && said.is_empty() == want.is_empty(),
            "{spec}: {said}"
        );
    }
}

#[test]
fn the_definition_has_one_owner_and_keeps_its_name() {
    let settings = Settings::default();
    let (plain, _) = network(json!({}), json!({}));
    let (renamed, _) = network(json!({}), json!({names::MULTUS_CR_NAME: "other"}));
    for (new, old) in [(&renamed, &plain), (&plain, &renamed)] {
        let said = said(judged(Op::Update, new, Some(old), &settings));
        assert!(
            said[0].starts_with("Forbidden metadata.annotations[multus.spidernet.io/cr-name]"),
            "{said:?}"
        );
    }
    let owned = |owner: Value| {
        let object = json!({"metadata": {"name": "net", "ownerReferences": [owner]}});
        let world = World {
            attachment: Some(view::AttachmentView::read(&object)),
            ..World::default()
        };
        said(validate(
            Op::Create,
            Kind::MultusConfig,
            Some(&plain),
            None,
            &world,
            &settings,
        ))
    };
    assert!(
        owned(json!({"kind": "SpiderMultusConfig", "name": "net", "controller": true})).is_empty()
    );
    assert!(owned(json!({"kind": "SpiderMultusConfig", "name": "x"})).is_empty());
    let said_of = owned(json!({"kind": "SpiderMultusConfig", "name": "x", "controller": true}));
    assert!(
        said_of[0].contains("net belongs to SpiderMultusConfig x"),
        "{said_of:?}"
    );
    for (annotations, want) in [
        (json!({names::MULTUS_CR_NAME: "Net"}), "DNS-1123"),
        (json!({names::MULTUS_CNI_VERSION: "0.2.0"}), "0.3.1"),
        (json!({names::MULTUS_CNI_VERSION: "1.0.0"}), ""),
    ] {
        let (new, _) = network(json!({}), annotations);
        let said = said(judged(Op::Create, &new, None, &settings)).join("");
        assert!(
            said.contains(want) && said.is_empty() == want.is_empty(),
            "{said}"
        );
    }
    // Whoever holds a finalizer can let go.
    let mut dying = plain.clone();
    dying["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
    assert_eq!(
        judged(Op::Update, &renamed, Some(&dying), &settings),
        Ok(())
    );
}

#[test]
fn configurations_are_filled_in() {
    let (custom, _) = network(json!({"coordinator": {"mode": "auto"}}), json!({}));
    assert_eq!(
        custom["spec"],
        json!({"cniType": "custom", "customCNI": "", "enableCoordinator": false,
            "disableIPAM": false, "chainCNIJsonData": []})
    );
    let spec = json!({"cniType": "macvlan", "chainCNIJsonData": null, "macvlan": {
        "master": ["a", "b"], "bond": {"name": "b0", "mode": 1}}});
    let (macvlan, warnings) = network(spec, json!({names::RDMA_RESOURCE_INJECT: "rail"}));
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(
        macvlan["spec"],
        json!({"cniType": "macvlan", "enableCoordinator": true, "disableIPAM": false,
            "chainCNIJsonData": [],
            "coordinator": {"mode": "auto", "podRPFilter": 0, "tunePodRoutes": true},
            "macvlan": {"master": ["a", "b"], "bond": {"name": "b0", "mode": 1, "options": ""},
                "vlanID": 0, "mtu": 0, "rdmaResourceName": "", "ippools": {}}})
    );
    assert_eq!(
        macvlan["metadata"]["labels"],
        json!({names::RDMA_RESOURCE_INJECT: "rail"})
    );
    // The label goes with its annotation.
    let mut left = macvlan.clone();
    left["metadata"]["annotations"] = json!({});
    fill(Kind::MultusConfig, &mut left, Some(&macvlan));
    assert_eq!(left["metadata"]["labels"], json!({}));
    let (vlan, _) = network(
        json!({"cniType": "vlan", "vlan": {"master": ["a"]}, "enableCoordinator": false}),
        json!({}),
    );
    assert!(
        vlan["spec"]["vlan"].get("vlanID").is_none() && vlan["spec"].get("coordinator").is_none()
    );
    let (eni, _) = network(
        json!({"cniType": "eni-vlan", "enivlan": {"master": ["a"]}}),
        json!({}),
    );
    assert_eq!(
        eni["spec"]["enivlan"],
        json!({"master": ["a"], "ippools": {}, "validateIaasNetConfig": false,
            "validationRetries": 3, "validationTimeoutMs": 500})
    );
    let (sriov, _) = network(
        json!({"cniType": "sriov", "sriov": {"enableRdma": true}}),
        json!({}),
    );
    assert!(sriov["spec"]["sriov"].get("rdmaIsolation").is_none());
}

#[test]
fn wrong_spellings_are_moved_with_a_warning() {
    let spec = json!({"cniType": "macvlan", "customCni": "", "macvlan": {"master": ["a"], "vlanId": 7},
        "coordinator": {"podDefaultRouteNic": "net1", "podRPFilter": 0, "podRpFilter": 2}});
    let (moved, warnings) = network(spec, json!({}));
    let spec = &moved["spec"];
    assert_eq!(spec["macvlan"]["vlanID"], 7);
    assert_eq!(spec["coordinator"]["podDefaultRouteNIC"], "net1");
    assert_eq!(
        spec["coordinator"]["podRPFilter"], 2,
        "the schema's default is nobody's wish"
    );
    assert!(spec["coordinator"].get("podDefaultRouteNic").is_none());
    assert!(
        warnings.contains(&"spec.coordinator.podDefaultRouteNic is misspelt and was taken as spec.coordinator.podDefaultRouteNIC".to_owned()),
        "{warnings:?}"
    );
    // A new value under the wrong name is the writer's wish as long as the right one is the stored one.
    let mut again = moved.clone();
    again["spec"]["macvlan"]["vlanId"] = json!(8);
    fill(Kind::MultusConfig, &mut again, Some(&moved));
    assert_eq!(again["spec"]["macvlan"]["vlanID"], 8);
    let mut both = moved.clone();
    both["spec"]["macvlan"] = json!({"master": ["a"], "vlanId": 8, "vlanID": 9});
    let warnings = fill(Kind::MultusConfig, &mut both, Some(&moved));
    assert_eq!(both["spec"]["macvlan"]["vlanID"], 9);
    assert!(warnings[0].contains("was ignored"), "{warnings:?}");
}

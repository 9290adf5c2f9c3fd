use super::*;

fn schema(kind: &str) -> Value {
    let crds = all();
    let crd = crds.iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let schema = crd.spec.versions[0].schema.as_ref().unwrap();
    serde_json::to_value(schema.open_api_v3_schema.as_ref().unwrap()).unwrap()
}

/// A field by its path below the object, `[]` for the items of a list.
fn field<'a>(schema: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(schema, |node, part| match part {
        "[]" => &node["items"],
        name => &node["properties"][name],
    })
}

/// Kind, field, keyword, value.
const CONTRACT: &str = r#"
SpiderIPPool spec.ipVersion enum [4,6]
SpiderIPPool spec.ipVersion format "int64"
SpiderIPPool spec.default default false
SpiderIPPool spec.disable default false
SpiderIPPool status.allocatedIPCount minimum 0.0
SpiderIPPool status.totalIPCount format "int64"
SpiderIPPool spec.podAffinity x-kubernetes-map-type "atomic"
SpiderIPPool spec required ["subnet"]
SpiderSubnet spec required ["subnet"]
SpiderSubnet status.allocatedIPCount minimum 0.0
SpiderReservedIP spec.ipVersion enum [4,6]
SpiderEndpoint status.current.ips.[].vlan maximum 4094.0
SpiderEndpoint status.current.ips.[].vlan default 0
SpiderEndpoint status.current.ips.[].vlan format "int64"
SpiderCoordinator spec.mode default "auto"
SpiderCoordinator spec.mode enum ["auto","underlay","overlay","disabled","disable"]
SpiderCoordinator spec.podCIDRType enum ["auto","cluster","calico","cilium","none"]
SpiderCoordinator spec.tunePodRoutes default true
SpiderCoordinator spec.hostRuleTable default 500
SpiderCoordinator spec.hostRuleTable format null
SpiderCoordinator spec.podRPFilter maximum 2.0
SpiderCoordinator spec.vethMTU minimum 1.0
SpiderCoordinator spec.vethMTU default null
SpiderCoordinator spec.podDefaultRouteNic type "string"
SpiderCoordinator spec.logOptions.logLevel enum ["debug","info","warn","error"]
SpiderCoordinator status required ["phase"]
SpiderMultusConfig spec.cniType default "custom"
SpiderMultusConfig spec.cniType enum ["macvlan","ipvlan","vlan","sriov","ovs","ib-sriov","ipoib","custom","eni-vlan"]
SpiderMultusConfig spec.enableCoordinator default true
SpiderMultusConfig spec.disableIPAM default false
SpiderMultusConfig spec.ipam.enabled default true
SpiderMultusConfig spec.macvlan required ["master"]
SpiderMultusConfig spec.macvlan.mtu format "int32"
SpiderMultusConfig spec.macvlan.vlanID maximum 4094.0
SpiderMultusConfig spec.macvlan.bond required ["mode","name"]
SpiderMultusConfig spec.macvlan.bond.mode maximum 6.0
SpiderMultusConfig spec.macvlan.ippools.matchMasterSubnet enum [true,false]
SpiderMultusConfig spec.vlan.vlanID default null
SpiderMultusConfig spec.vlan.vlanMode enum ["manual","auto"]
SpiderMultusConfig spec.enivlan.validationRetries default 3
SpiderMultusConfig spec.enivlan.validationTimeoutMs default 500
SpiderMultusConfig spec.enivlan.vlanID type null
SpiderMultusConfig spec.sriov.minTxRateMbps format null
SpiderMultusConfig spec.sriov.enableRdma type "boolean"
SpiderMultusConfig spec.ibsriov.linkState default "enable"
SpiderMultusConfig spec.ibsriov.rdmaIsolation default true
SpiderMultusConfig spec.ipoib.master type "string"
SpiderMultusConfig spec.ovs required ["bridge"]
SpiderMultusConfig spec.ovs.vlan format "int32"
SpiderMultusConfig spec.ovs.trunk.[].minID format null
SpiderMultusConfig spec.coordinator.mode default "auto"
SpiderMultusConfig spec.ippools.ipv4 type "array"
NetworkAttachmentDefinition spec.config type "string"
"#;

/// What a derive does not emit by itself and the contract names (spec api section 1).
#[test]
fn limits_and_formats_of_the_contract() {
    for line in CONTRACT.lines().filter(|line| !line.is_empty()) {
        let [kind, path, key, value] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let value: Value = serde_json::from_str(value).unwrap();
        let schema = schema(kind);
        assert_eq!(field(&schema, path)[key], value, "{kind} {path} {key}");
    }
}

#[test]
fn one_served_and_stored_version_each() {
    let crds = all();
    assert_eq!(crds.len(), 7);
    for crd in crds {
        let name = format!("{}.{}", crd.spec.names.plural, crd.spec.group);
        assert_eq!(crd.metadata.name.as_deref(), Some(name.as_str()));
        let [version] = crd.spec.versions.as_slice() else {
            panic!("{name} has not one version");
        };
        let want = if crd.spec.group == names::GROUP {
            names::VERSION
        } else {
            "v1"
        };
        assert_eq!(version.name, want);
        assert!(version.served && version.storage);
        let schema = version.schema.as_ref().unwrap();
        assert!(schema.open_api_v3_schema.is_some(), "{name}");
    }
}

/// `kubectl explain` shows these texts, and nullable fields would keep the nulls of careless writers.
#[test]
fn nothing_of_rust_shows() {
    let text = serde_json::to_string(&all()).unwrap();
    for trace in [
        "[`",
        "nullable",
        "title",
        "\\n",
        "\"default\":[]",
        "\"default\":null",
    ] {
        assert!(!text.contains(trace), "{trace}");
    }
}

#[test]
fn every_wrong_spelling_stands_beside_the_right_one() {
    for known in crate::miscased::MISCASED {
        let schema = schema(known.kind);
        let parent = field(&schema, &known.parent[1..].replace('/', "."));
        let fields = &parent["properties"];
        assert_eq!(
            fields[known.wrong]["type"], fields[known.right]["type"],
            "{known:?}"
        );
        let text = fields[known.wrong]["description"].as_str().unwrap();
        assert!(
            text.starts_with("Deprecated: ") && text.contains(known.right),
            "{known:?}"
        );
        assert!(fields[known.wrong]["default"].is_null(), "{known:?}");
    }
}

/// A rule that found no place would be lost without a word.
#[test]
fn every_rule_is_in_its_schema() {
    for (kind, want) in [
        ("SpiderIPPool", 3),
        ("SpiderSubnet", 2),
        ("SpiderReservedIP", 1),
        ("SpiderCoordinator", 2),
        ("SpiderMultusConfig", 32),
    ] {
        let text = schema(kind).to_string();
        assert_eq!(text.matches("\"fieldPath\"").count(), want, "{kind}");
    }
}

/// Objects of older releases carry explicit nulls, unknown fields, and lack what is newer.
#[test]
fn objects_of_older_releases_are_read() {
    let pool = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
        "metadata": {"name": "p"}, "spec": {"subnet": "10.0.0.0/24", "ips": null, "ipVersion": null,
            "routes": null, "podAffinity": {"matchLabels": null, "matchExpressions": null},
            "nodeAffinity": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": null}]},
            "default": null, "vlan": 7},
        "status": {"allocatedIPs": null, "parentNic": null, "ipMetaData": null, "autoDesiredIPCount": 1}});
    let pool: SpiderIPPool = serde_json::from_value(pool).unwrap();
    assert!(pool.spec.pod_affinity.unwrap().is_empty());
    let nodes = pool.spec.node_affinity.unwrap();
    assert_eq!(nodes.match_expressions[0].values, Vec::<String>::new());
    let coordinator = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1",
        "kind": "SpiderCoordinator", "metadata": {}, "spec": {"mode": "disable", "hijackCIDR": null},
        "status": {"phase": "Synced", "overlayPodCIDR": null}});
    let coordinator: SpiderCoordinator = serde_json::from_value(coordinator).unwrap();
    assert_eq!(
        coordinator.spec.mode,
        Some(crate::coordinator::CoordinatorMode::Disabled)
    );
    let status = serde_json::to_value(coordinator.status).unwrap();
    assert_eq!(
        status,
        json!({"phase": "Synced", "overlayPodCIDR": [], "serviceCIDR": []})
    );
    for spec in [Value::Null, json!({}), json!({"config": "{}"})] {
        let nad = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {}, "spec": spec});
        let nad: attachment::NetworkAttachmentDefinition = serde_json::from_value(nad).unwrap();
        assert_eq!(nad.spec.config.is_some(), spec["config"].is_string());
    }
}

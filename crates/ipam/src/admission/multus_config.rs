//! SpiderMultusConfig: what is filled in (spec api 3.6). The verdicts are in [`super::network`].

use serde_json::{Map, Value, json};
use spiderpool_api::multus_config::CniType;
use spiderpool_api::names;

use super::coordinator;
use super::mutation::{fill, set_label};
use super::object::{annotation, is_label_value};

/// Annotations that are mirrored to labels, by which Pods find their group.
const GROUPS: [&str; 2] = [names::RDMA_RESOURCE_INJECT, names::NETWORK_RESOURCE_INJECT];

/// Defaults of the spec, and labels of the groups.
pub(super) fn fill_in(object: &mut Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    for key in GROUPS {
        let group = annotation(object, key).map(str::to_owned);
        let had_one = old.is_some_and(|old| annotation(old, key).is_some());
        match group.as_deref().filter(|value| is_label_value(value)) {
            Some(group) => set_label(object, key, Some(group)),
            None if had_one => set_label(object, key, None),
            None => {}
        }
    }
    let Some(spec) = object.as_object_mut().and_then(|object| {
        let spec = object.entry("spec").or_insert(Value::Null);
        if spec.is_null() {
            *spec = json!({});
        }
        spec.as_object_mut()
    }) else {
        return;
    };
    deprecated(spec, warnings);
    if spec.get("cniType").is_some_and(|value| value == "") {
        spec.remove("cniType");
    }
    fill(spec, "cniType", json!(CniType::Custom.as_str()));
    fill(spec, "chainCNIJsonData", json!([]));
    fill(spec, "disableIPAM", json!(false));
    let cni_type: Option<CniType> = spec
        .get("cniType")
        .and_then(|value| serde_json::from_value(value.clone()).ok());
    match cni_type {
        Some(CniType::Custom) => {
            fill(spec, "customCNI", json!(""));
            spec.remove("coordinator");
            spec.insert("enableCoordinator".to_owned(), json!(false));
        }
        Some(cni_type) => {
            fill(spec, "enableCoordinator", json!(true));
            section(spec, cni_type);
            coordinator_block(spec);
        }
        None => {}
    }
}

fn deprecated(spec: &Map<String, Value>, warnings: &mut Vec<String>) {
    if spec.get("disableIPAM") == Some(&Value::Bool(true)) {
        warnings.push("spec.disableIPAM is deprecated: write spec.ipam.enabled: false".to_owned());
    }
    if spec
        .get("vlan")
        .and_then(|vlan| vlan.get("vlanMode"))
        .is_some()
    {
        let text = "spec.vlan.vlanMode is deprecated: cniType vlan has one vlanID, cniType eni-vlan those of the cloud";
        warnings.push(text.to_owned());
    }
}

/// The coordinator plugin runs unless it is switched off, so its block is written out.
fn coordinator_block(spec: &mut Map<String, Value>) {
    if spec.get("enableCoordinator") == Some(&Value::Bool(true)) {
        fill(spec, "coordinator", json!({}));
    }
    if let Some(block) = spec.get_mut("coordinator").and_then(Value::as_object_mut) {
        for (key, value) in [
            ("mode", json!("auto")),
            ("podRPFilter", json!(0)),
            ("tunePodRoutes", json!(true)),
        ] {
            fill(block, key, value);
        }
        coordinator::networks(block);
    }
}

/// Defaults of the section; one that is missing is left for the judge.
fn section(spec: &mut Map<String, Value>, cni_type: CniType) {
    let section = cni_type.section().and_then(|key| spec.get_mut(key));
    let Some(section) = section.and_then(Value::as_object_mut) else {
        return;
    };
    for (key, value) in defaults(cni_type) {
        // The older name of the same switch was used.
        if key == "rdmaIsolation" && section.contains_key("enableRdma") {
            continue;
        }
        fill(section, key, value);
    }
    fill(section, "ippools", json!({}));
    if let Some(bond) = section.get_mut("bond").and_then(Value::as_object_mut) {
        fill(bond, "options", json!(""));
    }
}

fn defaults(cni_type: CniType) -> Vec<(&'static str, Value)> {
    let zero = |key| (key, json!(0));
    let empty = |key| (key, json!(""));
    let off = |key| (key, json!(false));
    match cni_type {
        CniType::Macvlan | CniType::Ipvlan => {
            vec![zero("vlanID"), zero("mtu"), empty("rdmaResourceName")]
        }
        CniType::Vlan => vec![zero("mtu"), empty("rdmaResourceName")],
        CniType::Sriov => vec![
            zero("vlanID"),
            zero("mtu"),
            empty("resourceName"),
            zero("minTxRateMbps"),
            zero("maxTxRateMbps"),
            off("rdmaIsolation"),
        ],
        CniType::IbSriov => vec![
            empty("resourceName"),
            empty("pkey"),
            ("linkState", json!("enable")),
            ("rdmaIsolation", json!(true)),
            off("enableIbKubernetes"),
        ],
        CniType::Ovs => vec![zero("vlan")],
        CniType::EniVlan => vec![
            off("validateIaasNetConfig"),
            ("validationRetries", json!(3)),
            ("validationTimeoutMs", json!(500)),
        ],
        CniType::Ipoib | CniType::Custom => Vec::new(),
    }
}

//! Golden files in `testdata/multus`: `NAME.smc.json` is rendered, `NAME.config.json` is the exact text
//! that has to come out. All examples of spec api 6 are among them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use spiderpool_api::multus_config::SpiderMultusConfigSpec;

use super::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/multus")
}

fn parts(object: &Value) -> (String, BTreeMap<String, String>, SpiderMultusConfigSpec) {
    let meta = &object["metadata"];
    let name = meta["name"].as_str().unwrap().to_owned();
    let notes = meta
        .get("annotations")
        .cloned()
        .unwrap_or_else(|| json!({}));
    let notes = serde_json::from_value(notes).unwrap();
    let spec = serde_json::from_value(object["spec"].clone()).unwrap();
    (name, notes, spec)
}

fn rendered(object: &Value, options: Options) -> Result<Attachment, RenderError> {
    let (name, notes, spec) = parts(object);
    render(&name, &notes, &spec, options)
}

/// An object that differs from one of the files.
fn changed(file: &str, change: impl FnOnce(&mut Value)) -> Value {
    let text = std::fs::read_to_string(folder().join(format!("{file}.smc.json")));
    let mut object = serde_json::from_str(&text.unwrap()).unwrap();
    change(&mut object);
    object
}

#[test]
fn every_file_gives_its_configuration_to_the_letter() {
    let mut seen = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some(name) = name.strip_suffix(".smc.json") else {
            continue;
        };
        let options = Options {
            first_generation: name.starts_with("generation-1"),
        };
        let attachment = rendered(&changed(name, |_| ()), options).unwrap();
        let golden = std::fs::read_to_string(folder().join(format!("{name}.config.json")));
        assert_eq!(
            attachment.config.as_deref(),
            golden.unwrap().strip_suffix('\n'),
            "{name}"
        );
        seen += 1;
    }
    assert_eq!(seen, 14);
}

#[test]
fn name_and_annotations_follow_the_object() {
    let attachment = rendered(&changed("everything", |_| ()), Options::default()).unwrap();
    assert_eq!(attachment.name, "Renamed");
    let (_, notes, _) = parts(&changed("everything", |_| ()));
    assert_eq!(attachment.annotations, notes);
    let key = "k8s.v1.cni.cncf.io/resourceName";
    for (file, resource) in [
        ("sriov", Some("lab.io/rail")),
        ("ib-sriov", Some("lab.io/ib")),
        ("ovs-device", Some("ovs-cni.network.kubevirt.io/brx")),
        ("ovs", None),
        ("macvlan-bond-vlan", None),
    ] {
        let object = changed(file, |object| {
            object["metadata"]["annotations"] = json!({"team": "a", key: "of the user"});
        });
        let attachment = rendered(&object, Options::default()).unwrap();
        let wanted = resource.unwrap_or("of the user");
        assert_eq!(attachment.annotations[key], wanted, "{file}");
        assert_eq!(attachment.annotations["team"], "a");
    }
}

#[test]
fn an_empty_custom_configuration_is_none() {
    for text in [json!(""), json!(null)] {
        let object = changed("custom", |object| object["spec"]["customCNI"] = text);
        let attachment = rendered(&object, Options::default()).unwrap();
        assert_eq!(attachment.config, None);
    }
    let nothing = json!({"metadata": {"name": "a"}, "spec": {}});
    let attachment = rendered(&nothing, Options::default()).unwrap();
    assert_eq!((attachment.name.as_str(), attachment.config), ("a", None));
}

#[test]
#[rustfmt::skip] // a case a line
fn what_cannot_be_rendered_is_named() {
    let cases: &[(&str, &str, Value, &str)] = &[
        ("ipvlan", "/spec/ipvlan", json!(null), "spec.ipvlan is missing: spec.cniType names this section"),
        ("ipvlan", "/spec/ipvlan/master", json!([]), "spec.ipvlan.master is missing: the plugin needs a NIC of the node"),
        ("ipvlan", "/spec/ipvlan/master", json!([""]), "spec.ipvlan.master is missing: the plugin needs a NIC of the node"),
        ("ipvlan", "/spec/ipvlan/master", json!(["a", "b"]), "spec.ipvlan.bond.name is missing: several masters are bonded"),
        ("vlan-bond", "/spec/vlan/bond/name", json!(""), "spec.vlan.bond.name is missing: several masters are bonded"),
        ("ipoib", "/spec/ipoib/master", json!(""), "spec.ipoib.master is missing: the plugin needs a NIC of the node"),
        ("ovs", "/spec/ovs/bridge", json!(""), "spec.ovs.bridge is missing: the plugin needs a bridge of the node"),
        ("vlan-no-ipam", "/spec/vlan/vlanID", json!(null), "spec.vlan.vlanID is missing: ids that a cloud gives out are those of cniType eni-vlan"),
        ("sriov", "/spec/chainCNIJsonData", json!(["{\"type\":\"a\"}", "{}"]), "spec.chainCNIJsonData[1] is not a JSON object with a type: it has no type"),
        ("sriov", "/spec/chainCNIJsonData", json!(["{"]), "spec.chainCNIJsonData[0] is not a JSON object with a type: EOF while parsing an object at line 1 column 1"),
    ];
    for (file, pointer, value, text) in cases {
        let object = changed(file, |object| *object.pointer_mut(pointer).unwrap() = value.clone());
        let error = rendered(&object, Options::default()).unwrap_err();
        assert_eq!(error.to_string(), *text);
    }
    for (key, value) in [("disableIPAM", json!(true)), ("ipam", json!({"enabled": false}))] {
        let object = changed("eni-vlan", |object| object["spec"][key] = value);
        let error = rendered(&object, Options::default()).unwrap_err();
        assert!(matches!(error, RenderError::NoIpam), "{error}");
    }
}

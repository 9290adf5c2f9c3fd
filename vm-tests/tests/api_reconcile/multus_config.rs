//! SpiderMultusConfig and its NetworkAttachmentDefinition.

use serde_json::{Value, json};

use crate::rig::{NAMESPACE, OURS, Rig, ours};

fn nads() -> String {
    format!("/apis/k8s.cni.cncf.io/v1/namespaces/{NAMESPACE}/network-attachment-definitions")
}

fn configs() -> String {
    format!("{OURS}/namespaces/{NAMESPACE}/spidermultusconfigs")
}

fn macvlan(name: &str, master: &str) -> Value {
    let spec = json!({"cniType": "macvlan", "enableCoordinator": false,
        "macvlan": {"master": [master], "ippools": {"ipv4": ["lab-v4"]}}});
    ours(
        "SpiderMultusConfig",
        &json!({"name": name, "annotations": {"team": "a"}}),
        &spec,
    )
}

fn config(name: &str, master: &str) -> String {
    format!(
        r#"{{"cniVersion":"0.3.1","name":"{name}","plugins":[{{"type":"macvlan","master":"{master}","mode":"bridge","mtu":0,"ipam":{{"type":"spiderpool","default_ipv4_ippool":["lab-v4"]}}}}]}}"#
    )
}

/// Waits for a NetworkAttachmentDefinition with that configuration, of that owner.
fn wait_for(rig: &mut Rig, name: &str, config: &str, owner: &Value) -> Value {
    let path = format!("{}/{name}", nads());
    rig.until(&format!("NAD {name}"), |api| {
        let nad = api.get(&path).unwrap()?;
        let reference = json!([{"apiVersion": "spiderpool.spidernet.io/v2beta1",
            "kind": "SpiderMultusConfig", "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"], "controller": true}]);
        let right = nad["spec"]["config"] == config
            && nad["metadata"]["ownerReferences"] == reference
            && nad["metadata"]["annotations"] == owner["metadata"]["annotations"]
            && nad["metadata"].get("deletionTimestamp").is_none();
        right.then_some(nad)
    })
}

#[test]
#[ignore = "api level"]
fn an_attachment_is_made_kept_and_changed_with_its_configuration() {
    let mut rig = Rig::start();
    let made = rig.api.create(&configs(), &macvlan("lab", "eth1")).unwrap();
    wait_for(&mut rig, "lab", &config("lab", "eth1"), &made);
    let nad = format!("{}/lab", nads());
    // Whatever others do to it.
    for drift in [
        json!({"spec": {"config": "{}"}}),
        json!({"metadata": {"annotations": {"team": "b", "more": "c"}}}),
        json!({"metadata": {"ownerReferences": null}}),
    ] {
        rig.api.merge(&nad, &drift).unwrap();
        wait_for(&mut rig, "lab", &config("lab", "eth1"), &made);
    }
    rig.api.delete(&nad).unwrap();
    wait_for(&mut rig, "lab", &config("lab", "eth1"), &made);
    // One that goes slowly is waited for.
    let held = json!({"metadata": {"finalizers": ["example.org/held"]}});
    let before = rig.api.merge(&nad, &held).unwrap();
    rig.api.delete(&nad).unwrap();
    let change = json!({"spec": {"macvlan": {"master": ["eth2"]}}});
    let made = rig
        .api
        .merge(&format!("{}/lab", configs()), &change)
        .unwrap();
    rig.api
        .merge(&nad, &json!({"metadata": {"finalizers": null}}))
        .unwrap();
    let after = wait_for(&mut rig, "lab", &config("lab", "eth2"), &made);
    assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"]);
}

#[test]
#[ignore = "api level"]
fn names_are_chosen_adopted_and_left_to_others() {
    let mut rig = Rig::start();
    // Under another name; and where there is one already that is nobody's, it is taken over.
    let nad = |name: &str, owners: Value| {
        json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": name, "ownerReferences": owners}, "spec": {"config": "{}"}})
    };
    rig.api.create(&nads(), &nad("chosen", json!([]))).unwrap();
    let mut object = macvlan("lab", "eth1");
    object["metadata"]["annotations"]["multus.spidernet.io/cr-name"] = json!("chosen");
    let made = rig.api.create(&configs(), &object).unwrap();
    wait_for(&mut rig, "chosen", &config("chosen", "eth1"), &made);
    assert_eq!(rig.api.get(&format!("{}/lab", nads())).unwrap(), None);
    // One with an owner stays as it is.
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u-1", "controller": true}]);
    let theirs = rig.api.create(&nads(), &nad("theirs", owner)).unwrap();
    rig.api
        .create(&configs(), &macvlan("theirs", "eth1"))
        .unwrap();
    let told = rig.event("SpiderMultusConfig", "theirs", "AttachmentOfAnother");
    assert!(told.contains("ConfigMap x"), "{told}");
    let path = format!("{}/theirs", nads());
    assert_eq!(rig.api.get(&path).unwrap(), Some(theirs));
    // A section that is missing is said, and the attachment made once it is there.
    let spec = json!({"cniType": "ipvlan"});
    let bare = ours("SpiderMultusConfig", &json!({"name": "bare"}), &spec);
    match rig.api.create(&configs(), &bare) {
        // The schema may say it first.
        Err(refused) => assert!(format!("{refused:#}").contains("ipvlan"), "{refused:#}"),
        Ok(_) => {
            let told = rig.event("SpiderMultusConfig", "bare", "RenderFailed");
            assert!(told.contains("spec.ipvlan"), "{told}");
        }
    }
}

/// Where admission was away, a SpiderMultusConfig may have been given another name for its attachment.
#[test]
#[ignore = "api level"]
fn an_attachment_of_a_former_name_is_deleted() {
    let mut rig = Rig::start();
    let name =
        |name: &str| json!({"metadata": {"annotations": {"multus.spidernet.io/cr-name": name}}});
    let made = rig.api.create(&configs(), &macvlan("lab", "eth1")).unwrap();
    wait_for(&mut rig, "lab", &config("lab", "eth1"), &made);
    let renamed = rig
        .api
        .merge(&format!("{}/lab", configs()), &name("chosen"));
    let made = renamed.unwrap();
    wait_for(&mut rig, "chosen", &config("chosen", "eth1"), &made);
    let former = format!("{}/lab", nads());
    rig.until("the end of the former attachment", |api| {
        api.get(&former).unwrap().is_none().then_some(())
    });
    let told = rig.event("SpiderMultusConfig", "lab", "FormerAttachmentDeleted");
    assert!(told.contains("lab") && told.contains("chosen"), "{told}");
    // Somebody else's under a name that it once had stays.
    let theirs = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "lab"}, "spec": {"config": "{}"}});
    rig.api.create(&nads(), &theirs).unwrap();
    let renamed = rig.api.merge(&format!("{}/lab", configs()), &name("third"));
    let made = renamed.unwrap();
    wait_for(&mut rig, "third", &config("third", "eth1"), &made);
    let former = format!("{}/chosen", nads());
    rig.until("the end of the second name", |api| {
        api.get(&former).unwrap().is_none().then_some(())
    });
    assert!(rig.api.get(&format!("{}/lab", nads())).unwrap().is_some());
}

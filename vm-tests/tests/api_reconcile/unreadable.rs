//! One object that is none of its type, as somebody else's schema or an older release leaves them: it is
//! named, once, and the others go on.

use serde_json::{Value, json};
use vm_tests::lab::api_client::POOLS;

use crate::rig::{NAMESPACE, OURS, Rig, create_unchecked, ours, take_everything};

const FINALIZER: &str = "spiderpool.spidernet.io";

/// The one warning about an object, which names the field and what to do.
fn assert_named(rig: &mut Rig, about: &str, field: &str) {
    rig.until_logged("WARN", &format!("{about}: {field}: "));
    let lines = rig.logged(&["WARN", "ERROR"], about);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains("kubectl edit"), "{lines:#?}");
}

fn gone(rig: &mut Rig, path: &str) {
    rig.until(&format!("the end of {path}"), |api| {
        api.get(path).unwrap().is_none().then_some(())
    });
}

#[test]
#[ignore = "api level"]
fn a_network_that_cannot_be_read_stops_no_other() {
    let configs = format!("{OURS}/namespaces/{NAMESPACE}/spidermultusconfigs");
    let network =
        |name: &str, spec: &Value| ours("SpiderMultusConfig", &json!({"name": name}), spec);
    let good = json!({"cniType": "macvlan", "macvlan": {"master": ["eth1"]}});
    let wrong = json!({"cniType": "macvlan", "macvlan": {"master": ["eth1"], "mtu": "large"}});
    // There before the controller: a list with it in it must be read all the same.
    let mut rig = Rig::start_in(|api| {
        take_everything(api, "spidermultusconfigs");
        create_unchecked(api, &configs, &network("bad", &wrong));
        api.create(&configs, &network("early", &good)).unwrap();
    });
    rig.api.create(&configs, &network("late", &good)).unwrap();
    let nads =
        format!("/apis/k8s.cni.cncf.io/v1/namespaces/{NAMESPACE}/network-attachment-definitions");
    let made = |rig: &mut Rig, name: &str| {
        let path = format!("{nads}/{name}");
        rig.until(&format!("NAD {name}"), |api| api.get(&path).unwrap())
    };
    made(&mut rig, "early");
    made(&mut rig, "late");
    assert_named(
        &mut rig,
        "SpiderMultusConfig default/bad",
        "spec.macvlan.mtu",
    );
    // One that becomes so while it is watched, and one that is corrected.
    let path = |name: &str| format!("{configs}/{name}");
    rig.api
        .merge(&path("late"), &json!({"spec": wrong}))
        .unwrap();
    rig.api
        .merge(&path("bad"), &json!({"spec": {"macvlan": {"mtu": 9000}}}))
        .unwrap();
    made(&mut rig, "bad");
    assert_named(
        &mut rig,
        "SpiderMultusConfig default/late",
        "spec.macvlan.mtu",
    );
    rig.until_logged("INFO", "SpiderMultusConfig default/bad: recovered");
}

#[test]
#[ignore = "api level"]
fn pools_and_coordinators_that_cannot_be_read_stop_no_others() {
    let coordinators = format!("{OURS}/spidercoordinators");
    let named = |name: &str| json!({"name": name, "finalizers": [FINALIZER]});
    let coordinator = |name: &str, spec: &Value| ours("SpiderCoordinator", &named(name), spec);
    let pool = |name: &str, spec: &Value| ours("SpiderIPPool", &named(name), spec);
    let mut rig = Rig::start_in(|api| {
        take_everything(api, "spidercoordinators");
        take_everything(api, "spiderippools");
        // Alphabetically before the one that counts.
        let wrong = json!({"podCIDRType": "sundial"});
        create_unchecked(api, &coordinators, &coordinator("a-bad", &wrong));
        let wrong = json!({"subnet": "10.40.0.0/24", "ips": "10.40.0.10"});
        create_unchecked(api, POOLS, &pool("a-bad", &wrong));
        let good = json!({"podCIDRType": "none"});
        api.create(&coordinators, &coordinator("default", &good))
            .unwrap();
        let good = json!({"subnet": "10.41.0.0/24", "ips": ["10.41.0.10-10.41.0.19"]});
        api.create(POOLS, &pool("good", &good)).unwrap();
    });
    rig.until("the status of the other coordinator", |api| {
        let found = api.get(&format!("{coordinators}/default")).unwrap()?;
        found["status"]["phase"].is_string().then_some(())
    });
    rig.until("the count of the other pool", |api| {
        (api.pool("good").unwrap()["status"]["totalIPCount"] == 10).then_some(())
    });
    assert_named(&mut rig, "SpiderIPPool a-bad", "spec.ips");
    // It is nobody's, so nothing is said of it; and it can go.
    let bad = format!("{coordinators}/a-bad");
    rig.api.delete(&bad).unwrap();
    gone(&mut rig, &bad);
    let default = format!("{coordinators}/default");
    rig.api
        .merge(&default, &json!({"spec": {"podCIDRType": "sundial"}}))
        .unwrap();
    assert_named(&mut rig, "SpiderCoordinator default", "spec.podCIDRType");
    rig.api.delete(&default).unwrap();
    gone(&mut rig, &default);
}

/// Neither a warning for each network nor one for each try.
#[test]
#[ignore = "api level"]
fn a_cluster_without_the_networks_kind_is_told_once() {
    let kind = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/network-attachment-definitions.k8s.cni.cncf.io";
    let configs = format!("{OURS}/namespaces/{NAMESPACE}/spidermultusconfigs");
    let mut definition = Value::Null;
    let mut rig = Rig::start_in(|api| {
        definition = api.get(kind).unwrap().unwrap();
        api.delete(kind).unwrap();
        vm_tests::lab::wait::until(crate::rig::SOON, "the end of the kind", || {
            Ok(api.get(kind)?.is_none().then_some(()))
        })
        .unwrap();
        for name in ["one", "two", "three"] {
            let spec = json!({"cniType": "macvlan", "macvlan": {"master": ["eth1"]}});
            let object = ours("SpiderMultusConfig", &json!({"name": name}), &spec);
            api.create(&configs, &object).unwrap();
        }
    });
    rig.until_logged("WARN", "install its CustomResourceDefinition");
    let metadata = json!({"name": definition["metadata"]["name"],
        "annotations": definition["metadata"]["annotations"]});
    definition["metadata"] = metadata;
    definition["status"] = Value::Null;
    let (all, _) = kind.rsplit_once('/').unwrap();
    rig.api.create(all, &definition).unwrap();
    for name in ["one", "two", "three"] {
        let path = format!(
            "/apis/k8s.cni.cncf.io/v1/namespaces/{NAMESPACE}/network-attachment-definitions/{name}"
        );
        rig.until(&format!("NAD {name}"), |api| api.get(&path).ok().flatten());
    }
    rig.until_logged(
        "INFO",
        "the watch of NetworkAttachmentDefinitions: recovered",
    );
    let lines = rig.logged(&["WARN", "ERROR"], "");
    assert_eq!(lines.len(), 1, "{lines:#?}");
}

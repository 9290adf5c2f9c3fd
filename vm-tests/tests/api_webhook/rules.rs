//! Every kind accepted and refused, and what is going can go.

use serde_json::{Value, json};
use vm_tests::lab::wait;

use crate::rig::{OURS, Rig, SOON, collection};

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": kind,
        "metadata": {"name": name}, "spec": spec})
}

/// Kind, spec, and what the refusal says; empty for an object that is accepted.
#[expect(
    clippy::too_many_lines,
    reason = "a table with one row a case reads best in one piece"
)]
fn cases() -> Vec<(&'static str, Value, &'static str)> {
    let pool = |ips: &str| json!({"subnet": "10.50.0.0/24", "ips": [ips]});
    vec![
        (
            "SpiderSubnet",
            json!({"subnet": "10.51.0.0/24", "ips": ["10.51.0.9"]}),
            "",
        ),
        (
            "SpiderSubnet",
            json!({"subnet": "10.51.0.0/25"}),
            "10.51.0.0/24 of Subnet",
        ),
        (
            "SpiderSubnet",
            json!({"subnet": "10.51.0.1/24"}),
            "canonical form",
        ),
        ("SpiderIPPool", pool("10.50.0.10-10.50.0.19"), ""),
        (
            "SpiderIPPool",
            pool("10.50.0.19-10.50.0.20"),
            "overlaps IPPool case-3 in 10.50.0.19",
        ),
        ("SpiderIPPool", pool("10.50.1.1"), "spec.ips[0]"),
        (
            "SpiderIPPool",
            json!({"subnet": "10.50.0.0/25"}),
            "overlaps the different subnet 10.50.0.0/24",
        ),
        (
            "SpiderIPPool",
            json!({"subnet": "10.50.0.0/24", "podAffinity": {}}),
            "spec.podAffinity",
        ),
        ("SpiderReservedIP", json!({"ips": ["10.50.0.10"]}), ""),
        (
            "SpiderReservedIP",
            json!({"ips": ["10.50.0.10", "fd00::1"]}),
            "spec.ips",
        ),
        (
            "SpiderCoordinator",
            json!({"podCIDRType": "auto", "podDefaultRouteNic": "eth0"}),
            "",
        ),
        ("SpiderCoordinator", json!({}), "spec.podCIDRType"),
        (
            "SpiderCoordinator",
            json!({"podCIDRType": "auto", "hijackCIDR": ["x"]}),
            "spec.hijackCIDR[0]",
        ),
        // Case B29, as listed.
        ("SpiderMultusConfig", json!({}), ""),
        (
            "SpiderMultusConfig",
            json!({"cniType": "macvlan"}),
            "spec.macvlan",
        ),
        (
            "SpiderMultusConfig",
            json!({"cniType": "macvlan", "ipvlan": {"master": ["eth1"]}}),
            "spec.macvlan",
        ),
        (
            "SpiderMultusConfig",
            json!({"cniType": "macvlan", "macvlan": {"master": ["eth1"]}, "ipvlan": {"master": ["eth1"]}}),
            "spec.ipvlan",
        ),
        (
            "SpiderMultusConfig",
            json!({"cniType": "sriov", "sriov": {"resourceName": "a.io/vf", "mtu": -1}}),
            "spec.sriov.mtu",
        ),
        (
            "SpiderMultusConfig",
            json!({"cniType": "ovs", "ovs": {"bridge": "br9", "trunk": [{"maxID": 20}]}}),
            "spec.ovs.trunk[0].minID",
        ),
        (
            "SpiderMultusConfig",
            json!({"cniType": "macvlan", "macvlan": {"master": ["eth1", "eth2"]}}),
            "spec.macvlan.bond",
        ),
        (
            "SpiderMultusConfig",
            json!({"cniType": "eni-vlan", "enivlan": {"master": []}}),
            "spec.enivlan.master",
        ),
        (
            "SpiderMultusConfig",
            json!({"cniType": "eni-vlan", "enivlan": {"master": ["eth1"]}, "disableIPAM": true}),
            "spec.disableIPAM",
        ),
        (
            "SpiderMultusConfig",
            json!({"cniType": "custom", "customCNI": "{"}),
            "spec.customCNI",
        ),
        (
            "SpiderMultusConfig",
            json!({"cniType": "bogus"}),
            "spec.cniType",
        ),
        (
            "SpiderMultusConfig",
            json!({"cniType": "macvlan", "macvlan": {"master": ["eth1"]}, "chainCNIJsonData": ["{}"]}),
            "spec.chainCNIJsonData[0]",
        ),
    ]
}

#[test]
#[ignore = "api level"]
fn every_kind_is_accepted_and_refused() {
    let rig = Rig::start(1, "");
    for (index, (kind, spec, want)) in cases().into_iter().enumerate() {
        let new = object(kind, &format!("case-{index}"), spec);
        let (status, answer) = rig.create(&new);
        if want.is_empty() {
            assert_eq!(status, 201, "{new}\n{answer}");
            seen(&rig, kind, &new);
            continue;
        }
        assert_eq!(status, 422, "{new}\n{answer}");
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains(want), "{new}\n{message}");
    }
    // A misspelt field was moved, and defaults filled in.
    let path = format!("{OURS}/spidercoordinators/case-10");
    let coordinator = rig.api.get(&path).unwrap().unwrap();
    assert_eq!(coordinator["spec"]["podDefaultRouteNIC"], "eth0");
    assert_eq!(coordinator["spec"]["vethMTU"], 1500);
    updates(&rig);
}

/// Waits until the rules know an object: a second one that overlaps it is refused.
fn seen(rig: &Rig, kind: &str, made: &Value) {
    if !matches!(kind, "SpiderIPPool" | "SpiderSubnet") {
        return;
    }
    let mut same = made.clone();
    same["metadata"]["name"] = json!("probe");
    let path = format!("{}?dryRun=All", collection(made));
    wait::until(SOON, "rules that know the object", || {
        Ok(rig.api.create(&path, &same).is_err().then_some(()))
    })
    .unwrap();
}

fn updates(rig: &Rig) {
    for (path, patch, code, want) in [
        (
            "spiderippools/case-3",
            json!({"spec": {"subnet": "10.99.0.0/24"}}),
            422,
            "spec.subnet: Forbidden",
        ),
        (
            "spiderippools/case-3",
            json!({"spec": {"ips": ["10.50.0.10"]}}),
            200,
            "",
        ),
        (
            "spidersubnets/case-0",
            json!({"spec": {"ipVersion": 6}}),
            422,
            "spec.ipVersion",
        ),
        (
            "spiderreservedips/case-8",
            json!({"spec": {"ips": ["10.50.0.11"]}}),
            200,
            "",
        ),
        (
            "namespaces/default/spidermultusconfigs/case-13",
            json!({"metadata": {"annotations": {"multus.spidernet.io/cr-name": "x"}}}),
            422,
            "cr-name",
        ),
        (
            "namespaces/default/spidermultusconfigs/case-13",
            json!({"spec": {"customCNI": "{"}}),
            422,
            "spec.customCNI",
        ),
    ] {
        let (status, answer) = rig.merge(&format!("{OURS}/{path}"), &patch);
        assert_eq!(status, code, "{path} {patch}\n{answer}");
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(message.contains(want), "{path} {patch}\n{message}");
    }
}

/// A pool in use stays, and the refusal names its Pods; case B30 for one that goes.
#[test]
#[ignore = "api level"]
fn deletions_are_guarded_and_end() {
    let rig = Rig::start(1, "");
    let spec = json!({"subnet": "10.52.0.0/24", "ips": ["10.52.0.10-10.52.0.19"]});
    assert_eq!(rig.create(&object("SpiderIPPool", "o-2", spec)).0, 201);
    let path = format!("{OURS}/spiderippools/o-2");
    let record = |pod: &str| json!({"pod": pod, "podUid": "u"});
    let records = json!({"10.52.0.10": record("shop/web-0"), "10.52.0.11": record("shop/web-1")});
    let used = json!({"status": {"allocatedIPCount": 2, "allocatedIPs": records.to_string()}});
    assert_eq!(rig.merge(&format!("{path}/status"), &used).0, 200);
    let (status, answer) = rig.delete(&path);
    assert_eq!(status, 403, "{answer}");
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("Pods shop/web-0, shop/web-1"), "{message}");
    // An address in use cannot be taken away either.
    let (status, answer) = rig.merge(&path, &json!({"spec": {"ips": ["10.52.0.11-10.52.0.19"]}}));
    assert_eq!(status, 422, "{answer}");
    // Its last record goes while a finalizer of somebody else's holds it.
    let free = json!({"status": {"allocatedIPCount": 0, "allocatedIPs": null}});
    assert_eq!(rig.merge(&format!("{path}/status"), &free).0, 200);
    let held = json!({"metadata": {"finalizers": ["spiderpool.spidernet.io", "example.com/held"]}});
    assert_eq!(rig.merge(&path, &held).0, 200);
    assert_eq!(rig.delete(&path).0, 200);
    wait::until(SOON, "our finalizer to go", || {
        let pool = rig.api.pool("o-2")?;
        Ok((pool["metadata"]["finalizers"] == json!(["example.com/held"])).then_some(()))
    })
    .unwrap();
    let (status, answer) = rig.merge(
        &path,
        &json!({"metadata": {"finalizers": null, "labels": {"a": "b"}}}),
    );
    assert_eq!(status, 200, "{answer}");
    goes(&rig, &path);
    for (kind, spec) in [
        ("SpiderSubnet", json!({"subnet": "10.53.0.0/24"})),
        ("SpiderCoordinator", json!({"podCIDRType": "none"})),
    ] {
        let made = object(kind, "going", spec);
        assert_eq!(rig.create(&made).0, 201);
        let path = format!("{}/going", collection(&made));
        let found = rig.api.get(&path).unwrap().unwrap();
        assert_eq!(
            found["metadata"]["finalizers"],
            json!(["spiderpool.spidernet.io"])
        );
        assert_eq!(rig.delete(&path).0, 200);
        goes(&rig, &path);
    }
    rig.assert_allowed();
}

fn goes(rig: &Rig, path: &str) {
    wait::until(SOON, &format!("{path} to go"), || {
        Ok(rig.api.get(path)?.is_none().then_some(()))
    })
    .unwrap();
}

/// A subnet of which pools hold something stays; both go when the pool does.
#[test]
#[ignore = "api level"]
fn a_subnet_with_pools_is_not_deleted() {
    let rig = Rig::start(1, "");
    let spec = |ips: &str| json!({"subnet": "10.54.0.0/24", "ips": [ips]});
    let subnet = object("SpiderSubnet", "s", spec("10.54.0.10-10.54.0.49"));
    assert_eq!(rig.create(&subnet).0, 201);
    seen(&rig, "SpiderSubnet", &subnet);
    let pool = object("SpiderIPPool", "p", spec("10.54.0.10-10.54.0.19"));
    let (status, made) = rig.create(&pool);
    assert_eq!(status, 201, "{made}");
    let owner = &made["metadata"]["ownerReferences"][0];
    assert_eq!(owner["kind"], "SpiderSubnet", "{made}");
    let subnet = format!("{OURS}/spidersubnets/s");
    let held = |count: u64| {
        wait::until(SOON, &format!("{count} addresses held"), || {
            let status = rig.api.get(&subnet)?.unwrap_or_default()["status"].clone();
            Ok((status["allocatedIPCount"] == count).then_some(status))
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", rig.logs()))
    };
    let status = held(10);
    assert_eq!(status["totalIPCount"], 40, "{status}");
    let (status, answer) = rig.delete(&subnet);
    assert_eq!(status, 403, "{answer}");
    let message = answer["message"].as_str().unwrap();
    assert!(
        message.contains("10 allocated IPs in pools such as p"),
        "{message}"
    );
    // Addresses that the pool holds cannot be taken away from it.
    let (status, answer) = rig.merge(&subnet, &json!({"spec": spec("10.54.0.15-10.54.0.49")}));
    assert_eq!(status, 422, "{answer}");
    let pool = format!("{OURS}/spiderippools/p");
    assert_eq!(rig.delete(&pool).0, 200);
    goes(&rig, &pool);
    held(0);
    assert_eq!(rig.delete(&subnet).0, 200);
    goes(&rig, &subnet);
    rig.assert_allowed();
}

/// With the guard off a subnet takes its pools along, also through our own webhooks.
#[test]
#[ignore = "api level"]
fn a_subnet_that_goes_takes_its_pools_first() {
    let rig = Rig::start(1, "enableValidatingResourcesDeletedWebhook: false");
    let spec = json!({"subnet": "10.55.0.0/24", "ips": ["10.55.0.10"]});
    // The pool is there first: the controller gives it its owner, with the rights of the chart.
    let pool = object("SpiderIPPool", "p", spec.clone());
    assert_eq!(rig.create(&pool).0, 201);
    let subnet = object("SpiderSubnet", "s", spec);
    assert_eq!(rig.create(&subnet).0, 201);
    let owned = wait::until(SOON, "a pool that blocks the end of its subnet", || {
        let owners = &rig.api.pool("p")?["metadata"]["ownerReferences"];
        Ok((owners[0]["blockOwnerDeletion"] == true).then_some(()))
    });
    owned.unwrap_or_else(|error| panic!("{error:#}\n{}", rig.logs()));
    let path = format!("{OURS}/spidersubnets/s");
    let until = |what: &str, right: &dyn Fn(&Value) -> bool| {
        wait::until(SOON, what, || {
            Ok(rig.api.get(&path)?.filter(|found| right(found)))
        })
        .unwrap_or_else(|error| panic!("{error:#}\n{}", rig.logs()))
    };
    until("a count", &|found| found["status"]["allocatedIPCount"] == 1);
    assert_eq!(rig.delete(&path).0, 200);
    until("a deletion in the foreground", &|found| {
        let names = found["metadata"]["finalizers"].as_array();
        names.is_some_and(|names| names.contains(&json!("foregroundDeletion")))
    });
    // The garbage collector's part.
    assert_eq!(rig.delete(&format!("{OURS}/spiderippools/p")).0, 200);
    until("the end of our finalizer", &|found| {
        found["metadata"]["finalizers"] == json!(["foregroundDeletion"])
    });
    rig.assert_allowed();
}

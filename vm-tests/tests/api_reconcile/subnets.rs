//! Subnets: what their pools hold, and their end. No garbage collector runs here: the tests are it.

use serde_json::{Value, json};
use vm_tests::lab::api_client::{ApiClient, POOLS};

use crate::rig::{OURS, Rig, ours};

const FINALIZER: &str = "spiderpool.spidernet.io";

fn path() -> String {
    format!("{OURS}/spidersubnets/s")
}

fn create_subnet(rig: &Rig) -> Value {
    let metadata = json!({"name": "s", "finalizers": [FINALIZER]});
    let spec = json!({"subnet": "10.37.0.0/24", "ips": ["10.37.0.10-10.37.0.49"], "excludeIPs": ["10.37.0.20"]});
    let object = ours("SpiderSubnet", &metadata, &spec);
    rig.api
        .create(&format!("{OURS}/spidersubnets"), &object)
        .unwrap()
}

fn create_pool(rig: &Rig, name: &str, subnet: &str, ips: &str) {
    let metadata = json!({"name": name, "finalizers": [FINALIZER]});
    let spec = json!({"subnet": subnet, "ips": [ips]});
    rig.api
        .create(POOLS, &ours("SpiderIPPool", &metadata, &spec))
        .unwrap();
}

fn finalizers(api: &ApiClient) -> Option<Value> {
    let found = api.get(&path()).unwrap()?;
    Some(found["metadata"]["finalizers"].clone())
}

/// Waits for entries and counts.
fn wait_for(rig: &mut Rig, held: &Value, allocated: u64) {
    rig.until(&format!("{allocated} addresses held: {held}"), |api| {
        let status = api.get(&path()).unwrap()?["status"].clone();
        let found = match status["controlledIPPools"].as_str() {
            Some(text) => serde_json::from_str(text).unwrap(),
            None => Value::Null,
        };
        let right = found == *held
            && status["totalIPCount"] == 39
            && status["allocatedIPCount"] == allocated;
        right.then_some(())
    });
}

fn wait_for_owner(rig: &mut Rig, pool: &str, subnet: &Value) {
    rig.until(&format!("the owner of {pool}"), |api| {
        let metadata = api.pool(pool).unwrap()["metadata"].clone();
        let owner = json!([{"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderSubnet",
            "name": "s", "uid": subnet["metadata"]["uid"], "controller": true,
            "blockOwnerDeletion": true}]);
        let right = metadata["ownerReferences"] == owner
            && metadata["labels"]["ipam.spidernet.io/owner-spider-subnet"] == "s";
        right.then_some(())
    });
}

#[test]
#[ignore = "api level"]
fn a_subnet_knows_what_its_pools_hold() {
    let mut rig = Rig::start();
    // Made before the subnet, beyond it in part; of another network; after it.
    create_pool(&rig, "early", "10.37.0.0/24", "10.37.0.5-10.37.0.21");
    create_pool(&rig, "apart", "10.38.0.0/24", "10.38.0.10");
    let subnet = create_subnet(&rig);
    let early = json!(["10.37.0.10-10.37.0.19", "10.37.0.21"]);
    wait_for(&mut rig, &json!({"early": {"ips": early}}), 11);
    create_pool(&rig, "late", "10.37.0.0/24", "10.37.0.40-10.37.0.44");
    let late = json!(["10.37.0.40-10.37.0.44"]);
    let both = json!({"early": {"ips": early}, "late": {"ips": late}});
    wait_for(&mut rig, &both, 16);
    for pool in ["early", "late"] {
        wait_for_owner(&mut rig, pool, &subnet);
    }
    assert_eq!(
        rig.api.pool("apart").unwrap()["metadata"].get("ownerReferences"),
        None
    );
    // A pool changes, and goes.
    rig.api
        .merge(
            &format!("{POOLS}/late"),
            &json!({"spec": {"ips": ["10.37.0.40"]}}),
        )
        .unwrap();
    let both = json!({"early": {"ips": early}, "late": {"ips": ["10.37.0.40"]}});
    wait_for(&mut rig, &both, 12);
    rig.api.delete(&format!("{POOLS}/early")).unwrap();
    wait_for(&mut rig, &json!({"late": {"ips": ["10.37.0.40"]}}), 1);
    // An entry that is written ahead of its automatic pool stays.
    let application = "apps_v1_Deployment_shop_web";
    let ahead = json!({"late": {"ips": ["10.37.0.40"]},
        "auto4-web": {"ips": ["10.37.0.30-10.37.0.31"], "application": application}});
    let status = json!({"status": {"controlledIPPools": ahead.to_string(), "allocatedIPCount": 3}});
    rig.api
        .merge(&format!("{}/status", path()), &status)
        .unwrap();
    create_pool(&rig, "third", "10.37.0.0/24", "10.37.0.45");
    let mut all = ahead;
    all["third"] = json!({"ips": ["10.37.0.45"]});
    wait_for(&mut rig, &all, 4);
}

#[test]
#[ignore = "api level"]
fn a_subnet_goes_after_its_pools() {
    let mut rig = Rig::start();
    let subnet = create_subnet(&rig);
    create_pool(&rig, "p", "10.37.0.0/24", "10.37.0.10-10.37.0.11");
    wait_for_owner(&mut rig, "p", &subnet);
    let held = json!({"p": {"ips": ["10.37.0.10-10.37.0.11"]}});
    wait_for(&mut rig, &held, 2);
    let records = json!({"status": {"allocatedIPs": r#"{"10.37.0.10":{"pod":"default/web","podUid":"u-1"}}"#}});
    let status = format!("{POOLS}/p/status");
    rig.api.merge(&status, &records).unwrap();
    rig.api.delete(&path()).unwrap();
    rig.until("a deletion that takes the pools first", |api| {
        let names = finalizers(api)?;
        (names == json!([FINALIZER, "foregroundDeletion"])).then_some(())
    });
    rig.api.delete(&format!("{POOLS}/p")).unwrap();
    // The pool waits for its record, and the subnet for the pool.
    wait_for(&mut rig, &held, 2);
    rig.api
        .merge(&status, &json!({"status": {"allocatedIPs": null}}))
        .unwrap();
    rig.until("the end of our finalizer", |api| {
        (finalizers(api)? == json!(["foregroundDeletion"])).then_some(())
    });
    assert_eq!(rig.api.get(&format!("{POOLS}/p")).unwrap(), None);
}

/// One that is to leave its pools alone is not changed to one that does not.
#[test]
#[ignore = "api level"]
fn a_subnet_that_leaves_its_pools_goes_without_them() {
    let mut rig = Rig::start();
    let subnet = create_subnet(&rig);
    create_pool(&rig, "q", "10.37.0.0/24", "10.37.0.10");
    wait_for_owner(&mut rig, "q", &subnet);
    wait_for(&mut rig, &json!({"q": {"ips": ["10.37.0.10"]}}), 1);
    let orphans = format!("{}?propagationPolicy=Orphan", path());
    rig.api.delete(&orphans).unwrap();
    // The garbage collector's part.
    let none = json!({"metadata": {"ownerReferences": null}});
    rig.api.merge(&format!("{POOLS}/q"), &none).unwrap();
    rig.until("the end of our finalizer, with the pool there", |api| {
        (finalizers(api)? == json!(["orphan"])).then_some(())
    });
    let pool = rig.api.pool("q").unwrap();
    assert!(pool["metadata"].get("deletionTimestamp").is_none());
}

//! Manifests of users, as they stand in articles and guides.

use serde_json::{Value, json};

use crate::rig::{Rig, WITH_PODS};

const GENERATION_1: &str = include_str!("../../../crates/api/testdata/manifests/generation-1.yaml");
const GENERATION_2: &str = include_str!("../../../crates/api/testdata/manifests/generation-2.yaml");
const MASTER_NIC: &str = include_str!("../../../crates/api/testdata/manifests/master-nic.yaml");
const MULTI_NIC: &str = include_str!("../../../crates/api/testdata/manifests/multi-nic.yaml");

/// Creates every object of a file; they are answered in its order.
fn apply(rig: &Rig, file: &str) -> Vec<Value> {
    let documents = file.split("\n---\n");
    let objects = documents.map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
    objects
        .map(|object| {
            let (status, answer) = rig.create(&object);
            assert_eq!(status, 201, "{object}\n{answer}");
            answer
        })
        .collect()
}

fn requests(pod: &Value) -> &Value {
    &pod["spec"]["containers"][0]["resources"]["requests"]
}

#[test]
#[ignore = "api level"]
fn manifests_of_users_apply_unchanged() {
    let rig = Rig::start(1, WITH_PODS);
    let made = apply(&rig, GENERATION_2);
    let pool = &made[0];
    assert_eq!(
        pool["metadata"]["labels"]["ipam.spidernet.io/iaas-provider"],
        "vendor"
    );
    assert_eq!(
        pool["metadata"]["finalizers"],
        json!(["spiderpool.spidernet.io"])
    );
    let pod = made.last().unwrap();
    assert_eq!(
        *requests(pod),
        json!({"spidernet.io/prewarm-sub-eni": "1", "spidernet.io/eth1-nic": "1"})
    );
    let made = apply(&rig, MASTER_NIC);
    assert_eq!(*requests(&made[1]), json!({"spidernet.io/eth1-nic": "1"}));
    let made = apply(&rig, MULTI_NIC);
    let pod = &made[4];
    assert_eq!(
        pod["metadata"]["annotations"]["v1.multus-cni.io/default-network"],
        "kube-system/macvlan-ens192"
    );
    assert_eq!(
        *requests(pod),
        json!({"spidernet.io/ens192-nic": "1", "spidernet.io/ens224-nic": "1"})
    );
    // The one of generation 1 is another cluster's.
    let first: Value =
        serde_saphyr::from_str(GENERATION_1.split("\n---\n").next().unwrap()).unwrap();
    let (status, answer) = rig.create(&first);
    assert_eq!(status, 422, "{answer}");
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("use cniType eni-vlan"),
        "{answer}"
    );
    // A Pod of the controller's own namespace is never asked about.
    let own = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "spiderpool",
        "annotations": {"cni.spidernet.io/rdma-resource-inject": "nobody"}},
        "spec": {"containers": [{"name": "c", "image": "none"}]}});
    assert_eq!(rig.create(&own).0, 201);
    let mut other = own;
    other["metadata"]["namespace"] = json!("default");
    let (status, answer) = rig.create(&other);
    assert_eq!(status, 422, "{answer}");
    rig.assert_allowed();
}

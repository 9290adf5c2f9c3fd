//! SpiderCoordinator: its status, and its end.

use serde_json::{Value, json};

use crate::rig::{OURS, Rig, ours};

fn path() -> String {
    format!("{OURS}/spidercoordinators/default")
}

fn create(rig: &Rig, kind: &str) {
    let metadata = json!({"name": "default", "finalizers": ["spiderpool.spidernet.io"]});
    let object = ours(
        "SpiderCoordinator",
        &metadata,
        &json!({"podCIDRType": kind}),
    );
    rig.api
        .create(&format!("{OURS}/spidercoordinators"), &object)
        .unwrap();
}

fn set_kind(rig: &Rig, kind: &str) {
    rig.api
        .merge(&path(), &json!({"spec": {"podCIDRType": kind}}))
        .unwrap();
}

/// Waits for phase and Pod CIDRs; the status.
fn wait_for(rig: &mut Rig, phase: &str, pods: &Value) -> Value {
    rig.until(&format!("{phase} with {pods}"), |api| {
        let status = api.get(&path()).unwrap()?["status"].clone();
        (status["phase"] == phase && status["overlayPodCIDR"] == *pods).then_some(status)
    })
}

fn kubeadm(rig: &Rig, pods: &str) {
    let text = format!("networking:\n  podSubnet: {pods}\n  serviceSubnet: 10.254.0.0/16\n");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kubeadm-config"}, "data": {"ClusterConfiguration": text}});
    let maps = "/api/v1/namespaces/kube-system/configmaps";
    if rig
        .api
        .get(&format!("{maps}/kubeadm-config"))
        .unwrap()
        .is_none()
    {
        rig.api.create(maps, &map).unwrap();
    } else {
        rig.api
            .merge(
                &format!("{maps}/kubeadm-config"),
                &json!({"data": map["data"]}),
            )
            .unwrap();
    }
}

#[test]
#[ignore = "api level"]
fn the_status_follows_the_cluster_and_the_object_can_be_deleted() {
    let mut rig = Rig::start();
    create(&rig, "cluster");
    let status = wait_for(&mut rig, "NotReady", &json!([]));
    let reason = status["reason"].as_str().unwrap();
    assert!(reason.contains("kube-controller-manager"), "{reason}");
    assert_eq!(status["serviceCIDR"], json!([]));
    kubeadm(&rig, "10.244.0.0/16,fd44::/56");
    let status = wait_for(&mut rig, "Synced", &json!(["10.244.0.0/16", "fd44::/56"]));
    assert_eq!(status.get("reason"), None, "{status}");
    // The API server keeps the range it was started with in an object.
    let services = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes";
    let range = rig
        .api
        .get(services)
        .unwrap()
        .map(|object| object["spec"]["cidrs"].clone());
    assert_eq!(
        status["serviceCIDR"],
        range.unwrap_or(json!(["10.254.0.0/16"]))
    );
    kubeadm(&rig, "10.245.0.0/16");
    wait_for(&mut rig, "Synced", &json!(["10.245.0.0/16"]));

    set_kind(&rig, "calico");
    let status = wait_for(&mut rig, "NotReady", &json!([]));
    assert!(
        status["reason"].as_str().unwrap().contains("Calico"),
        "{status}"
    );
    assert_ne!(status["serviceCIDR"], json!([]));
    let told = rig.event("SpiderCoordinator", "default", "PodCIDRTypeChanged");
    assert_eq!(told, "podCIDRType changed from cluster to calico");
    set_kind(&rig, "cilium");
    let told = rig.event("SpiderCoordinator", "default", "CiliumNotReady");
    assert!(told.contains("does not exist"), "{told}");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cilium-config"},
        "data": {"ipam": "cluster-pool", "cluster-pool-ipv4-cidr": "10.246.0.0/16"}});
    rig.api
        .create("/api/v1/namespaces/kube-system/configmaps", &map)
        .unwrap();
    wait_for(&mut rig, "Synced", &json!(["10.246.0.0/16"]));
    set_kind(&rig, "auto");
    wait_for(&mut rig, "Synced", &json!([]));
    std::fs::write(rig.cni_dir().join("10-f.conflist"), r#"{"name":"flannel"}"#).unwrap();
    wait_for(&mut rig, "Synced", &json!(["10.245.0.0/16"]));

    rig.api.delete(&path()).unwrap();
    rig.until("the end of the coordinator", |api| {
        api.get(&path()).unwrap().is_none().then_some(())
    });
}

#[test]
#[ignore = "api level"]
fn calicos_pools_are_read_where_the_cluster_has_the_kind() {
    let mut rig = Rig::start();
    kubeadm(&rig, "10.244.0.0/16");
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ippools.crd.projectcalico.org"},
        "spec": {"group": "crd.projectcalico.org", "scope": "Cluster",
            "names": {"kind": "IPPool", "plural": "ippools"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    rig.api.create(definitions, &definition).unwrap();
    create(&rig, "calico");
    wait_for(&mut rig, "Synced", &json!([]));
    let pools = "/apis/crd.projectcalico.org/v1/ippools";
    for (name, spec) in [
        ("z-first", json!({"cidr": "10.20.0.0/16"})),
        ("off", json!({"cidr": "10.21.0.0/16", "disabled": true})),
    ] {
        let pool = json!({"apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool",
            "metadata": {"name": name}, "spec": spec});
        rig.api.create(pools, &pool).unwrap();
    }
    wait_for(&mut rig, "Synced", &json!(["10.20.0.0/16"]));
}

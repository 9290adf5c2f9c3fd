//! Pods of KubeVirt machines: endpoint and records are the machine's (spec ipam 1.7 row 7, 4.6).

use spiderpool_agent::store::PodObject;
use spiderpool_ipam::sticky::{MachineFacts, VmiFacts};

use crate::world::{Request, World, addresses, object_key, owned, pod_object};

const RUNNING: MachineFacts = MachineFacts {
    vmi: Some(VmiFacts {
        terminating: false,
        of_vm: true,
    }),
    vm_terminating: Some(false),
};
const STOPPED: MachineFacts = MachineFacts {
    vmi: None,
    vm_terminating: Some(false),
};
const GONE: MachineFacts = MachineFacts {
    vmi: None,
    vm_terminating: None,
};

fn world() -> World {
    let world = World::new();
    world.plain_pool("p4", "10.40.0.0/24", &["10.40.0.10-10.40.0.14"]);
    machine(&world, RUNNING);
    world
}

fn machine(world: &World, facts: MachineFacts) {
    world.store.set_machine(object_key("vms/db"), facts);
}

fn launcher(world: &World, name: &str, uid: &str) -> PodObject {
    let pod = pod_object(&format!("vms/{name}"), uid, &[]);
    let pod = owned(pod, "kubevirt.io/v1", "VirtualMachineInstance", "db");
    world.store.set_pod(pod.clone());
    pod
}

fn request(container: &str, name: &str, uid: &str) -> Request {
    Request::ipam(container, "eth0", &["p4"]).pod(&format!("vms/{name}"), uid)
}

#[tokio::test]
async fn a_machine_keeps_its_address_while_it_exists() {
    let mut world = world();
    let first = launcher(&world, "launcher-a", "u-1");
    let call = request("c-1", "launcher-a", "u-1");
    let before = world.add(&call).await.unwrap();
    assert_eq!(world.endpoint_uid("vms/db").as_deref(), Some("u-1"));
    assert_eq!(world.endpoint_uid("vms/launcher-a"), None);
    machine(&world, STOPPED);
    world.end(first);
    world.del(&call).await.unwrap();
    assert_eq!(world.records("p4"), ["10.40.0.10 u-1"]);
    world.store.remove_pod(&object_key("vms/launcher-a"));
    machine(&world, RUNNING);
    launcher(&world, "launcher-b", "u-2");
    let call = request("c-2", "launcher-b", "u-2");
    let after = world.add(&call).await.unwrap();
    assert_eq!(addresses(&before), addresses(&after));
    // The Pod is gone by the time of its DEL, and so are file and memory: the record tells whose it
    // was.
    machine(&world, GONE);
    world.store.remove_pod(&object_key("vms/launcher-b"));
    std::fs::remove_file(world.paths.attachments_dir().join("c-2-eth0.json")).unwrap();
    world.restart();
    world.del(&call).await.unwrap();
    assert!(world.records("p4").is_empty());
    assert_eq!(world.endpoint_uid("vms/db"), None);
}

#[tokio::test]
async fn the_del_of_a_pod_that_is_gone_does_not_free_a_stopped_machines_address() {
    let mut world = world();
    launcher(&world, "launcher-a", "u-1");
    let call = request("c-1", "launcher-a", "u-1");
    world.add(&call).await.unwrap();
    machine(&world, STOPPED);
    world.store.remove_pod(&object_key("vms/launcher-a"));
    world.restart();
    world.del(&call).await.unwrap();
    assert_eq!(world.records("p4"), ["10.40.0.10 u-1"]);
    assert!(world.endpoint_uid("vms/db").is_some() && world.files().is_empty());
}

/// A live migration: the target has the address while the source runs. It fails, and the source ends
/// last: nothing of either stays.
#[tokio::test]
async fn a_failed_migration_leaves_nothing_behind() {
    let world = world();
    let source = launcher(&world, "source", "u-1");
    world.add(&request("c-1", "source", "u-1")).await.unwrap();
    let mut target = launcher(&world, "target", "u-2");
    let note = ("kubevirt.io/migrationJobName".into(), "job-1".into());
    target.facts.annotations.extend([note]);
    world.store.set_pod(target.clone());
    let result = world.add(&request("c-2", "target", "u-2")).await.unwrap();
    assert_eq!(addresses(&result), ["10.40.0.10/24"]);
    assert_eq!(world.records("p4"), ["10.40.0.10 u-2"]);
    world.end(target);
    world.del(&request("c-2", "target", "u-2")).await.unwrap();
    assert_eq!(world.records("p4"), ["10.40.0.10 u-2"]);
    world.store.remove_pod(&object_key("vms/target"));
    machine(&world, GONE);
    world.end(source);
    world.del(&request("c-1", "source", "u-1")).await.unwrap();
    assert!(world.records("p4").is_empty());
    assert_eq!(world.endpoint_uid("vms/db"), None);
}

/// The source runs on after its target is gone, and its sandbox is made anew.
#[tokio::test]
async fn the_source_of_a_failed_migration_has_its_address_again() {
    let world = world();
    launcher(&world, "source", "u-1");
    world.add(&request("c-1", "source", "u-1")).await.unwrap();
    launcher(&world, "target", "u-2");
    world.add(&request("c-2", "target", "u-2")).await.unwrap();
    world.store.remove_pod(&object_key("vms/target"));
    let again = world.add(&request("c-3", "source", "u-1")).await.unwrap();
    assert_eq!(addresses(&again), ["10.40.0.10/24"]);
    assert_eq!(world.records("p4"), ["10.40.0.10 u-1"]);
}

#[tokio::test]
async fn a_trace_finds_what_is_written_under_the_machines_name() {
    let world = world();
    launcher(&world, "launcher-a", "u-1");
    let call = request("c-1", "launcher-a", "u-1");
    world.add(&call).await.unwrap();
    let told = crate::trace::trace(&world, "vms/launcher-a").await;
    assert_eq!(told.endpoint.unwrap()["current"]["uid"], "u-1");
    assert_eq!(told.records.len(), 1);
    assert_eq!(told.records[0].pod_uid, "u-1");
}

/// While one of a machine's two Pods lives, the end of the other frees nothing of it.
#[tokio::test]
async fn the_end_of_one_of_two_pods_frees_nothing_of_the_other() {
    let world = world();
    let source = launcher(&world, "source", "u-1");
    world.add(&request("c-1", "source", "u-1")).await.unwrap();
    launcher(&world, "target", "u-2");
    world.add(&request("c-2", "target", "u-2")).await.unwrap();
    machine(&world, GONE);
    world.end(source);
    world.del(&request("c-1", "source", "u-1")).await.unwrap();
    assert_eq!(world.records("p4"), ["10.40.0.10 u-2"]);
    assert_eq!(world.endpoint_uid("vms/db").as_deref(), Some("u-2"));
}

/// The machine is deleted while it migrates. One Pod ends at once, in the other the guest shuts down.
#[tokio::test]
async fn the_first_of_two_pods_to_end_leaves_the_address_to_the_one_that_shuts_down() {
    let world = world();
    let source = launcher(&world, "source", "u-1");
    world.add(&request("c-1", "source", "u-1")).await.unwrap();
    let target = launcher(&world, "target", "u-2");
    world.add(&request("c-2", "target", "u-2")).await.unwrap();
    machine(&world, GONE);
    world.end(source);
    world.end(target);
    world.del(&request("c-2", "target", "u-2")).await.unwrap();
    assert_eq!(world.records("p4"), ["10.40.0.10 u-2"]);
    world.store.remove_pod(&object_key("vms/target"));
    world.del(&request("c-1", "source", "u-1")).await.unwrap();
    assert!(world.records("p4").is_empty());
    assert_eq!(world.endpoint_uid("vms/db"), None);
}

//! KubeVirt's part: machines that somebody starts and stops, the instance of each that runs, and the Pod
//! of the instance; two of them while it migrates (spec ipam 4.6).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use spiderpool_agent::clock::Clock;
use spiderpool_ipam::sticky::{MachineFacts, VmiFacts, is_valid_machine};
use tokio::time::sleep;

use crate::api::{Api, Kind, stamp};
use crate::kubelet::{self, Spec};
use crate::node::Node;
use crate::wishes;
use crate::world::{World, is_alive};

/// Machines of a cluster that has any.
pub(crate) const MACHINES: u8 = 2;
/// How long a migration's target may take to come up.
const PATIENCE: Duration = Duration::from_secs(180);

/// What is done to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// It is made, or started.
    Start,
    Stop,
    /// It goes, with all that is of it.
    Delete,
    /// Its Pod is deleted, and another one follows.
    Reboot,
    /// The same, and the object goes at once.
    Kill,
    /// A second Pod comes up on that node. The first one goes then; if it fails, the second.
    Migrate {
        node: u8,
        fails: bool,
    },
}

fn name_of(machine: u8) -> String {
    format!("vm-{machine}")
}

fn key_of(machine: u8) -> String {
    format!("sim/{}", name_of(machine))
}

/// Whether records and endpoints of this key are a machine's.
pub(crate) fn is_machine(key: &str) -> bool {
    key.starts_with("sim/vm-")
}

/// Whether its user has it yet, as the specification says.
pub(crate) fn exists(api: &Api, key: &str) -> bool {
    let instance = api.get(Kind::Instance, key);
    let machine = api.get(Kind::Machine, key);
    is_valid_machine(&MachineFacts {
        vmi: instance.map(|instance| VmiFacts {
            terminating: !is_alive(instance),
            of_vm: true,
        }),
        vm_terminating: machine.map(|machine| !is_alive(machine)),
    })
}

/// Makes the machines and what keeps them.
pub(crate) fn make(world: &Arc<World>, nodes: &[Arc<Node>]) {
    for machine in 0..MACHINES {
        start(world, machine);
        tokio::spawn(keep(Arc::clone(world), nodes.to_vec(), machine));
    }
}

pub(crate) fn act(world: &Arc<World>, nodes: &[Arc<Node>], machine: u8, deed: Deed) {
    let key = key_of(machine);
    match deed {
        Deed::Start => start(world, machine),
        Deed::Stop => {
            world.edit(Kind::Machine, &key, |found| {
                found["spec"]["running"] = false.into();
            });
        }
        Deed::Delete => end(world, Kind::Machine, &key),
        Deed::Reboot => {
            let pods = living(&world.api(), &key);
            pods.iter().for_each(|pod| kubelet::delete(world, pod));
        }
        Deed::Kill => {
            let pods = living(&world.api(), &key);
            pods.iter().for_each(|pod| kubelet::force(world, pod));
        }
        Deed::Migrate { node, fails } => migrate(world, nodes, machine, node, fails),
    }
}

/// All of them go.
pub(crate) fn end_all(world: &World) {
    for machine in 0..MACHINES {
        end(world, Kind::Machine, &key_of(machine));
    }
}

fn start(world: &World, machine: u8) {
    let key = key_of(machine);
    if world.get(Kind::Machine, &key).is_none() {
        let made = json!({"metadata": {"namespace": "sim", "name": name_of(machine)},
            "spec": {"running": true}});
        return world.create(Kind::Machine, &key, made);
    }
    world.edit(Kind::Machine, &key, |found| {
        found["spec"]["running"] = true.into();
    });
}

/// Marks for deletion; it goes when what it has is gone.
fn end(world: &World, kind: Kind, key: &str) {
    let now = world.clock.wall();
    let alive = world.get(kind, key).is_some_and(|found| is_alive(&found));
    if alive {
        world.edit(kind, key, |found| {
            found["metadata"]["deletionTimestamp"] = stamp(now).into();
        });
    }
}

/// Keys of the machine's Pods that are not being deleted.
fn living(api: &Api, key: &str) -> Vec<String> {
    let pods = launchers(api, key);
    let living = pods.iter().filter(|pod| is_alive(pod));
    living.map(|pod| pod_key(pod)).collect()
}

fn launchers(api: &Api, key: &str) -> Vec<Arc<Value>> {
    let name = key.trim_start_matches("sim/");
    let mut pods = api.all(Kind::Pod);
    pods.retain(|pod| {
        let owner = &pod["metadata"]["ownerReferences"][0];
        owner["kind"] == "VirtualMachineInstance" && owner["name"] == name
    });
    pods
}

fn pod_key(pod: &Value) -> String {
    format!(
        "sim/{}",
        pod["metadata"]["name"].as_str().unwrap_or_default()
    )
}

fn is_up(world: &World, pod: &str) -> bool {
    let pod = world.get(Kind::Pod, pod);
    pod.is_some_and(|pod| is_alive(&pod) && !pod["status"]["podIPs"].is_null())
}

/// What the controller has to do.
enum Work {
    MakeInstance,
    EndInstance,
    DropInstance,
    MakePod,
    EndPods(Vec<String>),
    DropMachine,
}

/// The controller of one machine.
async fn keep(world: Arc<World>, nodes: Vec<Arc<Node>>, machine: u8) {
    let key = key_of(machine);
    loop {
        let due = |world: &World| work(&world.api(), &key).is_some();
        world.until(Duration::from_secs(3_600), due).await;
        sleep(Duration::from_millis(100 + world.weather.roll(3_000))).await;
        let work = work(&world.api(), &key);
        match work {
            Some(Work::MakeInstance) => {
                let owner = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                    "name": name_of(machine), "uid": "uid-of-the-machine", "controller": true}]);
                let made = json!({"metadata": {"namespace": "sim", "name": name_of(machine),
                    "ownerReferences": owner}});
                world.create(Kind::Instance, &key, made);
            }
            Some(Work::EndInstance) => end(&world, Kind::Instance, &key),
            Some(Work::DropInstance) => world.put(Kind::Instance, &key, None),
            Some(Work::DropMachine) => world.put(Kind::Machine, &key, None),
            Some(Work::EndPods(pods)) => pods.iter().for_each(|pod| kubelet::delete(&world, pod)),
            Some(Work::MakePod) => {
                let node = kubelet::any_node(&world, &nodes);
                launch(&world, &nodes, machine, &node, None);
            }
            None => {}
        }
    }
}

fn work(api: &Api, key: &str) -> Option<Work> {
    let machine = api.get(Kind::Machine, key);
    let wanted =
        machine.is_some_and(|machine| is_alive(machine) && machine["spec"]["running"] == true);
    let living = living(api, key);
    let none = launchers(api, key).is_empty();
    match api.get(Kind::Instance, key) {
        Some(instance) if is_alive(instance) => match (wanted, none) {
            (false, _) => Some(Work::EndInstance),
            (true, true) => Some(Work::MakePod),
            (true, false) => None,
        },
        _ if !living.is_empty() => Some(Work::EndPods(living)),
        _ if !none => None,
        Some(_) => Some(Work::DropInstance),
        None if wanted => Some(Work::MakeInstance),
        None => machine
            .filter(|machine| !is_alive(machine))
            .map(|_| Work::DropMachine),
    }
}

/// A Pod of it; `job`: of a migration.
fn launch(
    world: &Arc<World>,
    nodes: &[Arc<Node>],
    machine: u8,
    node: &Arc<Node>,
    job: Option<&str>,
) -> String {
    let number = world.next_id();
    let name = format!("virt-launcher-{}-{number}", name_of(machine));
    let key = format!("sim/{name}");
    let mut notes = json!({});
    if let Some(job) = job {
        notes["kubevirt.io/migrationJobName"] = job.into();
    }
    let owner = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "name": name_of(machine), "uid": "uid-of-the-instance", "controller": true}]);
    let spec = Spec {
        key: key.clone(),
        records: key_of(machine),
        uid: format!("vm-{machine}-pod-{number}"),
        wish: wishes::of_machine(world.scenario, machine),
        meta: json!({"labels": {"kubevirt.io": "virt-launcher"}, "annotations": notes,
            "ownerReferences": owner}),
        slot: None,
    };
    kubelet::start(world, nodes, node, spec);
    key
}

fn migrate(world: &Arc<World>, nodes: &[Arc<Node>], machine: u8, node: u8, fails: bool) {
    let key = key_of(machine);
    let runs = world.get(Kind::Instance, &key);
    let living = living(&world.api(), &key);
    let node = &nodes[usize::from(node) % nodes.len()];
    let [source] = living.as_slice() else {
        return;
    };
    let here = world.get(Kind::Pod, source);
    let here = here.is_some_and(|pod| pod["spec"]["nodeName"] == node.name.as_str());
    let runs = runs.is_some_and(|instance| is_alive(&instance)) && is_up(world, source);
    if here || !runs || node.lost.is_cancelled() {
        return;
    }
    let job = format!("job-{}", world.next_id());
    let target = launch(world, nodes, machine, node, Some(&job));
    tokio::spawn(follow(Arc::clone(world), source.clone(), target, fails));
}

/// The end of a migration.
async fn follow(world: Arc<World>, source: String, target: String, fails: bool) {
    let lives = |world: &World, pod: &str| {
        let pod = world.get(Kind::Pod, pod);
        pod.is_some_and(|pod| is_alive(&pod))
    };
    let decided =
        |world: &World| !lives(world, &source) || !lives(world, &target) || is_up(world, &target);
    world.until(PATIENCE, decided).await;
    sleep(Duration::from_millis(200 + world.weather.roll(5_000))).await;
    match is_up(&world, &target) && !fails {
        true => kubelet::delete(&world, &source),
        false => kubelet::delete(&world, &target),
    }
}

//! A StatefulSet: its controller keeps one Pod for each ordinal below the replicas, makes a new one when
//! one is gone, and deletes those that are too many.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use spiderpool_ipam::sticky::{StatefulSetFacts, is_valid_ordinal};
use tokio::time::sleep;

use crate::action::{MEMBERS, PODS};
use crate::api::Kind;
use crate::kubelet;
use crate::node::Node;
use crate::world::{World, is_alive};

/// Its key.
const SET: &str = "sim/set";
/// Its name, and the start of its Pods' names.
pub(crate) const NAME: &str = "set";

/// What the controller has to do.
enum Work {
    Create(u8),
    Delete(u8),
}

pub(crate) fn make(world: &World) {
    let set = json!({"metadata": {"namespace": "sim", "name": NAME, "uid": "uid-of-the-set"},
        "spec": {"replicas": MEMBERS - 1}});
    world.create(Kind::StatefulSet, SET, set);
}

pub(crate) fn scale(world: &World, replicas: u8) {
    world.edit(Kind::StatefulSet, SET, |set| {
        set["spec"]["replicas"] = replicas.into();
    });
}

/// Whether a Pod or endpoint of this key is of the set.
pub(crate) fn is_member(key: &str) -> bool {
    key.starts_with("sim/set-")
}

/// Whether the set wants the Pod of this key.
pub(crate) fn wants(replicas: Option<i64>, key: &str) -> bool {
    let set = replicas.map(|replicas| StatefulSetFacts {
        replicas: Some(replicas),
        start: None,
    });
    is_member(key) && is_valid_ordinal(key.trim_start_matches("sim/"), set.as_ref())
}

/// How many Pods it wants.
pub(crate) fn replicas(api: &crate::api::Api) -> Option<i64> {
    api.get(Kind::StatefulSet, SET)?["spec"]["replicas"].as_i64()
}

/// The controller.
pub(crate) async fn run(world: Arc<World>, nodes: Vec<Arc<Node>>) {
    loop {
        world
            .until(Duration::from_secs(3_600), |world| work(world).is_some())
            .await;
        sleep(Duration::from_millis(100 + world.weather.roll(3_000))).await;
        match work(&world) {
            Some(Work::Delete(pod)) => kubelet::delete(&world, &kubelet::key_of(pod)),
            Some(Work::Create(pod)) => {
                let left: Vec<u8> = (0..nodes.len())
                    .filter(|index| !nodes[*index].lost.is_cancelled())
                    .map(|index| u8::try_from(index).unwrap())
                    .collect();
                let chosen = world.weather.roll(left.len() as u64);
                let node = left[usize::try_from(chosen).unwrap()];
                kubelet::create(&world, &nodes, pod, node, 0);
            }
            None => {}
        }
    }
}

fn work(world: &World) -> Option<Work> {
    let replicas = replicas(&world.api());
    (PODS..PODS + MEMBERS).find_map(|pod| {
        let key = kubelet::key_of(pod);
        let found = world.get(Kind::Pod, &key);
        match (wants(replicas, &key), found) {
            (true, None) => Some(Work::Create(pod)),
            (false, Some(found)) if is_alive(&found) => Some(Work::Delete(pod)),
            _ => None,
        }
    })
}

//! Pods as objects, and the scheduler's part: each is bound to its node, where its life begins.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use spiderpool_agent::clock::Clock;

use crate::action::PODS;
use crate::api::{Kind, stamp};
use crate::life::Life;
use crate::node::Node;
use crate::sets;
use crate::wishes::{self, Wish};
use crate::world::World;

/// What a Pod has to end, in seconds.
const GRACE: u64 = 30;
/// How often a sandbox was asked to be made anew.
const RESTARTS: &str = "sim/restarts";
/// Which Pod takes this one's name: `node wish`.
pub(crate) const SUCCESSOR: &str = "sim/successor";

pub(crate) fn key_of(pod: u8) -> String {
    match pod.checked_sub(PODS) {
        Some(ordinal) => format!("sim/{}-{ordinal}", sets::NAME),
        None => format!("sim/p{pod}"),
    }
}

/// A Pod to be.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) key: String,
    /// Under which its records and its endpoint are kept.
    pub(crate) records: String,
    pub(crate) uid: String,
    pub(crate) wish: Wish,
    /// Labels, annotations, owners.
    pub(crate) meta: Value,
    /// Its number, where another one may follow under its name.
    pub(crate) slot: Option<u8>,
}

/// The scheduler's part: a Pod that is bound to its node.
pub(crate) fn create(world: &Arc<World>, nodes: &[Arc<Node>], pod: u8, node: u8, wish: u8) {
    let key = key_of(pod);
    let ordinal = pod.checked_sub(PODS);
    let wanted = match ordinal {
        Some(ordinal) => wishes::of_member(world.scenario, ordinal),
        None => wishes::of_kind(world.scenario, wish),
    };
    let node = wanted.node.unwrap_or(node);
    let node = &nodes[usize::from(node) % nodes.len()];
    if world.get(Kind::Pod, &key).is_some() || node.lost.is_cancelled() {
        return;
    }
    let owners = ordinal.map(|_| {
        json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": sets::NAME,
            "uid": "uid-of-the-set", "controller": true}])
    });
    let spec = Spec {
        records: key.clone(),
        key,
        uid: format!("pod-{pod}-{}", world.next_id()),
        wish: wanted,
        meta: json!({"annotations": {}, "ownerReferences": owners}),
        slot: Some(pod),
    };
    start(world, nodes, node, spec);
}

/// Makes the object, and its life begins.
pub(crate) fn start(world: &Arc<World>, nodes: &[Arc<Node>], node: &Arc<Node>, spec: Spec) {
    let (key, uid) = (&spec.key, &spec.uid);
    world
        .check()
        .pod_created(uid, &node.name, key, &spec.records);
    let (plugin, pools) = (spec.wish.plugin, spec.wish.v4);
    world.log(format!(
        "kubelet {} gets {key} {uid} with {plugin} of {pools:?}",
        node.name
    ));
    let mut object = json!({
        "metadata": spec.meta,
        "spec": {"nodeName": node.name, "restartPolicy": "Always", "containers": [{"name": "c"}]},
        "status": {"phase": "Pending"},
    });
    object["metadata"]["namespace"] = "sim".into();
    object["metadata"]["name"] = key.trim_start_matches("sim/").into();
    object["metadata"]["uid"] = uid.as_str().into();
    world.create(Kind::Pod, key, object);
    let life = Life::new(world, nodes, node, spec);
    let lost = node.lost.clone();
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = lost.cancelled() => {}
            () = life.live() => {}
        }
    });
}

/// One that is not lost.
pub(crate) fn any_node(world: &World, nodes: &[Arc<Node>]) -> Arc<Node> {
    let left: Vec<_> = nodes
        .iter()
        .filter(|node| !node.lost.is_cancelled())
        .collect();
    let chosen = world.weather.roll(left.len() as u64);
    Arc::clone(left[usize::try_from(chosen).unwrap()])
}

/// Asks for the end of a Pod.
pub(crate) fn delete(world: &World, key: &str) {
    world.edit(Kind::Pod, key, |object| {
        if object["metadata"]["deletionTimestamp"].is_null() {
            let at = world.clock.wall() + Duration::from_secs(GRACE);
            object["metadata"]["deletionTimestamp"] = stamp(at).into();
            object["metadata"]["deletionGracePeriodSeconds"] = GRACE.into();
        }
    });
}

/// The same, and another of its name follows.
pub(crate) fn replace(world: &World, pod: u8, node: u8, wish: u8) {
    let note = |object: &mut Value| {
        object["metadata"]["annotations"][SUCCESSOR] = format!("{node} {wish}").into();
    };
    world.edit(Kind::Pod, &key_of(pod), note);
    delete(world, &key_of(pod));
}

/// The object goes, whatever its node does.
pub(crate) fn force(world: &World, key: &str) {
    remove_object(world, key, None);
}

/// All of a node go at once.
pub(crate) fn force_all(world: &World, node: &str) {
    let pods = world.api().all(Kind::Pod);
    let own = pods.iter().filter(|pod| pod["spec"]["nodeName"] == node);
    for pod in own {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        force(world, &format!("sim/{name}"));
    }
}

pub(crate) fn restart(world: &World, pod: u8) {
    world.edit(Kind::Pod, &key_of(pod), |object| {
        let done = restarts(object);
        object["metadata"]["annotations"][RESTARTS] = (done + 1).to_string().into();
    });
}

pub(crate) fn restarts(pod: &Value) -> u64 {
    let text = pod["metadata"]["annotations"][RESTARTS].as_str();
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Until when a Pod that is being deleted may run.
pub(crate) fn grace_end(pod: &Value) -> Option<jiff::Timestamp> {
    pod["metadata"]["deletionTimestamp"].as_str()?.parse().ok()
}

/// Removes the object, and as Kubernetes does, marks what it owned.
pub(crate) fn remove_object(world: &World, key: &str, uid: Option<&str>) {
    let Some(object) = world.get(Kind::Pod, key) else {
        return;
    };
    let found = object["metadata"]["uid"].as_str().unwrap_or_default();
    if uid.is_some_and(|uid| uid != found) {
        return;
    }
    world.put(Kind::Pod, key, None);
    let owner = "/metadata/ownerReferences/0/uid";
    let endpoint = world.get(Kind::Endpoint, key);
    if endpoint.is_some_and(|endpoint| endpoint.pointer(owner) == Some(&json!(found))) {
        world.edit(Kind::Endpoint, key, |object| {
            if object["metadata"]["deletionTimestamp"].is_null() {
                object["metadata"]["deletionTimestamp"] = stamp(world.clock.wall()).into();
            }
        });
    }
}

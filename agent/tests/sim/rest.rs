//! The end of a run: everything is calm and has to heal, and after the last Pod nothing may be left.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::action::{MEMBERS, PODS};
use crate::api::Kind;
use crate::healing::unhealed;
use crate::node::Node;
use crate::run::Cluster;
use crate::world::World;
use crate::{kubelet, machines, sets};

/// How long a cluster at rest may take to heal: two scans, a marker that has to be taken over, a
/// watch that is silently dead, and the calls between.
const HEALING: Duration = Duration::from_secs(900);

/// Between two looks at whether cloud and pools agree.
const AUDIT: Duration = Duration::from_secs(10);

impl Cluster {
    /// No more faults: within its time the cluster heals, and when all Pods have gone nothing is
    /// left of them.
    pub(crate) async fn rest(&self) {
        let world = &self.world;
        world.log("-- calm".into());
        world.weather.calm_down();
        world.ahead.store(0, Ordering::Relaxed);
        // A lost node's Pods are forced away by then.
        sleep(Duration::from_secs(70)).await;
        let healed = world
            .until(HEALING, |world| unhealed(world).is_none())
            .await;
        if !healed {
            let (invariant, text) = unhealed(world).unwrap_or_default();
            return world.check().broken(invariant, text);
        }
        sets::scale(world, 0);
        machines::end_all(world);
        for pod in 0..PODS + MEMBERS {
            world.edit(Kind::Pod, &kubelet::key_of(pod), |object| {
                object["metadata"]["annotations"] = json!({});
            });
            kubelet::delete(world, &kubelet::key_of(pod));
        }
        let gone = world
            .until(HEALING, |world| self.left(world).is_none())
            .await;
        if !gone {
            let text = self.left(world).unwrap_or_default();
            return world.check().broken(22, text);
        }
        self.audit().await;
    }

    /// Cloud, provider and pools agree in the end.
    async fn audit(&self) {
        let deadline = Instant::now() + HEALING;
        loop {
            let found = self.world.cloud().audit().await;
            let astray = self.astray();
            if found.is_empty() && astray.is_none() {
                return;
            }
            if Instant::now() > deadline {
                let text = found.into_iter().chain(astray).collect::<Vec<_>>();
                return self.world.check().broken(22, text.join("; "));
            }
            sleep(AUDIT).await;
        }
    }

    /// What stays bound under contract version 1. Where nobody heard whether a call did anything, only
    /// the provider knows that the sub-ENI is there, and the next Pod with the address gets it; what an
    /// agent did hear of was given back, and is gone.
    fn astray(&self) -> Option<String> {
        if !self.world.scenario.first {
            return None;
        }
        let bindings = self.world.cloud().with(|world| world.cloud.bindings());
        let check = self.world.check();
        let mut told = bindings.iter().filter_map(|bound| {
            let bond = check.bond_left(bound.ipv4?.into())?;
            Some(format!("{bound:?} is left, {bond:?}"))
        });
        told.next()
    }

    /// What is left of Pods that are gone.
    fn left(&self, world: &World) -> Option<String> {
        let api = world.api();
        for (kind, what) in [(Kind::Pod, "Pod"), (Kind::Endpoint, "endpoint")] {
            if let Some(object) = api.all(kind).first() {
                return Some(format!("{what} {} is left", object["metadata"]["name"]));
            }
        }
        let pools = world.check().pools(&api);
        if let Some(pool) = pools.iter().find(|pool| !pool.records.is_empty()) {
            let left: Vec<_> = pool.records.iter().map(|(ip, _)| ip).collect();
            return Some(format!("{left:?} of {} are left", pool.name));
        }
        if pools.iter().any(|pool| pool.terminating) {
            return Some("a deleted pool stays without a record".into());
        }
        let nodes = self.nodes.iter().filter(|node| !node.lost.is_cancelled());
        nodes.filter_map(|node| left_on(node)).next()
    }
}

fn left_on(node: &Node) -> Option<String> {
    if node.nic.link_count() > 0 {
        return Some(format!("links are left on {}", node.name));
    }
    for dir in [node.paths.attachments_dir(), node.paths.spool_dir()] {
        let mut entries = std::fs::read_dir(&dir).unwrap();
        if let Some(entry) = entries.next() {
            let name = entry.unwrap().file_name();
            return Some(format!("{} is left on {}", name.display(), node.name));
        }
    }
    None
}

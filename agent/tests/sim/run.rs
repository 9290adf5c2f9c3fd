//! One run: a cluster, the steps of a list, then calm, and what has to be true at rest.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use spiderpool_controller::events::Events;
use spiderpool_controller::reconcile::ippool;
use tokio::time::sleep;

use crate::action::{Action, EDITED, NODES, PODS, Step};
use crate::api::Kind;
use crate::check::{Counts, Violation};
use crate::gate::{Actor, Fuse, Gate};
use crate::http;
use crate::mutation::Mutation;
use crate::node::Node;
use crate::weather::Fate;
use crate::weather::ProviderMood;
use crate::world::World;
use crate::{cluster, gc, kubelet, machines, provider, sets};

/// Each pool is looked at again after this time.
const POOL_RESYNC: Duration = Duration::from_secs(300);

/// What a run came to.
pub(crate) struct Outcome {
    pub(crate) violation: Option<Violation>,
    pub(crate) trace: Vec<String>,
    pub(crate) counts: Counts,
}

/// Plays the steps. The same arguments give the same outcome.
pub(crate) fn run(seed: u64, steps: &[Step], mutation: Option<Mutation>) -> Outcome {
    // The client's watch backoff draws from the thread's generator.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let world = World::new(seed, mutation);
        let played = async {
            let cluster = Cluster::start(&world, seed);
            sleep(Duration::from_secs(10)).await;
            for (pause, action) in steps {
                sleep(*pause).await;
                cluster.act(*action);
            }
            cluster.rest().await;
        };
        tokio::select! {
            biased;
            () = world.over.cancelled() => {}
            () = played => {}
        }
        let mut check = world.check();
        Outcome {
            violation: check.violation.take(),
            trace: std::mem::take(&mut check.trace),
            counts: check.counts,
        }
    })
}

pub(crate) struct Cluster {
    pub(crate) world: Arc<World>,
    pub(crate) nodes: Vec<Arc<Node>>,
    collector: Arc<Mutex<Arc<Gate>>>,
}

impl Cluster {
    fn start(world: &Arc<World>, seed: u64) -> Self {
        let topology = cluster::topology(NODES, world.scenario);
        provider::start(world, topology, seed);
        let nodes = cluster::make(world, NODES);
        for node in &nodes {
            tokio::spawn(Arc::clone(node).supervise());
        }
        sets::make(world);
        tokio::spawn(sets::run(Arc::clone(world), nodes.clone()));
        if world.scenario.machines {
            machines::make(world, &nodes);
        }
        if !world.mutates(Mutation::FinalizerStays) {
            let gate = world.gate(Actor::Controller);
            let client = http::client(world, &gate);
            let events = Events::new(client.clone(), "controller");
            let stop = tokio_util::sync::CancellationToken::new();
            tokio::spawn(ippool::run(client, events, POOL_RESYNC, stop));
        }
        let collector = Arc::new(Mutex::new(world.gate(Actor::Gc)));
        if gc::is_on(world) {
            tokio::spawn(gc::supervise(Arc::clone(world), Arc::clone(&collector)));
        }
        if world.mutates(Mutation::ProviderReclaimsClaimed) {
            tokio::spawn(reclaim_blindly(Arc::clone(world)));
        }
        Self {
            world: Arc::clone(world),
            nodes,
            collector,
        }
    }

    fn act(&self, action: Action) {
        let world = &self.world;
        world.log(format!("-- {action:?}"));
        let node = |index: u8| &self.nodes[usize::from(index)];
        match action {
            // Those of the StatefulSet are made by its controller.
            Action::Create { pod, .. } | Action::Replace { pod, .. } if pod >= PODS => {
                kubelet::delete(world, &kubelet::key_of(pod));
            }
            Action::Create { pod, node, wish } => {
                kubelet::create(world, &self.nodes, pod, node, wish);
            }
            Action::Delete { pod } => kubelet::delete(world, &kubelet::key_of(pod)),
            Action::Force { pod } => kubelet::force(world, &kubelet::key_of(pod)),
            Action::Machine { machine, deed } => machines::act(world, &self.nodes, machine, deed),
            Action::Replace { pod, node, wish } => kubelet::replace(world, pod, node, wish),
            Action::Restart { pod } => kubelet::restart(world, pod),
            Action::Scale { replicas } => sets::scale(world, replicas),
            Action::Crash { node: index } => {
                if let Some(gate) = node(index).gate() {
                    gate.kill();
                }
            }
            Action::CrashAt {
                node: index,
                effects: left,
                after,
            } => {
                if let Some(gate) = node(index).gate() {
                    gate.arm(Fuse { left, after });
                }
            }
            Action::CrashGc {
                effects: left,
                after,
            } => self.collector.lock().unwrap().arm(Fuse { left, after }),
            Action::SecondGc { .. } if !gc::is_on(world) => {}
            Action::SecondGc { seconds } => {
                let lasts = Duration::from_secs(seconds);
                tokio::spawn(gc::collect_beside(Arc::clone(world), lasts));
            }
            Action::LoseNode { node: index } => self.lose(node(index)),
            Action::PowerLoss {
                node: index,
                seconds,
            } => node(index).lose_power(Duration::from_secs(seconds)),
            weather => self.turn(weather),
        }
    }

    /// What the network, the API server and the provider do.
    fn turn(&self, action: Action) {
        let weather = &self.world.weather;
        let actor = |index: u8| self.nodes[usize::from(index)].actor();
        let seconds = Duration::from_secs;
        match action {
            Action::Outage { seconds: lasts } => weather.api_outage(seconds(lasts)),
            Action::BreakWatches { node } => weather.break_watches(actor(node), Fate::Broken),
            Action::SilenceWatches { node } => weather.break_watches(actor(node), Fate::Silent),
            Action::Compact => {
                let mut api = self.world.api();
                api.compacted = api.version();
            }
            Action::ProviderRefuses { seconds: lasts } => {
                weather.set_mood(ProviderMood::Refuses, seconds(lasts));
            }
            Action::ProviderSlow {
                seconds: slow,
                lasts,
            } => weather.set_mood(ProviderMood::Slow(seconds(slow)), seconds(lasts)),
            Action::ProviderLate {
                seconds: late,
                lasts,
            } => weather.set_mood(ProviderMood::Late(seconds(late)), seconds(lasts)),
            Action::ProviderRestart { seconds: down } => {
                self.world.check().counts.restarts += 1;
                let cloud = Arc::clone(self.world.cloud());
                tokio::spawn(async move { cloud.crash(seconds(down)).await });
            }
            Action::GcClock { ahead, lasts } => {
                let world = Arc::clone(&self.world);
                world.ahead.store(ahead, Ordering::Relaxed);
                tokio::spawn(async move {
                    sleep(seconds(lasts)).await;
                    world.ahead.store(0, Ordering::Relaxed);
                });
            }
            Action::Pause => {}
            pools => self.edit(pools),
        }
    }

    /// What an operator does to pools and reservations.
    fn edit(&self, action: Action) {
        let world = &self.world;
        let name = |pool: u8| EDITED[usize::from(pool) % EDITED.len()];
        match action {
            Action::Disable { pool } => edit_spec(world, name(pool), |spec| {
                spec["disable"] = true.into();
            }),
            Action::Enable { pool } => edit_spec(world, name(pool), |spec| {
                spec["disable"] = false.into();
            }),
            Action::Shrink { pool } => self.shrink(name(pool)),
            Action::Reserve { last } => {
                let name = format!("r{last}");
                if world.get(Kind::Reserved, &name).is_none() {
                    let ips: Vec<String> = ["10.1.0", "10.100.3", "10.100.20"]
                        .into_iter()
                        .map(|net| format!("{net}.{last}"))
                        .collect();
                    let object =
                        json!({"metadata": {"name": name}, "spec": {"ips": ips, "ipVersion": 4}});
                    world.create(Kind::Reserved, &name, object);
                }
            }
            Action::Unreserve { last } => {
                let name = format!("r{last}");
                if world.get(Kind::Reserved, &name).is_some() {
                    world.put(Kind::Reserved, &name, None);
                    world.check().forgets_reserved(&name);
                }
            }
            _ => match world.get(Kind::Pool, "spare4") {
                None => cluster::create_pool(world, cluster::spare()),
                Some(_) => {
                    let deleted = world.api().delete(Kind::Pool, "spare4", &Value::Null);
                    if let Ok(change) = deleted {
                        world.changed(&Actor::Operator, 0, &change);
                    }
                }
            },
        }
    }

    /// As admission allows it: no address that has a record.
    fn shrink(&self, name: &str) {
        let last = {
            let api = self.world.api();
            let pools = self.world.check().pools(&api);
            let pool = pools.iter().find(|pool| pool.name == name);
            pool.and_then(|pool| {
                let ranges = pool.usable.ranges();
                let last = ranges.last()?.last();
                let spare = pool.usable.count() > 2;
                (spare && pool.records.get(last).is_none()).then_some(last)
            })
        };
        let Some(last) = last else { return };
        edit_spec(&self.world, name, |spec| {
            let mut excluded = spec["excludeIPs"].as_array().cloned().unwrap_or_default();
            excluded.push(last.to_string().into());
            spec["excludeIPs"] = excluded.into();
        });
    }

    /// The node never returns; a minute later its Pods are forced away.
    fn lose(&self, node: &Arc<Node>) {
        node.lost.cancel();
        let (world, name) = (Arc::clone(&self.world), node.name.clone());
        tokio::spawn(async move {
            sleep(Duration::from_secs(60)).await;
            kubelet::force_all(&world, &name);
        });
    }
}

fn edit_spec(world: &World, pool: &str, edit: impl FnOnce(&mut Value)) {
    let Some(object) = world.get(Kind::Pool, pool) else {
        return;
    };
    // Updates of a pool that is going are refused.
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return;
    }
    let mut object = (*object).clone();
    edit(&mut object["spec"]);
    let change = world
        .api()
        .replace(Kind::Pool, pool, &object, false)
        .unwrap();
    world.changed(&Actor::Operator, 0, &change);
}

/// Mutation: a watermark that does not look at the claims.
async fn reclaim_blindly(world: Arc<World>) {
    loop {
        sleep(Duration::from_secs(20)).await;
        let cloud = Arc::clone(world.cloud());
        let bound = cloud.with(|world| world.cloud.bindings().into_iter().next());
        if let Some(bound) = bound {
            drop(cloud.detach(bound.mac, None).await);
        }
    }
}

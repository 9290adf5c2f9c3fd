//! The collector: the controller's own (`spiderpool_controller::gc`) over the simulated API and
//! provider, started again after each crash. Where a fault is built in on purpose, a small model of it
//! that has the fault: frees the records of Pods that are gone, with the fence and the provider first
//! where a provider is asked (spec ipam section 6).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use spiderpool_agent::clock::{Clock, Jitter};
use spiderpool_agent::store::PoolObject;
use spiderpool_api::allocation::Record;
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_api::provider::ReleaseRequest;
use spiderpool_controller::client::bounded;
use spiderpool_controller::config::Settings;
use spiderpool_controller::gc;
use spiderpool_controller::tasks::Context;
use spiderpool_iaas::error::CallError;
use spiderpool_iaas::provider::Provider;
use spiderpool_ipam::batch::{self, Op, Outcome};
use spiderpool_ipam::gc::{Deletion, Facts, Knobs, NodeState, Phase, PodState, Verdict, judge};
use spiderpool_ipam::pick::Rules;
use spiderpool_ipam::pool::{Mode, Pool};
use spiderpool_ipam::range::Family;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::gate::{Actor, Gate};
use crate::http;
use crate::mutation::Mutation;
use crate::provider::SimProvider;
use crate::world::{SkewedClock, World};

mod endpoints;

/// Scan period; shorter than the product's, as virtual time has to be computed too.
pub(crate) const SCAN: Duration = Duration::from_secs(120);
/// Between two looks for Pods that went.
const TRACE: Duration = Duration::from_secs(10);
/// How long a release without an answer may still take effect.
const UNSETTLED: Duration = Duration::from_secs(batch::TAKEOVER_SECONDS.unsigned_abs());
/// Tries of one conditional write.
const TRIES: usize = 8;

type Failed = Box<dyn std::error::Error + Send + Sync>;
type Pod = k8s_openapi::api::core::v1::Pod;

/// Whether anybody collects.
pub(crate) fn is_on(world: &World) -> bool {
    !world.mutates(Mutation::GcNever) && !world.mutates(Mutation::DelIsForgotten)
}

/// Runs the collector, again after each crash.
pub(crate) async fn supervise(world: Arc<World>, current: Arc<Mutex<Arc<Gate>>>) {
    loop {
        let gate = world.gate(Actor::Gc);
        *current.lock().unwrap() = Arc::clone(&gate);
        tokio::select! {
            biased;
            () = gate.died() => {}
            () = collect(&world, &gate) => {}
        }
        world.log("GC is down".into());
        sleep(Duration::from_secs(5)).await;
    }
}

/// A collector beside the other one; it dies where it stands after a while.
pub(crate) async fn collect_beside(world: Arc<World>, lasts: Duration) {
    let gate = world.gate(Actor::Gc);
    world.log(format!("GC {} is up too", gate.id));
    world.check().counts.doubled += 1;
    if timeout(lasts, collect(&world, &gate)).await.is_err() {
        gate.kill();
    }
    world.log(format!("GC {} is down", gate.id));
}

async fn collect(world: &Arc<World>, gate: &Arc<Gate>) {
    let faulty = [
        Mutation::GcIgnoresUids,
        Mutation::GcSkipsFence,
        Mutation::GcFreesFirst,
        Mutation::GcTrustsOldLists,
        Mutation::GcIgnoresIdentities,
        Mutation::GcTrustsItsClock,
    ];
    if faulty.iter().any(|fault| world.mutates(*fault)) {
        return Collector::new(world, gate).run().await;
    }
    let mut settings = Settings::new(&format!("gc-{}", gate.id), "spiderpool");
    settings.env.gc.interval = jiff::SignedDuration::try_from(SCAN).unwrap();
    settings.conf.enable_clean_outdated_endpoint = true;
    let client = bounded(http::client(world, gate));
    let provider: Option<Arc<dyn Provider>> = match world.mutates(Mutation::GcHasNoProvider) {
        true => None,
        false => Some(Arc::new(SimProvider::new(world, gate))),
    };
    let context = Context {
        provider,
        clock: Arc::new(SkewedClock(Arc::clone(world))),
        jitter: Arc::new(Jitter::from_seed(gate.id)),
        ..Context::new(client, settings)
    };
    gc::task(context, CancellationToken::new()).await.unwrap();
}

struct Collector {
    world: Arc<World>,
    client: Client,
    pools: Api<SpiderIPPool>,
    provider: SimProvider,
    actor: String,
    /// Releases without an answer: they may still take effect.
    unsettled: Mutex<BTreeMap<(String, IpAddr), Instant>>,
}

/// One record whose Pod is gone.
struct Orphan {
    pool: String,
    address: IpAddr,
    record: Record,
}

impl Collector {
    fn new(world: &Arc<World>, gate: &Arc<Gate>) -> Self {
        let client = bounded(http::client(world, gate));
        Self {
            world: Arc::clone(world),
            pools: Api::all(client.clone()),
            provider: SimProvider::new(world, gate),
            actor: format!("controller/gc-{}/0", gate.id),
            unsettled: Mutex::default(),
            client,
        }
    }

    async fn run(&self) {
        let mut scanned = Instant::now();
        let mut known = BTreeSet::new();
        loop {
            sleep(TRACE).await;
            let now = self.pods().await.unwrap_or_else(|_| known.clone());
            let gone = known.difference(&now).next().is_some();
            known = now;
            if gone || scanned.elapsed() >= SCAN {
                scanned = Instant::now();
                // The next round tries again what fails in this one.
                drop(self.scan().await);
            }
        }
    }

    async fn pods(&self) -> Result<BTreeSet<String>, Failed> {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let old = ListParams::default().match_any();
        let listed = pods.list(&old).await?;
        Ok(listed.iter().filter_map(ResourceExt::uid).collect())
    }

    async fn scan(&self) -> Result<(), Failed> {
        let listed = self.pools.list(&ListParams::default()).await?;
        let mut orphans = Vec::new();
        for pool in listed {
            for (address, record) in records(&pool) {
                if self.is_orphan(address, &record).await? {
                    let pool = pool.name_any();
                    orphans.push(Orphan {
                        pool,
                        address,
                        record,
                    });
                }
            }
        }
        for orphan in orphans {
            if let Err(error) = self.free(&orphan).await {
                let what = (&orphan.pool, orphan.address);
                self.world.log(format!("GC cannot free {what:?}: {error}"));
            }
        }
        self.drop_endpoints().await
    }

    fn now(&self) -> jiff::Timestamp {
        if self.world.mutates(Mutation::GcTrustsItsClock) {
            return SkewedClock(Arc::clone(&self.world)).wall();
        }
        self.world.clock.wall()
    }

    /// The product's verdict, on facts read past every cache.
    async fn is_orphan(&self, address: IpAddr, record: &Record) -> Result<bool, Failed> {
        if self.world.mutates(Mutation::GcTrustsOldLists) {
            return Ok(!self.pods().await?.contains(&record.pod_uid));
        }
        let (namespace, name) = record.pod.split_once('/').unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pod = pods.get_opt(name).await?.as_ref().map(state_of);
        let endpoint = match self.knows_identities(&record.pod) {
            true => self.endpoint(namespace, name).await?,
            false => None,
        };
        let current = endpoint.as_ref().map(|found| &found.status.current);
        let facts = Facts {
            record,
            pod: pod.as_ref(),
            direct: true,
            endpoint_uid: current.map(|current| current.uid.as_str()),
            reported: false,
            listed: current.is_some_and(|current| {
                let held = spiderpool_ipam::plan::held_by(current);
                held.iter().any(|held| held.address == address)
            }),
            identity: self.identity(&record.pod).await?,
            node: NodeState::Ready,
            actor: &self.actor,
            now: self.now(),
            ending_for: jiff::SignedDuration::MAX,
        };
        let verdict = judge(&Knobs::default(), &facts);
        Ok(matches!(verdict, Verdict::Free { .. }))
    }

    async fn free(&self, orphan: &Orphan) -> Result<(), Failed> {
        let Some((object, pool)) = self.read(&orphan.pool).await? else {
            return Ok(());
        };
        let prewarm = matches!(pool.mode, Mode::Prewarm { .. });
        if prewarm && pool.family == Family::V4 {
            return self.free_bound(orphan, &object, &pool).await;
        }
        if prewarm && pool.pair.is_some() && self.has_primary(orphan, &pool).await? {
            // It goes with the IPv4 side.
            return Ok(());
        }
        self.remove(&orphan.pool, orphan, orphan.address).await
    }

    async fn has_primary(&self, orphan: &Orphan, half: &Pool) -> Result<bool, Failed> {
        let primary = half.pair.clone().unwrap_or_default();
        let read = self.read(&primary).await?;
        let uid = &orphan.record.pod_uid;
        Ok(read.is_some_and(|(_, pool)| !pool.records_of(uid).is_empty()))
    }

    /// Mark, tell the provider, free both sides.
    async fn free_bound(
        &self,
        orphan: &Orphan,
        object: &PoolObject,
        pool: &Pool,
    ) -> Result<(), Failed> {
        let uid = &orphan.record.pod_uid;
        let key = (orphan.pool.clone(), orphan.address);
        let called = self.unsettled.lock().unwrap().get(&key).copied();
        if called.is_some_and(|at| at.elapsed() < UNSETTLED) {
            return Ok(());
        }
        if self.world.mutates(Mutation::GcFreesFirst) {
            self.remove(&orphan.pool, orphan, orphan.address).await?;
        } else if !self.world.mutates(Mutation::GcSkipsFence) {
            let mark = Op::Mark {
                uid: uid.clone(),
                addresses: vec![orphan.address],
                by: self.actor.clone(),
                at: self.world.clock.rfc3339(),
            };
            let marked = self.change(&orphan.pool, &mark).await?;
            if !matches!(marked, Some(Outcome::Marked(marked)) if !marked.is_empty()) {
                return Ok(());
            }
        }
        let request = release_request(orphan, object, pool);
        self.unsettled
            .lock()
            .unwrap()
            .insert(key.clone(), Instant::now());
        let called = self.provider.release(&request, None).await;
        if !called.as_ref().is_err_and(CallError::is_unsettled) {
            self.unsettled.lock().unwrap().remove(&key);
        }
        called?;
        if let Some(pair) = &pool.pair
            && let Some((_, half)) = self.read(pair).await?
        {
            let own = half.records_of(uid).into_iter();
            let own = own.filter(|(_, record)| record.nic == orphan.record.nic);
            for address in own.map(|(address, _)| address).collect::<Vec<_>>() {
                self.remove(pair, orphan, address).await?;
            }
        }
        self.remove(&orphan.pool, orphan, orphan.address).await
    }

    async fn remove(&self, pool: &str, orphan: &Orphan, address: IpAddr) -> Result<(), Failed> {
        self.remove_of(pool, &orphan.record.pod_uid, address)
            .await?;
        if self.world.mutates(Mutation::GcIgnoresUids) {
            sleep(Duration::from_secs(100)).await;
            let read = self.read(pool).await?;
            let next = read.and_then(|(_, pool)| Some(pool.records.get(address)?.pod_uid.clone()));
            self.remove_of(pool, &next.unwrap_or_default(), address)
                .await?;
        }
        Ok(())
    }

    async fn remove_of(&self, pool: &str, uid: &str, address: IpAddr) -> Result<(), Failed> {
        let op = Op::Release {
            uid: uid.to_owned(),
            nic: None,
            addresses: Some(vec![address]),
            by: Some(self.actor.clone()),
        };
        self.change(pool, &op).await.map(drop)
    }

    /// One conditional write, anew after each conflict.
    async fn change(&self, pool: &str, op: &Op) -> Result<Option<Outcome>, Failed> {
        for _ in 0..TRIES {
            let Some((object, pool)) = self.read(pool).await? else {
                return Ok(None);
            };
            let mut done = batch::apply(&pool, None, &Rules::default(), std::slice::from_ref(op));
            let outcome = done.outcomes.pop().ok_or("no outcome")??;
            if !done.changed {
                return Ok(Some(outcome));
            }
            let written: SpiderIPPool = serde_json::from_value(object.with_records(&done.records))?;
            let name = written.name_any();
            let params = PostParams::default();
            match self.pools.replace_status(&name, &params, &written).await {
                Ok(_) => return Ok(Some(outcome)),
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    sleep(Duration::from_millis(5 + self.world.weather.roll(50))).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err("conflicts".into())
    }

    async fn read(&self, pool: &str) -> Result<Option<(PoolObject, Arc<Pool>)>, Failed> {
        let Some(found) = self.pools.get_opt(pool).await? else {
            return Ok(None);
        };
        let raw: Value = serde_json::to_value(found)?;
        let object = PoolObject::from_raw(raw)?;
        let pool = Arc::clone(object.pool().map_err(|error| error.to_string())?);
        Ok(Some((object, pool)))
    }
}

fn state_of(pod: &Pod) -> PodState {
    let (meta, status) = (&pod.metadata, pod.status.clone().unwrap_or_default());
    let deletion = meta.deletion_timestamp.as_ref().map(|at| Deletion {
        at: at.0,
        grace: meta.deletion_grace_period_seconds.unwrap_or_default(),
    });
    PodState {
        uid: meta.uid.clone().unwrap_or_default(),
        phase: Phase::parse(&status.phase.unwrap_or_default()),
        has_ips: status.pod_ips.is_some_and(|ips| !ips.is_empty()),
        deletion,
    }
}

fn records(pool: &SpiderIPPool) -> Vec<(IpAddr, Record)> {
    let status = pool.status.as_ref();
    let text = status.and_then(|status| status.allocated_ips.as_deref());
    let records = spiderpool_api::allocation::Records::decode(text).unwrap_or_default();
    let owned = records.iter().map(|(ip, record)| (ip, record.clone()));
    owned.collect()
}

fn release_request(orphan: &Orphan, object: &PoolObject, pool: &Pool) -> ReleaseRequest {
    let (namespace, name) = orphan.record.pod.split_once('/').unwrap_or_default();
    let nodes = object.typed().spec.node_name.clone().unwrap_or_default();
    ReleaseRequest {
        pod_name: name.to_owned(),
        pod_namespace: namespace.to_owned(),
        pod_uid: orphan.record.pod_uid.clone(),
        node_name: nodes.into_iter().next().unwrap_or_default(),
        parent_nic_mac: pool.parent_mac,
        subnet: pool.subnet.trunc(),
        ip_address: orphan.address,
        pool_name: orphan.pool.clone(),
    }
}

//! The provider: the cloud simulator's own service over the simulated API, and the client's part
//! of a call with its timeout, its losses and its moods.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use provider_sim::answer;
use provider_sim::asked::Asked;
use provider_sim::publisher::{self, Publisher};
use provider_sim::service::Service;
use provider_sim::settings::{Latency, ReleasePolicy, Settings};
use provider_sim::topology::Topology;
use serde_json::{Value, json};
use spiderpool_api::provider::{AllocateRequest, AllocateResponse, ReleaseRequest};
use spiderpool_controller::client::bounded;
use spiderpool_iaas::budget::shortfall;
use spiderpool_iaas::check::{self, Bound};
use spiderpool_iaas::error::{CallError, Op};
use spiderpool_iaas::provider::{Generation, Provider};
use spiderpool_iaas::wire_v1::{AllocateRequestV1, AllocateResponseV1, ReleaseRequestV1};
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout_at};

use crate::gate::{Actor, Gate};
use crate::http;
use crate::mutation::Mutation;
use crate::weather::ProviderMood;
use crate::world::World;

/// `httpRequestTimeout`.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(50);

/// Starts the cloud and its publication.
pub(crate) fn start(world: &Arc<World>, topology: Topology, seed: u64) {
    let chance = seed % 3;
    let settings = Settings {
        latency: Latency {
            create_ms: 300 + 400 * chance,
            ..Latency::default()
        },
        release_policy: if seed.is_multiple_of(2) {
            ReleasePolicy::Recycle
        } else {
            ReleasePolicy::Keep
        },
        seed,
        ..Settings::default()
    };
    let gate = world.gate(Actor::Provider);
    let client = bounded(http::client(world, &gate));
    let publisher = Publisher::new(client.clone());
    let service = Service::new(topology, settings, None, None, Some(publisher)).unwrap();
    tokio::spawn(Arc::clone(&service).watch_pools(publisher::pools(client)));
    let publishing = Arc::clone(&service);
    tokio::spawn(async move { publishing.publish_forever().await });
    let prewarming = Arc::clone(&service);
    tokio::spawn(async move { prewarming.prewarm_forever().await });
    let reclaiming = Arc::clone(&service);
    tokio::spawn(async move { reclaiming.reclaim_forever().await });
    let holding = Arc::clone(&service);
    tokio::spawn(async move { holding.hold_pools_forever().await });
    service.pools_changed.notify_one();
    world.set_cloud(service);
}

/// Calls about one address are worked on in the order they come in: the last one wins (spec iaas 11).
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<BTreeMap<IpAddr, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    async fn take(&self, mut addresses: Vec<IpAddr>) -> Vec<OwnedMutexGuard<()>> {
        addresses.sort_unstable();
        addresses.dedup();
        let mut taken = Vec::new();
        for address in addresses {
            let turn = Arc::clone(self.0.lock().unwrap().entry(address).or_default());
            taken.push(turn.lock_owned().await);
        }
        taken
    }
}

/// The way of one process to the provider.
pub(crate) struct SimProvider {
    world: Arc<World>,
    gate: Arc<Gate>,
}

type Answer = Result<Value, u16>;

impl SimProvider {
    pub(crate) fn new(world: &Arc<World>, gate: &Arc<Gate>) -> Self {
        Self {
            world: Arc::clone(world),
            gate: Arc::clone(gate),
        }
    }

    /// One call: on its way, worked on whoever still waits, and back.
    async fn call(
        &self,
        op: Op,
        turns: Vec<IpAddr>,
        parent: Option<Instant>,
        work: impl Future<Output = Answer> + Send + 'static,
    ) -> Result<Value, CallError> {
        self.gate.begin(true).await;
        let now = Instant::now();
        let own = now + CLIENT_TIMEOUT;
        let until = parent.map_or(own, |parent| parent.min(own));
        let first = self.world.scenario.first;
        if let Some(error) = unsent(op, now, parent, first) {
            return Err(error);
        }
        let way = self.world.weather.way();
        let (reply, waiting) = oneshot::channel();
        let (world, gate) = (Arc::clone(&self.world), Arc::clone(&self.gate));
        tokio::spawn(async move {
            sleep(way.there).await;
            if way.loses_request {
                return world.weather.lose(reply, way.resets);
            }
            let turns = world.turns.take(turns).await;
            let mut late = Duration::ZERO;
            let answer = match world.weather.mood() {
                ProviderMood::Refuses => Err(503),
                ProviderMood::Slow(more) => {
                    sleep(more).await;
                    // The provider's promises: no binding is begun after the caller's time, or for one
                    // that has hung up (spec iaas 15.2 P7). A release may come that late, which the
                    // fence is for. One of version 1 has promised nothing but the order of its calls.
                    let over = reply.is_closed() || Instant::now() >= until;
                    if op == Op::Allocate && over && !first {
                        return;
                    }
                    work.await
                }
                ProviderMood::Late(more) => {
                    late = more;
                    work.await
                }
                ProviderMood::Works => work.await,
            };
            drop(turns);
            gate.applied(true);
            sleep(late + way.back).await;
            if way.loses_answer {
                return world.weather.lose(reply, way.resets);
            }
            if reply.send(answer).is_err() {
                world.check().counts.late += 1;
            }
        });
        let answered = timeout_at(until, waiting).await;
        self.gate.alive().await;
        outcome(op, answered)
    }
}

/// Whether the sub-ENI hangs on another node than the one a release names, as when the identity that has
/// it could not be bound where it went last. The provider leaves it there, for the next Pod with the address.
fn is_elsewhere(service: &Service, told: &ReleaseRequest) -> bool {
    service.with(|world| {
        let found = world.cloud.by_address(told.ip_address);
        let at = found.and_then(|sub_eni| sub_eni.state.attachment());
        let node = at.and_then(|at| world.cloud.node_of(at.parent));
        node.is_some_and(|node| node != told.node_name)
    })
}

/// Why a call is not even sent.
fn unsent(op: Op, now: Instant, parent: Option<Instant>, first: bool) -> Option<CallError> {
    if parent.is_some_and(|parent| parent <= now) {
        return Some(CallError::ParentExpired { op, sent: false });
    }
    let remaining = shortfall(now, parent).filter(|_| first)?;
    Some(CallError::Insufficient { remaining })
}

/// What the caller makes of it.
fn outcome(
    op: Op,
    answered: Result<Result<Answer, oneshot::error::RecvError>, Elapsed>,
) -> Result<Value, CallError> {
    match answered {
        Ok(Ok(Ok(body))) => Ok(body),
        Ok(Ok(Err(code))) => Err(refused(op, code)),
        Ok(Err(_)) => Err(refused(op, 502)),
        Err(_) => Err(CallError::ParentExpired { op, sent: true }),
    }
}

fn refused(op: Op, status: u16) -> CallError {
    CallError::Status {
        op,
        status,
        body: "simulated".into(),
    }
}

impl SimProvider {
    /// As it comes out of the body that is sent.
    fn asked(&self, request: &AllocateRequest) -> Asked {
        if !self.world.scenario.first {
            return request.clone().into();
        }
        let body = json!(AllocateRequestV1::try_from(request).unwrap());
        Asked::decode(body.to_string().as_bytes(), true).unwrap()
    }

    fn answered(&self, body: Value) -> AllocateResponse {
        if !self.world.scenario.first {
            return serde_json::from_value(body).unwrap();
        }
        let first: AllocateResponseV1 = serde_json::from_value(body).unwrap();
        first.into()
    }

    fn told(&self, request: &ReleaseRequest) -> ReleaseRequest {
        if !self.world.scenario.first {
            return request.clone();
        }
        let body = json!(ReleaseRequestV1::try_from(request).unwrap());
        serde_json::from_value(body).unwrap()
    }
}

impl Provider for SimProvider {
    fn generation(&self) -> Generation {
        match self.world.scenario.first {
            true => Generation::First,
            false => Generation::Second,
        }
    }

    fn allocate<'a>(
        &'a self,
        request: &'a AllocateRequest,
        parent: Option<Instant>,
    ) -> BoxFuture<'a, Result<Vec<Bound>, CallError>> {
        async move {
            let items = request.sub_eni_requests.iter();
            let pools: Vec<String> = items
                .clone()
                .flat_map(|item| [item.ipv4_pool_name.clone(), item.ipv6_pool_name.clone()])
                .flatten()
                .collect();
            let addresses: Vec<_> = items.filter_map(|item| item.ipv4_address).collect();
            let addresses: Vec<_> = addresses.into_iter().map(Into::into).collect();
            let uid = &request.pod_uid;
            self.world.check().allocate_called(uid, &pools, &addresses);
            self.world.log(format!(
                "allocate {addresses:?} for {uid} on {}",
                request.node_name
            ));
            let asked = self.asked(request);
            let (world, of) = (Arc::clone(&self.world), addresses.clone());
            let work = async move {
                let service = Arc::clone(world.cloud());
                let bound = service.bind_all(asked.clone()).await;
                let bound = bound.map_err(|refusal| refusal.status)?;
                world.check().bound(&of);
                Ok(answer::to(&asked, &bound))
            };
            let called = self.call(Op::Allocate, addresses.clone(), parent, work);
            let body = called.await.inspect_err(|_| {
                self.world.check().heard_nothing(&addresses);
            })?;
            self.world.check().heard(&addresses);
            Ok(check::accept(request, &self.answered(body))?)
        }
        .boxed()
    }

    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
        parent: Option<Instant>,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        async move {
            let (world, sent) = (Arc::clone(&self.world), request.clone());
            let told = self.told(request);
            self.world.log(format!(
                "{:?} calls release {} of {}",
                self.gate.actor, sent.ip_address, sent.pod_uid
            ));
            let work = async move {
                if world.mutates(Mutation::ProviderReleasesLate) && world.weather.roll(3) == 0 {
                    sleep(Duration::from_secs(240)).await;
                }
                {
                    let api = world.api();
                    let (pool, ip, uid) = (&sent.pool_name, sent.ip_address, &sent.pod_uid);
                    world.check().release_begins(&api, pool, ip, uid);
                }
                let service = Arc::clone(world.cloud());
                let elsewhere = is_elsewhere(&service, &told);
                if world.mutates(Mutation::ProviderForgetsReleases) {
                    // It says yes.
                } else if world.mutates(Mutation::ProviderKeepsDeadEntries) {
                    // Behind the back of what publishes.
                    let now = service.now();
                    service.with(|w| {
                        let mac = w.memory.find(sent.ip_address).map(|eni| eni.mac);
                        if let Some(mac) = mac {
                            drop(w.cloud.begin_detach(mac));
                            w.cloud.finish(mac, now);
                        }
                    });
                } else {
                    let done = service.release(told).await;
                    done.map_err(|refusal| refusal.status)?;
                }
                let mut check = world.check();
                check.release_accepted(sent.ip_address, &sent.pod_uid);
                if elsewhere {
                    check.bound(&[sent.ip_address]);
                }
                Ok(Value::Null)
            };
            self.call(Op::Release, Vec::new(), parent, work)
                .await
                .map(drop)
        }
        .boxed()
    }
}

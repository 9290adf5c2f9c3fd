//! Subnets: which pools hold what of them, `status.controlledIPPools` with the counts, and the owner
//! reference by which their pools belong to them (spec api 1.2, 2.3). One that is being deleted is
//! deleted again in the foreground, so that its pools go first, and let go when no pool holds anything
//! of it.
//!
//! Owns the status of subnets, and of a pool's metadata the reference to its subnet. What it knows of
//! pools the reconciler of pools tells it: nothing is decided before that one has seen all of them.

mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource, ResourceExt};
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_api::subnet::SpiderSubnet;
use spiderpool_ipam::carving::{self, Carvings};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::agenda::Agenda;
use super::ippool::News;
use crate::chain::full;
use crate::complaints::Complaints;
use crate::followed::follow;
use crate::objects::parsed::{Parsed, shown};
use crate::tasks::Context;
use write::{Joined, Writer};

/// Between two tries of a subnet that could not be brought in line, and two looks at one that goes.
const RETRY: Duration = Duration::from_secs(5);
/// How long an entry may stand for an automatic pool that does not exist: it is written just before
/// the pool is.
const RESERVATION: Duration = Duration::from_mins(1);

/// Follows all subnets until told to stop; where they are switched off, only those that go.
pub async fn run(context: Context, mut pools: UnboundedReceiver<News>, stop: CancellationToken) {
    let settings = &context.settings;
    let subnets: Api<Parsed<SpiderSubnet>> = Api::all(context.client.clone());
    let subnets = follow(subnets, watcher::Config::default(), "SpiderSubnets");
    let mut state = Subnets {
        writer: Writer::new(context.client.clone()),
        is_on: settings.conf.enable_spider_subnet,
        resync: settings.env.subnet_resync,
        complete: false,
        pools: BTreeMap::new(),
        known: Agenda::default(),
        reserved: BTreeMap::new(),
        complaints: Complaints::default(),
    };
    tokio::select! {
        () = state.follow(subnets, &mut pools) => {}
        () = stop.cancelled() => {}
    }
}

/// A pool as it was told of.
struct Pool {
    object: Arc<SpiderIPPool>,
    seen: carving::Pool,
}

struct Subnets {
    writer: Writer,
    is_on: bool,
    resync: Duration,
    /// All pools are known.
    complete: bool,
    /// `None`: it cannot be read.
    pools: BTreeMap<String, Option<Pool>>,
    known: Agenda<SpiderSubnet>,
    /// Subnet and pool: since when the pool of an entry does not exist.
    reserved: BTreeMap<(String, String), Instant>,
    complaints: Complaints,
}

impl Subnets {
    async fn follow(
        &mut self,
        subnets: impl Stream<Item = watcher::Result<Event<Parsed<SpiderSubnet>>>>,
        pools: &mut UnboundedReceiver<News>,
    ) {
        let mut subnets = pin!(subnets);
        loop {
            let next = self.known.next().filter(|_| self.complete);
            // With no subnet there is nothing to wait for.
            let next = next.unwrap_or_else(|| Instant::now() + self.resync);
            tokio::select! {
                biased;
                Some(news) = pools.recv() => self.pool_news(news),
                // A watch begins anew for ever, and tells by itself when it fails.
                Some(event) = subnets.next() => {
                    if let Ok(event) = event {
                        self.known.take(event, &mut self.complaints);
                    }
                }
                () = sleep_until(next) => self.look_at_due().await,
            }
        }
    }

    fn pool_news(&mut self, news: News) {
        let (name, pool) = match news {
            News::Listed => return self.complete = true,
            News::Gone(name) => {
                let gone = self.pools.remove(&name).flatten();
                return self.wake(gone.as_ref(), None);
            }
            // What was known is nearer to the truth than nothing.
            News::Unknown(name) => {
                self.pools.entry(name).or_insert(None);
                return;
            }
            News::Is(object) => {
                let seen = carving::Pool::read(&object.spec, object.labels());
                (object.name_any(), Pool { object, seen })
            }
        };
        let before = self.pools.remove(&name).flatten();
        self.wake(before.as_ref(), Some(&pool));
        self.pools.insert(name, Some(pool));
    }

    /// The subnets of which a pool had or has something. One that was unknown may be anybody's.
    fn wake(&mut self, before: Option<&Pool>, after: Option<&Pool>) {
        let nets = [before, after].map(|pool| pool.and_then(|pool| pool.seen.net));
        self.known.wake(|_, subnet| {
            let net = subnet.spec.subnet.parse().ok();
            before.is_none() || (net.is_some() && nets.contains(&net))
        });
    }

    async fn look_at_due(&mut self) {
        for (key, subnet) in self.known.due() {
            let about = shown::<SpiderSubnet>(None, &key.name);
            let wait = match self.bring_in_line(&subnet).await {
                Ok(wait) => {
                    self.complaints.over(&about);
                    wait
                }
                Err(error) => {
                    self.complaints.say(&about, &full(&error));
                    RETRY
                }
            };
            self.known.put_off(&key, wait);
        }
    }

    /// How long until it is looked at again.
    async fn bring_in_line(
        &mut self,
        subnet: &SpiderSubnet,
    ) -> Result<Duration, write::SubnetError> {
        let dying = subnet.metadata.deletion_timestamp.is_some();
        if !dying && !self.is_on {
            return Ok(self.resync);
        }
        let (own, wait) = if dying {
            let own = self.writer.owned_by(subnet).await?;
            (Some(own), RETRY)
        } else {
            self.join(subnet).await;
            (None, self.resync)
        };
        let (kept, sooner) = self.kept(subnet);
        let net = subnet.spec.subnet.parse().ok();
        let pools = self.pools.iter().filter_map(|(name, pool)| {
            let seen = &pool.as_ref()?.seen;
            // What was taken off a dying subnet, by `--cascade=orphan`, holds it no more.
            let is_own = own.as_ref().is_none_or(|own| own.contains(name));
            (net.is_some() && seen.net == net && is_own).then_some((name.as_str(), seen))
        });
        let carvings = Carvings {
            pools: pools.collect(),
            kept: kept.iter().map(String::as_str).collect(),
        };
        let wanted = carving::status(&subnet.spec, subnet.status.as_ref(), &carvings);
        if dying && !carvings.pools.is_empty() {
            self.writer.delete_pools_first(subnet).await?;
        }
        self.writer.write_status(subnet, &wanted).await?;
        if dying && wanted.controlled_ip_pools.is_none() {
            self.writer.let_go(subnet).await?;
        }
        Ok(wait.min(sooner))
    }

    /// Entries that stay although their pools are not known, and when the first of them ends.
    fn kept(&mut self, subnet: &SpiderSubnet) -> (BTreeSet<String>, Duration) {
        let name = subnet.name_any();
        let unknown = self.pools.iter().filter(|(_, pool)| pool.is_none());
        let mut kept: BTreeSet<String> = unknown.map(|(name, _)| name.clone()).collect();
        let reserved =
            carving::reservations(subnet.status.as_ref(), |pool| self.pools.contains_key(pool));
        self.reserved
            .retain(|(of, pool), _| *of != name || reserved.contains(pool));
        let mut sooner = self.resync;
        for pool in reserved {
            let since = self.reserved.entry((name.clone(), pool.clone()));
            let left = RESERVATION.saturating_sub(since.or_insert_with(Instant::now).elapsed());
            if !left.is_zero() && subnet.metadata.deletion_timestamp.is_none() {
                kept.insert(pool);
                sooner = sooner.min(left);
            }
        }
        (kept, sooner)
    }

    /// Pools of its network belong to it. Admission says so when a pool is made after its subnet.
    async fn join(&mut self, subnet: &SpiderSubnet) {
        let net = subnet.spec.subnet.parse().ok();
        let Some(owner) = subnet.controller_owner_ref(&()) else {
            return;
        };
        for (name, pool) in &mut self.pools {
            let Some(pool) = pool
                .as_mut()
                .filter(|pool| net.is_some() && pool.seen.net == net)
            else {
                continue;
            };
            let about = format!("SpiderIPPool {name} in SpiderSubnet {}", owner.name);
            match self.writer.join(&pool.object.metadata, &owner).await {
                Ok(Joined::Already) => self.complaints.over(&about),
                Ok(Joined::Now(metadata)) => {
                    self.complaints.over(&about);
                    Arc::make_mut(&mut pool.object).metadata = *metadata;
                }
                Ok(Joined::OfAnother(whose)) => {
                    let words = format!("it stays apart: its controller is {whose}");
                    self.complaints.say(&about, &words);
                }
                Err(error) => self.complaints.say(&about, &full(&error)),
            }
        }
    }
}

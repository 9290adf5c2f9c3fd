//! The invariants of spec ipam section 10. Judged with every change of the truth and with every
//! answer; the first violation ends a run.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use spiderpool_api::allocation::Record;
use spiderpool_api::value::{Mac, VlanId};
use spiderpool_ipam::pool::{Mode, Pool};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Change, Kind};
use crate::gate::Actor;
use crate::healing::address_of;
use crate::identities;
use crate::scenario::Scenario;
use crate::world::is_alive;

mod answer;
mod bonds;
mod counts;
mod kept;
mod machine;
mod pool;
mod reading;

pub(crate) use answer::Promise;
use bonds::Bond;
pub(crate) use counts::Counts;
use kept::Kept;
use reading::Readings;

/// The longest an ADD or DEL may take.
const CALL_LIMIT: Duration = Duration::from_secs(100);

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Its number in the specification.
    pub(crate) invariant: u8,
    pub(crate) text: String,
}

/// What a sandbox's NIC was answered and still uses.
#[derive(Debug, Clone)]
pub(crate) struct Usage {
    pub(crate) pod: String,
    /// Key of its records.
    pub(crate) records: String,
    pub(crate) uid: String,
    pub(crate) ifname: String,
    pub(crate) addresses: Vec<IpAddr>,
    /// VLAN, MAC and parent of its sub-ENI.
    pub(crate) sub_eni: Option<(VlanId, Mac, Mac)>,
}

/// An ADD under way.
#[derive(Debug, Clone)]
pub(crate) struct Adding {
    begun: Instant,
    allocates: usize,
    /// The endpoint went or changed under its hands: it plans anew.
    replans: usize,
}

#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) trace: Vec<String>,
    pub(crate) violation: Option<Violation>,
    pub(crate) counts: Counts,
    epoch: Instant,
    over: CancellationToken,
    usages: BTreeMap<(String, String), Usage>,
    /// When the latest ADD of a Pod began.
    began: BTreeMap<String, Instant>,
    /// By Pod UID.
    adding: BTreeMap<String, Adding>,
    /// What a NIC was answered first, while its Pod lives.
    answered: BTreeMap<(String, String), Vec<IpAddr>>,
    /// Nodes of all Pods ever.
    nodes: BTreeMap<String, String>,
    /// Names of all Pods ever.
    names: BTreeMap<String, String>,
    /// The keys of their records.
    keys: BTreeMap<String, String>,
    /// Pods of machines whose sub-ENIs may have gone to another one: an ADD of that has begun.
    superseded: BTreeSet<String>,
    /// What a Pod, or its identity, had when an ADD of it began: the set may want fewer Pods since.
    entered: BTreeMap<String, Vec<IpAddr>>,
    /// By name and NIC, what an ordinal of the StatefulSet was answered last, while the set wants it.
    kept: BTreeMap<(String, String), Kept>,
    /// The provider has agreed to these.
    released: BTreeSet<(IpAddr, String)>,
    /// Claims that needed no call when they were stored.
    hits: BTreeSet<(IpAddr, String)>,
    /// Since when a process knows of a reservation.
    reserved: BTreeMap<(u64, String), (Instant, Vec<String>)>,
    /// Nodes whose messages were lost, and when last.
    disturbed: BTreeMap<String, Instant>,
    /// What became of each address's last call under contract version 1.
    bonds: BTreeMap<IpAddr, Bond>,
    scenario: Scenario,
    readings: Readings,
}

impl Check {
    pub(crate) fn new(epoch: Instant, over: CancellationToken, scenario: Scenario) -> Self {
        Self {
            trace: Vec::new(),
            violation: None,
            counts: Counts::default(),
            epoch,
            over,
            usages: BTreeMap::new(),
            began: BTreeMap::new(),
            adding: BTreeMap::new(),
            answered: BTreeMap::new(),
            nodes: BTreeMap::new(),
            names: BTreeMap::new(),
            keys: BTreeMap::new(),
            superseded: BTreeSet::new(),
            entered: BTreeMap::new(),
            kept: BTreeMap::new(),
            released: BTreeSet::new(),
            hits: BTreeSet::new(),
            reserved: BTreeMap::new(),
            disturbed: BTreeMap::new(),
            bonds: BTreeMap::new(),
            scenario,
            readings: Readings::default(),
        }
    }

    pub(crate) fn log(&mut self, line: String) {
        let ms = self.epoch.elapsed().as_millis();
        self.trace
            .push(format!("{:>9.3} {line}", ms as f64 / 1000.0));
    }

    pub(crate) fn broken(&mut self, invariant: u8, text: String) {
        self.log(format!("VIOLATION of invariant {invariant}: {text}"));
        if self.violation.is_none() {
            self.violation = Some(Violation { invariant, text });
            self.over.cancel();
        }
    }

    fn require(&mut self, holds: bool, invariant: u8, text: impl FnOnce() -> String) {
        if !holds {
            self.broken(invariant, text());
        }
    }

    // What processes tell.

    pub(crate) fn pod_created(&mut self, uid: &str, node: &str, name: &str, records: &str) {
        self.nodes.insert(uid.to_owned(), node.to_owned());
        self.names.insert(uid.to_owned(), name.to_owned());
        self.keys.insert(uid.to_owned(), records.to_owned());
    }

    pub(crate) fn knows_reserved<'a>(
        &mut self,
        gate: u64,
        objects: impl Iterator<Item = &'a Value>,
    ) {
        for object in objects {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let ips = object["spec"]["ips"].as_array();
            let ips = ips.into_iter().flatten().filter_map(Value::as_str);
            let known = (Instant::now(), ips.map(str::to_owned).collect());
            self.reserved
                .entry((gate, name.to_owned()))
                .or_insert(known);
        }
    }

    pub(crate) fn forgets_reserved(&mut self, name: &str) {
        self.reserved.retain(|(_, known), _| known != name);
    }

    pub(crate) fn add_begins(&mut self, api: &Api, uid: &str) {
        let adding = Adding {
            begun: Instant::now(),
            allocates: 0,
            replans: 0,
        };
        self.began.insert(uid.to_owned(), adding.begun);
        self.adding.insert(uid.to_owned(), adding);
        self.note_leaving(uid);
        self.supersede(uid);
        let mut kept = self.kept_of(uid);
        kept.extend(self.listed(api, uid));
        self.entered.entry(uid.to_owned()).or_default().extend(kept);
    }

    /// What the endpoint of this Pod, or of its identity, names: an ADD whose answer was lost, or came when
    /// its Pod had ended, has come so far.
    fn listed(&self, api: &Api, uid: &str) -> Vec<IpAddr> {
        let key = self.keys.get(uid).map_or("", String::as_str);
        let endpoint = api.get(Kind::Endpoint, key);
        let current = endpoint.map(|endpoint| &endpoint["status"]["current"]);
        let own = current.filter(|current| current["uid"] == uid || identities::is_one(key));
        let nics = own.and_then(|current| current["ips"].as_array());
        let nics = nics.into_iter().flatten();
        nics.flat_map(|nic| [&nic["ipv4"], &nic["ipv6"]])
            .filter_map(address_of)
            .collect()
    }

    /// An endpoint went, or is another Pod's of the name: the late ADD of an earlier Pod of an identity
    /// may write it once more.
    fn endpoint_turned(&mut self, change: &Change) {
        let of = |object: &Value| object["status"]["current"]["uid"].clone();
        let now = change.new.as_deref().map(of);
        for (uid, adding) in &mut self.adding {
            let named = self.keys.get(uid).is_some_and(|key| *key == change.key);
            let others = now.as_ref().is_none_or(|now| now != uid.as_str());
            adding.replans += usize::from(named && others);
        }
    }

    /// What the identity of this Pod has.
    fn kept_of(&self, uid: &str) -> Vec<IpAddr> {
        let key = self.keys.get(uid);
        let kept = self.kept.iter().filter(|((of, _), _)| Some(of) == key);
        kept.flat_map(|(_, kept)| kept.addresses.iter().copied())
            .collect()
    }

    /// 21: no wait without deadline. 16: at most one call of the provider.
    pub(crate) fn call_ends(&mut self, what: &str, uid: &str, begun: Instant) {
        let took = begun.elapsed();
        self.require(took <= CALL_LIMIT, 21, || {
            format!("{what} took {} s", took.as_secs())
        });
        if let Some(adding) = self.adding.remove(uid) {
            self.require(adding.allocates <= 1 + adding.replans, 16, || {
                format!("{what} called the provider {} times", adding.allocates)
            });
        }
    }

    /// 16: what is ready is given out without a call; prewarm pools are never asked for.
    pub(crate) fn allocate_called(&mut self, uid: &str, pools: &[String], addresses: &[IpAddr]) {
        self.counts.allocates += 1;
        if let Some(adding) = self.adding.get_mut(uid) {
            adding.allocates += 1;
        }
        for pool in pools {
            let ahead = pool.starts_with("warm") && !self.scenario.first;
            self.require(!ahead, 16, || {
                format!("the provider was asked to bind in prewarm pool {pool}")
            });
        }
        for address in addresses {
            let hit = self.hits.contains(&(*address, uid.to_owned()));
            self.require(!hit, 16, || {
                format!(
                    "the provider was asked for {address}, which was ready when {uid} claimed it"
                )
            });
        }
    }

    /// The release fence (design section 3): whoever releases owns the record and has marked it.
    pub(crate) fn release_begins(&mut self, api: &Api, pool: &str, ip: IpAddr, uid: &str) {
        self.counts.releases += 1;
        let raw = api.get(Kind::Pool, pool);
        let Some(pool) = raw.and_then(|raw| self.readings.of(raw)) else {
            return;
        };
        let record = pool.records.get(ip);
        let fenced =
            record.is_some_and(|record| record.pod_uid == uid && record.releasing.is_some());
        self.require(fenced, 16, || {
            format!(
                "the provider releases {ip} of {uid}, but its record is {}",
                record.map_or("gone".into(), shown)
            )
        });
    }

    pub(crate) fn release_accepted(&mut self, ip: IpAddr, uid: &str) {
        self.released.insert((ip, uid.to_owned()));
        self.let_go(ip);
    }

    /// A message of this process was lost or refused: what it could not undo is GC's.
    pub(crate) fn disturbed(&mut self, actor: &Actor) {
        if let Actor::Agent(node) = actor {
            self.disturbed.insert(node.clone(), Instant::now());
        }
    }

    /// Whether messages of the Pod's agent were lost since.
    fn is_disturbed(&self, uid: &str, since: Option<Instant>) -> bool {
        let at = self
            .nodes
            .get(uid)
            .and_then(|node| self.disturbed.get(node));
        at.zip(since).is_some_and(|(at, since)| *at >= since)
    }

    /// 7: what a failed claim or provider call leaves in pools of all nodes.
    pub(crate) fn judge_failed(&mut self, api: &Api, uid: &str, begun: Instant, text: &str) {
        let excused = self.is_disturbed(uid, Some(begun));
        if excused || !text.contains("iaas allocate failed") {
            return;
        }
        // What an earlier ADD was answered with is not of this one.
        let earlier = self.answered.iter().filter(|((of, _), _)| of == uid);
        let mut earlier: Vec<IpAddr> = earlier.flat_map(|(_, ips)| ips.iter().copied()).collect();
        earlier.extend(self.kept_of(uid));
        earlier.extend(self.entered.get(uid).into_iter().flatten());
        // Under contract version 1 any pool may be one of the provider's. What an ADD that died left in one
        // that gives nothing any more, the next ADD that ends well frees, or the DEL.
        let first = self.scenario.first;
        let asked = |pool: &Pool| match first {
            true => !pool.terminating && !pool.disable,
            false => pool.mode == Mode::Global,
        };
        for pool in self.pools(api).iter().filter(|pool| asked(pool)) {
            let mut left = pool.records_of(uid).into_iter();
            let left = left.find(|(address, _)| !earlier.contains(address));
            self.require(left.is_none(), 7, || {
                format!("a failed ADD of {uid} left {left:?} in {}", pool.name)
            });
        }
    }

    // Usages.

    pub(crate) fn usage_ends(&mut self, container: &str) {
        self.usages.retain(|(of, _), _| of != container);
    }

    /// All pools as they are.
    pub(crate) fn pools(&mut self, api: &Api) -> Vec<Arc<Pool>> {
        let raw = api.all(Kind::Pool);
        raw.iter().filter_map(|raw| self.readings.of(raw)).collect()
    }

    /// Whether the Pod of this UID does.
    fn lives(&self, api: &Api, uid: &str) -> bool {
        let name = self.names.get(uid);
        name.is_some_and(|name| pod_lives(api, name, uid))
    }

    fn live<'a>(&'a self, api: &'a Api) -> impl Iterator<Item = &'a Usage> {
        self.usages
            .values()
            .filter(|usage| pod_lives(api, &usage.pod, &usage.uid))
    }
}

pub(crate) fn pod_lives(api: &Api, key: &str, uid: &str) -> bool {
    let pod = api.get(Kind::Pod, key);
    pod.is_some_and(|pod| pod["metadata"]["uid"] == uid && is_alive(pod))
}

fn shown(record: &Record) -> String {
    let nic = record.nic.as_deref().unwrap_or("-");
    let mark = record.releasing.as_ref();
    let mark = mark.map_or(String::new(), |mark| format!(" released by {}", mark.by));
    format!("{} {} {nic}{mark}", record.pod, record.pod_uid)
}

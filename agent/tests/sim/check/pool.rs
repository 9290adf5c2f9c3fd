//! Changes of pools: what may be claimed, what may be freed and by whom, and which fields are whose.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use provider_sim::service::Service;
use serde_json::Value;
use spiderpool_api::allocation::Record;
use spiderpool_api::ip_meta::EntryState;
use spiderpool_ipam::pool::{Mode, Pool};
use spiderpool_ipam::range::Family;

use super::{Check, machine, shown};
use crate::api::{self, Api, Change, Kind};
use crate::gate::Actor;
use crate::world::is_alive;
use crate::{identities, kubelet, machines};

/// A pool change, typed.
struct PoolChange<'a> {
    actor: &'a Actor,
    gate: u64,
    old: Option<Arc<Pool>>,
    new: Option<Arc<Pool>>,
    raw_old: Option<&'a Value>,
    raw_new: Option<&'a Value>,
}

impl Check {
    pub(crate) fn on_change(
        &mut self,
        api: &Api,
        cloud: Option<&Service>,
        actor: &Actor,
        gate: u64,
        change: &Change,
    ) {
        self.log_change(actor, change);
        match change.kind {
            Kind::Pod => self.forget_dead(api),
            Kind::StatefulSet | Kind::Machine | Kind::Instance => self.forget_unwanted(api),
            Kind::Endpoint => self.endpoint_turned(change),
            _ => {}
        }
        if change.kind != Kind::Pool {
            return;
        }
        let change = PoolChange {
            actor,
            gate,
            old: change.old.as_ref().and_then(|raw| self.readings.of(raw)),
            new: change.new.as_ref().and_then(|raw| self.readings.of(raw)),
            raw_old: change.old.as_deref(),
            raw_new: change.new.as_deref(),
        };
        self.judge_pool(api, &change);
        self.judge_usages(api, cloud);
    }

    fn forget_dead(&mut self, api: &Api) {
        let pods = api.all(Kind::Pod);
        let alive = |uid: &str| {
            pods.iter()
                .any(|pod| pod["metadata"]["uid"] == uid && is_alive(pod))
        };
        self.answered.retain(|(uid, _), _| alive(uid));
    }

    fn log_change(&mut self, actor: &Actor, change: &Change) {
        let verb = match (&change.old, &change.new) {
            (None, _) => "makes",
            (_, None) => "removes",
            _ => "writes",
        };
        let (kind, key, version) = (change.kind.name(), &change.key, change.version);
        let records = |object: &Option<Arc<Value>>| {
            let text = object.as_ref()?.pointer("/status/allocatedIPs")?.as_str()?;
            Some(text.replace("\"podUid\":", "").replace("\"pod\":", ""))
        };
        let before = records(&change.old).unwrap_or_default();
        let after = records(&change.new).unwrap_or_default();
        let shown = if before == after {
            String::new()
        } else {
            format!(" {after}")
        };
        self.log(format!("{actor:?} {verb} {kind} {key} @{version}{shown}"));
    }

    fn judge_pool(&mut self, api: &Api, change: &PoolChange<'_>) {
        self.judge_foreign_fields(change);
        let Some(new) = &change.new else {
            let empty = change.old.as_ref().is_none_or(|old| old.records.is_empty());
            self.require(empty, 18, || "a pool went with its records".into());
            return;
        };
        let count = change
            .raw_new
            .and_then(|raw| raw.pointer("/status/allocatedIPCount")?.as_i64());
        self.require(count.unwrap_or(0) == new.records.count(), 3, || {
            format!("{} counts {count:?} of {}", new.name, new.records.count())
        });
        let before: BTreeMap<IpAddr, Record> = match &change.old {
            Some(old) => old
                .records
                .iter()
                .map(|(ip, record)| (ip, record.clone()))
                .collect(),
            None => BTreeMap::new(),
        };
        for (address, record) in new.records.iter() {
            // 2, 3: what is used is among all addresses, so that free and used add up.
            self.require(new.usable.contains(address), 3, || {
                format!(
                    "{} has a record of {address}, which is not its own",
                    new.name
                )
            });
            match before.get(&address) {
                Some(old) if old.pod_uid == record.pod_uid && old.nic == record.nic => {}
                Some(old) if is_handed_on(old, record) => {
                    self.judge_moved(api, change, new, address, (old, record));
                }
                _ => self.judge_added(api, change, new, address, record),
            }
        }
        for (address, record) in &before {
            let kept = new.records.get(*address);
            let stays = |kept: &Record| {
                is_handed_on(record, kept)
                    || (kept.pod_uid == record.pod_uid && kept.nic == record.nic)
            };
            if !kept.is_some_and(stays) {
                self.judge_removed(api, change, new, *address, record);
            }
        }
    }

    /// 17: each side leaves the other's fields alone.
    fn judge_foreign_fields(&mut self, change: &PoolChange<'_>) {
        let (Some(old), Some(new)) = (change.raw_old, change.raw_new) else {
            return;
        };
        let same = |pointer: &str| old.pointer(pointer) == new.pointer(pointer);
        let kept = match change.actor {
            Actor::Agent(_) | Actor::Gc => same("/status/ipMetaData") && same("/spec"),
            Actor::Provider | Actor::Controller => same("/status/allocatedIPs") && same("/spec"),
            Actor::Operator => same("/status/allocatedIPs"),
        };
        self.require(kept, 17, || {
            format!("{:?} wrote what is not its own", change.actor)
        });
    }

    /// 1, 2, 4, 13, 18: what may be claimed.
    fn judge_added(
        &mut self,
        api: &Api,
        change: &PoolChange<'_>,
        pool: &Pool,
        address: IpAddr,
        record: &Record,
    ) {
        let what = format!("{address} of {} for {}", pool.name, shown(record));
        let Actor::Agent(node) = change.actor else {
            return self.broken(4, format!("{:?} claimed {what}", change.actor));
        };
        let home = self.nodes.get(&record.pod_uid).cloned().unwrap_or_default();
        self.require(home == *node, 13, || {
            format!("{node} claimed {what} of node {home}")
        });
        let usable = pool.usable.contains(address) && pool.gateway != Some(address);
        self.require(usable, 2, || format!("{what} is not the pool's to give"));
        self.require(!pool.disable && !pool.terminating, 18, || {
            format!("{what} was claimed of a pool that is disabled or going")
        });
        let nodes = &pool.affinity.node_names;
        self.require(nodes.is_empty() || nodes.contains(node), 13, || {
            format!("{what} was claimed by {node}")
        });
        let begun = self.adding.get(&record.pod_uid).map(|adding| adding.begun);
        let reserved = self.reserved.iter().any(|((gate, _), (since, ips))| {
            *gate == change.gate
                && begun.is_some_and(|begun| *since < begun)
                && ips.contains(&address.to_string())
        });
        self.require(!reserved, 2, || format!("{what} is reserved"));
        let others = self
            .pools(api)
            .into_iter()
            .filter(|other| other.name != pool.name);
        let twice = others.filter(|other| other.records.get(address).is_some());
        let twice: Vec<String> = twice.map(|other| other.name.clone()).collect();
        self.require(twice.is_empty(), 1, || {
            format!("{what} is in {twice:?} too")
        });
        self.note_hit(pool, address, node, record);
    }

    /// 4, 8, 13, 16: an address of an ordinal goes from a Pod that has ended to the next one.
    fn judge_moved(
        &mut self,
        api: &Api,
        change: &PoolChange<'_>,
        pool: &Pool,
        address: IpAddr,
        (from, to): (&Record, &Record),
    ) {
        let what = format!(
            "{address} of {} from {} to {}",
            pool.name,
            shown(from),
            shown(to)
        );
        let Actor::Agent(node) = change.actor else {
            return self.broken(4, format!("{:?} moved {what}", change.actor));
        };
        let home = self.nodes.get(&to.pod_uid).cloned().unwrap_or_default();
        let nodes = &pool.affinity.node_names;
        // What is an ordinal's stays its, whichever nodes a plain pool is of (spec ipam 4.5).
        let serves = nodes.is_empty() || nodes.contains(node) || pool.mode == Mode::Plain;
        let fits = home == *node && serves;
        self.require(fits, 13, || format!("{node} moved {what} of node {home}"));
        let used = self
            .live(api)
            .any(|usage| usage.uid == from.pod_uid && usage.addresses.contains(&address));
        // A machine's target has it while the source runs.
        let shared = machines::is_machine(&to.pod);
        self.require(!used || shared, 8, || {
            format!("{what} was moved and is in use")
        });
        self.require(from.releasing.is_none(), 16, || {
            format!("{what} was moved while it was given back")
        });
        // An adoption may have to ask although the entry says here (spec ipam 7.5).
        self.hits.remove(&(address, from.pod_uid.clone()));
        let key = (address, to.pod_uid.clone());
        self.released.remove(&key);
        self.hits.remove(&key);
    }

    /// Whether the claim needs no call of the provider.
    fn note_hit(&mut self, pool: &Pool, address: IpAddr, node: &str, record: &Record) {
        let key = (address, record.pod_uid.clone());
        self.released.remove(&key);
        if is_hit(pool, address, node) {
            self.hits.insert(key);
        } else {
            self.hits.remove(&key);
        }
    }

    /// 4, 8, 10, 16: what may be freed, and by whom.
    fn judge_removed(
        &mut self,
        api: &Api,
        change: &PoolChange<'_>,
        pool: &Pool,
        address: IpAddr,
        record: &Record,
    ) {
        let what = format!("{address} of {} from {}", pool.name, shown(record));
        let uid = &record.pod_uid;
        self.hits.remove(&(address, uid.clone()));
        let used = self.is_in_use(api, address, record);
        self.judge_machine(api, address, record);
        let alive = self.lives(api, uid);
        let runs = self.runs_on(api, record, address);
        let home = self.nodes.get(uid).cloned().unwrap_or_default();
        let actor = match change.actor {
            Actor::Agent(node) => {
                self.require(!used && !runs, 8, || {
                    format!("{node} freed {what}, which is in use")
                });
                // What an ordinal cannot take along is given up where its next Pod is.
                let foreign = *node != home && !identities::is_one(&record.pod);
                self.require(!foreign, 4, || {
                    format!("{node} freed {what} of node {home}")
                });
                format!("agent/{node}/")
            }
            Actor::Gc => {
                self.counts.collected += 1;
                self.require(!alive, 10, || format!("GC freed {what}, whose Pod lives"));
                self.require(!runs, 10, || {
                    format!("GC freed {what}, whose Pod has time to end")
                });
                format!("controller/gc-{}/", change.gate)
            }
            other => return self.broken(4, format!("{other:?} freed {what}")),
        };
        let plain = pool.mode == Mode::Plain && !self.is_needless(api, address, record, used);
        self.require(!(plain && alive), 8, || {
            format!("{what} was freed and the Pod lives")
        });
        self.judge_mark(record, &actor, &what);
        let half = pool.pair.is_some();
        let primary = pool.family == Family::V4;
        // An ADD that has not come to both halves gives the first one back.
        let adding = alive || self.adding.contains_key(uid);
        let excused = (half && adding && !used) || !primary;
        let prewarmed = matches!(pool.mode, Mode::Prewarm { .. }) && !excused;
        if prewarmed || (record.node.is_some() && self.is_owed(address)) {
            let agreed = self.released.contains(&(address, uid.clone()));
            self.require(agreed, 16, || {
                format!("{what} was freed before the provider agreed")
            });
        }
    }
}

impl Check {
    /// 16: whoever has marked a record frees it.
    fn judge_mark(&mut self, record: &Record, actor: &str, what: &str) {
        if let Some(mark) = &record.releasing {
            self.require(mark.by.starts_with(actor), 16, || {
                format!("{actor} freed {what}, marked by {}", mark.by)
            });
        }
    }

    /// Whether a Pod that is being deleted has its grace yet and its containers use the address.
    fn runs_on(&self, api: &Api, record: &Record, address: IpAddr) -> bool {
        let mut usages = self.usages.values();
        usages.any(|usage| {
            let pod = api.get(Kind::Pod, &usage.pod);
            let own = pod.filter(|pod| pod["metadata"]["uid"] == usage.uid.as_str());
            let end = own.and_then(|pod| kubelet::grace_end(pod));
            machine::is_of(usage, record)
                && usage.addresses.contains(&address)
                && end.is_some_and(|end| api::wall(self.epoch) < end)
        })
    }

    /// Whether a Pod that lives has no use for a record of a plain pool.
    fn is_needless(&mut self, api: &Api, address: IpAddr, record: &Record, used: bool) -> bool {
        // Of contract version 1: given back at once when the provider does not bind it.
        let rolled_back = record.node.is_some() && !used;
        // An ordinal that was not answered yet gives both addresses up when one is not to be had.
        let nic = record.nic.clone().unwrap_or_default();
        let answered = self.answered.contains_key(&(record.pod_uid.clone(), nic));
        let given_up = identities::is_one(&record.pod) && !answered;
        rolled_back || given_up || self.is_leftover(api, address, record)
    }

    /// A NIC that was given another address by now has no use for this one.
    fn is_leftover(&mut self, api: &Api, address: IpAddr, record: &Record) -> bool {
        let pools = self.pools(api);
        let mut others = pools.iter().flat_map(|pool| pool.records.iter());
        others.any(|(other, found)| {
            other != address
                && Family::of(other) == Family::of(address)
                && found.pod_uid == record.pod_uid
                && found.nic == record.nic
        })
    }
}

/// Whether both are of one ordinal, and of one of its NICs.
fn is_handed_on(old: &Record, new: &Record) -> bool {
    identities::is_one(&old.pod)
        && old.pod == new.pod
        && old.nic == new.nic
        && old.pod_uid != new.pod_uid
}

/// Ready on this node as the pool that was written says.
fn is_hit(pool: &Pool, address: IpAddr, node: &str) -> bool {
    let Some(Ok(metadata)) = &pool.metadata else {
        return false;
    };
    let entry = metadata.entries.get(&address);
    let attached = entry.map(|entry| &entry.state);
    matches!(attached, Some(EntryState::Attached { node: at, .. }) if at.as_deref().is_none_or(|at| at == node))
}

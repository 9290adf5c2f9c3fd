//! Many changes of one pool's records at once, for the pool's single writer: applied member by
//! member on a fresh copy, so that a member that no longer fits leaves with its own error and
//! never fails the others (spec ipam 4.3).

use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::Map;
use spiderpool_api::allocation::{Record, Records, Releasing};

use crate::pick::{
    Claimant, Pick, PickError, PickKind, Rules, Taken, View, may_give, own_addresses, owns,
    path_of, room,
};
use crate::pool::Pool;

mod adopt;

/// Age in seconds after which another actor may take a release marker over.
pub const TAKEOVER_SECONDS: i64 = 120;

/// One wanted change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// An address for a NIC. With `pin` exactly that one or none: a re-claim of what the endpoint
    /// names. A pin in a pool of a provider must be ready on the node as well.
    Claim {
        /// Who asks.
        who: Claimant,
        /// The address wanted.
        pin: Option<IpAddr>,
    },
    /// The IPv6 half of a pair, whose entry was judged on the IPv4 pool. Another address the NIC
    /// holds in this pool is of an older pair and goes.
    ClaimHalf {
        /// Who asks.
        who: Claimant,
        /// The partner address.
        address: IpAddr,
    },
    /// An address of an identity that outlives its Pods (spec ipam 1.3, static retrieve): the record
    /// of an earlier Pod under the same key becomes this one's; a lost record is claimed again.
    /// Another address that the NIC holds in this pool goes.
    Adopt {
        /// Who asks; an empty NIC keeps what the record says.
        who: Claimant,
        /// The address.
        address: IpAddr,
        /// The IPv6 side of a pair: as [`Op::ClaimHalf`].
        half: bool,
        /// UID of the record when the caller last saw its Pod alive; `None`: there was no record. One of
        /// another UID has gone to a later Pod.
        from: Option<String>,
        /// The last ADD of the identity that ended well was on this node and left the record so. If not, a
        /// call of the provider that moves the sub-ENI may still be under way, or the metadata may be
        /// older than it: a hit is not trusted.
        settled: bool,
    },
    /// Marks records of a Pod UID as being released (spec iaas section 8): until they are freed or
    /// the mark is old, nobody else tells the provider, and nobody gets the addresses.
    Mark {
        /// The UID the record must carry; empty marks nothing.
        uid: String,
        /// Only these addresses.
        addresses: Vec<IpAddr>,
        /// Who will call the provider.
        by: String,
        /// Now, RFC 3339. A mark of somebody else is taken over [`TAKEOVER_SECONDS`] after its own
        /// time, and at once when that cannot be read.
        at: String,
    },
    /// Frees records of a Pod UID. Others are never touched, whatever the address; one marked as
    /// being released is left to who marked it, and one of a sub-ENI of contract version 1 goes only
    /// when it is listed: its provider comes first. Nothing to free is success.
    Release {
        /// The UID the record must carry; empty frees nothing.
        uid: String,
        /// Only this NIC's; a record without `nic` counts as any NIC's.
        nic: Option<String>,
        /// Only these addresses.
        addresses: Option<Vec<IpAddr>>,
        /// Who asks: what this actor has marked is freed too.
        by: Option<String>,
    },
}

impl Op {
    /// Whether an address is wanted, not given back.
    #[must_use]
    pub const fn claims(&self) -> bool {
        matches!(
            self,
            Self::Claim { .. } | Self::ClaimHalf { .. } | Self::Adopt { .. }
        )
    }
}

/// What became of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The NIC owns the address.
    Claimed(Pick),
    /// These addresses are marked by who asked, possibly none.
    Marked(Vec<IpAddr>),
    /// These addresses were freed, possibly none.
    Released(Vec<IpAddr>),
}

/// The records after all members.
#[derive(Debug, Clone)]
pub struct Batch {
    /// To be written if `changed`.
    pub records: Records,
    /// One per member, in order.
    pub outcomes: Vec<Result<Outcome, PickError>>,
    /// Whether anything has to be written.
    pub changed: bool,
}

/// Applies `ops` in order to the pool's records. `sibling` is the other half's pool where `pool`
/// is the IPv4 side of a pair and pairs are in use.
#[must_use]
pub fn apply(pool: &Pool, sibling: Option<&Pool>, rules: &Rules, ops: &[Op]) -> Batch {
    let mut table = Table {
        taken: Taken::of(pool, sibling),
        pool: pool.clone(),
        sibling,
        rules,
    };
    let outcomes = ops.iter().map(|op| table.apply(op)).collect();
    Batch {
        changed: table.pool.records != pool.records,
        records: table.pool.records,
        outcomes,
    }
}

/// The pool as the members so far have left it.
struct Table<'a> {
    pool: Pool,
    taken: Taken,
    sibling: Option<&'a Pool>,
    rules: &'a Rules,
}

impl Table<'_> {
    fn apply(&mut self, op: &Op) -> Result<Outcome, PickError> {
        match op {
            Op::Claim { who, pin: None } => {
                let chosen = self.pick(who, None)?;
                Ok(self.write(who, chosen))
            }
            Op::Claim {
                who,
                pin: Some(address),
            } => {
                let chosen = self.exact(who, *address)?;
                Ok(self.write(who, chosen))
            }
            Op::ClaimHalf { who, address } => self.half(who, *address),
            Op::Adopt {
                who,
                address,
                half,
                from,
                settled,
            } => self.adopt(who, *address, *half, from.as_deref(), *settled),
            Op::Mark {
                uid,
                addresses,
                by,
                at,
            } => {
                let mark = Releasing {
                    by: by.clone(),
                    at: at.clone(),
                };
                Ok(self.mark(uid, addresses, &mark))
            }
            Op::Release {
                uid,
                nic,
                addresses,
                by,
            } => Ok(self.release(uid, nic.as_deref(), addresses.as_deref(), by.as_deref())),
        }
    }

    fn pick(&self, who: &Claimant, only: Option<IpAddr>) -> Result<Pick, PickError> {
        View {
            pool: &self.pool,
            sibling: self.sibling,
            who,
            rules: self.rules,
            taken: &self.taken,
            only,
        }
        .pick()
    }

    fn exact(&self, who: &Claimant, address: IpAddr) -> Result<Pick, PickError> {
        let own = own_addresses(&self.pool, who);
        if !own.is_empty() && !own.contains(&address) {
            let held: Vec<_> = own.iter().map(ToString::to_string).collect();
            let why = format!("is not the one the NIC holds already ({})", held.join(", "));
            return Err(pinned(&self.pool, address, why));
        }
        free_or_own(&self.pool, who, self.rules, address)?;
        if self.pool.is_iaas() {
            return self.pick(who, Some(address));
        }
        direct(&self.pool, who, self.rules, address, Vec::new())
    }

    fn half(&mut self, who: &Claimant, address: IpAddr) -> Result<Outcome, PickError> {
        free_or_own(&self.pool, who, self.rules, address)?;
        let mut stale = own_addresses(&self.pool, who);
        stale.retain(|other| *other != address);
        let chosen = direct(&self.pool, who, self.rules, address, stale)?;
        Ok(self.write(who, chosen))
    }

    fn write(&mut self, who: &Claimant, chosen: Pick) -> Outcome {
        self.remove(&chosen.stale);
        let node = who.sub_eni.then(|| who.node.clone());
        if chosen.kind == PickKind::New {
            let record = Record {
                pod: who.pod.clone(),
                pod_uid: who.uid.clone(),
                nic: Some(who.nic.clone()).filter(|nic| !nic.is_empty()),
                node,
                releasing: None,
                extra: Map::new(),
            };
            self.pool.records.insert(chosen.address, record);
            let one = std::iter::once(chosen.address).collect();
            self.taken.own = self.taken.own.union(&one);
        } else if let Some(record) = self.pool.records.get(chosen.address)
            && node.is_some()
            && record.node != node
        {
            let record = Record {
                node,
                ..record.clone()
            };
            self.pool.records.insert(chosen.address, record);
        }
        if let Some(v6) = chosen.pair_v6 {
            self.taken.promise(v6);
        }
        Outcome::Claimed(chosen)
    }

    fn mark(&mut self, uid: &str, addresses: &[IpAddr], mark: &Releasing) -> Outcome {
        let mut marked = Vec::new();
        for address in addresses {
            let record = self.pool.records.get(*address);
            let Some(record) = record.filter(|record| !uid.is_empty() && record.pod_uid == uid)
            else {
                continue;
            };
            if record
                .releasing
                .as_ref()
                .is_some_and(|other| !gives_way(other, mark))
            {
                continue;
            }
            let record = Record {
                releasing: Some(mark.clone()),
                ..record.clone()
            };
            self.pool.records.insert(*address, record);
            marked.push(*address);
        }
        Outcome::Marked(marked)
    }

    fn release(
        &mut self,
        uid: &str,
        nic: Option<&str>,
        addresses: Option<&[IpAddr]>,
        by: Option<&str>,
    ) -> Outcome {
        let freed: Vec<IpAddr> = self
            .pool
            .records_of(uid)
            .into_iter()
            .filter(|(address, record)| {
                let mark = record.releasing.as_ref();
                mark.is_none_or(|mark| by == Some(&mark.by))
                    && nic.is_none_or(|nic| record.nic.as_deref().is_none_or(|own| own == nic))
                    && addresses.map_or(record.node.is_none(), |list| list.contains(address))
            })
            .map(|(address, _)| address)
            .collect();
        self.remove(&freed);
        Outcome::Released(freed)
    }

    fn remove(&mut self, addresses: &[IpAddr]) {
        for address in addresses {
            self.pool.records.remove(*address);
        }
        let gone = addresses.iter().copied().collect();
        self.taken.own = self.taken.own.subtract(&gone);
    }
}

/// Whether a mark that is there makes way for `new`.
pub(crate) fn gives_way(there: &Releasing, new: &Releasing) -> bool {
    if there.by == new.by {
        return true;
    }
    let (Ok(then), Ok(now)) = (there.at.parse::<Timestamp>(), new.at.parse::<Timestamp>()) else {
        // Without a readable time it would stay for ever.
        return true;
    };
    now.duration_since(then).as_secs() >= TAKEOVER_SECONDS
}

/// Whether the address has no record in anybody's way and may get one.
fn free_or_own(
    pool: &Pool,
    who: &Claimant,
    rules: &Rules,
    address: IpAddr,
) -> Result<(), PickError> {
    match pool.records.get(address) {
        Some(record) if owns(who, address, record) => Ok(()),
        Some(record) if record.pod_uid == who.uid => {
            let nic = record.nic.as_deref().unwrap_or("another NIC");
            Err(pinned(
                pool,
                address,
                format!("belongs to {nic} of the same Pod or is being released"),
            ))
        }
        Some(record) => {
            let why = format!("belongs to Pod {} (UID {})", record.pod, record.pod_uid);
            Err(pinned(pool, address, why))
        }
        None if !may_give(pool, rules, address) => {
            let why = "is reserved, the gateway, or not in the pool".to_owned();
            Err(pinned(pool, address, why))
        }
        None => Ok(()),
    }
}

/// A pick of an address already judged by [`free_or_own`], without a provider's say.
fn direct(
    pool: &Pool,
    who: &Claimant,
    rules: &Rules,
    address: IpAddr,
    stale: Vec<IpAddr>,
) -> Result<Pick, PickError> {
    let kind = match pool.records.get(address) {
        Some(record) if owns(who, address, record) => PickKind::Existing,
        _ => PickKind::New,
    };
    if kind == PickKind::New {
        room(pool, rules, stale.len())?;
    }
    Ok(Pick {
        address,
        pair_v6: None,
        binding: None,
        known_mac: None,
        kind,
        path: path_of(who),
        stale,
    })
}

fn pinned(pool: &Pool, address: IpAddr, why: String) -> PickError {
    PickError::Pinned {
        pool: pool.name.clone(),
        address,
        why,
    }
}

#[cfg(test)]
mod tests;

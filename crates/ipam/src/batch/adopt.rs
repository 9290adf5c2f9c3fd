//! Adoption: a record goes from one Pod of an identity to the next. All or nothing: what does not
//! fit leaves the record as it was.

use std::net::IpAddr;

use spiderpool_api::allocation::Record;
use spiderpool_api::ip_meta::EntryState;

use super::{Op, Outcome, Table, direct, pinned};
use crate::pick::{Claimant, Path, Pick, PickError, own_addresses};
use crate::pool::{Mode, NotReady, Pool};

impl Table<'_> {
    pub(super) fn adopt(
        &mut self,
        who: &Claimant,
        address: IpAddr,
        half: bool,
        from: Option<&str>,
        settled: bool,
    ) -> Result<Outcome, PickError> {
        let Some(record) = self.pool.records.get(address).cloned() else {
            let who = who.clone();
            return self.apply(&if half {
                Op::ClaimHalf { who, address }
            } else {
                Op::Claim {
                    who,
                    pin: Some(address),
                }
            });
        };
        may_move(&self.pool, who, address, &record)?;
        if record.pod_uid != who.uid && from != Some(record.pod_uid.as_str()) {
            return Err(PickError::Moved {
                pool: self.pool.name.clone(),
                address,
                uid: record.pod_uid,
            });
        }
        // A detail that no call has named yet: its record knows the NIC, or nobody does.
        let who = &match &record.nic {
            Some(nic) if who.nic.is_empty() => Claimant {
                nic: nic.clone(),
                ..who.clone()
            },
            _ => who.clone(),
        };
        let others: Vec<(IpAddr, Record)> = own_addresses(&self.pool, who)
            .into_iter()
            .filter(|other| *other != address)
            .filter_map(|other| Some((other, self.pool.records.remove(other)?)))
            .collect();
        self.pool.records.insert(address, moved(who, &record));
        match self.judge(who, address, half, settled) {
            Ok(chosen) => {
                let stale = others.iter().map(|(other, _)| *other).collect();
                Ok(self.write(who, Pick { stale, ..chosen }))
            }
            Err(error) => {
                self.pool.records.insert(address, record);
                for (other, record) in others {
                    self.pool.records.insert(other, record);
                }
                Err(error)
            }
        }
    }

    /// A sub-ENI of a global pool that is just being detached is worth waiting for: the provider puts
    /// back what it finds claimed (spec iaas 15.2 P13), or ends, and the address can be bound again.
    fn stays_attached(&self, address: IpAddr) -> Result<(), NotReady> {
        let (Mode::Global, Some(Ok(metadata))) = (&self.pool.mode, &self.pool.metadata) else {
            return Ok(());
        };
        match metadata.entries.get(&address).map(|entry| &entry.state) {
            Some(EntryState::Reclaiming { node }) => Err(NotReady {
                reason: None,
                text: format!(
                    "IPPool {}: the sub-ENI of {address} is being detached from node {node}",
                    self.pool.name
                ),
            }),
            _ => Ok(()),
        }
    }

    /// What the address is worth to its new Pod: the provider's pools have a say.
    fn judge(
        &self,
        who: &Claimant,
        address: IpAddr,
        half: bool,
        settled: bool,
    ) -> Result<Pick, PickError> {
        if self.pool.is_iaas() && !half {
            self.stays_attached(address)?;
            let pick = self.pick(who, Some(address))?;
            let asks = self.pool.mode == Mode::Global && self.rules.provider && !settled;
            return Ok(if asks && pick.path == Path::CacheHit {
                Pick {
                    path: Path::ColdRebind,
                    binding: None,
                    ..pick
                }
            } else {
                pick
            });
        }
        direct(&self.pool, who, self.rules, address, Vec::new())
    }
}

/// Whether the record is of the same identity and NIC, and nobody is giving it back.
fn may_move(
    pool: &Pool,
    who: &Claimant,
    address: IpAddr,
    record: &Record,
) -> Result<(), PickError> {
    let refused = |why: String| Err(pinned(pool, address, why));
    if who.uid.is_empty() || record.pod != who.pod {
        return refused(format!(
            "belongs to Pod {} (UID {})",
            record.pod, record.pod_uid
        ));
    }
    if record.releasing.is_some() {
        return refused("is being released".to_owned());
    }
    match &record.nic {
        Some(nic) if *nic != who.nic && !who.nic.is_empty() => {
            refused(format!("belongs to {nic} of the same Pod"))
        }
        None if who.elsewhere.contains(&address) => {
            refused("belongs to another NIC of the same Pod".to_owned())
        }
        _ => Ok(()),
    }
}

fn moved(who: &Claimant, record: &Record) -> Record {
    Record {
        pod_uid: who.uid.clone(),
        nic: Some(who.nic.clone()).filter(|nic| !nic.is_empty()),
        ..record.clone()
    }
}

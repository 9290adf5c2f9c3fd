//! Adoption: a record goes from one Pod of an identity to the next. All or nothing: what does not
//! fit leaves the record as it was.

use std::net::IpAddr;

use spiderpool_api::allocation::Record;

use super::{Op, Outcome, Table, direct, pinned};
use crate::pick::{Claimant, Pick, PickError, own_addresses};
use crate::pool::Pool;

impl Table<'_> {
    pub(super) fn adopt(
        &mut self,
        who: &Claimant,
        address: IpAddr,
        half: bool,
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
        match self.judge(who, address, half) {
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

    /// What the address is worth to its new Pod: the provider's pools have a say.
    fn judge(&self, who: &Claimant, address: IpAddr, half: bool) -> Result<Pick, PickError> {
        if self.pool.is_iaas() && !half {
            return self.pick(who, Some(address));
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

//! Virtual machines, where two Pods may have one address: source and target of a migration (spec ipam 10,
//! invariant 1).

use std::net::IpAddr;

use spiderpool_api::allocation::Record;

use super::{Check, Usage};
use crate::api::Api;
use crate::identities;
use crate::machines::is_machine;

impl Check {
    /// An ADD of one of a machine's Pods begins: its sub-ENI may come here from now on.
    pub(super) fn supersede(&mut self, uid: &str) {
        let Some(key) = self.keys.get(uid).filter(|key| is_machine(key)) else {
            return;
        };
        let of_machine = self.keys.iter().filter(|(_, of)| *of == key);
        let all: Vec<String> = of_machine.map(|(uid, _)| uid.clone()).collect();
        self.superseded.extend(all);
        self.superseded.remove(uid);
    }

    /// Whether the Pod of a record lives on the address, or another Pod of its machine does.
    pub(super) fn is_in_use(&self, api: &Api, address: IpAddr, record: &Record) -> bool {
        self.live(api)
            .any(|usage| is_of(usage, record) && usage.addresses.contains(&address))
    }

    /// 11: what a machine was answered last stays its, while somebody has it.
    pub(super) fn judge_machine(&mut self, api: &Api, address: IpAddr, record: &Record) {
        let key = (record.pod.clone(), record.nic.clone().unwrap_or_default());
        let kept = self.kept.get(&key);
        let kept = kept.is_some_and(|kept| kept.addresses.contains(&address));
        let lost = kept && is_machine(&record.pod) && identities::is_wanted(api, &record.pod);
        self.require(!lost, 11, || {
            format!(
                "{address} of {} was freed and the machine is there",
                record.pod
            )
        });
    }
}

/// Whether this is a Pod with the record, or runs on it as another one of the same machine.
pub(super) fn is_of(usage: &Usage, record: &Record) -> bool {
    usage.uid == record.pod_uid || (is_machine(&usage.records) && usage.records == record.pod)
}

/// Whether two Pods may share what is theirs.
pub(super) fn is_one(usage: &Usage, other: &Usage) -> bool {
    is_machine(&usage.records) && usage.records == other.records
}

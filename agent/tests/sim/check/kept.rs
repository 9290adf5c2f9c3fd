//! 11: an ordinal of a StatefulSet and a machine keep their addresses as long as somebody wants them.

use std::net::IpAddr;

use super::{Check, Usage};
use crate::api::Api;
use crate::{identities, machines};

/// What an ordinal has.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) addresses: Vec<IpAddr>,
    /// Where its Pod was, and whether sub-ENIs of that pool hang there.
    node: String,
    prewarm: bool,
    /// An ADD on another node has begun since: it gives prewarmed ones up, whatever becomes of it.
    left: bool,
}

impl Check {
    /// The set may have fewer Pods by now: those it does not want keep nothing.
    pub(super) fn forget_unwanted(&mut self, api: &Api) {
        self.kept
            .retain(|(key, _), _| identities::is_wanted(api, key));
    }

    /// An ADD of one of its Pods begins.
    pub(super) fn note_leaving(&mut self, uid: &str) {
        let (Some(key), Some(node)) = (self.keys.get(uid), self.nodes.get(uid)) else {
            return;
        };
        let kept = self.kept.iter_mut().filter(|((of, _), _)| of == key);
        kept.for_each(|(_, kept)| kept.left |= kept.node != *node);
    }

    /// An ADD of one of its Pods is answered.
    pub(super) fn judge_kept(&mut self, api: &Api, usage: &Usage) {
        if !identities::is_wanted(api, &usage.records) {
            return;
        }
        let node = self.nodes.get(&usage.uid).cloned().unwrap_or_default();
        let pools = self.pools(api);
        let prewarm = !self.scenario.first
            && usage.addresses.iter().any(|address| {
                let mut pools = pools.iter();
                pools.any(|pool| pool.name.starts_with("warm") && pool.usable.contains(*address))
            });
        let kept = Kept {
            addresses: usage.addresses.clone(),
            node,
            prewarm,
            left: false,
        };
        let key = (usage.records.clone(), usage.ifname.clone());
        let Some(before) = self.kept.insert(key, kept.clone()) else {
            return;
        };
        let moved = before.node != kept.node;
        self.counts.kept += usize::from(before.addresses == kept.addresses);
        self.counts.moved += usize::from(moved && before.addresses == kept.addresses);
        let machine = machines::is_machine(&usage.records);
        self.counts.migrated += usize::from(machine && moved);
        // The sub-ENIs of a prewarm pool do not go with a Pod.
        let excused = before.prewarm && (moved || before.left);
        self.require(before.addresses == kept.addresses || excused, 11, || {
            format!(
                "{} {} {} had {:?} on {} and got {:?} on {}",
                usage.pod,
                usage.uid,
                usage.ifname,
                before.addresses,
                before.node,
                kept.addresses,
                kept.node
            )
        });
    }
}

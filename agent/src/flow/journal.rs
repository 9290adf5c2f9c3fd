//! The last ADD of each NIC, for whoever asks why. In memory, bounded: the oldest is forgotten.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use spiderpool_api::trace_v1::LastAdd;
use spiderpool_ipam::candidates::Request;

use crate::store::ObjectKey;

/// NICs remembered: some times the Pods of a node.
const ROOM: usize = 512;

/// What was asked for, and what came of it.
#[derive(Debug, Clone)]
pub(crate) struct Noted {
    pub(crate) request: Request,
    pub(crate) last: LastAdd,
}

/// The memory.
#[derive(Debug, Default)]
pub(crate) struct Journal(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    order: VecDeque<Key>,
    notes: HashMap<Key, Noted>,
}

type Key = (ObjectKey, String);

impl Journal {
    /// An ADD is answered.
    pub(crate) fn note(&self, pod: ObjectKey, noted: Noted) {
        let key = (pod, noted.request.ifname.clone());
        let mut inner = self.inner();
        if inner.notes.insert(key.clone(), noted).is_some() {
            return;
        }
        inner.order.push_back(key);
        if inner.order.len() > ROOM
            && let Some(oldest) = inner.order.pop_front()
        {
            inner.notes.remove(&oldest);
        }
    }

    /// Everything about one Pod, by interface.
    pub(crate) fn of(&self, pod: &ObjectKey) -> Vec<Noted> {
        let inner = self.inner();
        let own = inner.notes.iter().filter(|((key, _), _)| key == pod);
        let mut notes: Vec<Noted> = own.map(|(_, noted)| noted.clone()).collect();
        notes.sort_by(|a, b| a.request.ifname.cmp(&b.request.ifname));
        notes
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spiderpool_api::cni_conf::Plugin;

    fn noted(ifname: &str, ms: u64) -> Noted {
        Noted {
            request: Request::new(Plugin::Spiderpool, ifname),
            last: LastAdd {
                at: String::new(),
                ms,
                code: 0,
                error: None,
            },
        }
    }

    #[test]
    fn the_last_of_each_nic_is_kept_and_the_oldest_goes() {
        let journal = Journal::default();
        let pod = |n: usize| ObjectKey::new("shop", format!("web-{n}"));
        for (ifname, ms) in [("net1", 1), ("eth0", 2), ("net1", 3)] {
            journal.note(pod(0), noted(ifname, ms));
        }
        let times = |pod: &ObjectKey| -> Vec<u64> {
            journal.of(pod).iter().map(|noted| noted.last.ms).collect()
        };
        assert_eq!(times(&pod(0)), [2, 3]);
        for n in 1..=ROOM {
            journal.note(pod(n), noted("eth0", 9));
        }
        assert!(times(&pod(0)).is_empty());
        assert_eq!(times(&pod(ROOM)), [9]);
    }
}

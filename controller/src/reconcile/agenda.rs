//! The objects of a kind as a watch tells of them, each with the moment at which it is brought in line
//! next: at once when it is new or has changed. One that cannot be read is complained of, and what was
//! made of it before stays.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use tokio::time::Instant;

use crate::complaints::Complaints;
use crate::objects::ObjectKey;
use crate::objects::parsed::Parsed;

struct Known<K> {
    object: Arc<K>,
    due: Instant,
    /// Of which listing it was a part.
    listing: u64,
}

/// The objects that can be read.
pub(super) struct Agenda<K> {
    known: BTreeMap<ObjectKey, Known<K>>,
    listing: u64,
}

impl<K> Default for Agenda<K> {
    fn default() -> Self {
        Self {
            known: BTreeMap::new(),
            listing: 0,
        }
    }
}

impl<K: Resource<DynamicType = ()>> Agenda<K> {
    pub(super) fn take(&mut self, event: Event<Parsed<K>>, complaints: &mut Complaints) {
        match event {
            Event::Init => self.listing += 1,
            Event::InitApply(object) | Event::Apply(object) => self.changed(&object, complaints),
            Event::InitDone => {
                let listing = self.listing;
                self.known.retain(|_, known| known.listing == listing);
            }
            Event::Delete(object) => {
                self.known.remove(&key(&object));
                complaints.forget(&object.shown());
            }
        }
    }

    fn changed(&mut self, object: &Parsed<K>, complaints: &mut Complaints) {
        let (key, about) = (key(object), object.shown());
        match &object.object {
            Err(why) => {
                self.known.remove(&key);
                complaints.say(&about, &why.to_string());
            }
            Ok(object) => {
                if !self.known.contains_key(&key) {
                    complaints.over(&about);
                }
                let known = Known {
                    object: Arc::clone(object),
                    due: Instant::now(),
                    listing: self.listing,
                };
                self.known.insert(key, known);
            }
        }
    }

    /// When the first is due; `None` where there is no object.
    pub(super) fn next(&self) -> Option<Instant> {
        self.known.values().map(|known| known.due).min()
    }

    /// Those that are due.
    pub(super) fn due(&self) -> Vec<(ObjectKey, Arc<K>)> {
        let now = Instant::now();
        let due = self.known.iter().filter(|(_, known)| known.due <= now);
        due.map(|(key, known)| (key.clone(), Arc::clone(&known.object)))
            .collect()
    }

    /// It was looked at, and is due again after `wait`.
    pub(super) fn put_off(&mut self, key: &ObjectKey, wait: Duration) {
        if let Some(known) = self.known.get_mut(key) {
            known.due = Instant::now() + wait;
        }
    }

    /// Those that are meant are due now.
    pub(super) fn wake(&mut self, is_meant: impl Fn(&ObjectKey, &K) -> bool) {
        for (key, known) in &mut self.known {
            if is_meant(key, &known.object) {
                known.due = Instant::now();
            }
        }
    }
}

fn key<K: Resource>(object: &K) -> ObjectKey {
    ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use spiderpool_api::subnet::SpiderSubnet;
    use tokio::time::advance;

    fn read(name: &str, spec: Value) -> Parsed<SpiderSubnet> {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    }

    fn good(name: &str) -> Parsed<SpiderSubnet> {
        read(name, json!({"subnet": "10.7.0.0/24"}))
    }

    fn due(agenda: &Agenda<SpiderSubnet>) -> Vec<String> {
        let due = agenda.due().into_iter();
        due.map(|(key, _)| key.name).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_known_is_due_when_it_changes_is_woken_or_its_time_has_come() {
        let (mut agenda, mut complaints) = (Agenda::default(), Complaints::default());
        let mut take = |agenda: &mut Agenda<_>, event| agenda.take(event, &mut complaints);
        take(&mut agenda, Event::Init);
        for name in ["a", "b"] {
            take(&mut agenda, Event::InitApply(good(name)));
        }
        take(&mut agenda, Event::InitDone);
        assert_eq!(due(&agenda), ["a", "b"]);
        let wait = Duration::from_secs(5);
        for (key, _) in agenda.due() {
            agenda.put_off(&key, wait);
        }
        assert_eq!(
            (due(&agenda).len(), agenda.next()),
            (0, Some(Instant::now() + wait))
        );
        agenda.wake(|key, _| key.name == "b");
        assert_eq!(due(&agenda), ["b"]);
        take(&mut agenda, Event::Apply(good("a")));
        assert_eq!(due(&agenda), ["a", "b"]);
        // It cannot be read any more; then it can.
        take(&mut agenda, Event::Apply(read("a", json!({"subnet": 7}))));
        assert_eq!(due(&agenda), ["b"]);
        take(&mut agenda, Event::Apply(good("a")));
        // What the next list does not have is gone.
        take(&mut agenda, Event::Init);
        take(&mut agenda, Event::InitApply(good("a")));
        take(&mut agenda, Event::InitDone);
        advance(wait).await;
        assert_eq!(due(&agenda), ["a"]);
        take(&mut agenda, Event::Delete(good("a")));
        assert_eq!(agenda.next(), None);
    }
}

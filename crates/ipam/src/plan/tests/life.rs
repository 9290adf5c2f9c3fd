//! Invariant 11 of spec ipam section 10 on a model: a Pod of a valid StatefulSet keeps its address
//! whatever happens to it.

use proptest::prelude::{Just, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::*;
use crate::batch::{Op, Outcome, apply};
use crate::facts::Owner;
use crate::gc;
use crate::pick::Rules;
use crate::sticky::{Sticky, Switches};

/// What may happen to the Pod.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// Its sandbox is made anew: ADD by the same Pod.
    Restart,
    /// It is deleted and comes back on that node.
    Recreate(u8),
    /// DEL arrives, of the present Pod (`true`) or the one before.
    Del(bool),
    /// A scan.
    Scan,
    /// The record is lost, as after an edit by hand.
    Lose,
}

fn some_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => Just(Event::Restart),
        2 => (1_u8..4).prop_map(Event::Recreate),
        2 => proptest::bool::ANY.prop_map(Event::Del),
        2 => Just(Event::Scan),
        1 => Just(Event::Lose),
    ]
}

struct Model {
    now: Snapshot,
    /// Address of the last answer.
    answered: Option<String>,
    generation: u32,
    /// Whether the present Pod has called ADD.
    called: bool,
}

impl Model {
    fn new() -> Self {
        let mut now = snapshot(&[object("p", "10.0.0.0/24", &["10.0.0.10-10.0.0.19"])]);
        now.switches = Switches::ON;
        now.pod.owner = Owner {
            api_version: "apps/v1".into(),
            kind: "StatefulSet".into(),
            name: "web".into(),
        };
        Self {
            now,
            answered: None,
            generation: 1,
            called: false,
        }
    }

    fn change(&mut self, op: Op) -> Option<Outcome> {
        let pool = self.now.pools[0].as_ref().clone();
        let mut batch = apply(&pool, None, &Rules::default(), &[op]);
        self.now.pools[0] = pool.with_records(batch.records).into();
        batch.outcomes.remove(0).ok()
    }

    /// ADD as the flow does it; the address answered.
    fn add(&mut self) -> String {
        self.called = true;
        let who = claimant(&self.now, "eth0");
        let (nic, lost) = match plan_add(&self.now, "eth0").unwrap().intent {
            Intent::Retrieve(nic) => return nic.ipv4.unwrap(),
            Intent::Adopt(adoption) => {
                for take in &adoption.take {
                    let pool = self.now.pool(&take.held.pool).unwrap();
                    let record = pool.records.get(take.held.address);
                    let op = Op::Adopt {
                        who: claimant(&self.now, &take.nic),
                        address: take.held.address,
                        half: take.held.half,
                        from: record.map(|record| record.pod_uid.clone()),
                        settled: true,
                    };
                    assert!(self.change(op).is_some());
                }
                (adoption.nic, Vec::new())
            }
            Intent::Fresh(_) => match self.change(Op::Claim { who, pin: None }) {
                Some(Outcome::Claimed(pick)) => (
                    detail("eth0", &format!("{}/24", pick.address), "p"),
                    Vec::new(),
                ),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        self.now.endpoint = endpoint_adopted(&self.now, &nic, &lost)
            .or_else(|| Some(endpoint(&self.now.pod.uid, vec![nic.clone()])));
        nic.ipv4.unwrap()
    }

    fn del(&mut self, uid: &str) {
        let plan = plan_del(&DelFacts {
            ifname: "eth0".into(),
            uid: Some(uid.into()),
            pod: None,
            endpoint: self.now.endpoint.clone(),
            known_pools: vec!["p".into()],
            identity: self.now.endpoint.as_ref().map(|_| Identity {
                kind: Sticky::StatefulSet,
                valid: true,
                other_alive: false,
            }),
        });
        if let DelPlan::Release { uid, .. } = plan {
            let op = Op::Release {
                uid,
                nic: None,
                addresses: None,
                by: None,
            };
            self.change(op);
        }
    }

    fn scan(&mut self) {
        let state = gc::PodState {
            uid: self.now.pod.uid.clone(),
            phase: if self.called {
                gc::Phase::Running
            } else {
                gc::Phase::Pending
            },
            has_ips: self.called,
            deletion: None,
        };
        let current = self
            .now
            .endpoint
            .as_ref()
            .map(|found| found.current.uid.clone());
        let records: Vec<_> = self.now.pools[0]
            .records
            .iter()
            .map(|(_, record)| record.clone())
            .collect();
        for record in records {
            let facts = gc::Facts {
                record: &record,
                pod: Some(&state),
                direct: true,
                endpoint_uid: current.as_deref(),
                listed: true,
                reported: false,
                identity: Some(gc::Static {
                    kind: Sticky::StatefulSet,
                    valid: true,
                }),
                node: gc::NodeState::Ready,
                actor: "me",
                now: "2027-01-05T10:00:00Z".parse().unwrap(),
                ending_for: jiff::SignedDuration::MAX,
            };
            if matches!(
                gc::judge(&gc::Knobs::default(), &facts),
                gc::Verdict::Free { .. }
            ) {
                let op = Op::Release {
                    uid: record.pod_uid,
                    nic: None,
                    addresses: None,
                    by: None,
                };
                self.change(op);
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Restart => {
                let address = self.add();
                self.answered.get_or_insert(address);
            }
            Event::Recreate(node) => {
                self.generation += 1;
                self.called = false;
                self.now.pod.uid = format!("u-{}", self.generation);
                self.now.node.name = format!("n{node}");
            }
            Event::Del(present) => {
                let uid = if present {
                    self.generation
                } else {
                    self.generation - 1
                };
                // The present Pod lives: its DEL is of a sandbox that is replaced.
                if !present {
                    self.del(&format!("u-{uid}"));
                }
            }
            Event::Scan => self.scan(),
            Event::Lose => {
                let address = self
                    .answered
                    .as_deref()
                    .and_then(|net| net.split('/').next()?.parse().ok());
                if let Some(address) = address {
                    let mut pool = self.now.pools[0].as_ref().clone();
                    pool.records.remove(address);
                    self.now.pools[0] = pool.into();
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn a_valid_statefulset_pod_keeps_its_address(events in proptest::collection::vec(some_event(), 1..30)) {
        let mut model = Model::new();
        for event in events {
            model.happen(event);
            let count = model.now.pools[0].records.count();
            prop_assert!(count <= 1);
            if let (Event::Restart, Some(first)) = (event, model.answered.clone()) {
                let again = model.add();
                prop_assert_eq!(again, first.clone());
                // Invariant 23: the record carries the UID of whom it was answered to.
                let address = first.split('/').next().unwrap().parse().unwrap();
                let owner = model.now.pools[0].records.get(address).map(|record| record.pod_uid.clone());
                prop_assert_eq!(owner, Some(model.now.pod.uid.clone()));
            }
        }
    }
}

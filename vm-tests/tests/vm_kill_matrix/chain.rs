//! The agent dies in a container's ADD, the runtime asks again; the next agent dies in the same
//! container's DEL, which comes again by itself and once more from the runtime. One start of an
//! agent a death.

use std::collections::VecDeque;

use serde_json::json;

use crate::rig::Rig;
use crate::victim::{Victim, Way};

/// Tries of a DEL until its point is to be reached: as the ADD's way has it, with a provider that
/// refuses, and again with a sub-ENI that goes back.
const TRIES: usize = 6;

/// The DEL points that are left, and how often the first one was not reached.
struct Dels {
    points: VecDeque<String>,
    tries: usize,
}

impl Dels {
    /// Every second try has a provider that refuses once.
    fn refused(&self) -> bool {
        self.tries % 2 == 1
    }
}

/// An attached container and the start of the agent that is to die in its DEL.
fn del(rig: &mut Rig, dels: &mut Dels, victim: Victim, uid: &str, next: Option<&str>) {
    let Some(point) = dels.points.front().cloned() else {
        victim.pod.release(rig.node(), &victim.conf).unwrap();
        rig.arm(next);
        return victim.leaves_nothing(rig, uid);
    };
    let refusals = json!([{ "op": "release", "kind": "status", "status": 503, "times": 1 }]);
    let faults = if dels.refused() { refusals } else { json!([]) };
    rig.cloud.provider().unwrap().set_faults(&faults).unwrap();
    let call = victim.pod.call(rig.node(), "DEL", &victim.conf);
    let (outcome, died) = rig.run(&call, next);
    outcome.silent().unwrap();
    rig.cloud
        .provider()
        .unwrap()
        .set_faults(&json!([]))
        .unwrap();
    if died {
        dels.points.pop_front();
        dels.tries = 0;
    } else {
        dels.tries += 1;
        assert!(dels.tries < TRIES, "no DEL reaches {point}");
        rig.arm(next);
    }
    let how = released_in_the_end(rig, &victim, uid);
    if died {
        rig.note(&format!("DEL {point}: {:?}, {how}", victim.way));
    }
    victim.leaves_nothing(rig, uid);
}

/// The runtime repeats its DEL. A mark of the dead agent keeps the next one from the provider for
/// two minutes, as a call may be under way; meanwhile the release waits on disk.
fn released_in_the_end(rig: &Rig, victim: &Victim, uid: &str) -> &'static str {
    victim.pod.release(rig.node(), &victim.conf).unwrap();
    victim.has_left_the_node(rig);
    let held = victim.addresses(rig, uid);
    if held.is_empty() {
        return "at once";
    }
    let waiting = rig.waiting();
    assert!(
        waiting.contains(&victim.file_name()),
        "{held:?} wait for nothing: {waiting:?}"
    );
    assert_eq!(rig.age_marks(victim.way.stack()), 1, "{held:?}");
    victim.pod.release(rig.node(), &victim.conf).unwrap();
    "once its mark is old"
}

/// Kills in the first way that reaches the point; the agent is armed for it.
fn add(rig: &mut Rig, point: &str, next: Option<&str>) -> Victim {
    for way in Way::all(rig.next_number()) {
        let victim = Victim::bare(rig, rig.next_number(), way);
        let call = victim.pod.call(rig.node(), "ADD", &victim.conf);
        let (outcome, died) = rig.run(&call, next);
        if died {
            assert_eq!(outcome.error().unwrap().code, 11, "{outcome:?}");
            rig.note(&format!("ADD {point}: {way:?}, asked for again"));
            return victim;
        }
        outcome.result().unwrap();
        rig.dismiss(victim);
    }
    panic!("no ADD reaches {point}");
}

#[test]
#[ignore = "vm level"]
fn an_add_is_asked_for_again_and_a_del_comes_again() {
    let mut rig = Rig::start();
    let mut adds = rig.steps.add_points();
    let mut dels = Dels {
        points: rig.steps.del_points(),
        tries: 0,
    };
    rig.arm(adds.front().map(String::as_str));
    while !adds.is_empty() || !dels.points.is_empty() {
        let after = dels.points.front().cloned();
        let victim = match adds.pop_front() {
            Some(point) => {
                let victim = add(&mut rig, &point, after.as_deref());
                let uid = victim.uid(&rig);
                let held = victim.addresses(&rig, &uid);
                let (result, _) = victim.pod.attach(rig.node(), &victim.conf).unwrap();
                victim.is_intact(&rig, &uid, &result, &held);
                victim
            }
            None => {
                rig.arm(after.as_deref());
                let victim = Victim::bare(&rig, rig.next_number(), Way::Prewarm);
                victim.pod.attach(rig.node(), &victim.conf).unwrap();
                victim
            }
        };
        let uid = victim.uid(&rig);
        let next = adds.front().cloned();
        if victim.way == Way::Cold && !adds.is_empty() {
            // Its address would be ready for the next.
            rig.dismiss(victim);
            rig.arm(next.as_deref());
        } else {
            del(&mut rig, &mut dels, victim, &uid, next.as_deref());
        }
    }
    rig.finish("chain");
}

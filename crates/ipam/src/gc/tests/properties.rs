//! Invariant 10 of spec ipam section 10, and that nothing is freed on the word of a cache.

use proptest::prelude::{Just, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::*;

fn some_pod() -> impl Strategy<Value = Option<PodState>> {
    let phase = prop_oneof![
        Just("Pending"),
        Just("Running"),
        Just("Succeeded"),
        Just("Failed"),
        Just("Unknown")
    ];
    let marks = prop_oneof![
        Just(""),
        Just("+ips"),
        Just("+deleted"),
        Just("+ips+deleted")
    ];
    let state = (prop_oneof![Just("u-1"), Just("u-2")], phase, marks)
        .prop_map(|(uid, phase, marks)| pod(uid, &format!("{phase}{marks}")));
    proptest::option::of(state)
}

fn some_identity() -> impl Strategy<Value = Option<Static>> {
    prop_oneof![
        2 => Just(None),
        1 => Just(set(true)), 1 => Just(set(false)), 1 => Just(vm(true)), 1 => Just(vm(false)),
    ]
}

fn some_knobs() -> impl Strategy<Value = Knobs> {
    proptest::array::uniform3(proptest::bool::ANY).prop_map(
        |[ready_node, not_ready_node, empty_ips]| Knobs {
            ready_node,
            not_ready_node,
            empty_ips,
            ..Knobs::default()
        },
    )
}

fn some_node() -> impl Strategy<Value = NodeState> {
    prop_oneof![
        Just(NodeState::Ready),
        Just(NodeState::NotReady),
        Just(NodeState::Missing)
    ]
}

proptest! {
    #[test]
    fn a_living_pod_never_loses_its_record(
        knobs in some_knobs(), state in some_pod(), identity in some_identity(), node in some_node(),
        endpoint_uid in prop_oneof![Just(None), Just(Some("u-1")), Just(Some("u-2"))],
        listed in proptest::bool::ANY, at in -100_i64..1000, watched in 0_i64..100,
    ) {
        let record = record("u-1");
        let facts = |direct| Facts {
            record: &record, pod: state.as_ref(), direct, endpoint_uid, listed, reported: false, identity, node,
            actor: "me", now: after(at), ending_for: SignedDuration::from_secs(watched),
        };
        let (cached, direct) = (judge(&knobs, &facts(false)), judge(&knobs, &facts(true)));
        let is_free = |verdict: &Verdict| matches!(verdict, Verdict::Free { .. });
        let frees = is_free(&direct);
        prop_assert!(!matches!(direct, Verdict::Confirm(_)));
        prop_assert!(!is_free(&cached));
        prop_assert_eq!(frees, matches!(cached, Verdict::Confirm(_)));
        let lives = state.as_ref().is_some_and(|pod| {
            pod.uid == "u-1" && pod.has_ips && pod.deletion.is_none() && !pod.phase.ended()
        });
        prop_assert!(!(lives && frees));
        // A valid identity with an endpoint keeps its addresses, unless its Pod came up with others.
        let valid = identity.is_some_and(|identity| identity.valid);
        let came_up = state.as_ref().is_some_and(|pod| pod.uid != "u-1" && pod.has_ips);
        prop_assert!(!(valid && endpoint_uid.is_some() && frees) || came_up);
        // More switches never keep what fewer free.
        let all = Knobs { ready_node: true, not_ready_node: true, empty_ips: true, ..knobs };
        let more = is_free(&judge(&all, &facts(true)));
        prop_assert!(more || !frees);
    }
}

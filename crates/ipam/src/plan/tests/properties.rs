//! Invariants 4, 5, 8 and 9 of spec ipam section 10 on plans.

use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::*;
use crate::sticky::Sticky;

fn some_uid() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("u-1".to_owned()),
        Just("u-2".to_owned())
    ]
}

fn some_pod() -> impl Strategy<Value = Option<PodFacts>> {
    let phase = prop_oneof![
        Just("Running"),
        Just("Pending"),
        Just("Succeeded"),
        Just("Failed")
    ];
    let policy = prop_oneof![Just("Always"), Just("Never")];
    let pod = (some_uid(), phase, policy, any::<bool>());
    let pod = pod.prop_map(|(uid, phase, policy, terminating)| PodFacts {
        uid: format!("u{uid}"),
        phase: phase.into(),
        restart_policy: policy.into(),
        terminating,
        ..PodFacts::default()
    });
    proptest::option::of(pod)
}

fn some_endpoint() -> impl Strategy<Value = Option<EndpointStatus>> {
    let nic = prop_oneof![Just("eth0"), Just("net1"), Just("")];
    let made = (some_uid(), nic)
        .prop_map(|(uid, nic)| endpoint(&uid, vec![detail(nic, "10.0.0.10/24", "p")]));
    proptest::option::of(made)
}

fn some_identity() -> impl Strategy<Value = Option<Identity>> {
    let made =
        (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(set, valid, other_alive)| {
            Identity {
                kind: if set {
                    Sticky::StatefulSet
                } else {
                    Sticky::VirtualMachine
                },
                valid,
                other_alive,
            }
        });
    proptest::option::of(made)
}

proptest! {
    /// 8, and 4: what a DEL frees is guarded by a UID that the call, the Pod or, for an identity
    /// that is gone, the endpoint names; never a living Pod's.
    #[test]
    fn a_del_frees_nothing_of_a_living_pod(
        uid in proptest::option::of(some_uid()), pod in some_pod(), endpoint in some_endpoint(),
        identity in some_identity(), known in any::<bool>(),
    ) {
        let known_pools = if known { vec!["p".to_owned()] } else { vec![] };
        let facts = DelFacts {
            ifname: "eth0".into(), uid, pod, endpoint, known_pools, identity,
        };
        let plan = plan_del(&facts);
        prop_assert_eq!(&plan, &plan_del(&facts));
        if let DelPlan::Release { uid, .. } = plan {
            prop_assert!(!uid.is_empty());
            let lives = facts.pod.as_ref().is_some_and(|pod| {
                pod.uid == uid && crate::facts::pod_alive(pod)
            });
            prop_assert!(!lives);
            let of_endpoint = facts.endpoint.as_ref().is_some_and(|found| found.current.uid == uid);
            let gone = facts.identity.is_some_and(|identity| !identity.valid);
            let asked = facts.uid.as_deref() == Some(uid.as_str());
            let of_pod = facts.pod.as_ref().is_some_and(|pod| pod.uid == uid);
            prop_assert!(asked || of_pod || (of_endpoint && gone));
            // A valid identity keeps what its endpoint names.
            let valid = facts.identity.is_some_and(|identity| identity.valid);
            prop_assert!(!(valid && facts.endpoint.is_some()));
        }
    }

    /// 9 and 5: what an ADD writes is what it claimed beside what the Pod had, and the next ADD
    /// reads exactly that.
    #[test]
    fn an_endpoint_names_what_was_claimed(known in proptest::sample::subsequence(vec!["net1", "net2"], 0..=2), last in 10_u8..20) {
        let (mut rows, mut details) = (serde_json::Map::new(), Vec::new());
        for (index, nic) in known.iter().enumerate() {
            rows.insert(format!("10.0.0.1{index}"), rec("u-1", nic));
            details.push(detail(nic, &format!("10.0.0.1{index}/24"), "p"));
        }
        proptest::prop_assume!(!rows.contains_key(&format!("10.0.0.{last}")));
        rows.insert(format!("10.0.0.{last}"), rec("u-1", "eth0"));
        let mut now = recorded(&json!(rows), details);
        let pool = now.pools[0].as_ref().clone();
        let claim = Claim { pool: &pool, address: format!("10.0.0.{last}").parse().unwrap(), binding: None };
        let made = assemble("eth0", false, &[claim]).unwrap();
        now.endpoint = Some(endpoint_after(&now, std::slice::from_ref(&made)));
        let listed = held_by(&now.endpoint.as_ref().unwrap().current);
        prop_assert_eq!(listed.len(), known.len() + 1);
        prop_assert!(listed.iter().all(|held| pool.records.get(held.address).is_some()));
        match plan_add(&now, "eth0").unwrap().intent {
            Intent::Retrieve(nic) => prop_assert_eq!(from_endpoint(&nic).unwrap(), made),
            other => prop_assert!(false, "{:?}", other),
        }
    }
}

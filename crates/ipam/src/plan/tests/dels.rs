#![expect(
    clippy::too_many_lines,
    reason = "tables with one row a case read best in one piece"
)]

use super::*;

#[test]
fn a_del_frees_only_what_is_proven() {
    let pod = |uid: &str, terminating: bool, standalone: bool| {
        let label = (
            names::LABEL_OWNED_BY.to_owned(),
            names::OWNED_BY_STANDALONE.to_owned(),
        );
        Some(PodFacts {
            uid: uid.into(),
            terminating,
            labels: if standalone {
                [label].into()
            } else {
                [].into()
            },
            ..PodFacts::default()
        })
    };
    let ep = |uid: &str, nic: &str| Some(endpoint(uid, vec![detail(nic, "10.0.0.10/24", "p")]));
    let nothing = DelPlan::Nothing;
    let held = Held {
        pool: "p".into(),
        address: "10.0.0.10".parse().unwrap(),
        half: false,
    };
    let from_endpoint = DelPlan::Release {
        uid: "u-1".into(),
        from: ReleaseFrom::Endpoint(vec![held]),
    };
    let from_pools = DelPlan::Release {
        uid: "u-1".into(),
        from: ReleaseFrom::Pools(vec!["p".into()]),
    };
    for (uid, pod, endpoint, known, want) in [
        (
            "u-1",
            pod("u-1", false, false),
            ep("u-1", "eth0"),
            true,
            nothing(NothingToFree::PodAlive),
        ),
        (
            "",
            pod("u-1", false, false),
            ep("u-1", "eth0"),
            true,
            nothing(NothingToFree::PodAlive),
        ),
        (
            "u-1",
            pod("u-1", false, true),
            ep("u-1", "eth0"),
            false,
            DelPlan::DeletePodFirst,
        ),
        (
            "u-1",
            pod("u-1", true, true),
            ep("u-1", "eth0"),
            false,
            from_endpoint.clone(),
        ),
        (
            "",
            pod("u-1", true, false),
            ep("u-1", "eth0"),
            false,
            from_endpoint.clone(),
        ),
        ("u-1", None, ep("u-1", "eth0"), false, from_endpoint.clone()),
        ("u-1", None, ep("u-1", ""), false, from_endpoint),
        (
            "",
            None,
            ep("u-1", "eth0"),
            true,
            nothing(NothingToFree::UidUnknown),
        ),
        ("u-1", None, None, false, nothing(NothingToFree::NoEndpoint)),
        ("u-1", None, None, true, from_pools.clone()),
        (
            "u-1",
            None,
            ep("u-2", "eth0"),
            false,
            nothing(NothingToFree::OtherPod),
        ),
        // B03: the new Pod of that name lives; only the old UID's records go.
        (
            "u-1",
            pod("u-2", false, false),
            ep("u-2", "eth0"),
            true,
            from_pools,
        ),
        (
            "u-1",
            None,
            ep("u-1", "net1"),
            false,
            nothing(NothingToFree::NicNotRecorded),
        ),
        // A batch DEL has emptied it: the end of the Pod ends the endpoint.
        (
            "u-1",
            None,
            Some(endpoint("u-1", vec![])),
            false,
            DelPlan::Release {
                uid: "u-1".into(),
                from: ReleaseFrom::Endpoint(vec![]),
            },
        ),
    ] {
        let facts = DelFacts {
            ifname: "eth0".into(),
            uid: Some(uid.into()),
            pod,
            endpoint,
            known_pools: if known { vec!["p".into()] } else { vec![] },
            identity: None,
        };
        assert_eq!(plan_del(&facts), want, "{facts:?}");
    }
    assert!(NothingToFree::PodAlive.reason().contains("alive"));
}

/// Spec ipam 1.7 rows 6 and 7.
#[test]
fn an_identity_keeps_or_frees_what_its_endpoint_names() {
    use crate::sticky::Sticky;
    let named = |uid: &str| Some(endpoint(uid, vec![detail("eth0", "10.0.0.10/24", "p")]));
    let dying = |uid: &str| PodFacts {
        uid: uid.into(),
        terminating: true,
        ..PodFacts::default()
    };
    let release = |uid: &str| DelPlan::Release {
        uid: uid.into(),
        from: ReleaseFrom::Endpoint(vec![Held {
            pool: "p".into(),
            address: "10.0.0.10".parse().unwrap(),
            half: false,
        }]),
    };
    let (set, vm) = (Sticky::StatefulSet, Sticky::VirtualMachine);
    let kept = |kind| DelPlan::Nothing(NothingToFree::Kept(kind));
    let nothing = DelPlan::Nothing;
    for (kind, valid, other_alive, endpoint, ifname, want) in [
        (set, true, false, named("u-1"), "eth0", kept(set)),
        (set, true, false, named("u-0"), "eth0", kept(set)),
        (vm, true, false, named("u-1"), "eth0", kept(vm)),
        // The source of a failed migration ends while the machine stays.
        (vm, true, false, named("u-2"), "eth0", kept(vm)),
        (set, false, false, named("u-1"), "eth0", release("u-1")),
        // Nobody is left to ask for another NIC.
        (set, false, false, named("u-1"), "net7", release("u-1")),
        (vm, false, false, named("u-1"), "eth0", release("u-1")),
        // Both UIDs of a failed migration count: the endpoint still has the target's.
        (vm, false, false, named("u-2"), "eth0", release("u-2")),
        // Either may run on it, whichever the endpoint was written for.
        (
            vm,
            false,
            true,
            named("u-2"),
            "eth0",
            nothing(NothingToFree::Shared),
        ),
        (
            vm,
            false,
            true,
            named("u-1"),
            "eth0",
            nothing(NothingToFree::Shared),
        ),
        (set, false, true, named("u-1"), "eth0", release("u-1")),
        (
            set,
            false,
            false,
            None,
            "eth0",
            nothing(NothingToFree::NoEndpoint),
        ),
        (
            vm,
            true,
            false,
            None,
            "eth0",
            nothing(NothingToFree::NoEndpoint),
        ),
    ] {
        let facts = DelFacts {
            ifname: ifname.into(),
            uid: Some("u-1".into()),
            pod: Some(dying("u-1")),
            endpoint,
            known_pools: vec![],
            identity: Some(Identity {
                kind,
                valid,
                other_alive,
            }),
        };
        assert_eq!(plan_del(&facts), want, "{facts:?}");
    }
    for kind in [set, vm] {
        assert!(
            NothingToFree::Kept(kind)
                .reason()
                .contains("keeps its addresses")
        );
    }
    assert!(NothingToFree::Shared.reason().contains("still runs"));
}

/// Invariant 8: whatever the identity, a Pod that lives keeps what it has.
#[test]
fn a_living_pod_of_an_identity_keeps_its_addresses() {
    use crate::sticky::Sticky;
    let facts = DelFacts {
        ifname: "eth0".into(),
        uid: Some("u-1".into()),
        pod: Some(PodFacts {
            uid: "u-1".into(),
            ..PodFacts::default()
        }),
        endpoint: Some(endpoint("u-1", vec![detail("eth0", "10.0.0.10/24", "p")])),
        known_pools: vec!["p".into()],
        identity: Some(Identity {
            kind: Sticky::StatefulSet,
            valid: false,
            other_alive: false,
        }),
    };
    let want = DelPlan::Nothing(NothingToFree::PodAlive);
    assert_eq!(plan_del(&facts), want);
}

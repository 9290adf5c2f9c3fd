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
    ] {
        let facts = DelFacts {
            ifname: "eth0".into(),
            uid: Some(uid.into()),
            pod,
            endpoint,
            known_pools: if known { vec!["p".into()] } else { vec![] },
        };
        assert_eq!(plan_del(&facts), want, "{facts:?}");
    }
    assert!(NothingToFree::PodAlive.reason().contains("alive"));
}

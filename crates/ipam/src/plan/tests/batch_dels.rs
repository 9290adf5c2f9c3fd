#![expect(
    clippy::too_many_lines,
    reason = "tables with one row a case read best in one piece"
)]

use super::*;
use crate::sticky::Sticky;

fn facts() -> BatchDelFacts {
    BatchDelFacts {
        pod: "shop/web-0".into(),
        uid: Some("u-1".into()),
        conflict: true,
        conflict_release_enabled: true,
        identity: None,
        endpoint: Some(endpoint(
            "u-1",
            vec![
                detail("eth0", "10.0.0.10/24", "p"),
                detail("net1", "10.1.0.10/24", "q"),
            ],
        )),
    }
}

/// Spec ipam 1.7, batch DEL.
#[test]
fn a_batch_del_is_decided_in_order() {
    let ok = plan_batch_del(&facts()).unwrap();
    match ok {
        BatchDelPlan::Release { uid, held } => {
            let pools: Vec<_> = held.iter().map(|held| held.pool.as_str()).collect();
            assert_eq!((uid.as_str(), pools), ("u-1", vec!["p", "q"]));
        }
        BatchDelPlan::Nothing => panic!("nothing"),
    }
    let set = Some(Sticky::StatefulSet);
    for (case, want) in [
        (
            BatchDelFacts {
                uid: None,
                ..facts()
            },
            Ok(()),
        ),
        (
            BatchDelFacts {
                uid: Some(String::new()),
                conflict_release_enabled: false,
                ..facts()
            },
            Ok(()),
        ),
        (
            BatchDelFacts {
                conflict_release_enabled: false,
                ..facts()
            },
            Err((521, "SPIDERPOOL_ENABLED_RELEASE_CONFLICT_IPS")),
        ),
        // 521 comes before 522.
        (
            BatchDelFacts {
                conflict_release_enabled: false,
                identity: set,
                ..facts()
            },
            Err((521, "shop/web-0")),
        ),
        (
            BatchDelFacts {
                identity: set,
                ..facts()
            },
            Err((522, "keeps its addresses")),
        ),
        (
            BatchDelFacts {
                identity: Some(Sticky::VirtualMachine),
                ..facts()
            },
            Err((522, "virtual machine")),
        ),
        (
            BatchDelFacts {
                endpoint: None,
                ..facts()
            },
            Err((500, "no SpiderEndpoint")),
        ),
        (
            BatchDelFacts {
                uid: Some("u-9".into()),
                ..facts()
            },
            Err((500, "is of UID u-1, not u-9")),
        ),
    ] {
        match (plan_batch_del(&case), want) {
            (Ok(plan), Ok(())) => assert_eq!(plan, BatchDelPlan::Nothing),
            (Err(error), Err((status, part))) => {
                assert_eq!(error.status(), status, "{error}");
                assert!(error.to_string().contains(part), "{error}");
            }
            (found, want) => panic!("{found:?}, wanted {want:?}"),
        }
    }
}

/// Without a conflict, for an unreachable gateway, switch and identity do not matter.
#[test]
fn an_unreachable_gateway_gives_addresses_of_any_pod_back() {
    let case = BatchDelFacts {
        conflict: false,
        conflict_release_enabled: false,
        identity: Some(Sticky::StatefulSet),
        ..facts()
    };
    assert!(matches!(
        plan_batch_del(&case),
        Ok(BatchDelPlan::Release { .. })
    ));
}

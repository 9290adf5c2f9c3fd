use super::*;

fn changed<'a>(pod: &'a PodState, finished: Option<Timestamp>) -> Ending<'a> {
    Ending::Changed {
        pod,
        finished,
        grace: 20,
    }
}

/// Spec ipam 6.2.
#[test]
fn a_trace_is_due_by_the_table() {
    let knobs = Knobs::default();
    let now = after(100);
    let due = |seconds, watched| Trace::Due {
        at: after(seconds),
        watched: SignedDuration::from_secs(watched),
    };
    let (ready, lost) = (NodeState::Ready, NodeState::NotReady);
    let finished = Some(after(50));
    for (state, finished, node, want) in [
        // deletionTimestamp + its grace + delay.
        ("Running+ips+deleted", None, ready, due(35, 35)),
        ("Failed+deleted", finished, ready, due(35, 35)),
        // finishedAt + terminationGracePeriodSeconds + delay.
        ("Succeeded", finished, ready, due(75, 25)),
        ("Failed+ips", finished, lost, due(75, 25)),
        ("Failed", None, ready, due(125, 25)),
        ("Running+ips", finished, ready, Trace::None),
        ("Pending", None, ready, Trace::None),
        ("Unknown", None, lost, Trace::None),
    ] {
        let state_of = pod("u-1", state);
        let ending = changed(&state_of, finished);
        let found = trace(&knobs, ending, false, None, node, now);
        assert_eq!(found, want, "{state}");
        assert_eq!(trace(&knobs, ending, true, None, node, now), Trace::None);
        let kept = trace(&knobs, ending, false, set(true), node, now);
        assert_eq!(kept, Trace::None);
        assert_eq!(trace(&knobs, ending, false, set(false), node, now), want);
    }
    let gone = |knobs: &Knobs| trace(knobs, Ending::Deleted, false, None, lost, now);
    assert_eq!(gone(&knobs), due(105, 5));
    // A Pod that is gone needs no look at its node.
    let never = Knobs {
        ready_node: false,
        not_ready_node: false,
        ..Knobs::default()
    };
    assert_eq!(gone(&never), due(105, 5));
    let state = pod("u-1", "Running+deleted");
    let ending = changed(&state, None);
    assert_eq!(trace(&never, ending, false, None, ready, now), Trace::None);
    let off = Knobs {
        enabled: false,
        ..Knobs::default()
    };
    assert_eq!(gone(&off), Trace::None);
}

#[test]
fn a_due_trace_releases_what_its_endpoint_names() {
    let found = endpoint("u-1", &[("p", "10.0.0.10/24"), ("q", "10.1.0.10/24")]);
    assert_eq!(plan_trace_release("u-1", None, None), TraceRelease::Done);
    for uid in ["u-2", ""] {
        let plan = plan_trace_release(uid, Some(&found), None);
        assert_eq!(plan, TraceRelease::LeftToScan);
    }
    for (identity, own) in [(None, false), (set(false), true)] {
        match plan_trace_release("u-1", Some(&found), identity) {
            TraceRelease::Release {
                uid,
                held,
                delete_endpoint,
            } => {
                let pools: Vec<_> = held.iter().map(|held| held.pool.as_str()).collect();
                assert_eq!((uid.as_str(), pools), ("u-1", vec!["p", "q"]));
                assert_eq!(delete_endpoint, own);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn far_away_times_do_not_overflow() {
    let endless = PodState {
        deletion: Some(Deletion {
            at: Timestamp::MAX,
            grace: i64::MAX,
        }),
        ..pod("u-1", "Running")
    };
    let ending = changed(&endless, None);
    let found = trace(
        &Knobs::default(),
        ending,
        false,
        None,
        NodeState::Ready,
        after(0),
    );
    let want = Trace::Due {
        at: Timestamp::MAX,
        watched: SignedDuration::MAX,
    };
    assert_eq!(found, want);
}

#![expect(
    clippy::too_many_lines,
    reason = "tables with one row a case read best in one piece"
)]

use super::*;

/// One row: Pod (UID and state), endpoint UID, identity, node, seconds after the deletion time.
struct Row<'a> {
    pod: Option<(&'a str, &'a str)>,
    endpoint: Option<&'a str>,
    identity: Option<Static>,
    node: NodeState,
    at: i64,
}

const READY: NodeState = NodeState::Ready;

fn row<'a>(
    pod: Option<(&'a str, &'a str)>,
    endpoint: Option<&'a str>,
    identity: Option<Static>,
) -> Row<'a> {
    Row {
        pod,
        endpoint,
        identity,
        node: READY,
        at: 600,
    }
}

fn judged(knobs: &Knobs, record: &Record, row: &Row<'_>, direct: bool) -> Verdict {
    let state = row.pod.map(|(uid, text)| pod(uid, text));
    judge(
        knobs,
        &Facts {
            record,
            pod: state.as_ref(),
            direct,
            endpoint_uid: row.endpoint,
            listed: row.endpoint.is_some(),
            reported: false,
            identity: row.identity,
            node: row.node,
            actor: "me",
            now: after(row.at),
            ending_for: SignedDuration::MAX,
        },
    )
}

#[test]
fn an_address_that_a_static_pod_shows_is_in_use() {
    let record = record("u-1");
    let judged = |text, reported| {
        let state = pod("u-2", text);
        let facts = Facts {
            record: &record,
            pod: Some(&state),
            direct: true,
            endpoint_uid: None,
            listed: false,
            reported,
            identity: None,
            node: READY,
            actor: "me",
            now: after(600),
            ending_for: SignedDuration::MAX,
        };
        word(judge(&Knobs::default(), &facts))
    };
    assert_eq!(judged("Running+ips", true), "keep");
    assert_eq!(judged("Running+ips", false), "free");
    assert_eq!(judged("Failed+ips", true), "free");
}

/// Spec ipam 6.3, every row; the record carries UID u-1.
#[test]
fn the_scan_judges_by_the_table() {
    let (one, none) = (Some("u-1"), None);
    let stateless = None;
    let knobs = Knobs::default();
    let same = |text| Some(("u-1", text));
    let other = |text| Some(("u-2", text));
    for (row, want) in [
        // Pod missing.
        (row(None, none, stateless), "free"),
        (row(None, none, set(true)), "free"),
        (row(None, one, stateless), "free+endpoint"),
        (row(None, one, set(true)), "keep"),
        (row(None, one, set(false)), "free+endpoint"),
        (row(None, one, vm(true)), "keep"),
        (row(None, one, vm(false)), "free+endpoint"),
        // Ended.
        (row(same("Succeeded"), one, set(true)), "trace"),
        (row(same("Failed"), one, vm(true)), "trace"),
        (row(same("Succeeded"), one, set(false)), "free+endpoint"),
        (row(same("Failed+ips"), one, set(false)), "free+endpoint"),
        (row(same("Succeeded"), one, stateless), "keep"),
        (row(same("Failed+ips"), one, stateless), "keep"),
        (
            row(same("Failed+ips+deleted"), one, stateless),
            "free+endpoint",
        ),
        // Pending.
        (row(same("Pending"), one, stateless), "keep"),
        (row(same("Pending+deleted"), one, stateless), "keep"),
        (row(same("Pending"), one, set(false)), "keep"),
        // Being deleted: rule T, overdue.
        (
            row(same("Running+ips+deleted"), one, stateless),
            "free+endpoint",
        ),
        (
            row(same("Unknown+ips+deleted"), one, stateless),
            "free+endpoint",
        ),
        (row(same("Running+ips+deleted"), one, set(true)), "keep"),
        (row(same("Running+ips+deleted"), one, set(false)), "keep"),
        // Alive.
        (row(same("Running+ips"), one, stateless), "keep"),
        (row(same("Unknown+ips"), one, stateless), "keep"),
        (row(same("Running+ips"), one, set(false)), "keep"),
        // No addresses.
        (row(same("Running"), one, stateless), "keep"),
        (row(same("Unknown"), one, stateless), "free+endpoint"),
        (row(same("Running"), one, set(true)), "keep"),
        (row(same("Running"), one, set(false)), "free+endpoint"),
        (row(same("Unknown"), one, vm(false)), "free+endpoint"),
        // Another Pod of that name.
        (row(other("Running+ips"), Some("u-2"), stateless), "free"),
        (row(other("Pending"), Some("u-2"), stateless), "free"),
        (row(other("Pending"), None, stateless), "free"),
        (row(other("Running+ips"), one, stateless), "free+endpoint"),
        (row(other("Running+ips"), one, set(true)), "free"),
        (row(other("Running+ips"), one, set(false)), "free"),
        (row(other("Pending"), one, set(true)), "keep"),
        (row(other("Running"), one, set(false)), "free+endpoint"),
        // Either Pod of a migration may run on the address.
        (row(other("Running+ips"), one, vm(true)), "keep"),
        (row(other("Running+ips"), one, vm(false)), "keep"),
        (row(other("Pending"), one, vm(false)), "keep"),
        (row(other("Running+ips+deleted"), one, vm(false)), "keep"),
        (row(other("Failed+ips"), one, vm(false)), "free+endpoint"),
        (row(other("Running+ips"), None, vm(false)), "free"),
        // The record is the living Pod's, the endpoint is not (invariant 10).
        (
            row(same("Running+ips"), Some("u-0"), stateless),
            "keep+endpoint",
        ),
        (
            row(same("Pending"), Some("u-0"), stateless),
            "keep+endpoint",
        ),
        (row(same("Running+ips"), Some("u-0"), set(true)), "keep"),
    ] {
        let verdict = judged(&knobs, &record("u-1"), &row, true);
        let (pod, endpoint, identity) = (row.pod, row.endpoint, row.identity);
        assert_eq!(word(verdict), want, "{pod:?} {endpoint:?} {identity:?}");
    }
}

/// Rule T: after the deletion time, its grace of 30 s and the delay of 5 s.
#[test]
fn rule_t_waits_for_grace_and_delay() {
    let at = |at, node, identity, state: &'static str| Row {
        pod: Some(("u-1", state)),
        endpoint: Some("u-1"),
        identity,
        node,
        at,
    };
    let (ips, bare) = ("Running+ips+deleted", "Running+deleted");
    let ready_only = Knobs {
        not_ready_node: false,
        ..Knobs::default()
    };
    let not_ready_only = Knobs {
        ready_node: false,
        ..Knobs::default()
    };
    let (not_ready, missing) = (NodeState::NotReady, NodeState::Missing);
    for (knobs, row, want) in [
        (Knobs::default(), at(35, READY, None, ips), "trace"),
        (Knobs::default(), at(36, READY, None, ips), "free+endpoint"),
        (
            Knobs::default(),
            at(36, not_ready, None, ips),
            "free+endpoint",
        ),
        (
            Knobs::default(),
            at(36, missing, None, ips),
            "free+endpoint",
        ),
        (
            ready_only.clone(),
            at(36, READY, None, ips),
            "free+endpoint",
        ),
        (ready_only.clone(), at(36, not_ready, None, ips), "keep"),
        // A missing node is a node that is not ready.
        (ready_only.clone(), at(36, missing, None, ips), "keep"),
        (not_ready_only.clone(), at(36, READY, None, ips), "keep"),
        (not_ready_only, at(36, missing, None, ips), "free+endpoint"),
        (Knobs::default(), at(36, READY, None, bare), "free+endpoint"),
        // In time: a Pod without addresses needs none, unless they are its identity's.
        (Knobs::default(), at(0, READY, None, bare), "free+endpoint"),
        (ready_only, at(0, not_ready, None, bare), "free+endpoint"),
        (Knobs::default(), at(0, READY, set(true), bare), "keep"),
        (
            Knobs::default(),
            at(0, READY, set(false), bare),
            "free+endpoint",
        ),
        (Knobs::default(), at(0, READY, set(false), ips), "trace"),
        (Knobs::default(), at(-3600, READY, None, ips), "trace"),
    ] {
        let verdict = judged(&knobs, &record("u-1"), &row, true);
        assert_eq!(
            word(verdict),
            want,
            "{} s, {:?}, {:?}",
            row.at,
            row.node,
            row.identity
        );
    }
}

#[test]
fn switches_and_marks_come_first() {
    let missing = row(None, Some("u-1"), None);
    let off = Knobs {
        enabled: false,
        ..Knobs::default()
    };
    assert_eq!(word(judged(&off, &record("u-1"), &missing, true)), "keep");
    let running = row(Some(("u-1", "Running")), Some("u-1"), None);
    let eager = Knobs {
        empty_ips: true,
        ..Knobs::default()
    };
    let verdict = judged(&eager, &record("u-1"), &running, true);
    assert_eq!(word(verdict), "free+endpoint");
    // Ten minutes after the deletion time it is 10:10.
    for (by, at, want) in [
        ("me", "2027-01-05T10:10:00Z", "free+endpoint"),
        ("agent", "2027-01-05T10:10:00Z", "keep"),
        ("agent", "2027-01-05T10:08:01Z", "keep"),
        ("agent", "2027-01-05T10:08:00Z", "free+endpoint"),
        ("agent", "never", "free+endpoint"),
    ] {
        let verdict = judged(&Knobs::default(), &with_mark(by, at), &missing, true);
        assert_eq!(word(verdict), want, "{by} {at}");
    }
}

/// Case B10: a scan between two Pods of a StatefulSet frees nothing; after the scale to 0 the next
/// one does.
#[test]
fn b10_a_statefulset_pod_that_has_not_called_yet_keeps_its_address() {
    let knobs = Knobs::default();
    let pending = row(Some(("u-2", "Pending")), Some("u-1"), set(true));
    let verdict = judged(&knobs, &record("u-1"), &pending, true);
    assert_eq!(word(verdict), "keep");
    let gone = row(None, Some("u-2"), set(false));
    assert_eq!(
        word(judged(&knobs, &record("u-2"), &gone, true)),
        "free+endpoint"
    );
}

/// Case B11: both paths ask the same switch, whatever was remembered before.
#[test]
fn b11_an_unreachable_node_keeps_its_addresses_while_the_switch_is_off() {
    let off = Knobs {
        not_ready_node: false,
        delay: SignedDuration::ZERO,
        ..Knobs::default()
    };
    let on = |node, at| Row {
        pod: Some(("u-1", "Running+ips+deleted")),
        endpoint: Some("u-1"),
        identity: None,
        node,
        at,
    };
    let word_of =
        |knobs: &Knobs, node, at| word(judged(knobs, &record("u-1"), &on(node, at), true));
    let lost = NodeState::NotReady;
    assert_eq!(word_of(&off, lost, 600), "keep");
    let state = pod("u-1", "Running+ips+deleted");
    let changed = Ending::Changed {
        pod: &state,
        finished: None,
        grace: 30,
    };
    let traced = |knobs: &Knobs, node| trace(knobs, changed, false, None, node, after(600));
    assert_eq!(traced(&off, lost), Trace::None);
    assert_eq!(word_of(&off, READY, -1), "trace");
    let due = Trace::Due {
        at: after(30),
        watched: SignedDuration::from_secs(30),
    };
    assert_eq!(traced(&off, READY), due);
    assert_eq!(word_of(&off, READY, 31), "free+endpoint");
    let on_again = Knobs {
        not_ready_node: true,
        ..off
    };
    assert_eq!(word_of(&on_again, lost, 600), "free+endpoint");
}

/// Case B12: nothing is freed on the word of a cache; a Pod born meanwhile is found by the direct
/// read.
#[test]
fn b12_a_cached_pod_frees_nothing() {
    let knobs = Knobs::default();
    let unseen = row(None, None, None);
    let verdict = judged(&knobs, &record("u-1"), &unseen, false);
    assert_eq!(verdict, Verdict::Confirm(Free::PodMissing));
    let born = row(Some(("u-1", "Pending")), None, None);
    assert_eq!(word(judged(&knobs, &record("u-1"), &born, true)), "keep");
    // An old Pod of the cache says nothing about a new endpoint.
    let old = row(Some(("u-1", "Running+ips")), Some("u-2"), None);
    assert_eq!(word(judged(&knobs, &record("u-1"), &old, false)), "keep");
    assert_eq!(
        word(judged(&knobs, &record("u-1"), &old, true)),
        "keep+endpoint"
    );
}

#[test]
fn what_a_migration_left_behind_goes_when_its_pod_has_gone() {
    let state = pod("u-2", "Running+ips");
    let old = record("u-1");
    let facts = |listed, direct| Facts {
        record: &old,
        pod: Some(&state),
        direct,
        endpoint_uid: Some("u-2"),
        listed,
        reported: false,
        identity: vm(true),
        node: READY,
        actor: "me",
        now: after(0),
        ending_for: SignedDuration::MAX,
    };
    let knobs = Knobs::default();
    assert_eq!(word(judge(&knobs, &facts(true, true))), "keep");
    assert_eq!(word(judge(&knobs, &facts(false, true))), "free");
    assert_eq!(word(judge(&knobs, &facts(false, false))), "confirm");
}

#[test]
fn every_word_is_its_own() {
    use std::collections::BTreeSet;
    let keeps = [
        Keep::Off,
        Keep::BeingReleased,
        Keep::IdentityValid,
        Keep::Pending,
        Keep::Alive,
        Keep::Ended,
        Keep::RunningWithoutIps,
        Keep::InGrace,
        Keep::OverdueKept,
    ];
    let frees = [
        Free::PodMissing,
        Free::OtherPod,
        Free::EndedInvalid,
        Free::Invalid,
        Free::Overdue,
        Free::DeletedWithoutIps,
        Free::RunningWithoutIps,
        Free::UnknownWithoutIps,
    ];
    let words: BTreeSet<&str> = keeps.map(Keep::reason).into_iter().collect();
    assert_eq!(words.len(), keeps.len());
    let words: BTreeSet<&str> = frees.map(Free::reason).into_iter().collect();
    assert_eq!(words.len(), frees.len());
}

/// The deletion's times are of other machines: what this process has watched counts too, so that a step
/// of its clock makes no Pod overdue.
#[test]
fn a_pod_is_overdue_only_after_its_grace_was_watched() {
    let (record, state) = (record("u-1"), pod("u-1", "Running+ips+deleted"));
    let bare = pod("u-1", "Running+deleted");
    let judged = |pod, seconds| {
        let facts = Facts {
            record: &record,
            pod: Some(pod),
            direct: true,
            endpoint_uid: None,
            listed: false,
            reported: false,
            identity: None,
            node: READY,
            actor: "me",
            now: after(3_600),
            ending_for: SignedDuration::from_secs(seconds),
        };
        word(judge(&Knobs::default(), &facts))
    };
    assert_eq!((judged(&state, 0), judged(&state, 34)), ("trace", "trace"));
    assert_eq!(judged(&state, 35), "free+endpoint");
    assert_eq!(
        (judged(&bare, 34), judged(&bare, 35)),
        ("trace", "free+endpoint")
    );
}

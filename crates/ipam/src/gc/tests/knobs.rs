use super::*;
use crate::environment::EnvironmentError;

fn read(rows: &[(&str, &str)]) -> Result<Knobs, EnvironmentError> {
    Knobs::read(|name| {
        let row = rows
            .iter()
            .find(|(knob, _)| name == format!("SPIDERPOOL_{knob}"));
        row.map(|(_, value)| (*value).to_owned())
    })
}

/// Spec ipam 6.1: defaults.
#[test]
fn unset_and_empty_knobs_have_their_defaults() {
    assert_eq!(read(&[]).unwrap(), Knobs::default());
    assert_eq!(read(&[("GC_IP_ENABLED", "")]).unwrap(), Knobs::default());
    assert_eq!(Knobs::default().delay, SignedDuration::from_secs(5));
}

#[test]
fn every_knob_is_read_by_its_name() {
    let seconds = SignedDuration::from_secs;
    let knobs = read(&[
        ("GC_IP_ENABLED", "false"),
        ("GC_STATELESS_TERMINATING_POD_ON_READY_NODE_ENABLED", "F"),
        (
            "GC_STATELESS_TERMINATING_POD_ON_NOT_READY_NODE_ENABLED",
            "0",
        ),
        (
            "GC_ENABLE_STATELESS_RUNNING_POD_ON_EMPTY_POD_STATUS_IPS",
            "T",
        ),
        ("GC_ADDITIONAL_GRACE_DELAY", "0"),
        ("GC_DEFAULT_INTERVAL_DURATION", "60"),
        ("GC_TRACE_POD_GAP_DURATION", "6"),
        ("GC_SIGNAL_TIMEOUT_DURATION", "7"),
        ("GC_HTTP_REQUEST_TIME_GAP", "8"),
        ("GC_IP_WORKER_NUM", "9"),
        ("GC_CHANNEL_BUFFER", "10"),
        ("GC_MAX_PODENTRY_DB_CAP", "11"),
        ("GC_PODENTRY_MAX_RETRIES", "12"),
    ]);
    let want = Knobs {
        enabled: false,
        ready_node: false,
        not_ready_node: false,
        empty_ips: true,
        delay: seconds(0),
        interval: seconds(60),
        trace_gap: seconds(6),
        signal_timeout: seconds(7),
        request_gap: seconds(8),
        workers: 9,
        buffer: 10,
        traced_pods: 11,
        retries: 12,
        clean_outdated_endpoints: false,
    };
    assert_eq!(knobs.unwrap(), want);
}

#[test]
fn unset_switches_inherit_the_older_one() {
    let older = ("GC_TERMINATING_POD_IP_ENABLED", "false");
    let ready = "GC_STATELESS_TERMINATING_POD_ON_READY_NODE_ENABLED";
    let lost = "GC_STATELESS_TERMINATING_POD_ON_NOT_READY_NODE_ENABLED";
    for (rows, want) in [
        (vec![], (true, true)),
        (vec![older], (false, false)),
        (vec![older, (ready, "true")], (true, false)),
        (vec![older, (lost, "true")], (false, true)),
        (vec![(lost, "false")], (true, false)),
    ] {
        let knobs = read(&rows).unwrap();
        assert_eq!((knobs.ready_node, knobs.not_ready_node), want, "{rows:?}");
    }
}

#[test]
fn a_malformed_knob_is_named_with_its_value() {
    for (knob, value, part) in [
        ("GC_IP_ENABLED", "yes", "true or false"),
        ("GC_ADDITIONAL_GRACE_DELAY", "5s", "seconds"),
        ("GC_ADDITIONAL_GRACE_DELAY", "-1", "seconds"),
        ("GC_IP_WORKER_NUM", "many", "a number"),
        ("GC_TERMINATING_POD_IP_ENABLED", "2", "true or false"),
    ] {
        let text = read(&[(knob, value)]).unwrap_err().to_string();
        let whole = format!("SPIDERPOOL_{knob}={value:?}");
        assert!(text.contains(&whole) && text.contains(part), "{text}");
    }
}

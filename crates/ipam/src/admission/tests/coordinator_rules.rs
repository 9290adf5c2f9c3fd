#![expect(
    clippy::too_many_lines,
    reason = "tables with one row a case read best in one piece"
)]

use super::*;

fn coordinator(spec: Value) -> Value {
    let mut object = json!({"metadata": {"name": "default"}, "spec": spec});
    fill(Kind::Coordinator, &mut object, None);
    object
}

fn judged(op: Op, new: &Value, old: Option<&Value>) -> Result<(), Refusal> {
    let world = World::default();
    validate(
        op,
        Kind::Coordinator,
        Some(new),
        old,
        &world,
        &Settings::default(),
    )
}

#[test]
fn a_coordinator_is_filled_in() {
    let given = json!({"podCIDRType": "auto", "hijackCIDR": ["169.254.20.10", "1.1.1.0/24", "fd00::1", "x"],
        "policyRoutes": [{"dst": "10.0.0.1", "gw": "10.0.0.2"}]});
    let filled = coordinator(given);
    assert_eq!(filled["metadata"]["finalizers"], json!([names::FINALIZER]));
    assert_eq!(
        filled["spec"],
        json!({"podCIDRType": "auto", "mode": "auto", "tunePodRoutes": true, "hostRuleTable": 500,
            "podRPFilter": 0, "txQueueLen": 0, "vethLinkAddress": "", "vethMTU": 1500,
            "hijackCIDR": ["169.254.20.10/32", "1.1.1.0/24", "fd00::1/128", "x"],
            "policyRoutes": [{"dst": "10.0.0.1/32", "gw": "10.0.0.2"}]})
    );
    // Without a source of CIDRs nothing else is done.
    assert!(
        coordinator(json!({}))["metadata"]
            .get("finalizers")
            .is_none()
    );
    // One that goes gets its defaults, and no finalizer back.
    let mut dying = json!({"metadata": {"name": "default", "deletionTimestamp": "2027-01-01T00:00:00Z"},
        "spec": {"podCIDRType": "auto", "podDefaultRouteNic": "eth0"}});
    let warnings = fill(Kind::Coordinator, &mut dying, None);
    assert_eq!(dying["spec"]["vethMTU"], 1500);
    assert!(dying["metadata"].get("finalizers").is_none());
    assert_eq!(dying["spec"]["podDefaultRouteNIC"], "eth0");
    assert_eq!(warnings.len(), 1);
}

#[test]
fn the_first_fault_of_a_coordinator_is_named() {
    for (spec, want) in [
        (json!({}), "Required spec.podCIDRType"),
        (json!({"podCIDRType": "weave"}), "Invalid spec"),
        (
            json!({"hijackCIDR": ["10.0.0.0/33"]}),
            "Invalid spec.hijackCIDR[0]",
        ),
        (
            json!({"policyRoutes": [{"dst": "x", "gw": "10.0.0.1"}]}),
            "Invalid spec.policyRoutes[0].dst",
        ),
        (
            json!({"policyRoutes": [{"dst": "10.0.0.0/8", "gw": "fd00::1"}]}),
            "Invalid spec.policyRoutes[0].gw",
        ),
        (json!({"podMACPrefix": "0a1b"}), "Invalid spec.podMACPrefix"),
        (
            json!({"podMACPrefix": "0b:1b"}),
            "Invalid spec.podMACPrefix",
        ),
        (json!({"podMACPrefix": "0a:1b"}), ""),
        (
            json!({"podMACPrefix": "+a:1b"}),
            "Invalid spec.podMACPrefix",
        ),
        (json!({"podMACPrefix": ""}), ""),
        (json!({"txQueueLen": -1}), "Invalid spec.txQueueLen"),
        (json!({"podRPFilter": 3}), "Invalid spec.podRPFilter"),
        (json!({"podRPFilter": -1}), ""),
        (
            json!({"vethLinkAddress": "169.254.1.1/32"}),
            "Invalid spec.vethLinkAddress",
        ),
        (json!({"vethLinkAddress": "169.254.1.1"}), ""),
        (json!({"vethMTU": 0}), "Invalid spec.vethMTU"),
        (
            json!({"mode": "disable", "hijackCIDR": ["x"], "vethMTU": 0}),
            "Invalid spec.hijackCIDR[0]",
        ),
    ] {
        let mut full = spec.clone();
        if want != "Required spec.podCIDRType" && full.get("podCIDRType").is_none() {
            full["podCIDRType"] = json!("none");
        }
        let said = said(judged(Op::Create, &coordinator(full), None)).join("");
        assert!(
            said.starts_with(want) && said.is_empty() == want.is_empty(),
            "{spec}: {said}"
        );
    }
}

/// Case B30: what is going can go.
#[test]
fn b30_a_terminating_object_can_lose_its_finalizer_and_nothing_else() {
    let pool = with(
        four(),
        "spec|routes",
        json!([{"dst": "10.9.0.0/16", "gw": "1.1.1.1"}]),
    );
    let subnet = {
        let mut subnet = object("s", "10.7.0.0/24", &["10.7.0.9"]);
        fill(Kind::Subnet, &mut subnet, None);
        subnet
    };
    let coordinator = coordinator(json!({"podCIDRType": "none"}));
    for (kind, object, field, value) in [
        (Kind::IpPool, pool, "ips", json!(["10.7.0.9"])),
        (Kind::Subnet, subnet, "ips", json!(["10.7.0.10"])),
        (Kind::Coordinator, coordinator, "vethMTU", json!(9)),
    ] {
        let mut old = with(
            object,
            "metadata|deletionTimestamp",
            json!("2027-01-01T00:00:00Z"),
        );
        old["metadata"]["finalizers"] = json!([names::FINALIZER, "foregroundDeletion"]);
        let judge = |new: &Value| {
            let mut filled = new.clone();
            fill(kind, &mut filled, Some(&old));
            assert_eq!(
                filled["metadata"]["finalizers"],
                new["metadata"]["finalizers"]
            );
            let world = World::default();
            validate(
                Op::Update,
                kind,
                Some(&filled),
                Some(&old),
                &world,
                &Settings::default(),
            )
        };
        let free = with(old.clone(), "metadata|finalizers", json!([]));
        assert_eq!(judge(&free), Ok(()), "a of {kind:?}");
        let labelled = with(free, "metadata|labels", json!({"a": "b"}));
        assert_eq!(judge(&labelled), Ok(()), "b of {kind:?}");
        let mut changed = old.clone();
        changed["spec"][field] = value;
        refused(judge(&changed), &["403", "terminating"]);
        // The garbage collector's own finalizer is its own business.
        let own = with(
            old.clone(),
            "metadata|finalizers",
            json!([names::FINALIZER]),
        );
        assert_eq!(judge(&own), Ok(()), "{kind:?}");
        changed["metadata"]["finalizers"] = json!([names::FINALIZER]);
        refused(judge(&changed), &["403"]);
    }
}

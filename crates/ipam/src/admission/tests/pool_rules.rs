#![expect(
    clippy::too_many_lines,
    reason = "tables with one row a case read best in one piece"
)]

use super::*;

#[test]
fn a_pool_is_filled_in() {
    let mut given = object(
        "p",
        "10.7.0.0/24",
        &["10.7.0.8", "10.7.0.3-10.7.0.5", "10.7.0.5-10.7.0.7"],
    );
    given["spec"]["excludeIPs"] = json!(["10.7.0.5", "10.7.0.4"]);
    let given = filled(marked(given));
    assert_eq!(given["metadata"]["finalizers"], json!([names::FINALIZER]));
    assert_eq!(given["spec"]["ipVersion"], json!(4));
    assert_eq!(given["spec"]["ips"], json!(["10.7.0.3-10.7.0.8"]));
    assert_eq!(given["spec"]["excludeIPs"], json!(["10.7.0.4-10.7.0.5"]));
    assert_eq!(
        given["metadata"]["labels"],
        json!({
        "ipam.spidernet.io/ippool-cidr": "10-7-0-0-24", "ipam.spidernet.io/iaas-provider": "cloud"})
    );
    // Again: nothing changes.
    assert_eq!(filled(given.clone()), given);
    // The annotation wins over the label, and takes it along when it goes.
    let changed = filled(annotated(given.clone(), names::IAAS_PROVIDER, "other"));
    assert_eq!(
        changed["metadata"]["labels"]["ipam.spidernet.io/iaas-provider"],
        "other"
    );
    let gone = filled(with(given, "metadata|annotations", json!({})));
    assert_eq!(
        gone["metadata"]["labels"],
        json!({"ipam.spidernet.io/ippool-cidr": "10-7-0-0-24"})
    );
    assert_eq!(
        six("q", 9)["metadata"]["labels"]["ipam.spidernet.io/ippool-cidr"],
        "fd00---64"
    );
}

#[test]
fn what_cannot_be_read_is_left_for_the_judge() {
    let terminating = with(
        object("p", "10.7.0.0/24", &["10.7.0.8"]),
        "metadata|deletionTimestamp",
        json!("2026-01-01T00:00:00Z"),
    );
    assert_eq!(filled(terminating.clone()), terminating);
    let bad = filled(object("p", "x", &["10.7.0.9", "y"]));
    assert_eq!(
        bad["spec"],
        json!({"subnet": "x", "ips": ["10.7.0.9", "y"]})
    );
    let kept = filled(with(
        object("p", "10.7.0.0/24", &[]),
        "spec|ipVersion",
        json!(6),
    ));
    assert_eq!(kept["spec"]["ipVersion"], json!(6));
}

#[test]
fn a_good_pool_is_accepted() {
    let mut good = four();
    good["spec"]["excludeIPs"] = json!(["10.7.0.12", "10.7.0.200"]);
    good["spec"]["gateway"] = json!("10.7.0.12");
    good["spec"]["routes"] = json!([{"dst": "10.9.0.0/16", "gw": "10.7.0.2"}]);
    good["spec"]["podAffinity"] = json!({"matchLabels": {"app": "web"}});
    let other = filled(object("q", "10.7.0.0/24", &["10.7.0.20-10.7.0.29"]));
    let apart = filled(object("r", "10.8.0.0/24", &["10.8.0.20"]));
    assert_eq!(create(&good, &[&other, &apart]), Ok(()));
    assert_eq!(update(&good, &good, &[&good, &other]), Ok(()));
    assert_eq!(create(&six("s", 9), &[&good]), Ok(()));
    assert_eq!(
        create(&filled(object("t", "10.7.0.0/24", &[])), &[]),
        Ok(())
    );
}

#[test]
fn family_and_subnet_stop_the_rest() {
    for (new, parts) in [
        (
            with(four(), "spec|ipVersion", json!(null)),
            ["Invalid spec.ipVersion", "cannot be derived"],
        ),
        (
            with(four(), "spec|ipVersion", json!(5)),
            ["NotSupported spec.ipVersion", "\"4\", \"6\""],
        ),
        (
            with(four(), "spec|subnet", json!("10.7.0.0")),
            ["Invalid spec.subnet", "not a CIDR"],
        ),
        (
            with(four(), "spec|ipVersion", json!(6)),
            ["Invalid spec.subnet", "not an IPv6 CIDR"],
        ),
        (
            with(four(), "spec|subnet", json!("10.7.0.1/24")),
            ["Invalid spec.subnet", "write 10.7.0.0/24"],
        ),
        (
            with(four(), "spec|subnet", json!(7)),
            ["Invalid spec", "invalid type"],
        ),
        (
            with(four(), "spec", json!("x")),
            ["Invalid spec", "invalid type"],
        ),
    ] {
        refused(create(&new, &[]), &parts);
    }
    let off = Settings {
        enable_ipv4: false,
        ..Settings::default()
    };
    let verdict = validate(
        Op::Create,
        Kind::IpPool,
        Some(&four()),
        None,
        &World::default(),
        &off,
    );
    refused(verdict, &["Forbidden spec.ipVersion", "IPv4 is disabled"]);
    let wide = filled(object("w", "10.0.0.0/8", &[]));
    refused(
        create(&four(), &[&wide]),
        &["Invalid spec.subnet", "10.0.0.0/8 of IPPool w"],
    );
    assert!(matches!(
        create(&four(), &[&four()]),
        Err(Refusal::AlreadyExists(_))
    ));
}

#[test]
fn ranges_gateway_and_routes_are_judged_in_order() {
    let spec = |key: &str, value: Value| with(four(), &format!("spec|{key}"), value);
    let route = |dst: &str, gw: &str| json!({"dst": dst, "gw": gw});
    for (new, parts) in [
        (
            spec("ips", json!(["10.7.0.1 "])),
            ["Invalid spec.ips", "no blanks"],
        ),
        (
            spec("ips", json!(["10.7.0.0/25"])),
            ["Invalid spec.ips", "no CIDR"],
        ),
        (
            spec("ips", json!(["fd00::1"])),
            ["Invalid spec.ips[0]", "subnet 10.7.0.0/24"],
        ),
        (
            spec("ips", json!(["10.7.0.1", "10.8.0.1"])),
            ["Invalid spec.ips[1]", "subnet 10.7.0.0/24"],
        ),
        (
            spec("ips", json!(["10.7.0.250-10.7.1.3"])),
            ["Invalid spec.ips[0]", "subnet"],
        ),
        (
            spec("ips", json!(["10.7.0.1-10.7.0.9", "10.7.0.5"])),
            ["Duplicate spec.ips", "10.7.0.1-10.7.0.9"],
        ),
        (
            spec("excludeIPs", json!(["10.8.0.1"])),
            ["Invalid spec.excludeIPs[0]", "subnet"],
        ),
        (
            spec("gateway", json!("10.7.0.10")),
            ["Invalid spec.gateway", "spec.excludeIPs"],
        ),
        (
            spec("gateway", json!("10.8.0.1")),
            ["Invalid spec.gateway", "subnet 10.7.0.0/24"],
        ),
        (
            spec("gateway", json!("x")),
            ["Invalid spec.gateway", "not an IP address"],
        ),
        (
            spec("routes", json!([route("0.0.0.0/0", "10.7.0.1")])),
            ["Invalid spec.routes[0].dst", "default route"],
        ),
        (
            spec("routes", json!([route("fd00::/8", "10.7.0.1")])),
            ["Invalid spec.routes[0].dst", "IPv4 CIDR"],
        ),
        (
            spec("routes", json!([route("10.9.0.0/16", "10.8.0.1")])),
            ["Invalid spec.routes[0].gw", "10.7.0.0/24"],
        ),
        (
            spec(
                "routes",
                json!([
                    route("10.9.0.0/16", "10.7.0.1"),
                    route("10.9.0.1/16", "10.7.0.2")
                ]),
            ),
            ["Duplicate spec.routes[1].dst", "earlier"],
        ),
    ] {
        refused(create(&new, &[]), &parts);
    }
    let other = filled(object("q", "10.7.0.0/24", &["10.7.0.15-10.7.0.30"]));
    refused(
        create(&four(), &[&other]),
        &["Forbidden spec.ips", "IPPool q in 10.7.0.15-10.7.0.19"],
    );
    // Excluded on either side is free for the other.
    let shy = with(other, "spec|excludeIPs", json!(["10.7.0.15-10.7.0.19"]));
    assert_eq!(create(&four(), &[&shy]), Ok(()));
}

#[test]
fn pod_affinity_asks_for_something_legal() {
    let affinity = |value: Value| with(four(), "spec|podAffinity", value);
    let one = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "app", "operator": operator, "values": values}]});
    refused(
        create(&affinity(json!({})), &[]),
        &["Invalid spec.podAffinity", "empty"],
    );
    refused(create(&affinity(one("In", &[])), &[]), &["needs values"]);
    refused(
        create(&affinity(one("Exists", &["x"])), &[]),
        &["must have no values"],
    );
    refused(
        create(&affinity(one("Like", &["x"])), &[]),
        &["NotSupported", "DoesNotExist"],
    );
    assert_eq!(create(&affinity(one("NotIn", &["x"])), &[]), Ok(()));
    let auto = |value: Value| {
        with(
            affinity(value),
            "metadata|labels|ipam.spidernet.io/owner-application-name",
            json!("web"),
        )
    };
    refused(
        create(&auto(json!({"matchLabels": {"app": "web"}})), &[]),
        &["Forbidden spec.podAffinity", "five keys"],
    );
    assert_eq!(
        create(
            &auto(json!({"matchLabels": {"ipam.spidernet.io/app-kind": "Deployment"}})),
            &[]
        ),
        Ok(())
    );
}

#[test]
fn subnet_and_family_never_change() {
    let moved = filled(object("p", "10.8.0.0/24", &[]));
    refused(
        update(&moved, &four(), &[]),
        &["Forbidden spec.subnet", "immutable"],
    );
    let other = with(four(), "spec|ipVersion", json!(6));
    refused(
        update(&other, &four(), &[]),
        &["Forbidden spec.ipVersion", "immutable"],
    );
}

#[test]
fn an_address_in_use_stays_in_the_pool() {
    let old = used(four());
    let shrunk = with(old.clone(), "spec|ips", json!(["10.7.0.11-10.7.0.19"]));
    refused(
        update(&shrunk, &old, &[]),
        &["Forbidden spec.ips", "10.7.0.10"],
    );
    let excluded = with(old.clone(), "spec|excludeIPs", json!(["10.7.0.10"]));
    refused(
        update(&excluded, &old, &[]),
        &["Forbidden spec.ips", "10.7.0.10"],
    );
    let fine = with(old.clone(), "spec|ips", json!(["10.7.0.10-10.7.0.12"]));
    assert_eq!(update(&fine, &old, &[]), Ok(()));
    let unreadable = with(old, "status|allocatedIPs", json!("["));
    refused(update(&fine, &unreadable, &[]), &["cannot be read"]);
}

#[test]
fn a_terminating_pool_only_loses_its_finalizer() {
    let old = with(
        four(),
        "metadata|deletionTimestamp",
        json!("2026-01-01T00:00:00Z"),
    );
    refused(update(&old, &old, &[]), &["403", "terminating"]);
    assert_eq!(
        update(
            &with(old.clone(), "metadata|finalizers", json!([])),
            &old,
            &[]
        ),
        Ok(())
    );
}

#[test]
fn a_pool_in_use_is_not_deleted() {
    let delete = |old: &Value, settings: &Settings| {
        validate(
            Op::Delete,
            Kind::IpPool,
            None,
            Some(old),
            &World::default(),
            settings,
        )
    };
    refused(
        delete(&used(four()), &Settings::default()),
        &[
            "403",
            "IPPool p has 1 allocated IPs of Pods ns/a and cannot",
        ],
    );
    // The count may lag behind the records.
    let lagging = with(used(four()), "status|allocatedIPCount", json!(0));
    refused(delete(&lagging, &Settings::default()), &["403"]);
    assert_eq!(delete(&four(), &Settings::default()), Ok(()));
    let off = Settings {
        protect_deletion: false,
        ..Settings::default()
    };
    assert_eq!(delete(&used(four()), &off), Ok(()));
}

#[test]
fn reservations_are_filled_in_and_judged() {
    let made = |spec: Value| {
        let mut object = json!({"metadata": {"name": "r"}, "spec": spec});
        fill(Kind::ReservedIp, &mut object, None);
        object
    };
    let judge = |new: &Value| {
        validate(
            Op::Create,
            Kind::ReservedIp,
            Some(new),
            None,
            &World::default(),
            &Settings::default(),
        )
    };
    let good = made(json!({"ips": ["fd00::3", "fd00::2"]}));
    assert_eq!(
        good["spec"],
        json!({"ipVersion": 6, "ips": ["fd00::2-fd00::3"]})
    );
    assert_eq!(judge(&good), Ok(()));
    for (spec, part) in [
        (json!({}), "cannot be derived"),
        (json!({"ips": ["x"]}), "cannot be derived"),
        (json!({"ips": ["10.0.0.1", "fd00::1"]}), "not IPv4"),
        (json!({"ipVersion": 4, "ips": ["fd00::1"]}), "not IPv4"),
    ] {
        refused(judge(&made(spec)), &[part]);
    }
    let change = |new: &Value, old: &Value| {
        validate(
            Op::Update,
            Kind::ReservedIp,
            Some(new),
            Some(old),
            &World::default(),
            &Settings::default(),
        )
    };
    let four = made(json!({"ips": ["10.0.0.1"]}));
    refused(change(&four, &good), &["Forbidden spec.ipVersion"]);
    let dying = with(
        with(good.clone(), "metadata|deletionTimestamp", json!("t")),
        "metadata|finalizers",
        json!(["x"]),
    );
    refused(change(&dying, &dying), &["403"]);
    assert_eq!(
        change(
            &with(dying.clone(), "metadata|finalizers", json!([])),
            &dying
        ),
        Ok(())
    );
    assert_eq!(
        validate(
            Op::Delete,
            Kind::ReservedIp,
            None,
            Some(&good),
            &World::default(),
            &Settings::default()
        ),
        Ok(())
    );
}

use super::*;

const NIC: &str = names::PARENT_NIC;
const PAIR: &str = names::PAIR_POOL;

/// A marked pool pinned to n1.
fn warm() -> Value {
    annotated(
        with(marked(four()), "spec|nodeName", json!(["n1"])),
        NIC,
        "eth1",
    )
}

fn on(object: Value, nodes: &[&str]) -> Value {
    with(object, "spec|nodeName", json!(nodes))
}

fn without(mut object: Value, key: &str) -> Value {
    object["metadata"]["annotations"]
        .as_object_mut()
        .unwrap()
        .remove(key);
    object
}

#[test]
fn w1_the_mode_is_fixed() {
    let part = "cannot add or remove 'spec.nodeName' on an IaaS pool";
    refused(
        update(&on(warm(), &[]), &warm(), &[]),
        &["Forbidden spec.nodeName", part],
    );
    refused(
        update(&warm(), &on(warm(), &[]), &[]),
        &["Forbidden spec.nodeName", part],
    );
    // A pool that was plain may become either.
    assert_eq!(update(&warm(), &four(), &[]), Ok(()));
}

#[test]
fn w2_at_most_one_node() {
    refused(
        create(&on(warm(), &["n1", "n2"]), &[]),
        &["Forbidden spec.nodeName", "pinned to exactly one node"],
    );
    assert_eq!(create(&on(four(), &["n1", "n2"]), &[]), Ok(()));
    assert_eq!(create(&warm(), &[]), Ok(()));
    assert_eq!(create(&marked(four()), &[]), Ok(()));
}

#[test]
fn w3_a_pinned_pool_needs_its_parent_nic() {
    let bare = without(warm(), NIC);
    refused(
        create(&bare, &[]),
        &[
            "Required",
            "metadata.annotations[ipam.spidernet.io/parent-nic]",
            "requires annotation ipam.spidernet.io/parent-nic",
        ],
    );
    assert_eq!(create(&on(bare, &[]), &[]), Ok(()));
}

#[test]
fn w4_the_parent_nic_is_one_name() {
    for bad in ["", " ", "eth0,eth1", "eth0 eth1", "a\tb"] {
        refused(
            create(&annotated(warm(), NIC, bad), &[]),
            &["Invalid", "parent-nic", "must be a single NIC name"],
        );
        refused(
            create(&annotated(four(), NIC, bad), &[]),
            &["must be a single NIC name"],
        );
    }
    assert_eq!(create(&annotated(warm(), NIC, " eth1 "), &[]), Ok(()));
}

#[test]
fn w5_marks_of_a_pool_in_use_stay() {
    let old = used(marked(annotated(four(), NIC, "eth1")));
    for key in [names::IAAS_PROVIDER, NIC] {
        refused(
            update(&without(old.clone(), key), &old, &[]),
            &["Forbidden", &format!("cannot remove annotation {key}")],
        );
        refused(
            update(&annotated(old.clone(), key, "other"), &old, &[]),
            &[
                "Forbidden",
                &format!("cannot modify annotation {key} while the IPPool has allocated IPs"),
            ],
        );
    }
    let idle = marked(annotated(four(), NIC, "eth1"));
    assert_eq!(
        update(&annotated(idle.clone(), NIC, "eth2"), &idle, &[]),
        Ok(())
    );
    // Adding is fine.
    assert_eq!(update(&old, &used(four()), &[]), Ok(()));
}

#[test]
fn w11_a_pool_in_use_stays_on_its_node() {
    let old = used(warm());
    refused(
        update(&on(old.clone(), &["n2"]), &old, &[]),
        &["Forbidden spec.nodeName", "has allocated IPs"],
    );
    assert_eq!(update(&on(warm(), &["n2"]), &warm(), &[]), Ok(()));
}

#[test]
fn the_mark_must_fit_a_label() {
    for bad in ["a b", "-a", "a/b", &"x".repeat(64)] {
        let new = filled(annotated(four(), names::IAAS_PROVIDER, bad));
        assert!(
            new["metadata"]["labels"]
                .get(names::IAAS_PROVIDER)
                .is_none()
        );
        refused(
            create(&new, &[]),
            &["Invalid", "iaas-provider", "label value"],
        );
    }
    assert_eq!(
        create(&annotated(four(), names::IAAS_PROVIDER, ""), &[]),
        Ok(())
    );
}

#[test]
fn w6_to_w9_a_pair_fits_together() {
    let named = |partner: &str| annotated(four(), PAIR, partner);
    refused(
        create(&named("p"), &[]),
        &["Invalid", PAIR, "cannot reference itself"],
    );
    let twin = filled(object("twin", "10.9.0.0/24", &["10.9.0.1-10.9.0.99"]));
    refused(
        create(&named("twin"), &[&twin]),
        &["Invalid", "twin", "opposite IP version"],
    );
    refused(
        create(&named("s"), &[&six("s", 9)]),
        &[
            "Forbidden",
            "IPPool p has 10 addresses",
            "the 9 of IPv6 IPPool s",
        ],
    );
    assert_eq!(create(&named("s"), &[&six("s", 10)]), Ok(()));
    // The rule counts what is usable, from either side.
    let shy = with(six("s", 10), "spec|excludeIPs", json!(["fd00::1"]));
    refused(create(&named("s"), &[&shy]), &["Forbidden", "the 9 of"]);
    refused(
        create(&annotated(six("s", 9), PAIR, "p"), &[&four()]),
        &["Forbidden", "p has 10", "the 9 of"],
    );
    refused(
        create(&named("s"), &[&on(six("s", 10), &["n1"])]),
        &["Forbidden", "spec.nodeName"],
    );
    let choosy = with(
        six("s", 10),
        "spec|podAffinity",
        json!({"matchLabels": {"a": "b"}}),
    );
    refused(
        create(&named("s"), &[&choosy]),
        &["Forbidden", "spec.podAffinity"],
    );
    refused(
        update(&named("s"), &four(), &[&choosy]),
        &["Forbidden", "spec.podAffinity"],
    );
}

#[test]
fn w10_a_partner_may_come_later() {
    assert_eq!(create(&annotated(four(), PAIR, "later"), &[]), Ok(()));
}

#[test]
fn w12_both_sides_of_a_pair_are_marked_or_neither() {
    let part = "both pools of a pair";
    let primary = annotated(marked(four()), PAIR, "s");
    refused(create(&primary, &[&six("s", 10)]), &["Invalid", part]);
    refused(create(&six("s", 10), &[&primary]), &["Invalid", part]);
    let plain = annotated(four(), PAIR, "s");
    refused(
        update(&marked(six("s", 10)), &six("s", 10), &[&plain]),
        &["Invalid", part],
    );
    assert_eq!(create(&primary, &[&marked(six("s", 10))]), Ok(()));
    assert_eq!(create(&marked(six("s", 10)), &[&primary]), Ok(()));
    // Both name each other: said once.
    refused(
        create(&primary, &[&annotated(six("s", 10), PAIR, "p")]),
        &[part],
    );
}

#[test]
fn what_is_wrong_is_collected() {
    let new = on(
        annotated(annotated(marked(four()), NIC, ","), PAIR, "p"),
        &["n1", "n2"],
    );
    let all = said(create(&with(new, "spec|gateway", json!("x")), &[]));
    assert_eq!(all.len(), 4, "{all:?}");
}

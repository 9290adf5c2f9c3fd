//! Invariants 12 and 13 of spec ipam section 10.

use std::sync::Arc;

use proptest::prelude::{Just, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::*;
use crate::fixture::pool;

/// A constraint that a pool may carry: pointer and value.
fn some_constraint() -> impl Strategy<Value = (&'static str, Value)> {
    let labels = |key: &str, value: &str| json!({"matchLabels": {key: value}});
    prop_oneof![
        Just(("spec|nodeName", json!(["n1"]))),
        Just(("spec|nodeName", json!(["n2"]))),
        Just(("spec|namespaceName", json!(["shop"]))),
        Just(("spec|namespaceName", json!(["lab"]))),
        Just(("spec|multusName", json!(["lab/nad"]))),
        Just(("spec|disable", json!(true))),
        Just(("spec|nodeAffinity", labels("zone", "a"))),
        Just(("spec|nodeAffinity", labels("zone", "b"))),
        Just(("spec|namespaceAffinity", json!({}))),
        Just(("spec|namespaceAffinity", labels("team", "x"))),
        Just(("spec|podAffinity", labels("app", "web"))),
        Just(("spec|podAffinity", labels("app", "db"))),
    ]
}

fn named(names: &[&str]) -> Request {
    Request {
        ipv4_pools: names.iter().map(|&name| name.to_owned()).collect(),
        ..eni()
    }
}

fn admits(object: Value, node: &str) -> bool {
    let mut now = snapshot(&[object]);
    now.node.name = node.to_owned();
    select(&now, &named(&["p"])).is_ok()
}

proptest! {
    /// 13: a constraint on top of others never admits a Pod that they refuse.
    #[test]
    fn a_constraint_never_admits_more(
        base in proptest::collection::vec(some_constraint(), 0..4),
        more in some_constraint(), node in prop_oneof![Just("n1"), Just("n2")],
    ) {
        let held = base.iter().fold(plain("p"), |object, (at, value)| with(object, at, value.clone()));
        // Another value in the same place is another constraint, not one more; a list of names
        // stands instead of the selector beside it.
        let replaces = |at: &&str| match more.0 {
            "spec|nodeName" => *at == "spec|nodeAffinity",
            "spec|namespaceName" => *at == "spec|namespaceAffinity",
            other => *at == other,
        };
        let taken = base.iter().any(|(at, _)| *at == more.0 || replaces(at));
        proptest::prop_assume!(!taken);
        let tight = with(held.clone(), more.0, more.1);
        prop_assert!(!admits(tight, node) || admits(held, node));
    }

    /// 13: the order is total and the same whatever order the caches have.
    #[test]
    fn the_order_does_not_depend_on_the_cache(
        constraints in proptest::collection::vec(proptest::option::of(some_constraint()), 5..=5),
        turn in 0_usize..5,
    ) {
        let names = ["a", "b", "c", "d", "e"];
        let objects: Vec<Value> = names.iter().zip(constraints).map(|(name, constraint)| match constraint {
            Some((at, value)) => with(plain(name), at, value),
            None => plain(name),
        }).collect();
        let now = snapshot(&objects);
        let mut turned = now.clone();
        turned.pools.rotate_left(turn);
        prop_assert_eq!(run(&now, &named(&names)), run(&turned, &named(&names)));
    }

    /// 12: which classes are used does not depend on the node.
    #[test]
    fn the_class_does_not_depend_on_the_node(kinds in proptest::collection::vec(0_u8..4, 1..5)) {
        let names = ["a", "b", "c", "d"];
        let object = |(name, kind): (&str, &u8)| match kind {
            0 => plain(name),
            1 => cloud(name, None),
            2 => cloud(name, Some("n1")),
            _ => cloud(name, Some("n2")),
        };
        let objects: Vec<Value> = names.into_iter().zip(&kinds).map(object).collect();
        let best = kinds.iter().map(|kind| u8::from(*kind > 0)).max();
        let on = |node: &str| {
            let mut now = snapshot(&objects);
            now.node.name = node.to_owned();
            let request = named(names.get(..kinds.len()).unwrap_or_default());
            let found = explain(&now, &request, &crate::pick::Rules::default());
            let family = found.nics.first().and_then(|nic| nic.families.first()).cloned();
            let candidates = family.map(|family| family.candidates).unwrap_or_default();
            let classes: std::collections::BTreeSet<u8> = candidates.iter()
                .filter_map(|(name, _)| now.pool(name))
                .map(|pool| u8::from(pool.is_iaas())).collect();
            (found.dropped, classes)
        };
        let ((dropped, one), (also, two)) = (on("n1"), on("n2"));
        prop_assert_eq!(dropped, also);
        for classes in [one, two] {
            prop_assert!(classes.iter().all(|class| Some(*class) == best));
        }
    }
}

#[test]
fn an_unreadable_pool_and_an_empty_name_are_told() {
    let mut now = snapshot(&[]);
    now.pools = vec![Arc::new(pool(&plain("a")))];
    let text = run(&now, &named(&[""]));
    assert!(text.contains("the name is empty"), "{text}");
}

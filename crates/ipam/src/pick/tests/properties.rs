//! Invariants 7, 14, 15 and 16 of spec ipam section 10: pairs of a global pool under any metadata.

use std::collections::BTreeMap;

use proptest::prelude::{Just, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};
use spiderpool_api::ip_meta::EntryState;

use super::*;
use crate::batch::{Op, Outcome, apply};

/// An entry of `10.0.0.<10 + index>`; partners may be missing, and shared by mistake.
fn some_entry() -> impl Strategy<Value = Option<(Value, Option<u8>)>> {
    let node = |node: &str, vlan: i64| with(entry(vlan), "node", json!(node));
    let state = prop_oneof![
        3 => Just(node("n1", 10)),
        2 => Just(node("n2", 20)),
        1 => Just(json!({"mac": "fa:16:3e:00:00:09", "vlan": -1})),
        1 => Just(with(node("n1", 10), "vlan", json!(-1))),
        1 => Just(with(node("n1", 10), "status", json!("unbound"))),
    ];
    proptest::option::weighted(0.8, (state, proptest::option::weighted(0.9, 0_u8..6)))
}

#[derive(Debug, Clone)]
enum Event {
    Add { name: u8, node: u8, provider: bool },
    Del(u8),
}

fn some_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0_u8..6, 1_u8..3, proptest::bool::ANY)
            .prop_map(|(name, node, provider)| Event::Add { name, node, provider }),
        1 => (0_u8..6).prop_map(Event::Del),
    ]
}

fn pools(entries: Vec<Option<(Value, Option<u8>)>>) -> (Pool, Pool) {
    let named = entries.into_iter().enumerate();
    let named = named.filter_map(|(index, entry)| {
        let (value, partner) = entry?;
        let value = match partner {
            Some(last) => with(value, "ipv6", json!(format!("fd00::{last}"))),
            None => value,
        };
        Some((format!("10.0.0.{}", 10 + index), value))
    });
    let entries: serde_json::Map<String, Value> = named.collect();
    let v4 = iaas("p4", &["10.0.0.10-10.0.0.14"], None, &json!(entries));
    let mut v6 = object("p6", "fd00::/64", &["fd00::-fd00::9"]);
    v6["metadata"]["annotations"] = json!({"ipam.spidernet.io/iaas-provider": "cloud"});
    (pool(&v4), pool(&v6))
}

/// Both records, or none: what a flow does.
fn add(v4: &mut Pool, v6: &mut Pool, who: &Claimant, rules: &Rules) -> Option<Pick> {
    let op = Op::Claim {
        who: who.clone(),
        pin: None,
    };
    let mut batch = apply(v4, Some(v6), rules, &[op]);
    let Ok(Outcome::Claimed(pick)) = batch.outcomes.remove(0) else {
        return None;
    };
    *v4 = v4.with_records(batch.records);
    let half = Op::ClaimHalf {
        who: who.clone(),
        address: pick.pair_v6?.into(),
    };
    let batch = apply(v6, None, rules, &[half]);
    if batch.outcomes[0].is_ok() {
        *v6 = v6.with_records(batch.records);
        return Some(pick);
    }
    free(v4, &who.uid);
    None
}

fn free(pool: &mut Pool, uid: &str) {
    let op = Op::Release {
        uid: uid.into(),
        nic: None,
        addresses: None,
        by: None,
    };
    *pool = pool.with_records(apply(pool, None, &Rules::default(), &[op]).records);
}

/// What a pick promises about its entry.
fn check(v4: &Pool, who: &Claimant, pick: &Pick, provider: bool) {
    let metadata = v4.metadata.as_ref().unwrap().as_ref().unwrap();
    let found = metadata.entries.get(&pick.address);
    let partner = pick.pair_v6.unwrap();
    match found.map(|entry| &entry.state) {
        Some(EntryState::Attached { node, vlan, mac }) if node.as_ref() == Some(&who.node) => {
            assert_eq!(
                (pick.path, pick.binding),
                (
                    Path::CacheHit,
                    Some(Binding {
                        vlan: *vlan,
                        mac: *mac
                    })
                )
            );
        }
        Some(EntryState::Attached { .. }) => assert_eq!(pick.path, Path::ColdSteal),
        Some(EntryState::Unattached { .. }) => assert_eq!(pick.path, Path::ColdRebind),
        Some(EntryState::Reclaiming { .. }) => panic!("{} is being detached", pick.address),
        None => assert_eq!(pick.path, Path::ColdCreate),
    }
    assert!(provider || !pick.path.is_cold());
    match found {
        Some(entry) => assert_eq!(entry.ipv6, Some(partner)),
        None => assert!(
            metadata
                .entries
                .values()
                .all(|entry| entry.ipv6 != Some(partner))
        ),
    }
}

proptest! {
    #[test]
    fn pairs_stay_whole_under_any_metadata(
        entries in proptest::collection::vec(some_entry(), 5..=5),
        events in proptest::collection::vec(some_event(), 1..20),
    ) {
        let (mut v4, mut v6) = pools(entries);
        for event in events {
            match event {
                Event::Add { name, node, provider } => {
                    let who = who(&name.to_string(), "eth0", &format!("n{node}"));
                    let rules = Rules { provider, ..Rules::default() };
                    if let Some(pick) = add(&mut v4, &mut v6, &who, &rules) {
                        check(&v4, &who, &pick, provider);
                    }
                }
                Event::Del(name) => {
                    free(&mut v4, &format!("u-{name}"));
                    free(&mut v6, &format!("u-{name}"));
                }
            }
            let owners = |pool: &Pool| -> BTreeMap<String, usize> {
                let mut owners = BTreeMap::new();
                for (_, record) in pool.records.iter() {
                    *owners.entry(record.pod_uid.clone()).or_default() += 1;
                }
                owners
            };
            let (four, six) = (owners(&v4), owners(&v6));
            prop_assert!(four.values().chain(six.values()).all(|count| *count == 1));
            // A half never stands alone; a lone IPv4 claim is only of a Pod that has failed.
            for uid in four.keys() {
                prop_assert!(six.contains_key(uid), "{} has half a pair", uid);
            }
            prop_assert_eq!(v4.records.count(), i64::try_from(four.len()).unwrap());
        }
    }
}

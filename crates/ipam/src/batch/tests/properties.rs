use std::collections::BTreeMap;

use proptest::prelude::{Just, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::*;

fn some_op() -> impl Strategy<Value = Op> {
    let asking = |(pod, nic): (u8, u8)| who(&pod.to_string(), &format!("eth{nic}"), "n1");
    prop_oneof![
        4 => (0_u8..5, 0_u8..2).prop_map(move |who| Op::Claim { who: asking(who), pin: None }),
        1 => ((0_u8..5, 0_u8..2), 0_u8..10).prop_map(move |(who, n)| Op::Claim {
            who: asking(who), pin: Some(IpAddr::from([10, 0, 0, n])) }),
        3 => (0_u8..5, proptest::option::of(0_u8..2)).prop_map(|(uid, nic)| Op::Release {
            uid: format!("u-{uid}"), nic: nic.map(|n| format!("eth{n}")), addresses: None, by: None }),
        2 => ((0_u8..5, 0_u8..2), 0_u8..5, 0_u8..10).prop_map(move |(who, old, n)| Op::Adopt {
            who: Claimant { pod: format!("ns/{old}"), ..asking(who) },
            address: IpAddr::from([10, 0, 0, n]), half: false, from: Some(format!("u-{old}")), settled: n % 2 == 0 }),
        1 => Just(Op::Release { uid: String::new(), nic: None, addresses: None, by: None }),
    ]
}

proptest! {
    /// Invariants 1, 2, 4, 5 and 6 of spec ipam section 10 over any sequence.
    #[test]
    fn no_sequence_breaks_the_records(ops in proptest::collection::vec(some_op(), 0..40), ready in proptest::bool::ANY) {
        let rules = Rules { reserved: RangeSet::from_texts(&["10.0.0.4"]).unwrap(), record_cap: 6, ..Rules::default() };
        let entries: serde_json::Map<String, Value> = (0..7).map(|n| (format!("10.0.0.{n}"), entry(n + 1))).collect();
        let mut given = if ready {
            iaas("p", &["10.0.0.1-10.0.0.8"], Some("n1"), &json!(entries))
        } else {
            object("p", "10.0.0.0/24", &["10.0.0.1-10.0.0.8"])
        };
        given["spec"]["gateway"] = json!("10.0.0.1");
        given["spec"]["excludeIPs"] = json!(["10.0.0.2"]);
        let mut now = pool(&given);
        let mut model: BTreeMap<IpAddr, (String, String)> = BTreeMap::new();
        for op in ops {
            let batch = apply(&now, None, &rules, std::slice::from_ref(&op));
            match (&op, &batch.outcomes[0]) {
                (Op::Claim { who, .. }, Ok(Outcome::Claimed(pick))) => {
                    let before = model.insert(pick.address, (who.uid.clone(), who.nic.clone()));
                    prop_assert!(before.is_none_or(|owner| owner == (who.uid.clone(), who.nic.clone())));
                    prop_assert!(now.usable.contains(pick.address) && pick.address != ip("10.0.0.1"));
                    prop_assert!(pick.address != ip("10.0.0.4"));
                }
                (Op::Adopt { who, .. }, Ok(Outcome::Claimed(pick))) => {
                    // From one Pod of the key to another, same NIC, never between keys.
                    let before = now.records.get(pick.address);
                    prop_assert!(before.is_none_or(|record| record.pod == who.pod && record.nic.as_deref() == Some(who.nic.as_str())));
                    let mine = (who.uid.clone(), who.nic.clone());
                    model.retain(|address, owner| *address == pick.address || *owner != mine);
                    model.insert(pick.address, mine);
                    prop_assert!(now.usable.contains(pick.address));
                }
                (Op::Release { uid, nic, .. }, Ok(Outcome::Released(freed))) => {
                    for address in freed {
                        let owner = model.remove(address);
                        prop_assert!(owner.is_some_and(|(u, n)| u == *uid && nic.as_ref().is_none_or(|nic| *nic == n)));
                    }
                }
                (_, Err(_)) => prop_assert!(!batch.changed),
                other => prop_assert!(false, "{:?}", other),
            }
            now = now.with_records(batch.records);
            let stored: BTreeMap<IpAddr, (String, String)> = now.records.iter()
                .map(|(address, record)| (address, (record.pod_uid.clone(), record.nic.clone().unwrap()))).collect();
            prop_assert_eq!(&stored, &model);
            prop_assert!(now.records.count() <= 6);
            // One record per NIC: owners are all different.
            let owners: std::collections::BTreeSet<_> = model.values().collect();
            prop_assert_eq!(owners.len(), model.len());
        }
    }
}

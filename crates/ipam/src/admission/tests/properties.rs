use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

use super::*;

/// Any JSON, with words of our objects strewn in.
fn some_json() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        "[0-9a-f.:/-]{0,24}",
        Just("10.7.0.0/24".to_owned()),
        Just("10.7.0.1-10.7.0.9".to_owned()),
        Just("255.255.255.255".to_owned()),
        Just("::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".to_owned()),
        Just("::/0".to_owned()),
        Just("p".to_owned()),
        any::<String>(),
    ];
    let key = prop_oneof![
        Just("name".to_owned()),
        Just("key".to_owned()),
        Just("operator".to_owned()),
        Just("matchLabels".to_owned()),
        Just("dst".to_owned()),
        Just("gw".to_owned()),
        Just(names::IAAS_PROVIDER.to_owned()),
        Just(names::PAIR_POOL.to_owned()),
        Just(names::PARENT_NIC.to_owned()),
        any::<String>(),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(key.clone(), inner, 0..4)
                .prop_map(|map| Value::from(map.into_iter().collect::<serde_json::Map<_, _>>())),
        ]
    })
}

/// A legal pool with up to three places overwritten by anything.
fn some_object() -> impl Strategy<Value = Value> {
    let place = prop_oneof![
        Just(""),
        Just("metadata"),
        Just("metadata|annotations"),
        Just("metadata|labels"),
        Just("metadata|finalizers"),
        Just("metadata|deletionTimestamp"),
        Just("metadata|name"),
        Just("spec"),
        Just("spec|subnet"),
        Just("spec|ips"),
        Just("spec|excludeIPs"),
        Just("spec|gateway"),
        Just("spec|routes"),
        Just("spec|nodeName"),
        Just("spec|podAffinity"),
        Just("spec|ipVersion"),
        Just("status"),
        Just("status|allocatedIPs"),
        Just("status|allocatedIPCount"),
    ];
    proptest::collection::vec((place, some_json()), 0..4).prop_map(|changes| {
        changes
            .into_iter()
            .fold(marked(four()), |object, (place, value)| {
                overwrite(object, place, value)
            })
    })
}

fn overwrite(mut object: Value, place: &str, value: Value) -> Value {
    if place.is_empty() {
        return value;
    }
    let (parent, key) = place.split_once('|').unwrap_or(("", place));
    let slot = if parent.is_empty() {
        Some(&mut object)
    } else {
        object.get_mut(parent)
    };
    if let Some(map) = slot.and_then(Value::as_object_mut) {
        map.insert(key.to_owned(), value);
    }
    object
}

proptest! {
    #[test]
    fn no_json_makes_it_panic(new in some_object(), old in some_object(), other in some_object()) {
        let subnets = [&other, &old].into_iter().filter_map(|object| view::SubnetView::read(object).ok());
        let world = World { subnets: subnets.map(Arc::new).collect(), ..pools(&[&other, &old]) };
        let settings = Settings::default();
        for kind in Kind::ALL {
            let mut new = new.clone();
            mutate(kind, &mut new, Some(&old), &world, &settings);
            let mut again = new.clone();
            mutate(kind, &mut again, Some(&old), &world, &settings);
            assert_eq!(again, new, "filling in twice is filling in once");
            for op in [Op::Create, Op::Update, Op::Delete] {
                for (after, before) in [(Some(&new), Some(&old)), (None, Some(&old)), (Some(&new), None), (None, None)] {
                    if let Err(refusal) = validate(
                        op, kind, after, before, &world, &settings) {
                        assert!(!refusal.to_string().is_empty());
                    }
                }
            }
        }
    }
}

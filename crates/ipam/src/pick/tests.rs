use proptest::prelude::{prop_assert, prop_assert_eq, proptest};
use serde_json::{Value, json};

use super::*;
use crate::fixture::{entry, iaas, object, pool, who, with, with_records};

mod cold;
mod pairs;
mod plain;
mod properties;
mod provider;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn rules(reserved: &[&str]) -> Rules {
    Rules {
        reserved: RangeSet::from_texts(reserved).unwrap(),
        ..Rules::default()
    }
}

/// With a provider to call.
fn called() -> Rules {
    Rules {
        provider: true,
        ..Rules::default()
    }
}

fn ten(records: &Value) -> Pool {
    let mut object = object("p", "10.0.0.0/24", &["10.0.0.10-10.0.0.12", "10.0.0.5"]);
    object["spec"]["gateway"] = json!("10.0.0.10");
    with_records(&pool(&object), records)
}

fn rec(uid: &str, nic: &str) -> Value {
    json!({"pod": "ns/x", "podUid": uid, "nic": nic})
}

fn pair(entries: &Value) -> (Pool, Pool) {
    let v4 = iaas("p4", &["10.0.0.10-10.0.0.12"], Some("n1"), entries);
    let mut v6 = object("p6", "fd00::/64", &["fd00::10-fd00::30"]);
    v6["spec"]["gateway"] = json!("fd00::1");
    v6["metadata"]["annotations"] = json!({"ipam.spidernet.io/iaas-provider": "cloud"});
    (pool(&v4), pool(&v6))
}

use super::*;
use crate::fixture::{iaas, object, pool, with_records};
use crate::pool::Pool;

fn warm(name: &str, pair: Option<&str>, records: &Value) -> Pool {
    let mut given = iaas(name, &["10.0.0.10-10.0.0.19"], Some("n1"), &json!({}));
    if let Some(pair) = pair {
        given["metadata"]["annotations"]["ipam.spidernet.io/pair-pool"] = json!(pair);
    }
    with_records(&pool(&given), records)
}

fn six(pair: Option<&str>, records: &Value) -> Pool {
    let mut given = object("w6", "fd00::/64", &["fd00::10-fd00::19"]);
    given["metadata"]["annotations"] = json!({"ipam.spidernet.io/iaas-provider": "cloud"});
    if let Some(pair) = pair {
        given["metadata"]["annotations"]["ipam.spidernet.io/pair-pool"] = json!(pair);
    }
    given["spec"]["nodeName"] = json!(["n1"]);
    with_records(&pool(&given), records)
}

fn how(pool: &Pool, address: &str, all: &[&Pool]) -> How {
    let address = address.parse().unwrap();
    let record = pool.records.get(address).unwrap();
    how_to_release(pool, address, record, all.iter().copied())
}

/// Spec ipam 6.5 and 7.5: provider first for prewarm, once a sub-ENI; records alone elsewhere.
#[test]
fn records_go_by_the_mode_of_their_pool() {
    let four = marked_records(&[("10.0.0.10", "u-1", "eth0"), ("10.0.0.11", "u-1", "net1")]);
    let plain = with_records(
        &pool(&object("p", "10.0.0.0/24", &["10.0.0.10-10.0.0.19"])),
        &four,
    );
    assert_eq!(how(&plain, "10.0.0.10", &[&plain]), How::Record);
    let global = with_records(&pool(&iaas("g", &["10.0.0.10"], None, &json!({}))), &four);
    assert_eq!(how(&global, "10.0.0.10", &[&global]), How::Record);
    let alone = warm("w4", None, &four);
    let first = |half: Option<(&str, &str)>| How::ProviderFirst {
        half: half.map(|(pool, address)| (pool.to_owned(), address.parse().unwrap())),
    };
    assert_eq!(how(&alone, "10.0.0.10", &[&alone]), first(None));

    let halves = marked_records(&[("fd00::11", "u-1", "eth0"), ("fd00::12", "u-9", "net1")]);
    let paired = warm("w4", Some("w6"), &four);
    let sibling = six(Some("w4"), &halves);
    let all = [&paired, &sibling];
    assert_eq!(
        how(&paired, "10.0.0.10", &all),
        first(Some(("w6", "fd00::11")))
    );
    assert_eq!(how(&paired, "10.0.0.11", &all), first(None));
    let primary = How::WithPrimary {
        pool: "w4".into(),
        address: "10.0.0.10".parse().unwrap(),
    };
    assert_eq!(how(&sibling, "fd00::11", &all), primary);
    // Its partner's record is gone, or the partner's pool.
    assert_eq!(how(&sibling, "fd00::12", &all), How::Record);
    assert_eq!(how(&sibling, "fd00::11", &[&sibling]), How::Record);
    // A pool of IPv6 alone is its own primary.
    let only = six(None, &halves);
    assert_eq!(how(&only, "fd00::11", &[&only]), first(None));
}

/// Spec ipam 6.4: an endpoint that no record answers for.
#[test]
fn leaked_endpoints_go_when_the_switch_is_on() {
    let on = Knobs {
        clean_outdated_endpoints: true,
        ..Knobs::default()
    };
    let found = endpoint("u-1", &[("w4", "10.0.0.10/24"), ("gone", "10.1.0.10/24")]);
    let empty = warm("w4", None, &json!({}));
    let held = warm("w4", None, &marked_records(&[("10.0.0.15", "u-7", "eth0")]));
    let judged = |knobs: &Knobs, key: &str, pools: &[&Pool]| {
        judge_endpoint(knobs, key, &found, pools.iter().copied())
    };
    let recorded = EndpointVerdict::Recorded("10.0.0.15".parse().unwrap());
    for (key, pools, want) in [
        ("ns/a", vec![&held], recorded),
        ("ns/b", vec![&held], EndpointVerdict::Delete),
        ("ns/a", vec![&empty], EndpointVerdict::Delete),
        // Its pools were deleted.
        ("ns/a", vec![], EndpointVerdict::Delete),
    ] {
        assert_eq!(judged(&on, key, &pools), want, "{key}");
        let off = judged(&Knobs::default(), key, &pools);
        assert_eq!(off, EndpointVerdict::Off);
    }
    // A record in a pool that the endpoint does not name answers for nothing.
    let other = warm(
        "other",
        None,
        &marked_records(&[("10.0.0.15", "u-7", "eth0")]),
    );
    assert_eq!(judged(&on, "ns/a", &[&other]), EndpointVerdict::Delete);
}

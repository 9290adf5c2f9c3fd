#![expect(
    clippy::too_many_lines,
    reason = "tables with one row a case read best in one piece"
)]

use super::*;
use view::{PoolView, SubnetView};

fn subnet(name: &str, cidr: &str, ips: &[&str]) -> Value {
    let mut subnet = object(name, cidr, ips);
    fill(Kind::Subnet, &mut subnet, None);
    subnet
}

fn world(subnets: &[&Value], pools: &[&Value]) -> World {
    World {
        subnets: subnets
            .iter()
            .map(|object| Arc::new(SubnetView::read(object).unwrap()))
            .collect(),
        pools: pools
            .iter()
            .map(|object| Arc::new(PoolView::read(object).unwrap()))
            .collect(),
        ..World::default()
    }
}

fn created(new: &Value, world: &World) -> Result<(), Refusal> {
    validate(
        Op::Create,
        Kind::Subnet,
        Some(new),
        None,
        world,
        &Settings::default(),
    )
}

#[test]
fn a_subnet_is_filled_in_like_a_pool() {
    let subnet = subnet("s", "fd00::/64", &["fd00::2", "fd00::1"]);
    assert_eq!(subnet["metadata"]["finalizers"], json!([names::FINALIZER]));
    assert_eq!(
        subnet["metadata"]["labels"],
        json!({names::SUBNET_CIDR: "fd00---64"})
    );
    assert_eq!(subnet["spec"]["ips"], json!(["fd00::1-fd00::2"]));
    assert_eq!(subnet["spec"]["ipVersion"], 6);
}

#[test]
fn a_new_subnet_fits_between_what_there_is() {
    let known = subnet("s-a", "10.37.0.0/24", &["10.37.0.10-10.37.0.19"]);
    let pool = filled(object("p", "10.38.0.0/24", &["10.38.0.10-10.38.0.12"]));
    let world = world(&[&known], &[&pool]);
    for (new, want) in [
        (
            subnet("s-b", "10.37.0.0/25", &[]),
            vec!["Invalid spec.subnet", "10.37.0.0/24 of Subnet s-a"],
        ),
        (
            subnet("s-b", "10.37.0.0/24", &[]),
            vec!["Invalid spec.subnet", "of Subnet s-a"],
        ),
        (
            subnet("s-b", "10.38.0.0/16", &[]),
            vec!["canonical form", "10.38.0.0/16"],
        ),
        (
            subnet("s-b", "10.38.0.0/25", &[]),
            vec!["Invalid spec.subnet", "IPPool p"],
        ),
        (
            subnet("s-b", "10.38.0.0/24", &["10.38.0.11-10.38.0.20"]),
            vec!["Forbidden spec.ips", "10.38.0.10 of IPPool p"],
        ),
        (
            subnet("s-b", "10.39.0.0/24", &["10.38.0.1"]),
            vec!["Invalid spec.ips[0]"],
        ),
        (subnet("s-a", "10.40.0.0/24", &[]), vec!["409"]),
    ] {
        let canonical = want[0] != "canonical form";
        if canonical {
            refused(created(&new, &world), &want);
        } else {
            assert!(!said(created(&new, &world)).is_empty());
        }
    }
    assert_eq!(
        created(
            &subnet("s-b", "10.38.0.0/24", &["10.38.0.1-10.38.0.99"]),
            &world
        ),
        Ok(())
    );
    let mut gateway = subnet("s-c", "10.41.0.0/24", &["10.41.0.9"]);
    gateway["spec"]["gateway"] = json!("10.41.0.9");
    refused(created(&gateway, &world), &["spec.gateway"]);
}

#[test]
fn what_pools_hold_stays_in_the_subnet() {
    let old = with(
        subnet("s", "10.37.0.0/24", &["10.37.0.10-10.37.0.19"]),
        "status|controlledIPPools",
        json!(json!({"auto4-x": {"ips": ["10.37.0.12-10.37.0.13"]}}).to_string()),
    );
    let update = |new: &Value| {
        validate(
            Op::Update,
            Kind::Subnet,
            Some(new),
            Some(&old),
            &World::default(),
            &Settings::default(),
        )
    };
    let mut less = old.clone();
    less["spec"]["ips"] = json!(["10.37.0.13-10.37.0.19"]);
    refused(
        update(&less),
        &["Forbidden spec.ips", "10.37.0.12", "IPPool auto4-x"],
    );
    less["spec"]["ips"] = json!(["10.37.0.12-10.37.0.19"]);
    assert_eq!(update(&less), Ok(()));
    refused(
        update(&with(old.clone(), "spec|subnet", json!("10.37.0.0/25"))),
        &["Forbidden spec.subnet"],
    );
}

#[test]
fn a_subnet_in_use_is_not_deleted_but_may_take_its_pools_first() {
    let held = json!({"auto4-x": {"ips": ["10.37.0.12-10.37.0.13"]}}).to_string();
    let old = subnet("s", "10.37.0.0/24", &["10.37.0.10-10.37.0.19"]);
    let old = with(old, "status|controlledIPPools", json!(held));
    let held = with(old, "status|allocatedIPCount", json!(2));
    let delete = |old: &Value, settings: &Settings| {
        let world = World::default();
        validate(Op::Delete, Kind::Subnet, None, Some(old), &world, settings)
    };
    let on = Settings::default();
    refused(delete(&held, &on), &["403", "2 allocated IPs", "auto4-x"]);
    // The controller deletes it once more, in the foreground.
    let stamp = json!("2027-01-01T00:00:00Z");
    let going = with(held.clone(), "metadata|deletionTimestamp", stamp);
    assert_eq!(delete(&going, &on), Ok(()));
    let off = Settings {
        protect_deletion: false,
        ..on
    };
    assert_eq!(delete(&held, &off), Ok(()));
}

#[test]
fn a_pool_belongs_to_the_subnet_of_its_network() {
    let mut owner = subnet("s", "10.7.0.0/24", &["10.7.0.10-10.7.0.19"]);
    owner["spec"]["gateway"] = json!("10.7.0.1");
    owner["spec"]["routes"] = json!([{"dst": "10.9.0.0/16", "gw": "10.7.0.2"}]);
    let known = world(&[&owner], &[]);
    let settings = Settings::default();
    let join = |mut pool: Value| {
        mutate(Kind::IpPool, &mut pool, None, &known, &settings);
        pool
    };
    let pool = join(object("p", "10.7.0.0/24", &["10.7.0.10"]));
    assert_eq!(pool["metadata"]["labels"][names::OWNER_SPIDER_SUBNET], "s");
    let reference = &pool["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&reference["uid"], &reference["controller"]),
        (&json!("uid-s"), &json!(true))
    );
    assert_eq!(pool["spec"]["gateway"], "10.7.0.1");
    assert_eq!(pool["spec"]["routes"][0]["dst"], "10.9.0.0/16");
    // An explicit empty list blocks what would be inherited; another network is nobody's.
    let blocked = join(with(
        object("p", "10.7.0.0/24", &[]),
        "spec|routes",
        json!([]),
    ));
    assert_eq!(blocked["spec"]["routes"], json!([]));
    let other = join(object("q", "10.8.0.0/24", &[]));
    assert!(other["metadata"].get("ownerReferences").is_none());
    let judge = |pool: &Value, world: &World| {
        validate(Op::Create, Kind::IpPool, Some(pool), None, world, &settings)
    };
    assert_eq!(judge(&pool, &known), Ok(()));
    let outside = join(object("p", "10.7.0.0/24", &["10.7.0.19-10.7.0.21"]));
    refused(
        judge(&outside, &known),
        &[
            "Forbidden spec.ips",
            "10.7.0.20-10.7.0.21",
            "SpiderSubnet s",
        ],
    );
    // An automatic pool is what was carved for it.
    let carved = json!({"p": {"ips": ["10.7.0.10-10.7.0.11"]}}).to_string();
    let known = world(
        &[&with(owner, "status|controlledIPPools", json!(carved))],
        &[],
    );
    let mut automatic = pool;
    automatic["metadata"]["labels"][names::OWNER_APPLICATION_NAME] = json!("web");
    refused(
        judge(&automatic, &known),
        &["Forbidden spec.ips", "10.7.0.10-10.7.0.11"],
    );
    automatic["spec"]["ips"] = json!(["10.7.0.10-10.7.0.11"]);
    assert_eq!(judge(&automatic, &known), Ok(()));
}

/// The admission's part of case B08: whoever resizes automatic pools, each is its entry in the subnet.
#[test]
fn b08_an_automatic_pool_is_what_its_subnet_has_for_it() {
    let carved = json!({"auto4-x": {"ips": ["10.35.0.10-10.35.0.14"]},
        "auto4-y": {"ips": ["10.35.0.15-10.35.0.19"]}});
    let whole = subnet("s-a", "10.35.0.0/24", &["10.35.0.10-10.35.0.19"]);
    let owner = with(whole, "status|controlledIPPools", json!(carved.to_string()));
    let known = world(&[&owner], &[]);
    let settings = Settings::default();
    let automatic = |ips: &[&str]| {
        let mut pool = object("auto4-y", "10.35.0.0/24", ips);
        mutate(Kind::IpPool, &mut pool, None, &known, &settings);
        pool["metadata"]["labels"][names::OWNER_APPLICATION_NAME] = json!("y");
        pool
    };
    let old = automatic(&["10.35.0.15-10.35.0.19"]);
    let resized = |new: &Value| {
        validate(
            Op::Update,
            Kind::IpPool,
            Some(new),
            Some(&old),
            &known,
            &settings,
        )
    };
    assert_eq!(resized(&old), Ok(()));
    for ips in ["10.35.0.14-10.35.0.19", "10.35.0.15-10.35.0.18"] {
        let want = ["Forbidden spec.ips", "10.35.0.15-10.35.0.19"];
        refused(resized(&automatic(&[ips])), &want);
    }
}

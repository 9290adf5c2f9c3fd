//! The rules of the cloud's table (spec iaas 15.2, P1 and P2), by case and by chance.

use super::*;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

fn topology() -> Topology {
    serde_saphyr::from_str(
        r#"
parents:
  - {node: n1, mac: "fa:16:3e:01:00:01", ifname: p1, subEniLimit: 3}
  - {node: n1, mac: "fa:16:3e:01:00:03", ifname: p3}
  - {node: n2, mac: "fa:16:3e:01:00:02", ifname: p2, subEniLimit: 3}
subnets: [{ipv4: 10.72.0.0/24, ipv6: "fd72::/64", gatewayIpv4: 10.72.0.1, gatewayMac: "fa:16:3e:ff:ff:fe"}]
gateway: {ifname: gw0}
bindings:
  - {parent: "fa:16:3e:01:00:02", vlan: 7, mac: "fa:16:3e:00:00:0d", ipv4: 10.72.0.200, pool: q}
"#,
    )
    .unwrap()
}

fn parent(at: u8) -> Mac {
    Mac::new([0xfa, 0x16, 0x3e, 1, 0, at])
}

fn v4(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 72, 0, host)
}

fn create(cloud: &mut Cloud, host: u8) -> Mac {
    let mac = cloud.begin_create(Some(v4(host)), None, "g").unwrap();
    cloud.finish(mac, SECOND);
    mac
}

fn vlan_of(cloud: &Cloud, mac: Mac) -> VlanId {
    cloud.get(mac).unwrap().state.attachment().unwrap().vlan
}

#[test]
fn a_sub_eni_goes_through_its_states_and_the_fabric_follows() {
    let mut cloud = Cloud::new(&topology(), 1);
    let state_of = |cloud: &Cloud, mac| {
        let found = cloud.bindings().into_iter().find(|b| b.mac == mac);
        found.map(|binding| binding.state)
    };
    let mac = cloud
        .begin_create(Some(v4(10)), Some("fd72::a".parse().unwrap()), "g")
        .unwrap();
    assert!(!cloud.audit().is_empty(), "under way");
    assert!(matches!(
        cloud.begin_attach(mac, parent(1), SECOND),
        Err(CloudError::State { .. })
    ));
    cloud.finish(mac, SECOND);
    assert_eq!(state_of(&cloud, mac), None);
    cloud.begin_attach(mac, parent(1), SECOND).unwrap();
    assert_eq!(state_of(&cloud, mac), Some(BindingState::Unbound));
    cloud.finish(mac, SECOND);
    assert_eq!(state_of(&cloud, mac), Some(BindingState::Bound));
    assert!(matches!(
        cloud.begin_delete(mac),
        Err(CloudError::State { .. })
    ));
    cloud.begin_detach(mac).unwrap();
    assert_eq!(state_of(&cloud, mac), Some(BindingState::Detaching));
    cloud.finish(mac, SECOND);
    cloud.begin_delete(mac).unwrap();
    assert_eq!(cloud.finish(mac, SECOND), None);
    assert_eq!(cloud.audit(), Vec::<String>::new());
    let calls: Vec<u64> = cloud.calls().values().copied().collect();
    assert_eq!(calls, [1, 1, 1, 1]);
    let again = create(&mut cloud, 10);
    assert_ne!(again, mac, "a new sub-ENI has a new MAC");
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut cloud = Cloud::new(&topology(), 1);
    let before = cloud.saved();
    let v6 = |text: &str| Some(text.parse().unwrap());
    for (ipv4, ipv6) in [
        (None, None),
        (Some(v4(200)), None),
        (Some(v4(1)), None),
        (Some(Ipv4Addr::new(10, 73, 0, 1)), None),
        (Some(v4(10)), v6("fd73::a")),
    ] {
        assert!(
            cloud.begin_create(ipv4, ipv6, "g").is_err(),
            "{ipv4:?} {ipv6:?}"
        );
    }
    assert!(cloud.begin_attach(parent(9), parent(1), SECOND).is_err());
    assert_eq!(cloud.saved(), before);
}

#[test]
fn a_parent_carries_no_more_than_its_limit() {
    let mut cloud = Cloud::new(&topology(), 1);
    for host in 10..13 {
        let mac = create(&mut cloud, host);
        cloud.begin_attach(mac, parent(1), SECOND).unwrap();
    }
    let mac = create(&mut cloud, 13);
    let refused = cloud.begin_attach(mac, parent(1), SECOND).unwrap_err();
    assert_eq!(
        refused,
        CloudError::Capacity {
            parent: parent(1),
            limit: 3,
            attached: 3
        }
    );
    assert!(cloud.begin_attach(mac, parent(2), SECOND).is_ok());
}

#[test]
fn a_restart_keeps_what_was_settled() {
    let mut cloud = Cloud::new(&topology(), 1);
    let bound = create(&mut cloud, 10);
    cloud.begin_attach(bound, parent(1), SECOND).unwrap();
    cloud.finish(bound, SECOND);
    let attaching = create(&mut cloud, 11);
    let vlan = cloud.begin_attach(attaching, parent(1), SECOND).unwrap();
    let creating = cloud.begin_create(Some(v4(12)), None, "g").unwrap();
    let text = serde_json::to_string(&cloud.saved()).unwrap();
    let mut other = Cloud::new(&topology(), 2);
    other.restore(serde_json::from_str(&text).unwrap(), Duration::ZERO);
    assert_eq!(other.get(bound), cloud.get(bound));
    assert_eq!(other.get(attaching).unwrap().state, State::Unbound);
    assert_eq!(other.get(creating), None);
    assert_eq!(other.audit(), Vec::<String>::new());
    assert!(other.quarantine.contains_key(&(parent(1), vlan)));
}

/// P1 to the last VLAN: none comes back on its parent within the quarantine, all do after it.
#[test]
fn a_vlan_rests_after_a_detach() {
    let mut cloud = Cloud::new(&topology(), 1);
    let mac = create(&mut cloud, 10);
    let mut seen = BTreeSet::new();
    for _ in 2..=4094 {
        let vlan = cloud.begin_attach(mac, parent(1), SECOND).unwrap();
        assert!(seen.insert(vlan), "{vlan} again");
        cloud.finish(mac, SECOND);
        cloud.begin_detach(mac).unwrap();
        cloud.finish(mac, SECOND);
    }
    let refused = cloud.begin_attach(mac, parent(1), SECOND);
    assert_eq!(refused, Err(CloudError::NoVlan(parent(1))));
    assert!(
        cloud
            .begin_attach(mac, parent(1), SECOND + QUARANTINE)
            .is_ok()
    );
}

proptest! {
    /// Any order of operations, at any time: MACs and VLANs stay unique, no VLAN comes back on
    /// its parent within the quarantine, none is the one the sub-ENI had before, and what is
    /// refused changes nothing.
    #[test]
    fn rules_hold_after_any_sequence(
        steps in proptest::collection::vec((0_u8..5, 10_u8..18, 1_u8..4, 0_u64..20), 1..200),
        seed: u64,
    ) {
        let mut cloud = Cloud::new(&topology(), seed);
        let mut now = Duration::ZERO;
        let mut freed: BTreeMap<(Mac, VlanId), Duration> = BTreeMap::new();
        let mut macs = BTreeSet::new();
        for (kind, host, on, seconds) in steps {
            now += Duration::from_secs(seconds);
            let mac = cloud.by_address(v4(host).into()).map(|sub_eni| sub_eni.mac);
            let before = cloud.saved();
            let begun = match (kind, mac) {
                (0, None) => cloud.begin_create(Some(v4(host)), None, "g").map(|mac| {
                    assert!(macs.insert(mac), "{mac} again");
                }),
                (1, Some(mac)) => {
                    let last = cloud.get(mac).unwrap().last_vlan;
                    cloud.begin_attach(mac, parent(on), now).map(|vlan| {
                        assert_ne!(Some(vlan), last);
                        let free = freed.get(&(parent(on), vlan)).copied();
                        assert!(free.is_none_or(|at| now >= at + QUARANTINE), "{vlan} too early");
                    })
                }
                (2, Some(mac)) => cloud.begin_detach(mac),
                (3, Some(mac)) => cloud.begin_delete(mac),
                (4, Some(mac)) => {
                    if let State::Detaching(at) = cloud.get(mac).unwrap().state {
                        freed.insert((at.parent, at.vlan), now);
                    }
                    cloud.finish(mac, now);
                    Ok(())
                }
                _ => Ok(()),
            };
            if begun.is_err() {
                prop_assert_eq!(cloud.saved().sub_enis, before.sub_enis);
            }
            let found = cloud.audit();
            let real: Vec<_> = found.iter().filter(|text| !text.contains("stuck")).collect();
            prop_assert!(real.is_empty(), "{:?}", real);
        }
    }

    /// On one node a VLAN is live once, whatever the parent.
    #[test]
    fn a_vlan_is_live_once_on_a_node(seed: u64) {
        let mut cloud = Cloud::new(&topology(), seed);
        let mut seen = BTreeSet::new();
        for (host, on) in [(10, 1), (11, 3), (12, 3), (13, 1), (14, 3)] {
            let mac = create(&mut cloud, host);
            cloud.begin_attach(mac, parent(on), SECOND).unwrap();
            prop_assert!(seen.insert(vlan_of(&cloud, mac)));
        }
    }
}

//! Which topologies make a table.

use super::*;

pub(super) const PARENT_1: &str = "fa:16:3e:01:00:01";
pub(super) const PARENT_2: &str = "fa:16:3e:01:00:02";
pub(super) const GATEWAY_MAC: &str = "fa:16:3e:ff:ff:fe";

/// Two nodes, a dual-stack subnet and an IPv4 one behind the same gateway.
pub(super) fn topology() -> Topology {
    let text = format!(
        r#"
parents:
  - {{node: n1, mac: "{PARENT_1}", ifname: p1}}
  - {{node: n2, mac: "{PARENT_2}", ifname: p2}}
subnets:
  - {{ipv4: 172.16.0.0/24, ipv6: "fd00:16::/64", gatewayIpv4: 172.16.0.1, gatewayIpv6: "fd00:16::1", gatewayMac: "{GATEWAY_MAC}"}}
  - {{ipv4: 172.17.0.0/24, gatewayIpv4: 172.17.0.1, gatewayMac: "{GATEWAY_MAC}"}}
gateway: {{ifname: gw0}}
"#
    );
    serde_saphyr::from_str(&text).unwrap()
}

/// A binding on parent `node` with the last octet `host` in MAC and addresses of subnet 1.
pub(super) fn binding(node: u8, vlan: i64, host: u8) -> Binding {
    Binding {
        parent: format!("fa:16:3e:01:00:0{node}").parse().unwrap(),
        vlan: vlan.try_into().unwrap(),
        mac: pod_mac(host),
        ipv4: Some(Ipv4Addr::new(172, 16, 0, host)),
        ipv6: Some(Ipv6Addr::new(0xfd00, 0x16, 0, 0, 0, 0, 0, host.into())),
        pool: None,
        state: BindingState::Bound,
    }
}

pub(super) const fn pod_mac(host: u8) -> Mac {
    Mac::new([0xfa, 0x16, 0x3e, 0, 0, host])
}

#[test]
fn contradictions_are_refused_and_named() {
    let good = || vec![binding(1, 100, 10), binding(2, 100, 11)];
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let changed = |change: fn(&mut Binding)| {
        let mut bindings = good();
        change(&mut bindings[1]);
        bindings
    };
    let eleven = pod_mac(11);
    let foreign: Mac = "fa:16:3e:01:00:09".parse().unwrap();
    let parent_1: Mac = PARENT_1.parse().unwrap();
    let gateway: Mac = GATEWAY_MAC.parse().unwrap();
    #[rustfmt::skip] // a row a line
    let cases: Vec<(&str, Vec<Binding>, TableError)> = vec![
        ("parent unknown", changed(|b| b.parent = "fa:16:3e:01:00:09".parse().unwrap()), TableError::UnknownParent { mac: eleven, parent: foreign }),
        ("vlan twice on a parent", changed(|b| b.parent = PARENT_1.parse().unwrap()), TableError::Vlan { mac: eleven, by: pod_mac(10), vlan: 100.try_into().unwrap(), parent: parent_1 }),
        ("mac twice", changed(|b| b.mac = pod_mac(10)), TableError::Mac { mac: pod_mac(10) }),
        ("mac of a parent", changed(|b| b.mac = b.parent), TableError::Mac { mac: PARENT_2.parse().unwrap() }),
        ("mac of the gateway", changed(|b| b.mac = GATEWAY_MAC.parse().unwrap()), TableError::Mac { mac: gateway }),
        ("group mac", changed(|b| b.mac = Mac::BROADCAST), TableError::Mac { mac: Mac::BROADCAST }),
        ("no address", changed(|b| (b.ipv4, b.ipv6) = (None, None)), TableError::NoAddress { mac: eleven }),
        ("address twice", changed(|b| b.ipv4 = Some([172, 16, 0, 10].into())), TableError::Taken { mac: eleven, by: pod_mac(10), ip: ip("172.16.0.10") }),
        ("address of the gateway", changed(|b| b.ipv6 = Some("fd00:16::1".parse().unwrap())), TableError::OfGateway { mac: eleven, ip: ip("fd00:16::1") }),
        ("no such subnet", changed(|b| b.ipv4 = Some([10, 0, 0, 1].into())), TableError::Subnet { mac: eleven, ip: ip("10.0.0.1") }),
        ("families in two subnets", changed(|b| b.ipv4 = Some([172, 17, 0, 11].into())), TableError::Subnet { mac: eleven, ip: ip("fd00:16::b") }),
    ];
    assert!(Table::build(&topology(), &good(), BTreeSet::new()).is_ok());
    for (name, bindings, error) in cases {
        let built = Table::build(&topology(), &bindings, BTreeSet::new());
        assert_eq!(built.unwrap_err(), error, "{name}");
    }
}

#[test]
fn parents_and_gateways_are_checked_too() {
    let mut twice = topology();
    twice.parents[1].mac = twice.parents[0].mac;
    let mut outside = topology();
    outside.subnets[0].gateway_ipv6 = Some("fd00:17::1".parse().unwrap());
    let mut group = topology();
    group.subnets[1].gateway_mac = Mac::BROADCAST;
    #[rustfmt::skip] // a row a line
    let cases = [
        (twice, TableError::Mac { mac: PARENT_1.parse().unwrap() }),
        (outside, TableError::Gateway { ip: "fd00:17::1".parse().unwrap() }),
        (group, TableError::Mac { mac: Mac::BROADCAST }),
    ];
    for (topology, error) in cases {
        assert_eq!(
            Table::build(&topology, &[], BTreeSet::new()).unwrap_err(),
            error
        );
    }
}

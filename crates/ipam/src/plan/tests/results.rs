#![expect(
    clippy::too_many_lines,
    reason = "tables with one row a case read best in one piece"
)]

use super::*;

#[test]
fn results_carry_gateway_routes_and_the_sub_eni() {
    let (v4, v6) = pools();
    let binding = Binding {
        vlan: 7.try_into().unwrap(),
        mac: "fa:16:3e:00:00:07".parse().unwrap(),
    };
    let claims = [
        Claim {
            pool: &v6,
            address: "fd00::10".parse().unwrap(),
            binding: None,
        },
        Claim {
            pool: &v4,
            address: "10.0.0.10".parse().unwrap(),
            binding: Some(binding),
        },
    ];
    for (clean, want) in [
        (false, vec!["10.9.0.0/16 10.0.0.2", "0.0.0.0/0 10.0.0.1"]),
        (true, vec!["10.9.0.0/16 10.0.0.2"]),
    ] {
        let made = assemble("eth0", clean, &claims).unwrap();
        let routes: Vec<_> = made
            .all_routes()
            .iter()
            .map(|r| format!("{} {}", r.dst, r.gw))
            .collect();
        assert_eq!(routes, want);
        // The gateway stays even without the route.
        assert_eq!(made.ips[0].gateway, Some("10.0.0.1".parse().unwrap()));
        let ips: Vec<_> = made.ips.iter().map(|ip| ip.address.to_string()).collect();
        assert_eq!(ips, ["10.0.0.10/24", "fd00::10/64"]);
        assert_eq!(
            (made.vlan, made.mac),
            (Some(binding.vlan), Some(binding.mac))
        );
        assert_eq!(from_endpoint(&to_endpoint(&made)).unwrap(), made);
    }
    let other = Binding {
        vlan: 8.try_into().unwrap(),
        ..binding
    };
    let two = [
        Claim {
            binding: Some(other),
            ..claims[0]
        },
        claims[1],
    ];
    let text = assemble("eth0", false, &two).unwrap_err().to_string();
    assert!(
        text.contains("p4") && text.contains("p6") && text.contains("two sub-ENIs"),
        "{text}"
    );
}

#[test]
fn clean_gateway_is_stored_only_with_a_gateway() {
    let (_, v6) = pools();
    let claims = [Claim {
        pool: &v6,
        address: "fd00::10".parse().unwrap(),
        binding: None,
    }];
    let made = assemble("eth0", true, &claims).unwrap();
    assert_eq!(to_endpoint(&made).clean_gateway, None);
}

#[test]
fn pod_routes_go_to_the_first_subnet_that_contains_the_gateway() {
    let (v4, v6) = pools();
    let nic = |name: &str, pool, address: &str| {
        assemble(
            name,
            false,
            &[Claim {
                pool,
                address: address.parse().unwrap(),
                binding: None,
            }],
        )
        .unwrap()
    };
    let mut all = [nic("eth0", &v6, "fd00::10"), nic("net1", &v4, "10.0.0.10")];
    let route = |dst: &str, gw: &str| crate::pool::RouteTo {
        dst: dst.parse().unwrap(),
        gw: gw.parse().unwrap(),
    };
    let lost = route("10.8.0.0/16", "192.168.0.1");
    let unmatched = attach_routes(&mut all, &[route("10.7.0.0/16", "10.0.0.9"), lost]);
    assert_eq!(unmatched, [lost]);
    assert_eq!(all[0].routes, []);
    assert_eq!(all[1].routes.len(), 2);
}

#[test]
fn an_endpoint_that_cannot_be_read_names_nic_and_field() {
    for (bad, part) in [
        (
            EndpointNic {
                vlan: 4095,
                ..detail("eth0", "10.0.0.10/24", "p")
            },
            "eth0",
        ),
        (
            EndpointNic {
                mac: Some("x".into()),
                ..detail("eth0", "10.0.0.10/24", "p")
            },
            "eth0",
        ),
        (detail("eth0", "10.0.0.10", "p"), "ipv4"),
        (
            EndpointNic {
                ipv4_gateway: Some("x".into()),
                ..detail("eth0", "10.0.0.10/24", "p")
            },
            "gateway",
        ),
    ] {
        let text = from_endpoint(&bad).unwrap_err().to_string();
        assert!(text.contains(part), "{text}");
    }
}

//! The lab itself: its fabric carries what is bound and nothing else, segmented TCP included, with
//! links made by hand. When this fails, failures of the other suites say nothing.
#![expect(
    clippy::unwrap_used,
    reason = "functions that tests share fail as tests do"
)]

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use spiderpool_api::value::Mac;
use spiderpool_netops::netns::Netns;
use spiderpool_netops::rtnl::{Route, VlanSpec};
use vm_tests::lab::layout::{GATEWAY_V4, GATEWAY_V6, PARENT, SubEni};
use vm_tests::lab::namespace::in_netns;
use vm_tests::lab::{Cloud, LabSpec, Node, peers, wait};

const LIMIT: Duration = Duration::from_secs(2);
const BYTES: u64 = 8 * 1024 * 1024;

/// What the agent does, as short as possible.
fn attach_by_hand(node: &Node, pod: &Netns, sub: &SubEni, mac: Mac) {
    in_netns(node.netns(), async |rtnl| {
        let parent = rtnl.link_by_name(PARENT).await?.unwrap();
        let spec = VlanSpec {
            name: "net1",
            parent: parent.ifindex,
            vlan: sub.vlan,
            mac,
            mtu: parent.mtu,
            target: pod,
        };
        Ok(rtnl.add_vlan(&spec).await?)
    })
    .unwrap();
    let mut addresses = vec![(IpAddr::from(sub.ipv4), 24, IpAddr::from(GATEWAY_V4))];
    addresses.extend(sub.ipv6.map(|ip| (ip.into(), 64, GATEWAY_V6.into())));
    in_netns(pod, async |rtnl| {
        let ifindex = rtnl.link_by_name("net1").await?.unwrap().ifindex;
        rtnl.set_up(ifindex).await?;
        for (address, prefix, gateway) in addresses {
            rtnl.add_address(ifindex, IpNet::new(address, prefix)?)
                .await?;
            let dst = if gateway.is_ipv4() {
                "0.0.0.0/0"
            } else {
                "::/0"
            };
            let route = Route {
                dst: dst.parse()?,
                gateway: Some(gateway),
                ifindex,
            };
            rtnl.add_route(&route).await?;
        }
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "vm level"]
fn bound_sub_enis_reach_the_gateway_and_each_other() {
    let cloud = Cloud::build(&LabSpec::for_test(2, 1).unwrap()).unwrap();
    let (one, two) = (cloud.node(0).unwrap(), cloud.node(1).unwrap());
    let (a, b) = (cloud.pod("a").unwrap(), cloud.pod("b").unwrap());
    let (sub_a, sub_b) = (&one.plan.sub_enis[1], &two.plan.sub_enis[1]);
    attach_by_hand(one, a.netns(), sub_a, sub_a.mac);
    attach_by_hand(two, b.netns(), sub_b, sub_b.mac);
    let gateways: [IpAddr; 2] = [GATEWAY_V4.into(), GATEWAY_V6.into()];
    for gateway in gateways {
        let ping = peers::ping(a.netns(), gateway, 3, LIMIT).unwrap();
        assert!(
            ping.complete(),
            "{gateway}: {ping:?}\n{:?}",
            cloud.drops().unwrap()
        );
        peers::tcp_echo(a.netns(), &cloud.gateway, gateway, BYTES).unwrap();
    }
    for other in [sub_b.ipv4.into(), sub_b.ipv6.unwrap().into()] {
        assert!(
            peers::ping(a.netns(), other, 3, LIMIT).unwrap().complete(),
            "{other}"
        );
        peers::tcp_echo(a.netns(), b.netns(), other, BYTES).unwrap();
    }
    assert_eq!(cloud.drops().unwrap(), Vec::<String>::new());
}

#[test]
#[ignore = "vm level"]
fn a_foreign_mac_and_a_held_address_do_not_pass() {
    let cloud = Cloud::build(&LabSpec::for_test(1, 2).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let (a, b) = (cloud.pod("a").unwrap(), cloud.pod("b").unwrap());
    let [sub_a, sub_b] = &node.plan.sub_enis[..2] else {
        panic!("two sub-ENIs")
    };
    attach_by_hand(node, a.netns(), sub_a, sub_b.mac);
    let short = Duration::from_millis(300);
    let to = GATEWAY_V4.into();
    assert_eq!(peers::ping(a.netns(), to, 1, short).unwrap().received, 0);
    wait::until(LIMIT, "a drop for the foreign MAC", || {
        let drops = cloud.drops()?.join("\n");
        Ok(drops.contains("src_mac").then_some(()))
    })
    .unwrap();
    attach_by_hand(node, b.netns(), sub_b, sub_b.mac);
    cloud.fabric.hold(sub_b.ipv4.into()).unwrap();
    assert_eq!(peers::ping(b.netns(), to, 1, short).unwrap().received, 0);
    cloud.fabric.unhold(sub_b.ipv4.into()).unwrap();
    assert!(peers::ping(b.netns(), to, 2, LIMIT).unwrap().complete());
}

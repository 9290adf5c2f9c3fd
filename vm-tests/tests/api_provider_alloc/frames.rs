//! What the cloud lets through: frames as a node could send them, right on its parent NIC.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use spiderpool_api::value::Mac;
use spiderpool_netops::arp::{self, ArpPacket};
use spiderpool_netops::packet::RawSocket;
use spiderpool_netops::packet::vnet::{VlanTag, VnetHdr};
use vm_tests::cluster::{Cluster, N1, PARENT};
use vm_tests::lab::namespace::in_netns;

use crate::pod;

const IPV4: u16 = 0x0800;
const FOREIGN_MAC: Mac = Mac::new([0xfa, 0x16, 0x3e, 9, 9, 9]);
const FOREIGN_IP: Ipv4Addr = Ipv4Addr::new(10, 72, 3, 99);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 72, 0, 1);
/// Without padding, drivers and links disagree about the length.
const SHORTEST: usize = 60;

/// To everybody.
fn frame(source: Mac, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let ethertype = ethertype.to_be_bytes();
    let mut frame = [&[0xff; 6][..], &source.octets(), &ethertype, payload].concat();
    frame.resize(SHORTEST, 0);
    frame
}

/// A packet to the gateway without payload; RFC 791.
fn packet(source: Ipv4Addr) -> Vec<u8> {
    let head = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0];
    [&head[..], &source.octets(), &GATEWAY.octets()].concat()
}

#[test]
#[ignore = "api level"]
fn scenario_68_frames_that_are_not_the_sub_enis_are_dropped_and_counted() {
    let name = "scenario_68_frames_that_are_not_the_sub_enis_are_dropped_and_counted";
    let Some(mut cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    cluster.ready_global("g", "10.72.0.10").unwrap();
    let a = pod(&cluster, "a", N1, &["g"]);
    let given = cluster.add_in_the_end(&a).unwrap();
    let (mac, ip): (Mac, Ipv4Addr) = (given.mac.parse().unwrap(), given.ip().parse().unwrap());
    let vlan = u16::try_from(given.vlan).unwrap();
    let netns = cluster.worker(N1).unwrap().netns();
    let parent = in_netns(netns, async |rtnl| Ok(rtnl.link_by_name(PARENT).await?)).unwrap();
    let parent = parent.unwrap().ifindex;
    let socket = netns.run(|| RawSocket::open(parent)).unwrap().unwrap();
    let ask = |sender| ArpPacket::request(mac, sender, GATEWAY).encode();
    let other_vlan = if vlan == 2 { 3 } else { 2 };
    for (vlan, frame) in [
        (vlan, frame(mac, arp::ETHERTYPE, &ask(ip))),
        (vlan, frame(FOREIGN_MAC, IPV4, &packet(ip))),
        (vlan, frame(mac, IPV4, &packet(FOREIGN_IP))),
        (
            vlan,
            frame(mac, arp::ETHERTYPE, &ask(Ipv4Addr::UNSPECIFIED)),
        ),
        (other_vlan, frame(mac, arp::ETHERTYPE, &ask(ip))),
    ] {
        let tag = Some(VlanTag::customer(vlan));
        socket.try_send(&frame, tag, VnetHdr::default()).unwrap();
    }
    let reasons = ["src_mac", "src_ip", "arp_unspecified", "unknown_vlan"];
    let wanted: BTreeMap<_, _> = reasons.map(|reason| (reason.to_owned(), 1)).into();
    cluster
        .until("a drop for each reason", || Ok(cluster.drops()? == wanted))
        .unwrap();
    for reason in reasons {
        cluster.want_drops(reason, 1);
    }
    cluster.end(&a).unwrap();
    cluster.finish().unwrap();
}

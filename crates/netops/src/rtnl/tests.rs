use super::*;
use crate::testing::{TestNetns, root_or_skip};
use std::net::IpAddr;

fn veth<'a>(name: &'a str, peer: &'a str) -> VethSpec<'a> {
    VethSpec {
        name,
        peer,
        peer_target: None,
        mac: None,
        peer_mac: None,
    }
}

#[test]
fn refusals_carry_the_kernels_words() {
    let mut message = rtnetlink::packet_core::ErrorMessage::default();
    message.code = std::num::NonZeroI32::new(-17);
    message.header = vec![0; 16];
    let text = b"VLAN device already exists\0";
    message.header.extend_from_slice(&31_u16.to_ne_bytes());
    message.header.extend_from_slice(&1_u16.to_ne_bytes());
    message.header.extend_from_slice(text);
    let refusal = Refusal::from_message(&message);
    assert_eq!(refusal.errno, nix::errno::Errno::EEXIST);
    assert!(
        refusal
            .to_string()
            .starts_with("VLAN device already exists (EEXIST"),
        "{refusal}"
    );

    for cut in [0, 3, 15, 16, 18, 20, 30] {
        message.header.truncate(cut.min(message.header.len()));
        assert_eq!(
            Refusal::from_message(&message).errno,
            nix::errno::Errno::EEXIST,
            "{cut}"
        );
    }
}

#[tokio::test]
async fn links_are_made_found_changed_and_deleted() {
    if !root_or_skip("links_are_made_found_changed_and_deleted") {
        return;
    }
    let (near, far) = (TestNetns::new("near"), TestNetns::new("far"));
    let rtnl = Rtnl::open_in(&near.netns).await.unwrap();
    let mac = "02:00:00:00:00:01".parse().unwrap();
    let spec = VethSpec {
        peer_target: Some(&far.netns),
        mac: Some(mac),
        ..veth("v0", "eth0")
    };
    rtnl.add_veth(&spec).await.unwrap();
    let error = rtnl.add_veth(&spec).await.unwrap_err();
    assert!(error.is_exists(), "{error}");
    assert!(
        error.to_string().contains("v0") && error.to_string().contains("near"),
        "{error}"
    );

    let link = rtnl.link_by_name("v0").await.unwrap().unwrap();
    assert_eq!(
        (link.mac, link.up, &link.kind),
        (Some(mac), false, &LinkKind::Other("veth".to_owned()))
    );
    assert_eq!(link.parent_nsid, rtnl.nsid_of(&far.netns).await.unwrap());
    assert!(link.parent_nsid.is_some());
    rtnl.set_mtu(link.ifindex, 1400).await.unwrap();
    rtnl.rename_and_up(link.ifindex, "renamed.1").await.unwrap();
    assert_eq!(rtnl.link_by_name("v0").await.unwrap(), None);
    let renamed = rtnl.link_by_index(link.ifindex).await.unwrap().unwrap();
    assert_eq!(
        (renamed.name.as_str(), renamed.mtu, renamed.up),
        ("renamed.1", 1400, true)
    );

    let peer = Rtnl::open_in(&far.netns).await.unwrap();
    assert!(peer.links().await.unwrap().iter().any(|l| l.name == "eth0"));
    assert!(peer.delete_link(renamed.parent.unwrap()).await.unwrap());
    assert!(
        !rtnl.delete_link(link.ifindex).await.unwrap(),
        "it went with its peer"
    );
    assert_eq!(rtnl.requests(), 9);
}

#[tokio::test]
async fn a_namespace_without_a_number_has_none() {
    if !root_or_skip("a_namespace_without_a_number_has_none") {
        return;
    }
    let (near, far) = (TestNetns::new("near"), TestNetns::new("far"));
    let rtnl = Rtnl::open_in(&near.netns).await.unwrap();
    assert_eq!(rtnl.nsid_of(&far.netns).await.unwrap(), None);
}

/// A pair `v0`, `v1` that is up; index of `v0`.
async fn pair_up(rtnl: &Rtnl) -> u32 {
    rtnl.add_veth(&veth("v0", "v1")).await.unwrap();
    let mut ifindex = 0;
    for name in ["v1", "v0"] {
        ifindex = rtnl.link_by_name(name).await.unwrap().unwrap().ifindex;
        rtnl.set_up(ifindex).await.unwrap();
    }
    ifindex
}

fn route(dst: &str, gateway: Option<IpAddr>, ifindex: u32) -> Route {
    Route {
        dst: dst.parse().unwrap(),
        gateway,
        ifindex,
    }
}

#[tokio::test]
async fn addresses_are_added_once_and_usable_at_once() {
    if !root_or_skip("addresses_are_added_once_and_usable_at_once") {
        return;
    }
    let test = TestNetns::new("addresses");
    let rtnl = Rtnl::open_in(&test.netns).await.unwrap();
    let ifindex = pair_up(&rtnl).await;
    let wanted = ["10.9.0.7/24", "fd09::7/64"].map(|net| net.parse().unwrap());
    for address in [wanted, wanted].concat() {
        rtnl.add_address(ifindex, address).await.unwrap();
    }
    let addresses = rtnl.addresses(ifindex).await.unwrap();
    for address in wanted {
        let found: Vec<_> = addresses.iter().filter(|a| a.address == address).collect();
        assert!(
            matches!(found.as_slice(), [one] if !one.tentative),
            "{addresses:?}"
        );
    }
}

#[tokio::test]
async fn routes_are_added_once_and_gateways_must_be_on_the_link() {
    if !root_or_skip("routes_are_added_once_and_gateways_must_be_on_the_link") {
        return;
    }
    let test = TestNetns::new("routes");
    let rtnl = Rtnl::open_in(&test.netns).await.unwrap();
    let ifindex = pair_up(&rtnl).await;
    for address in ["10.9.0.7/24", "fd09::7/64"] {
        rtnl.add_address(ifindex, address.parse().unwrap())
            .await
            .unwrap();
    }
    for (gateway, dst) in [("169.254.1.1", "0.0.0.0/0"), ("fd0a::1", "::/0")] {
        let gateway: IpAddr = gateway.parse().unwrap();
        let host = Route {
            dst: gateway.into(),
            gateway: None,
            ifindex,
        };
        let default = route(dst, Some(gateway), ifindex);
        let error = rtnl.add_route(&default).await.unwrap_err();
        assert!(error.to_string().contains(&gateway.to_string()), "{error}");
        for wanted in [&host, &default, &host, &default] {
            rtnl.add_route(wanted).await.unwrap();
        }
        let routes = rtnl.routes(ifindex).await.unwrap();
        for wanted in [host, default] {
            assert_eq!(
                routes.iter().filter(|r| **r == wanted).count(),
                1,
                "{routes:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_closed_connection_lets_its_namespace_go() {
    if !root_or_skip("a_closed_connection_lets_its_namespace_go") {
        return;
    }
    // The far end of a pair disappears with the namespace of the near one, so its presence
    // tells whether a socket still holds that namespace.
    let far = TestNetns::new("far");
    let watcher = Rtnl::open_in(&far.netns).await.unwrap();
    let near = TestNetns::new("near");
    let rtnl = Rtnl::open_in(&near.netns).await.unwrap();
    rtnl.add_veth(&VethSpec {
        peer_target: Some(&far.netns),
        ..veth("v0", "v1")
    })
    .await
    .unwrap();
    drop(near);
    assert!(
        watcher.link_by_name("v1").await.unwrap().is_some(),
        "the socket holds it"
    );
    rtnl.close().await;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while watcher.link_by_name("v1").await.unwrap().is_some() {
        assert!(
            std::time::Instant::now() < deadline,
            "the namespace is still alive"
        );
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_dead_connection_is_an_error_not_silence() {
    let rtnl = Rtnl::open().unwrap();
    rtnl.connection.abort();
    while !rtnl.connection.is_finished() {
        tokio::task::yield_now().await;
    }
    let error = rtnl.links().await.unwrap_err();
    assert!(matches!(error, RtnlError::Closed { .. }), "{error}");
}

/// The probe says what a link that is really asked for meets, and leaves none.
#[tokio::test]
async fn the_vlan_probe_agrees_with_making_a_link() {
    if !root_or_skip("the_vlan_probe_agrees_with_making_a_link") {
        return;
    }
    let netns = TestNetns::new("vlan-probe");
    let rtnl = Rtnl::open_in(&netns.netns).await.unwrap();
    let probed = rtnl.probe_vlan().await.map_err(|error| error.errno());
    let links = rtnl.links().await.unwrap();
    assert!(links.iter().all(|link| link.kind != LinkKind::Vlan));
    rtnl.add_veth(&veth("v0", "v1")).await.unwrap();
    let parent = rtnl.link_by_name("v0").await.unwrap().unwrap().ifindex;
    let spec = VlanSpec {
        name: "v0.7",
        parent,
        vlan: 7.try_into().unwrap(),
        mac: "02:00:00:00:00:07".parse().unwrap(),
        mtu: 1500,
        target: &netns.netns,
    };
    let made = rtnl.add_vlan(&spec).await.map_err(|error| error.errno());
    assert_eq!(probed, made);
    rtnl.close().await;
}

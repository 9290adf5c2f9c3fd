//! The NIC engine on real VLAN links: root and a kernel with 8021q are needed, tests say so and
//! pass where they are missing. Judged by what the kernel shows afterwards.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panic, its shared code too; skips and figures are printed lines"
)]

mod failures;
mod rig;
mod takeover;

use std::fs;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use spiderpool_agent::nic::{Family, NicError, NicOps, NicSpec, PreflightResult};
use spiderpool_netops::netns::Netns;
use spiderpool_netops::rtnl::{LinkKind, Route};
use spiderpool_netops::sysctl::{SysctlKey, Sysctls};

use rig::{Named, Rig, bare, mac, spec, target};

/// Section 6 of the design: an eni-vlan attach after the claim.
const NETLINK_BUDGET: u64 = 15;

#[tokio::test]
#[ignore = "vm level"]
async fn a_dual_stack_nic_is_attached_within_the_budget_and_detached() {
    let Some(rig) = Rig::new("a_dual_stack_nic_is_attached_within_the_budget_and_detached").await
    else {
        return;
    };
    let pod = Named::new("pod");
    let gateway_mac = rig.bind(101).await;
    let spec = spec(&pod, 101);
    rig.nic
        .check_master(&spec.master, spec.parent_mac, None)
        .await
        .unwrap();
    let opened = rig
        .nic
        .open_target(&spec.netns, &spec.ifname)
        .await
        .unwrap();
    assert_eq!(
        (opened.netns_id, opened.vlan_link_present),
        (pod.0.id(), false)
    );

    let attached = rig.nic.attach(spec.clone()).await.unwrap();
    eprintln!(
        "netlink requests of a dual-stack attach: {}",
        attached.netlink_requests
    );
    assert!(attached.netlink_requests <= NETLINK_BUDGET, "{attached:?}");
    assert_eq!((attached.mtu, attached.reused), (1500, false));
    let gateways = ["10.71.0.1", "fd71::1"].map(|ip| (ip.parse().unwrap(), gateway_mac));
    assert_eq!(attached.gateway_macs, gateways);
    let families: Vec<_> = attached
        .preflight
        .iter()
        .map(|r| (r.family, r.result))
        .collect();
    assert_eq!(
        families,
        [
            (Family::V4, PreflightResult::Ok),
            (Family::V6, PreflightResult::Ok)
        ]
    );

    assert_as_specified(&pod, &spec).await;
    assert_eq!(rig.host.names().await, ["eth1", "eth2"]);
    rig.nic.check(spec.clone()).await.unwrap();
    assert!(rig.nic.detach(target(&spec, &pod)).await.unwrap());
    assert!(!rig.nic.detach(target(&spec, &pod)).await.unwrap());
    assert_eq!(pod.names().await, [""; 0]);
}

/// The kernel's view of a dual-stack NIC, read without the engine.
async fn assert_as_specified(pod: &Named, spec: &NicSpec) {
    let link = pod.link("net1").await.unwrap();
    assert_eq!(
        (link.kind, link.vlan, link.mac),
        (LinkKind::Vlan, Some(spec.vlan), Some(spec.mac))
    );
    assert_eq!((link.up, link.mtu), (true, 1500));
    assert_eq!(pod.names().await, ["net1"]);
    let rtnl = pod.rtnl().await;
    let present = rtnl.addresses(link.ifindex).await.unwrap();
    for wanted in &spec.addresses {
        assert!(
            present
                .iter()
                .any(|a| a.address == wanted.address && !a.tentative),
            "{present:?}"
        );
    }
    let routes = rtnl.routes(link.ifindex).await.unwrap();
    for (dst, gateway) in [("0.0.0.0/0", "10.71.0.1"), ("::/0", "fd71::1")] {
        let gateway = Some(gateway.parse().unwrap());
        assert!(
            routes.contains(&Route {
                dst: dst.parse().unwrap(),
                gateway,
                ifindex: link.ifindex
            }),
            "{routes:?}"
        );
    }
}

#[tokio::test]
#[ignore = "vm level"]
async fn sysctls_of_the_nic_follow_its_families() {
    let Some(rig) = Rig::new("sysctls_of_the_nic_follow_its_families").await else {
        return;
    };
    for (families, disabled) in [(2, "0"), (1, "1")] {
        let pod = Named::new("pod");
        let mut spec = bare(&pod, 102);
        spec.ifname = "net.1".parse().unwrap();
        spec.addresses.truncate(families);
        spec.routes.truncate(families);
        rig.nic.attach(spec.clone()).await.unwrap();
        let sysctls = Sysctls::default();
        for (key, value) in [
            (SysctlKey::ipv6_conf("net.1", "disable_ipv6"), disabled),
            (SysctlKey::ipv6_conf("net.1", "accept_ra"), "0"),
            (SysctlKey::ipv4_conf("net.1", "arp_ignore"), "1"),
            (SysctlKey::ipv4_conf("net.1", "arp_announce"), "2"),
        ] {
            let found = sysctls.read(&pod.0, &key).await.unwrap();
            assert_eq!(
                found.as_deref(),
                Some(value),
                "{key:?} with {families} families"
            );
        }
        let keep = sysctls
            .read(&pod.0, &SysctlKey::ipv6_conf("net.1", "keep_addr_on_down"))
            .await
            .unwrap();
        assert_eq!(keep.as_deref(), Some(if families == 2 { "1" } else { "0" }));
    }
}

#[tokio::test]
#[ignore = "vm level"]
async fn the_mac_is_the_users_from_the_first_moment() {
    let Some(rig) = Rig::new("the_mac_is_the_users_from_the_first_moment").await else {
        return;
    };
    for _ in 0..50 {
        let pod = Named::new("pod");
        let spec = bare(&pod, 106);
        rig.nic.attach(spec.clone()).await.unwrap();
        assert_eq!(pod.link("net1").await.unwrap().mac, Some(mac(0x0c)));
        // 3 = NET_ADDR_SET: udev's persistent-MAC policy leaves such links alone.
        assert_eq!(addr_assign_type(&pod.0, "net1"), "3");
    }
}

/// sysfs shows the namespace it was mounted in, so it is mounted in there.
fn addr_assign_type(netns: &Netns, ifname: &str) -> String {
    let read = || {
        let none: Option<&str> = None;
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none).unwrap();
        fs::read_to_string(format!("/sys/class/net/{ifname}/addr_assign_type")).unwrap()
    };
    netns.run(read).unwrap().trim().to_owned()
}

#[tokio::test]
#[ignore = "vm level"]
async fn a_gateway_outside_the_subnet_works() {
    let Some(rig) = Rig::new("a_gateway_outside_the_subnet_works").await else {
        return;
    };
    let pod = Named::new("pod");
    let mut spec = bare(&pod, 107);
    for (address, net) in spec
        .addresses
        .iter_mut()
        .zip(["10.71.0.10/32", "fd72::a/128"])
    {
        address.address = net.parse().unwrap();
    }
    let attached = rig.nic.attach(spec.clone()).await.unwrap();
    assert!(attached.netlink_requests <= NETLINK_BUDGET, "{attached:?}");
    rig.nic.check(spec).await.unwrap();
}

#[tokio::test]
#[ignore = "vm level"]
async fn a_master_that_is_down_is_set_up() {
    let Some(rig) = Rig::new("a_master_that_is_down_is_set_up").await else {
        return;
    };
    let eth1 = rig.host.link("eth1").await.unwrap();
    rig.host.rtnl().await.set_down(eth1.ifindex).await.unwrap();
    let pod = Named::new("pod");
    rig.nic.attach(bare(&pod, 108)).await.unwrap();
    assert!(rig.host.link("eth1").await.unwrap().up);
}

#[tokio::test]
#[ignore = "vm level"]
async fn a_hundred_cycles_on_one_vlan_leave_nothing() {
    let Some(rig) = Rig::new("a_hundred_cycles_on_one_vlan_leave_nothing").await else {
        return;
    };
    rig.bind(109).await;
    let count = |dir: &str| fs::read_dir(dir).unwrap().count();
    let mut first = None;
    for _ in 0..100 {
        let pod = Named::new("pod");
        let spec = spec(&pod, 109);
        rig.nic.attach(spec.clone()).await.unwrap();
        assert!(rig.nic.detach(target(&spec, &pod)).await.unwrap());
        drop(pod);
        let now = count("/proc/self/fd");
        // The test harness starts and ends threads of its own, so only descriptors are compared.
        assert!(
            now <= *first.get_or_insert(now),
            "{now} descriptors, {first:?} after the first cycle"
        );
    }
    assert_eq!(rig.host.names().await, ["eth1", "eth2"]);
}

#[tokio::test]
#[ignore = "vm level"]
async fn check_names_every_difference() {
    let Some(rig) = Rig::new("check_names_every_difference").await else {
        return;
    };
    let pod = Named::new("pod");
    let attached = bare(&pod, 110);
    let missing = rig.nic.check(attached.clone()).await.unwrap_err();
    assert!(missing.to_string().contains("does not exist"), "{missing}");
    rig.nic.attach(attached.clone()).await.unwrap();
    rig.nic.check(attached.clone()).await.unwrap();

    let mut other = attached.clone();
    other.mac = mac(0x0d);
    other.vlan = spec(&pod, 111).vlan;
    other.master = "eth2".parse().unwrap();
    other.mtu = Some(1400);
    other.addresses[0].address = "10.71.0.99/24".parse().unwrap();
    other.routes[0].dst = "10.99.0.0/16".parse().unwrap();
    let error = rig.nic.check(other).await.unwrap_err();
    assert!(matches!(error, NicError::Drift { .. }), "{error}");
    for part in [
        "110, not 111",
        "MAC",
        "MTU is 1500, not 1400",
        "eth2",
        "10.71.0.99/24",
        "10.99.0.0/16",
    ] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    let link = pod.link("net1").await.unwrap();
    pod.rtnl().await.set_down(link.ifindex).await.unwrap();
    let error = rig.nic.check(attached).await.unwrap_err();
    assert!(error.to_string().contains("it is down"), "{error}");
}

//! The guest kernel has what the later suites take for granted.
//!
//! Judged by kernel state: the links are made by netops and read back.

use std::fs;

use nix::sched::{CloneFlags, unshare};
use spiderpool_api::value::{Mac, VlanId};
use spiderpool_netops::netns::Netns;
use spiderpool_netops::rtnl::{Rtnl, VethSpec, VlanSpec};

/// Runs `work` on a runtime in a network namespace of its own.
#[expect(
    clippy::unwrap_used,
    reason = "clippy knows only the test functions themselves"
)]
fn in_new_netns<F: Future>(work: impl FnOnce() -> F + Send) -> F::Output
where
    F::Output: Send,
{
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(work())
        });
        thread.join().unwrap()
    })
}

#[test]
#[ignore = "vm level"]
fn a_vlan_link_goes_straight_into_another_namespace() {
    let pod = Netns::create("/run/netns/vm-smoke").unwrap();
    let mac = "02:00:00:00:01:64".parse::<Mac>().unwrap();
    let vlan = VlanId::try_from(100_i64).unwrap();
    let seen = in_new_netns(|| async {
        let node = Rtnl::open().unwrap();
        let spec = VethSpec {
            name: "eth0",
            peer: "peer0",
            peer_target: None,
            mac: None,
            peer_mac: None,
        };
        node.add_veth(&spec).await.unwrap();
        let parent = node.link_by_name("eth0").await.unwrap().unwrap();
        let spec = VlanSpec {
            name: "sub0",
            parent: parent.ifindex,
            vlan,
            mac,
            mtu: parent.mtu,
            target: &pod,
        };
        node.add_vlan(&spec).await.unwrap();
        let inside = Rtnl::open_in(&pod).await.unwrap();
        let seen = inside.link_by_name("sub0").await.unwrap().unwrap();
        inside.close().await;
        node.close().await;
        seen
    });
    assert_eq!(seen.mac, Some(mac));
    assert_eq!(seen.vlan, Some(vlan));
    assert!(
        seen.parent_nsid.is_some(),
        "the parent is in another namespace: {seen:?}"
    );
    Netns::remove("/run/netns/vm-smoke").unwrap();
}

#[test]
#[ignore = "vm level"]
fn the_guest_is_what_the_suites_expect() {
    assert!(fs::exists("/proc/net/vlan").unwrap(), "8021q");
    assert!(fs::exists("/proc/sys/net/ipv6/conf/lo").unwrap(), "ipv6");
    for module in [
        "bonding",
        "ipvlan",
        "macvlan",
        "veth",
        "sch_ingress",
        "cls_bpf",
    ] {
        assert!(
            fs::exists(format!("/sys/module/{module}")).unwrap(),
            "{module}"
        );
    }
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    for mount in [
        "tmpfs /run ",
        "tmpfs /tmp ",
        "tmpfs /var/lib ",
        "bpf /sys/fs/bpf ",
    ] {
        assert!(mounts.contains(mount), "{mount:?} in {mounts}");
    }
    // a Unix socket and a lock, which hostfs cannot hold, work where the agent puts them
    std::os::unix::net::UnixListener::bind("/var/run/vm-smoke.sock").unwrap();
    let lo = fs::read_to_string("/sys/class/net/lo/flags").unwrap();
    assert_eq!(lo.trim(), "0x9", "loopback is up");
}

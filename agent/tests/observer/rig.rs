//! A parent NIC in a namespace of its own, the other end of its cable in a second one, a folder
//! for pins, and frames by hand.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use nix::unistd::Uid;
use spiderpool_agent::observer::{Entry, KernelObserver, ObserverOps, ObserverSettings, Place};
use spiderpool_api::observer_v1::{ObserverReport, SubEniReport};
use spiderpool_api::value::{IfName, Mac, VlanId};
use spiderpool_netops::netns::Netns;
use spiderpool_netops::packet::RawSocket;
use spiderpool_netops::packet::vnet::VnetHdr;
use spiderpool_netops::rtnl::{Filter, Hook, Rtnl, VethSpec};

use crate::offload;

pub(crate) const PARENT: &str = "eth1";
const PEER: &str = "peer";
/// The parent NIC's own MAC.
pub(crate) const PARENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(crate) const SUB_MAC: [u8; 6] = [0xfa, 0x16, 0x3e, 0, 1, 1];
pub(crate) const FORGED_MAC: [u8; 6] = [0xfa, 0x16, 0x3e, 9, 9, 9];
pub(crate) const SUB_V4: Ipv4Addr = Ipv4Addr::new(172, 91, 0, 100);
pub(crate) const SUB_V6: Ipv6Addr = Ipv6Addr::new(0xfd91, 0, 0, 0, 0, 0, 0, 0x100);
pub(crate) const VLAN: u16 = 101;

/// Which end a frame is sent from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum From {
    /// Leaves the node: egress of the parent NIC.
    Node,
    /// Comes to the node: ingress.
    Fabric,
}

pub(crate) struct Rig {
    pub(crate) host: Netns,
    far: Netns,
    pub(crate) ifindex: u32,
    near_socket: RawSocket,
    far_socket: RawSocket,
    pub(crate) bpf_dir: PathBuf,
    dir: tempfile::TempDir,
}

/// `None`, with the line the runner counts, without root.
pub(crate) async fn rig(test: &str) -> Option<Rig> {
    if !Uid::effective().is_root() {
        eprintln!("SKIPPED {test}: needs root (BPF, network namespaces)");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let host = Netns::create(dir.path().join("host")).unwrap();
    let far = Netns::create(dir.path().join("far")).unwrap();
    let ifindex = cable(&host, &far, PARENT).await;
    let far_index = index_of(&far, PEER).await;
    let bpf_dir = dir.path().join("bpf");
    Some(Rig {
        near_socket: host.run(|| RawSocket::open(ifindex)).unwrap().unwrap(),
        far_socket: far.run(|| RawSocket::open(far_index)).unwrap().unwrap(),
        host,
        far,
        ifindex,
        bpf_dir,
        dir,
    })
}

async fn index_of(netns: &Netns, name: &str) -> u32 {
    let rtnl = Rtnl::open_in(netns).await.unwrap();
    let index = rtnl.link_by_name(name).await.unwrap().unwrap().ifindex;
    rtnl.close().await;
    index
}

/// A veth pair without addresses, so that only the test sends.
async fn cable(host: &Netns, far: &Netns, name: &str) -> u32 {
    for netns in [host, far] {
        let written =
            netns.run(|| std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"));
        written.unwrap().unwrap();
    }
    let near = Rtnl::open_in(host).await.unwrap();
    let spec = VethSpec {
        name,
        peer: PEER,
        peer_target: Some(far),
        mac: Some(Mac::new(PARENT_MAC)),
        peer_mac: Some(Mac::new(PEER_MAC)),
    };
    near.add_veth(&spec).await.unwrap();
    let ifindex = near.link_by_name(name).await.unwrap().unwrap().ifindex;
    near.set_up(ifindex).await.unwrap();
    near.close().await;
    let other = Rtnl::open_in(far).await.unwrap();
    let peer = other.link_by_name(PEER).await.unwrap().unwrap().ifindex;
    other.set_up(peer).await.unwrap();
    other.close().await;
    ifindex
}

impl Rig {
    /// An observer as a starting agent makes it, with the parent NIC attached.
    pub(crate) async fn start(&self, entries: Vec<Entry>) -> KernelObserver {
        let settings = ObserverSettings::new(self.bpf_dir.clone());
        let observer = KernelObserver::new(settings, self.host.clone());
        let wanted = Box::new(move || entries);
        observer
            .reconcile(vec![PARENT.parse().unwrap()], wanted)
            .await;
        observer
    }

    pub(crate) fn send(&self, from: From, frame: &[u8]) {
        let socket = match from {
            From::Node => &self.near_socket,
            From::Fabric => &self.far_socket,
        };
        socket.try_send(frame, None, VnetHdr::default()).unwrap();
    }

    /// Tags stay in the bytes on the wire, and the parent NIC does not take them out.
    pub(crate) fn without_vlan_offload(&self) {
        let off = |netns: &Netns, name: &str| {
            netns
                .run(|| offload::switch_off_vlan(name))
                .unwrap()
                .unwrap();
        };
        off(&self.host, PARENT);
        off(&self.far, PEER);
    }

    /// Priority and handle of the filters of both directions, sent ones last.
    pub(crate) async fn filters(&self) -> [Vec<Filter>; 2] {
        let rtnl = Rtnl::open_in(&self.host).await.unwrap();
        let mut both = [Vec::new(), Vec::new()];
        for (filters, hook) in both.iter_mut().zip([Hook::Ingress, Hook::Egress]) {
            *filters = rtnl.filters(self.ifindex, hook).await.unwrap_or_default();
            filters.sort();
        }
        rtnl.close().await;
        both
    }

    /// Kind of the qdisc of a NIC.
    pub(crate) async fn qdisc(&self, ifindex: u32) -> Option<String> {
        let rtnl = Rtnl::open_in(&self.host).await.unwrap();
        let kind = rtnl.ingress_qdisc(ifindex).await.unwrap();
        rtnl.close().await;
        kind
    }

    /// Somebody else's qdisc of kind `ingress`.
    pub(crate) async fn add_ingress_qdisc(&self, ifindex: u32) {
        let runtime = tokio::runtime::Handle::current();
        let opened = self.host.run(|| {
            let _entered = runtime.enter();
            rtnetlink::new_connection()
        });
        let (connection, handle, _) = opened.unwrap().unwrap();
        let connection = tokio::spawn(connection);
        let index = i32::try_from(ifindex).unwrap();
        let added = handle.qdisc().add(index).ingress().execute().await;
        added.unwrap();
        connection.abort();
    }

    /// A second NIC, to `far` as well.
    pub(crate) async fn second_nic(&self, name: &str) -> u32 {
        let third = Netns::create(self.dir.path().join(name)).unwrap();
        cable(&self.host, &third, name).await
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Only what the rig made; what was never mounted or made is no failure.
        umount2(&self.bpf_dir, MntFlags::MNT_DETACH).ok();
        for entry in std::fs::read_dir(self.dir.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                Netns::remove(entry.path()).ok();
            }
        }
    }
}

pub(crate) fn entry(vlan: u16, container: &str) -> Entry {
    Entry {
        place: place(vlan, container),
        mac: Mac::new(SUB_MAC),
        ipv4: Some(SUB_V4),
        ipv6: Some(SUB_V6),
        gateways: vec!["172.91.0.1".parse().unwrap()],
        pools: vec!["p".to_owned()],
        pod_uid: format!("uid-{container}"),
        pod_namespace: "default".to_owned(),
        pod_name: container.to_owned(),
        ifname: "net1".parse().unwrap(),
    }
}

pub(crate) fn place(vlan: u16, container: &str) -> Place {
    Place {
        nic: nic(),
        vlan: VlanId::try_from(i64::from(vlan)).unwrap(),
        container_id: container.to_owned(),
    }
}

pub(crate) fn nic() -> IfName {
    PARENT.parse().unwrap()
}

pub(crate) fn sub_eni(report: &ObserverReport) -> &SubEniReport {
    report.subeni.first().unwrap()
}

/// An Ethernet frame, tags in the bytes.
pub(crate) fn frame(
    dst: [u8; 6],
    src: [u8; 6],
    tags: &[(u16, u16)],
    ethertype: u16,
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = [dst, src].concat();
    for (tpid, tci) in tags {
        frame.extend(tpid.to_be_bytes());
        frame.extend(tci.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// What the sub-ENI sends with its tag.
pub(crate) fn sent(src: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    frame(PEER_MAC, src, &[(0x8100, VLAN)], ethertype, payload)
}

pub(crate) fn ipv4(src: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend(src.octets());
    packet.extend([172, 91, 0, 1]);
    packet
}

pub(crate) fn ipv6(src: Ipv6Addr) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, 59, 64];
    packet.extend(src.octets());
    packet.extend("fd91::1".parse::<Ipv6Addr>().unwrap().octets());
    packet
}

pub(crate) fn arp(sha: [u8; 6], spa: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1];
    packet.extend(sha);
    packet.extend(spa.octets());
    packet.extend([0; 6]);
    packet.extend([172, 91, 0, 1]);
    packet
}

/// Waits until a report shows what is expected; frames cross a veth in their own time.
pub(crate) async fn until(
    observer: &KernelObserver,
    wanted: impl Fn(&ObserverReport) -> bool,
) -> ObserverReport {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    loop {
        let report = observer.report().await;
        if wanted(&report) {
            return report;
        }
        assert!(tokio::time::Instant::now() < deadline, "{report:#?}");
        tokio::task::yield_now().await;
    }
}

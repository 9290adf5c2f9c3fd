//! A cloud in three network namespaces: the fabric, a node with two parent NICs, the gateway.
//! A fourth holds a Pod whose link is untagged: [`Tagger`] is its VLAN sub-interface, so that real
//! TCP runs on kernels without 8021q.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::net::if_::if_nametoindex;
use provider_sim::fabric::counters::Reason;
use provider_sim::fabric::ports::Sockets;
use provider_sim::fabric::run::Running;
use provider_sim::topology::Topology;
use spiderpool_api::value::Mac;
use spiderpool_netops::netns::Netns;
use spiderpool_netops::packet::vnet::{VlanTag, VnetHdr};
use spiderpool_netops::packet::{AsyncRaw, RawSocket, Received};
use spiderpool_netops::rtnl::{Rtnl, VethSpec};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

/// Time for anything that must happen; generous, for a loaded machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

pub(crate) const GATEWAY: Mac = Mac::new([0xfa, 0x16, 0x3e, 0xff, 0xff, 0xfe]);
pub(crate) const PARENT: [Mac; 2] = [
    Mac::new([0xfa, 0x16, 0x3e, 1, 0, 1]),
    Mac::new([0xfa, 0x16, 0x3e, 1, 0, 2]),
];

const POD_ADDRESSES: [&str; 2] = ["172.16.0.10/24", "fd00:16::a/64"];

/// MAC of the Pod with this last octet in its addresses.
pub(crate) const fn pod(host: u8) -> Mac {
    Mac::new([0xfa, 0x16, 0x3e, 0, 0, host])
}

/// Pods 10 (node port 1, VLAN 100), 11 (port 2, VLAN 100), 30 (unbound) and 31 (detaching).
pub(crate) const TOPOLOGY: &str = r#"
parents:
  - {node: n1, mac: "fa:16:3e:01:00:01", ifname: p1}
  - {node: n2, mac: "fa:16:3e:01:00:02", ifname: p2}
subnets:
  - ipv4: 172.16.0.0/24
    ipv6: fd00:16::/64
    gatewayIpv4: 172.16.0.1
    gatewayIpv6: fd00:16::1
    gatewayMac: fa:16:3e:ff:ff:fe
gateway: {ifname: gw0}
bindings:
  - {parent: "fa:16:3e:01:00:01", vlan: 100, mac: "fa:16:3e:00:00:0a", ipv4: 172.16.0.10, ipv6: "fd00:16::a"}
  - {parent: "fa:16:3e:01:00:02", vlan: 100, mac: "fa:16:3e:00:00:0b", ipv4: 172.16.0.11, ipv6: "fd00:16::b"}
  - {parent: "fa:16:3e:01:00:01", vlan: 130, mac: "fa:16:3e:00:00:1e", ipv4: 172.16.0.30, state: unbound}
  - {parent: "fa:16:3e:01:00:01", vlan: 131, mac: "fa:16:3e:00:00:1f", ipv4: 172.16.0.31, state: detaching}
"#;

/// Whether the test may run; prints the line the test runner counts when not.
pub(crate) fn root_or_skip(test: &str) -> bool {
    let root = nix::unistd::Uid::effective().is_root();
    if !root {
        eprintln!("SKIPPED {test}: needs root (network namespaces, packet sockets)");
    }
    root
}

/// The namespaces and their links, without a fabric.
pub(crate) struct Wires {
    pub(crate) fabric: Netns,
    pub(crate) node: Netns,
    pub(crate) gateway: Netns,
    pub(crate) pod: Netns,
    paths: Vec<PathBuf>,
    dir: tempfile::TempDir,
}

impl Drop for Wires {
    fn drop(&mut self) {
        for path in &self.paths {
            Netns::remove(path).unwrap();
        }
    }
}

impl Wires {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let names = ["fabric", "node", "gateway", "pod"];
        let paths: Vec<PathBuf> = names.iter().map(|name| dir.path().join(name)).collect();
        let [fabric, node, gateway, pod_netns] =
            [0, 1, 2, 3].map(|at: usize| Netns::create(&paths[at]).unwrap());
        let pairs = [
            (&fabric, "p1", &node, "n1", PARENT[0]),
            (&fabric, "p2", &node, "n2", PARENT[1]),
            (&fabric, "gw0", &gateway, "eth0", GATEWAY),
            (&node, "w0", &pod_netns, "eth0", pod(10)),
        ];
        for (here, name, there, peer, peer_mac) in pairs {
            veth(here, name, there, peer, peer_mac).await;
        }
        for (here, name, there, peer, _) in pairs {
            wait_until_it_carries(&listen(here, name), &listen(there, peer)).await;
        }
        addresses(&gateway, ["172.16.0.1/24", "fd00:16::1/64"]).await;
        addresses(&pod_netns, POD_ADDRESSES).await;
        Self {
            fabric,
            node,
            gateway,
            pod: pod_netns,
            paths,
            dir,
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A socket on a link of the node.
    pub(crate) fn open(&self, ifname: &'static str) -> AsyncRaw {
        listen(&self.node, ifname)
    }
}

fn listen(netns: &Netns, ifname: &'static str) -> AsyncRaw {
    let open = move || RawSocket::open(if_nametoindex(ifname).unwrap()).unwrap();
    AsyncRaw::register(netns.run(open).unwrap()).unwrap()
}

/// The kernel notices the carrier of a fresh veth a little after both ends are up and loses frames
/// silently until then.
async fn wait_until_it_carries(here: &AsyncRaw, there: &AsyncRaw) {
    let marker = [[0xfe; 12].as_slice(), &[0x88, 0xb5], &[0xee; 46]].concat();
    let deadline = Instant::now() + DEADLINE;
    for (from, to) in [(here, there), (there, here)] {
        let mut buffer = vec![0; 2048];
        let mut arrived = false;
        while !arrived {
            assert!(Instant::now() < deadline, "a veth carries nothing");
            from.try_send(&marker, None, VnetHdr::default()).unwrap();
            let round = Instant::now() + Duration::from_millis(100);
            while let Ok(received) = timeout_at(round, to.recv(&mut buffer)).await {
                arrived = buffer[..received.unwrap().len] == marker;
                if arrived {
                    break;
                }
            }
        }
    }
}

/// [`Wires`] with a fabric moving frames on them.
pub(crate) struct Lab {
    pub(crate) running: Running,
    pub(crate) wires: Wires,
}

impl Lab {
    pub(crate) async fn new() -> Self {
        let wires = Wires::new().await;
        let topology: Topology = serde_saphyr::from_str(TOPOLOGY).unwrap();
        let opened = wires.fabric.run(|| Sockets::open(&topology)).unwrap();
        let running = Running::start(topology, opened.unwrap()).unwrap();
        Self { running, wires }
    }

    pub(crate) fn drops(&self) -> BTreeMap<Reason, u64> {
        let drops = self.running.fabric.counters().drops;
        drops.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

async fn veth(here: &Netns, name: &str, there: &Netns, peer: &str, peer_mac: Mac) {
    let rtnl = Rtnl::open_in(here).await.unwrap();
    let spec = VethSpec {
        name,
        peer,
        peer_target: Some(there),
        mac: None,
        peer_mac: Some(peer_mac),
    };
    rtnl.add_veth(&spec).await.unwrap();
    let other = Rtnl::open_in(there).await.unwrap();
    for (rtnl, name) in [(rtnl, name), (other, peer)] {
        let link = rtnl.link_by_name(name).await.unwrap().unwrap();
        rtnl.set_up(link.ifindex).await.unwrap();
    }
}

async fn addresses(netns: &Netns, texts: [&str; 2]) {
    let rtnl = Rtnl::open_in(netns).await.unwrap();
    let link = rtnl.link_by_name("eth0").await.unwrap().unwrap();
    for text in texts {
        rtnl.add_address(link.ifindex, text.parse().unwrap())
            .await
            .unwrap();
    }
}

/// The first frame on `socket` that `wanted` takes, with the time it came.
pub(crate) async fn expect_frame(
    socket: &AsyncRaw,
    what: &str,
    wanted: impl Fn(&Received, &[u8]) -> bool,
) -> (Instant, Vec<u8>) {
    let deadline = Instant::now() + DEADLINE;
    let mut buffer = vec![0; 70_000];
    loop {
        let received = timeout_at(deadline, socket.recv(&mut buffer)).await;
        let received = received
            .unwrap_or_else(|_| panic!("no {what} in time"))
            .unwrap();
        let frame = &buffer[..received.len];
        if wanted(&received, frame) {
            return (Instant::now(), frame.to_vec());
        }
    }
}

/// Moves frames between the Pod's untagged wire and a parent NIC, adding and removing a tag.
pub(crate) struct Tagger {
    tasks: [JoinHandle<()>; 2],
    longest: Arc<AtomicUsize>,
}

impl Drop for Tagger {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Tagger {
    pub(crate) fn start(wires: &Wires, vlan: u16) -> Self {
        let (pod, parent) = (Arc::new(wires.open("w0")), Arc::new(wires.open("n1")));
        let longest = Arc::new(AtomicUsize::new(0));
        let tag = VlanTag::customer(vlan);
        let out = copy(
            Arc::clone(&pod),
            None,
            Arc::clone(&parent),
            Some(tag),
            &longest,
        );
        let back = copy(parent, Some(tag), pod, None, &longest);
        Self {
            tasks: [out, back],
            longest,
        }
    }

    /// Longest frame so far in either direction; above the MTU = unsegmented TCP passed.
    pub(crate) fn longest(&self) -> usize {
        self.longest.load(Ordering::Relaxed)
    }
}

fn copy(
    from: Arc<AsyncRaw>,
    only: Option<VlanTag>,
    to: Arc<AsyncRaw>,
    tag: Option<VlanTag>,
    longest: &Arc<AtomicUsize>,
) -> JoinHandle<()> {
    let longest = Arc::clone(longest);
    tokio::spawn(async move {
        let mut buffer = vec![0; 70_000];
        loop {
            let received = from.recv(&mut buffer).await.unwrap();
            if received.tag != only {
                continue;
            }
            longest.fetch_max(received.len, Ordering::Relaxed);
            // A full queue loses the frame; TCP sends it again.
            drop(to.try_send(&buffer[..received.len], tag, received.offload));
        }
    })
}

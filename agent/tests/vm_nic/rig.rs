//! A node, a fabric and Pods, each a network namespace: `eth1` and `eth2` of the node are veth
//! ends, the other ends are in the fabric. A VLAN link with the gateway's address on a fabric end
//! is the cloud answering for that VLAN.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::unistd::Uid;
use spiderpool_agent::nic::{KernelNic, NicAddress, NicRoute, NicSpec, NicTarget, Preflight};
use spiderpool_api::value::{Mac, VlanId};
use spiderpool_netops::netns::Netns;
use spiderpool_netops::rtnl::{Link, Rtnl, VethSpec, VlanSpec};
use spiderpool_netops::sysctl::Sysctls;
use tokio::sync::{Mutex, MutexGuard};

/// Named namespaces of the tests: one of the places the search for a VLAN's holder knows.
const NETNS_DIR: &str = "/var/run/netns";
/// One test at a time: some count the file descriptors of the process.
static SERIAL: Mutex<()> = Mutex::const_new(());

pub(crate) struct Rig {
    pub(crate) nic: KernelNic,
    pub(crate) host: Named,
    pub(crate) fabric: Named,
    _serial: MutexGuard<'static, ()>,
}

/// A namespace with a name; both go away with the value.
pub(crate) struct Named(pub(crate) Netns);

impl Named {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "nic-{}-{}-{name}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        Self(Netns::create(Path::new(NETNS_DIR).join(name)).unwrap())
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    pub(crate) async fn rtnl(&self) -> Rtnl {
        Rtnl::open_in(&self.0).await.unwrap()
    }

    pub(crate) async fn link(&self, name: &str) -> Option<Link> {
        self.rtnl().await.link_by_name(name).await.unwrap()
    }

    /// Names of all links but `lo`.
    pub(crate) async fn names(&self) -> Vec<String> {
        let links = self.rtnl().await.links().await.unwrap();
        let mut names: Vec<_> = links
            .into_iter()
            .map(|l| l.name)
            .filter(|n| n != "lo")
            .collect();
        names.sort();
        names
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        Netns::remove(self.0.path()).unwrap();
    }
}

impl Rig {
    /// `None` after a line that says why the test is skipped.
    pub(crate) async fn new(test: &str) -> Option<Self> {
        if !Uid::effective().is_root() {
            eprintln!("SKIPPED {test}: needs root (network namespaces)");
            return None;
        }
        let serial = SERIAL.lock().await;
        let (host, fabric) = (Named::new("host"), Named::new("fabric"));
        let rtnl = host.rtnl().await;
        for (name, last) in [("eth1", 1), ("eth2", 2)] {
            let mac = Some(Mac::new([2, 0, 0, 0, 1, last]));
            let veth = VethSpec {
                name,
                peer: name,
                peer_target: Some(&fabric.0),
                mac,
                peer_mac: None,
            };
            rtnl.add_veth(&veth).await.unwrap();
            let far = fabric.link(name).await.unwrap();
            fabric.rtnl().await.set_up(far.ifindex).await.unwrap();
            rtnl.set_up(host.link(name).await.unwrap().ifindex)
                .await
                .unwrap();
        }
        let nic = KernelNic::over(host.0.clone(), Sysctls::default());
        let rig = Self {
            nic,
            host,
            fabric,
            _serial: serial,
        };
        let scratch = Named::new("scratch");
        match rig
            .add_vlan(&rig.host, "eth1", 4094, &scratch, "probe")
            .await
        {
            Err(Errno::EOPNOTSUPP) => {
                eprintln!("SKIPPED {test}: needs a kernel with 8021q (VLAN links)");
                None
            }
            other => {
                other.unwrap();
                Some(rig)
            }
        }
    }

    pub(crate) async fn add_vlan(
        &self,
        parent_netns: &Named,
        parent: &str,
        vlan: i64,
        target: &Named,
        name: &str,
    ) -> Result<Link, Errno> {
        let parent = parent_netns.link(parent).await.unwrap();
        let vlan = VlanId::try_from(vlan).unwrap();
        let spec = VlanSpec {
            name,
            parent: parent.ifindex,
            vlan,
            mac: mac(0xee),
            mtu: 1500,
            target: &target.0,
        };
        match parent_netns.rtnl().await.add_vlan(&spec).await {
            Ok(()) => Ok(target.link(name).await.unwrap()),
            Err(error) => Err(error.errno().unwrap()),
        }
    }

    /// The cloud binds the VLAN on `eth1`: gateways 10.71.0.1 and fd71::1 answer in it.
    pub(crate) async fn bind(&self, vlan: i64) -> Mac {
        let name = format!("gw{vlan}");
        let link = self
            .add_vlan(&self.fabric, "eth1", vlan, &self.fabric, &name)
            .await
            .unwrap();
        let rtnl = self.fabric.rtnl().await;
        rtnl.set_up(link.ifindex).await.unwrap();
        for address in ["10.71.0.1/24", "fd71::1/64"] {
            rtnl.add_address(link.ifindex, address.parse().unwrap())
                .await
                .unwrap();
        }
        link.mac.unwrap()
    }
}

pub(crate) fn mac(last: u8) -> Mac {
    Mac::new([0xfa, 0x16, 0x3e, 0, 0x71, last])
}

/// A dual-stack NIC `net1` on `eth1` with pre-flight.
pub(crate) fn spec(pod: &Named, vlan: i64) -> NicSpec {
    let address = |address: &str, gateway: &str| NicAddress {
        address: address.parse().unwrap(),
        gateway: Some(gateway.parse().unwrap()),
    };
    let default = |dst: &str| NicRoute {
        dst: dst.parse().unwrap(),
        gw: None,
    };
    NicSpec {
        container_id: pod.path().display().to_string(),
        ifname: "net1".parse().unwrap(),
        netns: pod.path(),
        master: "eth1".parse().unwrap(),
        vlan: VlanId::try_from(vlan).unwrap(),
        mac: mac(0x0c),
        mtu: None,
        parent_mac: Some(Mac::new([2, 0, 0, 0, 1, 1])),
        addresses: vec![
            address("10.71.0.10/24", "10.71.0.1"),
            address("fd71::a/64", "fd71::1"),
        ],
        routes: vec![default("0.0.0.0/0"), default("::/0")],
        preflight: Some(Preflight {
            attempts: 3,
            timeout: std::time::Duration::from_millis(500),
        }),
    }
}

/// The same without pre-flight, for tests that bind no gateway.
pub(crate) fn bare(pod: &Named, vlan: i64) -> NicSpec {
    NicSpec {
        preflight: None,
        ..spec(pod, vlan)
    }
}

pub(crate) fn target(spec: &NicSpec, pod: &Named) -> NicTarget {
    NicTarget {
        ifname: spec.ifname.clone(),
        netns: spec.netns.clone(),
        netns_id: Some(pod.0.id()),
        master: Some(spec.master.clone()),
        vlan: Some(spec.vlan),
        mac: Some(spec.mac),
    }
}

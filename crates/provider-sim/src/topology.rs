//! What the cloud consists of: nodes with parent NICs, subnets with gateways, bindings.
//!
//! Owns the file format (`--topology`, YAML) and nothing at run time. A file whose parts do not fit
//! together is refused ([`check`]), whether frames are moved or not.

mod check;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use spiderpool_api::value::{IfName, Mac, VlanId};
use spiderpool_iaas::regular_file;

pub use check::{PoolsError, UnfitError};

/// Longest topology or settings, bytes.
const MAX_FILE: u64 = 16 << 20;

/// Measured answer time of a cloud gateway to ARP, milliseconds.
pub const DEFAULT_ANSWER_DELAY_MS: u64 = 48;
/// Sub-ENIs a parent NIC carries unless the file says otherwise.
pub const DEFAULT_SUB_ENI_LIMIT: usize = 256;

/// Why a topology file was refused. Names the file.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// Not readable.
    #[error("cannot read topology {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Its parts contradict each other.
    #[error("topology {} does not fit together", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The first contradiction.
        source: UnfitError,
    },
    /// Not the format described here.
    #[error("topology {} is not valid", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line, column and what was expected.
        source: Box<serde_saphyr::Error>,
    },
}

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Topology {
    /// Parent NICs of all nodes.
    pub parents: Vec<Parent>,
    /// Subnets the bindings lie in.
    pub subnets: Vec<Subnet>,
    /// Where frames for a subnet's gateway go.
    pub gateway: GatewayPort,
    /// Sub-ENIs attached at the start.
    #[serde(default)]
    pub bindings: Vec<Binding>,
    /// Pools of a provider that is not told of them by a Kubernetes API.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolSpec>,
    /// How long the gateway takes to answer ARP and Neighbor Solicitations, milliseconds.
    #[serde(default = "default_answer_delay_ms")]
    pub answer_delay_ms: u64,
    /// Whether Neighbor Solicitations from link-local addresses and `::` are accepted from a
    /// bound MAC. Linux asks from its link-local address when it checks a known neighbour.
    #[serde(default = "default_allow_link_local")]
    pub allow_link_local: bool,
    /// How many of the last frames are kept with what became of them; 0: none.
    #[serde(default)]
    pub packet_log: usize,
}

/// One parent NIC: a wire to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Parent {
    /// Name of the node it belongs to.
    pub node: String,
    /// Its MAC inside the node.
    pub mac: Mac,
    /// The fabric's end of the wire.
    pub ifname: IfName,
    /// How many sub-ENIs it carries at most.
    #[serde(default = "default_sub_eni_limit")]
    pub sub_eni_limit: usize,
}

/// One subnet; at least one family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Subnet {
    /// IPv4 range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<Ipv4Net>,
    /// IPv6 range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Ipv6Net>,
    /// Address of the gateway in the IPv4 range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_ipv4: Option<Ipv4Addr>,
    /// Address of the gateway in the IPv6 range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_ipv6: Option<Ipv6Addr>,
    /// MAC of the interface that carries the gateway addresses; subnets may share it.
    pub gateway_mac: Mac,
}

/// The wire to the network namespace that routes between the subnets. It carries the gateway
/// addresses untagged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GatewayPort {
    /// The fabric's end of the wire.
    pub ifname: IfName,
}

/// One sub-ENI as the cloud has it attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Binding {
    /// MAC of the parent NIC it is attached to.
    pub parent: Mac,
    /// Its VLAN on that parent.
    pub vlan: VlanId,
    /// Its own MAC.
    pub mac: Mac,
    /// Its IPv4 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<Ipv4Addr>,
    /// Its IPv6 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Ipv6Addr>,
    /// The pool it was made for; the fabric only shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Whether its frames pass.
    #[serde(default)]
    pub state: BindingState,
}

impl Binding {
    /// Its addresses, IPv4 first.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let v4 = self.ipv4.map(IpAddr::V4);
        v4.into_iter().chain(self.ipv6.map(IpAddr::V6))
    }
}

/// A pool as the provider has to know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolSpec {
    /// Its name.
    pub name: String,
    /// Its subnet.
    pub subnet: IpNet,
    /// Addresses and ranges.
    pub ips: Vec<String>,
    /// The node of a prewarm pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The pool of the other family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<String>,
}

/// How far an attachment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BindingState {
    /// Attached: frames pass.
    #[default]
    Bound,
    /// Made but not attached, or attaching.
    Unbound,
    /// The cloud has begun to detach it.
    Detaching,
}

impl Topology {
    /// Reads a topology file. Blocks.
    ///
    /// # Errors
    /// [`TopologyError`]; an unknown key is one.
    pub fn read(path: &Path) -> Result<Self, TopologyError> {
        let path_of = || path.to_owned();
        let text = read_text(path).map_err(|source| TopologyError::Read {
            path: path_of(),
            source,
        })?;
        let topology: Self =
            serde_saphyr::from_str(&text).map_err(|error| TopologyError::Parse {
                path: path_of(),
                source: Box::new(error),
            })?;
        topology.check().map_err(|source| TopologyError::Unfit {
            path: path_of(),
            source,
        })?;
        Ok(topology)
    }
}

/// The text of a file that a person writes. Blocks, but not for a pipe.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let text = regular_file::read(path, MAX_FILE)?;
    String::from_utf8(text).map_err(io::Error::other)
}

const fn default_answer_delay_ms() -> u64 {
    DEFAULT_ANSWER_DELAY_MS
}

const fn default_sub_eni_limit() -> usize {
    DEFAULT_SUB_ENI_LIMIT
}

const fn default_allow_link_local() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const FILE: &str = r#"
parents:
  - {node: n1, mac: "fa:16:3e:01:00:01", ifname: p1}
subnets:
  - ipv4: 172.16.0.0/24
    ipv6: fd00:16::/64
    gatewayIpv4: 172.16.0.1
    gatewayIpv6: fd00:16::1
    gatewayMac: fa:16:3e:ff:ff:fe
gateway: {ifname: gw0}
bindings:
  - {parent: "fa:16:3e:01:00:01", vlan: 100, mac: "fa:16:3e:00:00:0a", ipv4: 172.16.0.10, ipv6: "fd00:16::a", pool: p}
"#;

    #[test]
    fn a_file_reads_with_its_defaults_and_writes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.yaml");
        fs::write(&path, FILE).unwrap();
        let topology = Topology::read(&path).unwrap();
        assert_eq!(topology.answer_delay_ms, 48);
        assert!(topology.allow_link_local);
        let binding = &topology.bindings[0];
        assert_eq!(binding.state, BindingState::Bound);
        let addresses: Vec<String> = binding.addresses().map(|a| a.to_string()).collect();
        assert_eq!(addresses, ["172.16.0.10", "fd00:16::a"]);
        fs::write(&path, serde_saphyr::to_string(&topology).unwrap()).unwrap();
        assert_eq!(Topology::read(&path).unwrap(), topology);
    }

    #[test]
    fn mistakes_are_refused_with_the_file_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.yaml");
        assert!(matches!(
            Topology::read(&path),
            Err(TopologyError::Read { .. })
        ));
        for (from, to) in [
            ("vlan: 100", "vlan: 4095"),
            ("gatewayMac", "gatewayMAC"),
            ("n1, mac", "n1, Mac"),
        ] {
            fs::write(&path, FILE.replace(from, to)).unwrap();
            let error = Topology::read(&path).unwrap_err();
            assert!(matches!(error, TopologyError::Parse { .. }), "{to}");
            assert!(error.to_string().contains("t.yaml"), "{error}");
        }
        fs::write(
            &path,
            FILE.replace("vlan: 100, mac", "vlan: 100, ipv4: 10.0.0.1, mac")
                .replace("ipv4: 172.16.0.10, ", ""),
        )
        .unwrap();
        let error = Topology::read(&path).unwrap_err();
        assert!(matches!(error, TopologyError::Unfit { .. }), "{error}");
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = Topology::read(&path).unwrap_err();
        assert!(matches!(error, TopologyError::Read { .. }), "{error}");
    }
}

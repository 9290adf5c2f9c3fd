//! Sections of the main plugins.

use serde::{Deserialize, Serialize};

#[cfg(feature = "crd")]
use crate::coordinator::plain_integer;

/// Default pools of a network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SectionPools {
    /// Only pools of the parent NIC's subnet; for plugins that get a device.
    #[cfg_attr(feature = "crd", schemars(extend("enum" = [true, false], "default" = false)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_master_subnet: Option<bool>,
    /// Names of IPv4 pools; `*`, `?` and `[…]` match several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<Vec<String>>,
    /// Names of IPv6 pools; `*`, `?` and `[…]` match several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Vec<String>>,
}

impl SectionPools {
    /// Whether a pool is named or the parent's subnet decides.
    #[must_use]
    pub fn says_something(&self) -> bool {
        self.names_a_pool() || self.match_master_subnet == Some(true)
    }

    /// Whether a pool of any family is named.
    #[must_use]
    pub fn names_a_pool(&self) -> bool {
        let any = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|list| !list.is_empty());
        any(&self.ipv4) || any(&self.ipv6)
    }
}

/// A bond made of the masters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub struct Bond {
    /// Interface name on the node.
    pub name: String,
    /// Mode of the kernel's bonding driver.
    #[cfg_attr(feature = "crd", schemars(range(min = 0, max = 6)))]
    pub mode: i32,
    /// Further options of the driver, `k=v;k=v`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<String>,
}

/// macvlan and ipvlan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct MasterSection {
    /// Host NIC; two or more are bonded.
    #[cfg_attr(feature = "crd", schemars(length(min = 1)))]
    pub master: Vec<String>,
    /// MTU of the Pod's NIC; 0: the master's.
    #[cfg_attr(feature = "crd", schemars(range(min = 0), extend("default" = 0)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<i32>,
    /// VLAN id; a sub-interface of the master is made for it. 0: none.
    #[cfg_attr(feature = "crd", schemars(range(min = 0, max = 4094)))]
    #[serde(default, rename = "vlanID", skip_serializing_if = "Option::is_none")]
    pub vlan_id: Option<i32>,
    /// The bond of several masters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bond: Option<Bond>,
    /// Resource of an RDMA device plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma_resource_name: Option<String>,
    /// Default pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ippools: Option<SectionPools>,
}

/// vlan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VlanSection {
    /// Host NIC; two or more are bonded.
    #[cfg_attr(feature = "crd", schemars(length(min = 1)))]
    pub master: Vec<String>,
    /// MTU of the Pod's NIC; 0: the master's.
    #[cfg_attr(feature = "crd", schemars(range(min = 0), extend("default" = 0)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<i32>,
    /// VLAN id of all Pods. Ids that a cloud gives out are those of cniType eni-vlan.
    #[cfg_attr(feature = "crd", schemars(range(min = 0, max = 4094)))]
    #[serde(default, rename = "vlanID", skip_serializing_if = "Option::is_none")]
    pub vlan_id: Option<i32>,
    /// See [`VlanMode`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan_mode: Option<VlanMode>,
    /// The bond of several masters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bond: Option<Bond>,
    /// Resource of an RDMA device plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma_resource_name: Option<String>,
    /// Default pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ippools: Option<SectionPools>,
}

/// Deprecated: manual is what cniType vlan means; for auto use cniType eni-vlan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum VlanMode {
    /// `vlanID`.
    Manual,
    /// The cloud.
    Auto,
}

/// eni-vlan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EniVlanSection {
    /// Parent NIC of the sub-ENIs; two or more are bonded.
    #[cfg_attr(feature = "crd", schemars(length(min = 1)))]
    pub master: Vec<String>,
    /// MTU of the Pod's NIC; 0: the parent's.
    #[cfg_attr(feature = "crd", schemars(range(min = 0)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<i32>,
    /// The bond of several masters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bond: Option<Bond>,
    /// Whether the gateway must answer ARP to the sub-ENI's address, MAC and VLAN id before the Pod
    /// starts.
    #[cfg_attr(feature = "crd", schemars(extend("default" = false)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validate_iaas_net_config: Option<bool>,
    /// How often it is asked.
    #[cfg_attr(feature = "crd", schemars(range(min = 0), extend("default" = 3)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_retries: Option<i32>,
    /// Milliseconds each question waits for its answer.
    #[cfg_attr(feature = "crd", schemars(range(min = 0), extend("default" = 500)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_timeout_ms: Option<i32>,
    /// Default pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ippools: Option<SectionPools>,
}

/// sriov.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SriovSection {
    /// Resource of the SR-IOV device plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_name: Option<String>,
    /// VLAN id of the virtual function; 0: none.
    #[cfg_attr(feature = "crd", schemars(range(min = 0, max = 4094)))]
    #[serde(default, rename = "vlanID", skip_serializing_if = "Option::is_none")]
    pub vlan_id: Option<i32>,
    /// MTU of the Pod's NIC; 0: the device's.
    #[cfg_attr(feature = "crd", schemars(range(min = 0), extend("default" = 0)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<i32>,
    /// Least transmit rate in Mbit/s.
    #[cfg_attr(feature = "crd", schemars(transform = plain_integer, range(min = 0)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_tx_rate_mbps: Option<i64>,
    /// Greatest transmit rate in Mbit/s.
    #[cfg_attr(feature = "crd", schemars(transform = plain_integer, range(min = 0)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tx_rate_mbps: Option<i64>,
    /// Whether the RDMA device moves into the Pod; unset: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma_isolation: Option<bool>,
    /// Another name of rdmaIsolation, which wins where it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_rdma: Option<bool>,
    /// Default pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ippools: Option<SectionPools>,
}

impl SriovSection {
    /// Whether the RDMA device moves into the Pod.
    #[must_use]
    pub fn isolates_rdma(&self) -> bool {
        self.rdma_isolation.or(self.enable_rdma).unwrap_or(false)
    }
}

/// ib-sriov.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IbSriovSection {
    /// Resource of the SR-IOV device plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_name: Option<String>,
    /// InfiniBand partition key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pkey: Option<String>,
    /// See [`LinkState`].
    #[cfg_attr(feature = "crd", schemars(extend("default" = "enable")))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_state: Option<LinkState>,
    /// Whether the RDMA device moves into the Pod.
    #[cfg_attr(feature = "crd", schemars(extend("default" = true)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma_isolation: Option<bool>,
    /// Whether ib-kubernetes manages the device.
    #[cfg_attr(feature = "crd", schemars(extend("default" = false)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_ib_kubernetes: Option<bool>,
    /// Default pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ippools: Option<SectionPools>,
}

/// Link state of the virtual function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// As the physical port.
    Auto,
    /// Up.
    Enable,
    /// Down.
    Disable,
}

/// ipoib.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IpoibSection {
    /// InfiniBand NIC of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
    /// Default pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ippools: Option<SectionPools>,
}

/// ovs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub struct OvsSection {
    /// Bridge on the node.
    #[cfg_attr(feature = "crd", schemars(length(min = 1)))]
    pub bridge: String,
    /// VLAN id of the port; 0: none.
    #[cfg_attr(feature = "crd", schemars(range(min = 0, max = 4094)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<i32>,
    /// VLAN ids of a trunk port.
    #[cfg_attr(feature = "crd", schemars(length(max = 4094)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trunk: Option<Vec<Trunk>>,
    /// PCI address of a virtual function.
    #[serde(default, rename = "deviceID", skip_serializing_if = "Option::is_none")]
    pub device_id: Option<String>,
    /// Default pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ippools: Option<SectionPools>,
}

/// VLAN ids of a trunk port: one, or a range.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub struct Trunk {
    /// First of a range.
    #[cfg_attr(feature = "crd", schemars(transform = plain_integer, range(min = 0, max = 4094)))]
    #[serde(default, rename = "minID", skip_serializing_if = "Option::is_none")]
    pub min_id: Option<i64>,
    /// Last of a range.
    #[cfg_attr(feature = "crd", schemars(transform = plain_integer, range(min = 0, max = 4094)))]
    #[serde(default, rename = "maxID", skip_serializing_if = "Option::is_none")]
    pub max_id: Option<i64>,
    /// A single one.
    #[cfg_attr(feature = "crd", schemars(transform = plain_integer, range(min = 0, max = 4094)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
}

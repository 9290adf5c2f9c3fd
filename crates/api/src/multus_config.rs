//! `SpiderMultusConfig`, "SMC": what a NetworkAttachmentDefinition is rendered from (spec api 1.6).
//! The main plugins' sections are in [`section`].

use serde::{Deserialize, Serialize};

use crate::coordinator::{LogOptions, SpiderCoordinatorSpec};

pub mod section;

use section::{
    EniVlanSection, IbSriovSection, IpoibSection, MasterSection, OvsSection, SectionPools,
    SriovSection, VlanSection,
};

/// What a NetworkAttachmentDefinition is rendered from: a main plugin with its section, and what is
/// chained around it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(kube::CustomResource, schemars::JsonSchema))]
#[cfg_attr(
    feature = "crd",
    kube(
        group = "spiderpool.spidernet.io",
        version = "v2beta1",
        kind = "SpiderMultusConfig",
        plural = "spidermultusconfigs",
        singular = "spidermultusconfig",
        shortname = "smc",
        category = "spiderpool",
        namespaced
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SpiderMultusConfigSpec {
    /// See [`CniType`].
    #[cfg_attr(feature = "crd", schemars(extend("default" = "custom")))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cni_type: Option<CniType>,
    /// Section of cniType macvlan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub macvlan: Option<MasterSection>,
    /// Section of cniType ipvlan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipvlan: Option<MasterSection>,
    /// Section of cniType vlan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanSection>,
    /// Section of cniType sriov.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sriov: Option<SriovSection>,
    /// Section of cniType ib-sriov.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ibsriov: Option<IbSriovSection>,
    /// Section of cniType ipoib.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipoib: Option<IpoibSection>,
    /// Section of cniType ovs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ovs: Option<OvsSection>,
    /// Section of cniType eni-vlan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enivlan: Option<EniVlanSection>,
    /// Default pools of whichever cniType is used; those of its section win.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ippools: Option<SectionPools>,
    /// Whether the coordinator plugin is chained.
    #[cfg_attr(feature = "crd", schemars(extend("default" = true)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_coordinator: Option<bool>,
    /// Deprecated: ipam.enabled says the same and wins where it is set.
    #[cfg_attr(feature = "crd", schemars(extend("default" = false)))]
    #[serde(
        default,
        rename = "disableIPAM",
        skip_serializing_if = "Option::is_none"
    )]
    pub disable_ipam: Option<bool>,
    /// IPAM of the main plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipam: Option<IpamOptions>,
    /// What the coordinator plugin does differently from the cluster's SpiderCoordinator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<SpiderCoordinatorSpec>,
    /// Further plugins after the main one, each a JSON object with a type.
    #[serde(
        default,
        rename = "chainCNIJsonData",
        skip_serializing_if = "Option::is_none"
    )]
    pub chain_cni_json_data: Option<Vec<String>>,
    /// The whole configuration of cniType custom, taken as it is.
    #[serde(default, rename = "customCNI", skip_serializing_if = "Option::is_none")]
    pub custom_cni: Option<String>,
}

/// IPAM of the main plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IpamOptions {
    /// Whether addresses come from pools.
    #[cfg_attr(feature = "crd", schemars(extend("default" = true)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Log file of the IPAM plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_options: Option<LogOptions>,
}

/// Main plugin. Its section, and no other, must be there; custom has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CniType {
    /// macvlan on a NIC or bond.
    Macvlan,
    /// ipvlan on a NIC or bond.
    Ipvlan,
    /// A VLAN sub-interface.
    Vlan,
    /// A virtual function.
    Sriov,
    /// A port of an Open vSwitch bridge.
    Ovs,
    /// An InfiniBand virtual function.
    IbSriov,
    /// IP over InfiniBand.
    Ipoib,
    /// Whatever `customCNI` says.
    #[default]
    Custom,
    /// A sub-ENI.
    EniVlan,
}

impl CniType {
    /// All with a section of their own.
    pub const WITH_SECTION: [Self; 8] = [
        Self::Macvlan,
        Self::Ipvlan,
        Self::Vlan,
        Self::Sriov,
        Self::IbSriov,
        Self::Ipoib,
        Self::Ovs,
        Self::EniVlan,
    ];

    /// As `spec.cniType` and the plugin's `type` have it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Macvlan => "macvlan",
            Self::Ipvlan => "ipvlan",
            Self::Vlan => "vlan",
            Self::Sriov => "sriov",
            Self::Ovs => "ovs",
            Self::IbSriov => "ib-sriov",
            Self::Ipoib => "ipoib",
            Self::Custom => "custom",
            Self::EniVlan => "eni-vlan",
        }
    }

    /// Field of the section below `spec`; custom has none.
    #[must_use]
    pub const fn section(self) -> Option<&'static str> {
        match self {
            Self::IbSriov => Some("ibsriov"),
            Self::EniVlan => Some("enivlan"),
            Self::Custom => None,
            other => Some(other.as_str()),
        }
    }
}

impl SpiderMultusConfigSpec {
    /// The main plugin; unset is custom.
    #[must_use]
    pub fn main_plugin(&self) -> CniType {
        self.cni_type.unwrap_or_default()
    }

    /// Whether addresses come from pools: `ipam.enabled`, else not `disableIPAM`.
    #[must_use]
    pub fn ipam_is_enabled(&self) -> bool {
        let set = self.ipam.as_ref().and_then(|ipam| ipam.enabled);
        set.unwrap_or(!self.disable_ipam.unwrap_or(false))
    }

    /// Whether the coordinator is chained; a custom configuration names its plugins itself.
    #[must_use]
    pub fn coordinator_is_enabled(&self) -> bool {
        self.main_plugin() != CniType::Custom && self.enable_coordinator.unwrap_or(true)
    }

    /// Host NICs of the main plugin, bond members one by one; none for those that get a device.
    #[must_use]
    pub fn masters(&self) -> Vec<&str> {
        let list = match self.main_plugin() {
            CniType::Macvlan => self.macvlan.as_ref().map(|section| &section.master),
            CniType::Ipvlan => self.ipvlan.as_ref().map(|section| &section.master),
            CniType::Vlan => self.vlan.as_ref().map(|section| &section.master),
            CniType::EniVlan => self.enivlan.as_ref().map(|section| &section.master),
            CniType::Ipoib => {
                let master = self
                    .ipoib
                    .as_ref()
                    .and_then(|ipoib| ipoib.master.as_deref());
                return master.filter(|name| !name.is_empty()).into_iter().collect();
            }
            CniType::Sriov | CniType::IbSriov | CniType::Ovs | CniType::Custom => None,
        };
        list.into_iter().flatten().map(String::as_str).collect()
    }

    /// Pools of the section, or `spec.ippools` where that names none.
    #[must_use]
    pub fn pools(&self) -> Option<&SectionPools> {
        let own = match self.main_plugin() {
            CniType::Macvlan => self.macvlan.as_ref()?.ippools.as_ref(),
            CniType::Ipvlan => self.ipvlan.as_ref()?.ippools.as_ref(),
            CniType::Vlan => self.vlan.as_ref()?.ippools.as_ref(),
            CniType::Sriov => self.sriov.as_ref()?.ippools.as_ref(),
            CniType::IbSriov => self.ibsriov.as_ref()?.ippools.as_ref(),
            CniType::Ipoib => self.ipoib.as_ref()?.ippools.as_ref(),
            CniType::Ovs => self.ovs.as_ref()?.ippools.as_ref(),
            CniType::EniVlan => self.enivlan.as_ref()?.ippools.as_ref(),
            CniType::Custom => None,
        };
        own.filter(|pools| pools.says_something())
            .or(self.ippools.as_ref())
    }

    /// Resource of a device plugin that a Pod of this network asks for.
    #[must_use]
    pub fn resource(&self) -> Option<&str> {
        let named = match self.main_plugin() {
            CniType::Macvlan => self.macvlan.as_ref()?.rdma_resource_name.as_deref(),
            CniType::Ipvlan => self.ipvlan.as_ref()?.rdma_resource_name.as_deref(),
            CniType::Vlan => self.vlan.as_ref()?.rdma_resource_name.as_deref(),
            CniType::Sriov => self.sriov.as_ref()?.resource_name.as_deref(),
            CniType::IbSriov => self.ibsriov.as_ref()?.resource_name.as_deref(),
            CniType::Ipoib => self.ipoib.as_ref()?.master.as_deref(),
            CniType::Ovs | CniType::Custom | CniType::EniVlan => None,
        };
        named.filter(|name| !name.is_empty())
    }
}

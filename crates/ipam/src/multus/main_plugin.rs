//! The main plugin of a configuration: one for each cniType, with its IPAM.

use serde::Serialize;
use spiderpool_api::coordinator::LogLevel;
use spiderpool_api::multus_config::section::{
    Bond, EniVlanSection, IbSriovSection, IpoibSection, LinkState, MasterSection, OvsSection,
    SriovSection, Trunk, VlanSection,
};
use spiderpool_api::multus_config::{CniType, SpiderMultusConfigSpec};
use spiderpool_api::names;

use super::{Options, RenderError, text};
use crate::first_generation::is_sub_eni;

/// Defaults of eni-vlan: written even where admission was away.
const RETRIES: i32 = 3;
const TIMEOUT_MS: i32 = 500;

/// Renders it.
pub(super) fn render(
    spec: &SpiderMultusConfigSpec,
    options: Options,
) -> Result<String, RenderError> {
    let ipam = spec.ipam_is_enabled().then(|| Ipam::of(spec));
    match spec.main_plugin() {
        CniType::Macvlan => macvlan(required(spec.macvlan.as_ref(), "macvlan")?, ipam),
        CniType::Ipvlan => ipvlan(required(spec.ipvlan.as_ref(), "ipvlan")?, ipam),
        CniType::Vlan => vlan(required(spec.vlan.as_ref(), "vlan")?, ipam, options),
        CniType::EniVlan => {
            let section = required(spec.enivlan.as_ref(), "enivlan")?;
            eni_vlan(section, "enivlan", ipam)
        }
        CniType::Sriov => sriov(required(spec.sriov.as_ref(), "sriov")?, ipam),
        CniType::IbSriov => ib_sriov(required(spec.ibsriov.as_ref(), "ibsriov")?, ipam),
        CniType::Ipoib => ipoib(required(spec.ipoib.as_ref(), "ipoib")?, ipam),
        CniType::Ovs => ovs(required(spec.ovs.as_ref(), "ovs")?, ipam),
        // Taken as it is, before anything is rendered.
        CniType::Custom => Ok(String::new()),
    }
}

fn required<'a, T>(section: Option<&'a T>, name: &str) -> Result<&'a T, RenderError> {
    section.ok_or_else(|| RenderError::Missing {
        field: format!("spec.{name}"),
        why: "spec.cniType names this section",
    })
}

/// The NIC the main plugin works on: the only master, or the bond of several.
pub(super) fn master<'a>(
    masters: &'a [String],
    bond: Option<&'a Bond>,
    section: &str,
) -> Result<&'a str, RenderError> {
    let named = match masters {
        [] => None,
        [one] => Some(one.as_str()),
        _ => {
            let name = bond.map(|bond| bond.name.as_str());
            let name = name.filter(|name| !name.is_empty());
            return name.ok_or_else(|| RenderError::Missing {
                field: format!("spec.{section}.bond.name"),
                why: "several masters are bonded",
            });
        }
    };
    let named = named.filter(|name| !name.is_empty());
    named.ok_or_else(|| RenderError::Missing {
        field: format!("spec.{section}.master"),
        why: "the plugin needs a NIC of the node",
    })
}

/// The same, or the VLAN sub-interface that ifacer makes on it.
fn sub_interface(section: &MasterSection, name: &str) -> Result<String, RenderError> {
    let master = master(&section.master, section.bond.as_ref(), name)?;
    Ok(match section.vlan_id {
        None | Some(0) => master.to_owned(),
        Some(vlan) => format!("{master}.{vlan}"),
    })
}

#[derive(Serialize)]
struct Ipam<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    default_ipv4_ippool: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    default_ipv6_ippool: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    match_master_subnet: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_level: Option<LogLevel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_file_path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_file_max_size: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_file_max_age: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_file_max_count: Option<i64>,
}

impl<'a> Ipam<'a> {
    fn of(spec: &'a SpiderMultusConfigSpec) -> Self {
        let pools = spec.pools();
        let list = |list: Option<&'a Vec<String>>| list.map(Vec::as_slice).unwrap_or_default();
        let log = spec
            .ipam
            .as_ref()
            .and_then(|ipam| ipam.log_options.as_ref());
        let path = log.and_then(|log| log.log_file_path.as_deref());
        Self {
            r#type: names::PLUGIN_IPAM,
            default_ipv4_ippool: list(pools.and_then(|pools| pools.ipv4.as_ref())),
            default_ipv6_ippool: list(pools.and_then(|pools| pools.ipv6.as_ref())),
            match_master_subnet: pools
                .and_then(|pools| pools.match_master_subnet)
                .filter(|set| *set),
            log_level: log.and_then(|log| log.log_level),
            log_file_path: path.filter(|path| !path.is_empty()),
            log_file_max_size: log.and_then(|log| log.log_file_max_size),
            log_file_max_age: log.and_then(|log| log.log_file_max_age),
            log_file_max_count: log.and_then(|log| log.log_file_max_count),
        }
    }
}

fn macvlan(section: &MasterSection, ipam: Option<Ipam<'_>>) -> Result<String, RenderError> {
    #[derive(Serialize)]
    struct Plugin<'a> {
        r#type: &'static str,
        master: String,
        mode: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        mtu: Option<i32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        ipam: Option<Ipam<'a>>,
    }
    text(&Plugin {
        r#type: CniType::Macvlan.as_str(),
        master: sub_interface(section, "macvlan")?,
        mode: "bridge",
        mtu: section.mtu,
        ipam,
    })
}

fn ipvlan(section: &MasterSection, ipam: Option<Ipam<'_>>) -> Result<String, RenderError> {
    #[derive(Serialize)]
    struct Plugin<'a> {
        r#type: &'static str,
        master: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        mtu: Option<i32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        ipam: Option<Ipam<'a>>,
    }
    text(&Plugin {
        r#type: CniType::Ipvlan.as_str(),
        master: sub_interface(section, "ipvlan")?,
        mtu: section.mtu,
        ipam,
    })
}

fn vlan(
    section: &VlanSection,
    ipam: Option<Ipam<'_>>,
    options: Options,
) -> Result<String, RenderError> {
    #[derive(Serialize)]
    struct Plugin<'a> {
        r#type: &'static str,
        master: &'a str,
        #[serde(rename = "vlanId")]
        vlan_id: i32,
        #[serde(skip_serializing_if = "Option::is_none")]
        mtu: Option<i32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        ipam: Option<Ipam<'a>>,
    }
    let cni_type = CniType::Vlan.as_str();
    if options.first_generation && is_sub_eni(cni_type, section.vlan_id.map(i64::from)) {
        let section = EniVlanSection {
            master: section.master.clone(),
            mtu: section.mtu,
            bond: section.bond.clone(),
            ..EniVlanSection::default()
        };
        return eni_vlan(&section, cni_type, ipam);
    }
    text(&Plugin {
        r#type: cni_type,
        master: master(&section.master, section.bond.as_ref(), cni_type)?,
        vlan_id: section.vlan_id.ok_or_else(|| RenderError::Missing {
            field: "spec.vlan.vlanID".to_owned(),
            why: "ids that a cloud gives out are those of cniType eni-vlan",
        })?,
        mtu: section.mtu,
        ipam,
    })
}

fn eni_vlan(
    section: &EniVlanSection,
    name: &str,
    ipam: Option<Ipam<'_>>,
) -> Result<String, RenderError> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Plugin<'a> {
        r#type: &'static str,
        master: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        mtu: Option<i32>,
        validate_iaas_net_config: bool,
        validation_retries: i32,
        validation_timeout_ms: i32,
        ipam: Ipam<'a>,
    }
    text(&Plugin {
        r#type: names::PLUGIN_ENI_VLAN,
        master: master(&section.master, section.bond.as_ref(), name)?,
        // 0 is what the plugin does without it.
        mtu: section.mtu.filter(|mtu| *mtu != 0),
        validate_iaas_net_config: section.validate_iaas_net_config.unwrap_or(false),
        validation_retries: section.validation_retries.unwrap_or(RETRIES),
        validation_timeout_ms: section.validation_timeout_ms.unwrap_or(TIMEOUT_MS),
        ipam: ipam.ok_or(RenderError::NoIpam)?,
    })
}

fn sriov(section: &SriovSection, ipam: Option<Ipam<'_>>) -> Result<String, RenderError> {
    #[derive(Serialize)]
    struct Plugin<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        vlan: Option<i32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        min_tx_rate: Option<i64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        max_tx_rate: Option<i64>,
        r#type: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        ipam: Option<Ipam<'a>>,
    }
    text(&Plugin {
        vlan: section.vlan_id,
        min_tx_rate: section.min_tx_rate_mbps,
        max_tx_rate: section.max_tx_rate_mbps,
        r#type: CniType::Sriov.as_str(),
        ipam,
    })
}

fn ib_sriov(section: &IbSriovSection, ipam: Option<Ipam<'_>>) -> Result<String, RenderError> {
    #[derive(Serialize)]
    struct Plugin<'a> {
        r#type: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        pkey: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        link_state: Option<LinkState>,
        #[serde(rename = "rdmaIsolation", skip_serializing_if = "Option::is_none")]
        rdma_isolation: Option<bool>,
        #[serde(
            rename = "ibKubernetesEnabled",
            skip_serializing_if = "Option::is_none"
        )]
        ib_kubernetes_enabled: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        ipam: Option<Ipam<'a>>,
    }
    text(&Plugin {
        r#type: CniType::IbSriov.as_str(),
        pkey: section.pkey.as_deref(),
        link_state: section.link_state,
        rdma_isolation: section.rdma_isolation,
        ib_kubernetes_enabled: section.enable_ib_kubernetes,
        ipam,
    })
}

fn ipoib(section: &IpoibSection, ipam: Option<Ipam<'_>>) -> Result<String, RenderError> {
    #[derive(Serialize)]
    struct Plugin<'a> {
        r#type: &'static str,
        master: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        ipam: Option<Ipam<'a>>,
    }
    let masters = section.master.as_slice();
    text(&Plugin {
        r#type: CniType::Ipoib.as_str(),
        master: master(masters, None, "ipoib")?,
        ipam,
    })
}

fn ovs(section: &OvsSection, ipam: Option<Ipam<'_>>) -> Result<String, RenderError> {
    #[derive(Serialize)]
    struct Plugin<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        vlan: Option<i32>,
        r#type: &'static str,
        bridge: &'a str,
        #[serde(rename = "deviceID", skip_serializing_if = "Option::is_none")]
        device_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        ipam: Option<Ipam<'a>>,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        trunk: &'a [Trunk],
    }
    if section.bridge.is_empty() {
        return Err(RenderError::Missing {
            field: "spec.ovs.bridge".to_owned(),
            why: "the plugin needs a bridge of the node",
        });
    }
    text(&Plugin {
        vlan: section.vlan,
        r#type: CniType::Ovs.as_str(),
        bridge: &section.bridge,
        device_id: section.device_id.as_deref().filter(|id| !id.is_empty()),
        ipam,
        trunk: section.trunk.as_deref().unwrap_or_default(),
    })
}

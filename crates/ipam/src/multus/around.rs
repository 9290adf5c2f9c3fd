//! Plugins of ours around the main one: ifacer before it, rdma, tuning and coordinator behind.

use serde::Serialize;
use spiderpool_api::coordinator::{CoordinatorMode, LogLevel, LogOptions, SpiderCoordinatorSpec};
use spiderpool_api::ippool::Route;
use spiderpool_api::multus_config::section::Bond;
use spiderpool_api::multus_config::{CniType, SpiderMultusConfigSpec};

use super::main_plugin::master;
use super::{RenderError, text};

/// `hostRuleTable` and `podRPFilter` as the schema fills them in: whoever left them out and whoever
/// wrote them look the same, and the cluster's SpiderCoordinator may say otherwise.
const DEFAULT_RULE_TABLE: i64 = 500;
const DEFAULT_RP_FILTER: i64 = 0;

/// Makes bond and VLAN sub-interface on the node.
pub(super) fn ifacer(spec: &SpiderMultusConfigSpec) -> Result<Option<String>, RenderError> {
    #[derive(Serialize)]
    struct Plugin<'a> {
        #[serde(rename = "vlanID", skip_serializing_if = "Option::is_none")]
        vlan_id: Option<i32>,
        r#type: &'static str,
        interfaces: &'a [String],
        #[serde(skip_serializing_if = "Option::is_none")]
        bond: Option<&'a Bond>,
    }
    let Some(Links {
        masters,
        bond,
        vlan_id,
        section,
    }) = links(spec)
    else {
        return Ok(None);
    };
    let several = masters.len() > 1;
    if !several && vlan_id.is_none() {
        return Ok(None);
    }
    master(masters, bond, section)?;
    let plugin = Plugin {
        vlan_id,
        r#type: "ifacer",
        interfaces: masters,
        bond: bond.filter(|_| several),
    };
    text(&plugin).map(Some)
}

/// What has to be there before the main plugin can work.
struct Links<'a> {
    masters: &'a [String],
    bond: Option<&'a Bond>,
    /// Of a sub-interface; plugin vlan makes its own in the Pod.
    vlan_id: Option<i32>,
    section: &'static str,
}

fn links(spec: &SpiderMultusConfigSpec) -> Option<Links<'_>> {
    let main = spec.main_plugin();
    let section = main.section()?;
    let (masters, bond, vlan_id) = match main {
        CniType::Macvlan | CniType::Ipvlan => {
            let of = match main {
                CniType::Macvlan => &spec.macvlan,
                _ => &spec.ipvlan,
            };
            let of = of.as_ref()?;
            (&of.master, &of.bond, of.vlan_id.filter(|id| *id != 0))
        }
        CniType::Vlan => spec.vlan.as_ref().map(|of| (&of.master, &of.bond, None))?,
        CniType::EniVlan => {
            let of = spec.enivlan.as_ref()?;
            (&of.master, &of.bond, None)
        }
        _ => return None,
    };
    Some(Links {
        masters,
        bond: bond.as_ref(),
        vlan_id,
        section,
    })
}

#[derive(Serialize)]
struct Bare {
    r#type: &'static str,
}

/// Moves the RDMA device into the Pod. ib-sriov does that itself.
pub(super) fn rdma(spec: &SpiderMultusConfigSpec) -> Result<Option<String>, RenderError> {
    let isolated = spec.main_plugin() == CniType::Sriov
        && spec.sriov.as_ref().is_some_and(|of| of.isolates_rdma());
    let plugin = isolated.then(|| text(&Bare { r#type: "rdma" }));
    plugin.transpose()
}

/// Sets the MTU that plugin sriov has no key for. Before the coordinator, which has to see the NIC as
/// the Pod will.
pub(super) fn tuning(spec: &SpiderMultusConfigSpec) -> Result<Option<String>, RenderError> {
    #[derive(Serialize)]
    struct Plugin {
        r#type: &'static str,
        mtu: i32,
    }
    let sriov = spec.sriov.as_ref();
    let sriov = sriov.filter(|_| spec.main_plugin() == CniType::Sriov);
    let mtu = sriov.and_then(|of| of.mtu).filter(|mtu| *mtu > 0);
    let r#type = "tuning";
    mtu.map(|mtu| text(&Plugin { r#type, mtu })).transpose()
}

/// Tunes the Pod's routes. What is left out comes from the cluster's SpiderCoordinator.
pub(super) fn coordinator(spec: &SpiderMultusConfigSpec) -> Result<Option<String>, RenderError> {
    if !spec.coordinator_is_enabled() {
        return Ok(None);
    }
    let default = SpiderCoordinatorSpec::default();
    let of = spec.coordinator.as_ref().unwrap_or(&default);
    text(&Coordinator::of(of)).map(Some)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Coordinator<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tx_queue_len: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    veth_link_address: Option<&'a str>,
    #[serde(rename = "vethMTU", skip_serializing_if = "Option::is_none")]
    veth_mtu: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tune_pod_routes: Option<bool>,
    #[serde(rename = "podMACPrefix", skip_serializing_if = "Option::is_none")]
    pod_mac_prefix: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod_default_route_nic: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod_default_cni_nic: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_rule_table: Option<i64>,
    #[serde(rename = "podRPFilter", skip_serializing_if = "Option::is_none")]
    pod_rp_filter: Option<i64>,
    #[serde(rename = "hijackCIDR", skip_serializing_if = "<[_]>::is_empty")]
    hijack_cidr: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    policy_routes: &'a [Route],
    #[serde(skip_serializing_if = "Option::is_none")]
    log_options: Option<Log<'a>>,
}

impl<'a> Coordinator<'a> {
    fn of(spec: &'a SpiderCoordinatorSpec) -> Self {
        let word = |text: &'a Option<String>| text.as_deref().filter(|text| !text.is_empty());
        let set = spec.pod_cidr_type.is_some();
        let rp_filter = spec.pod_rp_filter;
        Self {
            tx_queue_len: spec.tx_queue_len,
            veth_link_address: word(&spec.veth_link_address),
            veth_mtu: spec.veth_mtu,
            tune_pod_routes: spec.tune_pod_routes,
            pod_mac_prefix: word(&spec.pod_mac_prefix),
            mode: spec.mode.map(mode),
            r#type: "coordinator",
            pod_default_route_nic: word(&spec.pod_default_route_nic),
            pod_default_cni_nic: word(&spec.pod_default_cni_nic),
            host_rule_table: spec
                .host_rule_table
                .filter(|table| *table != DEFAULT_RULE_TABLE),
            pod_rp_filter: rp_filter.filter(|value| set || *value != DEFAULT_RP_FILTER),
            hijack_cidr: spec.hijack_cidr.as_deref().unwrap_or_default(),
            policy_routes: spec.policy_routes.as_deref().unwrap_or_default(),
            log_options: spec.log_options.as_ref().and_then(Log::of),
        }
    }
}

/// In the plugin's words: the older of the two for a NIC that is not tuned is the one that every
/// version of the plugin knows.
const fn mode(mode: CoordinatorMode) -> &'static str {
    match mode {
        CoordinatorMode::Auto => "auto",
        CoordinatorMode::Underlay => "underlay",
        CoordinatorMode::Overlay => "overlay",
        CoordinatorMode::Disabled => "disable",
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Log<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    log_level: Option<LogLevel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_max_size: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_max_age: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_max_count: Option<i64>,
}

impl<'a> Log<'a> {
    /// `None`: it says nothing.
    fn of(options: &'a LogOptions) -> Option<Self> {
        if *options == LogOptions::default() {
            return None;
        }
        let path = options.log_file_path.as_deref();
        Some(Self {
            log_level: options.log_level,
            log_file: path.filter(|path| !path.is_empty()),
            log_max_size: options.log_file_max_size,
            log_max_age: options.log_file_max_age,
            log_max_count: options.log_file_max_count,
        })
    }
}

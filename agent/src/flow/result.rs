//! Shapes of an allocation: the CNI result, the NIC to make, the attachment file. Pure.

use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;
use spiderpool_api::cni::CniVersion;
use spiderpool_api::cni::{CniResult, ResultInterface, ResultIp, ResultRoute, SubEniExtension};
use spiderpool_api::cni_conf::{EniConf, Validation};
use spiderpool_api::value::Mac;
use spiderpool_ipam::pick::Binding;
use spiderpool_ipam::plan::Allocation;
use spiderpool_netops::netns::NetnsId;

use super::call::NicCall;
use crate::attachment::{AttachedIp, Attachment};
use crate::nic::{NicAddress, NicRoute, NicSpec, Preflight};
use crate::store::PodObject;

/// A sub-ENI as the kernel shall have it.
pub(super) struct SubEni<'a> {
    pub(super) conf: &'a EniConf,
    pub(super) binding: Binding,
    pub(super) parent_mac: Option<Mac>,
    pub(super) netns: &'a Path,
}

impl SubEni<'_> {
    pub(super) fn spec(&self, call: &NicCall, allocation: &Allocation) -> NicSpec {
        let address = |ip: &spiderpool_ipam::plan::AllocatedIp| NicAddress {
            address: ip.address,
            gateway: ip.gateway,
        };
        let routes = allocation.all_routes();
        NicSpec {
            container_id: call.key.container_id().to_owned(),
            ifname: call.key.ifname().clone(),
            netns: self.netns.to_owned(),
            master: self.conf.master.clone(),
            vlan: self.binding.vlan,
            mac: self.binding.mac,
            mtu: self.conf.mtu,
            parent_mac: self.parent_mac,
            addresses: allocation.ips.iter().map(address).collect(),
            routes: routes
                .iter()
                .map(|route| NicRoute {
                    dst: route.dst,
                    gw: Some(route.gw),
                })
                .collect(),
            preflight: self.conf.validate.map(preflight),
        }
    }
}

fn preflight(validation: Validation) -> Preflight {
    Preflight {
        attempts: validation.retries,
        timeout: Duration::from_millis(validation.timeout_ms.into()),
    }
}

/// What every result carries.
pub(super) fn ipam_result(call: &NicCall, allocation: &Allocation) -> CniResult {
    let version = call.call.conf.cni_version;
    let ips = allocation.ips.iter().map(|ip| ResultIp {
        version: version.has_ip_version().then(|| match ip.address {
            IpNet::V4(_) => "4".to_owned(),
            IpNet::V6(_) => "6".to_owned(),
        }),
        interface: None,
        address: ip.address,
        gateway: ip.gateway,
    });
    let routes = allocation.all_routes();
    CniResult {
        cni_version: version.as_str().to_owned(),
        interfaces: Vec::new(),
        ips: ips.collect(),
        routes: routes
            .iter()
            .map(|route| ResultRoute {
                dst: route.dst,
                gw: Some(route.gw),
            })
            .collect(),
        dns: call.call.conf.dns.clone(),
        sub_eni: None,
    }
}

/// The result of `eni-vlan`: the same with its interface and the extension.
pub(super) fn eni_result(
    call: &NicCall,
    allocation: &Allocation,
    eni: &SubEni<'_>,
    mtu: u32,
    node: &str,
) -> CniResult {
    let mut result = ipam_result(call, allocation);
    result.interfaces = vec![ResultInterface {
        name: call.key.ifname().to_string(),
        mac: eni.binding.mac.to_string(),
        // The key is of CNI 1.1.0.
        mtu: (call.call.conf.cni_version >= CniVersion::V1_1_0).then_some(mtu),
        sandbox: eni.netns.display().to_string(),
    }];
    for ip in &mut result.ips {
        ip.interface = Some(0);
    }
    result.sub_eni = eni
        .parent_mac
        .map(|parent_mac| extension(eni.binding, parent_mac, node));
    result
}

/// What a result says of a sub-ENI beyond CNI.
pub(super) fn extension(binding: Binding, parent_mac: Mac, node: &str) -> SubEniExtension {
    SubEniExtension {
        vlan: binding.vlan,
        mac: binding.mac,
        parent_mac,
        node_name: node.to_owned(),
    }
}

/// The attachment file of this call, written `at`.
pub(super) fn attachment(
    call: &NicCall,
    pod: &PodObject,
    allocation: &Allocation,
    netns_id: Option<NetnsId>,
    at: String,
) -> Attachment {
    let eni = call.call.conf.eni.as_ref();
    Attachment {
        container_id: call.key.container_id().to_owned(),
        ifname: call.key.ifname().clone(),
        network: call.call.conf.name.clone(),
        plugin: call.call.plugin.name().to_owned(),
        pod_uid: pod.facts.uid.clone(),
        pod_namespace: pod.facts.namespace.clone(),
        pod_name: pod.facts.name.clone(),
        netns: call.netns.clone().unwrap_or_default(),
        netns_id,
        master: eni.map(|eni| eni.master.clone()),
        vlan: eni.and(allocation.vlan),
        mac: eni.and(allocation.mac),
        ips: allocation
            .ips
            .iter()
            .map(|ip| AttachedIp {
                address: ip.address,
                pool: ip.pool.clone(),
                gateway: ip.gateway,
            })
            .collect(),
        attached_at: at,
        seq: 0,
    }
}

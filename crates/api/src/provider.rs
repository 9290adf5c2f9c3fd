//! Bodies of the provider contract, version 2 (spec iaas-provider.openapi.yaml). Shapes and the
//! typing of an answer's VLAN and MAC; no I/O.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::value::{Mac, ValueError, VlanId};

/// Path of the allocate call.
pub const ALLOCATE_PATH: &str = "/v1/apis/network.iaas.io/ipam/allocate-ips";
/// Path of the release call.
pub const RELEASE_PATH: &str = "/v1/apis/network.iaas.io/ipam/release-ip";
/// Remaining time of the caller in milliseconds, rounded up, at least 1.
pub const TIMEOUT_HEADER: &str = "X-Request-Timeout-Ms";

/// `POST allocate-ips`: bind one sub-ENI per NIC of a Pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllocateRequest {
    /// Pod name.
    #[serde(default)]
    pub pod_name: String,
    /// Pod namespace.
    #[serde(default)]
    pub pod_namespace: String,
    /// Pod UID.
    #[serde(default, rename = "podUID")]
    pub pod_uid: String,
    /// Node the Pod was scheduled to.
    pub node_name: String,
    /// One item per NIC.
    pub sub_eni_requests: Vec<SubEniRequest>,
}

/// One wanted sub-ENI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubEniRequest {
    /// MAC of the NIC it shall hang on.
    pub parent_nic_mac: Mac,
    /// Cloud subnet: the IPv4 network whenever there is an IPv4 address.
    pub subnet: IpNet,
    /// IPv4 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4_address: Option<Ipv4Addr>,
    /// IPv6 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6_address: Option<Ipv6Addr>,
    /// Pool of the IPv4 address.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "ipv4PoolName"
    )]
    pub ipv4_pool_name: Option<String>,
    /// Pool of the IPv6 address.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "ipv6PoolName"
    )]
    pub ipv6_pool_name: Option<String>,
}

/// Answer to allocate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllocateResponse {
    /// One item per requested sub-ENI.
    pub sub_eni_responses: Vec<SubEniResponse>,
}

/// One bound sub-ENI, untrusted: addresses as text, the VLAN as any number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubEniResponse {
    /// MAC of the parent NIC.
    pub parent_nic_mac: String,
    /// Cloud subnet.
    pub subnet: String,
    /// IPv4 address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ipv4_address: String,
    /// IPv6 address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ipv6_address: String,
    /// Empty or absent keeps what the client has.
    pub mac_address: String,
    /// 0 or absent keeps what the client has.
    pub vlan_id: i64,
    /// Echo of the request's pool, optional.
    #[serde(skip_serializing_if = "String::is_empty", rename = "ipv4PoolName")]
    pub ipv4_pool_name: String,
    /// Echo of the request's pool, optional.
    #[serde(skip_serializing_if = "String::is_empty", rename = "ipv6PoolName")]
    pub ipv6_pool_name: String,
}

/// An answer's VLAN or MAC can't be used. Names the address it came with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("provider answer for {address}: {reason}")]
pub struct BindingError {
    /// Address of the item.
    pub address: String,
    /// What is wrong, with the value.
    pub reason: ValueError,
}

impl SubEniResponse {
    /// The item's VLAN id and MAC; `None` = not given, keep what is known.
    ///
    /// # Errors
    /// [`BindingError`] for a VLAN id below 0 or above 4094 and for a MAC that is malformed or
    /// not unicast.
    pub fn binding(&self) -> Result<(Option<VlanId>, Option<Mac>), BindingError> {
        let wrap = |reason| BindingError {
            address: if self.ipv4_address.is_empty() {
                &self.ipv6_address
            } else {
                &self.ipv4_address
            }
            .clone(),
            reason,
        };
        let vlan = match self.vlan_id {
            0 => None,
            id => Some(VlanId::try_from(id).map_err(wrap)?),
        };
        let mac = match self.mac_address.as_str() {
            "" => None,
            text => Some(
                text.parse::<Mac>()
                    .and_then(Mac::require_unicast)
                    .map_err(wrap)?,
            ),
        };
        Ok((vlan, mac))
    }
}

/// `POST release-ip`: the sub-ENI of this address is no longer used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseRequest {
    /// Pod name.
    #[serde(default)]
    pub pod_name: String,
    /// Pod namespace.
    #[serde(default)]
    pub pod_namespace: String,
    /// Pod UID.
    #[serde(default, rename = "podUID")]
    pub pod_uid: String,
    /// Node the Pod ran on, never empty.
    pub node_name: String,
    /// MAC of the parent NIC when known; an empty text means unknown.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "empty_is_none"
    )]
    pub parent_nic_mac: Option<Mac>,
    /// Cloud subnet.
    pub subnet: IpNet,
    /// The IPv4 address of the sub-ENI, or its IPv6 address if it has none.
    pub ip_address: IpAddr,
    /// Pool of that address.
    #[serde(default)]
    pub pool_name: String,
}

fn empty_is_none<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Mac>, D::Error> {
    match Option::<String>::deserialize(deserializer)?.as_deref() {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(serde::de::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case B18: the values a faulty cloud was seen to answer.
    #[test]
    fn b18_vlan_and_mac_of_an_answer_are_given_absent_or_refused() {
        let item = |vlan: &str, mac: &str| -> SubEniResponse {
            serde_json::from_str(&format!(
                r#"{{"ipv4Address":"10.71.0.10","macAddress":"{mac}"{vlan}}}"#
            ))
            .unwrap()
        };
        let good = "fa:16:3e:00:71:0a";
        let (vlan, mac) = item("", good).binding().unwrap();
        assert_eq!((vlan, mac), (None, Some(good.parse().unwrap())));
        assert_eq!(item(r#","vlanId":0"#, good).binding().unwrap().0, None);
        for id in [1, 4094] {
            let given = item(&format!(r#","vlanId":{id}"#), good)
                .binding()
                .unwrap()
                .0;
            assert_eq!(given, Some(VlanId::try_from(id).unwrap()));
        }
        for id in [-1, 4095, 4096, 70_000] {
            let text = item(&format!(r#","vlanId":{id}"#), good)
                .binding()
                .unwrap_err()
                .to_string();
            assert!(
                text.contains("10.71.0.10") && text.contains(&id.to_string()),
                "{text}"
            );
        }
        let vlan = r#","vlanId":101"#;
        assert_eq!(item(vlan, "").binding().unwrap().1, None);
        for mac in ["fa:16:3e:00:71", "01:00:5e:00:00:01"] {
            let text = item(vlan, mac).binding().unwrap_err().to_string();
            assert!(text.contains(mac), "{text}");
        }
    }

    #[test]
    fn release_tolerates_an_empty_parent_mac() {
        let text = r#"{"nodeName":"n1","subnet":"10.71.0.0/24","ipAddress":"10.71.0.10","parentNicMac":""}"#;
        let request: ReleaseRequest = serde_json::from_str(text).unwrap();
        assert_eq!(request.parent_nic_mac, None);
    }
}

//! Bodies of the provider contract, version 1 (iaas-provider.openapi.yaml, tag deprecated-v1):
//! IPv4 alone, an item an address, no pool names. Shapes and their way from and to version 2, by
//! which answers of both are judged in one place ([`crate::check`]); no I/O.
//!
//! Paths and header are those of version 2 (`spiderpool_api::provider`). Read by whoever serves
//! both versions, written by a client of generation 1 (`serverUrl`).

use std::net::Ipv4Addr;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};
use spiderpool_api::provider::{
    AllocateRequest, AllocateResponse, ReleaseRequest, SubEniRequest, SubEniResponse,
};
use spiderpool_api::value::Mac;

/// The field by which a body of version 1 is told from one of version 2.
pub const REQUEST_FIELD: &str = "iaasIPsAllocationRequest";

/// Version 1 has no words for a request of version 2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("contract version 1 binds IPv4 addresses alone; {what} cannot be asked for")]
pub struct NotInVersion1 {
    /// The address or subnet, as requested.
    pub what: String,
}

/// `POST allocate-ips`: bind one address per NIC of a Pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllocateRequestV1 {
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
    /// One item per address.
    #[serde(rename = "iaasIPsAllocationRequest")]
    pub items: Vec<AllocationItemV1>,
}

/// One wanted address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllocationItemV1 {
    /// The address, without prefix length.
    pub ip_address: Ipv4Addr,
    /// Its cloud subnet.
    pub subnet: Ipv4Net,
    /// MAC of the NIC it shall hang on.
    pub parent_nic_mac: Mac,
}

/// Answer to allocate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllocateResponseV1 {
    /// Pod name.
    #[serde(default)]
    pub pod_name: String,
    /// Pod namespace.
    #[serde(default)]
    pub pod_namespace: String,
    /// Node name.
    #[serde(default)]
    pub node_name: String,
    /// One item per requested address.
    #[serde(rename = "iaasIPsAllocationResponse")]
    pub items: Vec<AllocationResultV1>,
}

/// One bound address, untrusted: addresses as text, the VLAN as any number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationResultV1 {
    /// MAC of the parent NIC.
    pub parent_nic_mac: String,
    /// Cloud subnet.
    pub subnet: String,
    /// The address.
    pub ip_address: String,
    /// Empty or absent keeps what the client has.
    pub mac_address: String,
    /// 0 or absent keeps what the client has.
    pub vlan_id: i64,
}

/// `POST release-ip`: the address is no longer used. A server reads both versions as
/// [`ReleaseRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseRequestV1 {
    /// Pod name.
    #[serde(default)]
    pub pod_name: String,
    /// Pod namespace.
    #[serde(default)]
    pub pod_namespace: String,
    /// Pod UID.
    #[serde(default, rename = "podUID")]
    pub pod_uid: String,
    /// Node the Pod ran on.
    pub node_name: String,
    /// MAC of the parent NIC when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_nic_mac: Option<Mac>,
    /// Cloud subnet.
    pub subnet: Ipv4Net,
    /// The address.
    pub ip_address: Ipv4Addr,
}

impl TryFrom<&AllocateRequest> for AllocateRequestV1 {
    type Error = NotInVersion1;

    fn try_from(request: &AllocateRequest) -> Result<Self, NotInVersion1> {
        let items = request.sub_eni_requests.iter();
        Ok(Self {
            pod_name: request.pod_name.clone(),
            pod_namespace: request.pod_namespace.clone(),
            pod_uid: request.pod_uid.clone(),
            node_name: request.node_name.clone(),
            items: items
                .map(AllocationItemV1::try_from)
                .collect::<Result<_, _>>()?,
        })
    }
}

impl TryFrom<&SubEniRequest> for AllocationItemV1 {
    type Error = NotInVersion1;

    fn try_from(item: &SubEniRequest) -> Result<Self, NotInVersion1> {
        if let Some(ip) = item.ipv6_address {
            return Err(not_in_version_1(ip));
        }
        match (item.ipv4_address, item.subnet) {
            (Some(ip_address), IpNet::V4(subnet)) => Ok(Self {
                ip_address,
                subnet,
                parent_nic_mac: item.parent_nic_mac,
            }),
            (_, subnet) => Err(not_in_version_1(subnet)),
        }
    }
}

impl From<AllocateRequestV1> for AllocateRequest {
    fn from(request: AllocateRequestV1) -> Self {
        let items = request.items.into_iter().map(|item| SubEniRequest {
            parent_nic_mac: item.parent_nic_mac,
            subnet: item.subnet.into(),
            ipv4_address: Some(item.ip_address),
            ipv6_address: None,
            ipv4_pool_name: None,
            ipv6_pool_name: None,
        });
        Self {
            sub_eni_requests: items.collect(),
            pod_name: request.pod_name,
            pod_namespace: request.pod_namespace,
            pod_uid: request.pod_uid,
            node_name: request.node_name,
        }
    }
}

impl From<AllocateResponseV1> for AllocateResponse {
    fn from(response: AllocateResponseV1) -> Self {
        let items = response.items.into_iter().map(|item| SubEniResponse {
            parent_nic_mac: item.parent_nic_mac,
            subnet: item.subnet,
            ipv4_address: item.ip_address,
            mac_address: item.mac_address,
            vlan_id: item.vlan_id,
            ..SubEniResponse::default()
        });
        Self {
            sub_eni_responses: items.collect(),
        }
    }
}

impl TryFrom<&ReleaseRequest> for ReleaseRequestV1 {
    type Error = NotInVersion1;

    fn try_from(request: &ReleaseRequest) -> Result<Self, NotInVersion1> {
        let (std::net::IpAddr::V4(ip_address), IpNet::V4(subnet)) =
            (request.ip_address, request.subnet)
        else {
            return Err(not_in_version_1(request.ip_address));
        };
        Ok(Self {
            pod_name: request.pod_name.clone(),
            pod_namespace: request.pod_namespace.clone(),
            pod_uid: request.pod_uid.clone(),
            node_name: request.node_name.clone(),
            parent_nic_mac: request.parent_nic_mac,
            subnet,
            ip_address,
        })
    }
}

fn not_in_version_1(what: impl ToString) -> NotInVersion1 {
    NotInVersion1 {
        what: what.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{ResponseError, accept};
    use serde_json::{Value, json};

    fn request() -> Value {
        json!({
            "podName": "old-pod", "podNamespace": "shop", "podUID": "u-1", "nodeName": "worker-1",
            "iaasIPsAllocationRequest": [
                { "ipAddress": "172.91.0.130", "subnet": "172.91.0.0/24", "parentNicMac": "fa:16:3e:30:00:01" }
            ]
        })
    }

    #[test]
    fn bodies_are_those_of_the_contract_and_go_by_version_2() {
        let first: AllocateRequestV1 = serde_json::from_value(request()).unwrap();
        assert_eq!(serde_json::to_value(&first).unwrap(), request());
        let second = AllocateRequest::from(first.clone());
        assert_eq!(AllocateRequestV1::try_from(&second), Ok(first));
        let answer = |vlan: i64, ip: &str| {
            let body = json!({ "podName": "old-pod", "nodeName": "worker-1", "iaasIPsAllocationResponse": [
                { "parentNicMac": "fa:16:3e:30:00:01", "subnet": "172.91.0.0/24", "ipAddress": ip,
                  "macAddress": "fa:16:3e:91:00:82", "vlanId": vlan }] });
            let answer: AllocateResponseV1 = serde_json::from_value(body).unwrap();
            accept(&second, &answer.into())
        };
        let bound = answer(402, "172.91.0.130").unwrap();
        assert_eq!(bound[0].vlan.map(|vlan| vlan.get()), Some(402));
        assert!(matches!(
            answer(402, "172.91.0.131"),
            Err(ResponseError::Unknown { .. })
        ));
        assert!(matches!(
            answer(70_000, "172.91.0.130"),
            Err(ResponseError::Binding(_))
        ));
    }

    #[test]
    fn a_release_names_no_pool_and_maybe_no_parent() {
        let body = json!({ "podName": "p", "podNamespace": "shop", "podUID": "u-1", "nodeName": "worker-1",
            "subnet": "172.91.0.0/24", "ipAddress": "172.91.0.130", "poolName": "p1" });
        let second: ReleaseRequest = serde_json::from_value(body.clone()).unwrap();
        let first = ReleaseRequestV1::try_from(&second).unwrap();
        let mut expected = body;
        expected.as_object_mut().unwrap().remove("poolName");
        assert_eq!(serde_json::to_value(&first).unwrap(), expected);
    }

    #[test]
    fn what_has_ipv6_has_no_version_1() {
        let mut second: AllocateRequest =
            AllocateRequest::from(serde_json::from_value::<AllocateRequestV1>(request()).unwrap());
        second.sub_eni_requests[0].ipv6_address = Some("fd93::15".parse().unwrap());
        let text = AllocateRequestV1::try_from(&second)
            .unwrap_err()
            .to_string();
        assert_eq!(
            text,
            "contract version 1 binds IPv4 addresses alone; fd93::15 cannot be asked for"
        );
        second.sub_eni_requests[0].ipv6_address = None;
        second.sub_eni_requests[0].ipv4_address = None;
        assert!(AllocateRequestV1::try_from(&second).is_err());
    }
}

//! Whether an answer to allocate fits its request (spec iaas section 6). Pure. An address without
//! a binding is a silent outage, so whatever is not exactly right is a failure.

use std::net::{IpAddr, Ipv6Addr};

use spiderpool_api::provider::{
    AllocateRequest, AllocateResponse, BindingError, SubEniRequest, SubEniResponse,
};
use spiderpool_api::value::{Mac, VlanId};

/// What the cloud bound for one requested sub-ENI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Its place in the request.
    pub index: usize,
    /// `None`: not told, keep what is known.
    pub vlan: Option<VlanId>,
    /// `None`: not told, keep what is known.
    pub mac: Option<Mac>,
}

/// An answer that does not fit. Names the address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// Nobody asked for it.
    #[error("iaas response contains unknown sub-ENI with address {address}")]
    Unknown {
        /// As answered.
        address: String,
    },
    /// Asked for and not answered.
    #[error("iaas response lacks the sub-ENI with address {address}")]
    Missing {
        /// As requested.
        address: String,
    },
    /// Answered twice, differently.
    #[error(
        "iaas response contains the sub-ENI with address {address} twice with different values"
    )]
    Duplicate {
        /// As answered.
        address: String,
    },
    /// Not the partner that was asked for.
    #[error(
        "iaas response binds {answered} to the sub-ENI with address {address}, requested was {requested}"
    )]
    WrongIpv6 {
        /// As answered.
        address: String,
        /// IPv6 address as answered.
        answered: String,
        /// IPv6 address as requested.
        requested: String,
    },
    /// Taken for another pool.
    #[error(
        "iaas response names pool {answered} for the sub-ENI with address {address}, requested was {requested}"
    )]
    WrongPool {
        /// As answered.
        address: String,
        /// Pool as answered.
        answered: String,
        /// Pool as requested.
        requested: String,
    },
    /// A sub-ENI cannot have the MAC of the NIC it hangs on: the fabric and the node would take its
    /// frames for the parent's.
    #[error(
        "iaas response gives the sub-ENI with address {address} the MAC of a parent NIC, {mac}"
    )]
    ParentMac {
        /// As requested.
        address: String,
        /// As answered.
        mac: Mac,
    },
    /// VLAN or MAC that can't be.
    #[error(transparent)]
    Binding(#[from] BindingError),
}

/// Judges an answer; the bindings come in the order of the request, one for each item.
///
/// # Errors
/// [`ResponseError`] for the first contradiction.
pub fn accept(
    request: &AllocateRequest,
    response: &AllocateResponse,
) -> Result<Vec<Bound>, ResponseError> {
    let wanted = &request.sub_eni_requests;
    let mut found: Vec<Option<Bound>> = vec![None; wanted.len()];
    for item in &response.sub_eni_responses {
        let address = key(item);
        let matched = wanted.iter().position(|request| answers(item, request));
        let (Some(index), Some(request)) = (matched, matched.and_then(|at| wanted.get(at))) else {
            return Err(ResponseError::Unknown { address });
        };
        check_ipv6(item, request, &address)?;
        check_pools(item, request, &address)?;
        let (vlan, mac) = item.binding()?;
        if let Some(mac) = mac.filter(|mac| wanted.iter().any(|of| of.parent_nic_mac == *mac)) {
            return Err(ResponseError::ParentMac { address, mac });
        }
        let bound = Bound { index, vlan, mac };
        match found.get_mut(index) {
            Some(Some(earlier)) if *earlier != bound => {
                return Err(ResponseError::Duplicate { address });
            }
            Some(slot) => *slot = Some(bound),
            None => {}
        }
    }
    let mut bound = Vec::with_capacity(wanted.len());
    for (request, slot) in wanted.iter().zip(found) {
        bound.push(slot.ok_or_else(|| ResponseError::Missing {
            address: address_of(request),
        })?);
    }
    Ok(bound)
}

/// What an accepted answer says otherwise than the request, for a warning.
#[must_use]
pub fn oddities(request: &AllocateRequest, response: &AllocateResponse) -> Vec<String> {
    let mut odd = Vec::new();
    for item in &response.sub_eni_responses {
        let wanted = &request.sub_eni_requests;
        let Some(request) = wanted.iter().find(|request| answers(item, request)) else {
            continue;
        };
        let parent = &item.parent_nic_mac;
        if !parent.is_empty() && parent.parse() != Ok(request.parent_nic_mac) {
            let wanted = request.parent_nic_mac;
            odd.push(format!(
                "{}: parentNicMac {parent}, requested {wanted}",
                key(item)
            ));
        }
        let subnet = &item.subnet;
        if !subnet.is_empty() && subnet.parse().ok() != Some(request.subnet) {
            let wanted = request.subnet;
            odd.push(format!(
                "{}: subnet {subnet}, requested {wanted}",
                key(item)
            ));
        }
    }
    odd
}

/// The address an item stands for, as written.
fn key(item: &SubEniResponse) -> String {
    if item.ipv4_address.is_empty() {
        item.ipv6_address.clone()
    } else {
        item.ipv4_address.clone()
    }
}

fn answers(item: &SubEniResponse, request: &SubEniRequest) -> bool {
    match key(item).parse() {
        Ok(IpAddr::V4(ip)) => request.ipv4_address == Some(ip),
        Ok(IpAddr::V6(ip)) => request.ipv6_address == Some(ip),
        Err(_) => false,
    }
}

fn check_ipv6(
    item: &SubEniResponse,
    request: &SubEniRequest,
    address: &str,
) -> Result<(), ResponseError> {
    let answered = &item.ipv6_address;
    let fits = answered.is_empty()
        || answered
            .parse::<Ipv6Addr>()
            .is_ok_and(|ip| request.ipv6_address == Some(ip));
    if fits {
        return Ok(());
    }
    let requested = request.ipv6_address;
    Err(ResponseError::WrongIpv6 {
        address: address.to_owned(),
        answered: answered.clone(),
        requested: requested.map_or_else(|| "none".to_owned(), |ip| ip.to_string()),
    })
}

fn check_pools(
    item: &SubEniResponse,
    request: &SubEniRequest,
    address: &str,
) -> Result<(), ResponseError> {
    for (answered, requested) in [
        (&item.ipv4_pool_name, &request.ipv4_pool_name),
        (&item.ipv6_pool_name, &request.ipv6_pool_name),
    ] {
        if !answered.is_empty() && Some(answered) != requested.as_ref() {
            return Err(ResponseError::WrongPool {
                address: address.to_owned(),
                answered: answered.clone(),
                requested: requested.clone().unwrap_or_else(|| "none".to_owned()),
            });
        }
    }
    Ok(())
}

fn address_of(request: &SubEniRequest) -> String {
    match (request.ipv4_address, request.ipv6_address) {
        (Some(ip), _) => ip.to_string(),
        (None, Some(ip)) => ip.to_string(),
        (None, None) => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A pair and a single address on another parent.
    fn request() -> AllocateRequest {
        serde_json::from_value(json!({
            "nodeName": "n1",
            "subEniRequests": [
                { "parentNicMac": "fa:16:3e:30:00:03", "subnet": "10.72.0.0/24",
                  "ipv4Address": "10.72.0.10", "ipv6Address": "fd72::a",
                  "ipv4PoolName": "p4", "ipv6PoolName": "p6" },
                { "parentNicMac": "fa:16:3e:31:00:03", "subnet": "10.73.0.0/24",
                  "ipv4Address": "10.73.0.10" },
            ],
        }))
        .unwrap()
    }

    fn first() -> Value {
        json!({ "ipv4Address": "10.72.0.10", "ipv6Address": "fd72:0::000a", "vlanId": 100,
                "macAddress": "FA:16:3E:00:00:01", "ipv4PoolName": "p4" })
    }

    fn second() -> Value {
        json!({ "ipv4Address": "10.73.0.10", "vlanId": 101, "macAddress": "fa:16:3e:00:00:02" })
    }

    fn response(items: &[Value]) -> AllocateResponse {
        serde_json::from_value(json!({ "subEniResponses": items })).unwrap()
    }

    fn with(mut item: Value, key: &str, value: impl Into<Value>) -> Value {
        item[key] = value.into();
        item
    }

    fn judged(items: &[Value]) -> Result<Vec<Bound>, String> {
        accept(&request(), &response(items)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_fitting_answer_is_accepted_in_any_order() {
        let bound = |index, vlan, mac: &str| Bound {
            index,
            vlan: Some(VlanId::try_from(vlan).unwrap()),
            mac: Some(mac.parse().unwrap()),
        };
        let both = Ok(vec![
            bound(0, 100, "fa:16:3e:00:00:01"),
            bound(1, 101, "fa:16:3e:00:00:02"),
        ]);
        assert_eq!(judged(&[first(), second()]), both);
        assert_eq!(judged(&[second(), first()]), both);
        // an equal duplicate, and one spelled otherwise
        let again = with(first(), "macAddress", "fa:16:3e:00:00:01");
        assert_eq!(judged(&[first(), again, second()]), both);
        // the pair named by its IPv6 address alone
        assert_eq!(judged(&[with(first(), "ipv4Address", ""), second()]), both);
        assert_eq!(judged(&[with(first(), "ipv6Address", ""), second()]), both);
    }

    #[test]
    fn what_is_not_told_is_left_to_the_caller() {
        let bare = json!({ "ipv4Address": "10.73.0.10" });
        let zero = json!({ "ipv4Address": "10.73.0.10", "vlanId": 0, "macAddress": "" });
        for item in [bare, zero] {
            let bound = judged(&[first(), item]).unwrap();
            assert_eq!(
                bound[1],
                Bound {
                    index: 1,
                    vlan: None,
                    mac: None
                }
            );
        }
    }

    #[test]
    #[rustfmt::skip] // a case a line
    fn each_contradiction_is_refused_by_name() {
        let odd = |key: &str, value: Value| vec![with(first(), key, value), second()];
        for (items, text) in [
            (vec![first(), second(), with(second(), "ipv4Address", "10.72.0.99")], "iaas response contains unknown sub-ENI with address 10.72.0.99"),
            (vec![first(), with(second(), "ipv4Address", "")], "iaas response contains unknown sub-ENI with address "),
            (odd("ipv4Address", "10.72.0.x".into()), "iaas response contains unknown sub-ENI with address 10.72.0.x"),
            (odd("ipv4Address", "10.72.0.11".into()), "iaas response contains unknown sub-ENI with address 10.72.0.11"),
            (vec![first()], "iaas response lacks the sub-ENI with address 10.73.0.10"),
            (vec![], "iaas response lacks the sub-ENI with address 10.72.0.10"),
            (vec![first(), second(), with(second(), "vlanId", 102)], "iaas response contains the sub-ENI with address 10.73.0.10 twice with different values"),
            (odd("ipv6Address", "fd72::b".into()), "iaas response binds fd72::b to the sub-ENI with address 10.72.0.10, requested was fd72::a"),
            (odd("ipv6Address", "fd72".into()), "iaas response binds fd72 to the sub-ENI with address 10.72.0.10, requested was fd72::a"),
            (vec![first(), with(second(), "ipv6Address", "fd73::a")], "iaas response binds fd73::a to the sub-ENI with address 10.73.0.10, requested was none"),
            (odd("ipv4PoolName", "px".into()), "iaas response names pool px for the sub-ENI with address 10.72.0.10, requested was p4"),
            (odd("ipv6PoolName", "px".into()), "iaas response names pool px for the sub-ENI with address 10.72.0.10, requested was p6"),
            (odd("vlanId", 70_000.into()), "provider answer for 10.72.0.10: VLAN id 70000 is not in 1-4094"),
            (odd("vlanId", (-1).into()), "provider answer for 10.72.0.10: VLAN id -1 is not in 1-4094"),
            (odd("vlanId", 4095.into()), "provider answer for 10.72.0.10: VLAN id 4095 is not in 1-4094"),
            (odd("macAddress", "fa:16:3e:30:00:03".into()), "iaas response gives the sub-ENI with address 10.72.0.10 the MAC of a parent NIC, fa:16:3e:30:00:03"),
            (odd("macAddress", "fa:16:3e:31:00:03".into()), "iaas response gives the sub-ENI with address 10.72.0.10 the MAC of a parent NIC, fa:16:3e:31:00:03"),
            (odd("macAddress", "fa:16".into()), r#"provider answer for 10.72.0.10: MAC address "fa:16" is not six hexadecimal octets such as fa:16:3e:00:00:01"#),
        ] {
            assert_eq!(judged(&items), Err(text.to_owned()));
        }
    }

    #[test]
    fn another_parent_or_subnet_is_only_odd() {
        let item = with(first(), "parentNicMac", "fa:16:3e:30:00:04");
        let item = with(item, "subnet", "10.72.0.0/25");
        let answer = response(&[item, with(second(), "subnet", "10.73.0.0/24")]);
        assert!(accept(&request(), &answer).is_ok());
        assert_eq!(
            oddities(&request(), &answer),
            [
                "10.72.0.10: parentNicMac fa:16:3e:30:00:04, requested fa:16:3e:30:00:03",
                "10.72.0.10: subnet 10.72.0.0/25, requested 10.72.0.0/24",
            ]
        );
    }
}

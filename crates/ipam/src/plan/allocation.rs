//! What a NIC was given: addresses, gateways, routes, VLAN, MAC; from fresh claims or from the
//! endpoint, and back into the endpoint (spec ipam 4.7, api 1.4).

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use spiderpool_api::endpoint::EndpointNic;
use spiderpool_api::value::{Mac, ValueError, VlanId};

use crate::pick::Binding;
use crate::pool::{Pool, RouteTo};
use crate::range::Family;

/// One address of a NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocatedIp {
    /// With the prefix of the pool's subnet.
    pub address: IpNet,
    /// Pool name.
    pub pool: String,
    /// Gateway of the pool; stays even if the NIC gets no default route.
    pub gateway: Option<IpAddr>,
}

/// Everything a NIC was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// Interface name.
    pub nic: String,
    /// At most one per family, IPv4 first.
    pub ips: Vec<AllocatedIp>,
    /// Routes of pools and Pod, without default routes.
    pub routes: Vec<RouteTo>,
    /// The NIC gets no default route.
    pub clean_gateway: bool,
    /// VLAN id on the parent NIC.
    pub vlan: Option<VlanId>,
    /// MAC the cloud expects.
    pub mac: Option<Mac>,
}

impl Allocation {
    /// Routes to install: those of pools and Pod, then a default route per family with a gateway.
    #[must_use]
    pub fn all_routes(&self) -> Vec<RouteTo> {
        let mut routes = self.routes.clone();
        if !self.clean_gateway {
            routes.extend(self.ips.iter().filter_map(|ip| {
                let gw = ip.gateway?;
                Some(RouteTo {
                    dst: default_net(Family::of(gw)),
                    gw,
                })
            }));
        }
        routes
    }

    /// The address of one family.
    #[must_use]
    pub fn ip(&self, family: Family) -> Option<&AllocatedIp> {
        self.ips
            .iter()
            .find(|ip| Family::of_net(ip.address) == family)
    }
}

fn default_net(family: Family) -> IpNet {
    match family {
        Family::V4 => IpNet::V4(Ipv4Net::default()),
        Family::V6 => IpNet::V6(Ipv6Net::default()),
    }
}

/// An address claimed for a NIC.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// Its pool.
    pub pool: &'a Pool,
    /// The address.
    pub address: IpAddr,
    /// VLAN and MAC, if it is of a sub-ENI.
    pub binding: Option<Binding>,
}

/// Why no result can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResultError {
    /// The families would come from two sub-ENIs.
    #[error(
        "NIC {nic} would need two sub-ENIs, for IPPools {first} and {second}: pair the pools or name one family"
    )]
    TwoBindings {
        /// Interface name.
        nic: String,
        /// Pool of the first.
        first: String,
        /// Pool of the second.
        second: String,
    },
    /// A field of the endpoint is unusable.
    #[error("SpiderEndpoint: {field} of NIC {nic} has the unusable value {value:?}")]
    Endpoint {
        /// Interface name.
        nic: String,
        /// Field name.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// VLAN or MAC of the endpoint.
    #[error("SpiderEndpoint: NIC {nic} has an unusable sub-ENI")]
    Binding {
        /// Interface name.
        nic: String,
        /// What is wrong.
        source: ValueError,
    },
}

/// The result of fresh claims. Both halves of a pair share the sub-ENI of the IPv4 side.
///
/// # Errors
/// [`ResultError::TwoBindings`]: one NIC is one sub-ENI.
pub fn assemble(
    nic: &str,
    clean_gateway: bool,
    claims: &[Claim<'_>],
) -> Result<Allocation, ResultError> {
    let mut bound: Option<(&Claim<'_>, Binding)> = None;
    for claim in claims {
        match (bound, claim.binding) {
            (None, Some(binding)) => bound = Some((claim, binding)),
            (Some((first, known)), Some(binding)) if known != binding => {
                return Err(ResultError::TwoBindings {
                    nic: nic.to_owned(),
                    first: first.pool.name.clone(),
                    second: claim.pool.name.clone(),
                });
            }
            _ => {}
        }
    }
    let mut ips: Vec<AllocatedIp> = claims
        .iter()
        .map(|claim| AllocatedIp {
            address: claim.pool.with_prefix(claim.address),
            pool: claim.pool.name.clone(),
            gateway: claim.pool.gateway,
        })
        .collect();
    ips.sort_by_key(|ip| Family::of_net(ip.address));
    Ok(Allocation {
        nic: nic.to_owned(),
        ips,
        routes: claims
            .iter()
            .flat_map(|claim| claim.pool.routes.iter().copied())
            .collect(),
        clean_gateway,
        vlan: bound.map(|(_, binding)| binding.vlan),
        mac: bound.map(|(_, binding)| binding.mac),
    })
}

/// Hands each route of the Pod's annotation to the first address whose subnet contains the
/// gateway. Returns those that fit nowhere: worth a warning, no failure.
#[must_use]
pub fn attach_routes(allocations: &mut [Allocation], routes: &[RouteTo]) -> Vec<RouteTo> {
    let mut unmatched = Vec::new();
    for route in routes {
        let fits = |nic: &&mut Allocation| {
            nic.ips
                .iter()
                .any(|ip| ip.address.trunc().contains(&route.gw))
        };
        match allocations.iter_mut().find(fits) {
            Some(nic) => nic.routes.push(*route),
            None => unmatched.push(*route),
        }
    }
    unmatched
}

/// The result as the endpoint recorded it.
///
/// # Errors
/// [`ResultError`] names the field that cannot be read.
pub fn from_endpoint(nic: &EndpointNic) -> Result<Allocation, ResultError> {
    let bad = |field, value: &str| ResultError::Endpoint {
        nic: nic.interface.clone(),
        field,
        value: value.to_owned(),
    };
    let binding = |source| ResultError::Binding {
        nic: nic.interface.clone(),
        source,
    };
    let mut ips = Vec::new();
    for (field, text, pool, gateway) in [
        ("ipv4", &nic.ipv4, &nic.ipv4_pool, &nic.ipv4_gateway),
        ("ipv6", &nic.ipv6, &nic.ipv6_pool, &nic.ipv6_gateway),
    ] {
        let Some(text) = text.as_deref().filter(|text| !text.is_empty()) else {
            continue;
        };
        let gateway = gateway.as_deref().filter(|text| !text.is_empty());
        let gateway = gateway
            .map(|text| text.parse().map_err(|_| bad("gateway", text)))
            .transpose()?;
        ips.push(AllocatedIp {
            address: text.parse().map_err(|_| bad(field, text))?,
            pool: pool.clone().unwrap_or_default(),
            gateway,
        });
    }
    let routes = nic.routes.as_deref().unwrap_or_default().iter();
    let mac = nic.mac.as_deref().filter(|text| !text.is_empty());
    Ok(Allocation {
        nic: nic.interface.clone(),
        ips,
        routes: routes
            .map(|route| RouteTo::parse(route).ok_or_else(|| bad("routes", &route.dst)))
            .collect::<Result<_, _>>()?,
        clean_gateway: nic.clean_gateway.unwrap_or(false),
        vlan: (nic.vlan != 0)
            .then(|| VlanId::try_from(nic.vlan))
            .transpose()
            .map_err(binding)?,
        mac: mac.map(str::parse).transpose().map_err(binding)?,
    })
}

/// The endpoint's detail of a NIC. `cleanGateway` is stored only where there is a gateway.
#[must_use]
pub fn to_endpoint(allocation: &Allocation) -> EndpointNic {
    let of = |family| allocation.ip(family);
    let address = |ip: Option<&AllocatedIp>| ip.map(|ip| ip.address.to_string());
    let pool = |ip: Option<&AllocatedIp>| ip.map(|ip| ip.pool.clone());
    let gateway = |ip: Option<&AllocatedIp>| Some(ip?.gateway?.to_string());
    let (v4, v6) = (of(Family::V4), of(Family::V6));
    let has_gateway = allocation.ips.iter().any(|ip| ip.gateway.is_some());
    EndpointNic {
        interface: allocation.nic.clone(),
        ipv4: address(v4),
        ipv6: address(v6),
        ipv4_pool: pool(v4),
        ipv6_pool: pool(v6),
        vlan: allocation.vlan.map_or(0, |vlan| i64::from(vlan.get())),
        ipv4_gateway: gateway(v4),
        ipv6_gateway: gateway(v6),
        clean_gateway: has_gateway.then_some(allocation.clean_gateway),
        routes: (!allocation.routes.is_empty()).then(|| {
            allocation
                .routes
                .iter()
                .map(|route| route.to_api())
                .collect()
        }),
        mac: allocation.mac.map(|mac| mac.to_string()),
    }
}

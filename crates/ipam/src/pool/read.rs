//! Typing of a pool object, part by part, so that each error names the pool.

use std::net::IpAddr;

use ipnet::IpNet;
use spiderpool_api::allocation::RecordsError;
use spiderpool_api::ippool::{IpPoolStatus, Route, SpiderIPPoolSpec};
use spiderpool_api::names;
use spiderpool_api::value::{Mac, ValueError};

use super::{Affinity, Mode, PoolMeta, RouteTo};
use crate::range::{Family, IpRange, RangeError, parse_list};

/// Why an object cannot be used as a pool. Each names the pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// `spec.subnet`.
    #[error("IPPool {pool}: spec.subnet {value:?} is not a CIDR")]
    Subnet {
        /// Pool name.
        pool: String,
        /// The text.
        value: String,
    },
    /// `spec.ipVersion` contradicts the subnet.
    #[error("IPPool {pool}: spec.ipVersion {value} does not fit subnet {subnet}")]
    Version {
        /// Pool name.
        pool: String,
        /// The number.
        value: i64,
        /// The subnet.
        subnet: IpNet,
    },
    /// `spec.ips` or `spec.excludeIPs`.
    #[error("IPPool {pool}: {field} has a bad item")]
    Range {
        /// Pool name.
        pool: String,
        /// Which list.
        field: &'static str,
        /// The item.
        source: RangeError,
    },
    /// An address, MAC or route of the object.
    #[error("IPPool {pool}: {field} has the unusable value {value:?}")]
    Field {
        /// Pool name.
        pool: String,
        /// Which field.
        field: &'static str,
        /// The text.
        value: String,
    },
    /// `status.parentNic.mac`.
    #[error("IPPool {pool}: status.parentNic.mac is unusable")]
    ParentMac {
        /// Pool name.
        pool: String,
        /// What is wrong.
        source: ValueError,
    },
    /// A marked pool with several nodes has no mode.
    #[error(
        "IPPool {pool}: a pool with annotation ipam.spidernet.io/iaas-provider must be pinned to exactly one node or to none, it names {nodes}"
    )]
    Mode {
        /// Pool name.
        pool: String,
        /// Number of nodes.
        nodes: usize,
    },
    /// `status.allocatedIPs`.
    #[error("IPPool {pool}: the allocation records cannot be read")]
    Records {
        /// Pool name.
        pool: String,
        /// Why.
        source: RecordsError,
    },
}

/// Whether the pool carries the provider's annotation; its value is opaque.
pub(super) fn is_marked(meta: &PoolMeta) -> bool {
    meta.annotations.contains_key(names::IAAS_PROVIDER)
}

/// Reads the parts of one object, so that each error names the pool.
pub(super) struct Reader<'a> {
    pub(super) meta: &'a PoolMeta,
    pub(super) spec: &'a SpiderIPPoolSpec,
}

impl Reader<'_> {
    pub(super) fn subnet(&self) -> Result<(Family, IpNet), PoolError> {
        let subnet: IpNet = self.spec.subnet.parse().map_err(|_| PoolError::Subnet {
            pool: self.meta.name.clone(),
            value: self.spec.subnet.clone(),
        })?;
        let family = Family::of_net(subnet);
        match self.spec.ip_version {
            Some(value) if value != family.version() => Err(PoolError::Version {
                pool: self.meta.name.clone(),
                value,
                subnet,
            }),
            _ => Ok((family, subnet)),
        }
    }

    pub(super) fn ranges(
        &self,
        field: &'static str,
        texts: Option<&[String]>,
    ) -> Result<Vec<IpRange>, PoolError> {
        parse_list(texts.unwrap_or_default()).map_err(|source| PoolError::Range {
            pool: self.meta.name.clone(),
            field,
            source,
        })
    }

    fn field(&self, field: &'static str, value: &str) -> PoolError {
        PoolError::Field {
            pool: self.meta.name.clone(),
            field,
            value: value.to_owned(),
        }
    }

    pub(super) fn gateway(&self, family: Family) -> Result<Option<IpAddr>, PoolError> {
        match self.spec.gateway.as_deref() {
            None | Some("") => Ok(None),
            Some(text) => match text.parse() {
                Ok(address) if Family::of(address) == family => Ok(Some(address)),
                _ => Err(self.field("spec.gateway", text)),
            },
        }
    }

    pub(super) fn routes(&self, family: Family) -> Result<Vec<RouteTo>, PoolError> {
        let routes = self.spec.routes.as_deref().unwrap_or_default();
        let typed = |route: &Route| match RouteTo::parse(route) {
            Some(typed) if Family::of(typed.gw) == family => Ok(typed),
            _ => Err(self.field("spec.routes", &format!("{} via {}", route.dst, route.gw))),
        };
        routes.iter().map(typed).collect()
    }

    pub(super) fn mode(&self) -> Result<Mode, PoolError> {
        if !is_marked(self.meta) {
            return Ok(Mode::Plain);
        }
        match self.spec.node_name.as_deref().unwrap_or_default() {
            [] => Ok(Mode::Global),
            [node] => Ok(Mode::Prewarm { node: node.clone() }),
            several => Err(PoolError::Mode {
                pool: self.meta.name.clone(),
                nodes: several.len(),
            }),
        }
    }

    pub(super) fn parent_mac(&self, status: &IpPoolStatus) -> Result<Option<Mac>, PoolError> {
        let text = status.parent_nic.as_ref().map(|nic| nic.mac.as_str());
        text.filter(|text| !text.is_empty())
            .map(str::parse)
            .transpose()
            .map_err(|source| PoolError::ParentMac {
                pool: self.meta.name.clone(),
                source,
            })
    }

    pub(super) fn affinity(&self) -> Affinity {
        let spec = self.spec;
        Affinity {
            pod: spec.pod_affinity.clone(),
            namespace: spec.namespace_affinity.clone(),
            node: spec.node_affinity.clone(),
            namespace_names: spec.namespace_name.clone().unwrap_or_default(),
            node_names: spec.node_name.clone().unwrap_or_default(),
            multus_names: spec.multus_name.clone().unwrap_or_default(),
        }
    }
}

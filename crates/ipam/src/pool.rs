//! A pool as decisions see it: typed once from the object, immutable, with its records and, for
//! pools of a provider, the judged metadata.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use spiderpool_api::allocation::{Record, Records};
use spiderpool_api::ip_meta::{Metadata, MetadataError};
#[cfg(feature = "crd")]
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_api::ippool::{IpPoolStatus, Route, SpiderIPPoolSpec};
use spiderpool_api::names;
use spiderpool_api::selector::LabelSelector;
use spiderpool_api::value::Mac;

use crate::facts::Texts;
use crate::range::{Family, IpRange};
use crate::range_set::RangeSet;

mod gate;
mod read;

pub use gate::NotReady;
pub use read::PoolError;

use gate::{gate, without_parent};
use read::{Reader, is_marked};

/// Object metadata of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolMeta {
    /// Name.
    pub name: String,
    /// UID of the object.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// Annotations.
    pub annotations: Texts,
    /// Labels.
    pub labels: Texts,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// `metadata.creationTimestamp` as stored (RFC 3339, UTC, whole seconds).
    pub created: String,
}

#[cfg(feature = "crd")]
impl From<&SpiderIPPool> for PoolMeta {
    fn from(object: &SpiderIPPool) -> Self {
        let meta = &object.metadata;
        let created = meta.creation_timestamp.as_ref();
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            annotations: meta.annotations.clone().unwrap_or_default(),
            labels: meta.labels.clone().unwrap_or_default(),
            terminating: meta.deletion_timestamp.is_some(),
            created: created.map(|time| time.0.to_string()).unwrap_or_default(),
        }
    }
}

/// Who makes the pool's addresses work (spec ipam 7.1). Follows from annotation and shape alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Nobody: the network carries them anyway.
    Plain,
    /// A provider, ahead of demand, on one node.
    Prewarm {
        /// That node.
        node: String,
    },
    /// A provider, at the first allocation.
    Global,
}

/// Where a pool may be used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Affinity {
    /// `spec.podAffinity`.
    pub pod: Option<LabelSelector>,
    /// `spec.namespaceAffinity`.
    pub namespace: Option<LabelSelector>,
    /// `spec.nodeAffinity`.
    pub node: Option<LabelSelector>,
    /// `spec.namespaceName`.
    pub namespace_names: Vec<String>,
    /// `spec.nodeName`.
    pub node_names: Vec<String>,
    /// `spec.multusName`.
    pub multus_names: Vec<String>,
}

/// A pool.
#[derive(Debug, Clone)]
pub struct Pool {
    /// Name.
    pub name: String,
    /// UID of the object.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// Labels.
    pub labels: Texts,
    /// Being deleted: gives nothing new.
    pub terminating: bool,
    /// Creation time, ordering pools that overlap.
    pub created: String,
    /// Family of all addresses.
    pub family: Family,
    /// `spec.subnet`.
    pub subnet: IpNet,
    /// `spec.ips` less `spec.excludeIPs`.
    pub usable: RangeSet,
    /// `spec.ips` as stored: the order of picks.
    pub order: Vec<IpRange>,
    /// `spec.gateway`.
    pub gateway: Option<IpAddr>,
    /// `spec.routes`.
    pub routes: Vec<RouteTo>,
    /// Who may use it.
    pub affinity: Affinity,
    /// Used when nothing else names a pool.
    pub default: bool,
    /// Gives nothing new.
    pub disable: bool,
    /// See [`Mode`].
    pub mode: Mode,
    /// Annotation `parent-nic`, trimmed.
    pub parent_nic: Option<String>,
    /// `status.parentNic.mac`.
    pub parent_mac: Option<Mac>,
    /// Annotation `pair-pool`.
    pub pair: Option<String>,
    /// The records as read.
    pub records: Records,
    /// Metadata after the gate; `None` for plain pools.
    pub metadata: Option<Result<Arc<Metadata>, NotReady>>,
}

/// A route with a next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RouteTo {
    /// Destination.
    pub dst: IpNet,
    /// Next hop.
    pub gw: IpAddr,
}

impl RouteTo {
    /// Types a stored route; `None` when it is not CIDR and address of one family.
    #[must_use]
    pub fn parse(route: &Route) -> Option<Self> {
        let dst: IpNet = route.dst.parse().ok()?;
        let gw: IpAddr = route.gw.parse().ok()?;
        (Family::of_net(dst) == Family::of(gw)).then_some(Self { dst, gw })
    }

    /// As pools and endpoints store it.
    #[must_use]
    pub fn to_api(self) -> Route {
        Route {
            dst: self.dst.to_string(),
            gw: self.gw.to_string(),
        }
    }
}

impl Pool {
    /// Types an object, decoding its metadata.
    ///
    /// # Errors
    /// [`PoolError`]; metadata that is not ready is no error here.
    pub fn from_parts(
        meta: &PoolMeta,
        spec: &SpiderIPPoolSpec,
        status: &IpPoolStatus,
    ) -> Result<Self, PoolError> {
        Self::from_parts_with(meta, spec, status, |text| {
            Metadata::decode(text).map(Arc::new)
        })
    }

    /// The same for callers that remember what a text of metadata came to. `decode` is asked for pools
    /// of a provider alone.
    ///
    /// # Errors
    /// [`PoolError`]; metadata that is not ready is no error here.
    pub fn from_parts_with(
        meta: &PoolMeta,
        spec: &SpiderIPPoolSpec,
        status: &IpPoolStatus,
        decode: impl FnOnce(&str) -> Result<Arc<Metadata>, MetadataError>,
    ) -> Result<Self, PoolError> {
        let text = status.ip_meta_data.as_ref();
        let text = text.and_then(|data| data.metadata.as_deref());
        let decoded = text.filter(|_| is_marked(meta)).map(decode);
        let read = Reader { meta, spec };
        let (family, subnet) = read.subnet()?;
        let order = read.ranges("spec.ips", spec.ips.as_deref())?;
        let exclude = read.ranges("spec.excludeIPs", spec.exclude_ips.as_deref())?;
        let mode = read.mode()?;
        let annotation = |key: &str| {
            let text = meta.annotations.get(key)?.trim();
            (!text.is_empty()).then(|| text.to_owned())
        };
        let parent_mac = read.parent_mac(status)?;
        let gated = (mode != Mode::Plain).then(|| gate(meta, status, &mode, decoded));
        let metadata = gated.map(|gated| gated.map(|good| without_parent(good, parent_mac)));
        let records = Records::decode(status.allocated_ips.as_deref()).map_err(|source| {
            PoolError::Records {
                pool: meta.name.clone(),
                source,
            }
        })?;
        Ok(Self {
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            generation: meta.generation,
            labels: meta.labels.clone(),
            terminating: meta.terminating,
            created: meta.created.clone(),
            family,
            subnet,
            usable: order
                .iter()
                .copied()
                .collect::<RangeSet>()
                .subtract(&exclude.into_iter().collect()),
            order,
            gateway: read.gateway(family)?,
            routes: read.routes(family)?,
            affinity: read.affinity(),
            default: spec.default.unwrap_or(false),
            disable: spec.disable.unwrap_or(false),
            mode,
            parent_nic: annotation(names::PARENT_NIC),
            parent_mac,
            pair: annotation(names::PAIR_POOL),
            records,
            metadata,
        })
    }

    /// The same pool with other records, for planning several changes in a row.
    #[must_use]
    pub fn with_records(&self, records: Records) -> Self {
        Self {
            records,
            ..self.clone()
        }
    }

    /// The same pool without its marks and what they mean: under the first generation of the provider contract the
    /// NIC's configuration decides about the provider ([`crate::first_generation`]).
    #[must_use]
    pub fn unmarked(self) -> Self {
        Self {
            mode: Mode::Plain,
            pair: None,
            parent_nic: None,
            parent_mac: None,
            metadata: None,
            ..self
        }
    }

    /// Whether a provider is involved.
    #[must_use]
    pub fn is_iaas(&self) -> bool {
        self.mode != Mode::Plain
    }

    /// Whether it gives out nothing new, with the word for it.
    #[must_use]
    pub const fn closed(&self) -> Option<&'static str> {
        match (self.terminating, self.disable) {
            (true, _) => Some("terminating"),
            (false, true) => Some("disabled"),
            (false, false) => None,
        }
    }

    /// Addresses that have a record.
    #[must_use]
    pub fn taken(&self) -> RangeSet {
        self.records.iter().map(|(address, _)| address).collect()
    }

    /// Whether the address is this pool's to give, or recorded in it.
    #[must_use]
    pub fn may_hold(&self, address: IpAddr) -> bool {
        self.usable.contains(address) || self.records.get(address).is_some()
    }

    /// Records of one Pod UID, addresses ascending.
    #[must_use]
    pub fn records_of(&self, uid: &str) -> Vec<(IpAddr, &Record)> {
        let mut own = self.records.of_uid(uid);
        own.sort_unstable_by_key(|(address, _)| *address);
        own
    }

    /// An address of the pool with the prefix of its subnet.
    #[must_use]
    pub fn with_prefix(&self, address: IpAddr) -> IpNet {
        // An address of the other family never comes from this pool; it would stand alone.
        IpNet::new(address, self.subnet.prefix_len()).unwrap_or_else(|_| IpNet::from(address))
    }
}

#[cfg(test)]
mod tests;

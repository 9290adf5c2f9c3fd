//! Pools and reservations as the agents' decisions see them. Pure.

use std::sync::Arc;

use kube::ResourceExt;
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_api::reserved_ip::SpiderReservedIP;
use spiderpool_ipam::pool::{Pool, PoolError, PoolMeta};
use spiderpool_ipam::range::IpRange;
use spiderpool_ipam::range_set::RangeSet;

/// A pool, and what agents make of it.
pub(crate) struct Known {
    pub(crate) object: SpiderIPPool,
    pub(crate) pool: Result<Arc<Pool>, PoolError>,
}

impl Known {
    fn of(object: SpiderIPPool) -> Self {
        let status = object.status.clone().unwrap_or_default();
        let pool = Pool::from_parts(&PoolMeta::from(&object), &object.spec, &status).map(Arc::new);
        Self { object, pool }
    }

    pub(crate) fn name(&self) -> String {
        self.object.name_any()
    }
}

/// All pools, by name.
pub(crate) fn pools(objects: Vec<SpiderIPPool>) -> Vec<Known> {
    let mut known: Vec<Known> = objects.into_iter().map(Known::of).collect();
    known.sort_by_key(Known::name);
    known
}

/// Those that agents can use.
pub(crate) fn usable(known: &[Known]) -> Vec<Arc<Pool>> {
    let pools = known.iter().filter_map(|known| known.pool.as_ref().ok());
    pools.map(Arc::clone).collect()
}

/// A reservation; of its entries those count that can be read, as for agents.
pub(crate) struct Reserved {
    pub(crate) name: String,
    pub(crate) addresses: RangeSet,
}

/// All reservations that hold.
pub(crate) fn reserved(objects: &[SpiderReservedIP]) -> Vec<Reserved> {
    let live = objects
        .iter()
        .filter(|object| object.metadata.deletion_timestamp.is_none());
    live.map(|object| {
        let texts = object.spec.ips.iter().flatten();
        Reserved {
            name: object.name_any(),
            addresses: texts
                .filter_map(|text| text.parse::<IpRange>().ok())
                .collect(),
        }
    })
    .collect()
}

/// How full a pool is. `total` is the sum of the others, less what is taken outside of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) total: i64,
    pub(crate) used: i64,
    pub(crate) reserved: i64,
    pub(crate) free: i64,
}

impl Fill {
    pub(crate) fn of(pool: &Pool, reserved: &[Reserved]) -> Self {
        let taken = pool.taken();
        let gateway: RangeSet = pool.gateway.map(IpRange::single).into_iter().collect();
        let never = reserved
            .iter()
            .fold(gateway, |all, one| all.union(&one.addresses));
        let left = pool.usable.subtract(&taken);
        Self {
            total: pool.usable.count(),
            used: taken.count(),
            reserved: left.intersect(&never).count(),
            free: left.subtract(&never).count(),
        }
    }

    /// Tenths of a percent that are used; `None` of an empty pool.
    pub(crate) fn permille(self) -> Option<i64> {
        // Above nine quintillions the quotient rounds to nothing anyway.
        self.used.saturating_mul(1000).checked_div(self.total)
    }
}

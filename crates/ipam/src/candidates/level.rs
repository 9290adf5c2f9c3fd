//! The level that names the pools: the first that yields something is used alone; a level never
//! falls through to the next (spec ipam 3.1). Expands patterns and looks names up.

use std::fmt;
use std::sync::Arc;

use spiderpool_api::names;

use super::{Request, SelectError};
use crate::annotation::{
    PoolChoice, namespace_defaults, parse_ippool, parse_ippools, refuse_auto_pool,
};
use crate::facts::Snapshot;
use crate::networks;
use crate::pattern::expand;
use crate::pool::Pool;
use crate::range::Family;

/// What named the pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Pod annotation `ippool`.
    PodIppool,
    /// Pod annotation `ippools`.
    PodIppools,
    /// Namespace annotations.
    Namespace,
    /// CNI configuration.
    CniConf,
    /// Pools with `spec.default`.
    ClusterDefault,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PodIppool => "annotation ipam.spidernet.io/ippool",
            Self::PodIppools => "annotation ipam.spidernet.io/ippools",
            Self::Namespace => {
                "the Namespace's annotation default-ipv4-ippool or default-ipv6-ippool"
            }
            Self::CniConf => "the CNI configuration's default_ipv4_ippool or default_ipv6_ippool",
            Self::ClusterDefault => "the cluster default",
        })
    }
}

/// Pools named for one NIC, by enabled family.
pub(super) struct Wanted {
    pub(super) nic: String,
    pub(super) clean_gateway: bool,
    pub(super) families: Vec<(Family, Vec<Arc<Pool>>)>,
}

/// What a level named.
pub(super) struct Named {
    pub(super) level: Level,
    pub(super) nics: Vec<Wanted>,
}

/// Pool names of one NIC, of both families whether enabled or not.
pub(crate) struct NicPools {
    pub(crate) nic: String,
    pub(crate) pools: Vec<String>,
}

/// Pool names of every NIC that the level is about.
pub(crate) struct PoolNames {
    /// Items of `ippools` without interface names: NICs count by their order.
    pub(crate) nameless: bool,
    pub(crate) nics: Vec<NicPools>,
}

pub(super) fn preliminary(snapshot: &Snapshot, request: &Request) -> Result<Named, SelectError> {
    let chosen = choices(snapshot, request)?;
    let nics = chosen
        .nics
        .into_iter()
        .map(|(nic, choice)| wanted(snapshot, chosen.level, nic, &choice))
        .collect::<Result<_, _>>()?;
    Ok(Named {
        level: chosen.level,
        nics,
    })
}

/// The names alone, of both families, with the IPv6 sides of named pairs: what an endpoint may name
/// without its choice having changed (spec ipam 1.4).
///
/// # Errors
/// As [`super::select`], before any filter: what is wrong with the choice is told before anything
/// is given up for it.
pub(crate) fn pool_names(snapshot: &Snapshot, request: &Request) -> Result<PoolNames, SelectError> {
    preliminary(snapshot, request)?;
    let chosen = choices(snapshot, request)?;
    let nameless = chosen.nameless;
    let nics = chosen.nics.into_iter();
    let named = nics.map(|(nic, choice)| {
        let mut pools = Vec::new();
        for family in Family::BOTH {
            let (names, _) = expanded(snapshot, chosen.level, family, choice.of(family))?;
            pools.extend(names);
        }
        let partner = |name: &String| snapshot.pool(name)?.pair.clone();
        let partners: Vec<String> = pools.iter().filter_map(partner).collect();
        pools.extend(partners);
        Ok(NicPools { nic, pools })
    });
    Ok(PoolNames {
        nameless,
        nics: named.collect::<Result<_, SelectError>>()?,
    })
}

type Choices = Vec<(String, PoolChoice)>;

struct Chosen {
    level: Level,
    nameless: bool,
    nics: Choices,
}

fn choices(snapshot: &Snapshot, request: &Request) -> Result<Chosen, SelectError> {
    let pod = &snapshot.pod;
    let this = |level, mut choice: PoolChoice| {
        choice.clean_gateway = request.clean_gateway;
        let nics = vec![(request.ifname.clone(), choice)];
        Ok(Chosen {
            level,
            nameless: false,
            nics,
        })
    };
    refuse_auto_pool(pod, names::POD_SUBNET)?;
    if let Some(text) = pod.annotations.get(names::POD_IPPOOL) {
        return this(Level::PodIppool, parse_ippool(text)?);
    }
    refuse_auto_pool(pod, names::POD_SUBNETS)?;
    if let Some(text) = pod.annotations.get(names::POD_IPPOOLS) {
        let items = parse_ippools(text)?;
        return Ok(Chosen {
            level: Level::PodIppools,
            nameless: items.iter().any(|item| item.interface.is_none()),
            nics: all_nics(snapshot, request, items)?,
        });
    }
    let defaults = namespace_defaults(&snapshot.namespace)?;
    if !defaults.ipv4.is_empty() || !defaults.ipv6.is_empty() {
        return this(Level::Namespace, defaults);
    }
    if !request.ipv4_pools.is_empty() || !request.ipv6_pools.is_empty() {
        let choice = PoolChoice {
            ipv4: request.ipv4_pools.clone(),
            ipv6: request.ipv6_pools.clone(),
            ..PoolChoice::default()
        };
        return this(Level::CniConf, choice);
    }
    let cluster = cluster_default(snapshot);
    if cluster.ipv4.is_empty() && cluster.ipv6.is_empty() {
        return Err(SelectError::NoRules {
            nic: request.ifname.clone(),
        });
    }
    this(Level::ClusterDefault, cluster)
}

/// Default pools have no order of the user's: by name.
fn cluster_default(snapshot: &Snapshot) -> PoolChoice {
    let of = |family| {
        let mut list: Vec<String> = snapshot
            .pools
            .iter()
            .filter(|pool| pool.default && pool.family == family)
            .map(|pool| pool.name.clone())
            .collect();
        list.sort_unstable();
        list
    };
    PoolChoice {
        ipv4: of(Family::V4),
        ipv6: of(Family::V6),
        ..PoolChoice::default()
    }
}

/// Items of `ippools` with their NICs. Nameless items stand for `eth0` and then for the Pod's
/// networks in order, which is the order of ADDs.
fn all_nics(
    snapshot: &Snapshot,
    request: &Request,
    choices: Vec<PoolChoice>,
) -> Result<Choices, SelectError> {
    let nameless = choices.iter().any(|choice| choice.interface.is_none());
    let networks = if nameless && choices.len() > 1 {
        networks::secondary(&snapshot.pod)?
    } else {
        Vec::new()
    };
    let name = |index: usize, choice: &PoolChoice| match (&choice.interface, index.checked_sub(1)) {
        (Some(name), _) => name.clone(),
        (None, None) => "eth0".to_owned(),
        (None, Some(at)) => networks.get(at).map_or_else(
            || format!("net{index}"),
            |network| network.interface.clone(),
        ),
    };
    let named: Choices = choices
        .into_iter()
        .enumerate()
        .map(|(index, choice)| (name(index, &choice), choice))
        .collect();
    if named.iter().all(|(nic, _)| *nic != request.ifname) {
        let listed: Vec<&str> = named.iter().map(|(nic, _)| nic.as_str()).collect();
        return Err(SelectError::NicNotListed {
            from: Level::PodIppools,
            nic: request.ifname.clone(),
            listed: listed.join(", "),
        });
    }
    Ok(named)
}

fn wanted(
    snapshot: &Snapshot,
    level: Level,
    nic: String,
    choice: &PoolChoice,
) -> Result<Wanted, SelectError> {
    let mut families = Vec::new();
    let (mut unmatched, mut off) = (Vec::new(), Vec::new());
    for family in Family::BOTH {
        let list = choice.of(family);
        if list.is_empty() {
            continue;
        }
        if !enabled(snapshot, family) {
            off.push(format!("{family} is not enabled in this cluster"));
            continue;
        }
        let (names, empty) = expanded(snapshot, level, family, list)?;
        unmatched.extend(empty);
        let found = lookup(snapshot, level, &nic, family, &names)?;
        if !found.is_empty() {
            families.push((family, found));
        }
    }
    if families.is_empty() {
        unmatched.extend(off);
        return Err(SelectError::Empty {
            from: level,
            nic,
            why: unmatched.join(", "),
        });
    }
    Ok(Wanted {
        nic,
        clean_gateway: choice.clean_gateway,
        families,
    })
}

/// The names a list stands for, and a text for each pattern without a match.
fn expanded(
    snapshot: &Snapshot,
    level: Level,
    family: Family,
    list: &[String],
) -> Result<(Vec<String>, Vec<String>), SelectError> {
    let pools = snapshot.pools.iter().filter(|pool| pool.family == family);
    let expansion = expand(list, pools.map(|pool| pool.name.as_str()));
    let expansion = expansion.map_err(|source| SelectError::Pattern {
        from: level,
        source,
    })?;
    let empty = expansion.unmatched.iter();
    let empty = empty.map(|pattern| format!("pattern {pattern} matches no {family} pool"));
    Ok((expansion.names, empty.collect()))
}

const fn enabled(snapshot: &Snapshot, family: Family) -> bool {
    match family {
        Family::V4 => snapshot.enable_ipv4,
        Family::V6 => snapshot.enable_ipv6,
    }
}

fn lookup(
    snapshot: &Snapshot,
    level: Level,
    nic: &str,
    family: Family,
    list: &[String],
) -> Result<Vec<Arc<Pool>>, SelectError> {
    let mut pools: Vec<Arc<Pool>> = Vec::with_capacity(list.len());
    for name in list {
        if pools.iter().any(|pool| pool.name == *name) {
            return Err(SelectError::Duplicate {
                from: level,
                pool: name.clone(),
                nic: nic.to_owned(),
                family,
            });
        }
        let Some(pool) = snapshot.pool(name) else {
            let why = snapshot.unreadable.get(name).cloned();
            return Err(SelectError::UnknownPool {
                from: level,
                pool: name.clone(),
                nic: nic.to_owned(),
                family,
                why: why.unwrap_or_else(|| match name.as_str() {
                    "" => "the name is empty".to_owned(),
                    _ => "there is no such pool".to_owned(),
                }),
            });
        };
        pools.push(Arc::clone(pool));
    }
    Ok(pools)
}

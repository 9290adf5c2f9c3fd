//! A target out of a file, for a provider without a cluster. The file of the simulator serves as
//! it is: of its keys only `parents` and `pools` are read. Parts that contradict each other are
//! refused before anything is driven ([`fit`]). Blocks on the disk.

mod fit;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use spiderpool_api::causes::with_causes;
use spiderpool_api::ippool::{IpPoolStatus, SpiderIPPoolSpec};
use spiderpool_api::names;
use spiderpool_api::value::Mac;
use spiderpool_iaas::regular_file;
use spiderpool_ipam::pool::{Pool, PoolError, PoolMeta};
use spiderpool_ipam::range_set::RangeSet;

use self::fit::UnfitError;
use super::target::{Choice, Node, Target};

/// Longest file, bytes.
const MAX_FILE: u64 = 16 << 20;

/// The file can't be used. Names it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TopologyError {
    /// Not readable.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Not the format.
    #[error("{} is not valid, parents (node, mac) and pools (name, subnet, ips, node, pair) are wanted: {reason}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line, column and what was expected.
        reason: String,
    },
    /// Its parts contradict each other.
    #[error("{} cannot be used", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The first contradiction.
        source: UnfitError,
    },
}

#[derive(Deserialize)]
struct File {
    parents: Vec<Parent>,
    pools: Vec<FilePool>,
}

#[derive(Deserialize)]
struct Parent {
    node: String,
    mac: Mac,
}

#[derive(Deserialize)]
struct FilePool {
    name: String,
    subnet: String,
    ips: Vec<String>,
    #[serde(default)]
    node: Option<String>,
    #[serde(default)]
    pair: Option<String>,
}

/// Reads the file. `wanted` names the nodes to use, with parents if they are not the file's; none
/// means all.
///
/// # Errors
/// [`TopologyError`].
pub(crate) fn read(path: &Path, wanted: &[(String, Option<Mac>)]) -> Result<Target, TopologyError> {
    let path_of = || path.to_owned();
    let text = regular_file::read(path, MAX_FILE)
        .and_then(|text| String::from_utf8(text).map_err(io::Error::other));
    let text = text.map_err(|source| TopologyError::Read {
        path: path_of(),
        source,
    })?;
    let file: File = serde_saphyr::from_str(&text).map_err(|error| TopologyError::Parse {
        path: path_of(),
        // the quoted lines would be squeezed into one
        reason: error.without_snippet().to_string(),
    })?;
    let target = file.target(wanted);
    target.map_err(|source| TopologyError::Unfit {
        path: path_of(),
        source,
    })
}

impl File {
    fn target(&self, wanted: &[(String, Option<Mac>)]) -> Result<Target, UnfitError> {
        fit::parents(&self.parents)?;
        let pools = self.pools.iter().map(pool).collect::<Result<Vec<_>, _>>();
        let pools = pools.map_err(|error| UnfitError::Pool(with_causes(&error)))?;
        fit::pools(&pools)?;
        let nodes = nodes(&self.parents, wanted)?;
        fit::nodes_of_pools(&pools, |name| {
            let mut given = wanted.iter().map(|(name, _)| name);
            let mut parents = self.parents.iter();
            given.any(|one| one == name) || parents.any(|parent| parent.node == name)
        })?;
        Ok(Target::choose(&Choice {
            named: &pools,
            all: &pools,
            reserved: RangeSet::empty(),
            nodes: &|_| nodes.clone(),
        }))
    }
}

fn pool(given: &FilePool) -> Result<Arc<Pool>, PoolError> {
    let mut meta = PoolMeta {
        name: given.name.clone(),
        ..PoolMeta::default()
    };
    let mut annotate = |key: &str, value: &str| {
        meta.annotations.insert(key.to_owned(), value.to_owned());
    };
    annotate(names::IAAS_PROVIDER, "file");
    if let Some(pair) = &given.pair {
        annotate(names::PAIR_POOL, pair);
    }
    let spec = SpiderIPPoolSpec {
        subnet: given.subnet.clone(),
        ips: Some(given.ips.clone()),
        node_name: given.node.clone().map(|node| vec![node]),
        ..SpiderIPPoolSpec::default()
    };
    let mut pool = Pool::from_parts(&meta, &spec, &IpPoolStatus::default())?;
    // nobody publishes anything about it
    pool.metadata = None;
    Ok(Arc::new(pool))
}

/// One parent a node: the first. Those that are wanted, or all.
fn nodes(parents: &[Parent], wanted: &[(String, Option<Mac>)]) -> Result<Vec<Node>, UnfitError> {
    if wanted.is_empty() {
        let mut nodes: Vec<Node> = Vec::new();
        for Parent { node, mac } in parents {
            if !nodes.iter().any(|known| known.name == *node) {
                let (name, parent) = (node.clone(), *mac);
                nodes.push(Node { name, parent });
            }
        }
        return Ok(nodes);
    }
    let given = wanted.iter().map(|(name, mac)| {
        let of_file = parents.iter().find(|parent| parent.node == *name);
        let parent = mac.or(of_file.map(|parent| parent.mac));
        let parent = parent.ok_or_else(|| UnfitError::NoParent(name.clone()))?;
        let mut owners = parents.iter().filter(|known| known.mac == parent);
        if let Some(owner) = owners.find(|owner| owner.node != *name) {
            return Err(UnfitError::OneNic {
                first: owner.node.clone(),
                second: name.clone(),
                mac: parent,
            });
        }
        let name = name.clone();
        Ok(Node { name, parent })
    });
    given.collect()
}

#[cfg(test)]
mod tests;

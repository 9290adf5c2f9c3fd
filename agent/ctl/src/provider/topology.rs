//! A target out of a file, for a provider without a cluster. The file of the simulator serves as
//! it is: of its keys only `parents` and `pools` are read. Blocks on the disk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use spiderpool_api::ippool::{IpPoolStatus, SpiderIPPoolSpec};
use spiderpool_api::names;
use spiderpool_api::value::Mac;
use spiderpool_iaas::regular_file;
use spiderpool_ipam::pool::{Pool, PoolError, PoolMeta};
use spiderpool_ipam::range_set::RangeSet;

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
    #[error("{} is not valid: parents (node, mac) and pools (name, subnet, ips, node, pair) are wanted", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line, column and what was expected.
        source: Box<serde_saphyr::Error>,
    },
    /// A pool that cannot be.
    #[error("{} has a pool that cannot be used", path.display())]
    Pool {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<PoolError>,
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
    let file: File = serde_saphyr::from_str(&text).map_err(|source| TopologyError::Parse {
        path: path_of(),
        source: Box::new(source),
    })?;
    let pools = file.pools.iter().map(pool).collect::<Result<Vec<_>, _>>();
    let pools = pools.map_err(|source| TopologyError::Pool {
        path: path_of(),
        source: Box::new(source),
    })?;
    let nodes = nodes(&file.parents, wanted);
    Ok(Target::choose(&Choice {
        named: &pools,
        all: &pools,
        reserved: RangeSet::empty(),
        nodes: &|_| nodes.clone(),
    }))
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

/// One parent a node: the first.
fn nodes(parents: &[Parent], wanted: &[(String, Option<Mac>)]) -> Vec<Node> {
    let of = |name: &str| parents.iter().find(|parent| parent.node == name);
    if wanted.is_empty() {
        let mut nodes: Vec<Node> = Vec::new();
        for Parent { node, mac } in parents {
            if !nodes.iter().any(|known| known.name == *node) {
                let (name, parent) = (node.clone(), *mac);
                nodes.push(Node { name, parent });
            }
        }
        return nodes;
    }
    let given = wanted.iter().filter_map(|(name, mac)| {
        let parent = mac.or_else(|| of(name).map(|parent| parent.mac))?;
        let name = name.clone();
        Some(Node { name, parent })
    });
    given.collect()
}

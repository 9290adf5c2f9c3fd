//! A target out of a cluster: pools named by whoever runs the test, free addresses of them, nodes
//! with the parent NICs that agents publish. Reads the API; changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node as ApiNode;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use spiderpool_api::names;
use spiderpool_api::value::Mac;
use spiderpool_ipam::pool::Pool;

use super::target::{Choice, Node, Target};
use crate::cluster::{Cluster, ListError};
use crate::facts::{self, Known};
use crate::one_line;

/// The pools cannot be used for a test.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChoiceError {
    /// The API cannot be asked.
    #[error(transparent)]
    List(#[from] ListError),
    /// The nodes cannot be listed.
    #[error("cannot list nodes; name them with --node NAME=MAC")]
    Nodes(#[source] Box<kube::Error>),
    /// No such pool.
    #[error("there is no pool {0}; spiderpoolctl pool list shows those there are")]
    NoPool(String),
    /// Not a provider's.
    #[error("pool {0} is not marked for a provider (annotation ipam.spidernet.io/iaas-provider)")]
    NotMarked(String),
    /// Gives nothing.
    #[error("pool {pool} is {word}")]
    Closed {
        /// Which.
        pool: String,
        /// Why.
        word: &'static str,
    },
    /// Not usable by agents either.
    #[error("pool {pool} cannot be used: {reason}")]
    Unusable {
        /// Which.
        pool: String,
        /// Why.
        reason: String,
    },
}

/// Chooses from the named pools. `wanted` names nodes, with parents if agents publish none.
///
/// # Errors
/// [`ChoiceError`].
pub(crate) async fn choose(
    cluster: &Cluster,
    names: &[String],
    wanted: &[(String, Option<Mac>)],
) -> Result<Target, ChoiceError> {
    let known = facts::pools(cluster.pools().await?.objects);
    let reserved = facts::reserved(&cluster.reserved().await?.objects);
    let named = names.iter().map(|name| find(&known, name));
    let named = named.collect::<Result<Vec<_>, _>>()?;
    let published = match wanted.iter().all(|(_, mac)| mac.is_some()) && !wanted.is_empty() {
        true => BTreeMap::new(),
        false => published(cluster).await?,
    };
    let reserved = reserved.iter().map(|one| one.addresses.clone());
    Ok(Target::choose(&Choice {
        named: &named,
        all: &facts::usable(&known),
        reserved: reserved.fold(Default::default(), |all, one| all.union(&one)),
        nodes: &|pool| nodes(pool, &published, wanted),
    }))
}

fn find(known: &[Known], name: &str) -> Result<Arc<Pool>, ChoiceError> {
    let found = known.iter().find(|known| known.name() == name);
    let found = found.ok_or_else(|| ChoiceError::NoPool(name.to_owned()))?;
    let pool = match &found.pool {
        Ok(pool) => Arc::clone(pool),
        Err(error) => {
            return Err(ChoiceError::Unusable {
                pool: name.to_owned(),
                reason: one_line(error),
            });
        }
    };
    if !pool.is_iaas() {
        return Err(ChoiceError::NotMarked(name.to_owned()));
    }
    match pool.closed() {
        Some(word) => Err(ChoiceError::Closed {
            pool: name.to_owned(),
            word,
        }),
        None => Ok(pool),
    }
}

type Nics = BTreeMap<String, String>;

/// What agents say of the NICs of their nodes.
async fn published(cluster: &Cluster) -> Result<BTreeMap<String, Nics>, ChoiceError> {
    let api: Api<ApiNode> = Api::all(cluster.client().clone());
    let listed = api.list(&ListParams::default()).await;
    let listed = listed.map_err(|error| ChoiceError::Nodes(Box::new(error)))?;
    let nics = |node: &ApiNode| {
        let text = node.annotations().get(names::PARENT_NICS)?;
        serde_json::from_str(text).ok()
    };
    let nodes = listed.items.iter();
    Ok(nodes
        .filter_map(|node| Some((node.name_any(), nics(node)?)))
        .collect())
}

/// The nodes for a pool: those wanted, or all with the NIC that the pool names.
fn nodes(
    pool: &Pool,
    published: &BTreeMap<String, Nics>,
    wanted: &[(String, Option<Mac>)],
) -> Vec<Node> {
    let nic = |name: &str| {
        let mac = published.get(name)?.get(pool.parent_nic.as_ref()?)?;
        mac.parse::<Mac>().ok()
    };
    let all: Vec<(String, Option<Mac>)> = if wanted.is_empty() {
        published.keys().map(|name| (name.clone(), None)).collect()
    } else {
        wanted.to_vec()
    };
    let nodes = all.into_iter().filter_map(|(name, mac)| {
        let parent = mac.or_else(|| nic(&name))?;
        Some(Node { name, parent })
    });
    nodes.collect()
}

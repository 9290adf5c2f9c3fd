//! What is published of a pool, read through the Kubernetes API.

use std::net::{IpAddr, Ipv4Addr};

use spiderpool_api::ip_meta::{Entry, EntryState, Metadata};
use spiderpool_api::ippool::{IpMetaData, SpiderIPPool};
use tokio::time::sleep;

use super::publish::SOON;
use crate::one_line;
use crate::provider::ctx::Ctx;
use crate::provider::kit::Stop;
use crate::provider::pools::Pools;
use crate::provider::target::Prewarm;

/// A pool and what is published of it.
pub(super) struct Published {
    pub(super) name: String,
    pub(super) node: Option<String>,
    pub(super) object: SpiderIPPool,
    pub(super) told: IpMetaData,
}

impl Published {
    /// Its metadata, as it is.
    pub(super) fn text(&self) -> Result<&str, Stop> {
        let observed = self.told.observed_generation;
        if observed.is_none() || observed != self.object.metadata.generation {
            let why = "is not published as it is: see publish.generation";
            return Err(Stop::Skip(format!("pool {} {why}", self.name)));
        }
        let none = || Stop::Fail(format!("pool {} has no metadata", self.name));
        self.told.metadata.as_deref().ok_or_else(none)
    }

    /// Its metadata, if other checks find nothing wrong with it.
    pub(super) fn metadata(&self) -> Result<Metadata, Stop> {
        let text = self.text().map_err(|stop| match stop {
            Stop::Fail(why) => Stop::Skip(format!("{why}: see publish.scope")),
            other => other,
        });
        let metadata = Metadata::decode(text?);
        let metadata =
            metadata.map_err(|error| Stop::Skip(format!("{error}: see publish.scope")))?;
        if metadata.scope == self.node.as_deref().unwrap_or_default() {
            return Ok(metadata);
        }
        let (name, scope) = (&self.name, &metadata.scope);
        Err(Stop::Skip(format!(
            "pool {name} has scope {scope:?}: see publish.scope"
        )))
    }
}

/// The way to the pools.
pub(super) fn pools(ctx: &Ctx) -> Result<&Pools, Stop> {
    let none = || Stop::Skip("the pools' status is needed: run it against a cluster".to_owned());
    ctx.kit.pools.as_ref().ok_or_else(none)
}

/// Reads one pool.
pub(super) async fn read(ctx: &Ctx, name: &str, node: Option<&str>) -> Result<Published, Stop> {
    let object = pools(ctx)?.read(name).await;
    let object = object.map_err(|error| Stop::Skip(one_line(&error)))?;
    let told = object
        .status
        .as_ref()
        .and_then(|status| status.ip_meta_data.clone());
    let told = told.unwrap_or_default();
    ctx.note(
        &format!("GET pool {name}"),
        format!(
            "generation {}, observedGeneration {}, {} ready",
            object.metadata.generation.unwrap_or_default(),
            number(told.observed_generation),
            number(told.ready_ip_count),
        ),
    );
    Ok(Published {
        name: name.to_owned(),
        node: node.map(str::to_owned),
        object,
        told,
    })
}

/// A number that may be missing, for people.
pub(super) fn number(told: Option<i64>) -> String {
    told.map_or_else(|| "none".to_owned(), |number| number.to_string())
}

/// What an entry says, for people.
pub(super) fn entry_in_words(entry: Option<&Entry>) -> String {
    let Some(entry) = entry else {
        return "missing".to_owned();
    };
    let place = place(&entry.state);
    match entry.ipv6 {
        Some(ipv6) => format!("{place}, with {ipv6}"),
        None => place,
    }
}

fn place(state: &EntryState) -> String {
    match state {
        EntryState::Attached { node, vlan, mac } => {
            let on = node.as_ref().map(|node| format!(" to {node}"));
            format!("attached{}, VLAN {vlan}, MAC {mac}", on.unwrap_or_default())
        }
        EntryState::Reclaiming { node } => format!("being detached from {node}"),
        EntryState::Unattached { mac: Some(mac) } => format!("attached nowhere, MAC {mac}"),
        EntryState::Unattached { mac: None } => "attached nowhere, without MAC".to_owned(),
    }
}

/// Reads the pools of the target that have metadata.
pub(super) async fn all(ctx: &Ctx) -> Result<Vec<Published>, Stop> {
    pools(ctx)?;
    let target = ctx.target();
    let mut names: Vec<(&str, Option<&str>)> = Vec::new();
    names.extend(
        target
            .global
            .iter()
            .map(|global| (global.pool.as_str(), None)),
    );
    names.extend(target.pair.iter().map(|pair| (pair.v4_pool.as_str(), None)));
    let prewarm = target.prewarm.iter();
    names.extend(prewarm.map(|one| (one.pool.as_str(), Some(one.node.as_str()))));
    let mut all = Vec::new();
    for (name, node) in names {
        all.push(read(ctx, name, node).await?);
    }
    Ok(all)
}

/// The entry of an address as it is now.
pub(super) async fn entry(
    ctx: &Ctx,
    name: &str,
    node: Option<&str>,
    ip: IpAddr,
) -> Result<Option<Entry>, Stop> {
    let object = pools(ctx)?.read(name).await;
    let object = object.map_err(|error| Stop::Skip(one_line(&error)))?;
    let told = object.status.as_ref();
    let told = told
        .and_then(|status| status.ip_meta_data.clone())
        .unwrap_or_default();
    let (name, node) = (name.to_owned(), node.map(str::to_owned));
    let pool = Published {
        name,
        node,
        object,
        told,
    };
    Ok(pool.metadata()?.entries.remove(&ip))
}

impl Ctx {
    /// Where the published entry of a global address is attached, once a flush had its time.
    pub(super) async fn published_node(&self, ip: Ipv4Addr) -> Result<Option<String>, Stop> {
        sleep(SOON).await;
        let global = self.target().global.as_ref();
        let pool = global
            .map(|global| global.pool.as_str())
            .unwrap_or_default();
        let entry = entry(self, pool, None, ip.into()).await?;
        Ok(match entry.map(|entry| entry.state) {
            Some(EntryState::Attached { node, .. }) => node,
            _ => None,
        })
    }

    /// The entry of a prewarm address as it is now.
    pub(super) async fn prewarm_entry(
        &self,
        prewarm: &Prewarm,
        ip: Ipv4Addr,
    ) -> Result<Option<Entry>, Stop> {
        entry(self, &prewarm.pool, Some(&prewarm.node), ip.into()).await
    }
}

//! What the provider writes to the pools' status, seen through the Kubernetes API.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use spiderpool_api::ip_meta::{Entry, EntryState, Metadata};
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_ipam::range_set::RangeSet;
use tokio::time::{Instant, sleep};

use super::published::{all, entry, entry_in_words, number, pools, read};
use super::{boxed, ensure};
use crate::one_line;
use crate::provider::catalogue::Check;
use crate::provider::cleanup;
use crate::provider::ctx::Ctx;
use crate::provider::judge::Binding;
use crate::provider::kit::Stop;

/// Longest wait for a publication, and between two looks.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);
/// How soon one comes in a good provider.
pub(super) const SOON: Duration = Duration::from_secs(2);

/// Of what is there before anything is asked.
pub(crate) const BEFORE: &[Check] = &[
    Check {
        id: "publish.generation",
        holds: "observedGeneration is the pool's generation",
        openapi: "",
        section: "Publication",
        run: |ctx| boxed(generation(ctx)),
    },
    Check {
        id: "publish.scope",
        holds: "metadata is a JSON envelope whose scope is the node of a prewarm pool, or empty",
        openapi: "",
        section: "Publication",
        run: |ctx| boxed(scope(ctx)),
    },
    Check {
        id: "publish.entries",
        holds: "each entry is one row of the state table; a prewarm entry names no node",
        openapi: "",
        section: "State table",
        run: |ctx| boxed(entries(ctx)),
    },
    Check {
        id: "publish.counters",
        holds: "readyIPCount counts the entries, unreadyIPCount the addresses without one",
        openapi: "",
        section: "Publication",
        run: |ctx| boxed(counters(ctx)),
    },
    Check {
        id: "publish.skeleton",
        holds: "a global pool without sub-ENIs is published too, with the empty scope",
        openapi: "",
        section: "Publication",
        run: |ctx| boxed(skeleton(ctx)),
    },
    Check {
        id: "publish.sibling",
        holds: "the IPv6 pool of a pair has no metadata of its own",
        openapi: "",
        section: "Pairs",
        run: |ctx| boxed(sibling(ctx)),
    },
];

/// Of what was done.
pub(crate) const AFTER: &[Check] = &[
    Check {
        id: "publish.global-entry",
        holds: "an allocated address appears with the answered MAC and VLAN id and its node",
        openapi: "",
        section: "Publication",
        run: |ctx| boxed(global_entry(ctx)),
    },
    Check {
        id: "publish.pair-entry",
        holds: "the entry of a pair is on the IPv4 pool and names the IPv6 address",
        openapi: "",
        section: "Pairs",
        run: |ctx| boxed(pair_entry(ctx)),
    },
    Check {
        id: "publish.claims",
        holds: "the provider writes no records: those of the run are still there",
        openapi: "",
        section: "Publication",
        run: |ctx| boxed(claims(ctx)),
    },
];

/// Waits, because a spec may have changed a moment ago.
async fn generation(ctx: &Ctx) -> Result<(), Stop> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        ctx.tell_anew();
        let behind = all(ctx)
            .await?
            .into_iter()
            .find(|pool| pool.told.observed_generation != pool.object.metadata.generation);
        let Some(pool) = behind else { return Ok(()) };
        if Instant::now() > deadline {
            return Err(Stop::Fail(format!(
                "pool {} is at generation {}, observedGeneration is {} for {PATIENCE:?}",
                pool.name,
                pool.object.metadata.generation.unwrap_or_default(),
                number(pool.told.observed_generation)
            )));
        }
        sleep(LOOK).await;
    }
}

async fn scope(ctx: &Ctx) -> Result<(), Stop> {
    for pool in all(ctx).await? {
        let text = pool.text()?;
        let metadata = Metadata::decode(text);
        let metadata =
            metadata.map_err(|error| Stop::Fail(format!("pool {}: {error}", pool.name)))?;
        let wanted = pool.node.as_deref().unwrap_or_default();
        ensure(metadata.scope == wanted, || {
            format!(
                "pool {}: scope is {:?}, wanted {wanted:?}",
                pool.name, metadata.scope
            )
        })?;
    }
    Ok(())
}

async fn entries(ctx: &Ctx) -> Result<(), Stop> {
    for pool in all(ctx).await? {
        let metadata = pool.metadata()?;
        if let Some(bad) = metadata.bad.first() {
            return Err(Stop::Fail(format!(
                "pool {}, {}: {}",
                pool.name, bad.key, bad.reason
            )));
        }
        let foreign = metadata.entries.iter().find(|(_, entry)| {
            pool.node.is_some()
                && matches!(&entry.state, EntryState::Attached { node: Some(_), .. })
        });
        ensure(foreign.is_none(), || {
            let ip = foreign.map(|(ip, _)| ip.to_string()).unwrap_or_default();
            format!(
                "pool {}, {ip}: an entry of a prewarm pool names a node",
                pool.name
            )
        })?;
    }
    Ok(())
}

async fn counters(ctx: &Ctx) -> Result<(), Stop> {
    for pool in all(ctx).await? {
        let metadata = pool.metadata()?;
        let ready = metadata.entries.len() + metadata.bad.len();
        let ready = i64::try_from(ready).unwrap_or(i64::MAX);
        let unready = capacity(&pool.object)?.saturating_sub(ready).max(0);
        let told = (pool.told.ready_ip_count, pool.told.unready_ip_count);
        ensure(told == (Some(ready), Some(unready)), || {
            format!(
                "pool {} has {ready} entries and {unready} addresses without one; told are {} and {}",
                pool.name,
                number(told.0),
                number(told.1)
            )
        })?;
    }
    Ok(())
}

/// Addresses of `ips` less `excludeIPs`.
fn capacity(pool: &SpiderIPPool) -> Result<i64, Stop> {
    let set = |texts: &Option<Vec<String>>| {
        let texts = texts.as_deref().unwrap_or_default();
        RangeSet::from_texts(texts).map_err(|error| Stop::Skip(error.to_string()))
    };
    Ok(set(&pool.spec.ips)?
        .subtract(&set(&pool.spec.exclude_ips)?)
        .count())
}

/// Only seen as long as nothing was allocated.
async fn skeleton(ctx: &Ctx) -> Result<(), Stop> {
    let Some(global) = &ctx.target().global else {
        return Err(Stop::Skip("no global pool was named".to_owned()));
    };
    let pool = read(ctx, &global.pool, None).await?;
    if pool.metadata()?.entries.is_empty() {
        return Ok(());
    }
    let (name, why) = (&pool.name, "has entries; a new one would show it");
    Err(Stop::Skip(format!("pool {name} {why}")))
}

async fn sibling(ctx: &Ctx) -> Result<(), Stop> {
    let Some(pair) = &ctx.target().pair else {
        return Err(Stop::Skip("no pair of global pools was named".to_owned()));
    };
    let pool = read(ctx, &pair.v6_pool, None).await?;
    ensure(pool.told.metadata.is_none(), || {
        format!(
            "pool {} has metadata; it belongs on {}",
            pair.v6_pool, pair.v4_pool
        )
    })
}

async fn global_entry(ctx: &Ctx) -> Result<(), Stop> {
    pools(ctx)?;
    let one = ctx.single(0)?;
    let binding = ctx.allocate(one.node, &[one.item()]).await?.at(0)?;
    wait_for(ctx, &one.global.pool, one.ip, &one.node.name, binding, None).await
}

async fn pair_entry(ctx: &Ctx) -> Result<(), Stop> {
    pools(ctx)?;
    let (pair, node, item) = ctx.pair_of(0)?;
    let binding = ctx.allocate(node, &[item]).await?.at(0)?;
    let Some((v4, v6)) = pair.free.first() else {
        return Ok(());
    };
    wait_for(ctx, &pair.v4_pool, *v4, &node.name, binding, Some(*v6)).await
}

/// Waits for the entry of a binding.
async fn wait_for(
    ctx: &Ctx,
    pool: &str,
    ip: Ipv4Addr,
    node: &str,
    binding: Binding,
    partner: Option<Ipv6Addr>,
) -> Result<(), Stop> {
    let began = Instant::now();
    let state = EntryState::Attached {
        node: Some(node.to_owned()),
        vlan: binding.vlan,
        mac: binding.mac,
    };
    let wanted = Entry {
        ipv6: partner,
        state,
        detach_time: None,
    };
    loop {
        let entry = entry(ctx, pool, None, ip.into()).await?;
        let is_it = entry
            .as_ref()
            .is_some_and(|one| one.state == wanted.state && one.ipv6 == wanted.ipv6);
        if is_it && began.elapsed() > SOON {
            let took = began.elapsed().as_secs();
            return Err(Stop::Advice(format!(
                "the entry of {ip} came after {took} s; until then other nodes take its address for free"
            )));
        }
        if is_it {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            let (entry, wanted) = (
                entry_in_words(entry.as_ref()),
                entry_in_words(Some(&wanted)),
            );
            return Err(Stop::Fail(format!(
                "pool {pool}: the entry of {ip} is {entry} after {PATIENCE:?}, wanted {wanted}"
            )));
        }
        sleep(LOOK).await;
    }
}

async fn claims(ctx: &Ctx) -> Result<(), Stop> {
    let pools = pools(ctx)?;
    for (pool, addresses) in cleanup::by_pool(&ctx.kit) {
        let lost = pools.lost(&pool, &addresses).await;
        let lost = lost.map_err(|error| Stop::Skip(one_line(&error)))?;
        ensure(lost.is_empty(), || {
            let lost: Vec<String> = lost.iter().map(ToString::to_string).collect();
            let lost = lost.join(", ");
            format!(
                "pool {pool}: the records of {lost} are gone (by the provider, unless garbage collection was faster)"
            )
        })?;
        ctx.note(&format!("GET pool {pool}"), "all records are there");
    }
    Ok(())
}

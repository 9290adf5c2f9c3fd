//! Releases: idempotent, either address of a pair, and no dead triple left in a prewarm pool.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::Value;
use spiderpool_api::ip_meta::{Entry, EntryState};
use spiderpool_api::provider::RELEASE_PATH;
use tokio::time::{Instant, sleep};

use super::published::entry_in_words;
use super::{Shown, boxed, ensure, where_it_is};
use crate::provider::catalogue::Check;
use crate::provider::ctx::Ctx;
use crate::provider::kit::Stop;
use crate::provider::target::Prewarm;
use crate::provider::wire::{Call, Released, with};

/// How long a released entry is watched, and between two looks.
const WATCH: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(20);

pub(crate) const CHECKS: &[Check] = &[
    Check {
        id: "release.unknown-address",
        holds: "an address the provider does not know is a success",
        openapi: "releaseIP description",
        section: "Release",
        run: |ctx| boxed(unknown_address(ctx)),
    },
    Check {
        id: "release.unknown-pool",
        holds: "an address of a pool that is gone is a success",
        openapi: "releaseIP description",
        section: "Release",
        run: |ctx| boxed(unknown_pool(ctx)),
    },
    Check {
        id: "release.no-node",
        holds: "an empty nodeName is refused with 400",
        openapi: "ReleaseRequest.nodeName",
        section: "Release",
        run: |ctx| boxed(no_node(ctx)),
    },
    Check {
        id: "release.no-parent",
        holds: "parentNicMac may be missing or empty",
        openapi: "ReleaseRequest.parentNicMac",
        section: "Release",
        run: |ctx| boxed(no_parent(ctx)),
    },
    Check {
        id: "release.prewarm",
        holds: "after the 2xx the entry is unchanged and stays usable, or it is withdrawn: never a dead triple",
        openapi: "releaseIP description",
        section: "Release",
        run: |ctx| boxed(prewarm(ctx)),
    },
    Check {
        id: "release.repeat",
        holds: "the same release again is a success",
        openapi: "releaseIP description",
        section: "Release",
        run: |ctx| boxed(repeat(ctx)),
    },
    Check {
        id: "release.pair",
        holds: "either address of a dual-stack sub-ENI stands for the whole",
        openapi: "releaseIP description",
        section: "Release",
        run: |ctx| boxed(pair(ctx)),
    },
    Check {
        id: "release.again",
        holds: "a released address can be allocated again",
        openapi: "allocateIPs description",
        section: "Release",
        run: |ctx| boxed(again(ctx)),
    },
];

/// A release that is about nothing: an address of no pool.
fn of_nothing(ctx: &Ctx) -> Result<Released, Stop> {
    let one = ctx.single(0)?;
    let outside = one
        .global
        .outside
        .ok_or_else(|| Stop::Skip(format!("pools fill the whole subnet {}", one.global.subnet)))?;
    let address = outside.to_string();
    Ok(Released {
        address,
        ..one.released()
    })
}

async fn unknown_address(ctx: &Ctx) -> Result<(), Stop> {
    ctx.release(&of_nothing(ctx)?).await.map(drop)
}

async fn unknown_pool(ctx: &Ctx) -> Result<(), Stop> {
    let pool = "provider-verify-no-such-pool".to_owned();
    let what = of_nothing(ctx)?;
    ctx.release(&Released { pool, ..what }).await.map(drop)
}

async fn no_node(ctx: &Ctx) -> Result<(), Stop> {
    let node = String::new();
    let what = of_nothing(ctx)?;
    let call = Call::release(&ctx.kit.identity, &Released { node, ..what });
    let note = format!("{}(an empty nodeName)", call.note);
    let reply = ctx
        .refused(Call {
            note: note.clone(),
            ..call
        })
        .await?;
    ensure(reply.status.as_u16() == 400, || {
        format!("{note}: {}, wanted 400", reply.summary())
    })
}

async fn no_parent(ctx: &Ctx) -> Result<(), Stop> {
    let what = of_nothing(ctx)?;
    if ctx.release(&what).await.is_err() {
        let why = "the same release with it fails too: see release.unknown-address";
        return Err(Stop::Skip(why.to_owned()));
    }
    let what = Released {
        parent: None,
        ..what
    };
    ctx.release(&what).await?;
    let body: Value = serde_json::from_slice(&Call::release(&ctx.kit.identity, &what).body)
        .map_err(|error| Stop::Skip(error.to_string()))?;
    let body = with(&body, "parentNicMac", "".into());
    let note = format!("release {}, parentNicMac \"\"", what.address);
    let reply = ctx
        .ask(Call::post(RELEASE_PATH, &body, note.clone()))
        .await?;
    ensure(reply.status.is_success(), || {
        format!("{note}: {}, wanted 2xx", reply.summary())
    })
}

/// The prewarm pool and its free address.
fn warm(ctx: &Ctx) -> Result<(&Prewarm, Ipv4Addr, Released), Stop> {
    let prewarm = ctx.target().prewarm.as_ref();
    let prewarm = prewarm.ok_or_else(|| Stop::Skip("no prewarm pool was named".to_owned()))?;
    let none = || {
        Stop::Skip(format!(
            "pool {} has no free address that is ready",
            prewarm.pool
        ))
    };
    let ip = prewarm.free.ok_or_else(none)?;
    let released = Released {
        pool: prewarm.pool.clone(),
        subnet: prewarm.subnet,
        address: ip.to_string(),
        node: prewarm.node.clone(),
        parent: prewarm.parent,
    };
    Ok((prewarm, ip, released))
}

/// The state right after the answer is what an agent acts on: it frees the address and hits it.
async fn prewarm(ctx: &Ctx) -> Result<(), Stop> {
    let (prewarm, ip, what) = warm(ctx)?;
    if ctx.kit.pools.is_none() {
        ctx.release(&what).await?;
        return Err(Stop::Skip(
            "the entry is not seen: run it against a cluster".to_owned(),
        ));
    }
    let before = ctx.prewarm_entry(prewarm, ip).await?;
    let Some(before) = before.filter(is_usable) else {
        return Err(Stop::Skip(format!(
            "pool {}: {ip} has no usable entry",
            prewarm.pool
        )));
    };
    ctx.release(&what).await?;
    let began = Instant::now();
    let after = ctx.prewarm_entry(prewarm, ip).await?;
    ctx.note(
        &format!("GET pool {}", prewarm.pool),
        format!("{ip}: {}", entry_in_words(after.as_ref())),
    );
    if after.as_ref().map(|entry| &entry.state) != Some(&before.state) {
        // withdrawn in time, perhaps made anew already
        return Ok(());
    }
    while began.elapsed() < WATCH {
        sleep(LOOK).await;
        let now = ctx.prewarm_entry(prewarm, ip).await?;
        ensure(
            now.as_ref().map(|entry| &entry.state) == Some(&before.state),
            || {
                format!(
                    "the entry of {ip} was there after the 2xx and {:?} later it is {}: until then Pods get a dead triple",
                    began.elapsed(),
                    entry_in_words(now.as_ref())
                )
            },
        )?;
        if let Ok(shown) = ctx.shown(ip.into()).await {
            ensure(shown.is_some_and(|shown| !shown.node.is_empty()), || {
                format!(
                    "the entry of {ip} is there, GET ips-cache does not have it attached: a dead triple"
                )
            })?;
        }
    }
    Ok(())
}

const fn is_usable(entry: &Entry) -> bool {
    matches!(entry.state, EntryState::Attached { .. })
}

/// Version 1 releases addresses of any pool.
async fn repeat(ctx: &Ctx) -> Result<(), Stop> {
    let what = match ctx.kit.is_v1 {
        false => warm(ctx)?.2,
        true => {
            let one = ctx.single(1)?;
            ctx.allocate(one.node, &[one.item()]).await?;
            one.released()
        }
    };
    ctx.release(&what).await?;
    ctx.release(&what).await.map(drop)
}

/// Of a global pair, which a provider may decline to release. Then nothing can be said.
async fn pair(ctx: &Ctx) -> Result<(), Stop> {
    let (pair, node, item) = ctx.pair_of(1)?;
    let Some((v4, v6)) = pair.free.get(1).copied() else {
        return Ok(());
    };
    ctx.allocate(node, &[item]).await?;
    let what = Released {
        pool: pair.v6_pool.clone(),
        subnet: pair.subnet,
        address: v6.to_string(),
        node: node.name.clone(),
        parent: Some(node.parent),
    };
    released_if_served(ctx, &what).await?;
    ctx.forget(v4.into());
    let deadline = Instant::now() + WATCH;
    loop {
        let shown = (
            ctx.shown(IpAddr::V4(v4)).await?,
            ctx.shown(IpAddr::V6(v6)).await?,
        );
        // torn down, which takes its time, or kept as idle cache
        if shown == (None, None) || shown.0 == shown.1 && Instant::now() > deadline {
            return Ok(());
        }
        ensure(Instant::now() < deadline, || {
            format!(
                "{v6} was released; it is {} now, {v4} is {}",
                shown_in_words(shown.1.as_ref()),
                shown_in_words(shown.0.as_ref())
            )
        })?;
        sleep(LOOK).await;
    }
}

fn shown_in_words(shown: Option<&Shown>) -> String {
    let Some(Shown { node, mac }) = shown else {
        return "unknown".to_owned();
    };
    let mac = mac.map_or_else(|| "without MAC".to_owned(), |mac| format!("MAC {mac}"));
    format!("{}, {mac}", where_it_is(Some(node)))
}

/// Releases an address of a global pool: nobody owes that, so a refusal ends the check.
async fn released_if_served(ctx: &Ctx, what: &Released) -> Result<(), Stop> {
    let call = Call::release(&ctx.kit.identity, what);
    let note = call.note.clone();
    let reply = ctx.ask(call).await?;
    let (status, summary) = (reply.status, reply.summary());
    match status.as_u16() {
        _ if status.is_success() => Ok(()),
        429 | 503 => Err(Stop::Skip(format!(
            "{note}: {summary}, and no better later"
        ))),
        _ if status.is_client_error() => Err(Stop::Skip(format!(
            "releases of a live global pool are declined: {note}: {summary}"
        ))),
        _ => Err(Stop::Fail(format!(
            "{note}: {summary}, wanted 2xx, or 4xx to decline"
        ))),
    }
}

async fn again(ctx: &Ctx) -> Result<(), Stop> {
    let one = ctx.single(1)?;
    ctx.allocate(one.node, &[one.item()]).await?;
    let what = one.released();
    released_if_served(ctx, &what).await?;
    ctx.forget(one.ip.into());
    let first = ctx.allocate(one.node, &[one.item()]).await?.at(0)?;
    let then = ctx.allocate(one.node, &[one.item()]).await?.at(0)?;
    ensure(first == then, || {
        format!(
            "{} has {} first and {} then: the release works on it still",
            one.ip, first.mac, then.mac
        )
    })
}

//! One call after the other: create, repeat, move, several items, a caller that hangs up.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Value, json};
use spiderpool_iaas::client::raw;
use tokio::time::timeout;

use super::refuse::NOWHERE;
use super::{Single, boxed, ensure, where_it_is};
use crate::provider::catalogue::Check;
use crate::provider::ctx::Ctx;
use crate::provider::kit::Stop;
use crate::provider::target::Node;
use crate::provider::wire::{Call, in_version_1, with};

/// How long a caller that hangs up has waited: enough for TLS and the call to arrive, less than a cloud
/// takes to make a sub-ENI.
const IMPATIENCE: Duration = Duration::from_millis(200);

pub(crate) const CHECKS: &[Check] = &[
    Check {
        id: "allocate.create",
        holds: "an address of a global pool gets a sub-ENI on the node",
        openapi: "allocateIPs 200",
        section: "Allocate",
        run: |ctx| boxed(create(ctx)),
    },
    Check {
        id: "allocate.repeat",
        holds: "the same address on the same node gets the same MAC and VLAN id again",
        openapi: "allocateIPs description",
        section: "Allocate",
        run: |ctx| boxed(repeat(ctx)),
    },
    Check {
        id: "allocate.move",
        holds: "the same address on another node moves the sub-ENI: same MAC, and back",
        openapi: "allocateIPs description",
        section: "Allocate",
        run: |ctx| boxed(moves(ctx)),
    },
    Check {
        id: "allocate.two-items",
        holds: "one call binds several interfaces of a Pod, each with a MAC and VLAN id of its own",
        openapi: "AllocateRequest.subEniRequests",
        section: "Allocate",
        run: |ctx| boxed(two_items(ctx)),
    },
    Check {
        id: "allocate.all-or-nothing",
        holds: "of a call with one impossible item nothing is done",
        openapi: "allocateIPs description",
        section: "Allocate",
        run: |ctx| boxed(all_or_nothing(ctx)),
    },
    Check {
        id: "allocate.distinct",
        holds: "addresses on one parent NIC have distinct MACs and distinct VLAN ids",
        openapi: "SubEniResponse.vlanId",
        section: "Allocate",
        run: |ctx| boxed(distinct(ctx)),
    },
    Check {
        id: "allocate.hang-up",
        holds: "a caller that hangs up leaves an address that the next call gets",
        openapi: "allocateIPs description",
        section: "Allocate",
        run: |ctx| boxed(hang_up(ctx)),
    },
    Check {
        id: "allocate.late",
        holds: "a call of a Pod whose record is gone is refused (recommended: only the record says who has the address)",
        openapi: "PodIdentity.podUID",
        section: "Claims",
        run: |ctx| boxed(late(ctx)),
    },
];

async fn create(ctx: &Ctx) -> Result<(), Stop> {
    let one = ctx.single(0)?;
    let created = ctx.allocate(one.node, &[one.item()]).await;
    ctx.kit.seen.serves_nothing.set(created.is_err());
    let created = created?;
    ctx.try_diagnostics(one.ip.into()).await?;
    ctx.set_aside();
    created.at(0).map(drop)
}

async fn repeat(ctx: &Ctx) -> Result<(), Stop> {
    let one = ctx.single(0)?;
    let first = ctx.allocate(one.node, &[one.item()]).await?.at(0)?;
    let again = ctx.allocate(one.node, &[one.item()]).await?.at(0)?;
    ensure(first == again, || {
        format!(
            "{} had {} VLAN {}, asked again it has {} VLAN {}",
            one.ip, first.mac, first.vlan, again.mac, again.vlan
        )
    })
}

async fn moves(ctx: &Ctx) -> Result<(), Stop> {
    let one = ctx.single(0)?;
    let other = another_node(&one)?;
    let here = ctx.allocate(one.node, &[one.item()]).await?.at(0)?;
    let item = one.global.item(one.ip, other);
    let there = ctx.allocate(other, &[item]).await?.at(0)?;
    ensure(here.mac == there.mac, || {
        format!(
            "{} had MAC {} and has {} after the move",
            one.ip, here.mac, there.mac
        )
    })?;
    if ctx.kit.seen.shows_addresses.get() == Some(true) {
        let node = ctx.shown(one.ip.into()).await?.map(|shown| shown.node);
        ensure(node.as_ref() == Some(&other.name), || {
            format!(
                "{} was moved to {}, GET ips-cache shows it {}",
                one.ip,
                other.name,
                where_it_is(node.as_deref())
            )
        })?;
    }
    let back = ctx.allocate(one.node, &[one.item()]).await?.at(0)?;
    ensure(here.mac == back.mac, || {
        format!(
            "{} had MAC {} and has {} after moving back",
            one.ip, here.mac, back.mac
        )
    })
}

fn another_node<'a>(one: &Single<'a>) -> Result<&'a Node, Stop> {
    let other = one.global.nodes.get(1);
    other.ok_or_else(|| Stop::Skip("there is one node only; name two with --node".to_owned()))
}

async fn two_items(ctx: &Ctx) -> Result<(), Stop> {
    let (one, two) = (ctx.single(1)?, ctx.single(2)?);
    let bound = ctx.allocate(one.node, &[one.item(), two.item()]).await?;
    let (one, two) = (bound.at(0)?, bound.at(1)?);
    ensure(one.mac != two.mac && one.vlan != two.vlan, || {
        format!("both items have {} VLAN {}", one.mac, one.vlan)
    })
}

/// The bad item comes last: what is done before it is found would be left.
async fn all_or_nothing(ctx: &Ctx) -> Result<(), Stop> {
    let one = ctx.single(3)?;
    let bad = impossible(ctx, &one)?;
    let call = ctx.allocate_call(one.node, &[one.item(), bad]);
    let note = call.note.clone();
    let reply = ctx.ask(call.clone()).await?;
    if reply.status.is_success() {
        ctx.touch(&call);
    }
    ensure(!reply.status.is_success(), || {
        format!("{note}: {}, wanted a refusal", reply.summary())
    })?;
    let bound = match ctx.shown(one.ip.into()).await {
        Ok(shown) => shown
            .map(|shown| shown.node)
            .filter(|node| !node.is_empty()),
        Err(_) if ctx.kit.pools.is_some() => ctx.published_node(one.ip).await?,
        Err(stop) => return Err(stop),
    };
    ensure(bound.is_none(), || {
        format!(
            "the call was refused, and {} is {} nevertheless",
            one.ip,
            where_it_is(bound.as_deref())
        )
    })
}

/// An item that cannot be: an address of no pool; without pools, of no subnet.
fn impossible(ctx: &Ctx, one: &Single<'_>) -> Result<Value, Stop> {
    if ctx.kit.is_v1 {
        return Ok(with(&ctx.single(2)?.item(), "subnet", NOWHERE.into()));
    }
    let full = || Stop::Skip(format!("pools fill the whole subnet {}", one.global.subnet));
    let outside = one.global.outside.ok_or_else(full)?;
    Ok(with(&one.item(), "ipv4Address", json!(outside)))
}

async fn distinct(ctx: &Ctx) -> Result<(), Stop> {
    let mut bindings = Vec::new();
    ctx.single(1)?;
    for number in 0..4 {
        let Ok(one) = ctx.single(number) else { break };
        bindings.push(ctx.allocate(one.node, &[one.item()]).await?.at(0)?);
    }
    let macs: BTreeSet<_> = bindings.iter().map(|one| one.mac).collect();
    let vlans: BTreeSet<_> = bindings.iter().map(|one| one.vlan.get()).collect();
    ensure(macs.len() == bindings.len(), || {
        format!("{} addresses have {} MACs", bindings.len(), macs.len())
    })?;
    ensure(vlans.len() == bindings.len(), || {
        format!(
            "{} addresses on one parent NIC have {} VLAN ids",
            bindings.len(),
            vlans.len()
        )
    })
}

async fn hang_up(ctx: &Ctx) -> Result<(), Stop> {
    let one = ctx.single(4)?;
    let call = ctx.allocate_call(one.node, &[one.item()]);
    let whole = ctx.kit.timeout.as_millis().to_string();
    let call = call.with_budget(&whole);
    ctx.touch(&call);
    let body = match ctx.kit.is_v1 {
        true => in_version_1(&call.body),
        false => call.body.clone(),
    };
    let request = call
        .request(body)
        .map_err(|error| Stop::Skip(error.to_string()))?;
    let answered = timeout(IMPATIENCE, raw::send(&ctx.kit.endpoint, request)).await;
    let how = if answered.is_ok() {
        "it was answered before"
    } else {
        "no answer was waited for"
    };
    ctx.note(&format!("{}, then hang up", call.note), how);
    let first = ctx.allocate(one.node, &[one.item()]).await?.at(0)?;
    let again = ctx.allocate(one.node, &[one.item()]).await?.at(0)?;
    ensure(first == again, || {
        format!(
            "{} has {} first and {} then: two calls work on it",
            one.ip, first.mac, again.mac
        )
    })
}

/// A node loses power with its call on the way; the address is another Pod's when it arrives.
async fn late(ctx: &Ctx) -> Result<(), Stop> {
    let Some(pools) = &ctx.kit.pools else {
        return Err(Stop::Skip(
            "records are needed: run it against a cluster".to_owned(),
        ));
    };
    let one = ctx.single(5)?;
    let other = another_node(&one)?;
    let mut heir = ctx.kit.identity.clone();
    heir.uid = uuid::Uuid::new_v4().to_string();
    let pool = &one.global.pool;
    let broken = |error: crate::provider::pools::PoolsError| Stop::Skip(crate::one_line(&error));
    pools
        .hand_over(pool, IpAddr::V4(one.ip), &heir.uid)
        .await
        .map_err(broken)?;
    let good = Call::allocate(&heir, &one.node.name, &[one.item()]);
    ctx.allocate_by(good).await?.at(0)?;
    let item = one.global.item(one.ip, other);
    let call = ctx.allocate_call(other, &[item]);
    ctx.touch(&call);
    let reply = ctx.ask(call).await?;
    let uid = &ctx.kit.identity.uid;
    pools
        .hand_over(pool, IpAddr::V4(one.ip), uid)
        .await
        .map_err(broken)?;
    if reply.status.is_success() {
        return Err(Stop::Advice(format!(
            "{} belongs to Pod UID {} on {}, and a late call of UID {uid} has moved it to {}",
            one.ip, heir.uid, one.node.name, other.name
        )));
    }
    ctx.count_refusal(&reply);
    Ok(())
}

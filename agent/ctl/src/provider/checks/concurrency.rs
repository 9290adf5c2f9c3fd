//! Calls at the same time.

use std::collections::BTreeSet;

use super::{boxed, ensure};
use crate::provider::catalogue::Check;
use crate::provider::ctx::Ctx;
use crate::provider::judge::Binding;
use crate::provider::kit::Stop;
use crate::provider::wire::{Call, Reply};

/// Calls at a time.
const AT_ONCE: usize = 6;

pub(crate) const CHECKS: &[Check] = &[
    Check {
        id: "concurrent.same",
        holds: "calls for one address follow one another: one MAC, one VLAN id",
        openapi: "info description",
        section: "Allocate",
        run: |ctx| boxed(same(ctx)),
    },
    Check {
        id: "concurrent.nodes",
        holds: "calls of two nodes for one address follow one another: one MAC, and the last one counts",
        openapi: "info description",
        section: "Allocate",
        run: |ctx| boxed(nodes(ctx)),
    },
    Check {
        id: "concurrent.distinct",
        holds: "addresses allocated at once have distinct MACs, and VLAN ids of their own on the parent NIC",
        openapi: "SubEniResponse.vlanId",
        section: "Allocate",
        run: |ctx| boxed(distinct(ctx)),
    },
];

/// Sends them all; each has to be served.
async fn serve(ctx: &Ctx, calls: Vec<Call>) -> Result<Vec<Binding>, Stop> {
    let replies = ctx.all_at_once(calls.clone()).await;
    let replies: Vec<Reply> = replies.into_iter().collect::<Result<_, _>>()?;
    for (call, reply) in calls.iter().zip(&replies) {
        ctx.served(call, reply)?;
    }
    let judged = calls.iter().zip(&replies);
    judged
        .map(|(call, reply)| ctx.judge(call, reply)?.at(0))
        .collect()
}

async fn same(ctx: &Ctx) -> Result<(), Stop> {
    let one = ctx.single(3)?;
    let call = ctx.allocate_call(one.node, &[one.item()]);
    let bindings = serve(ctx, vec![call; AT_ONCE]).await?;
    let macs: BTreeSet<_> = bindings
        .iter()
        .map(|one| (one.mac, one.vlan.get()))
        .collect();
    ensure(macs.len() == 1, || {
        format!("{AT_ONCE} calls for {} got {macs:?}", one.ip)
    })
}

async fn nodes(ctx: &Ctx) -> Result<(), Stop> {
    let one = ctx.single(3)?;
    let Some(other) = one.global.nodes.get(1) else {
        return Err(Stop::Skip(
            "there is one node only; name two with --node".to_owned(),
        ));
    };
    let calls = (0..AT_ONCE).map(|number| {
        let node = if number % 2 == 0 { one.node } else { other };
        ctx.allocate_call(node, &[one.global.item(one.ip, node)])
    });
    let bindings = serve(ctx, calls.collect()).await?;
    let macs: BTreeSet<_> = bindings.iter().map(|one| one.mac).collect();
    ensure(macs.len() == 1, || {
        format!(
            "{AT_ONCE} calls of two nodes for {} got MACs {macs:?}",
            one.ip
        )
    })?;
    let last = ctx.allocate(one.node, &[one.item()]).await?.at(0)?;
    ensure(macs.contains(&last.mac), || {
        format!(
            "{} had {macs:?} and has MAC {} afterwards",
            one.ip, last.mac
        )
    })
}

/// Released first, so that the provider has to attach them.
async fn distinct(ctx: &Ctx) -> Result<(), Stop> {
    ctx.single(1)?;
    let mut calls = Vec::new();
    while let Ok(one) = ctx.single(calls.len()) {
        if calls.len() == 4 {
            break;
        }
        // declined by a provider that keeps what is in a global pool: then it attaches nothing
        ctx.ask(Call::release(&ctx.kit.identity, &one.released()))
            .await?;
        ctx.forget(one.ip.into());
        calls.push(ctx.allocate_call(one.node, &[one.item()]));
    }
    let bindings = serve(ctx, calls).await?;
    let macs: BTreeSet<_> = bindings.iter().map(|one| one.mac).collect();
    let vlans: BTreeSet<_> = bindings.iter().map(|one| one.vlan.get()).collect();
    ensure(
        macs.len() == bindings.len() && vlans.len() == bindings.len(),
        || {
            format!(
                "{} addresses have {} MACs and {} VLAN ids",
                bindings.len(),
                macs.len(),
                vlans.len()
            )
        },
    )
}

//! Dual-stack sub-ENIs.

use serde_json::json;

use super::{boxed, ensure};
use crate::provider::catalogue::Check;
use crate::provider::ctx::Ctx;
use crate::provider::kit::Stop;
use crate::provider::wire::with;

pub(crate) const CHECKS: &[Check] = &[
    Check {
        id: "pair.create",
        holds: "one item with both addresses gets one sub-ENI",
        openapi: "SubEniRequest.ipv6Address",
        section: "Pairs",
        run: |ctx| boxed(create(ctx)),
    },
    Check {
        id: "pair.spelling",
        holds: "an IPv6 address is compared by value, not by spelling",
        openapi: "IPv6Address",
        section: "Pairs",
        run: |ctx| boxed(spelling(ctx)),
    },
    Check {
        id: "pair.mismatch",
        holds: "an IPv6 address that is not the partner is refused",
        openapi: "allocateIPs 400 PairMismatch",
        section: "Pairs",
        run: |ctx| boxed(mismatch(ctx)),
    },
];

async fn create(ctx: &Ctx) -> Result<(), Stop> {
    let (_, node, item) = ctx.pair_of(0)?;
    let first = ctx
        .allocate(node, std::slice::from_ref(&item))
        .await?
        .at(0)?;
    let again = ctx.allocate(node, &[item]).await?.at(0)?;
    ensure(first == again, || {
        format!(
            "the pair had {} VLAN {} and has {} VLAN {}",
            first.mac, first.vlan, again.mac, again.vlan
        )
    })
}

async fn spelling(ctx: &Ctx) -> Result<(), Stop> {
    let (pair, node, item) = ctx.pair_of(0)?;
    let first = ctx
        .allocate(node, std::slice::from_ref(&item))
        .await?
        .at(0)?;
    let Some((_, v6)) = pair.free.first() else {
        return Ok(());
    };
    let groups: Vec<String> = v6
        .segments()
        .iter()
        .map(|group| format!("{group:04X}"))
        .collect();
    let item = with(&item, "ipv6Address", json!(groups.join(":")));
    let again = ctx.allocate(node, &[item]).await?.at(0)?;
    ensure(first == again, || {
        format!("{v6} written out is another sub-ENI: {}", again.mac)
    })
}

async fn mismatch(ctx: &Ctx) -> Result<(), Stop> {
    let (pair, node, item) = ctx.pair_of(0)?;
    let other = pair.free.get(1).ok_or_else(|| {
        Stop::Skip("the pair has one free address pair, two are wanted".to_owned())
    })?;
    let wrong = with(&item, "ipv6Address", json!(other.1));
    ctx.allocate(node, &[item]).await?;
    let call = ctx.allocate_call(node, &[wrong]);
    let note = call.note.clone();
    let reply = ctx.refused(call).await?;
    ensure(reply.status.as_u16() == 400, || {
        format!("{note}: {}, wanted 400", reply.summary())
    })
}

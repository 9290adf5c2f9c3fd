//! Calls that cannot be meant: each has to be refused with a 4xx, and nothing may happen.

use serde_json::{Value, json};

use super::{boxed, ensure};
use crate::provider::catalogue::Check;
use crate::provider::ctx::Ctx;
use crate::provider::kit::Stop;
use crate::provider::wire::{Call, with};

/// Documentation addresses: no cloud subnet is there (RFC 5737).
pub(super) const NOWHERE: &str = "198.51.100.0/24";
/// A MAC of no node.
const NOBODY: &str = "02:00:5e:00:53:01";

pub(crate) const CHECKS: &[Check] = &[
    Check {
        id: "refuse.pool",
        holds: "an unknown pool is refused",
        openapi: "allocateIPs 404 PoolNotFound",
        section: "Refusals",
        run: |ctx| {
            boxed(changed(
                ctx,
                "ipv4PoolName",
                "provider-verify-no-such-pool".into(),
            ))
        },
    },
    Check {
        id: "refuse.range",
        holds: "an address that is not the pool's is refused",
        openapi: "allocateIPs 409 PoolMismatch",
        section: "Refusals",
        run: |ctx| boxed(range(ctx)),
    },
    Check {
        id: "refuse.subnet",
        holds: "an address outside of the named subnet is refused",
        openapi: "SubEniRequest.subnet",
        section: "Refusals",
        run: |ctx| boxed(changed(ctx, "subnet", NOWHERE.into())),
    },
    Check {
        id: "refuse.no-address",
        holds: "an item without an address is refused with 400",
        openapi: "SubEniRequest anyOf",
        section: "Refusals",
        run: |ctx| boxed(no_address(ctx)),
    },
    Check {
        id: "refuse.parent",
        holds: "a parent NIC that is not the node's is refused",
        openapi: "allocateIPs 400 ParentNicNotOnNode",
        section: "Refusals",
        run: |ctx| boxed(changed(ctx, "parentNicMac", NOBODY.into())),
    },
    Check {
        id: "refuse.node",
        holds: "an empty nodeName is refused",
        openapi: "AllocateRequest.nodeName",
        section: "Refusals",
        run: |ctx| boxed(node(ctx)),
    },
    Check {
        id: "refuse.no-items",
        holds: "a call without items is refused",
        openapi: "AllocateRequest.subEniRequests",
        section: "Refusals",
        run: |ctx| boxed(no_items(ctx)),
    },
];

/// The good item with one field changed.
async fn changed(ctx: &Ctx, key: &str, value: Value) -> Result<(), Stop> {
    let one = ctx.single(0)?;
    let item = with(&one.item(), key, value.clone());
    let call = ctx.allocate_call(one.node, &[item]);
    let note = format!("{}, {key} {value}", call.note);
    ctx.refused(Call { note, ..call }).await.map(drop)
}

async fn range(ctx: &Ctx) -> Result<(), Stop> {
    let one = ctx.single(0)?;
    let outside = one
        .global
        .outside
        .ok_or_else(|| Stop::Skip(format!("pools fill the whole subnet {}", one.global.subnet)))?;
    changed(ctx, "ipv4Address", json!(outside)).await
}

async fn no_address(ctx: &Ctx) -> Result<(), Stop> {
    let one = ctx.single(0)?;
    let mut item = one.item();
    if let Some(fields) = item.as_object_mut() {
        fields.remove("ipv4Address");
    }
    let call = ctx.allocate_call(one.node, &[item]);
    let note = call.note.clone();
    let reply = ctx.refused(call).await?;
    ensure(reply.status.as_u16() == 400, || {
        format!("{note}: {}, wanted 400", reply.summary())
    })
}

async fn node(ctx: &Ctx) -> Result<(), Stop> {
    let one = ctx.single(0)?;
    let call = Call::allocate(&ctx.kit.identity, "", &[one.item()]);
    let note = format!("allocate {} with an empty nodeName", one.ip);
    ctx.refused(Call { note, ..call }).await.map(drop)
}

async fn no_items(ctx: &Ctx) -> Result<(), Stop> {
    let one = ctx.single(0)?;
    let call = ctx.allocate_call(one.node, &[]);
    let note = "allocate without items".to_owned();
    ctx.refused(Call { note, ..call }).await.map(drop)
}

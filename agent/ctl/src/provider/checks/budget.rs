//! The budget header: what is missing or no number is refused, and what cannot be done in time costs
//! no token of the rate limit.

use std::time::Duration;

use futures::{StreamExt, stream};

use super::{boxed, ensure};
use crate::provider::catalogue::Check;
use crate::provider::ctx::Ctx;
use crate::provider::kit::Stop;
use crate::provider::wire::{Call, Reply};

/// A budget nobody can keep, milliseconds.
const TINY: &str = "1";
/// How soon it has to be refused.
const AT_ONCE: Duration = Duration::from_millis(100);
/// Calls with it: more than the burst of a rate limit, so that the next call would have to wait.
const CALLS: usize = 256;
/// How many of them at a time.
const WIDTH: usize = 8;
/// How much later than before the next call may be served.
const SLACK: Duration = Duration::from_secs(1);

pub(crate) const CHECKS: &[Check] = &[
    Check {
        id: "header.missing",
        holds: "a call without X-Request-Timeout-Ms is refused with 400",
        openapi: "RequestTimeoutMs.required",
        section: "Budgets",
        run: |ctx| boxed(missing(ctx)),
    },
    Check {
        id: "header.text",
        holds: "a budget that is no number is refused",
        openapi: "RequestTimeoutMs.schema",
        section: "Budgets",
        run: |ctx| boxed(not_a_budget(ctx, "soon")),
    },
    Check {
        id: "header.zero",
        holds: "a budget of 0 is refused",
        openapi: "RequestTimeoutMs.minimum",
        section: "Budgets",
        run: |ctx| boxed(not_a_budget(ctx, "0")),
    },
    Check {
        id: "header.negative",
        holds: "a budget below 0 is refused",
        openapi: "RequestTimeoutMs.minimum",
        section: "Budgets",
        run: |ctx| boxed(not_a_budget(ctx, "-1")),
    },
    Check {
        id: "budget.refused",
        holds: "what cannot be done in the budget is refused with 429 RateLimitTimeout within 100 ms",
        openapi: "allocateIPs 429 RateLimitTimeout",
        section: "Budgets",
        run: |ctx| boxed(refused(ctx)),
    },
    Check {
        id: "budget.token",
        holds: "a refusal for the budget takes no token: the next call does not wait",
        openapi: "RequestTimeoutMs.description",
        section: "Budgets",
        run: |ctx| boxed(token(ctx)),
    },
];

/// An allocate of what the node has already: it would be no work.
fn call(ctx: &Ctx) -> Result<Call, Stop> {
    let one = ctx.single(0)?;
    Ok(ctx.allocate_call(one.node, &[one.item()]))
}

async fn missing(ctx: &Ctx) -> Result<(), Stop> {
    let call = call(ctx)?;
    ctx.touch(&call);
    let note = format!("{}, no budget header", call.note);
    let reply = ctx
        .send_as_is(Call {
            note: note.clone(),
            ..call
        })
        .await?;
    if reply.status.is_success() {
        return Err(Stop::Advice(
            "served without a budget: nothing tells how long the caller waits".to_owned(),
        ));
    }
    let reply = ctx.is_refusal(&note, reply)?;
    ensure(reply.status.as_u16() == 400, || {
        format!("{note}: {}, wanted 400", reply.summary())
    })
}

async fn not_a_budget(ctx: &Ctx, budget: &str) -> Result<(), Stop> {
    ctx.refused(call(ctx)?.with_budget(budget)).await.map(drop)
}

fn is_refused(reply: &Reply) -> bool {
    reply.status.as_u16() == 429
}

async fn refused(ctx: &Ctx) -> Result<(), Stop> {
    let call = call(ctx)?.with_budget(TINY);
    ctx.touch(&call);
    let note = call.note.clone();
    let reply = ctx.send_as_is(call).await?;
    ensure(is_refused(&reply), || {
        format!("{note}: {}, wanted 429", reply.summary())
    })?;
    ensure(reply.took <= AT_ONCE, || {
        format!("{note}: refused after {:?}, wanted at once", reply.took)
    })?;
    ctx.count_refusal(&reply);
    let code = reply.code();
    if code.as_deref() == Some("RateLimitTimeout") {
        return Ok(());
    }
    Err(Stop::Advice(format!(
        "the code is {code:?}; RateLimitTimeout is what operators look for"
    )))
}

/// Serves the same call before and after; the refused ones would have used up any bucket.
async fn token(ctx: &Ctx) -> Result<(), Stop> {
    let one = ctx.single(0)?;
    ctx.allocate(one.node, &[one.item()]).await?;
    let before = served(ctx).await?;
    let tiny = call(ctx)?.with_budget(TINY);
    let first = ctx.send_as_is(tiny.clone()).await?;
    if !is_refused(&first) {
        return Err(Stop::Skip(
            "the call was not refused: see budget.refused".to_owned(),
        ));
    }
    let all = stream::iter((0..CALLS).map(|_| ctx.send_as_is(tiny.clone())));
    let all: Vec<_> = all.buffer_unordered(WIDTH).collect().await;
    let all: Vec<Reply> = all.into_iter().collect::<Result<_, _>>()?;
    let other = all.iter().find(|reply| !is_refused(reply));
    ensure(other.is_none(), || {
        let summary = other.map(Reply::summary).unwrap_or_default();
        format!("one of {CALLS} calls with a budget of {TINY} ms: {summary}, wanted 429")
    })?;
    let after = served(ctx).await?;
    ensure(after <= before + SLACK, || {
        format!(
            "after {CALLS} refused calls the next one took {after:?}, before them {before:?}: they cost tokens"
        )
    })
}

/// How long the call takes that is no work. Asked once: a refusal tells as much as a long wait.
async fn served(ctx: &Ctx) -> Result<Duration, Stop> {
    let reply = ctx.send(call(ctx)?).await?;
    ensure(reply.status.is_success(), || {
        format!("a call that is no work: {}, wanted 2xx", reply.summary())
    })?;
    Ok(reply.took)
}

//! All 2xx answers of the run to allocate, judged rule by rule as the client does. They come last;
//! alone they make an answer to judge.

use std::future::ready;

use super::boxed;
use crate::provider::catalogue::Check;
use crate::provider::ctx::Ctx;
use crate::provider::judge::Rule;
use crate::provider::kit::Stop;

macro_rules! answer {
    ($rule:ident, $holds:literal, $openapi:literal) => {
        Check {
            id: Rule::$rule.check(),
            holds: $holds,
            openapi: $openapi,
            section: "Answers",
            run: |ctx| boxed(judged(ctx, Rule::$rule)),
        }
    };
}

pub(crate) const CHECKS: &[Check] = &[
    answer!(
        Json,
        "an answer is the JSON of the contract, at most 1 MiB",
        "AllocateResponse"
    ),
    answer!(
        Unknown,
        "an answer has no item that nobody asked for",
        "AllocateResponse.subEniResponses"
    ),
    answer!(
        Missing,
        "an answer has each item that was asked for",
        "AllocateResponse.subEniResponses"
    ),
    answer!(
        Duplicate,
        "an answer has no item twice with different values",
        "AllocateResponse.subEniResponses"
    ),
    answer!(
        Ipv6,
        "an item's IPv6 address is the requested one",
        "SubEniResponse.ipv6Address"
    ),
    answer!(
        Pool,
        "a pool name that is echoed is the requested one",
        "SubEniResponse.ipv4PoolName"
    ),
    answer!(Vlan, "a VLAN id is in 1-4094", "SubEniResponse.vlanId"),
    answer!(
        Mac,
        "a MAC is six octets of one NIC, not of a group",
        "SubEniResponse.macAddress"
    ),
    answer!(
        ParentMac,
        "a sub-ENI's MAC is not that of a parent NIC",
        "SubEniResponse.macAddress"
    ),
    answer!(
        Binding,
        "an address that is new to the client comes with MAC and VLAN id",
        "SubEniResponse.vlanId"
    ),
    answer!(
        Echo,
        "parentNicMac and subnet are answered as requested",
        "SubEniResponse.required"
    ),
    Check {
        id: "answer.error-body",
        holds: "a refusal has the recommended body: code and message",
        openapi: "Error",
        section: "Answers",
        run: |ctx| boxed(ready(error_body(ctx))),
    },
];

async fn judged(ctx: &Ctx, rule: Rule) -> Result<(), Stop> {
    let seen = &ctx.kit.seen;
    if seen.judged.get() == 0 {
        match ctx.pair_of(0) {
            Ok((_, node, item)) => ctx.allocate(node, &[item]).await?,
            Err(_) => {
                let one = ctx.single(0)?;
                ctx.allocate(one.node, &[one.item()]).await?
            }
        };
    }
    let broken = seen.broken.borrow();
    let Some(first) = broken.iter().find(|broken| broken.rule == rule) else {
        drop(broken);
        ctx.note("all answers", format!("{} judged", seen.judged.get()));
        return Ok(());
    };
    ctx.repeat_exchange(&first.exchange);
    let times = broken.iter().filter(|broken| broken.rule == rule).count();
    let why = match times {
        1 => first.why.clone(),
        times => format!("{} (and {} times more)", first.why, times - 1),
    };
    Err(if rule.breaks_the_contract() {
        Stop::Fail(why)
    } else {
        Stop::Advice(why)
    })
}

fn error_body(ctx: &Ctx) -> Result<(), Stop> {
    let seen = &ctx.kit.seen;
    if seen.refusals.get() == 0 {
        return Err(Stop::Skip("nothing was refused in this run".to_owned()));
    }
    let shapeless = seen.shapeless.borrow().clone();
    match shapeless {
        None => {
            ctx.note("all refusals", format!("{} judged", seen.refusals.get()));
            Ok(())
        }
        Some(exchange) => {
            ctx.repeat_exchange(&exchange);
            Err(Stop::Advice(format!(
                "{}: no code and message for the operator",
                exchange.got
            )))
        }
    }
}

//! What is no call at all: refused with a 4xx, and the provider lives.

use http::Method;
use serde_json::{Value, json};
use spiderpool_api::provider::{ALLOCATE_PATH, RELEASE_PATH};

use super::{boxed, ensure};
use crate::provider::catalogue::Check;
use crate::provider::ctx::Ctx;
use crate::provider::kit::Stop;
use crate::provider::wire::{Call, with};

/// Depth of nested arrays, and length of a long body, bytes: beyond what any call needs.
const DEPTH: usize = 100_000;
const HUGE: usize = 16 << 20;

macro_rules! malformed {
    ($id:literal, $holds:literal, $openapi:literal, $run:expr) => {
        Check {
            id: $id,
            holds: $holds,
            openapi: $openapi,
            section: "Refusals",
            run: $run,
        }
    };
}

pub(crate) const CHECKS: &[Check] = &[
    malformed!(
        "malformed.json",
        "a body that is no JSON is refused",
        "allocateIPs 400",
        |ctx| boxed(bodies(
            ctx,
            &[
                ("{", b"{"),
                ("text", b"allocate, please"),
                ("invalid UTF-8", b"\"\xff\xfe\"")
            ]
        ))
    ),
    malformed!(
        "malformed.empty",
        "an empty body is refused",
        "requestBody.required",
        |ctx| boxed(bodies(ctx, &[("an empty body", b""), ("null", b"null")]))
    ),
    malformed!(
        "malformed.trailing",
        "a body with something behind its JSON is refused",
        "allocateIPs 400",
        |ctx| boxed(trailing(ctx))
    ),
    malformed!(
        "malformed.types",
        "fields of wrong types are refused",
        "AllocateRequest",
        |ctx| boxed(types(ctx))
    ),
    malformed!(
        "malformed.values",
        "values that are no MAC, network or address are refused",
        "SubEniRequest",
        |ctx| boxed(values(ctx))
    ),
    malformed!(
        "malformed.versions",
        "a body with the items of both contract versions, or of neither, is refused",
        "info description",
        |ctx| boxed(versions(ctx))
    ),
    malformed!(
        "malformed.nesting",
        "deep nesting is refused and does not end the provider",
        "allocateIPs 400",
        |ctx| boxed(large(ctx, "100000 open brackets", vec![b'['; DEPTH]))
    ),
    malformed!(
        "malformed.huge",
        "a huge body is refused and does not end the provider",
        "allocateIPs 400",
        |ctx| boxed(large(ctx, "16 MiB of spaces", vec![b' '; HUGE]))
    ),
    malformed!(
        "malformed.release",
        "a release that is no JSON, or lacks a field, is refused",
        "ReleaseRequest.required",
        |ctx| boxed(release(ctx))
    ),
    malformed!("http.method", "another method is refused", "paths", |ctx| {
        boxed(method(ctx))
    }),
    malformed!(
        "http.path",
        "another path is refused",
        "paths",
        |ctx| boxed(path(ctx))
    ),
];

fn good(ctx: &Ctx) -> Result<(Call, Value), Stop> {
    let one = ctx.single(0)?;
    let call = ctx.allocate_call(one.node, &[one.item()]);
    let body = serde_json::from_slice(&call.body);
    let body = body.map_err(|error| Stop::Skip(error.to_string()))?;
    Ok((call, body))
}

/// Each is refused, and a good call is served afterwards.
async fn bodies(ctx: &Ctx, bodies: &[(&str, &[u8])]) -> Result<(), Stop> {
    let call = Call::post(ALLOCATE_PATH, &Value::Null, String::new());
    for (what, body) in bodies {
        ctx.refused(call.clone().with_body(*body, what)).await?;
    }
    lives(ctx).await
}

/// A good call, if there is anything to allocate.
async fn lives(ctx: &Ctx) -> Result<(), Stop> {
    match ctx.single(0) {
        Ok(one) => {
            ctx.allocate(one.node, &[one.item()]).await?;
            ctx.set_aside();
            Ok(())
        }
        Err(_) => Ok(()),
    }
}

async fn trailing(ctx: &Ctx) -> Result<(), Stop> {
    let (call, body) = good(ctx)?;
    for (what, tail) in [
        ("a good body and a bracket", "}"),
        ("two good bodies", &body.to_string()),
    ] {
        let body = format!("{body}{tail}");
        ctx.touch(&call);
        ctx.refused(call.clone().with_body(body, what)).await?;
    }
    lives(ctx).await
}

async fn types(ctx: &Ctx) -> Result<(), Stop> {
    let (call, body) = good(ctx)?;
    for (pointer, value) in [
        ("/nodeName", json!(7)),
        ("/nodeName", json!(null)),
        ("/subEniRequests", json!({})),
        ("/subEniRequests", json!("all")),
        ("/subEniRequests/0", json!([])),
        ("/subEniRequests/0/ipv4Address", json!(167_772_170)),
        ("/subEniRequests/0/subnet", json!(["10.0.0.0/24"])),
    ] {
        changed(ctx, &call, &body, pointer, value).await?;
    }
    ctx.refused(call.with_body("[]", "an array")).await?;
    lives(ctx).await
}

async fn values(ctx: &Ctx) -> Result<(), Stop> {
    let (call, body) = good(ctx)?;
    for (key, value) in [
        ("parentNicMac", "fa:16:3e"),
        ("parentNicMac", "zz:16:3e:00:00:01"),
        ("subnet", "10.0.0.0/99"),
        ("subnet", "everywhere"),
        ("ipv4Address", "10.0.0.256"),
        ("ipv4Address", "fd00::1"),
        ("ipv6Address", "10.0.0.1"),
    ] {
        if ctx.kit.is_v1 && key == "ipv6Address" {
            continue;
        }
        let pointer = format!("/subEniRequests/0/{key}");
        changed(ctx, &call, &body, &pointer, value.into()).await?;
    }
    lives(ctx).await
}

/// The good body with one value replaced has to be refused.
async fn changed(
    ctx: &Ctx,
    call: &Call,
    body: &Value,
    pointer: &str,
    value: Value,
) -> Result<(), Stop> {
    let mut body = body.clone();
    let what = format!("{} = {value}", pointer.trim_start_matches('/'));
    match body.pointer_mut(pointer) {
        Some(place) => *place = value,
        None => {
            let (parent, key) = pointer.rsplit_once('/').unwrap_or_default();
            if let Some(Value::Object(fields)) = body.pointer_mut(parent) {
                fields.insert(key.to_owned(), value);
            }
        }
    }
    ctx.refused(call.clone().with_body(body.to_string(), &what))
        .await
        .map(drop)
}

async fn versions(ctx: &Ctx) -> Result<(), Stop> {
    let (call, body) = good(ctx)?;
    let one = ctx.single(0)?;
    let old = json!([{ "ipAddress": one.ip, "subnet": one.global.subnet,
        "parentNicMac": one.node.parent }]);
    let both = with(&body, "iaasIPsAllocationRequest", old);
    let mut neither = body;
    if let Some(fields) = neither.as_object_mut() {
        fields.remove("subEniRequests");
    }
    ctx.touch(&call);
    ctx.refused(
        call.clone()
            .with_body(both.to_string(), "items of both versions"),
    )
    .await?;
    ctx.refused(call.with_body(neither.to_string(), "items of neither version"))
        .await?;
    lives(ctx).await
}

/// A provider may also close the connection on it.
async fn large(ctx: &Ctx, what: &str, body: Vec<u8>) -> Result<(), Stop> {
    let call = Call::post(ALLOCATE_PATH, &Value::Null, String::new()).with_body(body, what);
    let budget = Some(ctx.kit.timeout.as_millis().to_string());
    let call = Call { budget, ..call };
    match ctx.try_send(&call).await {
        Err(why) if why.starts_with("no complete answer") => {}
        Err(why) => return Err(Stop::Fail(format!("{}: {why}", call.note))),
        // the web server's own words will do
        Ok(reply) => ensure(reply.status.is_client_error(), || {
            format!("{}: {}, wanted 4xx", call.note, reply.summary())
        })?,
    }
    lives(ctx).await
}

async fn release(ctx: &Ctx) -> Result<(), Stop> {
    let call = Call::post(RELEASE_PATH, &Value::Null, String::new());
    for body in [
        "{",
        "{}",
        "[]",
        r#"{"nodeName":"n","subnet":"198.51.100.0/24"}"#,
        r#"{"nodeName":"n","subnet":"198.51.100.0/24","ipAddress":"198.51.100.256"}"#,
        r#"{"subnet":"198.51.100.0/24","ipAddress":"198.51.100.9"}"#,
    ] {
        ctx.refused(call.clone().with_body(body, body)).await?;
    }
    lives(ctx).await
}

async fn method(ctx: &Ctx) -> Result<(), Stop> {
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let mut call = Call::post(ALLOCATE_PATH, &json!({}), format!("{method} allocate-ips"));
        call.method = method;
        refused_plainly(ctx, call).await?;
    }
    Ok(())
}

async fn path(ctx: &Ctx) -> Result<(), Stop> {
    for path in ["/v1/apis/network.iaas.io/ipam/no-such-call", "/"] {
        refused_plainly(ctx, Call::post(path, &json!({}), format!("POST {path}"))).await?;
    }
    Ok(())
}

/// Refused, whatever its body: the web server's own words will do.
async fn refused_plainly(ctx: &Ctx, call: Call) -> Result<(), Stop> {
    let note = call.note.clone();
    let reply = ctx.ask(call).await?;
    ensure(reply.status.is_client_error(), || {
        format!("{note}: {}, wanted 4xx", reply.summary())
    })
}

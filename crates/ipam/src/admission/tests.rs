use std::sync::Arc;

use serde_json::{Value, json};
use spiderpool_api::names;

use super::*;
use crate::fixture::{object, with};

mod coordinator_rules;
mod iaas_rules;
mod network_rules;
mod pod_rules;
mod pool_rules;
mod properties;
mod subnet_rules;

/// A pool as the judge sees it: filled in.
fn filled(mut object: Value) -> Value {
    fill(Kind::IpPool, &mut object, None);
    object
}

/// Fills in, in an empty world.
fn fill(kind: Kind, object: &mut Value, old: Option<&Value>) -> Vec<String> {
    mutate(kind, object, old, &World::default(), &Settings::default())
}

/// A world of these pools.
fn pools(existing: &[&Value]) -> World {
    let read = |object: &&Value| view::PoolView::read(object).ok().map(Arc::new);
    World {
        pools: existing.iter().filter_map(read).collect(),
        ..World::default()
    }
}

fn four() -> Value {
    filled(object("p", "10.7.0.0/24", &["10.7.0.10-10.7.0.19"]))
}

/// The other family; `n` addresses.
fn six(name: &str, n: u8) -> Value {
    filled(object(
        name,
        "fd00::/64",
        &[&format!("fd00::1-fd00::{n:x}")],
    ))
}

fn marked(object: Value) -> Value {
    annotated(object, names::IAAS_PROVIDER, "cloud")
}

fn annotated(mut object: Value, key: &str, value: &str) -> Value {
    object["metadata"]["annotations"][key] = json!(value);
    object
}

fn used(object: Value) -> Value {
    let records = json!({"10.7.0.10": {"pod": "ns/a", "podUid": "u"}}).to_string();
    with(
        with(object, "status|allocatedIPs", json!(records)),
        "status|allocatedIPCount",
        json!(1),
    )
}

fn create(new: &Value, existing: &[&Value]) -> Result<(), Refusal> {
    validate(
        Op::Create,
        Kind::IpPool,
        Some(new),
        None,
        &pools(existing),
        &Settings::default(),
    )
}

fn update(new: &Value, old: &Value, existing: &[&Value]) -> Result<(), Refusal> {
    validate(
        Op::Update,
        Kind::IpPool,
        Some(new),
        Some(old),
        &pools(existing),
        &Settings::default(),
    )
}

/// `kind field message` of each error, or the refusal's status.
fn said(verdict: Result<(), Refusal>) -> Vec<String> {
    match verdict {
        Ok(()) => vec![],
        Err(Refusal::Invalid(errors)) => errors
            .iter()
            .map(|e| format!("{:?} {} {}", e.kind, e.field, e.message))
            .collect(),
        Err(other) => vec![format!("{} {other}", other.status())],
    }
}

#[track_caller]
fn refused(verdict: Result<(), Refusal>, parts: &[&str]) {
    let said = said(verdict);
    assert!(
        said.len() == 1 && parts.iter().all(|part| said[0].contains(part)),
        "wanted {parts:?}: {said:?}"
    );
}

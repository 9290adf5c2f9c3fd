use serde_json::{Value, json};
use spiderpool_api::names;

use super::*;
use crate::facts::{Master, Owner};
use crate::fixture::{iaas, object, snapshot, with};

mod classes;
mod explained;
mod filters;
mod levels;
mod properties;

fn eni() -> Request {
    Request::new(Plugin::EniVlan, "eth0")
}

fn plain(name: &str) -> Value {
    // Distinct addresses, so that no pool overlaps another.
    let third = name
        .bytes()
        .fold(7_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
    object(
        name,
        &format!("10.1.{third}.0/24"),
        &[&format!("10.1.{third}.10-10.1.{third}.19")],
    )
}

fn six(name: &str) -> Value {
    let third = name
        .bytes()
        .fold(7_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
    object(
        name,
        &format!("fd{third:02x}::/64"),
        &[&format!("fd{third:02x}::10-fd{third:02x}::99")],
    )
}

fn cloud(name: &str, node: Option<&str>) -> Value {
    let mut pool = iaas(name, &["10.0.0.1"], node, &json!({}));
    let base = plain(name);
    pool["spec"]["subnet"] = base["spec"]["subnet"].clone();
    pool["spec"]["ips"] = base["spec"]["ips"].clone();
    pool
}

fn annotated(mut snapshot: Snapshot, key: &str, value: &str) -> Snapshot {
    snapshot
        .pod
        .annotations
        .insert(key.to_owned(), value.to_owned());
    snapshot
}

/// `nic family: pool pool; ...`
fn shown(selection: &Selection) -> String {
    let mut rows = Vec::new();
    for nic in &selection.nics {
        for family in &nic.families {
            let names: Vec<_> = family
                .candidates
                .iter()
                .map(|c| c.pool.name.as_str())
                .collect();
            rows.push(format!(
                "{} {}: {}",
                nic.nic,
                family.family,
                names.join(" ")
            ));
        }
    }
    rows.join("; ")
}

fn run(snapshot: &Snapshot, request: &Request) -> String {
    match select(snapshot, request) {
        Ok(selection) => shown(&selection),
        Err(error) => format!("ERR {error}"),
    }
}

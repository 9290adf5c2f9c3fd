//! The checks, a file a group. Each uses addresses of the target, leaves them to the clean-up, and
//! fails only for its own clause: what stands in its way is a skip that names the check to see.

pub(crate) mod allocate;
pub(crate) mod answer;
pub(crate) mod budget;
pub(crate) mod concurrency;
pub(crate) mod malformed;
pub(crate) mod pair;
pub(crate) mod publish;
mod published;
pub(crate) mod refuse;
pub(crate) mod release;
pub(crate) mod tls;

use std::net::{IpAddr, Ipv4Addr};

use futures::FutureExt;
use serde_json::Value;
use spiderpool_api::value::Mac;

use super::ctx::Ctx;
use super::kit::{Run, Stop};
use super::target::{Global, Node, Pair};
use super::wire::{Call, Released};

/// Path of the diagnostic call, without the address.
const DIAGNOSTICS: &str = "/v1/apis/network.iaas.io/status/ips-cache/";

/// Boxes a check.
fn boxed<'a>(run: impl Future<Output = Result<(), Stop>> + 'a) -> Run<'a> {
    run.boxed_local()
}

/// The global pool, a node and an address of it.
struct Single<'a> {
    global: &'a Global,
    node: &'a Node,
    ip: Ipv4Addr,
}

impl Single<'_> {
    fn item(&self) -> Value {
        self.global.item(self.ip, self.node)
    }

    fn released(&self) -> Released {
        Released {
            pool: self.global.pool.clone(),
            subnet: self.global.subnet,
            address: self.ip.to_string(),
            node: self.node.name.clone(),
            parent: Some(self.node.parent),
        }
    }
}

impl Ctx {
    /// The address with this number, on the first node.
    fn single(&self, number: usize) -> Result<Single<'_>, Stop> {
        let skip = |why: String| Stop::Skip(why);
        let global = self.target().global.as_ref();
        let global = global.ok_or_else(|| skip("no global pool was named".to_owned()))?;
        let node = global.nodes.first();
        let node = node.ok_or_else(|| {
            skip(format!(
                "no node with a parent NIC for pool {}: use --node NAME=MAC",
                global.pool
            ))
        })?;
        let ip = global.free.get(number).copied().ok_or_else(|| {
            let (free, pool) = (global.free.len(), &global.pool);
            skip(format!(
                "pool {pool} has {free} free addresses, {} are wanted",
                number + 1
            ))
        })?;
        Ok(Single { global, node, ip })
    }

    /// The pair with this number, on the first node.
    fn pair_of(&self, number: usize) -> Result<(&Pair, &Node, Value), Stop> {
        let skip = |why: &str| Stop::Skip(why.to_owned());
        let pair = self.target().pair.as_ref();
        let pair = pair.ok_or_else(|| skip("no pair of global pools was named"))?;
        let node = pair.nodes.first();
        let node = node.ok_or_else(|| skip("no node with a parent NIC: use --node NAME=MAC"))?;
        let free = pair.free.get(number).copied();
        let free = free.ok_or_else(|| skip("the pair has too few free addresses"))?;
        Ok((pair, node, pair.item(free, node)))
    }

    /// What the provider's diagnostic call says of an address: where it is, and its MAC. `None` when
    /// it does not know it.
    ///
    /// # Errors
    /// [`Stop::Skip`] when the provider does not offer the call.
    async fn shown(&self, ip: IpAddr) -> Result<Option<Shown>, Stop> {
        if self.kit.seen.shows_addresses.get() == Some(false) {
            return Err(Stop::Skip(
                "the provider offers no GET ips-cache to see it by".to_owned(),
            ));
        }
        let mut call = Call::post(&format!("{DIAGNOSTICS}{ip}"), &Value::Null, String::new());
        call.method = http::Method::GET;
        call.body.clear();
        call.note = format!("GET ips-cache/{ip}");
        let reply = self.send_as_is(call).await?;
        if reply.status.as_u16() == 404 {
            return Ok(None);
        }
        let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let of = |key: &str| {
            body.pointer(&format!("/entry/{key}"))
                .and_then(Value::as_str)
        };
        Ok(Some(Shown {
            node: of("nodeName").unwrap_or_default().to_owned(),
            mac: of("mac").and_then(|mac| mac.parse().ok()),
        }))
    }

    /// Finds out whether the provider offers the diagnostic call, by an address it has bound.
    async fn try_diagnostics(&self, bound: IpAddr) -> Result<(), Stop> {
        let seen = &self.kit.seen.shows_addresses;
        if seen.get().is_none() {
            let known = self.shown(bound).await?;
            seen.set(Some(known.is_some_and(|shown| !shown.node.is_empty())));
        }
        Ok(())
    }
}

/// A diagnostic answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    node: String,
    mac: Option<Mac>,
}

/// A place for people. No node, or one without a name: attached nowhere.
fn where_it_is(node: Option<&str>) -> String {
    match node.filter(|node| !node.is_empty()) {
        Some(node) => format!("attached to {node}"),
        None => "attached nowhere".to_owned(),
    }
}

/// Fails unless it holds.
fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), Stop> {
    if holds {
        Ok(())
    } else {
        Err(Stop::Fail(why()))
    }
}

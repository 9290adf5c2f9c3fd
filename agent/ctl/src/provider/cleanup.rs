//! What is given back when a run ends, however it ends: each sub-ENI that was asked for is released,
//! each record of the run removed. What cannot be given back is told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;

use super::ctx::Ctx;
use super::kit::{Kit, Stop};
use crate::one_line;

/// How long a cloud may take for what nobody waits for any more.
const SETTLE: Duration = Duration::from_secs(3);

/// What is left behind.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// A line for each thing.
    pub(crate) lines: Vec<String>,
    /// Not only idle sub-ENIs, which a provider reclaims by itself: records of the run hold addresses.
    pub(crate) holds_addresses: bool,
}

/// Gives back.
pub(crate) async fn give_back(kit: &Rc<Kit>) -> Left {
    let mut left = Vec::new();
    if kit.seen.gone.get().is_none() {
        let unanswered = kit.seen.unanswered.get();
        let declined = release_all(kit).await;
        if unanswered == 0 {
            left.extend(declined);
        } else {
            // a release may overtake the work of a call that was cut off
            sleep(SETTLE).await;
            left.extend(release_all(kit).await);
        }
    } else {
        left.extend(sub_enis(kit, "the provider takes no connections"));
    }
    let records = unclaim_all(kit).await;
    let holds_addresses = !records.is_empty();
    left.extend(records);
    Left {
        lines: left,
        holds_addresses,
    }
}

/// All that a run may leave whose end is cut short.
pub(crate) fn all_of_it(kit: &Kit) -> Left {
    let mut left = Left::default();
    let why = "interrupted while giving back";
    left.lines.extend(sub_enis(kit, why));
    if kit.pools.is_some() {
        let pools = by_pool(kit);
        left.holds_addresses = !pools.is_empty();
        let records = pools.iter().map(|(pool, of)| records(kit, pool, of, why));
        left.lines.extend(records);
    }
    left
}

fn sub_enis(kit: &Kit, why: &str) -> Option<String> {
    let touched = kit.seen.touched.borrow();
    let names: BTreeSet<String> = touched.keys().map(|(ip, _)| ip.to_string()).collect();
    let names: Vec<String> = names.into_iter().collect();
    let text = || format!("{why}: sub-ENIs of {} may be left", names.join(", "));
    (!names.is_empty()).then(text)
}

fn records(kit: &Kit, pool: &str, addresses: &[IpAddr], why: &str) -> String {
    let names: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    format!(
        "records of {} for {} in pool {pool}: {why}; garbage collection removes them",
        kit.identity.pod(),
        names.join(", "),
    )
}

/// Spiderpool does not release addresses of a live global pool, so a provider may decline: then
/// they are idle cache, which it reclaims by itself.
async fn release_all(kit: &Rc<Kit>) -> Vec<String> {
    let touched: Vec<_> = kit.seen.touched.borrow().values().cloned().collect();
    let ctx = Ctx::new(Rc::clone(kit));
    let mut left = Vec::new();
    for what in touched {
        let (address, pool, node) = (&what.address, &what.pool, &what.node);
        if let Err(Stop::Fail(why) | Stop::Skip(why) | Stop::Advice(why)) = ctx.release(&what).await
        {
            left.push(format!(
                "{address} of pool {pool} on {node} may have a sub-ENI still, idle: {why}"
            ));
        }
    }
    left
}

async fn unclaim_all(kit: &Rc<Kit>) -> Vec<String> {
    let Some(pools) = &kit.pools else {
        return Vec::new();
    };
    let mut left = Vec::new();
    for (pool, addresses) in by_pool(kit) {
        if let Err(error) = pools.unclaim(&pool, &addresses).await {
            left.push(records(kit, &pool, &addresses, &one_line(&error)));
        }
    }
    left
}

/// The addresses of the run, pool by pool.
pub(crate) fn by_pool(kit: &Kit) -> BTreeMap<String, Vec<IpAddr>> {
    let mut pools: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    for (pool, address) in kit.target.addresses() {
        pools.entry(pool).or_default().push(address);
    }
    pools
}

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

/// Gives back; returns a line for each thing that is left.
pub(crate) async fn give_back(kit: &Rc<Kit>) -> Vec<String> {
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
        let touched = kit.seen.touched.borrow();
        let names: BTreeSet<String> = touched.keys().map(|(ip, _)| ip.to_string()).collect();
        if !names.is_empty() {
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            left.push(format!(
                "the provider takes no connections: sub-ENIs of {names} may be left"
            ));
        }
    }
    left.extend(unclaim_all(kit).await);
    left
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
            let names: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
            left.push(format!(
                "records of {}/{} for {} in pool {pool}: {}; garbage collection removes them",
                kit.identity.namespace,
                kit.identity.name,
                names.join(", "),
                one_line(&error),
            ));
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

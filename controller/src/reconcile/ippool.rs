//! Pools: `status.totalIPCount`, an initial `status.allocatedIPCount`, and the finalizer of a pool
//! that is being deleted and has no record left (spec ipam 6.6).

use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_api::names;
use spiderpool_ipam::range_set::RangeSet;
use tokio_util::sync::CancellationToken;

use crate::chain::full;
use crate::client::bounded;

/// A watch ends by itself after this many seconds, below the idle limit of middle boxes.
const WATCH_SECONDS: u32 = 200;
/// Between two tries of a pool that could not be brought in line.
const RETRY: Duration = Duration::from_secs(5);

/// A pool could not be brought in line.
#[derive(Debug, thiserror::Error)]
#[error("cannot {tried} SpiderIPPool {pool}")]
pub struct ReconcileError {
    /// The pool.
    pub pool: String,
    /// Verb.
    pub tried: &'static str,
    /// The API's words.
    pub source: Box<kube::Error>,
}

/// What a pool lacks.
#[derive(Debug, Clone, PartialEq)]
enum Change {
    /// Nothing.
    None,
    /// Fields of the status.
    Status(Value),
    /// Our finalizer has nothing to wait for.
    DropFinalizer,
}

/// Follows all pools until told to stop.
pub async fn run(client: Client, stop: CancellationToken) {
    let client = bounded(client);
    let pools: Api<SpiderIPPool> = Api::all(client.clone());
    let watched: Api<PartialObjectMeta<SpiderIPPool>> = Api::all(client);
    loop {
        let failed = tokio::select! {
            failed = follow(&pools, watched.clone()) => failed,
            () = stop.cancelled() => return,
        };
        // The watch begins anew and with it every pool is looked at again.
        tracing::warn!(error = %failed, "{}", full(&failed));
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Looks at every pool that appears or changes; ends with the first that cannot be written.
async fn follow(
    pools: &Api<SpiderIPPool>,
    watched: Api<PartialObjectMeta<SpiderIPPool>>,
) -> ReconcileError {
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let mut events = pin!(watcher(watched, config).default_backoff());
    loop {
        match events.try_next().await {
            Ok(Some(Event::InitApply(pool) | Event::Apply(pool))) => {
                if let Err(error) = reconcile(pools, &pool.name_any()).await {
                    return error;
                }
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(error = %error, "the watch of SpiderIPPools begins anew"),
        }
    }
}

/// Brings one pool in line with its specification.
///
/// # Errors
/// [`ReconcileError`]; a pool that is gone or was changed meanwhile is none: its next event comes.
pub async fn reconcile(pools: &Api<SpiderIPPool>, name: &str) -> Result<(), ReconcileError> {
    let failed = |tried| {
        move |source| ReconcileError {
            pool: name.to_owned(),
            tried,
            source: Box::new(source),
        }
    };
    let Some(pool) = pools.get_opt(name).await.map_err(failed("read"))? else {
        return Ok(());
    };
    match change(&pool) {
        Change::None => Ok(()),
        Change::Status(status) => {
            // Conditional: the specification the count is of must still be the stored one.
            let patch =
                json!({"metadata": {"resourceVersion": pool.resource_version()}, "status": status});
            let params = PatchParams::default();
            let written = pools
                .patch_status(name, &params, &Patch::Merge(&patch))
                .await;
            unless_changed(written).map_err(failed("write the status of"))
        }
        Change::DropFinalizer => {
            let mut pool = pool;
            pool.finalizers_mut()
                .retain(|finalizer| finalizer != names::FINALIZER);
            let written = pools.replace(name, &PostParams::default(), &pool).await;
            unless_changed(written).map_err(failed("take the finalizer off"))
        }
    }
}

/// A conflict or an absent object is somebody else's change: its event is on the way.
fn unless_changed<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

fn change(pool: &SpiderIPPool) -> Change {
    let status = pool.status.clone().unwrap_or_default();
    if pool.metadata.deletion_timestamp.is_some() {
        let empty = status
            .allocated_ips
            .as_deref()
            .unwrap_or_default()
            .is_empty();
        let ours = pool
            .finalizers()
            .iter()
            .any(|name| name == names::FINALIZER);
        return if empty && ours {
            Change::DropFinalizer
        } else {
            Change::None
        };
    }
    let mut wanted = serde_json::Map::new();
    if let Some(total) = total(pool)
        && status.total_ip_count != Some(total)
    {
        wanted.insert("totalIPCount".into(), total.into());
    }
    if status.allocated_ip_count.is_none() {
        wanted.insert("allocatedIPCount".into(), 0.into());
    }
    if wanted.is_empty() {
        Change::None
    } else {
        Change::Status(Value::Object(wanted))
    }
}

/// Usable addresses, or nothing for ranges that admission would have refused.
fn total(pool: &SpiderIPPool) -> Option<i64> {
    let texts =
        |list: &Option<Vec<String>>| RangeSet::from_texts(list.as_deref().unwrap_or_default()).ok();
    let ips = texts(&pool.spec.ips)?;
    let excluded = texts(&pool.spec.exclude_ips)?;
    Some(ips.subtract(&excluded).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(spec: Value, status: Value) -> SpiderIPPool {
        let raw = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
            "metadata": {"name": "p", "finalizers": [names::FINALIZER]}, "spec": spec, "status": status});
        serde_json::from_value(raw).unwrap()
    }

    #[test]
    fn totals_follow_the_specification() {
        let spec = json!({"subnet": "10.0.0.0/24", "ips": ["10.0.0.9-10.0.0.20"], "excludeIPs": ["10.0.0.10"]});
        let want = Change::Status(json!({"totalIPCount": 11, "allocatedIPCount": 0}));
        assert_eq!(change(&pool(spec.clone(), json!({}))), want);
        let status = json!({"totalIPCount": 11, "allocatedIPCount": 4});
        assert_eq!(change(&pool(spec.clone(), status)), Change::None);
        let outdated = json!({"totalIPCount": 12, "allocatedIPCount": 4});
        assert_eq!(
            change(&pool(spec, outdated)),
            Change::Status(json!({"totalIPCount": 11}))
        );
        let unreadable = json!({"subnet": "10.0.0.0/24", "ips": ["ten"]});
        assert_eq!(
            change(&pool(unreadable, json!({"allocatedIPCount": 0}))),
            Change::None
        );
    }

    #[test]
    fn a_dying_pool_waits_for_its_records() {
        let mut dying = pool(
            json!({"subnet": "10.0.0.0/24"}),
            json!({"allocatedIPs": "{\"10.0.0.9\":{}}"}),
        );
        dying.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-11-29T00:00:00Z")).unwrap();
        assert_eq!(change(&dying), Change::None);
        dying.status = None;
        assert_eq!(change(&dying), Change::DropFinalizer);
        dying.finalizers_mut().clear();
        assert_eq!(change(&dying), Change::None);
    }
}

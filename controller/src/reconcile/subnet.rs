//! Subnets that are being deleted: our finalizer goes when no pool holds addresses of them. Their pools
//! go by themselves: a subnet owns them, and each waits for its own records.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use serde_json::Value;
use spiderpool_api::subnet::SpiderSubnet;
use tokio_util::sync::CancellationToken;

use super::finalizer;
use crate::chain::full;
use crate::tasks::{Context, Ended};

/// A watch ends by itself after this many seconds, below the idle limit of middle boxes.
const WATCH_SECONDS: u32 = 200;
/// The watch begins anew with everything in it, so that one that failed is looked at again.
const RETRY: Duration = Duration::from_secs(5);

/// The subnet could not be let go.
#[derive(Debug, thiserror::Error)]
#[error("cannot take the finalizer off SpiderSubnet {name}")]
struct LetGoError {
    name: String,
    source: Box<kube::Error>,
}

/// Follows all subnets until told to stop.
///
/// # Errors
/// None; the type is that of a task.
pub async fn run(context: Context, stop: CancellationToken) -> Ended {
    let subnets: Api<SpiderSubnet> = Api::all(context.client);
    loop {
        let failed = tokio::select! {
            failed = follow(&subnets) => failed,
            () = stop.cancelled() => return Ok(()),
        };
        tracing::warn!("{}", full(&failed));
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            () = stop.cancelled() => return Ok(()),
        }
    }
}

/// Ends with the first that cannot be written.
async fn follow(subnets: &Api<SpiderSubnet>) -> LetGoError {
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let mut events = pin!(watcher(subnets.clone(), config).default_backoff());
    loop {
        match events.next().await {
            Some(Ok(Event::InitApply(subnet) | Event::Apply(subnet))) => {
                if let Err(error) = let_go(subnets, &subnet).await {
                    return error;
                }
            }
            Some(Err(error)) => {
                tracing::debug!("the watch of SpiderSubnets begins anew: {}", full(&error));
            }
            _ => {}
        }
    }
}

async fn let_go(subnets: &Api<SpiderSubnet>, subnet: &SpiderSubnet) -> Result<(), LetGoError> {
    let Some(patch) = end(subnet) else {
        return Ok(());
    };
    let name = subnet.name_any();
    let params = PatchParams::default();
    match subnets.patch(&name, &params, &Patch::Merge(patch)).await {
        // Somebody's change: its event is on the way.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(source) => Err(LetGoError {
            name,
            source: Box::new(source),
        }),
        Ok(_) => Ok(()),
    }
}

/// What takes the finalizer off; `None`: it stays, or is not there.
fn end(subnet: &SpiderSubnet) -> Option<Value> {
    let status = subnet.status.as_ref();
    let held = status.and_then(|status| status.controlled_ip_pools.as_deref());
    let nobody = matches!(held.unwrap_or_default(), "" | "{}");
    let dying = subnet.metadata.deletion_timestamp.is_some();
    if dying && nobody {
        finalizer::removal(subnet)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use spiderpool_api::names;

    #[test]
    fn one_that_nobody_holds_may_go() {
        let subnet = |stamp: Value, held: Value| -> SpiderSubnet {
            serde_json::from_value(json!({"apiVersion": "spiderpool.spidernet.io/v2beta1",
                "kind": "SpiderSubnet", "metadata": {"name": "s", "deletionTimestamp": stamp,
                    "finalizers": [names::FINALIZER, "x"]},
                "spec": {"subnet": "10.0.0.0/24"}, "status": {"controlledIPPools": held}}))
            .unwrap()
        };
        let stamp = || json!("2027-01-01T00:00:00Z");
        for nobody in [json!(null), json!(""), json!("{}")] {
            let patch = end(&subnet(stamp(), nobody)).unwrap();
            assert_eq!(patch["metadata"]["finalizers"], json!(["x"]));
        }
        assert_eq!(end(&subnet(stamp(), json!("{\"p\":{}}"))), None);
        assert_eq!(end(&subnet(json!(null), json!(null))), None);
    }
}

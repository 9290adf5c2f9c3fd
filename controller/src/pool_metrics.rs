//! The gauges about pools, brought up to date every `METRIC_RENEW_PERIOD` (spec ipam 8).

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::chain::full;
use crate::objects::StoreError;
use crate::objects::pool::PoolObject;
use crate::objects::pool_api::PoolApi;
use crate::tasks::{Context, Ended};

/// Keeps the gauges until `stop`.
///
/// # Errors
/// None; a list that fails is made again.
pub(crate) async fn task(context: Context, stop: CancellationToken) -> Ended {
    let env = &context.settings.env;
    if !env.metrics {
        stop.cancelled().await;
        return Ok(());
    }
    let period = env.metrics_period.max(Duration::from_secs(1));
    loop {
        if let Err(error) = renew(&context).await {
            tracing::warn!("the gauges of pools are old: {}", full(&error));
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = sleep(period) => {}
        }
    }
}

async fn renew(context: &Context) -> Result<(), StoreError> {
    let metrics = &context.metrics;
    let mut levels = Vec::new();
    let pools = PoolApi::new(context.client.clone());
    pools.list(|pool| levels.push(level(&pool))).await?;
    metrics
        .pools
        .set(i64::try_from(levels.len()).unwrap_or(i64::MAX));
    // A pool that is gone has no series any more.
    metrics.pool_total.clear();
    metrics.pool_available.clear();
    for (name, total, free) in levels {
        let pool = vec![("SpiderIPPool", name)];
        metrics.pool_total.get_or_create(&pool).set(total);
        metrics.pool_available.get_or_create(&pool).set(free);
    }
    Ok(())
}

/// Name, addresses, and how many of them are free.
fn level(pool: &PoolObject) -> (String, i64, i64) {
    let status = pool.typed().status.as_ref();
    let count = |count: Option<i64>| count.unwrap_or(0);
    let total = count(status.and_then(|status| status.total_ip_count));
    let used = count(status.and_then(|status| status.allocated_ip_count));
    (
        pool.name().to_owned(),
        total,
        total.saturating_sub(used).max(0),
    )
}

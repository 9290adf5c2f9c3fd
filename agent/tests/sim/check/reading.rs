//! Pools read once per version: reading is what a run spends its time with.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use spiderpool_agent::store::PoolObject;
use spiderpool_ipam::pool::Pool;

fn typed(raw: &Value) -> Option<Arc<Pool>> {
    let object = PoolObject::from_raw(raw.clone()).ok()?;
    object.pool().ok().cloned()
}

/// The newest two readings of each pool: reading is what a run spends its time with.
#[derive(Debug, Default)]
pub(super) struct Readings(BTreeMap<String, Vec<Reading>>);

/// A version and what it says.
type Reading = (Arc<Value>, Arc<Pool>);

impl Readings {
    pub(super) fn of(&mut self, raw: &Arc<Value>) -> Option<Arc<Pool>> {
        let name = raw["metadata"]["name"].as_str().unwrap_or_default();
        if let Some(known) = self.0.get(name)
            && let Some((_, pool)) = known.iter().find(|(read, _)| Arc::ptr_eq(read, raw))
        {
            return Some(Arc::clone(pool));
        }
        let pool = typed(raw)?;
        let known = self.0.entry(name.to_owned()).or_default();
        if known.len() == 2 {
            known.remove(0);
        }
        known.push((Arc::clone(raw), Arc::clone(&pool)));
        Some(pool)
    }
}

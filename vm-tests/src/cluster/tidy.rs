//! The end of a test: the cluster is judged, cleaned and left for the next one.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::lab::api_client::{ApiClient, ENDPOINTS, PODS, POOLS};

use super::settings::Settings;
use super::{Cluster, IDLE};

/// Kinds whose objects a test leaves; in the order in which they may go.
const KINDS: [&str; 4] = [PODS, "/apis/apps/v1/statefulsets", ENDPOINTS, POOLS];
const MULTUS_CONFIGS: &str = "/apis/spiderpool.spidernet.io/v2beta1/spidermultusconfigs";

impl Cluster {
    /// The test meant the fabric to drop so many frames for this reason.
    pub fn want_drops(&mut self, reason: &str, count: u64) {
        self.wanted_drops.insert(reason.to_owned(), count);
    }

    /// Fails when the provider's audit finds anything or the fabric has dropped a frame unasked; else
    /// cleans up and leaves the cluster to the next test.
    ///
    /// # Errors
    /// What was found; or it cannot be cleaned.
    pub fn finish(mut self) -> Result<()> {
        self.faults(&json!([]))?;
        let found = self.provider()?.audit()?;
        ensure!(found.is_empty(), "audit: {found:#?}\n{}", self.logs());
        let dropped = self.drops()?;
        if dropped != self.wanted_drops {
            let recent = self.fabric()?.counts()?.recent;
            bail!(
                "drops {dropped:?}, wanted {:?}: {recent:?}",
                self.wanted_drops
            );
        }
        self.clean().with_context(|| self.logs())?;
        *IDLE.lock().unwrap_or_else(PoisonError::into_inner) = Some(self);
        Ok(())
    }

    fn clean(&mut self) -> Result<()> {
        let changed = std::mem::take(&mut self.settings);
        // The cloud first: nobody has to tear down one by one what it has forgotten.
        self.admin("POST", "/reset", &Value::Null)?;
        for kind in KINDS.into_iter().chain([MULTUS_CONFIGS]) {
            remove_all(&self.api, kind)?;
        }
        for node in self.node_names() {
            let ran = self.worker_mut(&node)?.agent_mut().is_some();
            if changed.agents.contains_key(&node) || !ran {
                self.kill_agent(&node).ok();
                self.start_agent(&node)?;
            }
        }
        if changed.provider != Settings::default().provider {
            self.restart_provider(Settings::default().provider)?;
        }
        self.until("a cloud without sub-ENIs", || {
            self.admin("POST", "/reset", &Value::Null)?;
            let left = self.provider()?.sub_enis()?;
            Ok(left.is_empty() && self.provider()?.audit()?.is_empty())
        })?;
        self.drops = self.fabric()?.counts()?.drops;
        self.wanted_drops = BTreeMap::new();
        Ok(())
    }
}

/// Removes all objects of a kind, whatever holds them, and waits until they are gone.
fn remove_all(api: &ApiClient, list: &str) -> Result<()> {
    super::wait::until(super::SOON, &format!("nothing in {list}"), || {
        let objects = api.list(list)?;
        for object in &objects {
            let path = object_path(list, object)?;
            let kind = "application/merge-patch+json";
            if list == POOLS {
                // Its finalizers are others' to take off, which they do when nobody claims anything.
                let none = json!({ "status": { "allocatedIPs": null, "allocatedIPCount": 0 } });
                api.request("PATCH", &format!("{path}/status"), kind, &none)?;
            } else {
                let free = json!({ "metadata": { "finalizers": null } });
                api.request("PATCH", &path, kind, &free)?;
            }
            api.delete(&format!("{path}?gracePeriodSeconds=0"))?;
        }
        Ok(objects.is_empty().then_some(()))
    })
}

/// The path of an object that stands in the list of all namespaces.
fn object_path(list: &str, object: &Value) -> Result<String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let name = text("/metadata/name").context("an object without name")?;
    Ok(match text("/metadata/namespace") {
        None => format!("{list}/{name}"),
        Some(namespace) => {
            let (prefix, plural) = list.rsplit_once('/').context("a path")?;
            format!("{prefix}/namespaces/{namespace}/{plural}/{name}")
        }
    })
}

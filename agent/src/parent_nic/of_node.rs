//! The hardware NICs of this node, in an annotation of its Node object: a provider looks there for the
//! parent NICs of a global pool (spec iaas 3.4). Writes when they have changed, and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use spiderpool_api::names;
use spiderpool_api::value::Mac;
use tokio::time::Instant;

use super::HostNics;
use crate::flow::error::full;
use crate::store::kube::KubeStore;

/// What has failed is tried again so much later: links change often, and each change is a look.
pub(super) const RETRY: Duration = Duration::from_secs(5);

/// What is published of the node.
pub(super) struct NodeReport {
    excluded: Vec<String>,
    /// The last one, so that each is told once.
    complaint: Option<String>,
    failed: Option<Instant>,
}

impl NodeReport {
    /// All but these.
    pub(super) const fn new(excluded: Vec<String>) -> Self {
        Self {
            excluded,
            complaint: None,
            failed: None,
        }
    }

    /// Whether the last look has failed.
    pub(super) const fn is_failing(&self) -> bool {
        self.failed.is_some()
    }

    /// One look. What fails is logged when it begins to.
    pub(super) async fn publish(&mut self, store: &KubeStore, nics: &dyn HostNics) {
        if self.failed.is_some_and(|at| at.elapsed() < RETRY) {
            return;
        }
        match self.try_publish(store, nics).await {
            Ok(()) => (self.complaint, self.failed) = (None, None),
            Err(complaint) => {
                self.failed = Some(Instant::now());
                if self.complaint.as_ref() != Some(&complaint) {
                    tracing::warn!(
                        "the NICs of this node are not published, a provider that looks for them waits: {complaint}"
                    );
                }
                self.complaint = Some(complaint);
            }
        }
    }

    async fn try_publish(&self, store: &KubeStore, nics: &dyn HostNics) -> Result<(), String> {
        let found = nics.hardware().await.map_err(|error| full(&error))?;
        let text = annotation(found, &self.excluded);
        let written = store.annotate_node(names::PARENT_NICS, &text).await;
        if written.map_err(|error| full(&error))? {
            tracing::info!(nics = text, "NICs of this node published");
        }
        Ok(())
    }
}

/// The same NICs are the same text.
fn annotation(mut nics: BTreeMap<String, Mac>, excluded: &[String]) -> String {
    nics.retain(|name, _| !excluded.contains(name));
    let texts = nics
        .into_iter()
        .map(|(name, mac)| (name, mac.to_string().into()));
    serde_json::Value::Object(texts.collect()).to_string()
}

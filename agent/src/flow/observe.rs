//! What the observer is told, and when: an entry before the link exists, its end after the link's
//! (spec dataplane 5.4). Nothing here fails a call.

use std::sync::Arc;
use std::time::Duration;

use spiderpool_api::names;
use spiderpool_api::value::IfName;
use tokio_util::sync::CancellationToken;

use super::call::NicCall;
use super::error::FlowError;
use crate::agent::Agent;
use crate::attachment::Attachment;
use crate::failpoint::{add_step, del_step};
use crate::nic::{Attached, NicError, NicSpec, NicTarget};
use crate::observer::{Entry, Place};
use crate::store::{PodObject, PoolObject};

/// Between two comparisons of entries and attachment files.
const PERIOD: Duration = Duration::from_secs(60);

impl Agent {
    /// Makes the NIC. Its entry is there before it and active once it is configured.
    pub(super) async fn attach_observed(
        &self,
        call: &NicCall,
        pod: &PodObject,
        spec: NicSpec,
        file: &Attachment,
        master: u32,
    ) -> Result<Attached, FlowError> {
        if let Some(entry) = Entry::of(file) {
            add_step!(ObserverEntry, self.observer.prepare(entry, master));
        }
        let master = spec.master.clone();
        let attached = self.attach(call, pod, spec).await;
        self.count_preflight(&master, &attached);
        let attached = attached?;
        if let Some(place) = Place::of(file) {
            let gateways = &attached.gateway_macs;
            add_step!(Observer, self.observer.activate(&place, gateways));
        }
        Ok(attached)
    }

    /// The link is gone again.
    pub(super) async fn unobserve(&self, file: &Attachment) {
        if let Some(place) = Place::of(file) {
            self.observer.remove(&place).await;
        }
    }

    /// Takes a NIC away. What it sends to its end is still its own.
    pub(super) async fn take_nic(
        &self,
        target: NicTarget,
        file: Option<&Attachment>,
    ) -> Result<(), NicError> {
        let place = file.and_then(Place::of);
        if let Some(place) = &place {
            del_step!(Drain, self.observer.draining(place));
        }
        del_step!(Unlink, self.nic.detach(target))?;
        if let Some(place) = &place {
            del_step!(Unobserve, self.observer.remove(place));
        }
        Ok(())
    }

    /// Attaches to the parent NICs of this node and makes the entries those of the attachment
    /// files. At start, before calls are served, it finds what an earlier agent left.
    pub async fn reconcile_observer(self: &Arc<Self>) {
        let agent = Arc::clone(self);
        // Read under the observer's lock: what a call adds meanwhile is not taken away.
        let wanted = Box::new(move || {
            let files = agent.attachments.select(|file| file.master.is_some());
            files.iter().filter_map(Entry::of).collect()
        });
        self.observer
            .reconcile(self.parent_nics().await, wanted)
            .await;
    }

    /// The same, once a minute.
    pub(crate) async fn keep_observer(self: Arc<Self>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(PERIOD) => self.reconcile_observer().await,
            }
        }
    }

    /// NICs that pools of this node or attachments name, each once.
    async fn parent_nics(&self) -> Vec<IfName> {
        let files = self.attachments.select(|file| file.master.is_some());
        let mut nics: Vec<IfName> = files.into_iter().filter_map(|file| file.master).collect();
        match self.store.caches(&self.settings.agent_namespace).await {
            Ok(caches) => {
                let pools = caches.pools.iter();
                nics.extend(pools.filter_map(|pool| parent_nic(pool, &self.settings.node)));
            }
            Err(error) => {
                tracing::debug!(%error, "NICs are observed as far as attachments name them");
            }
        }
        nics.sort();
        nics.dedup();
        nics
    }
}

/// The parent NIC of a provider's pool that this node may use.
fn parent_nic(pool: &PoolObject, node: &str) -> Option<IfName> {
    let typed = pool.typed();
    let notes = typed.metadata.annotations.as_ref()?;
    notes.get(names::IAAS_PROVIDER)?;
    let nodes = typed.spec.node_name.as_deref().unwrap_or_default();
    let here = nodes.is_empty() || nodes.iter().any(|name| name == node);
    let name = notes.get(names::PARENT_NIC).filter(|_| here)?;
    name.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn pools_of_a_provider_name_the_nic_on_the_nodes_that_use_them() {
        let nic = |nodes: Value, notes: Value| {
            let raw = json!({"metadata": {"name": "p", "annotations": notes},
                "spec": {"subnet": "10.0.0.0/24", "nodeName": nodes}});
            let found = parent_nic(&PoolObject::from_raw(raw).unwrap(), "n1");
            found.map(|nic| nic.to_string())
        };
        let marked = json!({names::IAAS_PROVIDER: "x", names::PARENT_NIC: " eth1 "});
        let eth1 = Some("eth1".to_owned());
        assert_eq!(nic(json!(["n1"]), marked.clone()), eth1);
        assert_eq!(nic(json!(null), marked.clone()), eth1);
        assert_eq!(nic(json!(["n2"]), marked), None);
        assert_eq!(nic(json!(null), json!({names::PARENT_NIC: "eth1"})), None);
        let odd = json!({names::IAAS_PROVIDER: "x", names::PARENT_NIC: "a b"});
        assert_eq!(nic(json!(null), odd), None);
    }
}

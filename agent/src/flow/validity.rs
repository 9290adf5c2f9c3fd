//! Whether the identity that an endpoint stands for still exists (spec ipam 4.5, 4.6), read past every
//! cache. Asked by DEL; the rules are `ipam`'s.

use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_ipam::plan::Identity;
use spiderpool_ipam::sticky::{Sticky, is_valid_machine, is_valid_ordinal, ordinal};

use super::error::FlowError;
use crate::agent::Agent;
use crate::store::{ObjectKey, PodObject};

impl Agent {
    /// The identity of an endpoint, for the end of the Pod with this UID. `pod` is the Pod of that name.
    ///
    /// # Errors
    /// [`FlowError::Store`]: without an answer nothing may be freed.
    pub(super) async fn identity(
        &self,
        key: &ObjectKey,
        endpoint: &SpiderEndpoint,
        uid: Option<&str>,
        pod: Option<&PodObject>,
    ) -> Result<Option<Identity>, FlowError> {
        let Some(kind) = self.settings.switches.of_endpoint(&endpoint.status) else {
            return Ok(None);
        };
        let valid = match kind {
            Sticky::StatefulSet => self.has_ordinal(key).await?,
            Sticky::VirtualMachine => {
                let facts = self.store.machine(key).await;
                let facts = facts.map_err(FlowError::store("read the virtual machine"))?;
                is_valid_machine(&facts)
            }
        };
        let is_other = |pod: &PodObject| Some(pod.uid()) != uid;
        let other_alive = match kind {
            _ if valid => false,
            Sticky::StatefulSet => pod.is_some_and(|pod| is_other(pod) && pod.is_alive()),
            Sticky::VirtualMachine => {
                let pods = self.store.machine_pods(key).await;
                let pods = pods.map_err(FlowError::store("list the machine's Pods"))?;
                pods.iter().any(|pod| is_other(pod) && runs(pod))
            }
        };
        Ok(Some(Identity {
            kind,
            valid,
            other_alive,
        }))
    }

    async fn has_ordinal(&self, pod: &ObjectKey) -> Result<bool, FlowError> {
        let Some((set, _)) = ordinal(&pod.name) else {
            return Ok(false);
        };
        let key = ObjectKey::new(&pod.namespace, set);
        let set = self.store.stateful_set(&key).await;
        let set = set.map_err(FlowError::store("read the StatefulSet"))?;
        Ok(is_valid_ordinal(&pod.name, set.as_ref()))
    }
}

/// Whether a machine may run in this Pod: until its guest is down, however long it has been told to end.
/// Its own DEL, or GC, frees what it had.
fn runs(pod: &PodObject) -> bool {
    let facts = &pod.facts;
    let over = matches!(facts.phase.as_str(), "Succeeded" | "Failed");
    pod.is_alive() || (facts.terminating && !over)
}

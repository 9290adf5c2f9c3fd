//! Who holds a VLAN that a new NIC needs: a dead sandbox's link is taken away, a live Pod's is not
//! (spec dataplane 4.2).

use spiderpool_api::value::{IfName, VlanId};

use super::call::NicCall;
use super::error::FlowError;
use crate::agent::Agent;
use crate::attachment::Attachment;
use crate::nic::{Attached, Holder, NicError, NicSpec};
use crate::store::{Freshness, ObjectKey, PodObject};

/// A link in the way.
struct InTheWay {
    vlan: VlanId,
    master: IfName,
    holder: Box<Holder>,
}

impl Agent {
    /// Makes the NIC; the link of a dead sandbox in the way is deleted, once.
    pub(super) async fn attach(
        &self,
        call: &NicCall,
        pod: &PodObject,
        spec: NicSpec,
    ) -> Result<Attached, FlowError> {
        match self.nic.attach(spec.clone()).await {
            Err(NicError::VlanInUse {
                vlan,
                master,
                holder,
            }) => {
                let found = InTheWay {
                    vlan,
                    master,
                    holder,
                };
                self.make_way(call, pod, found).await?;
                self.nic.attach(spec).await.map_err(FlowError::nic)
            }
            result => result.map_err(FlowError::nic),
        }
    }

    async fn make_way(
        &self,
        call: &NicCall,
        pod: &PodObject,
        found: InTheWay,
    ) -> Result<(), FlowError> {
        let Some(file) = self.file_of(&found) else {
            // Nobody of ours: the message names namespace and link.
            let InTheWay {
                vlan,
                master,
                holder,
            } = found;
            return Err(FlowError::nic(NicError::VlanInUse {
                vlan,
                master,
                holder,
            }));
        };
        let owner = ObjectKey::new(&file.pod_namespace, &file.pod_name);
        let is_dead = if file.pod_uid == pod.uid() {
            // Another sandbox of this Pod is an older one; this sandbox's other NICs live.
            file.container_id != call.key.container_id()
        } else {
            let holder = self.read_pod(&owner, Freshness::Fresh).await?;
            !holder.is_some_and(|holder| holder.uid() == file.pod_uid && holder.is_alive())
        };
        if !is_dead {
            return Err(FlowError::VlanOfLivePod {
                vlan: found.vlan,
                master: found.master,
                holder: owner,
                link: found.holder.ifname.clone(),
            });
        }
        tracing::warn!(
            vlan = %found.vlan, master = %found.master, pod = %owner, container = file.container_id,
            "taking the VLAN over from a dead sandbox"
        );
        self.nic.evict(*found.holder).await.map_err(FlowError::nic)
    }

    /// The newest attachment that this link is of. A namespace's identity may come again after
    /// its end, so the link's own marks are compared too; not its name, which may be changed in
    /// the Pod.
    fn file_of(&self, found: &InTheWay) -> Option<Attachment> {
        let holder = &found.holder;
        let netns_id = holder.netns_id?;
        let is_it = |file: &Attachment| {
            file.netns_id == Some(netns_id)
                && file.vlan == Some(found.vlan)
                && file.master.as_ref() == Some(&found.master)
                && (holder.mac.is_none() || file.mac == holder.mac)
        };
        self.attachments.select(is_it).into_iter().next()
    }
}

//! ADD, in the order of spec dataplane 4.2. What fails before the claim leaves nothing; a failed
//! NIC step undoes link and file and keeps claim and endpoint for the retry.

use std::path::Path;
use std::time::Duration;

use spiderpool_api::cni::{CniCode, CniResult};
use spiderpool_api::cni_conf::EniConf;
use spiderpool_api::value::Mac;
use spiderpool_ipam::pick::Binding;
use spiderpool_ipam::plan::Allocation;

use super::allocate::AllocateError;
use super::call::NicCall;
use super::error::FlowError;
use super::identity::named_by;
use super::result::{self, SubEni};
use crate::agent::Agent;
use crate::attachment::Attachment;
use crate::failpoint::add_step;
use crate::nic::{Attached, MasterInfo, OpenedTarget};
use crate::store::PodObject;

/// Time the link steps need besides the pre-flight.
const LINK_STEPS: Duration = Duration::from_secs(1);

/// What is known of the place before any claim.
struct Ground<'a> {
    eni: &'a EniConf,
    netns: &'a Path,
    target: OpenedTarget,
    master: MasterInfo,
}

impl Agent {
    /// Serves ADD.
    pub(crate) async fn add(&self, call: NicCall) -> Result<CniResult, FlowError> {
        let netns = call.netns.clone().unwrap_or_default();
        let ground = match &call.call.conf.eni {
            Some(eni) => Some(self.ground(&call, eni, &netns).await?),
            None => {
                ipam_netns(&netns).await?;
                None
            }
        };
        let delegated = self.delegated_master(&call).await?;
        let pod = self.pod_of(&call).await?;
        let limits = &call.call.limits;
        let key = (pod.uid().to_owned(), call.key.ifname().clone());
        let waiting = "another call for this NIC was under way";
        let locked = limits.wait(waiting, self.locks.lock(key)).await;
        let _alone = locked.map_err(FlowError::Ended)?;
        let (allocation, parent_mac) = match self.allocate(&call, &pod).await {
            Ok(allocated) => allocated,
            Err(AllocateError::Dead) => return Err(FlowError::PodDead(pod.key())),
            Err(AllocateError::Failed(source)) => {
                return Err(FlowError::Allocation {
                    pod: pod.key(),
                    ifname: call.key.ifname().clone(),
                    source: Box::new(source),
                });
            }
        };
        let Some(ground) = ground else {
            let told = delegated.map(|master| parent_mac.unwrap_or(master.mac));
            return self.answer_ipam(&call, &pod, &allocation, told).await;
        };
        let eni = SubEni {
            conf: ground.eni,
            binding: self.binding_of(&call, &pod, &allocation)?,
            parent_mac,
            netns: ground.netns,
        };
        self.attach_eni(&call, &pod, &allocation, eni, &ground)
            .await
    }

    /// Steps 1 to 3: the namespace opens, the name is free, somebody said which Pod, the master
    /// is usable.
    async fn ground<'a>(
        &self,
        call: &NicCall,
        eni: &'a EniConf,
        netns: &'a Path,
    ) -> Result<Ground<'a>, FlowError> {
        let target = self.nic.open_target(netns, call.key.ifname()).await;
        let target = target.map_err(FlowError::nic)?;
        if named_by(&call.args).is_none() && !self.settings.standalone {
            return Err(FlowError::NoPod);
        }
        let master = self.nic.check_master(&eni.master, None, eni.mtu).await;
        let master = master.map_err(FlowError::nic)?;
        Ok(Ground {
            eni,
            netns,
            target,
            master,
        })
    }

    /// The answer of the IPAM plugin; with `parent_mac` it is for a sub-ENI.
    async fn answer_ipam(
        &self,
        call: &NicCall,
        pod: &PodObject,
        allocation: &Allocation,
        parent_mac: Option<Mac>,
    ) -> Result<CniResult, FlowError> {
        let mut result = result::ipam_result(call, allocation);
        if let Some(parent_mac) = parent_mac {
            let binding = self.binding_of(call, pod, allocation)?;
            let node = &self.settings.node;
            result.sub_eni = Some(result::extension(binding, parent_mac, node));
        }
        let file = result::attachment(call, pod, allocation, None, self.clock.rfc3339());
        let written = self.attachments.put(file).await;
        written.map_err(FlowError::Attachment)?;
        Ok(result)
    }

    /// The master of a sub-ENI whose link the caller makes: that it cannot be made is known before
    /// the claim.
    async fn delegated_master(&self, call: &NicCall) -> Result<Option<MasterInfo>, FlowError> {
        let conf = &call.call.conf;
        let Some(name) = self.sub_eni_master(conf).filter(|_| conf.eni.is_none()) else {
            return Ok(None);
        };
        let master = self.nic.check_master(name, None, None).await;
        master.map(Some).map_err(FlowError::nic)
    }

    /// Steps 5 to 12, under the lock of the NIC.
    async fn attach_eni(
        &self,
        call: &NicCall,
        pod: &PodObject,
        allocation: &Allocation,
        mut eni: SubEni<'_>,
        ground: &Ground<'_>,
    ) -> Result<CniResult, FlowError> {
        if eni.parent_mac.is_some() {
            let checked = self
                .nic
                .check_master(&eni.conf.master, eni.parent_mac, eni.conf.mtu)
                .await;
            checked.map_err(FlowError::nic)?;
        }
        let probes = eni.conf.validate.map_or(Duration::ZERO, |validation| {
            Duration::from_millis(validation.timeout_ms.into()) * validation.retries
        });
        let limits = &call.call.limits;
        let allowed = limits.allow("the NIC was still to be made", probes + LINK_STEPS);
        allowed.map_err(FlowError::Ended)?;
        let spec = eni.spec(call, allocation);
        let (netns_id, at) = (Some(ground.target.netns_id), self.clock.rfc3339());
        let file = result::attachment(call, pod, allocation, netns_id, at);
        let before = self.attachments.get(&call.key);
        let written = add_step!(AttachmentFile, self.attachments.put(file.clone()));
        written.map_err(FlowError::Attachment)?;
        match self
            .attach_observed(call, pod, spec, &file, ground.master.ifindex)
            .await
        {
            Ok(attached) => {
                self.memory.passed(pod.uid(), &allocation.nic);
                log_attached(call, pod, &attached);
                eni.parent_mac.get_or_insert(ground.master.mac);
                let node = &self.settings.node;
                Ok(result::eni_result(
                    call,
                    allocation,
                    &eni,
                    attached.mtu,
                    node,
                ))
            }
            Err(error) => {
                self.undo_attach(call, &file, before).await;
                if error.cni_code() == CniCode::ValidationFailed
                    && self.memory.failed(pod.uid(), &allocation.nic)
                {
                    self.give_up(pod, allocation).await;
                }
                Err(error)
            }
        }
    }

    /// VLAN and MAC of the sub-ENI.
    fn binding_of(
        &self,
        call: &NicCall,
        pod: &PodObject,
        allocation: &Allocation,
    ) -> Result<Binding, FlowError> {
        let missing = |why: String| FlowError::NoSubEni {
            pod: pod.key(),
            ifname: call.key.ifname().clone(),
            why,
        };
        let (Some(vlan), Some(mac)) = (allocation.vlan, allocation.mac) else {
            let pools: Vec<&str> = allocation.ips.iter().map(|ip| ip.pool.as_str()).collect();
            let pools = pools.join(" and ");
            let (network, file) = (&call.call.conf.name, self.attachments.get(&call.key));
            return Err(missing(
                match file.filter(|file| file.network != *network) {
                    Some(file) => format!(
                        "this interface of the container has an address of network {} already, from IPPool {pools}; name another interface for network {network}",
                        file.network
                    ),
                    None => format!(
                        "IPPool {pools} is no pool of an IaaS provider; eni-vlan needs one with annotation ipam.spidernet.io/iaas-provider"
                    ),
                },
            ));
        };
        let mac = mac
            .require_unicast()
            .map_err(|error| missing(error.to_string()))?;
        Ok(Binding { vlan, mac })
    }

    /// The link is undone by who made it; the file goes, claim and endpoint stay.
    async fn undo_attach(&self, call: &NicCall, file: &Attachment, before: Option<Attachment>) {
        self.unobserve(file).await;
        let undone = match before {
            // An older attachment of this very sandbox: its DEL still needs the file.
            Some(file) => self.attachments.put(file).await,
            None => self.attachments.remove(&call.key).await,
        };
        if let Err(undo) = undone {
            tracing::warn!(error = %super::error::full(&undo), "an attachment file is left behind");
        }
    }
}

/// The IPAM plugin does not touch the namespace; that it is there shows that the sandbox lives.
async fn ipam_netns(netns: &Path) -> Result<(), FlowError> {
    match crate::files::exists(netns).await {
        Ok(true) => Ok(()),
        _ => Err(FlowError::NetnsMissing(netns.to_owned())),
    }
}

/// One line an attach: how the pre-flight went and what the kernel was asked (`preflight` is JSON,
/// for tools).
fn log_attached(call: &NicCall, pod: &PodObject, attached: &Attached) {
    let preflight: Vec<_> = attached
        .preflight
        .iter()
        .map(|report| {
            serde_json::json!({
                "family": report.family.as_str(),
                "result": report.result.as_str(),
                "attempts": report.attempts,
                "ms": report.duration.as_secs_f64() * 1000.0,
            })
        })
        .collect();
    tracing::info!(
        pod = %pod.key(), ifname = %call.key.ifname(), container = call.key.container_id(),
        netlink_requests = attached.netlink_requests, reused = attached.reused,
        preflight = %serde_json::Value::from(preflight), "attached"
    );
}

//! CHECK (spec dataplane 1.6, 4.4): the records still answer for what `prevResult` says, and the
//! link is as it was made.

use std::collections::BTreeSet;

use ipnet::IpNet;
use spiderpool_api::cni::CniResult;
use spiderpool_api::cni_conf::ConfError;
use spiderpool_ipam::facts::pod_alive;
use spiderpool_ipam::pick::Binding;
use spiderpool_ipam::plan::{self, Allocation, Intent};

use super::call::{CallError, NicCall};
use super::error::FlowError;
use super::result::SubEni;
use crate::agent::Agent;
use crate::store::{Freshness, PodObject};

impl Agent {
    /// Serves CHECK.
    pub(crate) async fn check(&self, call: NicCall) -> Result<(), FlowError> {
        let Some(previous) = &call.call.conf.prev_result else {
            return Err(FlowError::Call(CallError::Conf(ConfError::Value {
                key: "prevResult".into(),
                reason: "CHECK compares with it, and it is absent".into(),
            })));
        };
        let pod = self.checked_pod(&call).await?;
        let mismatch = |why: String| FlowError::Mismatch {
            pod: pod.key(),
            ifname: call.key.ifname().clone(),
            why,
        };
        let allocation = self.held(&call, &pod).await?.map_err(mismatch)?;
        compare(&call, previous, &allocation).map_err(mismatch)?;
        let Some(conf) = &call.call.conf.eni else {
            return Ok(());
        };
        let (Some(vlan), Some(mac)) = (allocation.vlan, allocation.mac) else {
            return Err(mismatch("the allocation has no VLAN and MAC".into()));
        };
        let netns = call.netns.clone().unwrap_or_default();
        let eni = SubEni {
            conf,
            binding: Binding { vlan, mac },
            parent_mac: None,
            netns: &netns,
        };
        let spec = eni.spec(&call, &allocation);
        self.nic.check(spec).await.map_err(FlowError::nic)
    }

    /// What the records prove that the NIC has; the inner error says why it has nothing.
    async fn held(
        &self,
        call: &NicCall,
        pod: &PodObject,
    ) -> Result<Result<Allocation, String>, FlowError> {
        let failed = |source| FlowError::Allocation {
            pod: pod.key(),
            ifname: call.key.ifname().clone(),
            source: Box::new(source),
        };
        let key = pod.endpoint_key(self.settings.switches);
        let read = self.store.endpoint(&key, Freshness::Cached).await;
        let endpoint = read.map_err(FlowError::store("read the SpiderEndpoint"))?;
        let snapshot = self.snapshot(pod, endpoint.as_ref()).await;
        let snapshot = snapshot.map_err(failed)?;
        if !pod_alive(&snapshot.pod) {
            return Ok(Err("the Pod has ended".into()));
        }
        Ok(
            match plan::plan_check(&snapshot, call.key.ifname().as_str()) {
                Intent::Retrieve(nic) => {
                    plan::from_endpoint(&nic).map_err(|error| error.to_string())
                }
                Intent::Reclaim { .. } => Err("a pool record of it is gone".into()),
                Intent::Fresh(_) | Intent::Adopt(_) | Intent::Exchange(_) => {
                    Err("the agent holds no allocation for it".into())
                }
            },
        )
    }
}

fn compare(call: &NicCall, previous: &CniResult, allocation: &Allocation) -> Result<(), String> {
    let ifname = call.key.ifname().as_str();
    let ours = |index: Option<u32>| {
        let at = index.and_then(|index| usize::try_from(index).ok());
        let interface = at.and_then(|at| previous.interfaces.get(at));
        interface.is_none_or(|interface| interface.name == ifname)
    };
    let told: BTreeSet<IpNet> = previous
        .ips
        .iter()
        .filter(|ip| ours(ip.interface))
        .map(|ip| ip.address)
        .collect();
    let held: BTreeSet<IpNet> = allocation.ips.iter().map(|ip| ip.address).collect();
    if told != held {
        let list = |nets: &BTreeSet<IpNet>| {
            let texts: Vec<String> = nets.iter().map(ToString::to_string).collect();
            texts.join(", ")
        };
        return Err(format!(
            "prevResult has the addresses [{}], the agent [{}]",
            list(&told),
            list(&held)
        ));
    }
    let Some(interface) = previous.interfaces.iter().find(|link| link.name == ifname) else {
        return if call.call.conf.eni.is_some() {
            Err("prevResult does not list the interface".into())
        } else {
            Ok(())
        };
    };
    let netns = call.netns.clone().unwrap_or_default();
    if call.call.conf.eni.is_some() && interface.sandbox != netns.display().to_string() {
        return Err(format!(
            "prevResult has it in sandbox {:?}, CNI_NETNS is {}",
            interface.sandbox,
            netns.display()
        ));
    }
    Ok(())
}

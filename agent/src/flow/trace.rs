//! Why a Pod has the addresses it has, or none: what is stored of it, and what an ADD would find
//! now. Reads, writes nothing.

use spiderpool_api::cni_conf::Plugin;
use spiderpool_api::trace_v1::{
    HeldAttachment, HeldIp, HeldRecord, LastAdd, TraceCandidate, TraceFamily, TraceNic,
    TraceRefusal, TraceReport,
};
use spiderpool_ipam::candidates::{ExplainedFamily, Explanation, Request, explain};
use spiderpool_ipam::facts::Snapshot;

use super::error::full;
use crate::agent::Agent;
use crate::attachment::Attachment;
use crate::store::{Freshness, ObjectKey};

/// The NIC that is asked about when this agent has served no ADD of the Pod.
const GUESS: &str = "eth0";

impl Agent {
    /// The whole story of a Pod; what cannot be read is told as `error`.
    pub(crate) async fn trace(&self, key: &ObjectKey) -> TraceReport {
        let failed = |error: String| TraceReport {
            error: Some(error),
            ..TraceReport::default()
        };
        match self.story(key).await {
            Ok(Some(report)) => report,
            Ok(None) => failed(format!(
                "Pod {key} does not exist; spiderpoolctl ip find ADDRESS tells what is left of one"
            )),
            Err(error) => failed(error),
        }
    }

    async fn story(&self, key: &ObjectKey) -> Result<Option<TraceReport>, String> {
        let pod = self.store.pod(key, Freshness::Fresh).await;
        let Some(pod) = pod.map_err(|error| full(&error))? else {
            return Ok(None);
        };
        let named = pod.endpoint_key(self.settings.switches);
        let endpoint = self.store.endpoint(&named, Freshness::Fresh).await;
        let endpoint = endpoint.map_err(|error| full(&error))?;
        let snapshot = self.snapshot(&pod, endpoint.as_ref()).await;
        let snapshot = snapshot.map_err(|error| full(&error))?;
        let files = self.attachments.select(|file| file.pod_uid == pod.uid());
        let here = pod.facts.node.is_empty() || pod.facts.node == self.settings.node;
        Ok(Some(TraceReport {
            error: None,
            pod_uid: pod.uid().to_owned(),
            pod_node: pod.facts.node.clone(),
            node: self.settings.node.clone(),
            records: records(&snapshot, &snapshot.record_key()),
            endpoint: endpoint.and_then(|object| serde_json::to_value(object.status).ok()),
            attachments: files.iter().map(held).collect(),
            nics: if here {
                self.explained(key, &snapshot)
            } else {
                Vec::new()
            },
        }))
    }

    fn explained(&self, key: &ObjectKey, snapshot: &Snapshot) -> Vec<TraceNic> {
        let rules = self.rules(snapshot);
        let one = |request: &Request, last: Option<LastAdd>| {
            let explanation = explain(snapshot, request, &rules);
            traced(&request.ifname, last, &explanation)
        };
        let noted = self.journal.of(key);
        if noted.is_empty() {
            let guess = Request {
                agent_namespace: self.settings.agent_namespace.clone(),
                cluster_network: self.settings.cluster_network.clone(),
                ..Request::new(Plugin::EniVlan, GUESS)
            };
            return vec![one(&guess, None)];
        }
        let notes = noted.into_iter();
        notes
            .map(|noted| one(&noted.request, Some(noted.last)))
            .collect()
    }

    /// Everything this node gave to sandboxes.
    pub(crate) fn held_attachments(&self) -> Vec<HeldAttachment> {
        self.attachments.select(|_| true).iter().map(held).collect()
    }
}

fn records(snapshot: &Snapshot, pod: &str) -> Vec<HeldRecord> {
    let pools = snapshot.pools.iter();
    let all = pools.flat_map(|pool| pool.records.iter().map(move |record| (pool, record)));
    let own = all.filter(|(_, (_, record))| record.pod == pod);
    own.map(|(pool, (address, record))| HeldRecord {
        address,
        pool: pool.name.clone(),
        pod_uid: record.pod_uid.clone(),
        nic: record.nic.clone(),
        releasing: record
            .releasing
            .as_ref()
            .map(|mark| format!("by {} since {}", mark.by, mark.at)),
    })
    .collect()
}

fn held(file: &Attachment) -> HeldAttachment {
    let ips = file.ips.iter().map(|ip| HeldIp {
        address: ip.address.addr(),
        pool: ip.pool.clone(),
    });
    HeldAttachment {
        container_id: file.container_id.clone(),
        interface: file.ifname.to_string(),
        pod_uid: file.pod_uid.clone(),
        pod_namespace: file.pod_namespace.clone(),
        pod_name: file.pod_name.clone(),
        ips: ips.collect(),
        master: file.master.as_ref().map(ToString::to_string),
        vlan: file.vlan.map(|vlan| vlan.get()),
        mac: file.mac.map(|mac| mac.to_string()),
        attached_at: file.attached_at.clone(),
    }
}

fn traced(interface: &str, last: Option<LastAdd>, explanation: &Explanation) -> TraceNic {
    let nics = explanation.nics.iter();
    TraceNic {
        interface: interface.to_owned(),
        last,
        level: explanation.level.map(|level| level.to_string()),
        families: nics
            .flat_map(|nic| {
                nic.families
                    .iter()
                    .map(|family| of_family(&nic.nic, family))
            })
            .collect(),
        dropped: explanation
            .dropped
            .iter()
            .map(ToString::to_string)
            .collect(),
        error: explanation.error.as_ref().map(ToString::to_string),
    }
}

fn of_family(nic: &str, family: &ExplainedFamily) -> TraceFamily {
    let candidates = family.candidates.iter().map(|(pool, given)| match given {
        Ok(pick) => TraceCandidate {
            pool: pool.clone(),
            gives: std::iter::once(pick.address)
                .chain(pick.pair_v6.map(Into::into))
                .collect(),
            path: Some(pick.path.label().to_owned()),
            error: None,
        },
        Err(error) => TraceCandidate {
            pool: pool.clone(),
            gives: Vec::new(),
            path: None,
            error: Some(error.to_string()),
        },
    });
    let refused = family.refusals.iter().map(|refusal| TraceRefusal {
        pool: refusal.pool.clone(),
        reason: refusal.reason.to_string(),
    });
    TraceFamily {
        nic: nic.to_owned(),
        family: family.family.to_string(),
        candidates: candidates.collect(),
        refused: refused.collect(),
    }
}

//! `spiderpoolctl ip find`: who has an address, by which record, and whether everything else that
//! speaks of it agrees. The record is the only proof of ownership (spec ipam 1.2); SpiderEndpoints,
//! attachment files and the Pod object are held against its UID. Pure.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::ResourceExt;
use serde::Serialize;
use spiderpool_api::allocation::Record;
use spiderpool_api::endpoint::SpiderEndpoint;
use spiderpool_api::names;
use spiderpool_api::trace_v1::HeldAttachment;

use crate::facts::{Known, Reserved};
use crate::output;

/// Owners whose addresses outlive their Pods.
const SET: &str = "StatefulSet";
const MACHINE: &str = "VirtualMachineInstance";

/// What was read.
pub(crate) struct Sources<'a> {
    pub(crate) address: IpAddr,
    pub(crate) pools: &'a [Known],
    pub(crate) reserved: &'a [Reserved],
    pub(crate) endpoints: &'a [SpiderEndpoint],
    /// Of this node; `None` when no agent answers here.
    pub(crate) attachments: Option<&'a [HeldAttachment]>,
}

impl Sources<'_> {
    /// Whether the record is of a virtual machine, as its endpoint says.
    pub(crate) fn is_machines(&self, owner: &Owner) -> bool {
        self.kind_of(owner) == Some(MACHINE)
    }

    /// Kind of what controls the record's Pod, as the endpoint under its key says.
    fn kind_of(&self, owner: &Owner) -> Option<&str> {
        let is_it = |endpoint: &&SpiderEndpoint| {
            let meta = &endpoint.metadata;
            let parts = meta.namespace.as_deref().zip(meta.name.as_deref());
            parts == owner.pod.split_once('/')
        };
        let endpoint = self.endpoints.iter().find(is_it)?;
        Some(&endpoint.status.owner_controller_type)
    }
}

/// The answer. The JSON keys are fixed: scripts rely on them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Found {
    address: IpAddr,
    /// By the record; absent when there is none.
    owner: Option<Owner>,
    /// Pools whose addresses it is among.
    pools: Vec<String>,
    /// SpiderReservedIPs that keep it back.
    reserved_by: Vec<String>,
    /// Everything that speaks of it.
    claims: Vec<Claim>,
    /// RFC 3339, as far as known.
    since: Option<String>,
    /// What named the pool, as far as the Pod says.
    why: Option<String>,
    /// Whether attachments of this node were asked.
    attachments_asked: bool,
    /// What does not agree, with what to do.
    problems: Vec<String>,
}

/// Who has it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Owner {
    pub(crate) pod: String,
    pub(crate) pod_uid: String,
    nic: Option<String>,
    pool: String,
    releasing: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Claim {
    source: &'static str,
    object: String,
    pod: String,
    pod_uid: String,
    nic: Option<String>,
    pool: Option<String>,
    agrees: bool,
}

/// The owners that records name; more than one is a fault of its own.
pub(crate) fn owners(sources: &Sources<'_>) -> Vec<Owner> {
    let pools = sources.pools.iter();
    let pools = pools.filter_map(|known| known.pool.as_ref().ok());
    pools
        .filter_map(|pool| {
            let record = pool.records.get(sources.address)?;
            Some(owner(record, &pool.name))
        })
        .collect()
}

fn owner(record: &Record, pool: &str) -> Owner {
    let mark = record.releasing.as_ref();
    Owner {
        pod: record.pod.clone(),
        pod_uid: record.pod_uid.clone(),
        nic: record.nic.clone(),
        pool: pool.to_owned(),
        releasing: mark.map(|mark| format!("by {} since {}", mark.by, mark.at)),
    }
}

/// Puts together what was read. `pod` is the object of the owner's name.
pub(crate) fn find(sources: &Sources<'_>, owners: &[Owner], pod: Option<&PodObject>) -> Found {
    let address = sources.address;
    let of_pool = |known: &&Known| {
        let pool = known.pool.as_ref();
        pool.is_ok_and(|pool| pool.usable.contains(address))
    };
    let reserved = sources.reserved.iter();
    let reserved = reserved.filter(|one| one.addresses.contains(address));
    let owner = owners.first().cloned();
    let uid = owner.as_ref().map(|owner| owner.pod_uid.as_str());
    let mut found = Found {
        address,
        pools: sources
            .pools
            .iter()
            .filter(of_pool)
            .map(Known::name)
            .collect(),
        reserved_by: reserved.map(|one| one.name.clone()).collect(),
        claims: Vec::new(),
        since: None,
        why: pod.zip(owner.as_ref()).map(|(pod, _)| why(pod)),
        attachments_asked: sources.attachments.is_some(),
        problems: Vec::new(),
        owner: owner.clone(),
    };
    for other in owners {
        found.claims.push(Claim {
            source: "record",
            object: format!("IPPool {}", other.pool),
            pod: other.pod.clone(),
            pod_uid: other.pod_uid.clone(),
            nic: other.nic.clone(),
            pool: Some(other.pool.clone()),
            agrees: uid == Some(other.pod_uid.as_str()),
        });
    }
    add_endpoints(&mut found, sources, uid);
    add_attachments(&mut found, sources, uid);
    if let Some(owner) = &owner {
        let kept = matches!(sources.kind_of(owner), Some(SET | MACHINE));
        add_pod(&mut found, owner, pod, kept);
    }
    found.problems.extend(disagreements(&found, owners));
    found
}

fn add_endpoints(found: &mut Found, sources: &Sources<'_>, uid: Option<&str>) {
    for endpoint in sources.endpoints {
        let current = &endpoint.status.current;
        for nic in &current.ips {
            let sides = [(&nic.ipv4, &nic.ipv4_pool), (&nic.ipv6, &nic.ipv6_pool)];
            let side = sides.into_iter().find(|(net, _)| {
                let text = net.as_deref().and_then(|net| net.split('/').next());
                text.and_then(|text| text.parse().ok()) == Some(sources.address)
            });
            let Some((_, pool)) = side else { continue };
            let namespace = endpoint.metadata.namespace.as_deref().unwrap_or_default();
            let name = endpoint.metadata.name.as_deref().unwrap_or_default();
            found.claims.push(Claim {
                source: "endpoint",
                object: format!("{namespace}/{name}"),
                pod: format!("{namespace}/{name}"),
                pod_uid: current.uid.clone(),
                nic: Some(nic.interface.clone()).filter(|nic| !nic.is_empty()),
                pool: pool.clone(),
                agrees: uid == Some(current.uid.as_str()),
            });
        }
    }
}

fn add_attachments(found: &mut Found, sources: &Sources<'_>, uid: Option<&str>) {
    for held in sources.attachments.into_iter().flatten() {
        let Some(ip) = held.ips.iter().find(|ip| ip.address == sources.address) else {
            continue;
        };
        let agrees = uid == Some(held.pod_uid.as_str());
        if agrees && found.since.is_none() {
            found.since = Some(held.attached_at.clone());
        }
        found.claims.push(Claim {
            source: "attachment",
            object: format!("sandbox {}", short(&held.container_id)),
            pod: format!("{}/{}", held.pod_namespace, held.pod_name),
            pod_uid: held.pod_uid.clone(),
            nic: Some(held.interface.clone()),
            pool: Some(ip.pool.clone()),
            agrees,
        });
    }
}

/// `kept`: the addresses outlive their Pods.
fn add_pod(found: &mut Found, owner: &Owner, pod: Option<&PodObject>, kept: bool) {
    let Some(pod) = pod else {
        if !kept {
            found.problems.push(format!(
                "Pod {} does not exist any more: the record is left over, garbage collection frees it",
                owner.pod
            ));
        }
        return;
    };
    let uid = pod.uid().unwrap_or_default();
    let agrees = uid == owner.pod_uid;
    if agrees && found.since.is_none() {
        let created = pod.creation_timestamp();
        found.since = created.map(|time| format!("{} at the earliest", time.0));
    }
    // The next Pod of an ordinal takes the record over when it is attached.
    let status = pod.status.as_ref();
    let is_up = status.is_some_and(|status| status.pod_ips.is_some());
    if !agrees && (is_up || !kept) {
        found.problems.push(format!(
            "Pod {} has UID {uid}, the record is of UID {}: it is left over of an older Pod of that name",
            owner.pod, owner.pod_uid
        ));
    }
    let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    found.claims.push(Claim {
        source: "pod",
        object: name.clone(),
        pod: name,
        pod_uid: uid,
        nic: None,
        pool: None,
        agrees,
    });
}

fn disagreements(found: &Found, owners: &[Owner]) -> Vec<String> {
    let mut problems = Vec::new();
    if owners.len() > 1 {
        let pools: Vec<&str> = owners.iter().map(|owner| owner.pool.as_str()).collect();
        problems.push(format!(
            "records in {} pools have it: {}; make their ranges disjoint and restart the younger Pod",
            owners.len(),
            pools.join(", ")
        ));
    }
    for claim in found.claims.iter().filter(|claim| !claim.agrees) {
        let (source, object, uid) = (claim.source, &claim.object, &claim.pod_uid);
        match (source, &found.owner) {
            ("endpoint" | "attachment", Some(owner)) => problems.push(format!(
                "{source} {object} is of UID {uid}, the record of UID {}: only the record counts",
                owner.pod_uid
            )),
            ("endpoint" | "attachment", None) => problems.push(format!(
                "{source} {object} (UID {uid}) names it, but no pool has a record: it is not theirs, and the next Pod may get it"
            )),
            _ => {}
        }
    }
    if let Some(mark) = found
        .owner
        .as_ref()
        .and_then(|owner| owner.releasing.as_ref())
    {
        problems.push(format!("it is being given back to the provider, {mark}"));
    }
    problems
}

/// What named the pool, as far as the Pod's own words go.
fn why(pod: &PodObject) -> String {
    let notes = pod.annotations();
    let choices = [names::POD_IPPOOL, names::POD_IPPOOLS];
    let choice = choices.iter().find_map(|key| Some((key, notes.get(*key)?)));
    match choice {
        Some((key, value)) => format!("annotation {key} of the Pod: {value}"),
        None => "no annotation of the Pod: its Namespace, the CNI configuration or the cluster default (spiderpoolctl trace POD tells)".to_owned(),
    }
}

impl Found {
    /// Whether all that speak of it agree.
    pub(crate) fn is_consistent(&self) -> bool {
        self.problems.is_empty()
    }
}

/// The lines for a terminal.
pub(crate) fn text(found: &Found) -> String {
    let address = found.address;
    let mut text = match &found.owner {
        Some(owner) => format!(
            "{address} belongs to Pod {}{} by the record in IPPool {}\n",
            owner.pod,
            owner
                .nic
                .as_ref()
                .map_or_else(String::new, |nic| format!(" (NIC {nic})")),
            owner.pool
        ),
        None if found.pools.is_empty() => format!("{address} is in no IPPool\n"),
        None => format!(
            "{address} of IPPool {} has no record: nobody has it\n",
            found.pools.join(", ")
        ),
    };
    for name in &found.reserved_by {
        text.push_str(&format!("SpiderReservedIP {name} keeps it back\n"));
    }
    if !found.claims.is_empty() {
        let header = ["SOURCE", "OBJECT", "POD", "UID", "NIC", "POOL", "AGREES"];
        let rows = found.claims.iter().map(|claim| {
            let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
            vec![
                claim.source.to_owned(),
                claim.object.clone(),
                claim.pod.clone(),
                claim.pod_uid.clone(),
                dash(&claim.nic),
                dash(&claim.pool),
                if claim.agrees { "yes" } else { "NO" }.to_owned(),
            ]
        });
        text.push_str(&output::grid(&header, rows));
    }
    for (word, value) in [("since", &found.since), ("named by", &found.why)] {
        if let Some(value) = value {
            text.push_str(&format!("{word}: {value}\n"));
        }
    }
    if !found.attachments_asked {
        text.push_str("attachments: not asked, no agent answers on this host (--socket)\n");
    }
    for problem in &found.problems {
        text.push_str(&format!("problem: {problem}\n"));
    }
    text
}

/// As runtimes show container ids.
pub(crate) fn short(container: &str) -> &str {
    container.get(..12).unwrap_or(container)
}

//! What collection would do with a record, and why, for people: the same reads past the caches and the
//! same verdict as the collector's, and nothing is changed.

use std::net::IpAddr;

use jiff::SignedDuration;
use kube::Client;
use serde::Serialize;
use spiderpool_api::allocation::Record;
use spiderpool_iaas::provider::Generation;
use spiderpool_ipam::first_generation::Unnamed;
use spiderpool_ipam::gc::{Free, How, Keep, Knobs, NodeState, Static, Verdict, how_to_release};
use spiderpool_ipam::pool::Pool;
use spiderpool_ipam::sticky::{Sticky, Switches};

use super::read::{Direct, Launchers, Reader};
use crate::chain::full;
use crate::clock::{Clock, SystemClock};
use crate::objects::pool::Marks;
use crate::objects::pool_api::PoolApi;
use crate::objects::{ObjectKey, StoreError};

/// Nobody's name in a marker: all markers are of others.
const NOBODY: &str = "nobody";

/// Whose records.
#[derive(Debug, Clone)]
pub enum Subject {
    /// Of one address.
    Address(IpAddr),
    /// Of one Pod.
    Pod(ObjectKey),
}

/// One record's future. The JSON keys are fixed: scripts rely on them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// The address.
    pub address: IpAddr,
    /// Its pool.
    pub pool: String,
    /// `namespace/name` that the record names.
    pub pod: String,
    /// UID that it names.
    pub pod_uid: String,
    /// NIC that it names.
    pub nic: Option<String>,
    /// `keep`, `trace`, `free`, or `unknown` when something could not be read.
    pub verdict: &'static str,
    /// Why.
    pub why: String,
    /// How it would go, for `free`.
    pub how: Option<String>,
    /// Whether the endpoint would go.
    pub endpoint_goes: bool,
    /// The Pod as it was read.
    pub seen: Option<Seen>,
    /// Endpoint's UID of the Pod; absent without an endpoint.
    pub endpoint_uid: Option<String>,
    /// What outlives the Pod, and whether it still exists.
    pub identity: Option<String>,
}

/// A Pod as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// `namespace/name`; a machine's Pod has another name than the record.
    pub pod: String,
    /// UID.
    pub uid: String,
    /// Phase.
    pub phase: String,
    /// Whether it has addresses.
    pub has_ips: bool,
    /// When it should be gone, RFC 3339.
    pub deletion: Option<String>,
    /// Its node, while it is being deleted.
    pub node: Option<&'static str>,
}

/// The settings of the collector that is asked about.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whose addresses outlive a Pod.
    pub sticky: Switches,
    /// Its switches and times.
    pub knobs: Knobs,
    /// Contract of its provider; `None`: it has none.
    pub provider: Option<Generation>,
}

/// Explains every record of the subject, in the order of pools.
///
/// # Errors
/// [`StoreError`] when the pools cannot be listed; another failed read is told in its record's answer.
pub async fn explain(
    client: &Client,
    settings: &Settings,
    subject: &Subject,
) -> Result<Vec<Explained>, StoreError> {
    let reader = Reader::new(client.clone(), settings.sticky);
    let keys = keys_of(&reader, subject).await?;
    let mut pools: Vec<Pool> = Vec::new();
    let listed = |object: crate::objects::pool::PoolObject| {
        pools.extend(object.pool().ok().map(|pool| Pool::clone(pool)));
    };
    let marks = match settings.provider {
        Some(Generation::First) => Marks::Ignored,
        _ => Marks::Count,
    };
    let api = PoolApi::new(client.clone()).with_marks(marks);
    api.list(listed).await?;
    let launchers = Launchers::default();
    let mut explained = Vec::new();
    for pool in &pools {
        for (address, record) in pool.records.iter() {
            if !is_about(subject, &keys, address, record) {
                continue;
            }
            let read = reader.direct(address, record, None, &launchers).await;
            let judged = match read {
                Ok(direct) => judged(pool, &pools, (address, record), &direct, settings),
                Err(error) => unknown(pool, address, record, &error),
            };
            explained.push(judged);
        }
    }
    Ok(explained)
}

/// Keys under which the subject's records may be.
async fn keys_of(reader: &Reader, subject: &Subject) -> Result<Vec<String>, StoreError> {
    let Subject::Pod(key) = subject else {
        return Ok(Vec::new());
    };
    let mut keys = vec![key.to_string()];
    if let Some(pod) = reader.pod(key).await?
        && reader.sticky().of_owner(&pod.owner) == Some(Sticky::VirtualMachine)
    {
        keys.push(format!("{}/{}", key.namespace, pod.owner.name));
    }
    Ok(keys)
}

fn is_about(subject: &Subject, keys: &[String], address: IpAddr, record: &Record) -> bool {
    match subject {
        Subject::Address(wanted) => *wanted == address,
        Subject::Pod(_) => keys.contains(&record.pod),
    }
}

fn judged(
    pool: &Pool,
    pools: &[Pool],
    (address, record): (IpAddr, &Record),
    direct: &Direct,
    settings: &Settings,
) -> Explained {
    let verdict = direct.judge(
        &settings.knobs,
        record,
        NOBODY,
        SystemClock.wall(),
        SignedDuration::MAX,
    );
    let (word, mut why, endpoint_goes) = match verdict {
        Verdict::Keep {
            why,
            stale_endpoint,
        } => ("keep", Keep::reason(why), stale_endpoint),
        Verdict::Trace(why) => ("trace", Keep::reason(why), false),
        Verdict::Confirm(why) => ("free", Free::reason(why), false),
        Verdict::Free { why, endpoint } => ("free", Free::reason(why), endpoint),
    };
    let mut free = word == "free";
    if free && record.pod_uid.is_empty() {
        (free, why) = (
            false,
            "the record names no UID: nothing tells its Pod from another",
        );
    }
    let status = direct.endpoint.as_ref().map(|endpoint| &endpoint.status);
    Explained {
        verdict: if free || word != "free" { word } else { "keep" },
        why: why.to_owned(),
        how: free.then(|| how(pool, (address, record), pools, direct, settings.provider)),
        endpoint_goes: endpoint_goes && (free || word == "keep"),
        seen: direct.pod.as_ref().map(|pod| Seen {
            pod: pod.key.to_string(),
            uid: pod.state.uid.clone(),
            phase: format!("{:?}", pod.state.phase),
            has_ips: pod.state.has_ips,
            deletion: pod.state.deletion.map(|deletion| deletion.at.to_string()),
            node: pod.state.deletion.map(|_| node_word(direct.node)),
        }),
        endpoint_uid: status.map(|status| status.current.uid.clone()),
        identity: direct.identity.map(identity_words),
        ..bare(pool, address, record)
    }
}

fn unknown(pool: &Pool, address: IpAddr, record: &Record, error: &StoreError) -> Explained {
    Explained {
        verdict: "unknown",
        why: full(error),
        ..bare(pool, address, record)
    }
}

fn bare(pool: &Pool, address: IpAddr, record: &Record) -> Explained {
    Explained {
        address,
        pool: pool.name.clone(),
        pod: record.pod.clone(),
        pod_uid: record.pod_uid.clone(),
        nic: record.nic.clone(),
        verdict: "unknown",
        why: String::new(),
        how: None,
        endpoint_goes: false,
        seen: None,
        endpoint_uid: None,
        identity: None,
    }
}

fn identity_words(identity: Static) -> String {
    let kind = match identity.kind {
        Sticky::StatefulSet => "StatefulSet",
        Sticky::VirtualMachine => "virtual machine",
    };
    let state = if identity.valid {
        "still there"
    } else {
        "gone"
    };
    format!("{kind}, {state}")
}

const fn node_word(node: NodeState) -> &'static str {
    match node {
        NodeState::Ready => "ready",
        NodeState::NotReady => "not ready",
        NodeState::Missing => "missing",
    }
}

fn how(
    pool: &Pool,
    (address, record): (IpAddr, &Record),
    pools: &[Pool],
    direct: &Direct,
    provider: Option<Generation>,
) -> String {
    let mut how = how_to_release(pool, address, record, pools.iter());
    if provider.is_none() && how != How::Record {
        return "the record alone: the controller has no provider to tell".to_owned();
    }
    if provider == Some(Generation::First) && how == How::Record {
        match direct.unnamed(pool, address, record) {
            Unnamed::NotBound => {}
            Unnamed::For(_) => how = How::ProviderFirst { half: None },
            Unnamed::Nowhere => {
                return "the record alone: nothing tells on which node the address may be bound"
                    .to_owned();
            }
        }
    }
    match how {
        How::Record => "the record alone".to_owned(),
        How::ProviderFirst { half: None } => "the provider first, then the record".to_owned(),
        How::ProviderFirst {
            half: Some((pool, other)),
        } => format!("the provider first, then {other} of {pool} and the record"),
        How::WithPrimary { pool, address } => format!("with {address} of {pool}"),
    }
}

//! Bodies of the agent socket about the observer: `GET /v1/observer/subeni`, `…/verify` and
//! `POST /v1/observer/detach` (spec dataplane 5.6, 5.7). Keys are the names of the metric labels;
//! new fields are optional.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::value::{IfName, Mac, VlanId};

/// Path of the list with counters.
pub const ROUTE_SUBENI: &str = "/v1/observer/subeni";
/// Path of the verification.
pub const ROUTE_VERIFY: &str = "/v1/observer/verify";
/// Path that takes programs and pins away.
pub const ROUTE_DETACH: &str = "/v1/observer/detach";

/// Everything the observer counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ObserverReport {
    /// Why nothing is observed; absent when all is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Parent NICs.
    pub nics: Vec<NicReport>,
    /// Sub-ENIs, by NIC and VLAN.
    pub subeni: Vec<SubEniReport>,
    /// VLANs that no sub-ENI has.
    pub unknown: Vec<UnknownReport>,
    /// Events that found the ring buffer full.
    pub events_lost: u64,
}

/// Where the programs of a NIC hang.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// TCX links, kernel 6.6.
    Tcx,
    /// Filters of a clsact qdisc.
    Clsact,
    /// Nowhere.
    None,
}

impl Attach {
    /// Value of the label `attach`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
            Self::None => "none",
        }
    }
}

/// Traffic of both directions, seen from the Pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Frames to the Pod; with GRO one stands for many packets.
    pub rx_frames: u64,
    /// Packets to the Pod.
    pub rx_packets: u64,
    /// Bytes to the Pod, with Ethernet header, without tag.
    pub rx_bytes: u64,
    /// Frames from the Pod.
    pub tx_frames: u64,
    /// Packets from the Pod.
    pub tx_packets: u64,
    /// Bytes from the Pod.
    pub tx_bytes: u64,
}

/// A parent NIC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NicReport {
    /// Name.
    pub nic: IfName,
    /// Index.
    pub ifindex: u32,
    /// How it is observed.
    pub attach: Attach,
    /// Why it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Frames without a tag.
    pub untagged: Counters,
    /// Frames with a tag, of sub-ENIs or not.
    pub tagged: Counters,
}

/// A sub-ENI with its Pod and counters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubEniReport {
    /// Parent NIC.
    pub nic: IfName,
    /// VLAN id.
    pub vlan: VlanId,
    /// Its MAC.
    pub mac: Mac,
    /// Its IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// Its IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
    /// Interface in the Pod.
    pub interface: IfName,
    /// Namespace of the Pod.
    pub pod_namespace: String,
    /// Name of the Pod.
    pub pod_name: String,
    /// Pools of the addresses, IPv4 first.
    pub pool: String,
    /// pending, active or draining.
    pub state: String,
    /// Traffic.
    #[serde(flatten)]
    pub counters: Counters,
    /// Frames dropped.
    pub drops: u64,
    /// The same by direction and reason: a kind that is enforced, or `device` for what the Pod's
    /// interface dropped. A direction is absent while its counters cannot be read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped: BTreeMap<String, BTreeMap<String, u64>>,
    /// By kind, those above zero.
    pub mismatch: BTreeMap<String, u64>,
    /// Neighbour messages by direction and type, those above zero.
    pub neighbor: BTreeMap<String, BTreeMap<String, u64>>,
}

/// A VLAN that no sub-ENI has, in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnknownReport {
    /// Parent NIC.
    pub nic: IfName,
    /// VLAN id; 0 is a priority tag.
    pub vlan: u16,
    /// rx or tx.
    pub direction: String,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Ethernet source of the last one.
    pub last_mac: Mac,
    /// Seconds since the last one.
    pub last_seconds_ago: f64,
}

/// Whether what Pods send is what the cloud knows of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerifyReport {
    /// The verdict.
    pub result: Verdict,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What was wrong.
    pub findings: Vec<Finding>,
}

/// The verdict of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing was wrong since the attach.
    Clean,
    /// Something was.
    Mismatch,
    /// Nothing is observed.
    Unknown,
}

/// One kind of fault of one sub-ENI.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Parent NIC.
    pub nic: IfName,
    /// VLAN id.
    pub vlan: u16,
    /// Interface in the Pod; absent when no sub-ENI has the VLAN, as the next two.
    pub interface: Option<IfName>,
    /// Namespace of the Pod.
    pub pod_namespace: Option<String>,
    /// Name of the Pod.
    pub pod_name: Option<String>,
    /// rx or tx.
    pub direction: String,
    /// The kind.
    pub kind: String,
    /// What the cloud knows.
    pub expected: Option<String>,
    /// What the last event showed; absent when this agent has seen none.
    pub observed: Option<String>,
    /// Frames.
    pub count: u64,
    /// Seconds since the last event.
    pub last_seconds_ago: Option<f64>,
}

/// What a detach took away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetachReport {
    /// NICs that were observed.
    pub nics: Vec<IfName>,
    /// What could not be taken away.
    pub errors: Vec<String>,
}

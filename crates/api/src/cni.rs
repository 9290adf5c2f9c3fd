//! The CNI protocol as we speak it: versions, commands, error codes, results. Owns the text of
//! nothing but shapes; see containernetworking/cni SPEC.md 1.1.0 and spec dataplane 0.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::value::{Mac, VlanId};

/// A CNI protocol version this product accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CniVersion {
    /// 0.3.0
    #[serde(rename = "0.3.0")]
    V0_3_0,
    /// 0.3.1
    #[serde(rename = "0.3.1")]
    V0_3_1,
    /// 0.4.0: adds CHECK
    #[serde(rename = "0.4.0")]
    V0_4_0,
    /// 1.0.0: drops `ips[].version`
    #[serde(rename = "1.0.0")]
    V1_0_0,
    /// 1.1.0: adds STATUS and GC
    #[serde(rename = "1.1.0")]
    V1_1_0,
}

impl CniVersion {
    /// All accepted versions, oldest first.
    pub const ALL: [Self; 5] = [
        Self::V0_3_0,
        Self::V0_3_1,
        Self::V0_4_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];

    /// The version as configurations write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// Whether each of a result's `ips[]` carries `version` ("4" or "6").
    #[must_use]
    pub fn has_ip_version(self) -> bool {
        self < Self::V1_0_0
    }

    /// Whether the version knows `command`.
    #[must_use]
    pub fn knows(self, command: CniCommand) -> bool {
        match command {
            CniCommand::Add | CniCommand::Del | CniCommand::Version => true,
            CniCommand::Check => self >= Self::V0_4_0,
            CniCommand::Gc | CniCommand::Status => self >= Self::V1_1_0,
        }
    }
}

impl FromStr for CniVersion {
    type Err = String;

    /// The error is the CNI message, naming what is supported.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|version| version.as_str() == text)
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL.iter().map(|v| v.as_str()).collect();
                format!(
                    "unsupported cniVersion {text:?}; supported: {}",
                    known.join(", ")
                )
            })
    }
}

impl fmt::Display for CniVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `CNI_COMMAND`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum CniCommand {
    /// Attach one NIC.
    Add,
    /// Detach one NIC; never fails on what is already gone.
    Del,
    /// Compare one NIC with its result.
    Check,
    /// Free what no valid attachment names.
    Gc,
    /// Whether ADD can be served.
    Status,
    /// Supported versions.
    Version,
}

impl CniCommand {
    /// The verb as the runtime writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        }
    }
}

impl FromStr for CniCommand {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [
            Self::Add,
            Self::Del,
            Self::Check,
            Self::Gc,
            Self::Status,
            Self::Version,
        ]
        .into_iter()
        .find(|command| command.as_str() == text)
        .ok_or_else(|| {
            format!("CNI_COMMAND {text:?} is none of ADD, DEL, CHECK, GC, STATUS, VERSION")
        })
    }
}

impl fmt::Display for CniCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Error codes of a CNI answer: below 100 the specification's, from 100 ours (spec dataplane 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CniCode {
    /// 1: the cniVersion is not supported.
    Version,
    /// 4: an environment variable is missing or wrong.
    Environment,
    /// 5: reading or writing failed.
    Io,
    /// 6: the configuration is not JSON.
    Decode,
    /// 7: the configuration or an annotation says something impossible.
    Config,
    /// 11: try again later.
    TryAgain,
    /// 50: the plugin cannot serve ADD now.
    NotReady,
    /// 51: the plugin cannot serve ADD, existing NICs may have lost connectivity.
    NotReadyDegraded,
    /// 100: the agent refused; its reason is in `details`.
    Refused,
    /// 101: the address is in use by another machine.
    IpConflict,
    /// 102: the gateway does not answer.
    GatewayUnreachable,
    /// 103: the fabric did not accept the sub-ENI's address, MAC and VLAN.
    ValidationFailed,
    /// 104: the allocation carries no VLAN or MAC.
    NoSubEni,
    /// 105: the VLAN is in use on this master.
    VlanInUse,
    /// 106: the master NIC is missing or has another MAC.
    Master,
    /// 107: the interface name is taken in the Pod.
    NameTaken,
    /// 108: a host link is in the way.
    HostLink,
    /// 109: route tuning failed.
    RouteTuning,
    /// 999: anything else; also what upstream answers for everything.
    Internal,
}

impl CniCode {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Version => 1,
            Self::Environment => 4,
            Self::Io => 5,
            Self::Decode => 6,
            Self::Config => 7,
            Self::TryAgain => 11,
            Self::NotReady => 50,
            Self::NotReadyDegraded => 51,
            Self::Refused => 100,
            Self::IpConflict => 101,
            Self::GatewayUnreachable => 102,
            Self::ValidationFailed => 103,
            Self::NoSubEni => 104,
            Self::VlanInUse => 105,
            Self::Master => 106,
            Self::NameTaken => 107,
            Self::HostLink => 108,
            Self::RouteTuning => 109,
            Self::Internal => 999,
        }
    }

    /// HTTP status of the agent's answer; only the code counts, the status serves foreign callers.
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::Environment | Self::Decode | Self::Config => 400,
            Self::IpConflict | Self::VlanInUse | Self::NameTaken | Self::HostLink => 409,
            Self::GatewayUnreachable | Self::ValidationFailed => 502,
            Self::TryAgain | Self::NotReady | Self::NotReadyDegraded => 503,
            _ => 500,
        }
    }
}

/// The CNI error object, printed on stdout as it is, exit code 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CniError {
    /// The caller's version, or the newest of ours when it named none we know.
    pub cni_version: String,
    /// See [`CniCode`].
    pub code: u32,
    /// One line: the object, what was tried, what to do.
    pub msg: String,
    /// The chain of causes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub details: String,
}

impl CniError {
    /// An error object without details.
    #[must_use]
    pub fn new(version: CniVersion, code: CniCode, msg: impl Into<String>) -> Self {
        Self {
            cni_version: version.as_str().to_owned(),
            code: code.number(),
            msg: msg.into(),
            details: String::new(),
        }
    }

    /// The same with the chain of causes.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }
}

/// Answer to VERSION.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionAnswer {
    /// The caller's version.
    pub cni_version: String,
    /// All we accept.
    pub supported_versions: Vec<String>,
}

/// Result of ADD, and `prevResult` of CHECK and DEL. Unknown keys are ignored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CniResult {
    /// Version whose shape this has.
    pub cni_version: String,
    /// Links made; empty for a pure IPAM result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<ResultInterface>,
    /// Addresses.
    pub ips: Vec<ResultIp>,
    /// Routes in the Pod.
    pub routes: Vec<ResultRoute>,
    /// Name service, from the configuration.
    pub dns: Value,
    /// Extension: the cloud's binding. Other plugins ignore it.
    #[serde(
        rename = "spidernet.io/sub-eni",
        skip_serializing_if = "Option::is_none"
    )]
    pub sub_eni: Option<SubEniExtension>,
}

/// One link of a result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResultInterface {
    /// Name in its namespace.
    pub name: String,
    /// Ethernet address.
    pub mac: String,
    /// Bytes; CNI 1.1.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Path of the namespace; empty on the host.
    pub sandbox: String,
}

/// One address of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultIp {
    /// "4" or "6", below CNI 1.0.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Index into `interfaces`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<u32>,
    /// Address with the prefix length of its subnet.
    pub address: IpNet,
    /// The subnet's gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// One route of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultRoute {
    /// Destination.
    pub dst: IpNet,
    /// Next hop; absent = the gateway of the address of that family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
}

/// What the cloud bound to the parent NIC, as result extension (spec dataplane 1.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubEniExtension {
    /// VLAN id on the parent.
    pub vlan: VlanId,
    /// The sub-ENI's MAC.
    pub mac: Mac,
    /// The parent NIC's MAC.
    pub parent_mac: Mac,
    /// The node.
    pub node_name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_know_their_verbs() {
        assert!(
            "0.2.0"
                .parse::<CniVersion>()
                .unwrap_err()
                .contains("0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0")
        );
        for version in CniVersion::ALL {
            assert_eq!(version.as_str().parse::<CniVersion>(), Ok(version));
            assert_eq!(version.knows(CniCommand::Gc), version == CniVersion::V1_1_0);
        }
        assert!(!CniVersion::V0_3_1.knows(CniCommand::Check));
    }

    #[test]
    fn results_have_the_shape_of_the_specification() {
        let result = CniResult {
            cni_version: "1.0.0".into(),
            ips: vec![ResultIp {
                version: None,
                interface: Some(0),
                address: "10.0.0.9/24".parse().unwrap(),
                gateway: Some("10.0.0.1".parse().unwrap()),
            }],
            dns: serde_json::json!({}),
            ..CniResult::default()
        };
        assert_eq!(
            serde_json::to_value(&result).unwrap(),
            serde_json::json!({"cniVersion": "1.0.0", "dns": {}, "routes": [],
                "ips": [{"interface": 0, "address": "10.0.0.9/24", "gateway": "10.0.0.1"}]})
        );
    }
}

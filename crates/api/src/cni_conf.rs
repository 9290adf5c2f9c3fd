//! Typing of a plugin's network configuration. Upstream decodes with a case-insensitive library,
//! so known keys match in any case here too; numbers may be strings of digits; unknown keys are
//! ignored (spec dataplane 0 and 4.1). Pure.

use serde_json::{Map, Value};

use crate::cni::{CniCode, CniResult, CniVersion};
use crate::names;
use crate::value::{IfName, ValueError};

mod fields;

pub use fields::Fields;

/// Which of our plugins was called, by the file name it was started under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Plugin {
    /// IPAM only.
    Spiderpool,
    /// Main plugin for sub-ENIs.
    EniVlan,
}

impl Plugin {
    /// From the file name of the binary.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            names::PLUGIN_IPAM => Some(Self::Spiderpool),
            names::PLUGIN_ENI_VLAN => Some(Self::EniVlan),
            _ => None,
        }
    }

    /// The file name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spiderpool => names::PLUGIN_IPAM,
            Self::EniVlan => names::PLUGIN_ENI_VLAN,
        }
    }
}

/// What is wrong with a configuration, with the code to answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfError {
    /// Not an object.
    #[error("the network configuration is not a JSON object")]
    NotAnObject,
    /// No or unsupported `cniVersion`.
    #[error("{0}")]
    Version(String),
    /// A key has a JSON type it cannot have.
    #[error("{key}: expected {expected}, found {found}")]
    Type {
        /// Path of the key.
        key: String,
        /// What it should be.
        expected: &'static str,
        /// The value as it came.
        found: String,
    },
    /// A key has a value it cannot have.
    #[error("{key}: {reason}")]
    Value {
        /// Path of the key.
        key: String,
        /// Why, with the value.
        reason: String,
    },
}

impl ConfError {
    /// The code of the CNI answer.
    #[must_use]
    pub const fn code(&self) -> CniCode {
        match self {
            Self::Version(_) => CniCode::Version,
            Self::NotAnObject | Self::Type { .. } => CniCode::Decode,
            Self::Value { .. } => CniCode::Config,
        }
    }
}

/// One plugin's configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct NetConf {
    /// Protocol version of the answer.
    pub cni_version: CniVersion,
    /// Network name.
    pub name: String,
    /// `ipam.default_ipv4_ippool`: names or patterns.
    pub ipv4_pools: Vec<String>,
    /// `ipam.default_ipv6_ippool`: names or patterns.
    pub ipv6_pools: Vec<String>,
    /// `ipam.clean_gateway`: no default route through this NIC.
    pub clean_gateway: bool,
    /// `ipam.match_master_subnet`: only pools of the physical function's subnet.
    pub match_master_subnet: bool,
    /// Keys of `eni-vlan`; `None` for the IPAM plugin.
    pub eni: Option<EniConf>,
    /// Parent NIC of a sub-ENI whose link somebody else makes: the IPAM plugin was called by
    /// another implementation of `eni-vlan`.
    pub delegated_master: Option<IfName>,
    /// The same for a `vlan` plugin without `vlanId`: such a NIC is a sub-ENI under contract version 1
    /// of the provider, and under that alone (spec dataplane 4.1).
    pub vlan_master: Option<IfName>,
    /// `dns`, passed through.
    pub dns: Value,
    /// `prevResult`.
    pub prev_result: Option<CniResult>,
    /// `cni.dev/valid-attachments` of GC (or its alias); `None` = the key is absent.
    pub valid_attachments: Option<Vec<ValidAttachment>>,
}

/// Keys of the `eni-vlan` plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EniConf {
    /// Parent NIC on the host.
    pub master: IfName,
    /// Bytes; `None` = the master's.
    pub mtu: Option<u32>,
    /// Pre-flight before the Pod starts.
    pub validate: Option<Validation>,
}

/// Pre-flight settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validation {
    /// Probes sent, 1 to 20.
    pub retries: u32,
    /// Wait for each answer, milliseconds; all together at most 15 000.
    pub timeout_ms: u32,
}

/// One attachment the runtime still knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ValidAttachment {
    /// Sandbox.
    pub container_id: String,
    /// Interface.
    pub ifname: String,
}

const DEFAULT_RETRIES: i64 = 3;
const DEFAULT_TIMEOUT_MS: i64 = 500;
const MAX_RETRIES: i64 = 20;
const MAX_WAIT_MS: i64 = 15_000;
const MAX_MTU: i64 = 65_535;

impl NetConf {
    /// The `cniVersion` alone: needed to shape every answer, also of a bad configuration.
    ///
    /// # Errors
    /// [`ConfError::Version`] when absent or unsupported, [`ConfError::NotAnObject`].
    pub fn version_of(conf: &Value) -> Result<CniVersion, ConfError> {
        let top = Fields::new("", conf.as_object().ok_or(ConfError::NotAnObject)?);
        match top.text("cniVersion")? {
            None => Err(ConfError::Version(
                "the network configuration has no cniVersion".into(),
            )),
            Some(text) => text.parse().map_err(ConfError::Version),
        }
    }

    /// Types the configuration of `plugin`.
    ///
    /// # Errors
    /// [`ConfError`] names the key, what it should be and what it was.
    pub fn parse(plugin: Plugin, conf: &Value) -> Result<Self, ConfError> {
        let cni_version = Self::version_of(conf)?;
        let top = Fields::new("", conf.as_object().ok_or(ConfError::NotAnObject)?);
        let empty = Map::new();
        let ipam = Fields::new("ipam.", top.object("ipam")?.unwrap_or(&empty));
        let (eni, delegated_master) = match plugin {
            Plugin::EniVlan => (Some(EniConf::parse(&top, &ipam)?), None),
            // The runtime, or the main plugin that delegates, hands over its own configuration.
            Plugin::Spiderpool if top.text("type")? == Some(names::PLUGIN_ENI_VLAN) => {
                (None, Some(master(&top)?))
            }
            Plugin::Spiderpool => (None, None),
        };
        Ok(Self {
            cni_version,
            name: top.text("name")?.unwrap_or_default().to_owned(),
            ipv4_pools: ipam.texts("default_ipv4_ippool")?,
            ipv6_pools: ipam.texts("default_ipv6_ippool")?,
            clean_gateway: ipam.flag("clean_gateway")?,
            match_master_subnet: ipam.flag("match_master_subnet")?,
            eni,
            delegated_master,
            vlan_master: vlan_master(&top)?,
            dns: top
                .get("dns")
                .cloned()
                .unwrap_or_else(|| Value::Object(Map::new())),
            prev_result: prev_result(&top)?,
            valid_attachments: valid_attachments(&top)?,
        })
    }

    /// The parent NIC of a sub-ENI, whoever makes its link; `None`: the NIC is no sub-ENI.
    #[must_use]
    pub fn sub_eni_master(&self) -> Option<&IfName> {
        let own = self.eni.as_ref().map(|eni| &eni.master);
        own.or(self.delegated_master.as_ref())
    }
}

impl EniConf {
    fn parse(top: &Fields<'_>, ipam: &Fields<'_>) -> Result<Self, ConfError> {
        for key in ["vlanId", "vlanMode"] {
            if top.get(key).is_some() {
                return Err(top.value(key, "eni-vlan takes the VLAN id from the cloud; for a fixed VLAN use the community vlan plugin"));
            }
        }
        if top.flag("linkInContainer")? {
            return Err(top.value(
                "linkInContainer",
                "true is not supported: the master is a host NIC",
            ));
        }
        match ipam.text("type")? {
            Some(names::PLUGIN_IPAM) => {}
            other => {
                return Err(ipam.value(
                    "type",
                    &format!(
                        "eni-vlan needs \"spiderpool\", found {:?}",
                        other.unwrap_or_default()
                    ),
                ));
            }
        }
        let master = master(top)?;
        let mtu = match top.number("mtu")?.unwrap_or(0) {
            0 => None,
            bytes => Some(top.in_range("mtu", bytes, 0, MAX_MTU)?),
        };
        let validate = if top.flag("validateIaasNetConfig")? {
            Some(Validation::parse(top)?)
        } else {
            Validation::parse(top)?;
            None
        };
        Ok(Self {
            master,
            mtu,
            validate,
        })
    }
}

impl Validation {
    fn parse(top: &Fields<'_>) -> Result<Self, ConfError> {
        let or_default = |value: Option<i64>, default| match value {
            None | Some(0) => default,
            Some(value) => value,
        };
        let retries = or_default(top.number("validationRetries")?, DEFAULT_RETRIES);
        let timeout = or_default(top.number("validationTimeoutMs")?, DEFAULT_TIMEOUT_MS);
        let validation = Self {
            retries: top.in_range("validationRetries", retries, 1, MAX_RETRIES)?,
            timeout_ms: top.in_range("validationTimeoutMs", timeout, 1, MAX_WAIT_MS)?,
        };
        if retries * timeout > MAX_WAIT_MS {
            return Err(top.value(
                "validationTimeoutMs",
                &format!(
                    "{retries} retries of {timeout} ms are {} ms, more than {MAX_WAIT_MS} ms",
                    retries * timeout
                ),
            ));
        }
        Ok(validation)
    }
}

fn master(top: &Fields<'_>) -> Result<IfName, ConfError> {
    match top.text("master")? {
        None | Some("") => Err(top.value("master", "the parent NIC is required")),
        Some(name) => name
            .parse()
            .map_err(|error: ValueError| top.value("master", &error.to_string())),
    }
}

fn vlan_master(top: &Fields<'_>) -> Result<Option<IfName>, ConfError> {
    if top.text("type")? != Some("vlan") || top.get("vlanId").is_some() {
        return Ok(None);
    }
    Ok(top.text("master")?.and_then(|name| name.parse().ok()))
}

fn prev_result(top: &Fields<'_>) -> Result<Option<CniResult>, ConfError> {
    match top.get("prevResult") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(map)) if map.is_empty() => Ok(None),
        Some(value) => serde_json::from_value(value.clone())
            .map(Some)
            .map_err(|error| ConfError::Value {
                key: "prevResult".into(),
                reason: error.to_string(),
            }),
    }
}

fn valid_attachments(top: &Fields<'_>) -> Result<Option<Vec<ValidAttachment>>, ConfError> {
    let key = ["cni.dev/valid-attachments", "cni.dev/attachments"]
        .into_iter()
        .find(|key| top.get(key).is_some_and(|value| !value.is_null()));
    let Some(key) = key else { return Ok(None) };
    let items = match top.get(key) {
        Some(Value::Array(items)) => items,
        _ => return Err(top.wrong(key, "a list of {containerID, ifname}")),
    };
    items
        .iter()
        .map(|item| {
            let fields = item
                .as_object()
                .map(|map| Fields::new("cni.dev/valid-attachments[].", map));
            let fields = fields.ok_or_else(|| top.wrong(key, "a list of {containerID, ifname}"))?;
            match (fields.text("containerID")?, fields.text("ifname")?) {
                (Some(container_id), Some(ifname)) => Ok(ValidAttachment {
                    container_id: container_id.to_owned(),
                    ifname: ifname.to_owned(),
                }),
                _ => Err(top.wrong(key, "a list of {containerID, ifname}")),
            }
        })
        .collect::<Result<_, _>>()
        .map(Some)
}

/// `CNI_ARGS`, as far as we use it. Unknown arguments are ignored whatever `IgnoreUnknown` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CniArgs {
    /// `K8S_POD_NAMESPACE`.
    pub pod_namespace: Option<String>,
    /// `K8S_POD_NAME`.
    pub pod_name: Option<String>,
    /// `K8S_POD_UID`.
    pub pod_uid: Option<String>,
    /// `K8S_POD_INFRA_CONTAINER_ID`.
    pub infra_container_id: Option<String>,
}

impl CniArgs {
    /// Reads `K=V;K=V`. An empty value counts as absent.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut args = Self::default();
        for (key, value) in text.split(';').filter_map(|pair| pair.split_once('=')) {
            let slot = match key.trim() {
                "K8S_POD_NAMESPACE" => &mut args.pod_namespace,
                "K8S_POD_NAME" => &mut args.pod_name,
                "K8S_POD_UID" => &mut args.pod_uid,
                "K8S_POD_INFRA_CONTAINER_ID" => &mut args.infra_container_id,
                _ => continue,
            };
            *slot = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        }
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn eni(extra: Value) -> Result<NetConf, ConfError> {
        let mut conf = json!({"cniVersion": "1.0.0", "name": "lab", "type": "eni-vlan", "master": "eth1",
            "ipam": {"type": "spiderpool", "default_ipv4_ippool": ["p4"]}});
        for (key, value) in extra.as_object().unwrap() {
            conf[key] = value.clone();
        }
        NetConf::parse(Plugin::EniVlan, &conf)
    }

    #[test]
    fn keys_match_in_any_case_and_numbers_may_be_strings() {
        let conf = json!({"CNIVersion": "0.4.0", "Master": "eth1", "MTU": "1400", "validateIAASNetConfig": true,
            "IPAM": {"Type": "spiderpool", "Default_IPv4_IPPool": ["p4"], "CLEAN_GATEWAY": true}});
        let conf = NetConf::parse(Plugin::EniVlan, &conf).unwrap();
        assert_eq!(conf.ipv4_pools, ["p4"]);
        assert!(conf.clean_gateway);
        let eni = conf.eni.unwrap();
        assert_eq!(eni.mtu, Some(1400));
        assert_eq!(
            eni.validate,
            Some(Validation {
                retries: 3,
                timeout_ms: 500
            })
        );
    }

    /// The IPAM plugin of another `eni-vlan` sees that one's configuration (spec dataplane 4.2).
    #[test]
    fn an_address_is_for_a_sub_eni_by_the_type_of_the_main_plugin() {
        let conf = |kind: &str, master: &str| {
            let conf = json!({"cniVersion": "1.0.0", "type": kind, "master": master, "ipam": {"type": "spiderpool"}});
            NetConf::parse(Plugin::Spiderpool, &conf)
        };
        let delegated = conf("eni-vlan", "eth1").unwrap();
        assert_eq!(delegated.sub_eni_master().unwrap().as_str(), "eth1");
        assert_eq!(delegated.eni, None);
        assert_eq!(conf("macvlan", "eth1").unwrap().sub_eni_master(), None);
        let vlan = conf("vlan", "eth1").unwrap();
        assert_eq!(vlan.sub_eni_master(), None);
        assert_eq!(vlan.vlan_master.unwrap().as_str(), "eth1");
        let fixed = json!({"cniVersion": "1.0.0", "type": "vlan", "master": "eth1", "vlanId": 0, "ipam": {"type": "spiderpool"}});
        let fixed = NetConf::parse(Plugin::Spiderpool, &fixed).unwrap();
        assert_eq!(fixed.vlan_master, None);
        assert_eq!(conf("eni-vlan", "").unwrap_err().code(), CniCode::Config);
        let own = eni(json!({})).unwrap();
        assert_eq!(own.sub_eni_master().unwrap().as_str(), "eth1");
    }

    #[test]
    fn refusals_name_key_value_and_code() {
        for (extra, code, part) in [
            (json!({"cniVersion": "0.2.0"}), 1, "0.2.0"),
            (json!({"cniVersion": null}), 1, "no cniVersion"),
            (json!({"master": ""}), 7, "master"),
            (json!({"master": "a name"}), 7, "a name"),
            (
                json!({"master": 7}),
                6,
                "master: expected a string, found 7",
            ),
            (json!({"mtu": -1}), 7, "mtu: -1"),
            (json!({"mtu": "big"}), 6, "mtu: expected a whole number"),
            (json!({"vlanId": 0}), 7, "community vlan plugin"),
            (json!({"vlanMode": "auto"}), 7, "community vlan plugin"),
            (json!({"linkInContainer": true}), 7, "linkInContainer"),
            (json!({"ipam": {"type": "host-local"}}), 7, "host-local"),
            (json!({"ipam": []}), 6, "ipam: expected an object"),
            (json!({"validationRetries": -1}), 7, "validationRetries: -1"),
            (json!({"validationRetries": 21}), 7, "21 is not in 1-20"),
            (
                json!({"validationRetries": 20, "validationTimeoutMs": 1000}),
                7,
                "20000 ms",
            ),
            (json!({"validateIaasNetConfig": "yes"}), 6, "true or false"),
            (json!({"cni.dev/valid-attachments": {}}), 6, "containerID"),
        ] {
            let error = eni(extra.clone()).unwrap_err();
            assert_eq!(error.code().number(), code, "{extra}");
            assert!(error.to_string().contains(part), "{extra}: {error}");
        }
        assert_eq!(
            NetConf::parse(Plugin::Spiderpool, &json!([])).unwrap_err(),
            ConfError::NotAnObject
        );
    }

    #[test]
    fn absent_valid_attachments_differ_from_an_empty_list() {
        assert_eq!(eni(json!({})).unwrap().valid_attachments, None);
        assert_eq!(
            eni(json!({"cni.dev/valid-attachments": null}))
                .unwrap()
                .valid_attachments,
            None
        );
        assert_eq!(
            eni(json!({"cni.dev/valid-attachments": []}))
                .unwrap()
                .valid_attachments,
            Some(vec![])
        );
        let one =
            eni(json!({"cni.dev/attachments": [{"containerID": "c", "ifname": "eth0"}]})).unwrap();
        let want = ValidAttachment {
            container_id: "c".into(),
            ifname: "eth0".into(),
        };
        assert_eq!(one.valid_attachments, Some(vec![want]));
    }

    #[test]
    fn args_take_what_is_there() {
        let args = CniArgs::parse(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-1;K8S_POD_UID=;X",
        );
        assert_eq!(args.pod_namespace.as_deref(), Some("shop"));
        assert_eq!(args.pod_name.as_deref(), Some("web-1"));
        assert_eq!(args.pod_uid, None);
        assert_eq!(CniArgs::parse(""), CniArgs::default());
    }
}

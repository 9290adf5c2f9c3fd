//! The provider of a cloud: how `provider-sim serve` is started, and what its administration shows
//! and changes. May write its settings file and call its administration.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use spiderpool_api::value::{Mac, VlanId};

use super::Fabric;
use super::management::{HTTP_PORT, PROVIDER, TLS_PORT};
use super::process::argv;
use super::wait;

const READY_LIMIT: Duration = Duration::from_secs(20);
/// Last word of the path of an allocate call.
const ALLOCATE: &str = "/allocate-ips";
/// Last word of the path of a release call.
const RELEASE: &str = "/release-ip";

/// What a cloud with a provider has besides the pools of its nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderPlan {
    /// Addresses of the global IPv4 pool; 0: no such pool.
    pub globals: u8,
    /// Pairs of the global pair; 0: no such pools.
    pub global_pairs: u8,
    /// Settings of `provider-sim serve`.
    pub settings: Value,
}

impl ProviderPlan {
    /// A quick cloud: its operations take 5 ms, and what it changes is published after 20 ms.
    #[must_use]
    pub fn quick(globals: u8, global_pairs: u8) -> Self {
        Self {
            globals,
            global_pairs,
            settings: json!({
                "rate": { "qps": 100, "burst": 100 },
                "flushMs": 20,
                // small pools are full at once, and their cache is what tests look at
                "reclaim": { "mode": "off" },
                "latency": { "createMs": 5, "attachMs": 5, "detachMs": 5, "deleteMs": 5 },
            }),
        }
    }
}

/// File with the certificate of the provider's CA.
#[must_use]
pub fn ca_path(dir: &Path) -> PathBuf {
    dir.join("provider-ca.crt")
}

/// Writes the provider's settings; its verb and options, as [`super::fabric::FabricSpec`] needs them.
///
/// # Errors
/// The file cannot be written.
pub fn command(
    plan: &ProviderPlan,
    dir: &Path,
    kubeconfig: &Path,
    fabric_netns: &Path,
) -> Result<Vec<OsString>> {
    let settings = dir.join("provider.yaml");
    fs::write(&settings, plan.settings.to_string())
        .with_context(|| format!("write {}", settings.display()))?;
    let listen = |port| SocketAddr::new(PROVIDER.into(), port).to_string();
    Ok(argv([
        OsStr::new("serve"),
        OsStr::new("--kubeconfig"),
        kubeconfig.as_os_str(),
        OsStr::new("--settings"),
        settings.as_os_str(),
        OsStr::new("--state"),
        dir.join("provider-state.json").as_os_str(),
        OsStr::new("--listen"),
        OsStr::new(&listen(HTTP_PORT)),
        OsStr::new("--tls-listen"),
        OsStr::new(&listen(TLS_PORT)),
        OsStr::new("--tls-name"),
        OsStr::new(&PROVIDER.to_string()),
        OsStr::new("--tls-ca-file"),
        ca_path(dir).as_os_str(),
        OsStr::new("--fabric"),
        OsStr::new("--fabric-netns"),
        fabric_netns.as_os_str(),
    ]))
}

/// `conf.yml` of an agent that calls the provider without TLS.
#[must_use]
pub fn plain_conf() -> Value {
    json!({ "iaasNetworkProvider": { "url": format!("http://{PROVIDER}:{HTTP_PORT}") } })
}

/// `conf.yml` of an agent that calls the provider with TLS and checks its certificate. The CA's
/// file must be there when the agent starts.
#[must_use]
pub fn tls_conf(dir: &Path) -> Value {
    json!({ "iaasNetworkProvider": {
        "url": format!("https://{PROVIDER}:{TLS_PORT}"),
        "tls": { "caFile": ca_path(dir) },
    } })
}

/// The administration of a provider.
#[derive(Debug, Clone, Copy)]
pub struct Provider<'a> {
    fabric: &'a Fabric,
}

/// A call of the contract.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct CallRecord {
    /// Request path.
    pub path: String,
    /// Request headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Request body.
    pub body: Value,
    /// Status of the answer; none while there is no answer.
    pub status: Option<u16>,
}

/// A sub-ENI as the cloud has it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CloudSubEni {
    /// Its MAC.
    pub mac: Mac,
    /// Its IPv4 address.
    pub ipv4: Option<IpAddr>,
    /// Its IPv6 address.
    pub ipv6: Option<IpAddr>,
    /// Pool it was made for.
    pub pool: String,
    /// Where it is on its way.
    pub state: SubEniState,
}

/// How far a sub-ENI is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SubEniState {
    /// `bound`, `unbound`, ...
    pub phase: String,
    /// Parent NIC, while it hangs on one.
    pub parent: Option<Mac>,
    /// VLAN there.
    pub vlan: Option<VlanId>,
}

impl<'a> Provider<'a> {
    /// The provider that runs with this fabric.
    #[must_use]
    pub const fn of(fabric: &'a Fabric) -> Self {
        Self { fabric }
    }

    /// Waits until it serves the contract: it knows the pools, and the cloud.
    ///
    /// # Errors
    /// It does not within 20 s; with its log.
    pub fn await_ready(self) -> Result<()> {
        wait::until(READY_LIMIT, "a provider that serves", || {
            let settings: Value = self.get("/admin/settings")?;
            Ok((settings.get("ready") == Some(&Value::Bool(true))).then_some(()))
        })
        .with_context(|| self.fabric.log_tail())
    }

    /// The calls of the contract since its start, oldest first.
    ///
    /// # Errors
    /// It is gone.
    pub fn records(self) -> Result<Vec<CallRecord>> {
        self.get("/records")
    }

    /// How many allocate calls there were.
    ///
    /// # Errors
    /// It is gone.
    pub fn allocate_calls(self) -> Result<usize> {
        self.calls(ALLOCATE)
    }

    /// How many release calls there were.
    ///
    /// # Errors
    /// It is gone.
    pub fn release_calls(self) -> Result<usize> {
        self.calls(RELEASE)
    }

    fn calls(self, end: &str) -> Result<usize> {
        let records = self.records()?;
        Ok(records.iter().filter(|r| r.path.ends_with(end)).count())
    }

    /// Contradictions between cloud, provider, publications and claims; empty is as it should be.
    /// Waits some seconds for what is under way.
    ///
    /// # Errors
    /// It is gone.
    pub fn audit(self) -> Result<Vec<String>> {
        self.get("/admin/audit")
    }

    /// All sub-ENIs of the cloud.
    ///
    /// # Errors
    /// It is gone.
    pub fn sub_enis(self) -> Result<Vec<CloudSubEni>> {
        self.get("/admin/sub-enis")
    }

    /// The sub-ENI with this address; `None` when the cloud has none.
    ///
    /// # Errors
    /// It is gone.
    pub fn sub_eni(self, ip: IpAddr) -> Result<Option<CloudSubEni>> {
        let has = |sub: &CloudSubEni| sub.ipv4 == Some(ip) || sub.ipv6 == Some(ip);
        Ok(self.sub_enis()?.into_iter().find(has))
    }

    /// Replaces the faults on demand, for example
    /// `[{"op":"allocate","kind":"status","status":500,"times":1}]`.
    ///
    /// # Errors
    /// It is gone, or a rule is not one.
    pub fn set_faults(self, rules: &Value) -> Result<()> {
        self.fabric.admin("POST", "/admin/faults", rules).map(drop)
    }

    /// Publishes now whatever is due.
    ///
    /// # Errors
    /// It is gone, or the API is.
    pub fn flush(self) -> Result<()> {
        self.fabric
            .admin("POST", "/admin/flush", &Value::Null)
            .map(drop)
    }

    fn get<T: DeserializeOwned>(self, path: &str) -> Result<T> {
        let body = self.fabric.admin("GET", path, &Value::Null)?;
        serde_json::from_slice(&body).with_context(|| format!("answer to GET {path}"))
    }
}

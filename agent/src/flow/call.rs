//! A CNI call, typed: from environment and configuration as they came to what the flows work on.
//! Pure.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use spiderpool_api::agent_v1::CniRequest;
use spiderpool_api::cni::{CniCode, CniCommand, CniVersion};
use spiderpool_api::cni_conf::{CniArgs, ConfError, NetConf, Plugin};
use spiderpool_api::value::{IfName, ValueError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::identity::impossible_name;
use crate::attachment::{AttachmentKey, ContainerIdError};

/// Characters of a wrong value that are shown.
const SHOWN: usize = 100;

/// How long a call may take, and whether somebody still waits for it.
#[derive(Debug, Clone)]
pub struct Limits {
    /// When waiting ends.
    pub deadline: Instant,
    /// The caller is gone: what has not begun shall not begin.
    pub cancel: CancellationToken,
}

/// A wait came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// Time is over.
    #[error("the deadline came while {0}; try again later")]
    Deadline(&'static str),
    /// The runtime has hung up.
    #[error("the caller left while {0}")]
    CallerGone(&'static str),
}

impl Limits {
    /// Waits for `future` while there is time and somebody waits for us.
    ///
    /// # Errors
    /// [`Ended`] says while doing what; `future` is dropped then.
    pub async fn wait<T>(
        &self,
        doing: &'static str,
        future: impl Future<Output = T>,
    ) -> Result<T, Ended> {
        match tokio::time::timeout_at(self.deadline, self.unless_gone(doing, future)).await {
            Ok(done) => done,
            Err(_) => Err(Ended::Deadline(doing)),
        }
    }

    /// The same for what keeps the deadline itself.
    ///
    /// # Errors
    /// [`Ended::CallerGone`].
    pub async fn unless_gone<T>(
        &self,
        doing: &'static str,
        future: impl Future<Output = T>,
    ) -> Result<T, Ended> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(Ended::CallerGone(doing)),
            done = future => Ok(done),
        }
    }

    /// Whether what takes `at_least` may still begin.
    ///
    /// # Errors
    /// [`Ended`].
    pub fn allow(&self, doing: &'static str, at_least: Duration) -> Result<(), Ended> {
        if self.cancel.is_cancelled() {
            Err(Ended::CallerGone(doing))
        } else if Instant::now() + at_least > self.deadline {
            Err(Ended::Deadline(doing))
        } else {
            Ok(())
        }
    }
}

/// What every call carries.
#[derive(Debug, Clone)]
pub struct Call {
    /// Plugin that was started.
    pub plugin: Plugin,
    /// Its configuration.
    pub conf: NetConf,
    /// Deadline and caller.
    pub limits: Limits,
}

/// A call about one NIC: ADD, DEL, CHECK.
#[derive(Debug, Clone)]
pub struct NicCall {
    /// Plugin, configuration, limits.
    pub call: Call,
    /// Container and interface.
    pub key: AttachmentKey,
    /// `CNI_NETNS`; `None` when the runtime has none any more.
    pub netns: Option<PathBuf>,
    /// `CNI_ARGS`.
    pub args: CniArgs,
}

/// Why a call cannot be typed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The configuration.
    #[error("the network configuration is unusable: {0}")]
    Conf(ConfError),
    /// The binary was started under a name we do not serve.
    #[error("plugin {0:?} is not served by this agent; it serves spiderpool and eni-vlan")]
    Plugin(String),
    /// The protocol version has no such verb.
    #[error("cniVersion {version} has no {command}")]
    Verb {
        /// As configured.
        version: CniVersion,
        /// As called.
        command: CniCommand,
    },
    /// An environment variable is missing.
    #[error("{0} is required for {1}")]
    Missing(&'static str, CniCommand),
    /// `CNI_CONTAINERID`.
    #[error(transparent)]
    ContainerId(ContainerIdError),
    /// `CNI_ARGS` name a Pod that cannot be.
    #[error(
        "{argument} of CNI_ARGS is {value:?}, which no object can be called: DNS-1123 names are lower-case letters, digits, '-' and, in names of Pods, '.'"
    )]
    PodName {
        /// Argument.
        argument: &'static str,
        /// The beginning of it.
        value: String,
    },
    /// `CNI_IFNAME`.
    #[error("CNI_IFNAME: {0}")]
    IfName(ValueError),
}

impl CallError {
    /// The CNI code.
    #[must_use]
    pub const fn cni_code(&self) -> CniCode {
        match self {
            Self::Conf(error) => error.code(),
            Self::Plugin(_) | Self::IfName(_) => CniCode::Config,
            Self::Verb { .. } => CniCode::Version,
            Self::Missing(..) | Self::ContainerId(_) | Self::PodName { .. } => CniCode::Environment,
        }
    }
}

impl Call {
    /// Types what every call carries.
    ///
    /// # Errors
    /// [`CallError`] names what is wrong.
    pub fn parse(request: &CniRequest, limits: Limits) -> Result<Self, CallError> {
        let plugin = Plugin::from_name(&request.plugin)
            .ok_or_else(|| CallError::Plugin(request.plugin.clone()))?;
        let conf = if request.command == CniCommand::Del {
            thin_conf(plugin, &request.conf)
        } else {
            NetConf::parse(plugin, &request.conf)
        };
        let conf = conf.map_err(CallError::Conf)?;
        let (version, command) = (conf.cni_version, request.command);
        if !version.knows(command) {
            return Err(CallError::Verb { version, command });
        }
        Ok(Self {
            plugin,
            conf,
            limits,
        })
    }
}

impl NicCall {
    /// Types a call about one NIC.
    ///
    /// # Errors
    /// [`CallError`] names what is wrong.
    pub fn parse(request: &CniRequest, limits: Limits) -> Result<Self, CallError> {
        let call = Call::parse(request, limits)?;
        let command = request.command;
        if request.container_id.is_empty() {
            return Err(CallError::Missing("CNI_CONTAINERID", command));
        }
        if request.ifname.is_empty() {
            return Err(CallError::Missing("CNI_IFNAME", command));
        }
        let ifname: IfName = request.ifname.parse().map_err(CallError::IfName)?;
        let key =
            AttachmentKey::new(&request.container_id, ifname).map_err(CallError::ContainerId)?;
        let netns = Some(&request.netns)
            .filter(|path| !path.is_empty())
            .map(PathBuf::from);
        if netns.is_none() && command != CniCommand::Del {
            return Err(CallError::Missing("CNI_NETNS", command));
        }
        let args = CniArgs::parse(&request.args);
        // A DEL frees nothing of such a Pod, and what its container has all the same.
        if command != CniCommand::Del
            && let Some((argument, value)) = impossible_name(&args)
        {
            let value = value.chars().take(SHOWN).collect();
            return Err(CallError::PodName { argument, value });
        }
        Ok(Self {
            call,
            key,
            netns,
            args,
        })
    }
}

/// A DEL needs little of its configuration and must not fail on the rest: runtimes call it with
/// what they still have.
fn thin_conf(plugin: Plugin, conf: &Value) -> Result<NetConf, ConfError> {
    let mut conf = conf.clone();
    if let Some(fields) = conf.as_object_mut() {
        fields.retain(|key, _| !key.eq_ignore_ascii_case("prevResult"));
    }
    match NetConf::parse(plugin, &conf) {
        Err(ConfError::Value { .. } | ConfError::Type { .. }) => {
            if let Some(fields) = conf.as_object_mut() {
                let needed = |key: &str| {
                    ["cniVersion", "name"]
                        .iter()
                        .any(|n| key.eq_ignore_ascii_case(n))
                };
                fields.retain(|key, _| needed(key));
            }
            NetConf::parse(Plugin::Spiderpool, &conf)
        }
        parsed => parsed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(command: CniCommand, extra: Value) -> CniRequest {
        let mut request = json!({"v": 1, "command": command, "plugin": "eni-vlan", "containerID": "c-1",
            "netns": "/run/netns/a", "ifname": "net1",
            "conf": {"cniVersion": "1.0.0", "name": "lab", "master": "eth1", "ipam": {"type": "spiderpool"}}});
        for (key, value) in extra.as_object().unwrap() {
            request[key] = value.clone();
        }
        serde_json::from_value(request).unwrap()
    }

    fn limits() -> Limits {
        Limits {
            deadline: Instant::now(),
            cancel: CancellationToken::new(),
        }
    }

    #[tokio::test]
    async fn refusals_carry_the_code_and_name_the_thing() {
        for (extra, code, part) in [
            (json!({"containerID": ""}), 4, "CNI_CONTAINERID"),
            (json!({"containerID": "../x"}), 4, "../x"),
            (json!({"ifname": ""}), 4, "CNI_IFNAME"),
            (json!({"ifname": "a/b"}), 7, "a/b"),
            (json!({"ifname": "sixteen-chars-xy"}), 7, "sixteen-chars-xy"),
            (json!({"netns": ""}), 4, "CNI_NETNS"),
            (
                json!({"args": "K8S_POD_NAMESPACE=../..;K8S_POD_NAME=web"}),
                4,
                "K8S_POD_NAMESPACE of CNI_ARGS is \"../..\"",
            ),
            (
                json!({"args": "K8S_POD_NAMESPACE=a.b;K8S_POD_NAME=web"}),
                4,
                "a.b",
            ),
            (
                json!({"args": "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=../secrets"}),
                4,
                "K8S_POD_NAME of CNI_ARGS is \"../secrets\"",
            ),
            (json!({"plugin": "macvlan"}), 7, "macvlan"),
            (json!({"conf": []}), 6, "JSON object"),
            (json!({"conf": {"cniVersion": "0.2.0"}}), 1, "0.2.0"),
            (
                json!({"conf": {"cniVersion": "1.0.0", "master": 7, "ipam": {"type": "spiderpool"}}}),
                6,
                "master",
            ),
        ] {
            let error =
                NicCall::parse(&request(CniCommand::Add, extra.clone()), limits()).unwrap_err();
            assert_eq!(error.cni_code().number(), code, "{extra}");
            assert!(error.to_string().contains(part), "{extra}: {error}");
        }
        let check = json!({"conf": {"cniVersion": "0.3.1", "master": "eth1", "ipam": {"type": "spiderpool"}}});
        let error = NicCall::parse(&request(CniCommand::Check, check), limits()).unwrap_err();
        assert_eq!(error.cni_code(), CniCode::Version);
    }

    #[tokio::test]
    async fn del_lives_with_what_is_left_of_its_configuration() {
        for conf in [
            json!({"cniVersion": "0.3.1", "name": "lab", "type": "x", "ipam": {"type": "spiderpool"}}),
            json!({"cniVersion": "0.3.1", "name": "lab", "prevResult": {"ips": 7}, "master": 9}),
            json!({"cniVersion": "0.3.1", "name": "lab", "mtu": "big", "master": "eth1"}),
        ] {
            let request = request(CniCommand::Del, json!({"conf": conf, "netns": ""}));
            let call = NicCall::parse(&request, limits()).unwrap();
            assert_eq!(call.call.conf.name, "lab");
            assert_eq!(call.netns, None);
        }
        let kept = request(CniCommand::Del, json!({}));
        let kept = NicCall::parse(&kept, limits()).unwrap().call.conf;
        assert_eq!(kept.eni.unwrap().master.as_str(), "eth1");
    }
}

//! The call as environment and arguments give it, checked by CNI SPEC.md 1.1.0 ("Parameters").
//! Reads the process environment once; the checks are pure.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use spiderpool_api::cni::CniCommand;
use spiderpool_api::cni_conf::Plugin;
use spiderpool_api::names::{PLUGIN_ENI_VLAN, PLUGIN_IPAM};
use spiderpool_api::value::{IfName, ValueError};

/// Longest container id: file names made of it and an interface name stay below 255 bytes.
const MAX_CONTAINER_ID: usize = 200;
/// What of a wrong value is shown.
const SHOWN: usize = 80;

/// Why the environment is refused; always code 4.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvError {
    /// Not started by a runtime.
    #[error(
        "CNI_COMMAND is not set: this is a CNI plugin, started by the container runtime; for its version run it with --version"
    )]
    NoCommand,
    /// Not a verb.
    #[error("{0}")]
    Command(String),
    /// Started under a name that is no plugin.
    #[error(
        "no plugin is called {0:?}; this binary must be installed as {PLUGIN_IPAM} or {PLUGIN_ENI_VLAN}"
    )]
    Plugin(String),
    /// Needed by the verb, not there.
    #[error("{name} is not set, and {command} needs it")]
    Missing {
        /// Variable.
        name: &'static str,
        /// Verb.
        command: CniCommand,
    },
    /// Bytes that are no text.
    #[error("{0} is not valid UTF-8")]
    NotText(&'static str),
    /// Not a container id.
    #[error(
        "CNI_CONTAINERID {0:?} is not 1-{MAX_CONTAINER_ID} letters, digits, '_', '.' or '-' that start with a letter or digit"
    )]
    ContainerId(String),
    /// Not an interface name.
    #[error("CNI_IFNAME: {0}")]
    IfName(ValueError),
}

/// Arguments and `CNI_*` variables of this process.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    arguments: Vec<OsString>,
    variables: BTreeMap<&'static str, OsString>,
}

const NAMES: [&str; 7] = [
    "CNI_COMMAND",
    "CNI_CONTAINERID",
    "CNI_NETNS",
    "CNI_IFNAME",
    "CNI_ARGS",
    "CNI_PATH",
    crate::socket::ENV,
];

impl Environment {
    /// Of the running process.
    pub(crate) fn of_process() -> Self {
        let variable = |name| std::env::var_os(name).map(|value| (name, value));
        Self {
            arguments: std::env::args_os().collect(),
            variables: NAMES.into_iter().filter_map(variable).collect(),
        }
    }

    /// Arguments after the name, as far as they are text.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &str> {
        self.arguments
            .iter()
            .skip(1)
            .map(|word| word.to_str().unwrap_or_default())
    }

    /// A variable's value; empty counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&OsString> {
        self.variables.get(name).filter(|value| !value.is_empty())
    }

    /// A variable that is passed on without a check.
    pub(crate) fn text(&self, name: &str) -> String {
        self.get(name)
            .map(|value| value.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// The verb, or `None` when no runtime started us.
    pub(crate) fn command(&self) -> Option<Result<CniCommand, EnvError>> {
        let value = self.get("CNI_COMMAND")?;
        let text = value.to_string_lossy();
        Some(shortened(&text).parse().map_err(EnvError::Command))
    }

    /// The plugin, by the file name we were started under.
    pub(crate) fn plugin(&self) -> Result<Plugin, EnvError> {
        let name = self
            .arguments
            .first()
            .and_then(|path| Path::new(path).file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        Plugin::from_name(&name).ok_or(EnvError::Plugin(name))
    }

    fn checked(&self, name: &'static str) -> Result<Option<&str>, EnvError> {
        self.get(name)
            .map(|value| value.to_str().ok_or(EnvError::NotText(name)))
            .transpose()
    }

    #[cfg(test)]
    pub(crate) fn fake(program: &str, variables: &[(&'static str, &str)]) -> Self {
        Self {
            arguments: vec![program.into()],
            variables: variables
                .iter()
                .map(|(name, value)| (*name, value.into()))
                .collect(),
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// A sandbox's id, safe as part of a file name. Empty for verbs without one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ContainerId(String);

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ContainerId {
    fn parse(text: &str) -> Result<Self, EnvError> {
        let starts_well = text.starts_with(|first: char| first.is_ascii_alphanumeric());
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if starts_well && text.len() <= MAX_CONTAINER_ID && text.bytes().all(legal) {
            Ok(Self(text.to_owned()))
        } else {
            Err(EnvError::ContainerId(shortened(text)))
        }
    }
}

/// What the verb needs of the environment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    /// Sandbox.
    pub(crate) container_id: ContainerId,
    /// Path of the namespace; empty when the runtime has none any more.
    pub(crate) netns: String,
    /// Interface; empty for verbs without one.
    pub(crate) ifname: String,
}

impl Call {
    /// Reads and checks what `command` needs.
    pub(crate) fn read(command: CniCommand, environment: &Environment) -> Result<Self, EnvError> {
        let needs_netns = match command {
            CniCommand::Add | CniCommand::Check => true,
            CniCommand::Del => false,
            CniCommand::Gc | CniCommand::Status | CniCommand::Version => {
                return Ok(Self::default());
            }
        };
        let required = |name| {
            environment
                .checked(name)?
                .ok_or(EnvError::Missing { name, command })
        };
        let container_id = ContainerId::parse(required("CNI_CONTAINERID")?)?;
        let netns = if needs_netns {
            required("CNI_NETNS")?
        } else {
            environment.checked("CNI_NETNS")?.unwrap_or_default()
        };
        let ifname: IfName = required("CNI_IFNAME")?.parse().map_err(EnvError::IfName)?;
        Ok(Self {
            container_id,
            netns: netns.to_owned(),
            ifname: ifname.as_str().to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_name_chooses_the_plugin() {
        let plugin = |path| Environment::fake(path, &[]).plugin();
        assert_eq!(plugin("/opt/cni/bin/eni-vlan"), Ok(Plugin::EniVlan));
        assert_eq!(plugin("spiderpool"), Ok(Plugin::Spiderpool));
        let error = plugin("/opt/cni/bin/vlan").unwrap_err().to_string();
        assert!(error.contains("\"vlan\"") && error.contains("spiderpool or eni-vlan"));
        assert_eq!(plugin(""), Err(EnvError::Plugin(String::new())));
    }

    #[test]
    fn every_verb_names_what_it_lacks() {
        let all = [
            ("CNI_CONTAINERID", "c-1"),
            ("CNI_NETNS", "/proc/1/ns/net"),
            ("CNI_IFNAME", "eth0"),
        ];
        let without = |name| -> Vec<_> { all.into_iter().filter(|(n, _)| *n != name).collect() };
        for (command, name, needed) in [
            (CniCommand::Add, "CNI_CONTAINERID", true),
            (CniCommand::Add, "CNI_NETNS", true),
            (CniCommand::Add, "CNI_IFNAME", true),
            (CniCommand::Check, "CNI_NETNS", true),
            (CniCommand::Del, "CNI_CONTAINERID", true),
            (CniCommand::Del, "CNI_NETNS", false),
            (CniCommand::Del, "CNI_IFNAME", true),
            (CniCommand::Gc, "CNI_CONTAINERID", false),
            (CniCommand::Status, "CNI_IFNAME", false),
        ] {
            let environment = Environment::fake("spiderpool", &without(name));
            let got = Call::read(command, &environment);
            if needed {
                assert_eq!(got, Err(EnvError::Missing { name, command }));
            } else {
                assert!(got.is_ok(), "{command} {name}");
            }
        }
    }

    #[test]
    fn container_ids_cannot_be_paths() {
        let long = "a".repeat(MAX_CONTAINER_ID + 1);
        for bad in [
            "../../x", ".hidden", "-c", "a/b", "a b", "\u{e4}", "", &long,
        ] {
            assert!(ContainerId::parse(bad).is_err(), "{bad:?}");
        }
        assert!(ContainerId::parse("c-1.A_b").is_ok());
    }
}

//! The few keys of standard input the binary reads itself: version, socket, log. All other keys
//! go to the agent untouched and untyped. Touches standard input.

use std::io::{self, IsTerminal, Read};

use serde_json::{Map, Value};
use spiderpool_api::cni::{CniCode, CniCommand, CniVersion};
use spiderpool_api::cni_conf::{ConfError, Fields, NetConf, Plugin};

use crate::log::LogConf;
use crate::socket::Named;

/// Largest configuration, bytes: far above any list of valid attachments.
const MAX_STDIN: u64 = 8 << 20;

/// Standard input is no configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StdinError {
    /// Read failed.
    #[error("cannot read the network configuration from standard input")]
    Read(#[source] io::Error),
    /// Nothing there.
    #[error("standard input is empty: the runtime must send the network configuration as JSON")]
    Empty,
    /// More than anybody means.
    #[error("the network configuration on standard input is larger than {MAX_STDIN} bytes")]
    TooBig,
    /// Not JSON.
    #[error("the network configuration on standard input is not JSON: line {line} column {column}")]
    Json {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// What the parser says.
        source: serde_json::Error,
    },
}

impl StdinError {
    /// Code of the answer.
    pub(crate) const fn code(&self) -> CniCode {
        match self {
            Self::Read(_) => CniCode::Io,
            Self::Empty | Self::TooBig | Self::Json { .. } => CniCode::Decode,
        }
    }
}

/// Reads standard input to its end. A terminal counts as empty: nobody types a configuration.
///
/// # Errors
/// [`StdinError`].
pub(crate) fn read_stdin() -> Result<Value, StdinError> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Err(StdinError::Empty);
    }
    parse_stdin(stdin.lock())
}

fn parse_stdin(input: impl Read) -> Result<Value, StdinError> {
    let mut text = Vec::new();
    let mut limited = input.take(MAX_STDIN + 1);
    limited.read_to_end(&mut text).map_err(StdinError::Read)?;
    if limited.limit() == 0 {
        return Err(StdinError::TooBig);
    }
    if text.iter().all(u8::is_ascii_whitespace) {
        return Err(StdinError::Empty);
    }
    serde_json::from_slice(&text).map_err(|source| StdinError::Json {
        line: source.line(),
        column: source.column(),
        source,
    })
}

/// A configuration the call can't go on with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallConfError {
    /// Version, a wrong type, or a value out of range.
    #[error("{0}")]
    Conf(ConfError),
    /// The verb is younger than the configuration's version.
    #[error("{command} needs cniVersion {needed} or newer; the network configuration has {found}")]
    TooOld {
        /// Verb.
        command: CniCommand,
        /// First version with it.
        needed: CniVersion,
        /// The caller's.
        found: CniVersion,
    },
}

impl CallConfError {
    /// Code of the answer.
    pub(crate) const fn code(&self) -> CniCode {
        match self {
            Self::Conf(error) => error.code(),
            Self::TooOld { .. } => CniCode::Version,
        }
    }
}

/// What the binary itself needs to know of the configuration.
#[derive(Debug)]
pub(crate) struct Conf {
    /// As it came.
    pub(crate) value: Value,
    /// Socket, if a key names one.
    pub(crate) socket: Option<Named>,
    /// Where and what to log.
    pub(crate) log: LogConf,
}

impl Conf {
    /// Checks version and verb and reads our keys.
    pub(crate) fn parse(
        plugin: Plugin,
        command: CniCommand,
        value: Value,
    ) -> Result<Self, CallConfError> {
        let found = NetConf::version_of(&value).map_err(CallConfError::Conf)?;
        if !found.knows(command) {
            let needed = CniVersion::ALL.into_iter().find(|v| v.knows(command));
            return Err(CallConfError::TooOld {
                command,
                needed: needed.unwrap_or(found),
                found,
            });
        }
        let (socket, log) = own_keys(plugin, command, &value).map_err(CallConfError::Conf)?;
        Ok(Self { value, socket, log })
    }
}

fn own_keys(
    plugin: Plugin,
    command: CniCommand,
    value: &Value,
) -> Result<(Option<Named>, LogConf), ConfError> {
    let empty = Map::new();
    let top = Fields::new("", value.as_object().ok_or(ConfError::NotAnObject)?);
    let ipam = Fields::new("ipam.", top.object("ipam")?.unwrap_or(&empty));
    let named = |key, path: Option<&str>| {
        path.filter(|path| !path.is_empty()).map(|path| Named {
            key,
            path: path.to_owned(),
        })
    };
    let socket = named(
        "ipam.ipam_unix_socket_path",
        ipam.text("ipam_unix_socket_path")?,
    )
    .or(named("unixSocketPath", top.text("unixSocketPath")?));
    let log = match plugin {
        Plugin::Spiderpool => LogConf::of_ipam(&ipam),
        Plugin::EniVlan => top.object("logOptions").and_then(|options| {
            LogConf::of_options(
                plugin,
                &Fields::new("logOptions.", options.unwrap_or(&empty)),
            )
        }),
    };
    match log {
        // teardown never hangs on how it is logged
        Err(_) if command == CniCommand::Del => Ok((socket, LogConf::default_of(plugin))),
        log => Ok((socket, log?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(plugin: Plugin, command: CniCommand, conf: Value) -> Result<Conf, CallConfError> {
        Conf::parse(plugin, command, conf)
    }

    #[test]
    fn the_socket_key_of_ipam_wins_in_any_case() {
        for (conf, want) in [
            (json!({}), None),
            (
                json!({"UnixSocketPath": "/t"}),
                Some(("unixSocketPath", "/t")),
            ),
            (
                json!({"unixSocketPath": "/t", "IPAM": {"IPAM_Unix_Socket_Path": "/i"}}),
                Some(("ipam.ipam_unix_socket_path", "/i")),
            ),
            (
                json!({"unixSocketPath": "/t", "ipam": {"ipam_unix_socket_path": ""}}),
                Some(("unixSocketPath", "/t")),
            ),
        ] {
            let mut conf = conf;
            conf["cniVersion"] = json!("1.0.0");
            let got = parse(Plugin::EniVlan, CniCommand::Add, conf).unwrap();
            let got = got.socket.map(|named| (named.key, named.path));
            assert_eq!(got, want.map(|(key, path)| (key, path.to_owned())));
        }
    }

    fn refused(command: CniCommand, conf: Value, code: u32, part: &str) {
        let error = parse(Plugin::Spiderpool, command, conf.clone()).unwrap_err();
        assert_eq!(error.code().number(), code, "{conf}");
        assert!(error.to_string().contains(part), "{conf}: {error}");
    }

    #[test]
    fn versions_are_checked_against_the_verb() {
        use CniCommand::{Add, Check, Gc, Status};
        let known = "0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0";
        for (command, version, code, part) in [
            (Add, json!(null), 1, "no cniVersion"),
            (Add, json!("0.2.0"), 1, known),
            (Add, json!(1), 6, "cniVersion: expected a string"),
            (Check, json!("0.3.1"), 1, "CHECK needs cniVersion 0.4.0"),
            (Gc, json!("1.0.0"), 1, "GC needs cniVersion 1.1.0"),
            (Status, json!("0.4.0"), 1, "STATUS needs cniVersion 1.1.0"),
        ] {
            refused(command, json!({"cniVersion": version}), code, part);
        }
        refused(Add, json!([]), 6, "not a JSON object");
    }

    #[test]
    fn wrong_types_of_our_keys_are_named() {
        for (key, value, code, part) in [
            ("ipam", json!(7), 6, "ipam: expected an object"),
            ("unixSocketPath", json!([]), 6, "unixSocketPath: expected"),
            (
                "ipam",
                json!({"ipam_unix_socket_path": 7}),
                6,
                "ipam.ipam_unix_socket_path: expected a string",
            ),
            (
                "ipam",
                json!({"log_file_max_size": true}),
                6,
                "ipam.log_file_max_size: expected a whole number",
            ),
            (
                "ipam",
                json!({"log_level": "loud"}),
                7,
                "ipam.log_level: \"loud\"",
            ),
        ] {
            let mut conf = json!({"cniVersion": "1.0.0"});
            conf[key] = value;
            refused(CniCommand::Add, conf, code, part);
        }
    }

    #[test]
    fn teardown_does_not_hang_on_log_keys() {
        let bad = json!({"cniVersion": "1.0.0", "logOptions": {"logLevel": 7}});
        assert!(parse(Plugin::EniVlan, CniCommand::Add, bad.clone()).is_err());
        let conf = parse(Plugin::EniVlan, CniCommand::Del, bad).unwrap();
        assert_eq!(conf.log, LogConf::default_of(Plugin::EniVlan));
    }

    #[test]
    fn standard_input_is_bounded_and_positions_are_told() {
        let text = |text: &str| parse_stdin(text.as_bytes()).unwrap_err();
        assert!(matches!(text(" \n"), StdinError::Empty));
        let error = text("{\n  \"cniVersion\": 1.0.0\n}");
        assert!(error.to_string().contains("line 2 column 20"), "{error}");
        let endless = io::repeat(b' ');
        assert!(matches!(
            parse_stdin(endless).unwrap_err(),
            StdinError::TooBig
        ));
    }
}

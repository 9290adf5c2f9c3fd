//! Where the agent listens: configuration, environment, default, in this order (spec dataplane
//! 0.1). Pure.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use spiderpool_api::names;

/// Environment variable of the third place.
pub(crate) const ENV: &str = names::ENV_SOCKET;
/// `sun_path` of unix(7), with its closing NUL.
const MAX_PATH: usize = 108;

/// A socket path named by the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    /// Key that names it.
    pub(crate) key: &'static str,
    /// Value.
    pub(crate) path: String,
}

/// A path that can't be a socket's; code 7.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {path:?} must be an absolute path below {MAX_PATH} bytes")]
pub(crate) struct SocketError {
    origin: &'static str,
    path: String,
}

/// The agent's socket.
///
/// # Errors
/// [`SocketError`] names the place the path came from.
pub(crate) fn choose(
    configured: Option<&Named>,
    environment: Option<&OsString>,
) -> Result<PathBuf, SocketError> {
    let (origin, path) = match (configured, environment) {
        (Some(named), _) => (named.key, Path::new(&named.path)),
        (None, Some(value)) => (ENV, Path::new(value)),
        (None, None) => return Ok(PathBuf::from(names::DEFAULT_SOCKET)),
    };
    let bytes = path.as_os_str().as_bytes();
    if path.is_absolute() && bytes.len() < MAX_PATH && !bytes.contains(&0) {
        Ok(path.to_owned())
    } else {
        let path = path.to_string_lossy().into_owned();
        Err(SocketError { origin, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_then_environment_then_default() {
        let named = |path: &str| Named {
            key: "unixSocketPath",
            path: path.into(),
        };
        let env = OsString::from("/env.sock");
        let choose = |named: Option<&Named>, env| choose(named, env);
        assert_eq!(
            choose(Some(&named("/conf.sock")), Some(&env)),
            Ok("/conf.sock".into())
        );
        assert_eq!(choose(None, Some(&env)), Ok("/env.sock".into()));
        assert_eq!(
            choose(None, None),
            Ok("/var/run/spidernet/spiderpool.sock".into())
        );
    }

    #[test]
    fn impossible_paths_name_their_origin() {
        let long = format!("/{}", "x".repeat(MAX_PATH));
        for path in ["run/agent.sock", "/a\0b", &long] {
            let named = Named {
                key: "ipam.ipam_unix_socket_path",
                path: path.into(),
            };
            let error = choose(Some(&named), None).unwrap_err().to_string();
            assert!(error.starts_with("ipam.ipam_unix_socket_path:"), "{error}");
        }
        let relative = OsString::from("agent.sock");
        let error = choose(None, Some(&relative)).unwrap_err().to_string();
        assert!(error.starts_with("SPIDERPOOL_SOCKET:"), "{error}");
    }
}

//! How the agent of a node is started: with which API, and where its files are. Pure.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::process::argv;

/// Which API a node works on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Its own, for itself.
    Alone,
    /// Its own, which other nodes join.
    First {
        /// Where it is served.
        listen: SocketAddr,
    },
    /// The first node's.
    Joined {
        /// The kubeconfig the first node writes.
        kubeconfig: PathBuf,
    },
}

/// Where an agent's files are.
#[derive(Debug, Clone, Copy)]
pub struct AgentFiles<'a> {
    /// Folder of `manifests/` and `conf.yml`.
    pub etc: &'a Path,
    /// Folder of the socket.
    pub run: &'a Path,
    /// Folder of the observer's pins.
    pub bpf: &'a Path,
    /// File of the API's objects.
    pub state: &'a Path,
    /// File of the settings.
    pub conf: &'a Path,
    /// Where a kubeconfig is written.
    pub kubeconfig: &'a Path,
}

impl Role {
    /// Whether the node has an API of its own.
    #[must_use]
    pub const fn has_api(&self) -> bool {
        !matches!(self, Self::Joined { .. })
    }

    /// Program and arguments.
    #[must_use]
    pub fn command(&self, node: &str, files: &AgentFiles<'_>) -> Vec<OsString> {
        let mut words = argv([OsStr::new("spiderpool-agent")]);
        match self {
            Self::Alone => words.extend(standalone(files)),
            Self::First { listen } => {
                words.extend(standalone(files));
                words.push("--api-listen".into());
                words.push(listen.to_string().into());
            }
            Self::Joined { kubeconfig } => words.extend(argv([
                OsStr::new("daemon"),
                OsStr::new("--kubeconfig"),
                kubeconfig.as_os_str(),
                OsStr::new("--config-path"),
                files.conf.as_os_str(),
            ])),
        }
        words.extend(argv([
            OsStr::new("--run-dir"),
            files.run.as_os_str(),
            OsStr::new("--bpf-dir"),
            files.bpf.as_os_str(),
            OsStr::new("--node-name"),
            OsStr::new(node),
        ]));
        words
    }
}

fn standalone(files: &AgentFiles<'_>) -> Vec<OsString> {
    argv([
        OsStr::new("standalone"),
        OsStr::new("--dir"),
        files.etc.as_os_str(),
        OsStr::new("--state"),
        files.state.as_os_str(),
        OsStr::new("--kubeconfig-out"),
        files.kubeconfig.as_os_str(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_node_listens_and_only_others_are_told_where() {
        let path = Path::new("/x");
        let files = AgentFiles {
            etc: path,
            run: path,
            bpf: path,
            state: path,
            conf: Path::new("/conf"),
            kubeconfig: path,
        };
        let line = |role: Role| {
            let words = role.command("n", &files).join(OsStr::new(" "));
            words.into_string().unwrap()
        };
        let listen = "10.0.0.1:16443".parse().unwrap();
        assert!(line(Role::First { listen }).contains("--api-listen 10.0.0.1:16443"));
        assert!(!line(Role::Alone).contains("--api-listen"));
        let kubeconfig = PathBuf::from("/first");
        let joined = line(Role::Joined { kubeconfig });
        assert!(
            joined.starts_with("spiderpool-agent daemon --kubeconfig /first --config-path /conf"),
            "{joined}"
        );
    }
}

//! Sysctls of a network namespace.
//!
//! `/proc/sys/net` shows the namespace of the thread that looks, so every access runs on a
//! thread that entered it. Paths are made of components: a dot in an interface name is a dot.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::netns::{Netns, NetnsError};

/// Where the kernel shows sysctls.
pub const PROC_SYS: &str = "/proc/sys";

/// Why a sysctl could not be read or written. Names the file and the namespace.
#[derive(Debug, thiserror::Error)]
pub enum SysctlError {
    /// The namespace could not be entered.
    #[error("cannot reach the sysctls of network namespace {netns}")]
    Netns {
        /// Whose sysctls.
        netns: String,
        /// Why not.
        source: NetnsError,
    },
    /// Not written.
    #[error("cannot write {value:?} to {} in network namespace {netns}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What was to be written.
        value: &'static str,
        /// Whose sysctls.
        netns: String,
        /// The kernel's answer; a read-only /proc/sys needs a privileged container.
        source: io::Error,
    },
    /// Not read.
    #[error("cannot read {} in network namespace {netns}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Whose sysctls.
        netns: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// One sysctl below `net`, by its path components.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SysctlKey(PathBuf);

impl SysctlKey {
    /// `net/ipv4/conf/<ifname>/<name>`; `all` and `default` are names too.
    #[must_use]
    pub fn ipv4_conf(ifname: &str, name: &str) -> Self {
        Self(["net", "ipv4", "conf", ifname, name].iter().collect())
    }

    /// `net/ipv6/conf/<ifname>/<name>`.
    #[must_use]
    pub fn ipv6_conf(ifname: &str, name: &str) -> Self {
        Self(["net", "ipv6", "conf", ifname, name].iter().collect())
    }
}

/// A value to be written if the key exists.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Which.
    pub key: SysctlKey,
    /// What.
    pub value: &'static str,
    /// What an absent key means.
    pub absent: Absent,
}

/// What an absent key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// The feature is not in this kernel (IPv6 off at boot): nothing to set.
    Fine,
    /// An error.
    Error,
}

/// The sysctl tree; `/proc/sys` unless a container has it elsewhere.
#[derive(Debug, Clone)]
pub struct Sysctls {
    root: PathBuf,
}

impl Default for Sysctls {
    fn default() -> Self {
        Self::at(PROC_SYS)
    }
}

impl Sysctls {
    /// With another root.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Writes all settings in order, by one thread in the namespace; stops at the first failure.
    ///
    /// # Errors
    /// [`SysctlError`].
    pub async fn write(&self, netns: &Netns, settings: Vec<Setting>) -> Result<(), SysctlError> {
        let root = self.root.clone();
        let name = netns.to_string();
        netns
            .run_async(move || {
                settings
                    .into_iter()
                    .try_for_each(|setting| write_one(&root, &name, setting))
            })
            .await
            .map_err(|source| SysctlError::Netns {
                netns: netns.to_string(),
                source,
            })?
    }

    /// Reads one value without its line end; `None` when the key is absent.
    ///
    /// # Errors
    /// [`SysctlError`].
    pub async fn read(
        &self,
        netns: &Netns,
        key: &SysctlKey,
    ) -> Result<Option<String>, SysctlError> {
        let path = self.root.join(&key.0);
        let file = path.clone();
        let read = netns
            .run_async(move || fs::read_to_string(file))
            .await
            .map_err(|source| SysctlError::Netns {
                netns: netns.to_string(),
                source,
            })?;
        match read {
            Ok(text) => Ok(Some(text.trim_end().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(SysctlError::Read {
                path,
                netns: netns.to_string(),
                source,
            }),
        }
    }
}

fn write_one(root: &Path, netns: &str, setting: Setting) -> Result<(), SysctlError> {
    let path = root.join(&setting.key.0);
    // Not `fs::write`: with O_CREAT an absent key is EACCES instead of ENOENT.
    let written = OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| file.write_all(setting.value.as_bytes()));
    match written {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && setting.absent == Absent::Fine => {
            Ok(())
        }
        Err(source) => Err(SysctlError::Write {
            path,
            value: setting.value,
            netns: netns.to_owned(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtnl::{Rtnl, VethSpec};
    use crate::testing::{TestNetns, root_or_skip};

    fn setting(key: SysctlKey, absent: Absent) -> Setting {
        Setting {
            key,
            value: "1",
            absent,
        }
    }

    #[tokio::test]
    async fn writes_go_to_the_namespace_and_names_may_have_dots() {
        if !root_or_skip("writes_go_to_the_namespace_and_names_may_have_dots") {
            return;
        }
        let (one, other) = (TestNetns::new("one"), TestNetns::new("other"));
        for test in [&one, &other] {
            let rtnl = Rtnl::open_in(&test.netns).await.unwrap();
            let veth = VethSpec {
                name: "a.100",
                peer: "b",
                peer_target: None,
                mac: None,
                peer_mac: None,
            };
            rtnl.add_veth(&veth).await.unwrap();
        }
        let key = SysctlKey::ipv4_conf("a.100", "arp_ignore");
        let sysctls = Sysctls::default();
        sysctls
            .write(&one.netns, vec![setting(key.clone(), Absent::Error)])
            .await
            .unwrap();
        assert_eq!(
            sysctls.read(&one.netns, &key).await.unwrap().as_deref(),
            Some("1")
        );
        assert_eq!(
            sysctls.read(&other.netns, &key).await.unwrap().as_deref(),
            Some("0")
        );
    }

    #[tokio::test]
    async fn an_absent_key_is_an_error_only_when_it_must_be_there() {
        if !root_or_skip("an_absent_key_is_an_error_only_when_it_must_be_there") {
            return;
        }
        let test = TestNetns::new("absent");
        let key = SysctlKey::ipv6_conf("nosuch", "accept_ra");
        let sysctls = Sysctls::default();
        assert_eq!(sysctls.read(&test.netns, &key).await.unwrap(), None);
        sysctls
            .write(&test.netns, vec![setting(key.clone(), Absent::Fine)])
            .await
            .unwrap();
        let error = sysctls
            .write(&test.netns, vec![setting(key, Absent::Error)])
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("net/ipv6/conf/nosuch/accept_ra"),
            "{error}"
        );
    }
}

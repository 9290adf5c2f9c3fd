//! What the kernel shows: links, addresses and routes of a namespace; descriptors, threads and
//! memory of a process.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use spiderpool_netops::netns::Netns;
use spiderpool_netops::rtnl::{Address, Link, Route};

use super::namespace::in_netns;

/// The loopback interface has this index in every namespace.
const LO: u32 = 1;

/// A link with what is on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkState {
    /// The link.
    pub link: Link,
    /// Its addresses.
    pub addresses: Vec<Address>,
    /// Routes of the main table through it.
    pub routes: Vec<Route>,
}

/// All links of a namespace but `lo`, with addresses and routes.
///
/// # Errors
/// The namespace is gone or the kernel refuses.
pub fn links(netns: &Netns) -> Result<Vec<LinkState>> {
    in_netns(netns, async |rtnl| {
        let mut states = Vec::new();
        for link in rtnl.links().await? {
            if link.ifindex == LO {
                continue;
            }
            states.push(LinkState {
                addresses: rtnl.addresses(link.ifindex).await?,
                routes: rtnl.routes(link.ifindex).await?,
                link,
            });
        }
        Ok(states)
    })
}

/// The link with this name; `None` when there is none.
///
/// # Errors
/// The namespace is gone or the kernel refuses.
pub fn link(netns: &Netns, name: &str) -> Result<Option<LinkState>> {
    Ok(links(netns)?
        .into_iter()
        .find(|state| state.link.name == name))
}

/// Deletes a link; gone already is success.
///
/// # Errors
/// The namespace is gone or the kernel refuses.
pub fn delete_link(netns: &Netns, name: &str) -> Result<()> {
    in_netns(netns, async |rtnl| {
        if let Some(link) = rtnl.link_by_name(name).await? {
            rtnl.delete_link(link.ifindex).await?;
        }
        Ok(())
    })
}

/// File names in a folder, sorted; none when the folder is absent.
///
/// # Errors
/// The folder cannot be read.
pub fn file_names(dir: &Path) -> Result<Vec<String>> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// What a process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessUse {
    /// Open descriptors.
    pub fds: usize,
    /// Threads.
    pub threads: usize,
    /// Resident memory, KiB.
    pub rss_kib: u64,
}

/// Reads `/proc` for a process.
///
/// # Errors
/// It is gone.
pub fn process_use(pid: u32) -> Result<ProcessUse> {
    let dir = Path::new("/proc").join(pid.to_string());
    let status = fs::read_to_string(dir.join("status"))
        .with_context(|| format!("read {}/status", dir.display()))?;
    let count = |name: &str| -> Result<usize> {
        Ok(fs::read_dir(dir.join(name))
            .with_context(|| format!("list {}/{name}", dir.display()))?
            .count())
    };
    Ok(ProcessUse {
        fds: count("fd")?,
        threads: count("task")?,
        rss_kib: status_kib(&status, "VmRSS:").context("no VmRSS in /proc")?,
    })
}

fn status_kib(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_holds_something() {
        let own = process_use(std::process::id()).unwrap();
        assert!(
            own.fds >= 3 && own.threads >= 1 && own.rss_kib > 100,
            "{own:?}"
        );
        assert!(process_use(u32::MAX).is_err());
    }

    #[test]
    fn names_of_an_absent_folder_are_none() {
        let dir = tempfile::tempdir().unwrap();
        assert!(file_names(&dir.path().join("absent")).unwrap().is_empty());
        fs::write(dir.path().join("b"), "").unwrap();
        fs::write(dir.path().join("a"), "").unwrap();
        assert_eq!(file_names(dir.path()).unwrap(), ["a", "b"]);
    }
}

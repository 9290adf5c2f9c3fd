//! Network namespaces of a lab: named, so that the agent finds them where it looks for Pods, and
//! gone with the value.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use spiderpool_netops::netns::Netns;
use spiderpool_netops::rtnl::{Link, Rtnl, VethSpec};

use super::process::Lifetime;

/// Where runtimes name the namespaces of Pods; the agent looks there for the holder of a VLAN.
pub const NETNS_DIR: &str = "/var/run/netns";
/// The loopback interface has this index in every namespace.
const LO: u32 = 1;
/// And this name.
pub const LO_NAME: &str = "lo";

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// A network namespace with a name and `lo` up; the name goes with the value.
#[derive(Debug)]
pub struct NamedNetns {
    netns: Netns,
    lifetime: Lifetime,
}

impl NamedNetns {
    /// Makes one whose name contains `word` and is unique on this machine.
    ///
    /// # Errors
    /// The kernel refuses; root is needed.
    pub fn create(word: &str) -> Result<Self> {
        Self::create_as(&unique(word), Lifetime::Lab)
    }

    /// Makes one with exactly this name.
    ///
    /// # Errors
    /// The name is taken, or the kernel refuses.
    pub fn create_as(name: &str, lifetime: Lifetime) -> Result<Self> {
        let netns = Netns::create(Path::new(NETNS_DIR).join(name))?;
        let named = Self { netns, lifetime };
        in_netns(&named.netns, async |rtnl| Ok(rtnl.set_up(LO).await?))?;
        Ok(named)
    }
}

impl Deref for NamedNetns {
    type Target = Netns;

    fn deref(&self) -> &Netns {
        &self.netns
    }
}

impl Drop for NamedNetns {
    fn drop(&mut self) {
        if self.lifetime == Lifetime::Lab {
            // Gone already is success; what else can fail has nobody to hear it.
            drop(Netns::remove(self.netns.path()));
        }
    }
}

/// A name with `word` in it that no other lab of this machine uses.
pub fn unique(word: &str) -> String {
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let salt = RandomState::new().hash_one(number) & 0xffff;
    format!("lab-{}-{number}-{salt:04x}-{word}", std::process::id())
}

/// Runs netlink requests in a namespace; the socket is closed before the call returns.
///
/// # Errors
/// The namespace cannot be entered, or the error of `work`.
pub fn in_netns<T>(netns: &Netns, work: impl AsyncFnOnce(&Rtnl) -> Result<T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start a runtime")?;
    runtime.block_on(async {
        let rtnl = Rtnl::open_in(netns).await?;
        let result = work(&rtnl).await;
        rtnl.close().await;
        result
    })
}

/// Connects two namespaces: `name` in `here`, `peer` in `there`, both up.
///
/// # Errors
/// The kernel refuses, for example because a name is taken.
pub fn connect(here: &Netns, spec: &VethSpec<'_>, there: &Netns) -> Result<Link> {
    let link = in_netns(here, async |rtnl| {
        rtnl.add_veth(spec).await?;
        up(rtnl, spec.name).await
    })?;
    in_netns(there, async |rtnl| up(rtnl, spec.peer).await)?;
    Ok(link)
}

async fn up(rtnl: &Rtnl, name: &str) -> Result<Link> {
    let link = rtnl
        .link_by_name(name)
        .await?
        .with_context(|| format!("link {name} is not there"))?;
    rtnl.set_up(link.ifindex).await?;
    Ok(link)
}

/// Writes a sysctl of a namespace; `key` is a path below `/proc/sys/net`.
///
/// # Errors
/// The namespace cannot be entered or the file not written.
pub fn set_sysctl(netns: &Netns, key: &str, value: &str) -> Result<()> {
    let path = PathBuf::from("/proc/sys/net").join(key);
    netns
        .run(|| std::fs::write(&path, value))?
        .with_context(|| format!("write {value} to {} in {netns}", path.display()))
}

/// Whether this process may make namespaces; prints the skip line when not.
#[cfg(test)]
pub(crate) fn root_or_skip(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED {test}: needs root (network namespaces)");
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::peers::ping;
    use std::time::Duration;

    #[test]
    fn two_namespaces_reach_each_other_and_leave_no_name() {
        if !root_or_skip("two_namespaces_reach_each_other_and_leave_no_name") {
            return;
        }
        let (left, right) = (
            NamedNetns::create("left").unwrap(),
            NamedNetns::create("right").unwrap(),
        );
        let spec = VethSpec {
            name: "eth0",
            peer: "eth9",
            peer_target: Some(&right),
            mac: None,
            peer_mac: None,
        };
        connect(&left, &spec, &right).unwrap();
        for (netns, name, address) in [
            (&left, "eth0", "10.7.0.1/24"),
            (&right, "eth9", "10.7.0.2/24"),
        ] {
            in_netns(netns, async |rtnl| {
                let link = rtnl.link_by_name(name).await?.unwrap();
                Ok(rtnl.add_address(link.ifindex, address.parse()?).await?)
            })
            .unwrap();
        }
        let to = "10.7.0.2".parse().unwrap();
        assert!(
            ping(&left, to, 2, Duration::from_secs(2))
                .unwrap()
                .complete()
        );
        let path = left.path().to_owned();
        drop(left);
        assert!(!path.exists());
    }
}

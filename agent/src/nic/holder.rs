//! Who has a VLAN id on a master? The kernel allows one link per id and master over all
//! namespaces and does not say where it is, so they are searched.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use spiderpool_api::value::VlanId;
use spiderpool_netops::netns::{Netns, NetnsId};
use spiderpool_netops::rtnl::{Link, LinkKind, Rtnl, RtnlError};

use super::{Holder, parent};

/// Where named namespaces are: iproute2 and containerd, Docker.
const NAMED_DIRS: [&str; 2] = ["/var/run/netns", "/run/docker/netns"];
/// Namespaces without a name, by their processes.
const PROC_DIR: &str = "/proc";

/// What is looked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// The namespace of the master.
    pub(super) host: &'a Netns,
    /// Index of the master in there.
    pub(super) master: u32,
    /// VLAN id on it.
    pub(super) vlan: VlanId,
}

/// Searches all namespaces that have a name or a process. What cannot be opened is skipped: it
/// may have ended meanwhile.
pub(super) async fn find(wanted: Wanted<'_>, first: &Netns) -> Option<Holder> {
    let mut seen = HashSet::from([first.id()]);
    if let Some(holder) = look_into(wanted, first).await {
        return Some(holder);
    }
    for path in candidates().await {
        let Ok(netns) = Netns::open(&path) else {
            continue;
        };
        if seen.insert(netns.id())
            && let Some(holder) = look_into(wanted, &netns).await
        {
            return Some(holder);
        }
    }
    None
}

async fn look_into(wanted: Wanted<'_>, netns: &Netns) -> Option<Holder> {
    let looked = match Rtnl::open_in(netns).await {
        Ok(rtnl) => {
            let found = link_with(wanted, &rtnl, netns).await;
            rtnl.close().await;
            found
        }
        Err(error) => Err(error),
    };
    let link = looked
        .inspect_err(
            |error| tracing::debug!(%netns, %error, "namespace skipped in the search for a VLAN"),
        )
        .ok()??;
    Some(Holder {
        netns: Some(netns.path().to_owned()),
        netns_id: Some(netns.id()),
        ifname: link.name,
        ifindex: link.ifindex,
        mac: link.mac,
    })
}

/// The VLAN link of that id and master in the namespace `rtnl` is connected to.
async fn link_with(
    wanted: Wanted<'_>,
    rtnl: &Rtnl,
    netns: &Netns,
) -> Result<Option<Link>, RtnlError> {
    // A namespace that has no number for the host's has no link with a parent there; most have
    // none, and a dump of all their links is saved.
    if netns.id() != wanted.host.id() && rtnl.nsid_of(wanted.host).await?.is_none() {
        return Ok(None);
    }
    for link in rtnl.links().await? {
        if link.kind == LinkKind::Vlan
            && link.vlan == Some(wanted.vlan)
            && parent::is_under(rtnl, netns, &link, wanted.host, wanted.master).await?
        {
            return Ok(Some(link));
        }
    }
    Ok(None)
}

/// Paths of namespaces, one a namespace, named ones first: a name lives longer than a process.
async fn candidates() -> Vec<PathBuf> {
    // The walk of /proc is one stat a process: some milliseconds on a full node.
    tokio::task::spawn_blocking(|| {
        let named = NAMED_DIRS.iter().flat_map(|dir| entries(Path::new(dir)));
        let by_process = entries(Path::new(PROC_DIR))
            .filter(|path| path.file_name().is_some_and(is_number))
            .map(|path| path.join("ns/net"));
        unique(named.chain(by_process))
    })
    .await
    .unwrap_or_default()
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

fn is_number(name: &OsStr) -> bool {
    name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
}

fn unique(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut seen = HashSet::new();
    paths
        .filter(|path| {
            fs::metadata(path).is_ok_and(|meta| {
                seen.insert(NetnsId {
                    dev: meta.dev(),
                    inode: meta.ino(),
                })
            })
        })
        .collect()
}

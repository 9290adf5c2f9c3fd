//! One operation's view of a Pod: sockets in the host's and the Pod's namespace, and the VLAN
//! link that is or shall be the NIC.

use std::path::Path;

use spiderpool_api::value::{IfName, Mac, VlanId};
use spiderpool_netops::netns::Netns;
use spiderpool_netops::rtnl::{Link, LinkKind, Rtnl, RtnlError};

use super::{NicError, parent};

/// Both ends of an operation. Close it: an open socket keeps a dead Pod's link alive.
#[derive(Debug)]
pub(super) struct Sandbox<'a> {
    /// The namespace of the parent NICs.
    pub(super) host_netns: &'a Netns,
    /// Connected there.
    pub(super) host: Rtnl,
    /// The Pod's namespace.
    pub(super) netns: Netns,
    /// Connected there.
    pub(super) pod: Rtnl,
}

/// What tells the NIC of one Pod from all other links. What is `None` is not compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Identity<'a> {
    pub(super) master: Option<&'a IfName>,
    pub(super) vlan: Option<VlanId>,
    pub(super) mac: Option<Mac>,
}

impl<'a> Sandbox<'a> {
    /// Opens both connections.
    pub(super) async fn open(host_netns: &'a Netns, netns: &Path) -> Result<Self, NicError> {
        let netns = Netns::open(netns).map_err(|source| NicError::netns(source, netns))?;
        let failed = |source: RtnlError, path: &Path| match source {
            RtnlError::Netns { source, .. } => NicError::netns(source, path),
            source => NicError::Netlink {
                doing: "opening a netlink socket",
                source,
            },
        };
        let pod = Rtnl::open_in(&netns)
            .await
            .map_err(|e| failed(e, netns.path()))?;
        let host = Rtnl::open_in(host_netns)
            .await
            .map_err(|e| failed(e, host_netns.path()))?;
        Ok(Self {
            host_netns,
            host,
            netns,
            pod,
        })
    }

    /// Closes both sockets.
    pub(super) async fn close(self) {
        self.pod.close().await;
        self.host.close().await;
    }

    /// Netlink requests sent so far.
    pub(super) fn requests(&self) -> u64 {
        self.host.requests() + self.pod.requests()
    }

    /// The link with this name in the Pod.
    pub(super) async fn link(&self, name: &str) -> Result<Option<Link>, NicError> {
        let failed = |source| NicError::Netlink {
            doing: "looking for the link in the Pod",
            source,
        };
        self.pod.link_by_name(name).await.map_err(failed)
    }

    /// Whether a link of the Pod is the NIC meant. A master that is gone cannot be compared; its
    /// VLAN links went with it, so nothing is deleted by mistake.
    pub(super) async fn is(&self, link: &Link, identity: Identity<'_>) -> Result<bool, NicError> {
        let equal = link.kind == LinkKind::Vlan
            && identity.vlan.is_none_or(|vlan| link.vlan == Some(vlan))
            && identity.mac.is_none_or(|mac| link.mac == Some(mac));
        let Some(master) = identity.master.filter(|_| equal) else {
            return Ok(equal);
        };
        let failed = |source| NicError::Netlink {
            doing: "comparing the link's parent with the master",
            source,
        };
        match self
            .host
            .link_by_name(master.as_str())
            .await
            .map_err(failed)?
        {
            Some(found) => self.is_under(link, found.ifindex).await,
            None => Ok(true),
        }
    }

    /// Whether a link of the Pod hangs on link `master` of the host.
    pub(super) async fn is_under(&self, link: &Link, master: u32) -> Result<bool, NicError> {
        let failed = |source| NicError::Netlink {
            doing: "comparing the link's parent with the master",
            source,
        };
        parent::is_under(&self.pod, &self.netns, link, self.host_netns, master)
            .await
            .map_err(failed)
    }

    /// Deletes a link of the Pod. `false`: it was gone.
    pub(super) async fn delete(&self, link: &Link) -> Result<bool, NicError> {
        let failed = |source| NicError::Netlink {
            doing: "deleting the link",
            source,
        };
        self.pod.delete_link(link.ifindex).await.map_err(failed)
    }

    /// A link of the given identity that an interrupted attach left under its temporary name.
    pub(super) async fn unfinished(
        &self,
        identity: Identity<'_>,
    ) -> Result<Option<Link>, NicError> {
        self.search(identity, is_temporary).await
    }

    /// The link of the given identity under whatever name: who may act in the Pod may rename it.
    pub(super) async fn by_identity(
        &self,
        identity: Identity<'_>,
    ) -> Result<Option<Link>, NicError> {
        self.search(identity, |_| true).await
    }

    async fn search(
        &self,
        identity: Identity<'_>,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Option<Link>, NicError> {
        let failed = |source| NicError::Netlink {
            doing: "looking through the links of the Pod",
            source,
        };
        for link in self.pod.links().await.map_err(failed)? {
            if wanted(&link.name) && self.is(&link, identity).await? {
                return Ok(Some(link));
            }
        }
        Ok(None)
    }
}

/// Name of a link until it is configured: `veth` and 8 hex digits. NetworkManager and udev rules
/// leave such names alone; it is derived from the attachment, so that two attaches at once never
/// meet on kernels that look the name up in the host's namespace first.
pub(super) fn temporary_name(container_id: &str, ifname: &IfName) -> String {
    // FNV-1a, 32 bit.
    let hash = [container_id, "/", ifname.as_str()]
        .iter()
        .flat_map(|part| part.bytes())
        .fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
    format!("veth{hash:08x}")
}

fn is_temporary(name: &str) -> bool {
    let digits = name.strip_prefix("veth").unwrap_or_default();
    digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_are_legal_distinct_and_recognised() {
        let eth0: IfName = "eth0".parse().unwrap();
        let net1: IfName = "net1".parse().unwrap();
        let names = [
            temporary_name("c-1", &eth0),
            temporary_name("c-1", &net1),
            temporary_name("c-2", &eth0),
        ];
        for (n, name) in names.iter().enumerate() {
            assert!(
                name.parse::<IfName>().is_ok() && is_temporary(name),
                "{name}"
            );
            assert!(!names[..n].contains(name), "{name}");
        }
        for other in [
            "veth0",
            "veth1234567g",
            "eth12345678",
            "vethabcdef012",
            "net1",
        ] {
            assert!(!is_temporary(other), "{other}");
        }
    }
}

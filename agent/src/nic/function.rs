//! The host NIC behind a virtual function that was moved into a Pod: asked by
//! `match_master_subnet`, whose pools are of the physical function's subnets.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use spiderpool_api::value::IfName;
use spiderpool_netops::netns::Netns;
use spiderpool_netops::rtnl::RtnlError;

use super::NicError;
use super::sandbox::Sandbox;
use crate::files;

/// Where the kernel shows PCI devices.
pub(super) const PCI_DEVICES: &str = "/sys/bus/pci/devices";

/// A NIC of the host with its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostNic {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// Why the host NIC behind a Pod's NIC is not known.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// The Pod's namespace.
    #[error(transparent)]
    Namespace(NicError),
    /// The kernel.
    #[error("cannot look at the functions of NIC {nic}")]
    Netlink {
        /// NIC of the Pod.
        nic: IfName,
        /// What it said.
        source: RtnlError,
    },
    /// sysfs.
    #[error("cannot read {}", path.display())]
    Sysfs {
        /// What was read.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No such link, or not of a PCI device.
    #[error("the Pod has no NIC {0} of a PCI device")]
    NoDevice(IfName),
    /// A device, but no virtual function of a NIC here.
    #[error("NIC {nic} is device {address}, which is no virtual function of a NIC on this node")]
    NoVirtualFunction {
        /// NIC of the Pod.
        nic: IfName,
        /// Its PCI address.
        address: String,
    },
}

/// Finds it. `devices` is [`PCI_DEVICES`] but in tests.
pub(super) async fn find(
    host: &Netns,
    devices: &Path,
    netns: &Path,
    nic: &IfName,
) -> Result<HostNic, FunctionError> {
    let sandbox = Sandbox::open(host, netns).await;
    let sandbox = sandbox.map_err(FunctionError::Namespace)?;
    let found = find_in(&sandbox, devices, nic).await;
    sandbox.close().await;
    found
}

async fn find_in(
    sandbox: &Sandbox<'_>,
    devices: &Path,
    nic: &IfName,
) -> Result<HostNic, FunctionError> {
    let failed = |source| FunctionError::Netlink {
        nic: nic.clone(),
        source,
    };
    let address = sandbox.pod.pci_address(nic.as_str()).await;
    let address = address.map_err(failed)?;
    let address = address.ok_or_else(|| FunctionError::NoDevice(nic.clone()))?;
    let name = physical_function(devices, &address).await?;
    let link = match &name {
        Some(name) => sandbox.host.link_by_name(name).await.map_err(failed)?,
        None => None,
    };
    let Some(link) = link else {
        let nic = nic.clone();
        return Err(FunctionError::NoVirtualFunction { nic, address });
    };
    let addresses = sandbox.host.addresses(link.ifindex).await.map_err(failed)?;
    Ok(HostNic {
        name: link.name,
        addresses: addresses.iter().map(|one| one.address.addr()).collect(),
    })
}

/// Name of the NIC whose virtual function the device is.
async fn physical_function(devices: &Path, address: &str) -> Result<Option<String>, FunctionError> {
    let path = devices.join(address).join("physfn/net");
    let mut names = match files::list(&path).await {
        Ok(names) => names,
        Err(source) => return Err(FunctionError::Sysfs { path, source }),
    };
    // One with several ports shows them all; the first by name is as good a guess as any.
    names.sort();
    let first = names.into_iter().next();
    Ok(first.and_then(|path| Some(path.file_name()?.to_str()?.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_physical_function_is_read_from_the_device_tree() {
        let dir = tempfile::tempdir().unwrap();
        let vf = dir.path().join("0000:3b:02.1");
        std::fs::create_dir_all(vf.join("physfn/net/ens1f0")).unwrap();
        std::fs::create_dir_all(dir.path().join("0000:3b:00.0/net/ens1f0")).unwrap();
        for (address, want) in [
            ("0000:3b:02.1", Some("ens1f0")),
            // The physical function itself, and a device that is not there.
            ("0000:3b:00.0", None),
            ("0000:99:00.0", None),
        ] {
            let found = physical_function(dir.path(), address).await.unwrap();
            assert_eq!(found.as_deref(), want, "{address}");
        }
    }
}

//! The host's NICs, for who publishes them: changes nothing.

use std::collections::BTreeMap;

use spiderpool_api::value::{IfName, Mac};
use spiderpool_netops::rtnl::LinkEvents;

use super::{KernelNic, NicError};

impl KernelNic {
    /// MAC of a NIC of the host; `None` when there is none of that name. Changes nothing.
    ///
    /// # Errors
    /// [`NicError::Netlink`].
    pub async fn link_mac(&self, name: &IfName) -> Result<Option<Mac>, NicError> {
        let host = self.open_host().await?;
        let found = host.link_by_name(name.as_str()).await;
        host.close().await;
        let failed = |source| NicError::Netlink {
            doing: "looking at a NIC of the host",
            source,
        };
        Ok(found.map_err(failed)?.and_then(|link| link.mac))
    }

    /// MACs of the host's NICs that a device stands behind. Changes nothing.
    ///
    /// # Errors
    /// [`NicError::Netlink`].
    pub async fn hardware_nics(&self) -> Result<BTreeMap<String, Mac>, NicError> {
        let host = self.open_host().await?;
        let found = host.hardware_nics().await;
        host.close().await;
        found.map_err(|source| NicError::Netlink {
            doing: "looking at the NICs of the host",
            source,
        })
    }

    /// Changes of the host's NICs from now on.
    ///
    /// # Errors
    /// [`NicError::Netlink`].
    pub async fn link_events(&self) -> Result<LinkEvents, NicError> {
        let failed = |source| NicError::Netlink {
            doing: "listening to changes of the host's NICs",
            source,
        };
        LinkEvents::open_in(&self.host).await.map_err(failed)
    }
}

//! The device on a bus that a link is the network side of.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkAttribute;
use rtnetlink::{LinkMessageBuilder, LinkUnspec};

use super::{GET, Rtnl, RtnlError};

/// Name of the PCI bus in `IFLA_PARENT_DEV_BUS_NAME`.
const PCI: &str = "pci";

impl Rtnl {
    /// PCI address of the link with this name, `0000:3b:02.1`; `None` when there is no such link or it
    /// is none of a PCI device (`IFLA_PARENT_DEV_NAME`, kernel 5.14).
    ///
    /// # Errors
    /// [`RtnlError`].
    pub async fn pci_address(&self, name: &str) -> Result<Option<String>, RtnlError> {
        let message = LinkMessageBuilder::<LinkUnspec>::default()
            .name(name)
            .build();
        let tried = || format!("read the device of link {name}");
        let request = self.request(RouteNetlinkMessage::GetLink(message), GET, tried);
        let answers = match request.await {
            Err(error) if error.is_no_device() => return Ok(None),
            answers => answers?,
        };
        let attributes = answers.into_iter().flat_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => link.attributes,
            _ => Vec::new(),
        });
        Ok(read_address(attributes))
    }
}

fn read_address(attributes: impl Iterator<Item = LinkAttribute>) -> Option<String> {
    let (mut bus, mut device) = (None, None);
    for attribute in attributes {
        match attribute {
            LinkAttribute::ParentDevBusName(name) => bus = Some(name),
            LinkAttribute::ParentDevName(name) => device = Some(name),
            _ => {}
        }
    }
    device.filter(|_| bus.as_deref() == Some(PCI))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestNetns, root_or_skip};

    #[test]
    fn only_devices_of_the_pci_bus_count() {
        let of = |bus: Option<&str>, device: Option<&str>| {
            let bus = bus.map(|bus| LinkAttribute::ParentDevBusName(bus.into()));
            let device = device.map(|device| LinkAttribute::ParentDevName(device.into()));
            read_address(device.into_iter().chain(bus))
        };
        let address = "0000:3b:02.1";
        assert_eq!(of(Some("pci"), Some(address)).as_deref(), Some(address));
        assert_eq!(of(Some("virtio"), Some("virtio0")), None);
        assert_eq!(of(None, Some(address)), None);
        assert_eq!(of(None, None), None);
    }

    #[tokio::test]
    async fn a_link_without_a_device_has_no_address() {
        if !root_or_skip("a_link_without_a_device_has_no_address") {
            return;
        }
        let netns = TestNetns::new("device");
        let rtnl = Rtnl::open_in(&netns.netns).await.unwrap();
        for name in ["lo", "none"] {
            assert_eq!(rtnl.pci_address(name).await.unwrap(), None, "{name}");
        }
        rtnl.close().await;
    }
}

//! The device on a bus that a link is the network side of.

use std::collections::BTreeMap;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkInfo, LinkLayerType, LinkMessage};
use rtnetlink::{LinkMessageBuilder, LinkUnspec};
use spiderpool_api::value::Mac;

use super::link::read_mac;
use super::{DUMP, GET, Rtnl, RtnlError};

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

    /// MACs of the NICs of the namespace that a device stands behind, real or paravirtual: what sysfs shows as
    /// `/sys/class/net/NAME/device`, which follows a process's mounts and not its namespace. Kernels before
    /// 5.14 do not tell (`IFLA_PARENT_DEV_NAME`); there it is the Ethernet links that no software has made
    /// (`IFLA_INFO_KIND`).
    ///
    /// # Errors
    /// [`RtnlError`].
    pub async fn hardware_nics(&self) -> Result<BTreeMap<String, Mac>, RtnlError> {
        let message = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let tried = || "list the NICs that have a device".to_owned();
        let answers = self.request(message, DUMP, tried).await?;
        let links = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => read_hardware(link),
            _ => None,
        });
        Ok(links.collect())
    }
}

/// Name and MAC of an Ethernet link that a device stands behind.
fn read_hardware(link: LinkMessage) -> Option<(String, Mac)> {
    if link.header.link_layer_type != LinkLayerType::Ether {
        return None;
    }
    let (mut name, mut mac, mut has_device, mut is_made) = (None, None, false, false);
    for attribute in link.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text),
            LinkAttribute::Address(octets) => mac = read_mac(octets),
            LinkAttribute::ParentDevName(_) => has_device = true,
            LinkAttribute::LinkInfo(infos) => {
                is_made = infos.iter().any(|info| matches!(info, LinkInfo::Kind(_)));
            }
            _ => {}
        }
    }
    name.zip(mac).filter(|_| has_device || !is_made)
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
    use crate::rtnl::VethSpec;
    use crate::testing::{TestNetns, root_or_skip};
    use netlink_packet_route::link::InfoKind;

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

    #[test]
    fn a_device_makes_hardware_and_a_kind_makes_none() {
        let (name, mac) = ("eth1", "fa:16:3e:30:00:01");
        let device = || LinkAttribute::ParentDevName("virtio1".into());
        let kind = |kind| LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]);
        let of = |layer: LinkLayerType, rest: Vec<LinkAttribute>| {
            let mac: Mac = mac.parse().unwrap();
            let mut link = LinkMessage::default();
            link.header.link_layer_type = layer;
            link.attributes = vec![
                LinkAttribute::IfName(name.into()),
                LinkAttribute::Address(mac.octets().to_vec()),
            ];
            link.attributes.extend(rest);
            read_hardware(link).map(|(name, mac)| (name, mac.to_string()))
        };
        let found = Some((name.to_owned(), mac.to_owned()));
        let (ether, loopback) = (LinkLayerType::Ether, LinkLayerType::Loopback);
        assert_eq!(of(ether, vec![device()]), found);
        // As a port of a switch: software names it, and a device is behind it.
        assert_eq!(of(ether, vec![kind(InfoKind::Dsa), device()]), found);
        // A kernel that tells of no device.
        assert_eq!(of(ether, vec![]), found);
        for made in [
            InfoKind::Veth,
            InfoKind::Bond,
            InfoKind::Vlan,
            InfoKind::Bridge,
        ] {
            assert_eq!(of(ether, vec![kind(made)]), None);
        }
        assert_eq!(of(loopback, vec![]), None);
        assert_eq!(of(LinkLayerType::Tunnel, vec![device()]), None);
    }

    #[tokio::test]
    async fn links_that_were_made_are_no_hardware() {
        if !root_or_skip("links_that_were_made_are_no_hardware") {
            return;
        }
        let netns = TestNetns::new("hardware");
        let rtnl = Rtnl::open_in(&netns.netns).await.unwrap();
        let spec = VethSpec {
            name: "v0",
            peer: "v1",
            peer_target: None,
            mac: None,
            peer_mac: None,
        };
        rtnl.add_veth(&spec).await.unwrap();
        assert_eq!(rtnl.links().await.unwrap().len(), 3);
        assert_eq!(rtnl.hardware_nics().await.unwrap(), BTreeMap::new());
        rtnl.close().await;
    }
}

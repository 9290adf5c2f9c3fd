//! Links: look up, create (VLAN, veth), change, delete; ids of other namespaces.

use std::os::fd::AsRawFd;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
    VlanFlags, VlanProtocol,
};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use rtnetlink::{LinkMessageBuilder, LinkUnspec, LinkVlan};
use spiderpool_api::value::{Mac, VlanId};

use super::{CHANGE, CREATE, DUMP, GET, Rtnl, RtnlError};
use crate::netns::Netns;

/// What a link is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkKind {
    /// A real or paravirtual NIC: no `IFLA_INFO_KIND`.
    Device,
    /// A VLAN link.
    Vlan,
    /// Any other kind, by the kernel's name (`veth`, `bond`, ...).
    Other(String),
}

/// A link as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Name.
    pub name: String,
    /// Index, unique in its namespace only.
    pub ifindex: u32,
    /// What it is.
    pub kind: LinkKind,
    /// Current MAC; `None` for links without Ethernet addresses.
    pub mac: Option<Mac>,
    /// MAC the hardware was made with, where the driver tells it (kernel 5.6).
    pub permanent_mac: Option<Mac>,
    /// MTU in bytes.
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// VLAN id of a VLAN link with 802.1Q tags; `None` also for ids outside 1-4094.
    pub vlan: Option<VlanId>,
    /// `IFLA_LINK`: index of the parent (or veth peer), in the namespace `parent_nsid` says.
    pub parent: Option<u32>,
    /// `IFLA_LINK_NETNSID`: the parent's namespace as this namespace numbers it; `None`: the same
    /// namespace. Negative: a namespace without a number.
    pub parent_nsid: Option<i32>,
}

/// A VLAN link to be made on a parent in the connection's namespace, straight into another one.
#[derive(Debug)]
pub struct VlanSpec<'a> {
    /// Name it gets in the target namespace.
    pub name: &'a str,
    /// Index of the parent.
    pub parent: u32,
    /// VLAN id.
    pub vlan: VlanId,
    /// MAC it gets.
    pub mac: Mac,
    /// MTU; the kernel refuses one above the parent's.
    pub mtu: u32,
    /// Where it is made.
    pub target: &'a Netns,
}

/// A veth pair to be made.
#[derive(Debug)]
pub struct VethSpec<'a> {
    /// Name of the end in the connection's namespace.
    pub name: &'a str,
    /// Name of the other end.
    pub peer: &'a str,
    /// Where the other end is made; `None`: the same namespace.
    pub peer_target: Option<&'a Netns>,
    /// MAC of the first end; `None`: random.
    pub mac: Option<Mac>,
    /// MAC of the other end; `None`: random.
    pub peer_mac: Option<Mac>,
}

impl Rtnl {
    /// The link with this name; `None` when there is none.
    ///
    /// # Errors
    /// [`RtnlError`] when the kernel refuses to look.
    pub async fn link_by_name(&self, name: &str) -> Result<Option<Link>, RtnlError> {
        let message = LinkMessageBuilder::<LinkUnspec>::default()
            .name(name)
            .build();
        self.get_link(message, || format!("get link {name}")).await
    }

    /// The link with this index; `None` when there is none.
    ///
    /// # Errors
    /// [`RtnlError`] when the kernel refuses to look.
    pub async fn link_by_index(&self, ifindex: u32) -> Result<Option<Link>, RtnlError> {
        let message = LinkMessageBuilder::<LinkUnspec>::default()
            .index(ifindex)
            .build();
        self.get_link(message, || format!("get link {ifindex}"))
            .await
    }

    async fn get_link(
        &self,
        message: LinkMessage,
        tried: impl Fn() -> String,
    ) -> Result<Option<Link>, RtnlError> {
        match self
            .request(RouteNetlinkMessage::GetLink(message), GET, &tried)
            .await
        {
            Ok(answers) => match answers.into_iter().find_map(read_link) {
                Some(link) => Ok(Some(link)),
                None => Err(RtnlError::Incomplete {
                    tried: tried(),
                    lacks: "the link",
                }),
            },
            Err(error) if error.is_no_device() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All links of the namespace.
    ///
    /// # Errors
    /// [`RtnlError`] when the kernel refuses.
    pub async fn links(&self) -> Result<Vec<Link>, RtnlError> {
        let message = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self
            .request(message, DUMP, || "list links".to_owned())
            .await?;
        Ok(answers.into_iter().filter_map(read_link).collect())
    }

    /// Makes a VLAN link in another namespace by one RTM_NEWLINK: it never shows in the parent's.
    /// Flags: REORDER_HDR as usual, LOOSE_BINDING so that the parent's state does not take the
    /// Pod's routes away (spec of the data plane, trap 2).
    ///
    /// # Errors
    /// [`RtnlError::is_exists`] when the id is in use on the parent in *any* namespace, or the
    /// name in the target's; `EINVAL` when the MTU is above the parent's; `EOPNOTSUPP` on a
    /// kernel without 8021q.
    pub async fn add_vlan(&self, spec: &VlanSpec<'_>) -> Result<(), RtnlError> {
        let flags = VlanFlags::ReorderHdr | VlanFlags::LooseBinding;
        let message = LinkMessageBuilder::<LinkVlan>::new(spec.name)
            .link(spec.parent)
            .setns_by_fd(spec.target.as_raw_fd())
            .address(spec.mac.octets().to_vec())
            .mtu(spec.mtu)
            .append_info_data(InfoVlan::Id(spec.vlan.get()))
            .append_info_data(InfoVlan::Protocol(VlanProtocol::Ieee8021Q))
            .append_info_data(InfoVlan::Flags((flags, flags)))
            .build();
        let tried = || {
            let VlanSpec {
                name,
                parent,
                vlan,
                mtu,
                target,
                ..
            } = spec;
            format!(
                "create VLAN link {name} (id {vlan}, mtu {mtu}, parent index {parent}) into {target}"
            )
        };
        self.acknowledged(RouteNetlinkMessage::NewLink(message), CREATE, tried)
            .await
    }

    /// Makes a veth pair. Both ends are down.
    ///
    /// # Errors
    /// [`RtnlError`], `EEXIST` when a name is taken.
    pub async fn add_veth(&self, spec: &VethSpec<'_>) -> Result<(), RtnlError> {
        let mut peer = LinkMessageBuilder::<LinkUnspec>::default().name(spec.peer);
        if let Some(target) = spec.peer_target {
            peer = peer.setns_by_fd(target.as_raw_fd());
        }
        if let Some(mac) = spec.peer_mac {
            peer = peer.address(mac.octets().to_vec());
        }
        let mut link = LinkMessageBuilder::<LinkUnspec>::new_with_info_kind(InfoKind::Veth)
            .name(spec.name)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer.build())));
        if let Some(mac) = spec.mac {
            link = link.address(mac.octets().to_vec());
        }
        let tried = || format!("create veth pair {} and {}", spec.name, spec.peer);
        self.acknowledged(RouteNetlinkMessage::NewLink(link.build()), CREATE, tried)
            .await
    }

    /// Renames a link and sets it up, in one RTM_SETLINK. The link must be down: kernels up to
    /// 6.2 refuse to rename one that is up (`EBUSY`).
    ///
    /// # Errors
    /// [`RtnlError`], `EEXIST` when the name is taken.
    pub async fn rename_and_up(&self, ifindex: u32, name: &str) -> Result<(), RtnlError> {
        let link = LinkMessageBuilder::<LinkUnspec>::default()
            .index(ifindex)
            .name(name)
            .up();
        self.set_link(link, || {
            format!("rename link {ifindex} to {name} and set it up")
        })
        .await
    }

    /// Sets a link up.
    ///
    /// # Errors
    /// [`RtnlError`].
    pub async fn set_up(&self, ifindex: u32) -> Result<(), RtnlError> {
        let link = LinkMessageBuilder::<LinkUnspec>::default()
            .index(ifindex)
            .up();
        self.set_link(link, || format!("set link {ifindex} up"))
            .await
    }

    /// Sets a link down.
    ///
    /// # Errors
    /// [`RtnlError`].
    pub async fn set_down(&self, ifindex: u32) -> Result<(), RtnlError> {
        let link = LinkMessageBuilder::<LinkUnspec>::default()
            .index(ifindex)
            .down();
        self.set_link(link, || format!("set link {ifindex} down"))
            .await
    }

    /// Sets the MAC of a link.
    ///
    /// # Errors
    /// [`RtnlError`].
    pub async fn set_mac(&self, ifindex: u32, mac: Mac) -> Result<(), RtnlError> {
        let octets = mac.octets().to_vec();
        let link = LinkMessageBuilder::<LinkUnspec>::default()
            .index(ifindex)
            .address(octets);
        self.set_link(link, || format!("set the MAC of link {ifindex} to {mac}"))
            .await
    }

    /// Sets the MTU of a link. Lowering a parent's lowers its VLAN links' too; raising it does
    /// not raise theirs.
    ///
    /// # Errors
    /// [`RtnlError`], `ERANGE` for a VLAN link above its parent's MTU.
    pub async fn set_mtu(&self, ifindex: u32, mtu: u32) -> Result<(), RtnlError> {
        let link = LinkMessageBuilder::<LinkUnspec>::default()
            .index(ifindex)
            .mtu(mtu);
        self.set_link(link, || format!("set the MTU of link {ifindex} to {mtu}"))
            .await
    }

    async fn set_link(
        &self,
        link: LinkMessageBuilder<LinkUnspec>,
        tried: impl Fn() -> String,
    ) -> Result<(), RtnlError> {
        self.acknowledged(RouteNetlinkMessage::SetLink(link.build()), CHANGE, tried)
            .await
    }

    /// Deletes a link. `false`: it was not there.
    ///
    /// # Errors
    /// [`RtnlError`], `EOPNOTSUPP` for a real NIC.
    pub async fn delete_link(&self, ifindex: u32) -> Result<bool, RtnlError> {
        let message = LinkMessageBuilder::<LinkUnspec>::default()
            .index(ifindex)
            .build();
        let tried = || format!("delete link {ifindex}");
        match self
            .acknowledged(RouteNetlinkMessage::DelLink(message), CHANGE, tried)
            .await
        {
            Ok(()) => Ok(true),
            Err(error) if error.is_no_device() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The number this namespace has for `other` (RTM_GETNSID), as `IFLA_LINK_NETNSID` uses it;
    /// `None` when it has none, and then no link of this namespace has a parent over there.
    ///
    /// # Errors
    /// [`RtnlError`].
    pub async fn nsid_of(&self, other: &Netns) -> Result<Option<i32>, RtnlError> {
        let fd = u32::try_from(other.as_raw_fd()).unwrap_or(u32::MAX);
        let mut message = NsidMessage::default();
        message.attributes.push(NsidAttribute::Fd(fd));
        let tried = || format!("look up the id of {other}");
        let answers = self
            .request(RouteNetlinkMessage::GetNsId(message), GET, tried)
            .await?;
        let id = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewNsId(message) => {
                message
                    .attributes
                    .into_iter()
                    .find_map(|attribute| match attribute {
                        NsidAttribute::Id(id) => Some(id),
                        _ => None,
                    })
            }
            _ => None,
        });
        Ok(id.filter(|id| *id >= 0))
    }

    pub(super) async fn acknowledged(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
        tried: impl Fn() -> String,
    ) -> Result<(), RtnlError> {
        self.request(message, flags, tried).await.map(drop)
    }
}

/// `None` for messages that are no link.
fn read_link(message: RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = message else {
        return None;
    };
    let mut link = Link {
        name: String::new(),
        ifindex: message.header.index,
        kind: LinkKind::Device,
        mac: None,
        permanent_mac: None,
        mtu: 0,
        up: message.header.flags.contains(LinkFlags::Up),
        vlan: None,
        parent: None,
        parent_nsid: None,
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Address(octets) => link.mac = read_mac(octets),
            LinkAttribute::PermAddress(octets) => link.permanent_mac = read_mac(octets),
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::Link(parent) => link.parent = Some(parent).filter(|parent| *parent != 0),
            LinkAttribute::LinkNetNsId(id) => link.parent_nsid = Some(id),
            LinkAttribute::LinkInfo(infos) => infos
                .into_iter()
                .for_each(|info| read_info(&mut link, info)),
            _ => {}
        }
    }
    Some(link)
}

fn read_info(link: &mut Link, info: LinkInfo) {
    match info {
        LinkInfo::Kind(InfoKind::Vlan) => link.kind = LinkKind::Vlan,
        LinkInfo::Kind(kind) => link.kind = LinkKind::Other(kind.to_string()),
        LinkInfo::Data(InfoData::Vlan(infos)) => {
            // 802.1ad has ids of its own: the same number there is another VLAN.
            let dot1q = !infos
                .iter()
                .any(|i| matches!(i, InfoVlan::Protocol(p) if *p != VlanProtocol::Ieee8021Q));
            link.vlan = infos
                .into_iter()
                .filter(|_| dot1q)
                .find_map(|info| match info {
                    InfoVlan::Id(id) => VlanId::try_from(i64::from(id)).ok(),
                    _ => None,
                });
        }
        _ => {}
    }
}

pub(super) fn read_mac(octets: Vec<u8>) -> Option<Mac> {
    <[u8; 6]>::try_from(octets).ok().map(Mac::new)
}

//! Brings `lo` up: one RTM_NEWLINK of 32 bytes, by hand, because init links nothing of the
//! product (rtnetlink(7), struct ifinfomsg).

use std::os::fd::AsRawFd;

use anyhow::{Context, Result, bail};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

const RTM_NEWLINK: u16 = 16;
const NLM_F_REQUEST_ACK: u16 = 1 | 4;
const NLMSG_ERROR: u16 = 2;
const IFF_UP: u32 = 1;
/// The loopback interface has this index in every network namespace.
const LO_IFINDEX: i32 = 1;

pub(crate) fn loopback_up() -> Result<()> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )
    .context("open a netlink socket")?;
    let kernel = NetlinkAddr::new(0, 0);
    sendto(socket.as_raw_fd(), &request(), &kernel, MsgFlags::empty()).context("send")?;
    let mut answer = [0; 128];
    let n = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()).context("receive")?;
    match errno(answer.get(..n).unwrap_or_default()) {
        Some(0) => Ok(()),
        Some(code) => Err(std::io::Error::from_raw_os_error(-code)).context("the kernel refuses"),
        None => bail!("the kernel's answer is not an acknowledgement"),
    }
}

fn request() -> Vec<u8> {
    let mut message = Vec::with_capacity(32);
    message.extend(32_u32.to_ne_bytes()); // length
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST_ACK.to_ne_bytes());
    message.extend([0; 8]); // sequence, port
    message.extend([0; 4]); // family, padding, type
    message.extend(LO_IFINDEX.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes()); // change mask
    message
}

/// The error code of an NLMSG_ERROR answer; 0 is an acknowledgement.
fn errno(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let code = i32::from_ne_bytes(answer.get(16..20)?.try_into().ok()?);
    (kind == NLMSG_ERROR).then_some(code)
}

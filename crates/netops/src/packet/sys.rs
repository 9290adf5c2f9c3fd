//! The system calls of packet sockets. Every pointer handed to the kernel is made here, from a
//! borrow that outlives the call.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use spiderpool_api::value::Mac;

use super::vnet::{TPID_8021Q, VlanTag};

const FAMILY: libc::sa_family_t = 17; // AF_PACKET, in the width of an address

pub(super) const EVERY_PROTOCOL: u16 = 0x0003; // ETH_P_ALL

#[expect(
    clippy::cast_possible_truncation,
    reason = "sizes of kernel structures, far below the limit, known at compile time"
)]
pub(super) const ADDRESS_LEN: libc::socklen_t =
    mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t;

/// Room for one `tpacket_auxdata` message, aligned as a `cmsghdr` must be.
#[repr(align(8))]
pub(super) struct ControlBuffer(pub(super) [u8; 64]);

pub(super) fn link_index(ifindex: u32) -> io::Result<libc::c_int> {
    libc::c_int::try_from(ifindex).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))
}

pub(super) fn new_socket(kind: SockType) -> io::Result<OwnedFd> {
    // Protocol 0: receives nothing until it is bound.
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(AddressFamily::Packet, kind, flags, None)?)
}

pub(super) fn link_address(
    ifindex: libc::c_int,
    ethertype: u16,
    to: Option<Mac>,
) -> libc::sockaddr_ll {
    let [a, b, c, d, e, f] = to.unwrap_or(Mac::ZERO).octets();
    libc::sockaddr_ll {
        sll_family: FAMILY,
        sll_protocol: ethertype.to_be(),
        sll_ifindex: ifindex,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: [a, b, c, d, e, f, 0, 0],
    }
}

pub(super) fn promiscuous(ifindex: libc::c_int) -> libc::packet_mreq {
    libc::packet_mreq {
        mr_ifindex: ifindex,
        mr_type: 1, // PACKET_MR_PROMISC
        mr_alen: 0,
        mr_address: [0; 8],
    }
}

pub(super) fn bind(fd: &OwnedFd, address: &libc::sockaddr_ll) -> io::Result<()> {
    // SAFETY: `address` is a whole sockaddr_ll of the length given; the kernel only reads it.
    let result = unsafe { libc::bind(fd.as_raw_fd(), ptr::from_ref(address).cast(), ADDRESS_LEN) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

pub(super) fn set_packet_option<T>(fd: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let len = libc::socklen_t::try_from(mem::size_of::<T>())
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: `value` points to `len` initialised bytes (plain C structures without padding);
    // the kernel only reads them.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            ptr::from_ref(value).cast(),
            len,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A part the kernel reads. Its pointer is mutable in C only because both directions share a type.
pub(super) fn out_part(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

/// A part the kernel writes.
pub(super) fn in_part(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    }
}

pub(super) fn message(parts: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: msghdr is a C structure of integers and pointers; all zero is its empty value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len();
    message
}

pub(super) fn send(fd: &OwnedFd, message: &libc::msghdr) -> io::Result<()> {
    loop {
        // SAFETY: the message points to an address and parts that its maker keeps alive over
        // this call and that sendmsg only reads.
        let result = unsafe { libc::sendmsg(fd.as_raw_fd(), message, 0) };
        if result >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

pub(super) fn receive(fd: &OwnedFd, message: &mut libc::msghdr) -> io::Result<usize> {
    loop {
        // SAFETY: name, parts and control buffer of the message are writable memory of the lengths
        // given in it, borrowed by its maker over this call.
        let result = unsafe { libc::recvmsg(fd.as_raw_fd(), message, 0) };
        if let Ok(len) = usize::try_from(result) {
            return Ok(len);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// The tag out of the `PACKET_AUXDATA` message, if the frame had one.
pub(super) fn vlan_tag(message: &libc::msghdr) -> Option<VlanTag> {
    // SAFETY: `message` was filled by recvmsg, so its control part is well formed; the pointer is
    // null or aligned and inside the buffer.
    let header = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
    let wanted = header.cmsg_level == libc::SOL_PACKET && header.cmsg_type == libc::PACKET_AUXDATA;
    let room = mem::size_of::<libc::cmsghdr>() + mem::size_of::<libc::tpacket_auxdata>();
    if !wanted || header.cmsg_len < room {
        return None;
    }
    // SAFETY: level, type and length say that a whole tpacket_auxdata follows the header; it is
    // read unaligned, and every bit pattern is a value of it.
    let aux =
        unsafe { ptr::read_unaligned(libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>()) };
    if aux.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let tpid = if aux.tp_status & libc::TP_STATUS_VLAN_TPID_VALID == 0 {
        TPID_8021Q
    } else {
        aux.tp_vlan_tpid
    };
    Some(VlanTag {
        tpid,
        tci: aux.tp_vlan_tci,
    })
}

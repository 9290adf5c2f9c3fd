//! Packet sockets (packet(7)): the only raw L2 sockets of the product.
//!
//! Owns the descriptors and their options. [`DgramSocket`] is for the pre-flight on one link: the
//! kernel writes the Ethernet header and the VLAN tag. [`RawSocket`] is for the simulated fabric:
//! whole frames with tag and offload header beside them. A socket belongs to the network namespace
//! of the thread that opened it and keeps that namespace and its links alive until it is dropped.
//! Both are non-blocking; the async forms need a tokio runtime with I/O enabled.
#![expect(
    unsafe_code,
    reason = "PACKET_* options, PACKET_AUXDATA and sockaddr_ll have no safe binding"
)]

mod sys;
pub mod vnet;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;

use nix::sys::socket::{SockType, setsockopt, sockopt};
use spiderpool_api::value::Mac;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use self::sys::{
    ADDRESS_LEN, ControlBuffer, EVERY_PROTOCOL, bind, in_part, link_address, link_index, message,
    new_socket, out_part, promiscuous, receive, send, set_packet_option, vlan_tag,
};
use self::vnet::{VlanTag, VnetHdr};

/// Enough for bursts of 64 KiB segments; the default holds three.
const RAW_BUFFER_BYTES: usize = 4 << 20;

/// Where a tag goes in a frame: behind destination and source address.
const ADDRESSES_LEN: usize = 12;

/// A link that goes down sets an error on the socket and delivers nothing: without `ERROR` the
/// reader would sleep on.
const READABLE_OR_FAILED: Interest = Interest::READABLE.add(Interest::ERROR);

/// Whether the error says that the link is gone or down, so that trying again is useless.
/// ENXIO is what sending to a deleted ifindex yields.
#[must_use]
pub fn is_link_gone(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENODEV | libc::ENXIO | libc::ENETDOWN)
    )
}

/// Sends and receives payloads of one EtherType on one link; the kernel owns the Ethernet header.
#[derive(Debug)]
pub struct DgramSocket {
    fd: OwnedFd,
    ifindex: libc::c_int,
    ethertype: u16,
}

impl DgramSocket {
    /// Opens the socket in the network namespace of the calling thread. Needs CAP_NET_RAW there.
    ///
    /// # Errors
    /// The kernel's, for example ENODEV for an unknown ifindex and ENETDOWN for a link that is
    /// down (see [`is_link_gone`]).
    pub fn open(ifindex: u32, ethertype: u16) -> io::Result<Self> {
        let ifindex = link_index(ifindex)?;
        let fd = new_socket(SockType::Datagram)?;
        bind(&fd, &link_address(ifindex, ethertype, None))?;
        Ok(Self {
            fd,
            ifindex,
            ethertype,
        })
    }

    fn try_send(&self, to: Mac, payload: &[u8]) -> io::Result<()> {
        let mut address = link_address(self.ifindex, self.ethertype, Some(to));
        let mut parts = [out_part(payload)];
        let mut message = message(&mut parts);
        message.msg_name = ptr::from_mut(&mut address).cast();
        message.msg_namelen = ADDRESS_LEN;
        send(&self.fd, &message)
    }

    fn try_recv(&self, buffer: &mut [u8]) -> io::Result<(usize, Mac)> {
        let mut address = link_address(0, 0, None);
        let mut parts = [in_part(buffer)];
        let mut message = message(&mut parts);
        message.msg_name = ptr::from_mut(&mut address).cast();
        message.msg_namelen = ADDRESS_LEN;
        let len = receive(&self.fd, &mut message)?;
        let [a, b, c, d, e, f, ..] = address.sll_addr;
        Ok((len, Mac::new([a, b, c, d, e, f])))
    }
}

impl AsRawFd for DgramSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// A [`DgramSocket`] in a runtime.
#[derive(Debug)]
pub struct AsyncDgram(AsyncFd<DgramSocket>);

impl AsyncDgram {
    /// Hands the socket to the runtime of the calling task.
    ///
    /// # Errors
    /// The kernel's, when the poller refuses the descriptor.
    pub fn register(socket: DgramSocket) -> io::Result<Self> {
        // SAFETY: the socket owns its descriptor, never replaces it, and closes it when it is
        // dropped, which AsyncFd does after it has left the poller.
        let fd = unsafe { AsyncFd::register(socket) };
        fd.map(Self).map_err(io::Error::from)
    }

    /// Sends one payload to `to` on the link; waits while the send buffer is full.
    ///
    /// # Errors
    /// The kernel's; see [`is_link_gone`].
    pub async fn send(&self, to: Mac, payload: &[u8]) -> io::Result<()> {
        self.0
            .async_io(Interest::WRITABLE, |socket| socket.try_send(to, payload))
            .await
    }

    /// Receives one payload: its length in `buffer` (longer ones are cut) and the link address it
    /// came from. Cancel safe.
    ///
    /// # Errors
    /// The kernel's; see [`is_link_gone`].
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<(usize, Mac)> {
        self.0
            .async_io(READABLE_OR_FAILED, |socket| socket.try_recv(buffer))
            .await
    }
}

/// What [`RawSocket`] received beside the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes of the frame in the buffer, without its tag.
    pub len: usize,
    /// The frame was longer than the buffer.
    pub truncated: bool,
    /// The outermost VLAN tag, which the kernel takes out of the bytes (`PACKET_AUXDATA`).
    pub tag: Option<VlanTag>,
    /// Offload header for the bytes as they are in the buffer.
    pub offload: VnetHdr,
}

/// Sends and receives whole frames on one link, in promiscuous mode, without its own ones.
#[derive(Debug)]
pub struct RawSocket {
    fd: OwnedFd,
}

impl RawSocket {
    /// Opens the socket in the network namespace of the calling thread. Needs CAP_NET_RAW there
    /// and Linux 4.20 (`PACKET_IGNORE_OUTGOING`); with CAP_NET_ADMIN the buffers are 4 MiB.
    ///
    /// # Errors
    /// The kernel's, for example ENODEV for an unknown ifindex.
    pub fn open(ifindex: u32) -> io::Result<Self> {
        let ifindex = link_index(ifindex)?;
        let fd = new_socket(SockType::Raw)?;
        // Smaller buffers lose bursts but are no failure: the kernel caps them without CAP_NET_ADMIN.
        if setsockopt(&fd, sockopt::RcvBufForce, &RAW_BUFFER_BYTES).is_err() {
            setsockopt(&fd, sockopt::RcvBuf, &RAW_BUFFER_BYTES)?;
        }
        if setsockopt(&fd, sockopt::SndBufForce, &RAW_BUFFER_BYTES).is_err() {
            setsockopt(&fd, sockopt::SndBuf, &RAW_BUFFER_BYTES)?;
        }
        let on: libc::c_int = 1;
        set_packet_option(&fd, libc::PACKET_AUXDATA, &on)?;
        set_packet_option(&fd, libc::PACKET_VNET_HDR, &on)?;
        set_packet_option(&fd, libc::PACKET_IGNORE_OUTGOING, &on)?;
        // Bound last: until then nothing arrives that lacks what the options add.
        bind(&fd, &link_address(ifindex, EVERY_PROTOCOL, None))?;
        set_packet_option(&fd, libc::PACKET_ADD_MEMBERSHIP, &promiscuous(ifindex))?;
        Ok(Self { fd })
    }

    /// Receives one frame without waiting.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; EINVAL for a frame whose offload the header cannot
    /// express (it is lost, the next call goes on); else the kernel's.
    pub fn try_recv(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let mut header = [0; VnetHdr::LEN];
        let mut control = ControlBuffer([0; 64]);
        let mut parts = [in_part(&mut header), in_part(buffer)];
        let mut message = message(&mut parts);
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len();
        let len = receive(&self.fd, &mut message)?;
        Ok(Received {
            len: len.saturating_sub(VnetHdr::LEN),
            truncated: message.msg_flags & libc::MSG_TRUNC != 0,
            tag: vlan_tag(&message),
            offload: VnetHdr::from_bytes(header),
        })
    }

    /// Sends one frame without waiting, `tag` put into the bytes. `offload` is the header of the
    /// frame as it is in `frame`, without the tag.
    ///
    /// # Errors
    /// `WouldBlock` or ENOBUFS when buffers are full (the frame is lost, as on a wire), EMSGSIZE
    /// beyond the MTU, `InvalidInput` for less than an Ethernet header; see [`is_link_gone`].
    pub fn try_send(&self, frame: &[u8], tag: Option<VlanTag>, offload: VnetHdr) -> io::Result<()> {
        let Some((addresses, rest)) = frame.split_at_checked(ADDRESSES_LEN) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let tag_octets = tag.map(VlanTag::octets);
        let header = match tag {
            Some(_) => offload.tagged().to_bytes(),
            None => offload.to_bytes(),
        };
        let mut parts = [
            out_part(&header),
            out_part(addresses),
            out_part(tag_octets.as_ref().map_or(&[], <[u8; 4]>::as_slice)),
            out_part(rest),
        ];
        send(&self.fd, &message(&mut parts))
    }
}

impl AsRawFd for RawSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// A [`RawSocket`] in a runtime. One task receives, any task sends.
#[derive(Debug)]
pub struct AsyncRaw(AsyncFd<RawSocket>);

impl AsyncRaw {
    /// Hands the socket to the runtime of the calling task.
    ///
    /// # Errors
    /// The kernel's, when the poller refuses the descriptor.
    pub fn register(socket: RawSocket) -> io::Result<Self> {
        // SAFETY: the socket owns its descriptor, never replaces it, and closes it when it is
        // dropped, which AsyncFd does after it has left the poller.
        let fd = unsafe { AsyncFd::register(socket) };
        fd.map(Self).map_err(io::Error::from)
    }

    /// Waits for one frame. Cancel safe.
    ///
    /// # Errors
    /// As [`RawSocket::try_recv`] without `WouldBlock`.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.0
            .async_io(READABLE_OR_FAILED, |socket| socket.try_recv(buffer))
            .await
    }

    /// As [`RawSocket::try_send`].
    ///
    /// # Errors
    /// As [`RawSocket::try_send`].
    pub fn try_send(&self, frame: &[u8], tag: Option<VlanTag>, offload: VnetHdr) -> io::Result<()> {
        self.0.get_ref().try_send(frame, tag, offload)
    }
}

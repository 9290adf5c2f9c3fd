//! VLAN offload of a NIC, as `ethtool -K NIC rxvlan off txvlan off` switches it.
#![expect(
    unsafe_code,
    reason = "SIOCETHTOOL has no safe binding, and a guest has no ethtool"
)]

use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

/// From `linux/sockios.h` and `linux/ethtool.h`.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const TX_VLAN: u32 = 1 << 7;
const RX_VLAN: u32 = 1 << 8;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    flags: u32,
}

/// Switches it off on a NIC in the calling thread's namespace.
pub(crate) fn switch_off_vlan(name: &str) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let mut value = Value {
        command: ETHTOOL_GFLAGS,
        flags: 0,
    };
    call(&socket, name, &mut value)?;
    value.command = ETHTOOL_SFLAGS;
    value.flags &= !(TX_VLAN | RX_VLAN);
    call(&socket, name, &mut value)
}

fn call(socket: &Socket, name: &str, value: &mut Value) -> io::Result<()> {
    // SAFETY: plain data, for which all zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(15)) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(value).cast();
    // SAFETY: the kernel reads and writes `request` and the `Value` it points to, both of which
    // outlive the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &mut request) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

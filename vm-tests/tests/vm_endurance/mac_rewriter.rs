//! A stand-in for udev's persistent-MAC policy: gives every new link whose MAC nobody set another
//! one (case B21).

use std::fs;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, setsockopt,
    socket,
};
use nix::sys::time::TimeVal;
use spiderpool_api::value::Mac;
use spiderpool_netops::netns::Netns;
use spiderpool_netops::rtnl::VethSpec;
use vm_tests::lab::inspect;
use vm_tests::lab::namespace::in_netns;
use vm_tests::lab::wait;

const RTM_NEWLINK: u16 = 16;
const RTMGRP_LINK: u32 = 1;
const IFLA_IFNAME: u16 = 3;
/// `NET_ADDR_SET` (include/uapi/linux/netdevice.h): somebody chose the MAC.
const SET_BY_USER: u32 = 3;
/// What udev would make of the machine id and the name.
const REWRITTEN: Mac = Mac::new([0x02, 0xde, 0xad, 0x00, 0x00, 0x01]);
/// Links made to see that it works.
const PROOF: (&str, &str) = ("proof0", "proof1");
const LIMIT: Duration = Duration::from_secs(5);

/// The thread that rewrites.
pub(crate) struct MacRewriter {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<String>>>,
}

impl MacRewriter {
    /// Starts it in a namespace; it listens when this returns.
    pub(crate) fn start(netns: &Netns) -> Result<Self> {
        let known: Vec<_> = inspect::links(netns)?
            .into_iter()
            .map(|l| l.link.ifindex)
            .collect();
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, inside) = (Arc::clone(&stop), netns.clone());
        let (ready, listening) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            inside.run(|| {
                listen(&inside, known, &stopped, || {
                    ready.send(()).unwrap_or_default()
                })
            })?
        });
        if listening.recv().is_err() {
            let ended = thread.join();
            bail!(
                "the rewriter does not listen: {:?}",
                ended.map(|result| result.err())
            );
        }
        Ok(Self { stop, thread })
    }

    /// Makes a link without a MAC of its own and waits until it is rewritten.
    pub(crate) fn prove(&self, netns: &Netns) -> Result<()> {
        let (name, peer) = PROOF;
        let spec = VethSpec {
            name,
            peer,
            peer_target: None,
            mac: None,
            peer_mac: None,
        };
        in_netns(netns, async |rtnl| Ok(rtnl.add_veth(&spec).await?))?;
        wait::until(LIMIT, "the rewriting of a link's MAC", || {
            let link = inspect::link(netns, name)?;
            Ok(link
                .filter(|link| link.link.mac == Some(REWRITTEN))
                .map(drop))
        })?;
        inspect::delete_link(netns, name)
    }

    /// Ends it; names of new links it saw, but for its proofs.
    pub(crate) fn stop(self) -> Result<Vec<String>> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(seen) => seen,
            Err(_) => bail!("the rewriter panicked"),
        }
    }
}

/// `addr_assign_type` of a link; only sysfs tells it. A mount of its own shows the namespace.
pub(crate) fn assign_type(netns: &Netns, name: &str) -> Result<u32> {
    netns.run(|| {
        own_sysfs()?;
        read_assign_type(name)
    })?
}

/// Moves the calling thread into a mount namespace whose `/sys` shows its network namespace.
fn own_sysfs() -> Result<()> {
    let none: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS).context("unshare mounts")?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none).context("mount sysfs")
}

fn read_assign_type(name: &str) -> Result<u32> {
    let path = format!("/sys/class/net/{name}/addr_assign_type");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    Ok(text.trim().parse()?)
}

fn listen(
    netns: &Netns,
    mut known: Vec<u32>,
    stop: &AtomicBool,
    ready: impl FnOnce(),
) -> Result<Vec<String>> {
    own_sysfs()?;
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, RTMGRP_LINK))?;
    setsockopt(&socket, ReceiveTimeout, &TimeVal::new(0, 20_000))?;
    ready();
    let mut seen = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    while !stop.load(Ordering::Relaxed) {
        let n = match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(n) => n,
            Err(Errno::EAGAIN | Errno::EINTR) => continue,
            Err(error) => return Err(error).context("listen to rtnetlink"),
        };
        for (ifindex, name) in new_links(buffer.get(..n).unwrap_or_default()) {
            if known.contains(&ifindex) {
                continue;
            }
            known.push(ifindex);
            rewrite(netns, ifindex, &name)?;
            if name != PROOF.0 && name != PROOF.1 {
                seen.push(name);
            }
        }
    }
    Ok(seen)
}

/// A link may be gone or renamed before we come to it, as it may for udev.
fn rewrite(netns: &Netns, ifindex: u32, name: &str) -> Result<()> {
    if read_assign_type(name).is_ok_and(|kind| kind != SET_BY_USER) && name != PROOF.1 {
        in_netns(netns, async |rtnl| {
            drop(rtnl.set_mac(ifindex, REWRITTEN).await);
            Ok(())
        })?;
    }
    Ok(())
}

/// (index, name) of each RTM_NEWLINK in a datagram.
fn new_links(mut bytes: &[u8]) -> Vec<(u32, String)> {
    let mut links = Vec::new();
    while let Some(length) = u32_at(bytes, 0).and_then(|n| usize::try_from(n).ok()) {
        if length < 16 || length > bytes.len() {
            break;
        }
        let message = bytes.get(..length).unwrap_or_default();
        if u16_at(message, 4) == Some(RTM_NEWLINK) {
            // struct ifinfomsg behind the header: the index lies at its byte 4
            links.extend(u32_at(message, 20).zip(name_of(message.get(32..).unwrap_or_default())));
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    links
}

fn name_of(mut attributes: &[u8]) -> Option<String> {
    loop {
        let length = usize::from(u16_at(attributes, 0)?);
        let value = attributes.get(4..length)?;
        if u16_at(attributes, 2)? == IFLA_IFNAME {
            let text = value.strip_suffix(&[0]).unwrap_or(value);
            return Some(String::from_utf8_lossy(text).into_owned());
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

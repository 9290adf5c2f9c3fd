//! The async side of a probe: one packet socket on one link, opened inside the Pod's network
//! namespace, used by the runtime and closed right after (an open socket would keep a dead Pod's
//! VLAN alive).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use spiderpool_api::value::Mac;
use tokio::time::{Instant, timeout_at};

use super::{Probe, Question, Step};
use crate::arp::{self, ArpPacket};
use crate::ndp::{self, NdpPacket};
use crate::netns::{Netns, NetnsError};
use crate::packet::{AsyncDgram, DgramSocket, is_link_gone};

/// Announcements of an IPv4 address: one may be lost on a fabric that is still learning.
const ARP_ANNOUNCEMENTS: u32 = 2;

/// No answer is longer; a longer frame is cut and then fails to decode.
const BUFFER_LEN: usize = 2048;

/// The gateway answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeReply {
    /// Link address of the gateway.
    pub mac: Mac,
    /// Questions asked, the answered one included.
    pub attempts: u32,
    /// From the first question to the answer.
    pub elapsed: Duration,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Silence. The (address, MAC, VLAN) triple does not pass the fabric, or not yet.
    #[error("{question} not answered in {attempts} attempts of {timeout:?} each")]
    Timeout {
        /// What was asked, as text.
        question: String,
        /// Questions asked.
        attempts: u32,
        /// Time each of them had.
        timeout: Duration,
        /// The last question that could not even be sent.
        #[source]
        last_send: Option<io::Error>,
    },
    /// The link is down or deleted: asking again is useless.
    #[error("link {ifindex} in {netns} is down or gone while asking {question}")]
    LinkGone {
        /// What was asked, as text.
        question: String,
        /// Index of the link in its namespace.
        ifindex: u32,
        /// Path of the namespace.
        netns: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The network namespace cannot be entered.
    #[error("cannot probe from link {ifindex}")]
    Netns {
        /// Index of the link in its namespace.
        ifindex: u32,
        /// Which namespace and why.
        source: NetnsError,
    },
    /// The packet socket failed.
    #[error("packet socket on link {ifindex} in {netns} failed; CAP_NET_RAW is needed")]
    Io {
        /// Index of the link in its namespace.
        ifindex: u32,
        /// Path of the namespace.
        netns: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Asks `gateway` by ARP in the name of `ip` from the link `ifindex` of `netns`, up to `attempts`
/// times. Takes `attempts` x `timeout` at most. Cancel safe: the socket is closed on drop.
///
/// # Errors
/// [`ProbeError`].
pub async fn run_arp(
    netns: &Netns,
    ifindex: u32,
    link_mac: Mac,
    ip: Ipv4Addr,
    gateway: Ipv4Addr,
    attempts: u32,
    timeout: Duration,
) -> Result<ProbeReply, ProbeError> {
    let question = Question::Arp {
        link_mac,
        ip,
        gateway,
    };
    run(netns, ifindex, question, attempts, timeout).await
}

/// As [`run_arp`], by Neighbor Solicitation. Works on a link with `disable_ipv6`.
///
/// # Errors
/// [`ProbeError`].
pub async fn run_ndp(
    netns: &Netns,
    ifindex: u32,
    link_mac: Mac,
    ip: Ipv6Addr,
    gateway: Ipv6Addr,
    attempts: u32,
    timeout: Duration,
) -> Result<ProbeReply, ProbeError> {
    let question = Question::Ndp {
        link_mac,
        ip,
        gateway,
    };
    run(netns, ifindex, question, attempts, timeout).await
}

/// Tells the neighbours of the link that `ip` is at `link_mac`: gratuitous ARP requests.
///
/// # Errors
/// [`ProbeError`] but never `Timeout`: nobody answers.
pub async fn announce_arp(
    netns: &Netns,
    ifindex: u32,
    link_mac: Mac,
    ip: Ipv4Addr,
) -> Result<(), ProbeError> {
    let link = Link { netns, ifindex };
    let what = format!("announcement of {ip} at {link_mac}");
    let payload = ArpPacket::announcement(link_mac, ip).encode();
    let socket = link.open(arp::ETHERTYPE, &what).await?;
    for _ in 0..ARP_ANNOUNCEMENTS {
        let sent = socket.send(Mac::BROADCAST, &payload).await;
        sent.map_err(|error| link.failed(error, &what))?;
    }
    Ok(())
}

/// Tells the neighbours of the link that `ip` is at `link_mac`: an unsolicited advertisement with
/// the override flag to ff02::1.
///
/// # Errors
/// [`ProbeError`] but never `Timeout`: nobody answers.
pub async fn announce_ndp(
    netns: &Netns,
    ifindex: u32,
    link_mac: Mac,
    ip: Ipv6Addr,
) -> Result<(), ProbeError> {
    let link = Link { netns, ifindex };
    let what = format!("announcement of {ip} at {link_mac}");
    let packet = NdpPacket::announcement(ip, link_mac);
    let socket = link.open(ndp::ETHERTYPE, &what).await?;
    let to = ndp::multicast_mac(packet.destination);
    let sent = socket.send(to, &packet.encode()).await;
    sent.map_err(|error| link.failed(error, &what))
}

async fn run(
    netns: &Netns,
    ifindex: u32,
    question: Question,
    attempts: u32,
    timeout: Duration,
) -> Result<ProbeReply, ProbeError> {
    let link = Link { netns, ifindex };
    let what = question.to_string();
    let socket = link.open(question.ethertype(), &what).await?;
    let frame = question.encode();
    let start = Instant::now();
    let mut probe = Probe::new(attempts, timeout);
    let mut last_send = None;
    loop {
        match probe.step(start.elapsed()) {
            Step::Send => match socket.send(question.destination(), &frame).await {
                Ok(()) => {}
                Err(error) if is_link_gone(&error) => return Err(link.failed(error, &what)),
                Err(error) => last_send = Some(error),
            },
            Step::WaitUntil(deadline) => {
                let answer = wait_for_answer(&socket, &question, start + deadline).await;
                if let Some(mac) = answer.map_err(|error| link.failed(error, &what))? {
                    return Ok(ProbeReply {
                        mac,
                        attempts: probe.sent(),
                        elapsed: start.elapsed(),
                    });
                }
            }
            Step::Exhausted => {
                return Err(ProbeError::Timeout {
                    question: what,
                    attempts: probe.sent(),
                    timeout,
                    last_send,
                });
            }
        }
    }
}

/// Reads until a frame answers the question (its gateway's MAC) or the deadline passes (none).
async fn wait_for_answer(
    socket: &AsyncDgram,
    question: &Question,
    deadline: Instant,
) -> io::Result<Option<Mac>> {
    let mut buffer = [0; BUFFER_LEN];
    while let Ok(received) = timeout_at(deadline, socket.recv(&mut buffer)).await {
        let (len, sender) = received?;
        let payload = buffer.get(..len).unwrap_or_default();
        if let Some(mac) = question.answered_by(payload, sender) {
            return Ok(Some(mac));
        }
        // A flood of other frames never lets the timer be polled.
        if Instant::now() >= deadline {
            break;
        }
    }
    Ok(None)
}

/// Where to send, for the socket and for the errors.
struct Link<'a> {
    netns: &'a Netns,
    ifindex: u32,
}

impl Link<'_> {
    async fn open(&self, ethertype: u16, what: &str) -> Result<AsyncDgram, ProbeError> {
        let ifindex = self.ifindex;
        let opened = self
            .netns
            .run_async(move || DgramSocket::open(ifindex, ethertype))
            .await
            .map_err(|source| ProbeError::Netns { ifindex, source })?;
        opened
            .and_then(AsyncDgram::register)
            .map_err(|error| self.failed(error, what))
    }

    fn failed(&self, source: io::Error, what: &str) -> ProbeError {
        let netns = self.netns.path().display().to_string();
        let ifindex = self.ifindex;
        if is_link_gone(&source) {
            let question = what.to_owned();
            ProbeError::LinkGone {
                question,
                ifindex,
                netns,
                source,
            }
        } else {
            ProbeError::Io {
                ifindex,
                netns,
                source,
            }
        }
    }
}

#[cfg(test)]
#[path = "drive_tests.rs"]
mod tests;

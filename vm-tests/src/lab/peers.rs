//! Traffic between namespaces: ICMP echo and TCP transfers, judged by what arrives.
//!
//! Sockets are made on a thread inside the namespace and closed before the call returns, so that
//! no socket keeps a dead Pod's links. May touch sockets only.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use spiderpool_netops::netns::Netns;

/// A TCP peer that is silent for so long has failed.
const TCP_LIMIT: Duration = Duration::from_secs(20);
/// Bytes given to one write.
const CHUNK: usize = 64 * 1024;
const ECHO_ID: u16 = 0x5350;
const ICMP_HEADER: usize = 8;

/// How an echo went.
#[derive(Debug, Clone, PartialEq)]
pub struct Ping {
    /// Requests sent.
    pub sent: u32,
    /// Answers.
    pub received: u32,
    /// Quickest answer, milliseconds; 0 without one. The first one often waits for a neighbour
    /// entry, which is not what a round trip means.
    pub ms: f64,
}

impl Ping {
    /// Every request was answered.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.sent > 0 && self.sent == self.received
    }
}

/// Sends `count` echo requests from inside `from`, each with `limit` to be answered.
///
/// # Errors
/// No socket, or the kernel refuses to send (no route, link down). Silence is no error.
pub fn ping(from: &Netns, to: IpAddr, count: u32, limit: Duration) -> Result<Ping> {
    from.run(|| ping_here(to, count, limit))?
        .with_context(|| format!("ping {to} from {from}"))
}

fn ping_here(to: IpAddr, count: u32, limit: Duration) -> Result<Ping> {
    let (domain, protocol) = match to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    let socket = Socket::new(domain, Type::RAW, Some(protocol)).context("open an ICMP socket")?;
    socket.connect(&SocketAddr::new(to, 0).into())?;
    let mut ping = Ping {
        sent: 0,
        received: 0,
        ms: 0.0,
    };
    for sequence in 1..=u16::try_from(count)? {
        let sent = Instant::now();
        socket.send(&echo_request(to, sequence)).context("send")?;
        ping.sent += 1;
        if answered(&socket, to, sequence, sent + limit)? {
            let ms = sent.elapsed().as_secs_f64() * 1000.0;
            ping.ms = if ping.received == 0 {
                ms
            } else {
                ping.ms.min(ms)
            };
            ping.received += 1;
        }
    }
    Ok(ping)
}

/// Waits for the answer of one request; other traffic is passed over.
fn answered(socket: &Socket, to: IpAddr, sequence: u16, deadline: Instant) -> Result<bool> {
    let mut buffer = [0; 2048];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        socket.set_read_timeout(Some(left))?;
        match (&*socket).read(&mut buffer) {
            Ok(n) => {
                if is_reply(to, sequence, buffer.get(..n).unwrap_or_default()) {
                    return Ok(true);
                }
            }
            Err(error) if is_silence(&error) => {}
            // An ICMP error of an earlier packet; the answer can still come.
            Err(error) if error.kind() == ErrorKind::HostUnreachable => return Ok(false),
            Err(error) => return Err(error).context("receive"),
        }
    }
}

/// RFC 792, RFC 4443: type, code, checksum, identifier, sequence, data.
fn echo_request(to: IpAddr, sequence: u16) -> Vec<u8> {
    let kind = if to.is_ipv4() { 8 } else { 128 };
    let mut message = vec![kind, 0, 0, 0];
    message.extend(ECHO_ID.to_be_bytes());
    message.extend(sequence.to_be_bytes());
    message.extend(b"spiderpool lab echo request....");
    message.push(b'.');
    if to.is_ipv4() {
        // The kernel fills in the ICMPv6 one.
        let sum = checksum(&message).to_be_bytes();
        message.splice(2..4, sum);
    }
    message
}

fn is_reply(to: IpAddr, sequence: u16, packet: &[u8]) -> bool {
    let (kind, message) = match to {
        // A raw IPv4 socket delivers the IP header, whose length is in its first byte.
        IpAddr::V4(_) => {
            let header = packet.first().map_or(0, |b| usize::from(b & 0x0f) * 4);
            (0, packet.get(header..).unwrap_or_default())
        }
        IpAddr::V6(_) => (129, packet),
    };
    let [id_high, id_low] = ECHO_ID.to_be_bytes();
    let [high, low] = sequence.to_be_bytes();
    message.get(..ICMP_HEADER).is_some_and(|header| {
        header.first() == Some(&kind) && header.get(4..8) == Some(&[id_high, id_low, high, low])
    })
}

/// RFC 1071, for an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks_exact(2) {
        if let [high, low] = pair {
            sum += u32::from(u16::from_be_bytes([*high, *low]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

/// How a transfer went.
#[derive(Debug, Clone, PartialEq)]
pub struct Transfer {
    /// Bytes that went there and came back unchanged.
    pub bytes: u64,
    /// From the connect to the last byte, milliseconds.
    pub ms: f64,
}

/// Sends `bytes` from `client` to an echo server in `server` at `address` and reads them back,
/// both ways at once; every byte is compared.
///
/// # Errors
/// No connection, silence of 20 s, a byte that differs or is missing.
pub fn tcp_echo(client: &Netns, server: &Netns, address: IpAddr, bytes: u64) -> Result<Transfer> {
    let what = format!("TCP {bytes} bytes from {client} to {address} and back");
    let listener = server.run(|| TcpListener::bind((address, 0)))??;
    let target = listener.local_addr()?;
    // On Linux the receive timeout holds for accept too.
    SockRef::from(&listener).set_read_timeout(Some(TCP_LIMIT))?;
    thread::scope(|scope| {
        let echo = scope.spawn(move || serve_one(&listener));
        let result = client.run(|| send_and_compare(target, bytes))?;
        let served = echo.join();
        let transfer = result.with_context(|| what.clone())?;
        match served {
            Ok(Ok(count)) if count == bytes => Ok(transfer),
            Ok(Ok(count)) => bail!("{what}: the server saw {count} bytes"),
            Ok(Err(error)) => Err(error).context(what),
            Err(_) => bail!("{what}: the server panicked"),
        }
    })
}

fn serve_one(listener: &TcpListener) -> Result<u64> {
    let (mut stream, _) = listener.accept().context("accept")?;
    limit(&stream)?;
    let mut buffer = vec![0; CHUNK];
    let mut count = 0;
    loop {
        let n = stream.read(&mut buffer).context("server reads")?;
        if n == 0 {
            break;
        }
        count += u64::try_from(n)?;
        let chunk = buffer.get(..n).unwrap_or_default();
        stream.write_all(chunk).context("server writes")?;
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(count)
}

fn send_and_compare(target: SocketAddr, bytes: u64) -> Result<Transfer> {
    let started = Instant::now();
    let stream = TcpStream::connect_timeout(&target, TCP_LIMIT).context("connect")?;
    limit(&stream)?;
    let mut writing = stream.try_clone()?;
    thread::scope(|scope| {
        let writer = scope.spawn(move || send(&mut writing, bytes));
        let compared = compare(&stream, bytes);
        if compared.is_err() {
            // Else the writer would fill the window and wait for its own timeout.
            stream.shutdown(Shutdown::Both).ok();
        }
        let written = writer.join();
        compared?;
        match written {
            Ok(result) => result.context("client writes")?,
            Err(_) => bail!("the writer panicked"),
        }
        Ok(Transfer {
            bytes,
            ms: started.elapsed().as_secs_f64() * 1000.0,
        })
    })
}

fn limit(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(TCP_LIMIT))?;
    stream.set_write_timeout(Some(TCP_LIMIT))
}

fn send(stream: &mut TcpStream, bytes: u64) -> io::Result<()> {
    let mut source = Pattern::default().take(bytes);
    io::copy(&mut source, stream)?;
    stream.shutdown(Shutdown::Write)
}

fn compare(mut stream: &TcpStream, bytes: u64) -> Result<()> {
    let mut wanted = Pattern::default();
    let (mut got, mut expected) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut count: u64 = 0;
    loop {
        let n = stream
            .read(&mut got)
            .with_context(|| format!("after {count} bytes"))?;
        if n == 0 {
            break;
        }
        let expected = expected.get_mut(..n).unwrap_or_default();
        wanted.read_exact(expected)?;
        ensure!(
            got.get(..n) == Some(&*expected),
            "a byte differs behind byte {count}"
        );
        count += u64::try_from(n)?;
    }
    ensure!(count == bytes, "{count} bytes came back");
    Ok(())
}

/// An endless stream of bytes with a period of 2^64: a lost or doubled piece shows.
#[derive(Debug, Default)]
struct Pattern {
    counter: u64,
    rest: usize,
}

impl Read for Pattern {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        for byte in buffer.iter_mut() {
            let word = self
                .counter
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .to_le_bytes();
            *byte = word.get(self.rest).copied().unwrap_or_default();
            self.rest += 1;
            if self.rest == word.len() {
                self.rest = 0;
                self.counter += 1;
            }
        }
        Ok(buffer.len())
    }
}

fn is_silence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::namespace::{NamedNetns, root_or_skip};

    #[test]
    fn the_checksum_is_the_one_of_rfc_1071() {
        let message = echo_request("10.0.0.1".parse().unwrap(), 7);
        assert_eq!(
            checksum(&message),
            0,
            "a message with its sum adds up to zero"
        );
    }

    #[test]
    fn replies_are_told_from_requests_and_other_sequences() {
        let to: IpAddr = "fd00::1".parse().unwrap();
        let mut reply = echo_request(to, 7);
        assert!(!is_reply(to, 7, &reply), "a request");
        reply[0] = 129;
        assert!(is_reply(to, 7, &reply));
        assert!(!is_reply(to, 8, &reply), "another sequence");
        assert!(!is_reply(to, 7, &reply[..6]), "cut short");
    }

    #[test]
    fn echo_and_transfer_over_loopback() {
        if !root_or_skip("echo_and_transfer_over_loopback") {
            return;
        }
        let netns = NamedNetns::create("peers").unwrap();
        for address in ["127.0.0.1", "::1"] {
            let address = address.parse().unwrap();
            let pinged = ping(&netns, address, 2, Duration::from_secs(1)).unwrap();
            assert!(pinged.complete(), "{pinged:?}");
            let moved = tcp_echo(&netns, &netns, address, 300_001).unwrap();
            assert_eq!(moved.bytes, 300_001);
        }
        let unroutable = "10.9.9.9".parse().unwrap();
        assert!(ping(&netns, unroutable, 1, Duration::from_millis(1)).is_err());
    }
}

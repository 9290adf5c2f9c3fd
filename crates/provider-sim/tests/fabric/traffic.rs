//! Ordinary programs over the fabric: ping, and TCP with unsegmented frames both ways.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use provider_sim::fabric::counters::Lost;
use socket2::{Domain, Protocol, Socket, Type};
use spiderpool_netops::netns::Netns;

use crate::lab::{Lab, Tagger, root_or_skip};

const TRANSFER_LEN: usize = 8 << 20;
const MTU_FRAME_LEN: usize = 1514;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ping_and_tcp_pass_with_their_offloads() {
    if !root_or_skip("ping_and_tcp_pass_with_their_offloads") {
        return;
    }
    let lab = Lab::new().await;
    let tagger = Tagger::start(&lab.wires, 100);
    exchange(&lab.wires.pod, &lab.wires.gateway).await;
    let longest = tagger.longest();
    assert!(longest > MTU_FRAME_LEN, "no unsegmented frame: {longest}");
    check_counters(&lab);
}

/// Nothing was dropped, and nothing lost that a bigger buffer would not have saved.
fn check_counters(lab: &Lab) {
    let counters = lab.running.fabric.counters();
    assert_eq!(counters.dropped, 0, "{:?}", counters.recent);
    assert_eq!(
        counters.lost[&Lost::TooLong] + counters.lost[&Lost::Refused],
        0
    );
}

/// Pings and transfers, both families, both directions.
async fn exchange(pod: &Netns, gateway: &Netns) {
    let (pod, gateway) = (pod.clone(), gateway.clone());
    let worked = tokio::task::spawn_blocking(move || {
        for (pod_ip, gateway_ip) in [("172.16.0.10", "172.16.0.1"), ("fd00:16::a", "fd00:16::1")] {
            ping(&pod, ip(gateway_ip));
            ping(&gateway, ip(pod_ip));
            transfer(&pod, &gateway, ip(gateway_ip));
            transfer(&gateway, &pod, ip(pod_ip));
        }
    });
    worked.await.unwrap();
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// One echo request and its reply; retries while neighbours are being found.
fn ping(from: &Netns, to: IpAddr) {
    let (domain, protocol, request, reply) = match to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, 8, 0),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, 128, 129),
    };
    let open = || Socket::new(domain, Type::RAW, Some(protocol)).unwrap();
    let mut socket = from.run(open).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    // IPv4 checksum by hand: type << 8 + identifier 0x5350 + sequence 1, no carry. IPv6: kernel.
    let sum = !(u16::from_be_bytes([request, 0]) + 0x5350 + 1);
    let [high, low] = if to.is_ipv4() {
        sum.to_be_bytes()
    } else {
        [0, 0]
    };
    let echo = [request, 0, high, low, 0x53, 0x50, 0, 1];
    for _ in 0..5 {
        socket
            .send_to(&echo, &SocketAddr::new(to, 0).into())
            .unwrap();
        let mut buffer = [0; 256];
        // Raw sockets see every ICMP packet, neighbour discovery included; IPv4 with its header.
        while let Ok(len) = socket.read(&mut buffer) {
            let packet = &buffer[if to.is_ipv4() { 20 } else { 0 }..len];
            if packet[0] == reply && packet[4..] == echo[4..] {
                return;
            }
        }
    }
    panic!("no echo reply from {to} to {from}");
}

/// Sends 8 MiB from a client in one namespace to a server in the other and compares them.
fn transfer(client: &Netns, server: &Netns, to: IpAddr) {
    let listener = server.run(|| TcpListener::bind((to, 0)).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let receiver = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let mut bytes = Vec::with_capacity(TRANSFER_LEN);
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let sent: Vec<u8> = (0..=250).cycle().take(TRANSFER_LEN).collect();
    client
        .run(|| {
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10)).unwrap();
            stream
                .set_write_timeout(Some(Duration::from_secs(10)))
                .unwrap();
            stream.write_all(&sent).unwrap();
        })
        .unwrap();
    assert!(receiver.join().unwrap() == sent, "bytes to {to} differ");
}

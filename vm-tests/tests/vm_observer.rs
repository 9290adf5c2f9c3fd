//! The observer on real VLAN links: counters beside the Pod's own, forged frames, the agent's
//! death.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "functions that tests share fail as tests do"
)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use serde_json::Value;
use spiderpool_api::observer_v1::{Attach, SubEniReport};
use spiderpool_netops::rtnl::LinkCounters;
use vm_tests::lab::forge::{FOREIGN_IP, FOREIGN_MAC, Forgery};
use vm_tests::lab::layout::{GATEWAY_V4, GATEWAY_V6};
use vm_tests::lab::{Cloud, LabSpec, Node, Pod, Stack, leaks, observer, peers, wait};

const LIMIT: Duration = Duration::from_secs(20);
const BYTES: u64 = 4 * 1024 * 1024;
/// Datagrams to each gateway address; with what the fabric brings, 100,000 frames in all.
const DATAGRAMS: usize = 50_000;

/// Waits until both have counted the same; frames under way have been seen by one of them.
fn equal(node: &Node, pod: &Pod) -> (SubEniReport, LinkCounters) {
    let counted = wait::until(LIMIT, "equal counters", || {
        let seen = observer::of_pod(node, pod)?.unwrap();
        let link = observer::of_link(pod)?;
        Ok(observer::agree(&seen, &link).then_some((seen, link)))
    });
    counted.unwrap_or_else(|error| {
        let (seen, link) = (observer::of_pod(node, pod), observer::of_link(pod));
        panic!("{error:#}\n{seen:#?}\n{link:#?}")
    })
}

fn datagrams(pod: &Pod, to: IpAddr) {
    let sent = pod.netns().run(|| -> std::io::Result<()> {
        let any: IpAddr = match to {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        for round in 0..DATAGRAMS {
            let payload = vec![0; 20 + round % 100];
            match socket.send_to(&payload, SocketAddr::new(to, 9)) {
                // Nobody listens on the discard port, and the gateway says so now and then.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
                sent => drop(sent?),
            }
        }
        Ok(())
    });
    sent.unwrap().unwrap();
}

fn mixed_traffic(cloud: &Cloud, pod: &Pod) {
    for gateway in [IpAddr::from(GATEWAY_V4), GATEWAY_V6.into()] {
        let ping = peers::ping(pod.netns(), gateway, 3, LIMIT).unwrap();
        assert!(ping.complete(), "{gateway}: {ping:?}");
        peers::tcp_echo(pod.netns(), &cloud.gateway, gateway, BYTES).unwrap();
        datagrams(pod, gateway);
    }
}

#[test]
#[ignore = "vm level"]
fn counters_equal_those_of_the_pods_link_and_go_on_after_a_kill() {
    let mut cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let pod = cloud.pod("counted").unwrap();
    let conf = cloud.node(0).unwrap().conf(Stack::Dual);
    pod.attach(cloud.node(0).unwrap(), &conf).unwrap();
    let node = cloud.node(0).unwrap();
    let nic = observer::report(node).unwrap().nics[0].clone();
    assert_ne!(nic.attach, Attach::None, "{nic:?}");
    equal(node, &pod);
    mixed_traffic(&cloud, &pod);
    let (seen, link) = equal(node, &pod);
    assert!(link.tx_frames + link.rx_frames >= 100_000, "{link:?}");
    assert!(seen.counters.tx_packets >= seen.counters.tx_frames);
    assert_eq!((seen.state.as_str(), seen.drops), ("active", 0));
    assert!(seen.neighbor["tx"]["arp_request"] >= 1, "{seen:?}");
    let verified = observer::ctl(node, "verify").unwrap();
    assert_eq!(verified.code, Some(0), "{}", verified.output);

    // Programs and maps outlive the agent, and the next one goes on with them.
    cloud.nodes[0].kill_agent().unwrap();
    let ping = peers::ping(pod.netns(), GATEWAY_V4.into(), 3, LIMIT).unwrap();
    assert!(ping.complete());
    cloud.nodes[0].start_agent().unwrap();
    let node = cloud.node(0).unwrap();
    let (after, _) = equal(node, &pod);
    assert!(after.counters.tx_frames >= seen.counters.tx_frames + 3);

    pod.release(node, &conf).unwrap();
    assert_eq!(observer::of_pod(node, &pod).unwrap(), None);
    let leaked = leaks::find(&cloud, &[&pod]).unwrap();
    assert_eq!(leaked, Vec::<String>::new());
}

/// Kind, what was observed and how often, once three are complete: events come by another way
/// than counters.
fn findings(node: &Node) -> Vec<(String, String, Option<u64>)> {
    let found = wait::until(LIMIT, "three findings with what was observed", || {
        let verified = observer::ctl(node, "verify")?;
        let findings = verified.output.as_array().cloned().unwrap_or_default();
        let complete = findings
            .iter()
            .filter(|found| found["observed"].is_string());
        let done = complete.count() == 3 && verified.code == Some(1);
        Ok(done.then_some(findings))
    });
    let row = |found: &Value| {
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        (text("kind"), text("observed"), found["count"].as_u64())
    };
    let mut rows: Vec<_> = found.unwrap().iter().map(row).collect();
    rows.sort();
    rows
}

/// Messages of the Warnings about frames, by kind.
fn mismatches(node: &Node) -> anyhow::Result<Vec<String>> {
    let events = node.api()?.list("/api/v1/events")?;
    let told = events
        .iter()
        .filter(|event| event["reason"] == "SubENIMismatch");
    let mut told: Vec<String> = told
        .filter_map(|event| event["message"].as_str().map(str::to_owned))
        .collect();
    told.sort_by_key(|message| message.split_once(": ").map(|(_, rest)| rest.to_owned()));
    Ok(told)
}

#[test]
#[ignore = "vm level"]
fn forged_frames_are_caught_by_kind_and_dropped_by_the_fabric() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let (node, pod) = (cloud.node(0).unwrap(), cloud.pod("forger").unwrap());
    let conf = node.conf(Stack::V4);
    pod.attach(node, &conf).unwrap();
    let dropped = cloud.fabric.counts().unwrap().dropped;
    for forgery in Forgery::ALL {
        forgery.send(&pod).unwrap();
    }
    wait::until(LIMIT, "three drops", || {
        Ok((cloud.fabric.counts()?.dropped >= dropped + 3).then_some(()))
    })
    .unwrap();
    let (forged, ip) = (FOREIGN_MAC.to_string(), FOREIGN_IP.to_string());
    let wanted = [
        ("arp_spa".to_owned(), ip.clone(), Some(1)),
        ("src_ip4".to_owned(), ip, Some(1)),
        ("src_mac".to_owned(), forged, Some(1)),
    ];
    assert_eq!(findings(node), wanted);
    let rows = observer::ctl(node, "stats").unwrap();
    assert_eq!(rows.output[0]["mismatch"]["src_mac"], 1, "{}", rows.output);
    // The Pod's own interface let all of them through.
    let dropped = &rows.output[0]["dropped"];
    assert_eq!(dropped["tx"]["device"], 0, "{}", rows.output);
    let told = wait::until(LIMIT, "a Warning for each kind", || {
        let told = mismatches(node)?;
        Ok((told.len() == 3).then_some(told))
    });
    for (message, kind) in told.unwrap().iter().zip(["arp_spa", "src_ip4", "src_mac"]) {
        assert!(message.contains(kind), "{message}");
    }
    pod.release(node, &conf).unwrap();
}

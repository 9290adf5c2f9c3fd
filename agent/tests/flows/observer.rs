//! What the agent adds to its observer: frames that the Pods' interfaces dropped, and Warnings on the
//! Pods whose frames are not theirs.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use serde_json::json;
use spiderpool_agent::agent::{Agent, Seams, Settings};
use spiderpool_agent::clock::{FakeClock, Jitter};
use spiderpool_agent::nic::Drops;
use spiderpool_agent::observer::{Entry, Observed, ObserverOps, Place, Wanted};
use spiderpool_api::observer_v1::{DetachReport, ObserverReport, VerifyReport};
use spiderpool_api::value::{IfName, Mac};
use spiderpool_ebpf_common::kind::{Direction, Kind};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::world::{NODE, Request, World, mac_of};

/// Shows one sub-ENI and tells what the test says.
struct Script {
    report: ObserverReport,
    events: broadcast::Sender<Observed>,
}

impl ObserverOps for Script {
    fn prepare(&self, _entry: Entry, _ifindex: u32) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }

    fn activate<'a>(&'a self, _: &'a Place, _: &'a [(IpAddr, Mac)]) -> BoxFuture<'a, ()> {
        ready(()).boxed()
    }

    fn draining<'a>(&'a self, _place: &'a Place) -> BoxFuture<'a, ()> {
        ready(()).boxed()
    }

    fn remove<'a>(&'a self, _place: &'a Place) -> BoxFuture<'a, ()> {
        ready(()).boxed()
    }

    fn reconcile(&self, _nics: Vec<IfName>, _wanted: Wanted) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }

    fn report(&self) -> BoxFuture<'_, ObserverReport> {
        ready(self.report.clone()).boxed()
    }

    fn verify(&self) -> BoxFuture<'_, VerifyReport> {
        unreachable!("nobody asks")
    }

    fn events(&self) -> broadcast::Receiver<Observed> {
        self.events.subscribe()
    }

    fn detach(&self) -> BoxFuture<'_, DetachReport> {
        unreachable!("nobody asks")
    }
}

fn report() -> ObserverReport {
    let row = json!({"nic": "eth1", "vlan": 301, "mac": mac_of(301), "ipv4": "172.91.0.100",
        "ipv6": null, "interface": "net1", "pod_namespace": "shop", "pod_name": "web-0",
        "pool": "p4", "state": "active", "drops": 1, "mismatch": {}, "neighbor": {},
        "rx_frames": 1, "rx_packets": 1, "rx_bytes": 1,
        "tx_frames": 1, "tx_packets": 1, "tx_bytes": 1});
    let report = json!({"nics": [], "subeni": [row], "unknown": [], "events_lost": 0});
    serde_json::from_value(report).unwrap()
}

/// An agent with that observer, over what a world has.
fn agent(world: &World) -> (Arc<Agent>, broadcast::Sender<Observed>) {
    let (events, _) = broadcast::channel(16);
    let observer = Script {
        report: report(),
        events: events.clone(),
    };
    let seams = Seams {
        store: Arc::clone(&world.store) as _,
        nic: Arc::clone(&world.nic) as _,
        provider: None,
        observer: Arc::new(observer),
        clock: Arc::new(FakeClock::default()),
        jitter: Arc::new(Jitter::from_seed(1)),
    };
    let agent = Agent::new(Settings::new(NODE), seams, &world.paths);
    (Arc::new(agent.unwrap()), events)
}

async fn attached() -> World {
    let world = World::new();
    world.prewarm_pool("p4", "172.91.0.0/24", &[("172.91.0.100", 301)]);
    world.pod("shop/web-0", "u-1");
    let request = Request::eni("c-1", "/ns/a", "net1").pod("shop/web-0", "u-1");
    world.add(&request).await.unwrap();
    world
}

#[tokio::test]
async fn frames_that_the_pods_interface_dropped_are_shown_while_it_is_there() {
    let world = attached().await;
    world.nic.set_drops(Drops { rx: 7, tx: 0 });
    let (agent, _events) = agent(&world);
    let drops = async || {
        let text = agent.metrics_text().await.unwrap();
        let lines = text.lines().filter_map(|line| {
            let rest = line.strip_prefix("spiderpool_subeni_drops_total{")?;
            rest.split_once(r#"pod_name="web-0","#)
                .map(|(_, rest)| rest.to_owned())
        });
        let mut lines: Vec<String> = lines.collect();
        lines.sort();
        lines
    };
    assert_eq!(
        drops().await,
        [
            r#"direction="rx",reason="device"} 7"#,
            r#"direction="tx",reason="device"} 0"#
        ]
    );
    // The namespace is gone, or another sandbox has its name: nothing is made up.
    world.nic.remove_netns("/ns/a");
    assert_eq!(drops().await, Vec::<String>::new());
}

fn observed(kind: Kind, uid: &str) -> Observed {
    let place = Place {
        nic: "eth1".parse().unwrap(),
        vlan: 301.try_into().unwrap(),
        container_id: "c-1".into(),
    };
    Observed {
        ns: 1,
        nic: place.nic.clone(),
        vlan: 301,
        direction: Direction::Tx,
        kind,
        expected: Some("172.91.0.100".into()),
        observed: "10.9.9.9".into(),
        entry: Some(Entry {
            place,
            mac: mac_of(301).parse().unwrap(),
            ipv4: Some([172, 91, 0, 100].into()),
            ipv6: None,
            gateways: vec![],
            pools: vec!["p4".into()],
            pod_uid: uid.into(),
            pod_namespace: "shop".into(),
            pod_name: "web-0".into(),
            ifname: "net1".parse().unwrap(),
        }),
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_told_of_each_kind_once_in_ten_minutes() {
    let world = attached().await;
    let (agent, events) = agent(&world);
    let stop = CancellationToken::new();
    let telling = tokio::spawn(Arc::clone(&agent).tell_mismatches(stop.clone()));
    let told = async |observed: &[(Kind, &str)]| {
        let before = world.events().await.len();
        for (kind, uid) in observed {
            events.send(self::observed(*kind, uid)).unwrap();
        }
        let events = world.events().await;
        let new = events[before..].iter();
        new.map(|event| (event.uid.clone(), event.reason, event.message.clone()))
            .collect::<Vec<_>>()
    };
    let row = |uid: &str, kind: &str| {
        let text = format!(
            "net1 sent a frame that the cloud does not expect: {kind} is 10.9.9.9, the sub-ENI has 172.91.0.100 (NIC eth1, VLAN 301)"
        );
        (uid.to_owned(), "SubENIMismatch", text)
    };
    let (ip, arp) = (Kind::SrcIp4, Kind::ArpSpa);
    assert_eq!(
        told(&[(ip, "u-1"), (ip, "u-1"), (arp, "u-1"), (ip, "u-2")]).await,
        [
            row("u-1", "src_ip4"),
            row("u-1", "arp_spa"),
            row("u-2", "src_ip4")
        ]
    );
    tokio::time::advance(Duration::from_secs(599)).await;
    assert_eq!(told(&[(ip, "u-1")]).await, []);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(told(&[(ip, "u-1")]).await, [row("u-1", "src_ip4")]);
    stop.cancel();
    telling.await.unwrap();
}

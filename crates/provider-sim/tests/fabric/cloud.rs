//! The fabric behind the provider: what the cloud binds passes, and nothing else, from the moment
//! of the answer on.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use provider_sim::admin::AdminAddress;
use provider_sim::fabric::counters::Reason;
use provider_sim::fabric::frame::{Content, FrameView};
use provider_sim::fabric::run::RewireError;
use provider_sim::faults::Fault;
use provider_sim::serve::{ServeArguments, Serving};
use provider_sim::service::{Service, World};
use provider_sim::topology::BindingState;
use serde_json::{Value, json};
use spiderpool_api::provider::AllocateRequest;
use spiderpool_api::value::Mac;
use spiderpool_iaas::check::Bound;
use spiderpool_iaas::client::{Client, Endpoint};
use spiderpool_iaas::provider::Provider;
use spiderpool_netops::arp::ArpPacket;
use spiderpool_netops::packet::AsyncRaw;

use crate::lab::{DEADLINE, GATEWAY, PARENT, TOPOLOGY, Wires, expect_frame, root_or_skip};
use crate::rules::{arp_frame, send};

const POD: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 50);

/// The provider with a global pool, its fabric on the wires, and a client.
async fn start(wires: &Wires) -> (Serving, Client) {
    let path = |name: &str| wires.dir().join(name);
    let pools = "pools: [{name: g, subnet: 172.16.0.0/24, ips: [172.16.0.50-172.16.0.59]}]\n";
    std::fs::write(
        path("t.yaml"),
        format!("{TOPOLOGY}{pools}answerDelayMs: 0\npacketLog: 16\n"),
    )
    .unwrap();
    let quick = "{budgetCheck: false, latency: {createMs: 1, attachMs: 1, detachMs: 1}}";
    std::fs::write(path("s.yaml"), quick).unwrap();
    let arguments = ServeArguments {
        topology: path("t.yaml"),
        kubeconfig: None,
        listen: "127.0.0.1:0".parse().unwrap(),
        tls_listen: None,
        tls_ca_file: None,
        tls_secret: None,
        tls_name: Vec::new(),
        admin: AdminAddress::Off,
        fabric: true,
        fabric_netns: Some(path("fabric")),
        settings: Some(path("s.yaml")),
        state: None,
        ready_file: None,
    };
    let serving = Serving::start(&arguments).await.unwrap();
    let endpoint = Endpoint::parse(&format!("http://{}", serving.contract)).unwrap();
    (serving, Client::new(endpoint, DEADLINE).unwrap())
}

async fn allocate(client: &Client, node: &str, parent: Mac) -> Bound {
    let request: AllocateRequest = serde_json::from_value(json!({ "nodeName": node,
        "subEniRequests": [{ "parentNicMac": parent, "subnet": "172.16.0.0/24",
            "ipv4Address": POD, "ipv4PoolName": "g" }] }))
    .unwrap();
    client.allocate(&request, None).await.unwrap()[0]
}

/// Asks the gateway for its MAC as the Pod would.
fn ask(socket: &AsyncRaw, bound: &Bound) {
    let mac = bound.mac.unwrap();
    let packet = ArpPacket::request(mac, POD, Ipv4Addr::new(172, 16, 0, 1));
    send(
        socket,
        bound.vlan.map(|vlan| vlan.get()),
        &arp_frame(mac, packet),
    );
}

async fn expect_answer(socket: &AsyncRaw, bound: &Bound) {
    let vlan = bound.vlan.map(|vlan| vlan.get());
    expect_frame(socket, "ARP answer", |received, frame| {
        let content = FrameView::parse(frame).map(|view| view.content);
        let answered = matches!(content, Some(Content::Arp(packet)) if packet.sha == GATEWAY && packet.tpa == POD);
        answered && received.tag.map(|tag| tag.id()) == vlan
    })
    .await;
}

/// Waits until a frame was dropped for this reason and none for another.
async fn expect_drop(service: &Service, reason: Reason, count: u64) {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let drops = service.fabric.as_ref().unwrap().counters().drops;
        let drops: BTreeMap<_, _> = drops.into_iter().filter(|(_, count)| *count > 0).collect();
        if drops.get(&reason) == Some(&count) {
            return;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "no {reason:?}: {drops:?}"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_pass_where_the_cloud_has_bound_them() {
    if !root_or_skip("frames_pass_where_the_cloud_has_bound_them") {
        return;
    }
    let wires = Wires::new().await;
    let (n1, n2) = (wires.open("n1"), wires.open("n2"));
    let (serving, client) = start(&wires).await;
    let service = Arc::clone(&serving.service);
    let here = allocate(&client, "n1", PARENT[0]).await;
    ask(&n1, &here);
    expect_answer(&n1, &here).await;
    // bound, and yet held back
    let rules: Vec<Fault> =
        serde_json::from_value(json!([{ "kind": "no-forward", "match": { "ip": POD } }])).unwrap();
    service.change(|world| world.faults.replace(rules));
    ask(&n1, &here);
    expect_drop(&service, Reason::Unbound, 1).await;
    service.change(|world| world.faults.replace(Vec::new()));
    ask(&n1, &here);
    expect_answer(&n1, &here).await;
    // moved: the old place is shut with the answer
    let there = allocate(&client, "n2", PARENT[1]).await;
    ask(&n2, &there);
    expect_answer(&n2, &there).await;
    ask(&n1, &here);
    expect_drop(&service, Reason::UnknownVlan, 1).await;
    assert_eq!(service.audit().await, Vec::<String>::new());
}

/// What the packet log says of the frames of one address, as (fate, reason).
fn fates(service: &Service) -> Vec<(String, String)> {
    let packets = service.fabric.as_ref().unwrap().packets();
    let packets = serde_json::to_value(packets).unwrap();
    let packets = packets.as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mine = packets
        .iter()
        .filter(|packet| packet["srcIp"] == POD.to_string());
    mine.map(|packet| (text(&packet["fate"]), text(&packet["detail"])))
        .collect()
}

/// The fabric forwards later than the cloud says bound, tells so, and keeps its wires.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_pass_later_than_bound_and_are_logged() {
    if !root_or_skip("frames_pass_later_than_bound_and_are_logged") {
        return;
    }
    let wires = Wires::new().await;
    let n1 = wires.open("n1");
    let (serving, client) = start(&wires).await;
    let service = Arc::clone(&serving.service);
    let late = |time| service.with(|world| world.settings.forwarding_delay_ms = time);
    late(86_400_000);
    let here = allocate(&client, "n1", PARENT[0]).await;
    ask(&n1, &here);
    expect_drop(&service, Reason::Unbound, 1).await;
    assert_eq!(
        fates(&service),
        [("dropped".to_owned(), "unbound".to_owned())]
    );
    late(1);
    let release =
        json!({ "nodeName": "n1", "subnet": "172.16.0.0/24", "ipAddress": POD, "poolName": "g" });
    let release = serde_json::from_value(release).unwrap();
    client.release(&release, None).await.unwrap();
    let here = allocate(&client, "n1", PARENT[0]).await;
    let deadline = tokio::time::Instant::now() + DEADLINE;
    let state = |world: &mut World| {
        let mine = world
            .forwarded()
            .into_iter()
            .find(|of| Some(of.mac) == here.mac);
        mine.map(|of| of.state)
    };
    while service.with(state) != Some(BindingState::Bound) {
        assert!(tokio::time::Instant::now() < deadline, "never forwarded");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    ask(&n1, &here);
    expect_answer(&n1, &here).await;
    assert_eq!(fates(&service).last().unwrap().0, "answered");
    let fabric = service.fabric.as_ref().unwrap();
    let before = fabric.view().topology.bindings;
    let mut other = service.with(|world| world.topology.clone());
    other.parents[0].sub_eni_limit = 7;
    assert_eq!(fabric.rewire(&other), Ok(()));
    assert_eq!(fabric.view().topology.bindings, before, "they stay");
    other.parents[0].ifname = "elsewhere".parse().unwrap();
    assert_eq!(fabric.rewire(&other), Err(RewireError::Wires));
}

//! Case B09 with live processes: two pools overlap behind admission's back, and Pods ask on two nodes
//! while the leader dies.

use std::collections::BTreeSet;
use std::thread;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use vm_tests::lab::api_client::POOLS;

use crate::rig::Rig;
use crate::{add, assert_allowed};

const PODS: usize = 30;
const NODES: [&str; 2] = ["n1", "n2"];
/// Each has room for all Pods; they share 20 addresses. By its name the loser would be asked first.
const WINNER: (&str, &str) = ("r-2", "10.36.0.10-10.36.0.49");
const LOSER: (&str, &str) = ("r-1", "10.36.0.30-10.36.0.69");

fn create(rig: &Rig, (name, ips): (&str, &str)) -> String {
    let pool = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
        "metadata": {"name": name},
        "spec": {"subnet": "10.36.0.0/24", "ips": [ips], "ipVersion": 4, "default": true}});
    let made = rig.api.create(POOLS, &pool).unwrap();
    let created = &made["metadata"]["creationTimestamp"];
    created.as_str().unwrap().to_owned()
}

/// No webhook is asked here, so both stand, as when two replicas judge at once. Winner and loser.
fn make_pools(rig: &Rig) -> [&'static str; 2] {
    let first = create(rig, WINNER);
    // Within one second of the API's clock the name would decide.
    rig.until("a pool that was made later", || {
        let later = create(rig, LOSER) > first;
        if !later {
            rig.api.delete(&format!("{POOLS}/{}", LOSER.0)).unwrap();
        }
        later
    });
    [WINNER.0, LOSER.0]
}

/// The address that an ADD gave.
fn address(rig: &Rig, node: &str, pod: &str, uid: &str) -> String {
    let outcome = add(rig, node, pod, uid);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let result: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let address = result["ips"][0]["address"].as_str().unwrap();
    address.split_once('/').unwrap().0.to_owned()
}

#[test]
#[ignore = "api level"]
fn b09_thirty_pods_get_thirty_addresses_of_the_winner_while_the_leader_dies() {
    let mut rig = Rig::start();
    let [winner, loser] = make_pools(&rig);
    NODES.iter().for_each(|node| rig.start_agent(node));
    rig.start_controller("c-0", &[]);
    rig.until("c-0 leads", || rig.leader() == "c-0");
    rig.start_controller("c-1", &[]);
    for node in NODES {
        let socket = rig.run_dir(node).join("spiderpool.sock");
        rig.until("an agent that listens", || socket.exists());
    }
    let pods: Vec<(&str, String, String)> = (0..PODS)
        .map(|index| {
            let (node, name) = (NODES[index % NODES.len()], format!("web-{index}"));
            let uid = rig.create_pod(&name, node, 1, None);
            (node, name, uid)
        })
        .collect();
    let (first, second) = pods.split_at(PODS / 2);
    let ask = |pods: &[(&str, String, String)]| -> Vec<String> {
        thread::scope(|scope| {
            let asked: Vec<_> = pods
                .iter()
                .map(|(node, name, uid)| scope.spawn(|| address(&rig, node, name, uid)))
                .collect();
            asked.into_iter().map(|one| one.join().unwrap()).collect()
        })
    };
    let mut given = ask(first);
    // The leader dies while the others ask.
    let pid = rig.pid("c-0");
    given.extend(thread::scope(|scope| {
        let rest = scope.spawn(|| ask(second));
        kill(pid, Signal::SIGKILL).unwrap();
        rest.join().unwrap()
    }));
    let distinct: BTreeSet<&String> = given.iter().collect();
    assert_eq!(distinct.len(), PODS, "{given:?}");
    let recorded: Vec<String> = rig.records(winner).keys().cloned().collect();
    assert_eq!(recorded.iter().collect::<BTreeSet<_>>(), distinct);
    rig.until("c-1 leads", || rig.leader() == "c-1");
    rig.until("the loser's owner is told", || {
        let events = rig.api.list("/api/v1/events").unwrap();
        let told = |event: &Value| {
            event["reason"] == "IPPoolOverlap" && event["involvedObject"]["name"] == loser
        };
        events.iter().any(told)
    });
    assert!(rig.records(loser).is_empty(), "{:?}", rig.records(loser));
    assert_allowed(&rig, &["c-1", "agent-n1", "agent-n2"]);
}

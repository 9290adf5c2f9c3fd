//! The agent of a cluster's node against a real kube-apiserver: what it writes, what it makes of
//! others' writes, and what becomes of calls when either of the two dies.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "functions that tests share fail as tests do"
)]

mod rig;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use vm_tests::lab::api_client::POOLS;
use vm_tests::lab::cni_call::CniOutcome;
use vm_tests::lab::wait;

use rig::{ENDPOINTS, NODE, PODS, Rig, SOON, address};

/// "Try again later" of the CNI specification.
const TRY_AGAIN: u32 = 11;
/// Watches of 3 s are dead after 8 s; a request on a dead connection of the agent's takes 15 s.
const AFTER_SILENCE: Duration = Duration::from_secs(75);
/// What the plugin gives the agent, and a bit.
const ADD_LIMIT: Duration = Duration::from_secs(105);

#[test]
#[ignore = "api level"]
fn a_pod_gets_an_address_that_is_written_down_and_given_back() {
    let rig = Rig::start(12);
    let uid = rig.create_pod("web");
    let first = rig.call("ADD", "web", &uid);
    assert_eq!(address(&first), "10.81.0.10/24");
    assert_eq!(
        rig.records("plain"),
        json!({"10.81.0.10": {"pod": "default/web", "podUid": uid, "nic": "eth0"}})
    );
    let endpoint = rig.endpoint("web").unwrap();
    let meta = &endpoint["metadata"];
    assert_eq!(meta["finalizers"], json!(["spiderpool.spidernet.io"]));
    assert_eq!(meta["labels"]["spiderpool.spidernet.io/node"], NODE);
    let owner = &meta["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["uid"]),
        (&json!("Pod"), &json!(uid))
    );
    // It lets the garbage collector find it and makes the Pod's deletion wait for nothing.
    assert_eq!(owner.get("controller"), None, "{owner}");
    assert_eq!(owner.get("blockOwnerDeletion"), None, "{owner}");
    let nic = &endpoint["status"]["current"]["ips"][0];
    assert_eq!(nic["ipv4"], "10.81.0.10/24");
    assert_eq!(nic["ipv4Pool"], "plain");
    // The definition makes the node selectable.
    let of_node = |node: &str| {
        let path = format!("{ENDPOINTS}?fieldSelector=status.current.node%3D{node}");
        rig.api.list(&path).unwrap().len()
    };
    assert_eq!((of_node(NODE), of_node("n2")), (1, 0));

    // The runtime asks again: the same answer, nothing more taken.
    let second = rig.call("ADD", "web", &uid);
    assert_eq!(second.stdout, first.stdout);
    assert_eq!(rig.records("plain").as_object().unwrap().len(), 1);
    rig.check("web", &uid, &first).silent().unwrap();

    // Marked for deletion, it runs on until its runtime has torn it down.
    rig.end_pod("web");
    rig.call("DEL", "web", &uid).silent().unwrap();
    let pool = rig.api.pool("plain").unwrap();
    assert_eq!(pool["status"]["allocatedIPCount"], 0);
    assert_eq!(pool["status"].get("allocatedIPs"), None);
    assert_eq!(rig.endpoint("web"), None);
    rig.call("DEL", "web", &uid).silent().unwrap();
    rig.remove_pod("web");

    // The next Pod of that name is another one.
    let uid = rig.create_pod("web");
    assert_eq!(address(&rig.call("ADD", "web", &uid)), "10.81.0.10/24");
    assert_eq!(rig.records("plain")["10.81.0.10"]["podUid"], uid);
}

/// Writes other fields of the pool's status as fast as it can while `work` runs; the last value.
fn while_others_write(rig: &Rig, work: impl FnOnce()) -> u64 {
    let path = format!("{POOLS}/plain/status");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut value = 0;
            while !done.load(Ordering::Relaxed) {
                value += 1;
                let patch = json!({"status": {"totalIPCount": value,
                    "ipMetaData": {"metadata": "{}", "readyIPCount": value}}});
                rig.api.merge(&path, &patch).unwrap();
            }
            value
        });
        work();
        done.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    })
}

/// Pool writes of ADDs and of DELs that the API server answered with 409.
const ADD_CONFLICTS: &str = "spiderpool_ipam_allocation_update_ippool_conflict_counts_total";
const DEL_CONFLICTS: &str = "spiderpool_ipam_release_update_ippool_conflict_counts_total";
/// Pods of one go.
const AT_ONCE: usize = 12;

#[test]
#[ignore = "api level"]
fn a_foreign_writer_of_the_status_costs_retries_and_nothing_else() {
    let rig = Rig::start(210);
    let mut pods = Vec::new();
    let mut given = BTreeSet::new();
    let last = while_others_write(&rig, || {
        // The first go all but surely meets a conflict; only with one is anything shown.
        wait::until(SOON, "a 409 at an ADD", || {
            let first = pods.len();
            for n in first..first + AT_ONCE {
                let name = format!("web-{n}");
                let uid = rig.create_pod(&name);
                pods.push((name, uid));
            }
            given.extend(rig.call_at_once("ADD", &pods[first..]).iter().map(address));
            Ok((rig.counter(ADD_CONFLICTS) > 0.0).then_some(()))
        })
        .unwrap();
    });
    assert_eq!(given.len(), pods.len(), "{given:?}");
    let pool = rig.api.pool("plain").unwrap();
    assert_eq!(pool["status"]["totalIPCount"], last);
    assert_eq!(pool["status"]["ipMetaData"]["readyIPCount"], last);
    assert_eq!(pool["status"]["allocatedIPCount"], pods.len());
    let records = rig.records("plain");
    let records = records.as_object().unwrap().values();
    let holders: BTreeSet<_> = records.map(|r| r["podUid"].as_str().unwrap()).collect();
    assert_eq!(holders, pods.iter().map(|(_, uid)| uid.as_str()).collect());

    for (name, _) in &pods {
        rig.end_pod(name);
    }
    let mut left = pods.as_slice();
    let last = while_others_write(&rig, || {
        // One by one: each is a write that may meet a conflict.
        while let Some((first, rest)) = left.split_first() {
            if rig.counter(DEL_CONFLICTS) > 0.0 {
                break;
            }
            rig.call("DEL", &first.0, &first.1).silent().unwrap();
            left = rest;
        }
        for outcome in rig.call_at_once("DEL", left) {
            outcome.silent().unwrap();
        }
    });
    assert!(rig.counter(DEL_CONFLICTS) > 0.0, "no DEL met a conflict");
    assert_eq!(rig.records("plain"), json!({}));
    assert_eq!(
        rig.api.pool("plain").unwrap()["status"]["totalIPCount"],
        last
    );
    let endpoints = rig.api.list(ENDPOINTS).unwrap();
    assert!(endpoints.is_empty(), "{endpoints:?}");
}

#[test]
#[ignore = "api level"]
fn the_pool_cache_follows_what_others_write() {
    let rig = Rig::start(12);
    let path = format!("{POOLS}/plain");
    // Another node has taken the first address.
    let taken = json!({"10.81.0.10": {"pod": "default/far", "podUid": "u-far"}}).to_string();
    let status = json!({"status": {"allocatedIPs": taken, "allocatedIPCount": 1}});
    rig.api.merge(&format!("{path}/status"), &status).unwrap();
    let first = rig.create_pod("first");
    assert_eq!(address(&rig.call("ADD", "first", &first)), "10.81.0.11/24");

    rig.api
        .merge(&path, &json!({"spec": {"disable": true}}))
        .unwrap();
    // An ADD that was quicker than the watch has an address: the next one is another Pod's.
    let mut pods = (0..).map(|n| format!("next-{n}"));
    let refused = wait::until(SOON, "a refusal by the disabled pool", || {
        let pod = pods.next().unwrap();
        let outcome = rig.call("ADD", &pod, &rig.create_pod(&pod));
        match outcome.code {
            0 => Ok(None),
            _ => outcome.error().map(Some),
        }
    })
    .unwrap();
    let said = format!("{} {}", refused.msg, refused.details);
    assert!(said.contains("plain") && said.contains("disable"), "{said}");

    rig.pool("second", 82, 10);
    let uid = rig.create_pod("second");
    wait::until(SOON, "an address of the new pool", || {
        Ok((rig.call("ADD", "second", &uid).code == 0).then_some(()))
    })
    .unwrap();
    assert_eq!(rig.records("second")["10.82.0.10"]["podUid"], uid);
}

#[test]
#[ignore = "api level"]
fn an_agent_that_was_killed_knows_what_it_gave_and_frees_what_was_deleted_meanwhile() {
    let mut rig = Rig::start(20);
    let (a, b) = (rig.create_pod("a"), rig.create_pod("b"));
    let given = rig.call("ADD", "a", &a);
    address(&rig.call("ADD", "b", &b));
    // It has started itself anew with settings for its allocator; the process is the one we know.
    let environment = std::fs::read(format!("/proc/{}/environ", rig.agent_pid())).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    assert!(environment.contains("MALLOC_ARENA_MAX=2"), "{environment}");
    rig.kill_agent();
    // Nobody answers: the plugin leaves the DEL to the next agent, and the runtime goes on.
    rig.call("DEL", "b", &b).silent().unwrap();
    rig.remove_pod("b");
    assert_eq!(rig.records("plain").as_object().unwrap().len(), 2);
    rig.start_agent();
    assert_eq!(rig.call("ADD", "a", &a).stdout, given.stdout);
    wait::until(SOON, "the replayed DEL", || {
        let records = rig.records("plain");
        // The endpoint goes after the records.
        let gone = records.as_object().unwrap().len() == 1 && rig.endpoint("b").is_none();
        Ok(gone.then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", rig.agent_log()));
    assert_eq!(rig.records("plain")["10.81.0.10"]["podUid"], a);
    rig.end_pod("a");
    rig.call("DEL", "a", &a).silent().unwrap();
    assert_eq!(rig.records("plain"), json!({}));
}

#[test]
#[ignore = "api level"]
fn an_api_server_that_dies_fails_adds_in_time_loses_no_del_and_is_found_again() {
    let mut rig = Rig::start(20);
    let (a, b) = (rig.create_pod("a"), rig.create_pod("b"));
    address(&rig.call("ADD", "a", &a));
    rig.end_pod("a");
    let agent = rig.agent_pid();
    rig.plane.kill_apiserver().unwrap();

    let begun = Instant::now();
    let refused = rig.call("ADD", "b", &b).error().unwrap();
    assert!(begun.elapsed() < ADD_LIMIT, "{:?}", begun.elapsed());
    let said = format!("{} {}", refused.msg, refused.details);
    assert_eq!(refused.code, TRY_AGAIN, "{said}");
    assert!(said.contains("the Kubernetes API cannot be used"), "{said}");
    let del = rig.call("DEL", "a", &a);

    rig.plane.start_apiserver().unwrap();
    assert_eq!(rig.records("plain")["10.81.0.10"]["podUid"], a);
    if del.code != 0 {
        // The runtime was told to come again, and does.
        assert_eq!(del.error().unwrap().code, TRY_AGAIN);
        rig.call("DEL", "a", &a).silent().unwrap();
    }
    rig.wait_until_empty("plain");
    assert_eq!(rig.endpoint("a"), None);
    wait::until(SOON, "an ADD after the outage", || {
        let outcome = rig.call("ADD", "b", &b);
        Ok((outcome.code == 0).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", rig.agent_log()));

    // The watches are back too: a new pool is seen.
    rig.pool("late", 82, 11);
    let only = json!({"metadata": {"annotations":
        {"ipam.spidernet.io/ippool": r#"{"ipv4": ["late"]}"#}}});
    let c = rig.create_pod("c");
    rig.api.merge(&format!("{}/c", PODS), &only).unwrap();
    wait::until(SOON, "an address of a pool made after the outage", || {
        let outcome = rig.call("ADD", "c", &c);
        Ok((outcome.code == 0).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", rig.agent_log()));
    assert_eq!(rig.records("late").as_object().unwrap().len(), 1);
    assert_eq!(rig.agent_pid(), agent);
}

/// What a middle box does that forgets connections: nothing is heard any more, not even an end.
#[test]
#[ignore = "api level"]
fn watches_that_die_without_a_word_are_noticed_and_opened_anew() {
    let rig = Rig::start_behind_relay(20, 3);
    address(&rig.call("ADD", "a", &rig.create_pod("a")));
    rig.forget_connections();
    rig.pool("late", 82, 11);
    let pod = json!({"metadata": {"annotations":
        {"ipam.spidernet.io/ippool": r#"{"ipv4": ["late"]}"#}}});
    let b = rig.create_pod("b");
    rig.api.merge(&format!("{PODS}/b"), &pod).unwrap();
    // Only a watch that is alive tells the agent of the pool.
    wait::until(
        AFTER_SILENCE,
        "an address of a pool made in the silence",
        || Ok((rig.call("ADD", "b", &b).code == 0).then_some(())),
    )
    .unwrap_or_else(|error| panic!("{error:#}\n{}", rig.agent_log()));
    assert_eq!(rig.records("late")["10.82.0.10"]["podUid"], b);
}

/// Nobody raised the revision of the copy: what the agent remembers is ahead of the server, which has to
/// count all the same, and not only once it has caught up.
#[test]
#[ignore = "api level"]
fn after_a_restore_of_an_older_copy_the_agent_knows_what_is_there() {
    let mut rig = Rig::start(40);
    let path = format!("{POOLS}/plain");
    rig.plane.back_up().unwrap();
    let disabled = json!({"spec": {"disable": true}});
    rig.api.merge(&path, &disabled).unwrap();
    rig.pool("lost", 83, 20);
    let uid = rig.create_pod("lost");
    let added = add_in_the_end(&rig, "lost", &uid);
    assert_eq!(address(&added), "10.83.0.10/24", "the agent follows again");
    for n in 0..200 {
        let patch = json!({"metadata": {"labels": {"n": n.to_string()}}});
        rig.api.merge(&path, &patch).unwrap();
    }
    rig.plane.restore().unwrap();
    rig.api.merge(&path, &disabled).unwrap();
    rig.pool("later", 82, 20);
    let uid = rig.create_pod("web");
    let added = add_in_the_end(&rig, "web", &uid);
    assert_eq!(address(&added), "10.82.0.10/24", "{}", rig.agent_log());
}

/// ADD until it succeeds, as kubelet tries again and again.
fn add_in_the_end(rig: &Rig, pod: &str, uid: &str) -> CniOutcome {
    let added = wait::until(SOON, "an ADD that succeeds", || {
        let outcome = rig.call("ADD", pod, uid);
        Ok((outcome.code == 0).then_some(outcome))
    });
    added.unwrap_or_else(|error| panic!("{error:#}\n{}", rig.agent_log()))
}

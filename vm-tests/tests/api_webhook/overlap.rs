//! Two replicas that each let one of two overlapping pools pass (case B09).

use std::thread;

use serde_json::{Value, json};
use vm_tests::lab::{wait, webhooks};

use crate::rig::{OURS, Rig, SOON};

const ROUNDS: usize = 20;
const EVENTS: &str = "/apis/events.k8s.io/v1/events";
/// Label by which a pool is judged by one replica alone.
const PIN: &str = "test.example/replica";

/// Each replica judges the pools that are pinned to it, and nobody else.
fn pin(rig: &Rig) {
    let path = format!("{}/{}", webhooks::VALIDATING, webhooks::NAME);
    let mut found = rig.api.get(&path).unwrap().unwrap();
    let all = found["webhooks"].as_array().unwrap().clone();
    let pools = all.iter().find(|webhook| {
        webhook["name"]
            .as_str()
            .unwrap()
            .starts_with("spiderippool.")
    });
    let pinned = rig
        .webhook_ports()
        .into_iter()
        .enumerate()
        .map(|(index, port)| {
            let mut webhook = pools.unwrap().clone();
            let url = webhook["clientConfig"]["url"].as_str().unwrap();
            let path = url.rsplit_once('/').unwrap().1;
            webhook["clientConfig"]["url"] =
                json!(format!("https://{}:{port}/{path}", webhooks::HOST));
            webhook["name"] = json!(format!("r{index}.spiderpool.spidernet.io"));
            webhook["objectSelector"] = json!({"matchLabels": {PIN: index.to_string()}});
            webhook
        });
    found["webhooks"] = Value::from(pinned.collect::<Vec<_>>());
    let written = rig
        .api
        .request("PUT", &path, "application/json", &found)
        .unwrap();
    assert_eq!(written.status, 200);
    // The API server reads it a moment later: only then is a wrong pool of the second replica refused.
    let wrong = pool("wrong", 1, 0, "10.36.0.10-10.36.0.9");
    wait::until(SOON, "a replica that judges what is pinned to it", || {
        let path = format!("{OURS}/spiderippools?dryRun=All");
        let message = rig
            .api
            .create(&path, &wrong)
            .map_or_else(|error| error.to_string(), |_| String::new());
        Ok(message.contains("r1.spiderpool.spidernet.io").then_some(()))
    })
    .unwrap();
}

fn pool(name: &str, replica: usize, round: usize, ips: &str) -> Value {
    json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
        "metadata": {"name": name, "labels": {PIN: replica.to_string(), "round": round.to_string()}},
        "spec": {"subnet": "10.36.0.0/24", "ips": [ips]}})
}

/// Answers to two creations in the same instant.
fn at_once(rig: &Rig, pools: [&Value; 2]) -> [(u16, Value); 2] {
    thread::scope(|scope| {
        let asked = pools.map(|pool| scope.spawn(|| rig.create(pool)));
        asked.map(|answer| answer.join().unwrap())
    })
}

/// The pool that a Warning says gives out nothing, among these.
fn warned(rig: &Rig, names: &[&str; 2]) -> anyhow::Result<Option<String>> {
    let events = rig.api.list(EVENTS)?;
    let of_overlap = events
        .iter()
        .filter(|event| event["reason"] == "IPPoolOverlap");
    let about = of_overlap.filter_map(|event| event["regarding"]["name"].as_str());
    let mut about = about.filter(|name| names.contains(name));
    Ok(about.next().map(str::to_owned))
}

#[test]
#[ignore = "api level"]
fn b09_of_two_overlapping_pools_at_most_one_is_usable() {
    let rig = Rig::start(2, "");
    pin(&rig);

    for round in 0..ROUNDS {
        let names = [format!("r-1-{round}"), format!("r-2-{round}")];
        let first = pool(&names[0], 0, round, "10.36.0.10-10.36.0.29");
        let second = pool(&names[1], 1, round, "10.36.0.20-10.36.0.39");
        let answers = at_once(&rig, [&first, &second]);
        let names = names.each_ref().map(String::as_str);
        let refused: Vec<_> = answers
            .iter()
            .filter(|(status, _)| *status != 201)
            .collect();
        match refused.as_slice() {
            [] => {
                let loser = wait::until(SOON, "a warning about the loser", || warned(&rig, &names));
                let created = |answer: &Value| {
                    answer["metadata"]["creationTimestamp"]
                        .as_str()
                        .unwrap()
                        .to_owned()
                };
                let later = created(&answers[1].1) >= created(&answers[0].1);
                assert_eq!(
                    loser.unwrap(),
                    names[usize::from(later)],
                    "the later, else the greater name"
                );
            }
            [(status, answer)] => {
                assert_eq!(*status, 422, "{answer}");
                let message = answer["message"].as_str().unwrap();
                assert!(message.contains("10.36.0.20-10.36.0.29"), "{message}");
                assert!(
                    names
                        .iter()
                        .any(|name| message.contains(&format!("IPPool {name}"))),
                    "{message}"
                );
            }
            _ => panic!("both were refused: {answers:?}"),
        }
        for name in names {
            rig.delete(&format!("{OURS}/spiderippools/{name}"));
        }
        gone(&rig, names);
    }
    rig.assert_allowed();
}

/// The next round begins with what the replicas know of an empty network.
fn gone(rig: &Rig, names: [&str; 2]) {
    wait::until(SOON, "both pools to be gone, for both replicas", || {
        for name in names {
            if rig
                .api
                .get(&format!("{OURS}/spiderippools/{name}"))?
                .is_some()
            {
                return Ok(None);
            }
        }
        let path = format!("{OURS}/spiderippools?dryRun=All");
        let free = |replica| {
            rig.api
                .create(&path, &pool("probe", replica, 0, "10.36.0.10-10.36.0.39"))
        };
        Ok((free(0).is_ok() && free(1).is_ok()).then_some(()))
    })
    .unwrap();
}

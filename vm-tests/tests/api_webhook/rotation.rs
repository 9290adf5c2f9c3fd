//! A new certificate while objects are created: no call is refused.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use vm_tests::lab::api_client::ApiClient;
use vm_tests::lab::{wait, webhooks};

use crate::rig::{OURS, Rig, SECRET, SOON};

/// Creations at least.
const CREATED: usize = 2_000;
/// For a rotation: the authority is trusted for 10 s before its certificate is served.
const ROTATION: Duration = Duration::from_secs(60);

/// Creates until told, then as many as are missing; the first refusal ends it.
pub(crate) fn create(api: &ApiClient, over: &AtomicBool, made: &AtomicUsize, worker: usize) {
    let mut session = api.session().unwrap();
    for number in 0.. {
        if over.load(Ordering::Relaxed) && made.load(Ordering::Relaxed) >= CREATED {
            return;
        }
        let object = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderReservedIP",
            "metadata": {"name": format!("r-{worker}-{number}")}, "spec": {"ips": ["10.60.0.1"]}});
        let path = format!("{OURS}/spiderreservedips");
        let created = session.request("POST", &path, &object);
        let created = created.unwrap_or_else(|error| panic!("{error:#}"));
        assert_eq!(created["spec"]["ipVersion"], 4);
        made.fetch_add(1, Ordering::Relaxed);
    }
}

/// New handshakes with every replica, each verified by what the configurations say at that moment.
fn handshakes(rig: &Rig, over: &AtomicBool) -> usize {
    let mut shaken = 0;
    while !over.load(Ordering::Relaxed) {
        for bundle in webhooks::bundles(&rig.api).unwrap() {
            for port in rig.webhook_ports() {
                webhooks::connect(port, &bundle)
                    .unwrap_or_else(|error| panic!("{error:#}\n{}", rig.logs()));
                shaken += 1;
            }
        }
    }
    shaken
}

fn certificate(rig: &Rig) -> Value {
    rig.api.get(SECRET).unwrap().unwrap()["data"]["tls.crt"].clone()
}

#[test]
#[ignore = "api level"]
fn a_rotation_refuses_no_call() {
    let rig = Rig::start(2, "");
    let before = certificate(&rig);
    let (over, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|worker| {
                let (api, over, made) = (&rig.api, &over, &made);
                scope.spawn(move || create(api, over, made, worker))
            })
            .collect();
        let shaken = scope.spawn(|| handshakes(&rig, &over));
        let asked = json!({"metadata": {"annotations":
            {"spiderpool.spidernet.io/rotate-certificate": "now"}}});
        rig.api.merge(SECRET, &asked).unwrap();
        let rotated = wait::until(ROTATION, "a new certificate", || {
            Ok((certificate(&rig) != before).then_some(()))
        });
        // Some more calls with the new one.
        let enough = made.load(Ordering::Relaxed) + 100;
        let went_on = wait::until(SOON, "calls after the rotation", || {
            let ended = workers
                .iter()
                .any(std::thread::ScopedJoinHandle::is_finished);
            Ok((ended || made.load(Ordering::Relaxed) >= enough).then_some(()))
        });
        over.store(true, Ordering::Relaxed);
        rotated.unwrap();
        went_on.unwrap();
        for worker in workers {
            worker.join().unwrap();
        }
        assert!(
            shaken.join().unwrap() > 100,
            "too few handshakes to mean anything"
        );
    });
    // Both authorities are trusted for a while.
    let bundles = webhooks::bundles(&rig.api).unwrap();
    let two = |bundle: &String| bundle.matches("BEGIN CERTIFICATE").count() == 2;
    assert!(bundles.iter().all(two));
    comes_back(&rig, &bundles);
}

/// A bundle that somebody empties is filled again.
fn comes_back(rig: &Rig, bundles: &[String]) {
    let path = format!("{}/{}", webhooks::VALIDATING, webhooks::NAME);
    let emptied = json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]);
    let kind = "application/json-patch+json";
    let answer = rig.api.request("PATCH", &path, kind, &emptied).unwrap();
    assert_eq!(answer.status, 200);
    wait::until(SOON, "the bundle to come back", || {
        Ok((webhooks::bundles(&rig.api)? == bundles).then_some(()))
    })
    .unwrap();
}

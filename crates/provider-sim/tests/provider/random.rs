//! Random calls, faults and restarts, many at a time; afterwards everything agrees.

use futures::StreamExt;
use serde_json::json;

use crate::rig::{Rig, item, pair, release, request, rig};

/// One random call. Whether it succeeds is up to the faults.
async fn one(rig: &Rig, chance: &mut fastrand::Rng) {
    let node = *chance.choice(&["n1", "n2"]).unwrap();
    let low = chance.u8(0..5);
    let answered = match chance.u8(0..10) {
        0..4 => {
            let ip = format!("10.72.0.{}", 10 + low);
            rig.allocate(&request(node, &[item(node, &ip, "g")]))
                .await
                .map(drop)
        }
        4..7 => {
            let (v4, v6) = (
                format!("10.72.0.{}", 20 + low),
                format!("fd72::{}", 20 + low),
            );
            let other = format!("10.72.0.{}", 15 + low);
            let items = [pair(node, &v4, &v6), item(node, &other, "g")];
            rig.allocate(&request(node, &items)).await.map(drop)
        }
        7..9 => {
            let ip = format!("10.72.0.{}", 10 + low);
            let gone = rig.release(&release(node, &ip, "gone")).await;
            gone.map_err(|error| error.to_string())
        }
        _ => {
            rig.service.crash(std::time::Duration::ZERO).await;
            Ok(())
        }
    };
    if let Err(text) = answered {
        let expected = [
            "CloudError",
            "CapacityExceeded",
            "CloudThrottled",
            "RateLimitTimeout",
            "CloudTimeout",
            "NotReady",
        ];
        assert!(expected.iter().any(|code| text.contains(code)), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_sequences_leave_nothing_behind() {
    for seed in 0..4 {
        let rig = rig().await;
        rig.service.with(|world| {
            world.settings.queue_timeout_ms = 2_000;
            world.settings.transaction_timeout_ms = 2_000;
        });
        rig.faults(json!([
            { "op": "attach", "kind": "cloud-error", "match": { "ip": "10.72.0.12" }, "times": 9 },
            { "op": "create", "kind": "cloud-throttle", "times": 5 },
            { "op": "detach", "kind": "cloud-error", "match": { "ip": "10.72.0.11" }, "times": 3 },
        ]));
        let calls = futures::stream::iter(0..120).for_each_concurrent(10, |number| {
            let rig = &rig;
            async move {
                let mut chance = fastrand::Rng::with_seed(seed * 1_000 + number);
                one(rig, &mut chance).await;
            }
        });
        calls.await;
        // releases go on after their answer
        let mut found = rig.service.audit().await;
        for _ in 0..500 {
            if found.is_empty() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            found = rig.service.audit().await;
        }
        assert_eq!(found, Vec::<String>::new(), "seed {seed}");
    }
}

use super::*;
use crate::store::memory::{MemoryStore, pool_json};
use spiderpool_ipam::pick::Claimant;

fn world(ips: &[&str]) -> (Arc<MemoryStore>, Writers, TaskTracker) {
    let store = Arc::new(MemoryStore::new("n1"));
    store.set_pool(pool_json("p", "10.0.0.0/24", ips)).unwrap();
    let tasks = TaskTracker::new();
    let jitter = Arc::new(Jitter::from_seed(3));
    let writers = Writers::new(
        Arc::clone(&store) as _,
        jitter,
        tasks.clone(),
        Arc::default(),
    );
    (store, writers, tasks)
}

fn change(op: Op) -> Change {
    Change {
        pool: "p".into(),
        sibling: None,
        op,
        rules: Arc::default(),
        deadline: Instant::now() + Duration::from_secs(90),
    }
}

fn claim(uid: &str) -> Change {
    change(Op::Claim {
        who: Claimant {
            pod: format!("ns/{uid}"),
            uid: uid.into(),
            nic: "eth0".into(),
            node: "n1".into(),
            elsewhere: vec![],
            sub_eni: false,
        },
        pin: None,
    })
}

fn release(uid: &str) -> Change {
    change(Op::Release {
        uid: uid.into(),
        nic: None,
        addresses: None,
        by: None,
    })
}

fn address(answer: Answer) -> String {
    match answer.unwrap().outcome {
        Outcome::Claimed(pick) => pick.address.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_while_a_write_is_under_way_travels_in_the_next() {
    let (store, writers, _) = world(&["10.0.0.10-10.0.0.99"]);
    store.set_delay(Duration::from_millis(10));
    let (a, b, c, d, e) = (claim("a"), claim("b"), claim("c"), claim("d"), release("z"));
    let (a, b, c, d, e) = tokio::join!(
        writers.commit(a),
        writers.commit(b),
        async {
            tokio::time::sleep(Duration::from_millis(3)).await;
            writers.commit(c).await
        },
        async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            writers.commit(d).await
        },
        writers.commit(e),
    );
    assert_eq!(address(a), "10.0.0.10");
    assert_eq!(address(b), "10.0.0.11");
    assert_eq!(address(c), "10.0.0.12");
    assert_eq!(address(d), "10.0.0.13");
    assert!(e.is_ok());
    assert_eq!(store.counts().pool_writes, 2);
}

#[tokio::test(start_paused = true)]
async fn a_release_in_the_same_write_does_not_lift_reservations() {
    let (store, writers, _) = world(&["10.0.0.10-10.0.0.11"]);
    store.set_delay(Duration::from_millis(10));
    let reserving = Change {
        rules: Arc::new(Rules {
            reserved: ["10.0.0.10".parse::<std::net::IpAddr>().unwrap()]
                .into_iter()
                .collect(),
            ..Rules::default()
        }),
        ..claim("a")
    };
    let (a, z) = tokio::join!(writers.commit(reserving), writers.commit(release("z")));
    assert_eq!(address(a), "10.0.0.11");
    assert!(z.is_ok());
}

#[tokio::test(start_paused = true)]
async fn after_a_conflict_every_member_is_planned_anew_and_late_ones_join() {
    let (store, writers, _) = world(&["10.0.0.10-10.0.0.12"]);
    store.set_delay(Duration::from_millis(10));
    let foreign = |records: &mut spiderpool_api::allocation::Records| {
        let record = serde_json::json!({"pod": "x/y", "podUid": "foreign", "nic": "eth0"});
        let record: spiderpool_api::allocation::Record = serde_json::from_value(record).unwrap();
        records.insert("10.0.0.10".parse().unwrap(), record.clone());
        records.insert("10.0.0.11".parse().unwrap(), record);
    };
    store.conflict("p", Box::new(foreign));
    let (a, b) = (claim("a"), claim("b"));
    let (a, b) = tokio::join!(writers.commit(a), async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        writers.commit(b).await
    });
    assert_eq!(address(a), "10.0.0.12");
    assert!(matches!(b, Err(WriteError::Pick(_))), "{b:?}");
    let counts = store.counts();
    assert_eq!((counts.pool_writes, counts.pool_conflicts), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_old_copy_turns_nobody_away() {
    let (store, writers, _) = world(&["10.0.0.10"]);
    assert_eq!(address(writers.commit(claim("a")).await), "10.0.0.10");
    let full = writers.commit(claim("b")).await.unwrap_err();
    assert!(matches!(full, WriteError::Pick(_)));
    // It looked at the API before it said so.
    assert_eq!(store.counts().fresh_reads, 1);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_claim_and_a_release_of_nothing_write_nothing() {
    let (store, writers, _) = world(&["10.0.0.10-10.0.0.12"]);
    writers.commit(claim("a")).await.unwrap();
    assert_eq!(address(writers.commit(claim("a")).await), "10.0.0.10");
    writers.commit(release("b")).await.unwrap();
    assert_eq!(store.counts().pool_writes, 1);
    writers.commit(release("a")).await.unwrap();
    assert_eq!(store.counts().pool_writes, 2);
}

#[tokio::test(start_paused = true)]
async fn a_busy_pool_makes_a_batch_wait_for_company() {
    let (store, writers, _) = world(&["10.0.0.10-10.0.0.99"]);
    store.set_delay(Duration::from_millis(10));
    store.conflict("p", Box::new(|_| {}));
    writers.commit(claim("a")).await.unwrap();
    // One conflict in a few writes is more than 5 %: b waits one write time and meets c.
    let (b, c) = (claim("b"), claim("c"));
    let before = store.counts().pool_writes;
    let (b, c) = tokio::join!(writers.commit(b), async {
        tokio::time::sleep(Duration::from_millis(8)).await;
        writers.commit(c).await
    });
    b.unwrap();
    c.unwrap();
    assert_eq!(store.counts().pool_writes, before + 1);
}

#[tokio::test(start_paused = true)]
async fn idle_writers_end_and_come_again() {
    let (_, writers, tasks) = world(&["10.0.0.10-10.0.0.12"]);
    writers.commit(claim("a")).await.unwrap();
    assert_eq!(tasks.len(), 1);
    tokio::time::sleep(IDLE * 2).await;
    assert_eq!((tasks.len(), lock(&writers.queues).len()), (0, 0));
    assert_eq!(address(writers.commit(claim("b")).await), "10.0.0.11");
    drop(writers);
    tasks.close();
    tasks.wait().await;
}

#[tokio::test(start_paused = true)]
async fn missing_pools_and_an_absent_api_are_told_apart() {
    let (store, writers, _) = world(&["10.0.0.10"]);
    let mut lost = claim("a");
    lost.pool = "q".into();
    let error = writers.commit(lost).await.unwrap_err();
    assert!(matches!(&error, WriteError::NoPool(name) if name == "q"));
    assert!(error.is_this_pool_only());
    store.set_outage(true);
    let error = writers.commit(claim("a")).await.unwrap_err();
    assert_eq!(error.cni_code(), CniCode::TryAgain);
    assert!(!error.is_this_pool_only());
    store.set_outage(false);
    assert_eq!(address(writers.commit(claim("a")).await), "10.0.0.10");
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_a_wait_and_takes_the_change_back() {
    let (store, writers, _) = world(&["10.0.0.10-10.0.0.12"]);
    store.set_delay(Duration::from_secs(10));
    let mut short = claim("b");
    short.deadline = Instant::now() + Duration::from_secs(1);
    let (a, b) = tokio::join!(writers.commit(claim("a")), writers.commit(short));
    assert!(matches!(b, Err(WriteError::Deadline(_))), "{b:?}");
    a.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_caller_gone_before_the_write_is_dropped() {
    let (store, writers, _) = world(&["10.0.0.10-10.0.0.12"]);
    store.set_delay(Duration::from_millis(50));
    let wait = |ms| tokio::time::sleep(Duration::from_millis(ms));
    let (a, ()) = tokio::join!(writers.commit(claim("a")), async {
        // In line behind the first write, and gone before it ends.
        wait(10).await;
        let gone = tokio::time::timeout(Duration::from_millis(10), writers.commit(claim("b")));
        assert!(gone.await.is_err());
    });
    a.unwrap();
    writers.commit(claim("c")).await.unwrap();
    let pool = store.current_pool("p").unwrap();
    let owners: Vec<_> = pool
        .pool()
        .unwrap()
        .records
        .iter()
        .map(|(_, record)| record.pod_uid.clone())
        .collect();
    assert_eq!(owners, ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_write_will_come_to_is_promised_unless_others_write_too() {
    let (store, writers, _) = world(&["10.0.0.10-10.0.0.99"]);
    store.set_delay(Duration::from_millis(10));
    let commit = async |uid: &str| {
        let (promise, told) = oneshot::channel();
        let begun = Instant::now();
        let told = async {
            told.await
                .ok()
                .map(|told| (address(Ok(told)), begun.elapsed()))
        };
        let committed = writers.commit_promised(claim(uid), Some(promise));
        let (committed, told) = tokio::join!(committed, told);
        (address(committed), told)
    };
    let at_once = Some(("10.0.0.10".to_owned(), Duration::ZERO));
    assert_eq!(commit("a").await, ("10.0.0.10".into(), at_once));
    store.conflict("p", Box::new(|_| {}));
    assert!(commit("b").await.1.is_some());
    assert_eq!(commit("c").await, ("10.0.0.12".into(), None));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(commit("d").await.1.is_some());
}

#[tokio::test(start_paused = true)]
async fn what_needs_no_write_is_not_answered_from_an_old_copy() {
    let (store, writers, _) = world(&["10.0.0.10-10.0.0.99"]);
    let first = address(writers.commit(claim("a")).await);
    assert_eq!(store.counts().fresh_reads, 0);
    // The conditional write proves the copy; without one only a read does.
    assert_eq!(address(writers.commit(claim("a")).await), first);
    assert_eq!(store.counts().fresh_reads, 1);
    writers.commit(release("z")).await.unwrap();
    assert_eq!(store.counts().fresh_reads, 2);
}

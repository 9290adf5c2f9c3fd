//! Replicas that are replaced while objects are created: no call is refused.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::balancer::Balancer;
use crate::rig::Rig;
use crate::rotation::create;

/// A node takes a replica out of the Service so long after the replica was told to stop.
const LAG: Duration = Duration::from_millis(1_500);

#[test]
#[ignore = "api level"]
fn a_rollout_refuses_no_call() {
    let balancer = Balancer::start();
    let mut rig = Rig::behind(&balancer, 2);
    let (over, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    let api = rig.api.clone();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|worker| {
                let (api, over, made) = (&api, &over, &made);
                scope.spawn(move || create(api, over, made, worker))
            })
            .collect();
        // Each of both is replaced, the new one first.
        for _ in 0..2 {
            let fresh = rig.add_controller();
            balancer.put(fresh);
            let old = rig.tell_oldest_to_stop();
            // Not a wait for a state: the delay is what is being tried.
            thread::sleep(LAG);
            balancer.take_out(old);
            rig.wait_for_end_of_oldest();
        }
        over.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().unwrap();
        }
    });
    assert!(made.load(Ordering::Relaxed) >= 2_000);
}

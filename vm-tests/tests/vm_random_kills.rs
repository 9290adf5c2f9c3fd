//! Two nodes at work while what they stand on dies at random: the first node's agent with the API
//! in it, the second node's agent, the provider with the cloud's fabric. In the end everything
//! converges: no DEL is lost, nothing is left, nothing is bound twice.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "functions that tests share fail as tests do"
)]

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use vm_tests::lab::cni_call::{CniCall, CniOutcome};
use vm_tests::lab::layout::GATEWAY_V4;
use vm_tests::lab::{
    Cloud, LabSpec, Node, Pod, ProviderPlan, Stack, inspect, leaks, peers, wait, writes,
};

/// The rounds end after this many, or after this time.
const ROUNDS: u32 = 20;
const PLAY_TIME: Duration = Duration::from_secs(25);
/// What is to happen happens in this time, also on an emulated machine.
const LIMIT: Duration = Duration::from_secs(40);
/// Pods of a node.
const SLOTS: usize = 3;
/// Looks, 10 ms apart, before something is killed, at most.
const MOMENTS: u32 = 30;
/// A failed seed is run again by naming it here.
const SEED_ENV: &str = "SPIDERPOOL_TEST_SEED";

/// What dies.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Agent(usize),
    Provider,
    Nobody,
}

/// How far a Pod is, as the runtime knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// ADD has not succeeded yet.
    Coming,
    Attached,
    /// Its object is deleted, DEL has not succeeded yet.
    Leaving,
    Gone,
}

struct Worker {
    node: usize,
    pod: Pod,
    conf: Value,
    life: Life,
    address: Option<String>,
}

struct Play {
    cloud: Cloud,
    random: fastrand::Rng,
    workers: Vec<Worker>,
    born: u32,
}

impl Play {
    fn new(seed: u64) -> Self {
        let plan = ProviderPlan::quick(8, 0);
        let spec = LabSpec::for_test(2, 4).unwrap().with_provider(plan);
        Self {
            cloud: Cloud::start(&spec).unwrap(),
            random: fastrand::Rng::with_seed(seed),
            workers: Vec::new(),
            born: 0,
        }
    }

    fn node(&self, index: usize) -> &Node {
        self.cloud.node(index).unwrap()
    }

    /// Every free place gets a new Pod.
    fn fill(&mut self) {
        self.workers.retain(|worker| worker.life != Life::Gone);
        for node in 0..self.cloud.nodes.len() {
            let busy = self.workers.iter().filter(|worker| worker.node == node);
            for _ in busy.count()..SLOTS {
                self.born += 1;
                let stack = *self
                    .random
                    .choice([Stack::V4, Stack::Global].iter())
                    .unwrap();
                let place = self.node(node);
                let name = format!("w{}", self.born);
                let worker = Worker {
                    node,
                    pod: writes::new_pod(&self.cloud, place, &name).unwrap(),
                    conf: place.conf(stack),
                    life: Life::Coming,
                    address: None,
                };
                self.workers.push(worker);
            }
        }
    }

    /// What the runtimes do in one round: some Pods end, the others go on.
    fn calls(&mut self) -> Vec<Option<CniCall>> {
        let mut calls = Vec::new();
        for index in 0..self.workers.len() {
            let ends = self.random.u8(..3) == 0;
            let worker = &self.workers[index];
            let node = self.node(worker.node);
            let leaving = ends && worker.life == Life::Attached;
            if leaving {
                let name = worker.pod.object_name();
                writes::delete_pod(node, name.split_once('/').unwrap().1).unwrap();
            }
            let verb = match worker.life {
                Life::Coming => Some("ADD"),
                Life::Attached if leaving => Some("DEL"),
                Life::Leaving => Some("DEL"),
                Life::Attached | Life::Gone => None,
            };
            calls.push(verb.map(|verb| worker.pod.call(node, verb, &worker.conf)));
            if leaving {
                self.workers[index].life = Life::Leaving;
            }
        }
        calls
    }

    /// Runs the calls; something dies meanwhile and is started again, as systemd does.
    fn round(&mut self) -> Victim {
        let calls = self.calls();
        let running: Vec<_> = calls
            .into_iter()
            .zip(&self.workers)
            .map(|(call, worker)| {
                let node = self.node(worker.node);
                let (host, bin_dir) = (node.netns().clone(), node.program("x"));
                call.map(|call| {
                    thread::spawn(move || call.run(bin_dir.parent().unwrap(), &host).unwrap())
                })
            })
            .collect();
        let victim = self.kill_something();
        for (running, worker) in running.into_iter().zip(&mut self.workers) {
            if let Some(running) = running {
                worker.heard(&running.join().unwrap());
            }
        }
        victim
    }

    fn kill_something(&mut self) -> Victim {
        let victims = [
            Victim::Agent(0),
            Victim::Agent(1),
            Victim::Provider,
            Victim::Nobody,
        ];
        let victim = *self.random.choice(victims.iter()).unwrap();
        let mut left = self.random.u32(..MOMENTS);
        let moment = wait::until(LIMIT, "the moment", || {
            left = left.saturating_sub(1);
            Ok((left == 0).then_some(()))
        });
        moment.unwrap();
        match victim {
            Victim::Agent(index) => {
                self.cloud.nodes[index].kill_agent().unwrap();
                self.cloud.nodes[index].start_agent().unwrap();
            }
            Victim::Provider => {
                self.cloud.kill_provider().unwrap();
                self.cloud.restart_provider().unwrap();
            }
            Victim::Nobody => {}
        }
        victim
    }

    fn no_address_is_given_twice(&self) {
        let attached = self.workers.iter().filter(|w| w.life == Life::Attached);
        let all: Vec<_> = attached
            .filter_map(|worker| worker.address.clone())
            .collect();
        let once: BTreeSet<_> = all.iter().collect();
        assert_eq!(once.len(), all.len(), "{all:?}");
    }

    /// Everybody who wants an address gets one, and it works.
    fn everybody_arrives(&mut self) {
        let deadline = Instant::now() + LIMIT;
        for index in 0..self.workers.len() {
            while matches!(self.workers[index].life, Life::Coming | Life::Leaving) {
                let worker = &self.workers[index];
                let node = self.node(worker.node);
                let verb = if worker.life == Life::Coming {
                    "ADD"
                } else {
                    "DEL"
                };
                let call = worker.pod.call(node, verb, &worker.conf);
                let outcome = node.run_one(&call).unwrap();
                assert!(
                    Instant::now() < deadline,
                    "{outcome:?}\n{}",
                    node.log_tail()
                );
                self.workers[index].heard(&outcome);
            }
        }
        self.no_address_is_given_twice();
        for worker in self.workers.iter().filter(|w| w.life == Life::Attached) {
            let ping = peers::ping(worker.pod.netns(), GATEWAY_V4.into(), 2, LIMIT).unwrap();
            assert!(ping.complete(), "{}: {ping:?}", worker.pod.container_id);
        }
    }

    fn everybody_leaves(&mut self) {
        for index in 0..self.workers.len() {
            let worker = &self.workers[index];
            if worker.life == Life::Attached {
                writes::end_pod(self.node(worker.node), &worker.pod, &worker.conf).unwrap();
            }
        }
    }

    /// The marks of dead agents get old, and each agent's next start runs what waits.
    fn what_waits_runs(&mut self) {
        let deadline = Instant::now() + LIMIT;
        loop {
            self.age_marks();
            let waits = |node: &Node| !inspect::file_names(&node.spool_dir()).unwrap().is_empty();
            let waiting: Vec<_> = (0..self.cloud.nodes.len())
                .filter(|index| waits(self.node(*index)))
                .collect();
            if waiting.is_empty() {
                return;
            }
            for index in waiting {
                self.cloud.nodes[index].kill_agent().unwrap();
                self.cloud.nodes[index].start_agent().unwrap();
            }
            assert!(Instant::now() < deadline, "DELs still wait");
        }
    }

    fn age_marks(&self) {
        let first = self.node(0);
        for pool in first.own_pools() {
            let name = pool["metadata"]["name"].as_str().unwrap();
            writes::age_marks(first, name).unwrap();
        }
    }
}

impl Worker {
    /// A failed call is repeated in the next round.
    fn heard(&mut self, outcome: &CniOutcome) {
        match self.life {
            Life::Coming => {
                if let Ok(result) = outcome.result() {
                    self.life = Life::Attached;
                    self.address = result.ips.first().map(|ip| ip.address.to_string());
                }
            }
            Life::Leaving if outcome.silent().is_ok() => self.life = Life::Gone,
            Life::Leaving | Life::Attached | Life::Gone => {}
        }
    }
}

fn seed() -> u64 {
    let given = std::env::var(SEED_ENV).ok();
    given.map_or_else(|| fastrand::u64(..), |seed| seed.parse().unwrap())
}

#[test]
#[ignore = "vm level"]
fn whatever_dies_everything_converges() {
    let seed = seed();
    eprintln!("{SEED_ENV}={seed}");
    let mut play = Play::new(seed);
    let begun = Instant::now();
    for round in 1..=ROUNDS {
        play.fill();
        let victim = play.round();
        play.no_address_is_given_twice();
        let lives: Vec<_> = play.workers.iter().map(|worker| worker.life).collect();
        let seconds = begun.elapsed().as_secs_f64();
        eprintln!("{seconds:5.1} s  round {round}: {victim:?} died; {lives:?}");
        if begun.elapsed() > PLAY_TIME {
            break;
        }
    }
    // Sub-ENIs that a dead agent was giving back are nobody's until its marks are old.
    play.what_waits_runs();
    play.everybody_arrives();
    play.everybody_leaves();
    play.what_waits_runs();
    let pods: Vec<&Pod> = play.workers.iter().map(|worker| &worker.pod).collect();
    let leaked = leaks::find(&play.cloud, &pods).unwrap();
    assert_eq!(leaked, Vec::<String>::new(), "{SEED_ENV}={seed}");
    if std::path::Path::new("/out").is_dir() {
        let text = format!("seed {seed}: {} Pods, {:?}\n", play.born, begun.elapsed());
        std::fs::write("/out/random-kills.txt", text).unwrap();
    }
    assert!(play.born > 10, "{} Pods", play.born);
}

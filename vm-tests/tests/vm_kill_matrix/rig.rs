//! One node with a provider, an agent that dies on demand, and what is asked of the node afterwards.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use vm_tests::lab::api_client::records;
use vm_tests::lab::cni_call::{CniCall, CniOutcome};
use vm_tests::lab::{
    Cloud, LabSpec, Node, ProviderPlan, Stack, inspect, layout, leaks, wait, writes,
};

use crate::victim::{Victim, Way};

/// What tells the agent where to die.
const ENV: &str = "SPIDERPOOL_FAILPOINT";
/// What it logs there.
const REACHED: &str = "failpoint reached";
/// A call has ended, or the agent is dead, after this.
const LIMIT: Duration = Duration::from_secs(60);

/// The lists of steps, as the agent itself names them.
pub(crate) struct Steps {
    pub(crate) add: Vec<String>,
    pub(crate) del: Vec<String>,
}

impl Steps {
    /// Both sides of every step of ADD.
    pub(crate) fn add_points(&self) -> VecDeque<String> {
        points(&self.add)
    }

    /// Both sides of every step of DEL.
    pub(crate) fn del_points(&self) -> VecDeque<String> {
        points(&self.del)
    }
}

fn points(steps: &[String]) -> VecDeque<String> {
    let both = |step: &String| ["before", "after"].map(|side| format!("{step}:{side}"));
    steps.iter().flat_map(both).collect()
}

impl Steps {
    /// Every step, from the list that a wrong value is answered with.
    fn of(agent: &Path) -> Self {
        let output = Command::new(agent)
            .args(["standalone", "--dir", "/nonexistent"])
            .env(ENV, "?")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        let list = |heading: &str| -> Vec<String> {
            let (_, rest) = text.split_once(heading).unwrap();
            let names = rest.split([';', '\n']).next().unwrap();
            names
                .split(',')
                .map(|name| name.trim().to_owned())
                .collect()
        };
        let (add, del) = (list("steps of ADD:"), list("steps of DEL:"));
        assert!(add.len() > 10 && del.len() > 5, "{text}");
        Self { add, del }
    }
}

/// A node with a provider.
pub(crate) struct Rig {
    pub(crate) cloud: Cloud,
    pub(crate) steps: Steps,
    numbers: Cell<usize>,
    aside: Vec<Victim>,
    /// Which case went which way, for whoever reads the suite's output.
    table: String,
    begun: Instant,
}

impl Rig {
    pub(crate) fn start() -> Self {
        let plan = ProviderPlan::quick(12, 0);
        let spec = LabSpec::for_test(1, 4).unwrap().with_provider(plan);
        let cloud = Cloud::start(&spec).unwrap();
        let agent = cloud.node(0).unwrap().program("spiderpool-agent");
        Self {
            cloud,
            steps: Steps::of(&agent),
            numbers: Cell::new(0),
            aside: Vec::new(),
            table: String::new(),
            begun: Instant::now(),
        }
    }

    pub(crate) fn node(&self) -> &Node {
        self.cloud.node(0).unwrap()
    }

    /// Another agent, which dies at this point, if any.
    pub(crate) fn arm(&mut self, point: Option<&str>) {
        self.cloud.nodes[0].kill_agent().unwrap();
        self.start_agent(point);
    }

    /// A start runs the DELs that wait; one that is to die in a DEL shall not die in these.
    fn start_agent(&mut self, point: Option<&str>) {
        let step = point.and_then(|point| point.split(':').next());
        if step.is_some_and(|step| self.steps.del.iter().any(|of_del| of_del == step))
            && !self.waiting().is_empty()
        {
            self.cloud.nodes[0].start_agent().unwrap();
            self.await_empty_spool();
            self.cloud.nodes[0].kill_agent().unwrap();
        }
        let env: Vec<_> = point.map(|point| (ENV, point)).into_iter().collect();
        self.cloud.nodes[0].start_agent_with(&env).unwrap();
    }

    fn await_empty_spool(&self) {
        let empty = wait::until(LIMIT, "an empty spool", || {
            Ok(self.waiting().is_empty().then_some(()))
        });
        empty.unwrap();
    }

    /// Runs the call to its end. When the agent dies in it, starts the next one at once, as systemd
    /// does: to die at `next`, if anywhere. Whether it died.
    pub(crate) fn run(&mut self, call: &CniCall, next: Option<&str>) -> (CniOutcome, bool) {
        let before = self.deaths();
        let (own, host) = (call.clone(), self.node().netns().clone());
        let bin_dir = self.node().program("x");
        let running = thread::spawn(move || own.run(bin_dir.parent().unwrap(), &host));
        let died = wait::until(LIMIT, "the end of the call or of the agent", || {
            let ended = running.is_finished();
            let died = self.deaths() > before;
            Ok((ended || died).then_some(died))
        });
        let died = died.unwrap();
        if died {
            self.cloud.nodes[0].await_agent_end().unwrap();
            self.start_agent(next);
        }
        (running.join().unwrap().unwrap(), died)
    }

    /// A number no Pod of the rig has.
    pub(crate) fn next_number(&self) -> usize {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    /// An attached Pod has done its part. One with a global address stays to the end: that would
    /// else be ready for the next Pod.
    pub(crate) fn dismiss(&mut self, victim: Victim) {
        if victim.way == Way::Cold {
            self.aside.push(victim);
        } else {
            self.end(victim);
        }
    }

    fn end(&self, victim: Victim) {
        let uid = victim.uid(self);
        let ended = match victim.pod.args.as_str() {
            "" => victim.pod.release(self.node(), &victim.conf),
            _ => writes::end_pod(self.node(), &victim.pod, &victim.conf),
        };
        ended.unwrap();
        victim.leaves_nothing(self, &uid);
    }

    fn deaths(&self) -> usize {
        self.node().agent_log().matches(REACHED).count()
    }

    /// Pools of a stack, IPv4 first.
    pub(crate) fn pools(&self, stack: Stack) -> Vec<String> {
        let plan = &self.node().plan;
        match stack {
            Stack::V4 => vec![plan.pool()],
            Stack::Dual => {
                let (v4, v6) = plan.pair();
                vec![v4, v6]
            }
            Stack::Global => vec![layout::GLOBAL_POOL.to_owned()],
            Stack::GlobalDual => Vec::new(),
        }
    }

    /// Addresses of these pools whose records have the UID.
    pub(crate) fn addresses(&self, stack: Stack, uid: &str) -> Vec<String> {
        let mut found = Vec::new();
        for pool in self.pools(stack) {
            let records = self.records(&pool);
            let own = records.as_object().unwrap().iter();
            found.extend(
                own.filter(|(_, record)| record["podUid"] == uid)
                    .map(|(ip, _)| ip.clone()),
            );
        }
        found
    }

    fn records(&self, pool: &str) -> Value {
        records(&self.node().api().unwrap().pool(pool).unwrap()).unwrap()
    }

    /// Makes every release mark of these pools two minutes old, and more. How many there were.
    pub(crate) fn age_marks(&self, stack: Stack) -> usize {
        let pools = self.pools(stack);
        let marks = pools
            .iter()
            .map(|pool| writes::age_marks(self.node(), pool).unwrap());
        marks.sum()
    }

    /// DELs that wait.
    pub(crate) fn waiting(&self) -> Vec<String> {
        inspect::file_names(&self.node().spool_dir()).unwrap()
    }

    /// A line of the table.
    pub(crate) fn note(&mut self, case: &str) {
        let seconds = self.begun.elapsed().as_secs_f64();
        writeln!(self.table, "{seconds:6.1} s  {case}").unwrap();
        eprintln!("{seconds:6.1} s  {case}");
    }

    /// Nothing is left anywhere, once everybody has gone and what waited has run.
    pub(crate) fn finish(mut self, name: &str) {
        self.arm(None);
        for victim in std::mem::take(&mut self.aside) {
            self.end(victim);
        }
        // A start replays what waits.
        self.arm(None);
        self.await_empty_spool();
        let leaked = leaks::find(&self.cloud, &[]).unwrap();
        assert_eq!(leaked, Vec::<String>::new(), "{}", self.table);
        if Path::new("/out").is_dir() {
            std::fs::write(format!("/out/kill-{name}.txt"), &self.table).unwrap();
        }
    }
}

//! SIGKILL at any moment: every acknowledged write is there afterwards and the file opens. On tmpfs
//! and on the disk the build folder is on. A kill leaves the page cache alone, so this proves the
//! order of acknowledgement and commit and the file's format, not the disk's honesty.
//!
//! The test starts itself as a child process which writes and reports each attempt and each
//! acknowledgement on its standard output.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_embedded_api::EmbeddedApi;
use spiderpool_embedded_api::admission::AcceptAll;

const STATE: &str = "CRASH_TEST_STATE";
const WRITERS: usize = 8;

/// What the child last said of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    TryCreate,
    Created,
    TryPatch,
    Patched,
    TryDelete,
    Deleted,
}

const STEPS: [(&str, Step); 6] = [
    ("try-create", Step::TryCreate),
    ("created", Step::Created),
    ("try-patch", Step::TryPatch),
    ("patched", Step::Patched),
    ("try-delete", Step::TryDelete),
    ("deleted", Step::Deleted),
];

fn say(step: Step, name: &str) {
    let word = STEPS.iter().find(|(_, s)| *s == step).unwrap().0;
    // one write call a line: a kill cannot cut it in two
    let line = format!("\n#{word} {name}\n");
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

/// Does nothing unless the other test started it.
#[test]
fn child_writes_until_it_is_killed() {
    let Some(state) = std::env::var_os(STATE) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let api = EmbeddedApi::open(Path::new(&state), Arc::new(AcceptAll)).unwrap();
        let pools: Api<SpiderIPPool> = Api::all(Client::new(api.router(), "default"));
        let run = std::process::id();
        let writers = (0..WRITERS).map(|writer| {
            let pools = pools.clone();
            tokio::spawn(async move {
                for round in 0.. {
                    one_object(&pools, &format!("p{run}-{writer}-{round}"), round).await;
                }
            })
        });
        futures::future::join_all(writers).await;
    });
}

async fn one_object(pools: &Api<SpiderIPPool>, name: &str, round: usize) {
    let object = serde_json::from_value(json!({
        "apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
        "metadata": {"name": name, "annotations": {"filler": "x".repeat(round % 7 * 1000)}},
        "spec": {"subnet": "10.7.0.0/24"}}));
    say(Step::TryCreate, name);
    pools
        .create(&PostParams::default(), &object.unwrap())
        .await
        .unwrap();
    say(Step::Created, name);
    say(Step::TryPatch, name);
    let patch = Patch::Merge(json!({"spec": {"disable": true}}));
    pools
        .patch(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
    say(Step::Patched, name);
    if round.is_multiple_of(2) {
        say(Step::TryDelete, name);
        pools.delete(name, &DeleteParams::default()).await.unwrap();
        say(Step::Deleted, name);
    }
}

fn start(state: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "crash::child_writes_until_it_is_killed",
            "--nocapture",
        ])
        .env(STATE, state)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills the child after `lines` of its reports and takes in all it had said.
fn run_and_kill(state: &Path, lines: usize, said: &mut BTreeMap<String, Step>) {
    let mut child = start(state);
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let mut count = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some((word, name)) = line.strip_prefix('#').and_then(|l| l.split_once(' ')) else {
            continue;
        };
        let step = STEPS
            .iter()
            .find(|(w, _)| *w == word)
            .expect("a whole line")
            .1;
        said.insert(name.to_owned(), step);
        count += 1;
        if count == lines {
            kill(pid, Signal::SIGKILL).unwrap();
        }
    }
    assert!(
        count >= lines,
        "the child ended by itself after {count} reports"
    );
    child.wait().unwrap();
}

/// Opens the file as the next agent would and compares.
async fn check(state: &Path, said: &BTreeMap<String, Step>) {
    let api = EmbeddedApi::open(state, Arc::new(AcceptAll)).expect("the file opens");
    let pools: Api<SpiderIPPool> = Api::all(Client::new(api.router(), "default"));
    let list = pools.list(&ListParams::default()).await.unwrap();
    let found: BTreeMap<_, _> = list
        .items
        .iter()
        .map(|p| (p.name_any(), p.spec.disable == Some(true)))
        .collect();
    for (name, step) in said {
        let actual = found.get(name);
        let fits = match step {
            Step::TryCreate => actual != Some(&true),
            Step::Created => actual == Some(&false),
            Step::TryPatch => actual.is_some(),
            Step::Patched => actual == Some(&true),
            Step::TryDelete => actual != Some(&false),
            Step::Deleted => actual.is_none(),
        };
        assert!(fits, "{name}: last said {step:?}, found {actual:?}");
    }
    assert!(
        found.keys().all(|name| said.contains_key(name)),
        "an object nobody wrote"
    );
    api.close().await;
}

fn kill_repeatedly(folder: &Path) {
    let folder = tempfile::tempdir_in(folder).unwrap();
    let state = folder.path().join("state.redb");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut said = BTreeMap::new();
    // from the first commits, which make the file's tables, to hundreds of objects
    for lines in [1, 2, 3, 5, 17, 40, 99, 150, 233, 400] {
        run_and_kill(&state, lines, &mut said);
        runtime.block_on(check(&state, &said));
    }
}

#[test]
fn no_acknowledged_write_is_lost_on_disk() {
    kill_repeatedly(&PathBuf::from(env!("CARGO_TARGET_TMPDIR")));
}

#[test]
fn no_acknowledged_write_is_lost_on_tmpfs() {
    kill_repeatedly(Path::new("/dev/shm"));
}

/// Kills while the file is being made for the first time.
#[test]
fn a_kill_during_creation_leaves_nothing_or_a_file_that_opens() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for round in 0..10 {
        let state = folder.path().join(format!("{round}.redb"));
        let mut child = start(&state);
        // the moment the unfinished or the finished file shows up
        while std::fs::read_dir(folder.path()).unwrap().all(|entry| {
            !entry
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with(&format!("{round}."))
        }) {
            std::hint::spin_loop();
        }
        kill(
            Pid::from_raw(i32::try_from(child.id()).unwrap()),
            Signal::SIGKILL,
        )
        .unwrap();
        child.wait().unwrap();
        runtime.block_on(async {
            let api = EmbeddedApi::open(&state, Arc::new(AcceptAll)).expect("the file opens");
            api.close().await;
        });
    }
}

//! The agent as a process, until it has judged its settings.
#![expect(
    clippy::unwrap_used,
    reason = "functions that tests share fail as tests do"
)]

#[path = "../../../controller/tests/startup/table.rs"]
mod table;

use std::path::Path;
use std::process::Command;

fn agent(conf: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spiderpool-agent"));
    let beside = |name: &str| conf.with_file_name(name);
    command.arg("daemon").arg("--config-path").arg(conf);
    command.arg("--kubeconfig").arg(beside("kubeconfig"));
    command.arg("--run-dir").arg(beside("run"));
    command.args(["--node-name", "n1"]).env_clear();
    command
}

#[test]
fn scenario_03_mistakes_keep_the_agent_from_starting() {
    table::mistakes_are_fatal(&agent);
}

#[test]
fn scenario_02_the_agent_tells_of_its_client() {
    table::a_client_is_told_of(&agent);
}

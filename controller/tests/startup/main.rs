//! The controller as a process, until it has judged its settings.
#![expect(
    clippy::unwrap_used,
    reason = "functions that tests share fail as tests do"
)]

mod table;

use std::path::Path;
use std::process::Command;

fn controller(conf: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spiderpool-controller"));
    let none = conf.with_file_name("kubeconfig");
    command.arg("daemon").arg("--config-path").arg(conf);
    command.arg("--kubeconfig").arg(none).env_clear();
    command
        .env("SPIDERPOOL_POD_NAME", "c-0")
        .env("SPIDERPOOL_POD_NAMESPACE", "spiderpool");
    command
}

#[test]
fn scenario_03_mistakes_keep_the_controller_from_starting() {
    table::mistakes_are_fatal(&controller);
}

#[test]
fn scenario_02_the_controller_tells_of_its_client() {
    table::a_client_is_told_of(&controller);
}

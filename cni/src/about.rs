//! What a person sees who runs the binary by hand: version and usage. Touches standard output.

use std::io::{self, Write};
use std::process::ExitCode;

use spiderpool_api::cni::CniCode;
use spiderpool_api::names::{PLUGIN_ENI_VLAN, PLUGIN_IPAM};

use crate::NEWEST;
use crate::answer::{Answer, Refusal};
use crate::env::{EnvError, Environment};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Commit the binary was built from, given to the build by its environment.
fn commit() -> &'static str {
    option_env!("GIT_COMMIT_VERSION")
        .filter(|text| !text.is_empty())
        .unwrap_or("unknown")
}

/// A start without `CNI_COMMAND`: answers a question of a person, or names the variable.
pub(crate) fn run(environment: &Environment) -> ExitCode {
    let arguments: Vec<_> = environment.arguments().collect();
    let text = match arguments.as_slice() {
        ["version" | "--version" | "-V"] => {
            format!("spiderpool-cni {VERSION} (commit {})\n", commit())
        }
        ["version" | "--version", "--json"] => {
            let answer = serde_json::json!({"version": VERSION, "commit": commit()});
            format!("{answer}\n")
        }
        ["help" | "--help" | "-h"] => usage(),
        _ => {
            let refusal = Refusal::new(CniCode::Environment, &EnvError::NoCommand);
            return Answer::Refused(refusal.shaped(NEWEST))
                .print()
                .unwrap_or(ExitCode::FAILURE);
        }
    };
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Ok(()) => ExitCode::SUCCESS,
        // `spiderpool version | head -0` is no failure
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn usage() -> String {
    format!(
        "A CNI plugin: the container runtime starts it, a person rarely does.

The file name chooses the plugin: {PLUGIN_IPAM} (addresses) or {PLUGIN_ENI_VLAN} (NIC of a sub-ENI).
It reads the network configuration on standard input and CNI_COMMAND, CNI_CONTAINERID,
CNI_NETNS, CNI_IFNAME, CNI_ARGS, CNI_PATH from the environment, asks the spiderpool-agent of
this node over its Unix socket and prints the agent's answer.

  version [--json]   print version and commit

SPIDERPOOL_SOCKET names the agent's socket where the configuration does not.
"
    )
}

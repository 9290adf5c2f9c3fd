//! The sim level: seeds of the deterministic simulation, in the test target `sim` of the agent.

use anyhow::Result;
use clap::Args;
use vm_tests::libtest::Tally;

use crate::build::TEST_FEATURES;
use crate::{cargo, native};

/// How much is simulated.
#[derive(Debug, Clone, Args)]
pub(crate) struct SimArgs {
    /// Seeds of the sim level.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// Steps of each of its seeds.
    #[arg(long, default_value_t = 60)]
    steps: u64,
}

impl Default for SimArgs {
    fn default() -> Self {
        Self {
            seeds: 200,
            steps: 60,
        }
    }
}

/// Plays the seeds. The other tests of the target ran with the unit level.
pub(crate) fn run(args: &SimArgs) -> Result<Tally> {
    let mut command = cargo::cargo(&[
        "test",
        "--workspace",
        TEST_FEATURES,
        "--test",
        "sim",
        "--",
        "--show-output",
        "seeds_hold",
    ]);
    command.env("SPIDERPOOL_SIM_SEEDS", args.seeds.to_string());
    command.env("SPIDERPOOL_SIM_STEPS", args.steps.to_string());
    native::judge(command, "sim.log")
}

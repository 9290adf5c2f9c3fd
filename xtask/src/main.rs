//! `cargo xtask …`: everything a person runs in this repository, and what `.ci/run` runs.
//!
//! Owns no product logic: it builds, starts and judges. Progress goes to stderr, results to stdout.
#![forbid(unsafe_code)]

mod api_level;
mod bench;
mod build;
mod cargo;
mod checks;
mod cnitool;
mod control_plane;
mod crds;
mod demo;
mod demo_driver;
mod demo_report;
mod demo_table;
mod deps;
mod ebpf;
mod go_build;
mod kernel_probe;
mod lab;
mod licence;
mod lines;
mod native;
mod paths;
mod sim;
mod suites;
mod term;
mod test;
mod vm;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Build, test, measure and show this project.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Attach Pods in a simulated cloud and show what happened.
    Demo(demo::DemoArgs),
    /// Run test levels; without names, all that CI runs.
    Test(test::TestArgs),
    /// Everything CI runs, with CI's rules: what is missing is a failure, not a skip.
    Ci,
    /// Formatting and clippy.
    Checks,
    /// File sizes and names.
    Lines,
    /// Dependency directions, banned crates, licences.
    Deps,
    /// Build the observer's programs, or check the committed object.
    Ebpf(ebpf::EbpfArgs),
    /// Write the chart's CustomResourceDefinitions, or check the committed ones.
    Crds(crds::CrdsArgs),
    /// A real control plane on loopback: etcd and kube-apiserver with our kinds.
    Lab(lab::LabArgs),
    /// Measure the figures the design promises.
    Bench(bench::BenchArgs),
    /// The demo itself, where it runs: natively or in the guest.
    #[command(hide = true)]
    DemoDriver(demo_driver::DriverOptions),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Task::Demo(args) => demo::run(&args),
        Task::Test(args) => test::run(&args),
        Task::Ci => test::run(&test::TestArgs::ci()),
        Task::Checks => ok(checks::fmt().and_then(|()| checks::clippy())),
        Task::Lines => ok(lines::check()),
        Task::Deps => ok(deps::check()),
        Task::Ebpf(args) => ok(ebpf::run(&args)),
        Task::Crds(args) => ok(crds::run(&args)),
        Task::Lab(args) => lab::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::DemoDriver(options) => ok(demo_driver::main(&options)),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            term::progress(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn ok(result: Result<()>) -> Result<ExitCode> {
    result.map(|()| ExitCode::SUCCESS)
}

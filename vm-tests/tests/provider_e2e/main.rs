//! The provider client end to end: the real agent in standalone mode, the real simulated cloud over
//! HTTP and TLS, and the real IPAM plugin, as processes in a network namespace of their own.
//!
//! The plugin is called as another implementation of `eni-vlan` calls it: the answer carries address,
//! MAC and VLAN, and the link is the caller's. So no VLAN link is needed, and it runs on any kernel.
//! Needs root (namespaces) and the product's binaries: in `SPIDERPOOL_BIN_DIR`, else beside `lab-run`,
//! where `cargo test --workspace` and `cargo build --workspace --bins` put them.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails, in its helpers too, and says when it is skipped"
)]

mod allocate;
mod binaries;
mod generation_1;
mod hit;
mod release;
mod rig;
mod simulator;
mod tls;

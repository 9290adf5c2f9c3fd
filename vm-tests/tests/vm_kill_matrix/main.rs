//! The kill matrix: for every step that the agent's flows export, before and after it, the agent
//! dies and the next one heals what is left. The lists come from the agent itself, so a step that
//! is added there is killed here; a step that no way of an ADD or DEL reaches is a failure.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "functions that tests share fail as tests do"
)]

mod chain;
mod rig;
mod sandboxes;
mod victim;

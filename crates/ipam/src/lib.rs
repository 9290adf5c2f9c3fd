//! Address management as pure functions: ranges, candidates, picks, batches of record changes,
//! plans with undo classes, admission rules.
//!
//! No I/O, clock, randomness, environment or log: callers pass facts in and carry decisions out.
//! The pool record is the only proof of ownership (spec ipam 1.2).

pub mod admission;
pub mod annotation;
pub mod batch;
pub mod candidates;
pub mod carving;
pub mod environment;
pub mod facts;
pub mod first_generation;
#[cfg(test)]
mod fixture;
pub mod gc;
pub mod multus;
pub mod networks;
pub mod overlap;
pub mod pattern;
pub mod pick;
pub mod plan;
pub mod pod_cidr;
pub mod pool;
pub mod range;
pub mod range_set;
pub mod sticky;

//! What happens on a CNI verb: facts from the store, decisions from `ipam`, steps in their order,
//! undo by class (design section 3).
//!
//! The only module that holds store and NIC. Owns no decision about addresses and no netlink.

mod add;
mod adopt;
mod ahead;
mod allocate;
pub mod allocation;
pub(crate) mod batch_del;
pub(crate) mod bind;
pub mod call;
pub(crate) mod category;
mod check;
mod claim;
mod count;
mod del;
mod drops;
pub mod error;
mod exchange;
mod gc;
mod holder;
pub(crate) mod identity;
pub(crate) mod journal;
pub(crate) mod leaving;
mod leftover;
pub mod memory;
mod mismatch;
mod observe;
mod record;
mod release;
mod result;
mod snapshot;
mod status;
mod tell;
mod trace;
mod unbind;
mod validity;
pub(crate) mod workload;

//! What happens on a CNI verb: facts from the store, decisions from `ipam`, steps in their order,
//! undo by class (design section 3).
//!
//! The only module that holds store and NIC. Owns no decision about addresses and no netlink.

mod add;
mod allocate;
pub mod allocation;
mod bind;
pub mod call;
mod check;
mod claim;
mod del;
pub mod error;
mod gc;
mod holder;
pub(crate) mod identity;
pub mod memory;
mod observe;
pub(crate) mod pending;
mod record;
mod release;
mod result;
mod snapshot;
mod status;
mod unbind;

//! What the observer's programs and the agent have in common: the maps' layouts, the frame parser
//! and the checks. No I/O and no kernel helpers, so that the host tests what the kernel runs.
//!
//! Spec: dataplane sections 5.2 (tag), 5.3 (maps), 5.5 (kinds).

#![cfg_attr(not(test), no_std)]

pub mod check;
pub mod kind;
pub mod layout;
pub mod parse;

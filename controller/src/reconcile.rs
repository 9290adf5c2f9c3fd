//! One module a kind.

pub mod ippool;

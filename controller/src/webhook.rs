//! Admission over HTTPS: what the API server asks before it stores an object of ours, or a Pod
//! (spec api 3). The rules are `spiderpool_ipam::admission`; here are the server, the reviews and the
//! facts.
//!
//! Every replica answers. What the rules know of other objects comes from watches and is a little old:
//! two creations in the same instant, or on two replicas, may both pass. Of two pools that overlap all
//! the same, every process computes the same loser (`spiderpool_ipam::overlap`), which gives out
//! nothing. What is judged against the object itself is never old: the API server sends old and new.

pub mod facts;
pub mod judge;
pub mod kinds;
pub mod review;
pub mod routes;
pub mod server;
pub mod task;

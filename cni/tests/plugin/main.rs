//! The built binary, called as a runtime calls it, against a scripted agent on a Unix socket.
//! Needs no privileges and no network.

#[cfg(test)]
mod fake_agent;
#[cfg(test)]
mod logging;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod runtime;
#[cfg(test)]
mod spool;
#[cfg(test)]
mod transport;
#[cfg(test)]
mod verbs;

//! The only code that talks to the kernel: netlink, namespaces, packet sockets, sysctls.
//!
//! Used by the agent, by the simulated fabric and by test guests. Everything in here names the
//! link, the namespace and what was tried when it fails. No policy: what to attach, and what a
//! failure means to a Pod, is decided by the callers.

pub mod arp;
pub mod ndp;
pub mod netns;
pub mod packet;
pub mod probe;
pub mod rtnl;
pub mod sysctl;
#[cfg(test)]
mod testing;

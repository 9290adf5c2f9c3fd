//! The fabric on real links. Proves the packet sockets, the tags and the offload headers; the
//! rules themselves are tables beside the code. Needs root; no 8021q.

#[cfg(test)]
mod cloud;
#[cfg(test)]
mod lab;
#[cfg(test)]
mod process;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod traffic;

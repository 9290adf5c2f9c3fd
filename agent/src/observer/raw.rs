//! The one thing of the observer that has no safe binding: a map's descriptor in the poller.
#![expect(unsafe_code, reason = "tokio asks for a promise about the descriptor")]

use std::io;

use aya::maps::{MapData, RingBuf};
use tokio::io::unix::AsyncFd;

/// Hands the ring buffer to the poller of the calling task's runtime.
///
/// # Errors
/// The kernel's, when the poller refuses the descriptor.
pub(super) fn register(ring: RingBuf<MapData>) -> io::Result<AsyncFd<RingBuf<MapData>>> {
    // SAFETY: the ring buffer owns its map's descriptor, never replaces it, and closes it when it
    // is dropped, which AsyncFd does after it has left the poller.
    let fd = unsafe { AsyncFd::register(ring) };
    fd.map_err(io::Error::from)
}

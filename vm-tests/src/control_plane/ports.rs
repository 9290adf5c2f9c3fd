//! Free ports on loopback.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context, Result};

/// Ports nobody listens on just now. Programs that cannot be handed a socket take one a moment
/// later; whoever is quicker makes their start fail, with its own words.
pub(crate) fn free<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port on loopback")?;
        *port = listener.local_addr()?.port();
        // Held until all are found, so that no two are the same.
        held.push(listener);
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_are_free() {
        let [first, second] = free().unwrap();
        assert_ne!(first, second);
        TcpListener::bind((Ipv4Addr::LOCALHOST, first)).unwrap();
    }
}

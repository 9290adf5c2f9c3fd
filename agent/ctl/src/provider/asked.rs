//! What the command line asks for, as far as it can be judged by itself. Pure.

use spiderpool_api::value::Mac;

use super::catalogue::{self, Check};

/// The command line asks for nothing that can be done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsageError {
    #[error("nothing to test with: name pools of the cluster (--pool), or a file (--topology)")]
    Target,
    #[error("--ca FILE is needed to verify the provider's certificate, or --insecure-skip-verify")]
    Ca,
    #[error("there is no check or group {0:?}; --list shows them")]
    Check(String),
    #[error("no check of those is one of contract version 1; --v1 --list shows them")]
    NoneOfVersion1,
    #[error("--node names {0} twice")]
    NodeTwice(String),
    #[error("--node gives {first} and {second} the same parent NIC {mac}")]
    OneNic {
        first: String,
        second: String,
        mac: Mac,
    },
    #[error("none of the pools can be tested: name an IPv4 pool that is marked for a provider")]
    Pool,
}

/// A node and, if it is told, its parent NIC.
pub(crate) fn node(text: &str) -> Result<(String, Option<Mac>), String> {
    let (name, mac) = text
        .split_once('=')
        .map_or((text, None), |(name, mac)| (name, Some(mac)));
    let mac = mac.map(|text| {
        let mac: Mac = text.parse().map_err(|error| format!("{error}"))?;
        let is_one = mac.is_unicast().then_some(mac);
        is_one.ok_or_else(|| format!("no NIC has the MAC {mac}"))
    });
    if name.is_empty() {
        return Err("expected the name of a node, or NAME=MAC".to_owned());
    }
    Ok((name.to_owned(), mac.transpose()?))
}

/// The checks that are named, or all.
pub(crate) fn selected(only: &[String], v1: bool) -> Result<Vec<&'static Check>, UsageError> {
    for name in only {
        if !catalogue::all().any(|check| catalogue::means(name, check)) {
            return Err(UsageError::Check(name.clone()));
        }
    }
    let wanted = |check: &&Check| {
        let is_named = only.iter().any(|name| catalogue::means(name, check));
        let is_spoken = !v1 || catalogue::is_of_version_1(check);
        is_spoken && (only.is_empty() || is_named)
    };
    let selected: Vec<_> = catalogue::all().filter(wanted).collect();
    if selected.is_empty() {
        return Err(UsageError::NoneOfVersion1);
    }
    Ok(selected)
}

/// What moves from a node to itself does not move.
pub(crate) fn apart(nodes: &[(String, Option<Mac>)]) -> Result<(), UsageError> {
    for (at, (second, mac)) in nodes.iter().enumerate() {
        for (first, other) in nodes.iter().take(at) {
            if first == second {
                return Err(UsageError::NodeTwice(second.clone()));
            }
            if let Some(mac) = mac.filter(|mac| Some(*mac) == *other) {
                let (first, second) = (first.clone(), second.clone());
                return Err(UsageError::OneNic { first, second, mac });
            }
        }
    }
    Ok(())
}

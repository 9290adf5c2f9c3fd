//! Order among candidates: the more specific pool first, ties in the user's order (spec ipam 3.5,
//! case B06).

use super::Candidate;
use crate::pool::{Mode, Pool};

pub(super) fn sort(candidates: &mut [Candidate]) {
    // Stable, so that ties keep their order; `false` sorts before `true`.
    candidates.sort_by_key(|candidate| key(&candidate.pool));
}

/// Ready sub-ENIs before those that cost a cloud call, then by what the pool asks for.
fn key(pool: &Pool) -> [bool; 7] {
    let affinity = &pool.affinity;
    [
        pool.mode == Mode::Global,
        affinity.pod.is_none(),
        affinity.node_names.is_empty(),
        affinity.node.is_none(),
        affinity.namespace_names.is_empty(),
        affinity.namespace.is_none(),
        affinity.multus_names.is_empty(),
    ]
}

//! What a seed plays besides its steps: most clusters are of the second generation of the provider's
//! contract, some of the first, and in some virtual machines run beside the Pods.

use crate::mutation::Mutation;

/// A kind of cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Scenario {
    /// The provider speaks contract version 1: no pool is marked, the NIC's configuration decides.
    pub(crate) first: bool,
    /// There are virtual machines.
    pub(crate) machines: bool,
}

impl Scenario {
    /// That of a seed. A built-in fault is looked for where it can be seen.
    pub(crate) fn of(seed: u64, mutation: Option<Mutation>) -> Self {
        match mutation {
            None => Self {
                first: seed % 5 == 3,
                machines: seed % 5 == 4 || seed % 10 == 8,
            },
            Some(fault) => Self {
                first: fault.is_of_version_1(),
                machines: fault.is_of_machines(),
            },
        }
    }
}

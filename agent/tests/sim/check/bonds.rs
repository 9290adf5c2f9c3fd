//! Sub-ENIs under contract version 1, where no pool says which there are: what is known of each address
//! from the calls about it.

use std::net::IpAddr;

use super::Check;

/// What the last call about an address came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bond {
    /// The provider has bound it, or has it bound, and whoever asked heard nothing, or no.
    Open,
    /// The provider has bound it and said so.
    Heard,
    /// The provider was told to give it back.
    LetGo,
}

impl Check {
    /// The provider has bound these; its answer is on its way.
    pub(crate) fn bound(&mut self, addresses: &[IpAddr]) {
        self.note(addresses, Bond::Open);
    }

    /// The answer has come.
    pub(crate) fn heard(&mut self, addresses: &[IpAddr]) {
        self.note(addresses, Bond::Heard);
        self.counts.first += usize::from(self.scenario.first);
    }

    /// There was none, or it was no: what an earlier call has bound may be bound.
    pub(crate) fn heard_nothing(&mut self, addresses: &[IpAddr]) {
        for address in addresses {
            if self.bonds.get(address) == Some(&Bond::Heard) {
                self.bonds.insert(*address, Bond::Open);
            }
        }
    }

    pub(super) fn let_go(&mut self, address: IpAddr) {
        self.note(&[address], Bond::LetGo);
    }

    fn note(&mut self, addresses: &[IpAddr], bond: Bond) {
        self.bonds
            .extend(addresses.iter().map(|address| (*address, bond)));
    }

    /// Whether somebody has to give it back.
    pub(super) fn is_owed(&self, address: IpAddr) -> bool {
        self.scenario.first && self.bonds.get(&address) == Some(&Bond::Heard)
    }

    /// What is known of a sub-ENI that is left at rest, if it is more than that nobody heard of it.
    pub(crate) fn bond_left(&self, address: IpAddr) -> Option<Bond> {
        let bond = self.bonds.get(&address).copied();
        bond.filter(|bond| *bond != Bond::Open)
    }
}

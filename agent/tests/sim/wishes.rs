//! What Pods want of IPAM, and what they may be given.

use crate::action::MEMBERS;
use crate::check::Promise;
use crate::machines::MACHINES;
use crate::scenario::Scenario;

/// What a Pod wants of IPAM, and what it may be given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) plugin: &'static str,
    /// Main plugin of the configuration.
    pub(crate) main: &'static str,
    pub(crate) nics: &'static [&'static str],
    pub(crate) v4: &'static [&'static str],
    pub(crate) v6: &'static [&'static str],
    pub(crate) promise: Promise,
    /// The only node that can fulfil it.
    pub(crate) node: Option<u8>,
}

const fn wish(
    plugin: &'static str,
    v4: &'static [&'static str],
    allowed: &'static [&'static str],
    families: usize,
) -> Wish {
    Wish {
        plugin,
        main: plugin,
        nics: &["net1"],
        v4,
        v6: &[],
        promise: Promise { allowed, families },
        node: None,
    }
}

/// What virtual machines want.
const MACHINE_WISHES: [usize; MACHINES as usize] = [1, 3];

/// How many kinds of Pods there are.
pub(crate) const KINDS: u8 = 9;

/// All of them.
const WISHES: [Wish; KINDS as usize] = [
    wish("spiderpool", &["plain4"], &["plain4"], 1),
    Wish {
        v6: &["plain6"],
        ..wish("spiderpool", &["plain4"], &["plain4", "plain6"], 2)
    },
    wish("eni-vlan", &["warm-*", "glob"], &["warm-", "glob"], 1),
    wish("eni-vlan", &["glob"], &["glob"], 1),
    wish("eni-vlan", &["pair4"], &["pair"], 2),
    wish("eni-vlan", &["plain4", "glob"], &["glob"], 1),
    Wish {
        nics: &["net1", "net2"],
        ..wish("eni-vlan", &["warm-*", "glob"], &["warm-", "glob"], 1)
    },
    wish(
        "spiderpool",
        &["spare4", "plain4"],
        &["spare4", "plain4"],
        1,
    ),
    Wish {
        node: Some(0),
        ..wish("eni-vlan", &["warmp4-*"], &["warmp"], 2)
    },
];

/// The same under contract version 1, where eni-vlan and a `vlan` of others without an id make sub-ENIs
/// of any pool.
const WISHES_V1: [Wish; KINDS as usize] = [
    WISHES[0],
    WISHES[1],
    WISHES[2],
    WISHES[3],
    wish("eni-vlan", &["pair4"], &["pair"], 1),
    wish("eni-vlan", &["plain4", "glob"], &["plain4", "glob"], 1),
    WISHES[6],
    wish("eni-vlan", &["spare4", "plain4"], &["spare4", "plain4"], 1),
    Wish {
        main: "vlan",
        ..wish("spiderpool", &["warm-*", "pair4"], &["warm-", "pair"], 1)
    },
];

/// What the Pods of the StatefulSet want, by their ordinal.
const MEMBER_WISHES: [usize; MEMBERS as usize] = [1, 3, 6];

/// One of the kinds.
pub(crate) fn of_kind(scenario: Scenario, kind: u8) -> Wish {
    of_index(scenario, usize::from(kind) % WISHES.len())
}

/// That of an ordinal.
pub(crate) fn of_member(scenario: Scenario, ordinal: u8) -> Wish {
    of_index(scenario, MEMBER_WISHES[usize::from(ordinal)])
}

/// That of a virtual machine.
pub(crate) fn of_machine(scenario: Scenario, machine: u8) -> Wish {
    of_index(scenario, MACHINE_WISHES[usize::from(machine)])
}

fn of_index(scenario: Scenario, index: usize) -> Wish {
    match scenario.first {
        true => WISHES_V1[index],
        false => WISHES[index],
    }
}

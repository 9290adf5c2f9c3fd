//! The addresses a pool's `ips` and `excludeIPs` leave. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses of one family, as sorted ranges that do not touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges {
    is_ipv6: bool,
    spans: Vec<(u128, u128)>,
}

impl Ranges {
    /// Addresses and ranges `a-b`, less those excluded. Texts that are neither are left out:
    /// admission refused them already.
    pub fn new<'a>(
        included: impl IntoIterator<Item = &'a str>,
        excluded: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let mut is_ipv6 = false;
        let mut spans = Vec::new();
        for (from, to) in included.into_iter().filter_map(ends) {
            is_ipv6 = from.is_ipv6();
            spans.push((number(from), number(to)));
        }
        for (from, to) in excluded.into_iter().filter_map(ends) {
            spans = without(&spans, number(from), number(to));
        }
        spans.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(spans.len());
        for (from, to) in spans {
            match merged.last_mut() {
                Some((_, end)) if from <= end.saturating_add(1) => *end = to.max(*end),
                _ => merged.push((from, to)),
            }
        }
        Self {
            is_ipv6,
            spans: merged,
        }
    }

    /// Whether an address is among them.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let number = number(ip);
        ip.is_ipv6() == self.is_ipv6
            && self
                .spans
                .iter()
                .any(|(from, to)| (*from..=*to).contains(&number))
    }

    /// The lowest address that others have too.
    #[must_use]
    pub fn first_shared(&self, others: &Self) -> Option<IpAddr> {
        if self.is_ipv6 != others.is_ipv6 {
            return None;
        }
        let theirs = |(from, to): &(u128, u128)| {
            let shared = others.spans.iter().filter_map(|(first, last)| {
                let low = *from.max(first);
                (low <= *to.min(last)).then_some(low)
            });
            shared.min()
        };
        let shared = self.spans.iter().filter_map(theirs).min()?;
        address(self.is_ipv6, shared)
    }

    /// All of them, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> {
        let numbers = self.spans.iter().flat_map(|(from, to)| *from..=*to);
        numbers.filter_map(|number| address(self.is_ipv6, number))
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u128 {
        let sizes = self
            .spans
            .iter()
            .map(|(from, to)| (to - from).saturating_add(1));
        sizes.fold(0, u128::saturating_add)
    }
}

/// First and last address of an item; `None`: it is none.
pub(crate) fn ends(text: &str) -> Option<(IpAddr, IpAddr)> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to): (IpAddr, IpAddr) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
    (from.is_ipv6() == to.is_ipv6() && from <= to).then_some((from, to))
}

fn without(spans: &[(u128, u128)], low: u128, high: u128) -> Vec<(u128, u128)> {
    let mut left = Vec::with_capacity(spans.len() + 1);
    for &(from, to) in spans {
        if to < low || from > high {
            left.push((from, to));
            continue;
        }
        if from < low {
            left.push((from, low - 1));
        }
        if to > high {
            left.push((high + 1, to));
        }
    }
    left
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => ip.into(),
    }
}

fn address(is_ipv6: bool, number: u128) -> Option<IpAddr> {
    if is_ipv6 {
        return Some(Ipv6Addr::from(number).into());
    }
    u32::try_from(number)
        .ok()
        .map(|bits| Ipv4Addr::from(bits).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a row a line
    fn shared_addresses_are_found() {
        for (one, other, shared) in [
            (&["10.0.0.1-10.0.0.3"][..], &["10.0.0.3-10.0.0.9"][..], Some("10.0.0.3")),
            (&["10.0.0.1", "10.0.0.7-10.0.0.9"], &["10.0.0.2-10.0.0.6", "10.0.0.8"], Some("10.0.0.8")),
            (&["10.0.0.0-10.0.0.9"], &["10.0.0.4"], Some("10.0.0.4")),
            (&["10.0.0.1-10.0.0.3"], &["10.0.0.4-10.0.0.9"], None),
            (&["10.0.0.1"], &["::a00:1"], None),
            (&["10.0.0.1"], &[], None),
        ] {
            let (one, other) = (Ranges::new(one.iter().copied(), []), Ranges::new(other.iter().copied(), []));
            let shared = shared.map(|text| text.parse().unwrap());
            assert_eq!((one.first_shared(&other), other.first_shared(&one)), (shared, shared));
        }
    }

    #[test]
    #[rustfmt::skip] // a row a line
    fn texts_become_addresses() {
        for (included, excluded, expected) in [
            (&["10.0.0.1-10.0.0.3", "10.0.0.4"][..], &[][..], &["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"][..]),
            (&["10.0.0.1-10.0.0.4"], &["10.0.0.2-10.0.0.3"], &["10.0.0.1", "10.0.0.4"]),
            (&["10.0.0.1-10.0.0.4"], &["10.0.0.0-10.0.0.2", "10.0.0.4-10.0.0.9"], &["10.0.0.3"]),
            (&["10.0.0.2", "10.0.0.1-10.0.0.2"], &[], &["10.0.0.1", "10.0.0.2"]),
            (&["fd00::ffff-fd00::1:0"], &[], &["fd00::ffff", "fd00::1:0"]),
            (&["10.0.0.3-10.0.0.1", "x", "10.0.0.1-fd00::1"], &[], &[]),
        ] {
            let ranges = Ranges::new(included.iter().copied(), excluded.iter().copied());
            let addresses: Vec<String> = ranges.iter().map(|ip| ip.to_string()).collect();
            assert_eq!(addresses, expected);
            assert_eq!(usize::try_from(ranges.count()), Ok(expected.len()));
            assert!(expected.iter().all(|ip| ranges.contains(ip.parse().unwrap())));
            assert!(!ranges.contains("10.0.0.9".parse().unwrap()));
            assert!(!ranges.contains("::a00:1".parse().unwrap()), "no IPv4 address in IPv6 clothes");
        }
    }
}

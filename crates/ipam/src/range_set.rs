//! Sets of addresses as sorted, disjoint intervals; never expanded, so that an IPv6 network of
//! 2^64 addresses costs as much as one address (case B04). A set may hold both families.

use std::net::IpAddr;

use crate::range::{IpRange, RangeError, key, parse_list};

/// A set of addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Sorted by family and start; neighbours are joined, so equal sets have equal vectors.
    ranges: Vec<IpRange>,
}

impl RangeSet {
    /// No address.
    #[must_use]
    pub const fn empty() -> Self {
        Self { ranges: Vec::new() }
    }

    /// From `spec.ips`-like texts of one family.
    ///
    /// # Errors
    /// [`RangeError`] of the first bad item.
    pub fn from_texts<T: AsRef<str>>(texts: &[T]) -> Result<Self, RangeError> {
        Ok(parse_list(texts)?.into_iter().collect())
    }

    /// `ips` less `excludeIPs` of a pool or subnet; `None` when a list cannot be read.
    #[must_use]
    pub fn usable(ips: Option<&[String]>, exclude: Option<&[String]>) -> Option<Self> {
        let ips = Self::from_texts(ips.unwrap_or_default()).ok()?;
        let exclude = Self::from_texts(exclude.unwrap_or_default()).ok()?;
        Some(ips.subtract(&exclude))
    }

    /// The intervals, sorted and disjoint.
    #[must_use]
    pub fn ranges(&self) -> &[IpRange] {
        &self.ranges
    }

    /// Whether there is no address.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether the address is in the set.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let (family, value) = key(address);
        let after = self
            .ranges
            .partition_point(|range| (range.family(), range.keys().0) <= (family, value));
        after
            .checked_sub(1)
            .and_then(|index| self.ranges.get(index))
            .is_some_and(|range| range.contains(address))
    }

    /// Number of addresses, capped at 2^63 - 1 as in `status.totalIPCount`.
    #[must_use]
    pub fn count(&self) -> i64 {
        let total = self.ranges.iter().fold(0_u128, |sum, range| {
            sum.saturating_add(range.span()).saturating_add(1)
        });
        i64::try_from(total).unwrap_or(i64::MAX)
    }

    /// Addresses in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.ranges.iter().chain(&other.ranges).copied().collect()
    }

    /// Addresses in both sets.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let mut out = Vec::new();
        let (mut left, mut right) = (
            self.ranges.iter().peekable(),
            other.ranges.iter().peekable(),
        );
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            if a.family() == b.family() {
                let ((a0, a1), (b0, b1)) = (a.keys(), b.keys());
                let (low, high) = (a0.max(b0), a1.min(b1));
                if low <= high {
                    out.push(IpRange::from_keys(a.family(), low, high));
                }
            }
            if (a.family(), a.keys().1) <= (b.family(), b.keys().1) {
                left.next();
            } else {
                right.next();
            }
        }
        Self { ranges: out }
    }

    /// Addresses of this set that are not in the other.
    #[must_use]
    pub fn subtract(&self, other: &Self) -> Self {
        let mut out = Vec::new();
        let mut holes = other.ranges.iter().peekable();
        for range in &self.ranges {
            let (mut low, high) = range.keys();
            let family = range.family();
            let mut rest = true;
            while let Some(hole) = holes.peek() {
                let (start, end) = hole.keys();
                if (hole.family(), end) < (family, low) {
                    holes.next();
                    continue;
                }
                if (hole.family(), start) > (family, high) {
                    break;
                }
                if start > low {
                    out.push(IpRange::from_keys(family, low, start - 1));
                }
                if end >= high {
                    rest = false;
                    break;
                }
                low = end + 1;
                holes.next();
            }
            if rest {
                out.push(IpRange::from_keys(family, low, high));
            }
        }
        Self { ranges: out }
    }

    /// Whether every address is in the other set.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.subtract(other).is_empty()
    }

    /// Lowest address, IPv4 before IPv6.
    #[must_use]
    pub fn first(&self) -> Option<IpAddr> {
        self.ranges.first().map(|range| range.first())
    }

    /// First address of the set in the order of `order` (`spec.ips` as stored).
    #[must_use]
    pub fn first_free(&self, order: &[IpRange]) -> Option<IpAddr> {
        let part = |range: &IpRange| {
            self.intersect(&Self {
                ranges: vec![*range],
            })
        };
        order.iter().find_map(|range| part(range).first())
    }
}

impl FromIterator<IpRange> for RangeSet {
    fn from_iter<I: IntoIterator<Item = IpRange>>(ranges: I) -> Self {
        let mut sorted: Vec<IpRange> = ranges.into_iter().collect();
        sorted.sort_unstable();
        let mut joined: Vec<IpRange> = Vec::with_capacity(sorted.len());
        for range in sorted {
            match joined.last_mut() {
                Some(last) if touches(*last, range) => {
                    let (first, end) = last.keys();
                    *last = IpRange::from_keys(last.family(), first, end.max(range.keys().1));
                }
                _ => joined.push(range),
            }
        }
        Self { ranges: joined }
    }
}

impl FromIterator<IpAddr> for RangeSet {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Self {
        addresses.into_iter().map(IpRange::single).collect()
    }
}

/// Whether `next`, which starts no earlier, overlaps or follows directly.
fn touches(last: IpRange, next: IpRange) -> bool {
    last.family() == next.family()
        && last
            .keys()
            .1
            .checked_add(1)
            .is_none_or(|after| next.keys().0 <= after)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::{Just, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};

    use super::*;
    use crate::range::Family;

    fn set(texts: &[&str]) -> RangeSet {
        RangeSet::from_texts(texts).unwrap()
    }

    #[test]
    fn b04_large_pools_are_instant_and_never_overflow() {
        let full = set(&["fd11::1-fd11::ffff:ffff:ffff"]);
        let cut = full.subtract(&set(&["fd11::1-fd11::ff"]));
        for (pool, count, first) in [
            (set(&["fd10::10-fd10::1f"]), 16, "fd10::10"),
            (full, 281_474_976_710_655, "fd11::1"),
            (
                set(&["fd12::-fd12::ffff:ffff:ffff:ffff"]),
                i64::MAX,
                "fd12::",
            ),
            (cut, 281_474_976_710_400, "fd11::100"),
        ] {
            assert_eq!(pool.count(), count);
            let free = pool.first_free(pool.ranges());
            assert_eq!(free, Some(first.parse().unwrap()));
        }
        let all = set(&["::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"]);
        assert_eq!(all.count(), i64::MAX);
        assert!(all.subtract(&all).is_empty());
    }

    #[test]
    fn excludes_follow_the_example() {
        let ips = set(&["10.7.0.3-10.7.0.8"]);
        let left = ips.subtract(&set(&["10.7.0.5", "10.7.0.7-10.7.0.30"]));
        let want: RangeSet = ["10.7.0.3", "10.7.0.4", "10.7.0.6"]
            .iter()
            .map(|text| text.parse::<IpAddr>().unwrap())
            .collect();
        assert_eq!(left, want);
        assert_eq!(left.count(), 3);
    }

    #[test]
    fn the_first_free_address_follows_the_order_of_the_spec() {
        let order = parse_list(&["10.7.0.9-10.7.0.10", "10.7.0.3"]).unwrap();
        let all: RangeSet = order.iter().copied().collect();
        for (gone, want) in [
            (vec![], Some("10.7.0.9")),
            (vec!["10.7.0.9"], Some("10.7.0.10")),
            (vec!["10.7.0.9-10.7.0.10"], Some("10.7.0.3")),
            (vec!["10.7.0.0-10.7.0.10"], None),
        ] {
            let free = all.subtract(&set(&gone));
            assert_eq!(
                free.first_free(&order),
                want.map(|text| text.parse().unwrap())
            );
        }
    }

    /// Addresses near both ends of both families, where off-by-one errors live.
    fn some_range() -> impl Strategy<Value = IpRange> {
        let base = prop_oneof![
            Just((Family::V4, 0_u128)),
            Just((Family::V4, u128::from(u32::MAX) - 15)),
            Just((Family::V6, 0)),
            Just((Family::V6, u128::MAX - 15)),
        ];
        (base, 0..16_u128, 0..16_u128).prop_map(|((family, base), a, b)| {
            IpRange::from_keys(family, base + a.min(b), base + a.max(b))
        })
    }

    fn some_set() -> impl Strategy<Value = RangeSet> {
        proptest::collection::vec(some_range(), 0..6)
            .prop_map(|ranges| ranges.into_iter().collect())
    }

    fn naive(set: &RangeSet) -> BTreeSet<(Family, u128)> {
        let expand = |range: &IpRange| {
            let (family, (first, last)) = (range.family(), range.keys());
            (0..=last - first).map(move |step| (family, first + step))
        };
        set.ranges().iter().flat_map(expand).collect()
    }

    proptest! {
        #[test]
        fn algebra_agrees_with_plain_sets(a in some_set(), b in some_set(), probe in some_range()) {
            let (x, y) = (naive(&a), naive(&b));
            prop_assert_eq!(naive(&a.union(&b)), x.union(&y).copied().collect());
            prop_assert_eq!(naive(&a.intersect(&b)), x.intersection(&y).copied().collect());
            prop_assert_eq!(naive(&a.subtract(&b)), x.difference(&y).copied().collect());
            prop_assert_eq!(a.is_subset(&b), x.is_subset(&y));
            prop_assert_eq!(a.count(), i64::try_from(x.len()).unwrap());
            prop_assert_eq!(a.contains(probe.first()), x.contains(&key(probe.first())));
            // Equal sets must compare equal: the form is canonical.
            prop_assert_eq!(a.subtract(&b).union(&a.intersect(&b)), a);
        }

        /// Sets over the whole number line, such as `fd12::/64`, stay as small as what they are made of.
        #[test]
        fn large_sets_are_never_expanded(
            ranges in proptest::collection::vec((proptest::bits::u128::ANY, proptest::bits::u128::ANY), 1..6),
            holes in proptest::collection::vec((proptest::bits::u128::ANY, 0..1_u128 << 64), 0..6),
        ) {
            let whole: RangeSet = ranges.iter()
                .map(|(a, b)| IpRange::from_keys(Family::V6, *a.min(b), *a.max(b))).collect();
            let gone: RangeSet = holes.iter()
                .map(|(at, size)| IpRange::from_keys(Family::V6, *at, at.saturating_add(*size))).collect();
            let left = whole.subtract(&gone);
            prop_assert!(left.ranges().len() <= ranges.len() + holes.len());
            prop_assert!(left.is_subset(&whole) && left.intersect(&gone).is_empty());
            prop_assert_eq!(left.union(&whole.intersect(&gone)), whole.clone());
            let texts: Vec<String> = left.ranges().iter().map(ToString::to_string).collect();
            prop_assert_eq!(RangeSet::from_texts(&texts).unwrap(), left.clone());
            let first = left.first_free(whole.ranges());
            prop_assert_eq!(first, left.first());
            prop_assert!(left.count() >= 0);
        }

        /// What the webhook stores is the same set, and storing it again changes nothing.
        #[test]
        fn merging_keeps_the_set(ranges in proptest::collection::vec(0..40_u8, 2..8)) {
            let texts: Vec<String> = ranges.iter().map(|n| format!("10.0.0.{n}-10.0.0.{}", n + n % 5)).collect();
            let merged = crate::range::merge(&texts).unwrap();
            prop_assert_eq!(RangeSet::from_texts(&merged).unwrap(), RangeSet::from_texts(&texts).unwrap());
            prop_assert_eq!(crate::range::merge(&merged).unwrap(), merged);
        }
    }
}

//! One range of addresses and its text, `a` or `a-b` (spec api 2.2). Owns parsing, canonical
//! printing and the merge the webhook does; sets of ranges are in [`crate::range_set`].

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;

use crate::range_set::RangeSet;

/// IP family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both, in the order claims are made.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// Family of an address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Family of a network.
    #[must_use]
    pub const fn of_net(net: IpNet) -> Self {
        match net {
            IpNet::V4(_) => Self::V4,
            IpNet::V6(_) => Self::V6,
        }
    }

    /// `spec.ipVersion`: 4 or 6.
    #[must_use]
    pub const fn version(self) -> i64 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }

    /// From `spec.ipVersion`.
    #[must_use]
    pub const fn from_version(version: i64) -> Option<Self> {
        match version {
            4 => Some(Self::V4),
            6 => Some(Self::V6),
            _ => None,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// Why a text is no range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Neither an address nor two.
    #[error("{0:?} is not an IP address or a range such as 10.7.0.3-10.7.0.9 (no blanks, no CIDR)")]
    Syntax(String),
    /// One end of each family.
    #[error("{0:?} mixes IPv4 and IPv6")]
    Mixed(String),
    /// The end lies before the start.
    #[error("{0:?} ends before it starts")]
    Reversed(String),
    /// A list has both families.
    #[error("{text:?} is not {family}, like the addresses before it")]
    Family {
        /// The item.
        text: String,
        /// Family of the list.
        family: Family,
    },
}

/// Consecutive addresses of one family, both ends included; ordered by family, then start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpRange {
    family: Family,
    first: u128,
    last: u128,
}

impl IpRange {
    /// The range of one address.
    #[must_use]
    pub fn single(address: IpAddr) -> Self {
        let (family, value) = key(address);
        Self {
            family,
            first: value,
            last: value,
        }
    }

    /// All addresses of a network, network and broadcast address included: they are ordinary.
    #[must_use]
    pub fn of_net(net: IpNet) -> Self {
        let (family, first) = key(net.network());
        let (_, last) = key(net.broadcast());
        Self {
            family,
            first,
            last,
        }
    }

    /// From `first` to `last`; `None` when they are of two families or in the wrong order.
    #[must_use]
    pub fn new(first: IpAddr, last: IpAddr) -> Option<Self> {
        let ((family, first), (other, last)) = (key(first), key(last));
        (family == other && first <= last).then_some(Self {
            family,
            first,
            last,
        })
    }

    pub(crate) const fn from_keys(family: Family, first: u128, last: u128) -> Self {
        Self {
            family,
            first,
            last,
        }
    }

    /// Family of all its addresses.
    #[must_use]
    pub const fn family(self) -> Family {
        self.family
    }

    /// Lowest address.
    #[must_use]
    pub fn first(self) -> IpAddr {
        address(self.family, self.first)
    }

    /// Highest address.
    #[must_use]
    pub fn last(self) -> IpAddr {
        address(self.family, self.last)
    }

    pub(crate) const fn keys(self) -> (u128, u128) {
        (self.first, self.last)
    }

    /// Whether the address lies in it.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        let (family, value) = key(address);
        family == self.family && (self.first..=self.last).contains(&value)
    }

    /// Number of addresses less one, which always fits.
    pub(crate) const fn span(self) -> u128 {
        self.last - self.first
    }
}

/// The address as a number, with its family.
pub(crate) fn key(address: IpAddr) -> (Family, u128) {
    match address {
        IpAddr::V4(v4) => (Family::V4, u128::from(v4.to_bits())),
        IpAddr::V6(v6) => (Family::V6, v6.to_bits()),
    }
}

/// The address of a number; numbers of an IPv4 range never pass 32 bits.
pub(crate) fn address(family: Family, value: u128) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(
            u32::try_from(value).unwrap_or(u32::MAX),
        )),
        Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(value)),
    }
}

impl FromStr for IpRange {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let syntax = || RangeError::Syntax(text.to_owned());
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let first: IpAddr = first.parse().map_err(|_| syntax())?;
        let last: IpAddr = last.parse().map_err(|_| syntax())?;
        if Family::of(first) != Family::of(last) {
            return Err(RangeError::Mixed(text.to_owned()));
        }
        Self::new(first, last).ok_or_else(|| RangeError::Reversed(text.to_owned()))
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first())
        } else {
            write!(f, "{}-{}", self.first(), self.last())
        }
    }
}

/// Parses a list whose items must all be of one family.
///
/// # Errors
/// [`RangeError`] of the first item that is no range or of another family.
pub fn parse_list<T: AsRef<str>>(texts: &[T]) -> Result<Vec<IpRange>, RangeError> {
    let mut ranges: Vec<IpRange> = Vec::with_capacity(texts.len());
    for text in texts {
        let range: IpRange = text.as_ref().parse()?;
        if let Some(first) = ranges.first()
            && first.family != range.family
        {
            return Err(RangeError::Family {
                text: text.as_ref().to_owned(),
                family: first.family,
            });
        }
        ranges.push(range);
    }
    Ok(ranges)
}

/// What the webhook stores for a list: sorted by value, duplicates and neighbours joined; a list
/// of one item stays as typed.
///
/// # Errors
/// [`RangeError`] of the first bad item.
pub fn merge<T: AsRef<str>>(texts: &[T]) -> Result<Vec<String>, RangeError> {
    let ranges = parse_list(texts)?;
    if let [only] = texts {
        return Ok(vec![only.as_ref().to_owned()]);
    }
    let set: RangeSet = ranges.into_iter().collect();
    Ok(set.ranges().iter().map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_addresses_or_ranges() {
        for (text, canonical) in [
            ("10.7.0.8", "10.7.0.8"),
            ("10.7.0.3-10.7.0.5", "10.7.0.3-10.7.0.5"),
            ("10.7.0.3-10.7.0.3", "10.7.0.3"),
            ("FD5A:0:0::10", "fd5a::10"),
            ("fd5a:0::10-FD5A::11", "fd5a::10-fd5a::11"),
        ] {
            assert_eq!(text.parse::<IpRange>().unwrap().to_string(), canonical);
        }
        for bad in [
            "",
            "-",
            "10.7.0.8-",
            "-10.7.0.8",
            " 10.7.0.8",
            "10.7.0.8 ",
            "10.7.0.3 - 10.7.0.5",
            "10.7.0.0/24",
            "10.7.0.3-5",
            "10.7.0.3-10.7.0.4-10.7.0.5",
            "10.07.0.1",
            "fd5a::1%eth0",
            "10.7.0",
            "host",
        ] {
            assert_eq!(
                bad.parse::<IpRange>(),
                Err(RangeError::Syntax(bad.to_owned())),
                "{bad:?}"
            );
        }
        assert!(matches!(
            "10.7.0.1-fd5a::1".parse::<IpRange>(),
            Err(RangeError::Mixed(_))
        ));
        assert!(matches!(
            "10.7.0.5-10.7.0.3".parse::<IpRange>(),
            Err(RangeError::Reversed(_))
        ));
    }

    #[test]
    fn merge_follows_the_examples() {
        for (texts, want) in [
            (
                vec!["10.7.0.8", "10.7.0.3-10.7.0.5", "10.7.0.5-10.7.0.7"],
                vec!["10.7.0.3-10.7.0.8"],
            ),
            (vec!["fd5a:0:0::10", "fd5a::11"], vec!["fd5a::10-fd5a::11"]),
            (vec!["10.7.0.20", "10.7.0.9"], vec!["10.7.0.9", "10.7.0.20"]),
            (vec!["fd5a:0:0::10"], vec!["fd5a:0:0::10"]),
            (vec![], vec![]),
        ] {
            assert_eq!(merge(&texts).unwrap(), want, "{texts:?}");
        }
        assert!(matches!(
            merge(&["10.7.0.1", "fd5a::1"]),
            Err(RangeError::Family { .. })
        ));
        assert!(merge(&["10.7.0.0/24"]).is_err());
    }

    #[test]
    fn the_ends_of_the_number_line_are_ordinary() {
        let all: IpRange = "0.0.0.0-255.255.255.255".parse().unwrap();
        assert!(all.contains("255.255.255.255".parse().unwrap()));
        let all: IpRange = "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
            .parse()
            .unwrap();
        assert_eq!(all.span(), u128::MAX);
        assert!(!all.contains("0.0.0.0".parse().unwrap()));
    }
}

//! Newtypes for what the data plane speaks of. Owns parsing and printing; no value in here can
//! be out of range.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a text or number is not the value it should be. Names the value as it came.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Not a VLAN id a sub-ENI can have.
    #[error("VLAN id {0} is not in 1-4094")]
    Vlan(i64),
    /// Not six hexadecimal octets.
    #[error("MAC address {0:?} is not six hexadecimal octets such as fa:16:3e:00:00:01")]
    MacSyntax(String),
    /// Multicast, broadcast or all-zero.
    #[error("MAC address {0} is not a unicast address")]
    MacNotUnicast(Mac),
    /// Not a Linux interface name.
    #[error(
        "interface name {0:?} is not 1-15 characters without '/', ':', '%' and white space, other than all and default"
    )]
    IfName(String),
}

/// A VLAN id a sub-ENI can have: 1 to 4094 (IEEE 802.1Q; 0 is a priority tag, 4095 reserved).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VlanId(u16);

impl VlanId {
    /// The id as the kernel and the wire have it.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<i64> for VlanId {
    type Error = ValueError;

    fn try_from(value: i64) -> Result<Self, Self::Error> {
        match u16::try_from(value) {
            Ok(id @ 1..=4094) => Ok(Self(id)),
            _ => Err(ValueError::Vlan(value)),
        }
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for VlanId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u16(self.0)
    }
}

impl<'de> Deserialize<'de> for VlanId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = i64::deserialize(deserializer)?;
        Self::try_from(raw).map_err(serde::de::Error::custom)
    }
}

/// An Ethernet address. Any six octets; [`Mac::require_unicast`] checks what a NIC may carry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac([u8; 6]);

impl Mac {
    /// ff:ff:ff:ff:ff:ff.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// 00:00:00:00:00:00, "unknown" in an ARP request.
    pub const ZERO: Self = Self([0; 6]);

    /// From the six octets in wire order.
    #[must_use]
    pub const fn new(octets: [u8; 6]) -> Self {
        Self(octets)
    }

    /// The six octets in wire order.
    #[must_use]
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }

    /// Whether one NIC is meant: group bit clear and not all zero.
    #[must_use]
    pub fn is_unicast(self) -> bool {
        let [first, ..] = self.0;
        first & 1 == 0 && self != Self::ZERO
    }

    /// The address itself if a NIC may carry it.
    ///
    /// # Errors
    /// [`ValueError::MacNotUnicast`] for multicast, broadcast and all-zero addresses.
    pub fn require_unicast(self) -> Result<Self, ValueError> {
        if self.is_unicast() {
            Ok(self)
        } else {
            Err(ValueError::MacNotUnicast(self))
        }
    }
}

impl FromStr for Mac {
    type Err = ValueError;

    /// Accepts `:` and `-` as separators, any case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let syntax = || ValueError::MacSyntax(text.to_owned());
        let mut octets = [0; 6];
        let mut parts = text.split([':', '-']);
        for octet in &mut octets {
            let part = parts.next().ok_or_else(syntax)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(syntax());
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| syntax())?;
        }
        match parts.next() {
            None => Ok(Self(octets)),
            Some(_) => Err(syntax()),
        }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Mac {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A Linux interface name: 1 to 15 bytes, no `/`, `:`, white space, not `.` or `..`
/// (net/core/dev.c, `dev_valid_name`). No `%` either: the kernel takes `net%d` for a pattern and
/// gives the link another name. `all` and `default` are folders of sysctls, the kernel refuses them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct IfName(String);

impl IfName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for IfName {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let legal = (1..=15).contains(&text.len())
            && !matches!(text, "." | ".." | "all" | "default")
            && text
                .bytes()
                .all(|b| b.is_ascii_graphic() && !matches!(b, b'/' | b':' | b'%'));
        if legal {
            Ok(Self(text.to_owned()))
        } else {
            Err(ValueError::IfName(text.to_owned()))
        }
    }
}

impl AsRef<str> for IfName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IfName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for IfName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for IfName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlan_ids_outside_1_to_4094_do_not_exist() {
        for bad in [-1, 0, 4095, 4096, 70_000, i64::MIN, i64::MAX] {
            assert_eq!(VlanId::try_from(bad), Err(ValueError::Vlan(bad)));
        }
        for good in [1, 100, 4094] {
            assert_eq!(i64::from(VlanId::try_from(good).unwrap().get()), good);
        }
        assert!(serde_json::from_str::<VlanId>("70000").is_err());
    }

    #[test]
    fn mac_round_trips_and_refuses_other_shapes() {
        let mac: Mac = "FA-16-3e-00-01-0a".parse().unwrap();
        assert_eq!(mac.to_string(), "fa:16:3e:00:01:0a");
        for bad in [
            "",
            "fa:16:3e:00:71",
            "fa:16:3e:00:71:0a:01",
            "fa:16:3e:00:71:+a",
            "fa163e00710a",
        ] {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
        assert!(
            "01:00:5e:00:00:01"
                .parse::<Mac>()
                .unwrap()
                .require_unicast()
                .is_err()
        );
        assert!(Mac::ZERO.require_unicast().is_err());
        assert!(mac.require_unicast().is_ok());
    }

    #[test]
    fn interface_names_follow_the_kernel() {
        for good in ["eth0", "eth0.100", "a", "fifteen-chars-x"] {
            assert!(good.parse::<IfName>().is_ok(), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "a:b",
            "a b",
            "sixteen-chars-xy",
            "net%d",
            "all",
            "default",
            "naïve",
        ] {
            assert!(bad.parse::<IfName>().is_err(), "{bad}");
        }
    }
}

//! Pod and Namespace annotations as typed values (spec ipam section 2). Names are exact, unknown
//! fields are ignored; every error names the annotation, the item and the value.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use spiderpool_api::names;

use crate::facts::{NamespaceFacts, PodFacts};
use crate::pool::RouteTo;
use crate::range::Family;

/// What is wrong with an annotation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationError {
    /// Not the JSON it should be.
    #[error("wrong input: annotation {key} is not the JSON it should be: {why}")]
    Json {
        /// Annotation key.
        key: &'static str,
        /// Parser's reason with line and column.
        why: String,
    },
    /// One item is wrong.
    #[error("wrong input: annotation {key}: {item} {why}")]
    Item {
        /// Annotation key.
        key: &'static str,
        /// Which item, with its value.
        item: String,
        /// What is wrong with it.
        why: String,
    },
    /// Automatic pools.
    #[error(
        "wrong input: annotation {key} asks for an automatic pool; automatic pools are not available in this release, name pools with {}",
        names::POD_IPPOOL
    )]
    AutoPool {
        /// Annotation key.
        key: &'static str,
    },
}

impl AnnotationError {
    pub(crate) fn json(key: &'static str, error: &serde_json::Error) -> Self {
        Self::Json {
            key,
            why: error.to_string(),
        }
    }

    pub(crate) fn item(key: &'static str, item: &str, why: &str) -> Self {
        Self::Item {
            key,
            item: item.to_owned(),
            why: why.to_owned(),
        }
    }
}

/// Names and patterns of pools for one NIC.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolChoice {
    /// The NIC; `None` in nameless items.
    pub interface: Option<String>,
    /// IPv4 pools.
    pub ipv4: Vec<String>,
    /// IPv6 pools.
    pub ipv6: Vec<String>,
    /// The NIC gets no default route.
    pub clean_gateway: bool,
}

impl PoolChoice {
    /// The list of one family.
    #[must_use]
    pub fn of(&self, family: Family) -> &[String] {
        match family {
            Family::V4 => &self.ipv4,
            Family::V6 => &self.ipv6,
        }
    }
}

#[derive(Deserialize)]
struct RawChoice {
    #[serde(default)]
    interface: Option<String>,
    #[serde(default)]
    ipv4: Option<Vec<String>>,
    #[serde(default)]
    ipv6: Option<Vec<String>>,
    #[serde(default)]
    cleangateway: Option<bool>,
}

impl From<RawChoice> for PoolChoice {
    fn from(raw: RawChoice) -> Self {
        Self {
            interface: raw.interface.filter(|name| !name.is_empty()),
            ipv4: raw.ipv4.unwrap_or_default(),
            ipv6: raw.ipv6.unwrap_or_default(),
            clean_gateway: raw.cleangateway.unwrap_or(false),
        }
    }
}

fn json<T: DeserializeOwned>(key: &'static str, text: &str) -> Result<T, AnnotationError> {
    serde_json::from_str(text).map_err(|error| AnnotationError::json(key, &error))
}

/// `ipam.spidernet.io/ippool`: pools of the NIC being added, whichever it is.
///
/// # Errors
/// [`AnnotationError`] when it is malformed.
pub fn parse_ippool(text: &str) -> Result<PoolChoice, AnnotationError> {
    let key = names::POD_IPPOOL;
    let mut choice: PoolChoice = json::<RawChoice>(key, text)?.into();
    choice.interface = None;
    // The CNI configuration alone decides about the default route at this level.
    choice.clean_gateway = false;
    check_choice(key, &format!("value {text}"), &choice)?;
    Ok(choice)
}

/// `ipam.spidernet.io/ippools`: pools of all NICs. At least one item; all named or none; no NIC
/// twice. Whether the NIC being added is listed is for the caller to ask.
///
/// # Errors
/// [`AnnotationError`] when it is malformed.
pub fn parse_ippools(text: &str) -> Result<Vec<PoolChoice>, AnnotationError> {
    let key = names::POD_IPPOOLS;
    let choices: Vec<PoolChoice> = json::<Vec<RawChoice>>(key, text)?
        .into_iter()
        .map(PoolChoice::from)
        .collect();
    if choices.is_empty() {
        return Err(AnnotationError::item(
            key,
            &format!("value {text}"),
            "lists no NIC; list at least one",
        ));
    }
    let named = choices
        .iter()
        .filter(|choice| choice.interface.is_some())
        .count();
    if named != 0 && named != choices.len() {
        let why = "gives interface names to some items only: name all or none";
        return Err(AnnotationError::item(key, &format!("value {text}"), why));
    }
    for (index, choice) in choices.iter().enumerate() {
        let item = match &choice.interface {
            Some(name) => format!("interface {name}"),
            None => format!("item {index}"),
        };
        let before = choices.iter().take(index);
        if choice.interface.is_some()
            && before
                .clone()
                .any(|other| other.interface == choice.interface)
        {
            return Err(AnnotationError::item(key, &item, "is listed twice"));
        }
        check_choice(key, &item, choice)?;
    }
    Ok(choices)
}

fn check_choice(key: &'static str, item: &str, choice: &PoolChoice) -> Result<(), AnnotationError> {
    if choice.ipv4.is_empty() && choice.ipv6.is_empty() {
        return Err(AnnotationError::item(
            key,
            item,
            "names neither ipv4 nor ipv6 pools",
        ));
    }
    for family in Family::BOTH {
        check_names(key, item, choice.of(family))?;
    }
    Ok(())
}

/// No empty name, none twice.
pub(crate) fn check_names(
    key: &'static str,
    item: &str,
    list: &[String],
) -> Result<(), AnnotationError> {
    for (index, name) in list.iter().enumerate() {
        if name.is_empty() {
            return Err(AnnotationError::item(key, item, "has an empty pool name"));
        }
        if list.iter().take(index).any(|other| other == name) {
            return Err(AnnotationError::item(
                key,
                item,
                &format!("names IPPool {name} twice"),
            ));
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct RawRoute {
    #[serde(default)]
    dst: String,
    #[serde(default)]
    gw: String,
}

/// `ipam.spidernet.io/routes`: further routes of the Pod.
///
/// # Errors
/// [`AnnotationError`] when it is malformed or mixes families in an item.
pub fn parse_routes(text: &str) -> Result<Vec<RouteTo>, AnnotationError> {
    let key = names::POD_ROUTES;
    let typed = |raw: RawRoute| {
        let item = format!("route {:?} via {:?}", raw.dst, raw.gw);
        let dst: IpNet = raw
            .dst
            .parse()
            .map_err(|_| AnnotationError::item(key, &item, "has no CIDR as dst"))?;
        let gw: IpAddr = raw
            .gw
            .parse()
            .map_err(|_| AnnotationError::item(key, &item, "has no IP address as gw"))?;
        if Family::of_net(dst) != Family::of(gw) {
            return Err(AnnotationError::item(key, &item, "mixes IPv4 and IPv6"));
        }
        Ok(RouteTo {
            dst: dst.trunc(),
            gw,
        })
    };
    json::<Vec<RawRoute>>(key, text)?
        .into_iter()
        .map(typed)
        .collect()
}

/// Further routes of a Pod; none without the annotation.
///
/// # Errors
/// [`AnnotationError`] when it is malformed.
pub fn routes_of(pod: &PodFacts) -> Result<Vec<RouteTo>, AnnotationError> {
    pod.annotations
        .get(names::POD_ROUTES)
        .map_or(Ok(Vec::new()), |text| parse_routes(text))
}

/// Default pools of a Namespace; both lists empty without the annotations.
///
/// # Errors
/// [`AnnotationError`] when one is malformed.
pub fn namespace_defaults(namespace: &NamespaceFacts) -> Result<PoolChoice, AnnotationError> {
    let list = |key: &'static str| match namespace.annotations.get(key) {
        None => Ok(Vec::new()),
        Some(text) => {
            let names = json::<Option<Vec<String>>>(key, text)?.unwrap_or_default();
            check_names(key, &format!("value {text}"), &names)?;
            Ok(names)
        }
    };
    Ok(PoolChoice {
        ipv4: list(names::NAMESPACE_IPV4_POOLS)?,
        ipv6: list(names::NAMESPACE_IPV6_POOLS)?,
        ..PoolChoice::default()
    })
}

/// Refuses an annotation of automatic pools: ignoring it would give the Pod other addresses than
/// it asks for.
///
/// # Errors
/// [`AnnotationError::AutoPool`] when it is present.
pub fn refuse_auto_pool(pod: &PodFacts, key: &'static str) -> Result<(), AnnotationError> {
    if pod.annotations.contains_key(key) {
        Err(AnnotationError::AutoPool { key })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b07_mistakes_in_the_multi_nic_annotation_are_named() {
        for (text, part) in [
            (
                r#"[{"interface":"eth0","ipv4":["p-1"]},{"interface":"eth0","ipv4":["p-2"]}]"#,
                "eth0",
            ),
            (
                r#"[{"interface":"eth0","ipv4":["p-1"]},{"ipv4":["p-2"]}]"#,
                "name all or none",
            ),
            (r#"[{"interface":"eth0","ipv4":["p-1","p-1"]}]"#, "p-1"),
            ("[]", "lists no NIC"),
            ("{}", "not the JSON"),
            (r#"[{"ipv4":"p-1"}]"#, "not the JSON"),
            (r#"[{"interface":"eth0"}]"#, "neither"),
            (r#"[{"ipv4":[""]}]"#, "empty pool name"),
            ("null", "not the JSON"),
        ] {
            let error = parse_ippools(text).unwrap_err().to_string();
            assert!(
                error.contains(part) && error.contains("ipam.spidernet.io/ippools"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn choices_keep_their_order_and_ignore_unknown_fields() {
        let text =
            r#"[{"interface":"net1","ipv4":["b","a*"],"ipv6":null,"cleangateway":true,"x":1}]"#;
        let choices = parse_ippools(text).unwrap();
        let want = PoolChoice {
            interface: Some("net1".into()),
            ipv4: vec!["b".into(), "a*".into()],
            ipv6: vec![],
            clean_gateway: true,
        };
        assert_eq!(choices, [want]);
        assert_eq!(
            parse_ippool(r#"{"ipv6":["p6"]}"#).unwrap().of(Family::V6),
            ["p6"]
        );
        for bad in ["[]", "{}", "", r#"{"ipv4":["a","a"]}"#, r#"{"ipv4":[1]}"#] {
            assert!(parse_ippool(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn routes_are_of_one_family() {
        let route = |text: &str| parse_routes(text);
        assert_eq!(
            route(r#"[{"dst":"10.9.0.0/16","gw":"192.168.5.1"}]"#).unwrap(),
            [RouteTo {
                dst: "10.9.0.0/16".parse().unwrap(),
                gw: "192.168.5.1".parse().unwrap()
            }]
        );
        for (bad, part) in [
            (r#"[{"dst":"10.9.0.0","gw":"192.168.5.1"}]"#, "10.9.0.0"),
            (r#"[{"dst":"10.9.0.0/16","gw":"x"}]"#, "\"x\""),
            (r#"[{"dst":"10.9.0.0/16","gw":"fd00::1"}]"#, "mixes"),
            (r#"[{"gw":"fd00::1"}]"#, "dst"),
            ("7", "JSON"),
        ] {
            let error = route(bad).unwrap_err().to_string();
            assert!(
                error.contains(part) && error.contains("io/routes"),
                "{bad}: {error}"
            );
        }
    }

    #[test]
    fn automatic_pools_are_refused_by_name() {
        for key in [names::POD_SUBNET, names::POD_SUBNETS] {
            let pod = PodFacts {
                annotations: [(key.to_owned(), "x".to_owned())].into(),
                ..PodFacts::default()
            };
            let error = refuse_auto_pool(&pod, key).unwrap_err().to_string();
            assert!(
                error.contains(key)
                    && error.contains("automatic pools are not available in this release")
            );
        }
    }

    #[test]
    fn namespace_defaults_must_be_lists() {
        let space = |text: &str| NamespaceFacts {
            annotations: [(names::NAMESPACE_IPV4_POOLS.to_owned(), text.to_owned())].into(),
            ..NamespaceFacts::default()
        };
        assert_eq!(
            namespace_defaults(&space(r#"["ns-a","ns-b?"]"#))
                .unwrap()
                .ipv4,
            ["ns-a", "ns-b?"]
        );
        let error = namespace_defaults(&space("ns-a")).unwrap_err().to_string();
        assert!(error.contains("default-ipv4-ippool"), "{error}");
    }
}

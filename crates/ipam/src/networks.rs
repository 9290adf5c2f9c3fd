//! The Multus annotations of a Pod: which network attachment definition each NIC comes from
//! (spec ipam 3.4, case B05). Both forms: JSON list and comma list `ns/name@interface`.

use serde::Deserialize;
use spiderpool_api::names;

use crate::annotation::{AnnotationError, json_objects};
use crate::facts::PodFacts;

/// One network of a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Namespace of the definition.
    pub namespace: String,
    /// Name of the definition.
    pub name: String,
    /// Interface in the Pod.
    pub interface: String,
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    interface: String,
}

/// Networks besides the default one, in order; an entry without an interface is `net<i>` by its
/// position, counted from 1, whatever the others are called.
///
/// # Errors
/// [`AnnotationError`] names the annotation and the item.
pub fn secondary(pod: &PodFacts) -> Result<Vec<Network>, AnnotationError> {
    match pod.annotations.get(names::POD_NETWORKS) {
        None => Ok(Vec::new()),
        Some(text) => parse(names::POD_NETWORKS, text, &pod.namespace),
    }
}

/// Network of `eth0`: the Pod's own choice, else the cluster's (`MULTUS_CLUSTER_NETWORK`);
/// an unqualified cluster network lies in the agent's namespace.
///
/// # Errors
/// [`AnnotationError`] names the annotation and the item.
pub fn default_network(
    pod: &PodFacts,
    cluster_network: Option<&str>,
    agent_namespace: &str,
) -> Result<Option<Network>, AnnotationError> {
    let parsed = match (
        pod.annotations.get(names::POD_DEFAULT_NETWORK),
        cluster_network,
    ) {
        (Some(text), _) => parse(names::POD_DEFAULT_NETWORK, text, &pod.namespace)?,
        (None, Some(text)) => parse("MULTUS_CLUSTER_NETWORK", text, agent_namespace)?,
        (None, None) => Vec::new(),
    };
    Ok(parsed.into_iter().next().map(|network| Network {
        interface: "eth0".to_owned(),
        ..network
    }))
}

/// Network of the NIC, if any names it.
///
/// # Errors
/// [`AnnotationError`] names the annotation and the item.
pub fn of_nic(
    pod: &PodFacts,
    nic: &str,
    cluster_network: Option<&str>,
    agent_namespace: &str,
) -> Result<Option<Network>, AnnotationError> {
    if nic == "eth0" {
        return default_network(pod, cluster_network, agent_namespace);
    }
    let networks = secondary(pod)?;
    Ok(networks
        .into_iter()
        .find(|network| network.interface == nic))
}

/// Networks of an annotation that is not yet a Pod's.
///
/// # Errors
/// [`AnnotationError`] names the annotation and the item.
pub fn of_annotation(
    key: &'static str,
    text: &str,
    namespace: &str,
) -> Result<Vec<Network>, AnnotationError> {
    parse(key, text, namespace)
}

fn parse(key: &'static str, text: &str, namespace: &str) -> Result<Vec<Network>, AnnotationError> {
    let items: Vec<(String, Item)> = if text.trim_start().starts_with(['[', '{', '"']) {
        json_objects(key, text)?
    } else {
        text.split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(|item| Ok((format!("item {item:?}"), short(key, item)?)))
            .collect::<Result<_, _>>()?
    };
    let numbered = items.into_iter().zip(1_usize..);
    numbered
        .map(|((shown, item), position)| {
            if item.name.is_empty() {
                return Err(AnnotationError::item(key, &shown, "has no name"));
            }
            let or = |text: String, default: String| if text.is_empty() { default } else { text };
            Ok(Network {
                namespace: or(item.namespace, namespace.to_owned()),
                name: item.name,
                interface: or(item.interface, format!("net{position}")),
            })
        })
        .collect()
}

/// `name`, `ns/name`, `ns/name@interface`.
fn short(key: &'static str, text: &str) -> Result<Item, AnnotationError> {
    let (path, interface) = text.split_once('@').unwrap_or((text, ""));
    let (namespace, name) = path.split_once('/').unwrap_or(("", path));
    if name.contains('/') || interface.contains('@') || text.contains(char::is_whitespace) {
        return Err(AnnotationError::item(
            key,
            &format!("item {text:?}"),
            "is not of the form namespace/name@interface",
        ));
    }
    Ok(Item {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        interface: interface.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(key: &str, value: &str) -> PodFacts {
        PodFacts {
            namespace: "shop".into(),
            annotations: [(key.to_owned(), value.to_owned())].into(),
            ..PodFacts::default()
        }
    }

    fn listed(value: &str) -> Result<Vec<(String, String)>, AnnotationError> {
        let networks = secondary(&pod(names::POD_NETWORKS, value))?;
        let row = |n: Network| (format!("{}/{}", n.namespace, n.name), n.interface);
        Ok(networks.into_iter().map(row).collect())
    }

    #[test]
    fn b05_both_forms_read_the_same() {
        let want = [
            ("lab/nad-r1".into(), "net1".into()),
            ("lab/nad-r2".into(), "net9".into()),
        ];
        let json = "[\n\t{\"name\":\"nad-r1\",\"namespace\":\"lab\"},\n\t{\"name\":\"nad-r2\",\"namespace\":\"lab\",\"interface\":\"net9\"}]";
        assert_eq!(listed(json).unwrap(), want);
        assert_eq!(listed("lab/nad-r1, lab/nad-r2@net9").unwrap(), want);
        assert_eq!(
            listed("nad-r1").unwrap(),
            [("shop/nad-r1".into(), "net1".into())]
        );
        assert_eq!(
            listed("lab/nad-r1,lab/nad-r1").unwrap(),
            [
                ("lab/nad-r1".into(), "net1".into()),
                ("lab/nad-r1".into(), "net2".into())
            ]
        );
        // The second entry without a name is net2 even if the first has its own name.
        assert_eq!(listed("lab/a@x,lab/b").unwrap()[1].1, "net2");
        assert_eq!(listed("").unwrap(), []);
    }

    #[test]
    fn b05_malformed_values_name_the_annotation() {
        for (bad, part) in [
            (r#"{"name":"nad-r1"}"#, r#"its value is {"name":"nad-r1"}"#),
            ("[", "its value is ["),
            (
                r#"[{"name":"a"},{"namespace":"lab"}]"#,
                r#"item 1 {"namespace":"lab"} has no name"#,
            ),
            (r#"[{"name":7}]"#, r#"item 0 {"name":7} is wrong"#),
            ("x, a/b/c", r#"item "a/b/c""#),
            ("a@b@c", r#"item "a@b@c""#),
            ("a b", r#"item "a b""#),
            ("/", r#"item "/" has no name"#),
        ] {
            let error = listed(bad).unwrap_err().to_string();
            assert!(
                error.contains("k8s.v1.cni.cncf.io/networks") && error.contains(part),
                "{bad}: {error}"
            );
        }
    }

    #[test]
    fn the_default_network_is_eth0() {
        let own = pod(
            names::POD_DEFAULT_NETWORK,
            r#"[{"name":"nad-r0","namespace":"lab"}]"#,
        );
        let found = of_nic(&own, "eth0", Some("other"), "kube-system")
            .unwrap()
            .unwrap();
        assert_eq!(
            (found.namespace.as_str(), found.name.as_str()),
            ("lab", "nad-r0")
        );
        assert_eq!(found.interface, "eth0");
        let bare = PodFacts {
            namespace: "shop".into(),
            ..PodFacts::default()
        };
        let found = of_nic(&bare, "eth0", Some("nad-c"), "kube-system")
            .unwrap()
            .unwrap();
        assert_eq!(
            (found.namespace.as_str(), found.name.as_str()),
            ("kube-system", "nad-c")
        );
        assert_eq!(of_nic(&bare, "eth0", None, "kube-system").unwrap(), None);
        assert_eq!(of_nic(&bare, "net1", None, "kube-system").unwrap(), None);
    }
}

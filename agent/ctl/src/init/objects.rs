//! What `init` makes, read of the environment. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value, json};
use spiderpool_ipam::environment::{Environment, EnvironmentError};

/// `name` in the CNI file of Calico.
pub(super) const CALICO_FILE: &str = "k8s-pod-network";

/// An object to be made.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Object {
    pub(super) kind: &'static str,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) spec: Value,
}

/// The SpiderMultusConfig of the cluster's own CNI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Network {
    /// `None`: that of the first CNI file.
    pub(super) name: Option<String>,
    pub(super) namespace: String,
    pub(super) cni_dir: PathBuf,
}

/// Everything.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wanted {
    pub(super) namespace: String,
    /// Service of the webhooks.
    pub(super) controller: String,
    pub(super) objects: Vec<Object>,
    pub(super) network: Option<Network>,
}

/// The environment cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InitError {
    #[error(transparent)]
    Value(#[from] EnvironmentError),
    #[error("environment variable SPIDERPOOL_{name} is not set: it must be {wanted}")]
    Missing { name: String, wanted: &'static str },
}

type Found<T> = Result<T, InitError>;

impl Wanted {
    /// What `lookup` answers for the whole names.
    pub(super) fn read(lookup: impl Fn(&str) -> Option<String>) -> Found<Self> {
        let read = Environment::new(lookup);
        let namespace = required(&read, "NAMESPACE", "the namespace of Spiderpool")?;
        let mut objects = Vec::new();
        objects.extend(coordinator(&read)?);
        let families = [("4", 4), ("6", 6)];
        // Pools belong to subnets that exist before them.
        for (kind, named, is_default) in [
            ("SpiderSubnet", "SUBNET_NAME", false),
            ("SpiderIPPool", "IPPOOL_NAME", true),
        ] {
            for (family, version) in families {
                let of = |key: &str| format!("INIT_DEFAULT_IPV{family}_{key}");
                if let Some(name) = read.text(&of(named)) {
                    let mut spec = addresses(&read, version, of)?;
                    if is_default {
                        spec.insert("default".to_owned(), json!(true));
                    }
                    objects.push(object(kind, name, Value::Object(spec)));
                }
            }
        }
        let network = read.flag("INIT_ENABLE_MULTUS_CONFIG", false)?;
        Ok(Self {
            network: network.then(|| Network {
                name: read.text("INIT_DEFAULT_CNI_NAME"),
                namespace: read
                    .text("INIT_DEFAULT_CNI_NAMESPACE")
                    .unwrap_or_else(|| namespace.clone()),
                cni_dir: read
                    .text("INIT_DEFAULT_CNI_DIR")
                    .map_or_else(|| "/etc/cni/net.d".into(), PathBuf::from),
            }),
            controller: read
                .text("CONTROLLER_NAME")
                .unwrap_or_else(|| "spiderpool-controller".to_owned()),
            namespace,
            objects,
        })
    }
}

fn object(kind: &'static str, name: String, spec: Value) -> Object {
    Object {
        kind,
        namespace: None,
        name,
        annotations: BTreeMap::new(),
        spec,
    }
}

fn required<F>(read: &Environment<F>, name: &str, wanted: &'static str) -> Found<String>
where
    F: Fn(&str) -> Option<String>,
{
    let missing = || InitError::Missing {
        name: name.to_owned(),
        wanted,
    };
    read.text(name).ok_or_else(missing)
}

fn coordinator<F>(read: &Environment<F>) -> Found<Option<Object>>
where
    F: Fn(&str) -> Option<String>,
{
    let of = |key: &str| format!("INIT_DEFAULT_COORDINATOR_{key}");
    let Some(name) = read.text(&of("NAME")) else {
        return Ok(None);
    };
    let mut spec = Map::new();
    let kind = read.text(&of("POD_CIDR_TYPE"));
    spec.insert(
        "podCIDRType".to_owned(),
        json!(kind.unwrap_or_else(|| "auto".to_owned())),
    );
    for (key, field) in [("MODE", "mode"), ("VETH_LINK_ADDRESS", "vethLinkAddress")] {
        spec.extend(
            read.text(&of(key))
                .map(|text| (field.to_owned(), json!(text))),
        );
    }
    if read.text(&of("TUNE_POD_ROUTES")).is_some() {
        let on = read.flag(&of("TUNE_POD_ROUTES"), true)?;
        spec.insert("tunePodRoutes".to_owned(), json!(on));
    }
    if read.text(&of("VETH_MTU")).is_some() {
        let mtu: u32 = read.number(&of("VETH_MTU"), 0)?;
        spec.insert("vethMTU".to_owned(), json!(mtu));
    }
    if let Some(text) = read.text(&of("HIJACK_CIDR")) {
        spec.insert("hijackCIDR".to_owned(), json!(listed(&text)));
    }
    let routes = read.parsed(
        &of("POLICY_ROUTES"),
        Value::Null,
        "a JSON list of {\"dst\",\"gw\"}",
        |text| serde_json::from_str(text).ok().filter(Value::is_array),
    )?;
    if !routes.is_null() {
        spec.insert("policyRoutes".to_owned(), routes);
    }
    Ok(Some(object("SpiderCoordinator", name, Value::Object(spec))))
}

/// What subnets and pools have in common.
fn addresses<F>(
    read: &Environment<F>,
    version: u8,
    of: impl Fn(&str) -> String,
) -> Found<Map<String, Value>>
where
    F: Fn(&str) -> Option<String>,
{
    let net = required(read, &of("IPPOOL_SUBNET"), "the CIDR of the default pool")?;
    let mut spec = Map::new();
    spec.insert("ipVersion".to_owned(), json!(version));
    spec.insert("subnet".to_owned(), json!(net));
    if let Some(text) = read.text(&of("IPPOOL_IPRANGES")) {
        spec.insert("ips".to_owned(), json!(listed(&text)));
    }
    if let Some(gateway) = read.text(&of("IPPOOL_GATEWAY")) {
        spec.insert("gateway".to_owned(), json!(gateway));
    }
    Ok(spec)
}

/// A JSON list, or values apart by commas or blanks.
fn listed(text: &str) -> Vec<String> {
    if let Ok(list) = serde_json::from_str(text) {
        return list;
    }
    let parts = text.split(|c: char| c == ',' || c.is_whitespace());
    parts
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rows: &[(&str, &str)]) -> Result<Wanted, String> {
        let wanted = Wanted::read(|name| {
            let name = name.strip_prefix("SPIDERPOOL_")?;
            let own = [("NAMESPACE", "net")];
            let mut rows = rows.iter().chain(&own);
            rows.find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        });
        wanted.map_err(|error| error.to_string())
    }

    fn made(rows: &[(&str, &str)]) -> Vec<(&'static str, String, Value)> {
        let objects = read(rows).unwrap().objects.into_iter();
        objects
            .map(|object| (object.kind, object.name, object.spec))
            .collect()
    }

    #[test]
    fn nothing_is_made_that_was_not_asked_for() {
        let wanted = read(&[("INIT_DEFAULT_COORDINATOR_MODE", "auto")]).unwrap();
        assert_eq!((wanted.objects, wanted.network), (Vec::new(), None));
        assert_eq!(wanted.controller, "spiderpool-controller");
    }

    #[test]
    fn a_coordinator_has_what_is_set() {
        let name = ("INIT_DEFAULT_COORDINATOR_NAME", "default");
        let spec = json!({"podCIDRType": "auto"});
        let want = vec![("SpiderCoordinator", "default".to_owned(), spec)];
        assert_eq!(made(&[name]), want);
        let all = [
            name,
            ("INIT_DEFAULT_COORDINATOR_MODE", "underlay"),
            ("INIT_DEFAULT_COORDINATOR_POD_CIDR_TYPE", "calico"),
            ("INIT_DEFAULT_COORDINATOR_TUNE_POD_ROUTES", "false"),
            (
                "INIT_DEFAULT_COORDINATOR_HIJACK_CIDR",
                r#"["169.254.0.0/16"]"#,
            ),
            (
                "INIT_DEFAULT_COORDINATOR_POLICY_ROUTES",
                r#"[{"dst":"10.0.0.0/8","gw":"10.1.1.1"}]"#,
            ),
            (
                "INIT_DEFAULT_COORDINATOR_VETH_LINK_ADDRESS",
                "169.254.100.1",
            ),
            ("INIT_DEFAULT_COORDINATOR_VETH_MTU", "1400"),
        ];
        let spec = json!({"podCIDRType": "calico", "mode": "underlay", "tunePodRoutes": false,
            "hijackCIDR": ["169.254.0.0/16"], "policyRoutes": [{"dst": "10.0.0.0/8", "gw": "10.1.1.1"}],
            "vethLinkAddress": "169.254.100.1", "vethMTU": 1400});
        assert_eq!(made(&all)[0].2, spec);
    }

    #[test]
    fn subnets_come_before_pools() {
        let rows = [
            ("INIT_DEFAULT_IPV4_SUBNET_NAME", "s4"),
            ("INIT_DEFAULT_IPV4_IPPOOL_NAME", "p4"),
            ("INIT_DEFAULT_IPV4_IPPOOL_SUBNET", "10.1.0.0/16"),
            (
                "INIT_DEFAULT_IPV4_IPPOOL_IPRANGES",
                "10.1.0.10-10.1.0.99, 10.1.1.7",
            ),
            ("INIT_DEFAULT_IPV4_IPPOOL_GATEWAY", "10.1.0.1"),
            ("INIT_DEFAULT_IPV6_IPPOOL_NAME", "p6"),
            ("INIT_DEFAULT_IPV6_IPPOOL_SUBNET", "fd00::/64"),
        ];
        let mut spec = json!({"ipVersion": 4, "subnet": "10.1.0.0/16",
            "ips": ["10.1.0.10-10.1.0.99", "10.1.1.7"], "gateway": "10.1.0.1"});
        let subnet = ("SpiderSubnet", "s4".to_owned(), spec.clone());
        spec["default"] = json!(true);
        let pool = ("SpiderIPPool", "p4".to_owned(), spec);
        let six = json!({"ipVersion": 6, "subnet": "fd00::/64", "default": true});
        let want = vec![subnet, pool, ("SpiderIPPool", "p6".to_owned(), six)];
        assert_eq!(made(&rows), want);
    }

    #[test]
    fn what_cannot_be_is_named() {
        let unnamed = Wanted::read(|_| None).unwrap_err().to_string();
        assert!(unnamed.contains("SPIDERPOOL_NAMESPACE"), "{unnamed}");
        let name = ("INIT_DEFAULT_COORDINATOR_NAME", "default");
        for (rows, part) in [
            (
                vec![("INIT_DEFAULT_IPV4_IPPOOL_NAME", "p")],
                "IPV4_IPPOOL_SUBNET is not set",
            ),
            (
                vec![name, ("INIT_DEFAULT_COORDINATOR_VETH_MTU", "big")],
                "VETH_MTU=\"big\"",
            ),
            (
                vec![name, ("INIT_DEFAULT_COORDINATOR_POLICY_ROUTES", "{}")],
                "a JSON list",
            ),
            (
                vec![("INIT_ENABLE_MULTUS_CONFIG", "maybe")],
                "true or false",
            ),
        ] {
            let text = read(&rows).unwrap_err();
            assert!(text.contains(part), "{text}");
        }
    }
}

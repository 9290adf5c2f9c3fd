//! What `init` makes, read of the environment: what can never be is refused ([`judge`]). Pure.

mod judge;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use spiderpool_api::coordinator::{CoordinatorMode, PodCidrType};
use spiderpool_api::ippool::Route;
use spiderpool_ipam::admission::{is_dns_label, is_dns_name};
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
    /// Admission would never let it pass.
    #[error("environment variable SPIDERPOOL_{name}={value:?} can never be: {why}")]
    Refused {
        name: String,
        value: String,
        why: String,
    },
    /// Admission would refuse the whole for what none of the variables says.
    #[error("{kind} {name} can never be: {why}")]
    Object {
        kind: &'static str,
        name: String,
        why: String,
    },
    /// The second would be taken for the first.
    #[error("environment variables SPIDERPOOL_{first} and SPIDERPOOL_{second} are both {name:?}")]
    OneName {
        first: String,
        second: String,
        name: String,
    },
}

type Found<T> = Result<T, InitError>;

impl Wanted {
    /// What `lookup` answers for the whole names.
    pub(super) fn read(lookup: impl Fn(&str) -> Option<String>) -> Found<Self> {
        let read = Environment::new(lookup);
        required(&read, "NAMESPACE", "the namespace of Spiderpool")?;
        let namespace = label(&read, "NAMESPACE", "")?;
        let mut objects = Vec::new();
        objects.extend(coordinator(&read)?);
        // Pools belong to subnets that exist before them.
        objects.extend(networks(&read, "SpiderSubnet", "SUBNET_NAME")?);
        objects.extend(networks(&read, "SpiderIPPool", "IPPOOL_NAME")?);
        let network = read.flag("INIT_ENABLE_MULTUS_CONFIG", false)?;
        let network = network.then(|| {
            Ok::<_, InitError>(Network {
                name: name(&read, "INIT_DEFAULT_CNI_NAME")?,
                namespace: label(&read, "INIT_DEFAULT_CNI_NAMESPACE", &namespace)?,
                cni_dir: read
                    .text("INIT_DEFAULT_CNI_DIR")
                    .map_or_else(|| "/etc/cni/net.d".into(), PathBuf::from),
            })
        });
        Ok(Self {
            network: network.transpose()?,
            controller: label(&read, "CONTROLLER_NAME", "spiderpool-controller")?,
            namespace,
            objects,
        })
    }
}

/// The subnets or pools of both families.
fn networks<F>(read: &Environment<F>, kind: &'static str, named: &'static str) -> Found<Vec<Object>>
where
    F: Fn(&str) -> Option<String>,
{
    let mut objects: Vec<Object> = Vec::new();
    for version in [4, 6] {
        let of = |key: &str| format!("INIT_DEFAULT_IPV{version}_{key}");
        let Some(name) = name(read, &of(named))? else {
            continue;
        };
        if let Some(other) = objects.iter().find(|other| other.name == name) {
            return Err(InitError::OneName {
                first: format!("INIT_DEFAULT_IPV4_{named}"),
                second: of(named),
                name: other.name.clone(),
            });
        }
        let mut spec = addresses(read, version, of)?;
        if kind == "SpiderIPPool" {
            spec.insert("default".to_owned(), json!(true));
        }
        let made = object(kind, name, Value::Object(spec));
        judge::judge(read, &made, |field| match field {
            "subnet" | "ipVersion" => Some(of("IPPOOL_SUBNET")),
            "ips" => Some(of("IPPOOL_IPRANGES")),
            "gateway" => Some(of("IPPOOL_GATEWAY")),
            _ => None,
        })?;
        objects.push(made);
    }
    Ok(objects)
}

/// A name that an object can have.
fn name<F>(read: &Environment<F>, variable: &str) -> Found<Option<String>>
where
    F: Fn(&str) -> Option<String>,
{
    let wanted = "a name of lower-case letters, digits, - and .";
    let is_one = |text: &str| is_dns_name(text).then(|| Some(text.to_owned()));
    Ok(read.parsed(variable, None, wanted, is_one)?)
}

/// A name that a namespace or a Service can have.
fn label<F>(read: &Environment<F>, variable: &str, default: &str) -> Found<String>
where
    F: Fn(&str) -> Option<String>,
{
    let wanted = "a name of lower-case letters, digits and -, 63 at most";
    let is_one = |text: &str| is_dns_label(text).then(|| text.to_owned());
    Ok(read.parsed(variable, default.to_owned(), wanted, is_one)?)
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
    let Some(name) = name(read, &of("NAME"))? else {
        return Ok(None);
    };
    let mut spec = Map::new();
    let kind = read.parsed(
        &of("POD_CIDR_TYPE"),
        PodCidrType::Auto,
        "auto, cluster, calico, cilium or none",
        word,
    )?;
    spec.insert("podCIDRType".to_owned(), json!(kind));
    let mode: Option<CoordinatorMode> = read.parsed(
        &of("MODE"),
        None,
        "auto, underlay, overlay or disabled",
        |text| word(text).map(Some),
    )?;
    spec.extend(mode.map(|mode| ("mode".to_owned(), json!(mode))));
    spec.extend(veth(read, of)?);
    spec.extend(traffic(read, of)?);
    let made = object("SpiderCoordinator", name, Value::Object(spec));
    judge::judge(read, &made, |field| {
        let key = match field {
            "hijackCIDR" => "HIJACK_CIDR",
            "policyRoutes" => "POLICY_ROUTES",
            "vethLinkAddress" => "VETH_LINK_ADDRESS",
            "vethMTU" => "VETH_MTU",
            _ => return None,
        };
        Some(of(key))
    })?;
    Ok(Some(made))
}

/// How the node and the Pod reach each other.
fn veth<F>(read: &Environment<F>, of: impl Fn(&str) -> String) -> Found<Map<String, Value>>
where
    F: Fn(&str) -> Option<String>,
{
    let mut spec = Map::new();
    let link = read.text(&of("VETH_LINK_ADDRESS"));
    spec.extend(link.map(|text| ("vethLinkAddress".to_owned(), json!(text))));
    if read.text(&of("TUNE_POD_ROUTES")).is_some() {
        let on = read.flag(&of("TUNE_POD_ROUTES"), true)?;
        spec.insert("tunePodRoutes".to_owned(), json!(on));
    }
    if read.text(&of("VETH_MTU")).is_some() {
        let mtu: u32 = read.number(&of("VETH_MTU"), 0)?;
        spec.insert("vethMTU".to_owned(), json!(mtu));
    }
    Ok(spec)
}

/// What goes through the node, and the routes for the rest.
fn traffic<F>(read: &Environment<F>, of: impl Fn(&str) -> String) -> Found<Map<String, Value>>
where
    F: Fn(&str) -> Option<String>,
{
    let mut spec = Map::new();
    if let Some(text) = read.text(&of("HIJACK_CIDR")) {
        spec.insert("hijackCIDR".to_owned(), json!(listed(&text)));
    }
    let routes = read.parsed(
        &of("POLICY_ROUTES"),
        Value::Null,
        "a JSON list of {\"dst\",\"gw\"}",
        |text| {
            serde_json::from_str::<Vec<Route>>(text)
                .ok()
                .map(|list| json!(list))
        },
    )?;
    if !routes.is_null() {
        spec.insert("policyRoutes".to_owned(), routes);
    }
    Ok(spec)
}

/// A word of the API.
fn word<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_value(json!(text)).ok()
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
mod tests;

//! Which CIDRs the Pods of the default CNI and the Services of a cluster have (spec api 7): decided
//! from what was read of the cluster. A part that could not be read matters only where it is needed.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ipnet::IpNet;
use spiderpool_api::coordinator::{CoordinatorStatus, PodCidrType};

/// Phase of a status that can be used.
pub const SYNCED: &str = "Synced";
/// Phase of one that cannot.
pub const NOT_READY: &str = "NotReady";

/// What reading a part came to; the text says why it could not be read.
pub type Read<T> = Result<T, String>;

/// What was read of a cluster. `None`: there is no such thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// `name` in the first CNI file of the controller's node.
    pub cni_name: Read<Option<String>>,
    /// `ClusterConfiguration` in ConfigMap `kube-system/kubeadm-config`.
    pub kubeadm: Option<String>,
    /// Command and arguments of the first controller manager.
    pub controller_manager: Read<Option<Vec<String>>>,
    /// CIDRs of Calico's IPPools that are enabled and not being deleted, oldest first.
    pub calico: Read<Vec<String>>,
    /// Cilium's ConfigMap.
    pub cilium: Read<Option<BTreeMap<String, String>>>,
    /// CIDRs of Cilium's CiliumPodIPPools, oldest first, IPv4 before IPv6.
    pub cilium_pools: Read<Vec<String>>,
    /// CIDRs of ServiceCIDR objects, oldest first, where the API serves them.
    pub services: Read<Option<Vec<String>>>,
}

/// What is to be told beside the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warning {
    /// The cluster's own CIDRs cannot be read.
    ClusterNotReady,
    /// Cilium's configuration is missing.
    CiliumNotReady,
}

impl Warning {
    /// `reason` of the event.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterNotReady => "ClusterNotReady",
            Self::CiliumNotReady => "CiliumNotReady",
        }
    }
}

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detected {
    /// The status to be written.
    pub status: CoordinatorStatus,
    /// The event that goes with it.
    pub warning: Option<Warning>,
}

/// CIDRs of both kinds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Cidrs {
    pods: Vec<String>,
    services: Vec<String>,
}

struct Failed {
    reason: String,
    warning: Option<Warning>,
}

impl From<String> for Failed {
    fn from(reason: String) -> Self {
        Self {
            reason,
            warning: None,
        }
    }
}

/// The status for a kind of source. `None` of the kind: nobody said one.
#[must_use]
pub fn detect(kind: Option<PodCidrType>, facts: &Facts) -> Detected {
    let resolved = resolve(kind, facts).and_then(|kind| Ok((kind, cluster(facts)?)));
    let (kind, cluster) = match resolved {
        Ok(both) => both,
        Err(failed) => return not_ready(failed, Vec::new()),
    };
    let services = match &facts.services {
        Ok(Some(listed)) if !listed.is_empty() => valid(listed.iter().map(String::as_str)),
        Ok(_) => cluster.services.clone(),
        Err(why) => {
            let reason = format!("the ServiceCIDRs cannot be read: {why}");
            return not_ready(reason.into(), cluster.services);
        }
    };
    match pods(kind, &cluster, facts) {
        Ok(pods) => Detected {
            status: CoordinatorStatus {
                phase: SYNCED.to_owned(),
                reason: None,
                overlay_pod_cidr: pods,
                service_cidr: services,
            },
            warning: None,
        },
        Err(failed) => not_ready(failed, services),
    }
}

fn not_ready(failed: Failed, services: Vec<String>) -> Detected {
    Detected {
        status: CoordinatorStatus {
            phase: NOT_READY.to_owned(),
            reason: Some(failed.reason),
            overlay_pod_cidr: Vec::new(),
            service_cidr: services,
        },
        warning: failed.warning,
    }
}

/// What `auto` stands for here.
fn resolve(kind: Option<PodCidrType>, facts: &Facts) -> Result<PodCidrType, Failed> {
    match kind {
        None => Err("spec.podCIDRType is not set".to_owned().into()),
        Some(PodCidrType::Auto) => {
            let name = facts.cni_name.as_ref();
            let name = name.map_err(|why| format!("the first CNI file cannot be read: {why}"))?;
            Ok(match name.as_deref() {
                Some("calico" | "k8s-pod-network") => PodCidrType::Calico,
                Some("cilium") => PodCidrType::Cilium,
                Some("flannel") => PodCidrType::Cluster,
                _ => PodCidrType::None,
            })
        }
        Some(kind) => Ok(kind),
    }
}

/// The cluster's own: kubeadm's, and the controller manager's where kubeadm says nothing.
fn cluster(facts: &Facts) -> Result<Cidrs, Failed> {
    let mut found = facts.kubeadm.as_deref().map(of_kubeadm).unwrap_or_default();
    if !found.pods.is_empty() && !found.services.is_empty() {
        return Ok(found);
    }
    let manager = facts.controller_manager.as_ref().map_err(|why| Failed {
        reason: format!("the Pods of kube-controller-manager cannot be listed: {why}"),
        warning: Some(Warning::ClusterNotReady),
    })?;
    let Some(words) = manager else {
        let reason = "neither kubeadm-config nor a Pod with label component=kube-controller-manager tells the cluster's CIDRs";
        return Err(reason.to_owned().into());
    };
    let told = of_controller_manager(words);
    if found.pods.is_empty() {
        found.pods = told.pods;
    }
    if found.services.is_empty() {
        found.services = told.services;
    }
    Ok(found)
}

/// `podSubnet` and `serviceSubnet` of the text.
fn of_kubeadm(text: &str) -> Cidrs {
    let of = |key: &str| {
        let mut lines = text.lines().map(str::trim);
        let value = lines.find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':'));
        let value = value.unwrap_or_default().trim().trim_matches(['"', '\'']);
        valid(value.split(','))
    };
    Cidrs {
        pods: of("podSubnet"),
        services: of("serviceSubnet"),
    }
}

/// Its options, each in one word or in two.
fn of_controller_manager(words: &[String]) -> Cidrs {
    let of = |option: &str| {
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(rest) = word.strip_prefix(option) else {
                continue;
            };
            let value = match rest.strip_prefix('=') {
                Some(value) => value,
                None if rest.is_empty() => words.next().map(String::as_str).unwrap_or_default(),
                None => continue,
            };
            return valid(value.split(','));
        }
        Vec::new()
    };
    Cidrs {
        pods: of("--cluster-cidr"),
        services: of("--service-cluster-ip-range"),
    }
}

fn pods(kind: PodCidrType, cluster: &Cidrs, facts: &Facts) -> Result<Vec<String>, Failed> {
    match kind {
        PodCidrType::Cluster => Ok(cluster.pods.clone()),
        PodCidrType::Calico => {
            let pools = facts.calico.as_ref();
            let pools = pools.map_err(|why| format!("Calico's IPPools cannot be read: {why}"))?;
            Ok(valid(pools.iter().map(String::as_str)))
        }
        PodCidrType::Cilium => cilium(cluster, facts),
        // `auto` is resolved by now.
        PodCidrType::None | PodCidrType::Auto => Ok(Vec::new()),
    }
}

fn cilium(cluster: &Cidrs, facts: &Facts) -> Result<Vec<String>, Failed> {
    let missing = |reason| Failed {
        reason,
        warning: Some(Warning::CiliumNotReady),
    };
    let config = facts.cilium.as_ref();
    let config =
        config.map_err(|why| missing(format!("Cilium's ConfigMap cannot be read: {why}")))?;
    let config = config
        .as_ref()
        .ok_or_else(|| missing("Cilium's ConfigMap does not exist".to_owned()))?;
    let of = |key: &str| config.get(key).map(String::as_str).unwrap_or_default();
    match of("ipam") {
        "cluster-pool" | "cluster-pool-v2beta" => {
            let both = [of("cluster-pool-ipv4-cidr"), of("cluster-pool-ipv6-cidr")];
            let items = both.into_iter().flat_map(|list| list.split([',', ' ']));
            Ok(valid(items))
        }
        "multi-pool" => {
            let pools = facts.cilium_pools.as_ref();
            let pools =
                pools.map_err(|why| format!("Cilium's CiliumPodIPPools cannot be read: {why}"))?;
            Ok(valid(pools.iter().map(String::as_str)))
        }
        "kubernetes" => Ok(cluster.pods.clone()),
        other => {
            let reason = format!(
                "Cilium's ipam mode {other:?} is none of cluster-pool, multi-pool, kubernetes"
            );
            Err(reason.into())
        }
    }
}

/// Those that are CIDRs; others are skipped.
fn valid<'a>(items: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let items = items.into_iter().map(str::trim);
    items
        .filter(|item| item.parse::<IpNet>().is_ok())
        .map(str::to_owned)
        .collect()
}

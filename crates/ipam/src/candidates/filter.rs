//! Whether one pool may serve one NIC of one Pod (spec ipam 3.4). Adding a constraint to a pool
//! never admits more Pods.

use std::sync::Arc;

use spiderpool_api::cni_conf::Plugin;
use spiderpool_api::names;
use spiderpool_api::selector::LabelSelector;

use super::{Candidate, Request};
use crate::annotation::AnnotationError;
use crate::facts::{Owner, Snapshot, Texts};
use crate::networks;
use crate::pool::Pool;
use crate::range::Family;

/// `Ok(Err(reason))` refuses the pool alone, `Err` the whole ADD.
pub(super) fn admit(
    snapshot: &Snapshot,
    request: &Request,
    nic: &str,
    family: Family,
    pool: &Arc<Pool>,
) -> Result<Result<Candidate, String>, AnnotationError> {
    let filter = Filter {
        snapshot,
        request,
        nic,
    };
    if let Some(reason) = filter.refusal(pool, family)? {
        return Ok(Err(reason));
    }
    let sibling = match &pool.pair {
        Some(name) if pool.is_iaas() && snapshot.dual_stack() && family == Family::V4 => name,
        _ => {
            return Ok(Ok(Candidate {
                pool: Arc::clone(pool),
                sibling: None,
            }));
        }
    };
    let Some(half) = snapshot.pool(sibling) else {
        return Ok(Err(format!(
            "has the pair pool {sibling}, which does not exist"
        )));
    };
    Ok(match filter.refusal(half, Family::V6)? {
        Some(reason) => Err(format!("has the pair pool {sibling}, which {reason}")),
        None => Ok(Candidate {
            pool: Arc::clone(pool),
            sibling: Some(Arc::clone(half)),
        }),
    })
}

struct Filter<'a> {
    snapshot: &'a Snapshot,
    request: &'a Request,
    nic: &'a str,
}

impl Filter<'_> {
    /// The first reason against the pool, in the order of the table.
    fn refusal(&self, pool: &Pool, family: Family) -> Result<Option<String>, AnnotationError> {
        if let Some(word) = pool.closed() {
            return Ok(Some(format!("is {word}")));
        }
        if pool.family != family {
            return Ok(Some(format!("is an {} pool, not {family}", pool.family)));
        }
        let early = self
            .overlap(pool)
            .or_else(|| self.node(pool))
            .or_else(|| self.namespace(pool));
        if early.is_some() {
            return Ok(early);
        }
        if let Some(reason) = self.network_type(pool) {
            return Ok(Some(reason));
        }
        match self.pod(pool) {
            Verdict::Refused(reason) => return Ok(Some(reason)),
            Verdict::Accepted => return Ok(None),
            Verdict::Undecided => {}
        }
        match self.multus(pool)? {
            Verdict::Refused(reason) => Ok(Some(reason)),
            Verdict::Accepted => Ok(None),
            Verdict::Undecided => Ok(self.request.match_master_subnet.then(|| {
                "cannot be compared with the master's subnet: match_master_subnet is not available in this release".to_owned()
            })),
        }
    }

    /// Of two pools that overlap the later one gives out nothing; each agent sees the same loser.
    fn overlap(&self, pool: &Pool) -> Option<String> {
        let rank = |pool: &Pool| (pool.created.clone(), pool.name.clone());
        let winner = self.snapshot.pools.iter().find(|other| {
            other.name != pool.name
                && other.family == pool.family
                && rank(other) < rank(pool)
                && !other.usable.intersect(&pool.usable).is_empty()
        })?;
        Some(format!(
            "overlaps the older IPPool {} and gives out nothing until one of them is changed",
            winner.name
        ))
    }

    fn node(&self, pool: &Pool) -> Option<String> {
        let node = &self.snapshot.node;
        let names = &pool.affinity.node_names;
        if !names.is_empty() {
            return (!names.contains(&node.name))
                .then(|| format!("is for node {}, not {}", names.join(", "), node.name));
        }
        unmatched(pool.affinity.node.as_ref(), &node.labels)
            .then(|| format!("has a nodeAffinity that node {} does not match", node.name))
    }

    fn namespace(&self, pool: &Pool) -> Option<String> {
        let namespace = &self.snapshot.pod.namespace;
        let names = &pool.affinity.namespace_names;
        if !names.is_empty() {
            return (!names.contains(namespace))
                .then(|| format!("is for namespace {}, not {namespace}", names.join(", ")));
        }
        unmatched(
            pool.affinity.namespace.as_ref(),
            &self.snapshot.namespace.labels,
        )
        .then(|| format!("has a namespaceAffinity that namespace {namespace} does not match"))
    }

    /// Only a sub-ENI carries an address of a provider. Of other NICs than the one being added
    /// the plugin is not known here.
    fn network_type(&self, pool: &Pool) -> Option<String> {
        let other = self.nic == self.request.ifname && self.request.plugin != Plugin::EniVlan;
        (pool.is_iaas() && other).then(|| {
            "is a pool of an IaaS provider, which requires an eni-vlan SpiderMultusConfig"
                .to_owned()
        })
    }

    fn pod(&self, pool: &Pool) -> Verdict {
        let Some(selector) = &pool.affinity.pod else {
            return Verdict::Undecided;
        };
        let pod = &self.snapshot.pod;
        if pool.labels.contains_key(names::OWNER_APPLICATION_NAME) {
            return if is_application(selector, &pod.owner, &pod.namespace) {
                Verdict::Accepted
            } else {
                Verdict::Refused("is the automatic pool of another application".to_owned())
            };
        }
        if selector.is_empty() || !selector.matches(&pod.labels) {
            return Verdict::Refused(format!(
                "has a podAffinity that Pod {} does not match",
                pod.key()
            ));
        }
        Verdict::Undecided
    }

    fn multus(&self, pool: &Pool) -> Result<Verdict, AnnotationError> {
        let names = &pool.affinity.multus_names;
        if names.is_empty() {
            return Ok(Verdict::Undecided);
        }
        let agent = self.request.agent_namespace.as_str();
        let cluster = self.request.cluster_network.as_deref();
        let network = networks::of_nic(&self.snapshot.pod, self.nic, cluster, agent)?;
        let Some(network) = network else {
            return Ok(Verdict::Refused(format!(
                "is for network {}, and nothing says which network NIC {} is of",
                names.join(", "),
                self.nic
            )));
        };
        let listed = names.iter().any(|name| {
            let (namespace, name) = name.split_once('/').unwrap_or((agent, name));
            namespace == network.namespace && name == network.name
        });
        Ok(if listed {
            Verdict::Accepted
        } else {
            Verdict::Refused(format!(
                "is for network {}, not {}/{} of NIC {}",
                names.join(", "),
                network.namespace,
                network.name,
                self.nic
            ))
        })
    }
}

enum Verdict {
    /// No further filter is asked.
    Accepted,
    Undecided,
    Refused(String),
}

/// An empty selector matches everything.
fn unmatched(selector: Option<&LabelSelector>, labels: &Texts) -> bool {
    selector.is_some_and(|selector| !selector.matches(labels))
}

/// Whether an automatic pool's selector names this application by its five keys.
fn is_application(selector: &LabelSelector, owner: &Owner, namespace: &str) -> bool {
    let (group, version) = owner
        .api_version
        .split_once('/')
        .unwrap_or(("", &owner.api_version));
    [
        ("api-group", group),
        ("api-version", version),
        ("kind", owner.kind.as_str()),
        ("namespace", namespace),
        ("name", owner.name.as_str()),
    ]
    .into_iter()
    .all(|(part, want)| {
        let key = format!("{}{part}", names::APP_KEY_PREFIX);
        selector
            .match_labels
            .get(&key)
            .is_some_and(|value| value == want)
    })
}

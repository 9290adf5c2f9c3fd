//! Whether one pool may serve one NIC of one Pod (spec ipam 3.4). Adding a constraint to a pool
//! never admits more Pods.

use std::sync::Arc;

use spiderpool_api::cni_conf::Plugin;
use spiderpool_api::names;
use spiderpool_api::selector::LabelSelector;

use super::{Candidate, Reason, Request};
use crate::annotation::AnnotationError;
use crate::facts::{Master, Owner, Snapshot, Texts};
use crate::networks;
use crate::overlap::pool_loses_to;
use crate::pool::Pool;
use crate::range::Family;

/// `Ok(Err(reason))` refuses the pool alone, `Err` the whole ADD.
pub(super) fn admit(
    snapshot: &Snapshot,
    request: &Request,
    nic: &str,
    family: Family,
    pool: &Arc<Pool>,
) -> Result<Result<Candidate, Reason>, AnnotationError> {
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
        return Ok(Err(Reason::PairMissing(sibling.clone())));
    };
    Ok(match filter.refusal(half, Family::V6)? {
        Some(reason) => Err(Reason::Pair {
            sibling: sibling.clone(),
            reason: Box::new(reason),
        }),
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
    fn refusal(&self, pool: &Pool, family: Family) -> Result<Option<Reason>, AnnotationError> {
        if let Some(word) = pool.closed() {
            return Ok(Some(Reason::Closed(word)));
        }
        if pool.family != family {
            return Ok(Some(Reason::Family {
                pool: pool.family,
                wanted: family,
            }));
        }
        if let Some(why) = self.snapshot.withheld.get(&family) {
            return Ok(Some(Reason::Withheld(why.clone())));
        }
        let early = pool_loses_to(pool, &self.snapshot.pools)
            .map(Reason::Overlap)
            .or_else(|| self.node(pool))
            .or_else(|| self.namespace(pool))
            .or_else(|| self.network_type(pool));
        if early.is_some() {
            return Ok(early);
        }
        match self.pod(pool) {
            Verdict::Refused(reason) => return Ok(Some(reason)),
            Verdict::Accepted => return Ok(None),
            Verdict::Undecided => {}
        }
        Ok(match self.multus(pool)? {
            Verdict::Refused(reason) => Some(reason),
            Verdict::Accepted => None,
            Verdict::Undecided => self.master(pool),
        })
    }

    fn node(&self, pool: &Pool) -> Option<Reason> {
        let node = &self.snapshot.node;
        let names = &pool.affinity.node_names;
        if !names.is_empty() {
            return (!names.contains(&node.name)).then(|| Reason::NodeName {
                names: names.clone(),
                node: node.name.clone(),
            });
        }
        unmatched(pool.affinity.node.as_ref(), &node.labels).then(|| Reason::NodeAffinity {
            node: node.name.clone(),
        })
    }

    fn namespace(&self, pool: &Pool) -> Option<Reason> {
        let namespace = &self.snapshot.pod.namespace;
        let names = &pool.affinity.namespace_names;
        if !names.is_empty() {
            return (!names.contains(namespace)).then(|| Reason::NamespaceName {
                names: names.clone(),
                namespace: namespace.clone(),
            });
        }
        let labels = &self.snapshot.namespace.labels;
        unmatched(pool.affinity.namespace.as_ref(), labels).then(|| Reason::NamespaceAffinity {
            namespace: namespace.clone(),
        })
    }

    /// Only a sub-ENI carries an address of a provider. Of other NICs than the one being added
    /// the plugin is not known here.
    fn network_type(&self, pool: &Pool) -> Option<Reason> {
        let other = self.nic == self.request.ifname && self.request.plugin != Plugin::EniVlan;
        (pool.is_iaas() && other).then_some(Reason::NeedsEniVlan)
    }

    /// Of other NICs than the one being added neither the wish nor the master is known here.
    fn master(&self, pool: &Pool) -> Option<Reason> {
        if !self.request.match_master_subnet || self.nic != self.request.ifname {
            return None;
        }
        match &self.snapshot.master {
            Master::Unknown(why) => Some(Reason::MasterUnknown(why.clone())),
            Master::Known { name, addresses } => {
                let inside = addresses.iter().any(|one| pool.subnet.contains(one));
                (!inside).then(|| Reason::MasterSubnet {
                    master: name.clone(),
                    subnet: pool.subnet,
                })
            }
        }
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
                Verdict::Refused(Reason::OtherApplication)
            };
        }
        if selector.is_empty() || !selector.matches(&pod.labels) {
            return Verdict::Refused(Reason::PodAffinity { pod: pod.key() });
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
            return Ok(Verdict::Refused(Reason::NetworkUnknown {
                names: names.clone(),
                nic: self.nic.to_owned(),
            }));
        };
        let listed = names.iter().any(|name| {
            let (namespace, name) = name.split_once('/').unwrap_or((agent, name));
            namespace == network.namespace && name == network.name
        });
        Ok(if listed {
            Verdict::Accepted
        } else {
            Verdict::Refused(Reason::Network {
                names: names.clone(),
                network: format!("{}/{}", network.namespace, network.name),
                nic: self.nic.to_owned(),
            })
        })
    }
}

enum Verdict {
    /// No further filter is asked.
    Accepted,
    Undecided,
    Refused(Reason),
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

//! What a verdict is made from, read past every cache. A read that fails is an error, never an absent
//! object: nothing is freed on it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::GetParams;
use kube::core::Request;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use spiderpool_api::allocation::Record;
use spiderpool_api::endpoint::{EndpointAllocation, EndpointStatus, SpiderEndpoint};
use spiderpool_ipam::first_generation::{Unnamed, unnamed};
use spiderpool_ipam::gc::{Facts, Knobs, NodeState, Static, Verdict, judge};
use spiderpool_ipam::plan::held_by;
use spiderpool_ipam::pool::Pool;
use spiderpool_ipam::sticky::{Sticky, Switches, is_valid_machine, is_valid_ordinal, ordinal};
use tokio::sync::Mutex;

use super::pod_row::{NodeRow, PodRow, RawNode, RawPod};
use crate::identities;
use crate::objects::error::store_error;
use crate::objects::{ObjectKey, StoreError};

/// Reads of one process.
#[derive(Clone)]
pub struct Reader {
    client: Client,
    sticky: Switches,
}

/// Pods of virtual machines by namespace, each read once: their names are not those of the records. A
/// new one for each scan, made after its records were read.
#[derive(Default)]
pub struct Launchers(Mutex<BTreeMap<String, Machines>>);

/// Each Pod with the name of its machine.
type Machines = Arc<Vec<(String, PodRow)>>;

/// Everything about one record.
#[derive(Debug, Clone)]
pub struct Direct {
    /// The Pod with the record's UID, else one of its key or machine.
    pub pod: Option<PodRow>,
    /// The endpoint of the record's key.
    pub endpoint: Option<SpiderEndpoint>,
    /// What outlives the Pod.
    pub identity: Option<Static>,
    /// Its node.
    pub node: NodeState,
    listed: bool,
    reported: bool,
}

impl Direct {
    /// The verdict on a record that was read before. `ending_for`: see [`Facts`].
    #[must_use]
    pub fn judge(
        &self,
        knobs: &Knobs,
        record: &Record,
        actor: &str,
        now: Timestamp,
        ending_for: SignedDuration,
    ) -> Verdict {
        let facts = Facts {
            record,
            pod: self.pod.as_ref().map(|pod| &pod.state),
            direct: true,
            endpoint_uid: self
                .endpoint
                .as_ref()
                .map(|endpoint| endpoint.status.current.uid.as_str()),
            listed: self.listed,
            reported: self.reported,
            identity: self.identity,
            node: self.node,
            actor,
            now,
            ending_for,
        };
        judge(knobs, &facts)
    }
}

impl Direct {
    /// Node that the endpoint names for a Pod of this UID.
    pub(super) fn node_of(&self, uid: &str) -> Option<String> {
        let current = &self.endpoint.as_ref()?.status.current;
        let known = current.uid == uid && !current.node.is_empty();
        known.then(|| current.node.clone())
    }

    /// What the endpoint says of its Pod's NICs.
    pub(super) fn told(&self) -> Option<EndpointAllocation> {
        let endpoint = self.endpoint.as_ref();
        endpoint.map(|endpoint| endpoint.status.current.clone())
    }

    /// What is known of a record that names no node.
    pub(super) fn unnamed(&self, pool: &Pool, address: IpAddr, record: &Record) -> Unnamed {
        let (endpoint, node) = (self.told(), self.pod_node(&record.pod_uid));
        unnamed(pool, (address, record), endpoint.as_ref(), node.as_deref())
    }

    /// Node of the Pod, if it has this UID.
    pub(super) fn pod_node(&self, uid: &str) -> Option<String> {
        let pod = self.pod.as_ref().filter(|pod| pod.state.uid == uid);
        pod.map(|pod| pod.node.clone())
    }
}

impl Reader {
    /// Through `client`; identities as the switches say.
    #[must_use]
    pub const fn new(client: Client, sticky: Switches) -> Self {
        Self { client, sticky }
    }

    /// Whose addresses outlive a Pod.
    #[must_use]
    pub const fn sticky(&self) -> Switches {
        self.sticky
    }

    /// Everything about the record of `address`. `hint`: where a cache has a Pod of the record's UID.
    ///
    /// # Errors
    /// [`StoreError`] of the first read that failed.
    pub async fn direct(
        &self,
        address: IpAddr,
        record: &Record,
        hint: Option<&ObjectKey>,
        launchers: &Launchers,
    ) -> Result<Direct, StoreError> {
        let key = key_of(record)?;
        let endpoint = self.endpoint(&key).await?;
        let pod = self.pod_of(&key, &record.pod_uid, hint, launchers).await?;
        let status = endpoint.as_ref().map(|endpoint| &endpoint.status);
        let namesake = self.kept_by_namesake(&key, pod.as_ref(), status).await?;
        let (identity, endpoint) = match namesake {
            None => {
                let identity = self.identity(&key, pod.as_ref(), status).await?;
                (identity, endpoint)
            }
            // The record is of what the endpoint stands for.
            Some(kept) if status.is_some_and(|own| own.current.uid == record.pod_uid) => {
                (Some(kept), endpoint)
            }
            // The endpoint is none of its business.
            Some(_) => (None, None),
        };
        let status = endpoint.as_ref().map(|endpoint| &endpoint.status);
        let node = match &pod {
            // Asked only about Pods that are being deleted.
            Some(pod) if pod.state.deletion.is_some() => self.node(&pod.node).await?,
            _ => NodeState::Ready,
        };
        let held = status.map(|status| held_by(&status.current));
        let mut held = held.unwrap_or_default().into_iter();
        Ok(Direct {
            listed: held.any(|held| held.address == address),
            reported: pod.as_ref().is_some_and(|pod| pod.shows(address)),
            pod,
            endpoint,
            identity,
            node,
        })
    }

    /// What still stands behind an endpoint whose name a Pod of another kind has: a machine and a plain Pod
    /// of one name share their key.
    async fn kept_by_namesake(
        &self,
        key: &ObjectKey,
        pod: Option<&PodRow>,
        endpoint: Option<&EndpointStatus>,
    ) -> Result<Option<Static>, StoreError> {
        let foreign = pod.zip(endpoint).is_some_and(|(pod, endpoint)| {
            let plain = self.sticky.of_owner(&pod.owner).is_none();
            plain && pod.state.uid != endpoint.current.uid
        });
        if !foreign {
            return Ok(None);
        }
        let identity = self.identity(key, None, endpoint).await?;
        Ok(identity.filter(|identity| identity.valid))
    }

    async fn pod_of(
        &self,
        key: &ObjectKey,
        uid: &str,
        hint: Option<&ObjectKey>,
        launchers: &Launchers,
    ) -> Result<Option<PodRow>, StoreError> {
        let named = self.pod(key).await?;
        let is_it = |pod: &PodRow| pod.state.uid == uid;
        if named.as_ref().is_some_and(is_it) {
            return Ok(named);
        }
        let hinted = match hint.filter(|hint| *hint != key) {
            Some(hint) => self.pod(hint).await?.filter(is_it),
            None => None,
        };
        // One of a machine that has ended may have left its address to another one.
        if hinted.as_ref().is_some_and(|pod| !pod.state.phase.ended()) {
            return Ok(hinted);
        }
        if !self.sticky.kubevirt {
            return Ok(hinted.or(named));
        }
        // Also where a plain Pod has the name of the machine: its records have the same key.
        let of_namespace = self.launchers(&key.namespace, launchers).await?;
        let own = of_namespace
            .iter()
            .filter(|(machine, _)| *machine == key.name);
        let own: Vec<&PodRow> = own.map(|(_, pod)| pod).collect();
        let runs = |pod: &&&PodRow| !pod.state.phase.ended();
        let found = own
            .iter()
            .find(|pod| is_it(pod) && runs(pod))
            .or_else(|| own.iter().find(runs))
            .or_else(|| own.iter().find(|pod| is_it(pod)))
            .or_else(|| own.first());
        Ok(found.map(|pod| (*pod).clone()).or(hinted).or(named))
    }

    /// Whether a machine runs in another Pod than the one with this UID.
    ///
    /// # Errors
    /// [`StoreError`] when its Pods cannot be listed.
    pub(super) async fn runs_elsewhere(
        &self,
        machine: &ObjectKey,
        uid: &str,
    ) -> Result<bool, StoreError> {
        let launchers = Launchers::default();
        let pods = self.launchers(&machine.namespace, &launchers).await?;
        let mut own = pods.iter().filter(|(name, _)| *name == machine.name);
        Ok(own.any(|(_, pod)| pod.state.uid != uid && !pod.state.phase.ended()))
    }

    async fn launchers(&self, namespace: &str, known: &Launchers) -> Result<Machines, StoreError> {
        let mut known = known.0.lock().await;
        if let Some(found) = known.get(namespace) {
            return Ok(Arc::clone(found));
        }
        let what = format!("the Pods of virtual machines in {namespace}");
        let read = identities::launchers(&self.client, namespace).await;
        let read = read.map_err(|error| store_error(error, "list", &what))?;
        let rows = read
            .into_iter()
            .map(|(machine, pod): (String, RawPod)| (machine, PodRow::from(pod)));
        let rows = Arc::new(rows.collect::<Vec<_>>());
        known.insert(namespace.to_owned(), Arc::clone(&rows));
        Ok(rows)
    }

    /// A Pod.
    ///
    /// # Errors
    /// [`StoreError`], but for one that is not there.
    pub async fn pod(&self, key: &ObjectKey) -> Result<Option<PodRow>, StoreError> {
        let url = Pod::url_path(&(), Some(&key.namespace));
        let what = format!("Pod {key}");
        let raw: Option<RawPod> = self.get(&url, &key.name, &what).await?;
        let Some(row) = raw.map(PodRow::from) else {
            return Ok(None);
        };
        // What is not read is skipped, so that anything at all would do.
        if row.key != *key || row.state.uid.is_empty() {
            let source = "the answer is not that Pod".into();
            return Err(StoreError::Malformed { what, source });
        }
        Ok(Some(row))
    }

    /// An endpoint.
    ///
    /// # Errors
    /// [`StoreError`], but for one that is not there.
    pub async fn endpoint(&self, key: &ObjectKey) -> Result<Option<SpiderEndpoint>, StoreError> {
        let api: Api<SpiderEndpoint> = Api::namespaced(self.client.clone(), &key.namespace);
        let found = api.get_opt(&key.name).await;
        found.map_err(|error| store_error(error, "read", &format!("SpiderEndpoint {key}")))
    }

    /// How a node is.
    ///
    /// # Errors
    /// [`StoreError`], but for one that is not there.
    pub async fn node(&self, name: &str) -> Result<NodeState, StoreError> {
        if name.is_empty() {
            return Ok(NodeState::Missing);
        }
        let url = Node::url_path(&(), None);
        let raw: Option<RawNode> = self.get(&url, name, &format!("Node {name}")).await?;
        Ok(raw.map_or(NodeState::Missing, |raw| NodeRow::from(raw).state))
    }

    /// What outlives the Pod that `key` names: by the Pod itself, else by its endpoint.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be told whether it still exists.
    pub async fn identity(
        &self,
        key: &ObjectKey,
        pod: Option<&PodRow>,
        endpoint: Option<&EndpointStatus>,
    ) -> Result<Option<Static>, StoreError> {
        let (kind, name) = match (pod, endpoint) {
            (Some(pod), _) => (self.sticky.of_owner(&pod.owner), pod.owner.name.as_str()),
            (None, Some(endpoint)) => (
                self.sticky.of_endpoint(endpoint),
                endpoint.owner_controller_name.as_str(),
            ),
            (None, None) => (None, ""),
        };
        let Some(kind) = kind else {
            return Ok(None);
        };
        let valid = match kind {
            Sticky::StatefulSet => {
                let pod_name = pod.map_or(key.name.as_str(), |pod| pod.key.name.as_str());
                let by_name = ordinal(pod_name).map_or("", |(set, _)| set);
                let set = if name.is_empty() { by_name } else { name };
                let what = format!("StatefulSet {}/{set}", key.namespace);
                let read = identities::stateful_set(&self.client, &key.namespace, set).await;
                let facts = read.map_err(|error| store_error(error, "read", &what))?;
                is_valid_ordinal(pod_name, facts.as_ref())
            }
            Sticky::VirtualMachine => {
                let machine = if name.is_empty() { &key.name } else { name };
                let what = format!("virtual machine {}/{machine}", key.namespace);
                let read = identities::machine(&self.client, &key.namespace, machine).await;
                is_valid_machine(&read.map_err(|error| store_error(error, "read", &what))?)
            }
        };
        Ok(Some(Static { kind, valid }))
    }

    async fn get<T: DeserializeOwned>(
        &self,
        url: &str,
        name: &str,
        what: &str,
    ) -> Result<Option<T>, StoreError> {
        let request = Request::new(url).get(name, &GetParams::default());
        let request = request.map_err(kube::Error::BuildRequest);
        let request = request.map_err(|error| store_error(error, "read", what))?;
        match self.client.request(request).await {
            Ok(found) => Ok(Some(found)),
            // Of an API server: the page of a middle box says nothing about the object.
            Err(kube::Error::Api(status)) if status.code == 404 && status.reason == "NotFound" => {
                Ok(None)
            }
            Err(error) => Err(store_error(error, "read", what)),
        }
    }
}

/// The key that a record names.
///
/// # Errors
/// [`StoreError::Malformed`] for a text that is none: no Pod can be asked about.
pub fn key_of(record: &Record) -> Result<ObjectKey, StoreError> {
    let parts = record.pod.split_once('/');
    let parts = parts.filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
    let (namespace, name) = parts.ok_or_else(|| StoreError::Malformed {
        what: format!("the Pod {:?} of a record", record.pod),
        source: "it is not namespace/name".into(),
    })?;
    Ok(ObjectKey::new(namespace, name))
}

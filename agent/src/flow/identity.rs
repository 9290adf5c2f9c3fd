//! Which Pod a call is about.

use spiderpool_api::cni_conf::CniArgs;
use spiderpool_ipam::admission::{is_dns_label, is_dns_name};

use super::call::NicCall;
use super::error::FlowError;
use crate::agent::Agent;
use crate::store::{Freshness, ObjectKey, PodObject, StandalonePod};

/// What the runtime says of the Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    /// The Pod.
    pub(crate) key: ObjectKey,
    /// `K8S_POD_UID`; a static Pod's is its hash.
    pub(crate) uid: Option<String>,
}

/// The Pod that `CNI_ARGS` name, if they do. No Pod has a name that no object can have, and it goes into
/// no request path.
pub(crate) fn named_by(args: &CniArgs) -> Option<Named> {
    let (namespace, name) = (args.pod_namespace.as_ref()?, args.pod_name.as_ref()?);
    impossible_name(args).is_none().then(|| Named {
        key: ObjectKey::new(namespace, name),
        uid: args.pod_uid.clone(),
    })
}

/// The argument of `CNI_ARGS` whose value can be no namespace or no Pod, with the value.
pub(super) fn impossible_name(args: &CniArgs) -> Option<(&'static str, &str)> {
    let namespace = args.pod_namespace.as_deref();
    let namespace = namespace.filter(|namespace| !is_dns_label(namespace));
    let name = args.pod_name.as_deref().filter(|name| !is_dns_name(name));
    let namespace = namespace.map(|value| ("K8S_POD_NAMESPACE", value));
    namespace.or(name.map(|value| ("K8S_POD_NAME", value)))
}

impl Agent {
    /// The Pod object of an ADD. In standalone mode a container without arguments gets one.
    pub(super) async fn pod_of(&self, call: &NicCall) -> Result<PodObject, FlowError> {
        if let Some(named) = named_by(&call.args) {
            return self.known_pod(named).await;
        }
        let pod = self.bare(call)?;
        let made = self.store.ensure_pod(&pod).await;
        made.map_err(FlowError::store("make the Pod object of this container"))
    }

    /// The Pod object of a CHECK, which makes none.
    pub(super) async fn checked_pod(&self, call: &NicCall) -> Result<PodObject, FlowError> {
        let named = match named_by(&call.args) {
            Some(named) => named,
            None => {
                let pod = self.bare(call)?;
                Named {
                    key: pod.key,
                    uid: Some(pod.uid),
                }
            }
        };
        self.known_pod(named).await
    }

    /// The Pod of a container without arguments.
    fn bare(&self, call: &NicCall) -> Result<StandalonePod, FlowError> {
        if !self.settings.standalone {
            return Err(FlowError::NoPod);
        }
        let container = call.key.container_id();
        Ok(StandalonePod::of(container, &self.settings.node))
    }

    /// A cached Pod that is not the runtime's is read again.
    async fn known_pod(&self, named: Named) -> Result<PodObject, FlowError> {
        let wanted = |pod: &PodObject| named.uid.as_deref().is_none_or(|uid| pod.answers_to(uid));
        let cached = self.read_pod(&named.key, Freshness::Cached).await?;
        let pod = match cached {
            Some(pod) if wanted(&pod) => return Ok(pod),
            _ => self.read_pod(&named.key, Freshness::Fresh).await?,
        };
        match pod {
            None => Err(FlowError::PodMissing(named.key)),
            Some(pod) if wanted(&pod) => Ok(pod),
            Some(pod) => Err(FlowError::PodReplaced {
                pod: named.key,
                wanted: named.uid.unwrap_or_default(),
                found: pod.facts.uid,
            }),
        }
    }

    pub(super) async fn read_pod(
        &self,
        key: &ObjectKey,
        freshness: Freshness,
    ) -> Result<Option<PodObject>, FlowError> {
        let pod = self.store.pod(key, freshness).await;
        pod.map_err(FlowError::store("read the Pod"))
    }
}

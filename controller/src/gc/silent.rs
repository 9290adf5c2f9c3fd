//! Pools whose sub-ENIs are given up without a word to a provider, because none is configured (spec iaas
//! 2: it is never called then). The sub-ENI stays bound for whoever gets the address next, so a claim that
//! stayed for ever would only be lost; but an operator who meant to have a provider has to know.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use kube::Resource;

use super::Gc;
use crate::events::{Events, Note};
use crate::objects::pool::PoolObject;
use crate::tasks::Context;

/// `reason` of the event.
const REASON: &str = "IaaSProviderNotConfigured";

/// Pools that were told of.
pub(super) struct Silent {
    events: Events,
    told: Mutex<BTreeSet<String>>,
}

impl Silent {
    pub(super) fn new(context: &Context) -> Self {
        let instance = &context.settings.env.pod_name;
        Self {
            events: Events::new(context.client.clone(), instance),
            told: Mutex::default(),
        }
    }

    fn is_first(&self, pool: &str) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(pool.to_owned())
    }
}

impl Gc {
    /// Tells, once a pool and leadership, that nobody hears of what is released in it.
    pub(super) async fn tell_silent(&self, object: &PoolObject) {
        if !self.silent.is_first(object.name()) {
            return;
        }
        let text = "addresses are freed without a release call: the controller has no IaaS Network Provider \
                    (iaasNetworkProvider in its conf.yml); the sub-ENIs stay bound for the next Pods";
        tracing::warn!(pool = object.name(), "{text}");
        let note = Note {
            reason: REASON,
            action: "Collect",
            text,
            related: None,
        };
        let about = object.typed().object_ref(&());
        self.silent.events.warn(&about, note).await;
    }
}

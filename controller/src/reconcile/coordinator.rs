//! The status of the SpiderCoordinator: which CIDRs the cluster's Pods and Services have, as read of
//! the cluster ([`facts`]) and decided by [`spiderpool_ipam::pod_cidr`] (spec api 7). And the end of
//! every SpiderCoordinator: nobody else takes its finalizer off.
//!
//! Follows the objects by a watch. What decides is spread over ConfigMaps, Pods and kinds of others
//! that a cluster may lack: it is read again every few seconds, which finds what watches would.

mod facts;

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};
use spiderpool_api::coordinator::{CoordinatorStatus, PodCidrType, SpiderCoordinator};
use spiderpool_ipam::pod_cidr::{self, Warning};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::finalizer;
use crate::chain::full;
use crate::complaints::Complaints;
use crate::config::Env;
use crate::events::{Events, Note};
use crate::followed::follow;
use crate::objects::parsed::Parsed;
use crate::tasks::{Context, Ended};
use facts::Reader;

pub use facts::cni_name;

/// Between two looks at the cluster.
const LOOK: Duration = Duration::from_secs(10);
/// What the controller is about, in events.
const ACTION: &str = "DetectCIDR";
/// What is complained about when no object can be read at all.
const LIST: &str = "the list of SpiderCoordinators";

/// The object could not be brought in line.
#[derive(Debug, thiserror::Error)]
#[error("cannot {tried} SpiderCoordinator {name}")]
struct ReconcileError {
    name: String,
    tried: &'static str,
    source: Box<kube::Error>,
}

/// Follows the objects until told to stop. Where it is switched off, only those that are being deleted:
/// admission gives them the finalizer all the same.
///
/// # Errors
/// None; the type is that of a task.
pub async fn run(context: Context, stop: CancellationToken) -> Ended {
    let env = &context.settings.env;
    let api: Api<PartialObjectMeta<SpiderCoordinator>> = Api::all(context.client.clone());
    let changes = follow(api, watcher::Config::default(), "SpiderCoordinators");
    let changes = changes.filter(|event| {
        let tells = matches!(event, Ok(Event::Apply(_) | Event::InitDone));
        std::future::ready(tells)
    });
    let mut changes = pin!(changes);
    let mut reconciler = Reconciler::new(context.client.clone(), env);
    let pause = LOOK.min(env.coordinator.resync);
    loop {
        reconciler.look().await;
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            _changed = changes.next() => {}
            () = sleep(pause) => {}
        }
    }
}

struct Reconciler {
    client: Client,
    reader: Reader,
    events: Events,
    /// The one whose status counts, unless that is switched off.
    name: Option<String>,
    /// As it was at the last look.
    kind: Option<Option<PodCidrType>>,
    /// What was told and is still so.
    told: BTreeSet<&'static str>,
    complaints: Complaints,
}

impl Reconciler {
    fn new(client: Client, env: &Env) -> Self {
        Self {
            reader: Reader::new(client.clone(), env),
            events: Events::new(client.clone(), &env.pod_name),
            client,
            name: env
                .coordinator
                .enabled
                .then(|| env.coordinator_name.clone()),
            kind: None,
            told: BTreeSet::new(),
            complaints: Complaints::default(),
        }
    }

    /// One that cannot be read or written is in no other's way.
    async fn look(&mut self) {
        let all: Api<Parsed<SpiderCoordinator>> = Api::all(self.client.clone());
        let listed = match all.list(&ListParams::default()).await {
            Ok(listed) => listed,
            Err(error) => return self.complaints.say(LIST, &full(&error)),
        };
        self.complaints.over(LIST);
        for found in listed {
            let about = found.shown();
            let looked = if found.meta().deletion_timestamp.is_some() {
                // Only the metadata counts: also one of another type can go.
                self.let_go(&found).await
            } else if self.name == found.meta().name {
                match &found.object {
                    Ok(coordinator) => self.bring_in_line(coordinator).await,
                    Err(why) => {
                        self.complaints.say(&about, &why.to_string());
                        continue;
                    }
                }
            } else {
                Ok(())
            };
            match looked {
                Ok(()) => self.complaints.over(&about),
                Err(error) => self.complaints.say(&about, &full(&error)),
            }
        }
    }

    /// Nothing has to be done before its end.
    async fn let_go(&self, coordinator: &Parsed<SpiderCoordinator>) -> Result<(), ReconcileError> {
        let Some(patch) = finalizer::removal(coordinator) else {
            return Ok(());
        };
        let name = coordinator.name_any();
        // The answer is of no interest, and may be of another type.
        let api: Api<PartialObjectMeta<SpiderCoordinator>> = Api::all(self.client.clone());
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        match api.patch_metadata(&name, &params, &patch).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            written => written
                .map(drop)
                .map_err(failed(&name, "take the finalizer off")),
        }
    }

    async fn bring_in_line(
        &mut self,
        coordinator: &SpiderCoordinator,
    ) -> Result<(), ReconcileError> {
        let kind = coordinator.spec.pod_cidr_type;
        self.tell_of_kind(coordinator, kind).await;
        let found = pod_cidr::detect(kind, &self.reader.read().await);
        self.warn(coordinator, found.warning, &found.status).await;
        if coordinator.status.as_ref() == Some(&found.status) {
            return Ok(());
        }
        let name = coordinator.name_any();
        let patch = Patch::Merge(status_patch(&found.status));
        let params = PatchParams::default();
        let api: Api<SpiderCoordinator> = Api::all(self.client.clone());
        let written = api.patch_status(&name, &params, &patch).await;
        written.map_err(failed(&name, "write the status of"))?;
        tracing::info!(
            name, phase = found.status.phase, reason = found.status.reason,
            pods = ?found.status.overlay_pod_cidr, services = ?found.status.service_cidr,
            "CIDRs of the cluster published"
        );
        Ok(())
    }

    async fn tell_of_kind(&mut self, coordinator: &SpiderCoordinator, kind: Option<PodCidrType>) {
        let before = self.kind.replace(kind);
        let Some(before) = before.filter(|before| *before != kind) else {
            return;
        };
        let word = |kind: Option<PodCidrType>| kind.map_or_else(|| "none set".into(), word);
        let text = format!(
            "podCIDRType changed from {} to {}",
            word(before),
            word(kind)
        );
        let note = Note {
            reason: "PodCIDRTypeChanged",
            action: ACTION,
            text: &text,
            related: None,
        };
        self.events.tell(&coordinator.object_ref(&()), note).await;
    }

    /// Once, until it is over.
    async fn warn(
        &mut self,
        coordinator: &SpiderCoordinator,
        warning: Option<Warning>,
        status: &CoordinatorStatus,
    ) {
        let reason = warning.map(Warning::as_str);
        self.told.retain(|told| Some(*told) == reason);
        let Some(reason) = reason.filter(|reason| self.told.insert(reason)) else {
            return;
        };
        let note = Note {
            reason,
            action: ACTION,
            text: status.reason.as_deref().unwrap_or_default(),
            related: None,
        };
        self.events.warn(&coordinator.object_ref(&()), note).await;
    }
}

/// As the API writes it.
fn word(kind: PodCidrType) -> String {
    let word = serde_json::to_value(kind).ok();
    let word = word.as_ref().and_then(Value::as_str);
    word.unwrap_or_default().to_owned()
}

/// A reason that is over goes; lists are written even when empty (spec api 8.12).
fn status_patch(status: &CoordinatorStatus) -> Value {
    json!({"status": {
        "phase": status.phase,
        "reason": status.reason,
        "overlayPodCIDR": status.overlay_pod_cidr,
        "serviceCIDR": status.service_cidr,
    }})
}

fn failed(name: &str, tried: &'static str) -> impl FnOnce(kube::Error) -> ReconcileError {
    let name = name.to_owned();
    move |source| ReconcileError {
        name,
        tried,
        source: Box::new(source),
    }
}

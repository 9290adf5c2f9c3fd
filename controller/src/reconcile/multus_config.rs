//! A NetworkAttachmentDefinition for each SpiderMultusConfig: rendered by [`spiderpool_ipam::multus`],
//! made, adopted, and brought back whenever somebody changes it (spec api 6).
//!
//! Owns annotations, configuration and the controller reference of those objects. Their end is left
//! to the cluster's garbage collector, which that reference tells.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::PostParams;
use kube::runtime::controller::{Action, Controller, Error as ControllerError};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use spiderpool_api::attachment_definition::NetworkAttachmentDefinition;
use spiderpool_api::multus_config::SpiderMultusConfig;
use spiderpool_api::names;
use spiderpool_ipam::multus::{self, Attachment, Options};
use tokio_util::sync::CancellationToken;

use crate::chain::full;
use crate::events::{Events, Note};
use crate::tasks::{Context, Ended};
use plan::Step;

/// A watch ends by itself after this many seconds, below the idle limit of middle boxes.
const WATCH_SECONDS: u32 = 200;
/// Between two tries of an object that could not be brought in line.
const RETRY: Duration = Duration::from_secs(5);
/// Until one that is being deleted is looked for again; its deletion wakes us too.
const GOING: Duration = Duration::from_secs(2);
/// What the controller is about, in events.
const ACTION: &str = "Render";

/// An object could not be brought in line.
#[derive(Debug, thiserror::Error)]
#[error("cannot {tried} NetworkAttachmentDefinition {name}")]
struct ReconcileError {
    /// With its namespace.
    name: String,
    tried: &'static str,
    source: Box<kube::Error>,
}

struct Reconciler {
    client: Client,
    events: Events,
    resync: Duration,
    options: Options,
}

/// Follows all objects until told to stop. Only that, where it is switched off.
///
/// # Errors
/// None; the type is that of a task.
pub async fn run(context: Context, stop: CancellationToken) -> Ended {
    let env = &context.settings.env;
    if !env.multus_config.enabled {
        stop.cancelled().await;
        return Ok(());
    }
    let client = context.client.clone();
    let reconciler = Arc::new(Reconciler {
        events: Events::new(client.clone(), &env.pod_name),
        resync: env.multus_config.resync,
        options: Options {
            first_generation: context.settings.conf.is_generation_1(),
        },
        client: client.clone(),
    });
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let controller = Controller::new(Api::all(client.clone()), config.clone());
    let known = controller.store();
    let attachments: Api<NetworkAttachmentDefinition> = Api::all(client);
    controller
        .watches(attachments, config, move |nad| made_of(&known, &nad))
        .graceful_shutdown_on(stop.cancelled_owned())
        .run(reconcile, |_, _, _| Action::requeue(RETRY), reconciler)
        .for_each(|done| {
            log(&done);
            std::future::ready(())
        })
        .await;
    Ok(())
}

/// The object that a NetworkAttachmentDefinition is made of, by name: whoever changes one may have
/// taken its owner away.
fn made_of(
    known: &Store<SpiderMultusConfig>,
    nad: &NetworkAttachmentDefinition,
) -> Option<ObjectRef<SpiderMultusConfig>> {
    let name = nad.metadata.name.as_deref()?;
    let config = known.find(|config| {
        let own = config.metadata.name.as_deref().unwrap_or_default();
        config.metadata.namespace == nad.metadata.namespace
            && multus::attachment_name(own, config.annotations()) == name
    })?;
    Some(ObjectRef::from_obj(config.as_ref()))
}

type Done<T> = Result<T, ControllerError<ReconcileError, watcher::Error>>;

fn log<T>(done: &Done<T>) {
    match done {
        Ok(_) | Err(ControllerError::ObjectNotFound(_)) => {}
        Err(ControllerError::ReconcilerFailed(error, _)) => tracing::warn!("{}", full(error)),
        Err(error) => {
            tracing::debug!(error = %full(error), "the watch of SpiderMultusConfigs begins anew");
        }
    }
}

async fn reconcile(
    config: Arc<SpiderMultusConfig>,
    reconciler: Arc<Reconciler>,
) -> Result<Action, ReconcileError> {
    if config.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    reconciler.bring_in_line(&config).await
}

impl Reconciler {
    async fn bring_in_line(&self, config: &SpiderMultusConfig) -> Result<Action, ReconcileError> {
        let (name, notes) = (config.name_any(), config.annotations());
        match multus::render(&name, notes, &config.spec, self.options) {
            Ok(wanted) => self.write(config, &wanted).await,
            Err(error) => {
                let text = format!("no network attachment can be made: {}", full(&error));
                self.warn(config, "RenderFailed", &text).await;
                Ok(Action::requeue(self.resync))
            }
        }
    }

    async fn write(
        &self,
        config: &SpiderMultusConfig,
        wanted: &Attachment,
    ) -> Result<Action, ReconcileError> {
        let later = Ok(Action::requeue(self.resync));
        let namespace = config.namespace().unwrap_or_default();
        let Some(owner) = config.controller_owner_ref(&()) else {
            return later;
        };
        let api: Api<NetworkAttachmentDefinition> =
            Api::namespaced(self.client.clone(), &namespace);
        let name = wanted.name.as_str();
        let failed = |tried| {
            let name = format!("{namespace}/{name}");
            move |source| ReconcileError {
                name,
                tried,
                source: Box::new(source),
            }
        };
        let found = api.get_opt(name).await.map_err(failed("read"))?;
        let params = PostParams::default();
        match plan::step(found, wanted, &namespace, &owner) {
            Step::Nothing => {}
            Step::Wait => return Ok(Action::requeue(GOING)),
            Step::Create(made) => {
                let created = api.create(&params, &made).await;
                created.map_err(failed("create"))?;
                tracing::info!(namespace, name, "network attachment created");
            }
            Step::Replace(changed) => {
                let replaced = api.replace(name, &params, &changed).await;
                replaced.map_err(failed("change"))?;
                tracing::info!(namespace, name, "network attachment changed");
            }
            Step::Leave(whose) => {
                let text = format!(
                    "NetworkAttachmentDefinition {name} belongs to {whose} and is left as it is; choose another name with annotation {}",
                    names::MULTUS_CR_NAME
                );
                self.warn(config, "AttachmentOfAnother", &text).await;
            }
        }
        later
    }

    async fn warn(&self, config: &SpiderMultusConfig, reason: &str, text: &str) {
        let note = Note {
            reason,
            action: ACTION,
            text,
            related: None,
        };
        self.events.warn(&config.object_ref(&()), note).await;
    }
}

//! The requests by which one NetworkAttachmentDefinition becomes what its SpiderMultusConfig says.

use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt};
use spiderpool_api::attachment_definition::NetworkAttachmentDefinition;
use spiderpool_api::multus_config::SpiderMultusConfig;
use spiderpool_api::names;
use spiderpool_ipam::multus::{self, Attachment, Options};

use super::attachments::Attachments;
use super::plan::{self, Step};
use crate::chain::full;
use crate::events::{Events, Note};
use crate::followed::has_no_kind;

/// What the controller is about, in events.
const ACTION: &str = "Render";

/// An object could not be brought in line.
#[derive(Debug, thiserror::Error)]
#[error("cannot {tried} NetworkAttachmentDefinition {name}")]
pub(super) struct ReconcileError {
    /// With its namespace.
    name: String,
    tried: &'static str,
    source: Box<kube::Error>,
}

impl ReconcileError {
    /// The cluster does not have the kind.
    pub(super) fn is_for_want_of_the_kind(&self) -> bool {
        has_no_kind(&self.source)
    }
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// Nothing more can be done for it now.
    InLine,
    /// An old object has to go first.
    Going,
}

/// Writes.
pub(super) struct Writer {
    client: Client,
    events: Events,
    options: Options,
}

impl Writer {
    pub(super) fn new(client: Client, instance: &str, options: Options) -> Self {
        Self {
            events: Events::new(client.clone(), instance),
            client,
            options,
        }
    }

    pub(super) async fn bring_in_line(
        &self,
        config: &SpiderMultusConfig,
        known: &Attachments,
    ) -> Result<Done, ReconcileError> {
        if config.metadata.deletion_timestamp.is_some() {
            return Ok(Done::InLine);
        }
        let (name, notes) = (config.name_any(), config.annotations());
        let wanted = match multus::render(&name, notes, &config.spec, self.options) {
            Ok(wanted) => wanted,
            Err(error) => {
                let text = format!("no network attachment can be made: {}", full(&error));
                self.warn(config, "RenderFailed", &text).await;
                return Ok(Done::InLine);
            }
        };
        let done = self.write(config, &wanted).await?;
        // The new one is there: whoever asks for the former finds out, the others are served.
        if done == Done::InLine {
            self.delete_former(config, &wanted.name, known).await?;
        }
        Ok(done)
    }

    async fn write(
        &self,
        config: &SpiderMultusConfig,
        wanted: &Attachment,
    ) -> Result<Done, ReconcileError> {
        let namespace = config.namespace().unwrap_or_default();
        let Some(owner) = config.controller_owner_ref(&()) else {
            return Ok(Done::InLine);
        };
        let api = self.api(&namespace);
        let name = wanted.name.as_str();
        let failed = |tried| failed(&namespace, name, tried);
        let found = api.get_opt(name).await.map_err(failed("read"))?;
        let params = PostParams::default();
        match plan::step(found, wanted, &namespace, &owner) {
            Step::Nothing => {}
            Step::Wait => return Ok(Done::Going),
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
        Ok(Done::InLine)
    }

    /// Admission refuses another name; where it was away, nobody else finds what has the old one.
    async fn delete_former(
        &self,
        config: &SpiderMultusConfig,
        name: &str,
        known: &Attachments,
    ) -> Result<(), ReconcileError> {
        let (namespace, uid) = (config.namespace().unwrap_or_default(), config.uid());
        for (key, made) in known.former(&namespace, uid.as_deref().unwrap_or_default(), name) {
            let params = DeleteParams {
                // As it was seen: nobody else's by now.
                preconditions: Some(Preconditions {
                    uid: made.uid.clone(),
                    resource_version: made.version.clone(),
                }),
                ..DeleteParams::default()
            };
            match self.api(&namespace).delete(&key.name, &params).await {
                Ok(_) => {
                    let text = format!(
                        "NetworkAttachmentDefinition {} is deleted: this SpiderMultusConfig makes {name} now",
                        key.name
                    );
                    tracing::info!(
                        namespace,
                        name = key.name,
                        "network attachment of a former name deleted"
                    );
                    self.warn(config, "FormerAttachmentDeleted", &text).await;
                }
                // Somebody's change: its event is on the way.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(failed(&namespace, &key.name, "delete")(error)),
            }
        }
        Ok(())
    }

    fn api(&self, namespace: &str) -> Api<NetworkAttachmentDefinition> {
        Api::namespaced(self.client.clone(), namespace)
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

fn failed(
    namespace: &str,
    name: &str,
    tried: &'static str,
) -> impl FnOnce(kube::Error) -> ReconcileError + use<> {
    let name = format!("{namespace}/{name}");
    move |source| ReconcileError {
        name,
        tried,
        source: Box::new(source),
    }
}

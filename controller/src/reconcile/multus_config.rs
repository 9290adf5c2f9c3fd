//! A NetworkAttachmentDefinition for each SpiderMultusConfig: rendered by [`spiderpool_ipam::multus`],
//! made, adopted, and brought back whenever somebody changes it (spec api 6). One that was made under a
//! former name of its SpiderMultusConfig is deleted.
//!
//! Owns annotations, configuration and the controller reference of those objects. Their end is left
//! to the cluster's garbage collector, which that reference tells.

mod attachments;
mod plan;
mod write;

use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt};
use spiderpool_api::attachment_definition::NetworkAttachmentDefinition;
use spiderpool_api::multus_config::SpiderMultusConfig;
use spiderpool_ipam::multus::{self, Options};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::chain::full;
use crate::complaints::Complaints;
use crate::followed::follow;
use crate::objects::parsed::{Parsed, shown};
use crate::reconcile::agenda::Agenda;
use crate::tasks::{Context, Ended};
use attachments::Attachments;
use write::Writer;

/// Between two tries of an object that could not be brought in line.
const RETRY: Duration = Duration::from_secs(5);
/// Until one that is being deleted is looked for again; its deletion wakes us too.
const GOING: Duration = Duration::from_secs(2);
/// Objects brought in line at once: one whose request hangs does not hold up the others.
const AT_ONCE: usize = 8;

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
    let client = &context.client;
    let configs: Api<Parsed<SpiderMultusConfig>> = Api::all(client.clone());
    let configs = follow(configs, watcher::Config::default(), "SpiderMultusConfigs");
    let attachments: Api<PartialObjectMeta<NetworkAttachmentDefinition>> = Api::all(client.clone());
    let what = "NetworkAttachmentDefinitions";
    let attachments = follow(attachments, watcher::Config::default(), what);
    let mut networks = Networks {
        writer: Writer::new(
            client.clone(),
            &env.pod_name,
            Options {
                first_generation: context.settings.conf.is_generation_1(),
            },
        ),
        resync: env.multus_config.resync,
        known: Agenda::default(),
        attachments: Attachments::default(),
        complaints: Complaints::default(),
    };
    tokio::select! {
        () = networks.follow(configs, attachments) => {}
        () = stop.cancelled() => {}
    }
    Ok(())
}

struct Networks {
    writer: Writer,
    resync: Duration,
    known: Agenda<SpiderMultusConfig>,
    attachments: Attachments,
    complaints: Complaints,
}

type Config = Parsed<SpiderMultusConfig>;
type Attachment = PartialObjectMeta<NetworkAttachmentDefinition>;

impl Networks {
    async fn follow(
        &mut self,
        configs: impl Stream<Item = watcher::Result<Event<Config>>>,
        attachments: impl Stream<Item = watcher::Result<Event<Attachment>>>,
    ) {
        let (mut configs, mut attachments) = (pin!(configs), pin!(attachments));
        loop {
            // With no object there is nothing to wait for.
            let next = self.known.next();
            let next = next.unwrap_or_else(|| Instant::now() + self.resync);
            tokio::select! {
                biased;
                // A watch begins anew for ever, and tells by itself when it fails.
                Some(event) = configs.next() => {
                    if let Ok(event) = event {
                        self.known.take(event, &mut self.complaints);
                    }
                }
                Some(event) = attachments.next() => {
                    if let Ok(event) = event {
                        self.attachment_event(event);
                    }
                }
                () = sleep_until(next) => self.bring_due_in_line().await,
            }
        }
    }

    fn attachment_event(&mut self, event: Event<Attachment>) {
        match event {
            Event::Init => self.attachments.begin(),
            Event::InitApply(found) | Event::Apply(found) => {
                self.attachments.put(&found);
                self.wake_for(&found);
            }
            Event::InitDone => self.attachments.end(),
            Event::Delete(found) => {
                self.attachments.remove(&found);
                self.wake_for(&found);
            }
        }
    }

    /// Whoever it was made of, by its owner and by its name: somebody may have changed either.
    fn wake_for(&mut self, found: &Attachment) {
        let owner = attachments::owner(found);
        self.known.wake(|key, config| {
            let is_owner = owner.is_some() && config.metadata.uid.as_deref() == owner;
            let is_named = Some(&key.namespace) == found.metadata.namespace.as_ref()
                && multus::attachment_name(&key.name, config.annotations()) == found.name_any();
            is_owner || is_named
        });
    }

    async fn bring_due_in_line(&mut self) {
        let mut works = Vec::new();
        for (key, config) in self.known.due() {
            let (writer, attachments) = (&self.writer, &self.attachments);
            works.push(async move {
                let ended = writer.bring_in_line(&config, attachments).await;
                (key, ended)
            });
        }
        let done: Vec<_> = stream::iter(works)
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        for (key, ended) in done {
            let about = shown::<SpiderMultusConfig>(Some(&key.namespace), &key.name);
            let wait = match ended {
                Ok(write::Done::InLine) => {
                    self.complaints.over(&about);
                    self.resync
                }
                Ok(write::Done::Going) => GOING,
                // The watch of that kind says so, once for all of them.
                Err(error) if error.is_for_want_of_the_kind() => RETRY,
                Err(error) => {
                    self.complaints.say(&about, &full(&error));
                    RETRY
                }
            };
            self.known.put_off(&key, wait);
        }
    }
}

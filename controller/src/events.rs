//! Events of the reconcilers, for users of the objects. A failure to write one is logged and nothing
//! else: no reconciler waits for what it tells.
//!
//! The same event about the same object within six minutes is counted on the first.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use crate::chain::full;

/// `reportingController` of all of them.
const CONTROLLER: &str = "spiderpool-controller";
/// The API takes no longer note; bytes.
const LONGEST_NOTE: usize = 1024;

/// What is told of an object.
#[derive(Debug, Clone)]
pub struct Note<'a> {
    /// `reason`.
    pub reason: &'a str,
    /// What the controller was about.
    pub action: &'a str,
    /// The text.
    pub text: &'a str,
    /// Another object that has to do with it.
    pub related: Option<ObjectReference>,
}

/// Writes them.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
}

impl Events {
    /// In the name of this process.
    #[must_use]
    pub fn new(client: Client, instance: &str) -> Self {
        let reporter = Reporter {
            controller: CONTROLLER.to_owned(),
            instance: Some(instance.to_owned()),
        };
        Self {
            recorder: Recorder::new(client, reporter),
        }
    }

    /// Something is not as it should be.
    pub async fn warn(&self, about: &ObjectReference, note: Note<'_>) {
        self.publish(EventType::Warning, about, note).await;
    }

    /// Something happened.
    pub async fn tell(&self, about: &ObjectReference, note: Note<'_>) {
        self.publish(EventType::Normal, about, note).await;
    }

    async fn publish(&self, kind: EventType, about: &ObjectReference, note: Note<'_>) {
        let text = note.text;
        let event = Event {
            type_: kind,
            reason: note.reason.to_owned(),
            note: text
                .get(..text.floor_char_boundary(LONGEST_NOTE))
                .map(str::to_owned),
            action: note.action.to_owned(),
            secondary: note.related,
        };
        if let Err(error) = self.recorder.publish(&event, about).await {
            let (kind, name) = (about.kind.as_deref(), about.name.as_deref());
            tracing::warn!(kind, name, reason = note.reason, error = %full(&error), "cannot write the event");
        }
    }
}

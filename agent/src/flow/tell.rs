//! What is told of a call besides its answer: Warning events for the Pod (spec ipam 8), a note for
//! whoever asks later.

use std::time::Duration;

use spiderpool_api::agent_v1::CniRequest;
use spiderpool_api::cni_conf::CniArgs;
use spiderpool_api::trace_v1::LastAdd;
use spiderpool_ipam::candidates::Request;

use super::category::{Category, is_worth_an_event};
use super::error::{Failure, FlowError};
use super::identity::{Named, named_by};
use super::journal::Noted;
use crate::agent::Agent;
use crate::events::{Notice, PodUid};
use crate::store::StandalonePod;

impl Agent {
    /// The Pod a request is about, as far as it says.
    pub(crate) fn named_in(&self, request: &CniRequest) -> Option<Named> {
        named_by(&CniArgs::parse(&request.args)).or_else(|| {
            let is_bare = self.settings.standalone && !request.container_id.is_empty();
            is_bare.then(|| {
                let pod = StandalonePod::of(&request.container_id, &self.settings.node);
                Named {
                    key: pod.key,
                    uid: Some(pod.uid),
                }
            })
        })
    }

    /// Shows the Pod the text that the runtime gets.
    pub(crate) fn tell_failed_add(&self, request: &CniRequest, error: &FlowError) {
        let Some(named) = self.named_in(request).filter(|_| is_worth_an_event(error)) else {
            return;
        };
        let message = as_shown(Failure::of(error));
        self.events.tell(Notice {
            pod: named.key,
            uid: PodUid::Named(named.uid),
            reason: Category::of(error).event_reason(),
            about: String::new(),
            message,
        });
    }

    /// Remembers an ADD for whoever asks about it later.
    pub(crate) fn note_add(
        &self,
        request: &CniRequest,
        asked: Request,
        took: Duration,
        error: Option<&FlowError>,
    ) {
        let Some(named) = self.named_in(request) else {
            return;
        };
        let last = LastAdd {
            at: self.clock.rfc3339(),
            ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            code: error.map_or(0, |error| error.cni_code().number()),
            error: error.map(|error| as_shown(Failure::of(error))),
        };
        let request = asked;
        self.journal.note(named.key, Noted { request, last });
    }
}

/// The text that the runtime gets, in one.
fn as_shown(failure: Failure) -> String {
    let Failure { msg, details, .. } = failure;
    match details.as_str() {
        "" => msg,
        details => format!("{msg}: {details}"),
    }
}

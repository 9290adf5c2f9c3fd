//! A provider that answers as it is told, for tests of its callers. Keeps what it was asked; binds
//! everything with rising VLAN ids unless something else is scripted.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use spiderpool_api::provider::{
    AllocateRequest, AllocateResponse, ReleaseRequest, SubEniRequest, SubEniResponse,
};
use spiderpool_api::value::Mac;
use tokio::time::Instant;

use crate::check::{self, Bound};
use crate::error::{CallError, Op};
use crate::provider::{Generation, Provider};

/// One scripted answer to allocate.
pub type Script = Box<dyn FnOnce(&AllocateRequest) -> Result<AllocateResponse, CallError> + Send>;

/// The provider.
#[derive(Default)]
pub struct FakeProvider {
    first: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    scripts: VecDeque<Script>,
    releases: VecDeque<Result<(), CallError>>,
    allocated: Vec<AllocateRequest>,
    released: Vec<ReleaseRequest>,
    release_ends: Vec<Option<Instant>>,
    bound: u16,
}

impl FakeProvider {
    /// One of the first generation.
    #[must_use]
    pub fn first_generation() -> Self {
        Self {
            first: true,
            ..Self::default()
        }
    }

    /// Answers the next allocate call that has no answer yet; `check::accept` judges it too.
    pub fn script(
        &self,
        answer: impl FnOnce(&AllocateRequest) -> Result<AllocateResponse, CallError> + Send + 'static,
    ) {
        self.state().scripts.push_back(Box::new(answer));
    }

    /// Answers the next allocate call that has no answer yet with a status.
    pub fn fail(&self, status: u16) {
        self.script(move |_| Err(refusal(Op::Allocate, status)));
    }

    /// Answers the next release call that has no answer yet with a status.
    pub fn fail_release(&self, status: u16) {
        let refused = Err(refusal(Op::Release, status));
        self.state().releases.push_back(refused);
    }

    /// Answers the next release call that has no answer yet with this error.
    pub fn refuse_release(&self, error: CallError) {
        self.state().releases.push_back(Err(error));
    }

    /// Allocate requests so far.
    #[must_use]
    pub fn allocated(&self) -> Vec<AllocateRequest> {
        self.state().allocated.clone()
    }

    /// Release requests so far.
    #[must_use]
    pub fn released(&self) -> Vec<ReleaseRequest> {
        self.state().released.clone()
    }

    /// Deadlines of the calling operations of release requests so far.
    #[must_use]
    pub fn release_ends(&self) -> Vec<Option<Instant>> {
        self.state().release_ends.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, request: &AllocateRequest) -> Result<AllocateResponse, CallError> {
        let mut state = self.state();
        state.allocated.push(request.clone());
        if let Some(script) = state.scripts.pop_front() {
            drop(state);
            return script(request);
        }
        let items = request.sub_eni_requests.iter();
        let bound = items.map(|item| {
            state.bound = state.bound % 4094 + 1;
            bind(item, state.bound)
        });
        Ok(AllocateResponse {
            sub_eni_responses: bound.collect(),
        })
    }
}

fn refusal(op: Op, status: u16) -> CallError {
    let body = r#"{"code":"Internal","message":"scripted"}"#.to_owned();
    CallError::Status { op, status, body }
}

/// The good answer to one item.
#[must_use]
pub fn bind(item: &SubEniRequest, vlan: u16) -> SubEniResponse {
    let [high, low] = vlan.to_be_bytes();
    let text = |ip: Option<String>| ip.unwrap_or_default();
    SubEniResponse {
        parent_nic_mac: item.parent_nic_mac.to_string(),
        subnet: item.subnet.to_string(),
        ipv4_address: text(item.ipv4_address.map(|ip| ip.to_string())),
        ipv6_address: text(item.ipv6_address.map(|ip| ip.to_string())),
        mac_address: Mac::new([0xfa, 0x16, 0x3e, 0, high, low]).to_string(),
        vlan_id: vlan.into(),
        ..SubEniResponse::default()
    }
}

fn in_time(op: Op, parent: Option<Instant>) -> Result<(), CallError> {
    match parent {
        Some(parent) if parent <= Instant::now() => {
            Err(CallError::ParentExpired { op, sent: false })
        }
        _ => Ok(()),
    }
}

impl Provider for FakeProvider {
    fn generation(&self) -> Generation {
        if self.first {
            Generation::First
        } else {
            Generation::Second
        }
    }

    fn allocate<'a>(
        &'a self,
        request: &'a AllocateRequest,
        parent: Option<Instant>,
    ) -> BoxFuture<'a, Result<Vec<Bound>, CallError>> {
        async move {
            in_time(Op::Allocate, parent)?;
            let response = self.answer(request)?;
            Ok(check::accept(request, &response)?)
        }
        .boxed()
    }

    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
        parent: Option<Instant>,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        async move {
            in_time(Op::Release, parent)?;
            let mut state = self.state();
            state.released.push(request.clone());
            state.release_ends.push(parent);
            state.releases.pop_front().unwrap_or(Ok(()))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn it_binds_unless_told_otherwise_and_is_judged_like_any_other() {
        let fake = FakeProvider::default();
        let provider: &dyn Provider = &fake;
        let request: AllocateRequest = serde_json::from_value(json!({
            "nodeName": "n1",
            "subEniRequests": [{ "parentNicMac": "fa:16:3e:30:00:03", "subnet": "10.72.0.0/24",
                                 "ipv4Address": "10.72.0.10" }],
        }))
        .unwrap();
        fake.fail(500);
        fake.script(|_| {
            Ok(AllocateResponse {
                sub_eni_responses: Vec::new(),
            })
        });
        let refused = provider.allocate(&request, None).await.unwrap_err();
        assert!(matches!(refused, CallError::Status { status: 500, .. }));
        let missing = provider.allocate(&request, None).await.unwrap_err();
        assert!(matches!(missing, CallError::Answer(_)), "{missing}");
        let bound = provider.allocate(&request, None).await.unwrap();
        assert_eq!(bound[0].vlan.map(|vlan| vlan.get()), Some(1));
        let over = provider.allocate(&request, Some(Instant::now())).await;
        assert!(matches!(
            over,
            Err(CallError::ParentExpired { sent: false, .. })
        ));
        assert_eq!(fake.allocated().len(), 3);
    }
}

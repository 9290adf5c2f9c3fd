//! One run against one provider: what it has, what it has met, and how a check ends. One thread;
//! nothing is borrowed over an await.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use serde::Serialize;
use spiderpool_iaas::client::Endpoint;

use super::judge::{Binding, Rule};
use super::pools::Pools;
use super::target::Target;
use super::wire::{Identity, Released};

/// How a check ended, unless it passed.
#[derive(Debug, Clone)]
pub(crate) enum Stop {
    /// The contract is broken.
    Fail(String),
    /// The contract is kept, but a provider should do better.
    Advice(String),
    /// It could not be tried.
    Skip(String),
}

/// A check at work.
pub(crate) type Run<'a> = LocalBoxFuture<'a, Result<(), Stop>>;

/// One call and its answer, in words.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Exchange {
    pub(crate) sent: String,
    pub(crate) got: String,
    /// Until the answer began, or the call was given up.
    pub(crate) milliseconds: u64,
    pub(crate) body: String,
    pub(crate) answer: String,
    /// Only to see what became of another one.
    #[serde(skip)]
    pub(crate) is_aside: bool,
}

/// A rule of answers that was broken.
#[derive(Debug, Clone)]
pub(crate) struct Broken {
    pub(crate) rule: Rule,
    pub(crate) why: String,
    pub(crate) exchange: Exchange,
}

/// The run.
pub(crate) struct Kit {
    pub(crate) endpoint: Endpoint,
    /// Whether it is contract version 1 that is spoken.
    pub(crate) is_v1: bool,
    pub(crate) target: Target,
    /// Budget of a call.
    pub(crate) timeout: Duration,
    /// Pools of an API server; `None` without one.
    pub(crate) pools: Option<Pools>,
    pub(crate) identity: Identity,
    pub(crate) verified: Verified,
    pub(crate) seen: Seen,
}

/// What became of the certificate.
#[derive(Debug, Clone)]
pub(crate) enum Verified {
    /// Good, by these.
    By(String),
    /// Not good.
    Refused(String),
    /// Not looked at.
    Not(&'static str),
}

/// What the run has met so far.
#[derive(Default)]
pub(crate) struct Seen {
    /// Global addresses that were asked for, on each node: what releases them.
    pub(crate) touched: RefCell<BTreeMap<(IpAddr, String), Released>>,
    /// What a client would know of each address by now.
    pub(crate) known: RefCell<BTreeMap<IpAddr, Binding>>,
    pub(crate) broken: RefCell<Vec<Broken>>,
    /// Answers to allocate that were judged.
    pub(crate) judged: Cell<usize>,
    /// Refusals, and the first without the recommended body.
    pub(crate) refusals: Cell<usize>,
    pub(crate) shapeless: RefCell<Option<Exchange>>,
    /// Calls whose end nobody has seen: the provider may be at work on them still.
    pub(crate) unanswered: Cell<usize>,
    /// Why there is nobody to talk to.
    pub(crate) gone: Cell<Option<&'static str>>,
    /// The first allocate of the run failed.
    pub(crate) serves_nothing: Cell<bool>,
    /// Whether it offers the diagnostic call.
    pub(crate) shows_addresses: Cell<Option<bool>>,
}

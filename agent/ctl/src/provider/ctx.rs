//! What a check works with: sends calls, keeps what was sent and answered for the report, remembers
//! what was touched for the clean-up, and passes on what it has learnt.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use spiderpool_api::causes::with_causes;
use spiderpool_api::provider::{AllocateRequest, AllocateResponse, SubEniRequest};
use spiderpool_iaas::client::raw;
use spiderpool_iaas::error::TransportError;
use spiderpool_iaas::wire_v1::AllocateResponseV1;
use tokio::time::{Instant, sleep, timeout};

use super::judge::{self, Binding, Rule};
use super::kit::{Broken, Exchange, Kit, Stop};
use super::target::{Node, Target};
use super::wire::{Call, Released, Reply, excerpt, in_version_1};

/// Time an answer may come after the budget it was given: the way back.
const GRACE: Duration = Duration::from_secs(1);
/// Tries of a call that a rate limit refuses, and the pause between them when none is told.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Longest body in the JSON report, characters.
const LOGGED: usize = 2000;

/// What a check works with.
pub(crate) struct Ctx {
    pub(crate) kit: Rc<Kit>,
    log: RefCell<Vec<Exchange>>,
}

/// Bindings of a request, in its order.
#[derive(Debug)]
pub(crate) struct Bindings(Vec<Result<Binding, Rule>>);

impl Bindings {
    /// The binding of one item.
    ///
    /// # Errors
    /// [`Stop::Skip`]: the answer's fault is another check's.
    pub(crate) fn at(&self, index: usize) -> Result<Binding, Stop> {
        match self.0.get(index) {
            Some(Ok(binding)) => Ok(*binding),
            Some(Err(rule)) => Err(Stop::Skip(format!(
                "the answer cannot be used: see {}",
                rule.check()
            ))),
            None => Err(Stop::Skip("the answer has no such item".to_owned())),
        }
    }
}

impl Ctx {
    pub(crate) fn new(kit: Rc<Kit>) -> Self {
        Self {
            kit,
            log: RefCell::default(),
        }
    }

    pub(crate) fn target(&self) -> &Target {
        &self.kit.target
    }

    /// What was sent and answered so far.
    pub(crate) fn log(&self) -> Vec<Exchange> {
        self.log.borrow().clone()
    }

    /// Shows an exchange of another check.
    pub(crate) fn repeat_exchange(&self, exchange: &Exchange) {
        self.log.borrow_mut().push(exchange.clone());
    }

    /// The last exchange was only to see what became of another one.
    pub(crate) fn set_aside(&self) {
        if let Some(last) = self.log.borrow_mut().last_mut() {
            last.is_aside = true;
        }
    }

    /// Forgets what was told so far, before it is told again.
    pub(crate) fn tell_anew(&self) {
        self.log.borrow_mut().clear();
    }

    /// Adds a line about what was seen elsewhere than in a call.
    pub(crate) fn note(&self, sent: &str, got: impl Into<String>) {
        self.log.borrow_mut().push(Exchange {
            sent: sent.to_owned(),
            got: got.into(),
            milliseconds: 0,
            body: String::new(),
            answer: String::new(),
            is_aside: false,
        });
    }

    /// Sends a call once; the whole budget unless it has another.
    ///
    /// # Errors
    /// [`Stop::Fail`] without an answer.
    pub(crate) async fn send(&self, call: Call) -> Result<Reply, Stop> {
        let whole = self.kit.timeout.as_millis().to_string();
        let budget = call.budget.clone().or(Some(whole));
        self.send_as_is(Call { budget, ..call }).await
    }

    /// Sends a call once, without a budget header unless it has one.
    ///
    /// # Errors
    /// [`Stop::Fail`] without an answer.
    pub(crate) async fn send_as_is(&self, call: Call) -> Result<Reply, Stop> {
        self.try_send(&call).await.map_err(Stop::Fail)
    }

    /// The same, for calls a provider may refuse by closing the connection.
    pub(crate) async fn try_send(&self, call: &Call) -> Result<Reply, String> {
        let body = match self.kit.is_v1 {
            true => in_version_1(&call.body),
            false => call.body.clone(),
        };
        let logged = excerpt(&body, LOGGED);
        let request = call.request(body).map_err(|error| error.to_string())?;
        let limit = self.kit.timeout + GRACE;
        let began = Instant::now();
        let unanswered = &self.kit.seen.unanswered;
        unanswered.set(unanswered.get() + 1);
        let answered = timeout(limit, raw::send(&self.kit.endpoint, request)).await;
        if matches!(answered, Ok(Ok(_))) {
            unanswered.set(unanswered.get().saturating_sub(1));
        }
        let answered = match answered {
            Ok(Ok(raw)) => Ok(Reply::from(raw)),
            Ok(Err(error)) => {
                if matches!(error, TransportError::Connect { .. }) {
                    let why = "the provider takes no connections any more";
                    self.kit.seen.gone.set(Some(why));
                }
                Err(with_causes(&error))
            }
            Err(_) => Err(format!("no answer within {limit:?}")),
        };
        let (got, answer, took) = match &answered {
            Ok(reply) => (reply.summary(), excerpt(&reply.body, LOGGED), reply.took),
            Err(why) => (why.clone(), String::new(), began.elapsed()),
        };
        self.log.borrow_mut().push(Exchange {
            sent: call.note.clone(),
            got,
            milliseconds: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            body: logged,
            answer,
            is_aside: false,
        });
        answered
    }

    /// Sends a call until no rate limit refuses it, a few times.
    ///
    /// # Errors
    /// [`Stop::Fail`] without an answer.
    pub(crate) async fn ask(&self, call: Call) -> Result<Reply, Stop> {
        for _ in 1..TRIES {
            let reply = self.send(call.clone()).await?;
            if !matches!(reply.status.as_u16(), 429 | 503) {
                return Ok(reply);
            }
            let pause = reply.retry_after.unwrap_or(PAUSE);
            sleep(pause.min(LONGEST_PAUSE)).await;
        }
        self.send(call).await
    }

    /// An allocate of the run's Pod.
    pub(crate) fn allocate_call(&self, node: &Node, items: &[Value]) -> Call {
        Call::allocate(&self.kit.identity, &node.name, items)
    }

    /// Allocates, and judges the answer for the checks of answers.
    ///
    /// # Errors
    /// [`Stop::Fail`] for anything but 2xx.
    pub(crate) async fn allocate(&self, node: &Node, items: &[Value]) -> Result<Bindings, Stop> {
        self.allocate_by(self.allocate_call(node, items)).await
    }

    /// The same with a call of its own making.
    ///
    /// # Errors
    /// [`Stop::Fail`] for anything but 2xx.
    pub(crate) async fn allocate_by(&self, call: Call) -> Result<Bindings, Stop> {
        self.touch(&call);
        let reply = self.ask(call.clone()).await?;
        self.served(&call, &reply)?;
        self.judge(&call, &reply)
    }

    /// Whether an allocate was served.
    ///
    /// # Errors
    /// [`Stop::Fail`] for anything but 2xx, unless the first allocate of all has told it already.
    pub(crate) fn served(&self, call: &Call, reply: &Reply) -> Result<(), Stop> {
        if reply.status.is_success() {
            return Ok(());
        }
        if self.kit.seen.serves_nothing.get() {
            let why = "the provider serves no allocate: see allocate.create";
            return Err(Stop::Skip(why.to_owned()));
        }
        let (note, summary) = (&call.note, reply.summary());
        Err(Stop::Fail(format!("{note}: {summary}, wanted 2xx")))
    }

    /// Remembers what a call may bind, for the clean-up.
    pub(crate) fn touch(&self, call: &Call) {
        let Ok(request) = serde_json::from_slice::<AllocateRequest>(&call.body) else {
            return;
        };
        if request.node_name.is_empty() {
            // nothing can be attached there, nor released
            return;
        }
        let mut touched = self.kit.seen.touched.borrow_mut();
        for item in &request.sub_eni_requests {
            let Some(ip) = address(item) else { continue };
            // a call that is wrong on purpose names another pool or subnet
            let (pool, subnet) = self.target().home(ip).unwrap_or_default();
            let subnet = subnet.unwrap_or(item.subnet);
            let node = request.node_name.clone();
            let parent = Some(item.parent_nic_mac);
            let address = ip.to_string();
            let key = (ip, node.clone());
            touched.entry(key).or_insert(Released {
                pool,
                subnet,
                address,
                node,
                parent,
            });
        }
    }

    /// The provider was told that an address is no longer used.
    pub(crate) fn forget(&self, address: IpAddr) {
        self.kit.seen.known.borrow_mut().remove(&address);
    }

    /// Judges a 2xx answer; faults go to the checks of answers.
    ///
    /// # Errors
    /// [`Stop::Skip`] for a call that is none of version 2.
    pub(crate) fn judge(&self, call: &Call, reply: &Reply) -> Result<Bindings, Stop> {
        let request: AllocateRequest = serde_json::from_slice(&call.body)
            .map_err(|error| Stop::Skip(format!("the call itself is none: {error}")))?;
        let seen = &self.kit.seen;
        let judged = {
            let known = seen.known.borrow();
            let of = |item: &SubEniRequest| known.get(&address(item)?).copied();
            judge::judge(&request, self.decode(reply), of)
        };
        seen.judged.set(seen.judged.get() + 1);
        let of_it = |exchange: &&Exchange| exchange.sent == call.note;
        let exchange = self.log.borrow().iter().rev().find(of_it).cloned();
        for (rule, why) in judged.faults {
            let Some(exchange) = exchange.clone() else {
                break;
            };
            seen.broken.borrow_mut().push(Broken {
                rule,
                why,
                exchange,
            });
        }
        for (item, binding) in request.sub_eni_requests.iter().zip(&judged.bindings) {
            if let (Some(ip), Ok(binding)) = (address(item), binding) {
                seen.known.borrow_mut().insert(ip, *binding);
            }
        }
        Ok(Bindings(judged.bindings))
    }

    /// The answer in the words of version 2. One that is cut is none.
    fn decode(&self, reply: &Reply) -> Result<AllocateResponse, serde_json::Error> {
        let body: &[u8] = if reply.is_whole { &reply.body } else { b"" };
        match self.kit.is_v1 {
            true => serde_json::from_slice::<AllocateResponseV1>(body).map(Into::into),
            false => serde_json::from_slice(body),
        }
    }

    /// Sends a call that has to be refused with a 4xx, and not for its rate.
    ///
    /// # Errors
    /// [`Stop::Fail`] when it is not.
    pub(crate) async fn refused(&self, call: Call) -> Result<Reply, Stop> {
        let note = call.note.clone();
        self.touch(&call);
        let reply = self.ask(call).await?;
        self.is_refusal(&note, reply)
    }

    /// The same for an answer that is there.
    ///
    /// # Errors
    /// [`Stop::Fail`] when it is none.
    pub(crate) fn is_refusal(&self, note: &str, reply: Reply) -> Result<Reply, Stop> {
        if !reply.status.is_client_error() || reply.status.as_u16() == 429 {
            return Err(Stop::Fail(format!(
                "{note}: {}, wanted 4xx",
                reply.summary()
            )));
        }
        self.count_refusal(&reply);
        Ok(reply)
    }

    /// Keeps the first refusal whose body is not the recommended one.
    pub(crate) fn count_refusal(&self, reply: &Reply) {
        let seen = &self.kit.seen;
        seen.refusals.set(seen.refusals.get() + 1);
        if reply.code().is_none() && seen.shapeless.borrow().is_none() {
            *seen.shapeless.borrow_mut() = self.log.borrow().last().cloned();
        }
    }

    /// Releases; any 2xx will do.
    ///
    /// # Errors
    /// [`Stop::Fail`] for anything else.
    pub(crate) async fn release(&self, what: &Released) -> Result<Reply, Stop> {
        let call = Call::release(&self.kit.identity, what);
        let note = call.note.clone();
        let reply = self.ask(call).await?;
        if let Ok(ip) = what.address.parse() {
            self.forget(ip);
        }
        if !reply.status.is_success() {
            return Err(Stop::Fail(format!(
                "{note}: {}, wanted 2xx",
                reply.summary()
            )));
        }
        Ok(reply)
    }

    /// Sends calls at the same time; the answers come in their order.
    pub(crate) async fn all_at_once(&self, calls: Vec<Call>) -> Vec<Result<Reply, Stop>> {
        for call in &calls {
            self.touch(call);
        }
        join_all(calls.into_iter().map(|call| self.ask(call))).await
    }
}

/// The key of an item.
fn address(item: &SubEniRequest) -> Option<IpAddr> {
    let v4 = item.ipv4_address.map(IpAddr::V4);
    v4.or(item.ipv6_address.map(IpAddr::V6))
}

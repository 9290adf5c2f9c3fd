//! The way between a client and the simulated API server: requests take time, get lost, lose their
//! answers; watches lag, break and fall silent; lists may be of a lagging replica.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use crate::api::{Change, Kind, Refused};
use crate::gate::{Actor, Gate};
use crate::mutation::Mutation;
use crate::weather::Fate;
use crate::world::World;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Reply = Response<UnsyncBoxBody<Bytes, Failure>>;
type Events = mpsc::UnboundedSender<Result<Bytes, Failure>>;

/// A client of the process behind the gate.
pub(crate) fn client(world: &Arc<World>, gate: &Arc<Gate>) -> Client {
    let (world, gate) = (Arc::clone(world), Arc::clone(gate));
    let service = tower::service_fn(move |request: Request<Body>| {
        serve(Arc::clone(&world), Arc::clone(&gate), request).boxed()
    });
    Client::new(service, "default")
}

/// What is asked.
#[derive(Debug, Clone)]
struct Call {
    method: Method,
    kind: Kind,
    key: Option<String>,
    namespace: Option<String>,
    status: bool,
    query: Vec<(String, String)>,
    metadata_only: bool,
    body: Value,
}

impl Call {
    /// `None` for what is not simulated: events.
    async fn read(request: Request<Body>) -> Option<Self> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let path = parts.uri.path().trim_start_matches('/').to_owned();
        let mut words = path.split('/');
        let skip = if words.next() == Some("api") { 1 } else { 2 };
        let mut words: Vec<&str> = words.skip(skip).collect();
        let mut namespace = None;
        if words.len() > 2 && words[0] == "namespaces" {
            namespace = Some(words[1].to_owned());
            words.drain(..2);
        }
        let kind = Kind::of_plural(words[0])?;
        let key = words.get(1).map(|name| match &namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => (*name).to_owned(),
        });
        let query = parts.uri.query().unwrap_or_default();
        let query = query.split('&').filter_map(|pair| pair.split_once('='));
        let accept = parts.headers.get("accept");
        let accept = accept.map(|value| value.to_str().unwrap_or_default());
        Some(Self {
            method: parts.method,
            kind,
            key,
            namespace,
            status: words.get(2) == Some(&"status"),
            query: query.map(|(k, v)| (k.to_owned(), plain(v))).collect(),
            metadata_only: accept.unwrap_or_default().contains("PartialObject"),
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        })
    }

    fn query(&self, key: &str) -> Option<&str> {
        let found = self.query.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }

    fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    fn watches(&self) -> bool {
        self.query("watch").is_some()
    }

    fn selects(&self, object: &Value) -> bool {
        let fields = self.query("fieldSelector").and_then(|s| s.split_once('='));
        let labels = self.query("labelSelector").and_then(|s| s.split_once('='));
        let field = |(path, value): (&str, &str)| {
            object.pointer(&format!("/{}", path.replace('.', "/"))) == Some(&json!(value))
        };
        let label = |(key, value): (&str, &str)| object["metadata"]["labels"][key] == value;
        fields.is_none_or(field) && labels.is_none_or(label)
    }

    fn shape(&self, object: &Value) -> Value {
        if !self.metadata_only {
            return object.clone();
        }
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": object["metadata"]})
    }
}

/// The two characters that selectors escape.
fn plain(text: &str) -> String {
    text.replace("%3D", "=").replace("%2F", "/")
}

async fn serve(
    world: Arc<World>,
    gate: Arc<Gate>,
    request: Request<Body>,
) -> Result<Reply, Failure> {
    let Some(call) = Call::read(request).await else {
        return Ok(answer(201, &json!({"metadata": {}})));
    };
    gate.begin(call.is_write()).await;
    let way = world.weather.way();
    let (reply, waiting) = oneshot::channel();
    let caller = Arc::clone(&gate);
    // Goes on when the caller is gone: what was sent may still arrive.
    tokio::spawn(async move {
        sleep(way.there).await;
        if world.weather.is_out() {
            world.check().disturbed(&gate.actor);
            drop(reply.send(Err::<Reply, Failure>("connection refused".into())));
            return;
        }
        if way.loses_request {
            world.check().disturbed(&gate.actor);
            return world.weather.lose(reply, way.resets);
        }
        let result = call_server(&world, &gate, call);
        sleep(way.back).await;
        if way.loses_answer {
            world.check().disturbed(&gate.actor);
            return world.weather.lose(reply, way.resets);
        }
        drop(reply.send(Ok(result)));
    });
    let result = waiting.await;
    caller.alive().await;
    result.unwrap_or_else(|_| Err("connection reset".into()))
}

fn call_server(world: &Arc<World>, gate: &Arc<Gate>, call: Call) -> Reply {
    if call.watches() {
        return watch(world, gate, call);
    }
    match act(world, gate, &call) {
        Ok((code, body)) => answer(code, &body),
        Err(refused) => {
            let lost = call.kind == Kind::Pool && call.is_write() && refused.code == 409;
            world.check().counts.conflicts += usize::from(lost);
            answer(refused.code, &refused.body())
        }
    }
}

/// The call's effect, in one instant.
fn act(world: &Arc<World>, gate: &Gate, call: &Call) -> Result<(u16, Value), Refused> {
    let Some(key) = &call.key else {
        if call.method == Method::GET {
            return Ok((200, list(world, gate, call)));
        }
        let name = call.body["metadata"]["name"].as_str().unwrap_or_default();
        let key = match &call.namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        };
        let made = world.api().create(call.kind, &key, call.body.clone())?;
        return Ok((201, written(world, gate, call, &made)));
    };
    let (kind, body) = (call.kind, &call.body);
    if call.method == Method::GET {
        let unseen = matches!(kind, Kind::Machine | Kind::Instance)
            && world.mutates(Mutation::MachinesAreUnknown);
        let found = world.api().get(kind, key).cloned();
        return match found.filter(|_| !unseen) {
            Some(object) => Ok((200, call.shape(&object))),
            None => Err(Refused {
                code: 404,
                reason: "NotFound",
                message: format!("{} {key} not found", kind.name()),
            }),
        };
    }
    let change = match call.method {
        Method::PUT => world.api().replace(kind, key, body, call.status)?,
        Method::PATCH => world
            .api()
            .patch(kind, key, &spoilt(world, gate, body), call.status)?,
        _ => world.api().delete(kind, key, &body["preconditions"])?,
    };
    Ok((200, written(world, gate, call, &change)))
}

/// The patch as it is, but for a provider that writes more than is its own.
fn spoilt(world: &World, gate: &Gate, body: &Value) -> Value {
    let mut body = body.clone();
    if world.mutates(Mutation::ProviderOverwritesRecords) && gate.actor == Actor::Provider {
        body["status"]["allocatedIPs"] = Value::Null;
    }
    body
}

/// What follows a change: those who judge it, those who watch, and perhaps the end of the writer.
fn written(world: &Arc<World>, gate: &Gate, call: &Call, change: &Change) -> Value {
    world.changed(&gate.actor, gate.id, change);
    gate.applied(call.is_write());
    match &change.new {
        Some(object) => call.shape(object),
        // The write that ends an object is answered with it.
        None if call.method == Method::PUT => call.body.clone(),
        None => json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success"}),
    }
}

fn list(world: &Arc<World>, gate: &Gate, call: &Call) -> Value {
    let (version, objects) = {
        let api = world.api();
        let newest = api.version();
        // Without resourceVersion=0 a list is of the newest; else any replica may answer.
        let version = match call.query("resourceVersion") {
            Some("0") => newest.saturating_sub(world.weather.replica_lag()),
            _ => newest,
        };
        (
            version.max(api.compacted),
            api.all_at(call.kind, version.max(api.compacted)),
        )
    };
    let objects = objects.iter().filter(|object| call.selects(object));
    let items: Vec<Value> = objects.map(|object| call.shape(object)).collect();
    if call.kind == Kind::Reserved {
        world.check().knows_reserved(gate.id, items.iter());
    }
    json!({"apiVersion": call.kind.api_version(), "kind": format!("{}List", call.kind.name()),
        "metadata": {"resourceVersion": version.to_string()}, "items": items})
}

fn answer(code: u16, body: &Value) -> Reply {
    let body = Full::new(Bytes::from(body.to_string()));
    let body = body
        .map_err(|never: Infallible| match never {})
        .boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

fn watch(world: &Arc<World>, gate: &Arc<Gate>, call: Call) -> Reply {
    let from: u64 = call
        .query("resourceVersion")
        .and_then(|version| version.parse().ok())
        .unwrap_or_default();
    let (events, body) = mpsc::unbounded_channel();
    if from < world.api().compacted {
        let gone = Refused {
            code: 410,
            reason: "Expired",
            message: "too old resource version".into(),
        };
        return answer(200, &json!({"type": "ERROR", "object": gone.body()}));
    }
    let pump = Pump {
        world: Arc::clone(world),
        gate: Arc::clone(gate),
        opened: world.weather.watch_opened(),
        call,
        cursor: from,
        events,
    };
    tokio::spawn(pump.run());
    let frames = futures::stream::unfold(body, |mut body| async {
        let item: Result<Bytes, Failure> = body.recv().await?;
        Some((item.map(hyper::body::Frame::data), body))
    });
    let body = StreamBody::new(frames.boxed());
    Response::builder()
        .status(200)
        .body(BodyExt::boxed_unsync(body))
        .unwrap()
}

/// One watch connection.
struct Pump {
    world: Arc<World>,
    gate: Arc<Gate>,
    call: Call,
    cursor: u64,
    /// Which connections a fault is about: those opened before it.
    opened: u64,
    events: Events,
}

impl Pump {
    async fn run(mut self) {
        let seconds = self.call.query("timeoutSeconds");
        let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(290);
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut due = Instant::now();
        let world = Arc::clone(&self.world);
        loop {
            let mut news = pin!(world.news.notified());
            news.as_mut().enable();
            let change = self.world.api().change(self.cursor).cloned();
            let Some(change) = change else {
                tokio::select! {
                    biased;
                    () = self.events.closed() => return,
                    () = sleep_until(end) => return,
                    () = news => {}
                }
                if !self.goes_on().await {
                    return;
                }
                continue;
            };
            self.cursor += 1;
            let Some(line) = self.line(&change) else {
                continue;
            };
            due = due.max(change.at + self.world.weather.watch_lag());
            tokio::select! {
                biased;
                () = self.events.closed() => return,
                () = sleep_until(due) => {}
            }
            if !self.goes_on().await {
                return;
            }
            if change.kind == Kind::Reserved {
                let objects = change.new.iter().map(|object| &**object);
                self.world.check().knows_reserved(self.gate.id, objects);
            }
            if self.events.send(Ok(line)).is_err() {
                return;
            }
        }
    }

    /// Breaks or falls silent when the weather says so; a dead client's connection just ends.
    async fn goes_on(&self) -> bool {
        if self.gate.is_dead() {
            return false;
        }
        match self.world.weather.watch_fate(&self.gate.actor, self.opened) {
            Fate::Open => true,
            Fate::Broken => {
                drop(self.events.send(Err("connection reset".into())));
                false
            }
            Fate::Silent => {
                self.events.closed().await;
                false
            }
        }
    }

    fn line(&self, change: &Change) -> Option<Bytes> {
        if change.kind != self.call.kind {
            return None;
        }
        let (kind, object) = match (&change.old, &change.new) {
            (None, Some(new)) => ("ADDED", new),
            (Some(_), Some(new)) => ("MODIFIED", new),
            (Some(old), None) => ("DELETED", old),
            (None, None) => return None,
        };
        // What a selector no longer matches is gone for who asked with it.
        let before = change.old.as_ref().filter(|old| self.call.selects(old));
        let (kind, object) = match (kind, before, self.call.selects(object)) {
            ("MODIFIED", Some(old), false) => ("DELETED", old),
            ("MODIFIED", None, true) => ("ADDED", object),
            (_, _, true) => (kind, object),
            _ => return None,
        };
        let mut object = self.call.shape(object);
        object["metadata"]["resourceVersion"] = change.version.to_string().into();
        let mut line = json!({"type": kind, "object": object}).to_string();
        line.push('\n');
        Some(line.into())
    }
}

//! Elections over an API server of one object, on tokio's paused clock: who leads when, and that a
//! leader that is cut off sends nothing once its lease may be taken.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, its helpers too"
)]

use std::future::pending;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response};
use k8s_openapi::api::coordination::v1::Lease;
use kube::client::Body;
use kube::{Api, Client};
use serde_json::{Value, json};
use spiderpool_controller::client::bounded;
use spiderpool_controller::config::Settings;
use spiderpool_controller::election::{Candidate, LEASE};
use spiderpool_controller::tasks::{Context, TaskError, TaskFailed, Tasks};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "spiderpool";

/// What becomes of a replica's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// They are answered.
    Open = 0,
    /// They hang.
    Closed = 1,
    /// They are carried out, and the answer never comes.
    Mute = 2,
}

/// Times at which a replica's task wrote.
type Writes = Arc<Mutex<Vec<(String, Instant)>>>;

struct Replica {
    way: Arc<AtomicU8>,
    stop: CancellationToken,
    running: JoinHandle<Result<(), TaskFailed>>,
    context: Context,
}

impl Replica {
    fn set(&self, way: Way) {
        self.way.store(way as u8, Ordering::SeqCst);
    }
}

/// The lease as stored, with its version.
#[derive(Default)]
struct Server(Mutex<(u64, Option<Value>)>);

impl Server {
    /// Stores or removes, whatever there was.
    fn put(&self, lease: Option<Value>) -> Option<Value> {
        let mut stored = self.0.lock().unwrap();
        stored.0 += 1;
        let version = stored.0.to_string();
        stored.1 = lease.map(|mut lease| {
            lease["metadata"]["resourceVersion"] = version.into();
            lease
        });
        stored.1.clone()
    }

    fn holder(&self) -> String {
        let stored = self.0.lock().unwrap().1.clone().unwrap();
        stored["spec"]["holderIdentity"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    fn answer(&self, method: &Method, body: &[u8]) -> Result<Value, u16> {
        let stored = self.0.lock().unwrap().1.clone();
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        match (method, stored) {
            (&Method::POST, None) => Ok(self.put(Some(sent)).unwrap()),
            (&Method::PUT, Some(old)) if version(&old) == version(&sent) => {
                Ok(self.put(Some(sent)).unwrap())
            }
            (&Method::POST | &Method::PUT, Some(_)) => Err(409),
            (&Method::GET, Some(lease)) => Ok(lease),
            (_, _) => Err(404),
        }
    }
}

#[derive(Default)]
struct Rig {
    server: Arc<Server>,
    writes: Writes,
}

impl Rig {
    fn new() -> Self {
        Self::default()
    }

    fn start(&self, name: &str) -> Replica {
        let way = Arc::new(AtomicU8::new(Way::Open as u8));
        let client = client(&self.server, &way);
        let context = Context::new(client, Settings::new(name, NAMESPACE));
        let (stop, candidate) = (CancellationToken::new(), Candidate::new(&context));
        let tasks = self.tasks();
        let (mine, token) = (context.clone(), stop.clone());
        let running = tokio::spawn(async move { candidate.run(&tasks, &mine, token).await });
        Replica {
            way,
            stop,
            running,
            context,
        }
    }

    /// Reads the API all the time through the leader's client and notes each answer; never listens.
    fn tasks(&self) -> Tasks {
        let writes = Arc::clone(&self.writes);
        Tasks::new().on_leader("writer", move |context: Context, stop| {
            let writes = Arc::clone(&writes);
            let name = context.settings.env.pod_name.clone();
            async move {
                let leases: Api<Lease> = Api::namespaced(context.client, NAMESPACE);
                while !stop.is_cancelled() {
                    if leases.get_opt(LEASE).await.is_ok() {
                        let note = (name.clone(), Instant::now());
                        writes.lock().unwrap().push(note);
                    }
                    sleep(Duration::from_millis(100)).await;
                }
                Ok(())
            }
        })
    }

    /// Waits until `name` has written after `since`; the answer is when.
    async fn leads(&self, name: &str, since: Instant) -> Instant {
        let found = timeout(Duration::from_secs(60), async {
            loop {
                let writes = self.writes.lock().unwrap().clone();
                let mut own = writes.iter().filter(|(by, at)| by == name && *at >= since);
                if let Some((_, at)) = own.next() {
                    return *at;
                }
                sleep(Duration::from_millis(20)).await;
            }
        });
        found
            .await
            .unwrap_or_else(|_| panic!("{name} does not lead"))
    }

    fn last_write(&self, name: &str) -> Instant {
        let writes = self.writes.lock().unwrap();
        let last = writes.iter().rev().find(|(by, _)| by == name);
        last.unwrap().1
    }
}

fn client(server: &Arc<Server>, way: &Arc<AtomicU8>) -> Client {
    let (server, way) = (Arc::clone(server), Arc::clone(way));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (server, way) = (Arc::clone(&server), way.load(Ordering::SeqCst));
        async move {
            sleep(Duration::from_millis(5)).await;
            if way == Way::Closed as u8 {
                return pending().await;
            }
            let method = request.method().clone();
            let body = request.into_body().collect_bytes().await?;
            let (code, answer) = match server.answer(&method, &body) {
                Ok(lease) => (200, lease),
                Err(code) => (
                    code,
                    json!({"kind": "Status", "status": "Failure", "code": code,
                    "message": "scripted", "reason": if code == 404 { "NotFound" } else { "Conflict" }}),
                ),
            };
            if way == Way::Mute as u8 {
                return pending().await;
            }
            let body = serde_json::to_vec(&answer)?;
            let answer = Response::builder().status(code).body(Body::from(body))?;
            Ok::<_, TaskError>(answer)
        }
    });
    bounded(Client::new(service, "default"))
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_before_another_begins() {
    let rig = Rig::new();
    let first = rig.start("c-0");
    rig.leads("c-0", Instant::now()).await;
    let second = rig.start("c-1");
    sleep(Duration::from_secs(60)).await;
    assert!(rig.writes.lock().unwrap().iter().all(|(by, _)| by == "c-0"));

    let cut = Instant::now();
    first.set(Way::Closed);
    let next = rig.leads("c-1", cut).await;
    let taken_after = next - cut;
    assert!(taken_after <= Duration::from_secs(20), "{taken_after:?}");
    assert!(rig.last_write("c-0") < next);
    // Back again, it is one of those that wait.
    first.set(Way::Open);
    sleep(Duration::from_secs(60)).await;
    assert!(rig.last_write("c-0") < next);
    first
        .context
        .health
        .ask(spiderpool_controller::health::Probe::Readiness)
        .await
        .unwrap();

    // One that stops says so: nobody waits for a lease without holder.
    let stopped = Instant::now();
    second.stop.cancel();
    second.running.await.unwrap().unwrap();
    let next = rig.leads("c-0", stopped).await;
    assert!(
        next - stopped <= Duration::from_secs(3),
        "{:?}",
        next - stopped
    );
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_former_leader_are_not_sent() {
    let rig = Rig::new();
    let stubborn: Arc<Mutex<Option<Client>>> = Arc::default();
    let kept = Arc::clone(&stubborn);
    let tasks = Tasks::new().on_leader("keeps its client", move |context: Context, stop| {
        *kept.lock().unwrap() = Some(context.client);
        async move {
            stop.cancelled().await;
            Ok(())
        }
    });
    let way = Arc::new(AtomicU8::new(Way::Open as u8));
    let client = client(&rig.server, &way);
    let context = Context::new(client, Settings::new("c-0", NAMESPACE));
    let candidate = Candidate::new(&context);
    tokio::spawn(async move {
        candidate
            .run(&tasks, &context, CancellationToken::new())
            .await
    });
    sleep(Duration::from_secs(5)).await;
    let leases = || {
        let client = stubborn.lock().unwrap().clone().unwrap();
        Api::<Lease>::namespaced(client, NAMESPACE)
    };
    leases().get(LEASE).await.unwrap();
    let old = leases();
    way.store(Way::Closed as u8, Ordering::SeqCst);
    sleep(Duration::from_secs(11)).await;
    let error = old.get(LEASE).await.unwrap_err();
    let text = spiderpool_controller::chain::full(&error);
    assert!(text.contains("is not the leader any more"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_restarted_leader_leads_at_once() {
    let rig = Rig::new();
    let first = rig.start("c-0");
    rig.leads("c-0", Instant::now()).await;
    first.running.abort();
    let killed = Instant::now();
    drop(rig.start("c-0"));
    let again = rig.leads("c-0", killed + Duration::from_millis(200)).await;
    assert!(again - killed <= Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn lost_answers_and_a_deleted_lease_do_not_end_a_leadership() {
    let rig = Rig::new();
    let first = rig.start("c-0");
    rig.leads("c-0", Instant::now()).await;
    let second = rig.start("c-1");
    sleep(Duration::from_secs(20)).await;
    first.set(Way::Mute);
    sleep(Duration::from_secs(5)).await;
    first.set(Way::Open);
    sleep(Duration::from_secs(60)).await;
    rig.leads("c-0", Instant::now()).await;
    let elsewhere = |(by, _): &(String, Instant)| by != "c-0";
    assert!(!rig.writes.lock().unwrap().iter().any(elsewhere));
    // Deleted by hand, at whatever moment: who waits knows who led, and until when.
    for _ in 0..20 {
        rig.server.put(None);
        sleep(Duration::from_millis(7_300)).await;
    }
    assert!(!rig.writes.lock().unwrap().iter().any(elsewhere));
    rig.leads("c-0", Instant::now()).await;
    drop(second);

    // Taken away by hand: the former leader is gone with the next renewal.
    let mut lease = rig.server.0.lock().unwrap().1.clone().unwrap();
    lease["spec"] = json!({"holderIdentity": "somebody", "leaseDurationSeconds": 600});
    rig.server.put(Some(lease));
    let taken = Instant::now();
    sleep(Duration::from_secs(60)).await;
    let last = rig.writes.lock().unwrap().last().unwrap().1;
    assert!(last - taken <= Duration::from_secs(3), "{:?}", last - taken);
    assert_eq!(rig.server.holder(), "somebody");
}

/// Somebody's lease for thirty years, or of a release with other settings, does not end all leading.
#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_renews_is_taken_whatever_it_promises() {
    let rig = Rig::new();
    let lease = json!({"metadata": {"name": LEASE},
        "spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 1_000_000_000}});
    rig.server.put(Some(lease));
    let begun = Instant::now();
    let replica = rig.start("c-0");
    // Ten times what we ask for ourselves.
    sleep(Duration::from_secs(149)).await;
    assert!(rig.writes.lock().unwrap().is_empty());
    let led = rig.leads("c-0", begun).await;
    assert!(led - begun <= Duration::from_secs(153), "{:?}", led - begun);
    drop(replica);
}

//! The API as a whole: opens the state, starts the writer, gives out the router and the TCP
//! listener, and stops them in order.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::Admission;
use crate::batch::Batch;
use crate::clock;
use crate::deletion::BUILT_IN_NAMESPACES;
use crate::kinds;
use crate::listener;
use crate::mirror::{HistoryLimits, Mirror, State};
use crate::object_key::ObjectKey;
use crate::routes::{self, Api};
use crate::rules::Rules;
use crate::schemas;
use crate::store::{OpenError, Store};
use crate::tls::{self, Authority, TlsError};
use crate::writer::{self, Writer};

/// How long [`EmbeddedApi::close`] waits for clients to take their answers.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Where and how the TCP listener serves.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// Address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Folder of `ca.crt` and `ca.key`, made if absent.
    pub cert_dir: PathBuf,
    /// File of the bearer token, made if absent.
    pub token_path: PathBuf,
    /// Host names and addresses the certificate is for, besides the listening address,
    /// `127.0.0.1`, `::1` and `localhost`.
    pub names: Vec<String>,
}

/// Why the listener cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Keys, certificates or the token.
    #[error("the API listener has no TLS")]
    Tls(#[from] TlsError),
    /// The address is taken or not ours.
    #[error(
        "cannot listen on {address}: choose another address for the API, or stop what listens there"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// A listener that serves. No Debug: the token must not get into a log.
#[derive(Clone)]
pub struct Listening {
    /// Where it listens.
    pub address: SocketAddr,
    /// PEM of the CA that signed its certificate.
    pub ca_pem: String,
    /// The bearer token.
    pub token: String,
}

/// The running API. Dropping it lets queued writes finish in the background; [`Self::close`] waits.
pub struct EmbeddedApi {
    api: Api,
    /// Listeners and connections.
    tasks: TaskTracker,
    thread: JoinHandle<()>,
}

impl EmbeddedApi {
    /// Opens the state file, making it if absent, and starts the writer thread. Blocks on the disk.
    ///
    /// # Errors
    /// [`OpenError`] names the file and what to do.
    pub fn open(state: &Path, admission: Arc<dyn Admission>) -> Result<Self, OpenError> {
        Self::open_with(state, admission, HistoryLimits::default())
    }

    /// As [`Self::open`], with other limits for the history that watches resume from.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(
        path: &Path,
        admission: Arc<dyn Admission>,
        limits: HistoryLimits,
    ) -> Result<Self, OpenError> {
        let mut store = Store::open(path)?;
        let mut state = writer::load(store.load()?, path)?;
        if add_built_in_namespaces(&mut store, &state)? {
            state = writer::load(store.load()?, path)?;
        }
        let schemas = Arc::new(schemas::built_in());
        let rules = Rules {
            schemas: Arc::clone(&schemas),
            admission,
        };
        let mirror = Arc::new(Mirror::new(state, limits));
        let (writer, thread) = Writer::start(store, Arc::clone(&mirror), rules)?;
        let api = Api {
            mirror,
            writer,
            schemas,
            stop: CancellationToken::new(),
        };
        Ok(Self {
            api,
            tasks: TaskTracker::new(),
            thread,
        })
    }

    /// Everything the API serves, without TLS and token, for clients in this process:
    /// `kube::Client::new(api.router(), "default")`.
    pub fn router(&self) -> Router {
        routes::router(self.api.clone())
    }

    /// Serves over TLS with a bearer token until [`Self::close`].
    ///
    /// # Errors
    /// [`ServeError`]; nothing is left running then.
    pub async fn serve(&self, options: &TlsOptions) -> Result<Listening, ServeError> {
        let authority = Authority::load_or_create(&options.cert_dir)?;
        let token = tls::load_or_create_token(&options.token_path)?;
        let config = authority.server_config(&certificate_names(options))?;
        let failed = |source| ServeError::Listen {
            address: options.listen,
            source,
        };
        let socket = TcpListener::bind(options.listen).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let router = listener::authenticated(self.router(), &token);
        let (stop, tasks) = (self.api.stop.clone(), self.tasks.clone());
        self.tasks
            .spawn(listener::run(socket, config, router, stop, tasks));
        Ok(Listening {
            address,
            ca_pem: authority.certificate_pem,
            token,
        })
    }

    /// Ends watches and listeners, lets requests at work have their answer for up to five seconds,
    /// finishes queued writes, closes the file. Later requests are answered with 503.
    pub async fn close(self) {
        self.api.stop.cancel();
        self.tasks.close();
        if timeout(LAST_ANSWERS, self.tasks.wait()).await.is_err() {
            tracing::warn!("some clients of the embedded API did not take their answers");
        }
        self.api.writer.stop().await;
        // the thread has nothing left to do but return
        if self.thread.join().is_err() {
            tracing::error!("the writer thread of the embedded API had panicked");
        }
    }
}

fn certificate_names(options: &TlsOptions) -> Vec<String> {
    let mut names = vec![
        "127.0.0.1".to_owned(),
        "::1".to_owned(),
        "localhost".to_owned(),
    ];
    if !options.listen.ip().is_unspecified() {
        names.push(options.listen.ip().to_string());
    }
    names.extend(options.names.iter().cloned());
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

/// Returns whether any had been missing.
fn add_built_in_namespaces(store: &mut Store, state: &State) -> Result<bool, OpenError> {
    let Some(kind) = kinds::by_kind("Namespace") else {
        return Ok(false);
    };
    let mut batch = Batch::new(&state.objects, state.version);
    for name in BUILT_IN_NAMESPACES {
        let key = ObjectKey::new(kind.collection, "", name);
        if batch.get(&key).is_some() {
            continue;
        }
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": name, "uid": uuid::Uuid::new_v4().to_string(),
            "creationTimestamp": clock::stamp(clock::now()),
            "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {}, "status": {"phase": "Active"}});
        batch.put(kind, key, object);
    }
    let (version, changes) = batch.into_changes();
    if changes.is_empty() {
        return Ok(false);
    }
    let entries = changes
        .iter()
        .map(|c| (&c.key, Some(c.object.json.as_ref())));
    store
        .commit(version, entries)
        .map_err(|error| store.unwritable(error))?;
    Ok(true)
}

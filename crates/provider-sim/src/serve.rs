//! `provider-sim serve`: the cloud as a process. Puts the parts together and stops them.

use std::future::pending;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use spiderpool_api::causes::with_causes;
use spiderpool_netops::netns::Netns;
use tokio::task::JoinSet;
use tracing::info;

use crate::admin::{self, Admin, AdminAddress};
use crate::connection;
use crate::console;
use crate::contract;
use crate::door::Door;
use crate::fabric::ports::Sockets;
use crate::fabric::run::Running;
use crate::publish;
use crate::publisher::{self, Publisher};
use crate::refusal::Refusal;
use crate::service::Service;
use crate::settings::Settings;
use crate::state_file::StateLock;
use crate::tls::Tls;
use crate::tls_secret::{SecretPlace, TlsSecret};
use crate::topology::Topology;

/// What `serve` is told.
#[derive(Debug, Clone, clap::Args)]
#[command(group = clap::ArgGroup::new("ca").args(["tls_ca_file", "tls_secret"]).multiple(true))]
pub struct ServeArguments {
    /// Nodes, subnets, sub-ENIs and, without an API server, pools (YAML).
    #[arg(long, value_name = "FILE")]
    pub topology: PathBuf,
    /// API server whose pools are served and published; without it only the topology's pools.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Where the contract is served without TLS.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Where the contract is served with TLS; clients find the CA in --tls-ca-file or --tls-secret.
    #[arg(long, value_name = "ADDRESS", requires = "ca")]
    pub tls_listen: Option<SocketAddr>,
    /// File to write the certificate of the CA to that TLS clients verify by.
    #[arg(long, value_name = "FILE")]
    pub tls_ca_file: Option<PathBuf>,
    /// Secret to keep CA, certificate and key in, as Spiderpool's chart looks it up; with no value
    /// iaas-network-provider-system/iaas-network-provider-tls.
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "kubeconfig", num_args = 0..=1,
        require_equals = true, default_missing_value = "iaas-network-provider-system/iaas-network-provider-tls")]
    pub tls_secret: Option<SecretPlace>,
    /// Host name or address in the TLS certificate; may be given several times.
    #[arg(long, value_name = "NAME", default_values = ["localhost", "127.0.0.1", "iaas-network-provider.iaas-network-provider-system.svc"])]
    pub tls_name: Vec<String>,
    /// Where the administration listens: loopback address, unix:PATH, or 0 for nowhere.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    pub admin: AdminAddress,
    /// Move frames between parent NICs and gateway as the cloud has them bound. Needs root.
    #[arg(long)]
    pub fabric: bool,
    /// Network namespace the fabric's ends of the wires are in, instead of the process's own.
    #[arg(long, value_name = "PATH", requires = "fabric")]
    pub fabric_netns: Option<PathBuf>,
    /// Rates, timeouts and latencies (YAML).
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// File the cloud's state is kept in over restarts.
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// File to write the administration's address to once everything listens.
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
}

/// Everything bound and started; dropping it stops it.
#[derive(Debug)]
pub struct Serving {
    /// The provider.
    pub service: Arc<Service>,
    /// Where the contract is served.
    pub contract: SocketAddr,
    /// Where the contract is served with TLS.
    pub tls: Option<SocketAddr>,
    /// Where the administration listens.
    pub admin: AdminAddress,
    fabric: Option<Running>,
    tasks: JoinSet<anyhow::Result<()>>,
    _state: Option<StateLock>,
}

impl Serving {
    /// Binds and starts all parts on the runtime of the caller.
    ///
    /// # Errors
    /// The first part that cannot start, by name.
    pub async fn start(arguments: &ServeArguments) -> anyhow::Result<Self> {
        let topology = Topology::read(&arguments.topology)?;
        let settings = Settings::read(arguments.settings.as_deref())?;
        let client = match &arguments.kubeconfig {
            Some(path) => Some(publish::connect(path).await?),
            None => None,
        };
        let fabric = if arguments.fabric {
            let sockets = open_wires(&topology, arguments.fabric_netns.as_deref())?;
            // the bindings come from the cloud, which may remember others
            let bare = Topology {
                bindings: Vec::new(),
                ..topology.clone()
            };
            Some(Running::start(bare, sockets)?)
        } else {
            None
        };
        let frames = fabric.as_ref().map(|running| Arc::clone(&running.fabric));
        let publisher = client.clone().map(Publisher::new);
        let state = arguments.state.clone();
        let lock = state.as_deref().map(StateLock::take).transpose()?;
        let service = Service::new(topology, settings, frames, state, publisher)?;
        let mut tasks = JoinSet::new();
        let secrets = client.clone();
        if let Some(client) = client {
            follow(&service, client, &mut tasks);
        }
        let (prewarming, forwarding) = (Arc::clone(&service), Arc::clone(&service));
        tasks.spawn(async move {
            prewarming.prewarm_forever().await;
            Ok(())
        });
        tasks.spawn(async move {
            forwarding.forward_forever().await;
            Ok(())
        });
        service.pools_changed.notify_one();
        let mut serving = Self {
            service,
            contract: arguments.listen,
            tls: None,
            admin: arguments.admin.clone(),
            fabric,
            tasks,
            _state: lock,
        };
        serving.listen(arguments, secrets).await?;
        Ok(serving)
    }

    async fn listen(
        &mut self,
        arguments: &ServeArguments,
        secrets: Option<kube::Client>,
    ) -> anyhow::Result<()> {
        let service = &self.service;
        let contract = contract::router(Arc::clone(service));
        let contract = contract.merge(console::diagnostics(Arc::clone(service)));
        let mut tls = None;
        if let Some(listen) = arguments.tls_listen {
            let secret = secrets.zip(arguments.tls_secret.clone());
            let secret = secret.map(|(client, place)| TlsSecret::new(client, place));
            let (names, ca_file) = (arguments.tls_name.clone(), arguments.tls_ca_file.clone());
            let server = Arc::new(Tls::start(names, ca_file, secret).await?);
            let door = open(listen, service).await?;
            self.tls = Some(door.address());
            tls = Some(Arc::clone(&server));
            let router = contract.clone();
            self.tasks.spawn(async move {
                server.serve(door, router).await;
                Ok(())
            });
        }
        let door = open(arguments.listen, service).await?;
        self.contract = door.address();
        self.tasks.spawn(async move {
            connection::serve(door, contract).await;
            Ok(())
        });
        let admin = Admin::bind(arguments.admin.clone()).await?;
        self.admin = admin.address().clone();
        let routes = self.admin_routes(tls);
        self.tasks
            .spawn(async move { Ok(admin.serve_routes(routes).await?) });
        Ok(())
    }

    fn admin_routes(&self, tls: Option<Arc<Tls>>) -> Router {
        let routes = console::router(Arc::clone(&self.service));
        let routes = match &self.fabric {
            Some(running) => routes.merge(admin::router(Arc::clone(&running.fabric))),
            None => routes.merge(console::without_fabric(Arc::clone(&self.service))),
        };
        let rotate = move || async move {
            let none = || Refusal::new(409, "InvalidRequest", "there is no TLS listener");
            let failed = |error| Refusal::new(500, "Internal", with_causes(&error));
            tls.ok_or_else(none)?.rotate().await.map_err(failed)?;
            Ok::<_, Refusal>(StatusCode::NO_CONTENT)
        };
        routes.route("/admin/rotate-ca", post(rotate))
    }

    /// Returns when a part has ended, which none does by itself.
    ///
    /// # Errors
    /// What broke.
    pub async fn wait(&mut self) -> anyhow::Result<()> {
        let Self { fabric, tasks, .. } = self;
        let frames = async {
            match fabric {
                Some(running) => running.wait().await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = frames => anyhow::bail!("a wire of the fabric failed; see the log above"),
            Some(ended) = tasks.join_next() => ended.context("a task of the provider panicked")?,
        }
    }
}

/// The wires keep the namespace they were opened in; the process stays where it is.
fn open_wires(topology: &Topology, netns: Option<&Path>) -> anyhow::Result<Sockets> {
    match netns {
        None => Ok(Sockets::open(topology)?),
        Some(path) => Ok(Netns::open(path)?.run(|| Sockets::open(topology))??),
    }
}

/// Follows the pools of an API server, publishes there and reclaims what nobody claims.
fn follow(service: &Arc<Service>, client: kube::Client, tasks: &mut JoinSet<anyhow::Result<()>>) {
    let (watching, publishing) = (Arc::clone(service), Arc::clone(service));
    let (reclaiming, holding) = (Arc::clone(service), Arc::clone(service));
    tasks.spawn(async move {
        holding.hold_pools_forever().await;
        Ok(())
    });
    tasks.spawn(async move {
        reclaiming.reclaim_forever().await;
        Ok(())
    });
    tasks.spawn(async move {
        watching.watch_pools(publisher::pools(client)).await;
        Ok(())
    });
    tasks.spawn(async move {
        publishing.publish_forever().await;
        Ok(())
    });
}

async fn open(listen: SocketAddr, service: &Service) -> anyhow::Result<Door> {
    let door = Door::open(listen, service.refusing.subscribe()).await;
    let door = door.with_context(|| format!("cannot listen at {listen}"))?;
    info!(address = %door.address(), "the contract is served");
    Ok(door)
}

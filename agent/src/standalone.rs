//! Standalone mode: agent, embedded API and what else a lone node needs, in one process; and the
//! same agent without them for a node that has an API (design section 4). Wiring alone.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use spiderpool_controller::client::bounded;
use spiderpool_controller::conf_file::{self, Conf};
use spiderpool_controller::config::Env;
use spiderpool_controller::run::run_alone;
use spiderpool_controller::{self as controller, connect};
use spiderpool_embedded_api::{
    EmbeddedApi, IpamAdmission, Listening, TlsOptions, write_kubeconfig,
};
use spiderpool_iaas::provider::Provider;
use spiderpool_ipam::admission;
use spiderpool_ipam::gc::Knobs;
use spiderpool_netops::netns::Netns;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::{Seams, Settings};
use crate::clock::{Jitter, SystemClock};
use crate::config::{DaemonArgs, Listen, NodeArgs, StandaloneArgs};
use crate::http::Reach;
use crate::manifests::Manifests;
use crate::nic::KernelNic;
use crate::observer::{KernelObserver, NoObserver, ObserverSettings};
use crate::parent_nic::ParentNicPublisher;
use crate::paths::StandalonePaths;
use crate::run_lock::RunLock;
use crate::service;
use crate::store::Marks;
use crate::store::kube::{KubeStore, Waits, words};

/// How long the first lists may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs agent and API until `stop`.
///
/// # Errors
/// What keeps either from starting or serving.
pub async fn run_standalone(args: &StandaloneArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let _alone = lock_run_dir(&args.node)?;
    let files = StandalonePaths::new(&args.dir);
    let (conf, provider) = conf_file::read(&files.conf_path())?;
    let settings = Settings {
        standalone: true,
        switches: conf.sticky(),
        ..args.node.settings()?
    };
    let api = open_api(&args.state, &settings, &conf).await?;
    let client = Client::new(api.router(), "default");
    if let Listen::On(listen) = args.api_listen {
        let options = TlsOptions {
            listen,
            cert_dir: files.cert_dir(),
            token_path: files.token_path(),
            names: vec![settings.node.clone()],
        };
        let listening = api.serve(&options).await?;
        let out = args.kubeconfig_out.clone();
        publish(&listening, &out.unwrap_or_else(|| files.kubeconfig_path())).await?;
    }
    ensure_node(&client, &settings.node).await?;
    let mut manifests = Manifests::new(client.clone(), files.manifests_dir());
    manifests.look().await;
    let tasks = TaskTracker::new();
    let background = stop.child_token();
    let excluded = conf.excluded_nics().to_vec();
    let controller = controller_of(&settings.node, conf, client.clone(), provider.clone())?;
    tasks.spawn(control(controller, background.clone()));
    tasks.spawn(manifests.run(background.clone()));
    let cloud = Cloud { provider, excluded };
    let result = run_node(settings, client, cloud, &args.node, stop).await;
    background.cancel();
    tasks.close();
    tasks.wait().await;
    api.close().await;
    result
}

/// What the leader of a cluster does is done here by the only node there is.
fn controller_of(
    node: &str,
    conf: Conf,
    client: Client,
    provider: Option<Arc<dyn Provider>>,
) -> anyhow::Result<controller::tasks::Context> {
    let env = Env {
        gc: Knobs::read(|name| std::env::var(name).ok())?,
        ..Env::new(node, "default")
    };
    let settings = controller::config::Settings {
        env,
        conf,
        tls: None,
    };
    Ok(controller::tasks::Context {
        provider,
        ..controller::tasks::Context::new(bounded(client), settings)
    })
}

/// Pods are attached whatever becomes of the controller's tasks.
async fn control(context: controller::tasks::Context, stop: CancellationToken) {
    if let Err(error) = run_alone(context, stop).await {
        tracing::error!("pools and addresses are not looked after any more: {error:#}");
    }
}

/// Runs the agent on an API that is there already, until `stop`.
///
/// # Errors
/// What keeps it from starting or serving.
pub async fn run_daemon(args: &DaemonArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let _alone = lock_run_dir(&args.node)?;
    let (conf, provider) = conf_file::read(&args.config_path)?;
    let client = connect::connect(args.kubeconfig.as_deref()).await?;
    let settings = Settings {
        switches: conf.sticky(),
        ..args.node.settings()?
    };
    let excluded = conf.excluded_nics().to_vec();
    let cloud = Cloud { provider, excluded };
    run_node(settings, client, cloud, &args.node, stop).await
}

/// Before anything in the run folder is read.
fn lock_run_dir(args: &NodeArgs) -> anyhow::Result<RunLock> {
    let paths = args.paths();
    paths.prepare()?;
    Ok(RunLock::take(&paths.lock_path())?)
}

async fn open_api(state: &Path, settings: &Settings, conf: &Conf) -> anyhow::Result<EmbeddedApi> {
    let admission = IpamAdmission::new(admission::Settings {
        enable_ipv4: settings.enable_ipv4,
        enable_ipv6: settings.enable_ipv6,
        ..controller::webhook::task::rules(conf)
    });
    if let Some(dir) = state.parent() {
        tokio::fs::create_dir_all(dir).await.with_context(|| {
            format!(
                "cannot make {}; choose another place with --state",
                dir.display()
            )
        })?;
    }
    let state = state.to_owned();
    let opened =
        tokio::task::spawn_blocking(move || EmbeddedApi::open(&state, Arc::new(admission)));
    Ok(opened.await??)
}

async fn publish(listening: &Listening, path: &Path) -> anyhow::Result<()> {
    let Listening {
        address,
        ca_pem,
        token,
    } = listening.clone();
    let (server, out) = (format!("https://{address}"), path.to_owned());
    let written =
        tokio::task::spawn_blocking(move || write_kubeconfig(&out, &server, &ca_pem, &token));
    written.await??;
    tracing::info!(%address, kubeconfig = %path.display(), "the API is listening");
    Ok(())
}

/// `kubectl get nodes` and node selectors need an object; its labels are the user's.
async fn ensure_node(client: &Client, name: &str) -> anyhow::Result<()> {
    let node = Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([("kubernetes.io/hostname".to_owned(), name.to_owned())].into()),
            ..ObjectMeta::default()
        },
        ..Node::default()
    };
    let api: Api<Node> = Api::all(client.clone());
    match api.create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Ok(_) => Ok(()),
        Err(error) => Err(anyhow::anyhow!(words(error)))
            .with_context(|| format!("cannot make the Node object {name}")),
    }
}

/// What conf.yml says of the cloud around a node.
struct Cloud {
    provider: Option<Arc<dyn Provider>>,
    /// NICs that are not published.
    excluded: Vec<String>,
}

/// Everything of one node, over an API.
async fn run_node(
    settings: Settings,
    client: Client,
    cloud: Cloud,
    args: &NodeArgs,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let Cloud { provider, excluded } = cloud;
    let waits = Waits {
        watch_seconds: args.watch_seconds,
        ..Waits::new(PATIENCE)
    };
    let marks = Marks::of(provider.as_deref());
    let store = KubeStore::start_with(client, &settings.node, waits, marks).await?;
    let store = Arc::new(store);
    let nic = Arc::new(KernelNic::new()?);
    let mut publisher =
        ParentNicPublisher::new(Arc::clone(&store), Arc::clone(&nic) as _, &settings.node);
    if provider.is_some() {
        publisher = publisher.reporting_all_but(excluded);
    }
    let tasks = TaskTracker::new();
    let background = stop.child_token();
    tasks.spawn(publisher.run(background.clone()));
    let kernel = observer_of(args)?;
    let http = args.http(if settings.standalone {
        Reach::Loopback
    } else {
        Reach::Everybody
    });
    let seams = Seams {
        store,
        nic,
        provider,
        observer: match &kernel {
            Some(kernel) => Arc::clone(kernel) as _,
            None => Arc::new(NoObserver),
        },
        clock: Arc::new(SystemClock),
        jitter: Arc::new(Jitter::from_entropy()),
    };
    let result = service::run(settings, seams, &args.paths(), &http, stop).await;
    if let Some(kernel) = kernel {
        kernel.close().await;
    }
    background.cancel();
    tasks.close();
    tasks.wait().await;
    result
}

/// `None`: switched off.
fn observer_of(args: &NodeArgs) -> anyhow::Result<Option<Arc<KernelObserver>>> {
    if !args.sub_eni_observer {
        return Ok(None);
    }
    let host = Netns::current().context("cannot open this process's network namespace")?;
    let settings = ObserverSettings::new(args.bpf_dir.clone());
    Ok(Some(Arc::new(KernelObserver::new(settings, host))))
}

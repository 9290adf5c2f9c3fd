//! The webhooks as a task of every replica: certificate, facts, listener, health.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use rustls::pki_types::ServerName;
use spiderpool_ipam::admission::Settings as Rules;
use spiderpool_ipam::admission::pod::PodSettings;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::facts::{Facts, Needed};
use super::judge::Judge;
use super::{routes, server};
use crate::certificates::files;
use crate::certificates::probe::connector;
use crate::certificates::served::Served;
use crate::certificates::task::{self as certificates, Site};
use crate::conf_file::Conf;
use crate::config::Settings;
use crate::health::Counts;
use crate::tasks::{Context, Ended};

/// For a probe of our own port.
const PROBE_TIME: Duration = Duration::from_secs(2);
/// The port is wanted by a replica that is going.
const BIND_RETRY: Duration = Duration::from_secs(1);

/// Rules by the settings of the process.
#[must_use]
pub fn rules(conf: &Conf) -> Rules {
    Rules {
        enable_ipv4: conf.enable_ipv4,
        enable_ipv6: conf.enable_ipv6,
        protect_deletion: conf.enable_validating_resources_deleted_webhook,
        spider_subnet: conf.enable_spider_subnet,
        generation_1: conf.is_generation_1(),
    }
}

/// What is put into Pods: what nodes advertise.
#[must_use]
pub fn pod_rules(conf: &Conf) -> PodSettings {
    let plugin = &conf.agent.network_resource_plugin;
    let advertised = &plugin.resource_advertisement;
    let on = conf.pod_resource_inject.enabled && plugin.enabled;
    PodSettings {
        master_nics: on && !advertised.master_nic.rules.is_empty(),
        sub_enis: on && conf.is_generation_1() && advertised.advertises_sub_enis(),
    }
}

/// Runs until `stop`.
///
/// # Errors
/// The provided certificate cannot be read, or TLS cannot be set up.
pub async fn run(context: Context, stop: CancellationToken) -> Ended {
    let settings = Arc::clone(&context.settings);
    if settings.env.webhook_port == 0 {
        stop.cancelled().await;
        return Ok(());
    }
    let served = Arc::new(Served::default());
    let facts = Arc::new(Facts::default());
    let judge = Judge {
        client: context.client.clone(),
        facts: Arc::clone(&facts),
        settings: rules(&settings.conf),
        pods: pod_rules(&settings.conf),
    };
    let needed = Needed {
        subnets: settings.conf.enable_spider_subnet,
        pods: settings.conf.pod_resource_inject.enabled,
    };
    let config = served.config()?;
    let router = routes::router(Arc::new(judge));
    let certificate = certificate(&context, &settings, Arc::clone(&served), stop.clone());
    let serving = async {
        let early = || async { Err("not serving yet".to_owned()) }.boxed();
        let waiting = context.health.add("webhook", Counts::ForReadiness, early);
        tokio::select! {
            () = served.wait() => {}
            () = stop.cancelled() => return Ok(()),
        }
        let Some(listener) = listen(settings.env.webhook_port, &stop).await else {
            return Ok(());
        };
        let port = listener.local_addr()?.port();
        tracing::info!(port, "serving webhooks");
        let asked = move || probe(port).boxed();
        let _checked = context.health.add("webhook", Counts::ForBoth, asked);
        drop(waiting);
        server::serve(listener, config, router, stop.clone()).await;
        Ok::<(), std::io::Error>(())
    };
    tokio::select! {
        ended = async { tokio::try_join!(certificate, async { serving.await.map_err(Into::into) }) } => ended.map(drop),
        () = facts.follow(&context.client, needed) => Ok(()),
    }
}

/// Somebody's files, or our own Secret.
async fn certificate(
    context: &Context,
    settings: &Settings,
    served: Arc<Served>,
    stop: CancellationToken,
) -> Ended {
    if let Some(provided) = &settings.tls {
        files::follow(provided, served, stop).await?;
        return Ok(());
    }
    let env = &settings.env;
    let site = Site::of_service(&env.controller_name, &env.namespace, &env.tls_extra_names);
    let (client, clock) = (context.client.clone(), Arc::clone(&context.clock));
    certificates::run(client, clock, site, served, stop).await;
    Ok(())
}

/// All addresses; a port that is taken is waited for. `None`: stopped.
async fn listen(port: u16, stop: &CancellationToken) -> Option<TcpListener> {
    let mut told = false;
    loop {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let bound = match TcpListener::bind(any).await {
            // A host without IPv6.
            Err(_) => TcpListener::bind(("0.0.0.0", port)).await,
            bound => bound,
        };
        match bound {
            Ok(listener) => return Some(listener),
            Err(error) if !told => {
                tracing::warn!(port, %error, "the webhook port cannot be used yet (SPIDERPOOL_WEBHOOK_PORT names another)");
                told = true;
            }
            Err(_) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(BIND_RETRY) => {}
        }
    }
}

/// A whole TLS handshake with ourselves.
async fn probe(port: u16) -> Result<(), String> {
    let shaken = async {
        let stream = match TcpStream::connect(("127.0.0.1", port)).await {
            Err(_) => TcpStream::connect(("::1", port)).await?,
            stream => stream?,
        };
        let name = ServerName::try_from("spidernet.io").map_err(std::io::Error::other)?;
        let connector = connector().map_err(std::io::Error::other)?;
        connector.connect(name, stream).await.map(drop)
    };
    match timeout(PROBE_TIME, shaken).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", PROBE_TIME.as_secs())),
    }
}

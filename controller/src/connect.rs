//! The client of an API server: kube's own stack with a pool of connections that a node can afford,
//! and whom it talks to.
//!
//! kube's default keeps every connection it ever needed at once, each with a read buffer as large as
//! the largest answers it carried: after a burst of ADDs on a full pool that is half a megabyte each.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::retry::RetryPolicy;
use kube::client::{ClientBuilder, ConfigExt};
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use spiderpool_api::public_url::without_secrets;
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};

/// Connections kept between requests, besides those of the watches: as many as a burst of ADDs has
/// under way, else each of its requests begins with a TLS handshake.
const IDLE_CONNECTIONS: usize = 32;
/// How long they are kept.
const IDLE_TIME: Duration = Duration::from_secs(20);
/// Bytes read or written at once on a connection.
const BUFFER: usize = 64 << 10;

/// No client can be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The file.
    #[error("cannot use kubeconfig {}", path.display())]
    Kubeconfig {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// There is no file and no service account.
    #[error("this is no Pod with a service account; name the API with --kubeconfig")]
    NoAccount(#[source] InClusterError),
    /// The file, or `HTTPS_PROXY`, names a proxy, which this client cannot use.
    #[error(
        "the API is reached without a proxy only: unset HTTPS_PROXY, or take proxy-url out of the kubeconfig, whichever names {0}"
    )]
    Proxy(String),
    /// Keys, certificates or credentials.
    #[error("cannot make a client of the API")]
    Client(#[source] Box<kube::Error>),
}

/// A client of what the file names; without one, of the Pod's own service account.
///
/// # Errors
/// [`ConnectError`].
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    let config = match kubeconfig {
        Some(path) => {
            let failed = |source| ConnectError::Kubeconfig {
                path: path.to_owned(),
                source,
            };
            let file = Kubeconfig::read_from(path).map_err(failed)?;
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(file, &options).await;
            config.map_err(failed)?
        }
        None => Config::incluster().map_err(ConnectError::NoAccount)?,
    };
    if let Some(proxy) = &config.proxy_url {
        // the client's own words repeat its password
        return Err(ConnectError::Proxy(without_secrets(&proxy.to_string())));
    }
    client(config).map_err(|error| ConnectError::Client(Box::new(error)))
}

/// A client of what `config` names.
///
/// # Errors
/// Keys, certificates or credentials in it cannot be used.
pub fn client(config: Config) -> Result<Client, kube::Error> {
    let mut sockets = HttpConnector::new();
    sockets.enforce_http(false);
    sockets.set_connect_timeout(config.connect_timeout);
    // Head and body of a request are two writes: the second must not wait for the first's ACK.
    sockets.set_nodelay(true);
    let retry = RetryLayer::new(RetryPolicy::server_retry());
    let connections = legacy::Builder::new(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIME)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .http1_max_buf_size(BUFFER)
        .build(config.rustls_https_connector_with_connector(sockets)?);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then_some(retry))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(connections);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_proxy_is_refused_without_its_password() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        let text = "{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {}}],
            clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1', proxy-url: 'http://u:geheim@proxy:3128'}}],
            contexts: [{name: c, context: {cluster: k, user: u}}]}";
        std::fs::write(&path, text).unwrap();
        let Err(error) = connect(Some(&path)).await else {
            panic!("a client that would go around the proxy");
        };
        let text = format!("{error} {error:?}");
        assert!(text.contains("http://***@proxy:3128"), "{text}");
        assert!(!text.contains("geheim"), "{text}");
    }
}

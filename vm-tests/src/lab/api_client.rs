//! The operator's view of an API server: what its kubeconfig says, over TLS, from inside the node's
//! namespace where the API is a node's own. Speaks JSON values: the lab judges what is stored, not what we parse.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde::Deserialize;
use serde_json::Value;
use spiderpool_netops::netns::Netns;

use super::http::{Request, Response, exchange, exchange_kept};

/// An API that is silent for so long has failed.
const LIMIT: Duration = Duration::from_secs(20);
/// Prefix of our own kinds.
pub const POOLS: &str = "/apis/spiderpool.spidernet.io/v2beta1/spiderippools";
/// All namespaces.
pub const ENDPOINTS: &str = "/apis/spiderpool.spidernet.io/v2beta1/spiderendpoints";
/// All namespaces.
pub const PODS: &str = "/api/v1/pods";

/// A client of one API server.
#[derive(Debug, Clone)]
pub struct ApiClient {
    netns: Option<Netns>,
    server: SocketAddr,
    token: String,
    tls: Arc<ClientConfig>,
}

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// One connection of an [`ApiClient`].
#[derive(Debug)]
pub struct ApiSession {
    client: ApiClient,
    stream: TlsStream,
}

impl ApiSession {
    /// One request whose body is JSON already; its answer, whatever the status.
    ///
    /// # Errors
    /// No answer within 20 s.
    pub fn exchange(&mut self, method: &str, path: &str, body: &[u8]) -> Result<Response> {
        let stream = &mut self.stream;
        let ask = |request: &Request<'_>| exchange_kept(stream, request);
        self.client.ask(method, path, "application/json", body, ask)
    }

    /// One request with a JSON body (none when null) that has to succeed; the object it answers.
    ///
    /// # Errors
    /// No answer within 20 s, or a status that is none of the 200s.
    pub fn request(&mut self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let answer = self.exchange(method, path, &encoded(body)?)?;
        success(&answer, method, path)
    }
}

#[derive(Debug, Deserialize)]
struct Kubeconfig {
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
}

#[derive(Debug, Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority_data: String,
}

#[derive(Debug, Deserialize)]
struct NamedUser {
    user: User,
}

#[derive(Debug, Deserialize)]
struct User {
    token: String,
}

impl ApiClient {
    /// A client for what `kubeconfig` describes, connecting from inside `netns`.
    ///
    /// # Errors
    /// The file is missing or is not such a kubeconfig.
    pub fn new(kubeconfig: &Path, netns: &Netns) -> Result<Self> {
        Self::read(kubeconfig, Some(netns.clone()))
    }

    /// The same, connecting from where the caller is; needs no rights.
    ///
    /// # Errors
    /// The file is missing or is not such a kubeconfig.
    pub fn here(kubeconfig: &Path) -> Result<Self> {
        Self::read(kubeconfig, None)
    }

    fn read(kubeconfig: &Path, netns: Option<Netns>) -> Result<Self> {
        let shown = kubeconfig.display();
        let text = fs::read_to_string(kubeconfig).with_context(|| format!("read {shown}"))?;
        let config: Kubeconfig =
            serde_saphyr::from_str(&text).with_context(|| format!("parse {shown}"))?;
        let cluster = &config.clusters.first().context("no cluster")?.cluster;
        let token = config.users.first().context("no user")?.user.token.clone();
        let server = cluster
            .server
            .strip_prefix("https://")
            .and_then(|rest| rest.trim_end_matches('/').parse().ok())
            .with_context(|| {
                format!("{shown}: server {} is not https://IP:PORT", cluster.server)
            })?;
        let tls = tls(&cluster.certificate_authority_data)
            .with_context(|| format!("{shown}: certificate authority"))?;
        Ok(Self {
            netns,
            server,
            token,
            tls: Arc::new(tls),
        })
    }

    /// One request with a JSON body (none when null).
    ///
    /// # Errors
    /// No answer within 20 s. An HTTP error status is an answer.
    pub fn request(&self, method: &str, path: &str, kind: &str, body: &Value) -> Result<Response> {
        let mut stream = self.connect()?;
        self.ask(method, path, kind, &encoded(body)?, |request| {
            exchange(&mut stream, request)
        })
    }

    /// A connection that is kept, for many requests one after the other.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn session(&self) -> Result<ApiSession> {
        Ok(ApiSession {
            stream: self.connect()?,
            client: self.clone(),
        })
    }

    fn connect(&self) -> Result<TlsStream> {
        let connect = || TcpStream::connect_timeout(&self.server, LIMIT);
        let stream = match &self.netns {
            Some(netns) => netns.run(connect)?,
            None => connect(),
        };
        let stream = stream.with_context(|| format!("connect to {}", self.server))?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(self.server.ip());
        let session = ClientConnection::new(Arc::clone(&self.tls), name)?;
        Ok(StreamOwned::new(session, stream))
    }

    fn ask(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: &[u8],
        exchange: impl FnOnce(&Request<'_>) -> Result<Response>,
    ) -> Result<Response> {
        let headers = [
            format!("Authorization: Bearer {}", self.token),
            "Accept: application/json".to_owned(),
            format!("Content-Type: {kind}"),
        ];
        exchange(&Request {
            method,
            path,
            headers: &headers,
            body,
        })
    }

    /// The object or list at `path`; `None` when there is none.
    ///
    /// # Errors
    /// No answer, or another status than 200 and 404.
    pub fn get(&self, path: &str) -> Result<Option<Value>> {
        let response = self.request("GET", path, "application/json", &Value::Null)?;
        match response.status {
            404 => Ok(None),
            _ => success(&response, "GET", path).map(Some),
        }
    }

    /// The items of the list at `path`.
    ///
    /// # Errors
    /// No such list.
    pub fn list(&self, path: &str) -> Result<Vec<Value>> {
        let mut list = self
            .get(path)?
            .with_context(|| format!("no list at {path}"))?;
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            other => bail!("{path}: items is {other:?}"),
        }
    }

    /// A pool, by name.
    ///
    /// # Errors
    /// No such pool.
    pub fn pool(&self, name: &str) -> Result<Value> {
        self.get(&format!("{POOLS}/{name}"))?
            .with_context(|| format!("pool {name} does not exist"))
    }

    /// Creates an object in the collection `path`.
    ///
    /// # Errors
    /// The server refuses.
    pub fn create(&self, path: &str, object: &Value) -> Result<Value> {
        let response = self.request("POST", path, "application/json", object)?;
        success(&response, "POST", path)
    }

    /// Changes an object by a merge patch.
    ///
    /// # Errors
    /// The server refuses.
    pub fn merge(&self, path: &str, patch: &Value) -> Result<Value> {
        let response = self.request("PATCH", path, "application/merge-patch+json", patch)?;
        success(&response, "PATCH", path)
    }

    /// Deletes an object; gone already is success.
    ///
    /// # Errors
    /// The server refuses.
    pub fn delete(&self, path: &str) -> Result<()> {
        let response = self.request("DELETE", path, "application/json", &Value::Null)?;
        match response.status {
            404 => Ok(()),
            _ => success(&response, "DELETE", path).map(drop),
        }
    }
}

fn encoded(body: &Value) -> Result<Vec<u8>> {
    match body {
        Value::Null => Ok(Vec::new()),
        body => serde_json::to_vec(body).context("encode the body"),
    }
}

/// The object in an answer of the 200s.
fn success(response: &Response, method: &str, path: &str) -> Result<Value> {
    let text = String::from_utf8_lossy(&response.body);
    if !(200..300).contains(&response.status) {
        bail!("{method} {path}: status {}: {text}", response.status);
    }
    serde_json::from_slice(&response.body).with_context(|| format!("{method} {path}: {text}"))
}

/// The authority's certificate is PEM inside base64, as kubeconfigs carry it.
fn tls(authority: &str) -> Result<ClientConfig> {
    // Base64 between PEM markers is what the PEM reader decodes; inside is the PEM we want.
    let wrapped = format!("-----BEGIN CERTIFICATE-----\n{authority}\n-----END CERTIFICATE-----\n");
    let inner = CertificateDer::from_pem_slice(wrapped.as_bytes()).context("base64")?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&inner).context("PEM")?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// `status.allocatedIPs` of a pool: address to record.
///
/// # Errors
/// The text is no JSON.
pub fn records(pool: &Value) -> Result<Value> {
    match pool.pointer("/status/allocatedIPs").and_then(Value::as_str) {
        None | Some("") => Ok(Value::Object(serde_json::Map::new())),
        Some(text) => serde_json::from_str(text).context("status.allocatedIPs"),
    }
}

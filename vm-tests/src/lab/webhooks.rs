//! The chart's webhook configurations for an API server that is outside of the cluster: its Service
//! names become URLs on loopback. And a TLS client that trusts what a configuration says.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use super::api_client::ApiClient;

/// Collection of the mutating configurations.
pub const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
/// Collection of the validating ones.
pub const VALIDATING: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
/// Name of both.
pub const NAME: &str = "spiderpool-controller";
/// Address that certificates of such webhooks have to be for.
pub const HOST: &str = "127.0.0.1";

const MUTATING_FILE: &str = include_str!("../../../charts/spiderpool/webhooks/mutating.yaml");
const VALIDATING_FILE: &str = include_str!("../../../charts/spiderpool/webhooks/validating.yaml");
const LIMIT: Duration = Duration::from_secs(10);

/// Creates both configurations; `mutating` and `validating` are ports on loopback.
///
/// # Errors
/// The API server refuses.
pub fn install(api: &ApiClient, mutating: u16, validating: u16) -> Result<()> {
    api.create(MUTATING, &configuration(MUTATING_FILE, mutating)?)?;
    api.create(VALIDATING, &configuration(VALIDATING_FILE, validating)?)?;
    Ok(())
}

fn configuration(file: &str, port: u16) -> Result<Value> {
    let mut read: Value = serde_saphyr::from_str(file).context("parse webhook configuration")?;
    let webhooks = read.pointer_mut("/webhooks").and_then(Value::as_array_mut);
    for webhook in webhooks.context("no webhooks")? {
        let config = webhook.get_mut("clientConfig").context("no clientConfig")?;
        let path = config.pointer("/service/path").and_then(Value::as_str);
        let url = format!("https://{HOST}:{port}{}", path.context("no path")?);
        *config = json!({"url": url});
    }
    Ok(read)
}

/// `caBundle` of every webhook of both configurations, each as PEM; empty where there is none.
///
/// # Errors
/// A configuration is missing.
pub fn bundles(api: &ApiClient) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for collection in [MUTATING, VALIDATING] {
        let path = format!("{collection}/{NAME}");
        let read = api.get(&path)?.with_context(|| format!("no {path}"))?;
        for webhook in read
            .get("webhooks")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let bundle = webhook
                .pointer("/clientConfig/caBundle")
                .and_then(Value::as_str);
            found.push(decoded(bundle.unwrap_or_default())?);
        }
    }
    Ok(found)
}

/// The text in a base64 field of a Secret or configuration.
///
/// # Errors
/// It is not base64, or not text.
pub fn decoded(field: &str) -> Result<String> {
    let bytes = STANDARD.decode(field).context("base64")?;
    String::from_utf8(bytes).context("text")
}

/// A connection to a port on loopback whose certificate is verified by `bundle`.
pub type Connection = StreamOwned<ClientConnection, TcpStream>;

/// Connects and shakes hands.
///
/// # Errors
/// The certificate is not one of `bundle`, or nobody listens.
pub fn connect(port: u16, bundle: &str) -> Result<Connection> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.context("PEM")?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut socket = TcpStream::connect_timeout(&address, LIMIT).context("connect")?;
    socket.set_read_timeout(Some(LIMIT))?;
    socket.set_write_timeout(Some(LIMIT))?;
    socket.set_nodelay(true)?;
    let mut session = ClientConnection::new(Arc::new(config), ServerName::try_from(HOST)?)?;
    while session.is_handshaking() {
        session.complete_io(&mut socket).context("shake hands")?;
    }
    Ok(StreamOwned::new(session, socket))
}

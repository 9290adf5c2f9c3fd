//! TLS towards the provider: its certificate is verified by the CA file, or not at all when there
//! is none. No client certificate is presented.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, Error, RootCertStore};
use tokio::io;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::endpoint::Endpoint;
use crate::any_certificate::AnyCertificate;
use crate::ca::{self, CaError};
use crate::error::TransportError;
use crate::regular_file;

/// Longest CA bundle, bytes.
const MAX_FILE: u64 = 1 << 20;

/// The certificates of a bundle as trust anchors.
fn roots(path: &Path, text: &[u8]) -> Result<RootCertStore, TransportError> {
    let unusable = |source| TransportError::Ca {
        path: path.to_owned(),
        source,
    };
    let mut roots = RootCertStore::empty();
    let found = ca::certificates(text).map_err(unusable)?;
    let (usable, _ignored) = roots.add_parsable_certificates(found);
    if usable == 0 {
        return Err(unusable(CaError::Empty));
    }
    Ok(roots)
}

/// Reads them. Blocks; a pipe in the file's place does not hold it up.
pub(super) fn read_roots(path: &Path) -> Result<RootCertStore, TransportError> {
    let text = regular_file::read(path, MAX_FILE).map_err(|source| TransportError::CaFile {
        path: path.to_owned(),
        source,
    })?;
    roots(path, &text)
}

/// Handshake over an open connection. Reads the CA file.
pub(super) async fn connect(
    endpoint: &Endpoint,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, TransportError> {
    let failed = |source| TransportError::Tls {
        provider: endpoint.to_string(),
        server_name: endpoint.server_name_text(),
        verified_by: match endpoint.ca_file() {
            Some(path) => format!("CA file {}", path.display()),
            None => "nothing".to_owned(),
        },
        source,
    };
    let name = endpoint
        .server_name()
        .map_err(|error| failed(io::Error::other(error)))?;
    let roots = match endpoint.ca_file() {
        None => None,
        Some(path) => {
            let path = path.to_owned();
            let read = tokio::task::spawn_blocking(move || read_roots(&path)).await;
            Some(read.map_err(|error| failed(io::Error::other(error)))??)
        }
    };
    let config = config(roots).map_err(|error| failed(io::Error::other(error)))?;
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.map_err(failed)
}

fn config(roots: Option<RootCertStore>) -> Result<ClientConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let mut config = match roots {
        Some(roots) => builder.with_root_certificates(roots),
        // What `tls.caFile: ""` asks for.
        None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate::new(provider))),
    }
    .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

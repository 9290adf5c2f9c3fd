//! A TLS client for our own port: whether there is an answer at all. What the certificate is worth is
//! the API server's to judge, by `caBundle`.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, Error, version};
use spiderpool_iaas::any_certificate::AnyCertificate;
use tokio_rustls::TlsConnector;

/// See the module.
///
/// # Errors
/// The TLS library lacks what it needs.
pub fn connector() -> Result<TlsConnector, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let any = Arc::new(AnyCertificate::new(Arc::clone(&provider)));
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(any)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

//! The certificate that is served now. Handshakes take it as it is at that moment, so a new one needs
//! no restart and no connection ends.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, version};
use tokio::sync::watch;

/// Certificate and key do not make a pair that can be served.
#[derive(Debug, thiserror::Error)]
pub enum ServedError {
    /// Not a certificate.
    #[error("the certificate is not PEM")]
    Certificate(#[source] rustls::pki_types::pem::Error),
    /// There is none in the text.
    #[error("there is no certificate in the text")]
    Empty,
    /// Not a key.
    #[error("the key is not PEM")]
    Key(#[source] rustls::pki_types::pem::Error),
    /// They do not belong together, or are of a kind that is not known.
    #[error("certificate and key cannot be used together")]
    Pair(#[source] rustls::Error),
}

/// See the module.
pub struct Served {
    current: RwLock<Option<Arc<CertifiedKey>>>,
    set: watch::Sender<bool>,
}

impl Default for Served {
    fn default() -> Self {
        Self {
            current: RwLock::default(),
            set: watch::Sender::new(false),
        }
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").finish_non_exhaustive()
    }
}

impl Served {
    /// Serves this pair from the next handshake on; `false`: it was served already.
    ///
    /// # Errors
    /// [`ServedError`]; the pair before stays.
    pub fn replace(&self, cert: &str, key: &str) -> Result<bool, ServedError> {
        let chain = chain(cert)?;
        if self.current().is_some_and(|current| current.cert == chain) {
            return Ok(false);
        }
        let pair = pair(chain, key)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(pair));
        self.set.send_replace(true);
        Ok(true)
    }

    fn current(&self) -> Option<Arc<CertifiedKey>> {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns once there is one.
    pub async fn wait(&self) {
        // The sender lives as long as this value does.
        let _closed = self.set.subscribe().wait_for(|set| *set).await.is_err();
    }

    /// TLS for a listener: the certificate of the moment, any client.
    ///
    /// # Errors
    /// The TLS library lacks what it needs.
    pub fn config(self: &Arc<Self>) -> Result<Arc<ServerConfig>, rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let versions = [&version::TLS13, &version::TLS12];
        let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(self) as Arc<_>;
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        Ok(Arc::new(config))
    }
}

/// Whether the two can be served together.
///
/// # Errors
/// [`ServedError`].
pub fn check(cert: &str, key: &str) -> Result<(), ServedError> {
    pair(chain(cert)?, key).map(drop)
}

fn chain(cert: &str) -> Result<Vec<CertificateDer<'static>>, ServedError> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(cert.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(ServedError::Certificate)?;
    if chain.is_empty() {
        return Err(ServedError::Empty);
    }
    Ok(chain)
}

fn pair(chain: Vec<CertificateDer<'static>>, key: &str) -> Result<CertifiedKey, ServedError> {
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(ServedError::Key)?;
    let provider = aws_lc_rs::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map_err(ServedError::Pair)
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}

#[cfg(test)]
mod tests {
    use super::super::issue::issue;
    use super::*;

    #[test]
    fn a_bad_pair_changes_nothing() {
        let made = || {
            let now = "2027-01-01T00:00:00Z".parse().unwrap();
            issue(&["a".to_owned()], now, 9).unwrap()
        };
        let (one, two) = (made(), made());
        let served = Served::default();
        assert!(served.replace(&one.cert, &one.key).unwrap());
        assert!(!served.replace(&one.cert, &one.key).unwrap());
        let before = served.current().unwrap();
        for (cert, key) in [
            (two.cert.as_str(), one.key.as_str()),
            ("", two.key.as_str()),
            (two.cert.as_str(), "x"),
        ] {
            served.replace(cert, key).unwrap_err();
            assert!(Arc::ptr_eq(&served.current().unwrap(), &before));
        }
        assert!(served.replace(&two.cert, &two.key).unwrap());
    }
}

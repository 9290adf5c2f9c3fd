//! The contract over TLS with a CA of its own (P18): made at the start, renewed on command, its
//! certificate in a file for the clients. Keys stay in memory.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

use crate::connection::converse;

/// A handshake that takes longer is given up.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The CA file can't be written.
    #[error("cannot write the CA file {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No certificate for these names.
    #[error("cannot make a certificate for {names}")]
    Certificate {
        /// The names.
        names: String,
        /// What is wrong with them.
        source: rcgen::Error,
    },
    /// The TLS library refuses key or certificate.
    #[error("cannot set up TLS")]
    Config(#[from] rustls::Error),
}

/// The present CA and certificate.
#[derive(Debug)]
pub struct Tls {
    names: Vec<String>,
    ca_file: PathBuf,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Makes a CA, writes its certificate to `ca_file`, and a certificate for these host names
    /// and addresses.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn new(names: Vec<String>, ca_file: PathBuf) -> Result<Self, TlsError> {
        let config = issue(&names, &ca_file)?;
        Ok(Self {
            names,
            ca_file,
            config: RwLock::new(config),
        })
    }

    /// A new CA; the next connections get its certificate.
    ///
    /// # Errors
    /// [`TlsError`]; the old one stays then.
    pub fn rotate(&self) -> Result<(), TlsError> {
        let config = issue(&self.names, &self.ca_file)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        info!(ca_file = %self.ca_file.display(), "the CA is renewed");
        Ok(())
    }

    fn acceptor(&self) -> TlsAcceptor {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&config))
    }

    /// Serves each connection with the certificate of its moment; a slow handshake holds up nobody
    /// else. Never ends.
    pub async fn serve(
        self: Arc<Self>,
        mut listener: impl Listener<Io = TcpStream, Addr = SocketAddr>,
        router: Router,
    ) {
        loop {
            let (stream, peer) = listener.accept().await;
            let (acceptor, router) = (self.acceptor(), router.clone());
            tokio::spawn(async move {
                if let Err(cause) = shake_hands(acceptor, stream, router).await {
                    debug!(%peer, cause, "a TLS connection ended early");
                }
            });
        }
    }
}

async fn shake_hands(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    router: Router,
) -> Result<(), String> {
    let handshake = timeout(HANDSHAKE, acceptor.accept(stream)).await;
    let stream = handshake
        .map_err(|_| "handshake too slow".to_owned())?
        .map_err(|error| error.to_string())?;
    converse(stream, router).await
}

fn issue(names: &[String], ca_file: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let failed = |source| TlsError::Certificate {
        names: names.join(", "),
        source,
    };
    let mut authority = CertificateParams::default();
    // Of different names: OpenSSL takes a certificate that is named as its issuer for its own.
    authority
        .distinguished_name
        .push(DnType::CommonName, "provider-sim-ca");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().map_err(failed)?;
    let authority = CertifiedIssuer::self_signed(authority, key).map_err(failed)?;
    let mut params = CertificateParams::new(names.to_vec()).map_err(failed)?;
    params
        .distinguished_name
        .push(DnType::CommonName, "provider-sim");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.signed_by(&key, &authority).map_err(failed)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let temporary = ca_file.with_extension("new");
    let written =
        fs::write(&temporary, authority.pem()).and_then(|()| fs::rename(&temporary, ca_file));
    if let Err(source) = written {
        warn!(ca_file = %ca_file.display(), "the CA file is not written");
        let path = ca_file.to_owned();
        return Err(TlsError::File { path, source });
    }
    Ok(Arc::new(config))
}

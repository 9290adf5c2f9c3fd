//! The contract over TLS with a CA of its own (P18): made at the start, renewed on command, its
//! certificate in a file or a Secret for the clients. The CA's key is never kept.

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
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info};

use crate::connection::{accept, converse};
use crate::tls_secret::TlsSecret;

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
    /// Not PEM.
    #[error("certificate or key is not PEM")]
    Pem(#[source] pem::Error),
    /// The API server refused.
    #[error(
        "cannot {tried} Secret {place}; its namespace has to exist, and get, create and patch of secrets be allowed"
    )]
    Secret {
        /// The verb.
        tried: &'static str,
        /// Namespace and name.
        place: String,
        /// The server's answer.
        source: Box<kube::Error>,
    },
    /// The TLS library refuses key or certificate.
    #[error("cannot set up TLS")]
    Config(#[from] rustls::Error),
}

/// A CA's certificate, and a certificate of it with its key, all as PEM.
#[derive(Debug, Clone)]
pub struct Issued {
    /// The CA's certificate: what clients verify by.
    pub ca: String,
    /// The server's certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
    config: Arc<ServerConfig>,
}

/// The present CA and certificate, and where clients find the CA.
#[derive(Debug)]
pub struct Tls {
    names: Vec<String>,
    ca_file: Option<PathBuf>,
    secret: Option<TlsSecret>,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Takes certificate and CA for these host names and addresses from the Secret, or makes them
    /// and writes them there; the CA's certificate goes to `ca_file` too.
    ///
    /// # Errors
    /// [`TlsError`].
    pub async fn start(
        names: Vec<String>,
        ca_file: Option<PathBuf>,
        secret: Option<TlsSecret>,
    ) -> Result<Self, TlsError> {
        let kept = match &secret {
            Some(secret) => secret.read(&names).await?,
            None => None,
        };
        let issued = match kept {
            Some(kept) => kept,
            None => issue(&names, secret.as_ref()).await?,
        };
        write_ca(ca_file.as_deref(), &issued)?;
        Ok(Self {
            names,
            ca_file,
            secret,
            config: RwLock::new(issued.config),
        })
    }

    /// A new CA, first told to clients; then the next connections get its certificate.
    ///
    /// # Errors
    /// [`TlsError`]; the old one stays then.
    pub async fn rotate(&self) -> Result<(), TlsError> {
        let issued = issue(&self.names, self.secret.as_ref()).await?;
        write_ca(self.ca_file.as_deref(), &issued)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = issued.config;
        info!("the CA is renewed");
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
            let (stream, peer) = accept(&mut listener).await;
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

async fn issue(names: &[String], secret: Option<&TlsSecret>) -> Result<Issued, TlsError> {
    let issued = Issued::new(names)?;
    if let Some(secret) = secret {
        secret.write(names, &issued).await?;
    }
    Ok(issued)
}

impl Issued {
    /// Makes a CA and a certificate.
    ///
    /// # Errors
    /// [`TlsError::Certificate`], [`TlsError::Config`].
    pub fn new(names: &[String]) -> Result<Self, TlsError> {
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
        Self::of_pem(authority.pem(), certificate.pem(), key.serialize_pem())
    }

    /// Of what was kept.
    ///
    /// # Errors
    /// [`TlsError::Pem`], [`TlsError::Config`].
    pub fn of_pem(ca: String, certificate: String, key: String) -> Result<Self, TlsError> {
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
        let chain = chain
            .collect::<Result<Vec<_>, _>>()
            .map_err(TlsError::Pem)?;
        let secret = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(TlsError::Pem)?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, secret)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            ca,
            certificate,
            key,
            config: Arc::new(config),
        })
    }
}

/// Readers see the whole file or none.
fn write_ca(path: Option<&Path>, issued: &Issued) -> Result<(), TlsError> {
    let Some(path) = path else {
        return Ok(());
    };
    let temporary = path.with_extension("new");
    let written = fs::write(&temporary, &issued.ca).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|source| TlsError::File {
        path: path.to_owned(),
        source,
    })
}

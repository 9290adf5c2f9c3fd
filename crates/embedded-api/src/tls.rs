//! Certificates and the token of the TCP listener. The CA and the token stay in their files, so
//! that kubeconfigs outlive restarts; the server certificate is made anew at each start and never
//! written. Certificates do not expire: a node whose clock is wrong must still be reachable.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::durable_file::{self, PRIVATE, PUBLIC};

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A key, certificate or token file cannot be read or written.
    #[error("cannot use {path}: check that it is readable and its folder writable")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The CA files do not hold a CA.
    #[error(
        "{path} holds no usable CA: remove ca.crt and ca.key to get a new one, and fetch the kubeconfig again"
    )]
    Authority {
        /// The certificate or key file.
        path: PathBuf,
        /// What is wrong with it.
        source: rcgen::Error,
    },
    /// One of the CA's two files is missing.
    #[error("{present} exists without {missing}: restore it, or remove both to get a new CA")]
    Half {
        /// The file that is there.
        present: PathBuf,
        /// The file that is not.
        missing: PathBuf,
    },
    /// A certificate cannot be made, for example for a name that is no host name.
    #[error("cannot make a certificate for {names}")]
    Certificate {
        /// The names asked for.
        names: String,
        /// What is wrong with them.
        source: rcgen::Error,
    },
    /// The TLS library refuses key or certificate.
    #[error("cannot set up TLS")]
    Config(#[from] rustls::Error),
    /// The token file is empty.
    #[error("the token file {0} is empty: remove it to get a new token, or write one into it")]
    EmptyToken(PathBuf),
    /// No random bytes.
    #[error("the system gives no random bytes for a token")]
    Random,
}

/// The CA.
pub(crate) struct Authority {
    pub(crate) certificate_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Reads `ca.crt` and `ca.key` of a folder, or makes them.
    pub(crate) fn load_or_create(folder: &Path) -> Result<Self, TlsError> {
        let (certificate_path, key_path) = (folder.join("ca.crt"), folder.join("ca.key"));
        match (read(&certificate_path)?, read(&key_path)?) {
            (Some(certificate), Some(key)) => {
                Self::parse(certificate, &key).map_err(|source| TlsError::Authority {
                    path: certificate_path,
                    source,
                })
            }
            // the key is written first: a key alone is a creation that was cut short
            (None, _) => Self::create(&certificate_path, &key_path),
            (Some(_), None) => Err(TlsError::Half {
                present: certificate_path,
                missing: key_path,
            }),
        }
    }

    fn parse(certificate_pem: String, key: &str) -> Result<Self, rcgen::Error> {
        let key = KeyPair::from_pem(key)?;
        let issuer = Issuer::from_ca_cert_pem(&certificate_pem, key)?;
        Ok(Self {
            certificate_pem,
            issuer,
        })
    }

    fn create(certificate_path: &Path, key_path: &Path) -> Result<Self, TlsError> {
        let failed = |source| TlsError::Authority {
            path: certificate_path.to_owned(),
            source,
        };
        let key = KeyPair::generate().map_err(failed)?;
        let key_pem = key.serialize_pem();
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "spiderpool-embedded-api-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate_pem = CertifiedIssuer::self_signed(params, key)
            .map_err(failed)?
            .pem();
        write(key_path, &key_pem, PRIVATE)?;
        write(certificate_path, &certificate_pem, PUBLIC)?;
        Self::parse(certificate_pem, &key_pem).map_err(failed)
    }

    /// TLS configuration with a fresh server certificate for these names and addresses.
    pub(crate) fn server_config(&self, names: &[String]) -> Result<Arc<ServerConfig>, TlsError> {
        let failed = |source| TlsError::Certificate {
            names: names.join(", "),
            source,
        };
        let mut params = CertificateParams::new(names.to_vec()).map_err(failed)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "spiderpool-embedded-api");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_no_client_auth()
                .with_single_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Reads the bearer token of a file, or makes one of 256 random bits.
pub(crate) fn load_or_create_token(path: &Path) -> Result<String, TlsError> {
    if let Some(text) = read(path)? {
        let token = text.trim().to_owned();
        return if token.is_empty() {
            Err(TlsError::EmptyToken(path.to_owned()))
        } else {
            Ok(token)
        };
    }
    let mut random = [0; 32];
    let provider = aws_lc_rs::default_provider();
    provider
        .secure_random
        .fill(&mut random)
        .map_err(|_| TlsError::Random)?;
    let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    write(path, &token, PRIVATE)?;
    Ok(token)
}

fn read(path: &Path) -> Result<Option<String>, TlsError> {
    durable_file::read(path).map_err(|source| TlsError::File {
        path: path.to_owned(),
        source,
    })
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    durable_file::replace(path, text.as_bytes(), mode).map_err(|source| TlsError::File {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn ca_and_token_outlive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let first = Authority::load_or_create(path).unwrap();
        let second = Authority::load_or_create(path).unwrap();
        assert_eq!(first.certificate_pem, second.certificate_pem);
        let names = [
            "127.0.0.1".to_owned(),
            "localhost".to_owned(),
            "::1".to_owned(),
        ];
        second.server_config(&names).unwrap();
        assert!(second.server_config(&["\u{fc}".to_owned()]).is_err());

        let token_path = path.join("token");
        let token = load_or_create_token(&token_path).unwrap();
        assert_eq!(token.len(), 64);
        assert_eq!(load_or_create_token(&token_path).unwrap(), token);
        for secret in ["ca.key", "token"] {
            let mode = std::fs::metadata(path.join(secret))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600, "{secret}");
        }
    }

    #[test]
    fn damaged_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        Authority::load_or_create(path).unwrap();
        std::fs::write(path.join("ca.key"), "junk").unwrap();
        assert!(matches!(
            Authority::load_or_create(path),
            Err(TlsError::Authority { .. })
        ));
        std::fs::remove_file(path.join("ca.key")).unwrap();
        assert!(matches!(
            Authority::load_or_create(path),
            Err(TlsError::Half { .. })
        ));
        std::fs::write(path.join("token"), "\n").unwrap();
        let empty = load_or_create_token(&path.join("token"));
        assert!(matches!(empty, Err(TlsError::EmptyToken(_))));
    }
}

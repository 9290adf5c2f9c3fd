//! Where a provider is and how its certificate is verified.

use std::fmt;
use std::path::{Path, PathBuf};

use http::Uri;
use rustls::pki_types::ServerName;
use spiderpool_api::public_url::without_secrets;

use super::tls;
use crate::config::ProviderConfig;
use crate::error::TransportError;

/// A client can't be made of the settings. Printed after `Failed to create IaaS client: `.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Not like `http://host:port` or `https://host:port`.
    #[error("provider URL {url:?} is not like https://host:port: {reason}")]
    Url {
        /// As given, without its secrets.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No certificate can carry it.
    #[error("{0:?} is no server name a certificate can carry")]
    ServerName(String),
    /// The CA file can't be used.
    #[error("provider {provider} cannot be verified")]
    Ca {
        /// Its URL.
        provider: String,
        /// What is wrong with the file.
        source: TransportError,
    },
}

/// One provider's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    tls: bool,
    host: String,
    port: u16,
    server_name: String,
    ca_file: Option<PathBuf>,
}

impl Endpoint {
    /// Of a URL without path. Certificates are not verified until a CA file is named.
    ///
    /// # Errors
    /// [`ClientError::Url`].
    pub fn parse(url: &str) -> Result<Self, ClientError> {
        let wrong = |reason: &str| ClientError::Url {
            url: without_secrets(url),
            reason: reason.to_owned(),
        };
        let uri: Uri = url
            .parse()
            .map_err(|error: http::uri::InvalidUri| wrong(&error.to_string()))?;
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            _ => return Err(wrong("the scheme is neither http nor https")),
        };
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(wrong("it has a path"));
        }
        let host = uri.host().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| wrong("it has no host"))?;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        // `Uri::port_u16` has no word for a port that is none: the default would be called instead.
        let port = match authority
            .strip_prefix(host)
            .map(|rest| rest.strip_prefix(':'))
        {
            None => return Err(wrong("it has a user name; a provider is told none")),
            Some(None) => port,
            Some(Some(digits)) => match digits.parse() {
                Ok(port @ 1..) => port,
                _ => return Err(wrong("the port is not in 1-65535")),
            },
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok(Self {
            tls,
            host: host.to_owned(),
            port,
            server_name: host.to_owned(),
            ca_file: None,
        })
    }

    /// Of the Service or the URL that settings name. At a URL the certificate has to carry the
    /// Service's name, if there is one.
    ///
    /// # Errors
    /// [`ClientError::Url`].
    pub fn of_config(config: &ProviderConfig) -> Result<Self, ClientError> {
        let mut endpoint = Self::parse(&config.url())?;
        if !config.name.is_empty() {
            endpoint.server_name = config.server_name();
        }
        endpoint.ca_file.clone_from(&config.ca_file);
        Ok(endpoint)
    }

    /// Verifies by this PEM bundle, read again for each connection.
    #[must_use]
    pub fn with_ca_file(self, path: impl Into<PathBuf>) -> Self {
        Self {
            ca_file: Some(path.into()),
            ..self
        }
    }

    /// Expects this name in the certificate instead of the host's.
    #[must_use]
    pub fn with_server_name(self, name: impl Into<String>) -> Self {
        Self {
            server_name: name.into(),
            ..self
        }
    }

    /// Whether it is called over TLS.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        self.tls
    }

    pub(super) const fn is_unverified(&self) -> bool {
        self.tls && self.ca_file.is_none()
    }

    pub(super) fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    pub(super) fn ca_file(&self) -> Option<&Path> {
        self.ca_file.as_deref()
    }

    pub(super) fn server_name(&self) -> Result<ServerName<'static>, ClientError> {
        let name = self.server_name.clone();
        ServerName::try_from(name).map_err(|_| ClientError::ServerName(self.server_name.clone()))
    }

    pub(super) fn server_name_text(&self) -> String {
        self.server_name.clone()
    }

    /// `host:port`, with brackets around an IPv6 address.
    pub(super) fn authority(&self) -> String {
        let (host, port) = self.address();
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }

    /// Whether name and CA file can be used now.
    pub(super) fn probe(&self) -> Result<(), ClientError> {
        if !self.tls {
            return Ok(());
        }
        self.server_name()?;
        let Some(path) = &self.ca_file else {
            return Ok(());
        };
        match tls::read_roots(path) {
            Ok(_) => Ok(()),
            Err(source) => Err(ClientError::Ca {
                provider: self.to_string(),
                source,
            }),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_scheme_a_host_and_no_path() {
        for (url, printed) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://sim/", "http://sim:80"),
            ("https://p.n.svc:8443", "https://p.n.svc:8443"),
            ("https://[::1]", "https://[::1]:443"),
        ] {
            assert_eq!(Endpoint::parse(url).unwrap().to_string(), printed);
        }
        for url in [
            "",
            "sim:8080",
            "ftp://sim",
            "http://sim/v1",
            "/x",
            "http://sim:0",
            "http://sim:99999",
            "http://[::1]:65536",
            "http://sim:80x",
            "http://sim:",
        ] {
            let error = Endpoint::parse(url).unwrap_err().to_string();
            assert!(error.contains(&format!("{url:?}")), "{error}");
        }
    }

    #[test]
    fn a_refused_url_does_not_tell_its_secrets() {
        for (url, shown) in [
            ("http://user:geheim@sim:80", "http://***@sim:80"),
            ("http://geheim@sim", "http://***@sim"),
            ("ftp://user:geheim@sim", "ftp://***@sim"),
            ("user:geheim@sim:80", "***@sim:80"),
            ("http://user:ge heim@sim", "http://***@sim"),
            ("http://user:ge/heim@sim", "http://***@sim"),
            ("http://sim?token=geheim", "http://sim?***"),
        ] {
            let error = Endpoint::parse(url).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(text.contains(&format!("{shown:?}")), "{text}");
            assert!(!text.contains("heim"), "{text}");
        }
    }

    #[test]
    fn a_name_or_ca_that_cannot_be_used_is_found_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.crt");
        let endpoint = Endpoint::parse("https://p.n.svc:8443").unwrap();
        assert!(endpoint.probe().is_ok() && endpoint.is_unverified());
        let bad = endpoint.clone().with_server_name("not a name");
        assert!(matches!(bad.probe(), Err(ClientError::ServerName(_))));
        let endpoint = endpoint.with_ca_file(&path);
        assert!(!endpoint.is_unverified());
        let source = |endpoint: &Endpoint| match endpoint.probe().unwrap_err() {
            ClientError::Ca { source, .. } => source,
            other => panic!("{other}"),
        };
        assert!(matches!(source(&endpoint), TransportError::CaFile { .. }));
        std::fs::write(&path, "").unwrap();
        assert!(matches!(source(&endpoint), TransportError::Ca { .. }));
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(source(&endpoint), TransportError::CaFile { .. }));
    }
}

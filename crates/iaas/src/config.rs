//! The provider settings of `conf.yml` (spec iaas sections 2.2 and 2.4). Pure but for the CA
//! file, which the caller reads. Texts are those the spec fixes.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use spiderpool_api::public_url::without_secrets;

use crate::ca::{self, CaError};
use crate::duration::{DurationError, GoDuration};
use crate::provider::Generation;

/// Longest time a container runtime waits for one sandbox operation.
const STATIC_LIMIT: GoDuration = GoDuration::from_secs(120);
/// Longest time the CNI plugin waits for the agent.
const CNI_CLIENT_TIMEOUT: GoDuration = GoDuration::from_secs(100);
const DEFAULT_TIMEOUT: &str = "50s";
const DEFAULT_PORT: i64 = 8443;

/// Section `iaasNetworkProvider` as written; unknown keys are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Section {
    /// `false` switches it off whatever else is written; `true` wants to know where it is.
    pub enabled: Option<bool>,
    /// The provider's Service.
    pub service: ServiceSection,
    /// How its certificate is verified.
    pub tls: TlsSection,
    /// Go duration; empty means 50s.
    pub http_request_timeout: String,
    /// Host NICs that are not reported on the Node object.
    pub exclude_report_nics: Vec<String>,
    /// URL of a provider of contract version 1, which is used without a Service.
    pub server_url: String,
    /// Where a provider of contract version 2 is, for nodes without cluster DNS: overrides the
    /// Service's address and switches the provider on without a Service.
    pub url: String,
}

/// `iaasNetworkProvider.service`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSection {
    /// Empty: there is no provider.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its port.
    pub port: i64,
}

impl Default for ServiceSection {
    fn default() -> Self {
        Self {
            name: String::new(),
            namespace: String::new(),
            port: DEFAULT_PORT,
        }
    }
}

/// `iaasNetworkProvider.tls`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsSection {
    /// PEM bundle; empty: the certificate is not verified.
    pub ca_file: String,
}

/// Settings that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderConfig {
    /// Which contract it speaks.
    pub generation: Generation,
    /// Service name.
    pub name: String,
    /// Service namespace.
    pub namespace: String,
    /// Service port.
    pub port: u16,
    /// PEM bundle, read again for each connection.
    pub ca_file: Option<PathBuf>,
    /// Longest time of one call.
    pub timeout: Duration,
    /// Host NICs that are not reported.
    pub exclude_report_nics: Vec<String>,
    /// Used instead of the Service's address; not judged yet.
    pub explicit_url: Option<String>,
}

impl ProviderConfig {
    /// Name in the provider's certificate, and its host name.
    #[must_use]
    pub fn server_name(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.explicit_url {
            Some(url) => url.clone(),
            None => format!("https://{}:{}", self.server_name(), self.port),
        }
    }
}

/// A setting can't be used. Names key and value; printed after
/// `IaaS provider configuration validation failed: `.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not a Go duration.
    #[error("invalid iaasNetworkProvider.httpRequestTimeout {value:?}")]
    Timeout {
        /// As written.
        value: String,
        /// What is wrong with it.
        source: DurationError,
    },
    /// A duration, but not a usable one.
    #[error("invalid iaasNetworkProvider.httpRequestTimeout {value:?}: {reason}")]
    TimeoutRange {
        /// As written.
        value: String,
        /// What it has to be.
        reason: String,
    },
    /// Not a name a Service or namespace can have.
    #[error("invalid iaasNetworkProvider.service.{key} {value:?}: not a DNS-1123 label")]
    Label {
        /// `name` or `namespace`.
        key: &'static str,
        /// As written.
        value: String,
    },
    /// Not a TCP port.
    #[error("invalid iaasNetworkProvider.service.port {0}: must be in 1-65535")]
    Port(i64),
    /// Not readable.
    #[error("invalid iaasNetworkProvider.tls.caFile {value:?}")]
    CaFile {
        /// As written.
        value: String,
        /// What the system said.
        source: io::Error,
    },
    /// No usable certificate in it.
    #[error("invalid iaasNetworkProvider.tls.caFile {value:?}")]
    Ca {
        /// As written.
        value: String,
        /// What is wrong with it.
        source: CaError,
    },
    /// Both contract versions are configured.
    #[error(
        "invalid iaasNetworkProvider.serverUrl {url:?}: iaasNetworkProvider.{other} is set too; remove one of them"
    )]
    TwoGenerations {
        /// `serverUrl`, without its secrets.
        url: String,
        /// The key that is of the other version.
        other: &'static str,
    },
    /// It is wanted, and nobody says where it is.
    #[error(
        "invalid iaasNetworkProvider.enabled true: neither iaasNetworkProvider.service.name nor iaasNetworkProvider.serverUrl is set"
    )]
    Nowhere,
    /// Not where a provider can be.
    #[error("invalid iaasNetworkProvider.serverUrl {value:?}: {reason}")]
    ServerUrl {
        /// As written, without its secrets.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Section {
    /// Judges the settings; `None` when no provider is configured. `read` reads the CA file. URLs are
    /// judged by who makes a client of them.
    ///
    /// # Errors
    /// [`ConfigError`] for the first setting that can't be used.
    pub fn validate(
        &self,
        read: impl FnOnce(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<Option<ProviderConfig>, ConfigError> {
        let ServiceSection {
            name,
            namespace,
            port,
        } = &self.service;
        let explicit_url = (!self.url.is_empty()).then(|| self.url.clone());
        match self.generation() {
            None if self.enabled == Some(true) => return Err(ConfigError::Nowhere),
            None => return Ok(None),
            Some(Generation::First) if self.has_service() => {
                let other = match name.is_empty() {
                    true => "url",
                    false => "service.name",
                };
                let url = without_secrets(&self.server_url);
                return Err(ConfigError::TwoGenerations { url, other });
            }
            Some(Generation::First) => return self.first_generation(read).map(Some),
            Some(Generation::Second) => {}
        }
        let timeout = timeout(&self.http_request_timeout)?;
        for (key, value) in [("name", name), ("namespace", namespace)] {
            let needed = !name.is_empty() || explicit_url.is_none();
            if needed && !is_dns_label(value) {
                let value = value.clone();
                return Err(ConfigError::Label { key, value });
            }
        }
        let port = u16::try_from(*port).ok().filter(|port| *port > 0);
        Ok(Some(ProviderConfig {
            generation: Generation::Second,
            name: name.clone(),
            namespace: namespace.clone(),
            port: port.ok_or(ConfigError::Port(self.service.port))?,
            ca_file: ca_file(&self.tls.ca_file, read)?,
            timeout,
            exclude_report_nics: self.exclude_report_nics.clone(),
            explicit_url,
        }))
    }

    /// Which contract the provider speaks; `None`: there is none.
    #[must_use]
    pub fn generation(&self) -> Option<Generation> {
        match (self.server_url.is_empty(), self.has_service()) {
            _ if self.enabled == Some(false) => None,
            (true, false) => None,
            (true, true) => Some(Generation::Second),
            (false, _) => Some(Generation::First),
        }
    }

    const fn has_service(&self) -> bool {
        !self.service.name.is_empty() || !self.url.is_empty()
    }

    /// Nothing but `serverUrl` says where it is.
    fn first_generation(
        &self,
        read: impl FnOnce(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<ProviderConfig, ConfigError> {
        Ok(ProviderConfig {
            generation: Generation::First,
            name: String::new(),
            namespace: String::new(),
            port: 0,
            timeout: timeout(&self.http_request_timeout)?,
            ca_file: ca_file(&self.tls.ca_file, read)?,
            exclude_report_nics: self.exclude_report_nics.clone(),
            explicit_url: Some(self.server_url.clone()),
        })
    }
}

fn timeout(text: &str) -> Result<Duration, ConfigError> {
    let text = if text.is_empty() {
        DEFAULT_TIMEOUT
    } else {
        text
    };
    let parsed: GoDuration = text.parse().map_err(|source| ConfigError::Timeout {
        value: text.to_owned(),
        source,
    })?;
    let reason = if parsed >= STATIC_LIMIT {
        format!("timeout {parsed} must be less than static limit {STATIC_LIMIT}")
    } else if parsed >= CNI_CLIENT_TIMEOUT {
        format!("timeout {parsed} must be less than CNI client timeout {CNI_CLIENT_TIMEOUT}")
    } else {
        match parsed.to_std() {
            Some(timeout) if !timeout.is_zero() => return Ok(timeout),
            _ => "timeout must be positive".to_owned(),
        }
    };
    Err(ConfigError::TimeoutRange {
        value: text.to_owned(),
        reason,
    })
}

fn ca_file(
    text: &str,
    read: impl FnOnce(&Path) -> io::Result<Vec<u8>>,
) -> Result<Option<PathBuf>, ConfigError> {
    if text.is_empty() {
        return Ok(None);
    }
    let value = || text.to_owned();
    let path = PathBuf::from(text);
    let bundle = read(&path).map_err(|source| ConfigError::CaFile {
        value: value(),
        source,
    })?;
    ca::certificates(&bundle).map_err(|source| ConfigError::Ca {
        value: value(),
        source,
    })?;
    Ok(Some(path))
}

/// RFC 1123 label: 1-63 of `a-z 0-9 -`, neither starting nor ending with `-`.
fn is_dns_label(text: &str) -> bool {
    let inside = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inside)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use spiderpool_api::causes::with_causes;

    const CA: &[u8] = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

    fn section(yaml: &str) -> Section {
        serde_saphyr::from_str(yaml).unwrap()
    }

    fn judged(yaml: &str) -> Result<Option<ProviderConfig>, String> {
        let read = |path: &Path| match path.to_str().unwrap() {
            "/ca" => Ok(CA.to_vec()),
            "/empty" => Ok(Vec::new()),
            _ => Err(io::Error::from(io::ErrorKind::NotFound)),
        };
        section(yaml)
            .validate(read)
            .map_err(|error| with_causes(&error))
    }

    #[test]
    fn without_a_name_there_is_no_provider_and_nothing_is_judged() {
        for yaml in ["{}", "{httpRequestTimeout: abc, service: {port: 0}}"] {
            assert_eq!(judged(yaml), Ok(None), "{yaml}");
        }
    }

    #[test]
    fn usable_settings_are_taken_over() {
        let yaml = "{service: {name: p, namespace: n, extra: 1}, tls: {caFile: /ca}, excludeReportNics: [eth0]}";
        let config = judged(yaml).unwrap().unwrap();
        assert_eq!(config.url(), "https://p.n.svc:8443");
        assert_eq!(config.timeout, Duration::from_secs(50));
        assert_eq!(config.ca_file.as_deref(), Some(Path::new("/ca")));
        assert_eq!(config.exclude_report_nics, ["eth0"]);
        for (text, milliseconds) in [("99s", 99_000), ("500ms", 500), ("1m39.999s", 99_999)] {
            let yaml =
                format!("{{service: {{name: p, namespace: n}}, httpRequestTimeout: {text}}}");
            let config = judged(&yaml).unwrap().unwrap();
            assert_eq!(
                config.timeout,
                Duration::from_millis(milliseconds),
                "{text}"
            );
            assert_eq!(config.ca_file, None);
        }
    }

    #[test]
    fn an_explicit_url_needs_no_service() {
        let config = judged("{url: 'http://127.0.0.1:8080'}").unwrap().unwrap();
        assert_eq!(config.url(), "http://127.0.0.1:8080");
        let both = "{url: 'https://10.0.0.9:8443', service: {name: p, namespace: n}}";
        let config = judged(both).unwrap().unwrap();
        assert_eq!(config.url(), "https://10.0.0.9:8443");
        assert_eq!(config.server_name(), "p.n.svc");
        assert!(judged("{url: 'http://127.0.0.1:8080', service: {name: P}}").is_err());
    }

    #[test]
    #[rustfmt::skip] // a case a line
    fn each_mistake_has_its_text() {
        let timeout = "invalid iaasNetworkProvider.httpRequestTimeout";
        let service = "invalid iaasNetworkProvider.service";
        let ca = "invalid iaasNetworkProvider.tls.caFile";
        let on = "name: p, namespace: n";
        for (yaml, text) in [
            (format!("{{service: {{{on}}}, httpRequestTimeout: abc}}"), format!(r#"{timeout} "abc": time: invalid duration "abc""#)),
            (format!("{{service: {{{on}}}, httpRequestTimeout: 0s}}"), format!(r#"{timeout} "0s": timeout must be positive"#)),
            (format!("{{service: {{{on}}}, httpRequestTimeout: -30s}}"), format!(r#"{timeout} "-30s": timeout must be positive"#)),
            (format!("{{service: {{{on}}}, httpRequestTimeout: 2m}}"), format!(r#"{timeout} "2m": timeout 2m0s must be less than static limit 2m0s"#)),
            (format!("{{service: {{{on}}}, httpRequestTimeout: 100s}}"), format!(r#"{timeout} "100s": timeout 1m40s must be less than CNI client timeout 1m40s"#)),
            ("{service: {name: P, namespace: n}}".into(), format!(r#"{service}.name "P": not a DNS-1123 label"#)),
            ("{service: {name: p}}".into(), format!(r#"{service}.namespace "": not a DNS-1123 label"#)),
            ("{service: {name: p, namespace: n-}}".into(), format!(r#"{service}.namespace "n-": not a DNS-1123 label"#)),
            (format!("{{service: {{{on}, port: 0}}}}"), format!("{service}.port 0: must be in 1-65535")),
            (format!("{{service: {{{on}, port: 65536}}}}"), format!("{service}.port 65536: must be in 1-65535")),
            (format!("{{service: {{{on}}}, tls: {{caFile: /gone}}}}"), format!(r#"{ca} "/gone": entity not found"#)),
            (format!("{{service: {{{on}}}, tls: {{caFile: /empty}}}}"), format!(r#"{ca} "/empty": it holds no certificate"#)),
        ] {
            assert_eq!(judged(&yaml), Err(text), "{yaml}");
        }
        let both = |url: &str, other: &str| format!(r#"invalid iaasNetworkProvider.serverUrl "{url}": iaasNetworkProvider.{other} is set too; remove one of them"#);
        for (yaml, url, other) in [
            ("{serverUrl: 'http://p', service: {name: p}}", "http://p", "service.name"),
            ("{serverUrl: 'http://p', url: 'http://q'}", "http://p", "url"),
            ("{serverUrl: 'http://u:geheim@p', url: 'http://q'}", "http://***@p", "url"),
        ] {
            assert_eq!(judged(yaml), Err(both(url, other)), "{yaml}");
        }
    }

    #[test]
    fn a_server_url_alone_is_a_provider_of_the_first_generation() {
        let yaml = "{serverUrl: 'http://p:80', httpRequestTimeout: 20s, service: {port: 0}}";
        let config = judged(yaml).unwrap().unwrap();
        assert_eq!(config.generation, Generation::First);
        assert_eq!(config.url(), "http://p:80");
        assert_eq!(config.timeout, Duration::from_secs(20));
        let yaml = "{serverUrl: 'http://p', httpRequestTimeout: 100s}";
        assert!(judged(yaml).unwrap_err().ends_with("timeout 1m40s"));
        let second = judged("{service: {name: p, namespace: n}}").unwrap();
        assert_eq!(second.unwrap().generation, Generation::Second);
    }
}

//! Makes and reads certificates. No I/O; keys come from the system's randomness.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Common name of authority and certificate.
const COMMON_NAME: &str = "spidernet.io";
const SECONDS_A_DAY: i64 = 86_400;
/// Clocks of nodes differ.
const BACKDATED_DAYS: i64 = 1;

/// An authority's certificate, a certificate it signed, and that one's key, all PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Trusted by the API server.
    pub ca: String,
    /// Served.
    pub cert: String,
    /// Secret.
    pub key: String,
}

/// A certificate cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a certificate for {names}")]
pub struct IssueError {
    names: String,
    source: rcgen::Error,
}

/// A new authority and its one certificate, valid from yesterday and for `days` from now.
///
/// # Errors
/// [`IssueError`]: a name is none.
pub fn issue(names: &[String], now: Timestamp, days: i64) -> Result<Pair, IssueError> {
    let failed = |source| IssueError {
        names: names.join(", "),
        source,
    };
    let dated = |mut params: CertificateParams| {
        let (year, month, day) = date(now, -BACKDATED_DAYS);
        params.not_before = date_time_ymd(year, month, day);
        let (year, month, day) = date(now, days + 1);
        params.not_after = date_time_ymd(year, month, day);
        params
            .distinguished_name
            .push(DnType::CommonName, COMMON_NAME);
        params
    };
    let mut params = dated(CertificateParams::default());
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_key = KeyPair::generate().map_err(failed)?;
    let authority = CertifiedIssuer::self_signed(params, authority_key).map_err(failed)?;

    let mut params = dated(CertificateParams::new(names.to_vec()).map_err(failed)?);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Old and new authority have one name; the verifier tells them apart by this.
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(failed)?;
    let cert = params.signed_by(&key, &authority).map_err(failed)?;
    Ok(Pair {
        ca: authority.pem(),
        cert: cert.pem(),
        key: key.serialize_pem(),
    })
}

/// Year, month and day that is so many days after `now`.
fn date(now: Timestamp, days: i64) -> (i32, u8, u8) {
    let seconds = now
        .as_second()
        .saturating_add(days.saturating_mul(SECONDS_A_DAY));
    let then = Timestamp::from_second(seconds).unwrap_or(now);
    let date = then.to_zoned(TimeZone::UTC).date();
    let part = |number: i8| u8::try_from(number).unwrap_or(1);
    (date.year().into(), part(date.month()), part(date.day()))
}

/// What is written in a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Valid from.
    pub from: Timestamp,
    /// Valid until.
    pub until: Timestamp,
    /// Names and addresses it is for.
    pub names: Vec<String>,
}

impl Facts {
    /// Of the first certificate of a PEM text; `None` when there is none.
    #[must_use]
    pub fn read(pem: &str) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        let (_, certificate) = X509Certificate::from_der(&der).ok()?;
        let validity = certificate.validity();
        let at = |seconds| Timestamp::from_second(seconds).ok();
        let extension = certificate.subject_alternative_name().ok()?;
        let names = extension.map(|extension| &extension.value.general_names);
        Some(Self {
            from: at(validity.not_before.timestamp())?,
            until: at(validity.not_after.timestamp())?,
            names: names.into_iter().flatten().filter_map(name).collect(),
        })
    }

    /// Whether it can be served for these names now.
    #[must_use]
    pub fn serves(&self, names: &[String], now: Timestamp) -> bool {
        now < self.until && names.iter().all(|name| self.names.contains(name))
    }

    /// Whether two thirds of its time are over.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        let whole = self.until.as_second() - self.from.as_second();
        let left = self.until.as_second() - now.as_second();
        left.saturating_mul(3) < whole
    }
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(text) => Some((*text).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(std::net::IpAddr::from);
            let v6 = || <[u8; 16]>::try_from(*bytes).map(std::net::IpAddr::from);
            v4.or_else(|_| v6()).ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

/// Whether a verifier that trusts the authorities `ca` believes the first certificate of `cert`, with
/// what follows it as intermediates. Only what no verifier would believe is refused here.
#[must_use]
pub fn is_trusted(cert: &str, ca: &str, now: Timestamp) -> bool {
    let read = |pem: &str| -> Vec<CertificateDer<'static>> {
        let found = CertificateDer::pem_slice_iter(pem.as_bytes());
        found.filter_map(Result::ok).collect()
    };
    let (chain, authorities) = (read(cert), read(ca));
    let Some((first, intermediates)) = chain.split_first() else {
        return false;
    };
    if authorities.contains(first) {
        return true;
    }
    let mut roots = RootCertStore::empty();
    let _counts = roots.add_parsable_certificates(authorities);
    let Ok(parsed) = ParsedCertificate::try_from(first) else {
        return false;
    };
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
    let all = algorithms.all;
    match verify_server_cert_signed_by_trust_anchor(&parsed, &roots, intermediates, at, all) {
        Err(Error::InvalidCertificate(why)) => !matches!(
            why,
            CertificateError::UnknownIssuer
                | CertificateError::BadSignature
                | CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
        ),
        _ => true,
    }
}

/// The certificates of a PEM text, one by one, each once.
#[must_use]
pub fn split(pem: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let mut found: Vec<String> = Vec::new();
    for part in pem.split_inclusive(END) {
        let Some(start) = part.find("-----BEGIN CERTIFICATE-----") else {
            continue;
        };
        let Some(text) = part.get(start..).filter(|text| text.ends_with(END)) else {
            continue;
        };
        let text = format!("{text}\n");
        if !found.contains(&text) {
            found.push(text);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2027-03-01T12:00:00Z";

    #[test]
    fn a_pair_says_for_whom_and_how_long() {
        let names = [
            "a.b.svc".to_owned(),
            "127.0.0.1".to_owned(),
            "fd00::1".to_owned(),
        ];
        let now: Timestamp = NOW.parse().unwrap();
        let pair = issue(&names, now, 90).unwrap();
        let facts = Facts::read(&pair.cert).unwrap();
        assert_eq!(facts.names, names);
        assert_eq!(facts.from.to_string(), "2027-02-28T00:00:00Z");
        assert_eq!(facts.until.to_string(), "2027-05-31T00:00:00Z");
        assert!(facts.serves(&names, now) && !facts.is_due(now));
        assert!(!facts.serves(&["other".to_owned()], now));
        let later: Timestamp = "2027-05-02T00:00:00Z".parse().unwrap();
        assert!(facts.is_due(later) && facts.serves(&names, later));
        assert!(!facts.serves(&names, "2027-06-01T00:00:00Z".parse().unwrap()));
        assert_eq!(Facts::read("nonsense"), None);
        assert!(issue(&["not a name ä".to_owned()], now, 1).is_err());
    }

    #[test]
    fn a_bundle_is_taken_apart() {
        let now: Timestamp = NOW.parse().unwrap();
        let made = || issue(&["a".to_owned()], now, 1).unwrap().ca;
        let (one, two) = (made(), made());
        let text = format!("{one}# comment\n{two}{one}-----BEGIN CERTIFICATE-----\ncut short");
        let parts = split(&text);
        assert_eq!(parts.len(), 2);
        assert_eq!(parts[0].trim(), one.trim().replace("\r\n", "\n"));
    }
}

//! The file with the certificates a provider is verified by. Parsing only; whoever reads the file
//! says when.

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::{self, PemObject};

/// The text holds no usable bundle.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// Broken PEM.
    #[error("it is not valid PEM")]
    Pem(#[source] pem::Error),
    /// No `CERTIFICATE` section.
    #[error("it holds no certificate")]
    Empty,
}

/// All certificates of a PEM bundle; other sections are skipped.
///
/// # Errors
/// [`CaError`] when one is broken or none is there.
pub fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, CaError> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(CaError::Pem)?;
    if found.is_empty() {
        return Err(CaError::Empty);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_has_at_least_one_readable_certificate() {
        let one = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let other = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
        let count = |text: &str| certificates(text.as_bytes()).map(|found| found.len());
        assert_eq!(count(&format!("{one}{other}{one}")).unwrap(), 2);
        for empty in ["", "not PEM", other] {
            assert!(matches!(count(empty), Err(CaError::Empty)), "{empty}");
        }
        let broken = one.replace("AAAA", "!");
        assert!(matches!(count(&broken), Err(CaError::Pem(_))));
    }
}

//! CA and certificate in a Secret (P18), as charts look it up: `ca.crt`, `tls.crt`, `tls.key`. What
//! is there already for the same names is used on, so that a restart does not change the CA.

use std::fmt;
use std::str::FromStr;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tracing::{info, warn};

use crate::tls::{Issued, TlsError};

/// Annotation: the names the certificate is for.
const NAMES: &str = "iaas.spidernet.io/tls-names";

/// Where the Secret is: `NAMESPACE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretPlace {
    namespace: String,
    name: String,
}

/// The text names no Secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not like NAMESPACE/NAME")]
pub struct SecretPlaceError(String);

impl FromStr for SecretPlace {
    type Err = SecretPlaceError;

    fn from_str(text: &str) -> Result<Self, SecretPlaceError> {
        match text.split_once('/') {
            Some((namespace, name))
                if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
            {
                Ok(Self {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                })
            }
            _ => Err(SecretPlaceError(text.to_owned())),
        }
    }
}

impl fmt::Display for SecretPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The Secret of an API server.
#[derive(Debug)]
pub struct TlsSecret {
    secrets: Api<Secret>,
    place: SecretPlace,
}

impl TlsSecret {
    /// The Secret at a place; nothing is read yet.
    #[must_use]
    pub fn new(client: Client, place: SecretPlace) -> Self {
        Self {
            secrets: Api::namespaced(client, &place.namespace),
            place,
        }
    }

    /// What the Secret holds for these names; `None`: nothing that can be used.
    ///
    /// # Errors
    /// [`TlsError::Secret`] when the API server fails.
    pub async fn read(&self, names: &[String]) -> Result<Option<Issued>, TlsError> {
        let found = self.secrets.get_opt(&self.place.name).await;
        let Some(secret) = found.map_err(|source| self.failed("read", source))? else {
            return Ok(None);
        };
        if secret.annotations().get(NAMES) != Some(&names.join(",")) {
            info!(secret = %self.place, "the Secret is for other names and is replaced");
            return Ok(None);
        }
        let text = |key: &str| {
            let data = secret.data.as_ref()?.get(key)?;
            String::from_utf8(data.0.clone()).ok()
        };
        let (Some(ca), Some(certificate), Some(key)) =
            (text("ca.crt"), text("tls.crt"), text("tls.key"))
        else {
            return Ok(None);
        };
        match Issued::of_pem(ca, certificate, key) {
            Ok(issued) => {
                info!(secret = %self.place, "certificate and CA are those of the Secret");
                Ok(Some(issued))
            }
            Err(cause) => {
                warn!(secret = %self.place, %cause, "the Secret is of no use and is replaced");
                Ok(None)
            }
        }
    }

    /// Writes CA, certificate and key.
    ///
    /// # Errors
    /// [`TlsError::Secret`].
    pub async fn write(&self, names: &[String], issued: &Issued) -> Result<(), TlsError> {
        let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
        let data = [
            ("ca.crt", bytes(&issued.ca)),
            ("tls.crt", bytes(&issued.certificate)),
            ("tls.key", bytes(&issued.key)),
        ];
        let mut secret = Secret {
            type_: Some("kubernetes.io/tls".to_owned()),
            data: Some(data.map(|(key, value)| (key.to_owned(), value)).into()),
            ..Secret::default()
        };
        secret.metadata.name = Some(self.place.name.clone());
        let names = names.join(",");
        let annotations = secret.annotations_mut();
        annotations.insert(NAMES.to_owned(), names.clone());
        let created = self.secrets.create(&PostParams::default(), &secret).await;
        let written = match created {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let patch = json!({ "metadata": { "annotations": { NAMES: names } },
                    "data": secret.data });
                let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
                let patched = self.secrets.patch(&self.place.name, &params, &patch);
                patched.await.map(drop)
            }
            other => other.map(drop),
        };
        written.map_err(|source| self.failed("write", source))?;
        info!(secret = %self.place, "CA and certificate are written");
        Ok(())
    }

    fn failed(&self, tried: &'static str, source: kube::Error) -> TlsError {
        TlsError::Secret {
            tried,
            place: self.place.to_string(),
            source: Box::new(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_parse_and_print() {
        let place: SecretPlace = "iaas-system/provider-tls".parse().unwrap();
        assert_eq!(place.to_string(), "iaas-system/provider-tls");
        for bad in ["", "provider-tls", "/x", "x/", "a/b/c"] {
            assert!(bad.parse::<SecretPlace>().is_err(), "{bad}");
        }
    }
}

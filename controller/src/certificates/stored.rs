//! The Secret of the certificate: what is in it, read and written conditionally.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;

use super::issue::{Pair, split};

/// Name of the Secret.
pub const SECRET: &str = "spiderpool-controller-server-certs";
/// Annotation: any new value asks for a new certificate.
pub const ASKED: &str = "spiderpool.spidernet.io/rotate-certificate";
/// Annotation: the value of [`ASKED`] that was answered.
const ANSWERED: &str = "spiderpool.spidernet.io/rotated-certificate";
/// Annotation: when the certificate was last switched.
const SWITCHED: &str = "spiderpool.spidernet.io/certificate-switched-at";

const CA: &str = "ca.crt";
const CERT: &str = "tls.crt";
const KEY: &str = "tls.key";
const NEXT_CA: &str = "next-ca.crt";
const NEXT_CERT: &str = "next-tls.crt";
const NEXT_KEY: &str = "next-tls.key";
const OURS: [&str; 6] = [CA, CERT, KEY, NEXT_CA, NEXT_CERT, NEXT_KEY];

/// A certificate that is announced and not served yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Next {
    /// Its authority, PEM.
    pub ca: String,
    /// PEM.
    pub cert: String,
    /// PEM.
    pub key: String,
}

/// What the Secret holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// The authorities to trust, PEM; that of `cert` first.
    pub ca: String,
    /// The certificate to serve, PEM.
    pub cert: String,
    /// Its key, PEM.
    pub key: String,
    /// The one after it.
    pub next: Option<Next>,
    /// When `cert` was last replaced.
    pub switched: Option<Timestamp>,
    /// What an operator asked for.
    pub asked: Option<String>,
    /// What was answered.
    pub answered: Option<String>,
}

impl Stored {
    /// A certificate to begin with; `trusted` are authorities that are trusted on for a while.
    #[must_use]
    pub fn first(pair: Pair, trusted: &str, at: Timestamp) -> Self {
        let others = split(trusted).into_iter().take(1);
        Self {
            ca: split(&pair.ca).into_iter().chain(others).collect(),
            cert: pair.cert,
            key: pair.key,
            switched: Some(at),
            ..Self::default()
        }
    }

    /// From the object; what is missing is empty.
    #[must_use]
    pub fn read(secret: &Secret) -> Self {
        let data = |key: &str| {
            let bytes = secret.data.as_ref().and_then(|data| data.get(key));
            bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned())
        };
        let annotations = secret.metadata.annotations.as_ref();
        let annotation = |key: &str| annotations.and_then(|all| all.get(key)).cloned();
        let next = |ca| {
            Some(Next {
                ca,
                cert: data(NEXT_CERT)?,
                key: data(NEXT_KEY)?,
            })
        };
        Self {
            ca: data(CA).unwrap_or_default(),
            cert: data(CERT).unwrap_or_default(),
            key: data(KEY).unwrap_or_default(),
            next: data(NEXT_CA).and_then(next),
            switched: annotation(SWITCHED).and_then(|text| text.parse().ok()),
            asked: annotation(ASKED),
            answered: annotation(ANSWERED),
        }
    }

    /// Into the object, which keeps what is not ours.
    fn write_into(&self, secret: &mut Secret) {
        let data = secret.data.get_or_insert_default();
        data.retain(|key, _| !OURS.contains(&key.as_str()));
        let mut put = |key: &str, text: &str| {
            data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec()));
        };
        put(CA, &self.ca);
        put(CERT, &self.cert);
        put(KEY, &self.key);
        if let Some(next) = &self.next {
            put(NEXT_CA, &next.ca);
            put(NEXT_CERT, &next.cert);
            put(NEXT_KEY, &next.key);
        }
        let annotations = secret.metadata.annotations.get_or_insert_default();
        let switched = self.switched.map(|at| at.to_string());
        for (key, value) in [
            (SWITCHED, switched.as_ref()),
            (ASKED, self.asked.as_ref()),
            (ANSWERED, self.answered.as_ref()),
        ] {
            match value {
                Some(value) => annotations.insert(key.to_owned(), value.clone()),
                None => annotations.remove(key),
            };
        }
    }
}

/// Makes the Secret.
///
/// # Errors
/// Those of the API: 409 if somebody else was quicker.
pub async fn create(secrets: &Api<Secret>, stored: &Stored) -> kube::Result<Secret> {
    let labels = BTreeMap::from([(
        "app.kubernetes.io/component".to_owned(),
        "spiderpool-controller".to_owned(),
    )]);
    let mut secret = Secret {
        metadata: ObjectMeta {
            name: Some(SECRET.to_owned()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        type_: Some("kubernetes.io/tls".to_owned()),
        ..Secret::default()
    };
    stored.write_into(&mut secret);
    secrets.create(&PostParams::default(), &secret).await
}

/// Replaces the content, unless the object was changed since it was read.
///
/// # Errors
/// Those of the API: 409 if it was changed.
pub async fn replace(
    secrets: &Api<Secret>,
    mut secret: Secret,
    stored: &Stored,
) -> kube::Result<Secret> {
    stored.write_into(&mut secret);
    secrets
        .replace(SECRET, &PostParams::default(), &secret)
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let stored = Stored {
            ca: "a".to_owned(),
            cert: "b".to_owned(),
            key: "c".to_owned(),
            next: Some(Next {
                ca: "d".to_owned(),
                cert: "e".to_owned(),
                key: "f".to_owned(),
            }),
            switched: Some("2027-01-01T00:00:00Z".parse().unwrap()),
            asked: Some("1".to_owned()),
            answered: None,
        };
        let mut secret = Secret::default();
        secret
            .data
            .get_or_insert_default()
            .insert("theirs".to_owned(), ByteString(vec![1]));
        stored.write_into(&mut secret);
        assert_eq!(Stored::read(&secret), stored);
        let less = Stored {
            next: None,
            asked: None,
            ..stored
        };
        less.write_into(&mut secret);
        assert_eq!(Stored::read(&secret), less);
        assert!(secret.data.unwrap().contains_key("theirs"));
    }
}

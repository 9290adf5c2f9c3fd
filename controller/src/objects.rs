//! The API's objects as agent and controller read and write them: a pool with everything in it that we
//! do not know, an endpoint with its finalizer, and what a failed request means.
//!
//! Owns no decision and no cache. Retries and batching are the callers'.

pub mod endpoint;
pub mod error;
pub mod memo;
pub mod parsed;
pub mod pool;
pub mod pool_api;

use std::fmt;

use spiderpool_api::cni::CniCode;

/// Namespace and name of a namespaced object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// Of these two.
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Why an object could not be read or written. Names the object.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody wrote it since it was read, or created it first.
    #[error("{0} was changed by somebody else meanwhile")]
    Conflict(String),
    /// There is no such object.
    #[error("{0} does not exist")]
    NotFound(String),
    /// The API cannot be reached, is overloaded, or a cache is not filled yet.
    #[error("the Kubernetes API cannot be used to {what}; try again later")]
    Unavailable {
        /// Verb and object.
        what: String,
        /// The client's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The API refused for good: rights, admission, validation.
    #[error("the Kubernetes API refused to {what}")]
    Refused {
        /// Verb and object.
        what: String,
        /// The API's words.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The object is there and cannot be understood; it is left as it is.
    #[error("{what} cannot be understood")]
    Malformed {
        /// The object.
        what: String,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    /// The CNI code when a call fails because of this.
    #[must_use]
    pub const fn cni_code(&self) -> CniCode {
        match self {
            Self::Conflict(_) | Self::Unavailable { .. } => CniCode::TryAgain,
            Self::NotFound(_) | Self::Refused { .. } | Self::Malformed { .. } => CniCode::Refused,
        }
    }
}

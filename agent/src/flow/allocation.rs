//! Why a NIC has no address. Owns the texts an operator reads; no I/O.

use std::fmt;

use spiderpool_api::cni::CniCode;
use spiderpool_ipam::annotation::AnnotationError;
use spiderpool_ipam::candidates::{Refusal, SelectError};
use spiderpool_ipam::first_generation::NotIpv4;
use spiderpool_ipam::plan::ResultError;
use spiderpool_ipam::range::Family;

use super::bind::BindError;
use super::call::Ended;
use crate::store::StoreError;
use crate::writer::WriteError;

/// One family of one NIC that got no address.
#[derive(Debug, Clone)]
pub struct FamilyFailure {
    /// The NIC.
    pub nic: String,
    /// The family.
    pub family: Family,
    /// Pools tried, in order, with what each said.
    pub tried: Vec<(String, WriteError)>,
    /// Pools not tried.
    pub refusals: Vec<Refusal>,
}

impl fmt::Display for FamilyFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pools: Vec<&str> = self.tried.iter().map(|(pool, _)| pool.as_str()).collect();
        let (family, nic) = (self.family, &self.nic);
        write!(
            f,
            "failed to allocate any {family} IP address to NIC {nic} from IPPools [{}]",
            pools.join(", ")
        )?;
        for (index, (_, error)) in self.tried.iter().enumerate() {
            let separator = if index == 0 { ": " } else { "; " };
            match error {
                WriteError::Pick(error) => write!(f, "{separator}{error}")?,
                other => {
                    write!(f, "{separator}{other}")?;
                    let causes = super::error::chain(other);
                    if !causes.is_empty() {
                        write!(f, ": {causes}")?;
                    }
                }
            }
        }
        for refusal in &self.refusals {
            write!(f, "; {refusal}")?;
        }
        Ok(())
    }
}

/// Why a NIC has no address.
#[derive(Debug, thiserror::Error)]
pub enum AllocationError {
    /// No pool may serve it.
    #[error(transparent)]
    Select(SelectError),
    /// The Pod's routes.
    #[error(transparent)]
    Annotation(AnnotationError),
    /// A provider of contract version 1 cannot bind what is named.
    #[error(transparent)]
    NotIpv4(NotIpv4),
    /// Pools were tried in vain.
    #[error("{}", join(.0))]
    Families(Vec<FamilyFailure>),
    /// The provider did not bind what was claimed.
    #[error("the IaaS Network Provider did not bind {addresses}: IaaS IP allocate failed")]
    Provider {
        /// Addresses with their pools.
        addresses: String,
        /// Why.
        source: Box<BindError>,
    },
    /// What was claimed cannot be one NIC, or the endpoint cannot be read.
    #[error(transparent)]
    Result(ResultError),
    /// An object could not be read or written.
    #[error("cannot {doing}")]
    Store {
        /// What for.
        doing: &'static str,
        /// What the API said.
        source: StoreError,
    },
    /// A wait came to nothing.
    #[error(transparent)]
    Ended(Ended),
}

fn join(failures: &[FamilyFailure]) -> String {
    let texts: Vec<String> = failures.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

impl AllocationError {
    /// The CNI code: trying again helps as soon as one cause is passing.
    #[must_use]
    pub fn cni_code(&self) -> CniCode {
        match self {
            Self::Select(error) => error.code(),
            Self::Annotation(_) | Self::NotIpv4(_) => CniCode::Config,
            Self::Result(_) => CniCode::Refused,
            Self::Provider { source, .. } => match &**source {
                BindError::Call(error) if error.is_out_of_time() => CniCode::TryAgain,
                BindError::Ended(_) | BindError::RecordGone { .. } => CniCode::TryAgain,
                _ => CniCode::Refused,
            },
            Self::Families(failures) => {
                let passing =
                    |(_, error): &(String, WriteError)| error.cni_code() == CniCode::TryAgain;
                if failures
                    .iter()
                    .flat_map(|failure| &failure.tried)
                    .any(passing)
                {
                    CniCode::TryAgain
                } else {
                    CniCode::Refused
                }
            }
            Self::Store { source, .. } => source.cni_code(),
            Self::Ended(_) => CniCode::TryAgain,
        }
    }

    /// Names what was being done when the API failed.
    pub(crate) fn store(doing: &'static str) -> impl Fn(StoreError) -> Self {
        move |source| Self::Store { doing, source }
    }
}

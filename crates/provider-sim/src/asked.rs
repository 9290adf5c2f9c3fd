//! Bodies of contract calls as they come in, of both versions (P19): bounded in size and time, told
//! apart by their field, read into one shape. The rest of the provider knows version 2 alone.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use serde_json::Value;
use spiderpool_api::provider::AllocateRequest;
use spiderpool_iaas::wire_v1::{AllocateRequestV1, REQUEST_FIELD};
use tokio::time::timeout;

use crate::faults::Subject;
use crate::refusal::Refusal;
use crate::service::World;

/// Longest body of a call, bytes: some thousand items.
pub const MAX_BODY: usize = 1 << 20;

/// In which words a call is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// IPv4 addresses, whatever their pool.
    V1,
    /// Sub-ENIs of pools.
    V2,
}

/// An allocate call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What is wanted, in the words of version 2.
    pub request: AllocateRequest,
    /// The words it came in.
    pub version: Version,
}

impl From<AllocateRequest> for Asked {
    fn from(request: AllocateRequest) -> Self {
        let version = Version::V2;
        Self { request, version }
    }
}

impl Asked {
    /// Reads a body of either version, of version 1 only if that is served.
    ///
    /// # Errors
    /// [`Refusal`] for what is of neither.
    pub fn decode(body: &[u8], accept_v1: bool) -> Result<Self, Refusal> {
        let invalid = |error: serde_json::Error| Refusal::invalid(error.to_string());
        let value: Value = serde_json::from_slice(body).map_err(invalid)?;
        match (value.get("subEniRequests"), value.get(REQUEST_FIELD)) {
            (Some(_), None) => {
                let request: AllocateRequest = serde_json::from_value(value).map_err(invalid)?;
                Ok(request.into())
            }
            (None, Some(_)) if accept_v1 => {
                let request: AllocateRequestV1 = serde_json::from_value(value).map_err(invalid)?;
                Ok(Self {
                    request: request.into(),
                    version: Version::V1,
                })
            }
            (None, Some(_)) => Err(Refusal::invalid(
                "bodies of contract version 1 are not served (setting acceptV1)",
            )),
            _ => Err(Refusal::invalid(
                "exactly one of subEniRequests and iaasIPsAllocationRequest is required",
            )),
        }
    }

    /// What faults find it by.
    #[must_use]
    pub fn subject(&self) -> Subject {
        let items = &self.request.sub_eni_requests;
        let ips: BTreeSet<IpAddr> = items
            .iter()
            .flat_map(|item| {
                let v4 = item.ipv4_address.map(IpAddr::V4).into_iter();
                v4.chain(item.ipv6_address.map(IpAddr::V6))
            })
            .collect();
        let pools = items
            .iter()
            .flat_map(|item| [&item.ipv4_pool_name, &item.ipv6_pool_name]);
        World::subject(&ips, pools.flatten().cloned(), &self.request.node_name)
    }
}

/// The whole body, if it comes in time.
///
/// # Errors
/// [`Refusal`] 408 for one that takes longer than `limit`, 413 for one above [`MAX_BODY`], 400 for
/// one that breaks off.
pub async fn body(body: Body, limit: Duration) -> Result<Bytes, Refusal> {
    let Ok(read) = timeout(limit, to_bytes(body, MAX_BODY + 1)).await else {
        let limit = limit.as_millis();
        let message = format!("the body did not arrive within {limit} ms");
        return Err(Refusal::new(408, "InvalidRequest", message));
    };
    match read {
        Ok(read) if read.len() <= MAX_BODY => Ok(read),
        Ok(_) => Err(too_long()),
        Err(error) if is_length(&error) => Err(too_long()),
        Err(error) => Err(Refusal::invalid(format!("the body broke off: {error}"))),
    }
}

fn is_length(error: &axum::Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(|source| source.is::<http_body_util::LengthLimitError>())
}

fn too_long() -> Refusal {
    let message = format!("the body is longer than {MAX_BODY} bytes");
    Refusal::new(413, "InvalidRequest", message)
}

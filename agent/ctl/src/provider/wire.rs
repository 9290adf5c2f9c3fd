//! Calls as they are sent, right or wrong on purpose, and what comes back, in words. Chance for
//! the Pod of a run alone; no I/O.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use ipnet::IpNet;
use serde_json::{Value, json};
use spiderpool_api::provider::{ALLOCATE_PATH, RELEASE_PATH, TIMEOUT_HEADER};
use spiderpool_api::value::Mac;
use spiderpool_iaas::client::raw::RawReply;
use spiderpool_iaas::wire_v1::REQUEST_FIELD;

/// Longest excerpt of a body in a report, characters.
const EXCERPT: usize = 72;

/// The Pod all calls are for.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// Namespace of the Pods of all runs.
const NAMESPACE: &str = "provider-verify";
/// What their names begin with.
const RUN: &str = "run-";

impl Identity {
    /// One of its own.
    pub(crate) fn of_new_run() -> Self {
        let uid = uuid::Uuid::new_v4().to_string();
        Self {
            namespace: NAMESPACE.to_owned(),
            name: format!("{RUN}{}", uid.get(..8).unwrap_or_default()),
            uid,
        }
    }

    /// As a record names it.
    pub(crate) fn pod(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether a record's `namespace/name` is that of a run.
    pub(crate) fn is_of_a_run(pod: &str) -> bool {
        let parts = pod.split_once('/');
        parts.is_some_and(|(namespace, name)| namespace == NAMESPACE && name.starts_with(RUN))
    }
}

/// One call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// The budget header, as text so that it can be none.
    pub(crate) budget: Option<String>,
    pub(crate) body: Vec<u8>,
    /// What it is, for the report.
    pub(crate) note: String,
}

/// What a release names.
#[derive(Debug, Clone)]
pub(crate) struct Released {
    pub(crate) pool: String,
    pub(crate) subnet: IpNet,
    pub(crate) address: String,
    pub(crate) node: String,
    pub(crate) parent: Option<Mac>,
}

impl Call {
    /// An allocate of contract version 2.
    pub(crate) fn allocate(who: &Identity, node: &str, items: &[Value]) -> Self {
        let body = json!({ "podName": who.name, "podNamespace": who.namespace, "podUID": who.uid,
            "nodeName": node, "subEniRequests": items });
        let addresses: Vec<String> = items.iter().map(address_of).collect();
        Self::post(
            ALLOCATE_PATH,
            &body,
            format!("allocate {} on {node}", addresses.join(" + ")),
        )
    }

    /// A release of contract version 2.
    pub(crate) fn release(who: &Identity, what: &Released) -> Self {
        let mut body = json!({ "podName": who.name, "podNamespace": who.namespace, "podUID": who.uid,
            "nodeName": what.node, "subnet": what.subnet, "ipAddress": what.address,
            "poolName": what.pool });
        if let (Some(parent), Some(fields)) = (what.parent, body.as_object_mut()) {
            fields.insert("parentNicMac".to_owned(), json!(parent));
        }
        let Released {
            pool,
            address,
            node,
            ..
        } = what;
        Self::post(
            RELEASE_PATH,
            &body,
            format!("release {address} ({pool}) on {node}"),
        )
    }

    /// Any JSON to a path, with the whole budget once it is sent.
    pub(crate) fn post(path: &str, body: &Value, note: String) -> Self {
        Self {
            method: Method::POST,
            path: path.to_owned(),
            budget: None,
            body: body.to_string().into_bytes(),
            note,
        }
    }

    /// With this budget header, `None` for no header.
    #[must_use]
    pub(crate) fn with_budget(self, budget: &str) -> Self {
        let note = format!("{}, budget {budget:?}", self.note);
        Self {
            budget: Some(budget.to_owned()),
            note,
            ..self
        }
    }

    /// With another body.
    #[must_use]
    pub(crate) fn with_body(self, body: impl Into<Vec<u8>>, what: &str) -> Self {
        let note = format!("POST {}: {what}", last_segment(&self.path));
        Self {
            body: body.into(),
            note,
            ..self
        }
    }

    /// The request for it, with its body as it is sent.
    ///
    /// # Errors
    /// A path or header that HTTP cannot carry.
    pub(crate) fn request(&self, body: Vec<u8>) -> Result<Request<Bytes>, http::Error> {
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(&self.path)
            .header(CONTENT_TYPE, "application/json");
        if let Some(budget) = &self.budget {
            let name = HeaderName::try_from(TIMEOUT_HEADER)?;
            request = request.header(name, HeaderValue::try_from(budget)?);
        }
        request.body(Bytes::from(body))
    }
}

/// A body of contract version 2 in the words of version 1: no pools, one address an item. What is no
/// such body, or has the items of version 1 already, stays as it is.
pub(crate) fn in_version_1(body: &[u8]) -> Vec<u8> {
    let Ok(Value::Object(mut fields)) = serde_json::from_slice::<Value>(body) else {
        return body.to_vec();
    };
    fields.remove("poolName");
    if !fields.contains_key(REQUEST_FIELD)
        && let Some(mut items) = fields.remove("subEniRequests")
    {
        let items_of = items.as_array_mut().into_iter().flatten();
        for item in items_of.filter_map(Value::as_object_mut) {
            for key in ["ipv6Address", "ipv4PoolName", "ipv6PoolName"] {
                item.remove(key);
            }
            if let Some(ip) = item.remove("ipv4Address") {
                item.insert("ipAddress".to_owned(), ip);
            }
        }
        fields.insert(REQUEST_FIELD.to_owned(), items);
    }
    Value::Object(fields).to_string().into_bytes()
}

/// The same object with one field changed.
pub(crate) fn with(object: &Value, key: &str, value: Value) -> Value {
    let mut changed = object.clone();
    if let Some(fields) = changed.as_object_mut() {
        fields.insert(key.to_owned(), value);
    }
    changed
}

/// The address an item is about.
fn address_of(item: &Value) -> String {
    let of = |key: &str| item.get(key).and_then(Value::as_str);
    match (of("ipv4Address"), of("ipv6Address")) {
        (Some(v4), Some(v6)) => format!("{v4}/{v6}"),
        (Some(ip), None) | (None, Some(ip)) => ip.to_owned(),
        (None, None) => "(no address)".to_owned(),
    }
}

fn last_segment(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// What came back.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) body: Vec<u8>,
    pub(crate) is_whole: bool,
    pub(crate) took: Duration,
    /// Of `Retry-After`.
    pub(crate) retry_after: Option<Duration>,
}

impl From<RawReply> for Reply {
    fn from(raw: RawReply) -> Self {
        let seconds = raw
            .headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok());
        Self {
            status: raw.status,
            body: raw.body,
            is_whole: raw.is_whole,
            took: raw.took,
            retry_after: seconds
                .and_then(|text| text.parse().ok())
                .map(Duration::from_secs),
        }
    }
}

impl Reply {
    /// `code` of an error body, if it has the recommended shape.
    pub(crate) fn code(&self) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        body.get("message")?.as_str()?;
        Some(body.get("code")?.as_str()?.to_owned())
    }

    /// A line about it.
    pub(crate) fn summary(&self) -> String {
        let status = self.status.as_u16();
        let body = serde_json::from_slice::<Value>(&self.body).ok();
        let items = body.as_ref().and_then(|body| {
            let items = body
                .get("subEniResponses")
                .or_else(|| body.get("iaasIPsAllocationResponse"))?;
            items.as_array()
        });
        if let Some(items) = items {
            let items: Vec<String> = items.iter().take(3).map(binding_of).collect();
            return format!("{status} {}", items.join(" + "));
        }
        match self.code() {
            Some(code) => format!("{status} {code}"),
            None if self.body.is_empty() => status.to_string(),
            None => format!("{status} {}", excerpt(&self.body, EXCERPT)),
        }
    }
}

fn binding_of(item: &Value) -> String {
    let of = |key: &str| item.get(key).map_or_else(|| "-".to_owned(), plain);
    format!("{} VLAN {}", of("macAddress"), of("vlanId"))
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// The beginning of a body as one line of text.
pub(crate) fn excerpt(body: &[u8], limit: usize) -> String {
    let text = String::from_utf8_lossy(body.get(..limit * 4).unwrap_or(body)).into_owned();
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    let cut: String = line.chars().take(limit).collect();
    if cut.len() < line.len() || body.len() > limit * 4 {
        format!("{cut}… ({} bytes)", body.len())
    } else {
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, body: &str) -> Reply {
        Reply {
            status: StatusCode::from_u16(status).unwrap(),
            body: body.as_bytes().to_vec(),
            is_whole: true,
            took: Duration::ZERO,
            retry_after: None,
        }
    }

    #[test]
    fn version_1_has_no_pools_and_one_address_an_item() {
        let told = |body: &str| String::from_utf8(in_version_1(body.as_bytes())).unwrap();
        for (second, first) in [
            (
                r#"{"nodeName":"n","subEniRequests":[{"ipv4Address":"10.0.0.1","ipv4PoolName":"p","subnet":7}]}"#,
                r#"{"iaasIPsAllocationRequest":[{"ipAddress":"10.0.0.1","subnet":7}],"nodeName":"n"}"#,
            ),
            (
                r#"{"subEniRequests":7}"#,
                r#"{"iaasIPsAllocationRequest":7}"#,
            ),
            (
                r#"{"ipAddress":"10.0.0.1","poolName":"p"}"#,
                r#"{"ipAddress":"10.0.0.1"}"#,
            ),
            (
                r#"{"iaasIPsAllocationRequest":[],"subEniRequests":[]}"#,
                r#"{"iaasIPsAllocationRequest":[],"subEniRequests":[]}"#,
            ),
            ("[]", "[]"),
            ("{", "{"),
        ] {
            assert_eq!(told(second), first);
        }
    }

    #[test]
    fn an_answer_is_told_in_a_line() {
        for (status, body, line) in [
            (204, "", "204"),
            (
                400,
                r#"{"code":"InvalidRequest","message":"x"}"#,
                "400 InvalidRequest",
            ),
            (404, "not\nfound", "404 not found"),
            (
                200,
                r#"{"subEniResponses":[{"macAddress":"fa:16:3e:00:00:01","vlanId":7},{}]}"#,
                "200 fa:16:3e:00:00:01 VLAN 7 + - VLAN -",
            ),
        ] {
            assert_eq!(reply(status, body).summary(), line);
        }
        let long = reply(500, &"é".repeat(900)).summary();
        assert!(
            long.ends_with("… (1800 bytes)") && long.chars().count() < 100,
            "{long}"
        );
    }
}

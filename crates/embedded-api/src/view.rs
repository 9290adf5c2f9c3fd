//! Representation of objects in answers: as they are, as Tables with printer columns, or metadata
//! alone, as the `Accept` header asks. Pure.

use bytes::Bytes;
use http::{HeaderMap, header};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::events;
use crate::kinds::Kind;
use crate::object;
use crate::status::ApiError;

/// What the client wants to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// The object.
    Object,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `Table`, each row with this much of its object.
    Table(RowObject),
}

/// The `includeObject` parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowObject {
    None,
    Metadata,
    Object,
}

/// Metadata of a list.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListMeta {
    pub(crate) version: u64,
    pub(crate) next: Option<String>,
    pub(crate) remaining: Option<usize>,
}

#[derive(Deserialize)]
struct MetadataOnly {
    #[serde(default)]
    metadata: Value,
}

impl View {
    /// The first representation in `Accept` that is served; JSON if none is named.
    pub(crate) fn negotiate(headers: &HeaderMap, include: &str) -> Result<Self, ApiError> {
        let accept = headers
            .get(header::ACCEPT)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default();
        let row = match include {
            "None" => RowObject::None,
            "Object" => RowObject::Object,
            _ => RowObject::Metadata,
        };
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let parameter = |name: &str| {
                let of = |part: &'_ str| Some(part.split_once('=')?.1.to_owned());
                range
                    .split(';')
                    .map(str::trim)
                    .find(|p| p.starts_with(name))
                    .and_then(of)
            };
            if !matches!(media, "application/json" | "*/*" | "application/*" | "") {
                continue;
            }
            match (parameter("as=").as_deref(), parameter("v=").as_deref()) {
                (None, _) => return Ok(Self::Object),
                (Some("Table"), Some("v1")) => return Ok(Self::Table(row)),
                (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("v1")) => {
                    return Ok(Self::Metadata);
                }
                _ => {}
            }
        }
        Err(ApiError::not_acceptable())
    }

    /// One object in this representation. `stored` is its stored text.
    pub(crate) fn object(self, kind: &Kind, stored: &Bytes, now: Timestamp) -> Bytes {
        match self {
            Self::Object if kind.converts() => {
                let mut value = parse(stored);
                events::to_served(kind, &mut value);
                value.to_string().into()
            }
            Self::Object => stored.clone(),
            Self::Metadata => metadata_only(stored).to_string().into(),
            Self::Table(row) => {
                let meta = ListMeta::default();
                self::table(kind, row, std::iter::once(stored), &meta, now)
                    .to_string()
                    .into()
            }
        }
    }

    /// A list in this representation.
    pub(crate) fn list(
        self,
        kind: &Kind,
        stored: &[Bytes],
        meta: &ListMeta,
        now: Timestamp,
    ) -> Bytes {
        let (list_kind, version) = match self {
            Self::Table(row) => {
                return table(kind, row, stored.iter(), meta, now)
                    .to_string()
                    .into();
            }
            Self::Metadata => (
                "PartialObjectMetadataList".to_owned(),
                "meta.k8s.io/v1".to_owned(),
            ),
            Self::Object => (format!("{}List", kind.kind), kind.api_version()),
        };
        // texts are joined, not parsed: most lists are served as they are stored
        let head = json!({"kind": list_kind, "apiVersion": version, "metadata": meta.json()});
        let mut body = head.to_string();
        body.pop();
        body.push_str(",\"items\":[");
        let mut body = body.into_bytes();
        for (index, item) in stored.iter().enumerate() {
            if index > 0 {
                body.push(b',');
            }
            body.extend_from_slice(&self.object(kind, item, now));
        }
        body.extend_from_slice(b"]}");
        body.into()
    }

    /// The object of a bookmark.
    pub(crate) fn bookmark(self, kind: &Kind, version: u64, initial_end: bool) -> Value {
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if initial_end {
            object::set(
                &mut metadata,
                "annotations",
                json!({"k8s.io/initial-events-end": "true"}),
            );
        }
        match self {
            Self::Table(_) => json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata, "columnDefinitions": [], "rows": []}),
            Self::Metadata => json!({"kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1", "metadata": metadata}),
            Self::Object => json!({"kind": kind.kind, "apiVersion": kind.api_version(),
                "metadata": metadata}),
        }
    }
}

impl ListMeta {
    fn json(&self) -> Value {
        let mut meta = json!({"resourceVersion": self.version.to_string()});
        if let Some(next) = &self.next {
            object::set(&mut meta, "continue", json!(next));
        }
        if let Some(remaining) = self.remaining.filter(|r| *r > 0) {
            object::set(&mut meta, "remainingItemCount", json!(remaining));
        }
        meta
    }
}

fn parse(stored: &Bytes) -> Value {
    // what is stored was written by us; an empty object is visible enough if it was not
    serde_json::from_slice(stored).unwrap_or_default()
}

/// Skips over spec and status without building them: a pool's status may have half a megabyte.
fn metadata_only(stored: &Bytes) -> Value {
    let metadata = serde_json::from_slice::<MetadataOnly>(stored).map(|m| m.metadata);
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata.unwrap_or_default()})
}

fn table<'a>(
    kind: &Kind,
    row: RowObject,
    stored: impl Iterator<Item = &'a Bytes>,
    meta: &ListMeta,
    now: Timestamp,
) -> Value {
    let columns: Vec<_> = kind
        .columns
        .iter()
        .map(|c| {
            let format = if c.name == "Name" { "name" } else { "" };
            json!({"name": c.name, "type": c.kind, "format": format, "description": c.name,
                "priority": c.priority})
        })
        .collect();
    let mut version = meta.version;
    let mut rows = Vec::new();
    for text in stored {
        let value = parse(text);
        if version == 0 {
            // a Table of one object carries that object's version
            version = object::text_at(&value, "/metadata/resourceVersion")
                .parse()
                .unwrap_or(0);
        }
        let cells: Vec<_> = kind.columns.iter().map(|c| c.value(&value, now)).collect();
        rows.push(json!({"cells": cells, "object": row_object(kind, row, text, value)}));
    }
    let meta = ListMeta {
        version,
        ..meta.clone()
    };
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta.json(),
        "columnDefinitions": columns, "rows": rows})
}

fn row_object(kind: &Kind, row: RowObject, text: &Bytes, mut value: Value) -> Value {
    match row {
        RowObject::None => Value::Null,
        RowObject::Metadata => metadata_only(text),
        RowObject::Object => {
            events::to_served(kind, &mut value);
            value
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    #[test]
    fn negotiation_takes_the_first_representation_it_can_make() {
        let cases = [
            ("", View::Object),
            ("*/*", View::Object),
            ("application/json, */*", View::Object),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                View::Table(RowObject::Metadata),
            ),
            (
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                View::Object,
            ),
            (
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                View::Metadata,
            ),
            (
                "application/vnd.kubernetes.protobuf, application/json",
                View::Object,
            ),
        ];
        for (accept, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(View::negotiate(&headers, "").unwrap(), expected, "{accept}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, "application/yaml".parse().unwrap());
        assert_eq!(View::negotiate(&headers, "").unwrap_err().code(), 406);
    }

    #[test]
    fn a_joined_list_is_the_list_it_says_it_is() {
        let kind = kinds::by_kind("SpiderIPPool").unwrap();
        let items = [
            Bytes::from_static(b"{\"metadata\":{\"name\":\"a\"},\"spec\":{}}"),
            Bytes::from_static(b"{}"),
        ];
        let meta = ListMeta {
            version: 9,
            next: Some("t".to_owned()),
            remaining: Some(3),
        };
        let list = parse(&View::Object.list(kind, &items, &meta, Timestamp::UNIX_EPOCH));
        let expected = json!({"kind": "SpiderIPPoolList",
            "apiVersion": "spiderpool.spidernet.io/v2beta1",
            "metadata": {"resourceVersion": "9", "continue": "t", "remainingItemCount": 3},
            "items": [{"metadata": {"name": "a"}, "spec": {}}, {}]});
        assert_eq!(list, expected);
        let partial = parse(&View::Metadata.list(kind, &items, &meta, Timestamp::UNIX_EPOCH));
        assert_eq!(partial["items"][0]["metadata"], json!({"name": "a"}));
        assert!(partial["items"][0].get("spec").is_none());
    }
}

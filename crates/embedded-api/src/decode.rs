//! First look at an object that came in: is it of the kind and name the path says, and could every
//! client decode it? An object that cannot be decoded would break each watch that meets it.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::admission::Cause;
use crate::kinds::{Family, Kind};
use crate::object;
use crate::status::ApiError;

/// Checks type, namespace and form; fills in `apiVersion`, `kind` and `metadata.namespace` where
/// they are absent. The object is in served form.
pub(crate) fn identify(kind: &Kind, namespace: &str, object: &mut Value) -> Result<(), ApiError> {
    if !object.is_object() {
        return Err(ApiError::bad_request("the body must be a JSON object"));
    }
    for (key, expected) in [
        ("apiVersion", kind.api_version()),
        ("kind", kind.kind.to_owned()),
    ] {
        let actual = object::text_at(object, &format!("/{key}"));
        if actual.is_empty() {
            object::set(object, key, json!(expected));
        } else if actual != expected {
            return Err(ApiError::bad_request(format!(
                "the {key} of the object ({actual}) does not match that of the path ({expected})"
            )));
        }
    }
    let actual = object::text_at(object, "/metadata/namespace");
    if !kind.namespaced {
        object::remove_meta(object, "namespace");
    } else if actual.is_empty() {
        object::set_meta(object, "namespace", json!(namespace));
    } else if actual != namespace {
        return Err(ApiError::bad_request(format!(
            "the namespace of the provided object does not match the namespace sent on the \
             request ({actual} is not {namespace})"
        )));
    }
    Ok(())
}

/// Whether clients can decode the object. It is in stored form.
pub(crate) fn check_form(kind: &Kind, object: &Value) -> Result<(), ApiError> {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    decodes::<ObjectMeta>(kind, &metadata)?;
    if kind.family == Family::Custom {
        return Ok(());
    }
    match kind.kind {
        "Pod" => decodes::<Pod>(kind, object),
        "Node" => decodes::<Node>(kind, object),
        "Namespace" => decodes::<Namespace>(kind, object),
        "Event" => decodes::<Event>(kind, object),
        "Lease" => decodes::<Lease>(kind, object),
        _ => Ok(()),
    }
}

fn decodes<T: DeserializeOwned>(kind: &Kind, value: &Value) -> Result<(), ApiError> {
    T::deserialize(value).map(drop).map_err(|error| {
        ApiError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: {error}",
            kind.kind, kind.version, kind.kind
        ))
    })
}

/// Names are DNS-1123 subdomains, namespaces labels (RFC 1123; lower case).
pub(crate) fn check_name(kind: &Kind, name: &str) -> Result<(), ApiError> {
    if name.is_empty() {
        let cause = Cause::required("metadata.name", "name or generateName is required");
        return Err(ApiError::invalid(kind, name, &[cause]));
    }
    let label = |part: &str| {
        let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        !part.is_empty()
            && part.bytes().all(inner)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    let (longest, fits) = match kind.kind {
        "Namespace" => (63, label(name)),
        _ => (253, name.split('.').all(label)),
    };
    if fits && name.len() <= longest {
        return Ok(());
    }
    let why = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
               '-' or '.', and must start and end with an alphanumeric character";
    let cause = Cause::invalid("metadata.name", &json!(name), why);
    Err(ApiError::invalid(kind, name, &[cause]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    #[test]
    fn identity_is_completed_or_refused() {
        let kind = kinds::by_kind("SpiderEndpoint").unwrap();
        let mut object = json!({"metadata": {"name": "a"}});
        identify(kind, "shop", &mut object).unwrap();
        assert_eq!(object["metadata"]["namespace"], "shop");
        assert_eq!(object["kind"], "SpiderEndpoint");
        for wrong in [
            json!({"kind": "Pod"}),
            json!({"metadata": {"namespace": "x"}}),
            json!([]),
        ] {
            assert_eq!(
                identify(kind, "shop", &mut wrong.clone())
                    .unwrap_err()
                    .code(),
                400
            );
        }
    }

    #[test]
    fn objects_no_client_can_decode_are_refused() {
        let pod = kinds::by_kind("Pod").unwrap();
        let pool = kinds::by_kind("SpiderIPPool").unwrap();
        let wrong = json!({"spec": {"containers": "none"}});
        assert_eq!(check_form(pod, &wrong).unwrap_err().code(), 400);
        assert!(check_form(pod, &json!({"spec": {"containers": []}})).is_ok());
        assert!(check_form(pool, &json!({"metadata": {"labels": {"a": 1}}})).is_err());
    }

    #[test]
    fn names() {
        let pool = kinds::by_kind("SpiderIPPool").unwrap();
        for good in ["a", "pool-1", "a.b-c.d0"] {
            assert!(check_name(pool, good).is_ok(), "{good}");
        }
        let long = "a".repeat(254);
        for bad in [
            "",
            "A",
            "a_b",
            "-a",
            "a-",
            "a..b",
            "a/b",
            "a\0b",
            long.as_str(),
        ] {
            assert_eq!(check_name(pool, bad).unwrap_err().code(), 422, "{bad}");
        }
        let namespace = kinds::by_kind("Namespace").unwrap();
        assert!(check_name(namespace, "a.b").is_err());
    }
}

//! `AdmissionReview` of `admission.k8s.io/v1`: what is asked, and how it is answered.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use spiderpool_api::names;
use spiderpool_ipam::admission::{FieldError, Op, Refusal};

/// The body of a call.
#[derive(Debug, Deserialize)]
pub struct Review {
    /// What is asked.
    pub request: Request,
}

/// What is asked.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Comes back in the answer.
    pub uid: String,
    /// `metadata.namespace`, also where the object does not name it yet.
    #[serde(default)]
    pub namespace: String,
    /// `metadata.name`; empty while it is being generated.
    #[serde(default)]
    pub name: String,
    /// CREATE, UPDATE, DELETE or CONNECT.
    pub operation: String,
    /// The object as it would be; null on DELETE.
    #[serde(default)]
    pub object: Value,
    /// The object as it is; null on CREATE.
    #[serde(default)]
    pub old_object: Value,
}

impl Request {
    /// `None` for what no rule is about.
    #[must_use]
    pub fn op(&self) -> Option<Op> {
        match self.operation.as_str() {
            "CREATE" => Some(Op::Create),
            "UPDATE" => Some(Op::Update),
            "DELETE" => Some(Op::Delete),
            _ => None,
        }
    }

    /// The object as it is.
    #[must_use]
    pub fn old(&self) -> Option<&Value> {
        Some(&self.old_object).filter(|object| !object.is_null())
    }

    /// The object as it would be.
    #[must_use]
    pub fn new_object(&self) -> Option<&Value> {
        Some(&self.object).filter(|object| !object.is_null())
    }
}

fn answer(uid: &str, mut response: Value) -> Value {
    if let Some(response) = response.as_object_mut() {
        response.insert("uid".to_owned(), json!(uid));
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

/// Goes on as it is.
#[must_use]
pub fn allowed(uid: &str) -> Value {
    answer(uid, json!({"allowed": true}))
}

/// Goes on as `new`, which was `old`.
///
/// # Errors
/// The patch cannot be written as JSON.
pub fn patched(
    uid: &str,
    old: &Value,
    new: &Value,
    warnings: &[String],
) -> serde_json::Result<Value> {
    let mut response = Map::from_iter([("allowed".to_owned(), json!(true))]);
    let patch = json_patch::diff(old, new);
    if !patch.0.is_empty() {
        let patch = STANDARD.encode(serde_json::to_vec(&patch)?);
        response.insert("patchType".to_owned(), json!("JSONPatch"));
        response.insert("patch".to_owned(), json!(patch));
    }
    if !warnings.is_empty() {
        response.insert("warnings".to_owned(), json!(warnings));
    }
    Ok(answer(uid, Value::Object(response)))
}

/// Does not go on. `qualified` is `Kind.group`, as the API server's own refusals begin.
#[must_use]
pub fn refused(uid: &str, kind: &str, name: &str, refusal: &Refusal) -> Value {
    let qualified = format!("{kind}.{}", names::GROUP);
    let (reason, message) = match refusal {
        Refusal::Invalid(errors) => {
            let shown = match errors.as_slice() {
                [single] => single.to_string(),
                several => {
                    let texts: Vec<String> = several.iter().map(ToString::to_string).collect();
                    format!("[{}]", texts.join(", "))
                }
            };
            (
                "Invalid",
                format!("{qualified} {name:?} is invalid: {shown}"),
            )
        }
        Refusal::Forbidden(why) => ("Forbidden", why.clone()),
        Refusal::AlreadyExists(why) => ("AlreadyExists", why.clone()),
    };
    let causes: Vec<Value> = match refusal {
        Refusal::Invalid(errors) => errors.iter().map(cause).collect(),
        _ => Vec::new(),
    };
    let status = json!({"status": "Failure", "code": refusal.status(), "reason": reason,
        "message": message, "details": {"name": name, "group": names::GROUP, "kind": kind,
            "causes": causes}});
    answer(uid, json!({"allowed": false, "status": status}))
}

fn cause(error: &FieldError) -> Value {
    json!({"reason": error.kind.reason(), "field": error.field, "message": error.detail()})
}

#[cfg(test)]
mod tests {
    use spiderpool_ipam::admission::FieldErrorKind;

    use super::*;

    #[test]
    fn a_patch_is_what_changed() {
        let old = json!({"spec": {"a": 1}});
        let same = patched("u", &old, &old, &[]).unwrap();
        assert_eq!(same["response"], json!({"uid": "u", "allowed": true}));
        let new = json!({"spec": {"a": 1, "b": 2}});
        let changed = patched("u", &old, &new, &["told".to_owned()]).unwrap();
        let patch = STANDARD
            .decode(changed["response"]["patch"].as_str().unwrap())
            .unwrap();
        let patch: Value = serde_json::from_slice(&patch).unwrap();
        assert_eq!(patch, json!([{"op": "add", "path": "/spec/b", "value": 2}]));
        assert_eq!(changed["response"]["warnings"], json!(["told"]));
    }

    #[test]
    fn refusals_read_as_the_api_servers_own() {
        let error = FieldError {
            field: "spec.ips".to_owned(),
            kind: FieldErrorKind::Forbidden,
            value: Value::Null,
            message: "overlaps IPPool q".to_owned(),
        };
        let said = refused("u", "SpiderIPPool", "p", &Refusal::Invalid(vec![error]));
        let status = &said["response"]["status"];
        assert_eq!(status["code"], 422);
        assert_eq!(
            status["message"],
            "SpiderIPPool.spiderpool.spidernet.io \"p\" is invalid: spec.ips: Forbidden: overlaps IPPool q"
        );
        assert_eq!(
            status["details"]["causes"],
            json!([{"reason": "FieldValueForbidden", "field": "spec.ips", "message": "Forbidden: overlaps IPPool q"}])
        );
        let said = refused(
            "u",
            "SpiderIPPool",
            "p",
            &Refusal::Forbidden("no".to_owned()),
        );
        assert_eq!(said["response"]["status"]["code"], 403);
    }
}

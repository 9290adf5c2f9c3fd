//! What the derive says and a user should not read, and what it cannot say.

use serde_json::{Value, json};

use crate::miscased::MISCASED;

/// Takes out what comes from Rust: `nullable` of every optional field, lists that default to
/// nothing, line breaks of doc comments. An API server drops an explicit null of a field that is not nullable,
/// so objects of writers that send nulls are read and stored alike.
pub(super) fn clean(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.get("nullable") == Some(&Value::Bool(true)) {
                map.remove("nullable");
            }
            if map.get("default").is_some_and(|value| *value == json!([])) {
                map.remove("default");
            }
            if let Some(Value::String(text)) = map.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            map.values_mut().for_each(clean);
        }
        Value::Array(list) => list.iter_mut().for_each(clean),
        _ => {}
    }
}

/// `disable` is the coordinator plugin's older word for `disabled`; both are accepted.
pub(super) fn add_older_mode(spec: &mut Value) {
    if let Some(modes) = spec
        .pointer_mut("/properties/mode/enum")
        .and_then(Value::as_array_mut)
    {
        modes.push(json!("disable"));
    }
}

/// Declares the wrong spellings of a kind.
pub(super) fn add_miscased(kind: &str, schema: &mut Value) {
    for known in MISCASED.iter().filter(|known| known.kind == kind) {
        let pointer = known.parent.replace('/', "/properties/") + "/properties";
        let Some(fields) = schema.pointer_mut(&pointer).and_then(Value::as_object_mut) else {
            continue;
        };
        let Some(right) = fields.get(known.right) else {
            continue;
        };
        let mut wrong = right.clone();
        if let Some(wrong) = wrong.as_object_mut() {
            wrong.remove("default");
            let text = format!("Deprecated: a wrong spelling of {}.", known.right);
            wrong.insert("description".to_owned(), json!(text));
        }
        fields.insert(known.wrong.to_owned(), wrong);
    }
}

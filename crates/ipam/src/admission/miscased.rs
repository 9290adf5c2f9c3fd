//! Wrong spellings of fields, moved to the right ones with a warning (spec api 8.1).

use serde_json::{Map, Value};
use spiderpool_api::miscased::{MISCASED, Miscased};

use super::Kind;

/// Moves all of a kind; one warning each.
pub(super) fn move_all(kind: Kind, object: &mut Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    for known in MISCASED.iter().filter(|known| known.kind == kind.name()) {
        let before = old.and_then(|old| old.pointer(known.parent)?.get(known.right));
        let Some(parent) = object
            .pointer_mut(known.parent)
            .and_then(Value::as_object_mut)
        else {
            continue;
        };
        warnings.extend(move_one(known, parent, before));
    }
    warnings
}

fn move_one(
    known: &Miscased,
    parent: &mut Map<String, Value>,
    before: Option<&Value>,
) -> Option<String> {
    let Miscased { wrong, right, .. } = *known;
    let value = parent.remove(wrong).filter(|value| !value.is_null())?;
    let path = known.parent.trim_start_matches('/').replace('/', ".");
    // What this writer did not set: it was stored so already, or the schema filled it in.
    let unset = |set: &Value| set.is_null() || Some(set) == before || is_default(right, set);
    if parent.get(right).is_none_or(unset) {
        parent.insert(right.to_owned(), value);
        return Some(format!(
            "{path}.{wrong} is misspelt and was taken as {path}.{right}"
        ));
    }
    Some(format!(
        "{path}.{wrong} is misspelt and was ignored: {path}.{right} is set as well"
    ))
}

/// Fields of the list for which the schema has a default.
fn is_default(right: &str, value: &Value) -> bool {
    match right {
        "podRPFilter" => *value == 0,
        "disableIPAM" => *value == false,
        _ => false,
    }
}

//! Pod and Namespace annotations as typed values (spec ipam section 2). Names are exact, unknown
//! fields are ignored; every error names the annotation, the item and the value.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use spiderpool_api::names;

use crate::facts::NamespaceFacts;

mod automatic;
mod choice;
mod routes;

pub use automatic::refuse_auto_pool;
pub use choice::{PoolChoice, parse_ippool, parse_ippools};
pub use routes::{parse_routes, routes_of};

use choice::check_names;

/// Characters of a value that an error shows at most.
const SHOWN: usize = 200;

/// What is wrong with an annotation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationError {
    /// Not the JSON it should be.
    #[error(
        "wrong input: annotation {key} is not the JSON it should be: {why}; its value is {value}"
    )]
    Json {
        /// Annotation key.
        key: &'static str,
        /// Parser's reason with line and column.
        why: String,
        /// The value, shortened.
        value: String,
    },
    /// One item is wrong.
    #[error("wrong input: annotation {key}: {item} {why}")]
    Item {
        /// Annotation key.
        key: &'static str,
        /// Which item, with its value.
        item: String,
        /// What is wrong with it.
        why: String,
    },
    /// Automatic pools.
    #[error(
        "wrong input: annotation {key}: automatic pools are not available in this release; name pools with {}",
        names::POD_IPPOOL
    )]
    AutoPool {
        /// Annotation key.
        key: &'static str,
    },
}

impl AnnotationError {
    pub(crate) fn item(key: &'static str, item: &str, why: &str) -> Self {
        Self::Item {
            key,
            item: item.to_owned(),
            why: why.to_owned(),
        }
    }
}

/// A value as errors show it: on one line, not too long.
fn shown(value: &str) -> String {
    if value.is_empty() {
        return "\"\"".to_owned();
    }
    let one_line = |c: char| if c.is_control() { ' ' } else { c };
    let mut text: String = value.chars().map(one_line).take(SHOWN).collect();
    if text.len() < value.len() {
        text.push_str("...");
    }
    text
}

fn json<T: DeserializeOwned>(key: &'static str, text: &str) -> Result<T, AnnotationError> {
    serde_json::from_str(text).map_err(|error| AnnotationError::Json {
        key,
        why: error.to_string(),
        value: shown(text),
    })
}

/// One object. Serde would take a list for one as well, field by field.
fn json_object<T: DeserializeOwned>(key: &'static str, text: &str) -> Result<T, AnnotationError> {
    let map: Map<String, Value> = json(key, text)?;
    typed(key, format!("value {}", shown(text)), Value::Object(map)).map(|(_, object)| object)
}

/// A list whose items are typed one by one, so that an error names the item. Each comes with how
/// to name it.
fn json_items<T: DeserializeOwned>(
    key: &'static str,
    text: &str,
) -> Result<Vec<(String, T)>, AnnotationError> {
    let items: Vec<Value> = json(key, text)?;
    let numbered = items.into_iter().enumerate();
    numbered
        .map(|(index, value)| typed(key, item_name(index, &value), value))
        .collect()
}

/// The same where every item has to be an object.
pub(crate) fn json_objects<T: DeserializeOwned>(
    key: &'static str,
    text: &str,
) -> Result<Vec<(String, T)>, AnnotationError> {
    let items: Vec<Value> = json(key, text)?;
    if let Some((index, value)) = items.iter().enumerate().find(|(_, item)| !item.is_object()) {
        let item = item_name(index, value);
        return Err(AnnotationError::item(
            key,
            &item,
            "is wrong: expected an object",
        ));
    }
    json_items(key, text)
}

fn item_name(index: usize, value: &Value) -> String {
    format!("item {index} {}", shown(&value.to_string()))
}

fn typed<T: DeserializeOwned>(
    key: &'static str,
    item: String,
    value: Value,
) -> Result<(String, T), AnnotationError> {
    match serde_json::from_value(value) {
        Ok(typed) => Ok((item, typed)),
        Err(error) => {
            let why = format!("is wrong: {error}");
            Err(AnnotationError::item(key, &item, &why))
        }
    }
}

/// Default pools of a Namespace; both lists empty without the annotations.
///
/// # Errors
/// [`AnnotationError`] when one is malformed.
pub fn namespace_defaults(namespace: &NamespaceFacts) -> Result<PoolChoice, AnnotationError> {
    let list = |key: &'static str| match namespace.annotations.get(key) {
        None => Ok(Vec::new()),
        Some(text) if text.trim() == "null" => Ok(Vec::new()),
        Some(text) => {
            let items: Vec<(String, String)> = json_items(key, text)?;
            let names: Vec<String> = items.into_iter().map(|(_, name)| name).collect();
            check_names(key, &format!("value {}", shown(text)), &names)?;
            Ok(names)
        }
    };
    Ok(PoolChoice {
        ipv4: list(names::NAMESPACE_IPV4_POOLS)?,
        ipv6: list(names::NAMESPACE_IPV6_POOLS)?,
        ..PoolChoice::default()
    })
}

#[cfg(test)]
mod tests;

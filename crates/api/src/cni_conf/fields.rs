//! Access to a JSON object whose keys match in any case and whose mistakes are named. Pure.

use serde_json::{Map, Value};

use super::ConfError;

/// An object whose keys match in any case; an exact match wins. The CNI binary reads its own few
/// keys through it, so that both sides understand a configuration alike.
pub struct Fields<'a> {
    path: &'static str,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// Keys of `map`; `path` with its trailing dot leads their names in errors.
    #[must_use]
    pub fn new(path: &'static str, map: &'a Map<String, Value>) -> Self {
        Self { path, map }
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).or_else(|| {
            let same = |(name, value)| (str::eq_ignore_ascii_case(name, key)).then_some(value);
            self.map
                .iter()
                .map(|(name, value)| (name.as_str(), value))
                .find_map(same)
        })
    }

    /// The error of a value that cannot be, see [`ConfError::Value`].
    #[must_use]
    pub fn value(&self, key: &str, reason: &str) -> ConfError {
        ConfError::Value {
            key: format!("{}{key}", self.path),
            reason: reason.to_owned(),
        }
    }

    pub(super) fn wrong(&self, key: &str, expected: &'static str) -> ConfError {
        let mut found = self.get(key).map(Value::to_string).unwrap_or_default();
        if found.len() > 80 {
            found = format!("{}...", found.chars().take(80).collect::<String>());
        }
        ConfError::Type {
            key: format!("{}{key}", self.path),
            expected,
            found,
        }
    }

    /// An object; `None` when absent or null.
    ///
    /// # Errors
    /// [`ConfError::Type`].
    pub fn object(&self, key: &str) -> Result<Option<&'a Map<String, Value>>, ConfError> {
        match self.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(_) => Err(self.wrong(key, "an object")),
        }
    }

    /// A string; `None` when absent or null.
    ///
    /// # Errors
    /// [`ConfError::Type`].
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, ConfError> {
        match self.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(key, "a string")),
        }
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>, ConfError> {
        match self.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<_>>()
                .ok_or_else(|| self.wrong(key, "a list of strings")),
            Some(_) => Err(self.wrong(key, "a list of strings")),
        }
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool, ConfError> {
        match self.get(key) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.wrong(key, "true or false")),
        }
    }

    /// A whole number, also as a string of digits; `None` when absent or null.
    ///
    /// # Errors
    /// [`ConfError::Type`].
    pub fn number(&self, key: &str) -> Result<Option<i64>, ConfError> {
        match self.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Number(number)) => number
                .as_i64()
                .map(Some)
                .ok_or_else(|| self.wrong(key, "a whole number")),
            Some(Value::String(text)) => text
                .trim()
                .parse()
                .map(Some)
                .map_err(|_| self.wrong(key, "a whole number")),
            Some(_) => Err(self.wrong(key, "a whole number")),
        }
    }

    pub(super) fn in_range(
        &self,
        key: &str,
        value: i64,
        low: i64,
        high: i64,
    ) -> Result<u32, ConfError> {
        match u32::try_from(value) {
            Ok(number) if (low..=high).contains(&value) => Ok(number),
            _ => Err(self.value(key, &format!("{value} is not in {low}-{high}"))),
        }
    }
}

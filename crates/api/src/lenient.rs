//! Reading what other writers left behind: an explicit null where a list or map belongs.

use serde::{Deserialize, Deserializer};

/// Null counts as absent, as an API server treats it where a field is not nullable.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

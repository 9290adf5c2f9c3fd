//! Key of an object in the store: collection, namespace, name, ordered in that order.

use std::borrow::Borrow;
use std::sync::Arc;

/// Parts are joined by NUL, which none of them can contain: names are DNS labels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey(Arc<str>);

impl ObjectKey {
    /// Key of one object; `namespace` is empty for cluster-scoped kinds.
    pub(crate) fn new(collection: &str, namespace: &str, name: &str) -> Self {
        Self(format!("{collection}\0{namespace}\0{name}").into())
    }

    /// Key as it was stored.
    pub(crate) fn stored(text: &str) -> Self {
        Self(text.into())
    }

    /// What all keys of a collection, or of one namespace in it, begin with.
    pub(crate) fn prefix(collection: &str, namespace: Option<&str>) -> String {
        namespace.map_or_else(
            || format!("{collection}\0"),
            |namespace| format!("{collection}\0{namespace}\0"),
        )
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn collection(&self) -> &str {
        self.part(0)
    }

    pub(crate) fn namespace(&self) -> &str {
        self.part(1)
    }

    pub(crate) fn name(&self) -> &str {
        self.part(2)
    }

    fn part(&self, index: usize) -> &str {
        self.0.splitn(3, '\0').nth(index).unwrap_or_default()
    }
}

impl Borrow<str> for ObjectKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

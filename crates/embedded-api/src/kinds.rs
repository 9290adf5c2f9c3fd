//! The kinds this server knows: names, scope, subresource and selectable fields. Static; nothing
//! else in the crate spells a group, a plural or a short name.

use serde_json::Value;

use crate::columns::Column;
use crate::kind_table::KINDS;
use crate::object;

/// A field that a field selector may name, and where it is in the stored object.
#[derive(Debug)]
pub(crate) struct SelectableField {
    /// Name in a `fieldSelector`.
    pub(crate) label: &'static str,
    /// JSON pointer into the stored form.
    pub(crate) pointer: &'static str,
}

/// How the server treats objects of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// A custom resource: unknown fields are pruned, PUT needs a resourceVersion, generation counts.
    Custom,
    /// A kind of Kubernetes itself: kept as sent if it decodes, PUT may be unconditional.
    Core,
}

/// One served resource.
#[derive(Debug)]
pub struct Kind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    /// Whether `/status` exists and plain writes leave the status alone.
    pub(crate) status: bool,
    /// Whether `metadata.generation` counts changes of the desired state.
    pub(crate) generation: bool,
    pub(crate) family: Family,
    /// Name of the collection in the store; both Events APIs share one.
    pub(crate) collection: &'static str,
    pub(crate) fields: &'static [SelectableField],
    pub(crate) columns: &'static [Column],
}

impl Kind {
    /// `v1` or `group/version`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The kind, for example `SpiderIPPool`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.kind
    }

    /// `plural.group` as error texts have it.
    pub(crate) fn qualified_plural(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// `Kind.group` as error texts have it.
    pub(crate) fn qualified_kind(&self) -> String {
        if self.group.is_empty() {
            self.kind.to_owned()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }

    /// Whether objects of this kind are stored in another API's form.
    pub(crate) fn converts(&self) -> bool {
        self.group == "events.k8s.io"
    }

    /// Labels and selectable fields of an object in stored form.
    pub(crate) fn facts(&self, stored: &Value) -> Facts {
        let labels = object::string_map(stored, "/metadata/labels");
        let fields = self
            .fields
            .iter()
            .map(|field| (field.label, object::text_at(stored, field.pointer)))
            .collect();
        Facts { labels, fields }
    }
}

/// What selectors look at, kept beside each object so that a watch need not parse it.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) labels: std::collections::BTreeMap<String, String>,
    pub(crate) fields: Vec<(&'static str, String)>,
}

/// The kind behind a path, if served.
pub(crate) fn by_plural(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    KINDS
        .iter()
        .find(|k| k.group == group && k.version == version && k.plural == plural)
}

/// The kind whose form a collection is stored in.
pub(crate) fn by_collection(collection: &str) -> Option<&'static Kind> {
    KINDS
        .iter()
        .find(|k| k.collection == collection && !k.converts())
}

/// Any kind by its name; both Events APIs answer to `Event`, the stored form first.
pub(crate) fn by_kind(kind: &str) -> Option<&'static Kind> {
    all().iter().find(|k| k.kind == kind)
}

/// Every kind.
pub(crate) fn all() -> &'static [Kind] {
    KINDS
}

/// Every (group, version) in discovery order.
pub(crate) fn group_versions() -> Vec<(&'static str, &'static str)> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    for kind in all() {
        if !found.contains(&(kind.group, kind.version)) {
            found.push((kind.group, kind.version));
        }
    }
    found
}

/// Kinds of one group and version.
pub(crate) fn in_group(group: &str, version: &str) -> impl Iterator<Item = &'static Kind> {
    KINDS
        .iter()
        .filter(move |k| k.group == group && k.version == version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_events_apis_share_one_collection_stored_in_the_core_form() {
        let core = by_plural("", "v1", "events").unwrap();
        let events = by_plural("events.k8s.io", "v1", "events").unwrap();
        assert_eq!(core.collection, events.collection);
        assert_eq!(by_collection("events").unwrap().group, "");
        assert!(events.converts() && !core.converts());
    }

    #[test]
    fn only_kinds_with_a_status_of_their_own_have_the_subresource() {
        let with: Vec<_> = all().iter().filter(|k| k.status).map(|k| k.kind).collect();
        let expected = [
            "Namespace",
            "Node",
            "Pod",
            "SpiderIPPool",
            "SpiderSubnet",
            "SpiderCoordinator",
        ];
        assert_eq!(with, expected);
    }

    #[test]
    fn error_texts_name_the_group_only_when_there_is_one() {
        let pool = by_kind("SpiderIPPool").unwrap();
        assert_eq!(
            pool.qualified_plural(),
            "spiderippools.spiderpool.spidernet.io"
        );
        assert_eq!(by_kind("Pod").unwrap().qualified_plural(), "pods");
        assert_eq!(pool.api_version(), "spiderpool.spidernet.io/v2beta1");
    }
}

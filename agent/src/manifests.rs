//! The manifests folder of standalone mode: `<dir>/manifests/*.yaml` are applied at start and
//! when a file's content changes; a removed file deletes nothing (design section 4).
//!
//! Owns reading the folder and the three-way merge; writes through the API like anybody else, so
//! admission applies. What is not accepted is logged and tried again with the next look.

mod merge;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::{self, Scope};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use spiderpool_api::names;
use spiderpool_controller::regular_file;
use tokio_util::sync::CancellationToken;

use crate::flow::error::full;
use crate::store::kube::words;

/// Between two looks at the folder.
const LOOK: Duration = Duration::from_secs(2);
/// Largest file we read.
const MAX_FILE: u64 = 16 << 20;
/// `fieldManager` of our writes.
const MANAGER: &str = "manifests";

/// A document of a file that could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file cannot be read.
    #[error("cannot be read")]
    Read(#[source] std::io::Error),
    /// The file is not YAML.
    #[error("is not YAML: {0}")]
    Yaml(String),
    /// A document names no kind or no name.
    #[error("document {0} has no apiVersion, kind or metadata.name")]
    Unnamed(usize),
    /// The API does not serve the kind.
    #[error("{what}: the API serves no such kind")]
    Kind {
        /// The object.
        what: String,
        /// Its words.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The API refused the object.
    #[error("{what} was not accepted")]
    Refused {
        /// The object.
        what: String,
        /// Its words.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Follows the folder.
pub struct Manifests {
    client: Client,
    dir: PathBuf,
    files: BTreeMap<PathBuf, Seen>,
}

struct Seen {
    stamp: Option<(SystemTime, u64)>,
    complaint: Option<String>,
}

impl Manifests {
    /// Of `dir`; a folder that does not exist is an empty one.
    #[must_use]
    pub fn new(client: Client, dir: PathBuf) -> Self {
        Self {
            client,
            dir,
            files: BTreeMap::new(),
        }
    }

    /// Follows the folder until told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            self.look().await;
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// One look: applies the files that changed since the last, and those that failed in it.
    pub async fn look(&mut self) {
        for path in list(&self.dir) {
            let stamp = stamp(&path);
            if let Some(seen) = self.files.get(&path)
                && seen.stamp == stamp
                && seen.complaint.is_none()
            {
                continue;
            }
            let complaint = apply_file(&self.client, &path).await;
            let before = self
                .files
                .get(&path)
                .and_then(|seen| seen.complaint.clone());
            if let Some(text) = complaint
                .as_ref()
                .filter(|text| Some(*text) != before.as_ref())
            {
                tracing::warn!(file = %path.display(), "{text}");
            }
            self.files.insert(path, Seen { stamp, complaint });
        }
    }
}

/// YAML and JSON files in name order; hidden files (editors, half-written ones) are not ours.
fn list(dir: &Path) -> Vec<PathBuf> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::debug!(dir = %dir.display(), error = %error, "no manifests folder");
            return Vec::new();
        }
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let hidden = path
                .file_name()
                .is_none_or(|name| name.to_string_lossy().starts_with('.'));
            let kind = path.extension().and_then(|ext| ext.to_str());
            !hidden && matches!(kind, Some("yaml" | "yml" | "json"))
        })
        .collect();
    files.sort();
    files
}

fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// Applies all documents of a file; the complaint lists each that failed.
async fn apply_file(client: &Client, path: &Path) -> Option<String> {
    let documents = match read(path) {
        Ok(documents) => documents,
        Err(error) => return Some(full(&error)),
    };
    let mut complaints = Vec::new();
    for (index, document) in documents.iter().enumerate() {
        if document.is_null() {
            continue;
        }
        match apply(client, index + 1, document).await {
            Ok(None) => {}
            Ok(Some(done)) => tracing::info!(file = %path.display(), "{done}"),
            Err(error) => complaints.push(full(&error)),
        }
    }
    (!complaints.is_empty()).then(|| complaints.join("; "))
}

fn read(path: &Path) -> Result<Vec<Value>, ManifestError> {
    let text = regular_file::read(path, MAX_FILE)
        .and_then(|text| String::from_utf8(text).map_err(std::io::Error::other))
        .map_err(ManifestError::Read)?;
    // the quoted lines would be several in the log
    serde_saphyr::from_multiple(&text)
        .map_err(|error| ManifestError::Yaml(error.without_snippet().to_string()))
}

/// Brings one object in line with its manifest. `None`: nothing had to change.
async fn apply(
    client: &Client,
    index: usize,
    manifest: &Value,
) -> Result<Option<String>, ManifestError> {
    let object: DynamicObject =
        serde_json::from_value(manifest.clone()).map_err(|_| ManifestError::Unnamed(index))?;
    let (Some(types), Some(name)) = (&object.types, &object.metadata.name) else {
        return Err(ManifestError::Unnamed(index));
    };
    let what = format!("{} {name}", types.kind);
    let kind = GroupVersionKind::try_from(types).map_err(|_| ManifestError::Unnamed(index))?;
    let found = discovery::pinned_kind(client, &kind).await;
    let (resource, capabilities) = found.map_err(|error| ManifestError::Kind {
        what: what.clone(),
        source: words(error),
    })?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
    };
    let done = write(&api, name, manifest)
        .await
        .map_err(|error| ManifestError::Refused {
            what: what.clone(),
            source: words(error),
        })?;
    Ok(done.map(|verb| format!("{what} {verb}")))
}

async fn write(
    api: &Api<DynamicObject>,
    name: &str,
    manifest: &Value,
) -> Result<Option<&'static str>, kube::Error> {
    let text = manifest.to_string();
    let wanted = merge::with_annotation(manifest, names::LAST_MANIFEST, &text);
    let Some(current) = api.get_opt(name).await? else {
        let object = serde_json::from_value(wanted).map_err(kube::Error::SerdeError)?;
        let params = PostParams {
            field_manager: Some(MANAGER.into()),
            ..PostParams::default()
        };
        api.create(&params, &object).await?;
        return Ok(Some("created"));
    };
    let last = current.annotations().get(names::LAST_MANIFEST);
    if last == Some(&text) {
        // Applied before; what others changed since is theirs.
        return Ok(None);
    }
    let last = last
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or(Value::Null);
    let patch = merge::three_way(&last, &wanted);
    let params = PatchParams {
        field_manager: Some(MANAGER.into()),
        ..PatchParams::default()
    };
    api.patch(name, &params, &Patch::Merge(&patch)).await?;
    Ok(Some("changed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_in_a_file_is_told_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.yaml");
        for text in ["kind: [\n", "a: 1\n  b: 2\nc: {\n"] {
            std::fs::write(&path, text).unwrap();
            let told = full(&read(&path).unwrap_err());
            assert!(told.starts_with("is not YAML: "), "{told}");
            assert!(told.contains("line ") && !told.contains('\n'), "{told}");
        }
    }
}

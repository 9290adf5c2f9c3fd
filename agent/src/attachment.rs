//! Attachment files: what this node gave to which sandbox. They outlive the agent and serve late
//! DELs, CHECK, GC and the search for the holder of a VLAN; the pool record stays the only proof
//! of ownership.
//!
//! Owns the folder `attachments`. A file is written before the link it describes and removed
//! after the DEL. Writers of one (container, interface) must exclude each other; flows hold that
//! lock. The index in memory answers every question; the folder is read once, at start.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use spiderpool_api::value::{IfName, Mac, VlanId};
use spiderpool_controller::regular_file;
use spiderpool_netops::netns::NetnsId;

use crate::files::{self, Durable};

/// Longest container id we take: with interface and suffix it must fit a file name of 255 bytes.
const MAX_CONTAINER_ID: usize = 200;
/// Largest file we read; ours have about one kilobyte.
const MAX_FILE: u64 = 1 << 20;

/// One NIC of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// Sandbox.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// Interface in the Pod.
    pub ifname: IfName,
    /// Network name of the configuration.
    #[serde(default)]
    pub network: String,
    /// Plugin that was called.
    pub plugin: String,
    /// UID of the Pod object.
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    /// Namespace of the Pod.
    pub pod_namespace: String,
    /// Name of the Pod.
    pub pod_name: String,
    /// Namespace file as the runtime named it.
    #[serde(default)]
    pub netns: PathBuf,
    /// Identity of that namespace: the path may be reused by another sandbox.
    #[serde(rename = "netnsID", default, skip_serializing_if = "Option::is_none")]
    pub netns_id: Option<NetnsId>,
    /// Parent NIC; absent for the IPAM plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<IfName>,
    /// VLAN id on the parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanId>,
    /// MAC of the sub-ENI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Addresses and the pools they come from.
    pub ips: Vec<AttachedIp>,
    /// When it was written, RFC 3339; for people, order is by `seq`.
    #[serde(default)]
    pub attached_at: String,
    /// Order among the files of this node; the greater is the newer. Wall clocks jump.
    #[serde(default)]
    pub seq: u64,
}

/// One address of an attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedIp {
    /// With the prefix length of the pool's subnet.
    pub address: IpNet,
    /// Pool.
    pub pool: String,
    /// Gateway of the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

impl Attachment {
    /// Key of the file.
    #[must_use]
    pub fn key(&self) -> AttachmentKey {
        AttachmentKey {
            container_id: self.container_id.clone(),
            ifname: self.ifname.clone(),
        }
    }
}

/// (container, interface): what a CNI call names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AttachmentKey {
    container_id: String,
    ifname: IfName,
}

/// A container id that cannot be one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "CNI_CONTAINERID {0:?} is not 1-200 letters, digits, '_', '.' or '-' that start with a letter or digit"
)]
pub struct ContainerIdError(String);

impl AttachmentKey {
    /// Checks the container id (CNI SPEC.md 1.1.0, "Parameters"), so that it can't leave the folder.
    ///
    /// # Errors
    /// [`ContainerIdError`].
    pub fn new(container_id: &str, ifname: IfName) -> Result<Self, ContainerIdError> {
        let legal = container_id.len() <= MAX_CONTAINER_ID
            && container_id
                .bytes()
                .next()
                .is_some_and(|first| first.is_ascii_alphanumeric())
            && container_id
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
        if !legal {
            let shown = container_id.chars().take(MAX_CONTAINER_ID).collect();
            return Err(ContainerIdError(shown));
        }
        Ok(Self {
            container_id: container_id.to_owned(),
            ifname,
        })
    }

    /// Sandbox.
    #[must_use]
    pub fn container_id(&self) -> &str {
        &self.container_id
    }

    /// Interface.
    #[must_use]
    pub fn ifname(&self) -> &IfName {
        &self.ifname
    }

    /// `<containerID>-<ifname>.json`. A '-' of the interface is escaped, else `a` + `b-c` and
    /// `a-b` + `c` would share a file.
    #[must_use]
    pub fn file_name(&self) -> String {
        let ifname = self.ifname.as_str().replace('%', "%25").replace('-', "%2d");
        format!("{}-{ifname}.json", self.container_id)
    }
}

/// An attachment file could not be written or removed. The answer is code 5.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} attachment file {}", path.display())]
pub struct AttachmentError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// The files of this node.
#[derive(Debug)]
pub struct Attachments {
    dir: PathBuf,
    index: Mutex<Index>,
}

#[derive(Debug, Default)]
struct Index {
    files: HashMap<AttachmentKey, Attachment>,
    last_seq: u64,
}

impl Attachments {
    /// Reads the folder; blocks. A file that cannot be understood is left, logged and skipped.
    ///
    /// # Errors
    /// [`AttachmentError`] when the folder itself can't be read.
    pub fn open(dir: &Path) -> Result<Self, AttachmentError> {
        let failed = |source| AttachmentError {
            what: "list",
            path: dir.to_owned(),
            source,
        };
        let mut index = Index::default();
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with('.') {
                // A write that a crash cut short: nothing refers to it.
                if let Err(error) = std::fs::remove_file(&path) {
                    tracing::warn!(path = %path.display(), %error, "cannot remove an unfinished attachment file");
                }
            } else if name.ends_with(".json") {
                match read(&path) {
                    Ok(attachment) => index.add(attachment),
                    Err(error) => {
                        tracing::warn!(path = %path.display(), error, "attachment file skipped");
                    }
                }
            }
        }
        Ok(Self {
            dir: dir.to_owned(),
            index: Mutex::new(index),
        })
    }

    /// Writes the file, replacing an older one of the same key, and makes it the newest.
    ///
    /// # Errors
    /// [`AttachmentError`]; the older file is then still there.
    pub async fn put(&self, mut attachment: Attachment) -> Result<(), AttachmentError> {
        attachment.seq = self.index().next_seq();
        let key = attachment.key();
        let failed = |source| AttachmentError {
            what: "write",
            path: self.dir.join(key.file_name()),
            source,
        };
        let text = serde_json::to_vec(&attachment).map_err(io::Error::from);
        let text = text.map_err(failed)?;
        let mut written = self.write(&key, text.clone()).await;
        match written.as_ref().map_err(io::Error::kind) {
            // Somebody cleaned the folder of the runtime's files up; ADDs must go on.
            Err(io::ErrorKind::NotFound) => make_folder(&self.dir).await.map_err(failed)?,
            // Nobody of ours makes folders here; ADDs must go on.
            Err(io::ErrorKind::IsADirectory) => {
                let aside = self.set_folders_aside(&key, attachment.seq).await;
                aside.map_err(failed)?;
            }
            _ => {
                written.map_err(failed)?;
                self.index().files.insert(key, attachment);
                return Ok(());
            }
        }
        written = self.write(&key, text).await;
        written.map_err(failed)?;
        self.index().files.insert(key, attachment);
        Ok(())
    }

    /// Removes the file; gone already is success.
    ///
    /// # Errors
    /// [`AttachmentError`].
    pub async fn remove(&self, key: &AttachmentKey) -> Result<(), AttachmentError> {
        let path = self.dir.join(key.file_name());
        match files::remove(&path).await {
            Err(source) if source.kind() == io::ErrorKind::IsADirectory => {
                tracing::warn!(path = %path.display(), "a folder has the name of an attachment file and is left");
            }
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(AttachmentError {
                    what: "remove",
                    path,
                    source,
                });
            }
            _ => {}
        }
        self.index().files.remove(key);
        Ok(())
    }

    /// The file of a sandbox's NIC.
    #[must_use]
    pub fn get(&self, key: &AttachmentKey) -> Option<Attachment> {
        self.index().files.get(key).cloned()
    }

    /// The newest file of a Pod's NIC, over all its sandboxes.
    #[must_use]
    pub fn newest(&self, pod_uid: &str, ifname: &IfName) -> Option<Attachment> {
        self.select(|file| file.pod_uid == pod_uid && file.ifname == *ifname)
            .into_iter()
            .next()
    }

    /// Files that `wanted` accepts, newest first.
    #[must_use]
    pub fn select(&self, wanted: impl Fn(&Attachment) -> bool) -> Vec<Attachment> {
        let index = self.index();
        let mut found: Vec<_> = index
            .files
            .values()
            .filter(|file| wanted(file))
            .cloned()
            .collect();
        found.sort_by_key(|file| std::cmp::Reverse(file.seq));
        found
    }

    async fn write(&self, key: &AttachmentKey, text: Vec<u8>) -> io::Result<()> {
        let [unfinished, path] = self.paths(key);
        files::replace(&path, &unfinished, text, Durable::No).await
    }

    fn paths(&self, key: &AttachmentKey) -> [PathBuf; 2] {
        let name = key.file_name();
        [self.dir.join(format!(".{name}")), self.dir.join(name)]
    }

    /// Renames folders that have the names of a file; `seq` is in no name yet.
    async fn set_folders_aside(&self, key: &AttachmentKey, seq: u64) -> io::Result<()> {
        let aside = self.dir.join(format!("{}.bad-{seq}", key.file_name()));
        for path in self.paths(key) {
            if files::is_folder(&path).await? {
                tracing::warn!(path = %path.display(), aside = %aside.display(), "a folder has the name of an attachment file and is set aside");
                files::rename(&path, &aside).await?;
            }
        }
        Ok(())
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    fn add(&mut self, attachment: Attachment) {
        self.last_seq = self.last_seq.max(attachment.seq);
        self.files.insert(attachment.key(), attachment);
    }

    fn next_seq(&mut self) -> u64 {
        self.last_seq += 1;
        self.last_seq
    }
}

async fn make_folder(dir: &Path) -> io::Result<()> {
    tracing::warn!(dir = %dir.display(), "the folder of attachment files is gone and is made again");
    files::make_dir(dir).await
}

/// The text says why a file cannot be used.
fn read(path: &Path) -> Result<Attachment, String> {
    let text = regular_file::read(path, MAX_FILE).map_err(|error| error.to_string())?;
    let attachment: Attachment =
        serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let key = AttachmentKey::new(&attachment.container_id, attachment.ifname.clone())
        .map_err(|error| error.to_string())?;
    if path.file_name().and_then(|name| name.to_str()) != Some(&key.file_name()) {
        return Err(format!("its content belongs to {}", key.file_name()));
    }
    Ok(attachment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(container: &str, ifname: &str) -> Attachment {
        Attachment {
            container_id: container.into(),
            ifname: ifname.parse().unwrap(),
            network: "lab".into(),
            plugin: "eni-vlan".into(),
            pod_uid: "u-1".into(),
            pod_namespace: "shop".into(),
            pod_name: "web-0".into(),
            netns: "/var/run/netns/a".into(),
            netns_id: Some(NetnsId { dev: 4, inode: 9 }),
            master: Some("eth1".parse().unwrap()),
            vlan: Some(VlanId::try_from(301).unwrap()),
            mac: Some("fa:16:3e:00:01:64".parse().unwrap()),
            ips: vec![],
            attached_at: String::new(),
            seq: 0,
        }
    }

    #[tokio::test]
    async fn files_survive_a_restart_and_order_by_age() {
        let dir = tempfile::tempdir().unwrap();
        let files = Attachments::open(dir.path()).unwrap();
        files.put(attachment("c-9", "net1")).await.unwrap();
        files.put(attachment("c-1", "net1")).await.unwrap();
        files.put(attachment("c-1", "eth0")).await.unwrap();
        let files = Attachments::open(dir.path()).unwrap();
        let newest = files.newest("u-1", &"net1".parse().unwrap()).unwrap();
        assert_eq!(newest.container_id, "c-1");
        files.put(attachment("c-9", "net1")).await.unwrap();
        let newest = files.newest("u-1", &"net1".parse().unwrap()).unwrap();
        assert_eq!(newest.container_id, "c-9");
        files.remove(&newest.key()).await.unwrap();
        files.remove(&newest.key()).await.unwrap();
        assert_eq!(files.get(&newest.key()), None);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[tokio::test]
    async fn what_a_full_disk_cuts_short_goes_away() {
        let dir = tempfile::tempdir().unwrap();
        let files = Attachments::open(dir.path()).unwrap();
        let unfinished = dir.path().join(".c-1-eth0.json");
        std::os::unix::fs::symlink("/dev/full", unfinished).unwrap();
        let error = files.put(attachment("c-1", "eth0")).await.unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::StorageFull);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(files.get(&attachment("c-1", "eth0").key()), None);
        files.put(attachment("c-1", "eth0")).await.unwrap();
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_skipped_and_left() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("a-eth0.json", "{"),
            ("b-eth0.json", "7"),
            ("notes.txt", "x"),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let moved = serde_json::to_string(&attachment("c-1", "eth0")).unwrap();
        std::fs::write(dir.path().join("other-eth0.json"), moved).unwrap();
        std::fs::write(dir.path().join(".c-1-eth0.json"), "{").unwrap();
        let files = Attachments::open(dir.path()).unwrap();
        assert!(files.select(|_| true).is_empty());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4);
    }

    #[tokio::test]
    async fn a_folder_that_was_removed_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("attachments");
        std::fs::create_dir(&folder).unwrap();
        let files = Attachments::open(&folder).unwrap();
        std::fs::remove_dir(&folder).unwrap();
        files.put(attachment("c-1", "net1")).await.unwrap();
        let files = Attachments::open(&folder).unwrap();
        assert_eq!(files.select(|_| true).len(), 1);
    }

    #[tokio::test]
    async fn a_folder_in_a_files_place_is_set_aside_and_no_del_waits_for_it() {
        for name in ["c-1-net1.json", ".c-1-net1.json"] {
            let dir = tempfile::tempdir().unwrap();
            let files = Attachments::open(dir.path()).unwrap();
            std::fs::create_dir_all(dir.path().join(name).join("content")).unwrap();
            let key = attachment("c-1", "net1").key();
            files.remove(&key).await.unwrap();
            files.put(attachment("c-1", "net1")).await.unwrap();
            let again = Attachments::open(dir.path()).unwrap();
            assert!(again.get(&key).is_some(), "{name}");
            files.remove(&key).await.unwrap();
            let left = std::fs::read_dir(dir.path()).unwrap();
            let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(left, ["c-1-net1.json.bad-1"], "{name}");
        }
    }

    #[test]
    fn container_ids_stay_in_the_folder_and_names_are_unambiguous() {
        let eth0: IfName = "eth0".parse().unwrap();
        for bad in ["", "../x", "a/b", "-a", ".a", "a b", &"a".repeat(201)] {
            assert!(AttachmentKey::new(bad, eth0.clone()).is_err(), "{bad}");
        }
        let key = AttachmentKey::new("c-1", eth0).unwrap();
        assert_eq!(key.file_name(), "c-1-eth0.json");
        let one = AttachmentKey::new("a", "b-c".parse().unwrap()).unwrap();
        let two = AttachmentKey::new("a-b", "c".parse().unwrap()).unwrap();
        assert_ne!(one.file_name(), two.file_name());
    }
}

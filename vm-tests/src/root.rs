//! The guest's root folder: init, modules, files, mount points, the plan.
//!
//! hostfs makes the folder the guest's `/`: no image is built, and what the guest writes outside
//! its tmpfs mounts appears here.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::kernel::Kernel;
use crate::modules::ModuleIndex;
use crate::plan::{GuestPlan, MAILBOX_DIR, OUT_DIR, PLAN_PATH};

/// Mount points and folders a Linux userland expects.
const FOLDERS: &[&str] = &[
    "bin",
    "dev",
    "etc",
    "host",
    "modules",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
    "var/lib",
    MAILBOX_DIR,
    OUT_DIR,
];

/// Small files static binaries look for: name resolution and the names of uid 0.
const TEXTS: &[(&str, &str)] = &[
    ("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
    ("etc/group", "root:x:0:\n"),
    ("etc/nsswitch.conf", "hosts: files dns\n"),
];

/// What goes into the folder.
#[derive(Debug)]
pub struct RootSpec<'a> {
    /// The kernel whose modules are taken.
    pub kernel: &'a Kernel,
    /// The static init program.
    pub init: &'a Path,
    /// (path on the host, path in the guest).
    pub files: &'a [(PathBuf, PathBuf)],
    /// Names of modules to insert.
    pub modules: &'a [&'a str],
    /// The plan without its module list.
    pub plan: GuestPlan,
}

/// Makes `root` afresh.
///
/// # Errors
/// A source that is missing, a guest path that leaves the root, a folder that cannot be written.
pub fn assemble(root: &Path, spec: &RootSpec<'_>) -> Result<()> {
    if root.exists() {
        fs::remove_dir_all(root).with_context(|| format!("remove the old {}", root.display()))?;
    }
    for folder in FOLDERS {
        let dir = root.join(folder);
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    }
    symlink("/run", root.join("var/run"))?;
    for (path, text) in TEXTS {
        fs::write(root.join(path), text)?;
    }
    place(spec.init, &root.join("init"))?;
    fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755))?;
    for (host, guest) in spec.files {
        let Ok(inside) = guest.strip_prefix("/") else {
            bail!("guest path {} must be absolute", guest.display());
        };
        place(host, &root.join(inside))?;
    }
    let mut plan = spec.plan.clone();
    plan.modules = modules(root, spec)?;
    let path = root.join(PLAN_PATH);
    fs::write(&path, serde_json::to_vec_pretty(&plan)?)
        .with_context(|| format!("write {}", path.display()))
}

fn modules(root: &Path, spec: &RootSpec<'_>) -> Result<Vec<String>> {
    let index = ModuleIndex::scan(&spec.kernel.modules_dir)?;
    let mut placed = Vec::new();
    for source in index.closure(spec.modules)? {
        let name = source
            .file_name()
            .and_then(|n| n.to_str())
            .context("module name")?;
        let guest = format!("modules/{name}");
        place(&source, &root.join(&guest))?;
        placed.push(format!("/{guest}"));
    }
    Ok(placed)
}

/// A hard link where both lie on one file system, else a copy: test binaries are large.
fn place(source: &Path, target: &Path) -> Result<()> {
    if let Some(dir) = target.parent() {
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    }
    if fs::hard_link(source, target).is_ok() {
        return Ok(());
    }
    fs::copy(source, target)
        .map(drop)
        .with_context(|| format!("copy {} to {}", source.display(), target.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assembles_files_plan_and_modules() {
        let dir = tempfile::tempdir().unwrap();
        let modules_dir = dir.path().join("modules");
        fs::create_dir(&modules_dir).unwrap();
        fs::write(modules_dir.join("dummy.ko"), b"\0depends=\0").unwrap();
        let init = dir.path().join("guest-init");
        fs::write(&init, "init").unwrap();
        let kernel = Kernel {
            version: "1".into(),
            release: "6.1".into(),
            binary_path: init.clone(),
            modules_dir,
        };
        let root = dir.path().join("root");
        let files = [(init.clone(), PathBuf::from("/bin/deep/tool"))];
        let spec = RootSpec {
            kernel: &kernel,
            init: &init,
            files: &files,
            modules: &["dummy"],
            plan: GuestPlan {
                hostname: "vm".into(),
                ..GuestPlan::default()
            },
        };
        // twice: an old folder must not be in the way
        assemble(&root, &spec).unwrap();
        assemble(&root, &spec).unwrap();
        assert_eq!(
            fs::read_to_string(root.join("bin/deep/tool")).unwrap(),
            "init"
        );
        let plan: GuestPlan =
            serde_json::from_slice(&fs::read(root.join(PLAN_PATH)).unwrap()).unwrap();
        assert_eq!(plan.modules, ["/modules/dummy.ko"]);
        assert!(root.join("modules/dummy.ko").is_file());
    }

    #[test]
    fn relative_guest_paths_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let init = dir.path().join("i");
        fs::write(&init, "").unwrap();
        let kernel = Kernel {
            version: "1".into(),
            release: "6.1".into(),
            binary_path: init.clone(),
            modules_dir: dir.path().to_path_buf(),
        };
        let files = [(init.clone(), PathBuf::from("bin/tool"))];
        let spec = RootSpec {
            kernel: &kernel,
            init: &init,
            files: &files,
            modules: &[],
            plan: GuestPlan::default(),
        };
        let error = assemble(&dir.path().join("root"), &spec)
            .unwrap_err()
            .to_string();
        assert!(error.contains("bin/tool"), "{error}");
    }
}

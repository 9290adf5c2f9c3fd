//! The guest's file systems. Sockets, databases and pins belong on tmpfs: hostfs has neither
//! sockets nor reliable locks.

use std::fs;
use std::os::unix::fs::symlink;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};

/// (file system, target, options); all of them must work.
const MOUNTS: &[(&str, &str, &str)] = &[
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", "mode=0755"),
    ("tmpfs", "/dev/shm", "mode=1777"),
    ("devpts", "/dev/pts", "mode=0620,ptmxmode=0666"),
    ("tmpfs", "/run", "mode=0755"),
    ("tmpfs", "/tmp", "mode=1777"),
    ("tmpfs", "/var/lib", "mode=0755"),
    ("bpf", "/sys/fs/bpf", "mode=0700"),
];

/// Mounts everything. With `host_view` the host's own root appears under `/host`, read-only, and
/// `/usr`, `/lib` and the like point there, so that the host's tools work in a kept guest.
pub(crate) fn mount_all(host_view: bool) -> Result<()> {
    for (kind, target, options) in MOUNTS {
        // /dev/shm and /dev/pts lie on the file system mounted some lines before
        fs::create_dir_all(target).with_context(|| format!("create {target}"))?;
        match add(kind, target, MsFlags::empty(), options) {
            // the kernel mounts /dev itself when it is configured to
            Ok(()) | Err(Errno::EBUSY) => {}
            Err(error) => return Err(error).with_context(|| format!("mount {kind} on {target}")),
        }
    }
    // No suite needs it yet, and a kernel may lack it.
    add("cgroup2", "/sys/fs/cgroup", MsFlags::empty(), "").ok();
    if host_view {
        add("hostfs", "/host", MsFlags::MS_RDONLY, "/")
            .context("mount the host's root on /host")?;
        for name in ["lib", "lib64", "sbin", "usr"] {
            symlink(format!("/host/{name}"), format!("/{name}"))
                .with_context(|| format!("link /{name}"))?;
        }
    }
    Ok(())
}

fn add(kind: &str, target: &str, flags: MsFlags, options: &str) -> nix::Result<()> {
    mount(Some(kind), target, Some(kind), flags, Some(options))
}

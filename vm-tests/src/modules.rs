//! Kernel modules: finds them in an unpacked package and orders them, dependencies first.
//!
//! No package ships `modules.dep`, and `depmod` may be missing on the host, so the dependencies
//! are read from each module's `.modinfo` section.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// What the suites use. A name the kernel neither ships nor lists may be built in: it is skipped.
pub const DEFAULT: &[&str] = &[
    "ipv6",
    "8021q",
    "veth",
    "dummy",
    "macvlan",
    "ipvlan",
    "bonding",
    "vrf",
    "bridge",
    "tun",
    "sch_ingress",
    "cls_bpf",
];

/// All `.ko` files below a folder, by module name.
#[derive(Debug, Default)]
pub struct ModuleIndex(BTreeMap<String, PathBuf>);

impl ModuleIndex {
    /// Walks `dir`. Compressed modules are not listed: the kernels used here ship plain ones.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn scan(dir: &Path) -> Result<Self> {
        let mut index = Self::default();
        let mut todo = vec![dir.to_path_buf()];
        while let Some(dir) = todo.pop() {
            let entries = fs::read_dir(&dir)
                .with_context(|| format!("list kernel modules in {}", dir.display()))?;
            for entry in entries {
                let path = entry?.path();
                if path.is_dir() {
                    todo.push(path);
                } else if path.extension().is_some_and(|e| e == "ko")
                    && let Some(stem) = path.file_stem().and_then(|s| s.to_str())
                {
                    index.0.insert(canonical(stem), path);
                }
            }
        }
        Ok(index)
    }

    /// Files to insert for `names`, each after what it depends on, none twice.
    ///
    /// # Errors
    /// A module that cannot be read, or a dependency that is not in the index.
    pub fn closure(&self, names: &[&str]) -> Result<Vec<PathBuf>> {
        let mut order = Vec::new();
        let mut seen = HashSet::new();
        for name in names {
            let name = canonical(name);
            if self.0.contains_key(&name) {
                self.visit(&name, &mut seen, &mut order)?;
            }
        }
        Ok(order)
    }

    fn visit(
        &self,
        name: &str,
        seen: &mut HashSet<String>,
        order: &mut Vec<PathBuf>,
    ) -> Result<()> {
        if !seen.insert(name.to_owned()) {
            return Ok(());
        }
        let Some(path) = self.0.get(name) else {
            bail!("kernel module {name} is needed by another one and is not in the package");
        };
        let image = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        for dependency in depends(&image) {
            self.visit(&dependency, seen, order)?;
        }
        order.push(path.clone());
        Ok(())
    }
}

/// Module names in the `depends=` entry of a module image.
///
/// `.modinfo` is a run of NUL-terminated `key=value` strings, so an entry is found without
/// reading ELF headers.
pub fn depends(image: &[u8]) -> Vec<String> {
    image
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(b"depends="))
        .map(|list| {
            String::from_utf8_lossy(list)
                .split(',')
                .filter(|name| !name.is_empty())
                .map(canonical)
                .collect()
        })
        .unwrap_or_default()
}

/// The kernel treats `-` and `_` in module names alike; files use either.
fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(dir: &Path, name: &str, depends: &str) {
        let image = format!("\x7fELF\0junk depends=no\0license=GPL\0depends={depends}\0name=x\0");
        fs::write(dir.join(format!("{name}.ko")), image).unwrap();
    }

    fn names(paths: &[PathBuf]) -> Vec<&str> {
        paths
            .iter()
            .map(|p| p.file_stem().unwrap().to_str().unwrap())
            .collect()
    }

    #[test]
    fn depends_entry() {
        assert_eq!(depends(b"a=b\0depends=mrp,garp\0c"), ["mrp", "garp"]);
        assert_eq!(depends(b"a=b\0depends=\0c"), Vec::<String>::new());
        assert_eq!(depends(b"nothing"), Vec::<String>::new());
    }

    #[test]
    fn closure_puts_dependencies_first() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("net");
        fs::create_dir(&deep).unwrap();
        module(dir.path(), "8021q", "mrp,garp");
        module(&deep, "mrp", "");
        module(&deep, "garp", "stp");
        module(&deep, "stp", "llc");
        module(&deep, "llc", "");
        module(&deep, "nf-log", "stp");
        let index = ModuleIndex::scan(dir.path()).unwrap();
        let order = index.closure(&["nf_log", "8021q", "builtin"]).unwrap();
        assert_eq!(
            names(&order),
            ["llc", "stp", "nf-log", "mrp", "garp", "8021q"]
        );
    }

    #[test]
    fn a_missing_dependency_is_named() {
        let dir = tempfile::tempdir().unwrap();
        module(dir.path(), "8021q", "garp");
        let index = ModuleIndex::scan(dir.path()).unwrap();
        let error = index.closure(&["8021q"]).unwrap_err().to_string();
        assert!(error.contains("garp"), "{error}");
    }
}

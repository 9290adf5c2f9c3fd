//! Who may depend on whom, what is never linked, and under which licences.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::{cargo, licence, term};

/// Workspace crate -> workspace crates it may use. Dev-dependencies are free.
const DIRECTIONS: &[(&str, &[&str])] = &[
    ("spiderpool-api", &[]),
    ("spiderpool-ipam", &["spiderpool-api"]),
    ("spiderpool-iaas", &["spiderpool-api"]),
    ("spiderpool-netops", &["spiderpool-api"]),
    (
        "spiderpool-embedded-api",
        &["spiderpool-api", "spiderpool-ipam"],
    ),
    (
        "provider-sim",
        &["spiderpool-api", "spiderpool-iaas", "spiderpool-netops"],
    ),
    (
        "spiderpool-agent",
        &[
            "spiderpool-api",
            "spiderpool-ipam",
            "spiderpool-iaas",
            "spiderpool-netops",
            "spiderpool-controller",
            "spiderpool-embedded-api",
            "spiderpool-ebpf-common",
        ],
    ),
    ("spiderpool-ebpf-common", &[]),
    // it explains garbage collection by the collector's own reads (docs/adr/0010), and tests
    // providers by the client's own checks
    (
        "spiderpoolctl",
        &[
            "spiderpool-api",
            "spiderpool-ipam",
            "spiderpool-iaas",
            "spiderpool-controller",
        ],
    ),
    (
        "spiderpool-controller",
        &["spiderpool-api", "spiderpool-ipam", "spiderpool-iaas"],
    ),
    ("spiderpool-cni", &["spiderpool-api"]),
    ("vm-tests", &["spiderpool-api", "spiderpool-netops"]),
    // the demo builds its nodes and judges by the kernel's state
    (
        "xtask",
        &[
            "vm-tests",
            "spiderpool-api",
            "spiderpool-netops",
            "spiderpool-ebpf-common",
        ],
    ),
];

/// Crate -> crates its closure must not hold, each built on its own.
const APART: &[(&str, &[&str])] = &[
    (
        "spiderpool-cni",
        &[
            "tokio",
            "kube",
            "kube-core",
            "hyper",
            "rtnetlink",
            "aya",
            "spiderpool-netops",
        ],
    ),
    ("spiderpool-ipam", &["tokio", "hyper", "rtnetlink"]),
];

/// Never linked by anything: one TLS provider, no C library of the host.
const BANNED: &[&str] = &["ring", "openssl-sys"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

/// Runs all checks and prints every fault.
pub(crate) fn check() -> Result<()> {
    let text = cargo::stdout(&["metadata", "--format-version=1", "--locked", "--no-deps"])?;
    let members: Metadata = serde_json::from_str(&text).context("parse cargo metadata")?;
    let mut faults = directions(&members);
    faults.extend(linked(&tree(&["--workspace", "-e", "normal,build,dev"])?));
    for (name, apart) in APART {
        let tree = tree(&["-p", name, "-e", "normal"])?;
        let found = foreign(&tree, apart);
        faults.extend(found.map(|other| format!("{name} links {other}, which it must not")));
    }
    for fault in &faults {
        term::progress(fault);
    }
    if !faults.is_empty() {
        bail!("{} faults in dependencies", faults.len());
    }
    Ok(())
}

fn directions(metadata: &Metadata) -> Vec<String> {
    let members: BTreeSet<&str> = metadata.packages.iter().map(|p| p.name.as_str()).collect();
    let allowed: HashMap<&str, &[&str]> = DIRECTIONS.iter().copied().collect();
    let mut faults = Vec::new();
    for Package { name, dependencies } in &metadata.packages {
        let Some(allowed) = allowed.get(name.as_str()) else {
            faults.push(format!(
                "{name} is not in the table of directions (xtask/src/deps.rs)"
            ));
            continue;
        };
        for dependency in dependencies {
            let other = dependency.name.as_str();
            let dev = dependency.kind.as_deref() == Some("dev");
            if !dev && members.contains(other) && !allowed.contains(&other) {
                faults.push(format!("{name} must not depend on {other}"));
            }
        }
    }
    faults
}

/// One line a package: `NAME vVERSION …|LICENCE`.
///
/// `cargo tree` resolves features as a build does. `cargo metadata` would unify them over the
/// workspace and list optional crates that only a weak feature names.
fn tree(selection: &[&str]) -> Result<String> {
    let mut args = vec![
        "tree", "--locked", "--prefix", "none", "--format", "{p}|{l}",
    ];
    args.extend(selection);
    cargo::stdout(&args)
}

/// Faults of the packages in a tree that is built for this host.
fn linked(tree: &str) -> BTreeSet<String> {
    let mut faults = BTreeSet::new();
    for line in tree.lines() {
        // cargo marks a package it has shown before
        let line = line.trim_end_matches(" (*)");
        let Some((package, licence)) = line.split_once('|') else {
            continue;
        };
        let name = package.split(' ').next().unwrap_or(package);
        if BANNED.contains(&name) {
            faults.insert(format!(
                "{package} is banned: `cargo tree -i {name}` tells who brings it"
            ));
        }
        if licence.is_empty() {
            faults.insert(format!("{package} states no licence"));
        } else if !licence::accepted(licence) {
            faults.insert(format!("{package}: licence {licence} is not accepted"));
        }
    }
    faults
}

fn foreign<'a>(tree: &str, apart: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let linked: BTreeSet<String> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect();
    apart
        .iter()
        .copied()
        .filter(move |name| linked.contains(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(from: &str, to: &str, kind: &str) -> Metadata {
        let text = format!(
            r#"{{"packages":[
                {{"name":"{from}","dependencies":[{{"name":"{to}","kind":{kind}}},{{"name":"serde","kind":null}}]}},
                {{"name":"{to}","dependencies":[]}}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn directions_are_one_way() {
        let up = directions(&metadata("spiderpool-api", "spiderpool-ipam", "null"));
        assert_eq!(up, ["spiderpool-api must not depend on spiderpool-ipam"]);
        let build = directions(&metadata("spiderpool-api", "spiderpool-ipam", "\"build\""));
        assert_eq!(build, up);
        assert!(directions(&metadata("spiderpool-ipam", "spiderpool-api", "null")).is_empty());
        assert!(directions(&metadata("spiderpool-api", "spiderpool-ipam", "\"dev\"")).is_empty());
    }

    #[test]
    fn a_new_crate_must_be_listed() {
        let faults = directions(&metadata("newcomer", "spiderpool-api", "null"));
        assert!(
            faults
                .iter()
                .any(|f| f.contains("newcomer is not in the table")),
            "{faults:?}"
        );
    }

    #[test]
    fn banned_crates_and_licences_in_a_tree() {
        let good = "spiderpool-api v0.1.0 (/x/crates/api)|Apache-2.0\nserde v1.0.229|MIT OR Apache-2.0 (*)\n\n";
        assert!(linked(good).is_empty(), "{:?}", linked(good));
        for (line, word) in [
            ("ring v0.17.14|Apache-2.0 AND ISC", "banned"),
            ("readline v1.0.0|GPL-3.0", "GPL-3.0"),
            ("x v1.0.0|", "no licence"),
        ] {
            let faults = linked(line);
            assert!(
                faults.len() == 1 && faults.iter().all(|f| f.contains(word)),
                "{faults:?}"
            );
        }
    }

    #[test]
    fn closures() {
        let tree =
            "spiderpool-cni v0.1.0 (/x/cni)|MIT\nserde v1.0.229|MIT\ntokio v1.54.0|MIT (*)\n";
        assert_eq!(
            foreign(tree, &["tokio", "kube", "serd"]).collect::<Vec<_>>(),
            ["tokio"]
        );
    }
}

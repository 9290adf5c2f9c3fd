//! File sizes and names: a file a reader can hold, under a name that says what is in it.
//!
//! Functions are clippy's (`too_many_lines`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::paths;
use crate::term;

/// Lines of a file without its tests.
const LIMIT: usize = 400;
/// A line that starts so, with a reason, lifts the limit for its file.
const EXCEPTION: &str = "// lines: ";
/// Names that say nothing about the content.
const REFUSED: &[&str] = &[
    "mod", "util", "utils", "helper", "helpers", "manager", "common", "misc", "handler", "data",
    "info",
];

/// Checks every Rust file of the repository that git does not ignore.
pub(crate) fn check() -> Result<()> {
    let mut faults = 0;
    for path in files()? {
        let text = std::fs::read_to_string(paths::root().join(&path))
            .with_context(|| format!("read {path}"))?;
        for fault in faults_of(&path, &text) {
            term::progress(&format!("{path}: {fault}"));
            faults += 1;
        }
    }
    if faults > 0 {
        bail!("{faults} faults in file sizes or names");
    }
    Ok(())
}

fn files() -> Result<Vec<String>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "*.rs",
        ])
        .current_dir(paths::root())
        .output()
        .context("run git")?;
    if !output.status.success() {
        bail!(
            "git ls-files failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let list = String::from_utf8(output.stdout).context("git printed no UTF-8")?;
    // a file deleted and not yet committed is still listed
    Ok(list
        .lines()
        .filter(|path| paths::root().join(path).exists())
        .map(str::to_owned)
        .collect())
}

fn faults_of(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for part in Path::new(path)
        .with_extension("")
        .iter()
        .filter_map(|part| part.to_str())
    {
        // ebpf/common is a crate the kernel and the host have in common, by its card
        if REFUSED.contains(&part) && !path.starts_with("ebpf/common/") {
            faults.push(format!("the name {part:?} says nothing about the content"));
        }
    }
    let lines = body(path, text);
    if lines > LIMIT && !excepted(text) {
        faults.push(format!(
            "{lines} lines without tests, limit {LIMIT}: split it, or state why not in a line `{EXCEPTION}REASON`"
        ));
    }
    faults
}

/// Lines in front of the inline test module; none of a file that is only tests.
fn body(path: &str, text: &str) -> usize {
    let only_tests = path.split('/').any(|part| part == "tests") || path.ends_with("tests.rs");
    if only_tests {
        return 0;
    }
    let mut lines = text.lines().peekable();
    let mut count = 0;
    while let Some(line) = lines.next() {
        let module = lines
            .peek()
            .is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'));
        if line.trim() == "#[cfg(test)]" && module {
            break;
        }
        count += 1;
    }
    count
}

fn excepted(text: &str) -> bool {
    text.lines().any(|line| {
        line.strip_prefix(EXCEPTION)
            .is_some_and(|reason| !reason.trim().is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_do_not_count() {
        let text = format!(
            "{}#[cfg(test)]\nmod tests {{\n{}}}\n",
            "x\n".repeat(400),
            "y\n".repeat(900)
        );
        assert_eq!(faults_of("a/src/x.rs", &text), Vec::<String>::new());
        let declared = format!("#[cfg(test)]\nmod tests;\n{}", "x\n".repeat(400));
        assert_eq!(
            faults_of("a/src/x.rs", &declared).len(),
            1,
            "a module declaration ends no body"
        );
        assert!(faults_of("a/tests/x.rs", &"x\n".repeat(900)).is_empty());
        assert!(faults_of("a/src/x/tests.rs", &"x\n".repeat(900)).is_empty());
    }

    #[test]
    fn long_files_need_a_reason() {
        let long = "x\n".repeat(401);
        assert_eq!(faults_of("a/src/x.rs", &long).len(), 1);
        assert_eq!(
            faults_of("a/src/x.rs", &format!("// lines: \n{long}")).len(),
            1
        );
        assert!(faults_of("a/src/x.rs", &format!("// lines: one table\n{long}")).is_empty());
    }

    #[test]
    fn empty_names_are_refused() {
        for path in [
            "a/src/mod.rs",
            "a/src/x/utils.rs",
            "a/src/helpers/x.rs",
            "common/src/x.rs",
        ] {
            assert_eq!(faults_of(path, "").len(), 1, "{path}");
        }
        assert!(faults_of("ebpf/common/src/lib.rs", "").is_empty());
        assert!(faults_of("a/src/modules.rs", "").is_empty());
    }
}

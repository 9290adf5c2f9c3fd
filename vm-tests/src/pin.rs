//! The pin file and apt's answers, as text in and values out.

use anyhow::{Context, Result, bail};

/// Which package the kernel comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// Debian package name.
    pub package: String,
    /// Exact package version.
    pub version: String,
    /// Lower-case hex digest of that version's `.deb`.
    pub sha256: String,
}

impl Pin {
    /// Reads `key = value` lines; `#` starts a comment line.
    ///
    /// # Errors
    /// A line without `=`, an unknown or missing key, a digest that is not 64 hex digits.
    pub fn parse(text: &str) -> Result<Self> {
        let (mut package, mut version, mut sha256) = (None, None, None);
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (key, value) = line
                .split_once('=')
                .with_context(|| format!("kernel pin: no '=' in the line {line:?}"))?;
            let slot = match key.trim() {
                "package" => &mut package,
                "version" => &mut version,
                "sha256" => &mut sha256,
                other => bail!("kernel pin: unknown key {other:?}"),
            };
            *slot = Some(value.trim().to_owned());
        }
        let pin = Self {
            package: package.context("kernel pin: no package")?,
            version: version.context("kernel pin: no version")?,
            sha256: sha256.context("kernel pin: no sha256")?,
        };
        if pin.sha256.len() != 64 || !pin.sha256.bytes().all(|b| b.is_ascii_hexdigit()) {
            bail!("kernel pin: sha256 {:?} is not 64 hex digits", pin.sha256);
        }
        Ok(pin)
    }
}

/// The candidate version in the output of `apt-cache policy PACKAGE` under `LC_ALL=C`.
pub fn candidate(policy: &str) -> Option<String> {
    let value = policy
        .lines()
        .find_map(|line| line.trim().strip_prefix("Candidate:"))?
        .trim();
    (value != "(none)" && !value.is_empty()).then(|| value.to_owned())
}

/// The glibc version a dynamic loader asked for and did not find.
pub fn missing_glibc(stderr: &str) -> Option<&str> {
    let rest = stderr.split_once("version `GLIBC_")?.1;
    let (version, _) = rest.split_once('\'')?;
    Some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "0ce700f835c385ab09860ad33137817402403a29e424177510244bd75a81c687";

    #[test]
    fn the_committed_pin_parses() {
        let pin = Pin::parse(include_str!("../kernel.pin")).unwrap();
        assert_eq!(pin.package, "user-mode-linux");
        assert!(!pin.version.is_empty());
    }

    #[test]
    fn broken_pins_name_the_fault() {
        for (text, fault) in [
            ("package = a\nversion = 1\n".to_owned(), "no sha256"),
            ("package user-mode-linux".to_owned(), "no '='"),
            (
                format!("packet = a\nversion = 1\nsha256 = {DIGEST}"),
                "unknown key",
            ),
            ("package = a\nversion = 1\nsha256 = 12".to_owned(), "64 hex"),
        ] {
            let error = Pin::parse(&text).unwrap_err().to_string();
            assert!(error.contains(fault), "{text:?} gave {error:?}");
        }
    }

    #[test]
    fn candidate_of_a_policy() {
        let known =
            "user-mode-linux:\n  Installed: (none)\n  Candidate: 6.1um4+b13\n  Version table:\n";
        assert_eq!(candidate(known).as_deref(), Some("6.1um4+b13"));
        assert_eq!(
            candidate("x:\n  Installed: (none)\n  Candidate: (none)\n"),
            None
        );
        assert_eq!(candidate(""), None);
    }

    #[test]
    fn glibc_complaint() {
        let text = "./linux.uml: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by ./linux.uml)";
        assert_eq!(missing_glibc(text), Some("2.38"));
        assert_eq!(missing_glibc("no such file"), None);
    }
}

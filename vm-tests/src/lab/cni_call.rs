//! The runtime's side: calls of the real CNI binary, with the environment and standard input a
//! container runtime gives it.
//!
//! May start the binary inside a namespace and read what it prints.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use spiderpool_api::cni::{CniError, CniResult};
use spiderpool_netops::netns::Netns;

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CniCall {
    /// File name of the plugin.
    pub plugin: String,
    /// `CNI_COMMAND`.
    pub command: String,
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_NETNS`.
    pub netns: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_ARGS`.
    pub args: String,
    /// Standard input.
    pub stdin: String,
}

/// How a call ended.
#[derive(Debug, Clone)]
pub struct CniOutcome {
    /// Exit code; 128 + signal when killed.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// From exec to exit.
    pub elapsed: Duration,
}

impl CniCall {
    /// Runs the binary in `host`, the namespace the runtime lives in, and waits for its end.
    ///
    /// # Errors
    /// The binary cannot be run. How it ends is in the outcome.
    pub fn run(&self, bin_dir: &Path, host: &Netns) -> Result<CniOutcome> {
        let program = bin_dir.join(&self.plugin);
        host.run(|| self.exec(&program, bin_dir))?
            .with_context(|| format!("run {} {}", program.display(), self.command))
    }

    /// Runs the binary where the caller is; needs no rights.
    ///
    /// # Errors
    /// The binary cannot be run. How it ends is in the outcome.
    pub fn run_here(&self, bin_dir: &Path) -> Result<CniOutcome> {
        let program = bin_dir.join(&self.plugin);
        self.exec(&program, bin_dir)
            .with_context(|| format!("run {} {}", program.display(), self.command))
    }

    fn exec(&self, program: &Path, bin_dir: &Path) -> Result<CniOutcome> {
        let started = Instant::now();
        let mut child = Command::new(program)
            .env_clear()
            .env("CNI_COMMAND", &self.command)
            .env("CNI_CONTAINERID", &self.container_id)
            .env("CNI_NETNS", &self.netns)
            .env("CNI_IFNAME", &self.ifname)
            .env("CNI_ARGS", &self.args)
            .env("CNI_PATH", bin_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().context("no pipe")?;
        // A plugin that answers without reading its input closes the pipe: not our failure.
        stdin.write_all(self.stdin.as_bytes()).ok();
        drop(stdin);
        let output = child.wait_with_output()?;
        let elapsed = started.elapsed();
        let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
        Ok(CniOutcome {
            code: output
                .status
                .code()
                .or(signal.map(|n| 128 + n))
                .unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).context("standard output is not UTF-8")?,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            elapsed,
        })
    }
}

/// Runs several calls at the same time; the outcomes come in the order of the calls.
///
/// # Errors
/// The first call that could not be run.
pub fn run_at_once(calls: &[CniCall], bin_dir: &Path, host: &Netns) -> Result<Vec<CniOutcome>> {
    thread::scope(|scope| {
        let running: Vec<_> = calls
            .iter()
            .map(|call| scope.spawn(|| call.run(bin_dir, host)))
            .collect();
        running
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(outcome) => outcome,
                Err(_) => bail!("a call's thread panicked"),
            })
            .collect()
    })
}

impl CniOutcome {
    /// The result of a successful ADD.
    ///
    /// # Errors
    /// The call failed or printed something else; with everything it printed.
    pub fn result(&self) -> Result<CniResult> {
        if self.code != 0 {
            bail!("the plugin failed: {}", self.shown());
        }
        serde_json::from_str(&self.stdout)
            .with_context(|| format!("not a CNI result: {}", self.shown()))
    }

    /// The error object of a failed call.
    ///
    /// # Errors
    /// The call succeeded or printed something else; with everything it printed.
    pub fn error(&self) -> Result<CniError> {
        if self.code != 1 {
            bail!("exit code 1 was expected: {}", self.shown());
        }
        serde_json::from_str(&self.stdout)
            .with_context(|| format!("not a CNI error object: {}", self.shown()))
    }

    /// Fails unless the call succeeded and printed nothing, as DEL, CHECK, GC and STATUS do.
    ///
    /// # Errors
    /// With everything it printed.
    pub fn silent(&self) -> Result<()> {
        if self.code == 0 && self.stdout.is_empty() {
            return Ok(());
        }
        bail!("a silent success was expected: {}", self.shown())
    }

    fn shown(&self) -> String {
        let Self {
            code,
            stdout,
            stderr,
            ..
        } = self;
        format!("exit code {code}, stdout {stdout:?}, stderr {stderr:?}")
    }
}

/// `CNI_ARGS` as kubelet's runtimes write it.
#[must_use]
pub fn kubernetes_args(namespace: &str, pod: &str, uid: &str, container_id: &str) -> String {
    format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={pod};\
         K8S_POD_INFRA_CONTAINER_ID={container_id};K8S_POD_UID={uid}"
    )
}

/// A copy of a network configuration with one top-level key replaced, or removed by null.
#[must_use]
pub fn with_key(conf: &Value, key: &str, value: Value) -> Value {
    let mut conf = conf.clone();
    if let Some(object) = conf.as_object_mut() {
        if value.is_null() {
            object.remove(key);
        } else {
            object.insert(key.to_owned(), value);
        }
    }
    conf
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(code: i32, stdout: &str) -> CniOutcome {
        CniOutcome {
            code,
            stdout: stdout.to_owned(),
            stderr: "warned".to_owned(),
            elapsed: Duration::ZERO,
        }
    }

    #[test]
    fn outcomes_are_read_strictly() {
        assert!(outcome(0, "").silent().is_ok());
        assert!(outcome(0, "{}").silent().is_err());
        assert!(outcome(1, "").silent().is_err());
        let error = outcome(1, "").result().unwrap_err().to_string();
        assert!(error.contains("warned"), "{error}");
        assert!(
            outcome(0, r#"{"cniVersion":"1.0.0","code":7,"msg":"m"}"#)
                .error()
                .is_err()
        );
        let error = outcome(
            1,
            r#"{"cniVersion":"1.0.0","code":7,"msg":"m","details":""}"#,
        );
        assert_eq!(error.error().unwrap().code, 7);
    }

    #[test]
    fn keys_are_replaced_and_removed() {
        let conf = serde_json::json!({"a": 1, "b": 2});
        assert_eq!(
            with_key(&conf, "a", 3.into()),
            serde_json::json!({"a": 3, "b": 2})
        );
        assert_eq!(
            with_key(&conf, "b", Value::Null),
            serde_json::json!({"a": 1})
        );
    }
}

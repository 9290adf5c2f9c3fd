//! A container runtime: a folder with the plugins under their names, and calls of them.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Pod of all calls.
pub(crate) const ARGS: &str =
    "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-1;K8S_POD_UID=u-1";

/// A node's folders.
pub(crate) struct Node {
    dir: TempDir,
}

impl Node {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["spiderpool", "eni-vlan", "vlan"] {
            symlink(env!("CARGO_BIN_EXE_spiderpool"), dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where the agent of [`Node::conf`] listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path("agent.sock")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path("plugin.log")
    }

    /// A configuration of the IPAM plugin that stays inside the folder.
    pub(crate) fn conf(&self) -> Value {
        json!({"cniVersion": "1.1.0", "name": "lab", "type": "x", "ipam": {
            "type": "spiderpool", "ipam_unix_socket_path": self.socket(),
            "log_file_path": self.log()}})
    }

    /// The same for `eni-vlan`.
    pub(crate) fn eni_conf(&self) -> Value {
        json!({"cniVersion": "1.0.0", "name": "lab", "type": "eni-vlan", "master": "eth1",
            "unixSocketPath": self.socket(), "ipam": {"type": "spiderpool"},
            "logOptions": {"logFile": self.log()}})
    }

    /// A call of `spiderpool` with everything a runtime sends.
    pub(crate) fn call(&self, command: &str) -> Call {
        let mut call = Call {
            command: Command::new(self.path("spiderpool")),
            stdin: self.conf().to_string(),
        };
        call.command.env_clear().env("CNI_COMMAND", command);
        call.with("CNI_CONTAINERID", "c-1")
            .with("CNI_NETNS", "/var/run/netns/web-1")
            .with("CNI_IFNAME", "eth0")
            .with("CNI_ARGS", ARGS)
            .with("CNI_PATH", "/opt/cni/bin")
    }

    /// The same of another plugin.
    pub(crate) fn call_of(&self, plugin: &str, command: &str) -> Call {
        let mut call = self.call(command);
        let mut other = Command::new(self.path(plugin));
        other.env_clear();
        for (name, value) in call.command.get_envs() {
            other.env(name, value.unwrap());
        }
        call.command = other;
        call
    }

    /// Waits until `done` holds.
    pub(crate) fn wait_for(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(15);
        while !done(self) {
            assert!(Instant::now() < deadline, "{what} never came");
            std::thread::yield_now();
        }
    }
}

/// One call in the making.
pub(crate) struct Call {
    command: Command,
    stdin: String,
}

impl Call {
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    pub(crate) fn arg(mut self, word: &str) -> Self {
        self.command.arg(word);
        self
    }

    pub(crate) fn stdin(mut self, text: impl ToString) -> Self {
        self.stdin = text.to_string();
        self
    }

    pub(crate) fn stdout(mut self, target: impl Into<Stdio>) -> Running {
        self.command.stdout(target);
        self.spawn()
    }

    /// Starts it.
    pub(crate) fn start(mut self) -> Running {
        self.command.stdout(Stdio::piped());
        self.spawn()
    }

    fn spawn(mut self) -> Running {
        let mut child = self
            .command
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // a plugin that refuses early may be gone before it has read
        child
            .stdin
            .take()
            .unwrap()
            .write_all(self.stdin.as_bytes())
            .ok();
        Running(child)
    }

    /// Runs it to its end.
    pub(crate) fn run(self) -> Done {
        self.start().end()
    }
}

/// A started call.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn end(self) -> Done {
        Done(self.0.wait_with_output().unwrap())
    }
}

/// An ended call.
pub(crate) struct Done(Output);

impl Done {
    pub(crate) fn exit(&self) -> i32 {
        assert_eq!(
            String::from_utf8_lossy(&self.0.stderr),
            "",
            "a plugin is silent on stderr"
        );
        self.0.status.code().unwrap()
    }

    pub(crate) fn stdout(&self) -> &str {
        std::str::from_utf8(&self.0.stdout).unwrap()
    }

    /// Exit 0 and nothing printed.
    pub(crate) fn is_silent_success(&self) {
        assert_eq!(self.stdout(), "");
        assert_eq!(self.exit(), 0);
    }

    /// The error object of a failed call.
    pub(crate) fn error(&self) -> Value {
        assert_eq!(self.exit(), 1, "{}", self.stdout());
        serde_json::from_str(self.stdout()).unwrap()
    }

    /// The failed call's code and a part of its message.
    pub(crate) fn is_refused(&self, code: u32, part: &str) {
        let error = self.error();
        assert_eq!(error["code"], code, "{error}");
        let text = error["msg"].as_str().unwrap();
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

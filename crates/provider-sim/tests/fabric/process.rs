//! The `provider-sim fabric` process and its administration over a Unix socket.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::lab::{DEADLINE, TOPOLOGY, Wires, root_or_skip};

/// Ends the process when the test fails half-way.
struct Fabric(Child);

impl Fabric {
    /// Returns when the process has said that it is ready.
    fn start(wires: &Wires, admin: &Path) -> Self {
        let (topology, ready) = (wires.dir().join("t.yaml"), wires.dir().join("ready"));
        fs::write(&topology, TOPOLOGY).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_provider-sim"));
        command.arg("fabric").arg("--topology").arg(&topology);
        command
            .arg("--admin")
            .arg(format!("unix:{}", admin.display()));
        command.arg("--ready-file").arg(&ready);
        let started = Self(wires.fabric.run(|| command.spawn().unwrap()).unwrap());
        wait_for(|| ready.exists(), "ready file");
        let text = fs::read_to_string(&ready).unwrap();
        assert_eq!(text, format!("unix:{}\n", admin.display()));
        started
    }

    fn terminate(&mut self) {
        let pid = Pid::from_raw(self.0.id().try_into().unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        wait_for(
            || self.0.try_wait().unwrap().is_some(),
            "end of the process",
        );
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        // An error means that it has ended already, as it should.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_is_administered_over_its_socket() {
    if !root_or_skip("the_process_is_administered_over_its_socket") {
        return;
    }
    let wires = Wires::new().await;
    let admin = wires.dir().join("admin.sock");
    let mut fabric = Fabric::start(&wires, &admin);
    assert_eq!(call(&admin, "GET", "/healthz", "").0, 200);
    let (_, drops) = call(&admin, "GET", "/admin/drops", "");
    assert_eq!(
        (&drops["dropped"], &drops["drops"]["unknown_vlan"]),
        (&0.into(), &0.into())
    );
    let (status, holds) = call(&admin, "POST", "/admin/hold", r#"{"ip":"172.16.0.10"}"#);
    assert_eq!((status, &holds["held"][0]), (200, &"172.16.0.10".into()));
    let (_, holds) = call(&admin, "POST", "/admin/unhold", r#"{"ip":"172.16.0.10"}"#);
    assert_eq!(holds["held"].as_array().unwrap().len(), 0);

    let moved = r#"[{"parent":"fa:16:3e:01:00:02","vlan":7,"mac":"fa:16:3e:00:00:0a","ipv4":"172.16.0.10","pool":"p"}]"#;
    assert_eq!(call(&admin, "PUT", "/admin/bindings", moved).0, 204);
    let (status, refusal) = call(
        &admin,
        "PUT",
        "/admin/bindings",
        &moved.replace("172.16", "10.0"),
    );
    assert_eq!(status, 422);
    assert!(
        refusal["error"]
            .as_str()
            .unwrap()
            .contains("fa:16:3e:00:00:0a"),
        "{refusal}"
    );
    let (_, view) = call(&admin, "GET", "/admin/fabric", "");
    assert_eq!(
        view["bindings"].as_array().unwrap().len(),
        1,
        "the refused ones changed nothing"
    );
    assert_eq!(
        (&view["bindings"][0]["vlan"], &view["bindings"][0]["state"]),
        (&7.into(), &"bound".into())
    );

    fabric.terminate();
}

fn wait_for(mut reached: impl FnMut() -> bool, what: &str) {
    let deadline = Instant::now() + DEADLINE;
    while !reached() {
        assert!(Instant::now() < deadline, "no {what} in time");
        std::thread::yield_now();
    }
}

/// One request; status and body (null unless JSON).
fn call(socket: &Path, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, serde_json::from_str(body).unwrap_or_default())
}

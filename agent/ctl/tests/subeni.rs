//! The built binary against a socket that answers as the agent would.

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::UnixListener;
    use std::process::{Command, Output, Stdio};
    use std::thread;

    use serde_json::{Value, json};
    use tempfile::TempDir;

    /// Answers every request alike, after a line with the request.
    fn agent(body: &Value) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("agent.sock")).unwrap();
        let body = body.to_string();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut reader = BufReader::new(stream.unwrap());
                let mut line = String::from("-");
                while !line.trim().is_empty() {
                    line.clear();
                    reader.read_line(&mut line).unwrap();
                }
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                let answer = [head.as_bytes(), body.as_bytes()].concat();
                reader.into_inner().write_all(&answer).ok();
            }
        });
        dir
    }

    fn command(dir: &TempDir, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spiderpoolctl"));
        command.arg("subeni").args(args).env("NO_COLOR", "1");
        command.env("SPIDERPOOL_SOCKET", dir.path().join("agent.sock"));
        command
    }

    fn run(dir: &TempDir, args: &[&str]) -> Output {
        command(dir, args).output().unwrap()
    }

    fn stdout(output: &Output) -> String {
        String::from_utf8(output.stdout.clone()).unwrap()
    }

    fn report() -> Value {
        let counters = json!({"rx_frames": 1, "rx_packets": 1204, "rx_bytes": 98310,
            "tx_frames": 2, "tx_packets": 1177, "tx_bytes": 101_220});
        let mut web = json!({"nic": "eth1", "vlan": 2014, "mac": "fa:16:3e:aa:00:10",
            "ipv4": "172.91.0.100", "ipv6": null, "interface": "net1", "pod_namespace": "default",
            "pod_name": "web-0", "pool": "p1", "state": "active", "drops": 0,
            "mismatch": {"src_ip4": 12}, "neighbor": {}});
        let fields = counters.as_object().unwrap().clone();
        web.as_object_mut().unwrap().extend(fields);
        let mut other = web.clone();
        other["nic"] = json!("eth2");
        other["pod_name"] = json!("web-1");
        let unknown = json!({"nic": "eth1", "vlan": 9, "direction": "rx", "packets": 3,
            "bytes": 180, "last_mac": "fa:16:3e:aa:00:99", "last_seconds_ago": 1.5});
        json!({"nics": [{"nic": "eth1", "ifindex": 7, "attach": "tcx", "untagged": counters,
            "tagged": counters}], "subeni": [web, other], "unknown": [unknown], "events_lost": 0})
    }

    #[test]
    fn list_and_stats_are_tables_and_arrays() {
        let dir = agent(&report());
        let list = run(&dir, &["list", "--nic", "eth1"]);
        assert_eq!(
            stdout(&list),
            "\
NIC   VLAN  MAC                IPV4          IPV6  POD            IF    STATE   POOL
eth1  2014  fa:16:3e:aa:00:10  172.91.0.100  -     default/web-0  net1  active  p1
"
        );
        let stats = run(&dir, &["stats", "--nic", "eth1"]);
        assert_eq!(
            stdout(&stats),
            "\
NIC   VLAN       POD            RX-PKTS  RX-BYTES  TX-PKTS  TX-BYTES  DROPS  MISMATCH
eth1  2014       default/web-0  1204     98310     1177     101220    0      12
eth1  *unknown                  3        180       0        0         -      3
eth1  *untagged                 1204     98310     1177     101220    -      -
"
        );
        let list = run(&dir, &["list", "--pod", "default/web-1", "-o", "json"]);
        let rows: Value = serde_json::from_str(&stdout(&list)).unwrap();
        assert_eq!(rows.as_array().unwrap().len(), 1);
        assert_eq!(
            (&rows[0]["nic"], &rows[0]["vlan"]),
            (&json!("eth2"), &json!(2014))
        );
        let stats = run(&dir, &["stats", "-o", "json"]);
        let rows: Value = serde_json::from_str(&stdout(&stats)).unwrap();
        assert_eq!(rows[0]["mismatch"]["src_ip4"], json!(12));
        assert_eq!(rows[0]["tx_bytes"], json!(101_220));
        let wide = stdout(&run(&dir, &["list", "-o", "wide"]));
        assert!(wide.lines().nth(1).unwrap().ends_with("tcx"), "{wide}");
    }

    #[test]
    fn watching_goes_on_until_nobody_reads() {
        let dir = agent(&report());
        let mut watch = command(&dir, &["stats", "--watch", "1ms", "-o", "json"]);
        let mut child = watch.stdout(Stdio::piped()).spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        for _ in 0..3 {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let rows: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(rows[0]["pod_name"], json!("web-0"));
        }
        drop(reader);
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn verify_tells_by_its_exit_code() {
        let clean = agent(&json!({"result": "clean", "findings": []}));
        let output = run(&clean, &["verify"]);
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(stdout(&output), "result: 0 mismatches, 0 conflicts\n");
        let finding = json!({"nic": "eth1", "vlan": 2014, "interface": "net1",
            "pod_namespace": "default", "pod_name": "web-0", "direction": "tx", "kind": "src_ip4",
            "expected": "172.91.0.100", "observed": "10.9.9.9", "count": 12,
            "last_seconds_ago": 3.2});
        let forged = agent(&json!({"result": "mismatch", "findings": [finding]}));
        let output = run(&forged, &["verify"]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            stdout(&output),
            "\
NIC   VLAN  POD            CHECK    EXPECTED      OBSERVED  COUNT  LAST
eth1  2014  default/web-0  src_ip4  172.91.0.100  10.9.9.9  12     3s ago
result: 1 mismatch, 0 conflicts
"
        );
        let other = run(&forged, &["verify", "--pod", "default/web-1"]);
        assert_eq!(other.status.code(), Some(0));
        let blind = agent(&json!({"result": "unknown", "error": "no BPF", "findings": []}));
        let output = run(&blind, &["verify"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("no BPF"));
        let absent = tempfile::tempdir().unwrap();
        assert_eq!(run(&absent, &["verify"]).status.code(), Some(2));
        let output = run(&absent, &["list"]);
        assert_eq!(output.status.code(), Some(1));
        let mut text = String::new();
        output.stderr.as_slice().read_to_string(&mut text).unwrap();
        assert!(text.starts_with("error: cannot reach the agent"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn what_is_not_observed_and_what_stays_is_said() {
        let down = agent(&json!({"error": "cannot load", "nics": [], "subeni": [],
            "unknown": [], "events_lost": 0}));
        let output = run(&down, &["stats"]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            "error: cannot load\n"
        );
        let detached = agent(&json!({"nics": ["eth1"], "errors": []}));
        let output = run(&detached, &["detach"]);
        assert_eq!(
            (output.status.code(), stdout(&output)),
            (Some(0), "eth1 detached\n".into())
        );
        let stuck = agent(&json!({"nics": ["eth1"], "errors": ["cannot remove"]}));
        assert_eq!(run(&stuck, &["detach"]).status.code(), Some(1));
    }
}

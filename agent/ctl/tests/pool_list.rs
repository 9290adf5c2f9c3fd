//! The built binary against a small HTTP server that answers as an API server would.

#[cfg(test)]
#[path = "shared/kubeconfig.rs"]
mod kubeconfig;

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::path::PathBuf;
    use std::process::{Command, Output, Stdio};
    use std::sync::mpsc::{self, Receiver};
    use std::thread;

    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::kubeconfig;

    /// Answers every request alike and tells the request lines.
    struct ApiServer {
        port: u16,
        asked: Receiver<String>,
        dir: TempDir,
    }

    impl ApiServer {
        fn answering(status: u16, body: &Value) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let (sender, asked) = mpsc::channel();
            let body = body.to_string();
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let mut reader = BufReader::new(stream.unwrap());
                    let mut first = String::new();
                    reader.read_line(&mut first).unwrap();
                    let mut line = String::from("-");
                    while !line.trim().is_empty() {
                        line.clear();
                        reader.read_line(&mut line).unwrap();
                    }
                    sender.send(first).ok();
                    let answer = format!(
                        "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\n\
                         content-length: {}\r\nconnection: close\r\n\r\n{body}",
                        body.len()
                    );
                    reader.into_inner().write_all(answer.as_bytes()).ok();
                }
            });
            let dir = tempfile::tempdir().unwrap();
            Self { port, asked, dir }
        }

        fn kubeconfig(&self) -> PathBuf {
            kubeconfig::write(self.dir.path(), &self.url())
        }

        fn url(&self) -> String {
            format!("http://127.0.0.1:{}", self.port)
        }

        fn run(&self, words: &[&str]) -> Output {
            let kubeconfig = self.kubeconfig();
            ctl(words)
                .arg("--kubeconfig")
                .arg(kubeconfig)
                .output()
                .unwrap()
        }
    }

    fn ctl(words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spiderpoolctl"));
        command.env_clear().args(words);
        command
    }

    fn list(items: &Value) -> Value {
        json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPoolList",
            "metadata": {"resourceVersion": "7"}, "items": items})
    }

    fn pool(name: &str) -> Value {
        json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
            "metadata": {"name": name}, "spec": {"subnet": "10.0.0.0/24", "ipVersion": 4},
            "status": {"allocatedIPCount": 1, "totalIPCount": 9}})
    }

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    /// The one line on stderr of a command that failed.
    fn failure(output: &Output) -> &str {
        let line = text(&output.stderr).trim_end();
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(
            line.starts_with("error: ") && !line.contains('\n'),
            "{line}"
        );
        line
    }

    #[test]
    fn pools_come_as_table_and_as_json() {
        let server = ApiServer::answering(200, &list(&json!([pool("b"), pool("a")])));
        let output = server.run(&["pool", "list"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let asked = server.asked.recv().unwrap();
        assert!(
            asked.starts_with("GET /apis/spiderpool.spidernet.io/v2beta1/spiderippools"),
            "{asked}"
        );
        let lines: Vec<_> = text(&output.stdout).lines().collect();
        assert_eq!(
            lines,
            [
                "NAME  VERSION  SUBNET       ALLOCATED  TOTAL  MODE   READY  PARENT-NIC  AGE",
                "a     4        10.0.0.0/24  1          9      plain  -      -           -",
                "b     4        10.0.0.0/24  1          9      plain  -      -           -",
            ]
        );
        let output = server.run(&["pool", "list", "-o", "json"]);
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(rows[1]["name"], "b");
        assert_eq!(rows[1]["totalIPCount"], 9);
    }

    #[test]
    fn no_pools_are_no_error() {
        let server = ApiServer::answering(200, &list(&json!([])));
        let output = server.run(&["pool", "list"]);
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(text(&output.stdout), "");
        assert!(text(&output.stderr).contains("has no pools"));
        let output = server.run(&["pool", "list", "-o", "json"]);
        assert_eq!(text(&output.stdout), "[]\n");
    }

    #[test]
    fn one_broken_pool_does_not_hide_the_others() {
        let mut broken = pool("broken");
        broken["spec"]["ips"] = json!(7);
        let server = ApiServer::answering(200, &list(&json!([pool("a"), broken])));
        let output = server.run(&["pool", "list"]);
        assert!(failure(&output).contains("pool broken is left out"));
        assert!(text(&output.stdout).contains("\na "));
    }

    #[test]
    fn failures_name_the_server_and_what_to_do() {
        let status = |code: u16| {
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                "reason": "x", "message": "because"})
        };
        for (code, part) in [
            (401, "check the credentials"),
            (403, "check the credentials"),
            (404, "is Spiderpool installed"),
            (500, "did not list"),
            (503, "because"),
        ] {
            let server = ApiServer::answering(code, &status(code));
            let output = server.run(&["pool", "list"]);
            let line = failure(&output);
            assert!(
                line.contains(&server.url()) && line.contains(part),
                "{line}"
            );
        }
        let server = ApiServer::answering(200, &json!(null));
        let path = server.kubeconfig();
        let url = "http://127.0.0.1:1";
        let dead = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, dead.replace(&server.url(), url)).unwrap();
        let mut command = ctl(&["pool", "list"]);
        let output = command.env("KUBECONFIG", &path).output().unwrap();
        let line = failure(&output);
        assert!(
            line.contains("cannot reach the API server http://127.0.0.1:1"),
            "{line}"
        );
        assert!(line.contains("refused"), "{line}");
    }

    #[test]
    fn kubeconfigs_that_are_none_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let bad = dir.path().join("bad");
        std::fs::write(&bad, "clusters: 7").unwrap();
        for path in [dir.path().join("absent"), bad] {
            let path = path.to_str().unwrap();
            let output = ctl(&["pool", "list", "--kubeconfig", path])
                .output()
                .unwrap();
            assert!(failure(&output).contains(path));
            let output = ctl(&["pool", "list"])
                .env("KUBECONFIG", path)
                .output()
                .unwrap();
            assert!(failure(&output).contains(path));
        }
    }

    #[test]
    fn a_reader_that_is_gone_is_no_failure() {
        let server = ApiServer::answering(200, &list(&json!([pool("a")])));
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = ctl(&["pool", "list", "--kubeconfig"]);
        command
            .arg(server.kubeconfig())
            .stdout(writer)
            .stderr(Stdio::piped());
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "");
    }

    #[test]
    fn the_command_line_explains_itself() {
        let output = ctl(&["--help"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        for part in ["Exit codes", "KUBECONFIG", "pool"] {
            assert!(text(&output.stdout).contains(part), "{part}");
        }
        let output = ctl(&["pool", "list", "-o", "yaml"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let output = ctl(&["--version"]).output().unwrap();
        let version = text(&output.stdout);
        assert!(version.starts_with("spiderpoolctl ") && version.contains("(commit "));
    }
}

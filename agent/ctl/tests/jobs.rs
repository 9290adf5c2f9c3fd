//! The chart's jobs where they cannot do anything: nobody answers at the API server's address, or the
//! environment asks for what can never be.

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::{SocketAddr, TcpListener};
    use std::process::{Command, Stdio};

    use serde_json::json;
    use tempfile::TempDir;

    struct Nowhere {
        dir: TempDir,
        address: SocketAddr,
    }

    impl Nowhere {
        fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            Self {
                dir: tempfile::tempdir().unwrap(),
                address: listener.local_addr().unwrap(),
            }
        }

        /// With a kubeconfig that names `user` and that address.
        fn command(&self, user: &str, words: &[&str]) -> Command {
            let path = self.dir.path().join("kubeconfig");
            let server = format!("http://{user}{}", self.address);
            let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{"name": "k", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]});
            std::fs::write(&path, text.to_string()).unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_spiderpoolctl"));
            command.env_clear().args(words).env("KUBECONFIG", &path);
            command.env("SPIDERPOOL_NAMESPACE", "spiderpool");
            command
        }
    }

    #[test]
    fn clean_says_once_that_nobody_answers() {
        let nowhere = Nowhere::new();
        for user in ["", "u:geheim@"] {
            let output = nowhere.command(user, &["clean", "--yes"]).output().unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{text}");
            assert_eq!(text.lines().count(), 1, "{text}");
            let start = "error: cannot reach the API server http://";
            let address = nowhere.address.to_string();
            assert!(text.starts_with(start) && text.contains(&address), "{text}");
            assert!(
                text.contains("refused") && !text.contains("geheim"),
                "{text}"
            );
        }
    }

    /// As in a shell of an office.
    #[test]
    fn a_proxy_is_named_without_its_password() {
        let nowhere = Nowhere::new();
        let mut command = nowhere.command("", &["clean", "--yes"]);
        command.env("HTTPS_PROXY", "http://u:geheim@proxy:3128");
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("unset HTTPS_PROXY"), "{text}");
        assert!(
            text.contains("http://***@proxy:3128") && !text.contains("geheim"),
            "{text}"
        );
    }

    #[test]
    fn init_says_where_nobody_answers() {
        let nowhere = Nowhere::new();
        let mut command = nowhere.command("", &["init"]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        lines.read_line(&mut line).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let start = format!(
            "waiting: cannot reach the API server http://{}",
            nowhere.address
        );
        assert!(line.starts_with(&start), "{line}");
    }

    /// Before anybody is asked, or waited for.
    #[test]
    fn init_refuses_at_once_what_can_never_be() {
        let nowhere = Nowhere::new();
        let mut command = nowhere.command("", &["init"]);
        command.env("SPIDERPOOL_INIT_DEFAULT_IPV4_IPPOOL_NAME", "p");
        command.env("SPIDERPOOL_INIT_DEFAULT_IPV4_IPPOOL_SUBNET", "fd00::/64");
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        let named = "error: environment variable SPIDERPOOL_INIT_DEFAULT_IPV4_IPPOOL_SUBNET=\"fd00::/64\" can never be: ";
        assert!(text.starts_with(named), "{text}");
    }
}

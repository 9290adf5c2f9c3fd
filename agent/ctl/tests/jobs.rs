//! The chart's jobs where they cannot do anything: nobody answers at the API server's address, the
//! environment asks for what can never be, or somebody else's finalizer holds what shall go.

#[cfg(test)]
#[path = "shared/kubeconfig.rs"]
mod kubeconfig;

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::{SocketAddr, TcpListener};
    use std::process::{Command, Stdio};
    use std::sync::{Arc, Mutex};

    use axum::extract::Path;
    use axum::{Router, routing};
    use kube::Api;
    use kube::api::{Patch, PatchParams, PostParams};
    use serde_json::json;
    use spiderpool_api::ippool::SpiderIPPool;
    use spiderpool_embedded_api::EmbeddedApi;
    use spiderpool_embedded_api::admission::AcceptAll;
    use tempfile::TempDir;

    use super::kubeconfig;

    const GROUP: &str = "spiderpool.spidernet.io";

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
            let server = format!("http://{user}{}", self.address);
            let path = kubeconfig::write(self.dir.path(), &server);
            let mut command = Command::new(env!("CARGO_BIN_EXE_spiderpoolctl"));
            command.env_clear().args(words).env("KUBECONFIG", &path);
            command.env("SPIDERPOOL_NAMESPACE", "spiderpool");
            command
        }
    }

    /// A cluster with the kinds of the embedded API; tells which CustomResourceDefinitions were deleted.
    async fn cluster(router: Router) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
        let kinds = [
            format!("spiderippools.{GROUP}"),
            "sriovnetworks.sriovnetwork.openshift.io".to_owned(),
        ];
        let items = kinds.map(|name| json!({"metadata": {"name": name}}));
        let list = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
            "metadata": {}, "items": items})
        .to_string();
        let deleted = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&deleted);
        let delete = move |Path(name): Path<String>| async move {
            seen.lock().unwrap().push(name);
            json!({"apiVersion": "v1", "kind": "Status", "status": "Success"}).to_string()
        };
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let all = Router::new()
            .route(definitions, routing::get(|| async { list }))
            .route(&format!("{definitions}/{{name}}"), routing::delete(delete))
            .fallback_service(router);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, all).await.unwrap() });
        (address, deleted)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn clean_keeps_the_kinds_while_a_finalizer_holds_a_pool() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.redb");
        let api = EmbeddedApi::open(&path, Arc::new(AcceptAll)).unwrap();
        let pools: Api<SpiderIPPool> = Api::all(kube::Client::new(api.router(), "default"));
        let pool = json!({"apiVersion": format!("{GROUP}/v2beta1"), "kind": "SpiderIPPool",
            "metadata": {"name": "held", "finalizers": [GROUP, "cloud.example.com/claims"]},
            "spec": {"subnet": "10.71.0.0/24", "ips": ["10.71.0.10-10.71.0.19"], "ipVersion": 4}});
        let pool = serde_json::from_value(pool).unwrap();
        pools.create(&PostParams::default(), &pool).await.unwrap();
        let records = r#"{"10.71.0.10":{"pod":"shop/web","podUid":"u"}}"#;
        let status = json!({"status": {"allocatedIPs": records, "allocatedIPCount": 1}});
        let params = PatchParams::default();
        let status = Patch::Merge(&status);
        let recorded = pools.patch_status("held", &params, &status);
        recorded.await.unwrap();
        let (address, deleted) = cluster(api.router()).await;
        let dir = tempfile::tempdir().unwrap();
        let there = Nowhere { dir, address };
        let words = ["clean", "--yes", "--sriov", "--wait", "1"];
        let clean = || there.command("", &words).output().unwrap();
        let output = tokio::task::block_in_place(clean);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        for part in [
            "SpiderIPPool held, held by finalizer cloud.example.com/claims, with records of 1 addresses: 10.71.0.10 of Pod shop/web",
            "still there after 1 s",
            "the CustomResourceDefinitions stay",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        let sriov = "sriovnetworks.sriovnetwork.openshift.io";
        assert_eq!(*deleted.lock().unwrap(), [sriov]);
        // The Pod has ended, and the provider lets go.
        let free = json!({"metadata": {"finalizers": null}});
        let free = Patch::Merge(&free);
        let freed = pools.patch("held", &params, &free);
        freed.await.unwrap();
        let output = tokio::task::block_in_place(clean);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{text}");
        let ours = format!("spiderippools.{GROUP}");
        assert_eq!(*deleted.lock().unwrap(), [sriov, &ours, sriov]);
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

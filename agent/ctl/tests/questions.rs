//! The built binary on the questions of a bad night: who has an address, how full are the pools,
//! what is wrong with one, why has this Pod none. Against servers that answer by path.

#[cfg(test)]
#[path = "shared/kubeconfig.rs"]
mod kubeconfig;

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::process::{Command, Output};
    use std::thread;

    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::kubeconfig;

    const API: &str = "/apis/spiderpool.spidernet.io/v2beta1";
    const UID: &str = "u-1";
    /// Where the Pods of virtual machines are listed.
    const LAUNCHERS: &str =
        "/api/v1/namespaces/shop/pods?labelSelector=kubevirt.io%3Dvirt-launcher";

    /// API server and agent of one host; what no route is given for is not there.
    struct Host {
        dir: TempDir,
        port: u16,
    }

    impl Host {
        fn new(api: Vec<(String, Value)>, agent: Vec<(String, Value)>) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = tcp.local_addr().unwrap().port();
            thread::spawn(move || {
                for stream in tcp.incoming() {
                    answer(stream.unwrap(), &api);
                }
            });
            let unix = UnixListener::bind(dir.path().join("agent.sock")).unwrap();
            thread::spawn(move || {
                for stream in unix.incoming() {
                    answer(stream.unwrap(), &agent);
                }
            });
            Self { dir, port }
        }

        fn run(&self, words: &[&str]) -> Output {
            let server = format!("http://127.0.0.1:{}", self.port);
            let path = kubeconfig::write(self.dir.path(), &server);
            let mut command = Command::new(env!("CARGO_BIN_EXE_spiderpoolctl"));
            command.env_clear().args(words).env("KUBECONFIG", &path);
            command.env("SPIDERPOOL_SOCKET", self.dir.path().join("agent.sock"));
            command.output().unwrap()
        }
    }

    fn answer<S: Read + Write>(stream: S, routes: &[(String, Value)]) {
        let mut reader = BufReader::new(stream);
        let mut first = String::new();
        reader.read_line(&mut first).unwrap();
        let mut line = String::from("-");
        while !line.trim().is_empty() {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        let path = first.split(' ').nth(1).unwrap_or_default();
        let bare = path.replace("?&", "?");
        let bare = bare.split_once("?limit").map_or(&*bare, |(path, _)| path);
        let bare = bare.trim_end_matches('?');
        let found = routes.iter().find(|(route, _)| route == bare);
        let missing = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
            "code": 404, "reason": "NotFound", "message": "not found"});
        let (status, body) = match found {
            Some((_, body)) => (200, body.to_string()),
            None => (404, missing.to_string()),
        };
        let head = format!(
            "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let answer = [head.as_bytes(), body.as_bytes()].concat();
        reader.into_inner().write_all(&answer).ok();
    }

    fn list(kind: &str, plural: &str, items: &[Value]) -> (String, Value) {
        let body = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": kind,
            "metadata": {"resourceVersion": "7"}, "items": items});
        (format!("{API}/{plural}"), body)
    }

    fn api(pools: &[Value], endpoints: &[Value], pods: &[Value]) -> Vec<(String, Value)> {
        let reserved = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1",
            "kind": "SpiderReservedIP", "metadata": {"name": "printers"},
            "spec": {"ips": ["10.0.0.12", "10.9.0.0-10.9.0.9"]}});
        let mut routes = vec![
            list("SpiderIPPoolList", "spiderippools", pools),
            list("SpiderReservedIPList", "spiderreservedips", &[reserved]),
            list("SpiderEndpointList", "spiderendpoints", endpoints),
        ];
        for pod in pods {
            let name = pod["metadata"]["name"].as_str().unwrap();
            routes.push((format!("/api/v1/namespaces/shop/pods/{name}"), pod.clone()));
        }
        routes
    }

    fn pool(name: &str, ips: &str, records: &[(&str, &str)]) -> Value {
        let map: serde_json::Map<String, Value> = records
            .iter()
            .map(|(ip, uid)| {
                (
                    (*ip).to_owned(),
                    json!({"pod": "shop/web-0", "podUid": uid, "nic": "net1"}),
                )
            })
            .collect();
        json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
            "metadata": {"name": name, "uid": name, "generation": 2,
                "creationTimestamp": "2027-01-05T10:00:00Z"},
            "spec": {"subnet": "10.0.0.0/8", "ipVersion": 4, "ips": [ips], "gateway": "10.0.0.1"},
            "status": {"allocatedIPs": Value::Object(map).to_string()}})
    }

    fn endpoint(uid: &str) -> Value {
        json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderEndpoint",
            "metadata": {"namespace": "shop", "name": "web-0"},
            "status": {"current": {"uid": uid, "node": "n1", "ips": [
                {"interface": "net1", "ipv4": "10.0.0.10/8", "ipv4Pool": "a", "vlan": 0}]},
                "ownerControllerType": "Pod", "ownerControllerName": "web-0"}})
    }

    fn pod(uid: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "web-0",
            "uid": uid, "creationTimestamp": "2027-01-05T10:00:01Z",
            "annotations": {"ipam.spidernet.io/ippool": "{\"ipv4\":[\"a\"]}"}}, "spec": {"containers": []}})
    }

    fn attachment(uid: &str) -> (String, Value) {
        let held = json!({"containerID": "0123456789abcdef", "interface": "net1", "podUID": uid,
            "podNamespace": "shop", "podName": "web-0", "ips": [{"address": "10.0.0.10", "pool": "a"}],
            "master": null, "vlan": null, "mac": null, "attachedAt": "2027-01-05T10:00:02Z"});
        ("/v1/attachments".to_owned(), json!([held]))
    }

    fn stdout(output: &Output) -> String {
        String::from_utf8(output.stdout.clone()).unwrap()
    }

    fn stderr(output: &Output) -> String {
        String::from_utf8(output.stderr.clone()).unwrap()
    }

    #[test]
    fn usage_shows_the_fullest_first() {
        let full = pool(
            "b",
            "10.0.0.10-10.0.0.12",
            &[("10.0.0.10", UID), ("10.0.0.11", UID)],
        );
        let host = Host::new(
            api(&[pool("a", "10.1.0.0-10.1.0.9", &[]), full], &[], &[]),
            vec![],
        );
        let output = host.run(&["pool", "usage"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(
            stdout(&output),
            "\
NAME  VERSION  SUBNET      MODE   TOTAL  USED  RESERVED  FREE  USED%
b     4        10.0.0.0/8  plain  3      2     1         0     66.6
a     4        10.0.0.0/8  plain  10     0     0         10    0.0
"
        );
        let rows: Value =
            serde_json::from_str(&stdout(&host.run(&["pool", "usage", "-o", "json"]))).unwrap();
        assert_eq!(
            rows[0],
            json!({"name": "b", "ipVersion": 4, "subnet": "10.0.0.0/8", "mode": "plain", "total": 3,
                "used": 2, "reserved": 1, "free": 0, "usedPercent": 66.6})
        );
    }

    #[test]
    fn unreadable_pools_are_named_and_the_others_shown() {
        let mut bad = pool("bad", "10.2.0.1", &[]);
        bad["status"]["allocatedIPs"] = json!("[7]");
        let host = Host::new(
            api(&[pool("a", "10.1.0.0-10.1.0.9", &[]), bad], &[], &[]),
            vec![],
        );
        let output = host.run(&["pool", "usage"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stdout(&output).contains("\na "));
        assert!(
            stderr(&output).contains("spiderippool bad") && stderr(&output).contains("records")
        );
        let output = host.run(&["pool", "show", "bad"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stdout(&output).contains("Warning:") && stdout(&output).contains("no agent uses"));
    }

    #[test]
    fn a_pool_is_shown_with_what_is_wrong() {
        let mut young = pool("young", "10.1.0.5-10.1.0.20", &[("10.7.0.7", UID)]);
        young["metadata"]["creationTimestamp"] = json!("2027-01-05T10:00:09Z");
        young["metadata"]["annotations"] = json!({"ipam.spidernet.io/iaas-provider": "x"});
        young["spec"]["nodeName"] = json!(["n1"]);
        let entries = json!({"10.1.0.5": {"mac": "fa:16:3e:00:00:05", "vlan": 5},
            "10.1.0.6": {"mac": "fa:16:3e:00:00:06", "vlan": -1}});
        let metadata = json!({"scope": "n1", "ips": entries}).to_string();
        young["status"]["ipMetaData"] = json!({"observedGeneration": 1, "metadata": metadata});
        young["metadata"]["annotations"]["ipam.spidernet.io/parent-nic"] = json!("eth1");
        let mut old = pool("old", "10.1.0.0-10.1.0.9", &[]);
        old["spec"]["nodeName"] = json!([]);
        let host = Host::new(api(&[old, young], &[], &[]), vec![]);
        let output = host.run(&["pool", "show", "young"]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let text = stdout(&output);
        for part in [
            "Subnet:     10.0.0.0/8\n",
            "Mode:       prewarm\n",
            "Parent NIC: eth1\n",
            "Only for:   nodeName n1\n",
            "ready: no; pool generation 2, published for 1\n",
            "1 attached, 0 unattached, 1 reclaiming, 0 contradictory\n",
            "overlaps the older IPPool old in 10.1.0.5-10.1.0.9",
            "IaaS IP metadata not ready",
            "1 addresses are in use that are no longer among its ips",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        let output = host.run(&["pool", "show", "old"]);
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
        for part in ["Warning", "Only for"] {
            assert!(!stdout(&output).contains(part), "{}", stdout(&output));
        }
        let shown: Value =
            serde_json::from_str(&stdout(&host.run(&["pool", "show", "old", "-o", "json"])))
                .unwrap();
        assert_eq!(
            (&shown["total"], &shown["free"], &shown["warnings"]),
            (&json!(10), &json!(10), &json!([]))
        );
        let output = host.run(&["pool", "show", "none"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("has no pool none; spiderpoolctl pool list"));
    }

    #[test]
    fn an_address_is_found_and_its_sources_agree() {
        let pools = [pool("a", "10.0.0.10-10.0.0.12", &[("10.0.0.10", UID)])];
        let routes = api(&pools, &[endpoint(UID)], &[pod(UID)]);
        let host = Host::new(routes, vec![attachment(UID)]);
        let output = host.run(&["ip", "find", "10.0.0.10"]);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{}{}",
            stdout(&output),
            stderr(&output)
        );
        assert_eq!(
            stdout(&output),
            "\
10.0.0.10 belongs to Pod shop/web-0 (NIC net1) by the record in IPPool a
SOURCE      OBJECT                POD         UID  NIC   POOL  AGREES
record      IPPool a              shop/web-0  u-1  net1  a     yes
endpoint    shop/web-0            shop/web-0  u-1  net1  a     yes
attachment  sandbox 0123456789ab  shop/web-0  u-1  net1  a     yes
pod         shop/web-0            shop/web-0  u-1  -     -     yes
since: 2027-01-05T10:00:02Z
named by: annotation ipam.spidernet.io/ippool of the Pod: {\"ipv4\":[\"a\"]}
"
        );
        let found: Value = serde_json::from_str(&stdout(&host.run(&[
            "ip",
            "find",
            "10.0.0.10",
            "-o",
            "json",
        ])))
        .unwrap();
        assert_eq!(found["owner"]["podUid"], UID);
        for (address, part) in [
            (
                "10.0.0.11",
                "10.0.0.11 of IPPool a has no record: nobody has it\n",
            ),
            ("10.0.0.12", "SpiderReservedIP printers keeps it back\n"),
            ("10.0.0.13", "10.0.0.13 is in no IPPool\n"),
        ] {
            let output = host.run(&["ip", "find", address]);
            assert_eq!(output.status.code(), Some(0));
            assert!(stdout(&output).contains(part), "{}", stdout(&output));
        }
        assert_eq!(host.run(&["ip", "find", "10.0.0"]).status.code(), Some(2));
    }

    #[test]
    fn the_record_decides_when_sources_differ() {
        let record = |uid: &str| vec![pool("a", "10.0.0.10-10.0.0.12", &[("10.0.0.10", uid)])];
        let twice = vec![
            pool("a", "10.0.0.10", &[("10.0.0.10", UID)]),
            pool("b", "10.0.0.10", &[("10.0.0.10", UID)]),
        ];
        let none = vec![pool("a", "10.0.0.10", &[])];
        for (pools, endpoints, pods, part) in [
            (
                record(UID),
                vec![endpoint("u-0")],
                vec![pod(UID)],
                "endpoint shop/web-0 is of UID u-0, the record of UID u-1: only the record counts",
            ),
            (
                record(UID),
                vec![],
                vec![],
                "Pod shop/web-0 does not exist any more: the record is left over",
            ),
            (
                record(UID),
                vec![],
                vec![pod("u-2")],
                "Pod shop/web-0 has UID u-2, the record is of UID u-1",
            ),
            (
                none,
                vec![endpoint(UID)],
                vec![pod(UID)],
                "names it, but no pool has a record",
            ),
            (
                twice,
                vec![],
                vec![pod(UID)],
                "records in 2 pools have it: a, b",
            ),
        ] {
            let host = Host::new(api(&pools, &endpoints, &pods), vec![]);
            let output = host.run(&["ip", "find", "10.0.0.10"]);
            assert_eq!(output.status.code(), Some(1), "{part}");
            let text = stdout(&output);
            assert!(text.contains(part), "{part:?} is not in\n{text}");
            assert!(text.contains("attachments: not asked"), "{text}");
        }
    }

    /// Their addresses outlive them: a record without its Pod, or of the one before, is as it should be.
    #[test]
    fn addresses_that_outlive_their_pods_are_no_problem() {
        let pools = [pool("a", "10.0.0.10-10.0.0.12", &[("10.0.0.10", UID)])];
        let mut kept = endpoint(UID);
        kept["status"]["ownerControllerType"] = json!("StatefulSet");
        let mut up = pod("u-2");
        up["status"] = json!({"podIPs": [{"ip": "10.0.0.11"}]});
        for (pods, code) in [(vec![], 0), (vec![pod("u-2")], 0), (vec![up], 1)] {
            let host = Host::new(api(&pools, &[kept.clone()], &pods), vec![]);
            let output = host.run(&["ip", "find", "10.0.0.10"]);
            assert_eq!(output.status.code(), Some(code), "{}", stdout(&output));
        }
        // A machine's Pod has another name than its records.
        kept["status"]["ownerControllerType"] = json!("VirtualMachineInstance");
        let mut launcher = pod(UID);
        launcher["metadata"]["name"] = json!("virt-launcher-x7");
        let mut routes = api(&pools, &[kept], &[pod("u-7")]);
        let listed =
            json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [launcher]});
        routes.push((LAUNCHERS.to_owned(), listed));
        let output = Host::new(routes, vec![]).run(&["ip", "find", "10.0.0.10"]);
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
        let line = "shop/virt-launcher-x7  shop/virt-launcher-x7  u-1";
        assert!(stdout(&output).contains(line), "{}", stdout(&output));
    }

    #[test]
    fn a_trace_tells_candidates_refusals_and_what_is_written() {
        let family = json!({"nic": "net1", "family": "IPv4",
            "candidates": [{"pool": "full", "gives": [], "path": null, "error": "all IP addresses used out: IPPool full has none"},
                {"pool": "a", "gives": ["10.0.0.10"], "path": "cache_hit", "error": null}],
            "refused": [{"pool": "other", "reason": "is for node n2, not n1"}]});
        let nic = json!({"interface": "net1", "level": "the cluster default", "families": [family],
            "dropped": [], "error": null,
            "last": {"at": "2027-01-05T10:00:02Z", "ms": 12, "code": 7, "error": "wrong input: x"}});
        let report = json!({"podUid": UID, "podNode": "n1", "node": "n1", "nics": [nic],
            "records": [{"address": "10.0.0.10", "pool": "a", "podUid": "u-0", "nic": "net1", "releasing": null}],
            "endpoint": endpoint(UID)["status"], "attachments": [attachment(UID).1[0]]});
        let gone = json!({"error": "Pod shop/gone does not exist", "podUid": "", "podNode": "",
            "node": "n1", "nics": [], "records": [], "endpoint": null, "attachments": []});
        let route = |name: &str| format!("/v1/trace?podNamespace=shop&podName={name}");
        let host = Host::new(
            vec![],
            vec![(route("web-0"), report.clone()), (route("gone"), gone)],
        );
        let output = host.run(&["trace", "shop/web-0"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(
            stdout(&output),
            "\
Pod shop/web-0, UID u-1, node n1

NIC net1, last ADD at 2027-01-05T10:00:02Z: failed after 12 ms with code 7: wrong input: x
pools are named by the cluster default
NIC   FAMILY  TRY  POOL   NOW
net1  IPv4    1    full   all IP addresses used out: IPPool full has none
net1  IPv4    2    a      gives 10.0.0.10 (cache_hit)
net1  IPv4    -    other  is for node n2, not n1

WRITTEN     ADDRESS      POOL  NIC   NOTE
record      10.0.0.10    a     net1  of an older Pod, UID u-0
endpoint    10.0.0.10/8  a     net1
attachment  10.0.0.10    a     net1  sandbox 0123456789ab since 2027-01-05T10:00:02Z
"
        );
        let told: Value =
            serde_json::from_str(&stdout(&host.run(&["trace", "shop/web-0", "-o", "json"])))
                .unwrap();
        assert_eq!(told, report);
        let output = host.run(&["trace", "shop/gone"]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(stderr(&output), "error: Pod shop/gone does not exist\n");
        assert_eq!(host.run(&["trace", "a b"]).status.code(), Some(2));
        assert_eq!(host.run(&["trace", "x?y"]).status.code(), Some(2));
    }

    /// The living Pod of the name has UID `living`; the records are of `u-1` and of it.
    fn collected(living: &str) -> Host {
        let records = [("10.0.0.10", UID), ("10.0.0.11", "u-2")];
        let mut running = pod(living);
        running["status"] = json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.11"}]});
        let mut routes = api(
            &[pool("a", "10.0.0.10-10.0.0.12", &records)],
            &[],
            &[running],
        );
        let path = format!("{API}/namespaces/shop/spiderendpoints/web-0");
        routes.push((path, endpoint("u-2")));
        // a record of another UID may be a machine's, whose Pod has another name
        let none = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": []});
        routes.push((LAUNCHERS.to_owned(), none));
        Host::new(routes, vec![])
    }

    #[test]
    fn collection_is_explained_record_by_record() {
        let host = collected("u-2");
        let output = host.run(&["gc", "explain", "shop/web-0"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let lines: Vec<String> = stdout(&output)
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "ADDRESS POOL POD NIC VERDICT WHY HOW",
                "10.0.0.10 a shop/web-0 net1 free the Pod of that name has another UID the record alone",
                "10.0.0.11 a shop/web-0 net1 keep its Pod is alive -",
            ]
        );
        let output = host.run(&["gc", "explain", "10.0.0.11", "-o", "json"]);
        let told: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(told.as_array().unwrap().len(), 1);
        assert_eq!(
            (&told[0]["verdict"], &told[0]["endpointUid"]),
            (&json!("keep"), &json!("u-2"))
        );
        assert_eq!(told[0]["seen"]["phase"], "Running");
    }

    /// What a mark means depends on the provider that the controller has.
    #[test]
    fn collection_is_explained_with_the_controllers_settings() {
        let host = |conf: Option<&str>| {
            let mut marked = pool("a", "10.0.0.10-10.0.0.12", &[("10.0.0.10", UID)]);
            marked["metadata"]["annotations"] = json!({"ipam.spidernet.io/iaas-provider": "lab",
                "ipam.spidernet.io/parent-nic": "eth1"});
            marked["spec"]["nodeName"] = json!(["n1"]);
            let mut routes = api(&[marked], &[], &[]);
            let none = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": []});
            routes.push((LAUNCHERS.to_owned(), none));
            let maps = conf.map(|conf| {
                let map = json!({"metadata": {"namespace": "any", "name": "spiderpool-conf"}, "data": {"conf.yml": conf}});
                json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {}, "items": [map]})
            });
            let path = "/api/v1/configmaps?fieldSelector=metadata.name%3Dspiderpool-conf";
            routes.extend(maps.map(|maps| (path.to_owned(), maps)));
            Host::new(routes, vec![])
        };
        let how = |host: &Host, more: &[&str]| {
            let words = [&["gc", "explain", "10.0.0.10", "-o", "json"], more].concat();
            let output = host.run(&words);
            let told: Value = serde_json::from_str(&stdout(&output)).unwrap();
            told[0]["how"].as_str().unwrap().to_owned()
        };
        let first = "iaasNetworkProvider: {serverUrl: 'http://p'}";
        let both = "the provider first, then the record";
        assert_eq!(how(&host(None), &[]), both);
        assert_eq!(how(&host(Some(first)), &[]), "the record alone");
        let off = "the record alone: the controller has no provider to tell";
        assert_eq!(how(&host(Some("{}")), &[]), off);
        let host = host(Some(first));
        let path = host.dir.path().join("conf.yml");
        std::fs::write(
            &path,
            "iaasNetworkProvider: {service: {name: p, namespace: n}}",
        )
        .unwrap();
        assert_eq!(how(&host, &["--config-path", path.to_str().unwrap()]), both);
    }

    #[test]
    fn an_address_that_nobody_has_is_an_error_with_a_reason() {
        let output = collected("u-2").run(&["gc", "explain", "10.0.0.12"]);
        assert_eq!(output.status.code(), Some(1));
        let text = stderr(&output);
        assert!(text.contains("no pool has a record of 10.0.0.12"), "{text}");
    }
}

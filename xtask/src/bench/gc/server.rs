//! An API server that plays a large cluster: pages are written when they are asked for, nothing ever
//! changes, and watches stay silent.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use anyhow::{Context, Result};

/// Pods, all of them alive.
const PODS: u64 = 50_000;
/// Records: two for each Pod, 5,000 in a pool.
pub(super) const RECORDS: u64 = 2 * PODS;
const PER_POOL: u64 = 5_000;
const POOLS: u64 = RECORDS / PER_POOL;

const POOL_KIND: &str = "/apis/spiderpool.spidernet.io/v2beta1/spiderippools";
const ENDPOINT_KIND: &str = "/apis/spiderpool.spidernet.io/v2beta1/spiderendpoints";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/spiderpool/leases";

/// Starts it on a free port; it ends with this process.
pub(super) fn start() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen on loopback")?;
    let port = listener.local_addr().context("listen on loopback")?.port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A connection that breaks is the other side's end.
            thread::spawn(move || serve(stream).ok());
        }
    });
    Ok(port)
}

/// Requests of one connection, one after the other.
fn serve(stream: TcpStream) -> std::io::Result<()> {
    let mut answers = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split(' ');
        let method = words.next().unwrap_or_default().to_owned();
        let target = words.next().unwrap_or_default().to_owned();
        let (mut length, mut metadata) = (0, false);
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let header = header.trim().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            metadata |= header.starts_with("accept:") && header.contains("partialobject");
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        if query.contains("watch=true") {
            answers.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")?;
            // Until the other side goes away.
            reader.read_exact(&mut [0])?;
            return Ok(());
        }
        let (status, answer) = match (method.as_str(), path) {
            ("POST" | "PUT", path) if path.starts_with(LEASES) => (200, lease(&body)),
            ("GET", "/api/v1/pods") => (200, page(PODS, query, "PodList", pod)),
            ("GET", ENDPOINT_KIND) => (200, page(PODS, query, "SpiderEndpointList", endpoint)),
            ("GET", POOL_KIND) if metadata => (
                200,
                page(POOLS, query, "PartialObjectMetadataList", pool_metadata),
            ),
            ("GET", POOL_KIND) => (200, page(POOLS, query, "SpiderIPPoolList", pool)),
            ("GET", path) => one_pool(path).map_or_else(not_found, |pool| (200, pool)),
            _ => not_found(),
        };
        write!(
            answers,
            "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        )?;
        answers.write_all(answer.as_bytes())?;
    }
}

fn not_found() -> (u16, String) {
    let text = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound","message":"none"}"#;
    (404, text.to_owned())
}

/// As it was sent, with a version.
fn lease(sent: &[u8]) -> String {
    let mut lease: serde_json::Value = serde_json::from_slice(sent).unwrap_or_default();
    if let Some(meta) = lease
        .get_mut("metadata")
        .and_then(serde_json::Value::as_object_mut)
    {
        meta.insert("resourceVersion".to_owned(), "9".into());
    }
    lease.to_string()
}

fn one_pool(path: &str) -> Option<String> {
    let name = path.strip_prefix(POOL_KIND)?.strip_prefix("/pool-")?;
    let mut text = String::new();
    pool(
        &mut text,
        name.parse().ok().filter(|number| *number < POOLS)?,
    );
    Some(text)
}

/// The page that the query asks for.
fn page(all: u64, query: &str, kind: &str, item: fn(&mut String, u64)) -> String {
    let asked = |key: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .find(|(name, _)| *name == key)
            .and_then(|(_, value)| value.parse::<u64>().ok())
    };
    let from = asked("continue").unwrap_or(0);
    let to = asked("limit").map_or(all, |limit| all.min(from + limit));
    let next = if to < all {
        to.to_string()
    } else {
        String::new()
    };
    let mut text = format!(
        r#"{{"kind":"{kind}","apiVersion":"v1","metadata":{{"resourceVersion":"7","continue":"{next}"}},"items":["#
    );
    for index in from..to {
        if index > from {
            text.push(',');
        }
        item(&mut text, index);
    }
    text.push_str("]}");
    text
}

fn uid(pod: u64) -> String {
    format!("6f0e51b2-0c5d-4b7e-9a31-{pod:012}")
}

/// What field managers leave in a Pod's metadata.
fn managed_fields() -> String {
    let field = r#""f:containers":{"k:{\"name\":\"application\"}":{".":{},"f:image":{},"f:resources":{".":{},"f:limits":{}}}},"#;
    format!(
        r#"[{{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{{{}"f:x":{{}}}}}}]"#,
        field.repeat(44)
    )
}

/// About nine kilobytes, as Pods are; six of them metadata.
fn pod(text: &mut String, index: u64) {
    let (uid, managed) = (uid(index), managed_fields());
    let env =
        r#"{"name":"SETTING","value":"the quick brown fox jumps over the lazy dog"},"#.repeat(36);
    let address = address(index);
    let _written = write!(
        text,
        r#"{{"metadata":{{"name":"pod-{index}","namespace":"shop","uid":"{uid}","resourceVersion":"5","labels":{{"app":"shop"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"shop-1","uid":"r","controller":true}}],"managedFields":{managed}}},"spec":{{"nodeName":"node-{}","terminationGracePeriodSeconds":30,"containers":[{{"name":"application","image":"shop:1","env":[{env}{{"name":"LAST"}}]}}]}},"status":{{"phase":"Running","podIPs":[{{"ip":"{address}"}}],"containerStatuses":[{{"name":"application","state":{{"running":{{}}}}}}]}}}}"#,
        index % 500
    );
}

fn endpoint(text: &mut String, index: u64) {
    let (uid, address) = (uid(index), address(index));
    let _written = write!(
        text,
        r#"{{"metadata":{{"name":"pod-{index}","namespace":"shop","uid":"e-{index}","finalizers":["spiderpool.spidernet.io"]}},"status":{{"current":{{"uid":"{uid}","node":"node-{}","ips":[{{"interface":"eth0","ipv4":"{address}/16","ipv4Pool":"pool-0","vlan":0}},{{"interface":"net1","ipv4":"{address}/16","ipv4Pool":"pool-1","vlan":0}}]}},"ownerControllerType":"Deployment","ownerControllerName":"shop"}}}}"#,
        index % 500
    );
}

/// Of a record, by its number among all.
fn address(record: u64) -> String {
    let (pool, place) = (record / PER_POOL, record % PER_POOL + 1);
    format!("10.{pool}.{}.{}", place / 256, place % 256)
}

fn pool_metadata(text: &mut String, index: u64) {
    let _written = write!(
        text,
        r#"{{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{{"name":"pool-{index}","uid":"p-{index}","resourceVersion":"5","generation":1}}}}"#
    );
}

fn pool(text: &mut String, index: u64) {
    let mut records = String::new();
    for record in index * PER_POOL..(index + 1) * PER_POOL {
        let pod = record % PODS;
        let (address, uid) = (address(record), uid(pod));
        let comma = if records.is_empty() { "" } else { "," };
        let _written = write!(
            records,
            r#"{comma}\"{address}\":{{\"pod\":\"shop/pod-{pod}\",\"podUid\":\"{uid}\",\"nic\":\"eth0\"}}"#
        );
    }
    let _written = write!(
        text,
        r#"{{"apiVersion":"spiderpool.spidernet.io/v2beta1","kind":"SpiderIPPool","metadata":{{"name":"pool-{index}","uid":"p-{index}","resourceVersion":"5","generation":1,"creationTimestamp":"2027-01-05T10:00:00Z","finalizers":["spiderpool.spidernet.io"]}},"spec":{{"subnet":"10.{index}.0.0/16","ips":["10.{index}.0.1-10.{index}.19.136"],"ipVersion":4}},"status":{{"allocatedIPs":"{{{records}}}","allocatedIPCount":{PER_POOL},"totalIPCount":{PER_POOL}}}}}"#
    );
}

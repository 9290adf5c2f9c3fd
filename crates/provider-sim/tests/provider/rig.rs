//! What the tests share: a provider on a port of its own, a client, requests, error texts.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use provider_sim::bucket::Rate;
use provider_sim::cloud::{Operation, SubEni};
use provider_sim::faults::Fault;
use provider_sim::publisher::Publisher;
use provider_sim::records::Record;
use provider_sim::service::Service;
use provider_sim::settings::{Latency, Settings};
use provider_sim::topology::Topology;
use provider_sim::{connection, console, contract};
use serde_json::{Value, json};
use spiderpool_api::provider::{AllocateRequest, ReleaseRequest};
use spiderpool_iaas::check::Bound;
use spiderpool_iaas::client::{Client, Endpoint};
use spiderpool_iaas::error::CallError;
use spiderpool_iaas::provider::Provider;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

pub(crate) const TOPOLOGY: &str = r#"
parents:
  - {node: n1, mac: "fa:16:3e:01:00:01", ifname: p1}
  - {node: n2, mac: "fa:16:3e:01:00:02", ifname: p2, subEniLimit: 4}
subnets:
  - {ipv4: 10.72.0.0/24, ipv6: "fd72::/64", gatewayIpv4: 10.72.0.1, gatewayMac: "fa:16:3e:ff:ff:fe"}
gateway: {ifname: gw0}
pools:
  - {name: g, subnet: 10.72.0.0/24, ips: [10.72.0.10-10.72.0.19]}
  - {name: p4, subnet: 10.72.0.0/24, ips: [10.72.0.20-10.72.0.24], pair: p6}
  - {name: p6, subnet: "fd72::/64", ips: ["fd72::20-fd72::24"], pair: p4}
  - {name: w, subnet: 10.72.0.0/24, ips: [10.72.0.30-10.72.0.32], node: n1}
"#;

pub(crate) fn topology() -> Topology {
    serde_saphyr::from_str(TOPOLOGY).unwrap()
}

/// A provider whose cloud takes milliseconds.
pub(crate) fn settings() -> Settings {
    Settings {
        queue_timeout_ms: 100,
        transaction_timeout_ms: 3_000,
        rate: Rate {
            qps: 1_000.0,
            burst: 1_000.0,
        },
        latency: Latency {
            create_ms: 2,
            attach_ms: 2,
            detach_ms: 2,
            delete_ms: 2,
            update_ms: 2,
        },
        flush_ms: 5,
        ..Settings::default()
    }
}

pub(crate) struct Rig {
    pub(crate) service: Arc<Service>,
    pub(crate) client: Client,
    pub(crate) address: SocketAddr,
    pub(crate) router: Router,
    tasks: JoinSet<()>,
}

pub(crate) async fn rig() -> Rig {
    rig_with(settings(), topology(), None).await
}

pub(crate) async fn rig_with(
    settings: Settings,
    topology: Topology,
    publisher: Option<Publisher>,
) -> Rig {
    let service = Service::new(topology, settings, None, None, publisher).unwrap();
    let contract = contract::router(Arc::clone(&service));
    let router = contract
        .clone()
        .merge(console::router(Arc::clone(&service)))
        .merge(console::without_fabric(Arc::clone(&service)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { connection::serve(listener, contract).await });
    Rig {
        service,
        client: client(address, Duration::from_secs(5)),
        address,
        router,
        tasks,
    }
}

pub(crate) fn client(address: SocketAddr, timeout: Duration) -> Client {
    let endpoint = Endpoint::parse(&format!("http://{address}")).unwrap();
    Client::new(endpoint, timeout).unwrap()
}

impl Rig {
    /// Runs something of the service until the end of the test.
    pub(crate) fn run(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    pub(crate) async fn allocate(&self, request: &AllocateRequest) -> Result<Vec<Bound>, String> {
        let bound = self.client.allocate(request, None).await;
        bound.map_err(|error| chain(&error))
    }

    pub(crate) async fn release(&self, request: &ReleaseRequest) -> Result<(), CallError> {
        self.client.release(request, None).await
    }

    pub(crate) fn faults(&self, rules: Value) {
        let rules: Vec<Fault> = serde_json::from_value(rules).unwrap();
        self.service.change(|world| world.faults.replace(rules));
    }

    pub(crate) fn at(&self, ip: &str) -> Option<SubEni> {
        let ip: IpAddr = ip.parse().unwrap();
        self.service
            .with(|world| world.cloud.by_address(ip).cloned())
    }

    pub(crate) fn calls(&self, operation: Operation) -> u64 {
        let calls = self
            .service
            .with(|world| world.cloud.calls().get(&operation).copied());
        calls.unwrap_or_default()
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        self.service.records.all()
    }

    pub(crate) async fn audit(&self) {
        assert_eq!(self.service.audit().await, Vec::<String>::new());
    }

    /// Waits for a state, five seconds at most.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Service) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while !holds(&self.service) {
            assert!(Instant::now() < deadline, "never: {what}");
            sleep(Duration::from_millis(2)).await;
        }
    }
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

pub(crate) fn parent(node: &str) -> &'static str {
    match node {
        "n1" => "fa:16:3e:01:00:01",
        _ => "fa:16:3e:01:00:02",
    }
}

/// One item for an address of pool `pool`.
pub(crate) fn item(node: &str, ip: &str, pool: &str) -> Value {
    json!({ "parentNicMac": parent(node), "subnet": "10.72.0.0/24", "ipv4Address": ip, "ipv4PoolName": pool })
}

/// One item for a pair of the paired pools.
pub(crate) fn pair(node: &str, v4: &str, v6: &str) -> Value {
    let mut item = item(node, v4, "p4");
    item["ipv6Address"] = v6.into();
    item["ipv6PoolName"] = "p6".into();
    item
}

pub(crate) fn request(node: &str, items: &[Value]) -> AllocateRequest {
    let body = json!({ "podName": "web", "podNamespace": "shop", "podUID": "u-1",
        "nodeName": node, "subEniRequests": items });
    serde_json::from_value(body).unwrap()
}

pub(crate) fn release(node: &str, ip: &str, pool: &str) -> ReleaseRequest {
    let body = json!({ "podName": "web", "podNamespace": "shop", "podUID": "u-1",
        "nodeName": node, "subnet": "10.72.0.0/24", "ipAddress": ip, "poolName": pool });
    serde_json::from_value(body).unwrap()
}

use serde_json::{Value, json};
use spiderpool_api::endpoint::{EndpointAllocation, EndpointNic, EndpointStatus};
use spiderpool_api::names;

use super::*;
use crate::facts::{PodFacts, Snapshot};
use crate::fixture::{entry, iaas, object, pool, snapshot, with};
use crate::pick::Binding;
use crate::pool::Mode;

mod adds;
mod batch_dels;
mod changes;
mod dels;
mod life;
mod properties;
mod results;
mod sticky;

fn detail(interface: &str, ipv4: &str, pool: &str) -> EndpointNic {
    EndpointNic {
        interface: interface.into(),
        ipv4: Some(ipv4.into()),
        ipv4_pool: Some(pool.into()),
        ..EndpointNic::default()
    }
}

fn endpoint(uid: &str, ips: Vec<EndpointNic>) -> EndpointStatus {
    EndpointStatus {
        current: EndpointAllocation {
            uid: uid.into(),
            node: "n1".into(),
            ips,
        },
        ..EndpointStatus::default()
    }
}

fn recorded(records: &Value, ips: Vec<EndpointNic>) -> Snapshot {
    let mut given = object("p", "10.0.0.0/24", &["10.0.0.10-10.0.0.19"]);
    given["status"]["allocatedIPs"] = json!(records.to_string());
    Snapshot {
        endpoint: Some(endpoint("u-1", ips)),
        ..snapshot(&[given])
    }
}

fn rec(uid: &str, nic: &str) -> Value {
    json!({"pod": "shop/web-0", "podUid": uid, "nic": nic})
}

fn word(intent: &Intent) -> &'static str {
    match intent {
        Intent::Fresh(EndpointWrite::Create) => "create",
        Intent::Fresh(EndpointWrite::Recreate) => "recreate",
        Intent::Fresh(EndpointWrite::Append) => "append",
        Intent::Fresh(EndpointWrite::Replace) => "replace",
        Intent::Retrieve(_) => "retrieve",
        Intent::Reclaim { .. } => "reclaim",
        Intent::Adopt(_) => "adopt",
        Intent::Exchange(_) => "exchange",
    }
}

fn pools() -> (crate::pool::Pool, crate::pool::Pool) {
    let mut v4 = object("p4", "10.0.0.0/24", &["10.0.0.10"]);
    v4["spec"]["gateway"] = json!("10.0.0.1");
    v4["spec"]["routes"] = json!([{"dst": "10.9.0.0/16", "gw": "10.0.0.2"}]);
    (pool(&v4), pool(&object("p6", "fd00::/64", &["fd00::10"])))
}

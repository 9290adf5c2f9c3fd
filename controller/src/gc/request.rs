//! The release call for a record that goes: whose it was, and on which node.

use spiderpool_api::allocation::Record;
use spiderpool_api::provider::ReleaseRequest;
use spiderpool_iaas::error::CallError;
use spiderpool_ipam::first_generation::{Unnamed, unnamed};
use spiderpool_ipam::pool::{Mode, Pool};

use super::Garbage;
use crate::chain::full;

/// What is known of a record that names no node.
pub(super) fn unnamed_of(pool: &Pool, one: &Garbage, record: &Record) -> Unnamed {
    let (endpoint, pod_node) = (one.endpoint.as_ref(), one.pod_node.as_deref());
    unnamed(pool, (one.address, record), endpoint, pod_node)
}

/// The node to tell. Under contract version 1 the record knows for which one the provider was asked.
fn node_of(pool: &Pool, garbage: &Garbage) -> String {
    let record = pool.records.get(garbage.address);
    let asked = record.and_then(|record| record.node.clone());
    let known = asked.or_else(|| garbage.node.clone());
    known.unwrap_or_else(|| match (&pool.mode, record) {
        (Mode::Prewarm { node }, _) => node.clone(),
        (_, Some(record)) => match unnamed_of(pool, garbage, record) {
            Unnamed::For(node) => node,
            Unnamed::NotBound | Unnamed::Nowhere => String::new(),
        },
        (_, None) => String::new(),
    })
}

/// What the provider is told.
pub(super) fn request(pool: &Pool, garbage: &Garbage) -> ReleaseRequest {
    ReleaseRequest {
        pod_name: garbage.key.name.clone(),
        pod_namespace: garbage.key.namespace.clone(),
        pod_uid: garbage.uid.clone(),
        node_name: node_of(pool, garbage),
        parent_nic_mac: pool.parent_mac,
        subnet: pool.subnet.trunc(),
        ip_address: garbage.address,
        pool_name: pool.name.clone(),
    }
}

/// Logs what a call came to; whether the provider has accepted.
pub(super) fn told(request: &ReleaseRequest, result: &Result<(), CallError>) -> bool {
    let (pod, namespace) = (&request.pod_name, &request.pod_namespace);
    let (uid, ip, pool) = (&request.pod_uid, request.ip_address, &request.pool_name);
    match result {
        Ok(()) => {
            tracing::info!(pod, namespace, uid, %ip, pool, "IaaS release API succeeded");
        }
        Err(error) => {
            let error = full(error);
            tracing::error!(pod, namespace, uid, %ip, pool, error, "IaaS release API failed");
        }
    }
    result.is_ok()
}

//! What has to be true of a cluster at rest.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value;
use spiderpool_api::allocation::Record;
use spiderpool_ipam::pool::Pool;

use crate::api::{Api, Kind};
use crate::world::World;
use crate::{identities, machines};

/// 3, 9, 22: counts are right, records and endpoints are those of live Pods, or of ordinals whose Pod has
/// not come up yet. The number of what is broken, and the text.
pub(crate) fn unhealed(world: &World) -> Option<(u8, String)> {
    let api = world.api();
    let pools = world.check().pools(&api);
    let rest = Rest {
        pods: api.all(Kind::Pod),
        pools,
        api: &api,
    };
    let of = |invariant| move |text| (invariant, text);
    let miscounted = rest.miscounted().map(of(3));
    miscounted
        .or_else(|| rest.stray_record().map(of(22)))
        .or_else(|| rest.stray_endpoint().map(of(22)))
}

struct Rest<'a> {
    api: &'a Api,
    pods: Vec<Arc<Value>>,
    pools: Vec<Arc<Pool>>,
}

impl Rest<'_> {
    fn is_alive(&self, uid: &str) -> bool {
        self.pods.iter().any(|pod| pod["metadata"]["uid"] == uid)
    }

    fn is_kept(&self, key: &str) -> bool {
        let pod = self.api.get(Kind::Pod, key);
        let up = pod.is_some_and(|pod| !pod["status"]["podIPs"].is_null());
        identities::is_wanted(self.api, key) && !up
    }

    /// Whether the endpoint of this key names the address.
    fn is_listed(&self, key: &str, address: IpAddr) -> bool {
        let endpoint = self.api.get(Kind::Endpoint, key);
        let nics = endpoint.and_then(|endpoint| endpoint["status"]["current"]["ips"].as_array());
        let mut listed = nics
            .into_iter()
            .flatten()
            .flat_map(|nic| [&nic["ipv4"], &nic["ipv6"]])
            .filter_map(address_of);
        listed.any(|listed| listed == address)
    }

    /// Of a machine whichever of its Pods the record was written for last, and no more than it uses.
    fn is_kept_record(&self, address: IpAddr, record: &Record) -> bool {
        let key = &record.pod;
        let used = !machines::is_machine(key) || self.is_listed(key, address);
        self.is_kept(key) && used
    }

    fn stray_record(&self) -> Option<String> {
        let pools = self.pools.iter();
        let mut records =
            pools.flat_map(|pool| pool.records.iter().map(move |record| (pool, record)));
        let (pool, (address, record)) = records.find(|(_, (address, record))| {
            !self.is_alive(&record.pod_uid) && !self.is_kept_record(*address, record)
        })?;
        let uid = &record.pod_uid;
        Some(format!("{address} of {} stays with {uid}", pool.name))
    }

    fn miscounted(&self) -> Option<String> {
        let raw = self.api.all(Kind::Pool);
        let mut counts = raw.iter().filter_map(|raw| {
            let pool = self
                .pools
                .iter()
                .find(|pool| raw["metadata"]["name"] == pool.name);
            pool.zip(raw["status"]["totalIPCount"].as_i64())
        });
        let (pool, counted) = counts.find(|(pool, counted)| *counted != pool.usable.count())?;
        let (name, usable) = (&pool.name, pool.usable.count());
        Some(format!("{name} counts {counted} addresses of {usable}"))
    }

    fn stray_endpoint(&self) -> Option<String> {
        let endpoints = self.api.all(Kind::Endpoint);
        let mut texts = endpoints.iter().filter_map(|endpoint| {
            let current = &endpoint["status"]["current"];
            let uid = current["uid"].as_str().unwrap_or_default();
            let name = endpoint["metadata"]["name"].as_str().unwrap_or_default();
            let key = format!("sim/{name}");
            if !self.is_alive(uid) && !self.is_kept(&key) {
                return Some(format!("endpoint {name} stays with {uid}"));
            }
            let proven = |address| {
                let mut records = self
                    .pools
                    .iter()
                    .filter_map(|pool| pool.records.get(address));
                records.any(|record| {
                    record.pod_uid == uid || (self.is_kept(&key) && record.pod == key)
                })
            };
            let nics = current["ips"].as_array().into_iter().flatten();
            let mut addresses = nics
                .flat_map(|nic| [&nic["ipv4"], &nic["ipv6"]])
                .filter_map(address_of);
            let bare = addresses.find(|address| !proven(*address))?;
            Some(format!("endpoint {name} names {bare} without a record"))
        });
        texts.next()
    }
}

pub(crate) fn address_of(cidr: &Value) -> Option<IpAddr> {
    cidr.as_str()?.split('/').next()?.parse().ok()
}

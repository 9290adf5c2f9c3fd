//! What the provider does for an allocate call: checks (P4) and a transaction that ends with all
//! sub-ENIs bound or none (P3).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::json;
use spiderpool_api::provider::SubEniRequest;
use spiderpool_api::value::Mac;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use crate::asked::{Asked, Version};
use crate::cloud::{State, SubEni};
use crate::engine::Wanted;
use crate::pool::Pool;
use crate::refusal::Refusal;
use crate::service::{Service, World};

/// One step to take back.
enum Undo {
    Delete(Mac),
    Detach(Mac),
    /// From its new partner.
    Part(Mac),
}

impl World {
    /// Whether a request can be meant seriously; returns what it wants.
    ///
    /// # Errors
    /// [`Refusal`] for the first thing that is wrong.
    pub fn check(&self, asked: &Asked) -> Result<Vec<Wanted>, Refusal> {
        let Asked { request, version } = asked;
        if request.node_name.is_empty() {
            return Err(Refusal::invalid("nodeName must not be empty"));
        }
        if request.sub_eni_requests.is_empty() {
            return Err(Refusal::invalid("subEniRequests must not be empty"));
        }
        let mut seen = BTreeSet::new();
        let mut wanted = Vec::new();
        for item in &request.sub_eni_requests {
            let one = self.check_item(item, &request.node_name, *version)?;
            for ip in one.addresses() {
                if !seen.insert(ip) {
                    return Err(Refusal::invalid(format!("{ip} is requested twice")));
                }
            }
            wanted.push(one);
        }
        Ok(wanted)
    }

    fn check_item(
        &self,
        item: &SubEniRequest,
        node: &str,
        version: Version,
    ) -> Result<Wanted, Refusal> {
        let parent = item.parent_nic_mac;
        let key = self.check_addresses(item, node)?;
        let wanted = |pool: &str| Wanted {
            ipv4: item.ipv4_address,
            ipv6: item.ipv6_address,
            pool: pool.to_owned(),
            parent,
        };
        let named = match item.ipv4_address {
            Some(_) => &item.ipv4_pool_name,
            None => &item.ipv6_pool_name,
        };
        let pool = match (version, self.pool_for(named.as_deref(), key)) {
            (_, Ok(pool)) => pool,
            // version 1 knows no pools, so theirs need not be the provider's
            (Version::V1, Err(_)) => {
                let known = self.memory.find(key).map(|sub_eni| sub_eni.pool.as_str());
                return Ok(wanted(known.unwrap_or_default()));
            }
            (Version::V2, Err(refusal)) => return Err(refusal),
        };
        if pool.node.as_deref().is_some_and(|of| of != node) {
            let of = pool.node.as_deref().unwrap_or_default();
            let message = format!("pool {} belongs to node {of}", pool.name);
            return Err(Refusal::new(409, "PoolMismatch", message));
        }
        self.check_pair(item, pool)?;
        Ok(wanted(&pool.name))
    }

    /// Whether node, parent, subnet and addresses of an item fit together; returns the address
    /// its sub-ENI is known by.
    fn check_addresses(&self, item: &SubEniRequest, node: &str) -> Result<IpAddr, Refusal> {
        let (parent, subnet) = (item.parent_nic_mac, item.subnet);
        let v4 = item.ipv4_address.map(IpAddr::V4);
        let Some(key) = v4.or(item.ipv6_address.map(IpAddr::V6)) else {
            return Err(Refusal::invalid(
                "a sub-ENI needs ipv4Address or ipv6Address",
            ));
        };
        if v4.is_none() && !self.settings.allow_v6_only {
            let message = "a sub-ENI needs an IPv4 address";
            return Err(Refusal::new(400, "UnsupportedAddressFamily", message));
        }
        if self.cloud.node_of(parent) != Some(node) {
            let message = format!("parent NIC {parent} does not belong to {node}");
            return Err(Refusal::new(400, "ParentNicNotOnNode", message));
        }
        if !subnet.contains(&key) {
            return Err(Refusal::invalid(format!("{key} is not in {subnet}")));
        }
        let known = self.cloud.subnet_of(key);
        if known.is_none_or(|known| !known.contains(subnet.network())) {
            let message = format!("no cloud subnet for {subnet}");
            return Err(Refusal::new(404, "SubnetNotFound", message));
        }
        Ok(key)
    }

    fn pool_for(&self, name: Option<&str>, ip: IpAddr) -> Result<&Pool, Refusal> {
        let pools = &self.memory.pools;
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            let found = pools.values().find(|pool| pool.addresses.contains(ip));
            return found
                .ok_or_else(|| Refusal::new(404, "AddressNotFound", format!("{ip} is unknown")));
        };
        let pool = pools
            .get(name)
            .ok_or_else(|| Refusal::new(404, "PoolNotFound", format!("pool {name} is unknown")))?;
        if pool.addresses.contains(ip) {
            return Ok(pool);
        }
        let message = format!("{ip} does not belong to pool {name}");
        Err(Refusal::new(409, "PoolMismatch", message))
    }

    /// Whether the two addresses of an item are partners, by their pools and by what exists.
    fn check_pair(&self, item: &SubEniRequest, pool: &Pool) -> Result<(), Refusal> {
        let (Some(v4), Some(v6)) = (item.ipv4_address, item.ipv6_address) else {
            return Ok(());
        };
        let mismatch = |message: String| Refusal::new(400, "PairMismatch", message);
        if let Some(named) = &item.ipv6_pool_name
            && pool.pair.as_ref() != Some(named)
        {
            let message = format!("pool {named} is not the partner of pool {}", pool.name);
            return Err(mismatch(message));
        }
        let sibling = pool
            .pair
            .as_ref()
            .and_then(|pair| self.memory.pools.get(pair));
        if sibling.is_some_and(|sibling| !sibling.addresses.contains(v6.into())) {
            return Err(mismatch(format!(
                "{v6} does not belong to the partner of pool {}",
                pool.name
            )));
        }
        let expected = self.memory.find(v4.into()).and_then(|sub_eni| sub_eni.ipv6);
        let holder = self.memory.find(v6.into()).and_then(|sub_eni| sub_eni.ipv4);
        match (expected, holder) {
            (Some(expected), _) if expected != v6 => {
                let details = json!({ "ipv4Address": v4, "expectedIPv6Address": expected });
                Err(mismatch(format!("{v6} is not the partner of {v4}")).with(details))
            }
            (None, Some(holder)) if holder != v4 => Err(mismatch(format!(
                "{v6} is the partner of {holder}, not of {v4}"
            ))),
            _ => Ok(()),
        }
    }
}

impl Service {
    /// Binds all, or undoes what it did.
    ///
    /// # Errors
    /// [`Refusal`] of the first item that failed.
    pub async fn bind_all(
        self: Arc<Self>,
        asked: impl Into<Asked> + Send,
    ) -> Result<Vec<SubEni>, Refusal> {
        self.bind_while(asked.into(), || true).await
    }

    /// As [`Self::bind_all`], but not begun for a caller that is gone by the time it is its turn
    /// (P7). Once begun it runs to its end: without a caller the sub-ENIs are idle cache.
    ///
    /// # Errors
    /// [`Refusal`] of the first item that failed.
    pub async fn bind_while(
        self: Arc<Self>,
        asked: Asked,
        is_waited_for: impl Fn() -> bool + Send,
    ) -> Result<Vec<SubEni>, Refusal> {
        let limit = self.with(|world| world.settings.transaction_timeout());
        let deadline = Instant::now() + limit;
        let (wanted, life) = self.look(|world| (world.check(&asked), world.memory.life))?;
        let addresses: BTreeSet<IpAddr> = wanted?.iter().flat_map(Wanted::addresses).collect();
        let Ok(_turns) = timeout_at(deadline, self.locks.lock(&addresses)).await else {
            let limit = limit.as_millis();
            let message =
                format!("earlier calls for {addresses:?} did not finish within {limit} ms");
            return Err(Refusal::new(504, "CloudTimeout", message));
        };
        if !is_waited_for() {
            return Err(Refusal::new(503, "NotReady", "the caller is gone"));
        }
        // somebody may have paired, moved or removed them meanwhile
        let wanted = self.look(|world| world.check(&asked))??;
        let bound = self.bind_each(&wanted, deadline).await;
        let forgot = self.with(|world| world.memory.life != life);
        bound.map_err(|refusal| if forgot { Refusal::unready() } else { refusal })
    }

    async fn bind_each(
        &self,
        wanted: &[Wanted],
        deadline: Instant,
    ) -> Result<Vec<SubEni>, Refusal> {
        let mut bound = Vec::with_capacity(wanted.len());
        let mut undo = Vec::new();
        for one in wanted {
            match self.bind_one(one, Some(deadline), &mut undo).await {
                Ok(sub_eni) => bound.push(sub_eni),
                Err(refusal) => {
                    self.undo(undo).await;
                    return Err(refusal);
                }
            }
        }
        Ok(bound)
    }

    async fn bind_one(
        &self,
        wanted: &Wanted,
        by: Option<Instant>,
        undo: &mut Vec<Undo>,
    ) -> Result<SubEni, Refusal> {
        let key = wanted.key().ok_or_else(|| Refusal::invalid("no address"))?;
        let mut known = self.with(|world| world.memory.find(key).cloned());
        if let Some(found) = known.as_ref().filter(|found| found.pool != wanted.pool) {
            if found.pool.is_empty() {
                let message = format!("{key} is used by a cloud port this provider does not own");
                return Err(Refusal::new(409, "AddressInUse", message));
            }
            let message = format!("{key} belongs to pool {}", found.pool);
            return Err(Refusal::new(409, "PoolMismatch", message));
        }
        if let Some(found) = &known
            && found.ipv6.is_none()
            && wanted.ipv6.is_some()
        {
            // made when nobody asked for the partner
            self.repartner(found.mac, wanted.ipv6, by).await?;
            undo.push(Undo::Part(found.mac));
            known = self.with(|world| world.memory.find(key).cloned());
        }
        let mac = match known {
            None => {
                let mac = self.create(wanted, by).await?;
                undo.push(Undo::Delete(mac));
                mac
            }
            Some(found) => match found.state {
                State::Bound(at) if at.parent == wanted.parent => {
                    self.with(|world| world.memory.chosen.remove(&key));
                    return Ok(found);
                }
                State::Bound(_) => {
                    // a moved sub-ENI is not moved back: its old VLAN is gone for good
                    self.detach(found.mac, by).await?;
                    found.mac
                }
                _ => found.mac,
            },
        };
        self.make_room(wanted.parent, by).await;
        self.attach(mac, wanted.parent, by).await?;
        undo.push(Undo::Detach(mac));
        let bound = self.with(|world| {
            // used again, whoever chose it for reclaim
            world.memory.chosen.remove(&key);
            world.memory.find(key).cloned()
        });
        bound
            .ok_or_else(|| Refusal::new(500, "Internal", format!("state of {key} is inconsistent")))
    }

    /// Binds one outside of a call, or undoes what it did.
    ///
    /// # Errors
    /// [`Refusal`] of the cloud.
    pub async fn bind_alone(&self, wanted: &Wanted) -> Result<SubEni, Refusal> {
        let _turns = self.locks.lock(&wanted.addresses()).await;
        let mut undo = Vec::new();
        let bound = self.bind_one(wanted, None, &mut undo).await;
        if bound.is_err() {
            self.undo(undo).await;
        }
        bound
    }

    /// Newest step first. What cannot be undone stays as idle cache.
    async fn undo(&self, steps: Vec<Undo>) {
        for step in steps.into_iter().rev() {
            let undone = match step {
                Undo::Delete(mac) => self.delete(mac, None).await,
                Undo::Detach(mac) => self.detach(mac, None).await,
                Undo::Part(mac) => self.repartner(mac, None, None).await,
            };
            if let Err(cause) = undone {
                warn!(%cause, "a step of a failed allocation is not undone");
            }
        }
    }

    /// Detaches and removes a sub-ENI, from wherever it is.
    ///
    /// # Errors
    /// [`Refusal`] of the cloud.
    pub async fn tear_down(&self, mac: Mac, by: Option<Instant>) -> Result<(), Refusal> {
        let state = self.with(|world| world.cloud.get(mac).map(|sub_eni| sub_eni.state));
        match state {
            None => return Ok(()),
            Some(State::Bound(_)) => self.detach(mac, by).await?,
            Some(_) => {}
        }
        self.delete(mac, by).await
    }
}

//! Single operations on the cloud, with their time and their faults (P7). Each is begun, takes a
//! while, and ends; the provider learns of both ends.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde_json::json;
use spiderpool_api::value::Mac;
use tokio::time::{Instant, sleep, sleep_until};

use crate::cloud::{CloudError, Operation};
use crate::faults::{Kind, Op};
use crate::refusal::Refusal;
use crate::service::{Service, World};

/// A sub-ENI as it is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// Its IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
    /// The pool it is for.
    pub pool: String,
    /// The parent NIC it shall hang on.
    pub parent: Mac,
}

impl Wanted {
    /// Its addresses.
    #[must_use]
    pub fn addresses(&self) -> BTreeSet<IpAddr> {
        let v4 = self.ipv4.map(IpAddr::V4).into_iter();
        v4.chain(self.ipv6.map(IpAddr::V6)).collect()
    }

    /// The address its sub-ENI is known by.
    #[must_use]
    pub fn key(&self) -> Option<IpAddr> {
        self.ipv4.map(IpAddr::V4).or(self.ipv6.map(IpAddr::V6))
    }
}

impl Service {
    /// Makes a sub-ENI.
    ///
    /// # Errors
    /// [`Refusal`] of the cloud, or when it would not be done by `deadline`.
    pub async fn create(&self, wanted: &Wanted, by: Option<Instant>) -> Result<Mac, Refusal> {
        let ips = wanted.addresses();
        let took = self
            .admit(Operation::Create, &ips, &wanted.pool, by)
            .await?;
        let mac = self.change(|world| {
            let made = world
                .cloud
                .begin_create(wanted.ipv4, wanted.ipv6, &wanted.pool)?;
            world.learn(made);
            Ok::<_, CloudError>(made)
        })?;
        self.finish(mac, took).await;
        Ok(mac)
    }

    /// Attaches a sub-ENI that is attached nowhere.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub async fn attach(&self, mac: Mac, parent: Mac, by: Option<Instant>) -> Result<(), Refusal> {
        let now = self.now();
        self.operate(Operation::Attach, mac, by, |world| {
            world.cloud.begin_attach(mac, parent, now).map(|_vlan| ())
        })
        .await
    }

    /// Detaches a bound sub-ENI.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub async fn detach(&self, mac: Mac, by: Option<Instant>) -> Result<(), Refusal> {
        self.operate(Operation::Detach, mac, by, |world| {
            world.cloud.begin_detach(mac)
        })
        .await
    }

    /// Gives a sub-ENI another IPv6 address, or none.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub async fn repartner(
        &self,
        mac: Mac,
        ipv6: Option<Ipv6Addr>,
        by: Option<Instant>,
    ) -> Result<(), Refusal> {
        self.operate(Operation::Update, mac, by, |world| {
            world.cloud.update(mac, ipv6)
        })
        .await
    }

    /// Removes a sub-ENI that is attached nowhere.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub async fn delete(&self, mac: Mac, by: Option<Instant>) -> Result<(), Refusal> {
        self.operate(Operation::Delete, mac, by, |world| {
            world.cloud.begin_delete(mac)
        })
        .await
    }

    async fn operate(
        &self,
        operation: Operation,
        mac: Mac,
        by: Option<Instant>,
        begin: impl FnOnce(&mut World) -> Result<(), CloudError>,
    ) -> Result<(), Refusal> {
        let (ips, pool) = self.with(|world| {
            let sub_eni = world.cloud.get(mac);
            let ips = sub_eni.and_then(|sub_eni| sub_eni.address()).into_iter();
            let pool = sub_eni.map(|sub_eni| sub_eni.pool.clone());
            (ips.collect::<BTreeSet<_>>(), pool.unwrap_or_default())
        });
        let took = self.admit(operation, &ips, &pool, by).await?;
        self.change(|world| {
            begin(world)?;
            world.learn(mac);
            Ok::<_, CloudError>(())
        })?;
        self.finish(mac, took).await;
        Ok(())
    }

    /// Whether the cloud takes an operation now; returns how long it will need.
    async fn admit(
        &self,
        operation: Operation,
        ips: &BTreeSet<IpAddr>,
        pool: &str,
        by: Option<Instant>,
    ) -> Result<Duration, Refusal> {
        let name = operation.name();
        let (mut took, fault) = self.with(|world| {
            let mean = world.settings.latency.of(operation);
            let jitter = 0.8 + world.chance.f64() * 0.4;
            let subject = World::subject(ips, [pool.to_owned()], "");
            (
                mean.mul_f64(jitter),
                world.faults.take(operation.op(), &subject),
            )
        });
        match fault.as_ref().map(|fault| fault.kind) {
            Some(Kind::CloudError) => {
                let message = format!("{name} refused by the cloud platform");
                return Err(
                    Refusal::new(502, "CloudError", message).with(json!({ "operation": name }))
                );
            }
            Some(Kind::CloudThrottle) => {
                let message = "the cloud platform limits the call rate";
                return Err(Refusal::new(503, "CloudThrottled", message));
            }
            Some(Kind::Delay) => {
                took += Duration::from_millis(fault.map_or(0, |fault| fault.delay_ms));
            }
            _ => {}
        }
        match by {
            Some(by) if Instant::now() + took > by => {
                // an operation that would end too late is not begun: nothing to undo
                sleep_until(by).await;
                let limit = self.with(|world| world.settings.transaction_timeout_ms);
                let message = format!("{name} did not finish within {limit} ms");
                Err(Refusal::new(504, "CloudTimeout", message))
            }
            _ => Ok(took),
        }
    }

    async fn finish(&self, mac: Mac, took: Duration) {
        sleep(took).await;
        let now = self.now();
        self.change(|world| {
            world.forward_later(mac, now);
            let address = world.cloud.get(mac).and_then(|sub_eni| sub_eni.address());
            match (world.cloud.finish(mac, now), address) {
                (Some(sub_eni), _) => world.memory.learn(sub_eni),
                (None, Some(ip)) => world.memory.forget(ip),
                (None, None) => {}
            }
        });
    }
}

impl World {
    fn learn(&mut self, mac: Mac) {
        if let Some(sub_eni) = self.cloud.get(mac) {
            self.memory.learn(sub_eni);
        }
    }
}

impl Operation {
    /// As faults know it.
    #[must_use]
    pub const fn op(self) -> Op {
        match self {
            Self::Create => Op::Create,
            Self::Attach => Op::Attach,
            Self::Detach => Op::Detach,
            Self::Delete => Op::Delete,
            Self::Update => Op::Update,
        }
    }

    /// As counters and errors name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Attach => "attach",
            Self::Detach => "detach",
            Self::Delete => "delete",
            Self::Update => "update",
        }
    }
}

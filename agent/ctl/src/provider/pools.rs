//! The pools of an API server during a run: reads what the provider publishes, and holds the
//! addresses that are used with records of its own, as an agent would. Writes `allocatedIPs` and
//! `allocatedIPCount` alone, conditionally.

use std::net::IpAddr;

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use serde_json::{Map, Value, json};
use spiderpool_api::allocation::{Record, Records, RecordsError};
use spiderpool_api::ippool::SpiderIPPool;

use super::wire::Identity;

/// Tries of a conditional write; the provider and agents write the same object.
const TRIES: usize = 50;

/// A pool could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PoolsError {
    /// The API server said no, or nothing.
    #[error("cannot {what} pool {pool}")]
    Api {
        /// Tried.
        what: &'static str,
        /// Which.
        pool: String,
        /// Its words.
        source: Box<kube::Error>,
    },
    /// Not the shape of a pool.
    #[error("pool {pool} cannot be read")]
    Shape {
        /// Which.
        pool: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// Its records are not records.
    #[error("the records of pool {pool} cannot be read")]
    Records {
        /// Which.
        pool: String,
        /// What is wrong.
        source: RecordsError,
    },
    /// Somebody has the address.
    #[error("{address} of pool {pool} belongs to Pod {pod} by now; it is not touched")]
    Taken {
        /// Which.
        pool: String,
        /// Which.
        address: IpAddr,
        /// Whose.
        pod: String,
    },
    /// Another run of this command has it.
    #[error(
        "{address} of pool {pool} belongs to another run of this test, {pod}: run it again when that run has ended (of one that was killed, garbage collection removes the records), or name other pools"
    )]
    OtherRun {
        /// Which.
        pool: String,
        /// Which.
        address: IpAddr,
        /// Its Pod.
        pod: String,
    },
    /// Others always come first.
    #[error("pool {0} is written by others all the time")]
    Busy(String),
}

/// The pools.
pub(crate) struct Pools {
    api: Api<DynamicObject>,
    who: Identity,
}

impl Pools {
    pub(crate) fn new(client: Client, who: Identity) -> Self {
        let resource = ApiResource::erase::<SpiderIPPool>(&());
        Self {
            api: Api::all_with(client, &resource),
            who,
        }
    }

    /// The pool as it is now.
    ///
    /// # Errors
    /// [`PoolsError`].
    pub(crate) async fn read(&self, pool: &str) -> Result<SpiderIPPool, PoolsError> {
        let object = self.get(pool).await?;
        let shape = |source| PoolsError::Shape {
            pool: pool.to_owned(),
            source,
        };
        let value = serde_json::to_value(&object).map_err(shape)?;
        serde_json::from_value(value).map_err(shape)
    }

    /// Records these addresses as the Pod's of the run. All or none.
    ///
    /// # Errors
    /// [`PoolsError::Taken`] when one has a record.
    pub(crate) async fn claim(&self, pool: &str, addresses: &[IpAddr]) -> Result<(), PoolsError> {
        self.change(pool, |records| {
            for (number, address) in addresses.iter().enumerate() {
                if let Some(record) = records.get(*address) {
                    let pool = pool.to_owned();
                    return Err(taken(pool, *address, record.pod.clone()));
                }
                records.insert(*address, self.record(&self.who.uid, number));
            }
            Ok(())
        })
        .await
    }

    /// Removes the run's records of these addresses, and nobody else's.
    ///
    /// # Errors
    /// [`PoolsError`].
    pub(crate) async fn unclaim(&self, pool: &str, addresses: &[IpAddr]) -> Result<(), PoolsError> {
        self.change(pool, |records| {
            for address in addresses {
                if records
                    .get(*address)
                    .is_some_and(|record| self.is_ours(record))
                {
                    records.remove(*address);
                }
            }
            Ok(())
        })
        .await
    }

    /// Gives an address of the run to another Pod of it, as if the first had been deleted.
    ///
    /// # Errors
    /// [`PoolsError`].
    pub(crate) async fn hand_over(
        &self,
        pool: &str,
        address: IpAddr,
        uid: &str,
    ) -> Result<(), PoolsError> {
        self.change(pool, |records| {
            if records
                .get(address)
                .is_some_and(|record| self.is_ours(record))
            {
                records.insert(address, self.record(uid, 0));
            }
            Ok(())
        })
        .await
    }

    /// Which of these have no record of the run any more.
    ///
    /// # Errors
    /// [`PoolsError`].
    pub(crate) async fn lost(
        &self,
        pool: &str,
        addresses: &[IpAddr],
    ) -> Result<Vec<IpAddr>, PoolsError> {
        let object = self.get(pool).await?;
        let records = records_of(pool, &object.data)?;
        let ours = |ip: &&IpAddr| !records.get(**ip).is_some_and(|record| self.is_ours(record));
        Ok(addresses.iter().filter(ours).copied().collect())
    }

    /// By the Pod's name, which is unique: its UID may be another for a while.
    fn is_ours(&self, record: &Record) -> bool {
        record.pod == self.who.pod()
    }

    fn record(&self, uid: &str, number: usize) -> Record {
        Record {
            pod: self.who.pod(),
            pod_uid: uid.to_owned(),
            nic: Some(format!("net{number}")),
            node: None,
            releasing: None,
            extra: Map::new(),
        }
    }

    async fn get(&self, pool: &str) -> Result<DynamicObject, PoolsError> {
        let read = self.api.get(pool).await;
        read.map_err(|source| failed("read", pool, source))
    }

    /// Reads, changes, writes on the condition that nobody wrote meanwhile.
    async fn change(
        &self,
        pool: &str,
        change: impl Fn(&mut Records) -> Result<(), PoolsError>,
    ) -> Result<(), PoolsError> {
        for _ in 0..TRIES {
            let mut object = self.get(pool).await?;
            let mut records = records_of(pool, &object.data)?;
            let before = records.clone();
            change(&mut records)?;
            if records == before {
                return Ok(());
            }
            write_records(&mut object.data, &records);
            let written = self
                .api
                .replace_status(pool, &PostParams::default(), &object)
                .await;
            match written {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(source) => return Err(failed("write the records of", pool, source)),
            }
        }
        Err(PoolsError::Busy(pool.to_owned()))
    }
}

fn taken(pool: String, address: IpAddr, pod: String) -> PoolsError {
    if Identity::is_of_a_run(&pod) {
        PoolsError::OtherRun { pool, address, pod }
    } else {
        PoolsError::Taken { pool, address, pod }
    }
}

fn failed(what: &'static str, pool: &str, source: kube::Error) -> PoolsError {
    PoolsError::Api {
        what,
        pool: pool.to_owned(),
        source: Box::new(source),
    }
}

fn records_of(pool: &str, data: &Value) -> Result<Records, PoolsError> {
    let text = data.pointer("/status/allocatedIPs").and_then(Value::as_str);
    Records::decode(text).map_err(|source| PoolsError::Records {
        pool: pool.to_owned(),
        source,
    })
}

fn write_records(data: &mut Value, records: &Records) {
    let Some(fields) = data.as_object_mut() else {
        return;
    };
    let status = fields.entry("status").or_insert_with(|| json!({}));
    if let Some(status) = status.as_object_mut() {
        match records.encode() {
            Some(text) => status.insert("allocatedIPs".to_owned(), text.into()),
            None => status.remove("allocatedIPs"),
        };
        status.insert("allocatedIPCount".to_owned(), records.count().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_run_is_told_from_a_pod() {
        let text = |pod: &str| {
            let address = IpAddr::from([10, 72, 0, 39]);
            taken("w".to_owned(), address, pod.to_owned()).to_string()
        };
        let wait = "run it again when that run has ended";
        let run = text(&Identity::of_new_run().pod());
        assert!(
            run.contains(wait) && run.contains("10.72.0.39 of pool w"),
            "{run}"
        );
        for pod in ["shop/run-1", "provider-verify/web", "provider-verify"] {
            let pod = text(pod);
            assert!(
                pod.contains("is not touched") && !pod.contains(wait),
                "{pod}"
            );
        }
    }
}

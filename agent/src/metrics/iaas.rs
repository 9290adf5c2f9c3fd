//! Addresses of a provider's pools, and the calls to the provider (spec iaas 14).

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use spiderpool_controller::metrics::{CallMetrics, Histograms, histograms};
use spiderpool_ipam::pick::{Path, PickError};
use spiderpool_ipam::pool::{Mode, Pool};

use super::{Labels, registered};
use crate::flow::bind::BindError;
use crate::writer::WriteError;

/// The metrics of provider pools.
#[derive(Debug)]
pub(crate) struct IaasMetrics {
    allocated: Family<Labels, Counter>,
    failed: Family<Labels, Counter>,
    took: Histograms,
    /// Calls to the provider.
    pub(crate) calls: CallMetrics,
    rollbacks: Counter,
    undecodable: Family<Labels, Counter>,
}

impl IaasMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        Self {
            allocated: registered(
                registry,
                "iaas_allocation",
                "Addresses given out of a provider's pools",
                Family::default(),
            ),
            failed: registered(
                registry,
                "iaas_allocation_failure",
                "Allocations that failed, by pool of a provider that was tried",
                Family::default(),
            ),
            took: registered(
                registry,
                "iaas_allocation_duration_seconds",
                "Time from the first claim to a bound sub-ENI; a pair counts once",
                histograms(),
            ),
            calls: CallMetrics::new(registry),
            rollbacks: registered(
                registry,
                "iaas_claim_rollback",
                "Claims given back because their sub-ENI could not be bound",
                Counter::default(),
            ),
            undecodable: registered(
                registry,
                "iaas_metadata_decode_failure",
                "Publications of a provider that cannot be read, and entries that contradict themselves",
                Family::default(),
            ),
        }
    }

    /// An address of this pool was given out.
    pub(crate) fn allocated(&self, pool: &Pool, path: Path, took: Duration) {
        if let Some(mode) = mode(pool, path.is_cold()) {
            let labels = vec![
                ("mode", mode),
                ("path", path.label().to_owned()),
                ("pool", pool.name.clone()),
            ];
            self.allocated.get_or_create(&labels).inc();
            self.took.get_or_create(&labels).observe(took.as_secs_f64());
        }
    }

    /// The allocation failed after this pool had given nothing.
    pub(crate) fn refused(&self, pool: &Pool, sub_eni: bool, error: &WriteError) {
        let reason = match error {
            WriteError::Pick(error) if error.is_used_out() => "no_ready_ip",
            WriteError::Pick(PickError::NotReady(_)) => "metadata_not_ready",
            WriteError::Conflicts(_) => "pair_conflict",
            _ => "internal",
        };
        self.failed(mode(pool, sub_eni), pool, reason);
    }

    /// The provider did not bind an address of this pool.
    pub(crate) fn unbound(&self, pool: &Pool, error: &BindError) {
        self.failed(
            mode(pool, true),
            pool,
            match error {
                BindError::Call(error) => error.allocation_reason(),
                BindError::Incomplete { .. } => "rpc_error",
                BindError::Parent { .. }
                | BindError::NoProvider
                | BindError::RecordGone { .. }
                | BindError::Ended(_) => "internal",
            },
        );
    }

    /// The pool was not tried: its addresses need another kind of NIC.
    pub(crate) fn wrong_nic(&self, pool: &Pool) {
        self.failed(mode(pool, false), pool, "internal");
    }

    fn failed(&self, mode: Option<String>, pool: &Pool, reason: &str) {
        if let Some(mode) = mode {
            let labels = vec![
                ("mode", mode),
                ("reason", reason.to_owned()),
                ("pool", pool.name.clone()),
            ];
            self.failed.get_or_create(&labels).inc();
        }
    }

    /// A publication, or an entry of one, cannot be read.
    pub(crate) fn undecodable(&self, reason: &str) {
        let labels = vec![("reason", reason.to_owned())];
        self.undecodable.get_or_create(&labels).inc();
    }

    /// A claim was given back.
    pub(crate) fn rolled_back(&self) {
        self.rollbacks.inc();
    }
}

/// Label `mode`; `None` for pools without a provider. Under the first generation of the contract a
/// pool has no mode, and its addresses are bound where they are needed.
fn mode(pool: &Pool, sub_eni: bool) -> Option<String> {
    match pool.mode {
        Mode::Plain if sub_eni => Some("global".to_owned()),
        Mode::Plain => None,
        Mode::Prewarm { .. } => Some("node".to_owned()),
        Mode::Global => Some("global".to_owned()),
    }
}

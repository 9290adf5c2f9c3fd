//! [`KernelObserver`]: the observer in the kernel.
//!
//! Loads when the first parent NIC is named: a node without sub-ENIs has no programs. What cannot
//! be loaded or attached is logged once and not tried again before the next start (loading) or
//! the next sub-ENI of that NIC (attaching).

use std::net::IpAddr;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use spiderpool_api::observer_v1::{DetachReport, ObserverReport, VerifyReport};
use spiderpool_api::value::{IfName, Mac};
use spiderpool_ebpf_common::layout::State as Life;
use spiderpool_netops::netns::Netns;
use spiderpool_netops::rtnl::{Hook, Rtnl};
use tokio::sync::broadcast;

use super::attach::{CLSACT, Target};
use super::bpffs::Pins;
use super::error::ObserverError;
use super::events::Observed;
use super::shared::{ObserverSettings, Shared, Stage};
use super::state::State;
use super::{Entry, ObserverOps, Place, Wanted, report};
use crate::flow::error::full;

/// The observer in the kernel. Needs CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON; CAP_SYS_ADMIN to mount a
/// BPF file system and to enter the host's namespace.
pub struct KernelObserver {
    shared: Arc<Shared>,
}

impl KernelObserver {
    /// For the parent NICs in `host`. Touches nothing yet.
    #[must_use]
    pub fn new(settings: ObserverSettings, host: Netns) -> Self {
        Self {
            shared: Arc::new(Shared::new(settings, host)),
        }
    }

    /// Stops reading events. Programs and pins stay.
    pub async fn close(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// Makes sure that a NIC is observed; `ifindex` saves a look at it when it is already.
    async fn observe(&self, nic: &IfName, ifindex: Option<u32>) {
        if ifindex.is_some_and(|ifindex| self.shared.observes(nic, ifindex)) {
            return;
        }
        match self.look_up(nic).await {
            Ok(Some(target)) => self.blocking(move |shared| shared.attach(&target)).await,
            Ok(None) => tracing::debug!(%nic, "this node has no such NIC to observe"),
            Err(error) => tracing::warn!(error = %full(&error), "a NIC is not observed"),
        }
    }

    async fn look_up(&self, nic: &IfName) -> Result<Option<Target>, ObserverError> {
        let failed = |source| ObserverError::Netlink {
            nic: nic.clone(),
            source: Box::new(source),
        };
        let host = Rtnl::open_in(&self.shared.host).await.map_err(failed)?;
        let looked = async {
            let Some(link) = host.link_by_name(nic.as_str()).await? else {
                return Ok(None);
            };
            Ok(Some(Target {
                nic: nic.clone(),
                ifindex: link.ifindex,
                qdisc: host.ingress_qdisc(link.ifindex).await?,
            }))
        }
        .await;
        host.close().await;
        looked.map_err(failed)
    }

    /// Runs what calls the kernel on a thread that may wait.
    async fn blocking<R: Default + Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Shared>) -> R + Send + 'static,
    ) -> R {
        let shared = Arc::clone(&self.shared);
        match tokio::task::spawn_blocking(move || work(&shared)).await {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(%error, "the observer failed");
                R::default()
            }
        }
    }

    async fn change(
        &self,
        change: impl FnOnce(&mut State) -> Result<(), ObserverError> + Send + 'static,
    ) {
        self.blocking(move |shared| {
            if let Stage::Up(state) = &mut *shared.lock()
                && let Err(error) = change(state)
            {
                tracing::warn!(error = %full(&error), "an entry of the observer is not as it should be");
            }
        })
        .await;
    }

    /// Deletes the qdiscs we made, unless somebody uses them.
    async fn delete_qdiscs(&self, ifindexes: Vec<u32>) -> Vec<String> {
        let mut errors = Vec::new();
        let host = match Rtnl::open_in(&self.shared.host).await {
            Ok(host) => host,
            Err(error) => return vec![full(&error)],
        };
        for ifindex in ifindexes {
            let deleted = async {
                if host.ingress_qdisc(ifindex).await?.as_deref() == Some(CLSACT)
                    && host.filters(ifindex, Hook::Ingress).await?.is_empty()
                    && host.filters(ifindex, Hook::Egress).await?.is_empty()
                {
                    host.delete_clsact(ifindex).await?;
                }
                Ok::<(), spiderpool_netops::rtnl::RtnlError>(())
            }
            .await;
            if let Err(error) = deleted {
                errors.push(full(&error));
            }
        }
        host.close().await;
        errors
    }

    /// Index and name of the NICs that pins name.
    async fn pinned_nics(&self, pins: &Pins) -> Vec<(u32, IfName)> {
        let Ok(host) = Rtnl::open_in(&self.shared.host).await else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for ifindex in pins.nics() {
            if let Ok(Some(link)) = host.link_by_index(ifindex).await
                && let Ok(name) = link.name.parse()
            {
                found.push((ifindex, name));
            }
        }
        host.close().await;
        found
    }
}

impl ObserverOps for KernelObserver {
    fn prepare(&self, entry: Entry, ifindex: u32) -> BoxFuture<'_, ()> {
        async move {
            self.observe(&entry.place.nic, Some(ifindex)).await;
            self.change(move |state| state.put(entry, Life::Pending))
                .await;
        }
        .boxed()
    }

    fn activate<'a>(
        &'a self,
        place: &'a Place,
        gateways: &'a [(IpAddr, Mac)],
    ) -> BoxFuture<'a, ()> {
        let (place, gateway) = (place.clone(), gateways.first().map(|(_, mac)| *mac));
        self.change(move |state| state.advance(&place, Life::Active, gateway))
            .boxed()
    }

    fn draining<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, ()> {
        let place = place.clone();
        self.change(move |state| state.advance(&place, Life::Draining, None))
            .boxed()
    }

    fn remove<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, ()> {
        let place = place.clone();
        self.change(move |state| state.remove(&place)).boxed()
    }

    fn reconcile(&self, nics: Vec<IfName>, wanted: Wanted) -> BoxFuture<'_, ()> {
        async move {
            for nic in nics {
                self.observe(&nic, None).await;
            }
            self.blocking(move |shared| shared.reconcile(wanted)).await;
        }
        .boxed()
    }

    fn report(&self) -> BoxFuture<'_, ObserverReport> {
        self.blocking(|shared| shared.report()).boxed()
    }

    fn verify(&self) -> BoxFuture<'_, VerifyReport> {
        let shared = Arc::clone(&self.shared);
        async move {
            match tokio::task::spawn_blocking(move || shared.verify()).await {
                Ok(report) => report,
                Err(error) => report::cannot_tell(&error.to_string()),
            }
        }
        .boxed()
    }

    fn events(&self) -> broadcast::Receiver<Observed> {
        self.shared.events.subscribe()
    }

    fn detach(&self) -> BoxFuture<'_, DetachReport> {
        async move {
            let (mut nics, pins) = self.shared.take_down();
            if let Some(pins) = &pins {
                nics.extend(self.pinned_nics(pins).await);
            }
            nics.sort();
            nics.dedup();
            let made: Vec<u32> = nics
                .iter()
                .map(|(ifindex, _)| *ifindex)
                .filter(|ifindex| pins.as_ref().is_some_and(|pins| pins.made_clsact(*ifindex)))
                .collect();
            let targets = nics.clone();
            let mut errors = self
                .blocking(move |shared| shared.detach_from(&targets, pins.as_ref()))
                .await;
            errors.extend(self.delete_qdiscs(made).await);
            DetachReport {
                nics: nics.into_iter().map(|(_, name)| name).collect(),
                errors,
            }
        }
        .boxed()
    }
}

//! What the fabric forwards: the cloud's bindings, less those a fault holds back and those whose
//! attachment is younger than the fabric's delay (spec iaas 15.3).

use std::net::IpAddr;
use std::time::Duration;

use spiderpool_api::value::Mac;
use tokio::time::sleep;

use crate::cloud::State;
use crate::service::{Service, World};
use crate::topology::{Binding, BindingState};

impl World {
    /// The bindings as the fabric has to have them now.
    #[must_use]
    pub fn forwarded(&self) -> Vec<Binding> {
        let mut bindings = self.cloud.bindings();
        for binding in &mut bindings {
            let ips: Vec<IpAddr> = binding.addresses().collect();
            let pool = binding.pool.as_deref().unwrap_or_default();
            let node = self.cloud.node_of(binding.parent);
            let fresh =
                binding.state == BindingState::Bound && self.fresh.contains_key(&binding.mac);
            if fresh || self.faults.holds(pool, &ips, node) {
                binding.state = BindingState::Unbound;
            }
        }
        bindings
    }

    /// An attachment ends now: its frames pass after the delay.
    pub(crate) fn forward_later(&mut self, mac: Mac, now: Duration) {
        let state = self.cloud.get(mac).map(|sub_eni| sub_eni.state);
        let delay = Duration::from_millis(self.settings.forwarding_delay_ms);
        if matches!(state, Some(State::Attaching(_))) && !delay.is_zero() {
            self.fresh.insert(mac, now.saturating_add(delay));
        }
    }
}

impl Service {
    /// Lets frames pass when their time has come. Never ends.
    pub async fn forward_forever(&self) {
        loop {
            match self.with(|world| world.fresh.values().min().copied()) {
                None => self.forwarding.notified().await,
                Some(at) => {
                    tokio::select! {
                        biased;
                        // another one may be sooner: the delay can be changed
                        () = self.forwarding.notified() => continue,
                        () = sleep(at.saturating_sub(self.now())) => {}
                    }
                    let now = self.now();
                    self.change(|world| world.fresh.retain(|_, until| *until > now));
                }
            }
        }
    }
}

//! What a restart of the provider does to its memory, without ending the process (P17): all of it is
//! lost, pools are listed again, sub-ENIs are read off the cloud's tags. Until then calls are
//! answered with 503. Calls under way go on in the cloud, as they would.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tracing::info;

use crate::service::Service;

/// Longest wait for an API server that does not answer.
const LIMIT: Duration = Duration::from_secs(30);

impl Service {
    /// Loses the memory, stays down for a while and rebuilds it. False: the pools could not be
    /// listed in half a minute; it goes on trying.
    pub async fn crash(&self, down: Duration) -> bool {
        self.begin_down();
        self.with(|world| world.memory.lose());
        sleep(down).await;
        self.with(|world| world.learn_all());
        let sub_enis = self.with(|world| world.memory.all().count());
        info!(sub_enis, "the memory is rebuilt from the cloud's tags");
        self.end_down();
        if self.publisher.is_none() {
            self.set_ready(true);
            return true;
        }
        let mut ready = self.readiness();
        let listed = timeout(LIMIT, ready.wait_for(|ready| *ready)).await;
        listed.is_ok_and(|ready| ready.is_ok())
    }
}

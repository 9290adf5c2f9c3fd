//! CNI STATUS (spec dataplane 1.6, 4.4): whether an ADD could be served now.

use spiderpool_api::cni::CniCode;

use super::call::Call;
use super::error::{FlowError, full};
use crate::agent::Agent;
use crate::nic::NicError;

impl Agent {
    /// Serves STATUS: 50 when ADD would fail for want of the API or of VLAN links, 51 when the master is gone and
    /// with it every sub-ENI on it.
    pub(crate) async fn status(&self, call: Call) -> Result<(), FlowError> {
        if let Some(eni) = &call.conf.eni {
            match self.nic.check_master(&eni.master, None, None).await {
                Ok(_) => {}
                Err(error) if error.cni_code() == CniCode::Master => {
                    return Err(FlowError::Degraded(Box::new(error)));
                }
                Err(error) => return Err(not_ready(&error)),
            }
            let probed = self.nic.probe_vlan().await;
            probed.map_err(|error| not_ready(&error))?;
        }
        self.store.ready().map_err(FlowError::NotReady)
    }
}

fn not_ready(error: &NicError) -> FlowError {
    FlowError::NotReady(full(error))
}

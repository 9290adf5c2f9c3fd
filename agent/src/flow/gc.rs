//! CNI GC (spec dataplane 1.6): frees what an attachment file of this network names, the runtime no
//! longer knows, and whose Pod is gone. Without the list of valid attachments it frees nothing.

use std::collections::HashSet;

use super::call::Call;
use super::error::{FlowError, full};
use crate::agent::Agent;
use crate::attachment::Attachment;
use crate::store::{Freshness, ObjectKey};

impl Agent {
    /// Serves GC. Goes on after a failure and reports all of them.
    pub(crate) async fn gc(&self, call: Call) -> Result<(), FlowError> {
        let Some(valid) = &call.conf.valid_attachments else {
            tracing::info!(
                network = call.conf.name,
                "GC without valid-attachments frees nothing"
            );
            return Ok(());
        };
        let valid: HashSet<(&str, &str)> = valid
            .iter()
            .map(|item| (item.container_id.as_str(), item.ifname.as_str()))
            .collect();
        let plugin = call.plugin.name();
        let stale = self.attachments.select(|file| {
            file.network == call.conf.name
                && file.plugin == plugin
                && !valid.contains(&(file.container_id.as_str(), file.ifname.as_str()))
        });
        let mut failures = Vec::new();
        for file in stale {
            let collected = match self.pod_is_gone(&file).await {
                Ok(false) => continue,
                Ok(true) => self.collect(&file, call.limits.deadline).await,
                Err(error) => Err(full(&error)),
            };
            let (pod, container) = (
                ObjectKey::new(&file.pod_namespace, &file.pod_name),
                &file.container_id,
            );
            match collected {
                Ok(()) => {
                    tracing::info!(%pod, container, ifname = %file.ifname, "GC cleaned an attachment up")
                }
                Err(error) => {
                    failures.push(format!("{container}/{} of Pod {pod}: {error}", file.ifname))
                }
            }
        }
        if failures.is_empty() {
            Ok(())
        } else {
            Err(FlowError::Gc(failures))
        }
    }

    /// The Pod object of a bare container is our own shadow of it: it is gone when the runtime no
    /// longer knows the container.
    async fn pod_is_gone(&self, file: &Attachment) -> Result<bool, FlowError> {
        let key = ObjectKey::new(&file.pod_namespace, &file.pod_name);
        let pod = self.read_pod(&key, Freshness::Fresh).await?;
        Ok(pod
            .is_none_or(|pod| pod.uid() != file.pod_uid || !pod.is_alive() || pod.is_standalone()))
    }
}

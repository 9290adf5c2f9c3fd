//! What the interfaces of Pods dropped, beside what the observer counted on their parent NICs (spec
//! dataplane 5.6). Reads in the Pods' namespaces when somebody asks; keeps nothing.

use spiderpool_api::observer_v1::{ObserverReport, SubEniReport};
use spiderpool_ebpf_common::kind::Direction;

use super::del::target_of_file;
use super::error::full;
use crate::agent::Agent;
use crate::nic::{Drops, NicTarget};

/// Reason of frames that the Pod's interface dropped.
const DEVICE: &str = "device";

impl Agent {
    /// What the observer counted, with what the Pods' interfaces dropped.
    pub(crate) async fn observer_report(&self) -> ObserverReport {
        let mut report = self.observer.report().await;
        for row in &mut report.subeni {
            let Some(target) = self.target_of(row) else {
                continue;
            };
            match self.nic.drops(target).await {
                Ok(Some(drops)) => add(row, drops),
                // It went since the observer was asked.
                Ok(None) => {}
                Err(error) => {
                    let pod = format!("{}/{}", row.pod_namespace, row.pod_name);
                    tracing::debug!(pod, error = %full(&error), "dropped frames of a NIC cannot be read");
                }
            }
        }
        report
    }

    /// The interface of a row: that of its newest sandbox.
    fn target_of(&self, row: &SubEniReport) -> Option<NicTarget> {
        let files = self.attachments.select(|file| {
            file.master.as_ref() == Some(&row.nic)
                && file.vlan == Some(row.vlan)
                && file.mac == Some(row.mac)
                && file.ifname == row.interface
        });
        files.first().and_then(target_of_file)
    }
}

fn add(row: &mut SubEniReport, drops: Drops) {
    for (direction, count) in [(Direction::Rx, drops.rx), (Direction::Tx, drops.tx)] {
        row.drops = row.drops.saturating_add(count);
        let reasons = row.dropped.entry(direction.as_str().to_owned());
        reasons.or_default().insert(DEVICE.to_owned(), count);
    }
}

//! Warnings on Pods whose frames are not what the cloud expects of their sub-ENIs (spec dataplane
//! 5.5): what the observer tells, once in ten minutes for a Pod and kind.

use std::sync::Arc;
use std::time::Duration;

use spiderpool_ebpf_common::kind::{Direction, Kind};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::events::{Notice, PodUid};
use crate::observer::Observed;
use crate::store::ObjectKey;

/// `reason` of the events.
const REASON: &str = "SubENIMismatch";
/// Between two events of one Pod and kind.
const PAUSE: Duration = Duration::from_secs(600);

impl Agent {
    /// Tells Pods of their mismatches until told to stop or until the observer ends.
    pub async fn tell_mismatches(self: Arc<Self>, stop: CancellationToken) {
        let mut events = self.observer.events();
        loop {
            let received = tokio::select! {
                () = stop.cancelled() => return,
                received = events.recv() => received,
            };
            match received {
                Ok(observed) => {
                    if let Some(notice) = notice(&observed) {
                        self.events.tell_once_in(PAUSE, notice);
                    }
                }
                // What was missed is counted all the same, and most of it told before.
                Err(RecvError::Lagged(missed)) => {
                    tracing::debug!(missed, "events of the observer came too fast");
                }
                Err(RecvError::Closed) => return,
            }
        }
    }
}

/// `None`: no Pod has the sub-ENI.
fn notice(observed: &Observed) -> Option<Notice> {
    let entry = observed.entry.as_ref()?;
    Some(Notice {
        pod: ObjectKey::new(&entry.pod_namespace, &entry.pod_name),
        uid: PodUid::Known(entry.pod_uid.clone()),
        reason: REASON,
        about: format!("{}/{}", entry.ifname, observed.kind.as_str()),
        message: message(observed, entry.ifname.as_str()),
    })
}

fn message(observed: &Observed, ifname: &str) -> String {
    let verb = match observed.direction {
        Direction::Tx => "sent",
        Direction::Rx => "was sent",
    };
    let expected = match (&observed.expected, observed.kind) {
        (Some(expected), _) => format!("the sub-ENI has {expected}"),
        (None, Kind::SrcIp4 | Kind::ArpSpa) => "the sub-ENI has no IPv4 address".to_owned(),
        (None, Kind::SrcIp6) => "the sub-ENI has no IPv6 address".to_owned(),
        (None, _) => "the cloud does not know it".to_owned(),
    };
    format!(
        "{ifname} {verb} a frame that the cloud does not expect: {} is {}, {expected} (NIC {}, VLAN {})",
        observed.kind.as_str(),
        observed.observed,
        observed.nic,
        observed.vlan
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::{Entry, Place};

    fn entry() -> Entry {
        Entry {
            place: Place {
                nic: "eth1".parse().unwrap(),
                vlan: 301.try_into().unwrap(),
                container_id: "c-1".into(),
            },
            mac: "fa:16:3e:00:01:64".parse().unwrap(),
            ipv4: Some([172, 91, 0, 100].into()),
            ipv6: None,
            gateways: vec![],
            pools: vec!["p4".into()],
            pod_uid: "u-1".into(),
            pod_namespace: "shop".into(),
            pod_name: "web-0".into(),
            ifname: "net1".parse().unwrap(),
        }
    }

    fn observed(kind: Kind, expected: Option<&str>, found: &str) -> Observed {
        Observed {
            ns: 7,
            nic: "eth1".parse().unwrap(),
            vlan: 301,
            direction: Direction::Tx,
            kind,
            expected: expected.map(str::to_owned),
            observed: found.into(),
            entry: Some(entry()),
        }
    }

    #[test]
    fn a_notice_names_pod_kind_and_both_values() {
        for (kind, expected, found, message) in [
            (
                Kind::SrcIp4,
                Some("172.91.0.100"),
                "10.9.9.9",
                "net1 sent a frame that the cloud does not expect: src_ip4 is 10.9.9.9, the sub-ENI has 172.91.0.100 (NIC eth1, VLAN 301)",
            ),
            (
                Kind::SrcIp6,
                None,
                "fd91::9",
                "net1 sent a frame that the cloud does not expect: src_ip6 is fd91::9, the sub-ENI has no IPv6 address (NIC eth1, VLAN 301)",
            ),
        ] {
            let notice = notice(&observed(kind, expected, found)).unwrap();
            assert_eq!((notice.message.as_str(), notice.reason), (message, REASON));
            assert_eq!(notice.pod.to_string(), "shop/web-0");
            assert_eq!(notice.uid, PodUid::Known("u-1".into()));
        }
        let nobody = Observed {
            entry: None,
            ..observed(Kind::UnknownVlan, None, "fa:16:3e:00:01:99")
        };
        assert!(notice(&nobody).is_none());
    }
}

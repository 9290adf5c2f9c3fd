//! What the programs tell: read from the ring buffer, joined to the Pod, handed to whoever
//! listens, logged.

use std::sync::{Arc, PoisonError, Weak};

use aya::maps::{MapData, RingBuf};
use spiderpool_api::value::IfName;
use spiderpool_ebpf_common::kind::{Direction, Kind};
use spiderpool_ebpf_common::layout::{Event, SubEniKey};
use tokio_util::sync::CancellationToken;

use super::shared::{Shared, Stage};
use super::{Entry, raw, report};

/// An event with its names.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// Nanoseconds since boot.
    pub ns: u64,
    /// Parent NIC.
    pub nic: IfName,
    /// VLAN id; for an untagged frame the one of the sub-ENI with its MAC.
    pub vlan: u16,
    /// Which way it went.
    pub direction: Direction,
    /// What is wrong.
    pub kind: Kind,
    /// What the cloud knows.
    pub expected: Option<String>,
    /// What the frame had instead.
    pub observed: String,
    /// Whose it is; absent without a sub-ENI.
    pub entry: Option<Entry>,
}

/// Reads until told to stop or until the observer is gone.
pub(super) async fn run(ring: RingBuf<MapData>, shared: Weak<Shared>, stop: CancellationToken) {
    let mut ring = match raw::register(ring) {
        Ok(ring) => ring,
        Err(error) => {
            tracing::warn!(%error, "events of the observer cannot be read; it counts without them");
            return;
        }
    };
    loop {
        let mut ready = tokio::select! {
            () = stop.cancelled() => return,
            ready = ring.readable_mut() => match ready {
                Ok(ready) => ready,
                Err(error) => {
                    tracing::warn!(%error, "events of the observer cannot be read any more");
                    return;
                }
            },
        };
        let Some(shared) = shared.upgrade() else {
            return;
        };
        while let Some(record) = ready.get_inner_mut().next() {
            if let Some(event) = decode(&record) {
                tell(&shared, event);
            }
        }
        ready.clear_ready();
    }
}

fn tell(shared: &Arc<Shared>, event: Event) {
    let observed = {
        let mut stage = shared.stage.lock().unwrap_or_else(PoisonError::into_inner);
        let Stage::Up(state) = &mut *stage else {
            return;
        };
        state.join(event)
    };
    let Some(observed) = observed else { return };
    let pod = observed.entry.as_ref().map_or_else(
        || "-".to_owned(),
        |entry| format!("{}/{}", entry.pod_namespace, entry.pod_name),
    );
    tracing::info!(
        nic = %observed.nic, vlan = observed.vlan, direction = observed.direction.as_str(),
        kind = observed.kind.as_str(), expected = observed.expected, observed = observed.observed,
        %pod, "a frame is not what the cloud expects"
    );
    // Nobody listening is no failure.
    drop(shared.events.send(observed));
}

/// `None` for what no program of ours writes.
fn decode(record: &[u8]) -> Option<Event> {
    let mut reader = Reader(record);
    let event = Event {
        ns: u64::from_ne_bytes(reader.take()?),
        ifindex: u32::from_ne_bytes(reader.take()?),
        len: u32::from_ne_bytes(reader.take()?),
        vid: u16::from_ne_bytes(reader.take()?),
        ethertype: u16::from_ne_bytes(reader.take()?),
        direction: reader.take::<1>()?[0],
        kind: reader.take::<1>()?[0],
        family: reader.take::<1>()?[0],
        zero: reader.take::<1>()?[0],
        src_mac: reader.take()?,
        dst_mac: reader.take()?,
        src: reader.take()?,
        dst: reader.take()?,
        generation: u32::from_ne_bytes(reader.take()?),
    };
    reader.0.is_empty().then_some(event)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }
}

/// Joins what a record says to names.
pub(super) fn join(event: &Event, nic: &IfName, entry: Option<&Entry>) -> Option<Observed> {
    let kind = Kind::from_u8(event.kind)?;
    Some(Observed {
        ns: event.ns,
        nic: nic.clone(),
        vlan: event.vid,
        direction: Direction::from_u8(event.direction)?,
        kind,
        expected: entry.and_then(|entry| report::expected(entry, kind)),
        observed: report::observed(event, kind),
        entry: entry.cloned(),
    })
}

/// Key of the sub-ENI an event is about.
pub(super) const fn key_of(event: &Event) -> SubEniKey {
    SubEniKey::new(event.ifindex, event.vid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_field_by_field() {
        let mut record = Vec::new();
        record.extend(7_u64.to_ne_bytes());
        record.extend(3_u32.to_ne_bytes());
        record.extend(60_u32.to_ne_bytes());
        record.extend(301_u16.to_ne_bytes());
        record.extend(0x0806_u16.to_ne_bytes());
        record.extend([1, 6, 4, 0]);
        record.extend([2; 6]);
        record.extend([3; 6]);
        record.extend([4; 16]);
        record.extend([5; 16]);
        record.extend(9_u32.to_ne_bytes());
        assert_eq!(record.len(), size_of::<Event>());
        let event = decode(&record).unwrap();
        assert_eq!((event.ns, event.ifindex, event.len), (7, 3, 60));
        assert_eq!((event.vid, event.ethertype, event.family), (301, 0x0806, 4));
        assert_eq!((event.src_mac, event.dst), ([2; 6], [5; 16]));
        assert_eq!(event.generation, 9);
        let observed = join(&event, &"eth1".parse().unwrap(), None).unwrap();
        assert_eq!(
            (observed.direction, observed.kind),
            (Direction::Tx, Kind::ArpSpa)
        );
        assert_eq!(observed.observed, "4.4.4.4");
        assert_eq!(decode(&record[..71]), None);
        record.push(0);
        assert_eq!(decode(&record), None);
    }
}

//! The observer's counters as metrics (spec dataplane 5.6). Made anew at each scrape from a report,
//! so that a sub-ENI's series end with it. Pure.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use spiderpool_api::observer_v1::{Attach, ObserverReport, SubEniReport};
use spiderpool_ebpf_common::layout::{MAX_NIC, MAX_SUBENI, MAX_UNKNOWN};

use super::{Labels, registered, scoped};

/// All kinds that are checked are about what a Pod sends.
const CHECKED_DIRECTION: &str = "tx";
/// The only mode so far.
const MODE: &str = "monitor";

/// A registry with everything of the report.
pub(super) fn registry(report: &ObserverReport) -> Registry {
    let mut registry = scoped();
    sub_enis(&mut registry, &report.subeni);
    nics(&mut registry, report);
    observer(&mut registry, report);
    registry
}

fn sub_enis(registry: &mut Registry, rows: &[SubEniReport]) {
    let info = gauges(registry, "subeni_info", "A sub-ENI of this node, always 1");
    let rx_packets = counters(registry, "subeni_rx_packets", "Packets to the Pod");
    let rx_bytes = counters(
        registry,
        "subeni_rx_bytes",
        "Bytes to the Pod, without the tag",
    );
    let tx_packets = counters(registry, "subeni_tx_packets", "Packets from the Pod");
    let tx_bytes = counters(
        registry,
        "subeni_tx_bytes",
        "Bytes from the Pod, without the tag",
    );
    let mismatch = counters(
        registry,
        "subeni_mismatch",
        "Frames that are not what the cloud expects of the sub-ENI",
    );
    let drops = counters(
        registry,
        "subeni_drops",
        "Frames dropped: enforced kinds, and what the Pod's interface drops",
    );
    let neighbor = counters(registry, "subeni_neighbor", "ARP and NDP messages");
    for row in rows {
        let own = labels(row);
        info.get_or_create(&with_identity(row)).set(1);
        add(&rx_packets, own.clone(), row.counters.rx_packets);
        add(&rx_bytes, own.clone(), row.counters.rx_bytes);
        add(&tx_packets, own.clone(), row.counters.tx_packets);
        add(&tx_bytes, own.clone(), row.counters.tx_bytes);
        for (kind, count) in &row.mismatch {
            let further = [("direction", CHECKED_DIRECTION), ("kind", kind)];
            add(&mismatch, extended(&own, &further), *count);
        }
        for (family, label, counted) in [
            (&neighbor, "type", &row.neighbor),
            (&drops, "reason", &row.dropped),
        ] {
            for (direction, counts) in counted {
                for (value, count) in counts {
                    let further = [("direction", direction.as_str()), (label, value)];
                    add(family, extended(&own, &further), *count);
                }
            }
        }
    }
}

fn nics(registry: &mut Registry, report: &ObserverReport) {
    let unknown = counters(
        registry,
        "subeni_unknown_vlan_packets",
        "Packets with a tag that no sub-ENI has, of the VLANs seen last",
    );
    for seen in &report.unknown {
        let labels = [("nic", seen.nic.as_str()), ("direction", &seen.direction)];
        add(&unknown, extended(&Vec::new(), &labels), seen.packets);
    }
    let untagged = counters(registry, "subeni_untagged_packets", "Packets without a tag");
    let up = gauges(
        registry,
        "subeni_observer_up",
        "Whether a parent NIC is observed",
    );
    for nic in &report.nics {
        let name = nic.nic.as_str();
        let direction = |word| extended(&Vec::new(), &[("nic", name), ("direction", word)]);
        add(&untagged, direction("rx"), nic.untagged.rx_packets);
        add(&untagged, direction("tx"), nic.untagged.tx_packets);
        let labels = [("nic", name), ("attach", nic.attach.as_str())];
        let series = up.get_or_create_owned(&extended(&Vec::new(), &labels));
        series.set(i64::from(nic.attach != Attach::None));
    }
    if report.error.is_some() {
        let labels = [("nic", ""), ("attach", Attach::None.as_str())];
        up.get_or_create(&extended(&Vec::new(), &labels)).set(0);
    }
}

fn observer(registry: &mut Registry, report: &ObserverReport) {
    let mode = gauges(
        registry,
        "subeni_observer_mode",
        "What faults lead to, always 1",
    );
    let lost = registered(
        registry,
        "subeni_events_lost",
        "Events that found their buffer full",
        Counter::<u64>::default(),
    );
    let entries = gauges(
        registry,
        "subeni_map_entries",
        "Entries of a map in the kernel",
    );
    let room = gauges(registry, "subeni_map_max_entries", "Entries a map can have");
    if report.error.is_some() {
        return;
    }
    mode.get_or_create(&vec![("mode", MODE.to_owned())]).set(1);
    lost.inc_by(report.events_lost);
    for (map, len, max) in [
        ("SUBENI", report.subeni.len(), MAX_SUBENI),
        ("UNKNOWN", report.unknown.len(), MAX_UNKNOWN),
        ("NIC", report.nics.len(), MAX_NIC),
    ] {
        let labels = vec![("map", map.to_owned())];
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        entries.get_or_create(&labels).set(len);
        room.get_or_create(&labels).set(i64::from(max));
    }
}

fn labels(row: &SubEniReport) -> Labels {
    vec![
        ("nic", row.nic.to_string()),
        ("vlan", row.vlan.to_string()),
        ("interface", row.interface.to_string()),
        ("pod_namespace", row.pod_namespace.clone()),
        ("pod_name", row.pod_name.clone()),
    ]
}

fn with_identity(row: &SubEniReport) -> Labels {
    let mut labels = labels(row);
    let text = |address: Option<String>| address.unwrap_or_default();
    labels.extend([
        ("mac", row.mac.to_string()),
        ("ipv4", text(row.ipv4.map(|ip| ip.to_string()))),
        ("ipv6", text(row.ipv6.map(|ip| ip.to_string()))),
        ("pool", row.pool.clone()),
        ("state", row.state.clone()),
    ]);
    labels
}

fn extended(labels: &Labels, further: &[(&'static str, &str)]) -> Labels {
    let further = further
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()));
    labels.iter().cloned().chain(further).collect()
}

fn add(family: &Family<Labels, Counter>, labels: Labels, count: u64) {
    family.get_or_create(&labels).inc_by(count);
}

fn counters(registry: &mut Registry, name: &str, help: &str) -> Family<Labels, Counter> {
    registered(registry, name, help, Family::default())
}

fn gauges(registry: &mut Registry, name: &str, help: &str) -> Family<Labels, Gauge> {
    registered(registry, name, help, Family::default())
}

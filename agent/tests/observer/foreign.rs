//! Others' programs on the NIC are left alone, and ours is there once a direction, whatever
//! happens to the agent (case B36).

use aya::maps::{HashMap, PerCpuArray};
use aya::programs::tc::{self, NlOptions, TcAttachOptions, TcHandle};
use aya::programs::{SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader};
use spiderpool_agent::observer::{KernelObserver, ObserverOps};
use spiderpool_api::observer_v1::{Attach, ObserverReport};
use spiderpool_ebpf_common::layout::{Nic, Traffic};
use spiderpool_netops::rtnl::Filter;

use crate::rig::{
    From, PARENT, PARENT_MAC, PEER_MAC, Rig, VLAN, entry, frame, nic, rig, sub_eni, until,
};

const OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../ebpf/observer.o"));
const HANDLE: TcHandle = TcHandle::new(0, 7);
/// Handle of the observer's filters.
const OURS: u32 = 0x5350;
const HOOKS: [(&str, TcAttachType); 2] = [
    ("subeni_rx", TcAttachType::Ingress),
    ("subeni_tx", TcAttachType::Egress),
];

/// Somebody else's counter: filters of both directions, with maps of their own.
struct Foreign {
    ebpf: Ebpf,
}

impl Foreign {
    fn attach(rig: &Rig, priority: u16) -> Self {
        let ifindex = rig.ifindex;
        let attached = rig.host.run(|| {
            let mut ebpf = EbpfLoader::new().load(OBJECT).unwrap();
            for (name, hook) in HOOKS {
                let program: &mut SchedClassifier =
                    ebpf.program_mut(name).unwrap().try_into().unwrap();
                program.load().unwrap();
                let options = NlOptions {
                    priority,
                    handle: HANDLE,
                    classid: None,
                };
                let options = TcAttachOptions::Netlink(options);
                program.attach_with_options(PARENT, hook, options).unwrap();
            }
            ebpf
        });
        let mut ebpf = attached.unwrap();
        let mut places: HashMap<_, u32, u32> = ebpf.map_mut("NICS").unwrap().try_into().unwrap();
        places.insert(ifindex, 0, 0).unwrap();
        Self { ebpf }
    }

    /// Frames received and sent.
    fn seen(&self) -> (u64, u64) {
        let counters: PerCpuArray<_, Nic> = self.ebpf.map("NIC").unwrap().try_into().unwrap();
        let values = counters.get(&0, 0).unwrap();
        let frames = |of: fn(&Nic) -> [Traffic; 2]| -> u64 {
            values
                .iter()
                .flat_map(of)
                .map(|traffic| traffic.frames)
                .sum()
        };
        (
            frames(|nic| [nic.tagged_rx, nic.untagged_rx]),
            frames(|nic| [nic.tagged_tx, nic.untagged_tx]),
        )
    }
}

/// What others have on the NIC.
async fn foreign_filters(rig: &Rig) -> [Vec<Filter>; 2] {
    let mut filters = rig.filters().await;
    for of in &mut filters {
        of.retain(|filter| filter.handle != OURS);
    }
    filters
}

/// Programs of ours on the NIC, received frames' first.
async fn ours(attach: Attach, rig: &Rig) -> [usize; 2] {
    match attach {
        Attach::Clsact => rig
            .filters()
            .await
            .map(|of| of.iter().filter(|filter| filter.handle == OURS).count()),
        _ => ["rx", "tx"].map(|way| {
            let pin = format!("link-{}-{way}", rig.ifindex);
            usize::from(rig.bpf_dir.join("v1").join(pin).exists())
        }),
    }
}

async fn attach_of(observer: &KernelObserver) -> Attach {
    observer.report().await.nics[0].attach
}

/// One frame each way: everybody on the NIC counts it, ours once.
async fn every_program_counts(rig: &Rig, foreign: &[Foreign], sent: u64) {
    let tagged = frame(PARENT_MAC, PEER_MAC, &[(0x8100, VLAN)], 0x88b5, &[]);
    rig.send(From::Fabric, &tagged);
    rig.send(From::Node, &tagged);
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(5);
    for counter in foreign {
        while counter.seen() != (sent, sent) {
            assert!(
                tokio::time::Instant::now() < deadline,
                "{:?} of {sent}",
                counter.seen()
            );
            tokio::task::yield_now().await;
        }
    }
}

pub(crate) async fn foreign_filters_see_every_frame_and_ours_is_there_once(test: &str) {
    let Some(rig) = rig(test).await else { return };
    let made = rig.host.run(|| tc::qdisc_add_clsact(PARENT));
    made.unwrap().unwrap();
    let foreign = [Foreign::attach(&rig, 5), Foreign::attach(&rig, 60000)];
    let before = foreign_filters(&rig).await;
    let mut sent = 0;
    // start, stop, start, kill (nothing is closed, nothing dropped), start, start
    let mut killed = Vec::new();
    for end in ["stop", "kill", "stop", "kill"] {
        let observer = rig.start(vec![entry(VLAN, "c-1")]).await;
        sent += 1;
        every_program_counts(&rig, &foreign, sent).await;
        let attach = attach_of(&observer).await;
        until(&observer, |report| counted(report) == (sent, sent)).await;
        assert_eq!(ours(attach, &rig).await, [1, 1], "{end}");
        assert_eq!(foreign_filters(&rig).await, before, "{end}");
        if end == "stop" {
            observer.close().await;
        } else {
            killed.push(observer);
        }
    }
    // After a stop it counts on, and a detach takes it, alone, away.
    sent += 1;
    every_program_counts(&rig, &foreign, sent).await;
    let observer = rig.start(vec![entry(VLAN, "c-1")]).await;
    assert_eq!(counted(&observer.report().await), (sent, sent));
    let attach = attach_of(&observer).await;
    let detached = observer.detach().await;
    assert_eq!((detached.nics, detached.errors), (vec![nic()], vec![]));
    assert_eq!(ours(attach, &rig).await, [0, 0]);
    assert_eq!(foreign_filters(&rig).await, before);
    every_program_counts(&rig, &foreign, sent + 1).await;
    observer.close().await;
}

fn counted(report: &ObserverReport) -> (u64, u64) {
    let counters = sub_eni(report).counters;
    (counters.rx_frames, counters.tx_frames)
}

/// Counters of a NIC that has neither filters nor a qdisc: nothing is left after a detach.
pub(crate) async fn detach_leaves_nothing_of_ours(test: &str) {
    let Some(rig) = rig(test).await else { return };
    let observer = rig.start(vec![entry(VLAN, "c-1")]).await;
    observer.close().await;
    drop(observer);
    // Another start that never attached finds what the first one left.
    let observer = rig.start(vec![]).await;
    let report = observer.detach().await;
    assert_eq!((report.nics, report.errors), (vec![nic()], vec![]));
    assert_eq!(rig.qdisc(rig.ifindex).await, None);
    assert!(!rig.bpf_dir.join("v1").exists(), "pins are left");
    assert!(observer.report().await.error.unwrap().contains("detached"));
    observer.close().await;
}

/// A qdisc of kind `ingress` has no egress. TCX does not need it; clsact cannot have its place.
pub(crate) async fn an_ingress_qdisc_stays(test: &str) {
    let Some(rig) = rig(test).await else { return };
    let ifindex = rig.second_nic("eth2").await;
    rig.add_ingress_qdisc(ifindex).await;
    let observer = rig.start(vec![]).await;
    observer
        .reconcile(vec!["eth2".parse().unwrap()], Box::new(Vec::new))
        .await;
    let report = observer.report().await;
    let first = attach_of(&observer).await;
    let second = report
        .nics
        .iter()
        .find(|nic| nic.nic.as_str() == "eth2")
        .unwrap();
    match first {
        Attach::Tcx => assert_eq!((second.attach, &second.error), (Attach::Tcx, &None)),
        _ => {
            assert_eq!(second.attach, Attach::None);
            assert!(
                second.error.as_ref().unwrap().contains("ingress"),
                "{second:?}"
            );
        }
    }
    assert_eq!(rig.qdisc(ifindex).await.as_deref(), Some("ingress"));
    observer.detach().await;
    observer.close().await;
}

//! What the observer costs a frame (design section 6). Needs root.
//!
//! Two ways of measuring, because neither sees both: `BPF_PROG_TEST_RUN` repeats a program on a
//! frame with the tag in its bytes, and refuses a tag beside them; frames over a veth arrive with
//! the tag beside, and the kernel's own `bpf_stats` times them.

use anyhow::{Context, Result, ensure};
use aya::maps::{Array, HashMap, MapData, PerCpuHashMap, PerCpuValues};
use aya::programs::{SchedClassifier, TcAttachType, TestRun, TestRunOptions, tc};
use aya::sys::{Stats as BpfStats, enable_stats};
use aya::{Ebpf, EbpfLoader, Pod};
use spiderpool_ebpf_common::kind::all_kinds;
use spiderpool_ebpf_common::layout::{Config, Stats, SubEni, SubEniKey};
use spiderpool_netops::packet::RawSocket;
use spiderpool_netops::packet::vnet::VnetHdr;
use spiderpool_netops::rtnl::VethSpec;
use vm_tests::lab::namespace::{NamedNetns, connect};

use super::{Better, Figure, median};
use crate::{paths, term};

pub(super) const NAMES: &[&str] = &["observer_in_bytes_ns", "observer_metadata_ns"];

/// Runs of the program for one measurement.
const REPEAT: u32 = 1_000_000;
/// Frames over the veth for one measurement.
const FRAMES: u64 = 200_000;
/// Measurements; the figure is their median.
const ROUNDS: usize = 5;
/// What an empty program costs under `BPF_PROG_TEST_RUN`, nanoseconds (design section 6).
const EMPTY_IN_BYTES_NS: f64 = 27.0;
/// What an empty program costs by `bpf_stats`, nanoseconds: it reads the clock twice a run.
const EMPTY_METADATA_NS: f64 = 56.0;
const LIMIT_NS: f64 = 100.0;

const NIC_NAME: &str = "eth1";
const PEER: &str = "peer";
/// Interface index of the frame in a test run: the loopback device's.
const LOOPBACK: u32 = 1;
const VLAN: u16 = 101;
const MAC: [u8; 6] = [0xfa, 0x16, 0x3e, 0, 1, 1];
const V4: [u8; 4] = [172, 91, 0, 100];
const V6: [u8; 16] = [0xfd, 0x91, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

/// Measures both paths.
pub(super) fn measure() -> Result<Vec<Figure>> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "the observer's figures need root (BPF, network namespaces)"
    );
    term::progress("running the observer's programs on frames with the tag in their bytes");
    let in_bytes = in_bytes()?;
    term::progress("sending frames over a veth to a NIC with the observer");
    let metadata = metadata()?;
    let figure = |name, value: f64, reference| Figure {
        name,
        value: value.round(),
        unit: "ns",
        reference: Some(reference),
        limit: Some(LIMIT_NS),
        better: Better::Lower,
    };
    Ok(vec![
        figure("observer_in_bytes_ns", in_bytes, EMPTY_IN_BYTES_NS),
        figure("observer_metadata_ns", metadata, EMPTY_METADATA_NS),
    ])
}

/// The worst of what a sub-ENI sends: IPv4, IPv6 and ARP.
fn in_bytes() -> Result<f64> {
    let mut ebpf = load(LOOPBACK)?;
    let program = program(&mut ebpf, "subeni_tx")?;
    let mut worst: f64 = 0.0;
    for frame in [ipv4(), ipv6(), arp()] {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let run = program.test_run(TestRunOptions {
                data_in: Some(&frame),
                repeat: REPEAT,
                ..TestRunOptions::new()
            })?;
            rounds.push(run.duration.as_secs_f64() * 1e9);
        }
        worst = worst.max(median(&mut rounds));
    }
    Ok(worst)
}

/// Received IPv4 frames: the stack takes their tag out before the program sees them.
fn metadata() -> Result<f64> {
    let (near, far) = (NamedNetns::create("bench")?, NamedNetns::create("bench")?);
    let spec = VethSpec {
        name: NIC_NAME,
        peer: PEER,
        peer_target: Some(&far),
        mac: None,
        peer_mac: None,
    };
    let ifindex = connect(&near, &spec, &far)?.ifindex;
    let mut ebpf = load(ifindex)?;
    near.run(|| attach(&mut ebpf))??;
    let peer = far.run(|| nix::net::if_::if_nametoindex(PEER))??;
    let socket = far.run(|| RawSocket::open(peer))??;
    let _timed = enable_stats(BpfStats::RunTime).context("switch the kernel's bpf_stats on")?;
    let frame = ipv4();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let before = spent(&mut ebpf)?;
        for _ in 0..FRAMES {
            socket.try_send(&frame, None, VnetHdr::default())?;
        }
        let after = spent(&mut ebpf)?;
        let (runs, ns) = (after.0 - before.0, after.1 - before.1);
        ensure!(
            runs >= FRAMES / 2,
            "of {FRAMES} frames the program saw {runs}"
        );
        rounds.push(float(ns)? / float(runs)?);
    }
    Ok(median(&mut rounds))
}

fn float(number: u64) -> Result<f64> {
    Ok(f64::from(u32::try_from(number)?))
}

/// Runs so far and nanoseconds they took.
fn spent(ebpf: &mut Ebpf) -> Result<(u64, u64)> {
    let info = program(ebpf, "subeni_rx")?.info()?;
    Ok((info.run_count(), u64::try_from(info.run_time().as_nanos())?))
}

fn attach(ebpf: &mut Ebpf) -> Result<()> {
    // On kernels with TCX aya takes that; the path of the frame is the same.
    drop(tc::qdisc_add_clsact(NIC_NAME));
    program(ebpf, "subeni_rx")?.attach(NIC_NAME, TcAttachType::Ingress)?;
    Ok(())
}

/// Programs and maps, with one sub-ENI on a NIC.
fn load(ifindex: u32) -> Result<Ebpf> {
    let object = paths::root().join("ebpf").join("observer.o");
    let mut ebpf = read(&object)?;
    let mut config: Array<MapData, Config> = take(&mut ebpf, "CFG")?;
    let checks = Config {
        kinds: all_kinds(),
        event_interval_ns: u64::from(u32::MAX),
        ..Config::default()
    };
    config.set(0, checks, 0)?;
    let key = SubEniKey::new(ifindex, VLAN);
    let mut sub_enis: HashMap<MapData, SubEniKey, SubEni> = take(&mut ebpf, "SUBENI")?;
    let sub_eni = SubEni {
        mac: MAC,
        v4: V4,
        v6: V6,
        ..SubEni::default()
    };
    sub_enis.insert(key, sub_eni, 0)?;
    let mut stats: PerCpuHashMap<MapData, SubEniKey, Stats> = take(&mut ebpf, "STATS")?;
    stats.insert(key, zeroed()?, 0)?;
    // Its counters are at place 0, as the sub-ENI's entry says.
    let mut nics: HashMap<MapData, u32, u32> = take(&mut ebpf, "NICS")?;
    nics.insert(ifindex, 0, 0)?;
    for name in ["subeni_rx", "subeni_tx"] {
        program(&mut ebpf, name)?.load()?;
    }
    Ok(ebpf)
}

fn read(object: &std::path::Path) -> Result<Ebpf> {
    let bytes = std::fs::read(object).with_context(|| format!("read {}", object.display()))?;
    EbpfLoader::new()
        .load(&bytes)
        .with_context(|| format!("load {}", object.display()))
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut SchedClassifier> {
    let program = ebpf
        .program_mut(name)
        .with_context(|| format!("no program {name}"))?;
    Ok(program.try_into()?)
}

fn take<M>(ebpf: &mut Ebpf, name: &str) -> Result<M>
where
    M: TryFrom<aya::maps::Map, Error = aya::maps::MapError>,
{
    let map = ebpf
        .take_map(name)
        .with_context(|| format!("no map {name}"))?;
    Ok(M::try_from(map)?)
}

fn zeroed<T: Pod + Default>() -> Result<PerCpuValues<T>> {
    let cpus = aya::util::nr_cpus().map_err(|(what, error)| anyhow::anyhow!("{what}: {error}"))?;
    Ok(PerCpuValues::try_from(vec![T::default(); cpus])?)
}

/// Ethernet with the tag, then `payload`; padded to what a small TCP segment has.
fn tagged(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xfa, 0x16, 0x3e, 0xff, 0xff, 0xfe];
    frame.extend(MAC);
    frame.extend(0x8100_u16.to_be_bytes());
    frame.extend(VLAN.to_be_bytes());
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame.resize(128, 0);
    frame
}

fn ipv4() -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 110, 0, 0, 0x40, 0, 64, 6, 0, 0];
    header.extend(V4);
    header.extend([172, 91, 0, 1]);
    tagged(0x0800, &header)
}

fn ipv6() -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, 0, 70, 6, 64];
    header.extend(V6);
    header.extend(V6);
    tagged(0x86dd, &header)
}

fn arp() -> Vec<u8> {
    let mut body = vec![0, 1, 8, 0, 6, 4, 0, 1];
    body.extend(MAC);
    body.extend(V4);
    body.extend([0; 6]);
    body.extend([172, 91, 0, 1]);
    tagged(0x0806, &body)
}

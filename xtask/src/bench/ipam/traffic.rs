//! What an agent is sent because of an ADD on another node.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use vm_tests::control_plane::relay::Relay;

use super::callers::Callers;
use super::cluster::{Cluster, SOON, all_given};
use super::throughput::FULL;
use super::{Figure, Programs, ROUNDS, figure, float};

/// ADDs of a round.
const ADDS: usize = 40;
/// A connection that was silent for so long has delivered everything.
const QUIET: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(20);
const POOL: &str = "traffic";
const NET: u8 = 93;

/// Bytes on the wire, TLS included, from the API server to an agent whose node gets no Pod. One
/// caller elsewhere: each of its ADDs is a write of its own. The worse of a small and a full pool.
pub(super) fn elsewhere(programs: &Programs) -> Result<Vec<Figure>> {
    let cluster = Cluster::start(programs)?;
    let relay = Relay::start(&cluster.plane)?;
    let relayed = programs.work_dir.join("relayed.kubeconfig");
    relay.kubeconfig(&cluster.plane, &relayed)?;
    let busy = cluster.agent("n1", &cluster.plane.kubeconfig())?;
    let idle = cluster.agent("n2", &relayed)?;
    cluster.pool(POOL, NET, &[&busy, &idle])?;
    let mut small = rounds(&cluster, &relay, &busy.socket)?;
    cluster.fill(POOL, NET, FULL - ADDS)?;
    let mut full = rounds(&cluster, &relay, &busy.socket)?;
    let name = "bytes_per_add_elsewhere";
    let (small, full) = (
        figure(name, "bytes", &mut small),
        figure(name, "bytes", &mut full),
    );
    let worse = if small.value > full.value {
        small
    } else {
        full
    };
    Ok(vec![worse.at_most(1500.0).beside(0.5e6)])
}

fn rounds(cluster: &Cluster<'_>, relay: &Relay, socket: &std::path::Path) -> Result<Vec<f64>> {
    let callers = Callers::new(cluster.programs, socket, POOL);
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let pods = cluster.pods("n1", ADDS)?;
        let before = settled(relay);
        all_given(&callers.run("ADD", &pods, 1)?.outcomes)?;
        let bytes = u32::try_from(settled(relay) - before)?;
        rounds.push(f64::from(bytes) / float(ADDS));
        cluster.end(&callers, &pods)?;
    }
    Ok(rounds)
}

/// The relay's count once nothing has come for a while.
fn settled(relay: &Relay) -> u64 {
    let (begun, mut since, mut count) = (Instant::now(), Instant::now(), relay.answered());
    while since.elapsed() < QUIET && begun.elapsed() < SOON {
        thread::sleep(LOOK);
        let now = relay.answered();
        if now != count {
            (since, count) = (Instant::now(), now);
        }
    }
    count
}

//! What the agent needs of memory: at rest, on a busy node of a large cluster, with a pool as large
//! as an IPv6 subnet.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use vm_tests::lab::api_client::POOLS;

use super::callers::Callers;
use super::cluster::{Agent, Cluster, SOON, all_given, pool_object};
use super::throughput::FULL;
use super::{Figure, Programs, ROUNDS, figure};

/// Pods of a busy node: what a kubelet allows.
const NODE_PODS: usize = 110;
/// Bytes of a MB and of a MiB.
const MB: f64 = 1e6;
const MIB: f64 = 1024.0 * 1024.0;
/// Memory that has not grown for so long is what the agent keeps.
const CALM: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(100);
const POOL: &str = "memory";
const NET: u8 = 92;

/// Of an agent that nothing has been asked of.
pub(super) fn idle(programs: &Programs) -> Result<Vec<Figure>> {
    let cluster = Cluster::start(programs)?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let mut agent = cluster.agent("n1", &cluster.plane.kubeconfig())?;
        rounds.push(calm(&mut agent)? / MB);
        agent.kill()?;
    }
    let rss = figure("rss_idle", "MB", &mut rounds);
    Ok(vec![rss.at_most(20.0).beside(55.0)])
}

/// After it has given 110 Pods their addresses, in a cluster of 5,000 Pods with one pool.
pub(super) fn busy_node(programs: &Programs) -> Result<Vec<Figure>> {
    let cluster = Cluster::start(programs)?;
    let mut first = Some(cluster.agent("n1", &cluster.plane.kubeconfig())?);
    if let Some(agent) = &first {
        cluster.pool(POOL, NET, &[agent])?;
    }
    cluster.pods("elsewhere", FULL - NODE_PODS)?;
    cluster.fill(POOL, NET, FULL - NODE_PODS)?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let pods = cluster.pods("n1", NODE_PODS)?;
        let mut agent = match first.take() {
            Some(agent) => agent,
            None => cluster.agent("n1", &cluster.plane.kubeconfig())?,
        };
        let callers = Callers::new(programs, &agent.socket, POOL);
        all_given(&callers.run("ADD", &pods, 16)?.outcomes)?;
        rounds.push(calm(&mut agent)? / MB);
        cluster.end(&callers, &pods)?;
        agent.kill()?;
    }
    let rss = figure("rss_110_pods", "MB", &mut rounds);
    Ok(vec![rss.at_most(30.0)])
}

/// A pool of all addresses of an IPv6 /64: from its creation to the first ADD from it, and the most
/// that the agent needed for it.
pub(super) fn wide_range(programs: &Programs) -> Result<Vec<Figure>> {
    let cluster = Cluster::start(programs)?;
    let (mut seconds, mut memory) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let mut agent = cluster.agent("n1", &cluster.plane.kubeconfig())?;
        let pods = cluster.pods("n1", 1)?;
        let pod = pods.first().context("no Pod")?;
        let rest = calm(&mut agent)?;
        let pool = format!("wide-{round}");
        let spec = json!({"subnet": "fd12::/64", "ipVersion": 6,
            "ips": ["fd12::-fd12::ffff:ffff:ffff:ffff"], "gateway": "fd12::1"});
        let callers = Callers::of_ipv6(programs, &agent.socket, &pool);
        let begun = Instant::now();
        cluster.api.create(POOLS, &pool_object(&pool, spec))?;
        let mut outcome = callers.call("ADD", pod)?;
        // Until the agent's watch has told it of the pool.
        while outcome.code != 0 {
            ensure!(
                begun.elapsed() < SOON,
                "no address of {pool}: {}",
                outcome.stdout
            );
            outcome = callers.call("ADD", pod)?;
        }
        seconds.push(begun.elapsed().as_secs_f64());
        memory.push((agent.memory("VmHWM")? - rest).max(0.0) / MIB);
        cluster.end(&callers, &pods)?;
        cluster.api.delete(&format!("{POOLS}/{pool}"))?;
        agent.kill()?;
    }
    Ok(vec![
        figure("fd12_64", "s", &mut seconds).at_most(1.0),
        figure("fd12_64_memory", "MiB", &mut memory).at_most(20.0),
    ])
}

/// Resident memory once it has stopped growing, bytes.
fn calm(agent: &mut Agent) -> Result<f64> {
    let (begun, mut since, mut most) = (Instant::now(), Instant::now(), 0.0);
    while since.elapsed() < CALM && begun.elapsed() < SOON {
        let now = agent.memory("VmRSS")?;
        if now > most {
            (since, most) = (Instant::now(), now);
        }
        thread::sleep(LOOK);
    }
    agent.memory("VmRSS")
}

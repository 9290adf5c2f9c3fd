//! How fast addresses are given: alone, by one node, by four nodes from one pool, from a full pool.

use anyhow::Result;
use serde_json::Value;

use super::callers::{Callers, run_all};
use super::cluster::{Agent, Cluster, Pod, all_given};
use super::{Figure, Programs, ROUNDS, figure, float, median};

/// ADDs of a round of one caller.
const ALONE: usize = 60;
/// ADDs of a round of 16 callers.
const TOGETHER: usize = 240;
/// ADDs of a round and node where four contend.
const CONTENDING: usize = 80;
/// Records of a full pool.
pub(super) const FULL: usize = 5000;
const POOL: &str = "bench";
const NET: u8 = 90;

/// Time of one ADD when nothing else happens, and what it asks of the API.
pub(super) fn one_caller(programs: &Programs) -> Result<Vec<Figure>> {
    let cluster = Cluster::start(programs)?;
    let agent = cluster.agent("n1", &cluster.plane.kubeconfig())?;
    cluster.pool(POOL, NET, &[&agent])?;
    let callers = Callers::new(programs, &agent.socket, POOL);
    let (mut times, mut requests) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let pods = cluster.pods("n1", ALONE)?;
        let before = requests_served(&cluster)?;
        let run = callers.run("ADD", &pods, 1)?;
        requests.push((requests_served(&cluster)? - before) / float(ALONE));
        all_given(&run.outcomes)?;
        let outcomes = run.outcomes.iter();
        let mut ms: Vec<f64> = outcomes.map(|o| o.elapsed.as_secs_f64() * 1e3).collect();
        times.push(median(&mut ms));
        cluster.end(&callers, &pods)?;
    }
    Ok(vec![
        figure("add_one_caller_p50", "ms", &mut times)
            .at_most(9.0)
            .beside(26.6),
        // The pool's status and the endpoint.
        figure("api_requests_per_add", "requests", &mut requests).at_most(2.1),
    ])
}

/// ADDs a second of one node with 16 callers.
pub(super) fn sixteen_callers(programs: &Programs) -> Result<Vec<Figure>> {
    let cluster = Cluster::start(programs)?;
    let agent = cluster.agent("n1", &cluster.plane.kubeconfig())?;
    cluster.pool(POOL, NET, &[&agent])?;
    let mut rates = rates_of_16(&cluster, &agent)?;
    let rate = figure("add_16_callers", "ADD/s", &mut rates);
    Ok(vec![rate.at_least(300.0).beside(38.0)])
}

/// The same with a pool that has 5,000 records at the end of each round.
pub(super) fn full_pool(programs: &Programs) -> Result<Vec<Figure>> {
    let cluster = Cluster::start(programs)?;
    let agent = cluster.agent("n1", &cluster.plane.kubeconfig())?;
    cluster.pool(POOL, NET, &[&agent])?;
    cluster.fill(POOL, NET, FULL - TOGETHER)?;
    let mut rates = rates_of_16(&cluster, &agent)?;
    let rate = figure("add_5000_records", "ADD/s", &mut rates);
    Ok(vec![rate.at_least(120.0)])
}

fn rates_of_16(cluster: &Cluster<'_>, agent: &Agent) -> Result<Vec<f64>> {
    let callers = Callers::new(cluster.programs, &agent.socket, POOL);
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let pods = cluster.pods("n1", TOGETHER)?;
        let run = callers.run("ADD", &pods, 16)?;
        all_given(&run.outcomes)?;
        rates.push(float(TOGETHER) / run.elapsed.as_secs_f64());
        cluster.end(&callers, &pods)?;
    }
    Ok(rates)
}

/// Four nodes with 8 callers each and one pool: rate, failures, and what is left after their DELs.
pub(super) fn four_agents(programs: &Programs) -> Result<Vec<Figure>> {
    let cluster = Cluster::start(programs)?;
    let nodes = ["n1", "n2", "n3", "n4"];
    let kubeconfig = cluster.plane.kubeconfig();
    let agents = nodes.map(|node| cluster.agent(node, &kubeconfig));
    let agents: Vec<Agent> = agents.into_iter().collect::<Result<_>>()?;
    cluster.pool(POOL, NET, &agents.iter().collect::<Vec<_>>())?;
    let callers: Vec<_> = agents
        .iter()
        .map(|agent| Callers::new(programs, &agent.socket, POOL))
        .collect();
    let (mut rates, mut failed, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let pods = nodes.map(|node| cluster.pods(node, CONTENDING));
        let pods: Vec<Vec<Pod>> = pods.into_iter().collect::<Result<_>>()?;
        let sides: Vec<_> = callers.iter().zip(pods.iter().map(Vec::as_slice)).collect();
        let run = run_all("ADD", &sides, 8)?;
        let failures = run.outcomes.iter().filter(|outcome| outcome.code != 0);
        failed.push(float(failures.count()) / float(run.outcomes.len()) * 100.0);
        rates.push(float(run.outcomes.len()) / run.elapsed.as_secs_f64());
        for (callers, pods) in &sides {
            cluster.end(callers, pods)?;
        }
        left.push(float(cluster.left(POOL, &pods.concat())?));
    }
    // Not one of them may have failed or stayed: the worst round counts.
    let worst = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let (failed, left) = (worst(&failed), worst(&left));
    Ok(vec![
        figure("add_4x8_callers", "ADD/s", &mut rates)
            .at_least(250.0)
            .beside(25.0),
        figure("add_4x8_failed", "%", &mut [failed])
            .at_most(0.0)
            .beside(7.5),
        figure("add_4x8_left", "records", &mut [left])
            .at_most(0.0)
            .beside(32.0),
    ])
}

/// Requests about Pods, pools and endpoints that the API server has answered; a watch counts when it
/// ends.
fn requests_served(cluster: &Cluster<'_>) -> Result<f64> {
    let answer = cluster
        .api
        .request("GET", "/metrics", "text/plain", &Value::Null)?;
    let text = String::from_utf8(answer.body)?;
    let ours = ["\"spiderippools\"", "\"spiderendpoints\"", "\"pods\""];
    let lines = text.lines().filter(|line| {
        line.starts_with("apiserver_request_total{")
            && ours.iter().any(|word| line.contains(word))
            && !line.contains("\"WATCH\"")
    });
    let counts = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    Ok(counts.sum())
}

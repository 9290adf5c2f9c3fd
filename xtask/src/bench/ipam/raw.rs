//! What the API server itself can do: the same writes without any agent.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use vm_tests::lab::api_client::{ApiSession, POOLS};

use super::cluster::{Cluster, pool_object};
use super::throughput::FULL;
use super::{Figure, Programs, ROUNDS, figure, float, median};

/// Endpoints of the measurements.
const ENDPOINTS: &str = "/apis/spiderpool.spidernet.io/v2beta1/namespaces/default/spiderendpoints";
/// Writes of a round of one writer.
const ALONE: usize = 60;
/// Writes of a round of 16 writers.
const TOGETHER: usize = 480;
/// Writes of a round with a full pool.
const LARGE: usize = 10;
const POOL: &str = "raw";
const NET: u8 = 91;

/// Endpoints made by one and by 16 writers, and a full pool's status written.
pub(super) fn measure(programs: &Programs) -> Result<Vec<Figure>> {
    let cluster = Cluster::start(programs)?;
    let names = AtomicUsize::new(0);
    let (mut alone, mut together, mut large) = (Vec::new(), Vec::new(), Vec::new());
    let spec = json!({"subnet": format!("10.{NET}.0.0/16"), "ipVersion": 4,
        "ips": [format!("10.{NET}.0.10-10.{NET}.99.255")]});
    cluster.api.create(POOLS, &pool_object(POOL, spec))?;
    cluster.fill(POOL, NET, FULL)?;
    let mut session = cluster.api.session()?;
    for _ in 0..ROUNDS {
        let times = (0..ALONE).map(|_| make_endpoint(&mut session, &names));
        alone.push(median(&mut times.collect::<Result<Vec<_>>>()?));
        together.push(writers(&cluster, &names)?);
        let times = (0..LARGE).map(|_| write_status(&mut session));
        large.push(median(&mut times.collect::<Result<Vec<_>>>()?));
    }
    Ok(vec![
        figure("raw_write_p50", "ms", &mut alone),
        Figure {
            better: super::Better::Higher,
            ..figure("raw_16_writers", "writes/s", &mut together)
        },
        figure("raw_write_5000_records", "ms", &mut large),
    ])
}

fn make_endpoint(session: &mut ApiSession, names: &AtomicUsize) -> Result<f64> {
    let number = names.fetch_add(1, Ordering::Relaxed);
    let name = format!("raw-{number:05}");
    let body = json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderEndpoint",
        "metadata": {"name": name, "labels": {"spiderpool.spidernet.io/node": "n1"}},
        "status": {"current": {"uid": format!("00000000-0000-4000-8000-{number:012}"), "node": "n1",
            "ips": [{"interface": "eth0", "ipv4": "10.91.0.10/16", "ipv4Pool": POOL}]},
            "ownerControllerType": "Pod", "ownerControllerName": name}});
    timed(session, "POST", ENDPOINTS, &body)
}

/// Writes a second.
fn writers(cluster: &Cluster<'_>, names: &AtomicUsize) -> Result<f64> {
    let sessions = (0..16).map(|_| cluster.api.session());
    let sessions: Vec<ApiSession> = sessions.collect::<Result<_>>()?;
    let begun = Instant::now();
    thread::scope(|scope| {
        let running: Vec<_> = sessions
            .into_iter()
            .map(|mut session| {
                scope.spawn(move || -> Result<()> {
                    for _ in 0..TOGETHER / 16 {
                        make_endpoint(&mut session, names)?;
                    }
                    Ok(())
                })
            })
            .collect();
        for writer in running {
            match writer.join() {
                Ok(ended) => ended?,
                Err(_) => bail!("a writer panicked"),
            }
        }
        Ok(())
    })?;
    Ok(float(TOGETHER) / begun.elapsed().as_secs_f64())
}

/// One conditional PUT of the status, as the agent writes it.
fn write_status(session: &mut ApiSession) -> Result<f64> {
    let path = format!("{POOLS}/{POOL}");
    let mut pool = session.request("GET", &path, &Value::Null)?;
    let count = pool
        .pointer_mut("/status/allocatedIPCount")
        .context("a pool without a count")?;
    // Without a change the API server writes nothing.
    *count = json!(count.as_i64().unwrap_or_default() + 1);
    timed(session, "PUT", &format!("{path}/status"), &pool)
}

/// Milliseconds from the request's first byte to the answer's last.
fn timed(session: &mut ApiSession, method: &str, path: &str, body: &Value) -> Result<f64> {
    let body = serde_json::to_vec(body)?;
    let begun = Instant::now();
    let answer = session.exchange(method, path, &body)?;
    let ms = begun.elapsed().as_secs_f64() * 1e3;
    ensure!(
        (200..300).contains(&answer.status),
        "{method} {path}: status {}",
        answer.status
    );
    Ok(ms)
}

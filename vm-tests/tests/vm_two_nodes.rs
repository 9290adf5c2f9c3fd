//! Two nodes, one provider: where addresses come from, and what a dead provider stops.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "functions that tests share fail as tests do"
)]

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Value, json};
use vm_tests::lab::api_client::records;
use vm_tests::lab::cni_call::with_key;
use vm_tests::lab::layout::{GATEWAY_V4, GATEWAY_V6, GLOBAL_POOL};
use vm_tests::lab::{
    Cloud, LabSpec, Node, Pod, ProviderPlan, Stack, leaks, observer, peers, writes,
};

const LIMIT: Duration = Duration::from_secs(5);

fn start(nodes: u8, plan: ProviderPlan) -> Cloud {
    let spec = LabSpec::for_test(nodes, 1).unwrap().with_provider(plan);
    Cloud::start(&spec).unwrap()
}

/// A Pod with its addresses.
struct Running {
    pod: Pod,
    node: usize,
    stack: Stack,
    ips: Vec<IpAddr>,
}

fn run(cloud: &Cloud, node: usize, name: &str, stack: Stack) -> Running {
    let host = cloud.node(node).unwrap();
    let pod = writes::new_pod(cloud, host, name).unwrap();
    let (result, _) = pod.attach(host, &host.conf(stack)).unwrap();
    let ips = result.ips.iter().map(|ip| ip.address.addr()).collect();
    Running {
        pod,
        node,
        stack,
        ips,
    }
}

fn end(cloud: &Cloud, running: &Running) {
    let host = cloud.node(running.node).unwrap();
    writes::end_pod(host, &running.pod, &host.conf(running.stack)).unwrap();
    // The next Pod is to meet what the provider knows, not what it has published so far.
    cloud.provider().unwrap().flush().unwrap();
}

fn reaches(running: &Running, to: IpAddr) {
    let ping = peers::ping(running.pod.netns(), to, 3, LIMIT).unwrap();
    assert!(ping.complete(), "{:?} to {to}: {ping:?}", running.ips);
}

/// The gateway in each family, and this Pod.
fn is_connected(running: &Running, other: &Running) {
    for ip in &running.ips {
        let gateway = match ip {
            IpAddr::V4(_) => IpAddr::from(GATEWAY_V4),
            IpAddr::V6(_) => GATEWAY_V6.into(),
        };
        reaches(running, gateway);
    }
    reaches(running, other.ips[0]);
}

fn calls(cloud: &Cloud) -> usize {
    cloud.provider().unwrap().allocate_calls().unwrap()
}

/// Node a sub-ENI hangs on, by the MAC of the parent NIC.
fn host_of(cloud: &Cloud, ip: IpAddr) -> String {
    let sub = cloud.provider().unwrap().sub_eni(ip).unwrap().unwrap();
    assert_eq!(sub.state.phase, "bound", "{sub:?}");
    let on = |node: &&Node| Some(node.plan.parent_mac) == sub.state.parent;
    cloud.nodes.iter().find(on).unwrap().plan.name.clone()
}

fn no_leaks(cloud: &Cloud, all: &[&Running]) {
    let pods: Vec<_> = all.iter().map(|running| &running.pod).collect();
    assert_eq!(leaks::find(cloud, &pods).unwrap(), Vec::<String>::new());
}

#[test]
#[ignore = "vm level"]
fn prewarm_pools_serve_both_nodes_without_a_call() {
    let cloud = start(2, ProviderPlan::quick(0, 0));
    let base = run(&cloud, 0, "base", Stack::V4);
    let others = [
        run(&cloud, 0, "pair-1", Stack::Dual),
        run(&cloud, 1, "web-2", Stack::V4),
        run(&cloud, 1, "pair-2", Stack::Dual),
    ];
    for running in &others {
        is_connected(running, &base);
    }
    assert_eq!(
        others.each_ref().map(|running| running.ips.len()),
        [2, 1, 2]
    );
    assert_eq!(calls(&cloud), 0);
    let all: Vec<_> = others.iter().chain([&base]).collect();
    for running in &all {
        end(&cloud, running);
    }
    let released = cloud.provider().unwrap().release_calls().unwrap();
    assert_eq!(released, 4, "one for each sub-ENI of a prewarm pool");
    no_leaks(&cloud, &all);
}

#[test]
#[ignore = "vm level"]
fn a_global_address_is_made_kept_and_moved() {
    let cloud = start(2, ProviderPlan::quick(2, 0));
    let base = run(&cloud, 0, "base", Stack::V4);
    let cold = run(&cloud, 0, "cold", Stack::Global);
    is_connected(&cold, &base);
    assert_eq!(
        (calls(&cloud), host_of(&cloud, cold.ips[0]).as_str()),
        (1, "node-1")
    );
    end(&cloud, &cold);

    let hit = run(&cloud, 0, "hit", Stack::Global);
    is_connected(&hit, &base);
    assert_eq!(
        (calls(&cloud), &hit.ips),
        (1, &cold.ips),
        "same node: no call"
    );
    end(&cloud, &hit);

    let fresh = run(&cloud, 1, "fresh", Stack::Global);
    is_connected(&fresh, &base);
    assert_ne!(
        fresh.ips, cold.ips,
        "an address not made yet comes before a steal"
    );
    assert_eq!(
        (calls(&cloud), host_of(&cloud, cold.ips[0]).as_str()),
        (2, "node-1")
    );

    let steal = run(&cloud, 1, "steal", Stack::Global);
    is_connected(&steal, &base);
    assert_eq!(
        (calls(&cloud), &steal.ips),
        (3, &cold.ips),
        "nothing else is left"
    );
    assert_eq!(host_of(&cloud, steal.ips[0]), "node-2");
    let left = observer::report(cloud.node(0).unwrap()).unwrap().subeni;
    let ips: Vec<_> = left
        .iter()
        .filter_map(|row| row.ipv4)
        .map(IpAddr::V4)
        .collect();
    assert_eq!(ips, base.ips, "node 1 knows nothing of the VLAN any more");

    let all = [&cold, &hit, &fresh, &steal, &base];
    for running in &all[2..] {
        end(&cloud, running);
    }
    no_leaks(&cloud, &all);
}

#[test]
#[ignore = "vm level"]
fn a_global_pair_moves_as_one() {
    let cloud = start(2, ProviderPlan::quick(0, 1));
    let base = run(&cloud, 0, "base", Stack::V4);
    let cold = run(&cloud, 0, "cold", Stack::GlobalDual);
    is_connected(&cold, &base);
    end(&cloud, &cold);
    let steal = run(&cloud, 1, "steal", Stack::GlobalDual);
    is_connected(&steal, &base);
    assert_eq!((calls(&cloud), &steal.ips), (2, &cold.ips));
    end(&cloud, &steal);
    let hit = run(&cloud, 1, "hit", Stack::GlobalDual);
    is_connected(&hit, &base);
    assert_eq!((calls(&cloud), &hit.ips), (2, &cold.ips));
    end(&cloud, &hit);
    end(&cloud, &base);
    no_leaks(&cloud, &[&cold, &steal, &hit, &base]);
}

/// Addresses of the global pool that are given out.
fn claimed(cloud: &Cloud) -> Value {
    let pool = cloud.node(0).unwrap().api().unwrap().pool(GLOBAL_POOL);
    records(&pool.unwrap()).unwrap()
}

#[test]
#[ignore = "vm level"]
fn a_dead_provider_stops_only_what_needs_it() {
    let mut cloud = start(2, ProviderPlan::quick(2, 0));
    let cold = run(&cloud, 1, "cold", Stack::Global);
    end(&cloud, &cold);
    cloud.kill_provider().unwrap();

    let host = cloud.node(1).unwrap();
    // The fabric died with it: nobody answers a pre-flight.
    let unchecked = with_key(
        &host.conf(Stack::Global),
        "validateIaasNetConfig",
        json!(false),
    );
    let pod = writes::new_pod(&cloud, host, "hit").unwrap();
    let (result, _) = pod.attach(host, &unchecked).unwrap();
    let ips: Vec<_> = result.ips.iter().map(|ip| ip.address.addr()).collect();
    assert_eq!(ips, cold.ips);
    let hit = Running {
        pod,
        node: 1,
        stack: Stack::Global,
        ips,
    };
    let before = claimed(&cloud);

    let late = writes::new_pod(&cloud, host, "late").unwrap();
    let failed = host.run_one(&late.call(host, "ADD", &host.conf(Stack::Global)));
    let error = failed.unwrap().error().unwrap();
    assert_eq!(error.code, 100, "{error:?}");
    assert!(error.details.contains("refused"), "{error:?}");
    assert_eq!(claimed(&cloud), before, "the claim is taken back");

    cloud.restart_provider().unwrap();
    reaches(&hit, GATEWAY_V4.into());
    let host = cloud.node(1).unwrap();
    let (result, _) = late.attach(host, &host.conf(Stack::Global)).unwrap();
    let late = Running {
        pod: late,
        node: 1,
        stack: Stack::Global,
        ips: result.ips.iter().map(|ip| ip.address.addr()).collect(),
    };
    is_connected(&late, &hit);
    assert_eq!(calls(&cloud), 1, "counted since its restart");
    end(&cloud, &hit);
    end(&cloud, &late);
    no_leaks(&cloud, &[&cold, &hit, &late]);
}

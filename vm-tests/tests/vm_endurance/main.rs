//! Many attaches, attaches at once, an agent that dies in between, a rewriter of MACs beside it:
//! nothing grows, nothing is doubled, nothing is lost. Case B21.

mod mac_rewriter;

use std::time::Duration;

use vm_tests::lab::cni_call::CniCall;
use vm_tests::lab::inspect::ProcessUse;
use vm_tests::lab::layout::PARENT;
use vm_tests::lab::{Cloud, LabSpec, Stack, inspect, leaks, wait};

use mac_rewriter::{MacRewriter, assign_type};

const CYCLES: usize = 100;
/// After so many the agent has all its buffers and threads.
const WARM: usize = 10;
/// Design: resident memory may move by so much.
const RSS_KIB: u64 = 5 * 1024;

#[test]
#[ignore = "vm level"]
fn a_hundred_attaches_on_one_vlan_let_nothing_grow() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let conf = node.conf(Stack::V4);
    let mut warm: Option<ProcessUse> = None;
    for cycle in 0..CYCLES {
        // A sandbox of its own each time, as runtimes do.
        let pod = cloud.pod(&format!("cycle-{cycle}")).unwrap();
        pod.attach(node, &conf).unwrap();
        pod.release(node, &conf).unwrap();
        assert!(pod.nic().unwrap().is_none());
        if cycle == WARM {
            warm = Some(node.agent_use().unwrap());
        }
    }
    let warm = warm.unwrap();
    wait::until(
        Duration::from_secs(10),
        "descriptors and threads as after the warm-up",
        || {
            let now = node.agent_use()?;
            Ok((now.fds <= warm.fds && now.threads <= warm.threads).then_some(()))
        },
    )
    .unwrap_or_else(|error| panic!("{error}: {warm:?}, now {:?}", node.agent_use()));
    let now = node.agent_use().unwrap();
    assert!(
        now.rss_kib <= warm.rss_kib + RSS_KIB,
        "{warm:?}, now {now:?}"
    );
    assert!(!node.agent_log().contains("File exists"));
    assert_eq!(leaks::find(&cloud, &[]).unwrap(), Vec::<String>::new());
}

#[test]
#[ignore = "vm level"]
fn adds_at_once_for_one_nic_give_one_attachment() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 4).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let conf = node.conf(Stack::Dual);
    for round in 0..5 {
        let pod = cloud.pod(&format!("many-{round}")).unwrap();
        let calls = vec![pod.call(node, "ADD", &conf); 3];
        let outcomes = node.run(&calls).unwrap();
        let mut results: Vec<_> = outcomes.iter().map(|o| o.result().unwrap()).collect();
        results.dedup();
        assert_eq!(results.len(), 1, "{results:?}");
        assert_eq!(inspect::links(pod.netns()).unwrap().len(), 1);
        assert_eq!(node.attachments().unwrap().len(), 1);
        let reports = node.attach_reports();
        let made = reports
            .iter()
            .filter(|r| r.pod == pod.object_name() && !r.reused);
        assert_eq!(made.count(), 1, "one call makes the link: {reports:?}");
        pod.release(node, &conf).unwrap();
        assert_eq!(leaks::find(&cloud, &[&pod]).unwrap(), Vec::<String>::new());
    }
}

#[test]
#[ignore = "vm level"]
fn pods_attached_at_once_get_addresses_of_their_own() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 6).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let conf = node.conf(Stack::Dual);
    let pods: Vec<_> = (0..6)
        .map(|i| cloud.pod(&format!("p{i}")).unwrap())
        .collect();
    let of = |command: &str| -> Vec<CniCall> {
        pods.iter()
            .map(|pod| pod.call(node, command, &conf))
            .collect()
    };
    let mut macs = Vec::new();
    for outcome in node.run(&of("ADD")).unwrap() {
        macs.push(outcome.result().unwrap().sub_eni.unwrap().mac);
    }
    macs.sort();
    macs.dedup();
    assert_eq!(macs.len(), pods.len());
    for outcome in node.run(&of("DEL")).unwrap() {
        outcome.silent().unwrap();
    }
    let pods: Vec<_> = pods.iter().collect();
    assert_eq!(leaks::find(&cloud, &pods).unwrap(), Vec::<String>::new());
}

#[test]
#[ignore = "vm level"]
fn an_agent_killed_between_add_and_del_knows_its_pods() {
    let mut cloud = Cloud::start(&LabSpec::for_test(1, 2).unwrap()).unwrap();
    let (first, second) = (cloud.pod("first").unwrap(), cloud.pod("second").unwrap());
    let conf = cloud.node(0).unwrap().conf(Stack::Dual);
    let (result, outcome) = first.attach(cloud.node(0).unwrap(), &conf).unwrap();
    let before = first.nic().unwrap();
    cloud.nodes[0].kill_agent().unwrap();
    assert_eq!(first.nic().unwrap(), before, "the Pod does not notice");
    cloud.nodes[0].start_agent().unwrap();
    let node = cloud.node(0).unwrap();
    let previous = serde_json::from_str(&outcome.stdout).unwrap();
    let check = vm_tests::lab::cni_call::with_key(&conf, "prevResult", previous);
    node.run_one(&first.call(node, "CHECK", &check))
        .unwrap()
        .silent()
        .unwrap();
    // The same call again gives the same attachment.
    assert_eq!(first.attach(node, &conf).unwrap().0, result);
    let (other, _) = second.attach(node, &conf).unwrap();
    assert_ne!(other.sub_eni, result.sub_eni);
    first.release(node, &conf).unwrap();
    second.release(node, &conf).unwrap();
    assert_eq!(
        leaks::find(&cloud, &[&first, &second]).unwrap(),
        Vec::<String>::new()
    );
}

#[test]
#[ignore = "vm level"]
fn b21_a_rewriter_of_new_macs_never_touches_a_pods_link() {
    let cloud = Cloud::start(&LabSpec::for_test(1, 1).unwrap()).unwrap();
    let node = cloud.node(0).unwrap();
    let conf = node.conf(Stack::V4);
    let wanted = node.plan.sub_enis[0].mac;
    let rewriter = MacRewriter::start(node.netns()).unwrap();
    rewriter.prove(node.netns()).unwrap();
    for cycle in 0..50 {
        let pod = cloud.pod(&format!("b21-{cycle}")).unwrap();
        pod.attach(node, &conf).unwrap();
        assert_eq!(
            pod.nic().unwrap().unwrap().link.mac,
            Some(wanted),
            "cycle {cycle}"
        );
        assert_eq!(
            assign_type(pod.netns(), "net1").unwrap(),
            3,
            "set by us, for good"
        );
        if cycle == 49 {
            // Whatever it had queued is done when a link made now has been rewritten.
            rewriter.prove(node.netns()).unwrap();
            assert_eq!(
                pod.nic().unwrap().unwrap().link.mac,
                Some(wanted),
                "a while later"
            );
        }
        pod.release(node, &conf).unwrap();
    }
    let parent = inspect::link(node.netns(), PARENT)
        .unwrap()
        .unwrap()
        .link
        .mac;
    assert_eq!(parent, Some(node.plan.parent_mac));
    assert_eq!(
        rewriter.stop().unwrap(),
        Vec::<String>::new(),
        "links seen besides its own"
    );
}

//! The agent dies after each step of an ADD, and the runtime gives that sandbox up: DEL, and ADD of
//! another for the same Pod. The Pod keeps its address.

use vm_tests::lab::{inspect, writes};

use crate::rig::Rig;
use crate::victim::{Victim, Way};

fn case(rig: &mut Rig, point: &str) {
    rig.arm(Some(point));
    for way in Way::all(rig.next_number()) {
        let name = format!("p{}", rig.next_number());
        let mut victim = Victim::of_cluster(rig, &name, way);
        let call = victim.pod.call(rig.node(), "ADD", &victim.conf);
        let (outcome, died) = rig.run(&call, None);
        if !died {
            outcome.result().unwrap();
            rig.dismiss(victim);
            continue;
        }
        let uid = victim.uid(rig);
        let held = victim.addresses(rig, &uid);
        victim.pod.release(rig.node(), &victim.conf).unwrap();
        victim.has_left_the_node(rig);
        assert_eq!(
            victim.addresses(rig, &uid),
            held,
            "the Pod lives and keeps them"
        );
        assert!(inspect::links(victim.pod.netns()).unwrap().is_empty());
        victim.pod = writes::sandbox(&rig.cloud, &format!("{name}b"), &name, &uid).unwrap();
        let (result, _) = victim.pod.attach(rig.node(), &victim.conf).unwrap();
        victim.is_intact(rig, &uid, &result, &held);
        rig.note(&format!("ADD {point}: {way:?}, given up for a new sandbox"));
        return rig.dismiss(victim);
    }
    panic!("no ADD reaches {point}");
}

#[test]
#[ignore = "vm level"]
fn an_add_is_given_up_for_a_new_sandbox() {
    let mut rig = Rig::start();
    for step in rig.steps.add.clone() {
        case(&mut rig, &format!("{step}:after"));
    }
    rig.finish("sandboxes");
}

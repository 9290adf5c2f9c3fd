//! A right that is missing: said once, in a line that names it, and its return.

use serde_json::{Value, json};

use crate::rig::Rig;

const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/spiderpool-controller";

#[test]
#[ignore = "api level"]
fn a_missing_right_is_named_in_one_line() {
    let mut rig = Rig::start();
    let whole = rig.api.get(ROLE).unwrap().unwrap()["rules"].clone();
    let mut less = whole.clone();
    for rule in less.as_array_mut().unwrap() {
        let of_subnets = rule["resources"] == json!(["spidersubnets"]);
        if of_subnets {
            rule["resources"] = json!(["spidernothing"]);
        }
    }
    let set = |rig: &Rig, rules: &Value| {
        rig.api.merge(ROLE, &json!({"rules": rules})).unwrap();
    };
    set(&rig, &less);
    rig.start_controller("c-0", &[]);
    let about = "the watch of SpiderSubnets";
    let lines = |rig: &Rig, level: &str| -> Vec<String> {
        let log = rig.log("c-0");
        let lines = log.lines().filter(|line| {
            line.contains(about) && line.contains(&format!("\"level\":\"{level}\""))
        });
        lines.map(str::to_owned).collect()
    };
    // Of both who follow subnets: rules on every replica, and the leader's reconciler.
    rig.until("lines about the missing right", || {
        lines(&rig, "WARN").len() >= 2
    });
    set(&rig, &whole);
    rig.until("the right is there again", || {
        lines(&rig, "INFO").len() >= 2
    });
    let told = lines(&rig, "WARN");
    assert_eq!(told.len(), 2, "{told:#?}");
    for line in told {
        assert!(
            line.contains("cannot list resource \\\"spidersubnets\\\"")
                && line.contains("add this right to the account's ClusterRole")
                && line.len() < 600,
            "{line}"
        );
    }
    let log = rig.log("c-0");
    assert!(
        !log.contains("Status {") && !log.contains("kube_runtime"),
        "{log}"
    );
}

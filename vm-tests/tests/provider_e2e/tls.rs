//! The contract over TLS, verified by a CA file.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use crate::rig::{GLOBAL, Rig};
use crate::simulator::{SimSpec, Simulator, TLS, ca_of};

/// What the certificate has to carry.
const NAME: &str = "iaas-network-provider.iaas-network-provider-system.svc";

/// Scenario 4: one agent, which is never restarted.
#[test]
fn a_wrong_ca_file_is_refused_by_name_and_the_right_one_counts_at_once() {
    let name = "a_wrong_ca_file_is_refused_by_name_and_the_right_one_counts_at_once";
    let folder = tempfile::tempdir().unwrap();
    let ca_file: PathBuf = folder.path().join("agent-ca.crt");
    let section = json!({
        "service": { "name": "iaas-network-provider", "namespace": "iaas-network-provider-system" },
        "url": format!("https://{TLS}"),
        "tls": { "caFile": &ca_file },
    });
    // Each cloud makes a CA of its own: this one's is wrong for the next one.
    let wrong = |spec: &SimSpec| {
        Simulator::start(spec).kill();
        fs::copy(ca_of(&spec.dir), &ca_file).unwrap();
    };
    let Some(rig) = Rig::with(name, &section, wrong) else {
        return;
    };
    let failed = |cause: String| {
        let refused = rig.refused("a", GLOBAL);
        let start = "the IaaS Network Provider did not bind 10.72.0.10 of IPPool g-1: IaaS IP allocate failed: iaas allocate failed: iaas allocate API call failed: ";
        assert_eq!(
            (refused.code, refused.details),
            (100, format!("{start}{cause}"))
        );
        assert_eq!(rig.count(GLOBAL), 0);
    };
    let path = ca_file.display();
    failed(format!(
        "cannot set up TLS with provider https://{TLS} as {NAME}, verified by CA file {path}: invalid peer certificate: BadSignature"
    ));
    assert_eq!(rig.sim().calls("allocate-ips").len(), 0);
    fs::write(&ca_file, "no certificate").unwrap();
    failed(format!(
        "cannot use CA file {path}: it holds no certificate"
    ));
    fs::remove_file(&ca_file).unwrap();
    failed(format!(
        "cannot read CA file {path}: No such file or directory (os error 2)"
    ));
    fs::copy(ca_of(rig.dir()), &ca_file).unwrap();
    assert_eq!(rig.given("a", GLOBAL), rig.in_cloud("10.72.0.10"));
    rig.del("a", GLOBAL);
    rig.clean();
}

//! Whether there is a provider, and how it is reached.

use std::fs;

use serde_json::{Value, json};
use vm_tests::cluster::pods::network;
use vm_tests::cluster::pools::plain;
use vm_tests::cluster::settings::AgentSettings;
use vm_tests::cluster::{Cluster, N1};
use vm_tests::lab::cni_call::with_key;

/// Agent settings with these keys of the section `iaasNetworkProvider`.
fn section(keys: &Value) -> AgentSettings {
    AgentSettings {
        conf: json!({ "iaasNetworkProvider": keys }),
        ..AgentSettings::default()
    }
}

#[test]
#[ignore = "api level"]
fn scenario_01_without_provider_nothing_is_called_or_said_of_one() {
    let name = "scenario_01_without_provider_nothing_is_called_or_said_of_one";
    let Some(mut cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    let none = json!({ "service": { "name": "" }, "serverUrl": "", "url": "" });
    cluster.restart_agent(N1, section(&none)).unwrap();
    cluster.create_pool(&plain("plain", "10.72.0.10")).unwrap();
    let conf = with_key(&network(&["plain"], &[]), "type", json!("macvlan"));
    let pod = cluster.pod("a", N1, &conf).unwrap();
    cluster
        .until("an ADD with the new pool", || {
            Ok(cluster.call("ADD", &pod)?.code == 0)
        })
        .unwrap();
    let result = cluster.call("ADD", &pod).unwrap().result().unwrap();
    assert_eq!(result.ips[0].address.to_string(), "10.72.0.10/22");
    assert_eq!(result.sub_eni, None);
    cluster.end(&pod).unwrap();
    cluster.await_claims("plain", 0).unwrap();
    assert_eq!(cluster.provider().unwrap().records().unwrap(), []);
    assert_eq!(cluster.logged(N1, "IaaS").unwrap(), 0);
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_02_agent_and_controller_tell_of_their_client_and_wait_50_s() {
    let name = "scenario_02_agent_and_controller_tell_of_their_client_and_wait_50_s";
    let Some(mut cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    let line = "IaaS client created successfully";
    cluster.need_controller().unwrap();
    assert_eq!(cluster.logged(N1, line).unwrap(), 1);
    let log = cluster.controller().unwrap().log();
    assert_eq!(log.matches(line).count(), 1, "{log}");
    cluster.ready_global("g", "10.72.0.10").unwrap();
    let pod = cluster.pod("a", N1, &network(&["g"], &[])).unwrap();
    cluster.add_in_the_end(&pod).unwrap();
    let calls = cluster.allocate_calls().unwrap();
    let left: u64 = calls[0].headers["x-request-timeout-ms"].parse().unwrap();
    assert!((45_000..=50_000).contains(&left), "{left}");
    cluster.end(&pod).unwrap();
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_03_an_impossible_timeout_keeps_both_from_starting() {
    let name = "scenario_03_an_impossible_timeout_keeps_both_from_starting";
    let Some(mut cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    for (value, cause) in [
        ("0s", "timeout must be positive"),
        ("-30s", "timeout must be positive"),
        ("abc", "time: invalid duration \"abc\""),
        (
            "100s",
            "timeout 1m40s must be less than CNI client timeout 1m40s",
        ),
        ("2m", "timeout 2m0s must be less than static limit 2m0s"),
    ] {
        let text = format!(
            "IaaS provider configuration validation failed: invalid iaasNetworkProvider.httpRequestTimeout \"{value}\": {cause}"
        );
        let keys = section(&json!({ "httpRequestTimeout": value }));
        let logs = [
            cluster.agent_that_ends(N1, &keys).unwrap(),
            cluster.controller_that_ends(&keys.conf).unwrap(),
        ];
        for log in logs {
            assert!(log.replace("\\\"", "\"").contains(&text), "{text}\n{log}");
        }
    }
    cluster.finish().unwrap();
}

#[test]
#[ignore = "api level"]
fn scenario_04_the_ca_of_the_moment_decides() {
    let name = "scenario_04_the_ca_of_the_moment_decides";
    let Some(mut cluster) = Cluster::take(name).unwrap() else {
        return;
    };
    // The Secret as the agent's Pod sees it.
    let mounted = cluster.dir().join("mounted-ca.crt");
    let refresh = |cluster: &Cluster| fs::copy(cluster.ca_path(), &mounted).unwrap();
    refresh(&cluster);
    let keys = json!({ "tls": { "caFile": &mounted } });
    cluster.restart_agent(N1, section(&keys)).unwrap();
    cluster.ready_global("g", "10.72.0.10-10.72.0.12").unwrap();
    let conf = network(&["g"], &[]);
    let pod = cluster.pod("verified", N1, &conf).unwrap();
    cluster.add_in_the_end(&pod).unwrap();

    // The provider was installed anew: what is mounted is another's.
    cluster
        .admin("POST", "/admin/rotate-ca", &Value::Null)
        .unwrap();
    let late = cluster.pod("late", N1, &conf).unwrap();
    let refused = cluster.refused(&late).unwrap();
    assert!(
        refused.details.contains("iaas allocate API call failed: "),
        "{refused:?}"
    );
    assert_eq!(cluster.claims("g").unwrap().len(), 1, "rolled back");
    assert_eq!(cluster.allocate_calls().unwrap().len(), 1);

    refresh(&cluster);
    cluster.add(&late).unwrap();
    assert_eq!(cluster.allocate_calls().unwrap().len(), 2);
    cluster.end(&pod).unwrap();
    cluster.end(&late).unwrap();
    cluster.finish().unwrap();
}

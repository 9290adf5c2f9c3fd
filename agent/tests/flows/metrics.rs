//! What a scrape shows after calls went well and ill, to the letter.

use serde_json::json;
use spiderpool_iaas::error::{CallError, Op};

use crate::provider::{entry, global, request, world as cloudy};
use crate::world::{NODE, Request, World, object_key};

const SCOPE: &str = r#"otel_scope_name="spiderpool-agent",otel_scope_version="#;

/// The samples without the labels that all of them carry: `name{rest} value`.
async fn samples(world: &World) -> Vec<String> {
    let text = world.agent.metrics_text().await.unwrap();
    assert!(text.ends_with("# EOF\n"));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter(|line| !line.starts_with("target_info"))
        .map(|line| {
            let (name, rest) = line.split_once('{').unwrap();
            let (scope, rest) = rest.split_at(SCOPE.len());
            assert_eq!(scope, SCOPE, "{line}");
            let (version, rest) = rest.split_at(rest[1..].find('"').unwrap() + 2);
            assert_eq!(version, format!("{:?}", env!("CARGO_PKG_VERSION")));
            format!("{name}{{{}", rest.trim_start_matches(','))
        })
        .collect()
}

/// Samples of families that begin so, zeros left out, sorted.
pub(crate) async fn of(world: &World, prefixes: &[&str]) -> Vec<String> {
    let mut found = samples(world).await;
    found.retain(|line| {
        let name = line.strip_prefix("spiderpool_").unwrap();
        let timed = ["_seconds_bucket", "_seconds_sum"];
        prefixes.iter().any(|prefix| name.starts_with(prefix))
            && !timed.iter().any(|tail| name.contains(tail))
            && !line.contains("_duration_seconds{")
            && !line.ends_with(" 0")
    });
    found.sort();
    found
}

/// Of six ADDs and two DELs; timed series by their number alone, zeros left out.
const AFTER_ADDS_AND_DELS: &[&str] = &[
    "spiderpool_ipam_allocation_counts_total{} 6",
    "spiderpool_ipam_allocation_duration_seconds_count{} 6",
    "spiderpool_ipam_allocation_err_internal_counts_total{} 1",
    "spiderpool_ipam_allocation_err_ip_used_out_counts_total{} 1",
    "spiderpool_ipam_allocation_err_no_available_pool_counts_total{} 1",
    "spiderpool_ipam_allocation_err_wrong_input_counts_total{} 2",
    "spiderpool_ipam_allocation_failure_counts_total{} 5",
    "spiderpool_ipam_allocation_limit_duration_seconds_count{} 3",
    "spiderpool_ipam_allocation_update_ippool_conflict_counts_total{} 1",
    "spiderpool_ipam_release_counts_total{} 2",
    "spiderpool_ipam_release_duration_seconds_count{} 2",
    "spiderpool_ipam_release_err_internal_counts_total{} 1",
    "spiderpool_ipam_release_failure_counts_total{} 1",
    "spiderpool_ipam_release_limit_duration_seconds_count{} 1",
];

#[tokio::test(start_paused = true)]
async fn adds_and_dels_are_counted_by_how_they_end() {
    let world = World::new();
    world.plain_pool("p", "10.31.0.0/24", &["10.31.0.10"]);
    world.pod("shop/web-0", "u-1");
    world.pod("shop/web-1", "u-2");
    let add =
        |container, pod, uid, pools: &[&str]| Request::ipam(container, "eth0", pools).pod(pod, uid);
    let first = add("c-1", "shop/web-0", "u-1", &["p"]);
    world.store.conflict("p", Box::new(|_| {}));
    world.add(&first).await.unwrap();
    // No address left, no such pool, a configuration that is none, the API away.
    let second = add("c-2", "shop/web-1", "u-2", &["p"]);
    world.add(&second).await.unwrap_err();
    world
        .add(&add("c-2", "shop/web-1", "u-2", &["nope"]))
        .await
        .unwrap_err();
    world
        .add(&first.clone().set("conf", json!([])))
        .await
        .unwrap_err();
    world.plain_pool("off", "10.32.0.0/24", &["10.32.0.10"]);
    let mut raw = world.store.current_pool("off").unwrap().raw().clone();
    raw["spec"]["disable"] = json!(true);
    world.store.set_pool(raw).unwrap();
    world
        .add(&add("c-2", "shop/web-1", "u-2", &["off"]))
        .await
        .unwrap_err();
    world.store.set_outage(true);
    world.add(&second).await.unwrap_err();
    world.del(&first).await.unwrap_err();
    world.store.set_outage(false);
    world.store.remove_pod(&object_key("shop/web-0"));
    world.del(&first).await.unwrap();
    assert_eq!(of(&world, &["ipam_"]).await, AFTER_ADDS_AND_DELS);
}

#[tokio::test]
async fn a_call_that_crashes_counts_as_failed() {
    let world = World::new();
    world.prewarm_pool("p4", "172.91.0.0/24", &[("172.91.0.100", 301)]);
    world.pod("shop/web-0", "u-1");
    world.nic.panic_on_attach(true);
    let agent = std::sync::Arc::clone(&world.agent);
    let call = Request::eni("c-1", "/ns/a", "net1")
        .pod("shop/web-0", "u-1")
        .build("ADD");
    let crashed = tokio::spawn(async move { agent.cni(call, crate::world::limits()).await });
    assert!(crashed.await.unwrap_err().is_panic());
    let shown = of(&world, &["ipam_allocation_failure", "ipam_allocation_err"]).await;
    assert_eq!(
        shown,
        [
            "spiderpool_ipam_allocation_err_internal_counts_total{} 1",
            "spiderpool_ipam_allocation_failure_counts_total{} 1",
        ]
    );
}

#[tokio::test]
async fn provider_pools_show_path_and_reason() {
    let (world, cloud) = cloudy();
    let hit = json!({"10.72.0.10": entry(7, NODE)});
    global(&world, "p4", &["10.72.0.10-10.72.0.11"], &hit);
    world.add(&request()).await.unwrap();
    world.pod("shop/web-1", "u-2");
    let second = Request::eni("c-2", "/ns/b", "net1").pod("shop/web-1", "u-2");
    let (op, timeout) = (
        Op::Allocate,
        spiderpool_iaas::duration::GoDuration::from_secs(50),
    );
    cloud
        .fake
        .script(move |_| Err(CallError::TooSlow { op, timeout }));
    world.add(&second).await.unwrap_err();
    world.add(&second).await.unwrap();
    world.pod("shop/web-2", "u-3");
    let third = Request::eni("c-3", "/ns/c", "net1").pod("shop/web-2", "u-3");
    world.add(&third).await.unwrap_err();
    let mut raw = world.store.current_pool("p4").unwrap().raw().clone();
    raw["status"]["ipMetaData"]["metadata"] = json!("{");
    world.store.set_pool(raw).unwrap();
    world.add(&third).await.unwrap_err();
    let bare = Request::ipam("c-3", "eth0", &["p4"]).pod("shop/web-2", "u-3");
    world.add(&bare).await.unwrap_err();
    let path = |path: &str| format!(r#"mode="global",path="{path}",pool="p4""#);
    let failed = |reason: &str| {
        format!(
            r#"spiderpool_iaas_allocation_failure_total{{mode="global",reason="{reason}",pool="p4"}} 1"#
        )
    };
    let (hit, cold) = (path("cache_hit"), path("cold_create"));
    assert_eq!(
        of(&world, &["iaas_"]).await,
        [
            format!("spiderpool_iaas_allocation_duration_seconds_count{{{hit}}} 1"),
            format!("spiderpool_iaas_allocation_duration_seconds_count{{{cold}}} 1"),
            failed("internal"),
            failed("metadata_not_ready"),
            failed("no_ready_ip"),
            failed("rpc_error"),
            format!("spiderpool_iaas_allocation_total{{{hit}}} 1"),
            format!("spiderpool_iaas_allocation_total{{{cold}}} 1"),
            "spiderpool_iaas_claim_rollback_total{} 1".to_owned(),
            r#"spiderpool_iaas_metadata_decode_failure_total{reason="bad_json"} 1"#.to_owned(),
            r#"spiderpool_iaas_rpc_duration_seconds_count{op="allocate"} 2"#.to_owned(),
            r#"spiderpool_iaas_rpc_failure_total{op="allocate",reason="timeout"} 1"#.to_owned(),
        ]
    );
}

#[tokio::test]
async fn preflights_show_their_result() {
    let world = World::new();
    world.prewarm_pool("p4", "172.91.0.0/24", &[("172.91.0.100", 301)]);
    world.pod("shop/web-0", "u-1");
    let add = Request::eni("c-1", "/ns/a", "net1").pod("shop/web-0", "u-1");
    world.nic.hold_back("172.91.0.100");
    world.add(&add).await.unwrap_err();
    world.nic.let_through("172.91.0.100");
    world.add(&add).await.unwrap();
    assert_eq!(
        of(&world, &["subeni_preflight"]).await,
        [
            r#"spiderpool_subeni_preflight_duration_seconds_count{nic="eth1",family="ipv4"} 1"#,
            r#"spiderpool_subeni_preflight_total{nic="eth1",family="ipv4",result="ok"} 1"#,
            r#"spiderpool_subeni_preflight_total{nic="eth1",family="ipv4",result="timeout"} 1"#,
        ]
    );
    // Nobody observes in this world.
    let up = samples(&world).await;
    let up = up.iter().find(|line| line.contains("observer_up")).unwrap();
    assert_eq!(
        up,
        r#"spiderpool_subeni_observer_up{nic="",attach="none"} 0"#
    );
}

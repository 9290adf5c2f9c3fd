//! Pools that change and go: finalizers on both pools of a pair (P16), partners that follow their
//! pool (P15).

use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use provider_sim::cloud::{Operation, State};
use provider_sim::finalizers::FINALIZER;
use serde_json::{Value, json};
use spiderpool_api::ip_meta::Metadata;

use crate::cluster::{Cluster, cluster};
use crate::rig::{item, pair, request};

async fn held() -> Cluster {
    let mut cluster = cluster().await;
    let service = std::sync::Arc::clone(&cluster.rig.service);
    cluster
        .rig
        .run(async move { service.hold_pools_forever().await });
    cluster
}

impl Cluster {
    /// Waits for the finalizer to be there or not; a pool that is gone has none.
    async fn until_held(&self, pool: &str, expected: bool) {
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            let object = self.pools.get_opt(pool).await.unwrap();
            let names = object.iter().flat_map(|object| object.finalizers());
            if names.into_iter().any(|name| name == FINALIZER) == expected {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "{pool} never {expected}"
            );
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }

    async fn patch(&self, pool: &str, patch: Value) {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.pools.patch(pool, &params, &patch).await.unwrap();
    }

    async fn delete(&self, pool: &str) {
        self.pools
            .delete(pool, &DeleteParams::default())
            .await
            .unwrap();
    }

    /// The controller's part of a deletion: its own finalizer goes, others stay.
    async fn let_go(&self, pool: &str) {
        let Some(object) = self.pools.get_opt(pool).await.unwrap() else {
            return;
        };
        let mut names = object.finalizers().to_vec();
        names.retain(|name| name == FINALIZER);
        self.patch(pool, json!({ "metadata": { "finalizers": names } }))
            .await;
    }

    async fn pair(&self, v6: &[&str]) {
        let other = |name: &str| json!({ "ipam.spidernet.io/pair-pool": name });
        let v4 = json!({ "subnet": "10.72.0.0/24", "ips": ["10.72.0.20-10.72.0.22"] });
        self.create("p4", other("p6"), v4).await;
        self.create(
            "p6",
            other("p4"),
            json!({ "subnet": "fd72::/64", "ips": v6 }),
        )
        .await;
        self.until("p4", "the mark", |_, _| true).await;
        self.rig
            .until("both pools are known", |service| {
                service.with(|world| world.memory.pools.len() == 2)
            })
            .await;
    }

    fn partner(&self, ip: &str) -> Option<String> {
        self.rig
            .at(ip)
            .and_then(|sub_eni| sub_eni.ipv6)
            .map(|ip| ip.to_string())
    }
}

/// Scenario 79: sub-ENIs first, then the finalizers of both.
#[tokio::test]
async fn a_deleted_pair_goes_after_its_sub_enis() {
    let cluster = held().await;
    cluster.pair(&["fd72::20-fd72::24"]).await;
    for pool in ["p4", "p6"] {
        cluster.until_held(pool, true).await;
    }
    let wanted = request("n1", &[pair("n1", "10.72.0.20", "fd72::20")]);
    cluster.rig.allocate(&wanted).await.unwrap();
    cluster
        .rig
        .allocate(&request("n1", &[pair("n1", "10.72.0.21", "fd72::21")]))
        .await
        .unwrap();
    // the cloud is in the way for a moment: nothing may be let go before it is done
    cluster
        .rig
        .faults(json!([{ "op": "delete", "kind": "delay", "delayMs": 1_500, "times": 1 }]));
    for pool in ["p4", "p6"] {
        cluster.delete(pool).await;
        cluster.let_go(pool).await;
    }
    cluster
        .rig
        .until("the cloud is at it", |service| {
            service.with(|world| world.cloud.calls().contains_key(&Operation::Delete))
        })
        .await;
    assert!(cluster.pools.get_opt("p4").await.unwrap().is_some());
    for pool in ["p4", "p6"] {
        cluster.until_held(pool, false).await;
        assert!(
            cluster.pools.get_opt(pool).await.unwrap().is_none(),
            "{pool}"
        );
    }
    assert_eq!(
        cluster
            .rig
            .service
            .with(|world| world.cloud.sub_enis().count()),
        0
    );
    cluster.audit().await;
}

/// What is claimed holds its pool; a marker that is taken off lets it go.
#[tokio::test]
async fn a_claim_holds_its_pool_and_a_lost_marker_lets_go() {
    let cluster = held().await;
    cluster.global().await;
    cluster.until("g", "the mark", |_, _| true).await;
    cluster.until_held("g", true).await;
    cluster.claim("g", "10.72.0.10", "u-1").await;
    let wanted = request("n1", &[item("n1", "10.72.0.10", "g")]);
    cluster.rig.allocate(&wanted).await.unwrap();
    cluster
        .rig
        .until("the claim is known", |service| {
            service.with(|world| world.memory.pools["g"].claims.len() == 1)
        })
        .await;
    cluster
        .rig
        .service
        .with(|world| world.memory.pools.get_mut("g").unwrap().deleting = true);
    cluster.rig.service.prewarm().await;
    assert!(cluster.rig.service.hold_pools().await);
    assert!(matches!(
        cluster.rig.at("10.72.0.10").unwrap().state,
        State::Bound(_)
    ));
    cluster.until_held("g", true).await;
    cluster
        .rig
        .service
        .with(|world| world.memory.pools.get_mut("g").unwrap().deleting = false);
    let spec = json!({ "subnet": "10.72.0.0/24", "ips": ["10.72.0.30"] });
    cluster.create("h", json!({}), spec).await;
    cluster.until_held("h", true).await;
    cluster
        .rig
        .allocate(&request("n1", &[item("n1", "10.72.0.30", "h")]))
        .await
        .unwrap();
    let bare =
        json!({ "metadata": { "annotations": { "ipam.spidernet.io/iaas-provider": null } } });
    cluster.patch("h", bare).await;
    cluster.until_held("h", false).await;
    assert_eq!(cluster.rig.at("10.72.0.30"), None);
    cluster.audit().await;
}

/// Three pairs, bound and idle, of pools of three and four.
async fn paired() -> Cluster {
    let cluster = cluster().await;
    cluster.pair(&["fd72::20-fd72::23"]).await;
    for host in 20..23 {
        let (v4, v6) = (format!("10.72.0.{host}"), format!("fd72::{host}"));
        let wanted = request("n1", &[pair("n1", &v4, &v6)]);
        cluster.rig.allocate(&wanted).await.unwrap();
    }
    cluster
        .until("p4", "all entries", |_, read| read.entries.len() == 3)
        .await;
    cluster
}

/// Whether 10.72.0.20 is published with this partner.
fn has_partner(read: &Metadata, partner: Option<&str>) -> bool {
    let entry = read.entries.get(&"10.72.0.20".parse().unwrap());
    entry.is_some_and(|entry| entry.ipv6 == partner.map(|ip| ip.parse().unwrap()))
}

/// An IPv6 address that left its pool is replaced by a free one; MAC and VLAN stay.
#[tokio::test]
async fn a_lost_partner_is_replaced() {
    let cluster = paired().await;
    let before = cluster.rig.at("10.72.0.20").unwrap();
    cluster
        .patch("p6", json!({ "spec": { "ips": ["fd72::21-fd72::23"] } }))
        .await;
    cluster
        .until("p4", "the free one is its partner", |_, read| {
            has_partner(read, Some("fd72::23"))
        })
        .await;
    let after = cluster.rig.at("10.72.0.20").unwrap();
    assert_eq!((after.mac, after.state), (before.mac, before.state));
    assert_eq!(cluster.partner("10.72.0.21").as_deref(), Some("fd72::21"));
    cluster.audit().await;
}

/// Without a free one it goes single, until an IPv4 address leaves and with it a sub-ENI.
#[tokio::test]
async fn a_lost_partner_is_dropped_and_found_again() {
    let cluster = paired().await;
    cluster.claim("p6", "fd72::23", "u-1").await;
    cluster
        .patch("p6", json!({ "spec": { "ips": ["fd72::21-fd72::23"] } }))
        .await;
    cluster
        .until("p4", "none is free", |_, read| has_partner(read, None))
        .await;
    assert_eq!(cluster.partner("10.72.0.20"), None);
    cluster
        .patch(
            "p4",
            json!({ "spec": { "ips": ["10.72.0.20-10.72.0.21"] } }),
        )
        .await;
    cluster
        .until("p4", "that of 22 is free now", |_, read| {
            has_partner(read, Some("fd72::22"))
        })
        .await;
    assert_eq!(cluster.rig.at("10.72.0.22"), None);
    let freed = json!({ "status": { "allocatedIPs": "{}" } });
    let (params, freed) = (PatchParams::default(), Patch::Merge(&freed));
    cluster
        .pools
        .patch_status("p6", &params, &freed)
        .await
        .unwrap();
    cluster.audit().await;
}

/// A claim that the provider has not heard of keeps its pair.
#[tokio::test]
async fn a_claimed_pair_is_not_parted() {
    let cluster = cluster().await;
    cluster.pair(&["fd72::20-fd72::22"]).await;
    let wanted = request("n1", &[pair("n1", "10.72.0.20", "fd72::20")]);
    cluster.rig.allocate(&wanted).await.unwrap();
    cluster
        .until("p4", "the entry", |_, read| read.entries.len() == 1)
        .await;
    cluster.claim("p4", "10.72.0.20", "u-1").await;
    cluster
        .rig
        .until("the claim is known", |service| {
            service.with(|world| world.memory.pools["p4"].claims.len() == 1)
        })
        .await;
    let before = cluster.rig.at("10.72.0.20");
    cluster.rig.service.with(|world| {
        let pools = &mut world.memory.pools;
        pools.get_mut("p4").unwrap().claims.clear();
        pools.get_mut("p6").unwrap().addresses =
            provider_sim::ranges::Ranges::new(["fd72::22"], []);
    });
    cluster.rig.service.prewarm().await;
    assert_eq!(cluster.rig.at("10.72.0.20"), before);
    assert_eq!(cluster.rig.calls(Operation::Update), 0);
}

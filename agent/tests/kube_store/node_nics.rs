//! The NICs of a node in the annotation of its Node object.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use spiderpool_agent::parent_nic::ParentNicPublisher;
use spiderpool_api::names;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::endpoints::ChangingNic;
use crate::rig::{Bench, bench, wait_for};

fn nodes(bench: &Bench) -> Api<Node> {
    Api::all(bench.client.clone())
}

async fn node(bench: &Bench) -> Node {
    nodes(bench).get("n1").await.unwrap()
}

async fn create(bench: &Bench) {
    let node = json!({"metadata": {"name": "n1", "annotations": {"theirs": "stays"}}});
    let node = serde_json::from_value(node).unwrap();
    let params = PostParams::default();
    nodes(bench).create(&params, &node).await.unwrap();
}

fn publisher(bench: &Bench, nics: &Arc<ChangingNic>, excluded: &[&str]) -> ParentNicPublisher {
    let nics = Arc::clone(nics) as _;
    let publisher = ParentNicPublisher::new(Arc::clone(&bench.store), nics, "n1");
    publisher.reporting_all_but(excluded.iter().map(|name| (*name).to_owned()).collect())
}

/// As `spiderpoolctl provider verify` reads it.
fn published(node: &Node) -> Option<BTreeMap<String, String>> {
    let text = node.annotations().get(names::PARENT_NICS)?;
    Some(serde_json::from_str(text).unwrap())
}

fn nics(pairs: &[(&str, &str)]) -> Option<BTreeMap<String, String>> {
    let pairs = pairs.iter();
    Some(
        pairs
            .map(|(name, mac)| ((*name).to_owned(), (*mac).to_owned()))
            .collect(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nodes_nics_are_published_but_for_those_excluded() {
    let bench = bench().await;
    create(&bench).await;
    let found = Arc::new(ChangingNic::default());
    found.set(Some([2, 0, 0, 0, 0, 1]));
    publisher(&bench, &found, &[]).publish_all().await;
    let written = node(&bench).await;
    let both = [("eth0", "02:00:00:00:09:01"), ("eth1", "02:00:00:00:00:01")];
    assert_eq!(published(&written), nics(&both));
    assert_eq!(written.annotations()["theirs"], "stays");
    let mut publisher = publisher(&bench, &found, &["eth0", "eth7"]);
    publisher.publish_all().await;
    let written = node(&bench).await;
    assert_eq!(published(&written), nics(&both[1..]));
    publisher.publish_all().await;
    assert_eq!(
        node(&bench).await.resource_version(),
        written.resource_version()
    );
    // Somebody takes it away.
    let patch = json!({"metadata": {"annotations": {names::PARENT_NICS: null}}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
    nodes(&bench).patch("n1", &params, &patch).await.unwrap();
    let publisher = Mutex::new(publisher);
    wait_for("the annotation's return", || async {
        publisher.lock().await.publish_all().await;
        published(&node(&bench).await)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_published_of_a_node_whose_agent_has_no_provider() {
    let bench = bench().await;
    create(&bench).await;
    let found = Arc::<ChangingNic>::default();
    let mut publisher = ParentNicPublisher::new(Arc::clone(&bench.store), found as _, "n1");
    publisher.publish_all().await;
    assert_eq!(published(&node(&bench).await), None);
}

/// As scenario 12, for the node; the first looks find no Node object.
#[tokio::test(flavor = "multi_thread")]
async fn the_publication_waits_for_the_node_and_follows_its_nics() {
    let bench = bench().await;
    let found = Arc::new(ChangingNic::default());
    let publisher = publisher(&bench, &found, &["eth0"]);
    let stop = CancellationToken::new();
    let running = tokio::spawn(publisher.run(stop.clone()));
    wait_for("a listener", || async { found.listened().then_some(()) }).await;
    found.set(Some([2, 0, 0, 0, 0, 9]));
    create(&bench).await;
    for last in [1, 2, 3] {
        found.set(Some([2, 0, 0, 0, 0, last]));
        let mac = format!("02:00:00:00:00:{last:02x}");
        let want = nics(&[("eth1", &mac)]);
        wait_for("the new MAC", || async {
            (published(&node(&bench).await) == want).then_some(())
        })
        .await;
    }
    found.set(None);
    wait_for("the NIC's end", || async {
        (published(&node(&bench).await) == nics(&[])).then_some(())
    })
    .await;
    stop.cancel();
    running.await.unwrap();
}

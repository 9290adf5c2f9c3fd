//! What is written about a Pod and its pools: endpoints, warnings, the parent NIC.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::future::BoxFuture;
use futures::stream::pending;
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use spiderpool_agent::nic::NicError;
use spiderpool_agent::parent_nic::{HostNics, LinkChanges, ParentNicPublisher};
use spiderpool_agent::store::{Freshness, ObjectKey, PodEvent, Store, StoreError};
use spiderpool_api::endpoint::{EndpointStatus, SpiderEndpoint};
use spiderpool_api::names;
use spiderpool_api::value::{IfName, Mac};
use tokio_util::sync::CancellationToken;

use crate::rig::{Bench, bench, pool, pools, wait_for};

fn endpoint(uid: &str) -> SpiderEndpoint {
    let mut status = EndpointStatus {
        owner_controller_type: "Pod".into(),
        owner_controller_name: "a".into(),
        ..EndpointStatus::default()
    };
    status.current.uid = uid.into();
    status.current.node = "n1".into();
    let metadata = json!({"name": "a", "namespace": "default", "finalizers": [names::FINALIZER], "labels": {names::LABEL_NODE: "n1"}});
    SpiderEndpoint::new(serde_json::from_value(metadata).unwrap(), status)
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_are_created_replaced_and_removed_by_identity() {
    let bench = bench().await;
    let key = ObjectKey::new("default", "a");
    let created = bench.store.put_endpoint(endpoint("u-1")).await.unwrap();
    assert!(
        bench
            .store
            .endpoint(&key, Freshness::Cached)
            .await
            .unwrap()
            .is_some()
    );
    assert!(matches!(
        bench.store.put_endpoint(endpoint("u-1")).await,
        Err(StoreError::Conflict(_))
    ));

    let mut changed = created.clone();
    changed.status.current.uid = "u-2".into();
    let replaced = bench.store.put_endpoint(changed.clone()).await.unwrap();
    assert_ne!(replaced.resource_version(), created.resource_version());
    assert!(matches!(
        bench.store.put_endpoint(changed).await,
        Err(StoreError::Conflict(_))
    ));

    bench.store.delete_endpoint(&replaced).await.unwrap();
    assert!(
        bench
            .store
            .endpoint(&key, Freshness::Fresh)
            .await
            .unwrap()
            .is_none()
    );
    // Of the next object of that name, a late removal of the first takes nothing.
    bench.store.put_endpoint(endpoint("u-3")).await.unwrap();
    bench.store.delete_endpoint(&replaced).await.unwrap();
    let kept = bench
        .store
        .endpoint(&key, Freshness::Fresh)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (
            kept.status.current.uid.as_str(),
            kept.metadata.deletion_timestamp
        ),
        ("u-3", None)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn warnings_reach_the_pod() {
    let bench = bench().await;
    let event = PodEvent {
        pod: ObjectKey::new("default", "a"),
        uid: "u-1".into(),
        reason: "SubENIValidationFailed",
        message: "no answer".into(),
    };
    bench.store.event(event).await;
    let events: Api<k8s_openapi::api::core::v1::Event> =
        Api::namespaced(bench.client.clone(), "default");
    let listed = events.list(&Default::default()).await.unwrap();
    let found = listed.items.first().unwrap();
    assert_eq!(found.reason.as_deref(), Some("SubENIValidationFailed"));
    assert_eq!(found.involved_object.uid.as_deref(), Some("u-1"));
}

struct OneNic;

impl HostNics for OneNic {
    fn mac<'a>(&'a self, name: &'a IfName) -> BoxFuture<'a, Result<Option<Mac>, NicError>> {
        let mac = (name.as_str() == "eth1").then_some(Mac::new([2, 0, 0, 0, 0, 1]));
        Box::pin(async move { Ok(mac) })
    }

    fn hardware(&self) -> BoxFuture<'_, Result<BTreeMap<String, Mac>, NicError>> {
        Box::pin(async { Ok(BTreeMap::new()) })
    }

    fn changes(&self) -> BoxFuture<'_, Result<LinkChanges, NicError>> {
        Box::pin(async { Ok(pending().boxed()) })
    }
}

/// A node whose eth1 changes, besides eth0; nobody is told but by the channel.
#[derive(Default)]
pub(crate) struct ChangingNic {
    mac: Mutex<Option<Mac>>,
    listeners: Mutex<Vec<UnboundedSender<()>>>,
}

impl ChangingNic {
    pub(crate) fn set(&self, mac: Option<[u8; 6]>) {
        *self.mac.lock().unwrap() = mac.map(Mac::new);
        let listeners = self.listeners.lock().unwrap();
        listeners
            .iter()
            .for_each(|to| to.unbounded_send(()).unwrap());
    }

    /// They have to be asked for again.
    fn end_changes(&self) {
        self.listeners.lock().unwrap().clear();
    }

    pub(crate) fn listened(&self) -> bool {
        !self.listeners.lock().unwrap().is_empty()
    }
}

impl HostNics for ChangingNic {
    fn mac<'a>(&'a self, _: &'a IfName) -> BoxFuture<'a, Result<Option<Mac>, NicError>> {
        Box::pin(async { Ok(*self.mac.lock().unwrap()) })
    }

    fn hardware(&self) -> BoxFuture<'_, Result<BTreeMap<String, Mac>, NicError>> {
        let eth0 = Some(Mac::new([2, 0, 0, 0, 9, 1]));
        let nics = [("eth0", eth0), ("eth1", *self.mac.lock().unwrap())];
        let nics = nics.into_iter();
        let found = nics.filter_map(|(name, mac)| Some((name.to_owned(), mac?)));
        let found = Ok(found.collect());
        Box::pin(async { found })
    }

    fn changes(&self) -> BoxFuture<'_, Result<LinkChanges, NicError>> {
        let (to, changes) = unbounded();
        self.listeners.lock().unwrap().push(to);
        Box::pin(async { Ok(changes.boxed()) })
    }
}

/// Scenario 12: the publication follows the NIC long before the next look.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_12_the_parent_nic_is_published_as_the_kernel_tells_of_it() {
    let bench = bench().await;
    prewarm(&bench, "warm", "eth1").await;
    let nics = Arc::new(ChangingNic::default());
    let publisher = ParentNicPublisher::new(Arc::clone(&bench.store), Arc::clone(&nics) as _, "n1");
    let stop = CancellationToken::new();
    let running = tokio::spawn(publisher.run(stop.clone()));
    wait_for("a listener", || async { nics.listened().then_some(()) }).await;
    for (last, ends) in [(1, false), (2, false), (3, true), (4, false)] {
        if ends {
            nics.end_changes();
            wait_for("a listener", || async { nics.listened().then_some(()) }).await;
        }
        nics.set(Some([2, 0, 0, 0, 0, last]));
        let want = json!({"name": "eth1", "mac": format!("02:00:00:00:00:{last:02x}")});
        wait_for("the new MAC", || async {
            let read = bench.store.pool("warm", Freshness::Fresh).await.unwrap()?;
            (read.raw()["status"]["parentNic"] == want).then_some(())
        })
        .await;
    }
    stop.cancel();
    running.await.unwrap();
}

/// A prewarm pool of this node on that parent, once the store has it.
async fn prewarm(bench: &Bench, name: &str, parent: &str) {
    let mut prewarm = pool(name);
    prewarm.spec.node_name = Some(vec!["n1".into()]);
    let notes = prewarm.annotations_mut();
    notes.insert(names::IAAS_PROVIDER.into(), "x".into());
    notes.insert(names::PARENT_NIC.into(), parent.into());
    pools(&bench.client)
        .create(&PostParams::default(), &prewarm)
        .await
        .unwrap();
    wait_for("the pool", || async {
        bench.store.pool(name, Freshness::Cached).await.unwrap()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_nic_that_is_not_there_is_told_once_on_the_pool() {
    let bench = bench().await;
    prewarm(&bench, "lost", "eth9").await;
    let mut publisher = ParentNicPublisher::new(Arc::clone(&bench.store), Arc::new(OneNic), "n1");
    publisher.publish_all().await;
    publisher.publish_all().await;
    let events: Api<Event> = Api::namespaced(bench.client.clone(), "default");
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let [event] = events.as_slice() else {
        panic!("{events:?}");
    };
    let about = &event.involved_object;
    let [kind, name] = [&about.kind, &about.name].map(|text| text.as_deref());
    assert_eq!((kind, name), (Some("SpiderIPPool"), Some("lost")));
    assert!(about.uid.is_some() && about.namespace.is_none());
    assert_eq!(event.reason.as_deref(), Some("ParentNicNotFound"));
    let message = event.message.as_deref().unwrap();
    assert!(message.contains("node n1 has no NIC eth9"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_parent_nic_of_a_prewarm_pool_is_published_once() {
    let bench = bench().await;
    prewarm(&bench, "warm", "eth1").await;

    let mut publisher = ParentNicPublisher::new(Arc::clone(&bench.store), Arc::new(OneNic), "n1");
    publisher.publish_all().await;
    let read = || async {
        bench
            .store
            .pool("warm", Freshness::Fresh)
            .await
            .unwrap()
            .unwrap()
    };
    let written = read().await;
    let want: Value = json!({"name": "eth1", "mac": "02:00:00:00:00:01"});
    assert_eq!(written.raw()["status"]["parentNic"], want);
    publisher.publish_all().await;
    assert_eq!(read().await.resource_version(), written.resource_version());
}

/// An endpoint without an owner is of an identity: the next Pod may have written it since.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_others_wrote_meanwhile_goes_only_with_its_owner() {
    for owned in [false, true] {
        let bench = bench().await;
        let key = ObjectKey::new("default", "a");
        let mut object = endpoint("u-1");
        let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u-1"}]);
        object.metadata.owner_references = owned.then(|| serde_json::from_value(owner).unwrap());
        let read = bench.store.put_endpoint(object).await.unwrap();
        let mut newer = read.clone();
        newer.status.current.uid = "u-2".into();
        bench.store.put_endpoint(newer).await.unwrap();
        bench.store.delete_endpoint(&read).await.unwrap();
        let left = bench.store.endpoint(&key, Freshness::Fresh).await.unwrap();
        let left = left.map(|left| left.status.current.uid);
        assert_eq!(left.as_deref(), (!owned).then_some("u-2"));
    }
}

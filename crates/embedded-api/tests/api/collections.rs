//! Lists, namespaces, both Events APIs, leases and restarts through a real kube client.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::ObjectList;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_embedded_api::EmbeddedApi;
use spiderpool_embedded_api::admission::AcceptAll;

use crate::rig::{Rig, code, from, pod, pool, rig};

async fn make_pods(pods: &Api<Pod>, made: &[(&str, &str)]) {
    for (name, node) in made {
        pods.create(&PostParams::default(), &pod(name, node))
            .await
            .unwrap();
    }
}

fn names(list: &ObjectList<Pod>) -> Vec<String> {
    list.items.iter().map(ResourceExt::name_any).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_select_and_page() {
    let rig = rig();
    let pods: Api<Pod> = Api::default_namespaced(rig.client);
    let made = [
        ("a", "n1"),
        ("b", "n2"),
        ("c", "n1"),
        ("d", "n1"),
        ("e", "n1"),
    ];
    make_pods(&pods, &made).await;
    let on_node = ListParams::default()
        .fields("spec.nodeName=n1")
        .labels("app in (web),!gone");
    assert_eq!(
        names(&pods.list(&on_node).await.unwrap()),
        ["a", "c", "d", "e"]
    );
    let paged = on_node.limit(3);
    let first = pods.list(&paged).await.unwrap();
    assert_eq!(names(&first), ["a", "c", "d"]);
    make_pods(&pods, &[("z", "n1")]).await;
    let token = first.metadata.continue_.unwrap();
    let second = pods.list(&paged.continue_token(&token)).await.unwrap();
    let version = first.metadata.resource_version;
    assert_eq!(
        second.metadata.resource_version, version,
        "a watch starts where the list began"
    );
    assert_eq!(second.metadata.continue_, None);
    assert_eq!(names(&second), ["e", "z"]);
    let unknown = ListParams::default().fields("spec.x=1");
    assert_eq!(code(pods.list(&unknown).await), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_must_exist_and_are_deleted_empty() {
    let rig = rig();
    let here: Api<Pod> = Api::default_namespaced(rig.client.clone());
    let there: Api<Pod> = Api::namespaced(rig.client.clone(), "shop");
    let all: Api<Pod> = Api::all(rig.client.clone());
    let namespaces: Api<Namespace> = Api::all(rig.client);
    let (post, delete) = (PostParams::default(), DeleteParams::default());
    assert_eq!(code(there.create(&post, &pod("a", "n1")).await), 404);
    let shop: Namespace = from(json!({"metadata": {"name": "shop"}}));
    let shop = namespaces.create(&post, &shop).await.unwrap();
    assert_eq!(shop.labels()["kubernetes.io/metadata.name"], "shop");
    make_pods(&there, &[("a", "n1")]).await;
    make_pods(&here, &[("a", "n1"), ("b", "n1")]).await;
    assert_eq!(code(namespaces.delete("shop", &delete).await), 409);
    assert_eq!(
        names(&all.list(&ListParams::default()).await.unwrap()),
        ["a", "b", "a"]
    );

    let of_app = ListParams::default().labels("app=web");
    here.delete_collection(&delete, &of_app).await.unwrap();
    assert_eq!(
        names(&all.list(&ListParams::default()).await.unwrap()),
        ["a"]
    );
    there.delete("a", &delete).await.unwrap();
    namespaces.delete("shop", &delete).await.unwrap();
    assert_eq!(code(namespaces.delete("default", &delete).await), 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_pods_of_bare_containers_choose_their_uid() {
    let rig = rig();
    let pods: Api<Pod> = Api::default_namespaced(rig.client);
    let asked = "7d444840-9dc0-11d1-b245-5ffdce74fad2";
    for (name, label, kept) in [
        ("bare", "spiderpool.spidernet.io/owned-by", true),
        ("other", "spiderpool.spidernet.io/else", false),
    ] {
        let mut object = pod(name, "n");
        object.metadata.uid = Some(asked.to_owned());
        object
            .labels_mut()
            .insert(label.to_owned(), "standalone".to_owned());
        let made = pods.create(&PostParams::default(), &object).await.unwrap();
        assert_eq!(made.uid().as_deref() == Some(asked), kept, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_and_leases() {
    let rig = rig();
    let core: Api<Event> = Api::default_namespaced(rig.client.clone());
    let events: Api<k8s_openapi::api::events::v1::Event> =
        Api::default_namespaced(rig.client.clone());
    let event = from(
        json!({"metadata": {"generateName": "p."}, "note": "said", "type": "Warning",
        "reason": "ParentNicNotFound", "regarding": {"kind": "SpiderIPPool", "name": "p"},
        "eventTime": "2026-03-01T00:00:00.000000Z", "reportingController": "agent",
        "reportingInstance": "n", "action": "a"}),
    );
    let made = events.create(&PostParams::default(), &event).await.unwrap();
    assert_eq!(made.note.as_deref(), Some("said"));
    let about = ListParams::default().fields("involvedObject.name=p,type=Warning");
    let seen = core.list(&about).await.unwrap().items;
    assert_eq!(seen[0].message.as_deref(), Some("said"));
    assert_eq!(seen[0].name_any(), made.name_any());
    let count = Patch::Merge(json!({"series": {"count": 2,
        "lastObservedTime": "2026-03-01T00:01:00.000000Z"}}));
    let params = PatchParams::default();
    let patched = events
        .patch(&made.name_any(), &params, &count)
        .await
        .unwrap();
    assert_eq!(
        (patched.series.unwrap().count, patched.note.as_deref()),
        (2, Some("said"))
    );

    let leases: Api<Lease> = Api::default_namespaced(rig.client);
    let lease = from(json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}));
    let made = leases.create(&PostParams::default(), &lease).await.unwrap();
    let mut taken = made.clone();
    taken.spec.as_mut().unwrap().holder_identity = Some("b".to_owned());
    leases
        .replace("l", &PostParams::default(), &taken)
        .await
        .unwrap();
    assert_eq!(
        code(leases.replace("l", &PostParams::default(), &taken).await),
        409
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_there_after_a_restart_and_versions_go_on() {
    let Rig {
        api,
        client,
        folder,
    } = rig();
    let pools: Api<SpiderIPPool> = Api::all(client);
    let mut expected = BTreeMap::new();
    for i in 0..20 {
        let made = pools
            .create(&PostParams::default(), &pool(&format!("p{i}")))
            .await
            .unwrap();
        expected.insert(made.name_any(), made.resource_version());
    }
    let state = folder.path().join("state.redb");
    let busy = EmbeddedApi::open(&state, Arc::new(AcceptAll))
        .err()
        .unwrap();
    assert!(busy.to_string().contains("is in use"), "{busy}");
    api.close().await;

    let api = EmbeddedApi::open(&state, Arc::new(AcceptAll)).unwrap();
    let pools: Api<SpiderIPPool> = Api::all(Client::new(api.router(), "default"));
    let list = pools.list(&ListParams::default()).await.unwrap();
    let found: BTreeMap<_, _> = list
        .items
        .iter()
        .map(|p| (p.name_any(), p.resource_version()))
        .collect();
    assert_eq!(found, expected);
    let next = pools
        .create(&PostParams::default(), &pool("next"))
        .await
        .unwrap();
    let number = |v: Option<String>| v.unwrap().parse::<u64>().unwrap();
    assert!(number(next.resource_version()) > number(list.metadata.resource_version));
    api.close().await;
}

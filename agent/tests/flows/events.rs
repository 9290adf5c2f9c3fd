//! What the Pod's user sees of a failed ADD: one Warning a reason, with the runtime's text.

use serde_json::json;
use spiderpool_agent::flow::error::Failure;

use crate::world::{Request, World, object_key};

fn world() -> World {
    let world = World::new();
    world.plain_pool("p", "10.31.0.0/24", &["10.31.0.10"]);
    world.pod("shop/web-0", "u-1");
    world
}

fn request(pools: &[&str]) -> Request {
    Request::ipam("c-1", "eth0", pools).pod("shop/web-0", "u-1")
}

fn as_shown(failure: &Failure) -> String {
    match failure.details.as_str() {
        "" => failure.msg.clone(),
        details => format!("{}: {details}", failure.msg),
    }
}

type Case = (&'static str, Request, fn(&World));

/// Reason, call, and what is wrong with the world.
fn cases() -> Vec<Case> {
    let eni = |pools: &[&str]| {
        let eni = Request::eni("c-1", "/ns/a", "net1").pod("shop/web-0", "u-1");
        eni.pools("ipv4", pools)
    };
    vec![
        ("IPAMWrongInput", request(&["nope"]), |_| {}),
        (
            "IPAMWrongInput",
            request(&["p"]).set("conf", json!([])),
            |_| {},
        ),
        ("IPAMWrongInput", request(&["p"]), |world| {
            let notes = [("ipam.spidernet.io/ippool", "{")];
            world.annotated_pod("shop/web-0", "u-1", &notes);
        }),
        ("NoIPPoolAvailable", request(&["p"]), |world| {
            let mut raw = world.store.current_pool("p").unwrap().raw().clone();
            raw["spec"]["nodeName"] = json!(["elsewhere"]);
            world.store.set_pool(raw).unwrap();
        }),
        ("IPAddressesUsedOut", request(&["p"]), |world| {
            world.set_record("p", "10.31.0.10", "shop/other", "u-9", None);
        }),
        ("IaaSMetadataNotReady", eni(&["p4"]), |world| {
            world.prewarm_pool("p4", "172.91.0.0/24", &[("172.91.0.100", 301)]);
            let mut raw = world.store.current_pool("p4").unwrap().raw().clone();
            raw["metadata"]["generation"] = json!(2);
            world.store.set_pool(raw).unwrap();
        }),
        (
            "SubENIAttachFailed",
            eni(&["p"]).conf("master", "eth9"),
            |_| {},
        ),
        ("IPAllocationFailed", request(&["p"]), |world| {
            world.store.conflict_endpoints(usize::MAX);
        }),
    ]
}

#[tokio::test]
async fn every_category_has_its_word_and_the_text_of_the_runtime() {
    for (reason, request, arrange) in cases() {
        tokio::time::pause();
        let world = world();
        arrange(&world);
        let failure = world.add(&request).await.expect_err(reason);
        let events = world.events().await;
        let [event] = events.as_slice() else {
            panic!("{reason}: {events:?} after {failure:?}");
        };
        assert_eq!((event.reason, event.uid.as_str()), (reason, "u-1"));
        assert_eq!(event.pod, object_key("shop/web-0"));
        assert_eq!(event.message, as_shown(&failure));
        // The runtime repeats, the user has heard it; but not within this minute of one that
        // came to the deadline.
        world.add(&request).await.unwrap_err();
        let again = usize::from(reason == "IPAllocationFailed");
        assert_eq!(world.events().await.len(), 1 + again, "{reason}");
        tokio::time::resume();
    }
}

#[tokio::test(start_paused = true)]
async fn conflicts_until_the_deadline_have_a_word_of_their_own() {
    let world = world();
    for _ in 0..10_000 {
        world.store.conflict("p", Box::new(|_| {}));
    }
    let failure = world.add(&request(&["p"])).await.unwrap_err();
    assert!(
        as_shown(&failure).contains("exhaust all retries"),
        "{failure:?}"
    );
    assert_eq!(world.events().await[0].reason, "IPAMRetriesExhausted");
}

#[tokio::test]
async fn nobody_is_told_of_a_pod_that_is_gone_and_no_add_waits_for_an_event() {
    let world = world();
    world
        .add(&request(&["p"]).pod("shop/gone", "u-7"))
        .await
        .unwrap_err();
    world
        .add(&request(&["p"]).pod("shop/web-0", "u-8"))
        .await
        .unwrap_err();
    assert!(world.events().await.is_empty());
    world.store.set_outage(true);
    world.add(&request(&["p"])).await.unwrap_err();
}

//! The requests kubectl makes, to the letter where it matters: discovery, Tables, validation,
//! client-side apply.

use http::header;
use serde_json::{Value, json};

use crate::rig::{OURS, TABLE, get, pool_json, rig, send, value};

#[tokio::test]
async fn discovery_as_kubectl_reads_it() {
    let rig = rig();
    let router = rig.api.router();
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                  application/json";
    let response = send(
        &router,
        "GET",
        "/apis",
        &[(header::ACCEPT, accept)],
        &Value::Null,
    )
    .await;
    assert_eq!(
        response.headers()[header::CONTENT_TYPE],
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
    assert_eq!(value(response).await["kind"], "APIGroupDiscoveryList");
    assert_eq!(
        get(&router, "/apis", "application/json").await["kind"],
        "APIGroupList"
    );
    assert_eq!(
        get(&router, "/api", "application/json").await["versions"],
        json!(["v1"])
    );
    let list = get(&router, OURS, "application/json").await;
    assert_eq!(list["groupVersion"], "spiderpool.spidernet.io/v2beta1");
    assert!(
        get(&router, "/version", "*/*").await["gitVersion"]
            .as_str()
            .unwrap()
            .starts_with('v')
    );
    let index = get(&router, "/openapi/v3", "application/json").await;
    for entry in index["paths"].as_object().unwrap().values() {
        let url = entry["serverRelativeURL"].as_str().unwrap();
        assert_eq!(
            get(&router, url, "application/json").await["openapi"],
            "3.0.0"
        );
    }
    for (method, path, code) in [
        ("GET", "/openapi/v2", 404),
        ("GET", "/apis/apps/v1", 404),
        (
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            404,
        ),
        ("POST", "/apis", 405),
        ("PUT", "/api/v1/pods", 405),
        ("GET", "/readyz", 200),
    ] {
        let response = send(&router, method, path, &[], &Value::Null).await;
        assert_eq!(response.status().as_u16(), code, "{method} {path}");
    }
}

#[tokio::test]
async fn tables_have_the_columns_of_the_specification() {
    let rig = rig();
    let router = rig.api.router();
    send(
        &router,
        "POST",
        &format!("{OURS}/spiderippools"),
        &[],
        &pool_json("p"),
    )
    .await;
    let uri = format!("{OURS}/spiderippools?limit=500");
    let table = get(&router, &uri, TABLE).await;
    assert_eq!(
        (&table["kind"], &table["apiVersion"]),
        (&json!("Table"), &json!("meta.k8s.io/v1"))
    );
    let columns = table["columnDefinitions"].as_array().unwrap();
    let shown = |wide: bool| {
        let shown = columns.iter().filter(|c| wide || c["priority"] == 0);
        shown
            .map(|c| c["name"].as_str().unwrap())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        shown(false),
        "Name VERSION SUBNET ALLOCATED-IP-COUNT TOTAL-IP-COUNT DEFAULT"
    );
    let wide = " DISABLE NodeName MultusName APP-NAMESPACE READY-IP-COUNT PARENT-NIC Age";
    assert_eq!(shown(true), shown(false) + wide);
    let row = &table["rows"][0];
    assert_eq!(row["cells"][0], "p");
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
    assert!(row["object"].get("spec").is_none());
    let full = get(&router, &format!("{uri}&includeObject=Object"), TABLE).await;
    assert_eq!(full["rows"][0]["object"]["spec"]["subnet"], "10.7.0.0/24");
    let one = get(&router, &format!("{OURS}/spiderippools/p"), TABLE).await;
    assert_eq!(one["rows"][0]["cells"], row["cells"]);
    assert_ne!(one["metadata"]["resourceVersion"], "0");
}

#[tokio::test]
async fn field_validation_as_kubectl_relies_on_it() {
    let rig = rig();
    let router = rig.api.router();
    let create = |validation: &str, name: &str| {
        let uri = format!("{OURS}/spiderippools?fieldValidation={validation}");
        let mut object = pool_json(name);
        object["spec"]["gatewy"] = json!("10.7.0.1");
        let router = router.clone();
        async move { send(&router, "POST", &uri, &[], &object).await }
    };
    let strict = create("Strict", "a").await;
    assert_eq!(strict.status(), 400);
    assert_eq!(
        value(strict).await["message"],
        "SpiderIPPool in version \"v2beta1\" cannot be handled as a SpiderIPPool: strict decoding \
         error: unknown field \"spec.gatewy\""
    );
    let warn = create("Warn", "b").await;
    assert_eq!(warn.status(), 201);
    assert_eq!(
        warn.headers()[header::WARNING],
        "299 - \"unknown field \\\"spec.gatewy\\\"\""
    );
    assert!(
        value(warn).await["spec"].get("gatewy").is_none(),
        "unknown fields are pruned"
    );
    let ignore = create("Ignore", "c").await;
    assert_eq!(
        (
            ignore.status().as_u16(),
            ignore.headers().get(header::WARNING)
        ),
        (201, None)
    );
    assert_eq!(create("Sometimes", "d").await.status(), 422);
    let mut wrong = pool_json("e");
    wrong["spec"] = json!({"ips": "10.7.0.9"});
    let refused = send(
        &router,
        "POST",
        &format!("{OURS}/spiderippools"),
        &[],
        &wrong,
    )
    .await;
    assert_eq!(refused.status(), 422);
    let status = value(refused).await;
    assert_eq!(status["details"]["causes"].as_array().unwrap().len(), 2);
    assert_eq!(status["details"]["causes"][0]["field"], "spec.subnet");
}

#[tokio::test]
async fn apply_and_delete_as_kubectl_does_it_on_the_client_side() {
    let rig = rig();
    let router = rig.api.router();
    let uri = format!("{OURS}/spiderippools/p");
    assert_eq!(get(&router, &uri, "application/json").await["code"], 404);
    let query = "fieldManager=kubectl-client-side-apply&fieldValidation=Strict";
    let collection = format!("{OURS}/spiderippools?{query}");
    let mut object = pool_json("p");
    let applied = "kubectl.kubernetes.io/last-applied-configuration";
    object["metadata"]["annotations"] = json!({applied: "{}"});
    let created = send(&router, "POST", &collection, &[], &object).await;
    assert_eq!(created.status(), 201);
    let merge = [(header::CONTENT_TYPE, "application/merge-patch+json")];
    let patch = json!({"spec": {"ips": ["10.7.0.10"]}});
    let patched = send(&router, "PATCH", &uri, &merge, &patch).await;
    assert_eq!(value(patched).await["metadata"]["generation"], 2);
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1",
        "propagationPolicy": "Background"});
    let deleted = value(send(&router, "DELETE", &uri, &[], &options).await).await;
    assert_eq!(
        (&deleted["kind"], &deleted["status"]),
        (&json!("Status"), &json!("Success"))
    );
    assert_eq!(deleted["details"]["name"], "p");
}

#[tokio::test]
async fn bodies_that_are_not_taken() {
    let rig = rig();
    let router = rig.api.router();
    let collection = format!("{OURS}/spiderippools");
    let uri = format!("{collection}/p");
    let object = pool_json("p");
    send(&router, "POST", &collection, &[], &object).await;
    let json = "application/json";
    let cases = [
        (
            "PATCH",
            &uri,
            "application/strategic-merge-patch+json",
            object.clone(),
            415,
        ),
        (
            "PATCH",
            &uri,
            "application/apply-patch+yaml",
            object.clone(),
            415,
        ),
        ("PATCH", &uri, json, object.clone(), 415),
        ("POST", &collection, "application/yaml", object, 415),
        (
            "POST",
            &collection,
            json,
            json!({"metadata": {"name": "x".repeat(4 << 20)}}),
            413,
        ),
        ("POST", &collection, json, json!({"kind": "Pod"}), 400),
        ("POST", &collection, json, json!([]), 400),
        ("PUT", &uri, json, pool_json("q"), 422),
    ];
    for (method, uri, media, body, code) in cases {
        let headers = [(header::CONTENT_TYPE, media)];
        let response = send(&router, method, uri, &headers, &body).await;
        assert_eq!(response.status().as_u16(), code, "{method} {media}");
        assert_eq!(value(response).await["kind"], "Status");
    }
}

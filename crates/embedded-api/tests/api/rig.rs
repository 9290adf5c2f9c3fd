//! What the tests share: an API on a fresh state file, objects, deadlines, plain requests.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::header::HeaderName;
use http::{Request, Response, header};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use serde_json::{Value, json};
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_embedded_api::admission::{AcceptAll, Admission};
use spiderpool_embedded_api::{EmbeddedApi, HistoryLimits};
use tempfile::TempDir;

/// Path of our group.
pub(crate) const OURS: &str = "/apis/spiderpool.spidernet.io/v2beta1";
/// What kubectl accepts when it prints.
pub(crate) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,\
                         application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

pub(crate) struct Rig {
    pub(crate) api: EmbeddedApi,
    pub(crate) client: Client,
    pub(crate) folder: TempDir,
}

pub(crate) fn rig() -> Rig {
    rig_with(HistoryLimits::default())
}

pub(crate) fn rig_with(limits: HistoryLimits) -> Rig {
    rig_under(Arc::new(AcceptAll), limits)
}

pub(crate) fn rig_under(admission: Arc<dyn Admission>, limits: HistoryLimits) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.redb");
    let api = EmbeddedApi::open_with(&state, admission, limits).unwrap();
    let client = Client::new(api.router(), "default");
    Rig {
        api,
        client,
        folder,
    }
}

pub(crate) fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn pool_json(name: &str) -> Value {
    json!({"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool",
        "metadata": {"name": name},
        "spec": {"subnet": "10.7.0.0/24", "ips": ["10.7.0.9"], "nodeName": ["n"]}})
}

pub(crate) fn pool(name: &str) -> SpiderIPPool {
    from(pool_json(name))
}

pub(crate) fn pod(name: &str, node: &str) -> Pod {
    from(json!({"metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}}))
}

/// Code of the API error a call must end in.
pub(crate) fn code<T: std::fmt::Debug>(result: kube::Result<T>) -> u16 {
    match result {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("no API error: {other:?}"),
    }
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future)
        .await
        .expect("in time")
}

/// One plain request.
pub(crate) async fn send(
    router: &Router,
    method: &str,
    uri: &str,
    headers: &[(HeaderName, &str)],
    body: &Value,
) -> Response<Body> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    let body = if body.is_null() {
        Body::empty()
    } else {
        Body::from(body.to_string())
    };
    tower::ServiceExt::oneshot(router.clone(), request.body(body).unwrap())
        .await
        .unwrap()
}

pub(crate) async fn value(response: Response<Body>) -> Value {
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20)
        .await
        .unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

pub(crate) async fn get(router: &Router, uri: &str, accept: &str) -> Value {
    value(
        send(
            router,
            "GET",
            uri,
            &[(header::ACCEPT, accept)],
            &Value::Null,
        )
        .await,
    )
    .await
}

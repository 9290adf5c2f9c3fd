//! A review from end to end: collects what the rules look at, asks them, writes the answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::{DynamicObject, PartialObjectMeta};
use kube::{Api, Client};
use serde_json::Value;
use spiderpool_api::attachment_definition::NetworkAttachmentDefinition;
use spiderpool_ipam::admission::pod::{self, NetworkView, PodRequest, PodSettings};
use spiderpool_ipam::admission::view::AttachmentView;
use spiderpool_ipam::admission::{
    Kind, Op, Refusal, Settings, World, attachment_name, mutate, validate,
};

use super::facts::{Facts, NotReady};
use super::kinds;
use super::review::{self, Request};

/// Judges with these rules and facts.
pub struct Judge {
    /// For what no watch knows yet.
    pub client: Client,
    /// What other objects are like.
    pub facts: Arc<Facts>,
    /// Configuration of the rules.
    pub settings: Settings,
    /// What is put into Pods.
    pub pods: PodSettings,
}

/// A review that cannot be answered; the API server then refuses the request.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    /// This replica does not know enough yet.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// The API did not answer.
    #[error("cannot read {what}")]
    Read {
        /// The object.
        what: String,
        /// The client's error.
        source: Box<kube::Error>,
    },
    /// Should not happen.
    #[error("cannot write the answer")]
    Answer(#[from] serde_json::Error),
}

impl Judge {
    /// The object as it should be.
    ///
    /// # Errors
    /// [`JudgeError`].
    pub async fn mutate(&self, kind: Kind, request: Request) -> Result<Value, JudgeError> {
        let Some(old) = request.new_object() else {
            return Ok(review::allowed(&request.uid));
        };
        let mut world = World::default();
        if kind == Kind::IpPool && self.settings.spider_subnet {
            world.subnets = self.facts.subnets.all().await?;
        }
        let mut new = old.clone();
        let warnings = mutate(kind, &mut new, request.old(), &world, &self.settings);
        Ok(review::patched(&request.uid, old, &new, &warnings)?)
    }

    /// Whether the object may be so, or go.
    ///
    /// # Errors
    /// [`JudgeError`].
    pub async fn validate(&self, kind: Kind, request: Request) -> Result<Value, JudgeError> {
        let Some(op) = request.op() else {
            return Ok(review::allowed(&request.uid));
        };
        let world = self.world(kind, op, &request).await?;
        let (new, old) = (request.new_object(), request.old());
        Ok(match validate(op, kind, new, old, &world, &self.settings) {
            Ok(()) => review::allowed(&request.uid),
            Err(refusal) => {
                tracing::info!(kind = kind.name(), name = request.name, %refusal, "refused");
                review::refused(&request.uid, kind.name(), &request.name, &refusal)
            }
        })
    }

    async fn world(&self, kind: Kind, op: Op, request: &Request) -> Result<World, JudgeError> {
        Ok(match (kind, op, request.new_object()) {
            (Kind::IpPool | Kind::Subnet, Op::Create | Op::Update, _) => World {
                pools: self.facts.pools.all().await?,
                subnets: self.facts.subnets.all().await?,
                attachment: None,
            },
            (Kind::MultusConfig, Op::Create | Op::Update, Some(new)) => World {
                attachment: self
                    .attachment(&request.namespace, attachment_name(new))
                    .await?,
                ..World::default()
            },
            _ => World::default(),
        })
    }

    /// Read directly: whose it is decides whether it is overwritten.
    async fn attachment(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<AttachmentView>, JudgeError> {
        if name.is_empty() {
            return Ok(None);
        }
        let api: Api<PartialObjectMeta<NetworkAttachmentDefinition>> =
            Api::namespaced(self.client.clone(), namespace);
        let found = api.get_opt(name).await;
        let found = found.map_err(|source| JudgeError::Read {
            what: format!("NetworkAttachmentDefinition {namespace}/{name}"),
            source: Box::new(source),
        })?;
        let view = |object| Ok(AttachmentView::read(&serde_json::to_value(object)?));
        found.map(view).transpose()
    }

    /// The Pod with what it needs.
    ///
    /// # Errors
    /// [`JudgeError`].
    pub async fn pod(&self, request: Request) -> Result<Value, JudgeError> {
        let (Some(old), Some(Op::Create)) = (request.new_object(), request.op()) else {
            return Ok(review::allowed(&request.uid));
        };
        let annotations = self.namespace(&request.namespace).await?;
        let mut networks = self.facts.networks.all().await?;
        for missing in pod::unknown(old, &request.namespace, &networks, self.pods) {
            networks.extend(self.network(&missing.namespace, &missing.name).await?);
        }
        let known: Vec<&NetworkView> = networks.iter().map(AsRef::as_ref).collect();
        let asked = PodRequest {
            namespace: &request.namespace,
            namespace_annotations: &annotations,
            networks: &known,
            settings: self.pods,
        };
        let mut new = old.clone();
        Ok(match pod::mutate(&mut new, &asked) {
            Ok(warnings) => review::patched(&request.uid, old, &new, &warnings)?,
            Err(error) => {
                let refusal = Refusal::Invalid(vec![error]);
                tracing::info!(namespace = request.namespace, name = request.name, %refusal, "refused a Pod");
                review::refused(&request.uid, "Pod", &request.name, &refusal)
            }
        })
    }

    /// Annotations of a namespace; one that the watch has not shown yet is read directly.
    async fn namespace(&self, name: &str) -> Result<BTreeMap<String, String>, JudgeError> {
        if let Some(known) = self.facts.namespaces.get(name).await? {
            return Ok(known.as_ref().clone());
        }
        let found = kinds::namespaces(&self.client).get_opt(name).await;
        let found = found.map_err(|source| JudgeError::Read {
            what: format!("namespace {name}"),
            source: Box::new(source),
        })?;
        let annotations = found.and_then(|namespace| namespace.metadata.annotations);
        Ok(annotations.unwrap_or_default())
    }

    /// A network that no watch has shown yet, if it is one of ours: a Pod and its network are often
    /// applied together.
    async fn network(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<NetworkView>>, JudgeError> {
        let api = kinds::objects_in(&self.client, Kind::MultusConfig, namespace);
        let found: Option<DynamicObject> =
            api.get_opt(name).await.map_err(|source| JudgeError::Read {
                what: format!("SpiderMultusConfig {namespace}/{name}"),
                source: Box::new(source),
            })?;
        let Some(found) = found else {
            return Ok(None);
        };
        let view = NetworkView::read(&serde_json::to_value(&found)?);
        Ok(view.ok().map(Arc::new))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Body;
    use http::{Request as HttpRequest, Response};
    use http_body_util::BodyExt;
    use serde_json::json;
    use tower::ServiceExt;

    use super::super::routes;
    use super::*;

    /// Asked about anything, there is none.
    fn empty_cluster() -> Client {
        let service = tower::service_fn(|_: HttpRequest<kube::client::Body>| async {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "reason": "NotFound", "code": 404, "message": "not found"});
            let body = kube::client::Body::from(status.to_string().into_bytes());
            let answer = Response::builder().status(404).body(body).unwrap();
            Ok::<_, Infallible>(answer)
        });
        Client::new(service, "default")
    }

    async fn ask(router: &axum::Router, path: &str, request: Value) -> Value {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": request});
        let call = HttpRequest::post(path)
            .header("content-type", "application/json")
            .body(Body::from(review.to_string()))
            .unwrap();
        let answer = router.clone().oneshot(call).await.unwrap();
        assert_eq!(answer.status(), 200, "{review}");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&body).unwrap()
    }

    fn cases() -> Vec<(Value, &'static str)> {
        vec![
            (json!({}), ""),
            (json!({"cniType": "macvlan"}), "spec.macvlan"),
            (
                json!({"cniType": "ovs", "ovs": {"trunk": [{"maxID": 20}]}}),
                "spec",
            ),
            (
                json!({"cniType": "eni-vlan", "enivlan": {"master": []}}),
                "spec.enivlan.master",
            ),
            (json!({"cniType": "bogus"}), "spec"),
            (json!("nonsense"), "spec"),
            (Value::Null, ""),
        ]
    }

    /// Case B29: whatever the configuration, an answer each time; those that the schema would refuse
    /// reach the rules here.
    #[tokio::test]
    async fn b29_odd_configurations_are_answered() {
        let judge = Judge {
            client: empty_cluster(),
            facts: Arc::default(),
            settings: Settings::default(),
            pods: PodSettings::default(),
        };
        let router = routes::router(Arc::new(judge));
        let (world, settings) = (World::default(), Settings::default());
        let kind = Kind::MultusConfig;
        for (spec, field) in cases() {
            let mut object = json!({"metadata": {"name": "n"}, "spec": spec});
            for (operation, old) in [
                ("CREATE", Value::Null),
                ("UPDATE", json!({"metadata": {"name": "n"}, "spec": {}})),
            ] {
                let mut request = json!({"uid": "u", "operation": operation, "name": "n",
                    "namespace": "lab", "object": object, "oldObject": old});
                let path = routes::path("mutate", kind);
                let filled = ask(&router, &path, request.clone()).await;
                assert_eq!(filled["response"]["allowed"], true);
                mutate(kind, &mut object, None, &world, &settings);
                request["object"] = object.clone();
                let judged = ask(&router, &routes::path("validate", kind), request).await;
                let response = &judged["response"];
                assert_eq!(response["uid"], "u");
                assert_eq!(
                    response["allowed"],
                    field.is_empty(),
                    "{object}\n{response}"
                );
                let cause = &response["status"]["details"]["causes"][0]["field"];
                assert!(field.is_empty() || *cause == *field, "{object}\n{response}");
            }
        }
    }
}

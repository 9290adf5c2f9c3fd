//! Keeps Secret, served certificate and webhook configurations in line with each other. Every replica
//! runs it.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, select_all};
use futures::{Stream, StreamExt};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::issue::{IssueError, issue};
use super::plan::{self, DAYS, Now};
use super::served::{Served, ServedError};
use super::stored::{self, SECRET, Stored};
use super::trust::{self, CONFIGURATION};
use crate::chain::full;
use crate::clock::Clock;
use crate::followed::follow;

/// How long an API server may take to use a bundle that was written: it watches its configurations.
const SETTLE: Duration = Duration::from_secs(10);
/// Between two looks when nothing happens.
const IDLE: Duration = Duration::from_secs(60);
/// After a failure, or a write of somebody else's that came first.
const RETRY: Duration = Duration::from_secs(1);

/// Where and for whom.
#[derive(Debug, Clone)]
pub struct Site {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Names of the webhooks.
    pub names: Vec<String>,
}

impl Site {
    /// Of a Service in a namespace, by all names it has, and more.
    #[must_use]
    pub fn of_service(service: &str, namespace: &str, extra: &[String]) -> Self {
        let own = format!("{service}.{namespace}");
        let mut names = vec![
            "spidernet.io".to_owned(),
            own.clone(),
            format!("{own}.svc"),
            format!("{own}.svc.cluster.local"),
        ];
        names.extend(extra.iter().cloned());
        Self {
            namespace: namespace.to_owned(),
            names,
        }
    }
}

/// A look failed; the next one is soon.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error("cannot {tried} Secret {SECRET}")]
    Secret {
        tried: &'static str,
        source: Box<kube::Error>,
    },
    #[error(
        "cannot replace the content of Secret {SECRET}, which is immutable: delete it, and it is made again at once, with the certificate that is served"
    )]
    Immutable(#[source] Box<kube::Error>),
    #[error("cannot write caBundle into webhook configuration {CONFIGURATION}")]
    Trust(#[source] Box<kube::Error>),
    #[error(transparent)]
    Issue(#[from] IssueError),
    #[error("cannot serve the certificate of Secret {SECRET}")]
    Served(#[from] ServedError),
}

impl LookError {
    /// Somebody else's write came first; theirs is looked at next.
    fn is_conflict(&self) -> bool {
        match self {
            Self::Secret { source, .. } | Self::Immutable(source) | Self::Trust(source) => {
                matches!(source.as_ref(), kube::Error::Api(status) if status.code == 409)
            }
            _ => false,
        }
    }
}

struct Keeper {
    client: Client,
    clock: Arc<dyn Clock>,
    site: Site,
    served: Arc<Served>,
    /// What was served last: a Secret that somebody deletes is made again from it.
    known: Option<Stored>,
    /// The bundle that all configurations carry, and since when.
    trusted: Option<(String, Instant)>,
}

/// Runs until `stop`.
pub async fn run(
    client: Client,
    clock: Arc<dyn Clock>,
    site: Site,
    served: Arc<Served>,
    stop: CancellationToken,
) {
    let mut changes = changes(&client, &site.namespace);
    let mut keeper = Keeper {
        client,
        clock,
        site,
        served,
        known: None,
        trusted: None,
    };
    // A cause that lasts is told once.
    let mut told = String::new();
    loop {
        let pause = match keeper.look().await {
            Ok(pause) => {
                told.clear();
                pause
            }
            Err(error) if error.is_conflict() => RETRY / 10,
            Err(error) => {
                let text = full(&error);
                if text != told {
                    tracing::warn!("{text}");
                }
                told = text;
                RETRY
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            // At least this long, whatever happens: a look is three requests.
            () = tokio::time::sleep(pause.min(RETRY / 10)) => {}
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _changed = changes.next() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

impl Keeper {
    /// Answers when to look again if nothing happens before.
    async fn look(&mut self) -> Result<Duration, LookError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.site.namespace);
        let failed = |tried| {
            move |source| LookError::Secret {
                tried,
                source: Box::new(source),
            }
        };
        let Some(secret) = secrets.get_opt(SECRET).await.map_err(failed("read"))? else {
            let stored = match &self.known {
                Some(known) => known.clone(),
                None => Stored::first(self.fresh()?, "", self.clock.wall()),
            };
            stored::create(&secrets, &stored)
                .await
                .map_err(failed("create"))?;
            tracing::info!("made Secret {SECRET} with a certificate for the webhooks");
            return Ok(Duration::ZERO);
        };
        let found = Stored::read(&secret);
        let now = Now {
            at: self.clock.wall(),
            names: &self.site.names,
            trusted: self.has_settled(&found.ca),
        };
        if let Some(next) = plan::next(&found, &now, || self.fresh())? {
            let immutable = secret.immutable == Some(true);
            let replaced = stored::replace(&secrets, secret, &next).await;
            replaced.map_err(|source| match immutable {
                true => LookError::Immutable(Box::new(source)),
                false => failed("replace the content of")(source),
            })?;
            return Ok(Duration::ZERO);
        }
        if self.served.replace(&found.cert, &found.key)? {
            tracing::info!("serving the certificate of Secret {SECRET}");
        }
        self.publish(&found.ca).await?;
        let waiting = found.next.is_some();
        self.known = Some(found);
        Ok(if waiting { RETRY } else { IDLE })
    }

    /// Only after the certificate is served that they verify.
    async fn publish(&mut self, ca: &str) -> Result<(), LookError> {
        let in_place = trust::publish(&self.client, ca).await;
        let in_place = in_place.map_err(|source| LookError::Trust(Box::new(source)))?;
        let same = self.trusted.as_ref().is_some_and(|(known, _)| known == ca);
        if !in_place || !same {
            self.trusted = Some((ca.to_owned(), Instant::now()));
        }
        Ok(())
    }

    fn has_settled(&self, ca: &str) -> bool {
        let known = self.trusted.as_ref().filter(|(known, _)| known == ca);
        known.is_some_and(|(_, since)| since.elapsed() >= SETTLE)
    }

    fn fresh(&self) -> Result<super::issue::Pair, IssueError> {
        issue(&self.site.names, self.clock.wall(), DAYS)
    }
}

/// Wakes on every change of the Secret and the configurations.
fn changes(client: &Client, namespace: &str) -> BoxStream<'static, ()> {
    let one = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
    let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), namespace);
    let mutating: Api<PartialObjectMeta<MutatingWebhookConfiguration>> = Api::all(client.clone());
    let validating: Api<PartialObjectMeta<ValidatingWebhookConfiguration>> =
        Api::all(client.clone());
    select_all([
        woken(follow(secrets, one(SECRET), SECRET)),
        woken(follow(
            mutating,
            one(CONFIGURATION),
            "the mutating webhooks",
        )),
        woken(follow(
            validating,
            one(CONFIGURATION),
            "the validating webhooks",
        )),
    ])
    .boxed()
}

fn woken<T: Send + 'static>(
    events: impl Stream<Item = watcher::Result<T>> + Send + 'static,
) -> BoxStream<'static, ()> {
    // A watch that fails is begun anew, and every look reads for itself.
    events
        .filter_map(|event| async move { event.ok().map(drop) })
        .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::FakeClock;
    use http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::json;

    /// As an API server answers of a Secret whose content may not change.
    #[tokio::test]
    async fn a_secret_that_cannot_be_renewed_is_to_be_deleted() {
        let server = tower::service_fn(|request: Request<Body>| {
            let answer = if request.method() == Method::GET {
                (
                    200,
                    json!({"metadata": {"name": SECRET}, "immutable": true}),
                )
            } else {
                let status = json!({"kind": "Status", "status": "Failure", "reason": "Invalid",
                    "code": 422, "message": "data: Forbidden: field is immutable when `immutable` is set"});
                (422, status)
            };
            let (code, body) = answer;
            let answer = Response::builder().status(code);
            let answer = answer.body(Body::from(body.to_string().into_bytes()));
            async move { Ok::<_, tower::BoxError>(answer.unwrap()) }
        });
        let mut keeper = Keeper {
            client: Client::new(server, "default"),
            clock: Arc::new(FakeClock::default()),
            site: Site::of_service("ctl", "spiderpool", &[]),
            served: Arc::new(Served::default()),
            known: None,
            trusted: None,
        };
        let error = full(&keeper.look().await.unwrap_err());
        assert!(error.contains("immutable: delete it"), "{error}");
        assert!(error.contains("field is immutable"), "{error}");
    }
}

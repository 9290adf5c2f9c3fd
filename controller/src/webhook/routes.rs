//! Paths of the webhooks (spec api 3), and what holds for every call: limits of size and time, and a
//! fault of one takes nothing down.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::FutureExt;
use http::StatusCode;
use serde_json::Value;
use spiderpool_ipam::admission::Kind;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::judge::{Judge, JudgeError};
use super::review::Review;
use crate::chain::full;

/// Path of the health check.
pub const HEALTH: &str = "/webhook-health-check";
/// Path of the Pod webhook.
pub const PODS: &str = "/mutate--v1-pod";

/// Longest review, bytes: two objects of the size that etcd takes, and what is around them.
pub(super) const MAX_BODY: usize = 8 << 20;
/// Calls at once; their bodies are all that is held. One more waits, as long as it may take at all.
const MAX_CALLS: usize = 32;
/// For one answer: below the 10 s after which the API server gives up.
const ANSWER_TIME: Duration = Duration::from_secs(9);

/// Path of a kind's webhook; `what` is `mutate` or `validate`.
#[must_use]
pub fn path(what: &str, kind: Kind) -> String {
    let kind = kind.name().to_ascii_lowercase();
    format!("/{what}-spiderpool-spidernet-io-v2beta1-{kind}")
}

/// All paths.
pub fn router(judge: Arc<Judge>) -> Router {
    let mut router = Router::new()
        .route(HEALTH, get(|| async {}))
        .route(PODS, post(pod));
    for kind in Kind::ALL {
        let mutate = move |State(judge): State<Arc<Judge>>, Json(review): Json<Review>| async move {
            answer(judge.mutate(kind, review.request).await)
        };
        let validate = move |State(judge): State<Arc<Judge>>, Json(review): Json<Review>| async move {
            answer(judge.validate(kind, review.request).await)
        };
        router = router
            .route(&path("mutate", kind), post(mutate))
            .route(&path("validate", kind), post(validate));
    }
    guarded(router.with_state(judge))
}

/// With the limits.
fn guarded(router: Router) -> Router {
    router
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(
            Arc::new(Semaphore::new(MAX_CALLS)),
            guard,
        ))
}

async fn guard(State(free): State<Arc<Semaphore>>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let answered = AssertUnwindSafe(async {
        // The semaphore is never closed.
        let _permit = free.acquire().await.ok();
        next.run(request).await
    })
    .catch_unwind();
    match timeout(ANSWER_TIME, answered).await {
        Ok(Ok(response)) => response,
        // The panic itself is logged by the hook.
        Ok(Err(_)) => {
            tracing::error!(path, "a fault of the program in an admission call");
            let text = "a fault of the program, see the log of spiderpool-controller";
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
        Err(_) => {
            let seconds = ANSWER_TIME.as_secs();
            tracing::warn!(path, "an admission call was not answered in {seconds} s");
            (StatusCode::GATEWAY_TIMEOUT, "too slow").into_response()
        }
    }
}

async fn pod(State(judge): State<Arc<Judge>>, Json(review): Json<Review>) -> Response {
    answer(judge.pod(review.request).await)
}

fn answer(judged: Result<Value, JudgeError>) -> Response {
    match judged {
        Ok(review) => Json(review).into_response(),
        Err(error) => {
            let text = full(&error);
            tracing::warn!("an admission call failed: {text}");
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use tower::ServiceExt;

    async fn status(router: &Router, path: &str, body: Body) -> StatusCode {
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(body)
            .unwrap();
        router.clone().oneshot(request).await.unwrap().status()
    }

    async fn fault() {
        panic!("injected");
    }

    #[tokio::test(start_paused = true)]
    async fn one_call_harms_no_other() {
        let router = guarded(
            Router::new()
                .route("/fault", post(fault))
                .route("/slow", post(std::future::pending::<()>))
                .route("/body", post(|_: Json<Value>| async {})),
        );
        let none = Body::empty;
        assert_eq!(
            status(&router, "/fault", none()).await,
            StatusCode::INTERNAL_SERVER_ERROR
        );
        assert_eq!(
            status(&router, "/slow", none()).await,
            StatusCode::GATEWAY_TIMEOUT
        );
        assert_eq!(
            status(&router, "/body", Body::from("{}")).await,
            StatusCode::OK
        );
        // Calls that hang give their place back.
        let hanging = (0..2 * MAX_CALLS).map(|_| status(&router, "/slow", none()));
        futures::future::join_all(hanging).await;
        assert_eq!(
            status(&router, "/body", Body::from("{}")).await,
            StatusCode::OK
        );
        let long = format!("\"{}\"", "x".repeat(MAX_BODY));
        assert_eq!(
            status(&router, "/body", Body::from(long)).await,
            StatusCode::PAYLOAD_TOO_LARGE
        );
        assert_eq!(
            status(&router, "/body", Body::from("{")).await,
            StatusCode::BAD_REQUEST
        );
    }

    #[test]
    fn paths_are_those_of_the_contract() {
        assert_eq!(
            path("mutate", Kind::IpPool),
            "/mutate-spiderpool-spidernet-io-v2beta1-spiderippool"
        );
        assert_eq!(
            path("validate", Kind::MultusConfig),
            "/validate-spiderpool-spidernet-io-v2beta1-spidermultusconfig"
        );
    }
}

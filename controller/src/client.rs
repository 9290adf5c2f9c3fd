//! A client whose every request ends. The Kubernetes client waits for an answer as long as the
//! connection seems to live: a server that dies without a word, or a middle box that forgets a
//! connection, would hold a caller and the locks it has for ever. Watches are not bounded here:
//! kube's watcher gives up one that is silent 5 s longer than it was asked to last.
//!
//! Owns no connection; wraps a client that somebody made.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::try_unfold;
use http::{Request, Uri};
use http_body::Body as HttpBody;
use http_body_util::{BodyStream, StreamBody};
use kube::Client;
use kube::client::Body;
use tokio::time::timeout;

/// How long an answer may take to begin, and to go on. A watch begins at once and then lasts.
pub const REQUEST_TIME: Duration = Duration::from_secs(15);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The request was not answered; the server may have done what was asked.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {} s", REQUEST_TIME.as_secs())]
struct NoAnswer;

/// The answer has begun and does not go on.
#[derive(Debug, thiserror::Error)]
#[error("the answer broke off: nothing more within {} s", REQUEST_TIME.as_secs())]
struct BrokenOff;

/// The same client; a request that is not answered in [`REQUEST_TIME`] fails, and so does one whose
/// answer pauses for so long.
#[must_use]
pub fn bounded(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        let patient = is_watch(request.uri());
        async move {
            match timeout(REQUEST_TIME, client.send(request)).await {
                Ok(answer) => {
                    let answer = answer.map_err(Failure::from)?;
                    Ok::<_, Failure>(answer.map(|body| lively(body, patient)))
                }
                Err(_) => Err(NoAnswer.into()),
            }
        }
    });
    Client::new(service, namespace)
}

fn is_watch(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    query.split('&').any(|pair| pair == "watch=true")
}

/// The same body; unless `patient`, a pause between two of its parts that is too long is an error.
fn lively(body: Body, patient: bool) -> impl HttpBody<Data = Bytes, Error = Failure> + Send {
    let frames = try_unfold(BodyStream::new(body), move |mut frames| async move {
        let next = match patient {
            true => frames.next().await,
            false => timeout(REQUEST_TIME, frames.next())
                .await
                .map_err(|_| BrokenOff)?,
        };
        let frame = next.transpose().map_err(Failure::from)?;
        Ok(frame.map(|frame| (frame, frames)))
    });
    StreamBody::new(frames.boxed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use http_body_util::BodyExt;
    use k8s_openapi::api::core::v1::Pod;
    use kube::Api;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_server_without_a_word_is_an_error() {
        let dead = tower::service_fn(|_: Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, std::io::Error>>()
        });
        let api: Api<Pod> = Api::default_namespaced(bounded(Client::new(dead, "shop")));
        let begun = Instant::now();
        let error = api.get("web-0").await.unwrap_err();
        assert_eq!(begun.elapsed(), REQUEST_TIME);
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(cause.as_deref(), Some("no answer within 15 s"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_go_on_is_an_error() {
        let speechless = tower::service_fn(|_: Request<Body>| async {
            let silence = futures::stream::pending::<Result<http_body::Frame<Bytes>, Failure>>();
            let body = StreamBody::new(silence).boxed_unsync();
            Ok::<_, std::io::Error>(Response::new(body))
        });
        let api: Api<Pod> = Api::default_namespaced(bounded(Client::new(speechless, "shop")));
        let begun = Instant::now();
        api.get("web-0").await.unwrap_err();
        assert_eq!(begun.elapsed(), REQUEST_TIME);
    }
}

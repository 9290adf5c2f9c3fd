//! `POST /v1/cni`: one call of a plugin. Each runs in a task of its own, so that a panic in it is
//! the answer to that call alone; a caller that hangs up cancels what it waits for.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use spiderpool_api::agent_v1::{CniAnswer, CniRequest};
use spiderpool_api::cni::{CniCode, CniVersion};
use spiderpool_api::cni_conf::NetConf;
use spiderpool_controller::http::REQUEST_TIME;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::flow::call::Limits;
use crate::flow::error::Failure;

/// How much earlier than the plugin we give up, so that our reason reaches it.
const MARGIN: Duration = Duration::from_secs(3);
/// How long a call that overstays its deadline may still answer for itself.
const GRACE: Duration = Duration::from_secs(2);

/// Shape of an answer to a caller that names no version we know.
const NEWEST: CniVersion = CniVersion::V1_1_0;

type Answer = Result<Option<Value>, Failure>;

pub(super) async fn call(State(agent): State<Arc<Agent>>, request: Request) -> Response {
    let request = body_of(request)
        .await
        .and_then(|body| serde_json::from_slice(&body).map_err(|error| error.to_string()));
    match request {
        Ok(request) => {
            let request: CniRequest = request;
            let version = NetConf::version_of(&request.conf).unwrap_or(NEWEST);
            respond(version, run(agent, request).await)
        }
        Err(details) => {
            tracing::warn!(
                reason = details,
                "a request on the agent socket cannot be read"
            );
            let msg =
                "the request to the agent cannot be read; are plugin and agent of one release?";
            let (code, msg) = (CniCode::Decode, msg.to_owned());
            respond(NEWEST, Err(Failure { code, msg, details }))
        }
    }
}

/// The whole body; the text says why there is none.
pub(super) async fn body_of(request: Request) -> Result<Bytes, String> {
    match tokio::time::timeout(REQUEST_TIME, Bytes::from_request(request, &())).await {
        Ok(body) => body.map_err(|error| error.body_text()),
        Err(_) => Err(format!(
            "its body was not complete within {} s",
            REQUEST_TIME.as_secs()
        )),
    }
}

/// Runs the call under its deadline and writes its log line.
async fn run(agent: Arc<Agent>, request: CniRequest) -> Answer {
    let begun = Instant::now();
    let budget = Duration::from_millis(request.budget_ms);
    let deadline = begun + budget.saturating_sub(MARGIN);
    let cancel = CancellationToken::new();
    // Dropped with this future when the caller hangs up.
    let _hang_up = cancel.clone().drop_guard();
    let limits = Limits { deadline, cancel };
    let line = Line::of(&request, agent.pod_named_by(&request));
    let task = {
        let tasks = agent.tasks().clone();
        tasks.spawn(async move { agent.cni(request, limits).await })
    };
    let answer = match tokio::time::timeout_at(deadline + GRACE, task).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(stopped)) => Err(crashed(&stopped)),
        Err(_) => Err(overdue(budget)),
    };
    line.log(&answer, begun.elapsed());
    answer
}

fn crashed(stopped: &tokio::task::JoinError) -> Failure {
    tracing::error!(error = %stopped, "a CNI call failed inside the agent");
    Failure {
        code: CniCode::Internal,
        msg:
            "the agent failed on this call and serves others; please report it with the agent's log"
                .into(),
        details: stopped.to_string(),
    }
}

fn overdue(budget: Duration) -> Failure {
    let ms = budget.as_millis();
    Failure {
        code: CniCode::TryAgain,
        msg: format!("the call was not finished within {ms} ms and goes on; try again later"),
        details: String::new(),
    }
}

fn respond(version: CniVersion, answer: Answer) -> Response {
    match answer {
        Ok(result) => Json(CniAnswer { result }).into_response(),
        Err(failure) => {
            let status = StatusCode::from_u16(failure.code.http_status())
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (status, Json(failure.into_error(version))).into_response()
        }
    }
}

/// The one line a call leaves in the log.
struct Line {
    command: &'static str,
    plugin: String,
    container: String,
    ifname: String,
    pod: String,
}

impl Line {
    fn of(request: &CniRequest, pod: String) -> Self {
        Self {
            command: request.command.as_str(),
            plugin: request.plugin.clone(),
            container: request.container_id.clone(),
            ifname: request.ifname.clone(),
            pod,
        }
    }

    fn log(&self, answer: &Answer, took: Duration) {
        let (code, error) = match answer {
            Ok(_) => (0, String::new()),
            Err(failure) if failure.details.is_empty() => {
                (failure.code.number(), failure.msg.clone())
            }
            Err(failure) => (
                failure.code.number(),
                format!("{}: {}", failure.msg, failure.details),
            ),
        };
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        tracing::info!(
            command = self.command,
            plugin = self.plugin,
            pod = self.pod,
            container = self.container,
            ifname = self.ifname,
            code,
            ms,
            error,
            "cni"
        );
    }
}

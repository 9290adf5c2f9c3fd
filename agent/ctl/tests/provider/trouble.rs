//! What goes wrong around a run: the other scheme, a certificate, output that nobody gets, answers
//! that are broken, releases that do not come about.

use std::fs::OpenOptions;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use provider_sim::contract;
use provider_sim::service::Service;
use provider_sim::tls::Tls;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::breakage::whole;
use crate::rig::{Report, Rig, Wrap, ctl, rig, settings};

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The command with its file and these words, at another URL than the rig's.
async fn at(rig: &Rig, url: &str, words: &[&str]) -> Output {
    let mut command = ctl(&["provider", "verify", url]);
    let file = rig.dir.path().join("t.yaml");
    command.args(words).arg("--topology").arg(file);
    command.output().await.unwrap()
}

/// What an HTTPS server of others answers to plain HTTP.
fn wants_tls(router: Router, _: Arc<Service>) -> Router {
    router.layer(from_fn(async |_: Request, _: Next| {
        let text = "Client sent an HTTP request to an HTTPS server.\n";
        (StatusCode::BAD_REQUEST, text).into_response()
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_scheme_is_proposed() {
    let rig = rig(settings(), whole).await;
    let ca = rig.dir.path().join("ca.crt");
    let names = vec!["127.0.0.1".to_owned()];
    let tls = Arc::new(Tls::start(names, Some(ca.clone()), None).await.unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let secure = listener.local_addr().unwrap();
    let router = contract::router(Arc::clone(&rig.service));
    let server = tokio::spawn(tls.serve(listener, router));
    let plain = rig.url.strip_prefix("http://").unwrap();
    let ca = ca.to_str().unwrap();
    let other = crate::rig::rig(settings(), wants_tls).await;
    for (url, words, proposed) in [
        (
            format!("http://{secure}"),
            vec![],
            format!("try https://{secure}: "),
        ),
        (
            format!("https://{plain}"),
            vec!["--ca", ca],
            format!("try http://{plain}: "),
        ),
        (
            format!("https://{plain}"),
            vec!["--insecure-skip-verify"],
            format!("try http://{plain}: "),
        ),
        (
            other.url.clone(),
            vec![],
            other.url.replace("http:", "try https:"),
        ),
    ] {
        let output = at(&rig, &url, &words).await;
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{url}: {text}");
        assert!(text.contains(&proposed), "{url}: {text}");
    }
    server.abort();
}

/// The check of certificates is not among those that are wanted: its reason is told all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_certificate_tells_its_reason_in_any_selection() {
    let rig = rig(settings(), whole).await;
    let (ca, other) = (rig.dir.path().join("ca.crt"), rig.dir.path().join("o.crt"));
    let start = async |ca: &std::path::Path| {
        let names = vec!["127.0.0.1".to_owned()];
        Tls::start(names, Some(ca.to_owned()), None).await.unwrap()
    };
    let tls = Arc::new(start(&ca).await);
    start(&other).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let router = contract::router(Arc::clone(&rig.service));
    let server = tokio::spawn(tls.serve(listener, router));
    let (ca, other) = (ca.to_str().unwrap(), other.to_str().unwrap());
    for (words, reason) in [
        (vec!["--ca", other], "invalid peer certificate"),
        (vec!["--ca", ca, "--server-name", "p.n.svc"], "p.n.svc"),
    ] {
        let words = [&words[..], &["--only", "allocate.create"]].concat();
        let output = at(&rig, &url, &words).await;
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(
            text.contains(reason) && text.contains("certificate"),
            "{text}"
        );
    }
    server.abort();
}

/// Answers each release of the global pool with this status.
fn releasing(router: Router, status: StatusCode) -> Router {
    router.layer(from_fn(move |request: Request, next: Next| async move {
        if request.uri().path().ends_with("/release-ip") {
            let body = json!({ "code": "Sorry", "message": "not that" }).to_string();
            return (status, [("retry-after", "0")], body).into_response();
        }
        next.run(request).await
    }))
}

fn declining(router: Router, _: Arc<Service>) -> Router {
    releasing(router, StatusCode::CONFLICT)
}

fn unready(router: Router, _: Arc<Service>) -> Router {
    releasing(router, StatusCode::SERVICE_UNAVAILABLE)
}

fn failing(router: Router, _: Arc<Service>) -> Router {
    releasing(router, StatusCode::INTERNAL_SERVER_ERROR)
}

/// 4xx is a no, 503 is a not now, and anything else is a fault.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_refusal_is_told_as_declined() {
    let both = "release.again,release.pair";
    let checks: &[&str] = &["release.again", "release.pair"];
    let cases: [(Wrap, &[&str], &str); 3] = [
        (declining, &[], "are declined: release 10.72.0."),
        (unready, &[], "503 Sorry, and no better later"),
        (failing, checks, "500 Sorry, wanted 2xx, or 4xx to decline"),
    ];
    for (wrap, failed, part) in cases {
        let rig = rig(settings(), wrap).await;
        let report = rig
            .verify(&["--only", &format!("allocate.create,{both}")])
            .await;
        report.fails_exactly(failed, part);
        for check in ["release.again", "release.pair"] {
            let why = report.why(check);
            let why = why.replace("fd72::", "10.72.0.");
            assert!(why.contains(part), "{check}: {why}");
            assert_eq!(why.contains("declined"), part.contains("declined"), "{why}");
        }
    }
}

/// Nobody gets the report: what is left behind is told on standard error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_is_told_though_the_report_is_lost() {
    let full = || Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap());
    let closed = || Stdio::from(std::io::pipe().unwrap().1);
    let rig = rig(settings(), declining).await;
    let left = "left: 10.72.0.19 of pool g on n1 may have a sub-ENI still, idle: ";
    for (stdout, exit, lost) in [
        (
            full(),
            2,
            "error: cannot write to standard output: No space left on device",
        ),
        (closed(), 0, ""),
    ] {
        let mut command = rig.command(&["--only", "allocate.create"]);
        let child = command.stdout(stdout).stderr(Stdio::piped()).spawn();
        let output = child.unwrap().wait_with_output().await.unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(exit), "{text}");
        assert!(text.contains(left) && text.contains(lost), "{text}");
    }
    let output = rig.command(&["--only", "allocate.create"]).output().await;
    let text = stderr(&output.unwrap());
    assert!(!text.contains("left: "), "it is in the report: {text}");
}

/// The check that reports it is not among those that are wanted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_answer_counts_in_any_selection() {
    for (kind, failed) in [
        ("bad-json", "answer.json"),
        ("vlan-range", "answer.vlan"),
        ("extra-ip", "answer.unknown"),
    ] {
        let rig = rig(settings(), whole).await;
        rig.faults(json!([{ "op": "allocate", "kind": kind }]));
        let only = "allocate.create,release.unknown-address";
        let report = rig.verify(&["--only", only]).await;
        report.fails_exactly(&[failed], kind);
        assert_eq!(report.json["checks"].as_array().unwrap().len(), 3, "{kind}");
        rig.is_clean().await;
    }
}

/// What was answered counts, though nobody is there any more to ask.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_answer_counts_when_the_provider_is_gone() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (end, ended) = tokio::sync::mpsc::channel::<()>(1);
    let answer = move |request: Request| {
        let end = end.clone();
        async move {
            if request.method() == "POST" {
                end.send(()).await.unwrap();
            }
            "<html>"
        }
    };
    let mut ended = ended;
    let serve = axum::serve(listener, Router::new().fallback(answer));
    let serve = serve.with_graceful_shutdown(async move { ended.recv().await.unwrap_or_default() });
    let server = tokio::spawn(serve.into_future());
    let rig = rig(settings(), whole).await;
    let words = ["--only", "allocate.create,answer.json", "-o", "json"];
    let report = Report::of(&at(&rig, &url, &words).await);
    report.fails_exactly(&["allocate.create", "answer.json"], "it has gone");
    let left = report.json["left"].to_string();
    assert!(left.contains("10.72.0.19"), "{left}");
    server.abort();
}

/// Ctrl-C while the sub-ENIs are given back: they are named, and it is no success.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_up_that_is_cut_names_what_may_be_left() {
    let rig = rig(settings(), whole).await;
    rig.faults(json!([{ "op": "release", "kind": "hang" }]));
    let mut command = rig.command(&["--only", "allocate.create", "-o", "json"]);
    let command = command.stderr(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.next_line().await.unwrap();
    assert_eq!(first.as_deref(), Some("[1/1] allocate.create pass"));
    let is_releasing = || {
        let mut calls = rig.service.records.all().into_iter();
        calls.any(|call| call.path.ends_with("/release-ip"))
    };
    while !is_releasing() {
        sleep(Duration::from_millis(2)).await;
    }
    let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap());
    kill(pid, Signal::SIGINT).unwrap();
    let report = Report::of(&child.wait_with_output().await.unwrap());
    assert_eq!(report.exit, Some(2));
    assert_eq!(report.json["interrupted"], true);
    let left = report.json["left"].to_string();
    assert!(
        left.contains("sub-ENIs of 10.72.0.19 may be left"),
        "{left}"
    );
}

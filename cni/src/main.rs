//! The CNI plugins as one binary: chosen by file name, one request to the agent, its answer
//! printed. Owns the order of a call; reads environment, arguments and standard input, writes
//! standard output once. Everything that touches links, addresses or the API is the agent's.

#![forbid(unsafe_code)]

mod about;
mod agent_client;
mod answer;
mod conf;
mod env;
mod http;
mod log;
mod retry;
mod rotate;
mod socket;
mod spool;

use std::process::ExitCode;
use std::time::Instant;

use spiderpool_api::agent_v1::{BODY_VERSION, BUDGET_MS, CniRequest};
use spiderpool_api::causes::with_causes;
use spiderpool_api::cni::{CniCode, CniCommand, CniVersion};
use spiderpool_api::cni_conf::NetConf;

use crate::agent_client::{CallError, Reply};
use crate::answer::{Answer, Refusal};
use crate::conf::Conf;
use crate::env::{Call, Environment};
use crate::log::{Level, Log};

/// The newest version, for answers to callers that named none we know.
const NEWEST: CniVersion = CniVersion::V1_1_0;

fn main() -> ExitCode {
    let started = Instant::now();
    let environment = Environment::of_process();
    let Some(command) = environment.command() else {
        return about::run(&environment);
    };
    let (answer, log) = match command {
        Ok(command) => serve(command, &environment),
        Err(error) => {
            let version = caller_version().unwrap_or(NEWEST);
            let refusal = Refusal::new(CniCode::Environment, &error);
            (Answer::Refused(refusal.shaped(version)), Log::silent())
        }
    };
    let exit = answer.print();
    log.call_ended(&answer, exit.as_ref().err(), started.elapsed());
    exit.unwrap_or(ExitCode::FAILURE)
}

/// One call from the environment to the answer, with the log it wants its line in.
fn serve(command: CniCommand, environment: &Environment) -> (Answer, Log) {
    if command == CniCommand::Version {
        let answer = match environment.plugin() {
            Ok(_) => Answer::version(caller_version().unwrap_or(NEWEST)),
            Err(error) => {
                Answer::Refused(Refusal::new(CniCode::Environment, &error).shaped(NEWEST))
            }
        };
        return (answer, Log::silent());
    }
    let stdin = conf::read_stdin();
    let version = stdin
        .as_ref()
        .ok()
        .and_then(|value| NetConf::version_of(value).ok());
    let mut log = Log::silent();
    let answer = match attach_or_detach(command, environment, stdin, &mut log) {
        Ok(answer) => answer,
        Err(refusal) => Answer::Refused(refusal.shaped(version.unwrap_or(NEWEST))),
    };
    (answer, log)
}

fn attach_or_detach(
    command: CniCommand,
    environment: &Environment,
    stdin: Result<serde_json::Value, conf::StdinError>,
    log: &mut Log,
) -> Result<Answer, Refusal> {
    let plugin = environment
        .plugin()
        .map_err(|error| Refusal::new(CniCode::Environment, &error))?;
    let call = Call::read(command, environment);
    let conf = stdin
        .map_err(|error| Refusal::new(error.code(), &error))
        .and_then(|value| {
            Conf::parse(plugin, command, value).map_err(|error| Refusal::new(error.code(), &error))
        });
    if let Ok(conf) = &conf {
        *log = Log::open(plugin, command, environment, conf.log.clone());
    }
    let call = call.map_err(|error| Refusal::new(CniCode::Environment, &error))?;
    let conf = conf?;
    let socket = socket::choose(conf.socket.as_ref(), environment.get(socket::ENV))
        .map_err(|error| Refusal::new(CniCode::Config, &error))?;
    let request = CniRequest {
        v: BODY_VERSION,
        command,
        plugin: plugin.name().to_owned(),
        container_id: call.container_id.to_string(),
        netns: call.netns,
        ifname: call.ifname.to_string(),
        args: environment.text("CNI_ARGS"),
        path: environment.text("CNI_PATH"),
        conf: conf.value,
        budget_ms: BUDGET_MS,
    };
    log.debug(&format!("asking the agent at {}", socket.display()));
    match agent_client::call(&socket, &request) {
        Ok(Reply::Result(json)) => Ok(Answer::Success(json)),
        Ok(Reply::Nothing) => Ok(Answer::Nothing),
        Ok(Reply::Refused { body, error }) => Ok(Answer::Forwarded { body, error }),
        Err(error) if command == CniCommand::Del && error.is_absence() => {
            keep_for_later(&socket, &request, &error, log)
        }
        Err(error) => Err(Refusal::new(error.code(command), &error)),
    }
}

/// A DEL must not keep a Pod from going away because the agent is: the agent replays the file.
fn keep_for_later(
    socket: &std::path::Path,
    request: &CniRequest,
    cause: &CallError,
    log: &Log,
) -> Result<Answer, Refusal> {
    let path = spool::store(socket, request).map_err(|error| {
        let mut refusal = Refusal::new(CniCode::TryAgain, &error);
        refusal.add_detail(&with_causes(cause));
        refusal
    })?;
    let place = path.display();
    log.write(
        Level::Warn,
        &format!("{cause}; kept for the agent in {place}"),
    );
    Ok(Answer::Nothing)
}

/// The caller's version, however little else it sent; nothing on a terminal.
fn caller_version() -> Option<CniVersion> {
    let value = conf::read_stdin().ok()?;
    NetConf::version_of(&value).ok()
}

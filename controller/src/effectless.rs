//! Environment variables that users of Spiderpool set and that have no effect here: they are of Go's
//! tooling, or of queues and workers that do not exist (spec api 4.3). A value that cannot be is
//! refused all the same, so that no typo waits for another implementation.

use jiff::SignedDuration;
use spiderpool_ipam::environment::{Environment, EnvironmentError};

/// What a value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Text,
    Flag,
    Port,
    Number,
    Seconds,
}

type Variable = (&'static str, Shape);

/// Of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// The agent.
    Agent,
    /// The controller.
    Controller,
}

const AGENT: &[Variable] = &[
    ("GOPS_LISTEN_PORT", Shape::Port),
    ("PYROSCOPE_PUSH_SERVER_ADDRESS", Shape::Text),
    ("ENABLED_RDMA_METRIC", Shape::Flag),
    ("WAIT_SUBNET_POOL_TIME_IN_SECOND", Shape::Seconds),
    ("WAIT_SUBNET_POOL_MAX_RETRIES", Shape::Number),
];

const CONTROLLER: &[Variable] = &[
    ("GOPS_LISTEN_PORT", Shape::Port),
    ("PYROSCOPE_PUSH_SERVER_ADDRESS", Shape::Text),
    // Agents count; see there.
    ("IPPOOL_MAX_ALLOCATED_IPS", Shape::Number),
    ("SUBNET_INFORMER_WORKERS", Shape::Number),
    ("SUBNET_INFORMER_MAX_WORKQUEUE_LENGTH", Shape::Number),
    ("SUBNET_APPLICATION_CONTROLLER_WORKERS", Shape::Number),
    ("IPPOOL_INFORMER_WORKERS", Shape::Number),
    ("AUTO_IPPOOL_HANDLER_MAX_WORKQUEUE_LENGTH", Shape::Number),
    ("WORKQUEUE_MAX_RETRIES", Shape::Number),
    ("WORKQUEUE_RETRY_DELAY_DURATION", Shape::Seconds),
];

/// The whole names of those that are set; empty ones are not.
///
/// # Errors
/// [`EnvironmentError`] of the first whose value cannot be.
pub fn set(
    of: Of,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<Vec<String>, EnvironmentError> {
    let read = Environment::new(lookup);
    let variables = match of {
        Of::Agent => AGENT,
        Of::Controller => CONTROLLER,
    };
    for (name, shape) in variables {
        match shape {
            Shape::Text => {}
            Shape::Flag => {
                read.flag(name, false)?;
            }
            Shape::Port => {
                read.number::<u16>(name, 0)?;
            }
            Shape::Number => {
                read.number::<u32>(name, 0)?;
            }
            Shape::Seconds => {
                read.seconds(name, SignedDuration::ZERO)?;
            }
        }
    }
    let set = variables
        .iter()
        .filter(|(name, _)| read.text(name).is_some());
    Ok(set.map(|(name, _)| format!("SPIDERPOOL_{name}")).collect())
}

/// One line, if there are any.
pub fn tell(names: &[String]) {
    if !names.is_empty() {
        tracing::info!("set, and has no effect here: {}", names.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(of: Of, rows: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let found = set(of, |name| {
            let row = rows.iter().find(|(known, _)| *known == name);
            row.map(|(_, value)| (*value).to_owned())
        });
        found.map_err(|error| error.to_string())
    }

    #[test]
    fn they_are_named_and_must_be_what_they_are_elsewhere() {
        let rows = [
            ("SPIDERPOOL_GOPS_LISTEN_PORT", "5724"),
            ("SPIDERPOOL_WORKQUEUE_MAX_RETRIES", "500"),
            ("SPIDERPOOL_PYROSCOPE_PUSH_SERVER_ADDRESS", ""),
        ];
        let names = [
            "SPIDERPOOL_GOPS_LISTEN_PORT",
            "SPIDERPOOL_WORKQUEUE_MAX_RETRIES",
        ];
        assert_eq!(asked(Of::Controller, &rows).unwrap(), names);
        assert_eq!(asked(Of::Agent, &rows).unwrap(), names[..1]);
        for (of, name, value, wanted) in [
            (
                Of::Controller,
                "SPIDERPOOL_GOPS_LISTEN_PORT",
                "70000",
                "a number",
            ),
            (
                Of::Controller,
                "SPIDERPOOL_WORKQUEUE_RETRY_DELAY_DURATION",
                "5s",
                "a number of seconds",
            ),
            (
                Of::Controller,
                "SPIDERPOOL_SUBNET_INFORMER_WORKERS",
                "-1",
                "a number",
            ),
            (
                Of::Agent,
                "SPIDERPOOL_ENABLED_RDMA_METRIC",
                "yes",
                "true or false",
            ),
        ] {
            let text = asked(of, &[(name, value)]).unwrap_err();
            assert_eq!(
                text,
                format!("environment variable {name}={value:?} is not {wanted}")
            );
        }
    }
}

//! What every process of ours does at start: its log, and the end by a signal.

use std::io::{self, IsTerminal};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// The client logs each failed request and its watches each refusal, every retry with the whole answer;
/// whoever made the request says it once, with the object. A directive of the user's wins.
const QUIET: &str = "kube_client=off,kube_runtime=off";

/// A log level that is none.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A bare word that is no level.
    #[error("log level: {0:?} is none of off, error, warn, info, debug, trace")]
    Word(String),
    /// Not a filter.
    #[error("log level {0:?} is no level and no filter")]
    Filter(String, #[source] tracing_subscriber::filter::ParseError),
}

/// JSON lines for machines, plain ones for a person at a terminal; on stdout (spec api 4.3).
///
/// # Errors
/// [`LogError`].
pub fn start_log(level: &str) -> Result<(), LogError> {
    // A bare word that is no level would be taken for a module and silence everything else.
    for word in level.split(',').filter(|part| !part.contains('=')) {
        let word = word.trim();
        if word.parse::<LevelFilter>().is_err() {
            return Err(LogError::Word(word.to_owned()));
        }
    }
    let filter = EnvFilter::try_new(format!("{QUIET},{level}"));
    let filter = filter.map_err(|error| LogError::Filter(level.to_owned(), error))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stdout);
    if io::stdout().is_terminal() {
        log.init();
    } else {
        log.json().flatten_event(true).init();
    }
    Ok(())
}

/// The first SIGTERM or SIGINT cancels `stop`; what is under way is finished, then the process ends.
///
/// # Errors
/// What the system says.
pub fn stop_on_signals(stop: CancellationToken) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping; what is under way is finished first");
        stop.cancel();
    });
    Ok(())
}

//! What goes to standard output: at most one JSON document, written in one piece, so that the
//! runtime never sees half of one. Owns the shape of our own refusals.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use spiderpool_api::causes::with_causes;
use spiderpool_api::cni::{CniCode, CniError, CniVersion, VersionAnswer};

/// The end of a call.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Success of a verb that prints nothing.
    Nothing,
    /// Success with this JSON text.
    Success(String),
    /// The agent's error object as it came, and what it says.
    Forwarded {
        /// JSON text.
        body: String,
        /// The same, read.
        error: CniError,
    },
    /// Our own error object.
    Refused(CniError),
}

impl Answer {
    /// Answer to VERSION.
    pub(crate) fn version(caller: CniVersion) -> Self {
        let answer = VersionAnswer {
            cni_version: caller.to_string(),
            supported_versions: CniVersion::ALL.iter().map(ToString::to_string).collect(),
        };
        Self::Success(serde_json::json!(answer).to_string())
    }

    /// What went wrong, if anything.
    pub(crate) const fn error(&self) -> Option<&CniError> {
        match self {
            Self::Nothing | Self::Success(_) => None,
            Self::Forwarded { error, .. } | Self::Refused(error) => Some(error),
        }
    }

    /// Writes to standard output and says how to exit.
    ///
    /// # Errors
    /// The reader is gone or the write failed: the runtime has no result then, so the call failed.
    pub(crate) fn print(&self) -> io::Result<ExitCode> {
        let text = match self {
            Self::Nothing => return Ok(ExitCode::SUCCESS),
            Self::Success(text) | Self::Forwarded { body: text, .. } => text.clone(),
            Self::Refused(error) => serde_json::json!(error).to_string(),
        };
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()?;
        Ok(match self.error() {
            None => ExitCode::SUCCESS,
            Some(_) => ExitCode::FAILURE,
        })
    }
}

/// A refusal of ours before the version it is shaped for is known.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: CniCode,
    msg: String,
    details: String,
}

impl Refusal {
    /// The error as message, its causes as details.
    pub(crate) fn new(code: CniCode, error: &dyn Error) -> Self {
        Self {
            code,
            msg: error.to_string(),
            details: error.source().map(with_causes).unwrap_or_default(),
        }
    }

    /// One more cause.
    pub(crate) fn add_detail(&mut self, text: &str) {
        if !self.details.is_empty() {
            self.details.push_str("; ");
        }
        self.details.push_str(text);
    }

    /// The error object for a caller of `version`.
    pub(crate) fn shaped(self, version: CniVersion) -> CniError {
        CniError::new(version, self.code, self.msg).with_details(self.details)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open the door")]
    struct Outer(#[source] io::Error);

    #[test]
    fn causes_go_to_the_details() {
        let error = Outer(io::Error::other("no key"));
        assert_eq!(with_causes(&error), "cannot open the door: no key");
        let mut refusal = Refusal::new(CniCode::TryAgain, &error);
        refusal.add_detail("nobody at home");
        let shaped = refusal.shaped(CniVersion::V0_4_0);
        assert_eq!(
            serde_json::json!(shaped),
            serde_json::json!({"cniVersion": "0.4.0", "code": 11, "msg": "cannot open the door",
                "details": "no key; nobody at home"})
        );
    }
}

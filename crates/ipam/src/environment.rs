//! Typed values of environment variables. The environment itself is the caller's: nothing is read
//! here but what a function answers for a name.

use std::str::FromStr;

use jiff::SignedDuration;

/// What stands before every name that is asked for.
const PREFIX: &str = "SPIDERPOOL_";

/// A value that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("environment variable {name}={value:?} is not {wanted}")]
pub struct EnvironmentError {
    /// The whole name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// What it should be.
    pub wanted: &'static str,
}

/// An environment. Names are asked for without `SPIDERPOOL_`; an empty value counts as none.
#[derive(Debug)]
pub struct Environment<F>(F);

impl<F: Fn(&str) -> Option<String>> Environment<F> {
    /// One that `lookup` reads, by the whole name.
    pub const fn new(lookup: F) -> Self {
        Self(lookup)
    }

    /// A text.
    pub fn text(&self, name: &str) -> Option<String> {
        (self.0)(&whole(name)).filter(|value| !value.is_empty())
    }

    /// A truth value, in Go's spellings.
    ///
    /// # Errors
    /// [`EnvironmentError`] for anything else.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool, EnvironmentError> {
        self.parsed(name, default, "true or false", |value| match value {
            "1" | "t" | "T" | "true" | "True" | "TRUE" => Some(true),
            "0" | "f" | "F" | "false" | "False" | "FALSE" => Some(false),
            _ => None,
        })
    }

    /// A time in seconds.
    ///
    /// # Errors
    /// [`EnvironmentError`] for anything else.
    pub fn seconds(
        &self,
        name: &str,
        default: SignedDuration,
    ) -> Result<SignedDuration, EnvironmentError> {
        self.parsed(name, default, "a number of seconds", |value| {
            let seconds = u32::from_str(value).ok()?;
            Some(SignedDuration::from_secs(seconds.into()))
        })
    }

    /// A number.
    ///
    /// # Errors
    /// [`EnvironmentError`] for anything else, and for one that does not fit.
    pub fn number<N: FromStr>(&self, name: &str, default: N) -> Result<N, EnvironmentError> {
        self.parsed(name, default, "a number", |value| value.parse().ok())
    }

    /// Anything that `parse` understands; `wanted` says what that is.
    ///
    /// # Errors
    /// [`EnvironmentError`] for anything else.
    pub fn parsed<T>(
        &self,
        name: &str,
        default: T,
        wanted: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, EnvironmentError> {
        match self.text(name) {
            None => Ok(default),
            Some(value) => parse(&value).ok_or_else(|| EnvironmentError {
                name: whole(name),
                value,
                wanted,
            }),
        }
    }
}

fn whole(name: &str) -> String {
    format!("{PREFIX}{name}")
}

//! Errors in one line. Their Display never repeats a cause; whoever shows one to a person prints the
//! chain.

use std::error::Error;

use spiderpool_api::causes::one_line;

/// The causes of an error, outermost first. What a library's error already says of its own cause
/// appears once.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !texts.iter().any(|known| known.contains(&text)) {
            texts.push(text);
        }
        cause = error.source();
    }
    texts.join(": ")
}

/// The error with its causes in one line, for logs.
#[must_use]
pub fn full(error: &dyn Error) -> String {
    one_line(&match chain(error) {
        causes if causes.is_empty() => error.to_string(),
        causes => format!("{error}: {causes}"),
    })
}

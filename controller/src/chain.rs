//! Errors in one line. Their Display never repeats a cause; whoever shows one to a person prints the
//! chain.

use std::error::Error;

use kube::core::Status;
use kube::runtime::watcher;
use spiderpool_api::causes::one_line;

/// The causes of an error, outermost first. What a library's error already says of its own cause
/// appears once.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let texts: Vec<String> = texts(error).into_iter().skip(1).collect();
    texts.join(": ")
}

/// The error with its causes in one line, for logs.
#[must_use]
pub fn full(error: &(dyn Error + 'static)) -> String {
    one_line(&texts(error).join(": "))
}

/// What the API answered.
#[must_use]
pub fn answer(status: &Status) -> String {
    let reason = if status.reason.is_empty() {
        "no reason given"
    } else {
        &status.reason
    };
    format!("{} ({reason}, HTTP {})", status.message, status.code)
}

/// The error and its causes.
fn texts(error: &(dyn Error + 'static)) -> Vec<String> {
    let (text, mut cause) = words(error);
    let mut texts = vec![text];
    while let Some(error) = cause {
        let (text, next) = words(error);
        if !texts.iter().any(|known| known.contains(&text)) {
            texts.push(text);
        }
        cause = next;
    }
    texts
}

/// The error's own words, and its cause. Those of the Kubernetes client would print the debug form of
/// what the API answered.
fn words<'a>(error: &'a (dyn Error + 'static)) -> (String, Option<&'a (dyn Error + 'static)>) {
    // A boxed cause is an error of its own type: the box.
    let boxed = error.downcast_ref::<Box<kube::Error>>().map(AsRef::as_ref);
    if let Some(kube::Error::Api(status)) = boxed.or_else(|| error.downcast_ref()) {
        return (answer(status), None);
    }
    let (text, cause) = match error.downcast_ref() {
        Some(watcher::Error::WatchError(status)) => return (answer(status), None),
        Some(watcher::Error::InitialListFailed(cause)) => ("cannot be listed", cause),
        Some(watcher::Error::WatchStartFailed(cause)) => ("cannot be watched", cause),
        Some(watcher::Error::WatchFailed(cause)) => ("the watch broke off", cause),
        _ => return (error.to_string(), error.source()),
    };
    (text.to_owned(), Some(cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read it")]
    struct Failed {
        source: Box<kube::Error>,
    }

    #[test]
    fn an_answer_of_the_api_is_short_wherever_it_stands() {
        let status = || {
            let status = Status::failure("no right to list pods", "Forbidden").with_code(403);
            kube::Error::Api(Box::new(status))
        };
        let short = "no right to list pods (Forbidden, HTTP 403)";
        assert_eq!(full(&status()), short);
        let watched = watcher::Error::WatchStartFailed(status());
        assert_eq!(full(&watched), format!("cannot be watched: {short}"));
        assert_eq!(chain(&watched), short);
        let boxed = Failed {
            source: Box::new(status()),
        };
        assert_eq!(full(&boxed), format!("cannot read it: {short}"));
        let ours = crate::objects::StoreError::Unavailable {
            what: "read pool p".to_owned(),
            source: Box::new(status()),
        };
        assert!(full(&ours).ends_with(short), "{}", full(&ours));
    }
}

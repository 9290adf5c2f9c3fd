//! From the client's errors to ours.

use std::error::Error;

use super::StoreError;
use crate::chain::answer;
use crate::followed::has_no_kind;

/// A 404 that is not about an object. Nothing may be concluded from it about one: the kind may be on its
/// way, and middle boxes have such pages too.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server does not serve this kind: its CustomResourceDefinition is not installed, or something between here and the API server has answered"
)]
struct NoKind;

/// What a failed call means to the caller. `verb` and `object` say what was tried.
#[must_use]
pub fn store_error(error: kube::Error, verb: &str, object: &str) -> StoreError {
    let what = format!("{verb} {object}");
    match &error {
        error if has_no_kind(error) => StoreError::Unavailable {
            what,
            source: NoKind.into(),
        },
        kube::Error::Api(status) => match status.code {
            409 => StoreError::Conflict(object.to_owned()),
            404 => StoreError::NotFound(object.to_owned()),
            429 | 500..=599 => StoreError::Unavailable {
                what,
                source: words(error),
            },
            _ => StoreError::Refused {
                what,
                source: words(error),
            },
        },
        kube::Error::SerdeError(_) => StoreError::Malformed {
            what: object.to_owned(),
            source: words(error),
        },
        _ => StoreError::Unavailable {
            what,
            source: words(error),
        },
    }
}

/// The API's own words alone: the client's Display repeats its source and prints debug forms.
#[must_use]
pub fn words(error: kube::Error) -> Box<dyn Error + Send + Sync> {
    match error {
        kube::Error::Api(status) => answer(&status).into(),
        other => Box::new(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn statuses_become_what_the_flows_act_on() {
        let because = |code: u16, reason: &str| {
            kube::Error::Api(Box::new(Status::failure("words", reason).with_code(code)))
        };
        let api = |code| because(code, "Reason");
        assert!(
            matches!(store_error(api(409), "write", "pool p"), StoreError::Conflict(what) if what == "pool p")
        );
        assert!(matches!(
            store_error(because(404, "NotFound"), "write", "pool p"),
            StoreError::NotFound(_)
        ));
        // Of a middle box, or while the kind is made anew: the pool may be there all the same.
        assert!(matches!(
            store_error(api(404), "read", "pool p"),
            StoreError::Unavailable { .. }
        ));
        for code in [429, 500, 503] {
            assert!(
                matches!(
                    store_error(api(code), "write", "pool p"),
                    StoreError::Unavailable { .. }
                ),
                "{code}"
            );
        }
        for code in [400, 401, 403, 422] {
            let error = store_error(api(code), "write", "pool p");
            assert!(
                matches!(&error, StoreError::Refused { what, .. } if what == "write pool p"),
                "{code}"
            );
            assert_eq!(
                error.source().unwrap().to_string(),
                format!("words (Reason, HTTP {code})")
            );
        }
    }
}

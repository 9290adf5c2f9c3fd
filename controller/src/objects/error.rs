//! From the client's errors to ours.

use std::error::Error;

use super::StoreError;
use crate::chain::answer;

/// What a failed call means to the caller. `verb` and `object` say what was tried.
#[must_use]
pub fn store_error(error: kube::Error, verb: &str, object: &str) -> StoreError {
    let what = format!("{verb} {object}");
    match &error {
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
        let api = |code: u16| {
            kube::Error::Api(Box::new(Status::failure("words", "Reason").with_code(code)))
        };
        assert!(
            matches!(store_error(api(409), "write", "pool p"), StoreError::Conflict(what) if what == "pool p")
        );
        assert!(matches!(
            store_error(api(404), "write", "pool p"),
            StoreError::NotFound(_)
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

//! Query parameters and delete options, parsed once. Pure.

use std::collections::BTreeMap;

use axum::extract::Query;
use http::Uri;
use serde_json::{Value, json};

use crate::admission::Cause;
use crate::kinds::Kind;
use crate::object;
use crate::request::{FieldValidation, Preconditions};
use crate::selector::Selector;
use crate::status::ApiError;

/// The query of a request; of a repeated parameter the last counts.
#[derive(Debug, Default)]
pub(crate) struct Params(BTreeMap<String, String>);

/// A list or the start of a watch.
#[derive(Debug)]
pub(crate) struct ListParams {
    pub(crate) selector: Selector,
    pub(crate) limit: Option<usize>,
    pub(crate) next: Option<NextPage>,
    /// Absent, or the version the client has seen; `Some(0)` = anything will do.
    pub(crate) version: Option<u64>,
    pub(crate) exact: bool,
    pub(crate) watch: bool,
    pub(crate) bookmarks: bool,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) send_initial: Option<bool>,
}

/// Where a paged list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NextPage {
    /// Version of the first page, which all pages report: a watch from it replays what changed
    /// while the list was read.
    pub(crate) version: u64,
    /// Last key sent.
    pub(crate) after: String,
}

impl NextPage {
    /// Opaque to clients and safe in a URL.
    pub(crate) fn encode(&self) -> String {
        let hex: String = self
            .after
            .bytes()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("{}.{hex}", self.version)
    }

    fn decode(token: &str) -> Option<Self> {
        let (version, hex) = token.split_once('.')?;
        let digits = hex.as_bytes().chunks(2);
        let bytes: Option<Vec<u8>> = digits
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        Some(Self {
            version: version.parse().ok()?,
            after: String::from_utf8(bytes?).ok()?,
        })
    }
}

impl Params {
    pub(crate) fn parse(uri: &Uri) -> Result<Self, ApiError> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        Ok(Self(pairs.into_iter().collect()))
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.text(name) {
            "" => Ok(None),
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Some(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Some(false)),
            other => Err(ApiError::bad_request(format!(
                "{name}: {other:?} is no boolean"
            ))),
        }
    }

    fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        match self.text(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                let why = "must be a number that is not negative";
                ApiError::invalid_options(&[Cause::invalid(name, &json!(text), why)])
            }),
        }
    }

    /// Whether the request is a watch.
    pub(crate) fn watch(&self) -> Result<bool, ApiError> {
        Ok(self.flag("watch")?.unwrap_or(false))
    }

    pub(crate) fn list(&self, kind: &Kind) -> Result<ListParams, ApiError> {
        let selector =
            Selector::parse(kind, self.text("labelSelector"), self.text("fieldSelector"))
                .map_err(|error| ApiError::bad_request(error.to_string()))?;
        let next = match self.text("continue") {
            "" => None,
            token => Some(NextPage::decode(token).ok_or_else(|| {
                ApiError::bad_request("continue key is not valid: list again without it")
            })?),
        };
        let params = ListParams {
            selector,
            limit: self
                .number("limit")?
                .filter(|n| *n > 0)
                .and_then(|n| usize::try_from(n).ok()),
            next,
            version: self.number("resourceVersion")?,
            exact: self.text("resourceVersionMatch") == "Exact",
            watch: self.watch()?,
            bookmarks: self.flag("allowWatchBookmarks")?.unwrap_or(false),
            timeout_seconds: self.number("timeoutSeconds")?.filter(|n| *n > 0),
            send_initial: self.flag("sendInitialEvents")?,
        };
        self.check_list(&params)?;
        Ok(params)
    }

    /// Combinations kube-apiserver refuses (ListOptions validation).
    fn check_list(&self, params: &ListParams) -> Result<(), ApiError> {
        let matching = self.text("resourceVersionMatch");
        let forbidden = |field: &str, why: &str| {
            Err(ApiError::invalid_options(&[Cause::forbidden(field, why)]))
        };
        if params.send_initial.is_some() {
            if !params.watch {
                let why = "sendInitialEvents is forbidden for list";
                return forbidden("sendInitialEvents", why);
            }
            if matching != "NotOlderThan" {
                let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                return forbidden("resourceVersionMatch", why);
            }
            if params.send_initial == Some(true) && !params.bookmarks {
                let why = "sendInitialEvents requires allowWatchBookmarks here";
                return forbidden("sendInitialEvents", why);
            }
            return Ok(());
        }
        match matching {
            "" => Ok(()),
            "Exact" | "NotOlderThan" if params.watch => {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                forbidden("resourceVersionMatch", why)
            }
            "Exact" | "NotOlderThan" if params.version.is_none() && params.next.is_none() => {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                forbidden("resourceVersionMatch", why)
            }
            "Exact" if params.version == Some(0) => {
                let why = "resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\"";
                forbidden("resourceVersionMatch", why)
            }
            "Exact" | "NotOlderThan" => Ok(()),
            other => {
                let supported = [json!("Exact"), json!("NotOlderThan"), json!("")];
                let cause = Cause::not_supported("resourceVersionMatch", &json!(other), &supported);
                Err(ApiError::invalid_options(&[cause]))
            }
        }
    }

    pub(crate) fn field_validation(&self) -> Result<FieldValidation, ApiError> {
        match self.text("fieldValidation") {
            "Ignore" => Ok(FieldValidation::Ignore),
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Strict" => Ok(FieldValidation::Strict),
            other => {
                let supported = [json!("Ignore"), json!("Warn"), json!("Strict")];
                let cause = Cause::not_supported("fieldValidation", &json!(other), &supported);
                Err(ApiError::invalid_options(&[cause]))
            }
        }
    }

    pub(crate) fn dry_run(&self) -> Result<bool, ApiError> {
        dry_run(self.text("dryRun"))
    }

    /// Preconditions and dry run of a deletion; the body counts before the query.
    pub(crate) fn deletion(&self, body: &[u8]) -> Result<(Preconditions, bool), ApiError> {
        let options: Value = if body.is_empty() {
            json!({})
        } else {
            serde_json::from_slice(body)
                .map_err(|error| ApiError::bad_request(format!("DeleteOptions: {error}")))?
        };
        let text =
            |pointer: &str| Some(object::text_at(&options, pointer)).filter(|t| !t.is_empty());
        let preconditions = Preconditions {
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
        };
        let dry = dry_run(&text("/dryRun/0").unwrap_or_default())? || self.dry_run()?;
        Ok((preconditions, dry))
    }
}

fn dry_run(text: &str) -> Result<bool, ApiError> {
    match text {
        "" => Ok(false),
        "All" => Ok(true),
        other => {
            let cause = Cause::not_supported("dryRun", &json!(other), &[json!("All")]);
            Err(ApiError::invalid_options(&[cause]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    fn list(query: &str) -> Result<ListParams, ApiError> {
        let uri: Uri = format!("/x?{query}").parse().unwrap();
        Params::parse(&uri)
            .unwrap()
            .list(kinds::by_kind("Pod").unwrap())
    }

    #[test]
    fn continue_tokens_survive_the_url() {
        let page = NextPage {
            version: 7,
            after: "pods\0shop\0web-0".to_owned(),
        };
        assert_eq!(NextPage::decode(&page.encode()), Some(page.clone()));
        let params = list(&format!("limit=5&continue={}", page.encode())).unwrap();
        assert_eq!((params.next, params.limit), (Some(page), Some(5)));
        assert_eq!(list("continue=zz").unwrap_err().code(), 400);
    }

    #[test]
    fn combinations_that_mean_nothing_are_refused() {
        let cases = [
            ("", 0),
            (
                "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                0,
            ),
            (
                "watch=true&sendInitialEvents=true&allowWatchBookmarks=true",
                422,
            ),
            (
                "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                422,
            ),
            (
                "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                422,
            ),
            ("resourceVersionMatch=Exact", 422),
            ("resourceVersion=0&resourceVersionMatch=Exact", 422),
            ("resourceVersion=3&resourceVersionMatch=Exact", 0),
            ("resourceVersion=3&resourceVersionMatch=Newest", 422),
            (
                "watch=1&resourceVersion=3&resourceVersionMatch=NotOlderThan",
                422,
            ),
            ("resourceVersion=new", 422),
            ("limit=-1", 422),
            ("watch=maybe", 400),
            ("labelSelector=a%20b", 400),
            ("fieldSelector=spec.image%3Dx", 400),
        ];
        for (query, code) in cases {
            assert_eq!(
                list(query).map_or_else(|e| e.code(), |_| 0),
                code,
                "{query}"
            );
        }
    }
}

//! GET, LIST and WATCH, served from the mirror.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, header};

use super::{Api, typed};
use crate::clock;
use crate::kinds::Kind;
use crate::mirror::{self, State};
use crate::object_key::ObjectKey;
use crate::params::{ListParams, NextPage, Params};
use crate::status::ApiError;
use crate::view::{ListMeta, View};
use crate::watch::Watch;

/// One object.
pub(crate) fn get(
    api: &Api,
    parts: &Parts,
    params: &Params,
    kind: &'static Kind,
    namespace: &str,
    name: &str,
) -> Result<Response, ApiError> {
    let view = View::negotiate(&parts.headers, params.text("includeObject"))?;
    let key = ObjectKey::new(kind.collection, namespace, name);
    let stored = api
        .mirror
        .read()
        .objects
        .get(&key)
        .map(|stored| stored.json.clone());
    let stored = stored.ok_or_else(|| ApiError::not_found(kind, name))?;
    Ok(typed(
        view.object(kind, &stored, clock::now()),
        "application/json",
    ))
}

/// A collection, once or as a stream of its changes.
pub(crate) fn list_or_watch(
    api: &Api,
    parts: &Parts,
    params: &Params,
    kind: &'static Kind,
    namespace: Option<&str>,
) -> Result<Response, ApiError> {
    let view = View::negotiate(&parts.headers, params.text("includeObject"))?;
    let list = params.list(kind)?;
    if list.watch {
        let watch = Watch::start(&api.mirror, api.stop.clone(), kind, namespace, view, list)?;
        let mut response = Response::new(Body::from_stream(watch.into_stream()));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        return Ok(response);
    }
    let (items, meta) = page(&api.mirror.read(), kind, namespace, &list)?;
    Ok(typed(
        view.list(kind, &items, &meta, clock::now()),
        "application/json",
    ))
}

/// One page. Later pages show the present state under the first page's version: snapshots are not
/// kept, and a watch from that version brings a client up to date either way.
fn page(
    state: &State,
    kind: &Kind,
    namespace: Option<&str>,
    params: &ListParams,
) -> Result<(Vec<Bytes>, ListMeta), ApiError> {
    if let Some(asked) = params.version.filter(|asked| *asked > state.version) {
        return Err(ApiError::too_new(asked, state.version));
    }
    if params.exact && params.version != Some(state.version) {
        let why = "only the present state can be listed: leave resourceVersionMatch=Exact out";
        return Err(ApiError::expired(why));
    }
    let prefix = ObjectKey::prefix(kind.collection, namespace);
    let after = params.next.as_ref().map(|next| next.after.as_str());
    if after.is_some_and(|after| !after.starts_with(&prefix)) {
        return Err(ApiError::bad_request(
            "continue key is of another list: list again without it",
        ));
    }
    let mut selected = mirror::range(&state.objects, &prefix, after)
        .filter(|(key, stored)| params.selector.matches(key, &stored.facts));
    let limit = params.limit.unwrap_or(usize::MAX);
    let mut items = Vec::new();
    let mut last = None;
    for (key, stored) in selected.by_ref().take(limit) {
        items.push(stored.json.clone());
        last = Some(key);
    }
    let version = params
        .next
        .as_ref()
        .map_or(state.version, |next| next.version);
    let left = selected.count();
    let next = last.filter(|_| left > 0).map(|key| {
        NextPage {
            version,
            after: key.as_str().to_owned(),
        }
        .encode()
    });
    let remaining = params.selector.is_empty().then_some(left);
    Ok((
        items,
        ListMeta {
            version,
            next,
            remaining,
        },
    ))
}

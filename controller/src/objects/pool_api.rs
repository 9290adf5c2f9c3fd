//! Requests about pools, as raw JSON: what we do not know of a pool must survive our writes. Remembers
//! nothing.

use std::sync::Arc;

use http::HeaderValue;
use http::header::ACCEPT;
use kube::api::{GetParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Client, Resource};
use serde_json::{Value, json};
use spiderpool_api::allocation::Records;
use spiderpool_api::ippool::{ParentNic, SpiderIPPool};
use spiderpool_api::names;

use super::StoreError;
use super::error::store_error;
use super::memo::Memo;
use super::pool::{Marks, PoolObject};
use crate::chain::full;

/// Objects in one page of a list. A full pool has half a megabyte.
const PAGE: u32 = 20;

/// The metadata of an object without the rest (Kubernetes API conventions, "Alternate representations").
const METADATA_ALONE: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");

type Built = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

/// The pools of an API server.
pub struct PoolApi {
    client: Client,
    marks: Marks,
    memo: Option<Memo>,
}

impl PoolApi {
    /// Through `client`.
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self {
            client,
            marks: Marks::Count,
            memo: None,
        }
    }

    /// The same for who reads the same pools again and again: published metadata is decoded once.
    #[must_use]
    pub fn memoising(self) -> Self {
        let memo = Some(Memo::default());
        Self { memo, ..self }
    }

    /// The same, with the marks of pools taken as `marks` says.
    #[must_use]
    pub fn with_marks(self, marks: Marks) -> Self {
        Self { marks, ..self }
    }

    fn typed(&self, raw: Value) -> Result<PoolObject, StoreError> {
        let read = match &self.memo {
            Some(memo) => PoolObject::from_raw_with(raw, memo)?,
            None => PoolObject::from_raw(raw)?,
        };
        Ok(read.with_marks(self.marks))
    }

    /// There is no such pool any more.
    pub fn forget(&self, name: &str) {
        if let Some(memo) = &self.memo {
            memo.forget(name);
        }
    }

    /// One pool.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is none.
    pub async fn get(&self, name: &str) -> Result<Arc<PoolObject>, StoreError> {
        let request = requests().get(name, &GetParams::default());
        let raw = self.exchange(request, "read", &shown(name)).await?;
        Ok(Arc::new(self.typed(raw)?))
    }

    /// Hands out all pools, page by page. One that cannot be understood is left out: the others go on.
    /// Whoever follows pools has named it; a scan each minute need not.
    ///
    /// # Errors
    /// [`StoreError`]: what came before it has been handed out.
    pub async fn list(&self, mut each: impl FnMut(PoolObject)) -> Result<(), StoreError> {
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let request = requests().list(&params);
            let mut page = self.exchange(request, "list", "all SpiderIPPools").await?;
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                for item in items {
                    match self.typed(complete(item)) {
                        Ok(object) => each(object),
                        Err(error) => tracing::debug!("a pool is left out: {}", full(&error)),
                    }
                }
            }
            match page.pointer("/metadata/continue").and_then(Value::as_str) {
                Some(token) if !token.is_empty() => params.continue_token = Some(token.to_owned()),
                _ => return Ok(()),
            }
        }
    }

    /// Conditional PUT of the status subresource. A merge patch would send less and cost the API server
    /// twice as much: it has to write out and read the whole object once more. Asked for its metadata alone, the
    /// server does not write the rest out again, which is a third of the whole exchange with a full pool.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the pool has changed since it was read.
    pub async fn put_status(
        &self,
        read: &PoolObject,
        records: &Records,
    ) -> Result<Arc<PoolObject>, StoreError> {
        let (verb, what) = ("write the status of", shown(read.name()));
        let sent = read.with_records(records);
        let body = serde_json::to_vec(&sent).map_err(kube::Error::SerdeError);
        let body = body.map_err(|error| store_error(error, verb, &what))?;
        let put =
            requests().replace_subresource("status", read.name(), &PostParams::default(), body);
        let put = put.map(|mut request| {
            request.headers_mut().insert(ACCEPT, METADATA_ALONE);
            request
        });
        let mut answer = self.exchange(put, verb, &what).await?;
        let metadata = answer.get_mut("metadata").map(Value::take);
        let written = read.written(sent, records, metadata.unwrap_or_default());
        let written = written.map_err(|source| StoreError::Malformed {
            what: format!("the answer to the write of {what}"),
            source: Box::new(source),
        })?;
        Ok(Arc::new(written))
    }

    /// Merge patch of `status.parentNic`.
    ///
    /// # Errors
    /// [`StoreError`] names the pool.
    pub async fn publish_parent_nic(
        &self,
        pool: &str,
        nic: &ParentNic,
    ) -> Result<Arc<PoolObject>, StoreError> {
        let patch = Patch::Merge(json!({"status": {"parentNic": nic}}));
        let request = requests().patch_subresource("status", pool, &PatchParams::default(), &patch);
        let (verb, what) = ("write status.parentNic of", shown(pool));
        let answer = self.exchange(request, verb, &what).await?;
        Ok(Arc::new(self.typed(answer)?))
    }

    async fn exchange(&self, built: Built, verb: &str, what: &str) -> Result<Value, StoreError> {
        let request = built.map_err(kube::Error::BuildRequest);
        let request = request.map_err(|error| store_error(error, verb, what))?;
        let answer = self.client.request::<Value>(request).await;
        answer.map_err(|error| store_error(error, verb, what))
    }
}

fn requests() -> Request {
    Request::new(SpiderIPPool::url_path(&(), None))
}

fn shown(pool: &str) -> String {
    format!("SpiderIPPool {pool}")
}

/// Items of a list carry neither apiVersion nor kind.
fn complete(mut item: Value) -> Value {
    if let Some(object) = item.as_object_mut() {
        object
            .entry("apiVersion")
            .or_insert_with(|| format!("{}/{}", names::GROUP, names::VERSION).into());
        object
            .entry("kind")
            .or_insert_with(|| "SpiderIPPool".into());
    }
    item
}

//! The contract calls so far, in order of arrival; the oldest give way. Memory only.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Calls that are kept: those of a long test, not those of a long life.
pub const MAX_RECORDS: usize = 10_000;

/// One call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Milliseconds since the start of the simulator.
    pub time_ms: u64,
    /// Request path.
    pub path: String,
    /// Request headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Request body; text if it was no JSON.
    pub body: Value,
    /// Status of the answer; null while there is none.
    pub status: Option<u16>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Records {
    calls: Mutex<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    /// Number of the first one kept: a call that was forgotten must not end another.
    first: usize,
    kept: VecDeque<Record>,
}

impl Records {
    /// Notes a call that came in; the number is for [`Self::end`].
    pub fn begin(&self, now: Duration, path: &str, headers: &HeaderMap, body: &[u8]) -> usize {
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let headers = headers
            .iter()
            .map(|(name, value)| (name.to_string(), text(value.as_bytes())));
        let record = Record {
            time_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            path: path.to_owned(),
            headers: headers.collect(),
            body: serde_json::from_slice(body).unwrap_or_else(|_| Value::String(text(body))),
            status: None,
        };
        let mut calls = self.calls();
        if calls.kept.len() == MAX_RECORDS {
            calls.kept.pop_front();
            calls.first += 1;
        }
        calls.kept.push_back(record);
        calls.first + calls.kept.len() - 1
    }

    /// Notes how a call was answered.
    pub fn end(&self, number: usize, status: u16) {
        let mut calls = self.calls();
        let at = number.checked_sub(calls.first);
        if let Some(record) = at.and_then(|at| calls.kept.get_mut(at)) {
            record.status = Some(status);
        }
    }

    /// All that are kept.
    #[must_use]
    pub fn all(&self) -> Vec<Record> {
        self.calls().kept.iter().cloned().collect()
    }

    /// Forgets them.
    pub fn clear(&self) {
        let mut calls = self.calls();
        calls.first += calls.kept.len();
        calls.kept.clear();
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_call_ends_no_other() {
        let records = Records::default();
        let begin = |body: &str| {
            let (now, headers) = (Duration::from_millis(7), HeaderMap::new());
            records.begin(now, "/x", &headers, body.as_bytes())
        };
        let first = begin("{");
        records.clear();
        let second = begin(r#"{"a":1}"#);
        records.end(first, 500);
        assert_eq!(records.all()[0].status, None);
        records.end(second, 200);
        let kept = &records.all()[0];
        assert_eq!(
            (kept.status, kept.time_ms, &kept.body["a"]),
            (Some(200), 7, &1.into())
        );
        for _ in 0..MAX_RECORDS {
            begin("{}");
        }
        records.end(second, 500);
        let kept = records.all();
        assert_eq!(kept.len(), MAX_RECORDS);
        assert!(kept.iter().all(|record| record.status.is_none()));
    }
}

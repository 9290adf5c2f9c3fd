//! The metadata of pools as they were last decoded: what a provider has published does not change with
//! each claim, and decoding a thousand entries is most of the work of reading a pool (spec iaas 4).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use spiderpool_api::ip_meta::{Metadata, MetadataError};

type Decoded = Result<Arc<Metadata>, MetadataError>;

/// By pool, with the text each is of: an older snapshot is never taken for a newer one.
#[derive(Debug, Default)]
pub struct Memo(Mutex<HashMap<String, (String, Decoded)>>);

impl Memo {
    /// What this text comes to.
    ///
    /// # Errors
    /// As [`Metadata::decode`].
    pub fn decode(&self, pool: &str, text: &str) -> Decoded {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, decoded)) = known().get(pool)
            && of == text
        {
            return decoded.clone();
        }
        let decoded = Metadata::decode(text).map(Arc::new);
        known().insert(pool.to_owned(), (text.to_owned(), decoded.clone()));
        decoded
    }

    /// There is no such pool any more.
    pub fn forget(&self, pool: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_is_decoded_once_and_another_anew() {
        let memo = Memo::default();
        let first = r#"{"scope":"","ips":{}}"#;
        let of = |pool: &str, text: &str| memo.decode(pool, text);
        let once = of("p", first).unwrap();
        assert!(Arc::ptr_eq(&once, &of("p", first).unwrap()));
        assert!(!Arc::ptr_eq(&once, &of("q", first).unwrap()));
        assert!(of("p", "{").is_err() && of("p", "{").is_err());
        assert!(!Arc::ptr_eq(&once, &of("p", first).unwrap()));
        let again = of("p", first).unwrap();
        memo.forget("p");
        assert!(!Arc::ptr_eq(&again, &of("p", first).unwrap()));
    }
}

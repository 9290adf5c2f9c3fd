//! What outlives Pods and keeps addresses for the next one: ordinals of the StatefulSet, and machines.

use crate::api::Api;
use crate::{machines, sets};

/// Whether records and endpoints of this key are of one.
pub(crate) fn is_one(key: &str) -> bool {
    sets::is_member(key) || machines::is_machine(key)
}

/// Whether somebody wants it yet.
pub(crate) fn is_wanted(api: &Api, key: &str) -> bool {
    match machines::is_machine(key) {
        true => machines::exists(api, key),
        false => sets::wants(sets::replicas(api), key),
    }
}

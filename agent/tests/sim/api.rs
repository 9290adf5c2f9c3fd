//! The truth of the simulated API server: objects with resourceVersions, a log of changes for
//! watches and stale lists, finalizers, generations and conditional writes. No time, no faults.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

/// What is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Endpoint,
    /// Of a machine that runs.
    Instance,
    Machine,
    Namespace,
    Node,
    Pod,
    Pool,
    Reserved,
    StatefulSet,
}

impl Kind {
    pub(crate) fn of_plural(plural: &str) -> Option<Self> {
        Some(match plural {
            "spiderendpoints" => Self::Endpoint,
            "namespaces" => Self::Namespace,
            "nodes" => Self::Node,
            "pods" => Self::Pod,
            "spiderippools" => Self::Pool,
            "spiderreservedips" => Self::Reserved,
            "statefulsets" => Self::StatefulSet,
            "virtualmachineinstances" => Self::Instance,
            "virtualmachines" => Self::Machine,
            _ => return None,
        })
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Endpoint => "SpiderEndpoint",
            Self::Instance => "VirtualMachineInstance",
            Self::Machine => "VirtualMachine",
            Self::Namespace => "Namespace",
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::Pool => "SpiderIPPool",
            Self::Reserved => "SpiderReservedIP",
            Self::StatefulSet => "StatefulSet",
        }
    }

    pub(crate) const fn api_version(self) -> &'static str {
        match self {
            Self::Namespace | Self::Node | Self::Pod => "v1",
            Self::StatefulSet => "apps/v1",
            Self::Instance | Self::Machine => "kubevirt.io/v1",
            Self::Endpoint | Self::Pool | Self::Reserved => "spiderpool.spidernet.io/v2beta1",
        }
    }
}

/// A refusal.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Refused {
    pub(crate) fn body(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "code": self.code, "reason": self.reason, "message": self.message})
    }
}

/// One stored change.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) at: Instant,
    pub(crate) kind: Kind,
    pub(crate) key: String,
    pub(crate) old: Option<Arc<Value>>,
    pub(crate) new: Option<Arc<Value>>,
}

/// The objects.
pub(crate) struct Api {
    objects: BTreeMap<(Kind, String), Arc<Value>>,
    /// The change that made version n is at n - 1.
    log: Vec<Change>,
    /// Watches from before this version are told to list again.
    pub(crate) compacted: u64,
    /// Mutation: conditional writes are not.
    pub(crate) ignores_versions: bool,
    pub(crate) epoch: Instant,
}

pub(crate) type Written = Result<Change, Refused>;

impl Api {
    pub(crate) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            log: Vec::new(),
            compacted: 0,
            ignores_versions: false,
            epoch: Instant::now(),
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.log.len() as u64
    }

    pub(crate) fn change(&self, version: u64) -> Option<&Change> {
        self.log.get(usize::try_from(version).unwrap())
    }

    pub(crate) fn get(&self, kind: Kind, key: &str) -> Option<&Arc<Value>> {
        self.objects.get(&(kind, key.to_owned()))
    }

    pub(crate) fn all(&self, kind: Kind) -> Vec<Arc<Value>> {
        let of_kind = self.objects.iter().filter(|((of, _), _)| *of == kind);
        of_kind.map(|(_, object)| Arc::clone(object)).collect()
    }

    /// The objects as they were at a version: what a lagging replica lists.
    pub(crate) fn all_at(&self, kind: Kind, version: u64) -> Vec<Arc<Value>> {
        let mut objects: BTreeMap<&str, Arc<Value>> = BTreeMap::new();
        for ((of, key), object) in &self.objects {
            if *of == kind {
                objects.insert(key, Arc::clone(object));
            }
        }
        let newer = self.log.iter().skip(usize::try_from(version).unwrap());
        for change in newer.rev().filter(|change| change.kind == kind) {
            match &change.old {
                Some(old) => objects.insert(&change.key, Arc::clone(old)),
                None => objects.remove(change.key.as_str()),
            };
        }
        objects.into_values().collect()
    }

    pub(crate) fn create(&mut self, kind: Kind, key: &str, mut object: Value) -> Written {
        if self.get(kind, key).is_some() {
            return Err(refused(409, "AlreadyExists", kind, key));
        }
        let uid = format!("uid-{}", self.version() + 1);
        let now = self.now();
        object["apiVersion"] = kind.api_version().into();
        object["kind"] = kind.name().into();
        let meta = object["metadata"].as_object_mut().unwrap();
        meta.entry("uid").or_insert(uid.into());
        meta.insert("generation".into(), 1.into());
        meta.insert("creationTimestamp".into(), now.into());
        Ok(self.commit(kind, key, Some(object)))
    }

    /// PUT of an object, or of its status.
    pub(crate) fn replace(&mut self, kind: Kind, key: &str, sent: &Value, status: bool) -> Written {
        let current = self.current(kind, key)?;
        self.agrees(kind, key, &current, sent)?;
        let mut object = (*current).clone();
        if status {
            object["status"] = sent["status"].clone();
            return Ok(self.commit(kind, key, Some(object)));
        }
        for part in ["spec", "status"] {
            // The status of a pool is written through its subresource only.
            if let Some(value) = sent.get(part)
                && !(kind == Kind::Pool && part == "status")
            {
                object[part] = value.clone();
            }
        }
        for part in ["labels", "annotations", "finalizers", "ownerReferences"] {
            object["metadata"][part] = sent["metadata"][part].clone();
        }
        if object["spec"] != current["spec"] {
            let generation = object["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            object["metadata"]["generation"] = generation.into();
        }
        Ok(self.settle(kind, key, object))
    }

    /// Merge patch; of the status subresource only the status counts.
    pub(crate) fn patch(&mut self, kind: Kind, key: &str, sent: &Value, status: bool) -> Written {
        let current = self.current(kind, key)?;
        if sent.pointer("/metadata/resourceVersion").is_some() {
            self.agrees(kind, key, &current, sent)?;
        }
        let mut object = (*current).clone();
        if status {
            merge(&mut object["status"], &sent["status"]);
            return Ok(self.commit(kind, key, Some(object)));
        }
        merge(&mut object, sent);
        object["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
        self.replace(kind, key, &object, false)
    }

    /// Marks for deletion, or deletes what nobody holds.
    pub(crate) fn delete(&mut self, kind: Kind, key: &str, conditions: &Value) -> Written {
        let current = self.current(kind, key)?;
        let differs = |field: &str| {
            !conditions[field].is_null() && conditions[field] != current["metadata"][field]
        };
        if differs("uid") || differs("resourceVersion") {
            return Err(refused(409, "Conflict", kind, key));
        }
        let mut object = (*current).clone();
        if object["metadata"]["deletionTimestamp"].is_null() {
            object["metadata"]["deletionTimestamp"] = self.now().into();
        }
        Ok(self.settle(kind, key, object))
    }

    /// Stores an object, or removes it when it was only waiting for its finalizers.
    fn settle(&mut self, kind: Kind, key: &str, object: Value) -> Change {
        let meta = &object["metadata"];
        let held = meta["finalizers"].as_array();
        let held = held.is_some_and(|held| !held.is_empty());
        let gone = !meta["deletionTimestamp"].is_null() && !held;
        self.commit(kind, key, (!gone).then_some(object))
    }

    /// Whatever is said: the operator's hand and the kubelet's.
    pub(crate) fn commit(&mut self, kind: Kind, key: &str, new: Option<Value>) -> Change {
        let version = self.version() + 1;
        let at = (kind, key.to_owned());
        let old = self.objects.remove(&at);
        let new = new.map(|mut object| {
            object["metadata"]["resourceVersion"] = version.to_string().into();
            Arc::new(object)
        });
        if let Some(object) = &new {
            self.objects.insert(at, Arc::clone(object));
        }
        let change = Change {
            version,
            at: Instant::now(),
            kind,
            key: key.to_owned(),
            old,
            new,
        };
        self.log.push(change.clone());
        change
    }

    fn current(&self, kind: Kind, key: &str) -> Result<Arc<Value>, Refused> {
        let found = self.get(kind, key).cloned();
        found.ok_or_else(|| refused(404, "NotFound", kind, key))
    }

    fn agrees(&self, kind: Kind, key: &str, current: &Value, sent: &Value) -> Result<(), Refused> {
        let of = |object: &Value, field: &str| object["metadata"][field].clone();
        let read = of(sent, "resourceVersion");
        let same = read == of(current, "resourceVersion") || self.ignores_versions;
        let uid = of(sent, "uid");
        if (read.is_null() || same) && (uid.is_null() || uid == of(current, "uid")) {
            return Ok(());
        }
        Err(refused(409, "Conflict", kind, key))
    }

    fn now(&self) -> String {
        stamp(wall(self.epoch))
    }
}

/// Virtual wall time.
pub(crate) fn wall(epoch: Instant) -> jiff::Timestamp {
    let begun: jiff::Timestamp = "2027-01-05T10:00:00Z".parse().unwrap();
    begun + epoch.elapsed()
}

/// As the API writes times.
pub(crate) fn stamp(at: jiff::Timestamp) -> String {
    let seconds = jiff::Timestamp::from_second(at.as_second());
    seconds.unwrap().to_string()
}

fn refused(code: u16, reason: &'static str, kind: Kind, key: &str) -> Refused {
    let message = format!("{} {key}: {reason}", kind.name());
    Refused {
        code,
        reason,
        message,
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

//! The rules of `spiderpool_ipam::admission` behind the admission seam.

use std::sync::Arc;

use serde_json::Value;
use spiderpool_ipam::admission::view::{AttachmentView, PoolView, SubnetView};
use spiderpool_ipam::admission::{self as rules, FieldError, Kind, Op, Refusal, Settings, World};

use crate::admission::{Admission, AdmissionRequest, Cause, Denial, Lookup, Verb};

/// What the webhooks of a cluster do for our kinds; other kinds pass.
#[derive(Debug, Clone, Copy, Default)]
pub struct IpamAdmission {
    settings: Settings,
}

impl IpamAdmission {
    /// Rules under this configuration.
    #[must_use]
    pub const fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Admission for IpamAdmission {
    fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        new: &mut Value,
        lookup: &Lookup<'_>,
    ) -> Vec<String> {
        let Some(kind) = Kind::from_name(request.kind) else {
            return Vec::new();
        };
        let world = match kind {
            Kind::IpPool => World {
                subnets: subnets(lookup),
                ..World::default()
            },
            _ => World::default(),
        };
        rules::mutate(kind, new, request.old, &world, &self.settings)
    }

    fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        new: Option<&Value>,
        lookup: &Lookup<'_>,
    ) -> Result<Vec<String>, Denial> {
        let Some(kind) = Kind::from_name(request.kind) else {
            return Ok(Vec::new());
        };
        let op = match request.verb {
            Verb::Create => Op::Create,
            Verb::Update => Op::Update,
            Verb::Delete => Op::Delete,
        };
        let world = world(kind, op, request.namespace, new, lookup);
        rules::validate(op, kind, new, request.old, &world, &self.settings)
            .map(|()| Vec::new())
            .map_err(denial)
    }
}

/// What the rules of a kind look at.
fn world(kind: Kind, op: Op, namespace: &str, new: Option<&Value>, lookup: &Lookup<'_>) -> World {
    match (kind, op, new) {
        (Kind::IpPool | Kind::Subnet, Op::Create | Op::Update, _) => World {
            pools: pools(lookup),
            subnets: subnets(lookup),
            attachment: None,
        },
        (Kind::MultusConfig, Op::Create | Op::Update, Some(new)) => World {
            attachment: attachment(namespace, rules::attachment_name(new), lookup),
            ..World::default()
        },
        _ => World::default(),
    }
}

/// One that cannot be read is in nobody's way.
fn pools(lookup: &Lookup<'_>) -> Vec<Arc<PoolView>> {
    let objects = lookup(Kind::IpPool.name());
    let read = |object: &Value| PoolView::read(object).ok().map(Arc::new);
    objects.iter().filter_map(read).collect()
}

fn subnets(lookup: &Lookup<'_>) -> Vec<Arc<SubnetView>> {
    let objects = lookup(Kind::Subnet.name());
    let read = |object: &Value| SubnetView::read(object).ok().map(Arc::new);
    objects.iter().filter_map(read).collect()
}

fn attachment(namespace: &str, name: &str, lookup: &Lookup<'_>) -> Option<AttachmentView> {
    let objects = lookup("NetworkAttachmentDefinition");
    let found = objects.iter().find(|object| {
        let is = |pointer: &str, value: &str| {
            object.pointer(pointer).and_then(Value::as_str) == Some(value)
        };
        is("/metadata/namespace", namespace) && is("/metadata/name", name)
    })?;
    Some(AttachmentView::read(found))
}

fn denial(refusal: Refusal) -> Denial {
    match refusal {
        Refusal::Invalid(errors) => Denial::Invalid(errors.iter().map(cause).collect()),
        Refusal::Forbidden(why) => Denial::Forbidden(why),
        Refusal::AlreadyExists(_) => Denial::AlreadyExists,
    }
}

fn cause(error: &FieldError) -> Cause {
    Cause::new(error.kind.reason(), &error.field, error.detail())
}

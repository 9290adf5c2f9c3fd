//! Identities that outlive a Pod and keep its addresses: an ordinal of a StatefulSet, a KubeVirt
//! virtual machine (spec ipam 4.5, 4.6). Says which Pods have one, under which name it is kept,
//! and whether it is still valid. Callers read the objects past their caches.

use spiderpool_api::endpoint::EndpointStatus;
use spiderpool_api::names;

use crate::facts::{Owner, PodFacts};

/// Kind of an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sticky {
    /// A Pod of a StatefulSet: the Pod's name.
    StatefulSet,
    /// A Pod of a `VirtualMachineInstance`: the machine's name.
    VirtualMachine,
}

/// Which identities are kept (`enableStatefulSet`, `enableKubevirtStaticIP`). Off means that such
/// Pods are treated as stateless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Switches {
    /// `enableStatefulSet`.
    pub stateful_set: bool,
    /// `enableKubevirtStaticIP`.
    pub kubevirt: bool,
}

impl Switches {
    /// Both, as the chart has it.
    pub const ON: Self = Self {
        stateful_set: true,
        kubevirt: true,
    };

    /// Identity of a Pod with this top controller.
    #[must_use]
    pub fn of_owner(self, owner: &Owner) -> Option<Sticky> {
        let (group, _) = owner.api_version.split_once('/')?;
        match (group, owner.kind.as_str()) {
            ("apps", "StatefulSet") if self.stateful_set => Some(Sticky::StatefulSet),
            ("kubevirt.io", "VirtualMachineInstance") if self.kubevirt => {
                Some(Sticky::VirtualMachine)
            }
            _ => None,
        }
    }

    /// Identity that an endpoint stands for, when the Pod is gone. The endpoint knows the kind
    /// alone; a foreign kind of the same name has no valid object behind it.
    #[must_use]
    pub fn of_endpoint(self, endpoint: &EndpointStatus) -> Option<Sticky> {
        match endpoint.owner_controller_type.as_str() {
            "StatefulSet" if self.stateful_set => Some(Sticky::StatefulSet),
            "VirtualMachineInstance" if self.kubevirt => Some(Sticky::VirtualMachine),
            _ => None,
        }
    }

    /// Name of a Pod's endpoint and, with the namespace, key of its records.
    #[must_use]
    pub fn name_of(self, pod: &PodFacts) -> &str {
        match self.of_owner(&pod.owner) {
            Some(Sticky::VirtualMachine) => &pod.owner.name,
            Some(Sticky::StatefulSet) | None => &pod.name,
        }
    }
}

/// A `StatefulSet`, as far as it says which ordinals exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatefulSetFacts {
    /// `spec.replicas`; the API server's default is 1.
    pub replicas: Option<i64>,
    /// `spec.ordinals.start`; 0 without.
    pub start: Option<i64>,
}

/// Name of the StatefulSet that a Pod of this name belongs to, with its ordinal.
#[must_use]
pub fn ordinal(pod_name: &str) -> Option<(&str, i64)> {
    let (set, digits) = pod_name.rsplit_once('-')?;
    let numeric = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    Some((set, digits.parse().ok().filter(|_| numeric)?))
}

/// Whether the StatefulSet (`None`: there is none) wants a Pod of this name.
#[must_use]
pub fn is_valid_ordinal(pod_name: &str, set: Option<&StatefulSetFacts>) -> bool {
    let (Some((_, ordinal)), Some(set)) = (ordinal(pod_name), set) else {
        return false;
    };
    let start = set.start.unwrap_or(0);
    let end = start.saturating_add(set.replicas.unwrap_or(1));
    (start..end).contains(&ordinal)
}

/// A `VirtualMachineInstance`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmiFacts {
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// Whether a `VirtualMachine` controls it.
    pub of_vm: bool,
}

/// The objects behind a machine's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MachineFacts {
    /// The instance, if it exists.
    pub vmi: Option<VmiFacts>,
    /// Whether a `VirtualMachine` of that name exists; the value says whether it is terminating.
    pub vm_terminating: Option<bool>,
}

/// Whether the machine still exists for its user: a stopped one does.
#[must_use]
pub const fn is_valid_machine(facts: &MachineFacts) -> bool {
    match facts.vmi {
        Some(VmiFacts {
            terminating: false, ..
        }) => true,
        Some(VmiFacts { of_vm: false, .. }) => false,
        Some(_) | None => matches!(facts.vm_terminating, Some(false)),
    }
}

/// The `VirtualMachineInstanceMigration` that a Pod is the target of.
#[must_use]
pub fn migration_job(pod: &PodFacts) -> Option<&str> {
    let job = pod.annotations.get(names::KUBEVIRT_MIGRATION_JOB)?;
    Some(job.as_str()).filter(|job| !job.is_empty())
}

/// Whether address conflicts are looked for: not while a migration's source answers for the very
/// address. `migration_exists` is about the object that [`migration_job`] names.
#[must_use]
pub fn detects_conflicts(pod: &PodFacts, migration_exists: bool) -> bool {
    migration_job(pod).is_none() || !migration_exists
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(api_version: &str, kind: &str) -> Owner {
        Owner {
            api_version: api_version.into(),
            kind: kind.into(),
            name: "db".into(),
        }
    }

    #[test]
    fn identities_follow_owner_and_switch() {
        let off = Switches::default();
        for (api, kind, want) in [
            ("apps/v1", "StatefulSet", Some(Sticky::StatefulSet)),
            ("apps.kruise.io/v1", "StatefulSet", None),
            (
                "kubevirt.io/v1",
                "VirtualMachineInstance",
                Some(Sticky::VirtualMachine),
            ),
            ("apps/v1", "Deployment", None),
            ("v1", "Pod", None),
        ] {
            assert_eq!(Switches::ON.of_owner(&owner(api, kind)), want, "{api}");
            assert_eq!(off.of_owner(&owner(api, kind)), None);
        }
        let endpoint = |kind: &str| EndpointStatus {
            owner_controller_type: kind.into(),
            ..EndpointStatus::default()
        };
        let of = |kind| Switches::ON.of_endpoint(&endpoint(kind));
        assert_eq!(of("StatefulSet"), Some(Sticky::StatefulSet));
        assert_eq!(of("VirtualMachineInstance"), Some(Sticky::VirtualMachine));
        assert_eq!(of("Pod"), None);
        assert_eq!(off.of_endpoint(&endpoint("StatefulSet")), None);
    }

    #[test]
    fn endpoints_and_records_are_named_after_the_machine() {
        let pod = |api: &str, kind: &str| PodFacts {
            name: "virt-launcher-db-x7".into(),
            owner: owner(api, kind),
            ..PodFacts::default()
        };
        let vm = pod("kubevirt.io/v1", "VirtualMachineInstance");
        assert_eq!(Switches::ON.name_of(&vm), "db");
        assert_eq!(Switches::default().name_of(&vm), "virt-launcher-db-x7");
        let set = pod("apps/v1", "StatefulSet");
        assert_eq!(Switches::ON.name_of(&set), "virt-launcher-db-x7");
    }

    /// Spec ipam 4.5, the validity rule.
    #[test]
    fn ordinals_are_valid_by_the_set() {
        let set = |replicas, start| Some(StatefulSetFacts { replicas, start });
        for (name, set, want) in [
            ("db-0", set(Some(3), None), true),
            ("db-2", set(Some(3), None), true),
            ("db-3", set(Some(3), None), false),
            ("db-0", set(None, None), true),
            ("db-1", set(None, None), false),
            ("db-0", set(Some(0), None), false),
            ("db-4", set(Some(3), Some(5)), false),
            ("db-5", set(Some(3), Some(5)), true),
            ("db-7", set(Some(3), Some(5)), true),
            ("db-8", set(Some(3), Some(5)), false),
            ("db-0", None, false),
            ("db", set(Some(3), None), false),
            ("db-x", set(Some(3), None), false),
            ("db-", set(Some(3), None), false),
            ("db-+1", set(Some(3), None), false),
            ("my-db-1", set(Some(3), None), true),
            ("db-99999999999999999999", set(Some(3), None), false),
        ] {
            assert_eq!(
                is_valid_ordinal(name, set.as_ref()),
                want,
                "{name} of {set:?}"
            );
        }
        assert_eq!(ordinal("my-db-1"), Some(("my-db", 1)));
    }

    /// Spec ipam 4.6, the validity rule.
    #[test]
    fn machines_are_valid_while_their_user_has_them() {
        let vmi = |terminating, of_vm| Some(VmiFacts { terminating, of_vm });
        for (vmi, vm_terminating, want) in [
            (vmi(false, false), None, true),
            (vmi(false, true), Some(true), true),
            (None, Some(false), true),
            (None, Some(true), false),
            (None, None, false),
            (vmi(true, true), Some(false), true),
            (vmi(true, true), Some(true), false),
            (vmi(true, true), None, false),
            (vmi(true, false), Some(false), false),
        ] {
            let facts = MachineFacts {
                vmi,
                vm_terminating,
            };
            assert_eq!(is_valid_machine(&facts), want, "{facts:?}");
        }
    }

    #[test]
    fn conflicts_are_not_looked_for_during_a_migration() {
        let mut pod = PodFacts::default();
        assert!(detects_conflicts(&pod, true));
        pod.annotations
            .insert(names::KUBEVIRT_MIGRATION_JOB.into(), "job-1".into());
        assert_eq!(migration_job(&pod), Some("job-1"));
        assert!(!detects_conflicts(&pod, true));
        assert!(detects_conflicts(&pod, false));
    }
}

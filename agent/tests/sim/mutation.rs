//! Faults built into the simulation on purpose, one at a time: what the checks must catch.

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// The API server stores every write, whatever version it was made from.
    StoreIgnoresVersions,
    /// GC frees an address a second time, whoever has it by then.
    GcIgnoresUids,
    /// GC calls the provider without marking the record.
    GcSkipsFence,
    /// GC frees the record before the provider has agreed.
    GcFreesFirst,
    /// GC takes a lagging list of Pods for the truth.
    GcTrustsOldLists,
    /// GC takes Pods of a StatefulSet for any others.
    GcIgnoresIdentities,
    /// GC judges by its wall clock alone.
    GcTrustsItsClock,
    /// Nobody collects.
    GcNever,
    /// A CNI plugin that finds no agent forgets the DEL, and nobody collects.
    DelIsForgotten,
    /// The provider carries a release out minutes after its answer timed out.
    ProviderReleasesLate,
    /// The provider tears a released sub-ENI down and leaves its entry published.
    ProviderKeepsDeadEntries,
    /// The provider drops idle-looking sub-ENIs without looking at the claims.
    ProviderReclaimsClaimed,
    /// The provider writes over the records.
    ProviderOverwritesRecords,
    /// The controller leaves its finalizer on a pool for ever.
    FinalizerStays,
    /// Under contract version 1 the controller has no provider, and frees what one has bound.
    GcHasNoProvider,
    /// A provider of contract version 1 forgets what it is told to give back.
    ProviderForgetsReleases,
    /// Nobody finds a virtual machine, so each counts as gone.
    MachinesAreUnknown,
}

impl Mutation {
    /// Whether it is one of contract version 1.
    pub(crate) const fn is_of_version_1(self) -> bool {
        matches!(self, Self::GcHasNoProvider | Self::ProviderForgetsReleases)
    }

    /// Whether it is one of virtual machines.
    pub(crate) const fn is_of_machines(self) -> bool {
        matches!(self, Self::MachinesAreUnknown)
    }
}

//! What runs did, to see that they did something.

/// What a run did, to see that it did something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) adds: usize,
    pub(crate) failed_adds: usize,
    pub(crate) dels: usize,
    pub(crate) conflicts: usize,
    pub(crate) crashes: usize,
    pub(crate) allocates: usize,
    pub(crate) releases: usize,
    pub(crate) collected: usize,
    pub(crate) spooled: usize,
    /// Answers to Pods of the StatefulSet with the addresses of the Pod before, and those on another node.
    pub(crate) kept: usize,
    pub(crate) moved: usize,
    /// Answers of the provider that nobody waited for any more.
    pub(crate) late: usize,
    pub(crate) restarts: usize,
    /// Times with two collectors.
    pub(crate) doubled: usize,
    /// Answers to Pods of machines on another node than before.
    pub(crate) migrated: usize,
    /// Times a node was off.
    pub(crate) outages: usize,
    /// Answers of a provider of contract version 1.
    pub(crate) first: usize,
}

impl Counts {
    /// These and those.
    pub(crate) const fn add(&mut self, more: Self) {
        self.adds += more.adds;
        self.failed_adds += more.failed_adds;
        self.dels += more.dels;
        self.conflicts += more.conflicts;
        self.crashes += more.crashes;
        self.allocates += more.allocates;
        self.releases += more.releases;
        self.collected += more.collected;
        self.spooled += more.spooled;
        self.kept += more.kept;
        self.moved += more.moved;
        self.late += more.late;
        self.restarts += more.restarts;
        self.doubled += more.doubled;
        self.migrated += more.migrated;
        self.outages += more.outages;
        self.first += more.first;
    }

    /// Whether each was seen.
    pub(crate) fn all_happened(self) -> bool {
        let all = [
            self.adds,
            self.failed_adds,
            self.dels,
            self.conflicts,
            self.crashes,
            self.allocates,
            self.releases,
            self.collected,
            self.spooled,
            self.kept,
            self.moved,
            self.late,
            self.restarts,
            self.doubled,
            self.migrated,
            self.outages,
            self.first,
        ];
        all.iter().all(|count| *count > 0)
    }
}

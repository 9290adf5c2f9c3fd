//! What a check is, and all of them in the order they run in.

use super::checks;
use super::ctx::Ctx;
use super::kit::Run;

/// A check.
pub(crate) struct Check {
    /// `group.name`, fixed: scripts and authors name it.
    pub(crate) id: &'static str,
    /// What has to hold.
    pub(crate) holds: &'static str,
    /// Operation, status and field in the OpenAPI file.
    pub(crate) openapi: &'static str,
    /// Section of docs/provider.md.
    pub(crate) section: &'static str,
    /// Tries it.
    pub(crate) run: for<'a> fn(&'a Ctx) -> Run<'a>,
}

/// All checks. Those that judge what others have met come last.
pub(crate) fn all() -> impl Iterator<Item = &'static Check> {
    let groups = [
        checks::tls::CHECKS,
        checks::publish::BEFORE,
        checks::allocate::CHECKS,
        checks::concurrency::CHECKS,
        checks::pair::CHECKS,
        checks::refuse::CHECKS,
        checks::budget::CHECKS,
        checks::malformed::CHECKS,
        checks::release::CHECKS,
        checks::publish::AFTER,
        checks::answer::CHECKS,
    ];
    groups.into_iter().flatten()
}

/// What contract version 1 has no words for: pools, IPv6, and budgets, which its client looks at.
const SINCE_VERSION_2: &[&str] = &[
    "pair",
    "publish",
    "budget",
    "allocate.late",
    "refuse.pool",
    "refuse.range",
    "release.unknown-pool",
    "release.prewarm",
    "release.pair",
    "answer.ipv6",
    "answer.pool",
];

/// Whether a check is one of contract version 1 too.
pub(crate) fn is_of_version_1(check: &Check) -> bool {
    !SINCE_VERSION_2.iter().any(|name| means(name, check))
}

/// Whether a name of `--only` means a check: its id, or its group.
pub(crate) fn means(name: &str, check: &Check) -> bool {
    let group = check.id.split('.').next();
    name == check.id || group == Some(name)
}

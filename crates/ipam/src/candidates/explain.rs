//! What an ADD would come to and why, without doing it: for `spiderpoolctl trace` and whoever asks
//! which pools were candidates.

use std::fmt;

use super::{
    Candidate, Dropped, FamilyCandidates, Level, NicCandidates, Refusal, Request, SelectError,
    survey, unserved,
};
use crate::facts::Snapshot;
use crate::pick::{Pick, PickError, Rules, pick};
use crate::plan::claimant;
use crate::range::Family;

/// What an ADD would find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What named the pools; `None` when that failed already.
    pub level: Option<Level>,
    /// One per NIC that the level is about.
    pub nics: Vec<ExplainedNic>,
    /// Pools of lower classes.
    pub dropped: Vec<Dropped>,
    /// Why the ADD would fail before any pick.
    pub error: Option<SelectError>,
}

/// One NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedNic {
    /// Interface name.
    pub nic: String,
    /// Families that are asked for.
    pub families: Vec<ExplainedFamily>,
}

/// One family of a NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedFamily {
    /// The family.
    pub family: Family,
    /// Candidates in the order they are tried, with what each would give now; the first that
    /// gives something ends the search.
    pub candidates: Vec<(String, Result<Pick, PickError>)>,
    /// Pools that were named and are not tried.
    pub refusals: Vec<Refusal>,
}

/// Explains an ADD from the same facts, by the same decisions.
#[must_use]
pub fn explain(snapshot: &Snapshot, request: &Request, rules: &Rules) -> Explanation {
    let selection = match survey(snapshot, request) {
        Ok(selection) => selection,
        Err(error) => {
            return Explanation {
                level: None,
                nics: Vec::new(),
                dropped: Vec::new(),
                error: Some(error),
            };
        }
    };
    let unserved = unserved(&selection);
    let nics = selection.nics.iter();
    Explanation {
        level: Some(selection.level),
        nics: nics.map(|nic| of_nic(snapshot, rules, nic)).collect(),
        error: (!unserved.is_empty()).then_some(SelectError::Refused(unserved)),
        dropped: selection.dropped,
    }
}

fn of_nic(snapshot: &Snapshot, rules: &Rules, nic: &NicCandidates) -> ExplainedNic {
    let who = claimant(snapshot, &nic.nic);
    let tried = |candidate: &Candidate| {
        let given = pick(&candidate.pool, candidate.sibling.as_deref(), &who, rules);
        (candidate.pool.name.clone(), given)
    };
    let family = |family: &FamilyCandidates| ExplainedFamily {
        family: family.family,
        candidates: family.candidates.iter().map(tried).collect(),
        refusals: family.refusals.clone(),
    };
    ExplainedNic {
        nic: nic.nic.clone(),
        families: nic.families.iter().map(family).collect(),
    }
}

impl fmt::Display for Explanation {
    /// Lines for a terminal, the last without a line break.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            Some(level) => write!(f, "pools are named by {level}")?,
            None => f.write_str("no pools are named")?,
        }
        for nic in &self.nics {
            for family in &nic.families {
                write!(f, "\nNIC {} {}:", nic.nic, family.family)?;
                for (pool, given) in &family.candidates {
                    match given {
                        Ok(pick) => {
                            write!(f, "\n  IPPool {pool} gives {}", pick.address)?;
                            if let Some(partner) = pick.pair_v6 {
                                write!(f, " and {partner}")?;
                            }
                            write!(f, " ({})", pick.path.label())?;
                        }
                        Err(error) => write!(f, "\n  IPPool {pool} gives nothing: {error}")?,
                    }
                }
                for refusal in &family.refusals {
                    write!(f, "\n  {refusal}")?;
                }
            }
        }
        match &self.error {
            Some(error) => write!(f, "\n{error}"),
            None => Ok(()),
        }
    }
}

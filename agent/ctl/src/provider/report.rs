//! What a run came to: a line a check for people, an object for scripts. Prints nothing itself.

use comfy_table::{Attribute, Cell, Color, Table};
use serde::Serialize;

use super::catalogue::{self, Check};
use super::cleanup::Left;
use super::kit::{Exchange, Stop};
use crate::output;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Pass,
    Fail,
    Advice,
    Skipped,
}

impl Verdict {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Advice => "advice",
            Self::Skipped => "skipped",
        }
    }

    fn cell(self) -> Cell {
        let cell = Cell::new(self.word());
        match self {
            Self::Pass => cell.fg(Color::Green),
            Self::Fail => cell.fg(Color::Red),
            Self::Advice => cell.fg(Color::Yellow),
            Self::Skipped => cell.add_attribute(Attribute::Dim),
        }
    }
}

/// The clause a check comes from.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Clause {
    /// Operation and field of docs/iaas-provider.openapi.yaml; empty for what is not of a call.
    pub(crate) openapi: &'static str,
    /// Section of docs/provider.md.
    pub(crate) section: &'static str,
}

impl Clause {
    /// For a column. What is not of a call is not in the OpenAPI file.
    fn short(self) -> String {
        match self.openapi {
            "" => format!("provider.md, {:?}", self.section),
            openapi => openapi.to_owned(),
        }
    }

    fn in_full(self) -> String {
        let section = format!("docs/provider.md, {:?}", self.section);
        match self.openapi {
            "" => section,
            openapi => format!("{openapi} of docs/iaas-provider.openapi.yaml; {section}"),
        }
    }
}

/// One check's result. The JSON keys are fixed: scripts rely on them.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Line {
    pub(crate) check: &'static str,
    pub(crate) holds: &'static str,
    pub(crate) verdict: Verdict,
    /// Why it did not pass.
    pub(crate) why: Option<String>,
    pub(crate) clause: Clause,
    pub(crate) exchanges: Vec<Exchange>,
}

impl Line {
    pub(crate) fn new(check: &Check, ended: Result<(), Stop>, exchanges: Vec<Exchange>) -> Self {
        let (verdict, why) = match ended {
            Ok(()) => (Verdict::Pass, None),
            Err(Stop::Fail(why)) => (Verdict::Fail, Some(why)),
            Err(Stop::Advice(why)) => (Verdict::Advice, Some(why)),
            Err(Stop::Skip(why)) => (Verdict::Skipped, Some(why)),
        };
        Self {
            check: check.id,
            holds: check.holds,
            verdict,
            why,
            clause: Clause {
                openapi: check.openapi,
                section: check.section,
            },
            exchanges,
        }
    }
}

/// How many of each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    pub(crate) pass: usize,
    pub(crate) fail: usize,
    pub(crate) advice: usize,
    pub(crate) skipped: usize,
}

/// The whole.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) provider: String,
    pub(crate) summary: Summary,
    /// Ended by a signal before all checks were tried.
    pub(crate) interrupted: bool,
    pub(crate) checks: Vec<Line>,
    /// What could not be given back.
    pub(crate) left: Vec<String>,
    /// Records of the run may be among it.
    pub(crate) holds_addresses: bool,
}

impl Report {
    pub(crate) fn new(provider: String, checks: Vec<Line>) -> Self {
        let count = |verdict| checks.iter().filter(|line| line.verdict == verdict).count();
        let summary = Summary {
            pass: count(Verdict::Pass),
            fail: count(Verdict::Fail),
            advice: count(Verdict::Advice),
            skipped: count(Verdict::Skipped),
        };
        Self {
            provider,
            summary,
            interrupted: false,
            checks,
            left: Vec::new(),
            holds_addresses: false,
        }
    }

    pub(crate) fn leaves(&mut self, left: Left) {
        self.left = left.lines;
        self.holds_addresses = left.holds_addresses;
    }

    /// Whether it says anything about the provider.
    pub(crate) const fn was_run(&self) -> bool {
        !self.interrupted && self.summary.skipped < self.checks.len()
    }

    fn table(&self) -> Table {
        let mut table = output::bare_table(&["VERDICT", "CHECK", "SENT", "GOT", "MS", "CLAUSE"]);
        table.add_rows(self.checks.iter().map(row));
        table
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut text = output::drawn(self.table());
        let told = |verdict| {
            self.checks
                .iter()
                .filter(move |line| line.verdict == verdict)
        };
        for verdict in [Verdict::Fail, Verdict::Advice, Verdict::Skipped] {
            let mut lines = told(verdict).peekable();
            if lines.peek().is_some() {
                text.push_str(&format!("\n{}:\n", heading(verdict)));
            }
            if verdict == Verdict::Skipped {
                text.push_str(&skips(lines));
                continue;
            }
            for line in lines {
                let why = line.why.as_deref().unwrap_or_default();
                text.push_str(&format!("  {}: {why}\n", line.check));
                text.push_str(&format!("    wanted: {}\n", line.holds));
                text.push_str(&format!("    clause: {}\n", line.clause.in_full()));
            }
        }
        if !self.left.is_empty() {
            text.push_str("\nleft behind:\n");
        }
        for left in &self.left {
            text.push_str(&format!("  {left}\n"));
        }
        let Summary {
            pass,
            fail,
            advice,
            skipped,
        } = self.summary;
        let cut = if self.interrupted {
            ", interrupted"
        } else {
            ""
        };
        text.push_str(&format!(
            "\n{}: {pass} passed, {fail} failed, {advice} advice, {skipped} skipped{cut}\n",
            self.provider
        ));
        text
    }
}

/// A line a reason.
fn skips<'a>(lines: impl Iterator<Item = &'a Line>) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in lines {
        let why = line.why.as_deref().unwrap_or_default();
        match reasons.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, checks)) => checks.push(line.check),
            None => reasons.push((why, vec![line.check])),
        }
    }
    let lines = reasons.into_iter();
    let lines = lines.map(|(why, checks)| format!("  {}: {why}\n", checks.join(", ")));
    lines.collect()
}

const fn heading(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fail => "failed",
        Verdict::Advice => "advice (not a fault, but better done otherwise)",
        Verdict::Skipped | Verdict::Pass => "skipped",
    }
}

/// The exchange that tells most: of a failure the last, else the last that was not aside.
fn row(line: &Line) -> Vec<Cell> {
    let mut all = line.exchanges.iter().rev();
    let last = line.exchanges.last();
    let last = match line.verdict {
        Verdict::Fail => last,
        _ => all.find(|exchange| !exchange.is_aside).or(last),
    };
    let text = |of: fn(&Exchange) -> String| last.map_or_else(|| "-".to_owned(), of);
    vec![
        line.verdict.cell(),
        Cell::new(line.check),
        Cell::new(text(|exchange| exchange.sent.clone())),
        Cell::new(text(|exchange| exchange.got.clone())),
        Cell::new(text(|exchange| exchange.milliseconds.to_string())),
        Cell::new(line.clause.short()),
    ]
}

/// A check that could be played. The JSON keys are fixed: scripts rely on them.
#[derive(Debug, Serialize)]
pub(crate) struct Listed {
    check: &'static str,
    holds: &'static str,
    clause: Clause,
    version1: bool,
}

/// The checks there are, for `--list`.
pub(crate) fn list(checks: &[&'static Check]) -> Vec<Listed> {
    let checks = checks.iter();
    let listed = checks.map(|check| Listed {
        check: check.id,
        holds: check.holds,
        clause: Clause {
            openapi: check.openapi,
            section: check.section,
        },
        version1: catalogue::is_of_version_1(check),
    });
    listed.collect()
}

/// The same for people.
pub(crate) fn list_text(listed: &[Listed]) -> String {
    let rows = listed.iter().map(|one| {
        let version = if one.version1 { "1, 2" } else { "2" };
        let words = [
            one.check,
            version,
            one.clause.section,
            one.clause.openapi,
            one.holds,
        ];
        words.map(str::to_owned).to_vec()
    });
    output::grid(&["CHECK", "VERSION", "SECTION", "OPENAPI", "HOLDS"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is printed passes through [`output::harmless`], which lets only some colours pass.
    #[test]
    fn colours_reach_a_terminal() {
        let check = catalogue::all().next().unwrap();
        let why = || "why".to_owned();
        let ends = [
            Ok(()),
            Err(Stop::Fail(why())),
            Err(Stop::Advice(why())),
            Err(Stop::Skip(why())),
        ];
        let lines = ends.map(|end| Line::new(check, end, Vec::new()));
        let report = Report::new("p".to_owned(), lines.into());
        let mut table = report.table();
        table.enforce_styling();
        let text = output::drawn(table);
        assert_eq!(text.matches('\u{1b}').count(), 20, "{text:?}");
        assert_eq!(output::harmless(&text), text);
    }
}

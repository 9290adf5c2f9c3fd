//! Figures the design promises: measured, compared with their limits, one JSON line each.
//!
//! Never a timed test: a figure is a median, its reference comes from the same run or is stated.

mod admission;
mod cni;
mod gc;
mod iaas;
mod ipam;
mod observer;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use comfy_table::{Table, presets};
use serde::Serialize;

use crate::term;

/// Measure the figures the design promises.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Figures or groups of them (cni, observer, ipam, iaas, admission, gc); all by default.
    names: Vec<String>,
    /// One JSON line a figure.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Figure {
    name: &'static str,
    value: f64,
    unit: &'static str,
    /// What the figure is compared with: the peer's value.
    reference: Option<f64>,
    /// What it has to reach; none where it only stands beside the others.
    limit: Option<f64>,
    /// On which side of the limit it has to be.
    better: Better,
}

/// Which values are good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Better {
    /// At most the limit.
    Lower,
    /// At least the limit.
    Higher,
}

impl Figure {
    fn holds(&self) -> bool {
        self.limit.is_none_or(|limit| match self.better {
            Better::Lower => self.value <= limit,
            Better::Higher => self.value >= limit,
        })
    }
}

/// Figures that are measured together, because they share what is built or started for it.
struct Group {
    name: &'static str,
    names: &'static [&'static str],
    measure: fn(&Asked<'_>) -> Result<Vec<Figure>>,
}

const GROUPS: &[Group] = &[
    Group {
        name: "cni",
        names: cni::NAMES,
        measure: |_| cni::measure(),
    },
    Group {
        name: "observer",
        names: observer::NAMES,
        measure: |_| observer::measure(),
    },
    Group {
        name: "ipam",
        names: ipam::NAMES,
        measure: ipam::measure,
    },
    Group {
        name: "iaas",
        names: iaas::NAMES,
        measure: |_| iaas::measure(),
    },
    Group {
        name: "admission",
        names: admission::NAMES,
        measure: |_| admission::measure(),
    },
    Group {
        name: "gc",
        names: gc::NAMES,
        measure: |_| gc::measure(),
    },
];

/// What of a group is wanted: everything, where it has been named itself or nothing was.
struct Asked<'a> {
    names: &'a [String],
    whole: bool,
}

impl<'a> Asked<'a> {
    fn of(group: &Group, names: &'a [String]) -> Self {
        let whole = names.is_empty() || names.iter().any(|name| name == group.name);
        Self { names, whole }
    }

    fn wants(&self, figure: &str) -> bool {
        self.whole || self.names.iter().any(|name| name == figure)
    }

    fn any(&self, figures: &[&str]) -> bool {
        figures.iter().any(|figure| self.wants(figure))
    }
}

/// Measures, prints, and fails when a figure misses its limit.
pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    let known = || {
        let names =
            |group: &'static Group| [group.name].into_iter().chain(group.names.iter().copied());
        GROUPS.iter().flat_map(names)
    };
    if let Some(name) = args.names.iter().find(|name| !known().any(|k| k == *name)) {
        let known: Vec<_> = known().collect();
        bail!("no figure named {name}; there are {}", known.join(", "));
    }
    let mut figures = Vec::new();
    for group in GROUPS {
        let asked = Asked::of(group, &args.names);
        if asked.any(group.names) {
            let measured = (group.measure)(&asked)?;
            figures.extend(measured.into_iter().filter(|f| asked.wants(f.name)));
        }
    }
    for line in render(&figures, args.json)? {
        term::result(&line);
    }
    let missed: Vec<_> = figures
        .iter()
        .filter(|f| !f.holds())
        .map(|f| f.name)
        .collect();
    if !missed.is_empty() {
        bail!("missed the limit: {}", missed.join(", "));
    }
    Ok(ExitCode::SUCCESS)
}

fn render(figures: &[Figure], json: bool) -> Result<Vec<String>> {
    if json {
        return figures
            .iter()
            .map(|f| Ok(serde_json::to_string(f)?))
            .collect();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "FIGURE",
        "VALUE",
        "UNIT",
        "REFERENCE",
        "LIMIT",
    ]);
    for f in figures {
        table.add_row([
            f.name.to_owned(),
            trimmed(f.value),
            f.unit.to_owned(),
            f.reference.map_or_else(String::new, trimmed),
            f.limit.map_or_else(String::new, trimmed),
        ]);
    }
    Ok(table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect())
}

/// Three decimals where there are any.
fn trimmed(value: f64) -> String {
    format!("{value:.3}")
        .trim_end_matches('0')
        .trim_end_matches('.')
        .to_owned()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert!((median(&mut [3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!(median(&mut []).is_nan());
    }

    #[test]
    fn the_limit_itself_is_good_enough() {
        let figure = |value, better| Figure {
            name: "x",
            value,
            unit: "ms",
            reference: Some(18.0),
            limit: Some(1.5),
            better,
        };
        let lower = |value| figure(value, Better::Lower).holds();
        assert!(lower(1.5) && !lower(1.6) && !lower(f64::NAN));
        let higher = |value| figure(value, Better::Higher).holds();
        assert!(higher(1.5) && !higher(1.4) && !higher(f64::NAN));
        let beside = Figure {
            limit: None,
            ..figure(1.6, Better::Lower)
        };
        assert!(beside.holds());
    }

    #[test]
    fn a_group_is_wanted_whole_or_by_its_figures() {
        let names = ["ipam".to_owned(), "cni_binary_bytes".to_owned()];
        let [cni, observer, ipam, ..] = GROUPS else {
            panic!("another number of groups");
        };
        assert!(Asked::of(ipam, &names).wants("rss_idle"));
        let asked = Asked::of(cni, &names);
        assert!(asked.wants("cni_binary_bytes") && !asked.wants("cni_version_over_true_ms"));
        assert!(!Asked::of(observer, &names).any(observer.names));
        assert!(Asked::of(observer, &[]).any(observer.names));
    }

    #[test]
    fn one_json_line_a_figure() {
        let figure = Figure {
            name: "x",
            value: 0.5,
            unit: "ms",
            reference: Some(18.0),
            limit: None,
            better: Better::Lower,
        };
        let lines = render(&[figure.clone(), figure], true).unwrap();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            lines[0],
            r#"{"name":"x","value":0.5,"unit":"ms","reference":18.0,"limit":null,"better":"lower"}"#
        );
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(trimmed(2_097_152.0), "2097152");
        assert_eq!(trimmed(0.65), "0.65");
    }
}

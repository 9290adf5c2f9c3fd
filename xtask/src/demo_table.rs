//! The demo's report for a person: aligned tables, colours on a terminal.

use comfy_table::{Cell, Color, Table, presets};

use crate::demo_report::DemoReport;
use crate::term;

/// Prints all parts that have rows, then the leaks and a last line.
pub(crate) fn print(report: &DemoReport, colours: bool) {
    for line in lines(report, colours) {
        term::result(&line);
    }
}

fn lines(report: &DemoReport, colours: bool) -> Vec<String> {
    let parts = [
        pods(report),
        preflight(report),
        pings(report),
        tcp(report),
        counters(report),
        violations(report),
        release(report),
    ];
    let mut lines = Vec::new();
    for mut table in parts {
        if table.is_empty() {
            continue;
        }
        if colours {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        lines.extend(table.lines().map(|line| line.trim_end().to_owned()));
        lines.push(String::new());
    }
    for found in &report.audit {
        lines.push(format!("audit of the cloud: {found}"));
    }
    for leak in &report.leaks {
        lines.push(format!("left behind: {leak}"));
    }
    lines.extend(
        report
            .verdicts()
            .into_iter()
            .filter(|(_, ok)| !ok)
            .map(|(what, _)| format!("FAILED: {what}")),
    );
    let env = &report.env;
    let left = match env.kept {
        true => "kept running".to_owned(),
        false => format!("{} leaks", report.leaks.len()),
    };
    lines.push(format!(
        "{}: {} Pods, {left}, kernel {} ({}), observer by {}, {:.1} s",
        if report.ok() { "ok" } else { "FAILED" },
        report.pods.len(),
        env.kernel,
        env.backend,
        env.attach,
        env.seconds
    ));
    lines
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(header.to_vec());
    table
}

fn verdict(ok: bool, text: &str) -> Cell {
    Cell::new(text).fg(if ok { Color::Green } else { Color::Red })
}

fn yes(ok: bool) -> Cell {
    verdict(ok, if ok { "ok" } else { "FAILED" })
}

fn ms(value: f64) -> Cell {
    Cell::new(format!("{value:.1}"))
}

fn pods(report: &DemoReport) -> Table {
    let mut table = table(&[
        "POD",
        "NODE",
        "MODE",
        "PATH",
        "IPV4",
        "IPV6",
        "MAC",
        "VLAN",
        "ATTACH ms",
    ]);
    for p in &report.pods {
        let ip = |ip: &Option<String>| Cell::new(ip.as_deref().unwrap_or("-"));
        table.add_row(vec![
            Cell::new(&p.name),
            Cell::new(&p.node),
            Cell::new(&p.mode),
            Cell::new(&p.path),
            ip(&p.ipv4),
            ip(&p.ipv6),
            Cell::new(&p.mac),
            Cell::new(p.vlan),
            ms(p.attach_ms),
        ]);
    }
    table
}

fn preflight(report: &DemoReport) -> Table {
    let mut table = table(&["PRE-FLIGHT", "FAMILY", "RESULT", "ATTEMPTS", "ms"]);
    for p in &report.preflight {
        table.add_row(vec![
            Cell::new(&p.pod),
            Cell::new(p.family),
            verdict(p.result == "ok", &p.result),
            Cell::new(p.attempts),
            ms(p.ms),
        ]);
    }
    table
}

fn pings(report: &DemoReport) -> Table {
    let mut table = table(&["PING FROM", "TO", "FAMILY", "RESULT", "ms"]);
    for p in &report.pings {
        table.add_row(vec![
            Cell::new(&p.from),
            Cell::new(&p.to),
            Cell::new(p.family),
            yes(p.ok),
            ms(p.ms),
        ]);
    }
    table
}

fn tcp(report: &DemoReport) -> Table {
    let mut table = table(&["TCP FROM", "TO", "FAMILY", "RESULT", "BYTES", "ms"]);
    for t in &report.tcp {
        table.add_row(vec![
            Cell::new(&t.from),
            Cell::new(&t.to),
            Cell::new(t.family),
            yes(t.ok),
            Cell::new(t.bytes),
            ms(t.ms),
        ]);
    }
    table
}

fn counters(report: &DemoReport) -> Table {
    let mut table = table(&[
        "COUNTED FOR",
        "OBSERVER FRAMES",
        "LINK FRAMES",
        "OBSERVER BYTES",
        "LINK BYTES",
        "RESULT",
    ]);
    for c in &report.counters {
        table.add_row(vec![
            Cell::new(&c.pod),
            Cell::new(c.observer),
            Cell::new(c.link),
            Cell::new(c.observer_bytes),
            Cell::new(c.link_bytes),
            verdict(c.equal, if c.equal { "equal" } else { "DIFFERENT" }),
        ]);
    }
    table
}

fn violations(report: &DemoReport) -> Table {
    let mut table = table(&["FORGED", "BY", "OBSERVED", "FABRIC"]);
    for v in &report.violations {
        let dropped = v.dropped_by_fabric;
        table.add_row(vec![
            Cell::new(&v.kind),
            Cell::new(&v.pod),
            verdict(v.observed > 0, &v.observed.to_string()),
            verdict(dropped, if dropped { "dropped" } else { "PASSED" }),
        ]);
    }
    table
}

fn release(report: &DemoReport) -> Table {
    let mut table = table(&["RELEASE", "RESULT", "ms"]);
    for r in &report.release {
        table.add_row(vec![Cell::new(&r.pod), yes(r.ok), ms(r.ms)]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo_report::{Counter, Ping, Pod, Violation};

    fn report() -> DemoReport {
        DemoReport {
            pods: vec![Pod {
                name: "default/web".into(),
                ipv4: Some("10.0.0.1".into()),
                vlan: 7,
                ..Pod::default()
            }],
            pings: vec![Ping {
                from: "default/web".into(),
                to: "gateway".into(),
                family: 4,
                ..Ping::default()
            }],
            counters: vec![Counter {
                observer: 7,
                link: 8,
                ..Counter::default()
            }],
            violations: vec![Violation {
                kind: "src_mac".into(),
                ..Violation::default()
            }],
            leaks: vec!["link sub0".into()],
            ..DemoReport::default()
        }
    }

    #[test]
    fn columns_are_aligned_and_empty_parts_left_out() {
        let lines = lines(&report(), false);
        let at = |word: &str| lines.iter().find_map(|line| line.find(word)).unwrap();
        assert_eq!(at("VLAN"), at(" 7 ") + 1);
        assert!(!lines.iter().any(|line| line.contains("RELEASE")));
        for word in ["left behind: link sub0", "DIFFERENT", "PASSED"] {
            assert!(lines.iter().any(|line| line.contains(word)), "{word}");
        }
        assert!(lines.last().unwrap().starts_with("FAILED: 1 Pods, 1 leaks"));
    }

    #[test]
    fn colours_only_when_asked() {
        assert!(
            !lines(&report(), false)
                .iter()
                .any(|line| line.contains('\u{1b}'))
        );
        assert!(
            lines(&report(), true)
                .iter()
                .any(|line| line.contains('\u{1b}'))
        );
    }
}

//! Rows as text: aligned columns for people, JSON for scripts. Reads the clock for ages and asks
//! whether standard output is a terminal; prints what it is given.

use std::io::{self, Write};

use comfy_table::{Attribute, Cell, Color, Table, presets};
use k8s_openapi::jiff::Timestamp;

use crate::pool::Row;

/// Which columns a table has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Columns {
    /// Those that fit a terminal.
    Usual,
    /// All.
    All,
}

const USUAL: [&str; 9] = [
    "NAME",
    "VERSION",
    "SUBNET",
    "ALLOCATED",
    "TOTAL",
    "MODE",
    "READY",
    "PARENT-NIC",
    "AGE",
];
const MORE: [&str; 6] = [
    "UNREADY",
    "PARENT-MAC",
    "PAIR-POOL",
    "GATEWAY",
    "DEFAULT",
    "DISABLED",
];

/// The rows as an array, one key order for all.
///
/// # Errors
/// None that a row can cause; the encoder's type says so.
pub(crate) fn json(rows: &[Row]) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(rows)?;
    text.push('\n');
    Ok(text)
}

/// Any JSON, indented.
///
/// # Errors
/// None that a value can cause; the encoder's type says so.
pub(crate) fn pretty(value: &impl serde::Serialize) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    Ok(text)
}

/// What was to be read is lost.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output")]
pub(crate) struct PrintError(#[source] io::Error);

/// To standard output. `false`: nobody reads any more, which is no failure.
///
/// # Errors
/// [`PrintError`], such as for a full disk.
pub(crate) fn print(text: &str) -> Result<bool, PrintError> {
    let text = harmless(text);
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).map_err(PrintError),
    }
}

/// Names and annotations are other people's text, and a terminal obeys what is in it. What is left is
/// printable, lines, and colours as our tables have them; the rest is shown as an escape.
pub(crate) fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let mut taken = first.len_utf8();
        match colour(rest) {
            Some(length) => {
                taken = length;
                shown.extend(rest.get(..length));
            }
            None if first.is_control() && first != '\n' => shown.extend(first.escape_default()),
            None => shown.push(first),
        }
        rest = rest.get(taken..).unwrap_or_default();
    }
    shown
}

/// Length of the colour or weight that a text begins with: `ESC [ numbers m`, without 8, which hides.
fn colour(text: &str) -> Option<usize> {
    let numbers = text.strip_prefix("\u{1b}[")?;
    let end = numbers.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    let (numbers, after) = numbers.split_at_checked(end)?;
    let is_colour = after.starts_with('m') && numbers.split(';').all(|number| number != "8");
    is_colour.then_some("\u{1b}[m".len() + end)
}

/// Texts below a header line, aligned.
pub(crate) fn grid(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = bare_table(header);
    table.add_rows(rows);
    drawn(table)
}

/// A table of a header line. Coloured on a terminal without `NO_COLOR`.
pub(crate) fn bare_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        table.force_no_tty();
    }
    table.load_style(presets::NOTHING);
    let words = header.iter();
    table.set_header(words.map(|word| Cell::new(word).add_attribute(Attribute::Bold)));
    table
}

/// Its lines, aligned.
pub(crate) fn drawn(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = table.trim_fmt();
    text.push('\n');
    text
}

/// The rows below a header line. Coloured on a terminal without `NO_COLOR`.
pub(crate) fn table(rows: &[Row], columns: Columns) -> String {
    let mut table = Table::new();
    if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        table.force_no_tty();
    }
    fill(&mut table, rows, columns, Timestamp::now());
    let mut text = table.trim_fmt();
    text.push('\n');
    text
}

fn fill(table: &mut Table, rows: &[Row], columns: Columns, now: Timestamp) {
    let more: &[&str] = match columns {
        Columns::Usual => &[],
        Columns::All => &MORE,
    };
    let header = USUAL.iter().chain(more);
    table.load_style(presets::NOTHING);
    table.set_header(header.map(|word| Cell::new(word).add_attribute(Attribute::Bold)));
    for row in rows {
        let mut cells = usual(row, now);
        if columns == Columns::All {
            cells.extend(further(row));
        }
        table.add_row(cells);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
}

fn usual(row: &Row, now: Timestamp) -> Vec<Cell> {
    let allocated = Cell::new(row.allocated);
    let is_used_up = row.total.is_some_and(|total| row.allocated >= total);
    vec![
        Cell::new(&row.name),
        or_dash(row.ip_version),
        Cell::new(&row.subnet),
        if is_used_up {
            allocated.fg(Color::Red)
        } else {
            allocated
        },
        or_dash(row.total),
        Cell::new(&row.mode),
        or_dash(row.ready),
        or_dash(row.parent_nic.as_ref()),
        or_dash(row.created.map(|created| age(created, now))),
    ]
}

fn further(row: &Row) -> Vec<Cell> {
    vec![
        or_dash(row.unready),
        or_dash(row.parent_mac.as_ref()),
        or_dash(row.pair_pool.as_ref()),
        or_dash(row.gateway.as_ref()),
        Cell::new(row.default),
        Cell::new(row.disabled),
    ]
}

fn or_dash<T: ToString>(value: Option<T>) -> Cell {
    Cell::new(value.map_or_else(|| "-".to_owned(), |value| value.to_string()))
}

/// The largest unit with at least two of it, as kubectl shows ages; 0s for a clock that is behind.
pub(crate) fn age(created: Timestamp, now: Timestamp) -> String {
    let seconds = (now.as_second() - created.as_second()).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Mode;

    #[test]
    fn a_terminal_is_not_ordered_about() {
        let said = "a\u{1b}]0;title\u{7}b\u{1b}[2Jc\r\u{9b}d\te\u{1b}[8mf\u{1b}[";
        let shown = r"a\u{1b}]0;title\u{7}b\u{1b}[2Jc\r\u{9b}d\te\u{1b}[8mf\u{1b}[";
        assert_eq!(harmless(said), shown);
        let ours = "\u{1b}[1mNAME\u{1b}[0m\n\u{1b}[38;5;9m3\u{1b}[39m é\n";
        assert_eq!(harmless(ours), ours);
    }

    fn row(name: &str) -> Row {
        Row {
            name: name.to_owned(),
            ip_version: Some(4),
            subnet: "10.0.0.0/24".to_owned(),
            allocated: 3,
            total: Some(3),
            mode: Mode::Prewarm("w1".to_owned()),
            node: Some("w1".to_owned()),
            ready: Some(2),
            unready: None,
            parent_nic: Some("eth1".to_owned()),
            parent_mac: None,
            pair_pool: None,
            gateway: None,
            default: false,
            disabled: true,
            created: Some(Timestamp::UNIX_EPOCH),
        }
    }

    fn text(columns: Columns, styled: bool) -> String {
        let mut table = Table::new();
        if styled {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        let now = Timestamp::from_second(7_300).unwrap();
        let bare = Row {
            total: None,
            mode: Mode::Plain,
            ready: None,
            parent_nic: None,
            ..row("a-longer-name")
        };
        fill(&mut table, &[row("p"), bare], columns, now);
        table.trim_fmt()
    }

    #[test]
    fn columns_are_aligned_and_plain_without_a_terminal() {
        assert_eq!(
            text(Columns::Usual, false),
            "\
NAME           VERSION  SUBNET       ALLOCATED  TOTAL  MODE         READY  PARENT-NIC  AGE
p              4        10.0.0.0/24  3          3      prewarm(w1)  2      eth1        2h
a-longer-name  4        10.0.0.0/24  3          -      plain        -      -           2h"
        );
        let wide = text(Columns::All, false);
        let header = wide.lines().next().unwrap();
        assert!(header.ends_with("UNREADY  PARENT-MAC  PAIR-POOL  GATEWAY  DEFAULT  DISABLED"));
        assert!(!wide.contains('\u{1b}'));
        assert!(text(Columns::Usual, true).contains('\u{1b}'));
    }

    #[test]
    fn ages_read_as_kubectls() {
        for (seconds, want) in [
            (-5, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7_199, "119m"),
            (7_200, "2h"),
            (172_799, "47h"),
            (172_800, "2d"),
        ] {
            let now = Timestamp::from_second(seconds).unwrap();
            assert_eq!(age(Timestamp::UNIX_EPOCH, now), want);
        }
    }
}

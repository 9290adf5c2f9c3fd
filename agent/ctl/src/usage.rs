//! `spiderpoolctl pool usage`: how full all pools are, the fullest first. Pure.

use serde::Serialize;
use spiderpool_ipam::pool::Mode;

use crate::facts::{Fill, Known, Reserved};
use crate::output;

/// One pool. The JSON keys are fixed: scripts rely on them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    name: String,
    ip_version: u8,
    subnet: String,
    mode: &'static str,
    total: i64,
    used: i64,
    reserved: i64,
    free: i64,
    used_percent: Option<f64>,
    #[serde(skip)]
    permille: Option<i64>,
}

/// One row for each pool that can be read.
pub(crate) fn rows(known: &[Known], reserved: &[Reserved]) -> Vec<Row> {
    let pools = known.iter().filter_map(|known| known.pool.as_ref().ok());
    let mut rows: Vec<Row> = pools
        .map(|pool| {
            let fill = Fill::of(pool, reserved);
            let permille = fill.permille();
            let tenths = permille.and_then(|permille| i32::try_from(permille).ok());
            Row {
                name: pool.name.clone(),
                ip_version: if pool.subnet.addr().is_ipv4() { 4 } else { 6 },
                subnet: pool.subnet.to_string(),
                mode: mode_word(&pool.mode),
                total: fill.total,
                used: fill.used,
                reserved: fill.reserved,
                free: fill.free,
                used_percent: tenths.map(|tenths| f64::from(tenths) / 10.0),
                permille,
            }
        })
        .collect();
    rows.sort_by(|a, b| (b.permille, &a.name).cmp(&(a.permille, &b.name)));
    rows
}

pub(crate) const fn mode_word(mode: &Mode) -> &'static str {
    match mode {
        Mode::Plain => "plain",
        Mode::Prewarm { .. } => "prewarm",
        Mode::Global => "global",
    }
}

/// The rows below a header.
pub(crate) fn table(rows: &[Row]) -> String {
    let header = [
        "NAME", "VERSION", "SUBNET", "MODE", "TOTAL", "USED", "RESERVED", "FREE", "USED%",
    ];
    let cells = rows.iter().map(|row| {
        vec![
            row.name.clone(),
            row.ip_version.to_string(),
            row.subnet.clone(),
            row.mode.to_owned(),
            row.total.to_string(),
            row.used.to_string(),
            row.reserved.to_string(),
            row.free.to_string(),
            percent(row.permille),
        ]
    });
    output::grid(&header, cells)
}

pub(crate) fn percent(permille: Option<i64>) -> String {
    permille.map_or_else(
        || "-".to_owned(),
        |permille| format!("{}.{}", permille / 10, permille % 10),
    )
}

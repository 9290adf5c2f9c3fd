//! `spiderpoolctl pool show`: one pool with everything that decides whether it gives addresses, and
//! what is wrong with it. Pure.

use std::sync::Arc;

use kube::ResourceExt;
use serde::Serialize;
use spiderpool_api::ip_meta::{EntryState, Metadata};
use spiderpool_api::ippool::SpiderIPPool;
use spiderpool_ipam::overlap::pool_loses_to;
use spiderpool_ipam::pool::Pool;

use crate::facts::{Fill, Known, Reserved};
use crate::usage::{mode_word, percent};

/// What is shown. The JSON keys are fixed; `spec` is the object's own.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown {
    name: String,
    spec: serde_json::Value,
    annotations: serde_json::Value,
    created: Option<String>,
    mode: Option<&'static str>,
    total: Option<i64>,
    used: Option<i64>,
    reserved: Option<i64>,
    free: Option<i64>,
    #[serde(skip)]
    permille: Option<i64>,
    releasing: usize,
    parent_nic: Option<String>,
    #[serde(rename = "parentNicMAC")]
    parent_mac: Option<String>,
    provider: Option<Provider>,
    /// Each a reason why it gives less than one expects.
    warnings: Vec<String>,
}

/// What the provider has published.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Provider {
    ready: bool,
    generation: i64,
    observed_generation: Option<i64>,
    /// Sub-ENIs by state; of a global pool wherever they hang.
    attached: usize,
    unattached: usize,
    reclaiming: usize,
    contradictory: usize,
}

/// Looks at one pool among all.
pub(crate) fn show(known: &Known, pools: &[Arc<Pool>], reserved: &[Reserved]) -> Shown {
    let object = &known.object;
    let pool = known.pool.as_ref().ok();
    let fill = pool.map(|pool| Fill::of(pool, reserved));
    let nic = object
        .status
        .as_ref()
        .and_then(|status| status.parent_nic.as_ref());
    let created = object.creation_timestamp().map(|time| time.0.to_string());
    let marks = pool.map_or(0, |pool| {
        let records = pool.records.iter();
        records
            .filter(|(_, record)| record.releasing.is_some())
            .count()
    });
    Shown {
        name: known.name(),
        spec: serde_json::to_value(&object.spec).unwrap_or_default(),
        annotations: serde_json::to_value(object.annotations()).unwrap_or_default(),
        created,
        mode: pool.map(|pool| mode_word(&pool.mode)),
        total: fill.map(|fill| fill.total),
        used: fill.map(|fill| fill.used),
        reserved: fill.map(|fill| fill.reserved),
        free: fill.map(|fill| fill.free),
        permille: fill.and_then(Fill::permille),
        releasing: marks,
        // As in the list: the agent's word on what is there before the user's on what should be.
        parent_nic: nic
            .map(|nic| nic.name.clone())
            .or_else(|| pool.and_then(|pool| pool.parent_nic.clone())),
        parent_mac: nic.map(|nic| nic.mac.clone()),
        provider: pool.and_then(|pool| provider(object, pool)),
        warnings: match &known.pool {
            Ok(pool) => warnings(pool, pools, fill.is_some_and(|fill| fill.free == 0)),
            Err(error) => vec![format!(
                "{error}: no agent uses the pool until that is mended"
            )],
        },
    }
}

fn provider(object: &SpiderIPPool, pool: &Pool) -> Option<Provider> {
    let published = object.status.as_ref();
    let published = published.and_then(|status| status.ip_meta_data.as_ref());
    let judged = pool.metadata.as_ref()?;
    let mut shown = Provider {
        ready: judged.is_ok(),
        generation: pool.generation,
        observed_generation: published.and_then(|data| data.observed_generation),
        ..Provider::default()
    };
    // What was published for another generation is counted all the same.
    let text = published.and_then(|data| data.metadata.as_deref());
    let Some(metadata) = text.and_then(|text| Metadata::decode(text).ok()) else {
        return Some(shown);
    };
    shown.contradictory = metadata.bad.len();
    for entry in metadata.entries.values() {
        match entry.state {
            EntryState::Attached { .. } => shown.attached += 1,
            EntryState::Unattached { .. } => shown.unattached += 1,
            EntryState::Reclaiming { .. } => shown.reclaiming += 1,
        }
    }
    Some(shown)
}

fn warnings(pool: &Pool, pools: &[Arc<Pool>], is_used_up: bool) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(word) = pool.closed() {
        found.push(format!("the pool is {word} and gives out nothing new"));
    }
    if let Some(lost) = pool_loses_to(pool, pools) {
        found.push(format!(
            "overlaps the older IPPool {} in {} and gives out nothing until one of them is changed",
            lost.winner, lost.shared
        ));
    }
    if let Some(Err(why)) = &pool.metadata {
        found.push(why.to_string());
    }
    if let Some(pair) = pool.pair.as_ref()
        && !pools.iter().any(|other| other.name == *pair)
    {
        found.push(format!(
            "its pair pool {pair} does not exist or cannot be read"
        ));
    }
    let outside = pool.taken().subtract(&pool.usable).count();
    if outside > 0 {
        found.push(format!(
            "{outside} addresses are in use that are no longer among its ips; they go with their Pods"
        ));
    }
    if is_used_up && pool.closed().is_none() {
        found.push("all addresses are used or reserved".to_owned());
    }
    found
}

/// The lines for a terminal.
pub(crate) fn text(shown: &Shown) -> String {
    let mut lines = Lines::default();
    settings(&mut lines, shown);
    usage(&mut lines, shown);
    if let Some(provider) = &shown.provider {
        published(&mut lines, provider);
    }
    for warning in &shown.warnings {
        lines.add("Warning", warning);
    }
    lines.0
}

fn settings(lines: &mut Lines, shown: &Shown) {
    let spec = |key: &str| word(shown.spec.get(key));
    lines.add("Name", &shown.name);
    lines.add("Subnet", &spec("subnet"));
    lines.add("Addresses", &spec("ips"));
    lines.add("Excluded", &spec("excludeIPs"));
    lines.add("Gateway", &spec("gateway"));
    lines.add("Mode", shown.mode.unwrap_or("-"));
    let nic = both(shown.parent_nic.as_ref(), shown.parent_mac.as_ref());
    lines.add("Parent NIC", &nic);
    let limits = [
        "nodeName",
        "nodeAffinity",
        "namespaceName",
        "namespaceAffinity",
        "podAffinity",
        "multusName",
    ];
    for key in limits {
        // As stored by who fills in every list.
        let says = |value: &&serde_json::Value| !value.is_null() && !is_empty_list(value);
        if shown.spec.get(key).filter(says).is_some() {
            lines.add("Only for", &format!("{key} {}", spec(key)));
        }
    }
    lines.add("Default", &spec("default"));
    lines.add("Created", shown.created.as_deref().unwrap_or("-"));
}

fn is_empty_list(value: &serde_json::Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

fn usage(lines: &mut Lines, shown: &Shown) {
    let (Some(total), Some(used), Some(reserved), Some(free)) =
        (shown.total, shown.used, shown.reserved, shown.free)
    else {
        return;
    };
    let share = percent(shown.permille);
    let text = format!("{used} of {total} used ({share} %), {reserved} reserved, {free} free");
    lines.add("Usage", &text);
    lines.add("Releasing", &shown.releasing.to_string());
}

fn published(lines: &mut Lines, provider: &Provider) {
    let Provider {
        ready,
        generation,
        observed_generation,
        attached,
        unattached,
        reclaiming,
        contradictory,
    } = provider;
    let observed = observed_generation.map_or_else(|| "none".to_owned(), |seen| seen.to_string());
    let ready = if *ready { "yes" } else { "no" };
    let text = format!("ready: {ready}; pool generation {generation}, published for {observed}");
    lines.add("Provider", &text);
    let text = format!(
        "{attached} attached, {unattached} unattached, {reclaiming} reclaiming, {contradictory} contradictory"
    );
    lines.add("Sub-ENIs", &text);
}

impl Shown {
    /// Whether something keeps it from giving addresses.
    pub(crate) fn is_fine(&self) -> bool {
        self.warnings.is_empty()
    }
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, value: &str) {
        self.0
            .push_str(&format!("{:<12}{value}\n", format!("{name}:")));
    }
}

fn word(value: Option<&serde_json::Value>) -> String {
    match value {
        None | Some(serde_json::Value::Null) => "-".to_owned(),
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(serde_json::Value::Array(items)) if items.iter().all(serde_json::Value::is_string) => {
            let words: Vec<&str> = items.iter().filter_map(|item| item.as_str()).collect();
            words.join(", ")
        }
        Some(other) => other.to_string(),
    }
}

fn both(first: Option<&String>, second: Option<&String>) -> String {
    let words: Vec<&str> = first
        .into_iter()
        .chain(second)
        .map(String::as_str)
        .collect();
    if words.is_empty() {
        "-".to_owned()
    } else {
        words.join(" ")
    }
}

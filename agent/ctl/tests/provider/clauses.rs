//! Each check names a clause that is there: a section of docs/provider.md and, for calls, a word of
//! the OpenAPI file. The document lists each check.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::rig::ctl;

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    std::fs::read_to_string(path).unwrap()
}

async fn listed() -> Vec<Value> {
    let words = ["provider", "verify", "--list", "-o", "json"];
    let output = ctl(&words).output().await.unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text<'a>(check: &'a Value, pointer: &str) -> &'a str {
    check.pointer(pointer).unwrap().as_str().unwrap()
}

/// What a clause names that the OpenAPI file does not have. An operation is followed by a status and
/// a code, or by `description`; anything else by names.
fn unknown_in(openapi: &Value, clause: &str) -> Option<String> {
    let mut words = clause.split([' ', '.']);
    let first = words.next().filter(|first| !first.is_empty())?;
    let ipam = "/v1/apis/network.iaas.io/ipam";
    let operations = ["allocate-ips", "release-ip"]
        .map(|path| &openapi["paths"][format!("{ipam}/{path}").as_str()]["post"]);
    let mut of_that_name = operations.into_iter();
    let Some(operation) = of_that_name.find(|operation| operation["operationId"] == first) else {
        let components = &openapi["components"];
        let places = [
            openapi,
            operations[0],
            &components["schemas"],
            &components["parameters"],
        ];
        if places.iter().all(|place| place[first].is_null()) {
            return Some(first.to_owned());
        }
        let all = openapi.to_string();
        let unknown = words.find(|word| !all.contains(&format!("\"{word}\":")));
        return unknown.map(str::to_owned);
    };
    let examples = openapi["components"]["responses"].to_string();
    let is_known = |word: &&str| {
        *word == "description"
            || !operation["responses"][*word].is_null()
            || examples.contains(&format!("\"{word}\""))
    };
    words.find(|word| !is_known(word)).map(str::to_owned)
}

#[tokio::test]
async fn clauses_are_where_a_check_says() {
    let openapi: Value = serde_saphyr::from_str(&document("iaas-provider.openapi.yaml")).unwrap();
    let provider = document("provider.md");
    for check in listed().await {
        let (id, section) = (text(&check, "/check"), text(&check, "/clause/section"));
        let heading = format!("\n## {section}\n");
        assert!(provider.contains(&heading), "{id}: no section {section}");
        let clause = text(&check, "/clause/openapi");
        assert_eq!(unknown_in(&openapi, clause), None, "{id}: {clause}");
    }
    for (clause, unknown) in [
        ("allocateIP 200", "allocateIP"),
        ("allocateIPs 418", "418"),
        ("allocateIPs 400 NoSuchCode", "NoSuchCode"),
        ("SubEniResponse.vlanID5", "vlanID5"),
    ] {
        assert_eq!(unknown_in(&openapi, clause).as_deref(), Some(unknown));
    }
}

#[tokio::test]
async fn the_document_lists_each_check() {
    let provider = document("provider.md");
    let (_, table) = provider.split_once("\n## Checks\n").unwrap();
    let rows = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let told: BTreeSet<(&str, &str)> = rows.collect();
    let listed = listed().await;
    let rows = listed.iter().map(|check| {
        let version = if check["version1"] == true {
            "1, 2"
        } else {
            "2"
        };
        let words = [
            version,
            text(check, "/clause/section"),
            text(check, "/holds"),
        ];
        (text(check, "/check"), words.join(" | ") + " |")
    });
    let wanted: Vec<(&str, String)> = rows.collect();
    let wanted: BTreeSet<(&str, &str)> = wanted
        .iter()
        .map(|(id, rest)| (*id, rest.as_str()))
        .collect();
    let missing: Vec<_> = wanted
        .difference(&told)
        .map(|(id, rest)| format!("| `{id}` | {rest}"))
        .collect();
    let stale: Vec<_> = told.difference(&wanted).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "not in the table:\n{}\nonly there:\n{stale:#?}",
        missing.join("\n")
    );
}

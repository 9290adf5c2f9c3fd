//! Every step that `ipam::plan` exports has its point in the agent, once: a step that is added
//! there and not here fails this test, and the kill matrix (`vm_kill_matrix`) proves that each
//! point is reached.
#![expect(
    clippy::unwrap_used,
    reason = "functions that tests share fail as tests do"
)]

use std::fmt::Debug;
use std::fs;
use std::path::Path;

use spiderpool_ipam::plan::{DelStep, Step};

/// The agent's source without white space: a macro call may be broken over lines.
fn source(dir: &Path, text: &mut String) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source(&path, text);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let file = fs::read_to_string(&path).unwrap();
            text.extend(file.chars().filter(|c| !c.is_whitespace()));
        }
    }
}

#[test]
fn every_step_has_its_point_once() {
    let mut text = String::new();
    source(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut text,
    );
    let points = |name: &str, step: &dyn Debug| text.matches(&format!("{name}!({step:?},")).count();
    for step in Step::ALL {
        assert_eq!(points("add_step", &step), 1, "points of {step:?} of ADD");
    }
    for step in DelStep::ALL {
        assert_eq!(points("del_step", &step), 1, "points of {step:?} of DEL");
    }
}

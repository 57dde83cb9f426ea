//! The corpora, changed at random from a seed: what a fuzzer does, on stable and bounded.
//!
//! `MUTATIONS=1000000 cargo test -p windlass-args --release --test it mutations` runs longer. `SEEDS=folder` writes the
//! corpora out as the files that a fuzzer starts from. What a fuzzer found is kept in `tests/corpus/found`.

use super::mutate::{files, run};
use super::{exercise, table};
use std::path::PathBuf;

#[test]
fn mutated_arguments_hold() {
    let tools = exercise::tools();
    run("arguments", &arguments(), |input| exercise::any_arguments(input, &tools));
}

#[test]
fn mutated_schemas_hold() {
    run("schema", &schemas(), exercise::any_schema);
}

#[test]
fn what_was_found_holds() {
    let tools = exercise::tools();
    let found = |target: &str| files(&corpus().join("found").join(target));
    found("arguments").iter().for_each(|input| exercise::any_arguments(input, &tools));
    found("schema").iter().for_each(|input| exercise::any_schema(input));
}

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

/// Each case with the number of its tool before it.
fn arguments() -> Vec<Vec<u8>> {
    let tools = exercise::tools();
    let number = |tool: &str| tools.keys().position(|name| name == tool).unwrap() as u8;
    let tables = table::read("arguments");
    let cases = tables.iter().flat_map(|table| &table.cases);
    cases.map(|case| [&[number(&case.tool)], case.input.as_bytes()].concat()).collect()
}

fn schemas() -> Vec<Vec<u8>> {
    let mut inputs: Vec<Vec<u8>> = Vec::new();
    let tools: serde_json::Value = serde_json::from_str(include_str!("../../corpus/tools.json")).unwrap();
    inputs.extend(tools.as_object().unwrap().values().map(|tool| tool["schema"].to_string().into_bytes()));
    let tables = table::read("schemas");
    inputs.extend(tables.iter().flat_map(|table| &table.cases).map(|case| case.input.clone().into_bytes()));
    inputs
}

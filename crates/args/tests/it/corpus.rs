//! Hostile and mistaken input, stored with the answer it gets: nothing panics, hangs or grows, and what is told stays.

mod exercise;
mod mutate;
mod mutations;
mod table;

use std::collections::BTreeSet;
use table::{Case, Table};
use windlass_args::canonical;

/// As much of a value as a table shows.
const SHOWN_CHARS: usize = 160;

#[test]
fn arguments_are_answered_as_documented() {
    let tools = exercise::tools();
    let tables = table::read("arguments");
    are_distinct(&tables, 200);
    none_differ(&tables, |case| match exercise::fit(&case.input, &tools[&case.tool]) {
        Ok(fit) => {
            let lines: String = fit.repairs.iter().map(|repair| format!("\n   {repair}")).collect();
            format!("{}{lines}", shortened(&canonical::text(&fit.value)))
        }
        Err(unfit) => format!("{}: {}", unfit.code(), first_line(&unfit.to_string())),
    });
}

#[test]
fn schemas_are_taken_or_refused_as_documented() {
    let tables = table::read("schemas");
    are_distinct(&tables, 60);
    none_differ(&tables, |case| match exercise::compile(&case.input) {
        Ok(schema) => format!("taken, {} nodes", schema.nodes()),
        Err(told) => first_line(&told),
    });
}

fn none_differ(tables: &[Table], answer: impl Fn(&Case) -> String) {
    let differing: Vec<String> = tables.iter().flat_map(|table| table.check(&answer)).collect();
    assert!(differing.is_empty(), "UPDATE=1 writes what is found:\n{}", differing.join("\n"));
}

/// A corpus that repeats itself is smaller than it looks.
fn are_distinct(tables: &[Table], least: usize) {
    let mut inputs = BTreeSet::new();
    for table in tables {
        let mut names = BTreeSet::new();
        for case in &table.cases {
            assert!(names.insert((&case.tool, &case.name)), "{:?} is there twice", case.name);
            assert!(inputs.insert((&case.tool, &case.input)), "the input of {:?} is there twice", case.name);
        }
    }
    assert!(inputs.len() >= least, "{} cases, at least {least}", inputs.len());
}

fn first_line(told: &str) -> String {
    shortened(told.lines().next().unwrap_or_default())
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

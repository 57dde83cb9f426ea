//! Rows of a journal, changed at random: each is read or refused, and what was read is written and read again.
//!
//! `MUTATIONS=1000000 cargo test -p windlass-core --release --test it damaged` runs longer. `SEEDS=folder` writes the golden
//! rows out as the files that a fuzzer starts from. What a fuzzer found is kept in `tests/found`.

mod exercise;
#[path = "../../../args/tests/it/corpus/mutate.rs"]
mod mutate;

use mutate::{files, run};
use std::path::PathBuf;

#[test]
fn mutated_entries_hold() {
    let rows = rows();
    assert!(rows.len() >= 10);
    for row in &rows {
        assert_eq!(exercise::entries(row).ok(), Some(1), "the golden rows are whole");
    }
    run("entries", &rows, exercise::any_entries);
}

#[test]
fn what_was_found_holds() {
    files(&tests().join("found")).iter().for_each(|input| exercise::any_entries(input));
}

fn tests() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// The golden rows, which are kept as hexadecimal digits.
fn rows() -> Vec<Vec<u8>> {
    let digits = files(&tests().join("golden"));
    let row = |digits: &Vec<u8>| {
        let digits: Vec<u8> = digits.iter().copied().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    };
    digits.iter().map(row).collect()
}

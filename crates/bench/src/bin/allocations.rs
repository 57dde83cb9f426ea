//! Prints how many allocations a call in memory makes: the floors, and whole calls. Apart from what takes times,
//! since counting takes time.

use std::error::Error;
use std::io::Write;
use std::time::Duration;
use windlass_bench::allocations::{self, CountingAlloc};
use windlass_bench::floor::{self, ArgumentShape};
use windlass_bench::memory::{self, ArgumentForm, CallLoad};
use windlass_bench::table::aligned;

#[global_allocator]
static ALLOCATOR: &CountingAlloc = allocations::COUNTING;

fn main() -> Result<(), Box<dyn Error>> {
    let span = Duration::ZERO;
    let usual = CallLoad::USUAL;
    let counted = [
        ("floor 1: dyn call, arguments cloned", floor::dyn_call(span)?),
        ("floor 2: lean call, echo", floor::lean_call(span, ArgumentShape::Echo)?),
        ("floor 2: lean call, 40 properties", floor::lean_call(span, ArgumentShape::Wide)?),
        ("whole call, batches of 64 (bar ≤ 30)", memory::calls(span, usual)?),
        ("whole call, batches of 1", memory::calls(span, CallLoad { batch: 1, ..usual })?),
        ("whole call, 40 properties", memory::calls(span, CallLoad { shape: ArgumentShape::Wide, ..usual })?),
        (
            "whole call, arguments as text",
            memory::calls(span, CallLoad { given: ArgumentForm::Text, ..usual })?,
        ),
    ];
    let mut rows = vec![vec![String::new(), "allocations per call".to_owned()]];
    for (name, call) in counted {
        let count = call.allocations.map_or("not counted".to_owned(), |count| format!("{count:.1}"));
        rows.push(vec![name.to_owned(), count]);
    }
    write!(std::io::stdout().lock(), "{}", aligned(&rows))?;
    Ok(())
}

//! Prints how many allocations the floors in memory make per call. Apart from `floors`, since counting takes time.

use std::error::Error;
use std::io::Write;
use std::time::Duration;
use windlass_bench::allocations::{self, CountingAlloc};
use windlass_bench::floor::{self, Shape};
use windlass_bench::table::aligned;

#[global_allocator]
static ALLOCATOR: &CountingAlloc = allocations::COUNTING;

fn main() -> Result<(), Box<dyn Error>> {
    let span = Duration::ZERO;
    let floors = [
        ("1: dyn call, arguments cloned", floor::dyn_call(span)?),
        ("2: lean call, echo", floor::lean_call(span, Shape::Echo)?),
        ("2: lean call, 40 properties", floor::lean_call(span, Shape::Wide)?),
    ];
    let mut rows = vec![vec!["floor".to_owned(), "allocations per call".to_owned()]];
    for (name, call) in floors {
        let count = call.allocations.map_or("not counted".to_owned(), |count| format!("{count:.1}"));
        rows.push(vec![name.to_owned(), count]);
    }
    write!(std::io::stdout().lock(), "{}", aligned(&rows))?;
    Ok(())
}

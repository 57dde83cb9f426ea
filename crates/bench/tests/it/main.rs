//! The floors can be measured. How fast they are is no test's business.

use std::time::Duration;
use windlass_bench::MeasuredRate;
use windlass_bench::allocations::{self, CountingAlloc};
use windlass_bench::floor::{self, ArgumentShape, PerCall};

#[global_allocator]
static ALLOCATOR: &CountingAlloc = allocations::COUNTING;

const SPAN: Duration = Duration::from_millis(5);

/// All in one test: allocations are counted for the whole process, so that nothing may run beside it.
#[test]
fn every_floor_can_be_measured() -> Result<(), floor::FloorError> {
    let folder = tempfile::tempdir()?;
    let dir = folder.path();
    let rates: [(&str, MeasuredRate); 5] = [
        ("fsync", floor::fsync(dir, SPAN)?),
        ("rows", floor::sqlite_rows(dir, 8, SPAN)?),
        ("attempts", floor::sqlite_attempts(dir, 8, SPAN)?),
        ("hand-off", floor::sqlite_handoff(dir, 8, 600, SPAN)?),
        ("hand-off of one", floor::sqlite_handoff(dir, 1, 600, SPAN)?),
    ];
    for (name, rate) in rates {
        assert!(rate.count > 0 && rate.p50 > Duration::ZERO && rate.per_second() > 0.0, "{name}: {rate:?}");
    }
    assert_eq!(std::fs::read_dir(dir)?.count(), 0, "the floors leave nothing behind");

    let calls: [(&str, PerCall); 3] = [
        ("dyn", floor::dyn_call(SPAN)?),
        ("echo", floor::lean_call(SPAN, ArgumentShape::Echo)?),
        ("wide", floor::lean_call(SPAN, ArgumentShape::Wide)?),
    ];
    let counts = calls.map(|(name, call)| {
        assert!(call.rate.p50 > Duration::ZERO, "{name}: {call:?}");
        call.allocations.unwrap_or_else(|| panic!("{name}: not counted"))
    });
    assert!(counts[0] > 1.0 && counts[0] <= counts[1] && counts[1] < counts[2], "{counts:?}");
    Ok(())
}

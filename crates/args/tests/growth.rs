//! Hostile input does not swell the process: what is allocated for an answer grows with the input and no faster.
//!
//! A binary of its own, because it counts what everything in its process allocates; and one test, so that nothing
//! else does. The bytes are the same on every machine, so unlike a time they can be judged anywhere.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "tests stop at the first surprise"
)]

#[allow(dead_code, reason = "each user of the corpora takes its part")]
#[path = "it/schema/hostile/cases.rs"]
mod cases;
#[allow(dead_code, reason = "each user of the corpora takes its part")]
#[path = "it/corpus/exercise.rs"]
mod exercise;
#[allow(dead_code, reason = "each user of the corpora takes its part")]
#[path = "it/corpus/table.rs"]
mod table;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use windlass_args::arguments::{Arguments, Given};
use windlass_args::json;
use windlass_args::limits::ArgLimits;
use windlass_args::repair::{self, ArgumentContract};
use windlass_args::schema::{Schema, SchemaRole};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The maximum allocation of an answer in all, freed or not: a constant for any input, for what is put into
/// words, and a factor for each of its bytes.
///
/// `[],` becomes a value of 32 bytes and its place in a list that doubles as it grows; and a text that does
/// not fit is read twice.
const ALLOCATED_BYTES: u64 = 8 << 20;
const ALLOCATED_PER_BYTE: u64 = 60;

#[test]
fn what_is_allocated_grows_with_the_input_and_no_faster() {
    let limits = ArgLimits::default();
    let (mut counted, mut most) = (0, (0, String::new()));
    let mut judge = |name: String, input: u64, allocated: u64| {
        assert!(
            allocated <= ALLOCATED_BYTES + ALLOCATED_PER_BYTE * input,
            "{name}: {allocated} bytes for {input}"
        );
        counted += 1;
        most = most.clone().max((allocated.saturating_sub(ALLOCATED_BYTES) / input.max(1), name));
    };
    let tools = exercise::tools();
    for case in table::read("arguments").into_iter().flat_map(|table| table.cases) {
        let tool = &tools[&case.tool];
        let wanted = ArgumentContract {
            schema: tool.schema.as_ref(),
            takes_cut_off: tool.takes_cut_off,
            limits: &limits,
        };
        let args = Arguments { given: Given::Text, text: case.input.as_str().into() };
        let allocated = allocated(|| drop(repair::fit(&args, &wanted).map_err(|unfit| unfit.to_string())));
        judge(case.name, case.input.len() as u64, allocated);
    }
    for (name, schema, value, fits) in cases::harmless() {
        let schema = Schema::compile(&schema, SchemaRole::Input, "t", &limits).unwrap();
        let size = json::measure(&value, &limits).unwrap();
        let allocated = allocated(|| assert_eq!(schema.validate(&value, size).is_ok(), fits, "{name}"));
        judge(name.to_string(), size.bytes, allocated);
    }
    println!("{counted} inputs; the most: {most:?} bytes for each byte");
    assert!(counted >= 200);
}

fn allocated(act: impl FnOnce()) -> u64 {
    let region = Region::new(ALLOCATOR);
    act();
    region.change().bytes_allocated as u64
}

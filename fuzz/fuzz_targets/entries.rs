//! Rows of a journal, whole or damaged.
#![no_main]

#[expect(dead_code, reason = "each target uses its part")]
#[path = "../../crates/core/tests/it/damaged/exercise.rs"]
mod exercise;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| exercise::any_entries(data));

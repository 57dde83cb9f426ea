//! Schemas as anybody writes them: guarded, compiled, and values tried on them.
#![no_main]

#[expect(dead_code, reason = "each target uses its part")]
#[path = "../../crates/args/tests/it/corpus/exercise.rs"]
mod exercise;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| exercise::any_schema(data));

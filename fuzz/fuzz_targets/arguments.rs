//! Arguments as a model writes them: parsed, repaired, validated.
#![no_main]

#[expect(dead_code, reason = "each target uses its part")]
#[path = "../../crates/args/tests/it/corpus/exercise.rs"]
mod exercise;

use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;
use std::sync::LazyLock;

static TOOLS: LazyLock<BTreeMap<String, exercise::Tool>> = LazyLock::new(exercise::tools);

fuzz_target!(|data: &[u8]| exercise::any_arguments(data, &TOOLS));

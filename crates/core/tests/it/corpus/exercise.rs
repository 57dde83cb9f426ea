//! What the corpora and the fuzz targets do with hostile input: one copy, so that they cannot drift apart.
//!
//! Each function holds what is promised of any input: it is taken or refused, always in the same way, what is told is
//! short, and what was repaired fits and needs no further repair.

use serde_json::Value;
use std::collections::BTreeMap;
use windlass_core::call::{Arguments, Given};
use windlass_core::entry::{Packer, Unreadable, unpack};
use windlass_core::json;
use windlass_core::limits::Limits;
use windlass_core::repair::{self, Fit, RepairKind, Unfit, Wanted};
use windlass_core::schema::{Role, Schema};
use windlass_core::tool::EffectClass;

/// What may be told of one input, in bytes: ten lines that a person can read.
const TOLD_BYTES_MAX: usize = 16 << 10;

/// A tool of the corpus.
pub struct Tool {
    pub class: EffectClass,
    pub schema: Option<Schema>,
}

/// The tools that arguments are tried on, by name.
pub fn tools() -> BTreeMap<String, Tool> {
    let tools: BTreeMap<String, Value> =
        serde_json::from_str(include_str!("../../corpus/tools.json")).expect("the tools are JSON");
    let compiled = |(name, tool): (String, Value)| {
        let class = tool["class"].as_str().and_then(EffectClass::parse).expect("a tool has a class");
        let schema = match &tool["schema"] {
            Value::Null => None,
            schema => {
                Some(Schema::compile(schema, Role::Input, &name, &Limits::default()).expect("it compiles"))
            }
        };
        (name, Tool { class, schema })
    };
    tools.into_iter().map(compiled).collect()
}

/// Fits a text to a tool, as the raw text of a model.
pub fn fit(text: &str, tool: &Tool) -> Result<Fit, Unfit> {
    let limits = Limits::default();
    let wanted = Wanted { schema: tool.schema.as_ref(), class: tool.class, limits: &limits };
    let args = Arguments { given: Given::Text, text: text.into() };
    let outcome = repair::fit(&args, &wanted);
    assert_eq!(outcome, repair::fit(&args, &wanted), "always the same");
    match &outcome {
        Ok(fit) => {
            assert_eq!(json::measure(&fit.value, &limits), Ok(fit.size));
            assert!(repair::check(&fit.value, fit.size, &wanted).is_ok(), "what runs fits");
            assert!(fit.repairs.len() as u64 <= limits.repairs_max);
            assert!(fit.size.bytes <= text.len() as u64 + 2 * limits.repairs_max + 2, "it did not grow");
            fit.repairs.iter().for_each(|repair| is_short(&repair.to_string(), 1));
            let is_cut = fit.repairs.iter().any(|repair| repair.kind == RepairKind::CutOff);
            assert!(!is_cut || tool.class == EffectClass::Read);
            let again = Arguments { given: Given::Json, text: fit.value.to_string().into() };
            let again = repair::fit(&again, &wanted).expect("what fits, fits");
            assert_eq!((again.value, again.repairs.len()), (fit.value.clone(), 0), "it needs no more repair");
        }
        Err(unfit) => {
            is_short(&unfit.to_string(), 10);
            assert!(repair::repaired(&args, &wanted).is_none());
        }
    }
    outcome
}

/// Compiles a schema that is given as text and tries values on it; what is refused is told.
pub fn compile(text: &str) -> Result<Schema, String> {
    let limits = Limits { args_bytes_max: 4 << 20, args_depth_max: 1_000, ..Limits::default() };
    let source = json::parse(text, &limits).map_err(|problem| problem.to_string())?;
    let compiled = Schema::compile(&source, Role::Input, "t", &Limits::default());
    json::dismantle(source);
    let schema = match compiled {
        Ok(schema) => schema,
        Err(refused) => {
            is_short(&refused.to_string(), 1);
            return Err(refused.to_string());
        }
    };
    let tool = Tool { class: EffectClass::Read, schema: Some(schema) };
    for value in VALUES {
        let _ = fit(value, &tool);
    }
    let _ = fit(&format!("{}{}", "[".repeat(60), "]".repeat(60)), &tool);
    let _ = fit(&format!("{}1{}", "{\"a\":".repeat(60), "}".repeat(60)), &tool);
    tool.schema.ok_or_else(String::new)
}

const VALUES: [&str; 9] = [
    "null",
    "1.5",
    "\"5\"",
    "[]",
    "{}",
    "[1, \"a\", null, [true], {\"a\": 1}]",
    "{\"a\": \"1\", \"A\": null, \"b\": {\"a\": \"true\"}, \"c\": [\"2\"]}",
    "{\"a\": [{\"a\": [{\"a\": \"x\"}]}], \"b\": 1",
    "\"{\\\"a\\\": 1}\"",
];

/// Reads a row of a journal.
pub fn entries(row: &[u8]) -> Result<usize, Unreadable> {
    let entries = unpack(row)?;
    let mut packer = Packer::default();
    entries.iter().for_each(|entry| packer.push(entry));
    assert_eq!(unpack(&packer.finish()).as_ref(), Ok(&entries), "what was read is written and read again");
    Ok(entries.len())
}

fn is_short(told: &str, lines_max: usize) {
    assert!(told.lines().count() <= lines_max, "{} lines: {told}", told.lines().count());
    assert!(told.len() <= TOLD_BYTES_MAX, "{} bytes", told.len());
}

/// The input of the fuzz target for arguments: one byte for the tool, then the text.
pub fn any_arguments(data: &[u8], tools: &BTreeMap<String, Tool>) {
    let Some((which, text)) = data.split_first() else { return };
    let tool = tools.values().nth(usize::from(*which) % tools.len()).expect("there are tools");
    let _ = fit(&String::from_utf8_lossy(text), tool);
}

/// The input of the fuzz target for schemas.
pub fn any_schema(data: &[u8]) {
    let _ = compile(&String::from_utf8_lossy(data));
}

/// The input of the fuzz target for journals.
pub fn any_entries(data: &[u8]) {
    let _ = entries(data);
}

//! The checks of the corpora and the fuzz targets on hostile input: one copy, so that they cannot drift apart.
//!
//! Each function checks the promises for any input: it is taken or refused, always in the same way, messages are short,
//! and repaired arguments fit and need no further repair.

use serde_json::Value;
use std::collections::BTreeMap;
use windlass_args::arguments::{Arguments, Given};
use windlass_args::json;
use windlass_args::limits::ArgLimits;
use windlass_args::repair::{self, ArgumentContract, Fit, RepairKind, Unfit};
use windlass_args::schema::{Schema, SchemaRole};

/// The maximum size of the messages about one input: ten lines that a person can read.
const TOLD_BYTES_MAX: usize = 16 << 10;

/// A tool of the corpus.
pub struct Tool {
    pub takes_cut_off: bool,
    pub schema: Option<Schema>,
}

/// The tools that arguments are tried on, by name.
pub fn tools() -> BTreeMap<String, Tool> {
    let tools: BTreeMap<String, Value> =
        serde_json::from_str(include_str!("../../corpus/tools.json")).expect("the tools are JSON");
    let compiled = |(name, tool): (String, Value)| {
        let takes_cut_off = tool["class"].as_str().expect("a tool has a class") == "read";
        let schema = match &tool["schema"] {
            Value::Null => None,
            schema => Some(
                Schema::compile(schema, SchemaRole::Input, &name, &ArgLimits::default())
                    .expect("it compiles"),
            ),
        };
        (name, Tool { takes_cut_off, schema })
    };
    tools.into_iter().map(compiled).collect()
}

/// Fits a text to a tool, as the raw text of a model.
pub fn fit(text: &str, tool: &Tool) -> Result<Fit, Unfit> {
    let limits = ArgLimits::default();
    let wanted =
        ArgumentContract { schema: tool.schema.as_ref(), takes_cut_off: tool.takes_cut_off, limits: &limits };
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
            assert!(!is_cut || tool.takes_cut_off);
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
    let limits = ArgLimits { args_bytes_max: 4 << 20, args_depth_max: 1_000, ..ArgLimits::default() };
    let source = json::parse(text, &limits).map_err(|problem| problem.to_string())?;
    let compiled = Schema::compile(&source, SchemaRole::Input, "t", &ArgLimits::default());
    json::dismantle(source);
    let schema = match compiled {
        Ok(schema) => schema,
        Err(refused) => {
            is_short(&refused.to_string(), 1);
            return Err(refused.to_string());
        }
    };
    let tool = Tool { takes_cut_off: true, schema: Some(schema) };
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

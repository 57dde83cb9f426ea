//! One call in memory, nothing durable.

use super::{FloorError, apart};
use crate::allocations;
use crate::rate::{Laps, MeasuredRate};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// Calls between two looks at the clock, so that looking costs nothing.
const LAP_CALLS: u64 = 256;

/// Calls of which allocations and instructions are counted.
pub const COUNTED_CALLS: u64 = LAP_CALLS;

/// Properties of [`ArgumentShape::Wide`].
const WIDE_PROPERTIES: usize = 40;

/// The time-out of a lean call: long, since what counts is the cost of having one.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The cost of one call.
#[derive(Clone, Copy, Debug)]
pub struct PerCall {
    /// How many, and the time of one.
    pub rate: MeasuredRate,
    /// How many allocations each makes, where they are counted (see [`allocations`]).
    pub allocations: Option<f64>,
}

/// Which arguments a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentShape {
    /// `{message: string}`, closed.
    Echo,
    /// Forty properties of all types, all required, closed.
    Wide,
}

/// The input schema of the tool that is called.
pub fn schema(shape: ArgumentShape) -> Value {
    let properties: Map<String, Value> = names(shape).map(|(index, name)| (name, property(index))).collect();
    let required: Vec<&String> = properties.keys().collect();
    json!({ "type": "object", "required": required, "properties": properties, "additionalProperties": false })
}

/// Arguments that fit [`schema`].
pub fn args(shape: ArgumentShape) -> Value {
    names(shape).map(|(index, name)| (name, value(index))).collect::<Map<_, _>>().into()
}

/// Floor 1: an async call through `dyn`, with the arguments cloned.
pub fn dyn_call(span: Duration) -> Result<PerCall, FloorError> {
    apart(|| {
        let tool: Box<dyn FloorCall> = Box::new(Echo);
        let args = args(ArgumentShape::Echo);
        measured(span, || async {
            black_box(tool.call(black_box(&args).clone()).await);
            Ok(())
        })
    })
}

/// Floor 2, "lean": look the tool up, validate with a compiled validator, call it under a time-out, and make the
/// text for the model.
pub fn lean_call(span: Duration, shape: ArgumentShape) -> Result<PerCall, FloorError> {
    apart(|| {
        let wrong = |problem: jsonschema::ValidationError<'_>| FloorError::Schema(problem.to_string());
        let validator = jsonschema::validator_for(&schema(shape)).map_err(wrong)?;
        let tools: HashMap<String, FloorTool> =
            HashMap::from([("echo".to_owned(), FloorTool { validator, tool: Box::new(Echo) })]);
        let args = args(shape);
        measured(span, || async {
            let args = black_box(&args).clone();
            let registered =
                tools.get(black_box("echo")).ok_or_else(|| FloorError::Schema("no tool".into()))?;
            registered.validator.validate(&args).map_err(wrong)?;
            let value = tokio::time::timeout(TIMEOUT, registered.tool.call(args)).await;
            let value = value.map_err(|_| FloorError::Schema("the call timed out".into()))?;
            black_box(value.to_string());
            Ok(())
        })
    })
}

/// The cost of one call's arguments as text: serde_json's parse.
pub fn parse(span: Duration) -> Result<PerCall, FloorError> {
    apart(|| {
        let text = args(ArgumentShape::Echo).to_string();
        measured(span, || async {
            let value: Value = serde_json::from_str(black_box(&text))
                .map_err(|problem| FloorError::Schema(problem.to_string()))?;
            black_box(value);
            Ok(())
        })
    })
}

trait FloorCall: Send + Sync {
    fn call(&self, args: Value) -> Pin<Box<dyn Future<Output = Value> + Send + '_>>;
}

/// Returns its message, in an object of its own.
struct Echo;

impl FloorCall for Echo {
    fn call(&self, args: Value) -> Pin<Box<dyn Future<Output = Value> + Send + '_>> {
        Box::pin(async move { echo(&args) })
    }
}

/// The work of the tool, here and in Windlass.
pub(crate) fn echo(args: &Value) -> Value {
    json!({ "message": args["message"] })
}

struct FloorTool {
    validator: jsonschema::Validator,
    tool: Box<dyn FloorCall>,
}

/// Makes one call after the other on a runtime of one thread.
fn measured<F>(span: Duration, call: impl Fn() -> F) -> Result<PerCall, FloorError>
where
    F: Future<Output = Result<(), FloorError>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime
        .block_on(async {
            let mut laps = Laps::start(span);
            while laps.more() {
                let began = Instant::now();
                for _ in 0..LAP_CALLS {
                    call().await?;
                }
                laps.note(began);
            }
            Ok::<_, FloorError>(laps)
        })
        .and_then(|laps| {
            let mut rate = laps.rate(LAP_CALLS);
            rate.p50 /= LAP_CALLS as u32;
            // Apart from the laps, whose own list grows.
            let (called, counted) = allocations::during(|| {
                runtime.block_on(async {
                    for _ in 0..COUNTED_CALLS {
                        call().await?;
                    }
                    Ok::<_, FloorError>(())
                })
            });
            called?;
            Ok(PerCall { rate, allocations: counted.map(|count| count as f64 / COUNTED_CALLS as f64) })
        })
}

/// The properties by index; the first is what the tool returns.
fn names(shape: ArgumentShape) -> impl Iterator<Item = (usize, String)> {
    let count = match shape {
        ArgumentShape::Echo => 1,
        ArgumentShape::Wide => WIDE_PROPERTIES,
    };
    (0..count)
        .map(|index| (index, if index == 0 { "message".to_owned() } else { format!("property_{index:02}") }))
}

fn property(index: usize) -> Value {
    match index % 5 {
        0 => json!({ "type": "string" }),
        1 => json!({ "type": "integer", "minimum": 0, "maximum": 1_000 }),
        2 => json!({ "type": "boolean" }),
        3 => json!({ "type": "array", "items": { "type": "string" }, "maxItems": 8 }),
        _ => json!({ "enum": ["low", "middle", "high"] }),
    }
}

fn value(index: usize) -> Value {
    match index % 5 {
        0 => json!("a message of ordinary length"),
        1 => json!(index),
        2 => json!(true),
        3 => json!(["one", "two"]),
        _ => json!("middle"),
    }
}

//! Part A: whole calls in memory, nothing durable.
//!
//! Everything is on: identity, journal, validation, claims, limits, projection. What the floor does inside its loop
//! (cloning the arguments) is inside ours too; the rest of a request is made before, as a model's turn is.

use crate::BenchError;
use crate::allocations;
use crate::floor::{self, ArgumentShape, PerCall, apart, echo};
use crate::rate::{Laps, in_turn};
use crate::report::{Bar, Figure, FigureTable, Unit};
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::{Duration, Instant};
use windlass::policy::NewPolicy;
use windlass::store::MemoryStore;
use windlass::{
    Args, BatchRequest, CallRequest, Config, EffectClass, Flags, Output, Runtime, Tool, ToolSpec, tool_fn,
};

/// Calls between two looks at the clock, as in the floors: a lap fits between two interruptions.
const LAP_CALLS: u64 = 256;

/// Laps that one store keeps: enough that its first pages do not count.
const STORE_LAPS: usize = 16;

/// Calls of which allocations and instructions are counted.
pub const COUNTED_CALLS: u64 = STORE_LAPS as u64 * LAP_CALLS;

/// Batches that follow each other with different arguments: more than the longest cycle that counts as a loop.
const ARGS: u32 = 8;

/// The submitted load.
#[derive(Clone, Copy, Debug)]
pub struct CallLoad {
    /// With which arguments.
    pub shape: ArgumentShape,
    /// How many in one batch.
    pub batch: usize,
    /// In which form.
    pub given: ArgumentForm,
    /// Whether under a policy of 100 rules.
    pub under_policy: bool,
}

/// Rules of a policy, of which three name the tool: one matches and allows, two look at its arguments and do not match.
const RULES: usize = 100;

impl CallLoad {
    /// Batches of 64 calls with parsed arguments, without a policy.
    pub const USUAL: CallLoad =
        CallLoad { shape: ArgumentShape::Echo, batch: 64, given: ArgumentForm::Json, under_policy: false };
}

/// The form in which arguments are given.
#[derive(Clone, Copy, Debug)]
pub enum ArgumentForm {
    /// Parsed.
    Json,
    /// As text.
    Text,
}

/// Every figure of the part, each for so long. `tell` is told what is being measured.
pub fn table(span: Duration, tell: &mut (dyn FnMut(&str) + Send)) -> Result<FigureTable, BenchError> {
    let usual = CallLoad::USUAL;
    let mut lines = Vec::new();
    let mut line = |what: &str, asked: CallLoad, most: f64| {
        tell(what);
        let floor = |span| Ok(nanoseconds(floor::lean_call(span, asked.shape)?));
        let (floor, ours) =
            in_turn(span, floor, |span| Ok::<_, BenchError>(nanoseconds(calls(span, asked)?)))?;
        lines.push(Figure::against(what, ours, Unit::Nanoseconds, floor, Bar::AtMost(most)));
        Ok::<_, BenchError>(())
    };
    line("a call, in batches of 64", usual, 3.5)?;
    line("a call, alone in its batch", CallLoad { batch: 1, ..usual }, 6.0)?;
    line("a call with 40 arguments to check", CallLoad { shape: ArgumentShape::Wide, ..usual }, 1.6)?;
    let what = "more, if its arguments come as text";
    tell(what);
    let floor = |span| Ok(nanoseconds(floor::parse(span)?));
    let (floor, on_top) = in_turn(span, floor, |span| {
        let text = CallLoad { given: ArgumentForm::Text, ..usual };
        Ok::<_, BenchError>(nanoseconds(calls(span / 2, text)?) - nanoseconds(calls(span / 2, usual)?))
    })?;
    lines.push(Figure::against(what, on_top, Unit::Nanoseconds, floor, Bar::AtMost(1.5)));
    let title =
        "A. Time of one call in memory, nothing on disk; the floor does the same work without Windlass"
            .to_owned();
    Ok(FigureTable { title, lines })
}

/// Whole calls, one batch after the other, on a runtime of one thread.
pub fn calls(span: Duration, asked: CallLoad) -> Result<PerCall, BenchError> {
    apart(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let args = varied(asked.shape);
        let mut rate = runtime.block_on(async {
            let mut laps = Laps::start(span);
            while laps.more() {
                let (windlass, mut requests) = fresh(asked).await?;
                while !requests.is_empty() {
                    let rest = requests.split_off(requests.len().min(LAP_CALLS as usize / asked.batch));
                    let began = Instant::now();
                    lap(&windlass, requests, &args, asked.given).await?;
                    laps.note(began);
                    requests = rest;
                }
            }
            Ok::<_, BenchError>(laps.rate(LAP_CALLS))
        })?;
        rate.p50 /= LAP_CALLS as u32;
        let (windlass, requests) = runtime.block_on(fresh(asked))?;
        let calls = (requests.len() * asked.batch) as f64;
        let (called, counted) =
            allocations::during(|| runtime.block_on(lap(&windlass, requests, &args, asked.given)));
        called?;
        Ok(PerCall { rate, allocations: counted.map(|count| count as f64 / calls) })
    })
}

/// A store of its own for a few laps, since it keeps everything; and their batches, each with a key of its own, so
/// that nothing is answered from the record.
async fn fresh(asked: CallLoad) -> Result<(Runtime, Vec<BatchRequest>), BenchError> {
    let windlass = Runtime::new(Config::new(MemoryStore::new()?));
    windlass.register(tool(asked.shape))?;
    if asked.under_policy {
        windlass.set_policy(NewPolicy { rules: rules(), by: "bench".to_owned(), version: None }).await?;
    }
    let call = |place: usize| CallRequest {
        id: Some(format!("call_{place:04}")),
        tool: "echo".to_owned(),
        ..CallRequest::default()
    };
    let batches = STORE_LAPS * LAP_CALLS as usize / asked.batch;
    // The first one opens the session.
    let mut requests = (0..=batches).map(|batch| BatchRequest {
        key: Some(format!("batch-{batch}")),
        calls: (0..asked.batch).map(call).collect(),
        ..BatchRequest::default()
    });
    let args = varied(asked.shape);
    lap(&windlass, requests.next(), &args, asked.given).await?;
    Ok((windlass, requests.collect()))
}

/// The rules of a policy that allows the calls.
fn rules() -> Vec<Value> {
    let others = (3..RULES).map(|rule| {
        let when = json!({"tool": format!("tool_{rule}"), "args": [{"pointer": "/path", "prefix": "/etc/"}]});
        json!({"name": format!("rule {rule}"), "ruling": "deny", "when": when})
    });
    let named = [
        json!({"name": "commands", "ruling": "deny", "when": {"tool": "echo", "args": [{"pointer": "/message", "prefix": "rm "}]}}),
        json!({"name": "passwords", "ruling": "ask", "when": {"tool": "echo", "args": [{"pointer": "/message", "glob": "*password*"}]}}),
        json!({"name": "echo", "ruling": "allow", "when": {"tool": "echo"}}),
    ];
    named.into_iter().chain(others).collect()
}

/// Arguments, parsed and as text. Those of one batch are the same; so many that follow each other differ, since the same
/// over and over is no work but a loop, and would be answered as one.
fn varied(shape: ArgumentShape) -> Vec<(Value, String)> {
    let message = |number: u32| {
        let mut args = floor::args(shape);
        args["message"] = format!("a message of ordinary size {number}").into();
        args
    };
    (0..ARGS).map(message).map(|args| (args.clone(), args.to_string())).collect()
}

fn tool(shape: ArgumentShape) -> impl Tool {
    let spec = ToolSpec {
        name: "echo".to_owned(),
        input_schema: Some(floor::schema(shape)),
        class: Some(EffectClass::Read),
        flags: Flags { quick: true, ..Flags::default() },
        ..ToolSpec::default()
    };
    tool_fn(spec, |args, _| async move { Ok(Output::from(echo(&args))) })
}

async fn lap(
    windlass: &Runtime,
    requests: impl IntoIterator<Item = BatchRequest>,
    args: &[(Value, String)],
    given: ArgumentForm,
) -> Result<(), BenchError> {
    for (mut request, (value, text)) in requests.into_iter().zip(args.iter().cycle()) {
        for call in &mut request.calls {
            call.args = match given {
                ArgumentForm::Json => Args::Json(black_box(value).clone()),
                ArgumentForm::Text => Args::Text(black_box(text).clone()),
            };
        }
        let answer = windlass.submit("bench", request).await?.settled().await?;
        if let Some(call) = answer.calls.iter().find(|call| call.state() != "succeeded" || call.is_recorded())
        {
            return Err(BenchError::Wrong(format!("{} is {}", call.id(), call.state())));
        }
        black_box(answer);
    }
    Ok(())
}

fn nanoseconds(call: PerCall) -> f64 {
    call.rate.p50.as_nanos() as f64
}

//! Tools made of typed functions.

use crate::rig::{memory, one};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use windlass::{Cx, EffectClass, Output, Tool, ToolError, ToolSpec, tool, typed_fn};

/// The charge.
#[derive(Deserialize, JsonSchema)]
struct Charge {
    /// In cents.
    cents: u32,
    note: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Receipt {
    charged: u32,
    key: String,
}

/// Charges the customer's card.
///
/// Use it only after the order
/// is confirmed:
/// - once per order
/// - never for a quote
#[tool(class = "keyed", title = "Charge", claims = ["write card:{cents}"], timeout_ms = 5_000, retry(attempts = 2, cap_ms = 9))]
async fn charge(args: Charge, cx: &Cx) -> Result<Receipt, ToolError> {
    if args.note.as_deref() == Some("stolen") {
        return Err(ToolError::new("The card was refused."));
    }
    Ok(Receipt { charged: args.cents, key: cx.idempotency_key() })
}

/// Adds two numbers.
#[tool(class = "read", name = "plus", quick, destructive = false, per_minute = 60)]
async fn add(
    /// The first.
    a: i64,
    b: i64,
    #[serde(default)] times: Option<u8>,
) -> i64 {
    (a + b) * i64::from(times.unwrap_or(1))
}

/// Counts its calls.
#[tool(background, claims = [], inline_ms = 50)]
async fn count(#[state] calls: &AtomicU64) -> Result<Output, ToolError> {
    Ok(json!(calls.fetch_add(1, Ordering::Relaxed) + 1).into())
}

/// Reads a number from text.
#[tool(class = "read")]
async fn number(text: String, deny: bool) -> Result<u64, ToolError> {
    if deny {
        return Err(ToolError::new("Not this one."));
    }
    Ok(text.trim().parse::<u64>()?)
}

#[tokio::test]
async fn a_function_is_described_by_its_types_and_comments() {
    let spec = charge().spec();
    assert_eq!((&*spec.name, &*spec.title, spec.class), ("charge", "Charge", Some(EffectClass::Keyed)));
    assert_eq!(
        spec.description,
        "Charges the customer's card.\n\nUse it only after the order is confirmed:\n- once per order\n- never for a quote"
    );
    assert_eq!(spec.deadlines.attempt_ms, Some(5_000));
    assert_eq!((spec.retry.attempts, spec.retry.cap_ms), (Some(2), Some(9)));
    assert_eq!(spec.claims, Some(vec!["write card:{cents}".to_owned()]));
    insta::assert_snapshot!(format!("{:#}\n{:#}", spec.input_schema.unwrap(), spec.output_schema.unwrap()));
    let spec = add().spec();
    assert!(spec.flags.quick && spec.hints.destructive == Some(false));
    assert_eq!((&*spec.name, spec.rate), ("plus", Some((60, 60_000))));
    insta::assert_snapshot!(format!("{:#}\n{:#}", spec.input_schema.unwrap(), spec.output_schema.unwrap()));
    let spec = count(AtomicU64::new(0)).spec();
    assert!(spec.flags.background && spec.claims == Some(Vec::new()) && spec.output_schema.is_none());
}

#[tokio::test]
async fn a_function_is_called_with_typed_arguments() {
    let runtime = memory();
    runtime.register(charge()).unwrap();
    runtime.register(add()).unwrap();
    runtime.register(count(AtomicU64::new(7))).unwrap();
    runtime.register(number()).unwrap();
    let answer = one(&runtime, "charge", json!({"cents": 1250})).await;
    assert_eq!(answer["outcome"]["value"]["charged"], 1250, "{answer}");
    let answer = one(&runtime, "charge", json!({"cents": 1, "note": "stolen"})).await;
    assert_eq!(answer["outcome"]["failure"]["message"], "The card was refused.");
    let answer = one(&runtime, "charge", json!({"cents": 1, "tip": 3})).await;
    assert_eq!(
        answer["outcome"]["failure"]["code"], "invalid_args",
        "a property that is not there is told: {answer}"
    );
    assert_eq!(one(&runtime, "plus", json!({"a": 2, "b": 3, "times": 10})).await["outcome"]["value"], 50);
    assert_eq!(one(&runtime, "count", json!({})).await["outcome"]["value"], 8);
}

#[tokio::test]
async fn an_ordinary_error_is_hidden_from_the_model_and_a_tool_error_is_not() {
    let runtime = memory();
    runtime.register(number()).unwrap();
    assert_eq!(one(&runtime, "number", json!({"text": " 7 ", "deny": false})).await["outcome"]["value"], 7);
    let told = one(&runtime, "number", json!({"text": "x", "deny": true})).await;
    assert_eq!(told["outcome"]["failure"]["message"], "Not this one.");
    let hidden = one(&runtime, "number", json!({"text": "x", "deny": false})).await;
    assert_eq!(hidden["outcome"]["failure"]["class"], "internal", "{hidden}");
    let model = hidden["model"].to_string();
    assert!(!model.contains("digit"), "what the library said is for operators: {model}");
}

#[test]
fn errors_of_the_context_keep_what_they_say() {
    let failed: ToolError = windlass::error::StepError::Failed(ToolError::new("The step failed.")).into();
    assert_eq!(failed.message, "The step failed.");
    let io: ToolError = std::io::Error::other("disk on fire").into();
    assert_eq!((io.message.as_str(), io.detail.as_deref()), ("", Some("disk on fire")));
    let _: Value = json!(null);
}

async fn plain_charge(args: Charge, cx: &Cx) -> Result<Receipt, ToolError> {
    // Borrowed across an await.
    tokio::task::yield_now().await;
    if args.note.as_deref() == Some("stolen") {
        return Err(ToolError::new("The card was refused."));
    }
    Ok(Receipt { charged: args.cents, key: cx.id().to_string() })
}

async fn whole(args: Value, cx: &Cx) -> Result<Output, ToolError> {
    tokio::task::yield_now().await;
    Ok(json!({ "session": cx.session(), "args": args }).into())
}

async fn parses(args: Value, _: &Cx) -> Result<u64, std::num::ParseIntError> {
    args["text"].as_str().unwrap_or("").parse()
}

#[tokio::test]
async fn an_async_function_is_a_tool_without_the_macro() {
    let named = |name: &str| ToolSpec {
        name: name.into(),
        class: Some(EffectClass::Read),
        claims: Some(vec![]),
        ..ToolSpec::default()
    };
    let runtime = memory();
    let charge = typed_fn(named("charge"), plain_charge);
    assert_eq!(charge.spec().input_schema.unwrap()["additionalProperties"], false);
    assert_eq!(charge.spec().output_schema.unwrap()["required"], json!(["charged", "key"]));
    runtime.register(charge).unwrap();
    assert_eq!(typed_fn(named("whole"), whole).spec().output_schema, None);
    runtime.register(typed_fn(named("whole"), whole)).unwrap();
    runtime.register(typed_fn(named("parses"), parses)).unwrap();

    let answer = one(&runtime, "charge", json!({"cents": 1250})).await;
    assert_eq!(answer["outcome"]["value"], json!({"charged": 1250, "key": "c"}), "{answer}");
    let refused = one(&runtime, "charge", json!({"cents": 1, "note": "stolen"})).await;
    assert_eq!(refused["outcome"]["failure"]["message"], "The card was refused.");
    let wrong = one(&runtime, "charge", json!({"cents": 1, "tip": 3})).await;
    assert_eq!(wrong["outcome"]["failure"]["code"], "invalid_args", "{wrong}");
    let answer = one(&runtime, "whole", json!({"a": 1})).await;
    assert_eq!(answer["outcome"]["value"]["args"], json!({"a": 1}), "{answer}");
    let hidden = one(&runtime, "parses", json!({"text": "x"})).await;
    assert_eq!(hidden["outcome"]["failure"]["class"], "internal", "{hidden}");
}

//! Budgets of answers: of a call, of its tool, of its session; the one that counts is recorded.

use crate::rig::{batch, call, die_in_an_attempt, hanging, memory, reopen, returns, run, spec, states};
use serde_json::json;
use std::sync::Arc;
use windlass::limits::SessionLimits;
use windlass::{AnswerBudget, CallRequest, EffectClass, Runtime, ToolSpec};

fn bytes(max: u64) -> AnswerBudget {
    AnswerBudget { bytes_max: Some(max), ..AnswerBudget::default() }
}

/// A tool that returns 9,000 lines of 10 bytes.
fn long(name: &str, answer: AnswerBudget) -> ToolSpec {
    ToolSpec { answer, ..spec(name, EffectClass::Keyed) }
}

fn told() -> Result<serde_json::Value, windlass::ToolError> {
    Ok(json!("ten bytes\n".repeat(9_000)))
}

/// The length of the model's view, without the part that says how to read on.
fn shown(answer: &windlass::BatchAnswer) -> usize {
    let parts = &answer.calls[0].call().end().expect("it has ended").model().parts;
    parts.first().and_then(|part| part.text()).expect("text").len()
}

async fn shown_of(runtime: &Runtime, session: &str, key: &str, asked: CallRequest) -> usize {
    let answer = run(runtime, session, batch(key, vec![asked])).await;
    assert_eq!(states(&answer), "c succeeded");
    shown(&answer)
}

#[tokio::test]
async fn the_call_counts_before_its_tool_and_its_tool_before_its_session() {
    let runtime = memory();
    runtime.register(returns(long("plain", AnswerBudget::default()), told())).unwrap();
    runtime.register(returns(long("brief", bytes(2_000)), told())).unwrap();
    let limits = SessionLimits { answer_bytes_max: Some(4_000), ..SessionLimits::default() };
    runtime.limit_session("bounded", limits).await.unwrap();
    let asked = |tool: &str, answer| CallRequest { answer, ..call("c", tool, json!({})) };
    let none = AnswerBudget::default();
    let more = AnswerBudget { bytes_max: Some(100_000), lines_max: Some(20_000) };
    let few = AnswerBudget { lines_max: Some(10), ..AnswerBudget::default() };
    for (session, tool, answer, range) in [
        ("free", "plain", none, 15_000..=20_100),
        ("bounded", "plain", none, 3_000..=4_000),
        ("bounded", "brief", none, 1_500..=2_000),
        ("bounded", "brief", bytes(1_000), 500..=1_000),
        ("bounded", "brief", more, 90_000..=90_000),
        ("free", "brief", few, 50..=300),
    ] {
        let key = format!("{tool} {answer:?}");
        let shown = shown_of(&runtime, session, &key, asked(tool, answer)).await;
        assert!(range.contains(&shown), "{session} {tool} {answer:?}: {shown}");
    }
}

#[tokio::test]
async fn a_call_keeps_its_budget_over_a_restart_whatever_others_say_then() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let request = || batch("k", vec![call("c", "t", json!({}))]);
    die_in_an_attempt(&folder, request(), |config, begun| {
        let runtime = Runtime::new(config);
        runtime.register(hanging(long("t", bytes(2_000)), begun)).unwrap();
        runtime
    })
    .await;
    let runtime = reopen(&folder);
    // Its contract is unchanged, so the call goes on with it.
    runtime.register(returns(long("t", bytes(10_000)), told())).unwrap();
    let answer = run(&runtime, "s", request()).await;
    assert_eq!(states(&answer), "c succeeded");
    assert!((1_500..=2_000).contains(&shown(&answer)), "{}", shown(&answer));
    // And the recorded answer is never made anew.
    let said = answer.calls[0].model_text();
    runtime.replace(returns(long("t", bytes(600)), told())).unwrap();
    assert_eq!(run(&runtime, "s", request()).await.calls[0].model_text(), said);
}

#[tokio::test]
async fn a_session_keeps_its_budget_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let limits = SessionLimits { answer_bytes_max: Some(1_000), ..SessionLimits::default() };
    reopen(&folder).limit_session("s", limits).await.unwrap();
    let runtime = reopen(&folder);
    runtime.register(returns(long("t", AnswerBudget::default()), told())).unwrap();
    let shown = shown_of(&runtime, "s", "k", call("c", "t", json!({}))).await;
    assert!(shown <= 1_000, "{shown}");
}

#[tokio::test]
async fn a_budget_that_nobody_could_keep_is_refused_wherever_it_is_given() {
    let runtime = memory();
    let small = "answer_bytes_max is 511; give 512 to 1048576, or leave it out for the default";
    let asked = CallRequest { answer: bytes(511), ..call("c", "t", json!({})) };
    let refused = runtime.submit("s", batch("k", vec![asked])).await.map(drop).unwrap_err();
    assert!(refused.to_string().ends_with(&format!("calls[0]: {small}")), "{refused}");
    let limits = SessionLimits { answer_bytes_max: Some(511), ..SessionLimits::default() };
    assert_eq!(runtime.limit_session("s", limits).await.unwrap_err().to_string(), small);
    let many = AnswerBudget { lines_max: Some(50_001), ..AnswerBudget::default() };
    let refused = runtime.register(returns(long("t", many), told())).unwrap_err().to_string();
    assert!(refused.contains("answer_lines_max") && refused.contains("50001"), "{refused}");
}

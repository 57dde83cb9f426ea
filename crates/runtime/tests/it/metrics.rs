//! Metrics of calls, and their spans.

use crate::rig::{Count, batch, call, echo, memory, n, quick, returns, run, spec};
use std::collections::BTreeMap;
use windlass::trace::TraceSpan;
use windlass::{EffectClass, RetryRule, Runtime, ToolError, ToolSpec};

/// The series that are not zero, but for histograms' buckets and sums.
fn series(runtime: &Runtime) -> BTreeMap<String, u64> {
    let text = runtime.metrics();
    let is_count = |line: &&str| !["#", "windlass_commits"].iter().any(|begin| line.starts_with(begin));
    let lines =
        text.lines().filter(is_count).filter(|line| !line.contains("_bucket") && !line.contains("_sum"));
    let read = lines.map(|line| line.rsplit_once(' ').expect("a name and a number"));
    let counts = read.map(|(name, count)| (name.to_string(), count.parse().expect("a number")));
    counts.filter(|(_, count)| *count > 0).collect()
}

fn busy() -> ToolSpec {
    let retry = RetryRule { attempts: Some(2), base_ms: Some(1), ..RetryRule::default() };
    ToolSpec { retry, ..spec("busy", EffectClass::Read) }
}

#[tokio::test]
async fn calls_are_counted_by_tool_and_by_how_they_end() {
    let runtime = memory();
    runtime.register(echo(quick("read", EffectClass::Read), &Count::default())).unwrap();
    runtime.register(returns(busy(), Err(ToolError::new("busy").safe_to_retry()))).unwrap();
    let made_up = call("4", "made_up", n(4));
    let calls = vec![call("1", "read", n(1)), call("2", "read", n(2)), call("3", "busy", n(3)), made_up];
    run(&runtime, "s", batch("k", calls)).await;
    // What takes a tool's place goes on where it was.
    runtime.replace(echo(quick("read", EffectClass::Read), &Count::default())).unwrap();
    run(&runtime, "s", batch("k2", vec![call("1", "read", n(5))])).await;
    let _reader = runtime.events("s", None).await.unwrap();
    let told: Vec<String> = series(&runtime).iter().map(|(name, count)| format!("{name} {count}")).collect();
    insta::assert_snapshot!(told.join("\n"));
    let text = runtime.metrics();
    let buckets =
        text.lines().filter(|line| line.starts_with("windlass_call_run_seconds_bucket{tool=\"busy\""));
    let counts: Vec<u64> = buckets.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert!(counts.len() == 12 && counts.is_sorted() && counts.last() == Some(&1), "{counts:?}");
}

#[tokio::test]
async fn spans_are_given_to_one_and_dropped_beyond_what_waits() {
    let runtime = memory();
    runtime.register(echo(quick("read", EffectClass::Read), &Count::default())).unwrap();
    let mut spans = runtime.spans(3, false).unwrap();
    assert!(runtime.spans(3, false).is_none(), "somebody has them");
    let calls = vec![call("1", "read", n(1)), call("2", "made_up", n(2)), call("3", "read", n(3))];
    run(&runtime, "s", batch("k", calls)).await;
    let TraceSpan::Attempt(attempt) = spans.recv().await.unwrap() else { panic!() };
    let TraceSpan::Call(first) = spans.recv().await.unwrap() else { panic!() };
    let TraceSpan::Call(second) = spans.recv().await.unwrap() else { panic!() };
    assert_eq!((attempt.trace, attempt.parent, attempt.end), (first.trace, first.span, "returned"));
    assert_eq!((&*first.id, first.state, first.code, first.attempts), ("1", "succeeded", None, 1));
    let failed = ("2", "failed", Some("no_such_tool"), 0);
    assert_eq!((&*second.id, second.state, second.code, second.attempts), failed);
    assert_eq!((first.trace, first.contents.is_none()), (second.trace, true));
    assert_eq!(series(&runtime)["windlass_spans_lost_total"], 2);
}

//! Which tools are taken.

use crate::rig::{memory, returns, spec};
use serde_json::json;
use windlass::tool::{Reconciled, with_reconcile};
use windlass::{Deadlines, EffectClass, Flags, RetryRule, ToolSpec};

fn named(name: &str) -> ToolSpec {
    spec(name, EffectClass::Read)
}

#[tokio::test]
async fn names_that_cannot_be_told_apart_are_refused() {
    let runtime = memory();
    runtime.register(returns(named("read_file"), Ok(json!(1)))).unwrap();
    for name in ["read_file", "Read-File", "READ_FILE"] {
        let refused = runtime.register(returns(named(name), Ok(json!(1)))).unwrap_err().to_string();
        assert!(refused.contains("\"read_file\""), "{refused}");
    }
    let same_id = ToolSpec { id: "read_file".into(), ..named("other") };
    assert!(runtime.register(returns(same_id, Ok(json!(1)))).is_err());
    assert!(runtime.register(returns(named("no spaces"), Ok(json!(1)))).is_err());
}

#[tokio::test]
async fn tools_are_listed_replaced_and_removed() {
    let runtime = memory();
    for name in ["zeta", "alpha", "midway"] {
        runtime.register(returns(named(name), Ok(json!(1)))).unwrap();
    }
    let listed = || runtime.tools().iter().map(|tool| tool.summary.name.clone()).collect::<Vec<_>>();
    assert_eq!(listed(), ["alpha", "midway", "zeta"]);
    let second = ToolSpec { version: "2".into(), id: "other-id".into(), ..named("alpha") };
    let old = runtime.replace(returns(second, Ok(json!(2)))).unwrap().unwrap();
    assert_eq!(old.spec.version, "");
    assert_eq!(runtime.unregister("alpha").unwrap().spec.version, "2");
    assert!(runtime.unregister("alpha").is_none());
    assert_eq!(listed(), ["midway", "zeta"]);
    runtime.register(returns(ToolSpec { id: "other-id".into(), ..named("beta") }, Ok(json!(1)))).unwrap();
}

#[tokio::test]
async fn a_schema_that_is_refused_is_named() {
    let runtime = memory();
    let bad = ToolSpec { input_schema: Some(json!({"type": "objekt"})), ..named("bad") };
    let refused = runtime.register(returns(bad, Ok(json!(1)))).unwrap_err().to_string();
    assert!(
        refused.contains("input schema") && refused.contains("bad") && refused.contains("/type"),
        "{refused}"
    );
    let outside = ToolSpec { output_schema: Some(json!({"$ref": "http://example.com/x"})), ..named("bad") };
    let refused = runtime.register(returns(outside, Ok(json!(1)))).unwrap_err().to_string();
    assert!(refused.contains("output schema"), "{refused}");
    assert!(runtime.tools().is_empty());
}

#[tokio::test]
async fn flags_that_contradict_each_other_are_refused() {
    let flags = Flags { quick: true, cpu_bound: true, ..Flags::default() };
    let refused = memory().register(returns(ToolSpec { flags, ..named("both") }, Ok(json!(1)))).unwrap_err();
    assert!(refused.to_string().contains("quick"), "{refused}");
}

#[tokio::test]
async fn numbers_that_make_no_sense_are_refused_and_named() {
    let deadlines = |queue_ms, attempt_ms, silence_ms, total_ms| ToolSpec {
        deadlines: Deadlines { queue_ms, attempt_ms, silence_ms, total_ms },
        ..named("x")
    };
    let retry =
        |attempts, base_ms, cap_ms| ToolSpec { retry: RetryRule { attempts, base_ms, cap_ms }, ..named("x") };
    let refused = [
        (retry(Some(0), None, None), "retry.attempts = 0"),
        (retry(None, Some(11), Some(10)), "retry.base_ms = 11"),
        (deadlines(Some(0), None, None, None), "deadlines.queue_ms = 0"),
        (deadlines(None, Some(0), None, None), "deadlines.attempt_ms = 0"),
        (deadlines(None, None, Some(0), None), "deadlines.silence_ms = 0"),
        (deadlines(None, None, None, Some(0)), "deadlines.total_ms = 0"),
    ];
    for (spec, place) in refused {
        let error = memory().register(returns(spec, Ok(json!(1)))).unwrap_err().to_string();
        assert!(error.contains(place) && error.contains("\"x\""), "{error}");
    }
    let taken = [
        retry(Some(1), Some(0), Some(0)),
        retry(None, Some(60_000), None),
        deadlines(Some(1), Some(50), Some(60), Some(2)),
        deadlines(Some(u64::MAX), Some(u64::MAX), None, Some(u64::MAX)),
        ToolSpec { grace_ms: Some(0), ..named("x") },
    ];
    for spec in taken {
        let runtime = memory();
        runtime.register(returns(spec, Ok(json!(1)))).unwrap();
    }
}

#[tokio::test]
async fn what_a_call_needs_of_a_tool_is_known_when_it_is_registered() {
    let runtime = memory();
    let own = Deadlines { attempt_ms: Some(7), ..Deadlines::default() };
    runtime.register(returns(named("plain"), Ok(json!(1)))).unwrap();
    let asked = returns(ToolSpec { deadlines: own, ..named("asked") }, Ok(json!(1)));
    runtime.register(with_reconcile(asked, |_, _| async { Ok(Reconciled::Unknown) })).unwrap();
    let known = runtime.tools().into_iter().filter_map(|listed| listed.tool);
    let known: Vec<_> = known.map(|tool| (tool.rules.attempt_ms, tool.reconciles)).collect();
    assert_eq!(known, [(7, true), (30_000, false)]);
}

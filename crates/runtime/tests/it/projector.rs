//! Projectors: what they make of an end is recorded with it; one that fails is as if it were not there.

use crate::rig::{batch, call, run};
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass::outcome::{ModelAnswer, Outcome, Part};
use windlass::store::memory::MemoryStore;
use windlass::tool::{ProjectedCall, Projector};
use windlass::{Config, EffectClass, Runtime, ToolError, ToolSpec, tool_fn};
use windlass_testkit::clock::ManualClock;

/// Does what the argument `how` says.
#[derive(Default)]
struct Shaping {
    asked: AtomicU64,
}

impl Projector for Shaping {
    fn project(&self, ended: &ProjectedCall<'_>) -> Result<Option<ModelAnswer>, ToolError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let told = |text: String| Ok(Some(ModelAnswer { parts: vec![Part::Text(text)], is_error: false }));
        let state = if let Outcome::Succeeded(_) = ended.outcome { "succeeded" } else { "failed" };
        match ended.args {
            r#"{"how":"shape"}"# => told(format!("{} {} {state}", ended.session, ended.tool)),
            r#"{"how":"fail"}"# => Err(ToolError::new("It cannot.")),
            r#"{"how":"panic"}"# => panic!("it panics"),
            r#"{"how":"long"}"# => told("x".repeat(100_000)),
            _ => Ok(None),
        }
    }
}

#[tokio::test]
async fn the_projector_shapes_an_end_once_and_its_failures_are_as_if_it_were_not_there() {
    let shaping = Arc::new(Shaping::default());
    let config = Config::new(MemoryStore::new().unwrap());
    let runtime = Runtime::new(Config { projector: Some(shaping.clone()), ..config });
    let spec = ToolSpec { name: "t".into(), class: Some(EffectClass::Read), ..ToolSpec::default() };
    runtime.register(tool_fn(spec, |_, _| async { Ok(json!("plain").into()) })).unwrap();
    let ways = ["shape", "fail", "panic", "long", "none"];
    let calls = ways.map(|how| call(how, "t", json!({ "how": how }))).to_vec();
    let calls = [calls, vec![call("missing", "no_such", json!({"how": "shape"}))]].concat();
    for _again in 0..2 {
        let answer = run(&runtime, "s", batch("k", calls.clone())).await;
        let told: Vec<String> = answer.calls.iter().take(5).map(|call| call.model_text()).collect();
        assert_eq!(told, ["s t succeeded", "plain", "plain", "plain", "plain"]);
        assert_eq!(answer.calls[5].model_text(), "s no_such failed");
        assert_eq!(shaping.asked.load(Ordering::SeqCst), 6, "never for a replay");
    }
}

/// Notes how long the attempts of each call ran.
#[derive(Default)]
struct Timing(Mutex<Vec<Duration>>);

impl Projector for Timing {
    fn project(&self, ended: &ProjectedCall<'_>) -> Result<Option<ModelAnswer>, ToolError> {
        self.0.lock().unwrap().push(ended.ran);
        Ok(None)
    }
}

#[tokio::test]
async fn the_projector_is_told_how_long_the_call_ran() {
    let (timing, clock) = (Arc::new(Timing::default()), ManualClock::default());
    let config = Config::new(MemoryStore::new().unwrap());
    let runtime =
        Runtime::new(Config { projector: Some(timing.clone()), clock: Arc::new(clock.clone()), ..config });
    let spec = ToolSpec { name: "t".into(), class: Some(EffectClass::Read), ..ToolSpec::default() };
    let tool = tool_fn(spec, move |_, _| {
        clock.advance(Duration::from_millis(1_500));
        async { Ok(json!("late").into()) }
    });
    runtime.register(tool).unwrap();
    run(&runtime, "s", batch("k", vec![call("c", "t", json!({}))])).await;
    assert_eq!(*timing.0.lock().unwrap(), [Duration::from_millis(1_500)]);
}

#[test]
fn operators_are_told_of_every_failure_of_the_projector() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let subscriber = tracing_subscriber::fmt().json().with_writer(Arc::new(log.reopen().unwrap())).finish();
    // One thread: its subscriber hears of everything.
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tracing::subscriber::with_default(subscriber, || {
        tokio.block_on(async {
            let config = Config::new(MemoryStore::new().unwrap());
            let runtime = Runtime::new(Config { projector: Some(Arc::new(Shaping::default())), ..config });
            let spec = ToolSpec { name: "t".into(), class: Some(EffectClass::Read), ..ToolSpec::default() };
            runtime.register(tool_fn(spec, |_, _| async { Ok(json!("plain").into()) })).unwrap();
            let calls =
                ["shape", "fail", "panic", "long", "none"].map(|how| call(how, "t", json!({ "how": how })));
            run(&runtime, "s", batch("k", calls.to_vec())).await;
        });
    });
    let log = std::fs::read_to_string(log.path()).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let told: Vec<_> = lines
        .filter(|line| {
            line["fields"]["message"].as_str().is_some_and(|said| said.contains("the projector failed"))
        })
        .collect();
    let mut reasons: Vec<&str> = told.iter().filter_map(|line| line["fields"]["error"].as_str()).collect();
    // The calls end in any order.
    reasons.sort_unstable();
    assert_eq!(reasons.len(), 3, "{log}");
    for (reason, expected) in reasons.iter().zip(["It cannot.", "it panics", "answer_bytes_max"]) {
        assert!(reason.contains(expected), "{reasons:?}");
    }
    for line in &told {
        let fields = &line["fields"];
        assert_eq!(
            (&line["level"], &fields["session"], &fields["tool"]),
            (&json!("ERROR"), &json!("s"), &json!("t"))
        );
    }
}

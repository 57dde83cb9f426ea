//! Hooks: what they see and change, and the outcome of a call whose hook is broken.

use crate::rig::{
    Count, batch, call, config, die_in_an_attempt, echo, hanging, n, one, quick, returns, run, spec, sqlite,
    states,
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use windlass::store::memory::MemoryStore;
use windlass::tool::{After, AfterFuture, Before, BeforeFuture, Hook, HookCx};
use windlass::{
    BatchAnswer, CallRequest, Config, Cx, EffectClass, Limits, Output, Runtime, ToolError, ToolSpec, tool_fn,
};
use windlass_core::failure::{Failure, Retry};

type SaysBefore = fn(&HookCx<'_>) -> Result<Before, ToolError>;
type SaysAfter = fn(&HookCx<'_>, Result<&Output, &Failure>) -> Result<After, ToolError>;

/// A hook that says so, once it is polled.
#[derive(Clone, Copy, Default)]
struct Says {
    before: Option<SaysBefore>,
    after: Option<SaysAfter>,
}

impl Hook for Says {
    fn before<'a>(&'a self, cx: &'a HookCx<'a>) -> Option<BeforeFuture<'a>> {
        let before = self.before?;
        Some(Box::pin(async move { before(cx) }))
    }

    fn after<'a>(
        &'a self,
        cx: &'a HookCx<'a>,
        result: Result<&'a Output, &'a Failure>,
    ) -> Option<AfterFuture<'a>> {
        let after = self.after?;
        Some(Box::pin(async move { after(cx, result) }))
    }
}

/// A hook that panics before it has made its answer.
struct Early;

impl Hook for Early {
    fn before<'a>(&'a self, _: &'a HookCx<'a>) -> Option<BeforeFuture<'a>> {
        panic!("early secret")
    }
}

fn before(before: SaysBefore) -> Says {
    Says { before: Some(before), ..Says::default() }
}

fn after(after: SaysAfter) -> Says {
    Says { after: Some(after), ..Says::default() }
}

fn hooked(hooks: Vec<Arc<dyn Hook>>) -> Runtime {
    let runtime = Runtime::new(Config { hooks, ..Config::new(MemoryStore::new().unwrap()) });
    let numbers =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": false});
    let read = |name| quick(name, EffectClass::Read);
    let strict =
        ToolSpec { input_schema: Some(numbers.clone()), output_schema: Some(numbers), ..read("echo") };
    runtime.register(echo(strict, &Count::default())).unwrap();
    runtime.register(returns(read("fails"), Err(ToolError::new("no")))).unwrap();
    runtime
}

async fn asked(hooks: Vec<Arc<dyn Hook>>, tool: &str) -> BatchAnswer {
    run(&hooked(hooks), "s", batch("k", vec![call("c", tool, n(1))])).await
}

fn ran(answer: &BatchAnswer) -> (String, String) {
    (states(answer), answer.calls[0].model_text())
}

const ADDS_ONE: SaysBefore = |cx| Ok(Before::Rewrite(n(cx.args()["n"].as_u64().unwrap() + 1)));
const REFUSES: SaysBefore = |cx| Ok(Before::Refuse(format!("not {} now", cx.tool())));
const DOUBLES: SaysAfter = |_, result| {
    let value = &result.map_err(|_| ToolError::new("a failure has no double"))?.value;
    Ok(After::Replace(n(value["n"].as_u64().unwrap() * 2).into()))
};
const WITHHOLDS: SaysAfter = |_, _| Ok(After::Fail("withheld".into()));

#[tokio::test]
async fn hooks_run_in_order_and_change_what_runs_and_what_is_told() {
    let cases: [(&str, Vec<Says>, &str, &str); 7] = [
        ("none says anything", vec![Says::default()], "c succeeded", r#"{"n":1}"#),
        (
            "kept",
            vec![before(|_| Ok(Before::Keep)), after(|_, _| Ok(After::Keep))],
            "c succeeded",
            r#"{"n":1}"#,
        ),
        ("rewritten twice", vec![before(ADDS_ONE), before(ADDS_ONE)], "c succeeded", r#"{"n":3}"#),
        ("replaced twice", vec![after(DOUBLES), after(DOUBLES)], "c succeeded", r#"{"n":4}"#),
        ("both", vec![Says { before: Some(ADDS_ONE), after: Some(DOUBLES) }], "c succeeded", r#"{"n":4}"#),
        (
            "the first refusal counts",
            vec![before(REFUSES), before(|_| panic!("not asked"))],
            "c failed/refused",
            r#"{"error":"not echo now","code":"refused"}"#,
        ),
        (
            "made a failure, which the next one sees",
            vec![
                after(WITHHOLDS),
                after(|_, result| Ok(After::Fail(format!("{} twice", result.unwrap_err().message)))),
            ],
            "c failed/refused",
            r#"{"error":"withheld twice","code":"refused"}"#,
        ),
    ];
    for (what, hooks, state, told) in cases {
        let hooks = hooks.into_iter().map(|hook| Arc::new(hook) as Arc<dyn Hook>).collect();
        let answer = asked(hooks, "echo").await;
        assert_eq!(ran(&answer), (state.to_string(), told.to_string()), "{what}");
    }
}

#[tokio::test]
async fn what_is_recorded_of_hooks() {
    let answer = asked(vec![Arc::new(before(ADDS_ONE))], "echo").await;
    let recorded = answer.calls[0].call();
    assert_eq!(&*recorded.opened.args.text, r#"{"n":1}"#, "what was submitted is untouched");
    assert_eq!(recorded.made.as_ref().unwrap().args.as_deref(), Some(r#"{"n":2}"#));

    let answer = asked(vec![Arc::new(before(REFUSES))], "echo").await;
    let failure = answer.calls[0].failure().unwrap();
    assert_eq!((failure.class.as_str(), failure.source.as_str()), ("invalid_request", "hook"));
    assert_eq!(answer.calls[0].call().attempts, 0);

    let answer = asked(vec![Arc::new(after(DOUBLES)), Arc::new(after(WITHHOLDS))], "echo").await;
    let failure = answer.calls[0].failure().unwrap();
    assert_eq!((failure.class.as_str(), failure.source.as_str()), ("execution", "hook"));
    assert_eq!(
        failure.raw.as_deref(),
        Some(r#"{"n":1}"#),
        "what the tool returned, not what a hook made of it"
    );

    let answer = asked(vec![Arc::new(after(WITHHOLDS))], "fails").await;
    let failure = answer.calls[0].failure().unwrap();
    assert_eq!(
        (failure.code.as_str(), failure.source.as_str()),
        ("tool_failed", "tool"),
        "only the words change"
    );
    assert_eq!((failure.message.as_str(), failure.detail.as_deref()), ("withheld", Some("no")));
}

/// A hook, the tool that is called, how often it is tried, the raw result, and what operators are told.
type Broken = (Arc<dyn Hook>, &'static str, u32, Option<&'static str>, &'static str);

#[tokio::test]
async fn a_broken_hook_is_an_internal_failure_and_the_raw_result_is_kept() {
    let raw = Some(r#"{"n":1}"#);
    let cases: [Broken; 8] = [
        (
            Arc::new(before(|_| Err(ToolError::new("secret")))),
            "echo",
            0,
            None,
            "hook 1 failed in `before`: secret",
        ),
        (Arc::new(before(|_| panic!("secret"))), "echo", 0, None, "in `before`: it panicked: secret"),
        (Arc::new(Early), "echo", 0, None, "it panicked: early secret"),
        (
            Arc::new(before(|_| Ok(Before::Rewrite(json!({"secret": 1}))))),
            "echo",
            0,
            None,
            "rewrote the arguments",
        ),
        (
            Arc::new(after(|_, _| Err(ToolError::internal("secret")))),
            "echo",
            1,
            raw,
            "failed in `after`: secret",
        ),
        (Arc::new(after(|_, _| panic!("secret"))), "echo", 1, raw, "in `after`: it panicked: secret"),
        (
            Arc::new(after(|_, _| Ok(After::Replace(json!("secret").into())))),
            "echo",
            1,
            raw,
            "replaced the result",
        ),
        (
            Arc::new(after(|_, _| Ok(After::Replace(json!("secret").into())))),
            "fails",
            1,
            None,
            "in the place of a failure; the tool had failed with tool_failed: no",
        ),
    ];
    for (hook, tool, attempts, raw, detail) in cases {
        let answer = asked(vec![hook], tool).await;
        let (call, failure) = (&answer.calls[0], answer.calls[0].failure().unwrap());
        let kind = (failure.class.as_str(), failure.source.as_str(), failure.code.as_str(), failure.retry);
        assert_eq!(kind, ("internal", "hook", "internal", Retry::Never), "{detail}");
        assert!(failure.detail.as_ref().unwrap().contains(detail), "{:?} has {detail:?}", failure.detail);
        assert_eq!((failure.raw.as_deref(), call.call().attempts), (raw, attempts), "{detail}");
        assert!(!call.model_text().contains("secret"), "{}", call.model_text());
        assert!(call.model_text().contains(&call.handle().to_string()), "{}", call.model_text());
    }
}

#[tokio::test]
async fn a_long_result_is_seen_whole_and_kept_as_an_artifact_when_it_is_withheld() {
    let (whole, _folder) = sqlite();
    let store = whole.store().clone();
    let hook = after(|cx, result| {
        let long = result.is_ok_and(|output| output.value.as_str().is_some_and(|text| text.len() == 100_000));
        match (cx.tool(), cx.id()) {
            ("long", "lost") if long => Err(ToolError::new("broken")),
            ("long", "failed") if long => Ok(After::Fail("withheld".into())),
            _ => Ok(After::Keep),
        }
    });
    let limits = whole.limits().clone();
    let runtime = Runtime::new(Config { limits, hooks: vec![Arc::new(hook)], ..Config::on(store) });
    crate::artifacts::reader(&runtime);
    runtime.register(returns(spec("long", EffectClass::Once), Ok(json!("x".repeat(100_000))))).unwrap();
    let calls = ["kept", "lost", "failed"].map(|id| call(id, "long", json!({}))).into();
    let answer = run(&runtime, "s", batch("k", calls)).await;
    assert_eq!(states(&answer), "kept succeeded, lost failed/internal, failed failed/refused");
    for withheld in &answer.calls[1..] {
        let failure = withheld.failure().unwrap();
        let (_, artifact) = failure.detail.as_ref().unwrap().split_once("kept as artifact ").unwrap();
        let args = json!({"artifact": artifact, "offset": 100_001, "len": 5});
        assert_eq!(one(&runtime, "reader", args).await["outcome"]["value"], "\"", "the end of its JSON");
        assert_eq!(failure.raw, None);
        assert!(!withheld.model_text().contains("artifact"), "{}", withheld.model_text());
    }
}

/// A hook that counts how often it is asked, and marks the arguments and the value.
#[derive(Default)]
struct Marks {
    before: Count,
    after: Count,
}

impl Hook for Marks {
    fn before<'a>(&'a self, _: &'a HookCx<'a>) -> Option<BeforeFuture<'a>> {
        self.before.up();
        Some(Box::pin(async { Ok(Before::Rewrite(json!({"by": "hook"}))) }))
    }

    fn after<'a>(
        &'a self,
        cx: &'a HookCx<'a>,
        result: Result<&'a Output, &'a Failure>,
    ) -> Option<AfterFuture<'a>> {
        self.after.up();
        let seen =
            json!({"ran": cx.args(), "value": result.unwrap().value, "of": [cx.session(), cx.batch_key()]});
        Some(Box::pin(async { Ok(After::Replace(seen.into())) }))
    }
}

#[tokio::test]
async fn after_a_crash_what_was_rewritten_runs_and_what_ended_is_not_shown_again() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let request = || batch("k", vec![call("c", "x", n(1))]);
    let keyed = || spec("x", EffectClass::Keyed);
    die_in_an_attempt(&folder, request(), move |config, begun| {
        let runtime = Runtime::new(Config { hooks: vec![Arc::new(Marks::default())], ..config });
        runtime.register(hanging(keyed(), begun)).unwrap();
        runtime
    })
    .await;
    let marks = Arc::new(Marks::default());
    let runtime = Runtime::new(Config { hooks: vec![marks.clone()], ..config(&folder) });
    runtime.register(echo(keyed(), &Count::default())).unwrap();
    let answer = run(&runtime, "s", request()).await;
    let marked = json!({"ran": {"by": "hook"}, "value": {"by": "hook"}, "of": ["s", "k"]});
    assert_eq!(serde_json::from_str::<Value>(&answer.calls[0].model_text()).unwrap(), marked);
    assert_eq!((marks.before.get(), marks.after.get()), (0, 1), "what was recorded is fixed");
    let again = run(&runtime, "s", request()).await;
    assert_eq!(again.calls[0].model_text(), answer.calls[0].model_text());
    assert_eq!((marks.before.get(), marks.after.get()), (0, 1), "never on replay");
}

/// A hook that waits until it is let go.
struct Waits(Arc<Notify>);

impl Hook for Waits {
    fn before<'a>(&'a self, cx: &'a HookCx<'a>) -> Option<BeforeFuture<'a>> {
        (cx.id() == "slow").then(|| -> BeforeFuture<'a> {
            Box::pin(async {
                self.0.notified().await;
                Ok(Before::Keep)
            })
        })
    }
}

#[tokio::test]
async fn a_hook_that_waits_holds_up_only_what_came_later_in_its_session() {
    let gate = Arc::new(Notify::new());
    let runtime = hooked(vec![Arc::new(Waits(gate.clone()))]);
    let free = ToolSpec { claims: Some(Vec::new()), ..quick("free", EffectClass::Once) };
    runtime.register(returns(free, Ok(json!(1)))).unwrap();
    let slow = runtime.submit("s", batch("slow", vec![call("slow", "echo", n(1))])).await.unwrap();
    let later = || batch("later", vec![call("later", "echo", n(2))]);
    assert_eq!(states(&run(&runtime, "other", later()).await), "later succeeded");
    let nothing = batch("free", vec![call("free", "free", n(2))]);
    assert_eq!(states(&run(&runtime, "s", nothing).await), "free succeeded");
    let later = runtime.submit("s", later()).await.unwrap();
    let why: Vec<_> = runtime
        .open()
        .await
        .unwrap()
        .into_iter()
        .map(|open| (open.id, open.waiting_for.unwrap().to_string()))
        .collect();
    assert_eq!(why[0], ("slow".into(), "preparation by a hook, its tool or the tool's provider".into()));
    assert!(why[1].1.starts_with("claim of ") && why.len() == 2, "{why:?}");
    gate.notify_one();
    assert_eq!(states(&slow.settled().await.unwrap()), "slow succeeded");
    assert_eq!(states(&later.settled().await.unwrap()), "later succeeded");
    assert_eq!(runtime.kept(), 0);
}

/// A hook that holds up the result of a call until it is let go.
struct Withholds(Arc<Notify>);

impl Hook for Withholds {
    fn after<'a>(
        &'a self,
        cx: &'a HookCx<'a>,
        _: Result<&'a Output, &'a Failure>,
    ) -> Option<AfterFuture<'a>> {
        (cx.id() == "slow").then(|| -> AfterFuture<'a> {
            Box::pin(async {
                self.0.notified().await;
                Ok(After::Keep)
            })
        })
    }
}

#[tokio::test]
async fn a_call_whose_attempt_is_over_takes_no_room_from_others() {
    let gate = Arc::new(Notify::new());
    let limits = Limits { calls_running_max: 1, ..Limits::default() };
    let hooks: Vec<Arc<dyn Hook>> = vec![Arc::new(Withholds(gate.clone()))];
    let runtime = Runtime::new(Config { hooks, limits, ..Config::new(MemoryStore::new().unwrap()) });
    runtime.register(echo(quick("echo", EffectClass::Read), &Count::default())).unwrap();
    let slow = runtime.submit("s", batch("k", vec![call("slow", "echo", n(1))])).await.unwrap();
    let counts = runtime.counts();
    assert_eq!((counts.running, counts.parked), ([0, 0], 1), "it only waits");
    let one = || batch("one", vec![call("c", "echo", n(1))]);
    assert_eq!(states(&run(&runtime, "other", one()).await), "c succeeded");
    assert_eq!(states(&run(&runtime, "another", one()).await), "c succeeded");
    gate.notify_one();
    assert_eq!(states(&slow.settled().await.unwrap()), "slow succeeded");
    assert_eq!((runtime.kept(), runtime.counts()), (0, windlass::limits::Counts::default()));
}

/// Two calls write the same; the first has to be waited for before anybody knows that.
#[tokio::test]
async fn a_call_whose_preparation_waits_keeps_its_place() {
    for fails in [false, true] {
        let gate = Arc::new(Notify::new());
        let runtime = hooked(vec![Arc::new(Waits(gate.clone()))]);
        let order = Arc::new(Mutex::new(Vec::new()));
        let log = order.clone();
        let spec = ToolSpec { claims: Some(vec!["write x:{n}".into()]), ..quick("w", EffectClass::Once) };
        let writes = tool_fn(spec, move |args, cx: &Cx| {
            log.lock().unwrap().push(cx.id().to_string());
            async move { Ok(args.into()) }
        });
        runtime.register(writes).unwrap();
        // Without what it claims by it cannot be prepared.
        let args = if fails { json!({}) } else { n(1) };
        let calls = vec![call("slow", "w", args), call("b", "w", n(1)), call("c", "w", n(2))];
        let submitted = runtime.submit("s", batch("k", calls)).await.unwrap();
        assert_eq!(runtime.counts().parked, 1);
        assert!(order.lock().unwrap().is_empty(), "what it will write is not known");
        gate.notify_one();
        let answer = submitted.settled().await.unwrap();
        let first = if fails { "slow failed/invalid_args" } else { "slow succeeded" };
        assert_eq!(states(&answer), format!("{first}, b succeeded, c succeeded"));
        let ran: Vec<String> = order.lock().unwrap().iter().filter(|id| *id != "c").cloned().collect();
        assert_eq!(ran.join(" "), if fails { "b" } else { "slow b" });
        assert_eq!((runtime.kept(), runtime.counts()), (0, windlass::limits::Counts::default()));
    }
}

/// A call that is cancelled or too late while its preparation waits leaves nothing behind.
#[tokio::test]
async fn a_preparation_that_is_not_waited_for_leaves_nothing_behind() {
    let runtime = hooked(vec![Arc::new(Waits(Arc::new(Notify::new())))]);
    let asked = CallRequest {
        deadlines: windlass::Deadlines { queue_ms: Some(1), ..windlass::Deadlines::default() },
        ..call("slow", "echo", n(1))
    };
    let answer = run(&runtime, "s", batch("k", vec![asked, call("b", "echo", n(1))])).await;
    assert_eq!(states(&answer), "slow failed/timeout, b succeeded");
    assert_eq!(runtime.kept(), 0);
}

#[tokio::test]
async fn a_panic_of_a_tool_is_shown_too() {
    let runtime = hooked(vec![Arc::new(after(|_, result| {
        Ok(After::Fail(format!("seen: {}", result.unwrap_err().code)))
    }))]);
    let panics = tool_fn(quick("panics", EffectClass::Read), |_, _: &Cx| async { panic!("secret") });
    runtime.register(panics).unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "panics", json!({}))])).await;
    let told = r#"{"error":"seen: tool_panicked","code":"tool_panicked"}"#.to_string();
    assert_eq!(ran(&answer), ("c failed/tool_panicked".to_string(), told));
}

#[tokio::test]
async fn no_hook_has_to_walk_what_is_refused_anyway() {
    let runtime = hooked(vec![Arc::new(after(|_, result| {
        assert!(result.is_err(), "it is not shown");
        Ok(After::Keep)
    }))]);
    let deep = tool_fn(quick("deep", EffectClass::Read), |_, _: &Cx| {
        let deep = (0..100_000).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        async move { Ok(deep.into()) }
    });
    runtime.register(deep).unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "deep", json!({}))])).await;
    assert_eq!(states(&answer), "c failed/invalid_output");
}

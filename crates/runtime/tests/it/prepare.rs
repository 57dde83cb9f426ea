//! Preparation by a tool, the host's inputs, and deadlines of a call.

use crate::rig::{
    Begun, Count, batch, call, config, die_in_an_attempt, echo, hanging, memory, n, quick, run, spec, states,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use windlass::tool::{Hook, PrepareCx, PrepareFuture, Prepared};
use windlass::{
    BatchRequest, CallRequest, Config, Cx, Deadlines, EffectClass, Output, RetryRule, Runtime, Tool,
    ToolError, ToolFuture, ToolSpec, tool_fn,
};
use windlass_core::attempt::{Rules, TaskDeadlines};

type Says = fn(&Value, &PrepareCx<'_>) -> Result<Prepared, ToolError>;

/// A tool that says so when it is asked to prepare, and returns its payload and its arguments.
struct Prepares {
    spec: ToolSpec,
    says: Says,
    asked: Count,
    ran: Count,
    begun: Option<Begun>,
}

impl Prepares {
    fn new(spec: ToolSpec, says: Says) -> Prepares {
        Prepares { spec, says, asked: Count::default(), ran: Count::default(), begun: None }
    }
}

impl Tool for Prepares {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn prepare<'a>(&'a self, args: &'a Value, cx: &'a PrepareCx<'a>) -> Option<PrepareFuture<'a>> {
        self.asked.up();
        Some(Box::pin(async move { (self.says)(args, cx) }))
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        self.ran.up();
        let payload = cx.payload().map(|payload| serde_json::from_str::<Value>(payload).unwrap());
        let result = Ok(Output::from(json!({"payload": payload, "args": args})));
        Box::pin(async move {
            match &self.begun {
                Some(begun) => {
                    begun.send(()).unwrap();
                    std::future::pending().await
                }
                None => result,
            }
        })
    }
}

/// A read tool that is polled in place and promises text or an object.
fn read(name: &str) -> ToolSpec {
    ToolSpec { output_schema: Some(json!({"type": ["string", "object"]})), ..quick(name, EffectClass::Read) }
}

#[tokio::test]
async fn what_a_tool_says_when_it_is_asked_to_prepare() {
    let cases: [Case; 8] = [
        (
            "a payload for its attempts",
            |args, cx| Ok(Prepared::Payload(json!({"seen": args, "by": [cx.session(), cx.id()]}))),
            "c succeeded",
            r#"{"args":{"n":1},"payload":{"by":["s","c"],"seen":{"n":1}}}"#,
            1,
        ),
        ("an answer at once", |_, _| Ok(Prepared::Answer(json!("known").into())), "c succeeded", "known", 0),
        (
            "a failure for the model",
            |_, _| Err(ToolError::new("not today")),
            "c failed/tool_failed",
            r#"{"error":"not today","code":"tool_failed"}"#,
            0,
        ),
        (
            "an internal failure",
            |_, _| Err(ToolError::internal("secret")),
            "c failed/internal",
            "reference",
            0,
        ),
        ("a panic", |_, _| panic!("secret"), "c failed/tool_panicked", "reference", 0),
        (
            "an answer that breaks its promise",
            |_, _| Ok(Prepared::Answer(json!(7).into())),
            "c failed/invalid_output",
            "output schema",
            0,
        ),
        (
            "too large a payload",
            |_, _| Ok(Prepared::Payload(json!("x".repeat(2 << 20)))),
            "c failed/too_large",
            "What the tool prepared",
            0,
        ),
        (
            "too deep a payload",
            |_, _| Ok(Prepared::Payload(deep())),
            "c failed/too_deep",
            "What the tool prepared",
            0,
        ),
    ];
    check(&cases).await;
}

#[tokio::test]
async fn a_tool_rewrites_its_arguments_and_answers_with_parts() {
    let cases: [Case; 4] = [
        (
            "other arguments, with a payload",
            |args, _| Ok(Prepared::Rewrite { args: json!({"n": [args["n"]]}), payload: Some(json!(5)) }),
            "c succeeded",
            r#"{"args":{"n":[1]},"payload":5}"#,
            1,
        ),
        (
            "other arguments that are no object",
            |_, _| Ok(Prepared::Rewrite { args: json!("secret"), payload: None }),
            "c failed/internal",
            "reference",
            0,
        ),
        (
            "an answer with parts",
            |_, _| {
                let parts = vec![windlass::outcome::Part::Text("with a note".into())];
                Ok(Prepared::Answer(Output { parts, ..json!("known").into() }))
            },
            "c succeeded",
            "known\nwith a note",
            0,
        ),
        (
            "an answer that waits",
            |_, _| Ok(Prepared::Answer(Output::pending(None))),
            "c failed/internal",
            "reference",
            0,
        ),
    ];
    check(&cases).await;
}

/// A name, the tool's word, the end of the call, the model's text, and the number of attempts.
type Case = (&'static str, Says, &'static str, &'static str, u32);

async fn check(cases: &[Case]) {
    for &(what, says, state, told, attempts) in cases {
        let runtime = memory();
        runtime.register(Prepares::new(read("x"), says)).unwrap();
        let answer = run(&runtime, "s", batch("k", vec![call("c", "x", n(1))])).await;
        let (text, attempted) = (answer.calls[0].model_text(), answer.calls[0].call().attempts);
        assert_eq!((states(&answer).as_str(), attempted), (state, attempts), "{what}");
        assert!(text.contains(told) && !text.contains("secret"), "{what}: {text}");
    }
}

#[tokio::test]
async fn a_long_answer_at_once_is_kept_like_a_result() {
    let runtime = memory();
    let says: Says = |_, _| Ok(Prepared::Answer(json!("x".repeat(100_000)).into()));
    runtime.register(Prepares::new(read("x"), says)).unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "x", n(1))])).await;
    let shown = serde_json::to_value(&answer.calls[0]).unwrap();
    assert_eq!(shown["outcome"]["kept"]["bytes"], 100_000);
    let told = answer.calls[0].model_text();
    assert!(told.starts_with("xxx") && told.contains("next_offset") && told.len() < 60_000, "{told}");
}

#[tokio::test]
async fn a_tool_prepares_what_hooks_made_and_is_not_asked_for_what_does_not_fit() {
    struct Rewrites;
    impl Hook for Rewrites {
        fn before<'a>(
            &'a self,
            _: &'a windlass::tool::HookCx<'a>,
        ) -> Option<windlass::tool::BeforeFuture<'a>> {
            Some(Box::pin(async { Ok(windlass::tool::Before::Rewrite(n(2))) }))
        }

        fn after<'a>(
            &'a self,
            cx: &'a windlass::tool::HookCx<'a>,
            result: Result<&'a Output, &'a windlass_core::failure::Failure>,
        ) -> Option<windlass::tool::AfterFuture<'a>> {
            let seen = json!({"args": cx.args(), "value": result.unwrap().value});
            Some(Box::pin(async { Ok(windlass::tool::After::Replace(seen.into())) }))
        }
    }
    let store = windlass::store::memory::MemoryStore::new().unwrap();
    let runtime = Runtime::new(Config { hooks: vec![Arc::new(Rewrites)], ..Config::new(store) });
    let tool = Prepares::new(read("x"), |args, _| Ok(Prepared::Answer(args.clone().into())));
    let asked = tool.asked.clone();
    runtime.register(tool).unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "x", n(1))])).await;
    assert_eq!(
        answer.calls[0].model_text(),
        r#"{"args":{"n":2},"value":{"n":2}}"#,
        "hooks see the answer too"
    );
    let unfit = run(&runtime, "s", batch("k2", vec![call("c", "x", json!(7))])).await;
    assert_eq!((states(&unfit).as_str(), asked.get()), ("c failed/invalid_args", 1));
}

#[tokio::test]
async fn payload_and_inputs_survive_a_takeover_and_the_tool_is_not_asked_again() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let keyed = || spec("x", EffectClass::Keyed);
    let says: Says = |_, cx| Ok(Prepared::Payload(json!({"for": cx.input("user").cloned()})));
    let request =
        |user: &str| BatchRequest { inputs: inputs(user), ..batch("k", vec![call("c", "x", n(1))]) };
    die_in_an_attempt(&folder, request("ada"), move |config, begun| {
        let runtime = Runtime::new(config);
        runtime.register(Prepares { begun: Some(begun), ..Prepares::new(keyed(), says) }).unwrap();
        runtime
    })
    .await;
    let runtime = Runtime::new(config(&folder));
    let tool = Prepares::new(keyed(), says);
    let asked = tool.asked.clone();
    runtime.register(tool).unwrap();
    let answer = run(&runtime, "s", request("bob")).await;
    assert_eq!(answer.calls[0].model_text(), r#"{"args":{"n":1},"payload":{"for":"ada"}}"#);
    assert_eq!((answer.calls[0].call().attempts, asked.get()), (2, 0));
    // A call that joins the batch now is prepared with what was recorded, too.
    let more = BatchRequest { inputs: inputs("eve"), ..batch("k", vec![call("d", "x", n(2))]) };
    let answer = run(&runtime, "s", more).await;
    assert_eq!(answer.calls[0].model_text(), r#"{"args":{"n":2},"payload":{"for":"ada"}}"#);
}

/// Deeper than the stack.
fn deep() -> Value {
    (0..100_000).fold(Value::Null, |inner, _| Value::Array(vec![inner]))
}

fn inputs(user: &str) -> Option<Map<String, Value>> {
    json!({"user": user, "limits": {"rows": 7, "share": 0.1}}).as_object().cloned()
}

#[derive(Deserialize)]
struct Asked {
    rows: u32,
    share: f64,
}

/// A tool that reads the host's inputs as a type of its own.
fn typed(spec: ToolSpec) -> impl Tool {
    tool_fn(spec, |_, cx: &Cx| {
        let read = || {
            let user: Option<String> = cx.input_as("user")?;
            let asked: Option<Asked> = cx.input_as("limits")?;
            Ok(json!([user, asked.map(|asked| (asked.rows, asked.share)), cx.input("nothing")]).into())
        };
        let result = read();
        async move { result }
    })
}

#[tokio::test]
async fn tools_read_inputs_as_their_own_types() {
    let runtime = memory();
    runtime.register(typed(quick("x", EffectClass::Read))).unwrap();
    let cases = [
        (inputs("ada"), r#"["ada",[7,0.1],null]"#),
        (None, "[null,null,null]"),
        (json!({"limits": {"rows": "many", "hunter2": 1}}).as_object().cloned(), "reference"),
    ];
    for (place, (inputs, told)) in cases.into_iter().enumerate() {
        let key = place.to_string();
        let request = BatchRequest { inputs, ..batch(&key, vec![call("c", "x", n(1))]) };
        let text = run(&runtime, "s", request).await.calls[0].model_text();
        assert!(text.contains(told) && !text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn inputs_are_no_part_of_what_a_batch_is() {
    let runtime = memory();
    let ran = Count::default();
    runtime.register(echo(spec("x", EffectClass::Once), &ran)).unwrap();
    let derived = |inputs| BatchRequest { key: None, inputs, ..batch("", vec![call("c", "x", n(1))]) };
    let first = run(&runtime, "s", derived(inputs("ada"))).await;
    for other in [inputs("bob"), None] {
        let again = run(&runtime, "s", derived(other)).await;
        assert_eq!((&again.key, states(&again).as_str()), (&first.key, "c succeeded"));
    }
    assert_eq!(ran.get(), 1);
}

#[tokio::test]
async fn inputs_and_deadlines_that_cannot_be_kept_refuse_the_batch() {
    let runtime = memory();
    runtime.register(echo(spec("x", EffectClass::Read), &Count::default())).unwrap();
    let large = json!({"large": "x".repeat(2 << 20)}).as_object().cloned();
    let deep = Map::from_iter([("deep".into(), deep())]);
    let with = |inputs| BatchRequest { inputs, ..batch("k", vec![call("c", "x", n(1))]) };
    let within = |deadlines| {
        let short = CallRequest { deadlines, ..call("d", "x", n(1)) };
        batch("k", vec![call("c", "x", n(1)), short])
    };
    let cases = [
        (with(large), "inputs cannot be stored"),
        (with(Some(deep)), "inputs cannot be stored"),
        (within(Deadlines { queue_ms: Some(0), ..Deadlines::default() }), "calls[1].deadlines.queue_ms is 0"),
        (within(Deadlines { total_ms: Some(0), ..Deadlines::default() }), "calls[1].deadlines.total_ms is 0"),
    ];
    for (request, names) in cases {
        let refused = runtime.submit("s", request).await.map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(names), "{refused:?} names {names:?}");
    }
}

#[tokio::test]
async fn rules_are_recorded_where_they_are_not_the_usual_ones() {
    let usual = Rules::unsaid(EffectClass::Read);
    let runtime = memory();
    runtime.register(echo(quick("usual", EffectClass::Read), &Count::default())).unwrap();
    let long = Deadlines { attempt_ms: Some(60_000), ..Deadlines::default() };
    let retry = RetryRule { attempts: Some(5), ..RetryRule::default() };
    let own = ToolSpec { deadlines: long, retry, ..quick("own", EffectClass::Read) };
    runtime.register(echo(own, &Count::default())).unwrap();
    // A deadline that is said holds for tasks too.
    let tasks = |attempt_ms| TaskDeadlines { attempt_ms, ..usual.detached };
    let own = Rules { attempt_ms: 60_000, attempts: 5, detached: tasks(60_000), ..usual };
    let within = |attempt_ms| Deadlines { attempt_ms, ..Deadlines::default() };
    let cases = [
        ("usual", within(None), None),
        ("usual", within(Some(4_000_000)), None),
        ("usual", within(Some(40_000)), Some(Rules { detached: tasks(40_000), ..usual })),
        ("usual", within(Some(5)), Some(Rules { attempt_ms: 5, detached: tasks(5), ..usual })),
        ("own", within(None), Some(own)),
        ("own", within(Some(90_000)), Some(own)),
        ("own", within(Some(7)), Some(Rules { attempt_ms: 7, detached: tasks(7), ..own })),
    ];
    for (place, (tool, deadlines, rules)) in cases.into_iter().enumerate() {
        let request = CallRequest { deadlines, ..call("c", tool, n(1)) };
        let answer = run(&runtime, "s", batch(&place.to_string(), vec![request])).await;
        let recorded = answer.calls[0].call();
        assert_eq!(recorded.rules.as_deref().copied(), rules, "{tool}, {deadlines:?}");
        let asked = (!deadlines.is_empty()).then_some(deadlines);
        assert_eq!(recorded.opened.deadlines.as_deref().copied(), asked);
    }
}

#[tokio::test]
async fn a_call_keeps_its_deadlines_over_a_takeover() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let deadlines = Deadlines { total_ms: Some(500_000), ..Deadlines::default() };
    let request = move || batch("k", vec![CallRequest { deadlines, ..call("c", "x", n(1)) }]);
    let keyed = || spec("x", EffectClass::Keyed);
    die_in_an_attempt(&folder, request(), move |config, begun| {
        let runtime = Runtime::new(config);
        runtime.register(hanging(keyed(), begun)).unwrap();
        runtime
    })
    .await;
    let runtime = Runtime::new(config(&folder));
    runtime.register(echo(keyed(), &Count::default())).unwrap();
    let answer = run(&runtime, "s", request()).await;
    assert_eq!(answer.calls[0].call().rules().total_ms, 500_000);
}

/// A hook that never answers is given up when the call should have started.
#[tokio::test]
async fn preparing_has_the_queue_deadline() {
    struct Forever;
    impl windlass::tool::Hook for Forever {
        fn before<'a>(
            &'a self,
            _: &'a windlass::tool::HookCx<'a>,
        ) -> Option<windlass::tool::BeforeFuture<'a>> {
            Some(Box::pin(std::future::pending()))
        }
    }
    let store = windlass::store::memory::MemoryStore::new().unwrap();
    let hooks: Vec<std::sync::Arc<dyn windlass::tool::Hook>> = vec![std::sync::Arc::new(Forever)];
    let runtime = windlass::Runtime::new(windlass::Config { hooks, ..windlass::Config::new(store) });
    let count = crate::rig::Count::default();
    runtime.register(crate::rig::echo(crate::rig::spec("t", windlass::EffectClass::Read), &count)).unwrap();
    let deadlines = windlass::Deadlines { queue_ms: Some(5), ..windlass::Deadlines::default() };
    let call = windlass::CallRequest { deadlines, ..crate::rig::call("c", "t", crate::rig::n(1)) };
    let answer = crate::rig::run(&runtime, "s", crate::rig::batch("k", vec![call])).await;
    assert_eq!(crate::rig::states(&answer), "c failed/timeout");
    assert_eq!(count.get(), 0);
}

/// Unambiguous arguments run, and their repair is recorded and reported; identity stays with the request.
#[tokio::test]
async fn arguments_that_only_just_do_not_fit_are_repaired_and_recorded() {
    let (runtime, folder) = crate::rig::sqlite();
    let schema = serde_json::json!({
        "type": "object", "additionalProperties": false, "required": ["max_lines"],
        "properties": {"max_lines": {"type": "integer"}, "paths": {"type": "array", "items": {"type": "string"}}},
    });
    let register = |runtime: &windlass::Runtime| {
        let spec = windlass::ToolSpec {
            input_schema: Some(schema.clone()),
            ..crate::rig::spec("t", windlass::EffectClass::Keyed)
        };
        runtime.register(crate::rig::echo(spec, &crate::rig::Count::default())).unwrap();
    };
    register(&runtime);
    let text = "```json\n{\"maxLines\": \"7\", \"paths\": \"a.txt\",}\n```";
    let call = || windlass::CallRequest {
        id: Some("c".into()),
        tool: "t".into(),
        args: windlass::Args::Text(text.into()),
        ..windlass::CallRequest::default()
    };
    let answer = crate::rig::run(&runtime, "s", crate::rig::batch("k", vec![call()])).await;
    assert_eq!(answer.calls[0].model_text(), r#"{"max_lines":7,"paths":["a.txt"]}"#);
    let repairs = answer.calls[0].repairs();
    assert_eq!(repairs.len(), 5, "{repairs:?}");
    drop((answer, runtime));
    let runtime = crate::rig::reopen(&folder);
    register(&runtime);
    let again = crate::rig::run(&runtime, "s", crate::rig::batch("k", vec![call()])).await;
    assert_eq!(again.calls[0].repairs(), repairs);
    assert!(again.calls[0].is_recorded());
}

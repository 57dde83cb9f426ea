//! Claims as tools declare them: calls run in the order of their effects, as parallel as that allows.

use crate::gates::{Gates, gated, left_running, next};
use crate::rig::{Count, batch, call, config, echo, memory, n, one, run, spec, sqlite, states, waits_for};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use windlass::ask::Target;
use windlass::store::memory::MemoryStore;
use windlass::tool::Claims;
use windlass::{
    BatchAnswer, Config, Cx, EffectClass, Limits, Output, RetryRule, Runtime, Tool, ToolError, ToolFuture,
    ToolSpec, tool_fn,
};
use windlass_testkit::clock::ManualClock;

const WRITE: EffectClass = EffectClass::Keyed;

fn claiming(name: &str, claims: &[&str]) -> ToolSpec {
    ToolSpec { claims: Some(claims.iter().map(|claim| claim.to_string()).collect()), ..spec(name, WRITE) }
}

/// Tools on real files that begin, wait for their gate, work, and say that they are done.
fn file_tools(runtime: &Runtime, folder: PathBuf) -> (Gates, crate::gates::Begun, Arc<Mutex<Vec<String>>>) {
    let (gates, begun) = gated(runtime, []);
    let ended = Arc::new(Mutex::new(Vec::new()));
    let (begins, moved) = tokio::sync::mpsc::unbounded_channel();
    drop(begun);
    for (name, claim) in [("write", "write file:/{path}"), ("read", "read file:/{path}")] {
        let waiting = gates.tool(spec("inner", WRITE), &begins);
        let (folder, ended, waiting) = (folder.clone(), ended.clone(), Arc::new(waiting));
        let tool = tool_fn(claiming(name, &[claim]), move |args, cx: &Cx| {
            let (file, ended, waiting) =
                (folder.join(args["path"].as_str().unwrap()), ended.clone(), waiting.clone());
            let cx = cx.clone();
            async move {
                waiting.run(args.clone(), &cx).await?;
                if name == "write" {
                    std::fs::write(&file, cx.id()).unwrap();
                }
                ended.lock().unwrap().push(cx.id().to_string());
                Ok(json!(std::fs::read_to_string(&file).unwrap_or_default()).into())
            }
        });
        runtime.register(tool).unwrap();
    }
    (gates, moved, ended)
}

#[tokio::test]
async fn files_are_read_after_they_are_written_and_nothing_else_waits() {
    let ((runtime, _store), folder) = (sqlite(), tempfile::tempdir().unwrap());
    let (gates, mut begun, ended) = file_tools(&runtime, folder.path().to_path_buf());
    let asked = [
        ("wa", "write", "a"),
        ("ra", "read", "a"),
        ("wb", "write", "b"),
        ("rb", "read", "./b"),
        ("rc", "read", "c"),
    ];
    let calls = asked.map(|(id, tool, path)| call(id, tool, json!({ "path": path })));
    let submitted = runtime.submit("s", batch("k", calls.into())).await.unwrap();
    assert_eq!(next(&mut begun, 3).await, "rc wa wb");
    let open = runtime.open().await.unwrap();
    let of = |id: &str| open.iter().find(|open| open.id == id).unwrap();
    assert_eq!(
        of("ra").waiting_for.as_deref(),
        Some(&*format!("claim of {} (write) on file:/a", of("wa").call))
    );
    assert_eq!(
        of("rb").waiting_for.as_deref(),
        Some(&*format!("claim of {} (write) on file:/b", of("wb").call))
    );
    assert_eq!(of("rc").waiting_for, None);
    gates.open("wb");
    assert_eq!(next(&mut begun, 1).await, "rb", "it waits for its own file only");
    assert_eq!(*ended.lock().unwrap(), ["wb"]);
    gates.open("wa");
    assert_eq!(next(&mut begun, 1).await, "ra");
    ["ra", "rb", "rc"].iter().for_each(|id| gates.open(id));
    let answer = submitted.settled().await.unwrap();
    let told: Vec<_> = answer.calls.iter().map(|call| call.model_text().to_string()).collect();
    assert_eq!(told, ["wa", "wa", "wb", "wb", ""]);
    assert_eq!(runtime.kept(), 0);
    // Each started as soon as what it waits for had ended, and so did not wait for anything else.
    let ran = recorded(&runtime, &answer).await;
    let ends_before = |id: &str| {
        let mut before: Vec<&str> =
            ran.iter().filter(|(_, (_, end))| *end < ran[id].0).map(|(id, _)| id.as_str()).collect();
        before.sort();
        before.join(" ")
    };
    let started_after = asked.map(|(id, ..)| format!("{id} after {}", ends_before(id)));
    assert_eq!(started_after, ["wa after ", "ra after wa wb", "wb after ", "rb after wb", "rc after "]);
    let together = |one: &str, other: &str| ran[one].0 < ran[other].1 && ran[other].0 < ran[one].1;
    for (one, other) in [("wa", "wb"), ("wa", "rc"), ("wb", "rc"), ("rb", "wa"), ("ra", "rb"), ("ra", "rc")] {
        assert!(together(one, other), "{one} and {other} in {ran:?}");
    }
}

/// The numbers of the entries with which each call's attempt starts and ends, by the call's id.
async fn recorded(runtime: &Runtime, answer: &BatchAnswer) -> BTreeMap<String, (u64, u64)> {
    let mut recorded = BTreeMap::new();
    for call in &answer.calls {
        let (_, lines) = windlass::inspect::call(runtime.store(), call.handle()).await.unwrap().unwrap();
        let number = |kind: &str| lines.iter().find(|line| line.kind == kind).unwrap().entry.0;
        recorded.insert(call.id().to_string(), (number("started"), number("ended")));
    }
    recorded
}

/// A tool whose claims are a function.
struct Computed;

impl Tool for Computed {
    fn spec(&self) -> ToolSpec {
        spec("computed", WRITE)
    }

    fn run<'a>(&'a self, args: Value, _: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async { Ok(Output::from(args)) })
    }

    fn claims(&self, args: &Value) -> Option<Result<Claims, ToolError>> {
        match args["n"].as_u64() {
            Some(1) => {
                Some(Claims::parse(["write a"], &Limits::default().call()).map_err(|_| ToolError::new("no")))
            }
            Some(2) => Some(Err(ToolError::new("Say which file."))),
            Some(3) => panic!("on purpose"),
            _ => None,
        }
    }
}

#[tokio::test]
async fn claims_may_be_a_function_of_the_arguments() {
    let runtime = memory();
    runtime.register(Computed).unwrap();
    let (gates, mut begun) = gated(&runtime, [claiming("held", &["write a"])]);
    let held = runtime.submit("s", batch("h", vec![call("h", "held", n(0))])).await.unwrap();
    assert_eq!(next(&mut begun, 1).await, "h");
    let waiting = runtime.submit("s", batch("1", vec![call("c", "computed", n(1))])).await.unwrap();
    waits_for(&runtime, "claim").await;
    assert_eq!(one(&runtime, "computed", n(2)).await["outcome"]["failure"]["message"], "Say which file.");
    assert_eq!(one(&runtime, "computed", n(3)).await["outcome"]["failure"]["code"], "tool_panicked");
    gates.open("h");
    assert_eq!(states(&held.settled().await.unwrap()), "h succeeded");
    assert_eq!(states(&waiting.settled().await.unwrap()), "c succeeded");
    assert_eq!(runtime.kept(), 0);
}

#[tokio::test]
async fn a_claim_that_cannot_be_one_is_told_where_it_is_wrong() {
    let (runtime, ran) = (memory(), Count::default());
    let refused = runtime.register(echo(claiming("t", &["change a"]), &ran)).unwrap_err();
    assert!(windlass::error::chain(&refused).contains("a claim begins with `read` or `write`"), "{refused}");
    runtime.register(echo(claiming("t", &["write file:/{path}"]), &ran)).unwrap();
    for (args, expected) in [
        (json!({}), "needs the argument `path`"),
        (json!({ "path": ["a"] }), "takes a text, a number or a boolean"),
        (json!({ "path": "../a" }), "leads out of where it begins"),
    ] {
        let failure = &one(&runtime, "t", args).await["outcome"]["failure"];
        assert_eq!(failure["code"], "invalid_args");
        assert!(failure["message"].as_str().unwrap().contains(expected), "{failure}");
    }
    assert_eq!((ran.get(), runtime.kept()), (0, 0));
}

#[tokio::test]
async fn a_tool_that_claims_nothing_waits_for_nobody() {
    let runtime = memory();
    let (gates, mut begun) = gated(&runtime, [spec("alone", WRITE), claiming("free", &[])]);
    let calls = vec![call("a", "alone", n(0)), call("b", "alone", n(0)), call("c", "free", n(0))];
    let submitted = runtime.submit("s", batch("k", calls)).await.unwrap();
    assert_eq!(next(&mut begun, 2).await, "a c");
    gates.open("a");
    assert_eq!(next(&mut begun, 1).await, "b");
    ["b", "c"].iter().for_each(|id| gates.open(id));
    assert_eq!(states(&submitted.settled().await.unwrap()), "a succeeded, b succeeded, c succeeded");
}

#[tokio::test]
async fn global_names_hold_across_sessions() {
    let runtime = memory();
    let (gates, mut begun) = gated(&runtime, [claiming("deploy", &["write global:deploy"])]);
    let first = runtime.submit("a", batch("k", vec![call("1", "deploy", n(0))])).await.unwrap();
    assert_eq!(next(&mut begun, 1).await, "1");
    let second = runtime.submit("b", batch("k", vec![call("2", "deploy", n(0))])).await.unwrap();
    waits_for(&runtime, "claim").await;
    gates.open("1");
    assert_eq!(next(&mut begun, 1).await, "2", "another session's call is woken");
    gates.open("2");
    first.settled().await.unwrap();
    second.settled().await.unwrap();
    assert_eq!(runtime.kept(), 0);
}

/// A tool that fails once and is tried again in a minute.
fn busy_once(spec: ToolSpec) -> impl Tool {
    let retry = RetryRule { attempts: Some(2), ..RetryRule::default() };
    tool_fn(ToolSpec { retry, ..spec }, |args, cx: &Cx| {
        let busy = cx.attempt().0 == 1;
        let error = ToolError::new("busy").safe_to_retry_after(60_000);
        async move { if busy { Err(error) } else { Ok(args.into()) } }
    })
}

#[tokio::test]
async fn a_call_that_is_tried_again_keeps_its_claims_and_frees_its_room() {
    let clock = ManualClock::default();
    let config = Config { clock: Arc::new(clock.clone()), ..Config::new(MemoryStore::new().unwrap()) };
    let limits = Limits { calls_running_max: 1, ..config.limits.clone() };
    let runtime = Runtime::new(Config { limits, ..config });
    runtime.register(busy_once(claiming("busy", &["write a"]))).unwrap();
    let ran = Count::default();
    runtime.register(echo(claiming("a", &["read a"]), &ran)).unwrap();
    runtime.register(echo(claiming("b", &["write b"]), &ran)).unwrap();
    for (key, cancelled) in [("1", false), ("2", true)] {
        let waiting = vec![call("x", "busy", n(0)), call("y", "a", n(0))];
        let submitted = runtime.submit("s", batch(key, waiting)).await.unwrap();
        waits_for(&runtime, "retry").await;
        let other = run(&runtime, "s", batch(&format!("{key}b"), vec![call("z", "b", n(0))])).await;
        assert_eq!(states(&other), "z succeeded", "there is room");
        waits_for(&runtime, "claim").await;
        let counts = runtime.counts();
        assert_eq!((counts.parked, counts.queued, counts.running[0]), (1, 1, 0));
        if cancelled {
            runtime.cancel(Target::Batch { session: "s", key }, None).await.unwrap();
            assert_eq!(states(&submitted.settled().await.unwrap()), "x cancelled, y cancelled");
        } else {
            clock.advance(std::time::Duration::from_secs(60));
            assert_eq!(states(&submitted.settled().await.unwrap()), "x succeeded, y succeeded");
        }
        assert_eq!(runtime.kept(), 0);
    }
}

#[tokio::test]
async fn a_call_that_is_due_again_waits_for_room() {
    let clock = ManualClock::default();
    let config = Config { clock: Arc::new(clock.clone()), ..Config::new(MemoryStore::new().unwrap()) };
    let limits = Limits { calls_running_max: 1, attempt_ms: 600_000, ..config.limits.clone() };
    let runtime = Runtime::new(Config { limits, ..config });
    runtime.register(busy_once(claiming("busy", &[]))).unwrap();
    let (gates, mut begun) = gated(&runtime, [claiming("held", &[])]);
    let again = runtime.submit("s", batch("1", vec![call("x", "busy", n(0))])).await.unwrap();
    let due = waits_for(&runtime, "retry").await;
    let held = runtime.submit("s", batch("2", vec![call("h", "held", n(0))])).await.unwrap();
    assert_eq!(next(&mut begun, 1).await, "h");
    clock.advance(std::time::Duration::from_secs(60));
    assert_eq!(waits_for(&runtime, "limit").await, due);
    assert_eq!(runtime.counts().running, [1, 0]);
    gates.open("h");
    assert_eq!(states(&again.settled().await.unwrap()), "x succeeded");
    assert_eq!(states(&held.settled().await.unwrap()), "h succeeded");
    assert_eq!(runtime.kept(), 0);
}

/// The started call would wait for the unprepared one, if that were entered first: nobody knows what it claims.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_started_under_an_earlier_owner_goes_on_before_what_did_not() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let specs = || [claiming("w", &["write a"]), claiming("x", &["write a"]), claiming("y", &["write b"])];
    let asked = || batch("k", ["w", "x", "y"].map(|id| call(id, id, n(0))).into());
    assert_eq!(left_running(&folder, specs().into(), asked(), 2).await, "w y");
    let runtime = Runtime::new(config(&folder));
    let [w, x, y] = specs();
    let (gates, mut begun) = gated(&runtime, [w, y]);
    let submitted = runtime.submit("s", asked()).await.unwrap();
    assert_eq!(next(&mut begun, 2).await, "w y", "both hold what they claim");
    waits_for(&runtime, "no_such_tool").await;
    let ran = Count::default();
    gates.open("w");
    gates.open("y");
    runtime.register(echo(x, &ran)).unwrap();
    assert_eq!(states(&submitted.settled().await.unwrap()), "w succeeded, x succeeded, y succeeded");
    assert_eq!((ran.get(), runtime.kept()), (1, 0));
}

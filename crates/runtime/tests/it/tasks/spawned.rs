//! Tasks that are started as such: by the model, by a tool, by whoever submits.

use super::{background, closed, fresh, gated, notices, owner, until_told};
use crate::inside::body;
use crate::rig::{Count, batch, call, echo, end, n, run, spec};
use serde_json::{Value, json};
use std::sync::Arc;
use windlass::store::Store;
use windlass::tasks::{Direction, NewTask, NoticeKind, Wake};
use windlass::{BatchAnswer, CallRequest, Deadlines, EffectClass, Flags, Runtime, Tool, ToolError, ToolSpec};
use windlass_testkit::fault_store::{Fault, FaultPlan, FaultReach, FaultStore, Method};

const OWN: [&str; 6] =
    ["cancel_task", "get_task", "list_tasks", "message_task", "spawn_background", "wait_task"];

async fn names(runtime: &Runtime) -> Vec<String> {
    runtime.tools_of("s").await.unwrap().into_iter().map(|listed| listed.summary.name).collect()
}

/// The answer of one of the tools for the model.
async fn asks(runtime: &Runtime, tool: &str, args: Value) -> BatchAnswer {
    let key = windlass::batch::fresh_key().unwrap();
    run(runtime, "s", batch(&key, vec![call("c", tool, args)])).await
}

async fn answers(runtime: &Runtime, tool: &str, args: Value) -> Value {
    let answer = asks(runtime, tool, args).await;
    assert_eq!(answer.calls[0].state(), "succeeded", "{}", answer.calls[0].model_text());
    answer.calls[0].value().unwrap()
}

async fn refuses(runtime: &Runtime, tool: &str, args: Value) -> String {
    let answer = asks(runtime, tool, args).await;
    assert_eq!(answer.calls[0].state(), "failed");
    let told: Value = serde_json::from_str(&answer.calls[0].model_text()).unwrap();
    told["error"].as_str().unwrap().to_string()
}

#[tokio::test]
async fn the_tools_for_tasks_are_there_exactly_where_a_tool_can_become_one() {
    let (runtime, _, _) = fresh();
    let gate = closed();
    runtime.register(gated(spec("direct", EffectClass::Read), &gate)).unwrap();
    assert_eq!(names(&runtime).await, ["direct"]);
    assert!(refuses(&runtime, "list_tasks", json!({})).await.contains("There is no tool \"list_tasks\""));
    runtime.register(gated(background("build", EffectClass::Once), &gate)).unwrap();
    let mut all: Vec<&str> = OWN.into_iter().chain(["build", "direct"]).collect();
    all.sort_unstable();
    assert_eq!(names(&runtime).await, all);
    assert_eq!(runtime.tools().iter().map(|listed| &*listed.summary.name).collect::<Vec<_>>(), all);
    runtime.unregister("build");
    assert_eq!(names(&runtime).await, ["direct"]);
    let mut overlay = runtime.overlay();
    overlay.add(gated(background("build", EffectClass::Once), &gate)).unwrap();
    let guard = runtime.attach("s", overlay);
    assert_eq!(names(&runtime).await, all);
    drop(guard);
    assert_eq!(names(&runtime).await, ["direct"]);
}

#[tokio::test]
async fn a_model_starts_a_task_looks_at_it_and_is_told_of_its_end() {
    let (runtime, _, _) = fresh();
    let gate = closed();
    runtime.register(gated(background("build", EffectClass::Once), &gate)).unwrap();
    let asked = json!({ "tool": "build", "args": { "n": 1 }, "title": "Nightly build" });
    let started = answers(&runtime, "spawn_background", asked).await;
    let task = started["task"].as_str().unwrap();
    let expected = json!({
        "task": task, "tool": "build", "title": "Nightly build", "state": "running", "signal_on_completion": true,
        "log": started["log"], "result": started["result"],
    });
    assert!(started["log"].is_string() && started["result"].is_string(), "{started}");
    assert_eq!(started, expected);
    assert_eq!(runtime.counts().running, [0, 1], "it counts among the tasks");
    let listed = answers(&runtime, "list_tasks", json!({})).await;
    let shown = &listed["tasks"][0];
    assert_eq!(
        (&shown["task"], &shown["title"], &shown["by"]),
        (&json!(task), &json!("Nightly build"), &json!("spawned"))
    );
    let silent = json!({ "tool": "build", "args": { "n": 2 }, "signal_on_completion": false });
    let silent = answers(&runtime, "spawn_background", silent).await;
    assert_eq!(silent["signal_on_completion"], json!(false));
    gate.add_permits(2);
    let waited = answers(&runtime, "wait_task", json!({ "task": task })).await;
    assert_eq!((&waited["state"], &waited["result"]), (&json!("succeeded"), &json!(r#"{"n":1}"#)));
    let waited = answers(&runtime, "wait_task", json!({ "task": silent["task"] })).await;
    assert_eq!(waited["state"], json!("succeeded"));
    assert_eq!(notices(&runtime).await, ["queued Nightly build succeeded"]);
}

#[tokio::test]
async fn one_who_waits_for_a_task_waits_only_so_long() {
    let (runtime, clock, _) = fresh();
    let gate = closed();
    let day_ms = Some(86_400_000);
    let deadlines =
        Deadlines { attempt_ms: day_ms, silence_ms: day_ms, total_ms: day_ms, ..Deadlines::default() };
    let patient = ToolSpec { deadlines, ..background("build", EffectClass::Once) };
    runtime.register(gated(patient, &gate)).unwrap();
    let started = answers(&runtime, "spawn_background", json!({ "tool": "build" })).await;
    let waits = json!({ "task": started["task"], "timeout_s": 5 });
    let submitted = runtime.submit("s", batch("waits", vec![call("c", "wait_task", waits)])).await.unwrap();
    let waiting = tokio::spawn(submitted.settled());
    while runtime.counts().running != [1, 1] {
        tokio::task::yield_now().await;
    }
    // It may be about to look at the clock for the first time, so time passes until it has seen enough: not faster than other
    // threads get to run, or its own deadline would come first.
    while !waiting.is_finished() {
        clock.advance(std::time::Duration::from_millis(100));
        tokio::task::spawn_blocking(|| ()).await.unwrap();
    }
    let answer = waiting.await.unwrap().unwrap();
    assert_eq!(answer.calls[0].value::<Value>().unwrap()["state"], json!("running"));
    // Its end is waited for where it is known, not by looking again and again.
    let submitted =
        runtime.submit("s", batch("more", vec![call("c", "wait_task", json!({ "task": started["task"] }))]));
    let waiting = tokio::spawn(submitted.await.unwrap().settled());
    gate.add_permits(1);
    let answer = waiting.await.unwrap().unwrap();
    assert_eq!(answer.calls[0].value::<Value>().unwrap()["state"], json!("succeeded"));
}

#[tokio::test]
async fn what_cannot_be_a_task_is_refused_and_starts_nothing() {
    let (runtime, _, _) = fresh();
    let gate = closed();
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let build = ToolSpec { input_schema: Some(schema), ..background("build", EffectClass::Once) };
    runtime.register(gated(build, &gate)).unwrap();
    runtime.register(gated(spec("direct", EffectClass::Read), &gate)).unwrap();
    for (args, why) in [
        (json!({ "tool": "bild", "args": { "n": 1 } }), "There is no tool \"bild\". Did you mean \"build\"?"),
        (
            json!({ "tool": "direct" }),
            "The tool \"direct\" does not run in the background. Call it directly.",
        ),
        (
            json!({ "tool": "spawn_background" }),
            "The tool \"spawn_background\" does not run in the background.",
        ),
        (json!({ "tool": "build", "args": { "n": "one" } }), "The arguments of \"build\" are not valid."),
        (json!({ "args": {} }), "tool"),
    ] {
        let told = refuses(&runtime, "spawn_background", args).await;
        assert!(told.contains(why), "{told}");
    }
    assert!(runtime.tasks("s").list(None, 10).await.unwrap().is_empty());
    // Whoever submits one is refused by the same rule, and needs no notice.
    let task = Some(NewTask::default());
    let direct = CallRequest { task, ..call("c", "direct", n(1)) };
    let answer = run(&runtime, "s", batch("k", vec![direct])).await;
    assert_eq!(crate::rig::states(&answer), "c failed/not_background");
    assert_eq!(notices(&runtime).await, [""; 0]);
    for tool in ["get_task", "wait_task", "cancel_task"] {
        let told = refuses(&runtime, tool, json!({ "task": "nonsense" })).await;
        assert!(told.contains("There is no task \"nonsense\""), "{tool}: {told}");
    }
}

#[tokio::test]
async fn a_task_that_is_cancelled_stops() {
    let (runtime, _, _) = fresh();
    let obeys = body(background("build", EffectClass::Read), |_, cx| {
        Box::pin(async move {
            cx.stopping().await;
            Err(ToolError::stopped())
        })
    });
    runtime.register(obeys).unwrap();
    let started = answers(&runtime, "spawn_background", json!({ "tool": "build" })).await;
    let task = json!({ "task": started["task"] });
    let asked = answers(&runtime, "cancel_task", task.clone()).await;
    assert_eq!(asked, json!({ "task": started["task"], "asked_to_stop": true, "was_over": false }));
    assert_eq!(answers(&runtime, "wait_task", task.clone()).await["state"], json!("cancelled"));
    let asked = answers(&runtime, "cancel_task", task).await;
    assert_eq!(asked, json!({ "task": started["task"], "asked_to_stop": false, "was_over": true }));
}

/// A tool that answers every message until it is told to stop.
fn talker() -> impl Tool {
    let message =
        json!({ "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] });
    let spec = background("talk", EffectClass::Stepped);
    body(ToolSpec { signals: [("message".into(), message)].into(), ..spec }, |_, cx| {
        Box::pin(async move {
            for number in 1.. {
                let said = cx.on_signal("message", None).await?.unwrap_or_default();
                if said["text"] == "stop" {
                    break;
                }
                let answer = format!("You said {}.", said["text"]);
                cx.say(&format!("answer {number}"), &answer, Some(&format!("in.{number}"))).await?;
            }
            Ok(json!("bye").into())
        })
    })
}

#[tokio::test]
async fn messages_go_both_ways_and_wake_who_wants_to_know() {
    let (runtime, _, _) = fresh();
    runtime.register(talker()).unwrap();
    let task = Some(NewTask { wake: Wake::OnActivity, ..NewTask::default() });
    let talk = CallRequest { task, ..call("c", "talk", n(1)) };
    let answer = run(&runtime, "s", batch("k", vec![talk])).await;
    let task = answer.calls[0].handle().to_string();
    answers(&runtime, "message_task", json!({ "task": task, "text": "hello" })).await;
    until_told(&runtime, 1).await;
    let told = &runtime.inbox("s").list(None, 10).await.unwrap()[0];
    assert_eq!(told.kind, NoticeKind::TaskMessage);
    assert!(told.text.contains(r#"says: You said "hello"."#), "{}", told.text);
    let messages = runtime.tasks("s").messages(&task).await.unwrap();
    let shown: Vec<_> = messages
        .iter()
        .map(|message| (&*message.id, message.direction, &*message.text, message.in_reply_to.as_deref()))
        .collect();
    assert_eq!(
        shown,
        [
            ("in.1", Direction::In, "hello", None),
            ("out.answer 1", Direction::Out, "You said \"hello\".", Some("in.1"))
        ]
    );
    answers(&runtime, "message_task", json!({ "task": task, "text": "stop" })).await;
    assert_eq!(answers(&runtime, "wait_task", json!({ "task": task })).await["result"], json!("bye"));
    until_told(&runtime, 2).await;
    assert_eq!(runtime.inbox("s").list(None, 10).await.unwrap()[1].kind, NoticeKind::TaskEnded);
    let late = refuses(&runtime, "message_task", json!({ "task": task, "text": "hello" })).await;
    assert!(late.contains("the call has ended"), "{late}");
}

#[tokio::test]
async fn a_question_of_a_task_wakes_who_wants_to_know() {
    for (wake, told) in [(Wake::OnActivity, 1), (Wake::OnEnd, 0), (Wake::Silent, 0)] {
        let (runtime, _, _) = fresh();
        let asking = body(background("ask", EffectClass::Stepped), |_, cx| {
            Box::pin(
                async move { Ok(cx.ask("colour", "Which colour?", None).await?.unwrap_or_default().into()) },
            )
        });
        runtime.register(asking).unwrap();
        let ask =
            CallRequest { task: Some(NewTask { wake, ..NewTask::default() }), ..call("c", "ask", n(1)) };
        drop(runtime.submit("s", batch("k", vec![ask])).await.unwrap());
        let id = loop {
            match runtime.questions().await.unwrap().pop() {
                Some(question) => break question.id,
                None => tokio::task::yield_now().await,
            }
        };
        let notices = runtime.inbox("s").list(None, 10).await.unwrap();
        assert_eq!(notices.len(), told, "{wake}");
        assert!(notices.iter().all(|notice| notice.text.ends_with("asks: Which colour?")), "{wake}");
        runtime.answer(&id, &json!("red")).await.unwrap();
        runtime.idle().await;
        let ended = runtime.inbox("s").list(None, 10).await.unwrap().len();
        assert_eq!(ended, told + usize::from(wake != Wake::Silent), "{wake}");
    }
}

/// However often whoever starts it dies, it is started once, and never without being a task.
#[tokio::test]
async fn a_task_is_started_once_over_every_death() {
    for class in [EffectClass::Keyed, EffectClass::Stepped] {
        for at in 1..100 {
            let (_, clock, store) = fresh();
            let ran = Count::default();
            let start = |store: Arc<dyn Store>| {
                let runtime = owner(&store, &clock);
                let starts =
                    body(ToolSpec { claims: Some(Vec::new()), ..spec("starts", class) }, |args, cx| {
                        Box::pin(async move {
                            let task = cx.spawn("work", "work", &args, NewTask::default()).await?;
                            Ok(json!(task.to_string()).into())
                        })
                    });
                runtime.register(starts).unwrap();
                runtime.register(crate::rig::echo(background("work", EffectClass::Keyed), &ran)).unwrap();
                runtime
            };
            let asked = || batch("k", vec![call("c", "starts", n(1))]);
            let dies = FaultStore::new(
                store.clone(),
                FaultPlan::Nth(Method::Commit, at, Fault::LostAfter),
                FaultReach::Store,
            );
            let runtime = start(Arc::new(dies.clone()));
            let over = match runtime.submit("s", asked()).await {
                Ok(submitted) => submitted.settled().await.is_ok(),
                Err(_) => false,
            };
            dies.close();
            drop(runtime);
            let runtime = start(store);
            runtime.resume().await.unwrap();
            let answer = run(&runtime, "s", asked()).await;
            assert_eq!(answer.calls[0].state(), "succeeded", "{at}: {}", answer.calls[0].model_text());
            runtime.idle().await;
            let tasks = runtime.tasks("s").list(None, 10).await.unwrap();
            let task = answer.calls[0].value::<String>().unwrap();
            let shown: Vec<_> = tasks.iter().map(|task| (&*task.task, task.state)).collect();
            assert_eq!(shown, [(&*task, "succeeded")], "{class}, death {at}");
            assert_eq!(tasks[0].starter, Some(answer.calls[0].handle().to_string()));
            assert_eq!(notices(&runtime).await, ["queued work succeeded"], "{class}, death {at}");
            assert_eq!(end(&answer).split(',').next(), Some("c succeeded"));
            if over {
                assert!(at > 2, "some of them died");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_tool_is_called_only_in_the_ways_that_its_flags_allow() {
    let (runtime, _, _) = fresh();
    let task_only = Flags { background: true, background_only: true, ..Flags::default() };
    let direct_only = Flags { stays_direct: true, ..Flags::default() };
    let free = |name, flags| ToolSpec { flags, claims: Some(Vec::new()), ..spec(name, EffectClass::Keyed) };
    for (name, flags) in [("nightly", task_only), ("pay", direct_only)] {
        runtime.register(echo(free(name, flags), &Count::default())).unwrap();
    }
    let calls = body(free("calls", Flags::default()), |args, cx| {
        Box::pin(async move {
            let tool = args["tool"].as_str().unwrap_or_default().to_string();
            Ok(cx.call("it", &tool, json!({})).await?.value::<Value>()?.into())
        })
    });
    runtime.register(calls).unwrap();
    let code = async |tool: &str, args: Value| end(&asks(&runtime, tool, args).await);
    assert_eq!(code("nightly", json!({})).await, "c failed/background_only, 0 attempts");
    assert_eq!(code("pay", json!({})).await, "c succeeded, 1 attempts");
    let told = refuses(&runtime, "nightly", json!({})).await;
    assert!(told.contains("Start it as a task, with spawn_background."), "{told}");
    for (tool, says) in
        [("nightly", "runs only in the background"), ("pay", "is not called from other tools")]
    {
        let told = refuses(&runtime, "calls", json!({ "tool": tool })).await;
        assert!(told.contains(says), "{told}");
    }
    answers(&runtime, "spawn_background", json!({ "tool": "nightly" })).await;
    let told = refuses(&runtime, "spawn_background", json!({ "tool": "pay" })).await;
    assert!(told.contains("is only called directly, and never as a task"), "{told}");
    runtime.idle().await;
}

#[tokio::test]
async fn flags_that_contradict_each_other_are_refused() {
    let runtime = crate::rig::memory();
    let both = Flags { background: true, stays_direct: true, ..Flags::default() };
    let only = Flags { background_only: true, ..Flags::default() };
    for (flags, says) in
        [(both, "both stays_direct and background"), (only, "background_only and not background")]
    {
        let spec = ToolSpec { flags, claims: Some(Vec::new()), ..spec("t", EffectClass::Read) };
        let refused = runtime.register(echo(spec, &Count::default())).unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
    }
}

//! A start that is refused is refused at once, with its own code, on every way to start a task: nothing looks alive.

use super::{background, closed, fresh, gated};
use crate::inside::body;
use crate::rig::{batch, call, run, spec};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass::error::{ScheduleError, TriggerError};
use windlass::schedules::NewSchedule;
use windlass::tasks::NewTask;
use windlass::tool::{LoadFuture, Provider, Summary};
use windlass::triggers::NewTrigger;
use windlass::{CallAnswer, CallRequest, EffectClass, Flags, Runtime, Tool, ToolSpec, tool_fn};

/// How a task is started.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// The model's own way.
    Spawn,
    /// As above, at times.
    SpawnAtTimes,
    /// A tool starts it.
    Tool,
    /// The submitter asks for a task and waits.
    Asked,
    /// The submitter asks for a task and does not wait.
    AskedWithoutWaiting,
    Schedule,
    EditedSchedule,
    Trigger,
    TriggerWithEvent,
}

const WAYS: [Way; 9] = [
    Way::Spawn,
    Way::SpawnAtTimes,
    Way::Tool,
    Way::Asked,
    Way::AskedWithoutWaiting,
    Way::Schedule,
    Way::EditedSchedule,
    Way::Trigger,
    Way::TriggerWithEvent,
];

/// Tools that are loaded when they are first used: one that is no tool of the background, and one that is.
struct Shelf;

impl Provider for Shelf {
    fn list(&self) -> Vec<Summary> {
        let flagged = Summary { name: "shelved_build".into(), background: true, ..Summary::default() };
        vec![Summary { name: "shelved".into(), ..Summary::default() }, flagged]
    }

    fn tool<'a>(&'a self, name: &'a str) -> LoadFuture<'a> {
        let spec = match name {
            "shelved" => spec(name, EffectClass::Read),
            _ => ToolSpec { input_schema: Some(schema()), ..background(name, EffectClass::Read) },
        };
        Box::pin(async move {
            // Its tools are not there at once.
            tokio::task::yield_now().await;
            Ok(Some(Arc::new(tool_fn(spec, |args, _| async { Ok(args.into()) })) as Arc<dyn Tool>))
        })
    }
}

fn schema() -> Value {
    json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"],
            "additionalProperties": false })
}

fn shop() -> Runtime {
    let (runtime, _, _) = fresh();
    let build = ToolSpec { input_schema: Some(schema()), ..background("build", EffectClass::Once) };
    runtime.register(gated(build, &closed())).unwrap();
    runtime.register(gated(spec("direct", EffectClass::Read), &closed())).unwrap();
    let flags = Flags { stays_direct: true, ..Flags::default() };
    let bound = ToolSpec { flags, ..spec("bound", EffectClass::Read) };
    runtime.register(gated(bound, &closed())).unwrap();
    runtime.provide(Arc::new(Shelf)).unwrap();
    let emits = BTreeMap::from([("sold".to_string(), json!({}))]);
    let starts = ToolSpec { emits, ..spec("starts", EffectClass::Keyed) };
    let starts = body(starts, |args: Value, cx| {
        Box::pin(async move {
            let tool = args["tool"].as_str().unwrap_or_default().to_string();
            let started = cx.spawn("it", &tool, &args["args"], NewTask::default()).await?;
            Ok(json!(started.to_string()).into())
        })
    });
    runtime.register(starts).unwrap();
    runtime
}

fn code_of(answer: &CallAnswer) -> String {
    assert_eq!(answer.state(), "failed", "{}", answer.model_text());
    assert!(!answer.is_task(), "{}", answer.model_text());
    answer.failure().unwrap().code.to_string()
}

/// The code with which a start is refused.
async fn refusal(runtime: &Runtime, way: Way, tool: &str, args: &Value) -> String {
    let given = json!({ "tool": tool, "args": args });
    let first = |answer: windlass::BatchAnswer| answer.calls.into_iter().next().unwrap();
    let submit = async |request: CallRequest| first(run(runtime, "s", batch("k", vec![request])).await);
    let as_task = || CallRequest { task: Some(NewTask::default()), ..call("c", tool, args.clone()) };
    let hourly = |tool: &str, args: &Value| NewSchedule {
        cron: Some("0 * * * *".into()),
        tool: tool.into(),
        args: args.clone(),
        ..NewSchedule::default()
    };
    let on_sale = |event_as: Option<&str>, args: &Value| NewTrigger {
        event: "sold".into(),
        tool: tool.into(),
        args: args.clone(),
        event_as: event_as.map(str::to_string),
        ..NewTrigger::default()
    };
    let of_schedule = |refused: ScheduleError| match refused {
        ScheduleError::Refused(failure) => failure.code.to_string(),
        other => panic!("{way:?} {tool}: {other:?}"),
    };
    let of_trigger = |refused: TriggerError| match refused {
        TriggerError::Refused(failure) => failure.code.to_string(),
        other => panic!("{way:?} {tool}: {other:?}"),
    };
    match way {
        Way::Spawn => code_of(&submit(call("c", "spawn_background", given)).await),
        Way::SpawnAtTimes => {
            let mut given = given;
            given["schedule"] = json!({ "cron": "0 * * * *" });
            code_of(&submit(call("c", "spawn_background", given)).await)
        }
        Way::Tool => code_of(&submit(call("c", "starts", given)).await),
        Way::Asked => code_of(&submit(as_task()).await),
        Way::AskedWithoutWaiting => {
            let submitted = runtime.submit("s", batch("k", vec![as_task()])).await.unwrap();
            submitted.admitted().await.unwrap();
            code_of(&first(submitted.now().await.unwrap()))
        }
        Way::Schedule => of_schedule(runtime.schedules("s").create(hourly(tool, args)).await.unwrap_err()),
        // Of a schedule that is there only the arguments can become wrong.
        Way::EditedSchedule => {
            let schedules = runtime.schedules("s");
            let right = hourly("build", &json!({ "n": 1 }));
            let made = schedules.create(NewSchedule { id: Some("e".into()), ..right }).await.unwrap().0;
            let edit = windlass::schedules::ScheduleEdit { args: Some(args.clone()), ..Default::default() };
            let refused = schedules.edit(&made.id, edit).await.unwrap_err();
            schedules.remove(&made.id).await.unwrap();
            of_schedule(refused)
        }
        Way::Trigger => of_trigger(runtime.triggers("s").create(on_sale(None, args)).await.unwrap_err()),
        Way::TriggerWithEvent => {
            of_trigger(runtime.triggers("s").create(on_sale(Some("order"), args)).await.unwrap_err())
        }
    }
}

#[tokio::test]
async fn every_way_to_start_a_task_refuses_at_once_what_cannot_be_one() {
    let (right, wrong) = (json!({ "n": 1 }), json!({ "n": "one" }));
    for (tool, args, code) in [
        ("bild", &right, "no_such_tool"),
        ("direct", &right, "not_background"),
        ("bound", &right, "not_background"),
        ("spawn_background", &right, "not_background"),
        ("shelved", &right, "not_background"),
        ("build", &wrong, "invalid_args"),
        ("shelved_build", &wrong, "invalid_args"),
    ] {
        for way in WAYS {
            let known_later = way == Way::TriggerWithEvent && code == "invalid_args";
            let other_tool = way == Way::EditedSchedule && (code != "invalid_args" || tool != "build");
            if known_later || other_tool {
                continue;
            }
            let runtime = shop();
            assert_eq!(refusal(&runtime, way, tool, args).await, code, "{way:?} {tool}");
            runtime.idle().await;
            let tasks = runtime.tasks("s").list(None, 10).await.unwrap();
            assert!(tasks.is_empty(), "{way:?} {tool}: {tasks:?}");
            assert!(runtime.inbox("s").list(None, 10).await.unwrap().is_empty(), "{way:?} {tool}: a notice");
            assert!(runtime.schedules("s").list().await.unwrap().is_empty(), "{way:?} {tool}");
            assert!(runtime.triggers("s").list().await.unwrap().is_empty(), "{way:?} {tool}");
        }
    }
}

#[tokio::test]
async fn a_refused_start_in_a_batch_leaves_its_siblings_alone_and_stays_refused() {
    let runtime = shop();
    let task = || Some(NewTask::default());
    let asked = || {
        let good = CallRequest { task: task(), ..call("good", "build", json!({ "n": 1 })) };
        let bad = CallRequest { task: task(), ..call("bad", "direct", json!({})) };
        batch("k", vec![good, bad, call("sum", "shelved", json!({ "n": 2 }))])
    };
    let states = |answer: &windlass::BatchAnswer| crate::rig::states(answer);
    let answer = run(&runtime, "s", asked()).await;
    assert_eq!(states(&answer), "good running, bad failed/not_background, sum succeeded");
    // The refused one is newer, and takes no place in a page.
    let tasks = runtime.tasks("s").list(None, 1).await.unwrap();
    assert_eq!(tasks.iter().map(|task| &*task.tool).collect::<Vec<_>>(), ["build"]);
    // Asked again it is told the same, and it is nobody's task.
    let again = run(&runtime, "s", asked()).await;
    assert_eq!(states(&again), "good running, bad failed/not_background, sum succeeded");
    let handle = again.calls[1].handle().to_string();
    assert!(runtime.tasks("s").get(&handle).await.is_err(), "it was never a task");
}

#[tokio::test]
async fn a_tool_that_is_refused_a_task_may_go_on() {
    let runtime = shop();
    let tries = body(spec("tries", EffectClass::Stepped), |_, cx| {
        Box::pin(async move {
            let refused = cx.spawn("it", "direct", &json!({}), NewTask::default()).await.unwrap_err();
            let told = refused.to_string();
            // A body that runs again is told the same.
            cx.sleep("nap", std::time::Duration::ZERO).await?;
            Ok(json!(told).into())
        })
    });
    runtime.register(tries).unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "tries", json!({}))])).await;
    assert_eq!(
        answer.calls[0].model_text(),
        "The tool \"direct\" does not run in the background. Call it directly."
    );
    assert!(runtime.tasks("s").list(None, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn background_tools_of_a_provider_bring_the_task_tools() {
    let runtime = crate::rig::memory();
    let names = || -> Vec<String> { runtime.tools().into_iter().map(|tool| tool.summary.name).collect() };
    assert!(!names().contains(&"spawn_background".to_string()), "{:?}", names());
    runtime.provide(Arc::new(Shelf)).unwrap();
    for tool in ["spawn_background", "list_tasks", "get_task", "wait_task", "cancel_task", "message_task"] {
        assert!(names().contains(&tool.to_string()), "{tool}: {:?}", names());
    }
}

//! The place of a call, as tools, preparations and hooks see it.

use super::{background, free, memory, owner};
use crate::inside::body;
use crate::rig::{batch, call, n, run};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use windlass::sessions::{ABOUT, SessionOpening};
use windlass::tasks::NewTask;
use windlass::tool::{Before, BeforeFuture, Hook, HookCx, PrepareCx, PrepareFuture, Prepared};
use windlass::{BatchRequest, Config, Cx, EffectClass, Runtime, Tool, ToolFuture, ToolSpec};
use windlass_testkit::clock::ManualClock;

/// Records of hooks and preparations.
type Seen = Arc<Mutex<Vec<Value>>>;

fn place_of(cx: &Cx) -> Value {
    json!({
        "turn": cx.turn(),
        "principal": cx.principal().as_deref(),
        "handle": cx.handle().to_string(),
        "task": cx.task().map(|task| task.to_string()),
        "parent": cx.parent().map(|parent| parent.to_string()),
        "attempt": cx.attempt().0,
    })
}

/// Tells where it is, after it was prepared.
struct Looks(ToolSpec, Seen);

impl Tool for Looks {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    fn prepare<'a>(&'a self, _: &'a Value, cx: &'a PrepareCx<'a>) -> Option<PrepareFuture<'a>> {
        Some(Box::pin(async move {
            let session = cx.session_state().await.unwrap();
            self.1.lock().unwrap().push(json!({
                "turn": cx.turn(), "principal": cx.principal(), "handle": cx.handle().to_string(),
                "task": cx.task().map(|task| task.to_string()),
                "parent": cx.parent().map(|parent| parent.to_string()), "attempts": cx.attempts(),
                "labels": session.labels, "tools": cx.catalog().len(), "batch": cx.batch_key(),
            }));
            Ok(Prepared::Payload(json!(1)))
        }))
    }

    fn run<'a>(&'a self, _: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move { Ok(place_of(cx).into()) })
    }
}

/// Records the place that a hook sees.
struct Watches(Seen);

impl Hook for Watches {
    fn before<'a>(&'a self, cx: &'a HookCx<'a>) -> Option<BeforeFuture<'a>> {
        Some(Box::pin(async move {
            let session = cx.session_state().await.unwrap();
            self.0.lock().unwrap().push(json!({
                "turn": cx.turn(), "principal": cx.principal(), "handle": cx.handle().to_string(),
                "task": cx.task().map(|task| task.to_string()),
                "parent": cx.parent().map(|parent| parent.to_string()), "attempts": cx.attempts(),
                "labels": session.labels, "tools": cx.catalog().len(), "batch": cx.batch_key(),
            }));
            Ok(Before::Keep)
        }))
    }
}

async fn labelled(runtime: &Runtime) {
    let about = json!({ "title": "Doors", "labels": { "team": "doors" } }).to_string();
    let settings = vec![(ABOUT.to_string(), about.into_bytes().into())];
    let opening = SessionOpening { principal: "alice".into(), settings, ..SessionOpening::default() };
    runtime.open_session("s", opening).await.unwrap();
}

#[tokio::test]
async fn tools_preparations_and_hooks_know_the_place_of_their_call() {
    let (prepared, hooked): (Seen, Seen) = (Seen::default(), Seen::default());
    let unused = Config::new(windlass::store::MemoryStore::new().unwrap());
    let runtime = Runtime::new(Config { hooks: vec![Arc::new(Watches(hooked.clone()))], ..unused });
    labelled(&runtime).await;
    runtime.register(Looks(background("look", EffectClass::Keyed), prepared.clone())).unwrap();
    let starts = body(free("starts", EffectClass::Stepped), |args, cx| {
        Box::pin(async move {
            let inside: Value = cx.call("inside", "look", &args).await?.value()?;
            let task = cx.spawn("task", "look", &args, NewTask::default()).await?;
            let task: Value = cx.await_task("done", task, None).await?.unwrap().value()?;
            Ok(json!({ "own": place_of(cx), "inside": inside, "task": task }).into())
        })
    });
    runtime.register(starts).unwrap();
    let asked = BatchRequest { turn: Some("t7".into()), ..batch("k", vec![call("c", "starts", n(1))]) };
    let answer = run(&runtime, "s", asked).await;
    let handle = answer.calls[0].handle().to_string();
    let told: Value = answer.calls[0].value().unwrap();
    let own = &told["own"];
    assert_eq!((&own["turn"], &own["principal"]), (&json!("t7"), &json!("alice")));
    assert_eq!((&own["handle"], &own["task"], &own["parent"]), (&json!(handle), &Value::Null, &Value::Null));
    assert_eq!((&told["inside"]["parent"], &told["inside"]["task"]), (&json!(handle), &Value::Null));
    assert_eq!((&told["task"]["parent"], &told["task"]["task"]), (&json!(handle), &told["task"]["handle"]));
    let hooked = hooked.lock().unwrap().clone();
    assert_eq!(hooked[0]["turn"], json!("t7"));
    assert_eq!(hooked[0]["handle"], json!(handle));
    // Hooks see what preparations see.
    assert_eq!(prepared.lock().unwrap().clone(), hooked[1..].to_vec());
    assert_eq!((&hooked[2]["parent"], &hooked[2]["task"]), (&json!(handle), &told["task"]["handle"]));
    for seen in &hooked {
        assert_eq!((&seen["labels"]["team"], &seen["principal"]), (&json!("doors"), &json!("alice")));
        assert!(seen["tools"].as_u64().unwrap() >= 2, "{seen}");
    }
}

#[tokio::test]
async fn a_tool_reads_the_catalog_and_the_session() {
    let runtime = owner(&memory(), &ManualClock::default());
    labelled(&runtime).await;
    runtime.register(Looks(background("work", EffectClass::Keyed), Seen::default())).unwrap();
    let reads = body(free("reads", EffectClass::Read), |args, cx| {
        Box::pin(async move {
            let task = cx.spawn("task", "work", &args, NewTask::default()).await?;
            cx.await_task("done", task, None).await?;
            let names: Vec<String> = cx.catalog().into_iter().map(|tool| tool.summary.name).collect();
            let session = cx.session_state().await?;
            assert_eq!(session.tasks[0].task, task.to_string());
            Ok(json!({ "names": names, "session": session }).into())
        })
    });
    runtime.register(reads).unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "reads", n(1))])).await;
    let told: Value = answer.calls[0].value().unwrap();
    let names: Vec<&str> = told["names"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(names.contains(&"reads") && names.contains(&"work") && names.contains(&"get_task"), "{names:?}");
    let session = &told["session"];
    assert_eq!((&session["title"], &session["labels"]["team"]), (&json!("Doors"), &json!("doors")));
    assert_eq!((&session["state"], &session["principal"]), (&json!("open"), &json!("alice")));
    assert_eq!(
        (&session["calls"][0]["tool"], &session["calls"][0]["state"]),
        (&json!("reads"), &json!("running"))
    );
    assert_eq!(session["tasks"][0]["state"], json!("succeeded"));
}

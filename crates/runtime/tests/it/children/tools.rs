//! Which tools a child has: never more than its parent, wherever they are looked for.

use super::{free, on, with};
use crate::inside::body;
use crate::rig::{Count, batch, call, echo, n, run, states};
use serde_json::{Value, json};
use std::sync::Arc;
use windlass::schedules::NewSchedule;
use windlass::sessions::ChildSpec;
use windlass::store::{MemoryStore, Store};
use windlass::triggers::NewTrigger;
use windlass::{EffectClass, Flags, Limits, Runtime, ToolSpec};

async fn names(runtime: &Runtime, session: &str) -> String {
    let listed = runtime.tools_of(session).await.unwrap();
    listed.into_iter().map(|listed| listed.summary.name).collect::<Vec<_>>().join(" ")
}

fn background(name: &str) -> ToolSpec {
    let flags = Flags { background: true, ..Flags::default() };
    ToolSpec { flags, ..free(name, EffectClass::Keyed) }
}

/// Two harmless tools, two that can be tasks, and one that calls whatever it is told to.
fn start(store: &Arc<dyn Store>, ran: &Count) -> Runtime {
    let runtime = on(store, Limits::default());
    let emits = [("told".to_string(), json!({}))].into();
    let look = ToolSpec { emits, ..free("look", EffectClass::Read) };
    for spec in [look, free("send", EffectClass::Keyed)] {
        runtime.register(echo(spec, ran)).unwrap();
    }
    for name in ["build", "deploy"] {
        runtime.register(echo(background(name), ran)).unwrap();
    }
    let calls = body(free("calls", EffectClass::Stepped), |args, cx| {
        Box::pin(async move {
            let tool = args["tool"].as_str().unwrap_or_default().to_string();
            let answer = cx.call("it", &tool, n(1)).await?;
            Ok(json!(answer.failure().map(|failure| failure.code.to_string())).into())
        })
    });
    runtime.register(calls).unwrap();
    runtime
}

async fn refused(runtime: &Runtime, tool: &str, args: Value) -> String {
    let key = windlass::batch::fresh_key().unwrap();
    let answer = run(runtime, "child", batch(&key, vec![call("c", tool, args)])).await;
    format!("{}: {}", states(&answer), answer.calls[0].model_text())
}

#[tokio::test]
async fn a_tool_that_a_child_does_not_have_is_unknown_there() {
    let (store, ran): (Arc<dyn Store>, _) = (Arc::new(MemoryStore::new().unwrap()), Count::default());
    let runtime = start(&store, &ran);
    let tools = with(&["look", "calls", "build", "spawn_background"]);
    assert!(runtime.open_child("s", "child", tools).await.unwrap());
    // Also for whoever takes it after a restart, and before anybody has.
    for runtime in [runtime, start(&store, &ran)] {
        assert_eq!(names(&runtime, "child").await, "build calls look spawn_background");
        let when = || NewSchedule { cron: Some("0 3 * * *".into()), ..NewSchedule::default() };
        let new = NewSchedule { tool: "deploy".into(), ..when() };
        let told = runtime.schedules("child").create(new).await.unwrap_err().to_string();
        assert!(told.contains("There is no tool \"deploy\""), "{told}");
        let new = NewTrigger { event: "told".into(), tool: "deploy".into(), ..NewTrigger::default() };
        let told = runtime.triggers("child").create(new).await.unwrap_err().to_string();
        assert!(told.contains("There is no tool \"deploy\""), "{told}");
        for (tool, args) in [("send", n(1)), ("deploy", n(1)), ("list_tasks", json!({}))] {
            let told = refused(&runtime, tool, args).await;
            assert!(told.starts_with("c failed/no_such_tool"), "{told}");
        }
        let told = refused(&runtime, "spawn_background", json!({ "tool": "deploy" })).await;
        assert!(told.contains("There is no tool \\\"deploy\\\""), "{told}");
        let told = refused(&runtime, "calls", json!({ "tool": "send" })).await;
        assert_eq!(told, "c succeeded: no_such_tool");
        assert_eq!(refused(&runtime, "calls", json!({ "tool": "look" })).await, "c succeeded: null");
        assert!(refused(&runtime, "lok", n(1)).await.contains("look"), "the nearest of those it has");
        assert!(!refused(&runtime, "sen", n(1)).await.contains("send"), "and of no others");
        let told = run(&runtime, "s", batch("k", vec![call("c", "send", n(1))])).await;
        assert_eq!(states(&told), "c succeeded", "its parent has them all");
    }
}

#[tokio::test]
async fn a_child_has_no_more_than_its_parent_has_now() {
    let (store, ran): (Arc<dyn Store>, _) = (Arc::new(MemoryStore::new().unwrap()), Count::default());
    let runtime = start(&store, &ran);
    runtime.open_child("s", "child", with(&["look", "send"])).await.unwrap();
    runtime.open_child("child", "grandchild", ChildSpec::default()).await.unwrap();
    let wrong = runtime.open_child("child", "wrong", with(&["build"])).await;
    assert!(wrong.is_err(), "its parent has no such tool: {wrong:?}");
    assert_eq!(names(&runtime, "grandchild").await, "look send");
    let mut overlay = runtime.overlay();
    overlay.hide("send");
    overlay.add(echo(free("extra", EffectClass::Read), &ran)).unwrap();
    let guard = runtime.attach("s", overlay);
    assert_eq!(
        names(&runtime, "s").await,
        "build calls cancel_task deploy extra get_task list_tasks look message_task \
         spawn_background wait_task"
    );
    assert_eq!(names(&runtime, "child").await, "look");
    assert_eq!(names(&runtime, "grandchild").await, "look");
    let sends = async |key: &str| {
        states(&run(&runtime, "grandchild", batch(key, vec![call("c", "send", n(1))])).await)
    };
    assert_eq!(sends("hidden").await, "c failed/no_such_tool");
    drop(guard);
    assert_eq!(sends("shown").await, "c succeeded");
    // The list is final: what a host attaches to the child itself is seen through it.
    let mut overlay = runtime.overlay();
    overlay.add(echo(free("extra", EffectClass::Read), &ran)).unwrap();
    let _guard = runtime.attach("child", overlay);
    assert_eq!(names(&runtime, "child").await, "look send");
    runtime.unregister("look");
    assert_eq!(names(&runtime, "grandchild").await, "send");
}

/// Tools of a call's batch overlay are its child's too, if the child names them.
#[tokio::test]
async fn a_call_gives_its_child_of_what_it_sees_itself() {
    let (store, ran): (Arc<dyn Store>, _) = (Arc::new(MemoryStore::new().unwrap()), Count::default());
    let runtime = start(&store, &ran);
    let opens = body(free("opens", EffectClass::Stepped), |_, cx| {
        Box::pin(async move {
            let child = cx.child("agent", with(&["extra"])).await?;
            let mut told = Vec::new();
            for tool in ["extra", "other"] {
                let answer = child.batch(tool, super::turn(tool, n(1))).await?;
                told.push(states(&answer));
            }
            Ok(json!(told.join(", ")).into())
        })
    });
    runtime.register(opens).unwrap();
    let mut overlay = runtime.overlay();
    for name in ["extra", "other"] {
        overlay.add(echo(free(name, EffectClass::Read), &ran)).unwrap();
    }
    let mut asked = batch("k", vec![call("c", "opens", json!({}))]);
    asked.overlay = Some(Arc::new(overlay));
    let answer = run(&runtime, "s", asked).await;
    assert_eq!(answer.calls[0].model_text(), "c succeeded, c failed/no_such_tool");
}

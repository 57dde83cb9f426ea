//! Events: their numbers, keys, results, and those that wake the agent.

use super::{background, free, memory, one, over_every_death_after, owner};
use crate::inside::body;
use crate::rig::{Count, batch, call, echo, n, run, states, until_none_is_open};
use serde_json::{Value, json};
use std::sync::Arc;
use windlass::error::EmitError;
use windlass::store::Store;
use windlass::tasks::NoticeKind;
use windlass::triggers::{NewEvent, NewTrigger};
use windlass::{EffectClass, Runtime, Tool, ToolError, ToolSpec};
use windlass_testkit::clock::ManualClock;

fn emitting(name: &str, class: EffectClass) -> ToolSpec {
    let emits = [("sold".to_string(), json!({ "type": "object" })), ("seen".to_string(), json!({}))].into();
    let wakes = [("sold".to_string(), "Sold: {item}.".to_string())].into();
    ToolSpec { emits, wakes, ..free(name, class) }
}

/// Emits what it is told to.
fn emits() -> impl Tool {
    body(emitting("emits", EffectClass::Stepped), |args, cx| {
        Box::pin(async move {
            let first = cx.emit("first", "sold", json!({ "item": "door" })).await?;
            let key = args["key"].as_str().unwrap_or("m-1").to_string();
            let mail = cx.emit_once("mail", "seen", &key, json!(1)).await?;
            let again = cx.emit_once("mail again", "seen", &key, json!(2)).await?;
            cx.emit_with_result("in the end", "seen", json!("end")).await?;
            if args["fails"] == true {
                return Err(ToolError::new("out of doors"));
            }
            Ok(json!([first, mail, again]).into())
        })
    })
}

async fn trigger(runtime: &Runtime) {
    for (id, event) in [("on-sold", "sold"), ("on-seen", "seen")] {
        let new = NewTrigger {
            id: Some(id.into()),
            event: event.into(),
            tool: "work".into(),
            event_as: Some("event".into()),
            ..NewTrigger::default()
        };
        runtime.triggers("s").create(new).await.unwrap();
    }
}

fn make(store: &Arc<dyn Store>, clock: &ManualClock) -> Runtime {
    let runtime = owner(store, clock);
    runtime.register(emits()).unwrap();
    runtime.register(echo(background("work", EffectClass::Keyed), &Count::default())).unwrap();
    runtime
}

#[tokio::test]
async fn an_event_has_a_number_and_tells_what_it_started_and_a_key_makes_it_unique() {
    let runtime = make(&memory(), &ManualClock::default());
    trigger(&runtime).await;
    let answer = one(&runtime, "emits", n(1)).await;
    let told: Value = answer.calls[0].value().unwrap();
    assert_eq!((&told[0]["number"], &told[0]["is_new"]), (&json!(1), &json!(true)));
    assert_eq!((&told[1]["number"], &told[1]["is_new"]), (&json!(2), &json!(true)));
    assert_eq!((&told[2]["number"], &told[2]["is_new"]), (&json!(2), &json!(false)));
    assert_eq!(told[2]["tasks"], json!([]));
    let sold = told[0]["tasks"][0].as_str().unwrap();
    runtime.idle().await;
    let (_, ended) = runtime.tasks("s").wait(sold, std::time::Duration::from_secs(5)).await.unwrap();
    assert_eq!(ended.value::<Value>().unwrap(), json!({ "event": { "item": "door" } }));
    // Another call that sees the same thing emits nothing.
    let other = run(&runtime, "s", batch("other", vec![call("c", "emits", n(2))])).await;
    let told: Value = other.calls[0].value().unwrap();
    assert_eq!((&told[1]["number"], &told[1]["is_new"]), (&json!(2), &json!(false)));
}

/// The payloads of the events that tasks got, sorted.
async fn got(runtime: &Runtime) -> Vec<String> {
    let mut found = Vec::new();
    for task in runtime.tasks("s").list(None, 20).await.unwrap() {
        let (_, answer) = runtime.tasks("s").get(&task.task).await.unwrap();
        found.push(answer.value::<Value>().unwrap()["event"].to_string());
    }
    found.sort_unstable();
    found
}

#[tokio::test]
async fn an_event_with_the_result_counts_only_if_the_call_succeeds() {
    for (fails, expected) in
        [(false, vec!["\"end\"", "1", "{\"item\":\"door\"}"]), (true, vec!["1", "{\"item\":\"door\"}"])]
    {
        let runtime = make(&memory(), &ManualClock::default());
        trigger(&runtime).await;
        one(&runtime, "emits", json!({ "fails": fails })).await;
        // What is planned is emitted behind the answer.
        while runtime.tasks("s").list(None, 20).await.unwrap().len() < expected.len() {
            tokio::task::yield_now().await;
        }
        runtime.idle().await;
        assert_eq!(got(&runtime).await, expected, "fails: {fails}");
    }
}

#[tokio::test]
async fn an_event_that_wakes_the_agent_leaves_a_notice() {
    let runtime = make(&memory(), &ManualClock::default());
    let answer = one(&runtime, "emits", n(1)).await;
    let notices = runtime.inbox("s").list(None, 10).await.unwrap();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert_eq!((notices[0].kind, &*notices[0].text), (NoticeKind::Event, "Sold: door."));
    assert_eq!(
        (&*notices[0].title, notices[0].call.clone()),
        ("sold", Some(answer.calls[0].handle().to_string()))
    );
    let spec =
        ToolSpec { wakes: [("bought".into(), "x".into())].into(), ..emitting("odd", EffectClass::Read) };
    let refused = runtime.register(echo(spec, &Count::default())).unwrap_err().to_string();
    assert!(refused.contains("does not emit"), "{refused}");
}

#[tokio::test]
async fn the_host_emits_events_as_tools_do() {
    let runtime = make(&memory(), &ManualClock::default());
    trigger(&runtime).await;
    let sold = || NewEvent { kind: "sold", payload: json!({ "item": "lock" }), once_by: Some("order 7") };
    let told = runtime.emit("s", sold()).await.unwrap();
    assert_eq!((told.number, told.tasks.len(), told.is_new), (1, 1, true));
    let again = runtime.emit("s", sold()).await.unwrap();
    assert_eq!((again.number, again.tasks.len(), again.is_new), (1, 0, false));
    let (_, ended) =
        runtime.tasks("s").wait(&told.tasks[0].to_string(), std::time::Duration::from_secs(5)).await.unwrap();
    assert_eq!(ended.value::<Value>().unwrap(), json!({ "event": { "item": "lock" } }));
    assert_eq!(runtime.tasks("s").list(None, 9).await.unwrap()[0].trigger.as_deref(), Some("on-sold"));
    let texts: Vec<String> =
        runtime.inbox("s").list(None, 9).await.unwrap().into_iter().map(|notice| notice.text).collect();
    assert!(texts.contains(&"Sold: lock.".to_string()), "{texts:?}");
    let undeclared = runtime.emit("s", NewEvent { kind: "solt", ..sold() }).await;
    assert!(
        matches!(&undeclared, Err(EmitError::Undeclared { nearest, .. }) if nearest.as_deref() == Some("sold"))
    );
    let unfit = runtime.emit("s", NewEvent { payload: json!(1), once_by: None, ..sold() }).await;
    assert!(matches!(unfit, Err(EmitError::Invalid { .. })));
    let blank = runtime.emit("s", NewEvent { once_by: Some(" "), ..sold() }).await;
    assert!(matches!(blank, Err(EmitError::Invalid { .. })));
}

/// The triggers that are there before anything is emitted. `false`: the owner dies.
async fn has_triggers(runtime: &Runtime) -> bool {
    for (id, event) in [("on-sold", "sold"), ("on-seen", "seen")] {
        let (id, event) = (Some(id.into()), event.into());
        let (tool, event_as) = ("work".into(), Some("event".into()));
        let new = NewTrigger { id, event, tool, event_as, ..NewTrigger::default() };
        if runtime.triggers("s").create(new).await.is_err() {
            return false;
        }
    }
    true
}

/// A call of `leads` makes one of `tool` inside it, so that both are taken over.
fn leads(tool: &'static str) -> impl Tool {
    body(free("leads", EffectClass::Stepped), move |_, cx| {
        Box::pin(async move { Ok(cx.call("it", tool, n(1)).await?.value::<Value>()?.into()) })
    })
}

/// Waits until so many tasks were started and are over, and says the payloads that they got. The next event has the number
/// behind those of all before it, so none was emitted that started nothing.
async fn told_once(runtime: &Runtime, expected: &[&str], what: &str) {
    let started = async {
        while runtime.tasks("s").list(None, 20).await.unwrap().len() < expected.len() {
            tokio::task::yield_now().await;
        }
    };
    let patience = std::time::Duration::from_secs(60);
    let started = tokio::time::timeout(patience, started).await;
    assert!(started.is_ok(), "{what}: an event is lost: {:?}", got(runtime).await);
    until_none_is_open(runtime).await;
    let next =
        runtime.emit("s", NewEvent { kind: "sold", payload: json!({ "item": "last" }), once_by: None }).await;
    assert_eq!(next.unwrap().number, expected.len() as u64 + 1, "{what}: {:?}", got(runtime).await);
    until_none_is_open(runtime).await;
    let last = "{\"item\":\"last\"}";
    let mut all: Vec<&str> = expected.iter().copied().chain([last]).collect();
    all.sort_unstable();
    assert_eq!(got(runtime).await, all, "{what}");
}

#[tokio::test]
async fn no_event_is_lost_or_emitted_twice_over_every_death() {
    let lead = |store: &Arc<dyn Store>, clock: &ManualClock| {
        let runtime = make(store, clock);
        runtime.register(leads("emits")).unwrap();
        runtime
    };
    over_every_death_after("leads", lead, has_triggers, async |runtime, answer, what| {
        assert_eq!(states(&answer), "c succeeded", "{what}: {}", answer.calls[0].model_text());
        let told: Value = answer.calls[0].value().unwrap();
        let numbers: Vec<_> = (0..3).map(|place| told[place]["number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, [1, 2, 2], "{what}");
        let notices = runtime.inbox("s").list(None, 20).await.unwrap();
        assert_eq!(notices.iter().filter(|notice| notice.kind == NoticeKind::Event).count(), 1, "{what}");
        told_once(runtime, &["{\"item\":\"door\"}", "1", "\"end\""], what).await;
    })
    .await;
}

#[tokio::test]
async fn planned_events_start_their_tasks_once_over_every_death() {
    let lead = |store: &Arc<dyn Store>, clock: &ManualClock| {
        let runtime = owner(store, clock);
        runtime.register(echo(background("work", EffectClass::Keyed), &Count::default())).unwrap();
        let plans = body(emitting("plans", EffectClass::Stepped), |_, cx| {
            Box::pin(async move {
                cx.emit_with_result("end", "seen", json!("end")).await?;
                Ok(json!(1).into())
            })
        });
        runtime.register(plans).unwrap();
        runtime.register(leads("plans")).unwrap();
        runtime
    };
    over_every_death_after("leads", lead, has_triggers, async |runtime, answer, what| {
        assert_eq!(states(&answer), "c succeeded", "{what}");
        told_once(runtime, &["\"end\""], what).await;
    })
    .await;
}

//! The details of tasks, also after their end and a restart; schedules and child sessions that tools make.

use super::{background, free, memory, one, over_every_death, owner};
use crate::inside::body;
use crate::rig::{Count, batch, call, echo, n, run, states, waits_for};
use serde_json::{Value, json};
use std::sync::Arc;
use windlass::batch::NestedBatch;
use windlass::schedules::{NewSchedule, ScheduleEdit};
use windlass::sessions::ChildSpec;
use windlass::store::Store;
use windlass::tasks::{NewTask, TaskFilter, TaskKind};
use windlass::tool::Progress;
use windlass::tool::Stream;
use windlass::{CallRequest, EffectClass, Runtime, Tool, ToolSpec};
use windlass_testkit::clock::ManualClock;

/// Reports, writes a log, attaches a file, and asks a person.
fn reports() -> impl Tool {
    let spec = ToolSpec { title: "Nightly report".into(), ..background("reports", EffectClass::Stepped) };
    body(spec, |args, cx| {
        Box::pin(async move {
            cx.progress(Progress { current: Some(2.0), total: Some(4.0), ..Progress::default() });
            cx.status("half way");
            cx.output(Stream::Out, "a line of the log\n".repeat(1_000).as_bytes());
            let file = cx.attach("table", b"a,b\n", "text/csv").await?;
            if args["asks"] == true {
                let schema = json!({ "type": "integer" });
                let answer = cx.ask("how many", "How many doors?", Some(schema)).await?;
                return Ok(json!({ "doors": answer }).into());
            }
            let parts = vec![file.into_part("table.csv")];
            Ok(windlass::Output { value: json!("twelve pages\nand more"), parts, ..Default::default() })
        })
    })
}

async fn start(runtime: &Runtime, args: Value) -> String {
    let task = CallRequest { task: Some(NewTask::default()), ..call("c", "reports", args) };
    let key = windlass::batch::fresh_key().unwrap();
    run(runtime, "s", batch(&key, vec![task])).await.calls[0].handle().to_string()
}

#[tokio::test]
async fn a_task_keeps_its_last_words_and_shows_everything_after_a_restart() {
    let (store, clock) = (memory(), ManualClock::default());
    let first = owner(&store, &clock);
    first.register(reports()).unwrap();
    let task = start(&first, n(1)).await;
    first.idle().await;
    let check = async |runtime: &Runtime, what: &str| {
        let (shown, _) = runtime.tasks("s").get(&task).await.unwrap();
        let told = json!(shown);
        assert_eq!(told["title"], json!("Nightly report"), "{what}: from the tool");
        assert_eq!(
            (&told["progress"]["current"], &told["status"]),
            (&json!(2.0), &json!("half way")),
            "{what}"
        );
        assert_eq!(told["summary"], json!("twelve pages"), "{what}");
        assert_eq!(told["artifacts"].as_array().unwrap().len(), 1, "{what}");
        assert_eq!(told["requested_by"], json!("local"), "{what}");
        for time in ["started_at", "updated_at", "alive_at", "ended_at"] {
            assert!(told[time].is_string(), "{what}: {time}");
        }
        assert!(told.get("detail").is_none(), "{what}: {told}");
    };
    check(&first, "at its end").await;
    let log = first.tasks("s").log(&task, None, 10).await.unwrap();
    assert!(log.len() > 1 && log.iter().all(|piece| piece.text.ends_with("log\n")), "pieces end with lines");
    drop(first);
    check(&owner(&store, &clock), "after a restart").await;
}

async fn tool(runtime: &Runtime, tool: &str, args: Value) -> Value {
    let key = windlass::batch::fresh_key().unwrap();
    let answer = run(runtime, "s", batch(&key, vec![call("c", tool, args)])).await;
    assert_eq!(states(&answer), "c succeeded", "{}", answer.calls[0].model_text());
    answer.calls[0].value().unwrap()
}

#[tokio::test]
async fn the_model_pages_through_a_task_answers_its_question_and_gets_its_parts() {
    let runtime = owner(&memory(), &ManualClock::default());
    runtime.register(reports()).unwrap();
    let task = start(&runtime, json!({ "asks": true })).await;
    waits_for(&runtime, "input").await;
    let shown = tool(&runtime, "get_task", json!({ "task": task })).await;
    let question = &shown["input_requests"][0];
    assert_eq!(
        (&question["question"], &question["schema"]["type"]),
        (&json!("How many doors?"), &json!("integer"))
    );
    assert!(shown["detail"].as_str().unwrap().starts_with("input"), "{shown}");
    let last = shown["log"].as_array().unwrap().last().unwrap()["no"].as_u64().unwrap();
    let rest = tool(&runtime, "get_task", json!({ "task": task, "log_after": last - 1 })).await;
    assert_eq!(rest["log"].as_array().unwrap().len(), 1, "{rest}");
    let wrong = json!({ "task": task, "text": "many", "in_reply_to": question["id"] });
    let key = windlass::batch::fresh_key().unwrap();
    let refused = run(&runtime, "s", batch(&key, vec![call("c", "message_task", wrong)])).await;
    assert_eq!(refused.calls[0].failure().unwrap().tool_code.as_deref(), Some("invalid"));
    tool(&runtime, "message_task", json!({ "task": task, "text": "3", "in_reply_to": question["id"] })).await;
    let ended = tool(&runtime, "wait_task", json!({ "task": task })).await;
    assert_eq!(ended["result"], json!("{\"doors\":3}"));
    let plain = start(&runtime, n(1)).await;
    let key = windlass::batch::fresh_key().unwrap();
    let waited = call("c", "wait_task", json!({ "task": plain }));
    let answer = run(&runtime, "s", batch(&key, vec![waited])).await;
    let told = serde_json::to_value(&answer.calls[0]).unwrap();
    assert!(told["outcome"]["parts"].as_array().is_some_and(|parts| parts.len() == 1), "{told}");
    for (filter, count) in [
        (json!({ "state": "succeeded" }), 2),
        (json!({ "state": "running" }), 0),
        (json!({ "kind": "monitor" }), 0),
        (json!({ "kind": "tool", "limit": 1 }), 1),
    ] {
        let listed = tool(&runtime, "list_tasks", filter.clone()).await;
        assert_eq!(listed["tasks"].as_array().unwrap().len(), count, "{filter}");
    }
    let kind = Some(TaskKind::Monitor);
    let none = runtime.tasks("s").list_where(TaskFilter { kind, state: None }, None, 9).await.unwrap();
    assert!(none.tasks.is_empty() && none.next.is_none(), "{none:?}");
}

#[tokio::test]
async fn blank_titles_are_refused_and_a_task_that_is_asked_to_stop_says_so() {
    let runtime = owner(&memory(), &ManualClock::default());
    runtime.register(reports()).unwrap();
    let blank = NewTask { title: Some("  ".into()), ..NewTask::default() };
    let asked = CallRequest { task: Some(blank), ..call("c", "reports", n(1)) };
    let refused = runtime.submit("s", batch("blank", vec![asked])).await.err().unwrap().to_string();
    assert!(refused.contains("title is blank"), "{refused}");
    let task = start(&runtime, json!({ "asks": true })).await;
    waits_for(&runtime, "input").await;
    runtime.cancel(windlass::ask::Target::Call(&task), None).await.unwrap();
    runtime.idle().await;
    let (shown, _) = runtime.tasks("s").get(&task).await.unwrap();
    assert!(shown.cancel_asked, "{shown:?}");
}

#[tokio::test]
async fn a_tool_makes_edits_and_removes_schedules_once_over_every_death() {
    let make = |store: &Arc<dyn Store>, clock: &ManualClock| {
        let runtime = owner(store, clock);
        runtime.register(echo(background("work", EffectClass::Keyed), &Count::default())).unwrap();
        let plans = body(free("plans", EffectClass::Stepped), |_, cx| {
            Box::pin(async move {
                let cron = |cron: &str| Some(cron.to_string());
                let weekly = |hour: &str| NewSchedule {
                    cron: cron(&format!("0 {hour} * * 1")),
                    tool: "work".into(),
                    args: n(1),
                    ..NewSchedule::default()
                };
                let first = cx.schedule("first", weekly("9")).await?;
                let second = cx.schedule("second", weekly("10")).await?;
                let edit = ScheduleEdit { cron: cron("0 11 * * 1"), ..ScheduleEdit::default() };
                cx.edit_schedule("later", &first, edit).await?;
                let removed = cx.remove_schedule("gone", &second).await?;
                let wrong = NewSchedule { cron: cron("61 * * * *"), ..weekly("9") };
                let refused = cx.schedule("wrong", wrong).await.unwrap_err().to_string();
                Ok(json!([first, removed, refused]).into())
            })
        });
        runtime.register(plans).unwrap();
        runtime
    };
    over_every_death("plans", make, async |runtime, answer, what| {
        assert_eq!(states(&answer), "c succeeded", "{what}: {}", answer.calls[0].model_text());
        let told = answer.calls[0].value::<Value>().unwrap();
        let there = runtime.schedules("s").list().await.unwrap();
        let shown: Vec<_> =
            there.iter().map(|schedule| (json!(schedule.id), schedule.cron.as_deref())).collect();
        assert_eq!(shown, [(told[0].clone(), Some("0 11 * * 1"))], "{what}");
        assert!(told[2].as_str().unwrap().contains("61"), "{what}: {told}");
    })
    .await;
}

#[tokio::test]
async fn a_child_session_is_closed_early_over_every_death() {
    let make = |store: &Arc<dyn Store>, clock: &ManualClock| {
        let runtime = owner(store, clock);
        runtime.register(echo(free("work", EffectClass::Keyed), &Count::default())).unwrap();
        let leads = body(free("leads", EffectClass::Stepped), |_, cx| {
            Box::pin(async move {
                let child = cx.child("agent", ChildSpec::default()).await?;
                let turn = |key: &str| {
                    (
                        key.to_string(),
                        NestedBatch { calls: vec![call("w", "work", n(1))], ..NestedBatch::default() },
                    )
                };
                let (key, calls) = turn("one");
                child.batch(&key, calls).await?;
                child.close("done").await?;
                let (key, calls) = turn("two");
                let refused = child.batch(&key, calls).await.err().unwrap().to_string();
                Ok(json!(refused).into())
            })
        });
        runtime.register(leads).unwrap();
        runtime
    };
    over_every_death("leads", make, async |_, answer, what| {
        assert_eq!(states(&answer), "c succeeded", "{what}: {}", answer.calls[0].model_text());
        assert!(answer.calls[0].value::<String>().unwrap().contains("closed"), "{what}");
    })
    .await;
    let runtime = make(&memory(), &ManualClock::default());
    one(&runtime, "leads", n(1)).await;
}

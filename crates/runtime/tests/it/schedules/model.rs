//! Schedules that a model makes, with `spawn_background`.

use super::{MINUTE, World, notices, until};
use crate::rig::{batch, call, run};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use windlass::schedules::Schedules;
use windlass::{CallAnswer, Runtime};
use windlass_testkit::fault_store::{Fault, FaultPlan, FaultReach, FaultStore, Method};

async fn asks(runtime: &Runtime, key: &str, tool: &str, args: Value) -> CallAnswer {
    let answer = run(runtime, "s", batch(key, vec![call("c", tool, args)])).await;
    answer.calls.into_iter().next().unwrap()
}

async fn answers(runtime: &Runtime, key: &str, tool: &str, args: Value) -> Value {
    let answer = asks(runtime, key, tool, args).await;
    answer.value().unwrap_or_else(|error| panic!("{}", error.message))
}

#[tokio::test]
async fn a_model_starts_a_call_at_times_and_is_answered_with_the_schedule() {
    let world = World::new();
    let runtime = world.owner();
    let schedule = json!({ "cron": "*/5 * * * *", "zone": "Asia/Kolkata", "overlap": "allow" });
    let asked = json!({ "tool": "tick", "args": { "n": 7 }, "title": "Tick", "schedule": schedule });
    let made = answers(&runtime, "k", "spawn_background", asked).await;
    let id = made["id"].as_str().unwrap();
    let expected = (&json!("Asia/Kolkata"), &json!("allow"), &json!("one"), &json!("on_end"), &json!("Tick"));
    assert_eq!((&made["zone"], &made["overlap"], &made["catch_up"], &made["wake"], &made["title"]), expected);
    let owner = made["owner"].as_str().and_then(|owner| owner.strip_prefix("call ")).unwrap();
    assert!(runtime.is_call(owner), "it says which call made it: {made}");
    assert_eq!(json!(runtime.schedules("s").get(id).await.unwrap()), made, "it is the schedule's record");
    let listed = answers(&runtime, "l", "list_tasks", json!({})).await;
    assert_eq!((&listed["tasks"][0]["task"], &listed["tasks"][0]["kind"]), (&json!(id), &json!("monitor")));
    for (key, tool) in [("g", "get_task"), ("w", "wait_task")] {
        let shown = answers(&runtime, key, tool, json!({ "task": id })).await;
        assert_eq!(shown, listed["tasks"][0], "{tool}");
    }
    assert_eq!(world.began(), 0, "nothing is started now");
    world.clock.advance(MINUTE * 5);
    until(async || notices(&runtime).await == 1).await;
    assert_eq!(*world.began.lock().unwrap(), ["{\"n\":7}"]);
}

#[tokio::test]
async fn a_model_cancels_a_schedule_and_nothing_more_is_started() {
    let world = World::held_up();
    let runtime = world.owner();
    let asked = json!({ "tool": "tick", "schedule": { "cron": "*/5 * * * *", "overlap": "allow" } });
    let made = answers(&runtime, "k", "spawn_background", asked).await;
    let id = made["id"].as_str().unwrap();
    world.clock.advance(MINUTE * 5);
    until(async || world.began() == 1).await;
    for (key, was_over) in [("c", false), ("again", true)] {
        let told = answers(&runtime, key, "cancel_task", json!({ "task": id })).await;
        assert_eq!(told, json!({ "task": id, "disabled": true, "was_over": was_over }));
    }
    assert!(!runtime.schedules("s").get(id).await.unwrap().enabled, "it is there, and disabled");
    let listed = answers(&runtime, "l", "list_tasks", json!({})).await;
    let shown = |task: &Value| (task["kind"].clone(), task["state"] == "cancelled");
    let kinds: Vec<_> = listed["tasks"].as_array().unwrap().iter().map(shown).collect();
    let expected = [(json!("monitor"), true), (json!("tool"), false)];
    assert_eq!(kinds, expected, "the schedule is over, what it has started goes on");
    world.clock.advance(MINUTE * 30);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.began(), 1);
    // Another session does not see it.
    let foreign =
        run(&runtime, "other", batch("f", vec![call("c", "cancel_task", json!({ "task": id }))])).await;
    assert_eq!(foreign.calls[0].state(), "failed", "{}", foreign.calls[0].model_text());
}

#[tokio::test]
async fn a_call_makes_one_schedule_however_often_it_runs() {
    let world = World::new();
    let runtime = world.owner();
    let at = json!({ "at": "2027-01-15T08:01:00Z" });
    let asked = json!({ "tool": "tick", "schedule": at, "signal_on_completion": false });
    let made = answers(&runtime, "k", "spawn_background", asked.clone()).await;
    assert_eq!(made["wake"], "silent");
    let other = answers(&runtime, "other", "spawn_background", asked.clone()).await;
    assert_ne!(made["id"], other["id"], "another call makes another");
    world.clock.advance(MINUTE + Duration::from_secs(1));
    until(async || world.began() == 2).await;
    runtime.idle().await;
    assert_eq!(notices(&runtime).await, 0);
}

/// A repetition of the call after a crash finds the schedule that it made, even if that one's time is over by now.
#[tokio::test]
async fn a_call_that_is_cut_off_at_any_commit_makes_one_schedule_or_none() {
    let mut made = 0;
    for commit in 1..=5 {
        for fault in [Fault::FailBefore, Fault::FailAfter, Fault::LostBefore, Fault::LostAfter] {
            let world = World::new();
            let asked = json!({ "tool": "tick", "schedule": { "at": "2027-01-15T08:01:00Z" } });
            let request = batch("k", vec![call("c", "spawn_background", asked)]);
            let plan = FaultPlan::Nth(Method::Commit, commit, fault);
            let store = FaultStore::new(world.store.clone(), plan, FaultReach::Store);
            let owner = world.owner_on(Arc::new(store.clone()));
            let life = async {
                let submitted = owner.submit("s", request.clone()).await;
                if let Ok(submitted) = submitted {
                    drop(submitted.settled().await);
                }
            };
            tokio::select! {
                () = life => {}
                () = until(async || !store.happened().is_empty()) => {}
            }
            store.close();
            drop(owner);
            let before = Schedules::recorded(world.store.clone(), "s").list().await.unwrap().len();
            world.clock.advance(MINUTE * 2);
            let next = world.owner();
            next.resume().await.unwrap();
            let answer = run(&next, "s", request).await;
            let all = next.schedules("s").list().await.unwrap().len();
            let state = answer.calls[0].state();
            assert_eq!((all, state == "succeeded"), (before, before == 1), "{commit} {fault:?}: {state}");
            made += before;
        }
    }
    assert!((6..20).contains(&made), "{made}");
}

#[tokio::test]
async fn a_schedule_that_cannot_be_is_refused_with_the_reason() {
    let world = World::new();
    let runtime = world.owner();
    for (no, (schedule, says)) in [
        (json!({ "cron": "0 25 * * *" }), "no value from 0 to 23"),
        (json!({}), "needs a cron"),
        (json!({ "at": "2001-01-01T00:00:00Z" }), "is over"),
        (json!({ "cron": "0 0 * * *", "zone": "Mars" }), "no time zone"),
        (json!({ "cron": "0 0 * * *", "overlap": "maybe" }), "overlap"),
        (json!({ "every": "day" }), "every"),
    ]
    .into_iter()
    .enumerate()
    {
        let asked = json!({ "tool": "tick", "schedule": schedule });
        let refused = asks(&runtime, &format!("k{no}"), "spawn_background", asked).await;
        assert_eq!(refused.state(), "failed");
        assert!(refused.model_text().contains(says), "{says}: {}", refused.model_text());
    }
    assert!(runtime.schedules("s").list().await.unwrap().is_empty());
}

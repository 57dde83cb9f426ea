//! Tasks and named events that calls wait for.

use super::{background, free, memory, one, over_every_death, owner};
use crate::inside::body;
use crate::rig::{Count, batch, call, n, run, states, waits_for};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;
use windlass::error::AskError;
use windlass::store::Store;
use windlass::tasks::NewTask;
use windlass::wait::Completed;
use windlass::{Cx, Deadlines, EffectClass, Runtime, Tool, ToolError, ToolSpec, tool_fn};
use windlass_testkit::clock::ManualClock;

/// Starts two tasks, waits for both, and returns what they returned.
fn both(bodies: &Count) -> impl Tool + use<> {
    let bodies = bodies.clone();
    body(free("both", EffectClass::Stepped), move |_, cx| {
        bodies.up();
        Box::pin(async move {
            let left = cx.spawn("left", "work", &n(1), NewTask::default()).await?;
            let right = cx.spawn("right", "work", &n(2), NewTask::default()).await?;
            let left: Value = cx.await_task("left done", left, None).await?.unwrap().value()?;
            let right: Value = cx.await_task("right done", right, None).await?.unwrap().value()?;
            Ok(json!([left, right]).into())
        })
    })
}

fn gated(spec: ToolSpec, gate: &Arc<Semaphore>) -> impl Tool + use<> {
    let gate = gate.clone();
    tool_fn(spec, move |args, _: &Cx| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            Ok(args.into())
        }
    })
}

#[tokio::test]
async fn a_stepped_body_that_awaits_tasks_is_put_aside_and_goes_on_after_a_restart() {
    let (store, clock, gate, bodies) =
        (memory(), ManualClock::default(), Arc::new(Semaphore::new(0)), Count::default());
    let make = || {
        let runtime = owner(&store, &clock);
        runtime.register(both(&bodies)).unwrap();
        runtime.register(gated(background("work", EffectClass::Keyed), &gate)).unwrap();
        runtime
    };
    let first = make();
    let submitted = first.submit("s", batch("k", vec![call("c", "both", n(0))])).await.unwrap();
    waits_for(&first, "awaited").await;
    assert_eq!(bodies.get(), 1);
    drop(submitted);
    drop(first);
    let next = make();
    next.resume().await.unwrap();
    waits_for(&next, "awaited").await;
    assert_eq!(bodies.get(), 1, "nothing has ended, so its body need not run");
    // The attempts of the first owner wait at the gate too.
    gate.add_permits(4);
    let answer = one(&next, "both", n(0)).await;
    assert_eq!(answer.calls[0].value::<Value>().unwrap(), json!([n(1), n(2)]));
}

#[tokio::test]
async fn awaited_tasks_are_started_once_and_their_outcomes_are_told_over_every_death() {
    let make = |store: &Arc<dyn Store>, clock: &ManualClock| {
        let runtime = owner(store, clock);
        runtime.register(both(&Count::default())).unwrap();
        runtime
            .register(crate::rig::echo(background("work", EffectClass::Keyed), &Count::default()))
            .unwrap();
        runtime
    };
    over_every_death("both", make, async |runtime, answer, what| {
        assert_eq!(states(&answer), "c succeeded", "{what}: {}", answer.calls[0].model_text());
        assert_eq!(answer.calls[0].value::<Value>().unwrap(), json!([n(1), n(2)]), "{what}");
        assert_eq!(runtime.tasks("s").list(None, 10).await.unwrap().len(), 2, "{what}");
    })
    .await;
}

#[tokio::test]
async fn an_awaited_task_that_failed_tells_its_whole_outcome_and_a_deadline_ends_the_wait() {
    let clock = ManualClock::default();
    let runtime = owner(&memory(), &clock);
    let fails = |_, _: &Cx| async { Err(ToolError::new("no doors left")) };
    runtime.register(tool_fn(background("fails", EffectClass::Once), fails)).unwrap();
    let gate = Arc::new(Semaphore::new(0));
    runtime.register(gated(background("hangs", EffectClass::Once), &gate)).unwrap();
    for class in [EffectClass::Stepped, EffectClass::Once] {
        let name = format!("waits-{class}");
        // Time passes faster here than other threads get to run: no deadline but that of the wait may come.
        let day_ms = Some(86_400_000);
        let deadlines = Deadlines { attempt_ms: day_ms, total_ms: day_ms, ..Deadlines::default() };
        let patient = ToolSpec { deadlines, ..free(&name, class) };
        let waits = body(patient, |args, cx| {
            Box::pin(async move {
                let tool = args["tool"].as_str().unwrap().to_string();
                let task = cx.spawn("task", &tool, &n(1), NewTask::default()).await?;
                let limit = Some(std::time::Duration::from_secs(5));
                let ended = cx.await_task("done", task, limit).await?;
                Ok(json!(ended.map(|ended| ended.failure().map(|failed| failed.message.clone()))).into())
            })
        });
        runtime.register(waits).unwrap();
        let told = run(&runtime, "s", batch(&name, vec![call("c", &name, json!({ "tool": "fails" }))])).await;
        assert_eq!(told.calls[0].value::<Value>().unwrap(), json!("no doors left"), "{class}");
        let late = batch(&format!("{name}-late"), vec![call("c", &name, json!({ "tool": "hangs" }))]);
        let waiting = tokio::spawn(runtime.submit("s", late).await.unwrap().settled());
        while !waiting.is_finished() {
            clock.advance(std::time::Duration::from_millis(500));
            tokio::task::spawn_blocking(|| ()).await.unwrap();
        }
        let told = waiting.await.unwrap().unwrap();
        assert_eq!(told.calls[0].value::<Value>().unwrap(), Value::Null, "{class}");
    }
    gate.add_permits(2);
}

#[tokio::test]
async fn nobody_waits_for_what_is_no_task_of_the_session() {
    let runtime = owner(&memory(), &ManualClock::default());
    runtime.register(crate::rig::echo(background("work", EffectClass::Keyed), &Count::default())).unwrap();
    let waits = body(free("waits", EffectClass::Stepped), |args, cx| {
        Box::pin(async move {
            let inside = cx.call("inside", "work", &args).await?.handle();
            cx.await_task("own", cx.handle(), None).await.map(drop).unwrap_err();
            cx.await_task("inside done", inside, None).await?;
            Ok(json!(1).into())
        })
    });
    runtime.register(waits).unwrap();
    let answer = one(&runtime, "waits", n(1)).await;
    let told = answer.calls[0].model_text();
    assert!(told.contains("There is no task"), "{told}");
}

/// Starts one task that ends with it and one that does not, and returns at once.
fn leaves() -> impl Tool {
    body(free("leaves", EffectClass::Stepped), |_, cx| {
        Box::pin(async move {
            let bound = cx.spawn_attached("bound", "obeys", &n(1), NewTask::default()).await?;
            let free = cx.spawn("free", "work", &n(2), NewTask::default()).await?;
            Ok(json!([bound.to_string(), free.to_string()]).into())
        })
    })
}

fn obeys() -> impl Tool {
    body(background("obeys", EffectClass::Read), |_, cx| {
        Box::pin(async move {
            cx.stopping().await;
            Err(ToolError::stopped())
        })
    })
}

#[tokio::test]
async fn attached_tasks_end_with_their_call_and_before_it_over_every_death() {
    let make = |store: &Arc<dyn Store>, clock: &ManualClock| {
        let runtime = owner(store, clock);
        runtime.register(leaves()).unwrap();
        runtime.register(obeys()).unwrap();
        runtime
            .register(crate::rig::echo(background("work", EffectClass::Keyed), &Count::default()))
            .unwrap();
        runtime
    };
    over_every_death("leaves", make, async |runtime, answer, what| {
        assert_eq!(states(&answer), "c succeeded", "{what}: {}", answer.calls[0].model_text());
        let tasks = runtime.tasks("s").list(None, 10).await.unwrap();
        let mut shown: Vec<_> = tasks.iter().map(|task| (&*task.tool, task.state)).collect();
        shown.sort_unstable();
        assert_eq!(shown, [("obeys", "cancelled"), ("work", "succeeded")], "{what}");
        let bound = tasks.iter().find(|task| task.tool == "obeys").unwrap();
        let ended = answer.calls[0].call().end().unwrap().at;
        assert!(*bound.ended_at.as_ref().unwrap() <= windlass::time::wall_time(ended), "{what}");
    })
    .await;
}

#[tokio::test]
async fn a_cancel_reaches_the_attached_tasks_of_a_call() {
    let runtime = owner(&memory(), &ManualClock::default());
    runtime.register(obeys()).unwrap();
    let holds = body(free("holds", EffectClass::Stepped), |_, cx| {
        Box::pin(async move {
            let bound = cx.spawn_attached("bound", "obeys", &n(1), NewTask::default()).await?;
            cx.await_task("done", bound, None).await?;
            Ok(json!(1).into())
        })
    });
    runtime.register(holds).unwrap();
    let submitted = runtime.submit("s", batch("k", vec![call("c", "holds", n(1))])).await.unwrap();
    let waits = waits_for(&runtime, "awaited").await;
    runtime.cancel(windlass::ask::Target::Call(&waits), None).await.unwrap();
    assert_eq!(states(&submitted.settled().await.unwrap()), "c cancelled");
    assert_eq!(runtime.tasks("s").list(None, 10).await.unwrap()[0].state, "cancelled");
}

/// Takes messages until one says stop.
fn listens() -> impl Tool {
    let spec = background("listens", EffectClass::Stepped);
    body(ToolSpec { signals: [("go".into(), json!({ "type": "integer" }))].into(), ..spec }, |_, cx| {
        Box::pin(async move { Ok(cx.on_signal("go", None).await?.unwrap_or_default().into()) })
    })
}

#[tokio::test]
async fn a_call_signals_and_cancels_tasks_by_name_over_every_death() {
    let make = |store: &Arc<dyn Store>, clock: &ManualClock| {
        let runtime = owner(store, clock);
        runtime.register(listens()).unwrap();
        runtime.register(obeys()).unwrap();
        let leads = body(free("leads", EffectClass::Stepped), |_, cx| {
            Box::pin(async move {
                let listens = cx.spawn("listens", "listens", &json!({}), NewTask::default()).await?;
                let obeys = cx.spawn("obeys", "obeys", &json!({}), NewTask::default()).await?;
                cx.signal_task("go", listens, "go", 7).await?;
                cx.cancel_task("stop", obeys, Some("enough")).await?;
                let told: Value = cx.await_task("told", listens, None).await?.unwrap().value()?;
                let stopped = cx.await_task("stopped", obeys, None).await?.unwrap();
                let late = cx.signal_task("late", listens, "go", 8).await?;
                let wrong = cx.signal_task("wrong", cx.handle(), "go", 8).await.unwrap_err();
                Ok(json!([told, stopped.state(), late, wrong.to_string()]).into())
            })
        });
        runtime.register(leads).unwrap();
        runtime
    };
    over_every_death("leads", make, async |_, answer, what| {
        assert_eq!(states(&answer), "c succeeded", "{what}: {}", answer.calls[0].model_text());
        let told = answer.calls[0].value::<Value>().unwrap();
        assert_eq!((&told[0], &told[1]), (&json!(7), &json!("cancelled")), "{what}");
        assert_eq!(told[2], json!(false), "{what}: it is over");
        assert!(told[3].as_str().unwrap().contains("takes no signal"), "{what}: {told}");
    })
    .await;
}

/// Waits for the named event, and tells what came.
fn waits(class: EffectClass) -> impl Tool {
    body(free("waits", class), |_, cx| {
        Box::pin(async move {
            Ok(match cx.wait_event("window", "window", None).await? {
                Some(Completed::Ok(value)) => *value,
                other => json!(format!("{other:?}")).into(),
            })
        })
    })
}

fn fulfils() -> impl Tool {
    body(free("fulfils", EffectClass::Stepped), |args, cx| {
        Box::pin(async move { Ok(json!(cx.fulfil("it", "window", &args["with"]).await?).into()) })
    })
}

#[tokio::test]
async fn a_named_event_is_fulfilled_once_for_all_who_wait_now_or_later() {
    for class in [EffectClass::Stepped, EffectClass::Once] {
        let runtime = owner(&memory(), &ManualClock::default());
        runtime.register(waits(class)).unwrap();
        runtime.register(fulfils()).unwrap();
        let first = runtime.submit("s", batch("first", vec![call("c", "waits", n(1))])).await.unwrap();
        let second = runtime.submit("s", batch("second", vec![call("c", "waits", n(2))])).await.unwrap();
        while runtime.open().await.unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        let told = run(&runtime, "s", batch("f", vec![call("c", "fulfils", json!({ "with": 5 }))])).await;
        assert_eq!(told.calls[0].value::<Value>().unwrap(), json!(true));
        for submitted in [first, second] {
            let answer = submitted.settled().await.unwrap();
            assert_eq!(answer.calls[0].value::<Value>().unwrap(), json!(5), "{class}");
        }
        let late = run(&runtime, "s", batch("late", vec![call("c", "waits", n(3))])).await;
        assert_eq!(late.calls[0].value::<Value>().unwrap(), json!(5), "{class}");
        let again = run(&runtime, "s", batch("g", vec![call("c", "fulfils", json!({ "with": 6 }))])).await;
        assert_eq!(again.calls[0].value::<Value>().unwrap(), json!(false), "the first one counts");
        assert!(runtime.fulfil("s", "window", Completed::ok(json!(5))).await.is_ok(), "the same again");
        let other = runtime.fulfil("s", "window", Completed::Cancelled).await;
        assert!(matches!(other, Err(AskError::Answered)), "{other:?}");
        let blank = runtime.fulfil("s", " ", Completed::Cancelled).await;
        assert!(matches!(blank, Err(AskError::Invalid { .. })), "{blank:?}");
    }
}

#[tokio::test]
async fn a_person_fulfils_an_event_while_its_call_is_away() {
    let (store, clock) = (memory(), ManualClock::default());
    let make = || {
        let runtime = owner(&store, &clock);
        runtime.register(waits(EffectClass::Stepped)).unwrap();
        runtime
    };
    let first = make();
    drop(first.submit("s", batch("k", vec![call("c", "waits", Value::Null)])).await.unwrap());
    waits_for(&first, "awaited").await;
    drop(first);
    let next = make();
    next.fulfil("s", "window", Completed::error("shut", "closed today")).await.unwrap();
    let answer = one(&next, "waits", Value::Null).await;
    assert!(answer.calls[0].model_text().contains("closed today"), "{}", answer.calls[0].model_text());
}

#[tokio::test]
async fn waits_for_named_events_survive_every_death() {
    let make = |store: &Arc<dyn Store>, clock: &ManualClock| -> Runtime {
        let runtime = owner(store, clock);
        let meets = body(free("meets", EffectClass::Stepped), |_, cx| {
            Box::pin(async move {
                let other = cx.spawn("other", "opens", &json!({}), NewTask::default()).await?;
                let came = cx.wait_event("window", "window", None).await?;
                cx.await_task("other done", other, None).await?;
                Ok(json!(came == Some(Completed::ok(json!(9)))).into())
            })
        });
        runtime.register(meets).unwrap();
        let opens = body(background("opens", EffectClass::Stepped), |_, cx| {
            Box::pin(async move { Ok(json!(cx.fulfil("it", "window", 9).await?).into()) })
        });
        runtime.register(opens).unwrap();
        runtime
    };
    over_every_death("meets", make, async |_, answer, what| {
        assert_eq!(states(&answer), "c succeeded", "{what}: {}", answer.calls[0].model_text());
        assert_eq!(answer.calls[0].value::<Value>().unwrap(), json!(true), "{what}");
    })
    .await;
}

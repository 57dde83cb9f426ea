//! The clocks of a call while calls inside it wait for a person.

use super::{asked, caller, free};
use crate::inside::body;
use crate::rig::{Count, end, n, run, waits_for};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use windlass::batch::NestedBatch;
use windlass::store::{MemoryStore, Store};
use windlass::{
    BatchAnswer, CallRequest, Config, Deadlines, EffectClass, Runtime, Submitted, Tool, ToolSpec,
};
use windlass_testkit::clock::ManualClock;
use windlass_testkit::fault_store::{FaultPlan, FaultReach, FaultStore};

const MINUTE: Duration = Duration::from_secs(60);
const HOURS: Duration = Duration::from_secs(5 * 3_600);

/// A tool that has a minute for all it does, and for one attempt.
fn hurried(name: &str, class: EffectClass) -> ToolSpec {
    let ms = Some(MINUTE.as_millis() as u64);
    let deadlines = Deadlines { attempt_ms: ms, total_ms: ms, silence_ms: ms, ..Deadlines::default() };
    ToolSpec { deadlines, ..free(name, class) }
}

/// A tool that asks a person.
fn asking() -> impl Tool {
    body(hurried("ask", EffectClass::Stepped), |_, cx| {
        Box::pin(async move { Ok(cx.ask("colour", "Which colour?", None).await?.unwrap_or_default().into()) })
    })
}

/// A tool that never returns.
fn endless() -> impl Tool {
    let deadlines = Deadlines { attempt_ms: Some(600_000), ..Deadlines::default() };
    let spec = ToolSpec { deadlines, ..free("endless", EffectClass::Read) };
    body(spec, |_, _| Box::pin(std::future::pending()))
}

fn owner(store: Arc<dyn Store>, clock: &ManualClock) -> Runtime {
    let base = Config::new(MemoryStore::new().unwrap());
    let runtime = Runtime::new(Config { store, clock: Arc::new(clock.clone()), ..base });
    runtime.register(asking()).unwrap();
    runtime.register(endless()).unwrap();
    runtime
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new().unwrap())
}

/// Waits until a call waits for the answer to another question than this one: its id.
async fn question(runtime: &Runtime, answered: Option<&str>) -> String {
    loop {
        let live = runtime.live();
        assert!(!live.is_empty(), "all is over");
        let waits =
            live.iter().any(|open| open.waiting_for.as_deref().is_some_and(|why| why.starts_with("input")));
        let asked = if waits { runtime.questions().await.unwrap() } else { Vec::new() };
        match asked.into_iter().find(|question| Some(&*question.id) != answered) {
            Some(question) => return question.id,
            None => tokio::task::yield_now().await,
        }
    }
}

/// Answers a question hours after it was asked; so many calls only wait for that.
async fn answer_late(runtime: &Runtime, clock: &ManualClock, around: usize) -> String {
    let id = question(runtime, None).await;
    let stand = || {
        let running = runtime.live().iter().filter(|open| open.state == "running").count();
        running == around && runtime.counts().running == [0; 2]
    };
    while !stand() {
        assert!(!runtime.live().is_empty(), "it is over");
        tokio::task::yield_now().await;
    }
    // Whoever is late has time to notice, and to use up its grace.
    for _ in 0..10 {
        clock.advance(HOURS / 10);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    runtime.answer(&id, &json!("red")).await.unwrap();
    id
}

async fn settled(submitted: Submitted) -> BatchAnswer {
    let answer = tokio::time::timeout(Duration::from_secs(60), submitted.settled()).await;
    answer.expect("it ends").unwrap()
}

/// That the clocks of a call run and that it is too late. It may take all of its grace, and the clocks may have stood still for
/// a moment before all that it does had begun.
async fn is_too_late(submitted: Submitted, clock: &ManualClock, why: &str) {
    let graces = async {
        for _ in 0..1_000 {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            clock.advance(Duration::from_millis(100));
        }
        std::future::pending().await
    };
    let answer = tokio::select! {
        answer = settled(submitted) => answer,
        () = graces => unreachable!("it goes on"),
    };
    let told = answer.calls[0].model_text();
    assert!(told.contains("was not over within 60000 ms"), "{why}: {told}");
}

#[tokio::test]
async fn nobody_is_late_because_a_person_sleeps() {
    for class in [EffectClass::Read, EffectClass::Keyed, EffectClass::Stepped, EffectClass::Once] {
        let clock = ManualClock::default();
        let runtime = owner(memory(), &clock);
        runtime.register(caller(hurried("t", class), &["ask"])).unwrap();
        let submitted = runtime.submit("s", asked()).await.unwrap();
        answer_late(&runtime, &clock, 1).await;
        let answer = settled(submitted).await;
        assert_eq!(
            (&*end(&answer), &*answer.calls[0].model_text()),
            ("c succeeded, 1 attempts", r#"["red"]"#)
        );
    }
}

#[tokio::test]
async fn the_clocks_of_all_calls_around_stand_still() {
    let clock = ManualClock::default();
    let runtime = owner(memory(), &clock);
    runtime.register(caller(hurried("t", EffectClass::Keyed), &["middle"])).unwrap();
    runtime.register(caller(hurried("middle", EffectClass::Stepped), &["ask"])).unwrap();
    let submitted = runtime.submit("s", asked()).await.unwrap();
    answer_late(&runtime, &clock, 2).await;
    assert_eq!(settled(submitted).await.calls[0].model_text(), r#"[["red"]]"#);
}

/// Then they go on: what is left of the minute is left.
#[tokio::test]
async fn they_go_on_once_the_person_has_answered() {
    for class in [EffectClass::Keyed, EffectClass::Stepped] {
        let clock = ManualClock::default();
        let runtime = owner(memory(), &clock);
        runtime.register(caller(hurried("t", class), &["ask", "endless"])).unwrap();
        let submitted = runtime.submit("s", asked()).await.unwrap();
        answer_late(&runtime, &clock, 1).await;
        let runs =
            |tool: &str| runtime.live().iter().any(|open| open.tool == tool && open.state == "running");
        while !runs("endless") {
            assert!(!runtime.live().is_empty(), "it is over");
            tokio::task::yield_now().await;
        }
        clock.advance(MINUTE - Duration::from_secs(1));
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(runs("t"), "a second is left");
        clock.advance(Duration::from_secs(1));
        is_too_late(submitted, &clock, "its minute is over").await;
    }
}

/// Other work takes its time, whatever a person does meanwhile.
#[tokio::test]
async fn they_run_while_anything_else_goes_on() {
    for beside in ["call", "step", "sleep"] {
        let clock = ManualClock::default();
        let runtime = owner(memory(), &clock);
        let tool = body(hurried("t", EffectClass::Keyed), move |args, cx| {
            Box::pin(async move {
                let call = |tool: &str| CallRequest { tool: tool.into(), ..CallRequest::default() };
                let ask = async || cx.call("ask", "ask", &args).await.map(drop);
                match beside {
                    "call" => {
                        let calls = vec![call("ask"), call("endless")];
                        cx.batch("both", NestedBatch { calls, ..NestedBatch::default() }).await?;
                    }
                    "step" => {
                        let step = cx.step("work", 1, |_| std::future::pending());
                        let (asked, worked): (_, Result<u64, _>) = tokio::join!(ask(), step);
                        asked.and(worked.map(drop))?;
                    }
                    _ => {
                        let (asked, slept) = tokio::join!(ask(), cx.sleep("a day", 5 * HOURS));
                        asked.and(slept)?;
                    }
                }
                Ok(n(1).into())
            })
        });
        runtime.register(tool).unwrap();
        let submitted = runtime.submit("s", asked()).await.unwrap();
        waits_for(&runtime, "input").await;
        if beside == "call" {
            while !runtime.live().iter().any(|open| open.tool == "endless" && open.state == "running") {
                tokio::task::yield_now().await;
            }
        }
        clock.advance(MINUTE);
        is_too_late(submitted, &clock, beside).await;
    }
}

/// A later owner knows from the journals how long they stood still.
#[tokio::test]
async fn they_stood_still_for_a_later_owner_too() {
    for class in [EffectClass::Read, EffectClass::Keyed, EffectClass::Stepped] {
        let (store, clock, got_to_last) = (memory(), ManualClock::default(), Count::default());
        let start = |store: Arc<dyn Store>| {
            let (runtime, got_to_last) = (owner(store, &clock), got_to_last.clone());
            let tool = body(hurried("t", class), move |args, cx| {
                let got_to_last = got_to_last.clone();
                Box::pin(async move {
                    cx.call("first", "middle", &args).await?;
                    cx.step("between", 1, |one| async move { Ok(one) }).await?;
                    got_to_last.up();
                    let last = cx.call("last", "middle", &args).await?;
                    Ok(json!(last.model_text()).into())
                })
            });
            runtime.register(tool).unwrap();
            runtime.register(caller(hurried("middle", EffectClass::Keyed), &["ask"])).unwrap();
            runtime
        };
        let dies = FaultStore::new(store.clone(), FaultPlan::Never, FaultReach::Store);
        let runtime = start(Arc::new(dies.clone()));
        drop(runtime.submit("s", asked()).await.unwrap());
        let first = answer_late(&runtime, &clock, 2).await;
        question(&runtime, Some(&first)).await;
        dies.close();
        drop(runtime);
        let runtime = start(store);
        runtime.resume().await.unwrap();
        // Its clocks go on between the calls, as they must.
        while got_to_last.get() < 2 {
            tokio::task::yield_now().await;
        }
        answer_late(&runtime, &clock, 2).await;
        let answer = run(&runtime, "s", asked()).await;
        assert_eq!(answer.calls[0].model_text(), r#"["red"]"#, "{class}");
    }
}

//! The deadlines of calls that go on without their callers: every way to become a task × every deadline.

use super::{BUDGET, after, background, fresh, owner};
use crate::inside::body;
use crate::rig::{batch, call, n, run, spec, waits_for};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use windlass::schedules::NewSchedule;
use windlass::tasks::NewTask;
use windlass::time::Clock;
use windlass::tool::{Progress, Stream};
use windlass::triggers::NewTrigger;
use windlass::{
    CallRequest, Cx, Deadlines, EffectClass, RetryRule, Runtime, Tool, ToolSpec, inspect, tool_fn,
};
use windlass_core::time::Timestamp;
use windlass_testkit::clock::ManualClock;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// The running attempt of the tool `work`.
#[derive(Clone, Default)]
struct Life(Arc<Mutex<Option<RunningWork>>>);

/// An attempt of `work`.
#[derive(Clone)]
struct RunningWork {
    cx: Cx,
    /// When its body began.
    began_us: u64,
}

impl Life {
    fn begin(&self, cx: &Cx, clock: &ManualClock) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(RunningWork { cx: cx.clone(), began_us: clock.elapsed_us() });
    }

    /// The attempt of this number, once it runs.
    async fn attempt(&self, number: u32) -> RunningWork {
        loop {
            let found = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match found.filter(|running| running.cx.attempt().0 == number) {
                Some(found) => return found,
                None => tokio::task::yield_now().await,
            }
        }
    }

    fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// A sign of life of each kind.
fn beat(cx: &Cx, turn: u32) {
    match turn % 4 {
        0 => cx.heartbeat(),
        1 => cx.output(Stream::Out, b"tick"),
        2 => cx.progress(Progress { current: Some(1.0), ..Progress::default() }),
        _ => cx.status("working"),
    }
}

/// Never returns.
fn work(spec: ToolSpec, life: &Life, clock: &ManualClock) -> impl Tool + use<> {
    let (life, clock) = (life.clone(), clock.clone());
    tool_fn(spec, move |_: Value, cx: &Cx| {
        life.begin(cx, &clock);
        std::future::pending()
    })
}

/// A tool of the background that is tried once.
fn once(deadlines: Deadlines) -> ToolSpec {
    let retry = RetryRule { attempts: Some(1), ..RetryRule::default() };
    ToolSpec { deadlines, retry, ..background("work", EffectClass::Keyed) }
}

/// How a call comes to be a task, or to lie inside one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Budget,
    Queue,
    Asked,
    Started,
    Scheduled,
    Triggered,
    Inside,
    InsideOneThatDetaches,
}

const WAYS: [Way; 8] = [
    Way::Budget,
    Way::Queue,
    Way::Asked,
    Way::Started,
    Way::Scheduled,
    Way::Triggered,
    Way::Inside,
    Way::InsideOneThatDetaches,
];

fn as_task(request: CallRequest) -> CallRequest {
    CallRequest { task: Some(NewTask::default()), ..request }
}

/// A runtime with `work` and the tools that start it.
fn register(runtime: &Runtime, spec_of_work: ToolSpec, life: &Life, clock: &ManualClock) {
    runtime.register(work(spec_of_work, life, clock)).unwrap();
    let starts = body(background("starts", EffectClass::Once), |_, cx| {
        Box::pin(async move {
            let started = cx.spawn("work", "work", &json!({}), NewTask::default()).await?;
            Ok(json!(started.to_string()).into())
        })
    });
    runtime.register(starts).unwrap();
    // Longer than what it calls may take.
    let deadlines = Deadlines { attempt_ms: ms(48 * HOUR), ..Deadlines::default() };
    let calls = ToolSpec { deadlines, ..background("calls", EffectClass::Stepped) };
    let calls = body(calls, |_, cx| {
        Box::pin(async move { Ok(json!(cx.call("work", "work", n(1)).await?.model_text()).into()) })
    });
    runtime.register(calls).unwrap();
    let emits = BTreeMap::from([("sold".to_string(), json!({}))]);
    let tells = ToolSpec { emits, ..spec("tells", EffectClass::Once) };
    let tells = body(tells, |_, cx| {
        Box::pin(async move {
            cx.emit("sold", "sold", json!({})).await?;
            Ok(json!(1).into())
        })
    });
    runtime.register(tells).unwrap();
}

/// Has `work` run as this way says.
async fn start(runtime: &Runtime, way: Way, clock: &ManualClock) {
    ask(runtime, way, clock).await;
    runtime.resume_tool("work").await.unwrap();
}

/// Asks for `work` as this way says. It may be paused.
async fn ask(runtime: &Runtime, way: Way, clock: &ManualClock) {
    let submit = |request: CallRequest| runtime.submit("s", batch("k", vec![request]));
    match way {
        Way::Budget => {
            let submitted = submit(call("c", "work", n(1))).await.unwrap();
            crate::rig::until_runs(runtime).await;
            drop(after(clock, submitted, BUDGET).await);
        }
        Way::Queue => {
            runtime.pause("work").await.unwrap();
            let submitted = submit(call("c", "work", n(1))).await.unwrap();
            drop(after(clock, submitted, Duration::from_secs(10)).await);
        }
        Way::Asked => drop(run(runtime, "s", batch("k", vec![as_task(call("c", "work", n(1)))])).await),
        Way::Started => drop(run(runtime, "s", batch("k", vec![call("c", "starts", n(1))])).await),
        Way::Scheduled => {
            let at = Some(at(clock.now(), MINUTE));
            let new = NewSchedule { at, tool: "work".into(), ..NewSchedule::default() };
            runtime.schedules("s").create(new).await.unwrap();
            clock.advance(MINUTE);
        }
        Way::Triggered => {
            let (event, tool) = ("sold".to_string(), "work".to_string());
            let new = NewTrigger { event, tool, ..NewTrigger::default() };
            runtime.triggers("s").create(new).await.unwrap();
            drop(run(runtime, "s", batch("k", vec![call("c", "tells", n(1))])).await);
        }
        Way::Inside => drop(run(runtime, "s", batch("k", vec![as_task(call("c", "calls", n(1)))])).await),
        Way::InsideOneThatDetaches => {
            let submitted = submit(call("c", "calls", n(1))).await.unwrap();
            while runtime.open().await.unwrap().iter().filter(|open| open.state == "running").count() < 2 {
                tokio::task::yield_now().await;
            }
            drop(after(clock, submitted, BUDGET).await);
        }
    }
}

fn at(now: Timestamp, later: Duration) -> String {
    windlass::time::wall_time(Timestamp(now.0 + later.as_micros() as i64))
}

/// Lets time pass until so long after the attempt began. With signs of life it never seems silent.
async fn pass(clock: &ManualClock, running: &RunningWork, until: Duration, beats: bool) {
    let end_us = running.began_us + until.as_micros() as u64;
    for turn in 0.. {
        let left = Duration::from_micros(end_us.saturating_sub(clock.elapsed_us()));
        if left.is_zero() {
            return;
        }
        clock.advance(left.min(9 * MINUTE));
        if beats {
            beat(&running.cx, turn);
        }
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
    }
}

/// That the attempt is not told to stop before so long after it began, and is then.
async fn stops(clock: &ManualClock, running: &RunningWork, when: Duration, beats: bool, why: &str) {
    pass(clock, running, when - SECOND, beats).await;
    for _ in 0..50 {
        tokio::task::yield_now().await;
        assert!(!running.cx.is_stopping(), "{why}: it is stopped early");
    }
    let left = running.cx.time_left();
    assert!(left <= HOUR * 24, "{why}: it has {left:?} left");
    pass(clock, running, when + SECOND, false).await;
    let told = tokio::time::timeout(Duration::from_secs(60), running.cx.stopping()).await;
    assert!(told.is_ok(), "{why}: it goes on");
}

/// The recorded end of `work`, once it has ended. Its grace may have to pass.
async fn end_of_work(runtime: &Runtime, clock: &ManualClock) -> String {
    for _ in 0..10_000 {
        let row = runtime.store().session("s").await.unwrap().unwrap();
        let calls = inspect::calls(runtime.store(), &row, 10).await.unwrap();
        if let Some(over) =
            calls.iter().find(|call| call.answer.tool() == "work" && call.answer.call().end().is_some())
        {
            return over.answer.model_text();
        }
        clock.advance(Duration::from_millis(10));
        tokio::task::yield_now().await;
    }
    panic!("it does not end");
}

#[tokio::test]
async fn a_task_may_be_silent_for_ten_minutes_and_take_an_hour_whichever_way_it_became_one() {
    for way in WAYS {
        for (when, beats, told) in [
            (10 * MINUTE, false, "gave no sign of life for 600000 ms"),
            (HOUR, true, "did not finish within 3600000 ms"),
        ] {
            let ((runtime, clock, _), life) = (fresh(), Life::default());
            register(&runtime, once(Deadlines::default()), &life, &clock);
            start(&runtime, way, &clock).await;
            let running = life.attempt(1).await;
            stops(&clock, &running, when, beats, &format!("{way:?} {told}")).await;
            let end = end_of_work(&runtime, &clock).await;
            assert!(end.contains(told), "{way:?}: {end}");
        }
    }
}

fn ms(time: Duration) -> Option<u64> {
    Some(time.as_millis() as u64)
}

#[tokio::test]
async fn a_task_may_take_a_day_in_all_whichever_way_it_became_one() {
    for way in WAYS {
        let ((runtime, clock, _), life) = (fresh(), Life::default());
        // The first attempt takes 20 hours, so the day ends in the second.
        let deadlines =
            Deadlines { attempt_ms: ms(20 * HOUR), silence_ms: ms(48 * HOUR), ..Deadlines::default() };
        let retry = RetryRule { attempts: Some(3), base_ms: Some(1), cap_ms: Some(1) };
        register(&runtime, ToolSpec { retry, ..once(deadlines) }, &life, &clock);
        let recorded_us = clock.elapsed_us() + if way == Way::Scheduled { 60_000_000 } else { 0 };
        start(&runtime, way, &clock).await;
        let first = life.attempt(1).await;
        stops(&clock, &first, 20 * HOUR, false, &format!("{way:?}: attempt")).await;
        let second = loop {
            clock.advance(Duration::from_millis(10));
            let found = tokio::time::timeout(Duration::from_millis(20), life.attempt(2)).await;
            if let Ok(found) = found {
                break found;
            }
        };
        let day = Duration::from_micros(recorded_us + 24 * HOUR.as_micros() as u64 - second.began_us);
        stops(&clock, &second, day, false, &format!("{way:?}: total")).await;
        let end = end_of_work(&runtime, &clock).await;
        assert!(end.contains("was not over within 86400000 ms"), "{way:?}: {end}");
    }
}

/// Parked calls, once there are so many and nothing runs.
async fn until_parked(runtime: &Runtime) {
    while runtime.live().iter().any(|open| open.waiting_for.is_none()) || runtime.live().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_task_that_does_not_start_waits_longer_than_any_caller_would() {
    for way in [Way::Queue, Way::Asked, Way::Started, Way::Scheduled, Way::Triggered] {
        for restart in [false, true] {
            let ((mut runtime, clock, store), life) = (fresh(), Life::default());
            register(&runtime, once(Deadlines::default()), &life, &clock);
            runtime.pause("work").await.unwrap();
            ask(&runtime, way, &clock).await;
            until_parked(&runtime).await;
            clock.advance(11 * MINUTE);
            if restart {
                drop(runtime);
                runtime = owner(&store, &clock);
                register(&runtime, once(Deadlines::default()), &life, &clock);
                runtime.pause("work").await.unwrap();
                runtime.resume().await.unwrap();
                until_parked(&runtime).await;
            }
            clock.advance(22 * HOUR);
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            until_parked(&runtime).await;
            runtime.resume_tool("work").await.unwrap();
            let cx = life.attempt(1).await.cx;
            assert!(!cx.is_stopping(), "{way:?}, restart {restart}");
        }
    }
}

#[tokio::test]
async fn a_deadline_that_a_tool_states_or_a_call_asks_for_holds_for_tasks_too() {
    let (second, none) = (Some(1_000), Deadlines::default());
    let cells = [
        (Deadlines { attempt_ms: second, ..none }, "did not finish within 1000 ms"),
        (Deadlines { silence_ms: second, ..none }, "no sign of life for 1000 ms"),
        (Deadlines { total_ms: second, ..none }, "was not over within 1000 ms"),
    ];
    for (deadlines, told) in cells {
        for stated in [true, false] {
            let ((runtime, clock, _), life) = (fresh(), Life::default());
            let (own, asked) = if stated { (deadlines, none) } else { (none, deadlines) };
            register(&runtime, once(own), &life, &clock);
            let request = CallRequest { deadlines: asked, ..as_task(call("c", "work", n(1))) };
            drop(run(&runtime, "s", batch("k", vec![request])).await);
            let running = life.attempt(1).await;
            stops(&clock, &running, SECOND, false, told).await;
            let end = end_of_work(&runtime, &clock).await;
            assert!(end.contains(told), "stated {stated}: {end}");
        }
    }
    // Queue: of a task that does not start.
    for stated in [true, false] {
        let ((runtime, clock, _), life) = (fresh(), Life::default());
        let queue = Deadlines { queue_ms: Some(1_000), ..Deadlines::default() };
        let (own, asked) = if stated { (queue, Deadlines::default()) } else { (Deadlines::default(), queue) };
        register(&runtime, once(own), &life, &clock);
        runtime.pause("work").await.unwrap();
        let request = CallRequest { deadlines: asked, ..as_task(call("c", "work", n(1))) };
        drop(run(&runtime, "s", batch("k", vec![request])).await);
        until_parked(&runtime).await;
        clock.advance(SECOND);
        let end = end_of_work(&runtime, &clock).await;
        assert!(end.contains("did not start within 1000 ms"), "stated {stated}: {end}");
    }
}

#[tokio::test]
async fn a_call_does_not_lengthen_the_deadlines_of_its_task() {
    let ((runtime, clock, _), life) = (fresh(), Life::default());
    register(&runtime, once(Deadlines::default()), &life, &clock);
    let deadlines = Deadlines { attempt_ms: ms(9 * HOUR), silence_ms: ms(9 * HOUR), ..Deadlines::default() };
    let request = CallRequest { deadlines, ..as_task(call("c", "work", n(1))) };
    drop(run(&runtime, "s", batch("k", vec![request])).await);
    let running = life.attempt(1).await;
    stops(&clock, &running, 10 * MINUTE, false, "silence").await;
}

#[tokio::test]
async fn a_task_has_the_deadlines_of_a_task_after_a_restart() {
    for way in WAYS {
        let ((runtime, clock, store), life) = (fresh(), Life::default());
        register(&runtime, once(Deadlines::default()), &life, &clock);
        start(&runtime, way, &clock).await;
        drop(life.attempt(1).await);
        clock.advance(5 * MINUTE);
        drop(runtime);
        life.forget();
        let runtime = owner(&store, &clock);
        register(&runtime, once(Deadlines::default()), &life, &clock);
        runtime.resume().await.unwrap();
        let running = life.attempt(2).await;
        if matches!(way, Way::Inside | Way::InsideOneThatDetaches) {
            // It was taken over by itself. Until the call around it waits for it again, that one is silent.
            waits_for(&runtime, "nested").await;
        }
        stops(&clock, &running, HOUR, true, &format!("{way:?}")).await;
        let end = end_of_work(&runtime, &clock).await;
        assert!(end.contains("did not finish within 3600000 ms"), "{way:?}: {end}");
    }
}

#[tokio::test]
async fn a_task_that_waits_by_name_is_not_silent() {
    let ((runtime, clock, _), life) = (fresh(), Life::default());
    let naps = {
        let (life, clock) = (life.clone(), clock.clone());
        tool_fn(once(Deadlines::default()), move |_: Value, cx: &Cx| {
            let (life, clock, cx) = (life.clone(), clock.clone(), cx.clone());
            async move {
                // Whoever sees it lets time pass, so the nap has begun before.
                let (napped, ()) = tokio::join!(cx.sleep("nap", HOUR / 2), async { life.begin(&cx, &clock) });
                napped?;
                Ok(json!("rested").into())
            }
        })
    };
    runtime.register(naps).unwrap();
    drop(run(&runtime, "s", batch("k", vec![as_task(call("c", "work", n(1)))])).await);
    let running = life.attempt(1).await;
    pass(&clock, &running, HOUR / 2 + SECOND, false).await;
    assert_eq!(end_of_work(&runtime, &clock).await, "rested");
}

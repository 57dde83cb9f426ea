//! Calls that go on without their callers, and what their sessions are told of them.

mod deadlines;
mod kept;
mod many;
mod refused;
mod spawned;
mod unrecorded;

use crate::inside::body;
use crate::rig::{
    Count, batch, call, config, end, n, quick, run, spec, states, until_none_is_open, until_runs, waits_for,
};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use windlass::error::RegisterError;
use windlass::store::{MemoryStore, Store};
use windlass::tool::Stream;
use windlass::{
    BatchAnswer, CallRequest, Config, Cx, Deadlines, EffectClass, Flags, Runtime, Submitted, Tool, ToolSpec,
    inspect, tool_fn,
};
use windlass_testkit::clock::ManualClock;

/// A runtime whose time stands still, on this store.
fn owner(store: &Arc<dyn Store>, clock: &ManualClock) -> Runtime {
    let unused = Config::new(MemoryStore::new().unwrap());
    Runtime::new(Config { store: store.clone(), clock: Arc::new(clock.clone()), ..unused })
}

fn fresh() -> (Runtime, ManualClock, Arc<dyn Store>) {
    let (store, clock): (Arc<dyn Store>, _) = (Arc::new(MemoryStore::new().unwrap()), ManualClock::default());
    (owner(&store, &clock), clock, store)
}

fn background(name: &str, class: EffectClass) -> ToolSpec {
    let flags = Flags { background: true, ..Flags::default() };
    ToolSpec { flags, claims: Some(Vec::new()), ..spec(name, class) }
}

/// Returns its arguments once it may.
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

fn closed() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(0))
}

const BUDGET: Duration = Duration::from_millis(300);

/// Waits for the answer, and lets so much time pass.
async fn after(clock: &ManualClock, submitted: Submitted, time: Duration) -> BatchAnswer {
    let settled = tokio::spawn(submitted.settled());
    tokio::task::yield_now().await;
    clock.advance(time);
    settled.await.unwrap().unwrap()
}

async fn notices(runtime: &Runtime) -> Vec<String> {
    let listed = runtime.inbox("s").list(None, 10).await.unwrap();
    listed
        .iter()
        .map(|notice| format!("{} {} {}", notice.state, notice.title, notice.call_state.unwrap_or_default()))
        .collect()
}

async fn until_told(runtime: &Runtime, count: usize) {
    while notices(runtime).await.len() < count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_call_that_outlasts_its_budget_goes_on_and_its_end_is_told_once() {
    let (runtime, clock, _) = fresh();
    let gate = closed();
    runtime.register(gated(background("build", EffectClass::Once), &gate)).unwrap();
    let asked = || batch("k", vec![call("c", "build", n(1))]);
    let submitted = runtime.submit("s", asked()).await.unwrap();
    let handle = until_runs(&runtime).await;
    let answer = after(&clock, submitted, BUDGET).await;
    assert_eq!(end(&answer), "c running, 1 attempts");
    let shown = serde_json::to_value(&answer.calls[0]).unwrap();
    assert_eq!(shown["task"], json!(handle), "{shown}");
    assert!(answer.calls[0].model_text().contains(&format!("as task {handle}")), "{shown}");
    assert_eq!(runtime.counts().running, [0, 1], "it counts among the tasks");
    assert_eq!(notices(&runtime).await, [""; 0]);
    // Whoever asks again is told the same, at once.
    assert_eq!(end(&run(&runtime, "s", asked()).await), "c running, 1 attempts");
    gate.add_permits(1);
    until_told(&runtime, 1).await;
    assert_eq!(notices(&runtime).await, ["queued build succeeded"]);
    let listed = runtime.inbox("s").list(None, 10).await.unwrap();
    assert_eq!(
        listed[0].text,
        format!(
            "The task {handle} has ended: succeeded.\nIt was the call of \"build\" with {{\"n\":1}}\n{{\"n\":1}}"
        )
    );
    assert_eq!(end(&run(&runtime, "s", asked()).await), "c succeeded, 1 attempts");
    assert_eq!(notices(&runtime).await.len(), 1);
}

#[tokio::test]
async fn a_call_within_its_budget_and_one_that_nobody_waits_for_leave_no_task() {
    let (runtime, clock, _) = fresh();
    let gate = closed();
    runtime.register(gated(background("slow", EffectClass::Once), &gate)).unwrap();
    runtime
        .register(gated(ToolSpec { claims: Some(Vec::new()), ..spec("bound", EffectClass::Once) }, &gate))
        .unwrap();
    gate.add_permits(1);
    let answer = run(&runtime, "s", batch("fast", vec![call("c", "slow", n(1))])).await;
    assert_eq!(end(&answer), "c succeeded, 1 attempts");
    // Its caller is gone before the budget is.
    drop(runtime.submit("s", batch("left", vec![call("c", "slow", n(2))])).await.unwrap());
    // Without the flag its caller waits.
    let bound = runtime.submit("s", batch("bound", vec![call("c", "bound", n(3))])).await.unwrap();
    let bound = tokio::spawn(bound.settled());
    while runtime.counts().running != [2, 0] {
        tokio::task::yield_now().await;
    }
    clock.advance(BUDGET * 2);
    gate.add_permits(2);
    assert_eq!(end(&bound.await.unwrap().unwrap()), "c succeeded, 1 attempts");
    // Whoever asked again before its end would be told of a task.
    until_none_is_open(&runtime).await;
    let left = run(&runtime, "s", batch("left", vec![call("c", "slow", n(2))])).await;
    assert_eq!(end(&left), "c succeeded, 1 attempts");
    assert_eq!(notices(&runtime).await, [""; 0]);
}

/// A later caller waits no longer than the first would have.
#[tokio::test]
async fn one_who_comes_after_the_budget_is_told_at_once() {
    let (runtime, clock, _) = fresh();
    let gate = closed();
    runtime.register(gated(background("slow", EffectClass::Once), &gate)).unwrap();
    let asked = || batch("k", vec![call("c", "slow", n(1))]);
    drop(runtime.submit("s", asked()).await.unwrap());
    until_runs(&runtime).await;
    clock.advance(BUDGET * 2);
    assert_eq!(end(&run(&runtime, "s", asked()).await), "c running, 1 attempts");
    gate.add_permits(1);
    until_told(&runtime, 1).await;
}

#[tokio::test]
async fn tool_and_call_say_how_long_is_waited() {
    let (runtime, clock, _) = fresh();
    let gate = closed();
    let patient = ToolSpec { inline_ms: Some(10_000), ..background("patient", EffectClass::Once) };
    runtime.register(gated(patient, &gate)).unwrap();
    let hurried = CallRequest { inline_ms: Some(0), ..call("hurried", "patient", n(1)) };
    let submitted = runtime.submit("s", batch("k", vec![hurried])).await.unwrap();
    assert_eq!(states(&submitted.settled().await.unwrap()), "hurried running");
    let submitted = runtime.submit("s", batch("l", vec![call("patient", "patient", n(2))])).await.unwrap();
    let settled = tokio::spawn(submitted.settled());
    while runtime.counts().running != [1, 1] {
        tokio::task::yield_now().await;
    }
    clock.advance(Duration::from_secs(9));
    gate.add_permits(2);
    assert_eq!(states(&settled.await.unwrap().unwrap()), "patient succeeded");
}

/// It waits for its claim, then for a person, and is a task in both cases.
#[tokio::test]
async fn a_call_that_waits_becomes_a_task_too() {
    let (runtime, clock, _) = fresh();
    let gate = closed();
    let held = ToolSpec { claims: Some(vec!["write x".into()]), ..background("held", EffectClass::Once) };
    runtime.register(gated(held, &gate)).unwrap();
    let asks = tool_fn(background("asks", EffectClass::Once), |_, cx: &Cx| {
        let cx = cx.clone();
        async move {
            let key = cx.completion("answer").await?;
            Ok(windlass::Output::pending(key))
        }
    });
    runtime.register(asks).unwrap();
    let calls = vec![call("a", "held", n(1)), call("b", "held", n(2)), call("c", "asks", n(3))];
    let submitted = runtime.submit("s", batch("k", calls)).await.unwrap();
    waits_for(&runtime, "claim").await;
    waits_for(&runtime, "completion").await;
    let answer = after(&clock, submitted, Duration::from_secs(10)).await;
    assert_eq!(states(&answer), "a running, b queued, c awaiting_completion");
    assert!(answer.calls.iter().all(windlass::CallAnswer::is_task));
    gate.add_permits(2);
    until_told(&runtime, 2).await;
    runtime.cancel(windlass::ask::Target::Call(&answer.calls[2].handle().to_string()), None).await.unwrap();
    until_told(&runtime, 3).await;
    let listed = notices(&runtime).await;
    assert!(listed[2].starts_with("queued asks cancelled"), "{listed:?}");
}

/// Its owner dies while it is a task: its class says what becomes of it, and its session is told once.
#[tokio::test]
async fn a_task_outlives_its_owner() {
    for (class, becomes) in
        [(EffectClass::Read, "succeeded"), (EffectClass::Keyed, "succeeded"), (EffectClass::Once, "unknown")]
    {
        let (runtime, clock, store) = fresh();
        let gate = closed();
        runtime.register(gated(background("t", class), &gate)).unwrap();
        let submitted = runtime.submit("s", batch("k", vec![call("c", "t", n(1))])).await.unwrap();
        until_runs(&runtime).await;
        let answer = after(&clock, submitted, BUDGET).await;
        assert_eq!(end(&answer), "c running, 1 attempts", "{class}");
        drop((answer, runtime));
        let runtime = owner(&store, &clock);
        runtime.register(gated(background("t", class), &Arc::new(Semaphore::new(1)))).unwrap();
        runtime.resume().await.unwrap();
        until_told(&runtime, 1).await;
        assert_eq!(notices(&runtime).await, [format!("queued t {becomes}")]);
    }
}

#[tokio::test]
async fn a_nested_call_is_no_task() {
    let (runtime, clock, _) = fresh();
    let gate = closed();
    runtime.register(gated(background("inner", EffectClass::Once), &gate)).unwrap();
    let outer = body(spec("outer", EffectClass::Once), |_, cx| {
        Box::pin(
            async move { cx.call("in", "inner", n(1)).await?.value::<serde_json::Value>().map(Into::into) },
        )
    });
    runtime.register(outer).unwrap();
    let submitted = runtime.submit("s", batch("k", vec![call("c", "outer", n(1))])).await.unwrap();
    let settled = tokio::spawn(submitted.settled());
    while runtime.open().await.unwrap().iter().filter(|open| open.state == "running").count() < 2 {
        tokio::task::yield_now().await;
    }
    clock.advance(BUDGET * 2);
    gate.add_permits(1);
    assert_eq!(end(&settled.await.unwrap().unwrap()), "c succeeded, 1 attempts");
    assert_eq!(notices(&runtime).await, [""; 0]);
}

/// The end and the budget meet: either the caller has the end and no notice comes, or it has the task and one comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_ends_when_its_budget_does_is_answered_once() {
    let (mut ended, mut detached) = (0, 0);
    for round in 0..300 {
        let (runtime, clock, _) = fresh();
        let gate = closed();
        runtime.register(gated(background("t", EffectClass::Once), &gate)).unwrap();
        let submitted = runtime.submit("s", batch("k", vec![call("c", "t", n(1))])).await.unwrap();
        until_runs(&runtime).await;
        let settled = tokio::spawn(submitted.settled());
        tokio::task::yield_now().await;
        let opens = tokio::spawn({
            let gate = gate.clone();
            async move { gate.add_permits(1) }
        });
        for _ in 0..round % 7 {
            std::hint::spin_loop();
        }
        clock.advance(BUDGET);
        opens.await.unwrap();
        let answer = settled.await.unwrap().unwrap();
        runtime.idle().await;
        let told = notices(&runtime).await.len();
        match answer.calls[0].state() {
            "succeeded" => {
                ended += 1;
                assert_eq!(told, 0);
            }
            "running" => {
                detached += 1;
                assert_eq!(told, 1);
            }
            other => panic!("{other}"),
        }
    }
    assert!(ended > 0 && detached > 0, "{ended} ended in time, {detached} did not");
}

#[test]
fn a_background_tool_says_what_it_claims() {
    let (store, clock): (Arc<dyn Store>, _) = (Arc::new(MemoryStore::new().unwrap()), ManualClock::default());
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = tokio.enter();
    let unclaimed = ToolSpec { claims: None, ..background("t", EffectClass::Once) };
    let refused = owner(&store, &clock).register(gated(unclaimed, &closed())).unwrap_err();
    assert!(matches!(refused, RegisterError::Unclaimed { .. }), "{refused}");
    assert!(refused.to_string().contains("declare its claims, `[]` for none"), "{refused}");
}

#[tokio::test]
async fn notices_are_taken_for_a_time_in_their_order_and_gone_once_they_are_heard() {
    let (runtime, clock, _) = fresh();
    let gate = closed();
    let at_once = ToolSpec { inline_ms: Some(0), ..background("t", EffectClass::Once) };
    runtime.register(gated(at_once, &gate)).unwrap();
    let inbox = runtime.inbox("s");
    assert!(inbox.take(5, 1_000).await.unwrap().is_empty(), "nobody has used the session");
    for (number, priority) in [(1, 0), (2, 0), (3, 5)] {
        let request = CallRequest { priority, ..call("c", "t", n(number)) };
        let answer = run(&runtime, "s", batch(&number.to_string(), vec![request])).await;
        assert_eq!(states(&answer), "c running");
        clock.advance(Duration::from_millis(1));
        gate.add_permits(1);
        until_told(&runtime, number as usize).await;
    }
    let numbers = |notices: &[windlass::tasks::Notice]| -> Vec<String> {
        let number = |notice: &windlass::tasks::Notice| {
            notice.text.split("{\"n\":").nth(1).and_then(|rest| rest.split('}').next()).unwrap().to_string()
        };
        notices.iter().map(number).collect()
    };
    let first = inbox.take(2, 1_000).await.unwrap();
    assert_eq!(numbers(&first), ["3", "1"], "the urgent one first, then the oldest");
    assert_eq!(numbers(&inbox.take(9, 1_000).await.unwrap()), ["2"]);
    assert!(inbox.take(9, 1_000).await.unwrap().is_empty());
    inbox.acknowledge(&first[0].id).await.unwrap();
    inbox.acknowledge(&first[0].id).await.unwrap();
    inbox.requeue(&first[1].id).await.unwrap();
    assert!(inbox.requeue(&first[0].id).await.is_err(), "it is gone");
    let again = inbox.take(9, 500).await.unwrap();
    assert_eq!((numbers(&again), again[0].deliveries), (vec!["1".to_string()], 2));
    assert_eq!(again[0].id, first[1].id);
    clock.advance(Duration::from_secs(2));
    assert_eq!(numbers(&inbox.take(9, 1_000).await.unwrap()), ["1", "2"], "their leases are over");
    assert!(inbox.take(1, 0).await.is_err());
}

#[tokio::test]
async fn the_story_says_that_it_became_a_task() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::new(config(&folder));
    let at_once = ToolSpec { inline_ms: Some(0), ..background("t", EffectClass::Once) };
    let gate = closed();
    runtime.register(gated(at_once, &gate)).unwrap();
    runtime.register(crate::rig::echo(quick("e", EffectClass::Read), &Count::default())).unwrap();
    let calls = vec![call("c", "t", n(1)), call("d", "e", n(2))];
    let answer = run(&runtime, "s", batch("k", calls)).await;
    assert_eq!(states(&answer), "c running, d succeeded");
    let found = inspect::call(runtime.store(), answer.calls[0].handle()).await.unwrap().unwrap();
    let line = found.1.iter().find(|line| line.text.contains("task")).unwrap();
    assert!(
        line.text.ends_with(
            "it continues as a task: it runs longer than its caller waits; its session gets a notice of its end"
        ),
        "{}",
        line.text
    );
    gate.add_permits(1);
    runtime.idle().await;
}

/// Says so much whenever it may, a line at a time; returns when there is nothing more to say.
fn talks(spec: ToolSpec, gate: &Arc<Semaphore>, lines: usize) -> impl Tool + use<> {
    let gate = gate.clone();
    tool_fn(spec, move |_, cx: &Cx| {
        let (gate, cx) = (gate.clone(), cx.clone());
        async move {
            for number in 0..lines {
                gate.acquire().await.unwrap().forget();
                let stream = if number % 2 == 0 { Stream::Out } else { Stream::Err };
                cx.output(stream, format!("line {number}\n").as_bytes());
            }
            gate.acquire().await.unwrap().forget();
            Ok(json!("done").into())
        }
    })
}

async fn log(runtime: &Runtime, task: &str) -> Vec<(u64, &'static str, String)> {
    let (tasks, mut found) = (runtime.tasks("s"), Vec::<(u64, &str, String)>::new());
    loop {
        let after = found.last().map(|(no, ..)| *no);
        let page = tasks.log(task, after, 100).await.unwrap();
        if page.is_empty() {
            return found;
        }
        found.extend(page.into_iter().map(|piece| (piece.no, piece.stream.as_str(), piece.text)));
    }
}

#[tokio::test]
async fn what_a_task_says_is_written_while_it_runs_and_goes_on_with_the_next_attempt() {
    let (runtime, clock, store) = fresh();
    let gate = closed();
    runtime.register(talks(background("t", EffectClass::Keyed), &gate, 3)).unwrap();
    let submitted = runtime.submit("s", batch("k", vec![call("c", "t", n(1))])).await.unwrap();
    let task = until_runs(&runtime).await;
    gate.add_permits(1);
    let answer = after(&clock, submitted, BUDGET).await;
    assert!(answer.calls[0].is_task());
    while log(&runtime, &task).await.is_empty() {
        clock.advance(BUDGET);
        tokio::task::yield_now().await;
    }
    gate.add_permits(1);
    while log(&runtime, &task).await.len() < 2 {
        clock.advance(BUDGET);
        tokio::task::yield_now().await;
    }
    let first = [(1, "out", "line 0\n".to_string()), (2, "err", "line 1\n".to_string())];
    assert_eq!(log(&runtime, &task).await, first);
    drop((answer, runtime));
    let runtime = owner(&store, &clock);
    runtime.register(talks(background("t", EffectClass::Keyed), &Arc::new(Semaphore::new(9)), 1)).unwrap();
    runtime.resume().await.unwrap();
    until_told(&runtime, 1).await;
    let whole = log(&runtime, &task).await;
    assert_eq!(whole[..2], first);
    assert_eq!(
        whole[2..],
        [(3, "windlass", "attempt 2 begins\n".to_string()), (4, "out", "line 0\n".to_string())]
    );
    let shown = runtime.tasks("s").list(None, 10).await.unwrap();
    assert_eq!(
        (shown.len(), &*shown[0].task, shown[0].state, shown[0].attempts),
        (1, &*task, "succeeded", 2)
    );
    let recorded = windlass::tasks::Tasks::recorded(store, "s");
    assert_eq!(recorded.get(&task).await.unwrap().1.model_text(), "done");
    assert_eq!(recorded.log(&task, Some(3), 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn of_a_talkative_task_the_beginning_and_the_end_are_kept() {
    let limits = windlass::Limits { log_bytes_max: 1_000, inline_ms: 0, ..Default::default() };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let clock = ManualClock::default();
    let config = Config { limits, ..Config::new(MemoryStore::new().unwrap()) };
    let runtime = Runtime::new(Config { store: store.clone(), clock: Arc::new(clock.clone()), ..config });
    let gate = closed();
    let deadlines = Deadlines { attempt_ms: Some(1 << 40), total_ms: Some(1 << 40), ..Deadlines::default() };
    let patient = ToolSpec { deadlines, ..background("t", EffectClass::Once) };
    runtime.register(talks(patient, &gate, 500)).unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "t", n(1))])).await;
    let task = answer.calls[0].handle().to_string();
    for number in 0..500 {
        gate.add_permits(1);
        while number >= 450
            && !log(&runtime, &task).await.iter().any(|(.., text)| *text == format!("line {number}\n"))
        {
            clock.advance(BUDGET);
            tokio::task::yield_now().await;
        }
        clock.advance(BUDGET);
        tokio::task::yield_now().await;
    }
    let kept = log(&runtime, &task).await;
    let bytes: usize = kept.iter().map(|(.., text)| text.len()).sum();
    assert!((900..=1_100).contains(&bytes), "{bytes}");
    assert_eq!(kept.first().unwrap().2, "line 0\n");
    assert_eq!(kept.last().unwrap().2, "line 499\n");
    assert!(kept.windows(2).any(|two| two[1].0 > two[0].0 + 1), "a gap shows that something is missing");
    gate.add_permits(1);
    until_told(&runtime, 1).await;
}

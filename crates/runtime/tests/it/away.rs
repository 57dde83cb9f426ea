//! Calls that wait for the world outside and leave memory: whatever wakes them finds them, and nothing else changes.

use crate::inside::{DAY, body};
use crate::rig::{
    Count, batch, call, config, echo, end, memory, n, reopen, run, spec, sqlite, states, waits_for,
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use windlass::ask::{Connecting, Target};
use windlass::batch::Siblings;
use windlass::store::memory::MemoryStore;
use windlass::tool::{Dedupe, client_tool};
use windlass::wait::Completed;
use windlass::{
    BatchRequest, Config, Deadlines, EffectClass, Limits, Output, Runtime, Tool, ToolError, ToolSpec,
};
use windlass_testkit::clock::ManualClock;

/// The keys that were given out, each with the id of its call.
#[derive(Clone, Default)]
struct Keys(Arc<Mutex<Vec<(String, String)>>>);

impl Keys {
    /// The key of this call, once it has one.
    async fn of(&self, id: &str) -> String {
        loop {
            let found = self.0.lock().unwrap().iter().find(|(of, _)| of == id).map(|(_, key)| key.clone());
            match found {
                Some(key) => return key,
                None => tokio::task::yield_now().await,
            }
        }
    }

    async fn answer(&self, runtime: &Runtime, id: &str) {
        runtime.complete(&self.of(id).await, Completed::ok(json!(id))).await.unwrap();
    }
}

/// A tool that leaves its result to the world outside.
fn asks(spec: ToolSpec, keys: &Keys) -> impl Tool + use<> {
    let keys = keys.clone();
    body(spec, move |_, cx| {
        let keys = keys.clone();
        Box::pin(async move {
            let key = cx.completion("answer").await?;
            keys.0.lock().unwrap().push((cx.id().to_string(), key.to_string()));
            Ok(Output::pending(key).within(DAY))
        })
    })
}

fn claimless(name: &str, class: EffectClass) -> ToolSpec {
    ToolSpec { claims: Some(Vec::new()), ..spec(name, class) }
}

/// Waits until so many calls are not in memory.
async fn left(runtime: &Runtime, count: u64) {
    let wait = async {
        while runtime.away() != count {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), wait).await;
    assert!(waited.is_ok(), "{} calls are away, and {count} should be", runtime.away());
}

/// Waits until nothing is open, and checks that nothing is remembered.
async fn over(runtime: &Runtime) {
    let idle = tokio::time::timeout(Duration::from_secs(60), runtime.idle()).await;
    assert!(idle.is_ok(), "a call is not woken: {:?}", runtime.open().await);
    assert_eq!((runtime.away(), runtime.kept()), (0, 0));
}

async fn one(runtime: &Runtime, id: &str, tool: &str) {
    drop(runtime.submit("s", asked(id, tool)).await.unwrap());
}

/// A batch of one call, named like it. No two have the same arguments: that would be a loop.
fn asked(id: &str, tool: &str) -> BatchRequest {
    batch(id, vec![call(id, tool, json!({ "n": 1, "id": id }))])
}

/// Registers a tool for each thing that a call can wait for.
fn register_all(runtime: &Runtime, keys: &Keys, bodies: &Count) {
    runtime.register(asks(spec("completion", EffectClass::Once), keys)).unwrap();
    runtime.register(client_tool(claimless("client", EffectClass::Once))).unwrap();
    let waits = keys.clone();
    let wait = body(spec("wait", EffectClass::Stepped), move |_, cx| {
        let keys = waits.clone();
        Box::pin(async move {
            let key = cx.completion("answer").await?;
            keys.0.lock().unwrap().push((cx.id().to_string(), key.to_string()));
            let answer = cx.wait(&key, Some(DAY)).await?;
            Ok(json!(format!("{answer:?}")).into())
        })
    });
    runtime.register(wait).unwrap();
    let asks = body(spec("input", EffectClass::Stepped), |_, cx| {
        Box::pin(async move { Ok(json!(cx.ask("colour", "Which?", None).await?).into()) })
    });
    runtime.register(asks).unwrap();
    let deadlines = Deadlines { total_ms: Some(10 * 86_400_000), ..Deadlines::default() };
    let long = |name, class| ToolSpec { deadlines, ..spec(name, class) };
    let sleeps = body(long("sleep", EffectClass::Stepped), |_, cx| {
        Box::pin(async move {
            cx.sleep("night", DAY).await?;
            Ok(json!("awake").into())
        })
    });
    runtime.register(sleeps).unwrap();
    for name in ["retry", "connection"] {
        let bodies = bodies.clone();
        let again = body(long(name, EffectClass::Keyed), move |_, _| {
            let first = bodies.up() == 1;
            Box::pin(async move {
                match (name, first) {
                    (_, false) => Ok(json!("done").into()),
                    ("retry", true) => Err(ToolError::new("busy").safe_to_retry_after(86_400_000)),
                    (_, true) => Err(ToolError::needs_connection("mail", None)),
                }
            })
        });
        runtime.register(again).unwrap();
    }
}

/// Does what the call waits for.
async fn wake(runtime: &Runtime, what: &str, keys: &Keys, clock: &ManualClock) {
    match what {
        "completion" | "wait" => keys.answer(runtime, "c").await,
        "input" => {
            let question = runtime.questions().await.unwrap().remove(0);
            runtime.answer(&question.id, &json!("red")).await.unwrap();
        }
        "client" => {
            let call = runtime.open().await.unwrap()[0].call.clone();
            runtime.client_result(&call, Completed::ok(json!("done"))).await.unwrap();
        }
        "connection" => {
            let reached = runtime.connected("s", "mail", true).await.unwrap();
            assert_eq!(reached, Connecting { waiting: 1 });
        }
        _ => clock.advance(DAY),
    }
}

#[tokio::test]
async fn whatever_it_waits_for_a_call_leaves_memory_and_is_found_there() {
    let table = [
        ("completion", "awaiting_completion", "c succeeded, 1 attempts"),
        ("wait", "awaiting_completion", "c succeeded, 1 attempts"),
        ("input", "awaiting_input", "c succeeded, 1 attempts"),
        ("client", "awaiting_client", "c succeeded, 1 attempts"),
        ("connection", "awaiting_connection", "c succeeded, 2 attempts"),
        ("sleep", "running", "c succeeded, 1 attempts"),
        ("retry", "retrying", "c succeeded, 2 attempts"),
    ];
    for (what, state, expected) in table {
        for on_disk in [true, false] {
            let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::default());
            let made = if on_disk { config(&folder) } else { Config::new(MemoryStore::new().unwrap()) };
            let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..made });
            let (keys, bodies) = (Keys::default(), Count::default());
            register_all(&runtime, &keys, &bodies);
            one(&runtime, "c", what).await;
            left(&runtime, 1).await;
            assert!(runtime.live().is_empty(), "{what}");
            let open = runtime.open().await.unwrap();
            assert_eq!((open.len(), open[0].state, &*open[0].id), (1, state, "c"));
            assert!(open[0].waiting_for.is_some(), "{what}");
            assert_eq!((runtime.counts().parked, runtime.open_calls()), (1, 1), "{what}");
            wake(&runtime, what, &keys, &clock).await;
            over(&runtime).await;
            assert_eq!(end(&run(&runtime, "s", asked("c", what)).await), expected, "{what}");
        }
    }
}

#[tokio::test]
async fn while_somebody_waits_for_it_a_call_stays_in_memory() {
    let (runtime, _folder) = sqlite();
    let keys = Keys::default();
    runtime.register(asks(claimless("t", EffectClass::Keyed), &keys)).unwrap();
    let first = runtime.submit("s", asked("c", "t")).await.unwrap();
    let second = runtime.submit("s", asked("c", "t")).await.unwrap();
    waits_for(&runtime, "completion").await;
    drop(first);
    // Another one leaves behind it, so it would have left by now.
    one(&runtime, "d", "t").await;
    left(&runtime, 1).await;
    assert_eq!(runtime.live().len(), 1);
    drop(second);
    left(&runtime, 2).await;
    // Whoever asks for it again joins it, and it is in memory again.
    let third = runtime.submit("s", asked("c", "t")).await.unwrap();
    assert_eq!((runtime.away(), runtime.live().len()), (1, 1));
    keys.answer(&runtime, "c").await;
    let answer = third.settled().await.unwrap();
    assert_eq!(end(&answer), "c succeeded, 1 attempts");
    keys.answer(&runtime, "d").await;
    over(&runtime).await;
    assert_eq!(keys.0.lock().unwrap().len(), 2, "no body ran twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_comes_in_the_very_moment_of_leaving_is_not_lost() {
    let (runtime, _folder) = sqlite();
    let keys = Keys::default();
    runtime.register(asks(claimless("t", EffectClass::Keyed), &keys)).unwrap();
    let mut answers = tokio::task::JoinSet::new();
    for round in 0..300 {
        let (id, runtime, keys) = (format!("c{round}"), runtime.clone(), keys.clone());
        if round % 3 == 0 {
            // And somebody looks for it meanwhile.
            let (id, runtime) = (id.clone(), runtime.clone());
            answers.spawn(async move {
                tokio::task::yield_now().await;
                drop(runtime.submit("s", asked(&id, "t")).await.unwrap());
            });
        }
        one(&runtime, &id, "t").await;
        answers.spawn(async move {
            let key = keys.of(&id).await;
            for _ in 0..round % 50 {
                tokio::task::yield_now().await;
            }
            runtime.complete(&key, Completed::ok(json!(1))).await.unwrap();
        });
    }
    while let Some(answered) = answers.join_next().await {
        answered.unwrap();
    }
    over(&runtime).await;
    for round in 0..300 {
        let answer = run(&runtime, "s", asked(&format!("c{round}"), "t")).await;
        assert_eq!(answer.calls[0].state(), "succeeded");
    }
    assert_eq!(keys.0.lock().unwrap().len(), 300, "no body ran twice");
}

#[tokio::test]
async fn a_cancel_reaches_calls_that_are_not_in_memory() {
    let (runtime, _folder) = sqlite();
    let keys = Keys::default();
    runtime.register(asks(claimless("t", EffectClass::Keyed), &keys)).unwrap();
    for id in ["a", "b", "c", "d"] {
        one(&runtime, id, "t").await;
    }
    left(&runtime, 4).await;
    let handle = runtime.open().await.unwrap().into_iter().find(|open| open.id == "a").unwrap().call;
    assert_eq!(runtime.cancel(Target::Call(&handle), None).await.unwrap().asked, 1);
    left(&runtime, 3).await;
    runtime.cancel(Target::Batch { session: "s", key: "b" }, None).await.unwrap();
    left(&runtime, 2).await;
    runtime.cancel(Target::Session("s"), None).await.unwrap();
    over(&runtime).await;
    for id in ["a", "b", "c", "d"] {
        assert_eq!(run(&runtime, "s", asked(id, "t")).await.calls[0].state(), "cancelled");
    }
}

#[tokio::test]
async fn what_a_process_takes_over_and_only_waits_is_not_kept_in_memory() {
    let (runtime, folder) = sqlite();
    let keys = Keys::default();
    runtime.register(asks(claimless("t", EffectClass::Keyed), &keys)).unwrap();
    let ids: Vec<String> = (0..60).map(|number| format!("c{number}")).collect();
    for (place, id) in ids.iter().enumerate() {
        let session = format!("s{}", place % 3);
        drop(runtime.submit(&session, asked(id, "t")).await.unwrap());
    }
    left(&runtime, 60).await;
    drop(runtime);
    let runtime = reopen(&folder);
    runtime.register(asks(claimless("t", EffectClass::Keyed), &keys)).unwrap();
    assert_eq!(runtime.resume().await.unwrap(), 60);
    // At once, and not when somebody gets round to it.
    assert_eq!((runtime.away(), runtime.live().len(), runtime.counts().parked), (60, 0, 60));
    for id in &ids {
        keys.answer(&runtime, id).await;
    }
    over(&runtime).await;
    for (place, id) in ids.iter().enumerate() {
        let answer = run(&runtime, &format!("s{}", place % 3), asked(id, "t")).await;
        assert_eq!(end(&answer), format!("{id} succeeded, 1 attempts"));
    }
    assert_eq!(keys.0.lock().unwrap().len(), 60, "no body ran twice");
}

/// A tool that declares that it writes its session: what it claims by default it would give up while it waits.
fn writes(name: &str) -> ToolSpec {
    ToolSpec { claims: Some(vec!["write".into()]), ..spec(name, EffectClass::Once) }
}

#[tokio::test]
async fn what_started_keeps_its_claims_and_whoever_waits_for_it_says_so() {
    let (runtime, folder) = sqlite();
    let (keys, ran) = (Keys::default(), Count::default());
    let register = |runtime: &Runtime| {
        runtime.register(asks(writes("t"), &keys)).unwrap();
        runtime.register(echo(writes("u"), &ran)).unwrap();
    };
    register(&runtime);
    one(&runtime, "a", "t").await;
    left(&runtime, 1).await;
    let holder = runtime.open().await.unwrap()[0].call.clone();
    one(&runtime, "b", "u").await;
    waits_for(&runtime, "claim").await;
    let open = runtime.open().await.unwrap();
    let why = open.iter().find(|open| open.id == "b").unwrap().waiting_for.clone().unwrap();
    assert!(why.starts_with(&format!("claim of {holder}")), "{why}");
    assert_eq!((runtime.away(), ran.get()), (1, 0));
    // Nor does a new process let it pass.
    drop(runtime);
    let runtime = reopen(&folder);
    register(&runtime);
    assert_eq!(runtime.resume().await.unwrap(), 1, "nothing was acknowledged of the other");
    one(&runtime, "b", "u").await;
    waits_for(&runtime, "claim").await;
    assert_eq!((runtime.away(), ran.get()), (1, 0));
    keys.answer(&runtime, "a").await;
    over(&runtime).await;
    assert_eq!(ran.get(), 1);
}

#[tokio::test]
async fn a_race_and_a_quorum_are_decided_by_calls_that_left_memory() {
    for (siblings, answered, expected) in [
        (Siblings::Race, &["b"][..], "a cancelled, b succeeded, c cancelled"),
        (Siblings::Quorum(2), &["c", "a"][..], "a succeeded, b cancelled, c succeeded"),
        (Siblings::Independent, &["c", "a", "b"][..], "a succeeded, b succeeded, c succeeded"),
    ] {
        let (runtime, _folder) = sqlite();
        let keys = Keys::default();
        runtime.register(asks(claimless("t", EffectClass::Keyed), &keys)).unwrap();
        let calls = || ["a", "b", "c"].map(|id| call(id, "t", n(1))).to_vec();
        let request = || BatchRequest { siblings, ..batch("k", calls()) };
        drop(runtime.submit("s", request()).await.unwrap());
        left(&runtime, 3).await;
        for (place, id) in answered.iter().enumerate() {
            keys.answer(&runtime, id).await;
            if place + 1 < answered.len() {
                // The batch comes back whole and leaves again with what is left of it.
                left(&runtime, 2 - place as u64).await;
            }
        }
        over(&runtime).await;
        assert_eq!(states(&run(&runtime, "s", request()).await), expected);
    }
}

#[tokio::test]
async fn its_deadline_ends_a_call_that_sleeps_too_long() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::default());
    let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..config(&folder) });
    let deadlines = Deadlines { total_ms: Some(60_000), ..Deadlines::default() };
    let sleeps = body(ToolSpec { deadlines, ..spec("t", EffectClass::Stepped) }, |_, cx| {
        Box::pin(async move {
            cx.sleep("short", Duration::from_secs(20)).await?;
            cx.sleep("long", DAY).await?;
            Ok(json!("awake").into())
        })
    });
    runtime.register(sleeps).unwrap();
    one(&runtime, "c", "t").await;
    left(&runtime, 1).await;
    clock.advance(Duration::from_secs(20));
    // It goes on and sleeps again: the time it slept counts.
    while !waits_for(&runtime, "sleep").await.is_empty() && journal_has(&runtime, "long").await.is_none() {
        tokio::task::yield_now().await;
    }
    left(&runtime, 1).await;
    clock.advance(Duration::from_secs(39));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(runtime.open_calls(), 1);
    clock.advance(Duration::from_secs(1));
    over(&runtime).await;
    assert_eq!(end(&run(&runtime, "s", asked("c", "t")).await), "c failed/timeout, 1 attempts");
}

/// Whether an operation of this name is recorded in the first batch.
async fn journal_has(runtime: &Runtime, name: &str) -> Option<()> {
    let rows = runtime.store().journal(windlass_core::ids::BatchNo(1)).await.unwrap();
    let has = |data: &[u8]| data.windows(name.len()).any(|found| found == name.as_bytes());
    rows.iter().any(|row| has(&row.data)).then_some(())
}

#[tokio::test]
async fn a_connection_wakes_only_those_that_wait_for_it() {
    let (runtime, _folder) = sqlite();
    let bodies = Count::default();
    let counted = bodies.clone();
    let tool = body(claimless("t", EffectClass::Keyed), move |args: Value, _| {
        counted.up();
        let provider = args["provider"].as_str().unwrap_or_default().to_string();
        Box::pin(async move { Err(ToolError::needs_connection(provider, None)) })
    });
    runtime.register(tool).unwrap();
    for (id, provider) in [("a", "mail"), ("b", "calendar"), ("c", "mail")] {
        let request = batch(id, vec![call(id, "t", json!({ "provider": provider }))]);
        drop(runtime.submit("s", request).await.unwrap());
    }
    left(&runtime, 3).await;
    assert_eq!(runtime.connected("s", "mail", false).await.unwrap().waiting, 2);
    left(&runtime, 1).await;
    while runtime.open_calls() > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!((runtime.open().await.unwrap()[0].id.as_str(), bodies.get()), ("b", 3));
    runtime.connected("s", "calendar", true).await.unwrap();
    while bodies.get() < 4 {
        tokio::task::yield_now().await;
    }
    left(&runtime, 1).await;
}

#[tokio::test]
async fn of_many_that_are_due_at_once_only_so_many_are_read_back() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::default());
    let limits = Limits { calls_queued_max: 40, calls_running_max: 2, ..Limits::default() };
    let runtime = Runtime::new(Config { limits, clock: Arc::new(clock.clone()), ..config(&folder) });
    let (go, ran) = (watch::Sender::new(true), Count::default());
    let (gate, counted) = (go.clone(), ran.clone());
    let sleeps = body(claimless("t", EffectClass::Stepped), move |_, cx| {
        let (gate, counted) = (gate.clone(), counted.clone());
        Box::pin(async move {
            cx.sleep("nap", Duration::from_secs(60)).await?;
            gate.subscribe().wait_for(|open| *open).await.map_err(|_| ToolError::new("gone"))?;
            counted.up();
            Ok(json!("awake").into())
        })
    });
    runtime.register(sleeps).unwrap();
    let many = 120;
    for number in 0..many {
        one(&runtime, &format!("c{number}"), "t").await;
        left(&runtime, number + 1).await;
    }
    go.send_replace(false);
    clock.advance(Duration::from_secs(60));
    while runtime.counts().queued < 40 {
        tokio::task::yield_now().await;
    }
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    // Those that run, those that may wait, and those that were being read.
    let most = 2 + 40 + 32;
    assert!(runtime.live().len() <= most, "{} are in memory", runtime.live().len());
    assert!(runtime.away() >= many - most as u64);
    go.send_replace(true);
    over(&runtime).await;
    assert_eq!(u64::from(ran.get()), many);
}

#[tokio::test]
async fn a_session_that_was_let_go_is_taken_again_by_whatever_wakes_its_calls() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::default());
    let limits = Limits { sessions_owned_max: 2, ..Limits::default() };
    let runtime = Runtime::new(Config { limits, clock: Arc::new(clock.clone()), ..config(&folder) });
    let (keys, ran) = (Keys::default(), Count::default());
    runtime.register(asks(claimless("t", EffectClass::Keyed), &keys)).unwrap();
    runtime.register(echo(spec("u", EffectClass::Once), &ran)).unwrap();
    for number in 0..12 {
        let id = format!("c{number}");
        drop(runtime.submit(&format!("s{number}"), asked(&id, "t")).await.unwrap());
        left(&runtime, number + 1).await;
    }
    assert!(runtime.sessions_in_memory() <= 2, "{}", runtime.sessions_in_memory());
    // By an answer, by a cancel, by a new call, by being asked for again.
    keys.answer(&runtime, "c0").await;
    runtime.cancel(Target::Session("s1"), None).await.unwrap();
    run(&runtime, "s2", asked("new", "u")).await;
    let joined = runtime.submit("s3", asked("c3", "t")).await.unwrap();
    keys.answer(&runtime, "c3").await;
    assert_eq!(end(&joined.settled().await.unwrap()), "c3 succeeded, 1 attempts");
    left(&runtime, 9).await;
    // And by the time that has passed.
    clock.advance(DAY);
    over(&runtime).await;
    let expected = ["succeeded", "cancelled", "failed", "succeeded", "failed"];
    for (number, state) in expected.into_iter().enumerate() {
        let answer = run(&runtime, &format!("s{number}"), asked(&format!("c{number}"), "t")).await;
        assert_eq!(answer.calls[0].state(), state, "{number}");
    }
    assert_eq!(keys.0.lock().unwrap().len(), 12, "no body ran twice");
}

#[tokio::test]
async fn a_session_that_was_let_go_keeps_what_its_calls_claim() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { sessions_owned_max: 2, ..Limits::default() };
    let runtime = Runtime::new(Config { limits, ..config(&folder) });
    let (keys, ran) = (Keys::default(), Count::default());
    runtime.register(asks(writes("t"), &keys)).unwrap();
    runtime.register(echo(writes("u"), &ran)).unwrap();
    for number in 0..8 {
        let id = format!("c{number}");
        drop(runtime.submit(&format!("s{number}"), asked(&id, "t")).await.unwrap());
        left(&runtime, number + 1).await;
    }
    assert!(runtime.sessions_in_memory() <= 2, "{}", runtime.sessions_in_memory());
    assert_eq!(runtime.counts().parked, 8);
    drop(runtime.submit("s0", asked("new", "u")).await.unwrap());
    waits_for(&runtime, "claim").await;
    left(&runtime, 8).await;
    assert_eq!(ran.get(), 0);
    for number in 0..8 {
        keys.answer(&runtime, &format!("c{number}")).await;
    }
    over(&runtime).await;
    assert_eq!(ran.get(), 1);
}

#[tokio::test]
async fn what_is_not_recorded_keeps_a_batch_in_memory() {
    let runtime = memory();
    let keys = Keys::default();
    runtime.register(asks(claimless("own", EffectClass::Keyed), &keys)).unwrap();
    let mut overlay = runtime.overlay();
    overlay.add(asks(claimless("t", EffectClass::Keyed), &keys)).unwrap();
    // The tools that its caller lent it are not recorded.
    let request = BatchRequest { overlay: Some(Arc::new(overlay)), ..asked("c", "t") };
    drop(runtime.submit("s", request).await.unwrap());
    waits_for(&runtime, "completion").await;
    one(&runtime, "d", "own").await;
    left(&runtime, 1).await;
    assert_eq!(runtime.live().len(), 1);
    keys.answer(&runtime, "c").await;
    keys.answer(&runtime, "d").await;
    over(&runtime).await;
}

#[tokio::test]
async fn a_call_that_is_the_same_waits_for_one_that_left_memory() {
    let (runtime, _folder) = sqlite();
    let keys = Keys::default();
    let same = ToolSpec {
        dedupe: Some(Dedupe { key: "{n}".into(), for_ms: None }),
        ..claimless("t", EffectClass::Once)
    };
    runtime.register(asks(same, &keys)).unwrap();
    one(&runtime, "a", "t").await;
    left(&runtime, 1).await;
    let follower = runtime.submit("s", asked("b", "t")).await.unwrap();
    waits_for(&runtime, "same_as").await;
    assert_eq!(runtime.away(), 1);
    keys.answer(&runtime, "a").await;
    assert_eq!(states(&follower.settled().await.unwrap()), "b succeeded");
    over(&runtime).await;
    assert_eq!(keys.0.lock().unwrap().len(), 1, "one body ran");
}

/// Time passes at any moment of a call's way out of memory: whatever was due is woken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_due_while_it_leaves_memory_is_woken() {
    let clock = ManualClock::default();
    let config = Config::new(MemoryStore::new().unwrap());
    let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..config });
    let tool = body(claimless("t", EffectClass::Stepped), |_, cx| {
        Box::pin(async move {
            cx.sleep("a minute", Duration::from_secs(60)).await?;
            Ok(json!(1).into())
        })
    });
    runtime.register(tool).unwrap();
    for round in 0..1_000_u32 {
        drop(
            runtime
                .submit("s", batch(&round.to_string(), vec![call("c", "t", n(round.into()))]))
                .await
                .unwrap(),
        );
        // As soon as it waits, and a little later each time.
        while runtime.live().iter().any(|open| open.state == "running") {
            std::hint::spin_loop();
        }
        let leaves = std::time::Instant::now() + Duration::from_nanos(u64::from(round % 500) * 400);
        while std::time::Instant::now() < leaves {
            std::hint::spin_loop();
        }
        clock.advance(Duration::from_secs(60));
        let idle = tokio::time::timeout(Duration::from_secs(60), runtime.idle()).await;
        assert!(idle.is_ok(), "round {round}: it was not woken, {} away", runtime.away());
    }
}

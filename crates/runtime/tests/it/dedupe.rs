//! Calls that are the same by their tool's dedupe key: one runs, the others wait for it or have its answer.

mod restart;

use crate::rig::{Count, batch, call, config, echo, end, memory, n, one, run, spec, sqlite, states};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use windlass::ask::{Resolution, Target};
use windlass::store::memory::MemoryStore;
use windlass::tool::Dedupe;
use windlass::{
    BatchAnswer, BatchRequest, CallRequest, Config, Cx, Deadlines, EffectClass, Flags, Output, Runtime,
    Submitted, Tool, ToolError, ToolFuture, ToolSpec, tool_fn,
};
use windlass_testkit::clock::ManualClock;

/// A tool whose calls are the same if `n` is.
pub fn same(class: EffectClass) -> ToolSpec {
    ToolSpec { dedupe: Some(Dedupe { key: "{n}".into(), for_ms: None }), ..spec("pay", class) }
}

/// The attempts of a tool, each of which waits for its result.
pub struct Desk(mpsc::UnboundedReceiver<(String, Reply)>);

type Reply = oneshot::Sender<Result<Value, ToolError>>;

impl Desk {
    pub fn open(runtime: &Runtime, spec: ToolSpec) -> Desk {
        let (sender, runs) = mpsc::unbounded_channel();
        let tool = tool_fn(spec, move |_, cx: &Cx| {
            let (reply, result) = oneshot::channel::<Result<Value, ToolError>>();
            sender.send((cx.id().to_string(), reply)).unwrap();
            async move {
                match result.await {
                    Ok(result) => result.map(Output::from),
                    // Whoever would have replied is gone, and its owner is about to go.
                    Err(_) => std::future::pending().await,
                }
            }
        });
        runtime.register(tool).unwrap();
        Desk(runs)
    }

    /// The next attempt must be of this call.
    pub async fn next(&mut self, id: &str) -> Reply {
        let (of, reply) = self.0.recv().await.unwrap();
        assert_eq!(of, id);
        reply
    }

    /// There was no other attempt.
    pub fn is_quiet(&mut self) {
        assert!(self.0.try_recv().is_err(), "another attempt was made");
    }
}

fn pay(id: &str, args: Value) -> CallRequest {
    call(id, "pay", args)
}

pub fn pays(key: &str, ids: &[&str]) -> BatchRequest {
    batch(key, ids.iter().map(|id| pay(id, n(1))).collect())
}

pub async fn submit(runtime: &Runtime, request: BatchRequest) -> Submitted {
    runtime.submit("s", request).await.unwrap()
}

/// Waits until so many calls wait because they are the same as another, and names them.
pub async fn followers(runtime: &Runtime, count: usize) -> Vec<String> {
    loop {
        let open = runtime.open().await.unwrap();
        let waits = |why: &Option<windlass::wait::WaitingFor>| {
            why.as_deref().is_some_and(|why| why.starts_with("same_as "))
        };
        let found: Vec<String> =
            open.iter().filter(|open| waits(&open.waiting_for)).map(|open| open.call.clone()).collect();
        if found.len() == count {
            assert!(open.iter().filter(|open| waits(&open.waiting_for)).all(|open| open.state == "queued"));
            return found;
        }
        tokio::task::yield_now().await;
    }
}

/// `id state(attempts)` of each answer, and which of them it is the same as.
pub fn told(answers: &[&BatchAnswer]) -> String {
    let calls: Vec<_> = answers.iter().flat_map(|answer| &answer.calls).collect();
    let told = calls.iter().map(|call| {
        let same_as = call.same_as().map(|first| {
            let first = calls.iter().find(|call| call.handle() == first).unwrap();
            let told = |call: &windlass::CallAnswer| {
                let shown = serde_json::to_value(call).unwrap();
                (shown["outcome"].clone(), shown["model"].clone())
            };
            // Each is cancelled for itself, and what is not known may become known of each for itself.
            let apart = call.state() == "unknown" || call.call().cancel.is_some();
            assert!(apart || told(call) == told(first), "the same answer");
            format!(" as {}", first.id())
        });
        format!("{} {}({}){}", call.id(), call.state(), call.call().attempts, same_as.unwrap_or_default())
    });
    told.collect::<Vec<_>>().join(", ")
}

#[tokio::test]
async fn twice_in_one_batch_runs_once() {
    let (on_disk, _folder) = sqlite();
    for runtime in [memory(), on_disk] {
        let mut desk = Desk::open(&runtime, same(EffectClass::Once));
        let waiting = submit(&runtime, pays("k", &["a", "b"])).await;
        let reply = desk.next("a").await;
        let waits = followers(&runtime, 1).await;
        reply.send(Ok(json!({"paid": true}))).unwrap();
        let answer = waiting.settled().await.unwrap();
        assert_eq!(told(&[&answer]), "a succeeded(1), b succeeded(0) as a");
        assert_eq!(waits, [answer.calls[1].handle().to_string()]);
        let shown = serde_json::to_value(&answer.calls[1]).unwrap();
        assert_eq!(shown["same_as"], answer.calls[0].handle().to_string());
        assert_eq!(shown["outcome"]["value"], json!({"paid": true}));
        assert!(serde_json::to_value(&answer.calls[0]).unwrap().get("same_as").is_none());
        desk.is_quiet();
        runtime.idle().await;
        assert_eq!(runtime.kept(), 0);
    }
}

#[tokio::test]
async fn in_two_batches_the_second_joins_the_open_one() {
    let (on_disk, _folder) = sqlite();
    for runtime in [memory(), on_disk] {
        let mut desk = Desk::open(&runtime, same(EffectClass::Keyed));
        let first = submit(&runtime, pays("k1", &["a"])).await;
        let reply = desk.next("a").await;
        let second = submit(&runtime, pays("k2", &["b"])).await;
        followers(&runtime, 1).await;
        reply.send(Ok(json!(1))).unwrap();
        let (first, second) = (first.settled().await.unwrap(), second.settled().await.unwrap());
        assert_eq!(told(&[&first, &second]), "a succeeded(1), b succeeded(0) as a");
        desk.is_quiet();
    }
}

#[tokio::test]
async fn after_a_success_its_answer_is_given_with_all_it_refers_to() {
    let (on_disk, _folder) = sqlite();
    for runtime in [memory(), on_disk] {
        let ran = Count::default();
        let flags = Flags { persist_output: true, ..Flags::default() };
        runtime.register(echo(ToolSpec { flags, ..same(EffectClass::Keyed) }, &ran)).unwrap();
        let first = run(&runtime, "s", pays("k1", &["a"])).await;
        assert!(serde_json::to_string(&first.calls[0]).unwrap().contains("artifact"));
        // A mark is at who ran, not at who got its answer.
        let later = run(&runtime, "s", pays("k2", &["b", "c"])).await;
        let last = run(&runtime, "s", pays("k3", &["d"])).await;
        let expected = "a succeeded(1), b succeeded(0) as a, c succeeded(0) as a, d succeeded(0) as a";
        assert_eq!(told(&[&first, &later, &last]), expected);
        assert_eq!(ran.get(), 1);
    }
}

#[tokio::test]
async fn what_is_unknown_stays_so_for_each_until_it_is_resolved() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::default());
    for config in [Config::new(MemoryStore::new().unwrap()), config(&folder)] {
        let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..config });
        // Only an attempt has a deadline: the clock runs fast until it has passed.
        let (queue_ms, total_ms) = (Some(u64::MAX), Some(u64::MAX));
        let deadlines = Deadlines { queue_ms, total_ms, ..Deadlines::default() };
        let mut desk = Desk::open(&runtime, ToolSpec { deadlines, ..same(EffectClass::Once) });
        let waiting = tokio::spawn(submit(&runtime, pays("k1", &["a", "b"])).await.settled());
        let _reply = desk.next("a").await;
        while !waiting.is_finished() {
            clock.advance(Duration::from_secs(1));
            tokio::task::yield_now().await;
        }
        let first = waiting.await.unwrap().unwrap();
        let later = run(&runtime, "s", pays("k2", &["c"])).await;
        assert_eq!(told(&[&first, &later]), "a unknown(1), b unknown(0) as a, c unknown(0) as a");
        desk.is_quiet();

        let [a, b, c] =
            [&first.calls[0], &first.calls[1], &later.calls[0]].map(|call| call.handle().to_string());
        let refused = runtime.reconcile(&b).await.err().unwrap().to_string();
        assert!(refused.contains("it never ran itself"), "{refused}");
        runtime.resolve(&b, Resolution::Landed(json!(7))).await.unwrap();
        let again = run(&runtime, "s", pays("k1", &["a", "b"])).await;
        assert_eq!(states(&again), "a unknown, b succeeded");
        // Now it is known that it did not happen: it may be asked for again.
        runtime.resolve(&a, Resolution::DidNotHappen).await.unwrap();
        let waiting = submit(&runtime, pays("k3", &["d"])).await;
        desk.next("d").await.send(Ok(json!(1))).unwrap();
        assert_eq!(end(&waiting.settled().await.unwrap()), "d succeeded, 1 attempts");
        runtime.resolve(&c, Resolution::DidNotHappen).await.unwrap();
        assert_eq!(states(&run(&runtime, "s", pays("k2", &["c"])).await), "c failed/did_not_happen");
    }
}

#[tokio::test]
async fn after_a_failure_the_oldest_follower_runs_and_the_others_join_it() {
    let (on_disk, _folder) = sqlite();
    for runtime in [memory(), on_disk] {
        let mut desk = Desk::open(&runtime, same(EffectClass::Keyed));
        let first = submit(&runtime, pays("k1", &["a", "b", "c"])).await;
        let reply = desk.next("a").await;
        let second = submit(&runtime, pays("k2", &["d"])).await;
        followers(&runtime, 3).await;
        reply.send(Err(ToolError::new("no"))).unwrap();
        let reply = desk.next("b").await;
        let waits = followers(&runtime, 2).await;
        let open = runtime.open().await.unwrap();
        let running = open.iter().find(|open| open.state == "running").unwrap();
        for call in open.iter().filter(|open| waits.contains(&open.call)) {
            assert_eq!(call.waiting_for.as_deref(), Some(&*format!("same_as {}", running.call)));
        }
        reply.send(Ok(json!(1))).unwrap();
        let (first, second) = (first.settled().await.unwrap(), second.settled().await.unwrap());
        let expected = "a failed(1), b succeeded(1), c succeeded(0) as b, d succeeded(0) as b";
        assert_eq!(told(&[&first, &second]), expected);
        // Nobody was open when this one came.
        let third = run(&runtime, "s", pays("k3", &["e"])).await;
        assert_eq!(
            told(&[&first, &third]),
            expected.replace(", d succeeded(0) as b", ", e succeeded(0) as b")
        );
        desk.is_quiet();
        runtime.idle().await;
        assert_eq!(runtime.kept(), 0);
    }
}

#[tokio::test]
async fn after_a_failure_that_nobody_waited_for_the_next_one_runs() {
    let (on_disk, _folder) = sqlite();
    for runtime in [memory(), on_disk] {
        let mut desk = Desk::open(&runtime, same(EffectClass::Keyed));
        for id in ["a", "b"] {
            let waiting = submit(&runtime, pays(id, &[id])).await;
            desk.next(id).await.send(Err(ToolError::new("no"))).unwrap();
            assert_eq!(
                end(&waiting.settled().await.unwrap()),
                format!("{id} failed/tool_failed, 1 attempts")
            );
        }
    }
}

#[tokio::test]
async fn a_cancelled_first_is_repeated_only_if_it_had_no_effect() {
    for (class, expected) in [
        (EffectClass::Read, "a cancelled(1), b succeeded(1), c succeeded(0) as b"),
        (EffectClass::Keyed, "a cancelled(1), b cancelled(0) as a, c cancelled(0) as a"),
    ] {
        let (on_disk, _folder) = sqlite();
        for runtime in [memory(), on_disk] {
            let mut desk = Desk::open(&runtime, ToolSpec { grace_ms: Some(1), ..same(class) });
            let waiting = submit(&runtime, pays("k", &["a", "b", "c"])).await;
            let _never = desk.next("a").await;
            followers(&runtime, 2).await;
            let open = runtime.open().await.unwrap();
            let first = open.iter().find(|open| open.id == "a").unwrap();
            runtime.cancel(Target::Call(&first.call), None).await.unwrap();
            if class == EffectClass::Read {
                desk.next("b").await.send(Ok(json!(1))).unwrap();
            }
            let answer = waiting.settled().await.unwrap();
            assert_eq!(told(&[&answer]), expected);
            let again = run(&runtime, "s", pays("k", &["a", "b", "c"])).await;
            assert_eq!(told(&[&again]), expected);
            desk.is_quiet();
        }
    }
}

#[tokio::test]
async fn a_first_that_was_cancelled_before_it_ran_leaves_its_key() {
    let (on_disk, _folder) = sqlite();
    for runtime in [memory(), on_disk] {
        let mut desk = Desk::open(&runtime, same(EffectClass::Once));
        runtime.pause("pay").await.unwrap();
        let waiting = submit(&runtime, pays("k", &["a", "b"])).await;
        followers(&runtime, 1).await;
        let open = runtime.open().await.unwrap();
        let first = open.iter().find(|open| open.id == "a").unwrap();
        runtime.cancel(Target::Call(&first.call), None).await.unwrap();
        runtime.resume_tool("pay").await.unwrap();
        desk.next("b").await.send(Ok(json!(1))).unwrap();
        assert_eq!(told(&[&waiting.settled().await.unwrap()]), "a cancelled(0), b succeeded(1)");
    }
}

#[tokio::test]
async fn a_cancelled_follower_ends_alone() {
    let (on_disk, _folder) = sqlite();
    for runtime in [memory(), on_disk] {
        let mut desk = Desk::open(&runtime, same(EffectClass::Keyed));
        let waiting = submit(&runtime, pays("k", &["a", "b", "c"])).await;
        let reply = desk.next("a").await;
        let waits = followers(&runtime, 2).await;
        runtime.cancel(Target::Call(&waits[0]), None).await.unwrap();
        followers(&runtime, 1).await;
        reply.send(Err(ToolError::new("no"))).unwrap();
        desk.next("c").await.send(Ok(json!(1))).unwrap();
        let answer = waiting.settled().await.unwrap();
        assert_eq!(states(&answer), "a failed/tool_failed, b cancelled, c succeeded");
        assert_eq!(serde_json::to_value(&answer.calls[1]).unwrap()["outcome"]["effect"], "none");
        runtime.idle().await;
        assert_eq!(runtime.kept(), 0);
    }
}

fn timed(clock: &ManualClock, folder: Option<&tempfile::TempDir>) -> Runtime {
    let config = match folder {
        Some(folder) => crate::rig::config(folder),
        None => Config::new(MemoryStore::new().unwrap()),
    };
    Runtime::new(Config { clock: std::sync::Arc::new(clock.clone()), ..config })
}

#[tokio::test]
async fn an_answer_stands_as_long_as_the_tool_says() {
    let folder = tempfile::tempdir().unwrap();
    for folder in [None, Some(&folder)] {
        let (clock, ran) = (ManualClock::default(), Count::default());
        let runtime = timed(&clock, folder);
        let dedupe = Some(Dedupe { key: "{n}".into(), for_ms: Some(60_000) });
        runtime.register(echo(ToolSpec { dedupe, ..same(EffectClass::Keyed) }, &ran)).unwrap();
        // It counts from when the one that ran was asked for; each that runs begins anew.
        for (id, seconds, runs) in [("a", 0, 1), ("b", 59, 1), ("c", 1, 2), ("d", 59, 2), ("e", 1, 3)] {
            clock.advance(Duration::from_secs(seconds));
            let answer = run(&runtime, "s", pays(id, &[id])).await;
            assert_eq!(ran.get(), runs, "{id}");
            assert_eq!(answer.calls[0].same_as().is_none(), answer.calls[0].call().attempts == 1, "{id}");
        }
    }
}

#[tokio::test]
async fn an_open_call_is_joined_however_long_it_takes() {
    let clock = ManualClock::default();
    let runtime = timed(&clock, None);
    let dedupe = Some(Dedupe { key: "{n}".into(), for_ms: Some(1_000) });
    let mut desk = Desk::open(&runtime, ToolSpec { dedupe, ..same(EffectClass::Keyed) });
    let first = submit(&runtime, pays("k1", &["a"])).await;
    let reply = desk.next("a").await;
    clock.advance(Duration::from_secs(2));
    let second = submit(&runtime, pays("k2", &["b"])).await;
    followers(&runtime, 1).await;
    reply.send(Ok(json!(1))).unwrap();
    let (first, second) = (first.settled().await.unwrap(), second.settled().await.unwrap());
    assert_eq!(told(&[&first, &second]), "a succeeded(1), b succeeded(0) as a");
}

#[tokio::test]
async fn a_follower_waits_no_longer_than_its_deadline() {
    let clock = ManualClock::default();
    let runtime = timed(&clock, None);
    let deadlines = Deadlines { queue_ms: Some(1_000), ..Deadlines::default() };
    let mut desk = Desk::open(&runtime, ToolSpec { deadlines, ..same(EffectClass::Keyed) });
    let first = submit(&runtime, pays("k1", &["a"])).await;
    let reply = desk.next("a").await;
    let second = submit(&runtime, pays("k2", &["b"])).await;
    followers(&runtime, 1).await;
    clock.advance(Duration::from_secs(2));
    let late = second.settled().await.unwrap();
    assert_eq!(end(&late), "b failed/timeout, 0 attempts");
    assert!(late.calls[0].model_text().contains("It waited for a call that is the same."));
    reply.send(Ok(json!(1))).unwrap();
    assert_eq!(end(&first.settled().await.unwrap()), "a succeeded, 1 attempts");
    desk.is_quiet();
}

#[tokio::test]
async fn sessions_tools_and_keys_are_apart() {
    let (on_disk, _folder) = sqlite();
    for runtime in [memory(), on_disk] {
        let ran = Count::default();
        let other = ToolSpec { name: "pay2".into(), ..same(EffectClass::Keyed) };
        runtime.register(echo(same(EffectClass::Keyed), &ran)).unwrap();
        runtime.register(echo(other, &ran)).unwrap();
        run(&runtime, "s", pays("k", &["a"])).await;
        run(&runtime, "t", pays("k", &["a"])).await;
        run(&runtime, "s", batch("k2", vec![call("b", "pay2", n(1)), pay("c", n(2))])).await;
        assert_eq!(ran.get(), 4);
        // A number and its text are one key; other arguments are no part of it.
        run(&runtime, "s", batch("k3", vec![pay("d", json!({"n": "1", "note": "again"}))])).await;
        assert_eq!(ran.get(), 4);
    }
}

#[tokio::test]
async fn a_follower_that_is_submitted_again_has_its_recorded_answer() {
    let (runtime, folder) = sqlite();
    let ran = Count::default();
    runtime.register(echo(same(EffectClass::Keyed), &ran)).unwrap();
    let handle = run(&runtime, "s", pays("k", &["a", "b"])).await.calls[1].handle();
    let again = async |runtime: &Runtime| {
        let again = run(runtime, "s", pays("k", &["a", "b"])).await;
        assert_eq!(told(&[&again]), "a succeeded(1), b succeeded(0) as a");
        assert!(again.calls[1].is_recorded());
        assert_eq!(again.calls[1].handle(), handle);
    };
    again(&runtime).await;
    drop(runtime);
    again(&crate::rig::reopen(&folder)).await;
    assert_eq!(ran.get(), 1);
}

#[tokio::test]
async fn a_follower_holds_nothing_up() {
    let (on_disk, _folder) = sqlite();
    for runtime in [memory(), on_disk] {
        let claims = |claim: &str| Some(vec![claim.to_string()]);
        let spec_of =
            ToolSpec { claims: claims("write {at}"), running_max: Some(1), ..same(EffectClass::Keyed) };
        let mut desk = Desk::open(&runtime, spec_of);
        let ran = Count::default();
        let beside = ToolSpec { claims: claims("write y"), ..spec("beside", EffectClass::Keyed) };
        runtime.register(echo(beside, &ran)).unwrap();
        let calls = vec![pay("a", json!({"n": 1, "at": "x"})), pay("b", json!({"n": 1, "at": "y"}))];
        let waiting = submit(&runtime, batch("k", calls)).await;
        let reply = desk.next("a").await;
        followers(&runtime, 1).await;
        let neighbour = run(&runtime, "s", batch("k2", vec![call("c", "beside", n(1))])).await;
        assert_eq!(states(&neighbour), "c succeeded");
        // When it has to run after all, it claims what it always would have.
        reply.send(Err(ToolError::new("no"))).unwrap();
        let reply = desk.next("b").await;
        let behind = submit(&runtime, batch("k3", vec![call("d", "beside", n(1))])).await;
        crate::rig::waits_for(&runtime, "claim").await;
        reply.send(Ok(json!(1))).unwrap();
        assert_eq!(states(&waiting.settled().await.unwrap()), "a failed/tool_failed, b succeeded");
        assert_eq!(states(&behind.settled().await.unwrap()), "d succeeded");
    }
}

#[tokio::test]
async fn a_first_that_waits_for_its_turn_is_found_later() {
    let (on_disk, _folder) = sqlite();
    for runtime in [memory(), on_disk] {
        // Nothing is recorded of a call that waits for its turn; what it is to record must not be lost meanwhile.
        let mut before = Desk::open(&runtime, spec("before", EffectClass::Keyed));
        let mut desk = Desk::open(&runtime, same(EffectClass::Keyed));
        let calls = vec![call("x", "before", n(1)), pay("a", n(1)), pay("b", n(1))];
        let waiting = submit(&runtime, batch("k1", calls)).await;
        let reply = before.next("x").await;
        followers(&runtime, 1).await;
        crate::rig::waits_for(&runtime, "claim").await;
        reply.send(Ok(json!(1))).unwrap();
        desk.next("a").await.send(Ok(json!(1))).unwrap();
        let first = waiting.settled().await.unwrap();
        let later = run(&runtime, "s", pays("k2", &["c"])).await;
        let expected = "x succeeded(1), a succeeded(1), b succeeded(0) as a, c succeeded(0) as a";
        assert_eq!(told(&[&first, &later]), expected);
        desk.is_quiet();
    }
}

#[tokio::test]
async fn a_thousand_wait_for_one() {
    let (on_disk, _folder) = sqlite();
    for runtime in [memory(), on_disk] {
        let mut desk = Desk::open(&runtime, same(EffectClass::Once));
        let first = submit(&runtime, pays("first", &["a"])).await;
        let reply = desk.next("a").await;
        let mut waiting = Vec::new();
        for key in 0..4 {
            let calls = (0..250).map(|id| pay(&id.to_string(), n(1))).collect();
            waiting.push(submit(&runtime, batch(&key.to_string(), calls)).await);
        }
        followers(&runtime, 1_000).await;
        reply.send(Ok(json!("done"))).unwrap();
        let first = first.settled().await.unwrap();
        for waiting in waiting {
            let answer = waiting.settled().await.unwrap();
            assert_eq!(answer.calls.len(), 250);
            for call in &answer.calls {
                assert_eq!(
                    (call.model_text(), call.same_as()),
                    ("done".into(), Some(first.calls[0].handle()))
                );
            }
        }
        desk.is_quiet();
        runtime.idle().await;
        assert_eq!(runtime.kept(), 0);
    }
}

/// A tool that says itself which calls are the same.
struct Says(Count);

impl Tool for Says {
    fn spec(&self) -> ToolSpec {
        spec("says", EffectClass::Keyed)
    }

    fn run<'a>(&'a self, args: Value, _: &'a Cx) -> ToolFuture<'a> {
        self.0.up();
        Box::pin(async move { Ok(args.into()) })
    }

    fn dedupe(&self, args: &Value) -> Option<Dedupe> {
        let name = args["name"].as_str()?;
        assert_ne!(name, "panic", "told to");
        Some(Dedupe { key: name.to_lowercase(), for_ms: None })
    }
}

#[tokio::test]
async fn a_tool_may_say_itself_which_calls_are_the_same() {
    let (runtime, ran) = (memory(), Count::default());
    runtime
        .register(windlass::tool::with_reconcile(Says(ran.clone()), |_, _: &Cx| async { unreachable!() }))
        .unwrap();
    for (name, runs) in [("Ann", 1), ("ANN", 1), ("Bob", 2), ("bob", 2)] {
        one(&runtime, "says", json!({ "name": name })).await;
        assert_eq!(ran.get(), runs, "{name}");
    }
    // It says nothing of these, so each of them runs.
    one(&runtime, "says", json!({})).await;
    one(&runtime, "says", json!({})).await;
    assert_eq!(ran.get(), 4);
    let panicked = one(&runtime, "says", json!({ "name": "panic" })).await;
    assert_eq!(panicked["outcome"]["failure"]["code"], "tool_panicked");
}

#[tokio::test]
async fn what_cannot_be_a_key_is_refused() {
    let (runtime, ran) = (memory(), Count::default());
    for (key, for_ms, expected) in [
        ("", None, "its dedupe key is empty"),
        ("{n}", Some(0), "says dedupe.for_ms = 0; no two calls could be the same"),
    ] {
        let dedupe = Some(Dedupe { key: key.into(), for_ms });
        let refused = runtime.register(echo(ToolSpec { dedupe, ..same(EffectClass::Keyed) }, &ran));
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    runtime.register(echo(same(EffectClass::Keyed), &ran)).unwrap();
    let answer = one(&runtime, "pay", json!({ "m": 1 })).await;
    assert_eq!(answer["outcome"]["failure"]["code"], "invalid_args");
    let message = "the dedupe key `{n}` needs the argument `n`: give it.";
    assert_eq!(answer["outcome"]["failure"]["message"], message);
    assert_eq!(ran.get(), 0);
}

#[tokio::test]
async fn a_call_that_is_prepared_anew_leaves_those_it_is_the_same_as_no_more() {
    let (runtime, ran) = (memory(), Count::default());
    runtime.register(echo(same(EffectClass::Keyed), &ran)).unwrap();
    runtime.pause("pay").await.unwrap();
    let calls = vec![pay("a", json!({"n": 1, "m": 1})), pay("b", json!({"n": 1, "m": 2}))];
    let waiting = submit(&runtime, batch("k", calls)).await;
    followers(&runtime, 1).await;
    let dedupe = Some(Dedupe { key: "m{m}".into(), for_ms: None });
    let changed = ToolSpec { version: "2".into(), dedupe, ..same(EffectClass::Keyed) };
    runtime.replace(echo(changed, &ran)).unwrap();
    runtime.resume_tool("pay").await.unwrap();
    assert_eq!(told(&[&waiting.settled().await.unwrap()]), "a succeeded(1), b succeeded(1)");
    assert_eq!(ran.get(), 2);
    runtime.idle().await;
    assert_eq!(runtime.kept(), 0);
}

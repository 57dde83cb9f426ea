//! A call that waits for the world outside does not freeze its session, and nobody behind one is late because of it.

use crate::inside::body;
use crate::rig::{Count, batch, call, config, echo, memory, n, reopen, run, spec, sqlite, states, waits_for};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass::store::{MemoryStore, Store};
use windlass::wait::Completed;
use windlass::{
    BatchRequest, Config, Deadlines, EffectClass, Limits, Output, Runtime, Submitted, Tool, ToolSpec,
};
use windlass_testkit::clock::ManualClock;

const DAY: Duration = Duration::from_secs(86_400);

/// Keys by which calls are answered, and what bodies did in which order.
#[derive(Clone, Default)]
struct World {
    keys: Arc<Mutex<Vec<String>>>,
    story: Arc<Mutex<Vec<String>>>,
}

impl World {
    /// A tool that says when it begins, waits for an answer, and says when it goes on.
    fn asks(&self, spec: ToolSpec) -> impl Tool + use<> {
        let world = self.clone();
        body(spec, move |args, cx| {
            let world = world.clone();
            Box::pin(async move {
                let key = cx.completion("k").await?;
                if !world.keys.lock().unwrap().contains(&key.to_string()) {
                    world.keys.lock().unwrap().push(key.to_string());
                    world.say(&format!("{} asks", args["n"]));
                }
                let answer = cx.wait(&key, Some(4 * DAY)).await?;
                world.say(&format!("{} goes on", args["n"]));
                Ok(json!(matches!(answer, Some(Completed::Ok(_)))).into())
            })
        })
    }

    fn says(&self, spec: ToolSpec) -> impl Tool + use<> {
        let world = self.clone();
        body(spec, move |args, _| {
            world.say(&format!("{} runs", args["n"]));
            Box::pin(async move { Ok(args.into()) })
        })
    }

    fn say(&self, what: &str) {
        self.story.lock().unwrap().push(what.to_string());
    }

    fn story(&self) -> String {
        self.story.lock().unwrap().join(", ")
    }

    async fn asked(&self, count: usize) {
        while self.keys.lock().unwrap().len() < count {
            tokio::task::yield_now().await;
        }
    }

    async fn answer(&self, runtime: &Runtime, number: usize) {
        let key = self.keys.lock().unwrap()[number].clone();
        runtime.complete(&key, Completed::ok(json!(1))).await.unwrap();
    }

    fn register(&self, runtime: &Runtime, class: EffectClass) {
        runtime.register(self.asks(spec("asks", class))).unwrap();
        runtime.register(self.says(spec("says", EffectClass::Once))).unwrap();
    }
}

fn one(key: &str, tool: &str, number: u64) -> BatchRequest {
    batch(key, vec![call(key, tool, n(number))])
}

/// Until something of the batch waits outside.
async fn waits(submitted: &Submitted) {
    submitted.admitted().await.unwrap();
    submitted.stands_still().await.unwrap();
}

#[tokio::test]
async fn a_session_works_on_beside_a_call_that_waits_for_a_person() {
    for class in EffectClass::ALL {
        let (runtime, world) = (memory(), World::default());
        world.register(&runtime, *class);
        let asking = runtime.submit("s", one("a", "asks", 1)).await.unwrap();
        world.asked(1).await;
        // Nobody has been answered: calls of other batches pass it all the same.
        let answer = tokio::time::timeout(DAY, run(&runtime, "s", one("b", "says", 2))).await.unwrap();
        assert_eq!(states(&answer), "b succeeded", "{class}");
        world.answer(&runtime, 0).await;
        assert_eq!(states(&asking.settled().await.unwrap()), "a succeeded", "{class}");
        assert_eq!(world.story(), "1 asks, 2 runs, 1 goes on", "{class}");
    }
}

#[tokio::test]
async fn what_its_tool_declares_it_keeps() {
    for class in [EffectClass::Stepped, EffectClass::Keyed] {
        let (runtime, world) = (memory(), World::default());
        let declared = ToolSpec { claims: Some(vec!["write door".into()]), ..spec("asks", class) };
        runtime.register(world.asks(declared.clone())).unwrap();
        runtime.register(world.says(ToolSpec { name: "says".into(), ..declared })).unwrap();
        let asking = runtime.submit("s", one("a", "asks", 1)).await.unwrap();
        world.asked(1).await;
        let behind = runtime.submit("s", one("b", "says", 2)).await.unwrap();
        waits_for(&runtime, "claim").await;
        world.answer(&runtime, 0).await;
        assert_eq!(states(&asking.settled().await.unwrap()), "a succeeded");
        assert_eq!(states(&behind.settled().await.unwrap()), "b succeeded");
        assert_eq!(world.story(), "1 asks, 1 goes on, 2 runs", "{class}");
    }
}

#[tokio::test]
async fn calls_of_its_own_batch_wait_until_somebody_is_answered_or_nobody_waits() {
    for class in EffectClass::ALL.iter().filter(|class| **class != EffectClass::Read) {
        for how in ["waits", "answered", "goes away"] {
            let (runtime, world) = (memory(), World::default());
            world.register(&runtime, *class);
            let two = || batch("k", vec![call("a", "asks", n(1)), call("b", "says", n(2))]);
            let submitted = runtime.submit("s", two()).await.unwrap();
            world.asked(1).await;
            waits_for(&runtime, "claim").await;
            let submitted = match how {
                "answered" => {
                    submitted.now().await.unwrap();
                    Some(submitted)
                }
                "goes away" => {
                    drop(submitted);
                    None
                }
                _ => Some(submitted),
            };
            if how != "waits" {
                while world.story() != "1 asks, 2 runs" {
                    tokio::task::yield_now().await;
                }
            }
            world.answer(&runtime, 0).await;
            let again = runtime.submit("s", two()).await.unwrap();
            assert_eq!(states(&again.settled().await.unwrap()), "a succeeded, b succeeded", "{class} {how}");
            let expected = match how {
                "waits" => "1 asks, 1 goes on, 2 runs",
                _ => "1 asks, 2 runs, 1 goes on",
            };
            assert_eq!(world.story(), expected, "{class} {how}");
            drop(submitted);
        }
    }
}

#[tokio::test]
async fn before_its_body_goes_on_a_call_takes_what_it_claims_anew() {
    for class in [EffectClass::Stepped, EffectClass::Once] {
        let (runtime, world) = (memory(), World::default());
        world.register(&runtime, class);
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        let held = gate.clone();
        let slow = body(spec("slow", EffectClass::Once), move |args, _| {
            let held = held.clone();
            Box::pin(async move {
                held.acquire().await.unwrap().forget();
                Ok(args.into())
            })
        });
        runtime.register(slow).unwrap();
        let asking = runtime.submit("s", one("a", "asks", 1)).await.unwrap();
        world.asked(1).await;
        let running = runtime.submit("s", one("b", "slow", 2)).await.unwrap();
        while runtime.counts().running[0] < if class == EffectClass::Stepped { 1 } else { 2 } {
            tokio::task::yield_now().await;
        }
        world.answer(&runtime, 0).await;
        // It is answered, and waits for the one that runs.
        while runtime.counts().queued == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(world.story(), "1 asks", "{class}");
        gate.add_permits(1);
        assert_eq!(states(&running.settled().await.unwrap()), "b succeeded");
        assert_eq!(states(&asking.settled().await.unwrap()), "a succeeded");
        assert_eq!((runtime.kept(), world.story().as_str()), (0, "1 asks, 1 goes on"), "{class}");
    }
}

#[tokio::test]
async fn after_a_restart_a_session_still_works_beside_it() {
    let (runtime, folder) = sqlite();
    let world = World::default();
    world.register(&runtime, EffectClass::Stepped);
    let two = || batch("k", vec![call("a", "asks", n(1)), call("b", "gone", n(2))]);
    runtime.register(world.says(spec("gone", EffectClass::Once))).unwrap();
    runtime.pause("gone").await.unwrap();
    let submitted = runtime.submit("s", two()).await.unwrap();
    world.asked(1).await;
    waits(&submitted).await;
    drop((submitted, runtime));
    let runtime = reopen(&folder);
    world.register(&runtime, EffectClass::Stepped);
    runtime.resume().await.unwrap();
    // What waits for its tool gives up its place as well.
    assert_eq!(states(&run(&runtime, "s", one("c", "says", 3)).await), "c succeeded");
    world.answer(&runtime, 0).await;
    runtime.register(world.says(spec("gone", EffectClass::Once))).unwrap();
    // A pause outlives its process.
    runtime.resume_tool("gone").await.unwrap();
    assert_eq!(states(&run(&runtime, "s", two()).await), "a succeeded, b succeeded");
}

#[tokio::test]
async fn a_session_that_was_let_go_works_on_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { sessions_owned_max: 2, ..Limits::default() };
    let runtime = Runtime::new(Config { limits, ..config(&folder) });
    let world = World::default();
    world.register(&runtime, EffectClass::Stepped);
    for number in 0..4 {
        drop(runtime.submit(&format!("s{number}"), one("a", "asks", number)).await.unwrap());
        while runtime.away() <= number {
            tokio::task::yield_now().await;
        }
    }
    assert!(runtime.sessions_in_memory() <= 2, "{}", runtime.sessions_in_memory());
    for session in ["s0", "s1", "s2", "s3"] {
        assert_eq!(states(&run(&runtime, session, one("b", "says", 5)).await), "b succeeded", "{session}");
    }
}

#[tokio::test]
async fn a_call_that_never_started_gives_up_its_place_once_its_batch_is_answered() {
    let (runtime, folder) = sqlite();
    let world = World::default();
    world.register(&runtime, EffectClass::Once);
    runtime.register(echo(spec("door", EffectClass::Once), &Count::default())).unwrap();
    drop(runtime);
    let runtime = reopen(&folder);
    world.register(&runtime, EffectClass::Once);
    runtime.register(echo(spec("door", EffectClass::Once), &Count::default())).unwrap();
    runtime.pause("door").await.unwrap();
    let paused = runtime.submit("s", one("a", "door", 1)).await.unwrap();
    waits_for(&runtime, "tool_paused").await;
    let behind = runtime.submit("s", one("b", "says", 2)).await.unwrap();
    waits_for(&runtime, "claim").await;
    waits(&paused).await;
    assert_eq!(states(&paused.now().await.unwrap()), "a queued");
    assert_eq!(states(&behind.settled().await.unwrap()), "b succeeded");
    runtime.resume_tool("door").await.unwrap();
    assert_eq!(states(&paused.settled().await.unwrap()), "a succeeded");
}

/// Whether it waits itself, or for a call inside it that does.
#[tokio::test]
async fn whoever_waits_behind_a_call_that_waits_for_a_person_is_not_late() {
    for tool in ["asks", "outer"] {
        let (store, clock): (Arc<dyn Store>, _) =
            (Arc::new(MemoryStore::new().unwrap()), ManualClock::default());
        let unused = Config::new(MemoryStore::new().unwrap());
        let runtime = Runtime::new(Config { store, clock: Arc::new(clock.clone()), ..unused });
        let world = World::default();
        let declared =
            |name: &str, class| ToolSpec { claims: Some(vec!["write door".into()]), ..spec(name, class) };
        runtime.register(world.asks(declared("asks", EffectClass::Stepped))).unwrap();
        runtime.register(world.says(declared("says", EffectClass::Once))).unwrap();
        let outer = body(declared("outer", EffectClass::Stepped), |_, cx| {
            Box::pin(async move { Ok(json!(cx.call("in", "asks", n(1)).await?.model_text()).into()) })
        });
        runtime.register(outer).unwrap();
        let asking = runtime.submit("s", one("a", tool, 1)).await.unwrap();
        world.asked(1).await;
        waits_for(&runtime, "completion").await;
        let mut short = call("b", "says", n(2));
        short.deadlines = Deadlines { queue_ms: Some(1_000), total_ms: Some(2_000), ..Deadlines::default() };
        let behind = runtime.submit("s", batch("b", vec![short.clone()])).await.unwrap();
        let further = runtime.submit("s", batch("c", vec![short])).await.unwrap();
        waits_for(&runtime, "claim").await;
        // Three days, in pieces: its deadlines pass again and again.
        for _ in 0..72 {
            clock.advance(DAY / 24);
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        }
        world.answer(&runtime, 0).await;
        assert_eq!(states(&asking.settled().await.unwrap()), "a succeeded", "{tool}");
        assert_eq!(states(&behind.settled().await.unwrap()), "b succeeded", "{tool}");
        assert_eq!(states(&further.settled().await.unwrap()), "b succeeded", "{tool}");
    }
}

/// The time in which those before it waited for the world outside is none of its own after a restart either.
#[tokio::test]
async fn whoever_waited_behind_such_a_call_is_not_late_after_a_restart() {
    let (store, clock): (Arc<dyn Store>, _) = (Arc::new(MemoryStore::new().unwrap()), ManualClock::default());
    let world = World::default();
    let owner = || {
        let unused = Config::new(MemoryStore::new().unwrap());
        let runtime = Runtime::new(Config { store: store.clone(), clock: Arc::new(clock.clone()), ..unused });
        let seen = world.clone();
        let twice = body(spec("twice", EffectClass::Stepped), move |_, cx| {
            let world = seen.clone();
            Box::pin(async move {
                for name in ["first", "second"] {
                    let key = cx.completion(name).await?;
                    if !world.keys.lock().unwrap().contains(&key.to_string()) {
                        world.keys.lock().unwrap().push(key.to_string());
                    }
                    cx.wait(&key, Some(4 * DAY)).await?;
                }
                Ok(json!(1).into())
            })
        });
        runtime.register(twice).unwrap();
        runtime.register(world.says(spec("says", EffectClass::Once))).unwrap();
        runtime
    };
    let mut short = call("b", "says", n(2));
    short.deadlines = Deadlines { queue_ms: Some(60_000), ..Deadlines::default() };
    let two = || batch("k", vec![call("a", "twice", n(1)), short.clone()]);
    let runtime = owner();
    let submitted = runtime.submit("s", two()).await.unwrap();
    waits(&submitted).await;
    clock.advance(DAY);
    world.answer(&runtime, 0).await;
    world.asked(2).await;
    // Its second wait is recorded, so that the day is known to the next owner.
    waits_for(&runtime, "completion").await;
    assert_eq!(world.story(), "", "the second waits behind the first");
    drop((submitted, runtime));
    let runtime = owner();
    runtime.resume().await.unwrap();
    world.answer(&runtime, 1).await;
    assert_eq!(states(&run(&runtime, "s", two()).await), "a succeeded, b succeeded");
}

#[tokio::test]
async fn whoever_waits_behind_a_call_that_runs_is_late_as_ever() {
    let (store, clock): (Arc<dyn Store>, _) = (Arc::new(MemoryStore::new().unwrap()), ManualClock::default());
    let unused = Config::new(MemoryStore::new().unwrap());
    let runtime = Runtime::new(Config { store, clock: Arc::new(clock.clone()), ..unused });
    let world = World::default();
    let declared =
        |name: &str, class| ToolSpec { claims: Some(vec!["write door".into()]), ..spec(name, class) };
    // One waits for a person beside them, and nobody waits for it.
    runtime.register(world.asks(spec("asks", EffectClass::Stepped))).unwrap();
    let asking = runtime.submit("s", one("a", "asks", 1)).await.unwrap();
    waits(&asking).await;
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let held = gate.clone();
    let slow = body(declared("slow", EffectClass::Once), move |args, _| {
        let held = held.clone();
        Box::pin(async move {
            held.acquire().await.unwrap().forget();
            Ok(Output::from(args))
        })
    });
    runtime.register(slow).unwrap();
    runtime.register(world.says(declared("says", EffectClass::Once))).unwrap();
    let running = runtime.submit("s", one("b", "slow", 2)).await.unwrap();
    let mut short = call("c", "says", n(3));
    short.deadlines = Deadlines { queue_ms: Some(1_000), ..Deadlines::default() };
    let behind = runtime.submit("s", batch("c", vec![short])).await.unwrap();
    waits_for(&runtime, "claim").await;
    clock.advance(Duration::from_millis(1_000));
    assert_eq!(states(&behind.settled().await.unwrap()), "c failed/timeout");
    gate.add_permits(1);
    assert_eq!(states(&running.settled().await.unwrap()), "b succeeded");
    world.answer(&runtime, 0).await;
    assert_eq!(states(&asking.settled().await.unwrap()), "a succeeded");
}

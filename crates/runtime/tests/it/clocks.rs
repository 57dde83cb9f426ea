//! The wall clock jumps: every wait × {forward, backward} × {while its owner runs, before its next owner begins}.

use crate::inside::body;
use crate::rig::{Count, batch, call, echo, n, run, spec, states};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use windlass::batch::StreamRequest;
use windlass::schedules::NewSchedule;
use windlass::store::{MemoryStore, Space, Store};
use windlass::tasks::NewTask;
use windlass::{
    CallRequest, Config, Cx, Deadlines, EffectClass, Flags, RetryRule, Runtime, Submitted, Tool, ToolError,
    ToolSpec, tool_fn,
};
use windlass_core::dedupe::Dedupe;
use windlass_core::entry::{EntryEvent, unpack};
use windlass_testkit::clock::ManualClock;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const YEAR_US: i64 = 365 * 86_400_000_000;

/// One row of the table: where the clock jumps to, and whether the owner changes at that moment.
#[derive(Clone, Copy, Debug)]
struct Jump {
    by_us: i64,
    restart: bool,
}

const JUMPS: [Jump; 4] = [
    Jump { by_us: YEAR_US, restart: false },
    Jump { by_us: -YEAR_US, restart: false },
    Jump { by_us: YEAR_US, restart: true },
    Jump { by_us: -YEAR_US, restart: true },
];

impl Jump {
    /// A time that nobody could have measured: the clock was ahead before the process began, or it was away for so long.
    fn is_a_year_away(self) -> bool {
        self.restart && self.by_us > 0
    }

    fn is_forward(self) -> bool {
        self.by_us > 0
    }
}

/// A store and a clock that outlive their owners.
struct World {
    store: Arc<dyn Store>,
    clock: ManualClock,
    tools: fn(&World) -> Vec<Arc<dyn Tool>>,
    count: Count,
}

impl World {
    fn new(tools: fn(&World) -> Vec<Arc<dyn Tool>>) -> World {
        let (store, clock) = (Arc::new(MemoryStore::new().unwrap()), ManualClock::default());
        World { store, clock, tools, count: Count::default() }
    }

    fn owner(&self) -> Runtime {
        let unused = Config::new(MemoryStore::new().unwrap());
        let (store, clock) = (self.store.clone(), Arc::new(self.clock.clone()));
        let runtime = Runtime::new(Config { store, clock, ..unused });
        (self.tools)(self).into_iter().for_each(|tool| runtime.register_shared(tool).unwrap());
        runtime
    }

    /// The clock jumps, and the owner may be another afterwards.
    async fn jump(&self, runtime: Runtime, jump: Jump) -> Runtime {
        quiet().await;
        if !jump.restart {
            self.clock.set_wall(jump.by_us);
            quiet().await;
            return runtime;
        }
        drop(runtime);
        self.clock.set_wall(jump.by_us);
        let next = self.owner();
        next.resume().await.unwrap();
        quiet().await;
        next
    }
}

/// Lets all other tasks run.
async fn quiet() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

async fn passes(clock: &ManualClock, time: Duration) {
    clock.advance(time);
    quiet().await;
}

/// Lets little pieces of time pass until it is so.
async fn until(clock: &ManualClock, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..3_000 {
        if is_so().await {
            return;
        }
        passes(clock, Duration::from_millis(1)).await;
    }
    panic!("{what}: it never is");
}

fn background(name: &str, class: EffectClass) -> ToolSpec {
    let flags = Flags { background: true, ..Flags::default() };
    ToolSpec { flags, claims: Some(Vec::new()), ..spec(name, class) }
}

fn as_task(request: CallRequest) -> CallRequest {
    CallRequest { task: Some(NewTask::default()), ..request }
}

#[tokio::test]
async fn the_lease_of_a_notice_is_as_long_as_it_was_taken_for() {
    for jump in JUMPS {
        let world =
            World::new(|world| vec![Arc::new(echo(background("t", EffectClass::Read), &world.count))]);
        let runtime = world.owner();
        drop(run(&runtime, "s", batch("k", vec![as_task(call("c", "t", n(1)))])).await);
        runtime.idle().await;
        assert_eq!(runtime.inbox("s").take(9, 60_000).await.unwrap().len(), 1);
        passes(&world.clock, 20 * SECOND).await;
        let runtime = world.jump(runtime, jump).await;
        let take = async |state: &str| {
            let listed = runtime.inbox("s").list(None, 9).await.unwrap();
            assert_eq!(listed[0].state, state, "{jump:?}: as it is listed");
            runtime.inbox("s").take(9, 60_000).await.unwrap().len()
        };
        if !jump.is_a_year_away() {
            assert_eq!(take("delivered").await, 0, "{jump:?}: it is somebody's");
        }
        // Whoever lent it knows how much of the lease is left; the next owner waits for no more than all of it.
        passes(&world.clock, if jump.restart { MINUTE } else { 40 * SECOND }).await;
        assert_eq!(take("queued").await, 1, "{jump:?}: its lease is over");
    }
}

#[tokio::test]
async fn what_nothing_refers_to_is_kept_for_an_hour() {
    for jump in JUMPS {
        // An artifact that its call does not return.
        let world = World::new(|_| {
            vec![Arc::new(body(spec("t", EffectClass::Keyed), |_, cx| {
                Box::pin(async move {
                    let mut kept = cx.keep();
                    kept.write(&vec![7; 1 << 20]).await?;
                    kept.finish("text/plain").await?;
                    Ok(json!(1).into())
                })
            }))]
        });
        let runtime = world.owner();
        assert_eq!(states(&run(&runtime, "s", batch("k", vec![call("c", "t", n(1))])).await), "c succeeded");
        passes(&world.clock, 10 * MINUTE).await;
        let runtime = world.jump(runtime, jump).await;
        // The runtime looks by itself, too.
        let left = async || {
            runtime.collect_artifacts().await.unwrap();
            let session = world.store.session("s").await.unwrap().unwrap().no;
            world.store.count_records(Space::Loose.of(session)).await.unwrap()
        };
        assert_eq!(left().await, u64::from(!jump.is_a_year_away()), "{jump:?}: right after the jump");
        if jump.is_a_year_away() {
            continue;
        }
        passes(&world.clock, 40 * MINUTE).await;
        assert_eq!(left().await, 1, "{jump:?}: its hour is not over");
        passes(&world.clock, 20 * MINUTE).await;
        assert_eq!(left().await, 0, "{jump:?}: its hour is over");
    }
}

#[tokio::test]
async fn a_call_is_the_same_as_another_for_as_long_as_its_tool_says() {
    for jump in JUMPS {
        let world = World::new(|world| {
            let dedupe = Some(Dedupe { key: "{n}".into(), for_ms: Some(60_000) });
            vec![Arc::new(echo(ToolSpec { dedupe, ..spec("t", EffectClass::Once) }, &world.count))]
        });
        let runtime = world.owner();
        let ask = async |runtime: &Runtime, key: &str| {
            drop(run(runtime, "s", batch(key, vec![call("c", "t", n(1))])).await);
            world.count.get()
        };
        assert_eq!(ask(&runtime, "first").await, 1);
        passes(&world.clock, 20 * SECOND).await;
        let runtime = world.jump(runtime, jump).await;
        if !jump.is_a_year_away() {
            assert_eq!(ask(&runtime, "soon").await, 1, "{jump:?}: it is the same");
        }
        passes(&world.clock, if jump.restart { MINUTE } else { 40 * SECOND }).await;
        assert_eq!(ask(&runtime, "late").await, 2, "{jump:?}: its time is over");
    }
}

#[tokio::test]
async fn a_stream_is_closed_five_minutes_after_its_last_push() {
    for jump in JUMPS.into_iter().filter(|jump| !jump.restart) {
        let world = World::new(|world| vec![Arc::new(echo(spec("t", EffectClass::Read), &world.count))]);
        let runtime = world.owner();
        let request = StreamRequest { key: "k".into(), ..StreamRequest::default() };
        let stream = runtime.open_batch("s", request).await.unwrap();
        let push = async |id: &str| stream.push(vec![call(id, "t", n(1))]).await.is_ok();
        assert!(push("a").await);
        passes(&world.clock, 4 * MINUTE).await;
        world.clock.set_wall(jump.by_us);
        quiet().await;
        assert!(push("b").await, "{jump:?}: it is open");
        passes(&world.clock, 4 * MINUTE + 59 * SECOND).await;
        assert!(push("c").await, "{jump:?}: the last push counts");
        passes(&world.clock, 5 * MINUTE).await;
        quiet().await;
        assert!(!push("d").await, "{jump:?}: it is closed");
    }
}

/// A tool whose tries fail that this says, and ask to be tried again in a minute.
fn fails(world: &World, which: fn(u32) -> bool) -> Vec<Arc<dyn Tool>> {
    let count = world.count.clone();
    let retry = RetryRule { attempts: Some(5), ..RetryRule::default() };
    vec![Arc::new(tool_fn(ToolSpec { retry, ..spec("t", EffectClass::Keyed) }, move |_, _: &Cx| {
        let tries = count.up();
        async move {
            match which(tries) {
                true => Err(ToolError::new("not yet").safe_to_retry_after(60_000)),
                false => Ok(json!(tries).into()),
            }
        }
    }))]
}

#[tokio::test]
async fn a_retry_waits_no_longer_than_it_was_to_wait() {
    for jump in JUMPS {
        let world = World::new(|world| fails(world, |tries| tries == 1));
        let runtime = world.owner();
        drop(runtime.submit("s", batch("k", vec![call("c", "t", n(1))])).await.unwrap());
        until(&world.clock, "retrying", async || {
            world.count.get() == 1 && runtime.counts().running == [0; 2]
        })
        .await;
        let runtime = world.jump(runtime, jump).await;
        if !jump.is_forward() {
            passes(&world.clock, 50 * SECOND).await;
            assert_eq!(world.count.get(), 1, "{jump:?}: it waits");
        }
        passes(&world.clock, 11 * SECOND).await;
        runtime.idle().await;
        assert_eq!(world.count.get(), 2, "{jump:?}: once more, and not twice");
    }
}

#[tokio::test]
async fn time_without_an_owner_counts_for_no_deadline_over_several_owners() {
    let world = World::new(|world| fails(world, |tries| tries <= 3));
    let mut runtime = world.owner();
    // A second call of the batch writes nothing while the first is tried again and again.
    let calls = || vec![call("c", "t", n(1)), call("d", "t", n(2))];
    drop(runtime.submit("s", batch("k", calls())).await.unwrap());
    for owner in 1..=3 {
        until(&world.clock, "retrying", async || {
            world.count.get() == owner && runtime.counts().running == [0; 2]
        })
        .await;
        // Each time nobody owns it for six times as long as it may take in all.
        let jump = Jump { by_us: i64::from(owner) * 3_600_000_000, restart: true };
        runtime = world.jump(runtime, jump).await;
    }
    runtime.idle().await;
    let answer = run(&runtime, "s", batch("k", calls())).await;
    assert_eq!(states(&answer), "c succeeded, d succeeded", "{}", answer.calls[0].model_text());
}

#[tokio::test]
async fn a_batch_that_was_over_and_goes_on_under_a_clock_that_was_set_back_is_not_late() {
    let world = World::new(|world| fails(world, |tries| tries == 2));
    let runtime = world.owner();
    let calls = |ids: &[&str]| ids.iter().map(|id| call(id, "t", n(1))).collect::<Vec<_>>();
    assert_eq!(states(&run(&runtime, "s", batch("k", calls(&["a"]))).await), "a succeeded");
    drop(runtime);
    world.clock.set_wall(-YEAR_US);
    let runtime = world.owner();
    drop(runtime.submit("s", batch("k", calls(&["a", "b"]))).await.unwrap());
    until(&world.clock, "retrying", async || world.count.get() == 2 && runtime.counts().running == [0; 2])
        .await;
    quiet().await;
    drop(runtime);
    let runtime = world.owner();
    runtime.resume().await.unwrap();
    passes(&world.clock, MINUTE).await;
    runtime.idle().await;
    let answer = run(&runtime, "s", batch("k", calls(&["a", "b"]))).await;
    assert_eq!(states(&answer), "a succeeded, b succeeded", "{}", answer.calls[1].model_text());
}

/// Sleeps a minute, or waits a minute for an answer.
fn waits(_: &World) -> Vec<Arc<dyn Tool>> {
    let sleeps = body(spec("sleeps", EffectClass::Stepped), |_, cx| {
        Box::pin(async move {
            cx.sleep("nap", MINUTE).await?;
            Ok(json!("rested").into())
        })
    });
    let waits = body(spec("waits", EffectClass::Stepped), |_, cx| {
        Box::pin(async move {
            let key = cx.completion("answer").await?;
            let answer = cx.wait(&key, Some(MINUTE)).await?;
            Ok(json!(format!("{answer:?}")).into())
        })
    });
    vec![Arc::new(sleeps), Arc::new(waits)]
}

#[tokio::test]
async fn sleeps_and_waits_for_answers_are_no_longer_than_they_were_to_be() {
    for jump in JUMPS {
        for tool in ["sleeps", "waits"] {
            let world = World::new(waits);
            let runtime = world.owner();
            drop(runtime.submit("s", batch("k", vec![call("c", tool, n(1))])).await.unwrap());
            until(&world.clock, "waits", async || runtime.counts().running == [0; 2]).await;
            quiet().await;
            let runtime = world.jump(runtime, jump).await;
            if !jump.is_forward() {
                passes(&world.clock, 50 * SECOND).await;
                assert_ne!(runtime.open().await.unwrap().len(), 0, "{jump:?} {tool}: it waits");
            }
            passes(&world.clock, 11 * SECOND).await;
            runtime.idle().await;
            let answer = run(&runtime, "s", batch("k", vec![call("c", tool, n(1))])).await;
            assert_eq!(states(&answer), "c succeeded", "{jump:?} {tool}");
        }
    }
}

/// Waits for an answer as long as it takes, and then fails once.
fn patient(world: &World) -> Vec<Arc<dyn Tool>> {
    let count = world.count.clone();
    let deadlines = Deadlines { total_ms: Some(600_000), ..Deadlines::default() };
    let retry = RetryRule { attempts: Some(2), base_ms: Some(1), cap_ms: Some(1) };
    let spec = ToolSpec { deadlines, retry, ..spec("t", EffectClass::Stepped) };
    vec![Arc::new(body(spec, move |_, cx| {
        let count = count.clone();
        Box::pin(async move {
            cx.ask("colour", "Which colour?", None).await?;
            match count.up() {
                1 => Err(ToolError::new("not yet").safe_to_retry()),
                tries => Ok(json!(tries).into()),
            }
        })
    }))]
}

#[tokio::test]
async fn time_spent_waiting_for_the_world_counts_against_no_deadline_whatever_the_clock_does_meanwhile() {
    for jump in JUMPS.into_iter().filter(|jump| !jump.is_forward()) {
        let world = World::new(patient);
        let runtime = world.owner();
        drop(runtime.submit("s", batch("k", vec![call("c", "t", n(1))])).await.unwrap());
        until(&world.clock, "waits", async || runtime.open().await.unwrap()[0].state == "awaiting_input")
            .await;
        passes(&world.clock, HOUR).await;
        let runtime = world.jump(runtime, jump).await;
        passes(&world.clock, HOUR).await;
        let asked = runtime.questions().await.unwrap();
        runtime.answer(&asked[0].id, &json!("red")).await.unwrap();
        until(&world.clock, "over", async || runtime.open().await.unwrap().is_empty()).await;
        let answer = run(&runtime, "s", batch("k", vec![call("c", "t", n(1))])).await;
        assert_eq!(states(&answer), "c succeeded", "{jump:?}: {}", answer.calls[0].model_text());
    }
}

/// Runs until it may end, or until its owner is gone.
fn gated(world: &World) -> Vec<Arc<dyn Tool>> {
    let count = world.count.clone();
    let retry = RetryRule { attempts: Some(9), base_ms: Some(1), cap_ms: Some(1) };
    vec![Arc::new(tool_fn(ToolSpec { retry, ..spec("t", EffectClass::Keyed) }, move |_, _: &Cx| {
        let tries = count.up();
        async move {
            match tries {
                1 => std::future::pending().await,
                2 => Err(ToolError::new("not yet").safe_to_retry_after(30_000)),
                _ => Ok(json!(tries).into()),
            }
        }
    }))]
}

/// The jumps that are recorded of the call.
async fn jumps(runtime: &Runtime) -> Vec<i64> {
    let rows = runtime.store().journal(windlass_core::ids::BatchNo(1)).await.unwrap();
    let entries = rows.iter().flat_map(|row| unpack(&row.data).unwrap());
    let jump = |event| match event {
        EntryEvent::ClockMoved(moved) => Some(moved.by_us),
        _ => None,
    };
    entries.filter_map(|entry| jump(entry.event)).collect()
}

#[tokio::test]
async fn a_jump_while_an_attempt_runs_is_recorded_and_counts_against_no_deadline_after_a_restart() {
    for by_us in [YEAR_US, -YEAR_US] {
        let world = World::new(gated);
        let runtime = world.owner();
        let deadlines = Deadlines { attempt_ms: Some(10_000), ..Deadlines::default() };
        let request = || CallRequest { deadlines, ..call("c", "t", n(1)) };
        drop(runtime.submit("s", batch("k", vec![request()])).await.unwrap());
        until(&world.clock, "runs", async || world.count.get() == 1).await;
        world.clock.set_wall(by_us);
        quiet().await;
        // The attempt is stopped, the next one asks for a pause, and its owner is gone in that.
        until(&world.clock, "stopped", async || {
            world.clock.advance(SECOND);
            world.count.get() == 2 && runtime.counts().running == [0; 2]
        })
        .await;
        quiet().await;
        let found = jumps(&runtime).await;
        assert_eq!(found.len(), 1, "{by_us}: {found:?}");
        assert!((found[0] - by_us).abs() < 5_000_000, "{by_us}: {found:?}");
        drop(runtime);
        let runtime = world.owner();
        runtime.resume().await.unwrap();
        passes(&world.clock, MINUTE).await;
        until(&world.clock, "over", async || runtime.open().await.unwrap().is_empty()).await;
        let answer = run(&runtime, "s", batch("k", vec![request()])).await;
        assert_eq!(states(&answer), "c succeeded", "{by_us}: {}", answer.calls[0].model_text());
    }
}

/// The first of two calls is tried again and again; the second one hangs, and writes nothing.
fn writes_beside(world: &World) -> Vec<Arc<dyn Tool>> {
    let count = world.count.clone();
    let retry = RetryRule { attempts: Some(9), base_ms: Some(1), cap_ms: Some(1) };
    let claims = Some(Vec::new());
    let spec = ToolSpec { retry, claims, ..spec("t", EffectClass::Keyed) };
    vec![Arc::new(tool_fn(spec, move |args: serde_json::Value, _: &Cx| {
        let tries = if args["n"] == 1 { count.up() } else { 0 };
        async move {
            match (args["n"].as_u64(), tries) {
                (Some(1), 1..=3) => Err(ToolError::new("not yet").safe_to_retry_after(20_000)),
                (Some(2), _) => std::future::pending().await,
                _ => Ok(json!(tries).into()),
            }
        }
    }))]
}

#[tokio::test]
async fn a_jump_is_not_counted_by_a_call_that_was_cut_off_before_it_wrote_anything() {
    for by_us in [YEAR_US, -YEAR_US] {
        let world = World::new(writes_beside);
        let runtime = world.owner();
        let deadlines = Deadlines { total_ms: Some(300_000), ..Deadlines::default() };
        let requests = || {
            [1, 2]
                .map(|n| CallRequest { deadlines, ..call(&format!("c{n}"), "t", json!({ "n": n })) })
                .to_vec()
        };
        drop(runtime.submit("s", batch("k", requests())).await.unwrap());
        until(&world.clock, "retrying", async || {
            world.count.get() == 1 && runtime.counts().running.iter().sum::<u64>() == 1
        })
        .await;
        world.clock.set_wall(by_us);
        // The first call goes on, and writes behind the jump; nothing of the second one is written.
        until(&world.clock, "tried again", async || {
            world.clock.advance(SECOND);
            world.count.get() == 2 && runtime.counts().running.iter().sum::<u64>() == 1
        })
        .await;
        quiet().await;
        assert_eq!(jumps(&runtime).await.len(), 1, "{by_us}: told once, by the batch");
        drop(runtime);
        let runtime = world.owner();
        runtime.resume().await.unwrap();
        passes(&world.clock, SECOND).await;
        let open = runtime.open().await.unwrap();
        assert_eq!(open.len(), 2, "{by_us}: none of them is late: {open:?}");
    }
}

#[tokio::test]
async fn a_caller_waits_for_the_budget_of_a_call_and_neither_shorter_nor_longer() {
    for by_us in [YEAR_US, -YEAR_US] {
        let world = World::new(|_| {
            vec![Arc::new(tool_fn(background("t", EffectClass::Keyed), |_, _: &Cx| std::future::pending()))]
        });
        let runtime = world.owner();
        let submitted: Submitted = runtime.submit("s", batch("k", vec![call("c", "t", n(1))])).await.unwrap();
        crate::rig::until_runs(&runtime).await;
        let settled = tokio::spawn(submitted.settled());
        quiet().await;
        passes(&world.clock, Duration::from_millis(100)).await;
        world.clock.set_wall(by_us);
        quiet().await;
        passes(&world.clock, Duration::from_millis(100)).await;
        assert!(!settled.is_finished(), "{by_us}: its caller waits");
        passes(&world.clock, Duration::from_millis(101)).await;
        until(&world.clock, "told", async || settled.is_finished()).await;
        assert_eq!(states(&settled.await.unwrap().unwrap()), "c running", "{by_us}");
    }
}

#[tokio::test]
async fn a_schedule_uses_each_of_its_times_once() {
    for jump in JUMPS {
        let world =
            World::new(|world| vec![Arc::new(echo(background("t", EffectClass::Read), &world.count))]);
        let runtime = world.owner();
        let new = NewSchedule {
            id: Some("s".into()),
            cron: Some("*/10 * * * *".into()),
            tool: "t".into(),
            ..NewSchedule::default()
        };
        runtime.schedules("s").create(new).await.unwrap();
        passes(&world.clock, 10 * MINUTE).await;
        // A run that is open would make the next one be skipped.
        until(&world.clock, "first", async || {
            world.count.get() == 1 && runtime.open().await.unwrap().is_empty()
        })
        .await;
        let runtime = world.jump(runtime, Jump { by_us: jump.by_us.signum() * 86_400_000_000, ..jump }).await;
        // A day ahead the missed times are made up for once; a day back all of them are used.
        let expected = if jump.is_forward() { 2 } else { 1 };
        until(&world.clock, "caught up", async || world.count.get() == expected).await;
        passes(&world.clock, 9 * MINUTE).await;
        assert_eq!(world.count.get(), expected, "{jump:?}: nothing twice");
        let standing = runtime.schedules("s").get("s").await.unwrap();
        assert_eq!(standing.count, u64::from(expected), "{jump:?}");
    }
}

#[tokio::test]
async fn ten_minutes_of_care_are_ten_minutes() {
    for by_us in [YEAR_US, -YEAR_US] {
        let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::default());
        drop(crate::rig::config(&folder));
        // The text of an owner that was cut off stays.
        std::fs::write(folder.path().join("owner.lock"), "process 1").unwrap();
        let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..crate::rig::config(&folder) });
        let count = Count::default();
        runtime.register(echo(spec("r", EffectClass::Read), &count)).unwrap();
        let commits = async |key: &str| {
            let before = runtime.store().commits();
            drop(run(&runtime, "s", batch(key, vec![call("c", "r", n(1))])).await);
            runtime.store().commits() - before
        };
        commits("opens the session").await;
        assert_eq!(commits("a").await, 2, "its owner died: starts are recorded first");
        clock.set_wall(by_us);
        clock.advance(9 * MINUTE);
        assert_eq!(commits("b").await, 2, "{by_us}: nine minutes later");
        clock.advance(MINUTE);
        assert_eq!(commits("c").await, 1, "{by_us}: ten minutes later");
    }
}

#[tokio::test]
async fn a_host_sleeps_by_the_clock_that_never_jumps() {
    let clock = ManualClock::default();
    let config = Config::new(MemoryStore::new().unwrap());
    let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..config });
    let (mut long, mut short) = (runtime.sleep(2 * MINUTE), runtime.sleep(MINUTE));
    drop(runtime.sleep(SECOND));
    clock.set_wall(YEAR_US);
    clock.advance(MINUTE - SECOND);
    assert!(!is_over(&mut long).await && !is_over(&mut short).await);
    clock.advance(SECOND);
    short.await;
    assert!(!is_over(&mut long).await);
    clock.advance(MINUTE);
    long.await;
}

async fn is_over(sleep: &mut (impl Future<Output = ()> + Unpin)) -> bool {
    tokio::task::yield_now().await;
    std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut *sleep).poll(cx).is_ready()))
        .await
}

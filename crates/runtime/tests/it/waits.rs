//! Waits that are recorded: they cost nothing, survive, and end in time whatever the clocks do.

use crate::rig::{Count, batch, call, end, n, run, spec, states, waits_for};
use std::sync::Arc;
use std::time::Duration;
use windlass::ask::Target;
use windlass::store::MemoryStore;
use windlass::{Config, Cx, Deadlines, EffectClass, RetryRule, Runtime, ToolError, ToolSpec, tool_fn};
use windlass_core::entry::{self, EntryEvent};
use windlass_core::ids::BatchNo;
use windlass_testkit::clock::ManualClock;
use windlass_testkit::fault_store::{FaultPlan, FaultReach, FaultStore, Method};
use windlass_testkit::sqlite_in;

const DAY: Duration = Duration::from_secs(86_400);
const DAY_MS: u64 = 86_400_000;
const DAY_US: i64 = 86_400_000_000;

/// A runtime on the folder whose tool is busy for 30 days in its first attempt.
fn open(folder: &tempfile::TempDir, clock: &ManualClock, ran: &Count) -> Runtime {
    let runtime =
        Runtime::new(Config { clock: Arc::new(clock.clone()), ..Config::new(sqlite_in(folder.path())) });
    for class in [EffectClass::Read, EffectClass::Keyed] {
        let deadlines = Deadlines { total_ms: Some(40 * DAY_MS), ..Deadlines::default() };
        let retry = RetryRule { attempts: Some(2), ..RetryRule::default() };
        let patient = ToolSpec { deadlines, retry, ..spec(class.as_str(), class) };
        let ran = ran.clone();
        let tool = tool_fn(patient, move |_, cx: &Cx| {
            ran.up();
            let busy = cx.attempt().0 == 1;
            async move {
                let error = ToolError::new("come back in a month").safe_to_retry_after(30 * DAY_MS);
                if busy { Err(error) } else { Ok(n(1).into()) }
            }
        });
        runtime.register(tool).unwrap();
    }
    runtime
}

fn asked(class: EffectClass) -> windlass::BatchRequest {
    batch("k", vec![call("c", class.as_str(), n(1))])
}

async fn parked(runtime: &Runtime, class: EffectClass) {
    drop(runtime.submit("s", asked(class)).await.unwrap());
    waits_for(runtime, "retry").await;
}

#[tokio::test]
async fn a_retry_in_thirty_days_survives_a_restart_and_comes_in_time() {
    let (folder, clock, ran) = (tempfile::tempdir().unwrap(), ManualClock::default(), Count::default());
    let runtime = open(&folder, &clock, &ran);
    parked(&runtime, EffectClass::Keyed).await;
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    // Those of the wheel, and of the calls that leave memory and come back.
    assert!(tasks <= 3, "nothing but the keepers of the runtime is left running: {tasks}");
    drop(runtime);
    clock.advance(29 * DAY);

    let runtime = open(&folder, &clock, &ran);
    runtime.resume().await.unwrap();
    waits_for(&runtime, "retry").await;
    assert_eq!(ran.get(), 1, "it is not time yet");
    clock.advance(DAY);
    let answer = run(&runtime, "s", asked(EffectClass::Keyed)).await;
    assert_eq!(end(&answer), "c succeeded, 2 attempts");
    let waited = answer.calls[0].call().waited_us;
    assert_eq!(waited, 30 * DAY_MS * 1_000);
}

#[tokio::test]
async fn a_clock_that_is_set_forward_wakes_it_and_the_jump_is_told() {
    let (folder, clock, ran) = (tempfile::tempdir().unwrap(), ManualClock::default(), Count::default());
    let runtime = open(&folder, &clock, &ran);
    parked(&runtime, EffectClass::Keyed).await;
    clock.set_wall(31 * DAY_US);
    let answer = run(&runtime, "s", asked(EffectClass::Keyed)).await;
    assert_eq!(end(&answer), "c succeeded, 2 attempts");
    assert_eq!(jumps(&runtime).await, [31 * DAY_US]);
}

/// The jumps of the wall clock that the only batch tells of.
async fn jumps(runtime: &Runtime) -> Vec<i64> {
    let rows = runtime.store().journal(BatchNo(1)).await.unwrap();
    let entries = rows.iter().flat_map(|row| entry::unpack(&row.data).unwrap());
    let jumps = entries.filter_map(|entry| match entry.event {
        EntryEvent::ClockMoved(moved) => Some(moved.by_us),
        _ => None,
    });
    jumps.collect()
}

#[tokio::test]
async fn a_clock_that_is_set_back_does_not_lengthen_the_wait() {
    let (folder, clock, ran) = (tempfile::tempdir().unwrap(), ManualClock::default(), Count::default());
    let runtime = open(&folder, &clock, &ran);
    parked(&runtime, EffectClass::Keyed).await;
    clock.set_wall(-365 * DAY_US);
    clock.advance(29 * DAY);
    waits_for(&runtime, "retry").await;
    assert_eq!(ran.get(), 1);
    clock.advance(DAY);
    assert_eq!(end(&run(&runtime, "s", asked(EffectClass::Keyed)).await), "c succeeded, 2 attempts");

    // Nor does it for a process that takes the wait over.
    let (folder, ran) = (tempfile::tempdir().unwrap(), Count::default());
    let runtime = open(&folder, &clock, &ran);
    parked(&runtime, EffectClass::Keyed).await;
    drop(runtime);
    clock.set_wall(-365 * DAY_US);
    let runtime = open(&folder, &clock, &ran);
    runtime.resume().await.unwrap();
    waits_for(&runtime, "retry").await;
    clock.advance(30 * DAY);
    assert_eq!(end(&run(&runtime, "s", asked(EffectClass::Keyed)).await), "c succeeded, 2 attempts");
}

/// The disk takes longer to keep that a call waits than it waits.
#[tokio::test]
async fn a_wait_counts_from_when_it_began_however_late_that_is_durable() {
    let clock = ManualClock::default();
    let store = FaultStore::new(Arc::new(MemoryStore::new().unwrap()), FaultPlan::Never, FaultReach::Store);
    let config = Config { clock: Arc::new(clock.clone()), ..Config::new(store.clone()) };
    let runtime = Runtime::new(config);
    let slow = store.clone();
    let tool = tool_fn(spec("t", EffectClass::Keyed), move |_, cx: &Cx| {
        let is_first = cx.attempt().0 == 1;
        slow.keep_silent(is_first);
        async move {
            let error = ToolError::new("busy").safe_to_retry_after(60_000);
            if is_first { Err(error) } else { Ok(n(1).into()) }
        }
    });
    runtime.register(tool).unwrap();
    let asked = || batch("k", vec![call("c", "t", n(1))]);
    drop(runtime.submit("s", asked()).await.unwrap());
    // The second is that it waits.
    while store.asked(Method::Commit) < 2 {
        tokio::task::yield_now().await;
    }
    clock.advance(Duration::from_secs(60));
    store.keep_silent(false);
    let answer = tokio::time::timeout(Duration::from_secs(60), run(&runtime, "s", asked())).await;
    assert_eq!(end(&answer.expect("it is woken")), "c succeeded, 2 attempts");
    assert_eq!(jumps(&runtime).await, [0; 0], "the wall clock did not jump");
}

/// Each retry is waited for, also one that comes sooner than the one before it.
#[tokio::test]
async fn a_second_retry_waits_its_own_time() {
    let clock = ManualClock::default();
    let config = Config::new(MemoryStore::new().unwrap());
    let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..config });
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let ran = Count::default();
    let counted = ran.clone();
    let tool = tool_fn(spec("t", EffectClass::Keyed), move |_, cx: &Cx| {
        counted.up();
        let attempt = u64::from(cx.attempt().0);
        async move {
            let after_ms = minutes(4 - attempt).as_millis() as u64;
            let error = ToolError::new("busy").safe_to_retry_after(after_ms);
            if attempt < 3 { Err(error) } else { Ok(n(1).into()) }
        }
    });
    runtime.register(tool).unwrap();
    let asked = || batch("k", vec![call("c", "t", n(1))]);
    drop(runtime.submit("s", asked()).await.unwrap());
    waits_for(&runtime, "retry").await;
    clock.advance(minutes(3));
    while ran.get() < 2 {
        tokio::task::yield_now().await;
    }
    for _ in 0..2 {
        // Until it has nothing to do, or is over.
        while runtime.open().await.unwrap().iter().any(|open| open.state != "retrying") {
            tokio::task::yield_now().await;
        }
        assert_eq!(ran.get(), 2, "two minutes are not over");
        clock.advance(Duration::from_secs(59));
    }
    clock.advance(Duration::from_secs(2));
    assert_eq!(end(&run(&runtime, "s", asked()).await), "c succeeded, 3 attempts");
}

#[tokio::test]
async fn a_call_that_waits_for_its_next_attempt_can_be_cancelled() {
    for (class, expected) in [
        (EffectClass::Read, "c cancelled{none}, 1 attempts"),
        // Its first attempt failed, and did not say that nothing happened.
        (EffectClass::Keyed, "c cancelled{unknown}, 1 attempts"),
    ] {
        let (folder, clock, ran) = (tempfile::tempdir().unwrap(), ManualClock::default(), Count::default());
        let runtime = open(&folder, &clock, &ran);
        parked(&runtime, class).await;
        let asked_for = runtime.cancel(Target::Session("s"), Some("no longer needed")).await.unwrap();
        assert_eq!((asked_for.asked, asked_for.over), (1, 0));
        assert_eq!(end(&run(&runtime, "s", asked(class)).await), expected);
        clock.advance(31 * DAY);
        assert_eq!(states(&run(&runtime, "s", asked(class)).await), "c cancelled");
        assert_eq!(ran.get(), 1);
    }
}

/// A deadline counts only the time in which somebody owned the call.
#[tokio::test]
async fn time_in_which_nobody_owned_the_call_is_not_counted() {
    let (folder, clock, ran) = (tempfile::tempdir().unwrap(), ManualClock::default(), Count::default());
    let runtime = open(&folder, &clock, &ran);
    parked(&runtime, EffectClass::Read).await;
    drop(runtime);
    // Far beyond its total of 40 days.
    clock.advance(100 * DAY);
    let runtime = open(&folder, &clock, &ran);
    assert_eq!(end(&run(&runtime, "s", asked(EffectClass::Read)).await), "c succeeded, 2 attempts");
}

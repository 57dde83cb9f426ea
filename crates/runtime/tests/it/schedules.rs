//! Schedules: when they start calls, and what becomes of them.

mod kills;
mod model;
mod rules;

use crate::rig::{batch, call, n, run, spec, states};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use windlass::error::ScheduleError;
use windlass::schedules::{NewSchedule, Schedule, ScheduleEdit};
use windlass::store::{MemoryStore, Store};
use windlass::tasks::TaskKind;
use windlass::{Config, Cx, Deadlines, EffectClass, Flags, Runtime, Tool, ToolSpec, tool_fn};
use windlass_testkit::clock::ManualClock;

/// A tool, a clock that stands still at 08:00, and a store that outlives its owners.
pub struct World {
    pub store: Arc<dyn Store>,
    pub clock: ManualClock,
    /// The arguments of each run that has begun.
    pub began: Arc<Mutex<Vec<String>>>,
    /// Whether runs end.
    pub gate: Arc<Semaphore>,
}

pub const MINUTE: Duration = Duration::from_secs(60);

impl World {
    pub fn new() -> World {
        World {
            store: Arc::new(MemoryStore::new().unwrap()),
            clock: ManualClock::default(),
            began: Arc::default(),
            gate: Arc::new(Semaphore::new(1_000_000)),
        }
    }

    /// A world in which no run ends before it may.
    pub fn held_up() -> World {
        World { gate: Arc::new(Semaphore::new(0)), ..World::new() }
    }

    pub fn owner(&self) -> Runtime {
        self.owner_on(self.store.clone())
    }

    pub fn owner_on(&self, store: Arc<dyn Store>) -> Runtime {
        let unused = Config::new(MemoryStore::new().unwrap());
        let runtime = Runtime::new(Config { store, clock: Arc::new(self.clock.clone()), ..unused });
        runtime.register(self.tool()).unwrap();
        runtime
    }

    fn tool(&self) -> impl Tool + use<> {
        let flags = Flags { background: true, ..Flags::default() };
        let long = Some(1 << 40);
        let deadlines =
            Deadlines { attempt_ms: long, silence_ms: long, total_ms: long, ..Deadlines::default() };
        let (class, claims) = (EffectClass::Keyed, Some(Vec::new()));
        let spec = ToolSpec { flags, claims, deadlines, ..spec("tick", class) };
        let (began, gate) = (self.began.clone(), self.gate.clone());
        tool_fn(spec, move |args, _: &Cx| {
            let gate = gate.clone();
            began.lock().unwrap().push(args.to_string());
            async move {
                gate.acquire().await.unwrap().forget();
                Ok(args.into())
            }
        })
    }

    pub fn began(&self) -> usize {
        self.began.lock().unwrap().len()
    }

    pub async fn until_began(&self, count: usize) {
        until(async || self.began() >= count).await;
    }
}

pub async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    while !is_so().await {
        tokio::task::yield_now().await;
    }
}

/// Lets everything happen that can.
pub async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

pub fn every(cron: &str) -> NewSchedule {
    let (id, cron) = (Some("beat".to_string()), Some(cron.to_string()));
    NewSchedule { id, cron, tool: "tick".into(), args: n(1), ..NewSchedule::default() }
}

pub async fn beat(runtime: &Runtime) -> Schedule {
    runtime.schedules("s").get("beat").await.unwrap()
}

/// How often it has started something, how often not, and when it is next to.
pub async fn shown(runtime: &Runtime) -> String {
    let Schedule { count, skipped, next, enabled, .. } = beat(runtime).await;
    let next = next.map_or_else(|| "never".to_string(), |next| next[11..16].to_string());
    let off = if enabled { "" } else { ", off" };
    format!("{count} run, {skipped} skipped, next {next}{off}")
}

async fn notices(runtime: &Runtime) -> usize {
    runtime.inbox("s").list(None, 100).await.unwrap().len()
}

#[tokio::test]
async fn a_schedule_starts_a_task_at_its_time_and_its_session_is_told() {
    let world = World::new();
    let runtime = world.owner();
    let new =
        NewSchedule { title: Some("Heart beat".into()), owner: Some("ada".into()), ..every("*/5 * * * *") };
    let (made, is_new) = runtime.schedules("s").create(new.clone()).await.unwrap();
    assert!(is_new);
    assert_eq!(
        (made.next.as_deref(), made.owner.as_deref()),
        (Some("2027-01-15T08:05:00.000Z"), Some("ada"))
    );
    assert!(!runtime.schedules("s").create(new).await.unwrap().1, "the same again is fine");
    let listed = runtime.tasks("s").list(None, 10).await.unwrap();
    assert_eq!((listed.len(), listed[0].kind, listed[0].state), (1, TaskKind::Monitor, "watching"));
    world.clock.advance(MINUTE * 5 - Duration::from_micros(1));
    settle().await;
    assert_eq!(world.began(), 0);
    world.clock.advance(Duration::from_micros(1));
    until(async || notices(&runtime).await == 1).await;
    assert_eq!(*world.began.lock().unwrap(), ["{\"n\":1}"]);
    assert_eq!(shown(&runtime).await, "1 run, 0 skipped, next 08:10");
    let listed = runtime.tasks("s").list(None, 10).await.unwrap();
    let task = &listed[1];
    assert_eq!((task.title.as_str(), task.by, task.state), ("Heart beat", "scheduled", "succeeded"));
    assert_eq!(task.schedule.as_deref(), Some("beat"));
    assert_eq!(beat(&runtime).await.last_task.as_ref(), Some(&task.task));
    assert_eq!(beat(&runtime).await.last.as_deref(), Some("2027-01-15T08:05:00.000Z"));
    // A page goes on behind a schedule.
    let rest = runtime.tasks("s").list(Some("beat"), 10).await.unwrap();
    assert_eq!((rest.len(), &rest[0].task), (1, &task.task));
    assert_eq!(runtime.tasks("s").list(None, 1).await.unwrap().len(), 1);
    settle().await;
    assert_eq!(world.began(), 1, "once");
    world.clock.advance(MINUTE * 5);
    until(async || notices(&runtime).await == 2).await;
    assert_eq!(shown(&runtime).await, "2 run, 0 skipped, next 08:15");
}

#[tokio::test]
async fn one_time_comes_once_and_then_the_schedule_is_off() {
    let world = World::new();
    let runtime = world.owner();
    let at = |at: &str| NewSchedule { cron: None, at: Some(at.to_string()), ..every("") };
    let past = runtime.schedules("s").create(at("2027-01-15T08:00:00Z")).await.unwrap_err();
    assert!(past.to_string().contains("is over"), "{past}");
    runtime.schedules("s").create(at("2027-01-15T08:00:30Z")).await.unwrap();
    world.clock.advance(MINUTE);
    world.until_began(1).await;
    until(async || notices(&runtime).await == 1).await;
    assert_eq!(shown(&runtime).await, "1 run, 0 skipped, next never, off");
    let on = ScheduleEdit { enabled: Some(true), ..ScheduleEdit::default() };
    assert!(runtime.schedules("s").edit("beat", on).await.is_err(), "its time is over");
    drop(runtime);
    let runtime = world.owner();
    runtime.resume().await.unwrap();
    world.clock.advance(MINUTE);
    settle().await;
    assert_eq!((world.began(), runtime.sessions_in_memory()), (1, 0), "nothing is left to look for");
}

/// The next owner finds it without being asked for the session.
#[tokio::test]
async fn a_schedule_outlives_its_owner() {
    let world = World::new();
    let runtime = world.owner();
    runtime.schedules("s").create(every("*/5 * * * *")).await.unwrap();
    drop(runtime);
    let runtime = world.owner();
    runtime.resume().await.unwrap();
    settle().await;
    world.clock.advance(MINUTE * 5);
    until(async || notices(&runtime).await == 1).await;
    assert_eq!(shown(&runtime).await, "1 run, 0 skipped, next 08:10");
    // What comes due while nobody is there is made up for by the next.
    drop(runtime);
    world.clock.advance(MINUTE * 12);
    let runtime = world.owner();
    runtime.resume().await.unwrap();
    until(async || notices(&runtime).await == 2).await;
    assert_eq!(shown(&runtime).await, "2 run, 1 skipped, next 08:20");
}

#[tokio::test]
async fn an_edit_and_a_removal_meet_a_time_that_is_due() {
    let world = World::new();
    let runtime = world.owner();
    let schedules = runtime.schedules("s");
    let generation = schedules.create(every("*/5 * * * *")).await.unwrap().0.generation;
    let edit = |cron: &str, generation| {
        let cron = Some(cron.to_string());
        ScheduleEdit { generation: Some(generation), cron, args: Some(n(2)), ..ScheduleEdit::default() }
    };
    let edited = schedules.edit("beat", edit("*/7 * * * *", generation)).await.unwrap();
    assert_eq!((edited.generation, shown(&runtime).await), (2, "0 run, 0 skipped, next 08:07".to_string()));
    let stale = schedules.edit("beat", edit("* * * * *", generation)).await.unwrap_err();
    assert!(matches!(stale, ScheduleError::Changed { now: 2 }), "{stale}");
    world.clock.advance(MINUTE * 5);
    settle().await;
    assert_eq!(world.began(), 0, "what it was before is over");
    world.clock.advance(MINUTE * 2);
    until(async || notices(&runtime).await == 1).await;
    assert_eq!(*world.began.lock().unwrap(), ["{\"n\":2}"]);
    assert_eq!(beat(&runtime).await.generation, 2, "what it does by itself is no writing of it");
    // Switched off over its time, and on again: that time is over.
    let enabled = |enabled| ScheduleEdit { enabled: Some(enabled), ..ScheduleEdit::default() };
    schedules.edit("beat", enabled(false)).await.unwrap();
    let listed = runtime.tasks("s").list(None, 10).await.unwrap();
    assert_eq!((listed.len(), listed[0].kind, listed[0].state), (2, TaskKind::Monitor, "cancelled"));
    world.clock.advance(MINUTE * 8);
    settle().await;
    schedules.edit("beat", enabled(true)).await.unwrap();
    assert_eq!(shown(&runtime).await, "1 run, 0 skipped, next 08:21");
    // Due and removed at once: whoever comes first, it is used at most once and never after.
    world.clock.advance(MINUTE * 6);
    assert!(schedules.remove("beat").await.unwrap());
    assert!(!schedules.remove("beat").await.unwrap());
    let began = world.began();
    assert!(began <= 2);
    world.clock.advance(MINUTE * 30);
    settle().await;
    assert_eq!(world.began(), began);
    assert!(matches!(schedules.get("beat").await, Err(ScheduleError::NotFound { .. })));
}

#[tokio::test]
async fn five_are_enabled_at_once() {
    let world = World::new();
    let runtime = world.owner();
    let schedules = runtime.schedules("s");
    let named = |name: String, enabled| NewSchedule { id: Some(name), enabled, ..every("0 0 * * *") };
    for number in 0..5 {
        schedules.create(named(format!("n{number}"), true)).await.unwrap();
    }
    let full = schedules.create(named("n5".into(), true)).await.unwrap_err();
    assert!(matches!(full, ScheduleError::Full { max: 5, .. }), "{full}");
    schedules.create(named("n5".into(), false)).await.unwrap();
    let on = |enabled| ScheduleEdit { enabled: Some(enabled), ..ScheduleEdit::default() };
    assert!(matches!(schedules.edit("n5", on(true)).await, Err(ScheduleError::Full { .. })));
    // One that is enabled may be written again.
    schedules.edit("n0", on(true)).await.unwrap();
    schedules.edit("n0", on(false)).await.unwrap();
    schedules.edit("n5", on(true)).await.unwrap();
    assert!(matches!(schedules.edit("n0", on(true)).await, Err(ScheduleError::Full { .. })));
    schedules.remove("n1").await.unwrap();
    schedules.edit("n0", on(true)).await.unwrap();
    // Another session has its own.
    runtime.schedules("t").create(named("n0".into(), true)).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_called_is_refused() {
    let world = World::new();
    let runtime = world.owner();
    runtime
        .register(tool_fn(spec("bound", EffectClass::Read), |args, _: &Cx| async move { Ok(args.into()) }))
        .unwrap();
    let refused = async |new| runtime.schedules("s").create(new).await.unwrap_err().to_string();
    let of = |tool: &str| NewSchedule { tool: tool.into(), ..every("0 0 * * *") };
    assert!(refused(of("tock")).await.contains("There is no tool \"tock\". Did you mean \"tick\"?"));
    assert!(refused(of("bound")).await.contains("does not run in the background"));
    assert!(refused(NewSchedule { id: Some("a/b".into()), ..of("tick") }).await.contains("\"a/b\" is not"));
    assert!(refused(NewSchedule { args: json!([1]), ..of("tick") }).await.contains("not valid"));
    let long = NewSchedule { args: json!({"text": "x".repeat(70_000)}), ..of("tick") };
    assert!(refused(long).await.contains("are kept"));
    assert!(runtime.schedules("s").list().await.unwrap().is_empty());
    let stolen = runtime.submit("s", batch("schedule:beat/1", vec![call("c", "bound", n(1))])).await;
    assert!(stolen.is_err_and(|error| error.to_string().contains("what schedules start")));
}

#[tokio::test]
async fn a_session_that_is_removed_is_not_opened_by_its_schedule() {
    let world = World::new();
    let runtime = world.owner();
    runtime.schedules("s").create(every("* * * * *")).await.unwrap();
    assert!(runtime.remove_session("s").await.unwrap());
    world.clock.advance(MINUTE * 3);
    settle().await;
    assert_eq!((world.began(), runtime.sessions_in_memory()), (0, 0));
    assert!(runtime.schedules("s").list().await.unwrap().is_empty());
    drop(runtime);
    let runtime = world.owner();
    runtime.resume().await.unwrap();
    assert_eq!(runtime.sessions_in_memory(), 0);
}

/// A schedule repeats one call over and over; that says nothing about the model's own turns.
#[tokio::test]
async fn what_a_schedule_starts_is_no_loop() {
    let world = World::new();
    let runtime = world.owner();
    runtime.schedules("s").create(every("* * * * *")).await.unwrap();
    for count in 1..=7 {
        world.clock.advance(MINUTE);
        until(async || notices(&runtime).await == count).await;
    }
    assert_eq!(world.began(), 7);
    assert_eq!(states(&run(&runtime, "s", batch("k", vec![call("c", "tick", n(1))])).await), "c succeeded");
    drop(runtime);
    let runtime = world.owner();
    assert_eq!(states(&run(&runtime, "s", batch("l", vec![call("c", "tick", n(1))])).await), "c succeeded");
}

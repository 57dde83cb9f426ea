//! Many calls of many sessions at once, through every kind of limit: none is exceeded, each session gets its share, what
//! is beyond the bound is told when to come back, all that was taken is answered, and nothing is kept.

use crate::rig::{batch, call, n, quick};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use windlass::limits::{Cap, Counts};
use windlass::store::memory::MemoryStore;
use windlass::time::Clock;
use windlass::{
    BatchError, BatchRequest, Config, Cx, EffectClass, Limits, Runtime, Submitted, ToolSpec, tool_fn,
};
use windlass_testkit::clock::ManualClock;

const SESSIONS: usize = 100;
/// In each session.
const CALLS: usize = 100;
const TOOLS: [&str; 5] = ["wide", "narrow", "disk1", "disk2", "rated"];

const PROCESS_MAX: u32 = 16;
const SESSION_MAX: u32 = 3;
const NARROW_MAX: u32 = 4;
/// Of `disk1` and `disk2` together.
const DISK_MAX: u32 = 6;
/// So many of `rated` may start in so many milliseconds.
const RATE: (u32, u64) = (50, 10);
/// Room for 80 sessions; the last 20 are told to come back.
const QUEUED_MAX: u64 = 8_000;

/// A session that waits is served before any other is served twice. What is seen here are begins: each of the two may
/// have as many calls on the way from its turn to its begin as it may run.
const PASSED_MAX: u32 = 1 + 2 * SESSION_MAX;

/// On one thread, so that what is seen depends on nothing but the order of turns: a thread that the machine holds up
/// would hold up its session. With threads, `room` has the same limits.
#[tokio::test]
async fn ten_thousand_calls_of_a_hundred_sessions() {
    let clock = ManualClock::default();
    let limits = Limits {
        calls_running_max: u64::from(PROCESS_MAX),
        session_calls_running_max: u64::from(SESSION_MAX),
        calls_queued_max: QUEUED_MAX,
        // The clock may run ahead of a busy machine.
        queue_ms: 1 << 40,
        attempt_ms: 1 << 40,
        total_ms: 1 << 40,
        ..Limits::default()
    };
    let in_memory = Config::new(MemoryStore::new().unwrap());
    let runtime = Runtime::new(Config { limits, clock: Arc::new(clock.clone()), ..in_memory });
    let (seen, (opens, gate)) = (Arc::new(Mutex::new(Seen::default())), watch::channel(false));
    register(&runtime, &seen, &gate, &clock);
    let ticks = tokio::spawn(tick(clock.clone()));
    // The second round meets what the first one left, and must find nothing.
    let mut most_kept = Vec::new();
    for round in ["1", "2"] {
        opens.send(false).unwrap();
        seen.lock().unwrap().served = Served::default();
        let (mut taken, refused) = fill(&runtime, round, clock.elapsed_us()).await;
        assert_eq!((taken.len(), refused.len()), (80, 20));
        most_kept.push(runtime.kept());
        opens.send(true).unwrap();
        let mut late: VecDeque<(usize, u64)> = refused.into();
        while let Some((session, due_us)) = late.pop_front() {
            until(&clock, due_us).await;
            match submit(&runtime, session, round).await {
                Ok(submitted) => taken.push(submitted),
                Err(retry_after_ms) => late.push_back((session, clock.elapsed_us() + retry_after_ms * 1_000)),
            }
        }
        for submitted in taken {
            let answer = submitted.settled().await.unwrap();
            assert!(answer.calls.iter().all(|call| call.state() == "succeeded"));
        }
        runtime.idle().await;
        assert_eq!((runtime.kept(), runtime.counts()), (0, Counts::default()));
    }
    ticks.abort();
    assert_eq!(most_kept[0], most_kept[1], "what is remembered does not grow");
    assert!(most_kept[0] <= 4 * (QUEUED_MAX as usize + PROCESS_MAX as usize), "{most_kept:?}");
    let most = |of: &str| seen.lock().unwrap().most[of];
    let reached = ["process", "session 0", "narrow", "disk"].map(most);
    assert_eq!(reached, [PROCESS_MAX, SESSION_MAX, NARROW_MAX, DISK_MAX], "each limit was met");
}

/// Lets time pass as fast as there is nothing else to do.
async fn tick(clock: ManualClock) {
    loop {
        clock.advance(Duration::from_micros(100));
        tokio::task::yield_now().await;
    }
}

async fn until(clock: &ManualClock, due_us: u64) {
    while clock.elapsed_us() < due_us {
        tokio::task::yield_now().await;
    }
}

/// Submits a batch for each session while nothing ends: those that were taken, and which of the others come
/// back when.
async fn fill(runtime: &Runtime, round: &str, now_us: u64) -> (Vec<Submitted>, Vec<(usize, u64)>) {
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for session in 0..SESSIONS {
        match submit(runtime, session, round).await {
            Ok(submitted) => taken.push(submitted),
            Err(retry_after_ms) => {
                let limits = Limits::default();
                let told = limits.overload_wait_ms_min..=limits.overload_wait_ms_max;
                assert!(told.contains(&retry_after_ms), "{retry_after_ms}");
                refused.push((session, now_us + retry_after_ms * 1_000));
            }
        }
    }
    (taken, refused)
}

/// Submits the batch of a session, or says when to come back.
async fn submit(runtime: &Runtime, session: usize, round: &str) -> Result<Submitted, u64> {
    match runtime.submit(&format!("s{session}"), calls(round)).await {
        Ok(submitted) => Ok(submitted),
        Err(BatchError::Overloaded { retry_after_ms, .. }) => Err(retry_after_ms),
        Err(error) => panic!("{error}"),
    }
}

fn calls(round: &str) -> BatchRequest {
    let tool = |at: usize| TOOLS[at % TOOLS.len()];
    batch(round, (0..CALLS).map(|at| call(&at.to_string(), tool(at), n(at as u64))).collect())
}

/// Tools that wait for the gate and then for their own small work, and say what they see.
fn register(runtime: &Runtime, seen: &Arc<Mutex<Seen>>, gate: &watch::Receiver<bool>, clock: &ManualClock) {
    runtime.limit_group("disk", Cap { running_max: Some(DISK_MAX), rate: None });
    for name in TOOLS {
        let free = ToolSpec { claims: Some(Vec::new()), ..quick(name, EffectClass::Read) };
        let spec = match name {
            "narrow" => ToolSpec { running_max: Some(NARROW_MAX), ..free },
            "rated" => ToolSpec { rate: Some(RATE), ..free },
            "disk1" | "disk2" => ToolSpec { groups: vec!["disk".into()], ..free },
            _ => free,
        };
        let (seen, gate, clock) = (seen.clone(), gate.clone(), clock.clone());
        let tool = tool_fn(spec, move |args, cx: &Cx| {
            let session = cx.session()[1..].parse().unwrap();
            let (seen, mut gate, clock) = (seen.clone(), gate.clone(), clock.clone());
            async move {
                seen.lock().unwrap().begin(session, name, clock.elapsed_us());
                gate.wait_for(|open| *open).await.unwrap();
                for _ in 0..4 {
                    tokio::task::yield_now().await;
                }
                seen.lock().unwrap().end(session, name);
                Ok(args.into())
            }
        });
        runtime.register(tool).unwrap();
    }
}

/// The tools' observations.
#[derive(Default)]
struct Seen {
    running: BTreeMap<String, u32>,
    most: BTreeMap<String, u32>,
    rated: u64,
    served: Served,
}

/// How the sessions were served in one round.
struct Served {
    begun: [usize; SESSIONS],
    /// How often the second session was served since the first one was.
    passed: Vec<[u32; SESSIONS]>,
}

impl Default for Served {
    fn default() -> Served {
        Served { begun: [0; SESSIONS], passed: vec![[0; SESSIONS]; SESSIONS] }
    }
}

/// The limits that a call counts for, and their maxima.
fn counted(session: usize, tool: &str) -> Vec<(String, u32)> {
    let mut counted = vec![("process".to_string(), PROCESS_MAX), (format!("session {session}"), SESSION_MAX)];
    match tool {
        "narrow" => counted.push((tool.to_string(), NARROW_MAX)),
        "disk1" | "disk2" => counted.push(("disk".to_string(), DISK_MAX)),
        _ => {}
    }
    counted
}

impl Seen {
    fn begin(&mut self, session: usize, tool: &str, now_us: u64) {
        for (what, max) in counted(session, tool) {
            let now = self.running.entry(what.clone()).or_default();
            *now += 1;
            assert!(*now <= max, "{now} of {what} run, at most {max}");
            let most = self.most.entry(what).or_default();
            *most = (*most).max(*now);
        }
        if tool == "rated" {
            self.rated += 1;
            let (count, ms) = (u64::from(RATE.0), RATE.1);
            let allowed = count + now_us * count / (ms * 1_000);
            assert!(self.rated <= allowed, "{} have started, {allowed} may", self.rated);
        }
        self.served.begin(session);
    }

    fn end(&mut self, session: usize, tool: &str) {
        for (what, _) in counted(session, tool) {
            *self.running.get_mut(&what).unwrap() -= 1;
        }
    }
}

impl Served {
    fn begin(&mut self, session: usize) {
        self.begun[session] += 1;
        self.passed[session] = [0; SESSIONS];
        // Those that wait, and not only for the scarce tools that may be left at the end.
        let waits = |begun: usize| begun > 0 && begun < CALLS / 2;
        for other in (0..SESSIONS).filter(|&other| other != session && waits(self.begun[other])) {
            let times = &mut self.passed[other][session];
            *times += 1;
            assert!(*times <= PASSED_MAX, "session {session} was served {times} times while {other} waited");
        }
    }
}

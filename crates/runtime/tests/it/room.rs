//! Room to run: limits are never exceeded, whatever waits is told why, and everything drains.

use crate::gates::{gated, left_running, next};
use crate::rig::{Count, batch, call, config, echo, n, quick, run, spec, states, waits_for};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use windlass::ask::Target;
use windlass::limits::{Cap, RunningLimits};
use windlass::store::memory::MemoryStore;
use windlass::{
    BatchError, CallRequest, Config, Cx, Deadlines, EffectClass, Limits, RetryRule, Runtime, ToolError,
    ToolSpec, tool_fn,
};
use windlass_testkit::clock::ManualClock;

fn limited(limits: Limits) -> Runtime {
    Runtime::new(Config { limits, ..Config::new(MemoryStore::new().unwrap()) })
}

fn free(name: &str) -> ToolSpec {
    ToolSpec { claims: Some(Vec::new()), ..spec(name, EffectClass::Read) }
}

/// How many run at once, and how many ever did.
#[derive(Clone, Default)]
struct Gauge(Arc<(AtomicU32, AtomicU32)>);

impl Gauge {
    fn up(&self) {
        let now = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(now, Ordering::SeqCst);
    }

    fn down(&self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> u32 {
        self.0.1.load(Ordering::SeqCst)
    }
}

fn gauging(runtime: &Runtime, spec: ToolSpec, gauges: &[&Gauge]) {
    let gauges: Vec<Gauge> = gauges.iter().map(|gauge| (*gauge).clone()).collect();
    let tool = tool_fn(spec, move |args, _: &Cx| {
        let gauges = gauges.clone();
        async move {
            gauges.iter().for_each(Gauge::up);
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
            gauges.iter().for_each(Gauge::down);
            Ok(args.into())
        }
    });
    runtime.register(tool).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_are_never_exceeded_and_everything_drains() {
    let runtime = limited(Limits { calls_running_max: 8, session_calls_running_max: 3, ..Limits::default() });
    let [all, narrow, group] = [(); 3].map(|()| Gauge::default());
    runtime.limit_group("disk", Cap { running_max: Some(4), rate: None });
    gauging(&runtime, free("wide"), &[&all]);
    gauging(&runtime, ToolSpec { running_max: Some(2), ..free("narrow") }, &[&all, &narrow]);
    for name in ["disk1", "disk2"] {
        gauging(&runtime, ToolSpec { groups: vec!["disk".into()], ..free(name) }, &[&all, &group]);
    }
    let tools = ["wide", "narrow", "disk1", "disk2"];
    let mut submitted = Vec::new();
    for session in 0..20 {
        let calls = (0..50).map(|at| call(&at.to_string(), tools[at % 4], n(0))).collect();
        submitted.push(runtime.submit(&format!("s{session}"), batch("k", calls)).await.unwrap());
    }
    for submitted in submitted {
        let answer = submitted.settled().await.unwrap();
        assert!(answer.calls.iter().all(|call| call.state() == "succeeded"), "{}", states(&answer));
    }
    runtime.idle().await;
    assert_eq!(runtime.kept(), 0);
    assert!(all.most() <= 8 && narrow.most() <= 2 && group.most() <= 4);
    assert_eq!(runtime.counts(), windlass::limits::Counts::default());
}

#[tokio::test]
async fn one_session_cannot_fill_the_process() {
    let runtime = limited(Limits { session_calls_running_max: 2, calls_running_max: 3, ..Limits::default() });
    let (gates, mut begun) = gated(&runtime, [free("t")]);
    let calls = |ids: [&str; 3]| ids.map(|id| call(id, "t", n(0))).into();
    let first = runtime.submit("a", batch("k", calls(["a1", "a2", "a3"]))).await.unwrap();
    assert_eq!(next(&mut begun, 2).await, "a1 a2");
    let waiting = waits_for(&runtime, "limit").await;
    let open = runtime.open().await.unwrap().into_iter().find(|open| open.call == waiting).unwrap();
    assert_eq!(
        (open.id.as_str(), &*open.waiting_for.unwrap()),
        ("a3", "limit of the session: 2 running calls")
    );
    let second = runtime.submit("b", batch("k", calls(["b1", "b2", "b3"]))).await.unwrap();
    assert_eq!(next(&mut begun, 1).await, "b1");
    let why = runtime.open().await.unwrap().into_iter().find(|open| open.id == "b2").unwrap().waiting_for;
    assert_eq!(&*why.unwrap(), "limit of the process: 3 running calls");
    ["a1", "a2", "a3", "b1", "b2", "b3"].iter().for_each(|id| gates.open(id));
    assert_eq!(states(&first.settled().await.unwrap()), "a1 succeeded, a2 succeeded, a3 succeeded");
    assert_eq!(states(&second.settled().await.unwrap()), "b1 succeeded, b2 succeeded, b3 succeeded");
    assert_eq!(runtime.kept(), 0);
}

/// Their ends are committed together, and none of them waits for that of another.
#[tokio::test]
async fn a_batch_of_quick_reads_is_not_cut_by_the_room_there_is() {
    let runtime = limited(Limits { calls_running_max: 1, ..Limits::default() });
    let ran = Count::default();
    runtime.register(echo(quick("t", EffectClass::Read), &ran)).unwrap();
    let calls = (0..256).map(|at| call(&at.to_string(), "t", n(at))).collect();
    let submitted = runtime.submit("s", batch("k", calls)).await.unwrap();
    assert_eq!(ran.get(), 256, "all of them ran where they were submitted");
    assert_eq!(submitted.settled().await.unwrap().calls.len(), 256);
    assert_eq!(runtime.kept(), 0);
}

#[tokio::test]
async fn beyond_the_bound_batches_are_refused_whole_and_what_was_taken_is_answered() {
    let limits = Limits { calls_running_max: 1, calls_queued_max: 10, ..Limits::default() };
    let runtime = limited(limits.clone());
    let (gates, _begun) = gated(&runtime, [free("t")]);
    let three = || (0..3).map(|at| call(&at.to_string(), "t", n(0))).collect();
    let (mut taken, mut refused) = (Vec::new(), 0);
    for session in 0..8 {
        match runtime.submit(&format!("s{session}"), batch("k", three())).await {
            Ok(submitted) => taken.push(submitted),
            Err(BatchError::Overloaded { open, max, retry_after_ms, .. }) => {
                assert!(open <= max && max == 10, "{open} of {max}");
                assert!(
                    (limits.overload_wait_ms_min..=limits.overload_wait_ms_max).contains(&retry_after_ms)
                );
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    // One runs, and nine others wait with room for one more.
    assert_eq!((taken.len(), refused, runtime.counts().queued), (3, 5, 8));
    for submitted in taken {
        (0..3).for_each(|at| gates.open(&at.to_string()));
        let mut settling = std::pin::pin!(submitted.settled());
        let answer = loop {
            tokio::select! {
                answer = &mut settling => break answer.unwrap(),
                () = tokio::task::yield_now() => (0..3).for_each(|at| gates.open(&at.to_string())),
            }
        };
        assert_eq!(states(&answer), "0 succeeded, 1 succeeded, 2 succeeded");
    }
    assert_eq!(runtime.kept(), 0);
    assert!(runtime.submit("s9", batch("k", three())).await.is_ok(), "there is room again");
}

#[tokio::test]
async fn a_session_that_fills_its_own_bound_is_refused_alone() {
    let limits = Limits { session_calls_running_max: 1, session_calls_queued_max: 4, ..Limits::default() };
    let runtime = limited(limits);
    let (gates, _begun) = gated(&runtime, [free("t")]);
    let some = |from: u64, to: u64| (from..to).map(|at| call(&at.to_string(), "t", n(0))).collect();
    let taken = runtime.submit("greedy", batch("k", some(0, 4))).await.unwrap();
    // One runs and three wait: a batch is taken whole or refused whole.
    let refused = runtime.submit("greedy", batch("more", some(4, 6))).await.map(drop).unwrap_err();
    assert!(matches!(refused, BatchError::Overloaded { open: 3, max: 4, .. }), "{refused}");
    assert!(refused.to_string().starts_with("3 calls of this session wait and 4 may"), "{refused}");
    assert_eq!(runtime.counts().queued, 3, "nothing of it was taken");
    let last = runtime.submit("greedy", batch("last", some(6, 7))).await.unwrap();
    assert!(runtime.submit("greedy", batch("over", some(7, 8))).await.is_err());
    // Others are not refused because of it, and what is recorded is answered.
    let other = runtime.submit("modest", batch("k", some(0, 4))).await.unwrap();
    assert!(runtime.submit("greedy", batch("k", some(0, 4))).await.is_ok());
    for submitted in [taken, last, other] {
        let mut settling = std::pin::pin!(submitted.settled());
        loop {
            tokio::select! {
                answer = &mut settling => break drop(answer.unwrap()),
                () = tokio::task::yield_now() => (0..8).for_each(|at| gates.open(&at.to_string())),
            }
        }
    }
    assert_eq!(runtime.kept(), 0);
}

#[tokio::test]
async fn a_rate_lets_so_many_start_and_wakes_the_rest_in_time() {
    let clock = ManualClock::default();
    let config = Config::new(MemoryStore::new().unwrap());
    let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..config });
    let ran = Count::default();
    runtime.register(echo(ToolSpec { rate: Some((2, 1_000)), ..free("t") }, &ran)).unwrap();
    let calls = (0..5).map(|at| call(&at.to_string(), "t", n(at))).collect();
    let submitted = runtime.submit("s", batch("k", calls)).await.unwrap();
    for expected in 2..5 {
        while runtime.open().await.unwrap().len() > 5 - expected as usize {
            tokio::task::yield_now().await;
        }
        waits_for(&runtime, "rate").await;
        assert_eq!(ran.get(), expected);
        clock.advance(Duration::from_millis(500));
    }
    assert_eq!(submitted.settled().await.unwrap().calls.len(), 5);
    assert_eq!((ran.get(), runtime.kept()), (5, 0));
}

#[tokio::test]
async fn cancelled_and_late_calls_leave_nothing_behind() {
    let clock = ManualClock::default();
    let config = Config { clock: Arc::new(clock.clone()), ..Config::new(MemoryStore::new().unwrap()) };
    let limits = Limits { calls_running_max: 1, ..Limits::default() };
    let runtime = Runtime::new(Config { limits, ..config });
    let deadlines = Deadlines { queue_ms: Some(1_000), attempt_ms: Some(600_000), ..Deadlines::default() };
    let patient = ToolSpec { deadlines, ..spec("claims", EffectClass::Keyed) };
    let (gates, mut begun) = gated(&runtime, [patient, ToolSpec { deadlines, ..free("free") }]);
    // One runs; in its session one waits for its claim, in another one waits for room.
    let one = |id: &str, tool: &str| vec![call(id, tool, n(0))];
    let first = runtime.submit("a", batch("1", one("1", "claims"))).await.unwrap();
    assert_eq!(next(&mut begun, 1).await, "1");
    for ends in ["cancelled", "failed/timeout"] {
        let key = |what: &str| format!("{what}{ends}");
        let claim = runtime.submit("a", batch(&key("c"), one("2", "claims"))).await.unwrap();
        let room = runtime.submit("b", batch(&key("r"), one("3", "free"))).await.unwrap();
        waits_for(&runtime, "claim").await;
        waits_for(&runtime, "limit").await;
        if ends == "cancelled" {
            runtime.cancel(Target::Batch { session: "a", key: &key("c") }, None).await.unwrap();
            runtime.cancel(Target::Batch { session: "b", key: &key("r") }, None).await.unwrap();
        } else {
            clock.advance(Duration::from_secs(2));
        }
        assert_eq!(states(&claim.settled().await.unwrap()), format!("2 {ends}"));
        assert_eq!(states(&room.settled().await.unwrap()), format!("3 {ends}"));
    }
    assert_eq!(runtime.counts().queued, 0);
    gates.open("1");
    assert_eq!(states(&first.settled().await.unwrap()), "1 succeeded");
    assert_eq!(runtime.kept(), 0);
    gates.open("4");
    assert_eq!(states(&run(&runtime, "a", batch("4", one("4", "claims"))).await), "4 succeeded");
}

#[tokio::test]
async fn the_limits_of_a_tool_change_with_it() {
    let runtime = limited(Limits::default());
    let narrow = |max| ToolSpec { running_max: Some(max), ..free("t") };
    let (gates, mut begun) = gated(&runtime, [narrow(1)]);
    let calls = ["1", "2", "3", "4"].map(|id| call(id, "t", n(0))).into();
    let submitted = runtime.submit("s", batch("k", calls)).await.unwrap();
    assert_eq!(next(&mut begun, 1).await, "1");
    let (begins, mut replaced) = tokio::sync::mpsc::unbounded_channel();
    runtime.replace(gates.tool(narrow(2), &begins)).unwrap();
    assert_eq!(next(&mut replaced, 1).await, "2");
    waits_for(&runtime, "limit").await;
    // Gone, and back without a limit.
    runtime.unregister("t").unwrap();
    waits_for(&runtime, "no_such_tool").await;
    runtime.register(gates.tool(free("t"), &begins)).unwrap();
    assert_eq!(next(&mut replaced, 2).await, "3 4");
    ["1", "2", "3", "4"].iter().for_each(|id| gates.open(id));
    assert_eq!(
        states(&submitted.settled().await.unwrap()),
        "1 succeeded, 2 succeeded, 3 succeeded, 4 succeeded"
    );
    assert_eq!(runtime.kept(), 0);
    let none = runtime.register(echo(ToolSpec { running_max: Some(0), ..free("z") }, &Count::default()));
    assert!(none.unwrap_err().to_string().contains("running_max"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_taken_over_goes_through_the_limits() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let keyed = |running_max| ToolSpec { class: Some(EffectClass::Keyed), running_max, ..free("t") };
    let asked = || batch("k", ["1", "2", "3"].map(|id| call(id, "t", n(0))).into());
    assert_eq!(left_running(&folder, vec![keyed(None)], asked(), 3).await, "1 2 3");
    let runtime = Runtime::new(config(&folder));
    let (gates, mut begun) = gated(&runtime, [keyed(Some(1))]);
    let submitted = runtime.submit("s", asked()).await.unwrap();
    for id in ["1", "2", "3"] {
        assert_eq!(next(&mut begun, 1).await, id);
        if id < "3" {
            waits_for(&runtime, "limit").await;
        }
        assert_eq!(runtime.counts().running, [1, 0]);
        gates.open(id);
    }
    assert_eq!(states(&submitted.settled().await.unwrap()), "1 succeeded, 2 succeeded, 3 succeeded");
    assert_eq!(runtime.kept(), 0);
}

/// Everything that moves a call at once: claims, little room, retries, a rate, cancels, deadlines. Whatever becomes of
/// each call, all end and nothing is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_everything_ends_and_nothing_is_kept() {
    let limits = Limits { calls_running_max: 4, session_calls_running_max: 2, ..Limits::default() };
    let runtime = limited(limits);
    let retry = RetryRule { attempts: Some(3), base_ms: Some(0), ..RetryRule::default() };
    let tries = |spec: ToolSpec| {
        tool_fn(ToolSpec { retry, ..spec }, |args, cx: &Cx| {
            let fails = cx.attempt().0 < 3;
            async move {
                tokio::task::yield_now().await;
                if fails { Err(ToolError::new("again").safe_to_retry()) } else { Ok(args.into()) }
            }
        })
    };
    let claiming = |name: &str, claim: &str| ToolSpec {
        claims: Some(vec![claim.into()]),
        ..spec(name, EffectClass::Keyed)
    };
    runtime.register(tries(claiming("file", "write file:/{n}"))).unwrap();
    runtime.register(tries(claiming("deploy", "write global:deploy"))).unwrap();
    runtime.register(tries(ToolSpec { running_max: Some(1), ..spec("once", EffectClass::Keyed) })).unwrap();
    runtime.register(tries(quick("quick", EffectClass::Read))).unwrap();
    runtime.register(tries(ToolSpec { rate: Some((20, 10)), ..free("rated") })).unwrap();
    let tools = ["file", "quick", "deploy", "rated", "once", "file", "quick"];
    let mut submitted = Vec::new();
    for round in 0..4 {
        for session in 0..10 {
            let calls =
                (0..12).map(|at: usize| call(&at.to_string(), tools[(at + session) % 7], n(at as u64 % 3)));
            let (name, key) = (format!("s{session}"), format!("k{round}"));
            submitted.push(runtime.submit(&name, batch(&key, calls.collect())).await.unwrap());
            if (session + round) % 3 == 0 {
                runtime.cancel(Target::Batch { session: &name, key: &key }, None).await.unwrap();
            }
            let paused = ["file", "rated"][round % 2];
            runtime.pause(paused).await.unwrap();
            runtime.resume_tool(paused).await.unwrap();
        }
    }
    for submitted in submitted {
        assert_eq!(submitted.settled().await.unwrap().calls.len(), 12);
    }
    runtime.idle().await;
    assert_eq!((runtime.kept(), runtime.counts()), (0, windlass::limits::Counts::default()));
}

#[tokio::test]
async fn of_calls_that_wait_for_room_the_higher_priority_starts_first() {
    let runtime = limited(Limits { calls_running_max: 1, ..Limits::default() });
    let writer = ToolSpec { claims: Some(vec!["write x".into()]), ..spec("w", EffectClass::Once) };
    let (gates, mut begun) = gated(&runtime, [free("t"), writer]);
    let asked = |id: &str, tool: &str, priority| CallRequest { priority, ..call(id, tool, n(0)) };
    let calls = vec![
        asked("first", "t", 0),
        asked("low", "t", -1),
        asked("w1", "w", 0),
        asked("w2", "w", 127),
        asked("plain", "t", 0),
        asked("high", "t", 5),
    ];
    let submitted = runtime.submit("s", batch("k", calls)).await.unwrap();
    let mut order = Vec::new();
    for _ in 0..6 {
        let id = next(&mut begun, 1).await;
        gates.open(&id);
        order.push(id);
    }
    // w2 collides with w1, so it waits until w1 has ended: the room of w1 is free before that, and taken by another.
    assert_eq!(order.join(" "), "first high w1 plain w2 low");
    assert_eq!(submitted.settled().await.unwrap().calls.len(), 6);
    assert_eq!(runtime.kept(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_keeps_priorities() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let one_at_a_time = || ToolSpec { running_max: Some(1), class: Some(EffectClass::Keyed), ..free("t") };
    let asked = |id: &str, priority| CallRequest { priority, ..call(id, "t", n(0)) };
    let calls = vec![asked("first", 0), asked("low", -1), asked("plain", 0), asked("high", 1)];
    let began = left_running(&folder, vec![one_at_a_time()], batch("k", calls), 1).await;
    assert_eq!(began, "first");
    let runtime = Runtime::new(config(&folder));
    let (gates, mut begun) = gated(&runtime, [one_at_a_time()]);
    assert_eq!(runtime.resume().await.unwrap(), 4);
    let mut order = Vec::new();
    for _ in 0..4 {
        let id = next(&mut begun, 1).await;
        gates.open(&id);
        order.push(id);
    }
    assert_eq!(order.join(" "), "first high plain low");
    runtime.idle().await;
    assert_eq!(runtime.kept(), 0);
}

#[tokio::test]
async fn limits_change_while_calls_run() {
    let runtime = limited(Limits { calls_running_max: 1, ..Limits::default() });
    let (gates, mut begun) = gated(&runtime, [free("t")]);
    let before = runtime.running_limits();
    let calls = (1..=6).map(|at| call(&at.to_string(), "t", n(0))).collect();
    let submitted = runtime.submit("s", batch("k", calls)).await.unwrap();
    assert_eq!(next(&mut begun, 1).await, "1");
    // A higher limit wakes what may start now.
    runtime.set_limits(RunningLimits { calls_running_max: 3, ..before }).unwrap();
    assert_eq!(next(&mut begun, 2).await, "2 3");
    runtime
        .set_limits(RunningLimits { session_calls_running_max: 1, calls_running_max: 3, ..before })
        .unwrap();
    assert_eq!(runtime.counts().running, [3, 0], "what runs beyond a lower one goes on");
    for id in ["1", "2"] {
        gates.open(id);
        until_over(&runtime, id).await;
        assert_eq!(runtime.counts().queued, 3, "nothing starts before there is room under the lower one");
    }
    gates.open("3");
    assert_eq!(next(&mut begun, 1).await, "4");
    let why = runtime.open().await.unwrap().into_iter().find(|open| open.id == "5").unwrap().waiting_for;
    assert_eq!(&*why.unwrap(), "limit of the session: 1 running calls");
    // How many may wait.
    runtime.set_limits(RunningLimits { calls_queued_max: 2, ..before }).unwrap();
    let more = || runtime.submit("other", batch("k", vec![call("7", "t", n(0))]));
    assert!(matches!(more().await, Err(BatchError::Overloaded { open: 2, max: 2, .. })));
    let wider = RunningLimits { calls_queued_max: 3, calls_running_max: 9, ..before };
    runtime.set_limits(wider).unwrap();
    assert_eq!(runtime.running_limits(), wider);
    assert_eq!(next(&mut begun, 2).await, "5 6");
    let last = more().await.unwrap();
    assert_eq!(next(&mut begun, 1).await, "7");
    ["4", "5", "6", "7"].iter().for_each(|id| gates.open(id));
    assert_eq!(submitted.settled().await.unwrap().calls.len(), 6);
    last.settled().await.unwrap();
    assert_eq!(runtime.kept(), 0);
    let none = runtime.set_limits(RunningLimits { calls_queued_max: 0, ..before }).unwrap_err();
    assert!(none.to_string().contains("calls_queued_max"), "{none}");
    assert_eq!(runtime.running_limits(), wider);
}

/// Waits until no call of this id is open.
async fn until_over(runtime: &Runtime, id: &str) {
    while runtime.open().await.unwrap().iter().any(|open| open.id == id) {
        tokio::task::yield_now().await;
    }
}

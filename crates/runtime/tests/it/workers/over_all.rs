//! Rules over all workers: the policy and pauses, for one that stood still as well, and `global:` names.

use super::{LEASE, Member, one};
use crate::rig::{Count, batch, call, echo, n, spec};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use windlass::policy::NewPolicy;
use windlass::store::memory::MemoryStore;
use windlass::store::{Store, StoreSpace};
use windlass::tool::{BeforeFuture, Hook, HookCx};
use windlass::{Config, EffectClass, Limits, Runtime, ToolSpec, tool_fn};
use windlass_testkit::clock::ManualClock;

/// Lets a lease run out while a call is prepared: nothing else of its worker has noticed when the call starts.
struct LeaseEnds(ManualClock);

impl Hook for LeaseEnds {
    fn before<'a>(&'a self, _: &'a HookCx<'a>) -> Option<BeforeFuture<'a>> {
        self.0.advance(LEASE);
        None
    }
}

#[tokio::test]
async fn nothing_starts_once_the_lease_of_its_worker_is_over_though_nobody_noticed() {
    for class in [EffectClass::Read, EffectClass::Keyed, EffectClass::Once] {
        let shared = MemoryStore::new().unwrap();
        let clock = ManualClock::default();
        let config = Config {
            clock: Arc::new(clock.clone()),
            shared: true,
            hooks: vec![Arc::new(LeaseEnds(clock.clone()))],
            ..Config::new(shared.clone())
        };
        let runtime = Runtime::new(config);
        let count = Count::default();
        runtime.register(echo(spec("x", class), &count)).unwrap();
        let submitted = runtime.submit("s", one()).await.unwrap();
        assert!(submitted.settled().await.is_err(), "{class:?}: its session is lost");
        assert_eq!(count.get(), 0, "{class:?}");
        // Whoever has the session now goes on with what was recorded: nothing.
        assert_eq!(shared.session("s").await.unwrap(), None, "{class:?}");
    }
}

#[tokio::test]
async fn a_start_that_becomes_durable_after_the_lease_does_not_run() {
    let shared = MemoryStore::new().unwrap();
    let a = Member::new(&shared);
    let count = a.echoes(EffectClass::Once);
    let first = a.runtime.submit("s", batch("first", vec![call("a", "x", n(0))])).await.unwrap();
    first.settled().await.unwrap();
    a.store.hold_back(true);
    let runtime = a.runtime.clone();
    let submitting = tokio::spawn(async move { runtime.submit("s", one()).await?.settled().await.map(drop) });
    while a.store.held_back() == 0 {
        tokio::task::yield_now().await;
    }
    // Its call hears that the start is durable before anything notices how late that is.
    a.store.hold_back(false);
    a.clock.advance(LEASE);
    assert!(submitting.await.unwrap().is_err(), "its session is lost");
    assert_eq!(count.get(), 1, "only the first one has run");
}

#[tokio::test]
async fn a_worker_that_was_taken_for_dead_adopts_what_is_in_force_before_it_owns_anything_again() {
    let shared = MemoryStore::new().unwrap();
    // It would look by itself only in an hour.
    let limits = Limits { knock_ms: 3_600_000, ..Limits::default() };
    let (a, b) = (Member::with(&shared, |config| Config { limits, ..config }), Member::new(&shared));
    let (count, _) = (a.echoes(EffectClass::Once), b.echoes(EffectClass::Once));
    let one = |key: &str, tool: &str| batch(key, vec![call("a", tool, n(1))]);
    let paused = Count::default();
    a.runtime.register(echo(spec("y", EffectClass::Once), &paused)).unwrap();
    b.runtime.register(echo(spec("y", EffectClass::Once), &paused)).unwrap();
    a.runtime.submit("s", one("before", "x")).await.unwrap().settled().await.unwrap();
    let former = a.id().await;
    // While it stands still it is told of nothing, and after its lease nobody waits for it.
    b.outlives(&former, &shared).await;
    let rule = json!({"name": "no x", "ruling": "deny", "when": {"tool": "x"}});
    let new = NewPolicy { rules: vec![rule], by: "alice".into(), version: None };
    let (setting, pausing) = (b.runtime.set_policy(new), b.runtime.pause("y"));
    tokio::pin!(setting, pausing);
    let passes = async {
        loop {
            b.step(&shared).await;
        }
    };
    tokio::select! {
        set = async { (setting.await.map(drop), pausing.await) } => assert!(set.0.is_ok() && set.1.is_ok(), "{set:?}"),
        () = passes => {}
    }
    a.clock.advance(LEASE);
    while a.runtime.worker().is_none_or(|id| id == former) {
        tokio::task::yield_now().await;
    }
    let answer = a.runtime.submit("s", one("after", "x")).await.unwrap().settled().await.unwrap();
    assert_eq!(answer.calls[0].state(), "denied");
    assert_eq!(count.get(), 1, "nothing more has run");
    let _waits = a.runtime.submit("t", one("after", "y")).await.unwrap();
    let waits_for = || a.runtime.live_in("t")[0].waiting_for.as_ref().map(ToString::to_string);
    while waits_for().is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(waits_for().as_deref(), Some("tool_paused"));
    assert_eq!(paused.get(), 0);
}

/// A tool that claims a name over all sessions, and runs until it is let go; it counts how many run at once.
fn deploys(
    member: &Member,
    class: EffectClass,
    running: &Count,
    gate: &Arc<Semaphore>,
) -> mpsc::UnboundedReceiver<u32> {
    let (says, said) = mpsc::unbounded_channel();
    let claims = Some(vec!["write global:deploy/eu".to_string()]);
    let spec = ToolSpec { claims, ..spec("deploy", class) };
    let (running, gate) = (running.clone(), gate.clone());
    let tool = tool_fn(spec, move |args, _| {
        let (says, running, gate) = (says.clone(), running.clone(), gate.clone());
        async move {
            let _ = says.send(running.up());
            gate.acquire().await.expect("it stays open").forget();
            running.down();
            Ok(args.into())
        }
    });
    member.runtime.register(tool).unwrap();
    said
}

async fn waiting_for(member: &Member, session: &str, what: &str) {
    let waits = || {
        member
            .runtime
            .live_in(session)
            .iter()
            .any(|open| open.waiting_for.as_ref().is_some_and(|why| why.contains(what)))
    };
    while !waits() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_global_name_holds_over_all_workers_in_the_order_in_which_they_asked() {
    // The start of a `read` call is not recorded: nothing but its worker's lease says that it may run.
    for class in [EffectClass::Read, EffectClass::Once] {
        in_order(class).await;
    }
}

async fn in_order(class: EffectClass) {
    let shared = MemoryStore::new().unwrap();
    let (running, gate) = (Count::default(), Arc::new(Semaphore::new(0)));
    let members: Vec<Member> = (0..3).map(|_| Member::new(&shared)).collect();
    let mut said: Vec<_> = members.iter().map(|member| deploys(member, class, &running, &gate)).collect();
    let one = || batch("k", vec![call("a", "deploy", n(1))]);
    let mut submitted = Vec::new();
    for (no, member) in members.iter().enumerate() {
        member.id().await;
        submitted.push(member.runtime.submit(&format!("s{no}"), one()).await.unwrap());
        if no == 0 {
            assert_eq!(said[0].recv().await, Some(1));
        } else {
            waiting_for(member, &format!("s{no}"), "of another worker on global:deploy").await;
        }
    }
    for no in 0..3 {
        gate.add_permits(1);
        submitted.remove(0).settled().await.unwrap();
        if no < 2 {
            // Memory has no wakes: whoever waits looks from time to time.
            members[no + 1].clock.advance(Duration::from_millis(500));
            assert_eq!(said[no + 1].recv().await, Some(1), "one at a time, in order");
        }
    }
    for member in &members {
        member.runtime.idle().await;
    }
    while shared.count_records(StoreSpace::GlobalName.shelf()).await.unwrap() > 0 {
        members.iter().for_each(|member| member.clock.advance(Duration::from_millis(500)));
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_name_of_a_worker_that_died_is_free_once_its_call_is_settled_and_not_before() {
    let shared = MemoryStore::new().unwrap();
    let (running, gate) = (Count::default(), Arc::new(Semaphore::new(0)));
    let (a, b) = (Member::new(&shared), Member::new(&shared));
    let deploys = |member: &Member| deploys(member, EffectClass::Once, &running, &gate);
    let (mut at_a, mut at_b) = (deploys(&a), deploys(&b));
    let one = || batch("k", vec![call("a", "deploy", n(1))]);
    let _lost = a.runtime.submit("s", one()).await.unwrap();
    assert_eq!(at_a.recv().await, Some(1));
    let waits = b.runtime.submit("t", one()).await.unwrap();
    waiting_for(&b, "t", "of another worker on global:deploy").await;
    let died = a.id().await;
    a.store.freeze(true);
    // As long as its lease may last, nobody has what it holds. Time passes in small steps: the call that waits has a deadline.
    let may_live = async || {
        let record = shared.record(StoreSpace::Worker.shelf(), &died).await.unwrap();
        record.is_some_and(|record| record.value != b"dead")
    };
    loop {
        let has_begun = !at_b.is_empty();
        if !may_live().await {
            break;
        }
        assert!(!has_begun, "it may be alive");
        passes(&b).await;
    }
    let begun = loop {
        match at_b.try_recv() {
            Ok(begun) => break begun,
            Err(_) => passes(&b).await,
        }
    };
    // The one of the dead worker still stands there with the name; its call is unknown by now.
    assert_eq!(begun, 2);
    let row = shared.session("s").await.unwrap().unwrap();
    assert!(shared.open_batches(Some(row.no)).await.unwrap().is_empty(), "it was settled before");
    gate.add_permits(2);
    waits.settled().await.unwrap();
}

/// A little time passes for a worker, which does what is due by then.
async fn passes(member: &Member) {
    member.clock.advance(Duration::from_millis(100));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Time passes for all of them, or for none: one that stands still for its calls must not be outlived by the others.
pub(super) async fn step_together(members: &[Member], shared: &MemoryStore) {
    if members.iter().any(|member| member.runtime.open_calls() > 0) {
        return tokio::task::yield_now().await;
    }
    for member in members {
        member.step(shared).await;
    }
}

//! Limits and rates of tools and groups over all workers.

use super::{LEASE, Member};
use crate::rig::{Count, batch, call, n, spec};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use windlass::limits::Cap;
use windlass::store::memory::MemoryStore;
use windlass::store::{Store, StoreSpace};
use windlass::{EffectClass, Flags, Submitted, ToolSpec, tool_fn};

/// Time passes in such steps: less than a worker waits before it looks again.
const LOOK: Duration = Duration::from_millis(100);

/// A tool of all workers: how many of its calls run, how many ran at once at most, and what lets them end.
#[derive(Clone)]
struct Shared {
    running: Count,
    most: Arc<Mutex<u32>>,
    go: Arc<Semaphore>,
    /// When each started, by the time that has passed.
    starts: Arc<Mutex<Vec<Duration>>>,
    passed: Arc<Mutex<Duration>>,
}

impl Shared {
    fn new() -> Shared {
        Shared {
            running: Count::default(),
            most: Arc::default(),
            go: Arc::new(Semaphore::new(0)),
            starts: Arc::default(),
            passed: Arc::default(),
        }
    }

    fn register(&self, member: &Member, spec: ToolSpec) {
        let shared = self.clone();
        let tool = tool_fn(spec, move |args, _| {
            let shared = shared.clone();
            async move {
                shared.begins();
                shared.go.acquire().await.expect("it stays open").forget();
                shared.running.down();
                Ok(args.into())
            }
        });
        member.runtime.register(tool).unwrap();
    }

    fn begins(&self) {
        let now = self.running.up();
        let mut most = self.most.lock().unwrap();
        *most = now.max(*most);
        self.starts.lock().unwrap().push(*self.passed.lock().unwrap());
    }

    fn most(&self) -> u32 {
        *self.most.lock().unwrap()
    }

    fn started(&self) -> usize {
        self.starts.lock().unwrap().len()
    }

    /// Time passes for these workers, and whatever is due is done.
    async fn pass(&self, members: &[&Member], time: Duration) {
        let mut left = time;
        while left > Duration::ZERO {
            let step = left.min(LOOK);
            *self.passed.lock().unwrap() += step;
            members.iter().for_each(|member| member.clock.advance(step));
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            left -= step;
        }
    }
}

/// Calls of sessions of their own.
async fn submit(member: &Member, name: &str, calls: usize) -> Vec<Submitted> {
    member.id().await;
    let mut submitted = Vec::new();
    for no in 0..calls {
        let one = batch("k", vec![call("a", "x", n(1))]);
        submitted.push(member.runtime.submit(&format!("{name}{no}"), one).await.unwrap());
    }
    submitted
}

fn limited(running_max: u32) -> ToolSpec {
    // In the task that drives its call, so that nothing depends on when a thread has its turn.
    let flags = Flags { quick: true, ..Flags::default() };
    ToolSpec { claims: Some(vec![]), running_max: Some(running_max), flags, ..spec("x", EffectClass::Keyed) }
}

#[tokio::test]
async fn no_more_run_at_once_over_all_workers_and_all_have_their_turn() {
    for (max, members) in [(1, 3), (2, 3), (4, 2), (5, 3)] {
        let (store, shared) = (MemoryStore::new().unwrap(), Shared::new());
        let members: Vec<Member> = (0..members).map(|_| Member::new(&store)).collect();
        let all: Vec<&Member> = members.iter().collect();
        let mut submitted = Vec::new();
        for (no, member) in members.iter().enumerate() {
            shared.register(member, limited(max));
            submitted.push(submit(member, &format!("s{no}-"), 6).await);
        }
        for _ in 0..6 * members.len() {
            // What is free is in use everywhere within about a second.
            shared.pass(&all, Duration::from_millis(1_500)).await;
            let left = 6 * members.len() - shared.started() + shared.running.get() as usize;
            assert_eq!(shared.running.get() as usize, left.min(max as usize), "of {max}, {left} left");
            shared.go.add_permits(1);
        }
        for submitted in submitted.into_iter().flatten() {
            submitted.settled().await.unwrap();
        }
        assert_eq!(shared.most(), max);
        // Nobody has anything that is not used for long.
        shared.pass(&all, Duration::from_secs(12)).await;
        assert_eq!(store.count_records(StoreSpace::Limit.shelf()).await.unwrap(), 0, "{max}");
    }
}

#[tokio::test]
async fn one_that_always_has_more_keeps_nobody_waiting() {
    for max in [1, 2, 5] {
        let (store, shared) = (MemoryStore::new().unwrap(), Shared::new());
        let (a, b) = (Member::new(&store), Member::new(&store));
        [&a, &b].into_iter().for_each(|member| shared.register(member, limited(max)));
        let first = submit(&a, "a", 40).await;
        shared.pass(&[&a, &b], Duration::from_secs(1)).await;
        assert_eq!(shared.running.get(), max);
        let mut second = submit(&b, "b", 1).await;
        shared.pass(&[&a, &b], Duration::from_secs(1)).await;
        // As many as there are end, and then the other's turn has come.
        shared.go.add_permits(max as usize);
        shared.pass(&[&a, &b], Duration::from_secs(1)).await;
        assert!(b.runtime.counts().running != [0, 0], "of {max}");
        shared.go.add_permits(100);
        shared.pass(&[&a, &b], Duration::from_secs(20)).await;
        for submitted in first.into_iter().chain(second.drain(..)) {
            submitted.settled().await.unwrap();
        }
        assert_eq!(shared.most(), max);
    }
}

#[tokio::test]
async fn a_group_is_one_limit_over_all_workers_and_their_tools() {
    let (store, shared) = (MemoryStore::new().unwrap(), Shared::new());
    let members: Vec<Member> = (0..2).map(|_| Member::new(&store)).collect();
    let all: Vec<&Member> = members.iter().collect();
    let mut submitted = Vec::new();
    for (no, member) in members.iter().enumerate() {
        member.runtime.limit_group("g", Cap { running_max: Some(3), rate: None });
        shared.register(member, ToolSpec { groups: vec!["g".into()], ..limited(2) });
        submitted.extend(submit(member, &format!("s{no}-"), 5).await);
    }
    for _ in 0..10 {
        shared.pass(&all, Duration::from_millis(2_000)).await;
        assert!(shared.running.get() > 0);
        shared.go.add_permits(1);
    }
    for submitted in submitted {
        submitted.settled().await.unwrap();
    }
    assert_eq!(shared.most(), 2, "the tool's own limit is lower");
}

#[tokio::test]
async fn what_a_dead_worker_had_is_free_once_its_lease_is_over_and_not_before() {
    let (store, shared) = (MemoryStore::new().unwrap(), Shared::new());
    let (a, b) = (Member::new(&store), Member::new(&store));
    for member in [&a, &b] {
        shared.register(member, ToolSpec { class: Some(EffectClass::Once), ..limited(2) });
    }
    let _lost = submit(&a, "a", 2).await;
    shared.pass(&[&a, &b], Duration::from_secs(1)).await;
    assert_eq!(shared.running.get(), 2);
    let waiting = submit(&b, "b", 2).await;
    let died = a.id().await;
    a.store.freeze(true);
    loop {
        let record = store.record(StoreSpace::Worker.shelf(), &died).await.unwrap();
        if record.is_none_or(|record| record.value == b"dead") {
            break;
        }
        assert_eq!(shared.started(), 2, "it may be alive");
        shared.pass(&[&b], LOOK).await;
    }
    shared.pass(&[&b], Duration::from_secs(2)).await;
    assert_eq!(shared.started(), 4);
    // The dead one continues, under another id, and has nothing: what it still runs it was told to stop.
    a.store.freeze(false);
    a.clock.advance(LEASE);
    while a.id().await == died {
        tokio::task::yield_now().await;
    }
    let more = submit(&a, "more", 1).await;
    shared.pass(&[&a, &b], Duration::from_secs(3)).await;
    assert_eq!(shared.started(), 4, "others have all of it");
    shared.go.add_permits(10);
    shared.pass(&[&a, &b], Duration::from_secs(3)).await;
    for submitted in waiting.into_iter().chain(more) {
        submitted.settled().await.unwrap();
    }
    assert_eq!(shared.started(), 5);
}

#[tokio::test]
async fn a_rate_is_never_exceeded_over_all_workers_and_none_of_it_is_lost() {
    for (count, workers) in [(6_u32, 3), (1, 2)] {
        let (store, shared) = (MemoryStore::new().unwrap(), Shared::new());
        let members: Vec<Member> = (0..workers).map(|_| Member::new(&store)).collect();
        let all: Vec<&Member> = members.iter().collect();
        let period = Duration::from_secs(60);
        shared.go.add_permits(1_000);
        let mut submitted = Vec::new();
        for (no, member) in members.iter().enumerate() {
            let rate = Some((count, 60_000));
            shared.register(member, ToolSpec { rate, running_max: None, ..limited(1) });
            submitted.push(submit(member, &format!("s{no}-"), 4 * count as usize).await);
        }
        shared.pass(&all, 6 * period).await;
        let starts = shared.starts.lock().unwrap().clone();
        for (at, first) in starts.iter().enumerate() {
            let within = starts[at..].iter().filter(|start| **start - *first < period).count();
            assert!(within <= 2 * count as usize, "{within} within a period: {starts:?}");
        }
        // All that one process would start in this time, but for a little that is lost on the way between workers.
        let (most, lost) = (7 * count as usize, count.div_ceil(2) as usize);
        assert!(starts.len() <= most && starts.len() + lost >= most, "{starts:?}");
    }
}

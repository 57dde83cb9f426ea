//! Several workers on one store: who owns what, what becomes of the sessions of one that died, and of that one itself.

mod left;
mod limits;
mod over_all;
use crate::rig::{Count, batch, call, echo, n, run, spec, states};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use windlass::ask::Target;
use windlass::error::{Lost, SessionError};
use windlass::store::memory::MemoryStore;
use windlass::store::{JournalRow, RecordChange, RecordPage, Space, Store, StoreSpace};
use windlass::wait::Completed;
use windlass::workers::{OtherWorker, OwnerPlace, WorkerState};
use windlass::{BatchError, Config, Cx, EffectClass, Limits, Runtime, ToolError, tool_fn};
use windlass_testkit::clock::ManualClock;
use windlass_testkit::fault_store::{FaultPlan, FaultReach, FaultStore};

/// A worker with a clock of its own, which can be made to stand still.
struct Member {
    runtime: Runtime,
    clock: ManualClock,
    store: FaultStore,
}

const STEP: Duration = Duration::from_millis(2_000);
const LEASE: Duration = Duration::from_millis(10_000);
const MOMENT: Duration = Duration::from_millis(50);

impl Member {
    fn new(shared: &MemoryStore) -> Member {
        Member::with(shared, |config| config)
    }

    fn with(shared: &MemoryStore, set: impl FnOnce(Config) -> Config) -> Member {
        let clock = ManualClock::default();
        let store = FaultStore::new(Arc::new(shared.clone()), FaultPlan::Never, FaultReach::Session);
        let config = Config { clock: Arc::new(clock.clone()), shared: true, ..Config::new(store.clone()) };
        Member { runtime: Runtime::new(set(config)), clock, store }
    }

    /// Its id, once it has a lease.
    async fn id(&self) -> String {
        loop {
            if let Some(id) = self.runtime.worker() {
                return id;
            }
            tokio::task::yield_now().await;
        }
    }

    /// So much time passes for it that it is heard of again.
    async fn step(&self, shared: &MemoryStore) {
        loop {
            let id = self.id().await;
            let before = generation(shared, &id).await;
            self.clock.advance(STEP);
            // One that has just lost its lease begins anew under another id: then it is that one's step.
            while self.runtime.worker().as_ref() == Some(&id) {
                if generation(shared, &id).await > before {
                    return;
                }
                tokio::task::yield_now().await;
            }
        }
    }

    /// Time passes for it while the worker of this id has a record. It stands still for calls that were taken over: they end at
    /// once, and time would end them sooner.
    async fn outlives(&self, id: &String, shared: &MemoryStore) {
        while workers(shared).await.contains(id) {
            match self.runtime.open_calls() {
                0 => self.step(shared).await,
                _ => tokio::task::yield_now().await,
            }
        }
    }

    /// The grace of what it was told to stop passes; meanwhile the other one is alive.
    async fn comes_to_rest(&self, other: &Member, shared: &MemoryStore) {
        while self.runtime.kept() > 0 || self.runtime.open_calls() > 0 {
            self.clock.advance(Duration::from_millis(100));
            other.step(shared).await;
        }
    }

    /// A tool that begins, and says whether it was told to stop.
    fn hangs(&self, class: EffectClass) -> mpsc::UnboundedReceiver<&'static str> {
        self.hangs_as("x", class)
    }

    fn hangs_as(&self, name: &str, class: EffectClass) -> mpsc::UnboundedReceiver<&'static str> {
        let (says, said) = mpsc::unbounded_channel();
        let tool = tool_fn(spec(name, class), move |_, cx: &Cx| {
            let (says, cx) = (says.clone(), cx.clone());
            async move {
                let _ = says.send("begun");
                cx.stopping().await;
                let _ = says.send("told to stop");
                std::future::pending().await
            }
        });
        self.runtime.register(tool).unwrap();
        said
    }

    /// A tool that sleeps for an hour.
    fn sleeps(&self) {
        let tool = tool_fn(spec("x", EffectClass::Stepped), |_, cx: &Cx| {
            let cx = cx.clone();
            async move { Ok(cx.sleep("s", Duration::from_secs(3_600)).await.map(|()| n(1))?.into()) }
        });
        self.runtime.register(tool).unwrap();
    }

    fn echoes(&self, class: EffectClass) -> Count {
        let count = Count::default();
        self.runtime.register(echo(spec("x", class), &count)).unwrap();
        count
    }
}

async fn generation(store: &MemoryStore, id: &str) -> u64 {
    store.record(StoreSpace::Worker.shelf(), id).await.unwrap().map_or(0, |record| record.generation)
}

/// The workers that have a record.
async fn workers(store: &MemoryStore) -> Vec<String> {
    let page = RecordPage { shelf: StoreSpace::Worker.shelf(), prefix: "", after: None, limit: 100 };
    store.records(page).await.unwrap().into_iter().map(|record| record.key).collect()
}

async fn owner(store: &MemoryStore, session: &str) -> Option<String> {
    let row = store.session(session).await.unwrap()?;
    let record = store.record(Space::Owner.of(row.no), "worker").await.unwrap()?;
    Some(String::from_utf8(record.value).unwrap())
}

/// All that is recorded of a session.
async fn journal(store: &MemoryStore, session: &str) -> Vec<JournalRow> {
    let row = store.session(session).await.unwrap().unwrap();
    store.history(row.no, None, 1_000).await.unwrap()
}

fn one() -> windlass::BatchRequest {
    batch("k", vec![call("a", "x", n(1))])
}

fn refused(taken: Result<windlass::Submitted, BatchError>) -> BatchError {
    taken.map(drop).unwrap_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_a_worker_that_is_alive_is_its_own() {
    let shared = MemoryStore::new().unwrap();
    let (a, b) = (Member::new(&shared), Member::new(&shared));
    let mut said = a.hangs(EffectClass::Once);
    b.echoes(EffectClass::Once);
    let _waiting = a.runtime.submit("s", one()).await.unwrap();
    said.recv().await.unwrap();
    let id = a.id().await;
    assert_eq!(owner(&shared, "s").await, Some(id.clone()));
    // Two leases, and less than the attempt may take.
    for _ in 0..12 {
        let error = refused(b.runtime.submit("s", one()).await);
        assert!(
            matches!(&error, BatchError::Session(SessionError::Owned { session, worker }) if session == "s" && *worker == id)
        );
        assert!(error.to_string().contains(&id), "{error}");
        a.step(&shared).await;
        b.step(&shared).await;
    }
    assert_eq!((a.id().await, owner(&shared, "s").await), (id.clone(), Some(id)));
    assert!(said.try_recv().is_err(), "nobody stops what is its owner's");
    // Another session is anybody's.
    assert_eq!(states(&run(&b.runtime, "t", one()).await), "a succeeded");
    assert_eq!(owner(&shared, "t").await, Some(b.id().await));
    assert_eq!(b.runtime.resume().await.unwrap(), 0, "what others own is not taken over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_worker_left_goes_on_by_its_class_and_it_changes_nothing_any_more() {
    for (class, state, ran) in [
        (EffectClass::Read, "a succeeded", 1),
        (EffectClass::Keyed, "a succeeded", 1),
        (EffectClass::Once, "a unknown", 0),
    ] {
        let shared = MemoryStore::new().unwrap();
        let (a, b) = (Member::new(&shared), Member::new(&shared));
        let mut said = a.hangs(class);
        let count = b.echoes(class);
        let waiting = a.runtime.submit("s", one()).await.unwrap();
        // What reads is recorded, so that there is something to take over.
        waiting.admitted().await.unwrap();
        assert_eq!(said.recv().await, Some("begun"));
        let dead = a.id().await;
        a.store.freeze(true);
        b.outlives(&dead, &shared).await;
        let taken = run(&b.runtime, "s", one()).await;
        assert_eq!((states(&taken).as_str(), count.get()), (state, ran), "{class}");
        assert_eq!(owner(&shared, "s").await, Some(b.id().await));
        let story = journal(&shared, "s").await;

        // By its own clock its lease is over, whatever the store says.
        a.clock.advance(LEASE);
        assert_eq!(said.recv().await, Some("told to stop"), "{class}");
        let told = waiting.settled().await.map(drop).unwrap_err();
        assert!(matches!(told, BatchError::Session(SessionError::Lost(Lost::Lease))), "{told}");
        a.store.freeze(false);
        assert_ne!(a.id().await, dead);
        // Its grace is over, and what it was doing is no more.
        a.comes_to_rest(&b, &shared).await;
        assert_eq!(journal(&shared, "s").await, story, "{class}");
        // It works on as another: what is not its own it does not get, what is new it does.
        let error = refused(a.runtime.submit("s", one()).await);
        assert!(matches!(error, BatchError::Session(SessionError::Owned { .. })), "{error}");
        assert_eq!(states(&run(&a.runtime, "t", batch("k", vec![])).await), "");
        drop(a);
        assert_eq!(states(&run(&b.runtime, "s", one()).await), state);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_not_answered_stops_before_anybody_may_take_what_it_has() {
    let shared = MemoryStore::new().unwrap();
    let a = Member::new(&shared);
    let mut said = a.hangs(EffectClass::Once);
    let waiting = a.runtime.submit("s", one()).await.unwrap();
    said.recv().await.unwrap();
    let id = a.id().await;
    a.step(&shared).await;
    a.store.keep_silent(true);
    // Its heartbeats are taken and not answered: what counts is when the last one was sent that was.
    a.clock.advance(LEASE - Duration::from_millis(1));
    tokio::task::yield_now().await;
    assert_eq!(a.id().await, id);
    assert!(said.try_recv().is_err());
    a.clock.advance(Duration::from_millis(1));
    assert_eq!(said.recv().await, Some("told to stop"));
    let told = waiting.settled().await.map(drop).unwrap_err();
    assert!(matches!(told, BatchError::Session(SessionError::Lost(Lost::Lease))), "{told}");
    assert_eq!(owner(&shared, "s").await, Some(id.clone()), "nobody has taken it");
    a.store.keep_silent(false);
    assert_ne!(a.id().await, id);
    assert_eq!(generation(&shared, &id).await, 0, "nobody need wait for one that is no more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_was_taken_for_dead_lets_go_when_it_is_told() {
    let shared = MemoryStore::new().unwrap();
    let a = Member::new(&shared);
    let mut said = a.hangs(EffectClass::Once);
    let waiting = a.runtime.submit("s", one()).await.unwrap();
    said.recv().await.unwrap();
    let id = a.id().await;
    // Somebody with a quicker clock has buried it.
    let change = RecordChange::remove(StoreSpace::Worker, id.as_str());
    shared.commit(vec![change.into()]).await.unwrap()[0].unwrap();
    a.clock.advance(STEP);
    assert_eq!(said.recv().await, Some("told to stop"));
    assert!(matches!(
        waiting.settled().await.map(drop),
        Err(BatchError::Session(SessionError::Lost(Lost::Lease)))
    ));
    assert_ne!(a.id().await, id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_those_who_look_after_a_dead_worker_each_session_has_one() {
    let shared = MemoryStore::new().unwrap();
    let a = Member::new(&shared);
    let others: Vec<Member> = (0..3).map(|_| Member::new(&shared)).collect();
    let counts: Vec<Count> = others.iter().map(|other| other.echoes(EffectClass::Keyed)).collect();
    let mut said = a.hangs(EffectClass::Keyed);
    let names: Vec<String> = (0..16).map(|no| format!("s{no}")).collect();
    for name in &names {
        drop(a.runtime.submit(name, one()).await.unwrap());
        said.recv().await.unwrap();
    }
    let id = a.id().await;
    a.store.freeze(true);
    while workers(&shared).await.contains(&id) {
        over_all::step_together(&others, &shared).await;
    }
    // One that takes a session has no call of it yet, and so is idle.
    while !shared.open_batches(None).await.unwrap().is_empty() {
        over_all::step_together(&others, &shared).await;
    }
    for other in &others {
        other.runtime.idle().await;
    }
    assert_eq!(counts.iter().map(Count::get).sum::<u32>(), 16, "each is driven by one of them");
    let mut owners = std::collections::BTreeMap::new();
    for name in &names {
        *owners.entry(owner(&shared, name).await.unwrap()).or_insert(0) += 1;
    }
    for (other, count) in others.iter().zip(&counts) {
        assert_eq!(owners.remove(&other.id().await).unwrap_or(0), count.get());
        assert_eq!(other.runtime.open_calls(), 0);
    }
    assert_eq!(shared.open_batches(None).await.unwrap(), []);
    a.store.freeze(false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_heard_of_again_keeps_what_it_has() {
    let shared = MemoryStore::new().unwrap();
    let (a, b) = (Member::new(&shared), Member::new(&shared));
    a.echoes(EffectClass::Once);
    b.echoes(EffectClass::Once);
    run(&a.runtime, "s", one()).await;
    let (id, fence) = (a.id().await, shared.session("s").await.unwrap().unwrap().fence);
    let again = || batch("again", vec![call("b", "x", n(2))]);
    assert!(matches!(
        refused(b.runtime.submit("s", again()).await),
        BatchError::Session(SessionError::Owned { .. })
    ));
    for _ in 0..4 {
        b.step(&shared).await;
    }
    // What b has seen of it is a lease old now. When b is about to take the session, and to bury it, it is heard of again.
    b.store.hold_back(true);
    b.clock.advance(STEP);
    let taking = tokio::spawn({
        let runtime = b.runtime.clone();
        async move { refused(runtime.submit("s", again()).await) }
    });
    // Those two, and the heartbeat of b. It may have looked at the others a moment late, and so looks again a moment later; but its
    // own lease must not end.
    let mut later = Duration::ZERO;
    while b.store.held_back() < 3 {
        if later < LEASE - 2 * STEP {
            later += MOMENT;
            b.clock.advance(MOMENT);
        }
        tokio::task::spawn_blocking(|| ()).await.unwrap();
    }
    a.step(&shared).await;
    b.store.hold_back(false);
    let error = taking.await.unwrap();
    assert!(
        matches!(&error, BatchError::Session(SessionError::Owned { worker, .. }) if *worker == id),
        "{error}"
    );
    b.step(&shared).await;
    assert_eq!((a.id().await, owner(&shared, "s").await), (id.clone(), Some(id)));
    assert_eq!(shared.session("s").await.unwrap().unwrap().fence, fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_lost_can_be_had_again() {
    let shared = MemoryStore::new().unwrap();
    let (a, b) = (Member::new(&shared), Member::new(&shared));
    let mut said = a.hangs(EffectClass::Once);
    let mut others = b.hangs(EffectClass::Once);
    let _waiting = a.runtime.submit("s", one()).await.unwrap();
    said.recv().await.unwrap();
    let id = a.id().await;
    a.store.freeze(true);
    b.outlives(&id, &shared).await;
    drop(_waiting);
    a.clock.advance(LEASE);
    assert_eq!(said.recv().await, Some("told to stop"));
    a.store.freeze(false);
    a.comes_to_rest(&b, &shared).await;
    let second = || batch("second", vec![call("b", "x", n(2))]);
    drop(b.runtime.submit("s", second()).await.unwrap());
    others.recv().await.unwrap();
    // Now the other one dies: what was lost is taken over, with what happened meanwhile.
    let id = b.id().await;
    b.store.freeze(true);
    a.outlives(&id, &shared).await;
    assert_eq!(owner(&shared, "s").await, Some(a.id().await));
    assert_eq!(states(&run(&a.runtime, "s", one()).await), "a unknown");
    assert_eq!(states(&run(&a.runtime, "s", second()).await), "b unknown");
    b.store.freeze(false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_let_go_of_is_anybodys() {
    let shared = MemoryStore::new().unwrap();
    let few = Limits { sessions_owned_max: 1, ..Limits::default() };
    let (a, b) = (Member::with(&shared, |config| Config { limits: few, ..config }), Member::new(&shared));
    a.echoes(EffectClass::Once);
    b.echoes(EffectClass::Once);
    run(&a.runtime, "s", one()).await;
    assert!(matches!(
        refused(b.runtime.submit("s", one()).await),
        BatchError::Session(SessionError::Owned { .. })
    ));
    // What drove its call may still be on its way out.
    for no in 0.. {
        run(&a.runtime, &format!("t{no}"), one()).await;
        if owner(&shared, "s").await.is_none() {
            break;
        }
    }
    assert_eq!(states(&run(&b.runtime, "s", one()).await), "a succeeded");
    let again = batch("again", vec![call("b", "x", n(2))]);
    assert_eq!(states(&run(&b.runtime, "s", again).await), "b succeeded");
    assert_eq!(owner(&shared, "s").await, Some(b.id().await));
}

#[tokio::test]
async fn a_runtime_that_is_alone_writes_nothing_of_this() {
    let store = MemoryStore::new().unwrap();
    let runtime = Runtime::new(Config::new(store.clone()));
    let count = Count::default();
    runtime.register(echo(crate::rig::quick("x", EffectClass::Read), &count)).unwrap();
    run(&runtime, "s", one()).await;
    assert_eq!(runtime.worker(), None);
    assert_eq!((workers(&store).await, owner(&store, "s").await), (vec![], None));
    assert_eq!(store.commits(), 1);
}

/// The owner looks for what was left so often.
const KNOCK: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_reaches_the_owner_from_any_worker() {
    let shared = MemoryStore::new().unwrap();
    let (a, b) = (Member::new(&shared), Member::new(&shared));
    let mut said = a.hangs(EffectClass::Once);
    let waiting = a.runtime.submit("s", one()).await.unwrap();
    said.recv().await.unwrap();
    let call = crate::rig::until_runs(&a.runtime).await;
    let asked = b.runtime.cancel(Target::Call(&call), Some("from elsewhere")).await.unwrap();
    assert_eq!((asked.asked, asked.over), (1, 0));
    assert!(said.try_recv().is_err(), "it is the owner who tells it");
    a.clock.advance(KNOCK);
    assert_eq!(said.recv().await, Some("told to stop"));
    let ended = tokio::spawn(waiting.settled());
    // Its grace passes.
    while !ended.is_finished() {
        a.step(&shared).await;
    }
    assert_eq!(states(&ended.await.unwrap().unwrap()), "a cancelled");
    // What was heard is forgotten, and asking again changes nothing.
    while !knocks(&shared).await.is_empty() {
        tokio::task::yield_now().await;
    }
    let again = b.runtime.cancel(Target::Session("s"), None).await.unwrap();
    assert_eq!(again.asked, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_reaches_a_call_whose_session_is_another_workers() {
    let shared = MemoryStore::new().unwrap();
    let (a, b) = (Member::new(&shared), Member::new(&shared));
    let (gives, mut given) = mpsc::unbounded_channel();
    let tool = tool_fn(spec("x", EffectClass::Stepped), move |_, cx: &Cx| {
        let (gives, cx) = (gives.clone(), cx.clone());
        async move {
            let key = cx.completion("answer").await?;
            let _ = gives.send(key.as_str().to_string());
            match cx.wait(&key, None).await? {
                Some(Completed::Ok(output)) => Ok(*output),
                other => Err(ToolError::new(format!("{other:?}"))),
            }
        }
    });
    a.runtime.register(tool).unwrap();
    let waiting = a.runtime.submit("s", one()).await.unwrap();
    let key = given.recv().await.unwrap();
    crate::rig::waits_for(&a.runtime, "completion").await;
    b.runtime.complete(&key, Completed::ok(n(7))).await.unwrap();
    a.clock.advance(KNOCK);
    let answer = waiting.settled().await.unwrap();
    assert_eq!(states(&answer), "a succeeded");
    assert_eq!(answer.calls[0].model_text(), "{\"n\":7}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_left_for_a_worker_that_died_is_heard_by_the_next() {
    let shared = MemoryStore::new().unwrap();
    let (a, b) = (Member::new(&shared), Member::new(&shared));
    let mut said = a.hangs(EffectClass::Keyed);
    let count = b.echoes(EffectClass::Keyed);
    let _waiting = a.runtime.submit("s", one()).await.unwrap();
    said.recv().await.unwrap();
    let id = a.id().await;
    a.store.freeze(true);
    b.runtime.cancel(Target::Session("s"), None).await.unwrap();
    b.outlives(&id, &shared).await;
    let answer = run(&b.runtime, "s", one()).await;
    assert_eq!((states(&answer).as_str(), count.get()), ("a cancelled", 0), "it is cancelled, not run again");
    a.store.freeze(false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_see_who_owns_a_session_and_take_it_at_once_from_one_that_retires() {
    let shared = MemoryStore::new().unwrap();
    let address = Some("http://a:1".to_string());
    let (a, b) = (Member::with(&shared, |config| Config { address, ..config }), Member::new(&shared));
    let (here, there) = (a.echoes(EffectClass::Once), b.echoes(EffectClass::Once));
    assert_eq!(b.runtime.owner_of("s").await.unwrap(), OwnerPlace::Nobody);
    run(&a.runtime, "s", one()).await;
    let id = a.id().await;
    let seen = |leaving| {
        OwnerPlace::Other(OtherWorker { id: id.clone(), address: Some("http://a:1".to_string()), leaving })
    };
    assert_eq!(a.runtime.owner_of("s").await.unwrap(), OwnerPlace::Here);
    assert_eq!(b.runtime.owner_of("s").await.unwrap(), seen(false));
    assert_eq!(b.runtime.other_workers().await.unwrap().len(), 1);
    // One that still has work says that it leaves; what is idle it lets go.
    let mut said = a.hangs_as("y", EffectClass::Keyed);
    let busy = batch("y", vec![call("a", "y", n(1))]);
    let _waiting = a.runtime.submit("busy", busy).await.unwrap();
    said.recv().await.unwrap();
    a.runtime.begin_leaving();
    while b.runtime.owner_of("busy").await.unwrap() != seen(true)
        || b.runtime.owner_of("s").await.unwrap() != OwnerPlace::Nobody
    {
        tokio::task::yield_now().await;
    }
    // No clock moves: nobody waits for a lease.
    a.runtime.retire().await.unwrap();
    assert_eq!(b.runtime.owner_of("busy").await.unwrap(), OwnerPlace::Nobody);
    let more = batch("more", vec![call("a", "x", n(2))]);
    assert_eq!(states(&run(&b.runtime, "s", more).await), "a succeeded");
    assert_eq!(b.runtime.owner_of("s").await.unwrap(), OwnerPlace::Here);
    assert_eq!((here.get(), there.get()), (1, 1));
}

async fn knocks(store: &MemoryStore) -> Vec<String> {
    let page = RecordPage { shelf: StoreSpace::Knock.shelf(), prefix: "", after: None, limit: 100 };
    store.records(page).await.unwrap().into_iter().map(|record| record.key).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_are_listed_and_changes_of_others_are_told() {
    let shared = MemoryStore::new().unwrap();
    let quick =
        |config: Config| Config { limits: Limits { event_look_ms: 1, ..Limits::default() }, ..config };
    let (one, two) = (Member::with(&shared, quick), Member::with(&shared, quick));
    let ids = [one.id().await, two.id().await];
    let mut changes = one.runtime.changes().unwrap();
    two.echoes(EffectClass::Read);
    // The first look only remembers, so the other one writes until the change is told.
    let told = async {
        loop {
            let changed = changes.next().await.unwrap().unwrap();
            if changed.sessions.iter().any(|name| &**name == "theirs") {
                return changed;
            }
        }
    };
    let writes = async {
        for place in 0.. {
            let key = format!("k{place}");
            run(&two.runtime, "theirs", batch(&key, vec![call("a", "x", n(place))])).await;
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        changed = told => assert!(!changed.more),
        () = writes => unreachable!("it writes until it is heard"),
    }
    // A worker says with its heartbeat how many it has.
    two.step(&shared).await;
    let listed = one.runtime.workers().await.unwrap();
    let own = listed.iter().find(|worker| worker.id == ids[0]).unwrap();
    let other = listed.iter().find(|worker| worker.id == ids[1]).unwrap();
    assert!(own.this && !other.this);
    assert_eq!((own.sessions, other.sessions), (0, 1));
    assert_eq!((own.state, other.state), (WorkerState::Alive, WorkerState::Alive));
}

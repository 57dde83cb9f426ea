//! The store contract and the runtime over a store that fails by plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use windlass_core::ids::{Fence, SessionNo};
use windlass_store::sqlite::Options;
use windlass_store::{
    Hold, Inbound, MemoryStore, Posted, Row, Sequence, SessionChange, SqliteStore, Store, StoreError,
};
use windlass_testkit::fault_store::{Fault, FaultPlan, FaultReach, FaultStore, Method};
use windlass_testkit::scenario::{self, BatchReplyKind, ClientRounds, RunCounts, ScenarioRemains};
use windlass_testkit::store_suite::{SuiteStore, held, journal, lookup, one, open};

// An answer may be late: nothing of the contract depends on when it comes.
windlass_testkit::store_suite!(late_suite, super::late());

fn late() -> SuiteStore {
    let folder = TempDir::new().unwrap();
    let plan = FaultPlan::Seeded { seed: 7, one_in: 2, faults: &[Fault::Slow] };
    let store = Arc::new(FaultStore::new(sqlite(&folder), plan, FaultReach::Store));
    SuiteStore { other: store.clone(), store, folder: Some(folder) }
}

fn sqlite(folder: &TempDir) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(Options::new(folder.path())).unwrap())
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new().unwrap())
}

const WRITES_FAIL: [Fault; 4] = [Fault::FailBefore, Fault::FailAfter, Fault::LostBefore, Fault::LostAfter];

#[tokio::test]
async fn a_failed_commit_is_there_whole_or_not_at_all() {
    for fault in WRITES_FAIL {
        let folder = TempDir::new().unwrap();
        for inner in [memory(), sqlite(&folder)] {
            let faulty =
                FaultStore::new(inner.clone(), FaultPlan::Nth(Method::Commit, 2, fault), FaultReach::Store);
            let store: Arc<dyn Store> = Arc::new(faulty.clone());
            let session = open(&store, "s").await;
            let batch = windlass_core::ids::BatchNo(store.reserve(Sequence::Batch, 1).await.unwrap());
            let rows = vec![
                Row::Batch { no: batch, lookup: lookup(session, "k") },
                journal(batch, 0, 2),
                journal(batch, 1, 1),
            ];
            store.commit(vec![held(session, rows).into()]).await.unwrap_err();
            let done = matches!(fault, Fault::FailAfter | Fault::LostAfter);
            assert_eq!(inner.journal(batch).await.unwrap().len(), if done { 2 } else { 0 }, "{fault:?}");
            assert_eq!(inner.batch(lookup(session, "k")).await.unwrap().is_some(), done, "{fault:?}");
            let later = store.commit(vec![held(session, vec![]).into()]).await;
            assert!(matches!(later, Err(StoreError::Poisoned { .. })), "{later:?}");
            // Whoever opens anew reads what is there, and goes on from it.
            let take = SessionChange {
                session,
                hold: Hold::Take { from: Fence(1), to: Fence(2) },
                guards: vec![],
                rows: vec![journal(batch, if done { 2 } else { 0 }, 1)],
            };
            assert!(one(&inner, take).await.is_ok(), "{fault:?}");
        }
    }
}

#[tokio::test]
async fn a_message_whose_answer_was_lost_is_sent_again_and_kept_once() {
    for fault in WRITES_FAIL {
        let store = FaultStore::new(memory(), FaultPlan::Nth(Method::Post, 1, fault), FaultReach::Session);
        let session = open(&(Arc::new(store.clone()) as Arc<dyn Store>), "s").await;
        let message = Inbound { session, key: "m".to_owned(), body: b"hello".to_vec() };
        store.post(message.clone()).await.unwrap_err();
        let done = matches!(fault, Fault::FailAfter | Fault::LostAfter);
        let expected = if done { Posted::Again } else { Posted::New };
        assert_eq!(store.post(message.clone()).await.unwrap(), expected, "{fault:?}");
        assert_eq!(store.inbound(session, 10).await.unwrap(), [message]);
    }
}

/// Does the work over a faulty store, twice if it is to recover over one too, and checks what is left.
async fn disturbed(inner: &Arc<dyn Store>, plans: &[FaultPlan], reach: FaultReach) -> Done {
    let (work, runs, mut told) = (scenario::work(), RunCounts::default(), Vec::new());
    let (mut happened, mut hit, mut asked) = (BTreeMap::new(), Vec::new(), 0);
    for plan in plans {
        let faulty = FaultStore::new(inner.clone(), plan.clone(), reach);
        let owner = scenario::runtime(Arc::new(faulty.clone()), &runs).unwrap();
        told.extend(scenario::run(&owner, work.clone(), |_| {}).await);
        faulty.close();
        // What the dead owner had sent is done or not when this returns.
        inner.commit(vec![]).await.unwrap();
        for (what, count) in faulty.happened() {
            *happened.entry(what).or_default() += count;
        }
        hit.extend(faulty.hit());
        asked += faulty.asked(Method::Commit);
    }
    let mut unharmed = 0;
    if reach == FaultReach::Session
        && plans.len() == 1
        && matches!(plans[0], FaultPlan::Nth(Method::Commit, ..))
    {
        unharmed = others_went_on(inner, &work, &told, &hit).await;
    }
    let left = scenario::check(inner.clone(), &work, &told, &runs).await;
    let left = left.unwrap_or_else(|broken| panic!("{plans:?}, {reach:?}: {broken:?}"));
    Done { left, happened, asked, unharmed }
}

struct Done {
    left: ScenarioRemains,
    happened: BTreeMap<(Method, Fault), u64>,
    asked: u64,
    unharmed: u64,
}

/// The session that was hit when it was opened, and so is not there under the number it then had: whoever used it next opened it
/// under another.
async fn reopened<'a>(
    inner: &Arc<dyn Store>,
    told: &'a [scenario::ClientReplies],
    hit: &[SessionNo],
) -> Option<&'a str> {
    for no in hit {
        if inner.session_by_no(*no).await.unwrap().is_none() {
            let harmed = told.iter().find(|told| matches!(told.reply, BatchReplyKind::Failed { .. }));
            return harmed.map(|told| told.session.as_str());
        }
    }
    None
}

/// Where a fault reaches one session, every batch of the others was answered.
async fn others_went_on(
    inner: &Arc<dyn Store>,
    work: &[ClientRounds],
    told: &[scenario::ClientReplies],
    hit: &[SessionNo],
) -> u64 {
    let mut unharmed = 0;
    let reopened = reopened(inner, told, hit).await;
    for batch in work.iter().flatten().flatten() {
        let session = inner.session(&batch.session).await.unwrap();
        if session.is_none_or(|session| hit.contains(&session.no)) || reopened == Some(batch.session.as_str())
        {
            continue;
        }
        let told = told.iter().find(|told| told.batch == batch.key).unwrap();
        assert!(matches!(told.reply, BatchReplyKind::Answered(_)), "{hit:?}: {told:?}");
        unharmed += 1;
    }
    unharmed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_commit_of_the_work_fails_in_every_way() {
    let mut total = ScenarioRemains::default();
    let (mut runs, mut unharmed) = (0, 0);
    let ways = [
        (Fault::FailBefore, FaultReach::Store),
        (Fault::LostAfter, FaultReach::Store),
        (Fault::FailAfter, FaultReach::Session),
        (Fault::LostBefore, FaultReach::Session),
    ];
    for (fault, reach) in ways {
        for nth in 1.. {
            let inner = memory();
            let done = disturbed(&inner, &[FaultPlan::Nth(Method::Commit, nth, fault)], reach).await;
            if done.happened.is_empty() {
                assert!(nth > 20, "the work commits only {} times", done.asked);
                assert_eq!(done.left.errors, 0);
                break;
            }
            runs += 1;
            unharmed += done.unharmed;
            total.acknowledged += done.left.acknowledged;
            total.errors += done.left.errors;
            total.unknown += done.left.unknown;
            total.repeated += done.left.repeated;
        }
    }
    println!("{runs} runs, {unharmed} batches of other sessions went on, {total:?}");
    // Sometimes: the faults had every consequence they can have.
    assert!(unharmed > 0, "no other session went on");
    assert!(
        total.acknowledged > 0 && total.errors > 0 && total.unknown > 0 && total.repeated > 0,
        "{total:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_by_chance_in_every_method_lose_nothing() {
    use Method::{Batch, Blob, Commit, Journal, OpenBatches, Reserve, Session};
    let methods = [Commit, Reserve, Session, Batch, OpenBatches, Journal, Blob];
    let mut missing: BTreeSet<(Method, Fault)> =
        methods.into_iter().flat_map(|method| Fault::ALL.map(|fault| (method, fault))).collect();
    let (mut total, mut faults) = (ScenarioRemains::default(), 0);
    // The seed decides who fails, the threads decide who asks: the rare pairs may need more seeds than usual.
    let mut seed = 0;
    while seed < 120 || !missing.is_empty() {
        assert!(seed < 1_200, "never happened: {missing:?}");
        let folder = TempDir::new().unwrap();
        let inner = if seed % 4 == 0 { sqlite(&folder) } else { memory() };
        let reach = if seed % 2 == 0 { FaultReach::Store } else { FaultReach::Session };
        let plan = |seed| FaultPlan::Seeded { seed, one_in: 12, faults: &Fault::ALL };
        // The second owner takes over what the first left, over faults of its own.
        let plans = [plan(seed), plan(seed + 10_000), plan(seed + 20_000)];
        let done = disturbed(&inner, &plans, reach).await;
        for (what, count) in done.happened {
            missing.remove(&what);
            faults += count;
        }
        total.acknowledged += done.left.acknowledged;
        total.errors += done.left.errors;
        total.unknown += done.left.unknown;
        total.open += done.left.open;
        seed += 1;
    }
    println!("{seed} seeds of 3 owners, {faults} faults, {total:?}");
    assert!(total.acknowledged > 0 && total.errors > 0 && total.unknown > 0 && total.open > 0, "{total:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_store_can_be_opened_anew_by_the_same_process() {
    let mut total = ScenarioRemains::default();
    for nth in [4, 12, 20, 28] {
        let folder = TempDir::new().unwrap();
        let (work, runs) = (scenario::work(), RunCounts::default());
        let plan = FaultPlan::Nth(Method::Commit, nth, Fault::FailBefore);
        let faulty = FaultStore::new(sqlite(&folder), plan, FaultReach::Store);
        let owner = scenario::runtime(Arc::new(faulty), &runs).unwrap();
        let told = scenario::run(&owner, work.clone(), |_| {}).await;
        drop(owner);
        // The last calls let go of the store when their tasks end.
        let until = Instant::now() + Duration::from_secs(60);
        let store = loop {
            match SqliteStore::open(Options::new(folder.path())) {
                Ok(store) => break store,
                Err(error) => assert!(Instant::now() < until, "the lost runtime keeps the folder: {error}"),
            }
            tokio::task::yield_now().await;
        };
        let left = scenario::check(Arc::new(store), &work, &told, &runs).await.unwrap();
        total.errors += left.errors;
        total.acknowledged += left.acknowledged;
    }
    assert!(total.errors > 0 && total.acknowledged > 0, "{total:?}");
}

/// Calls of lost sessions are not counted as open for ever: they would crowd out the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lost_session_had_open_is_not_held_against_the_others() {
    for nth in 1..12 {
        let plan = FaultPlan::Nth(Method::Commit, nth, Fault::LostBefore);
        let faulty = FaultStore::new(memory(), plan, FaultReach::Session);
        let owner = scenario::runtime(Arc::new(faulty), &RunCounts::default()).unwrap();
        scenario::run(&owner, scenario::work(), |_| {}).await;
        let until = Instant::now() + Duration::from_secs(60);
        while owner.open_calls() > 0 {
            assert!(Instant::now() < until, "{} calls are counted as open", owner.open_calls());
            tokio::task::yield_now().await;
        }
    }
}

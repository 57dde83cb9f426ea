//! Commits are appends: the owner of a session neither locks nor updates a row, and whoever is no longer the owner is refused
//! by the version that took the session.

use super::{cluster, open, outside};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use windlass_core::ids::{BatchNo, EntryNo, Fence, SessionNo};
use windlass_store::postgres::PostgresOptions;
use windlass_store::{
    Health, Hold, PostgresStore, Refused, Removal, Removed, Row, Sequence, SessionChange, Space, Store,
    StoreError,
};
use windlass_testkit::store_suite::{begin, held, journal, lookup, next, one, open as open_session};

/// More versions than the store keeps of a session.
const MANY: u32 = 270;

/// A longer wait is in vain.
const PATIENCE: Duration = Duration::from_secs(60);

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// Nothing is updated by ordinary commits of any kind: what they read and lock stays as it was inserted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_updates_no_row() {
    const ROUNDS: u32 = 100;
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let store = open(&url).await;
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    for round in 1..=ROUNDS {
        let no = BatchNo(next(&store, Sequence::Batch).await);
        let begun = Row::Batch { no, lookup: lookup(session, &round.to_string()) };
        one(&store, held(session, vec![begun, journal(no, 0, 1)])).await.unwrap();
        one(&store, held(session, vec![journal(no, 1, 1), Row::Close(no)])).await.unwrap();
        // A record is not only entries, so it takes the long way.
        let pair = Row::Put { space: Space::Pair, key: round.to_string(), value: [1].into() };
        one(&store, held(session, vec![pair, journal(batch, round, 1)])).await.unwrap();
    }
    // The server counts what a connection did at its end at the latest.
    drop(store);
    let outside = outside(&url).await;
    let counted = |column: &str, table: &str| {
        format!("SELECT sum({column})::bigint FROM pg_stat_user_tables WHERE schemaname = 'windlass' {table}")
    };
    let began = Instant::now();
    while number(&outside, &counted("n_tup_ins", "AND relname = 'versions'")).await
        < i64::from(3 * ROUNDS + 2)
    {
        assert!(began.elapsed() < PATIENCE, "the server does not count");
        tokio::task::yield_now().await;
    }
    assert_eq!(number(&outside, &counted("n_tup_upd", "")).await, 0);
    let kept = "SELECT count(*) FROM windlass.versions";
    assert!(number(&outside, kept).await <= 256, "old versions are deleted");
}

/// The owner goes on while somebody else has the session's row locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_appends_without_a_lock() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let store = open(&url).await;
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    let outside = outside(&url).await;
    outside.batch_execute("BEGIN; SELECT FROM windlass.sessions FOR UPDATE").await.unwrap();
    for row in 1..11 {
        let receipt = one(&store, held(session, vec![journal(batch, row, 1)])).await.unwrap();
        assert_eq!(receipt.first, EntryNo(u64::from(row) + 1));
    }
    outside.batch_execute("ROLLBACK").await.unwrap();
}

/// However long ago a session was taken, and even if it is gone: its former owner is refused at its first try, and at those behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_former_owner_is_refused_however_late() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let (old, new) = (open(&url).await, open(&url).await);
    let outside = outside(&url).await;
    for (lived_on, removed) in [(false, false), (true, false), (false, true), (true, true)] {
        let session = open_session(&old, &format!("{lived_on} {removed}")).await;
        let batch = begin(&old, session, "k").await;
        one(&old, held(session, vec![journal(batch, 1, 1)])).await.unwrap();
        let by = |hold, rows| SessionChange { hold, ..held(session, rows) };
        one(&new, by(Hold::Take { from: Fence(1), to: Fence(2) }, vec![])).await.unwrap();
        let mut row = 1;
        while lived_on && row < MANY {
            row += 1;
            one(&new, by(Hold::Held(Fence(2)), vec![journal(batch, row, 1)])).await.unwrap();
        }
        if removed {
            let piece = Removal { session, fence: Fence(2), most: 1_000 };
            while new.remove(piece).await.unwrap() != Ok(Removed::All) {}
        }
        let rows =
            |table: &str| format!("SELECT count(*) FROM windlass.{table} WHERE session = {}", session.0);
        let (journal_rows, versions) =
            (number(&outside, &rows("journal")).await, number(&outside, &rows("versions")).await);
        assert!(versions <= 260, "{versions} versions are kept");
        // The first is behind the version that the old owner wrote last, the others where the new owner has been.
        let sent: Vec<_> = (0..5)
            .map(|late| old.commit(vec![held(session, vec![journal(batch, 10_000 + late, 1)]).into()]))
            .collect();
        let now = Fence(if removed { 0 } else { 2 });
        for answer in sent {
            assert_eq!(answer.await.unwrap(), [Err(Refused::Fenced { now })], "{lived_on} {removed}");
        }
        assert_eq!(number(&outside, &rows("journal")).await, journal_rows);
        assert_eq!(number(&outside, &rows("versions")).await, versions);
        if !removed {
            assert_eq!(new.history(session, None, 1_000).await.unwrap().len() as i64, journal_rows);
        }
    }
}

/// A taker that lost to the owner's append once is in front of its next one, however soon the owner sends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_taker_is_not_starved() {
    const APPENDS_MAX: u64 = 20;
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let options = PostgresOptions { patience: PATIENCE, ..PostgresOptions::new(&url) };
    let new = PostgresStore::open(options).await.unwrap();
    let session = open_session(&open(&url).await, "s").await;
    // An owner that always has an append under way.
    let (owner, looking) = (outside(&url).await, outside(&url).await);
    let append = |version| {
        format!(
            "BEGIN; INSERT INTO windlass.versions
             SELECT session, {version}, fence, head, chain, generation, taken FROM windlass.versions
             WHERE session = {} AND version = 1",
            session.0
        )
    };
    owner.batch_execute(&append(2)).await.unwrap();
    let hold = Hold::Take { from: Fence(1), to: Fence(2) };
    let sent = new.commit(vec![SessionChange { hold, ..held(session, vec![]) }.into()]);
    let taking = tokio::spawn(sent);
    for version in 3.. {
        assert!(version < APPENDS_MAX, "the taker is starved");
        let waits = "SELECT count(*) FROM pg_stat_activity
                     WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while number(&looking, waits).await == 0 {
            tokio::task::yield_now().await;
        }
        owner.batch_execute("COMMIT").await.unwrap();
        // Refused: the taker is there.
        if owner.batch_execute(&append(version)).await.is_err() {
            break;
        }
    }
    assert!(taking.await.unwrap().unwrap()[0].is_ok());
    assert_eq!(new.session_by_no(session).await.unwrap().unwrap().fence, Fence(2));
}

/// An owner that never pauses does not keep others from taking its session, and what it was told is what is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_taken_from_an_owner_that_keeps_writing() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let (old, new) = (open(&url).await, open(&url).await);
    for round in 0..5 {
        let session = open_session(&old, &round.to_string()).await;
        let batch = begin(&old, session, "k").await;
        let under_way = Arc::new(AtomicBool::new(false));
        let writing = tokio::spawn(keep_writing(Arc::clone(&old), session, batch, Arc::clone(&under_way)));
        while !under_way.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        let hold = Hold::Take { from: Fence(1), to: Fence(2) };
        let taken = one(&new, SessionChange { hold, ..held(session, vec![]) }).await.unwrap();
        let written = writing.await.unwrap();
        assert_eq!(taken.first, EntryNo(written + 2));
        assert_eq!(new.journal(batch).await.unwrap().len() as u64, written + 1);
    }
}

/// Writes to a session until somebody else takes it; how many entries were acknowledged.
async fn keep_writing(
    store: Arc<dyn Store>,
    session: SessionNo,
    batch: BatchNo,
    under_way: Arc<AtomicBool>,
) -> u64 {
    let mut sent = std::collections::VecDeque::new();
    let mut written = 0;
    for row in 1.. {
        sent.push_back(store.commit(vec![held(session, vec![journal(batch, row, 1)]).into()]));
        if sent.len() < 8 {
            continue;
        }
        match sent.pop_front().unwrap().await.unwrap()[0] {
            Ok(_) => written += 1,
            refused => {
                assert_eq!(refused, Err(Refused::Fenced { now: Fence(2) }));
                break;
            }
        }
        under_way.store(true, Ordering::SeqCst);
    }
    for answer in sent {
        assert_eq!(answer.await.unwrap(), [Err(Refused::Fenced { now: Fence(2) })]);
    }
    written
}

/// A server that was set back, such as a replica that lacks the last commits, is noticed by the connection that made them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgot_a_commit_is_noticed() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let options = PostgresOptions { writers: 1, ..PostgresOptions::new(&url) };
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(options).await.unwrap());
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    let set_back = "DELETE FROM windlass.groups; SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
                    WHERE application_name LIKE 'windlass%' AND datname = current_database()";
    outside(&url).await.batch_execute(set_back).await.unwrap();
    let answer = store.commit(vec![held(session, vec![journal(batch, 1, 1)]).into()]).await;
    assert!(matches!(answer, Err(StoreError::Io { doing: "write", .. })), "{answer:?}");
    let health = store.health().borrow().clone();
    let Health::Closed { because } = health else { panic!("{health:?}") };
    assert!(because.contains("lacks commits that were acknowledged"), "{because}");
    assert_eq!(open(&url).await.journal(batch).await.unwrap().len(), 1);
}

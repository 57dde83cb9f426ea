//! The answer to a COMMIT is lost: whatever happened to it, whoever asked is told the truth.

use super::{cluster, open, outside};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::ids::{EntryNo, Fence, SessionNo};
use windlass_store::postgres::PostgresOptions;
use windlass_store::{
    Health, Hold, Inbound, Posted, PostgresStore, Receipt, Row, SessionChange, Store, StoreError,
};
use windlass_testkit::postgres::proxy::{CommitCut, Proxy};
use windlass_testkit::store_suite::{begin, held, journal, one, open as open_session};

const SESSIONS: u64 = 8;
const ROUNDS: u64 = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_lost_after_the_commit_is_read_back() {
    every_commit_is_answered_truthfully(CommitCut::AfterReply).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_lost_during_the_commit_is_decided() {
    every_commit_is_answered_truthfully(CommitCut::AfterForwarding).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_arrived_is_done_again() {
    every_commit_is_answered_truthfully(CommitCut::BeforeForwarding).await;
}

/// Several sessions, several rounds of several commits on the way, and every third COMMIT ends in a cut: each is
/// applied once and acknowledged.
async fn every_commit_is_answered_truthfully(cut: CommitCut) {
    let Some(cluster) = cluster() else { return };
    let database = cluster.database();
    let proxy = Proxy::start(cluster, cut).await;
    let store = open(&proxy.url(&database)).await;
    // The rows of groups do not stay; so they are counted when they are inserted.
    let tally = "CREATE TABLE public.tally (); CREATE FUNCTION tallied() RETURNS trigger LANGUAGE plpgsql AS
                     'BEGIN INSERT INTO public.tally DEFAULT VALUES; RETURN NULL; END';
                 CREATE TRIGGER tallied AFTER INSERT ON windlass.groups FOR EACH ROW
                     WHEN (NOT NEW.void) EXECUTE FUNCTION tallied()";
    outside(&database).await.batch_execute(tally).await.unwrap();
    proxy.cutting(3);
    let owners: Vec<_> = (0..SESSIONS)
        .map(|owner| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { rounds(&store, &format!("s{owner}")).await })
        })
        .collect();
    let mut sessions = Vec::new();
    for owner in owners {
        sessions.push(owner.await.unwrap());
    }
    proxy.cutting(0);
    assert!(proxy.cuts() >= 10, "{cut:?} happened {} times", proxy.cuts());

    let direct = open(&database).await;
    for session in sessions {
        let row = direct.session_by_no(session).await.unwrap().unwrap();
        assert_eq!((row.fence, row.head), (Fence(1 + ROUNDS), EntryNo(1 + 3 * ROUNDS)));
        let history = direct.history(session, None, 1_000).await.unwrap();
        let order: Vec<_> = history.iter().rev().map(|row| u64::from(row.row)).collect();
        assert_eq!(order, (0..=3 * ROUNDS).collect::<Vec<_>>());
        assert_eq!(direct.inbound(session, 1_000).await.unwrap().len() as u64, ROUNDS / 2);
    }
    let counted = "SELECT count(*) FROM public.tally";
    let counted: i64 = outside(&database).await.query_one(counted, &[]).await.unwrap().get(0);
    assert_eq!(store.commits(), counted as u64, "what it says it committed is what was committed");
}

/// The work of an owner: takes the session again, writes, posts, adopts; it checks every answer.
async fn rounds(store: &Arc<dyn Store>, name: &str) -> SessionNo {
    let session = open_session(store, name).await;
    let batch = begin(store, session, "k").await;
    for round in 0..ROUNDS {
        let (fence, row) = (Fence(round + 1), round as u32 * 3 + 1);
        let change = |hold, rows| SessionChange { hold, ..held(session, rows) };
        let take = change(Hold::Take { from: fence, to: Fence(fence.0 + 1) }, vec![journal(batch, row, 1)]);
        let held = |row| change(Hold::Held(Fence(fence.0 + 1)), vec![journal(batch, row, 1)]);
        // All three are on the way at once.
        let sent = [take, held(row + 1), held(row + 2)].map(|change| store.commit(vec![change.into()]));
        let message = Inbound { session, key: round.to_string(), body: vec![1] };
        let (posted, again) = (store.post(message.clone()), store.post(message));
        for (answer, first) in sent.into_iter().zip(round * 3 + 2..) {
            let answer = answer.await.unwrap();
            assert_eq!(
                answer,
                [Ok(Receipt { first: EntryNo(first), generation: 0 })],
                "{name} in round {round}"
            );
        }
        assert_eq!((posted.await.unwrap(), again.await.unwrap()), (Posted::New, Posted::Again));
        if round % 2 == 0 {
            let adopt = Row::Adopt { key: round.to_string() };
            let adopted = change(Hold::Held(Fence(fence.0 + 1)), vec![adopt]);
            one(store, adopted).await.unwrap();
        }
    }
    session
}

/// An append is one statement, which is committed by its end; wherever that is lost, every entry is there once, in its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_append_is_answered_truthfully() {
    let Some(cluster) = cluster() else { return };
    for cut in [CommitCut::BeforeForwarding, CommitCut::AfterForwarding, CommitCut::AfterReply] {
        let database = cluster.database();
        let proxy = Proxy::start(cluster, cut).await;
        let store = open(&proxy.url(&database)).await;
        let session = open_session(&store, "s").await;
        let batch = begin(&store, session, "k").await;
        // While somebody else has the row locked, nothing but an append can be committed.
        let outside = outside(&database).await;
        for row in 1..11 {
            proxy.cutting(1);
            let lock = "BEGIN; SELECT FROM windlass.sessions FOR UPDATE";
            outside.batch_execute(lock).await.unwrap();
            let sent = store.commit(vec![held(session, vec![journal(batch, row, 1)]).into()]);
            while proxy.cuts() < row {
                tokio::task::yield_now().await;
            }
            proxy.cutting(0);
            outside.batch_execute("ROLLBACK").await.unwrap();
            let first = EntryNo(u64::from(row) + 1);
            assert_eq!(sent.await.unwrap(), [Ok(Receipt { first, generation: 0 })], "{cut:?}");
        }
        assert_eq!(store.journal(batch).await.unwrap().len(), 11, "{cut:?}");
        let voided = "SELECT count(*) FROM windlass.groups WHERE void";
        let voided: i64 = outside.query_one(voided, &[]).await.unwrap().get(0);
        match cut {
            CommitCut::BeforeForwarding => assert_eq!(voided, 10),
            CommitCut::AfterForwarding => assert!(voided <= 10),
            CommitCut::AfterReply => assert_eq!(voided, 0),
        }
    }
}

/// The server is still at the COMMIT when it is read back: whoever asks must wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_takes_its_time_is_waited_for() {
    let Some(cluster) = cluster() else { return };
    let database = cluster.database();
    let proxy = Proxy::start(cluster, CommitCut::AfterForwarding).await;
    let store = open(&proxy.url(&database)).await;
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
                    'BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END';
                CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON windlass.journal
                    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()";
    outside(&database).await.batch_execute(slow).await.unwrap();
    proxy.cutting(1);
    let answer = store.commit(vec![held(session, vec![journal(batch, 1, 1)]).into()]);
    assert_eq!(answer.await.unwrap(), [Ok(Receipt { first: EntryNo(2), generation: 0 })]);
    assert_eq!(proxy.cuts(), 1, "it was decided, not done again");
    assert_eq!(store.journal(batch).await.unwrap().len(), 2);
}

/// It cannot be found out: then nobody is answered, until the store is closed; then it is an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_decided_is_an_error_at_the_end() {
    let Some(cluster) = cluster() else { return };
    for (cut, applied) in [(CommitCut::AfterReply, true), (CommitCut::BeforeForwarding, false)] {
        let database = cluster.database();
        let proxy = Proxy::for_good(cluster, cut).await;
        let patience = Duration::from_millis(200);
        let options = PostgresOptions { patience, ..PostgresOptions::new(proxy.url(&database)) };
        let store: Arc<dyn Store> = Arc::new(PostgresStore::open(options).await.unwrap());
        let session = open_session(&store, "s").await;
        let batch = begin(&store, session, "k").await;
        proxy.cutting(1);
        let answer = store.commit(vec![held(session, vec![journal(batch, 1, 1)]).into()]);
        let later = store.commit(vec![held(session, vec![journal(batch, 2, 1)]).into()]);
        let mut health = store.health();
        health.wait_for(|health| matches!(health, Health::Stalled { .. })).await.unwrap();
        drop(store);
        let Err(StoreError::Io { doing: "write", source }) = answer.await else { panic!("{cut:?}") };
        assert!(source.to_string().contains("could not be determined"), "{source}");
        assert!(source.source().is_some(), "it says why");
        let later = later.await;
        // It was in that group, or waited for it.
        assert!(matches!(later, Err(StoreError::Io { .. } | StoreError::Poisoned { .. })), "{later:?}");
        let rows = open(&database).await.journal(batch).await.unwrap().len();
        // The later one is applied with the group that it was in.
        let expected = if applied { 2..=3 } else { 1..=1 };
        assert!(expected.contains(&rows), "{cut:?}: {rows} rows");
    }
}

/// Every connection is ended by the server between two writes: nobody notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_connections_are_made_anew() {
    let Some(cluster) = cluster() else { return };
    let database = cluster.database();
    let store = open(&database).await;
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    let outside = outside(&database).await;
    for row in 1..6 {
        let ended = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
                     WHERE application_name LIKE 'windlass%' AND datname = current_database()";
        let ended: i64 = outside.query_one(ended, &[]).await.unwrap().get(0);
        assert!(ended > 0, "nothing was ended");
        one(&store, held(session, vec![journal(batch, row, 1)])).await.unwrap();
        assert_eq!(store.journal(batch).await.unwrap().len() as u32, row + 1);
    }
}

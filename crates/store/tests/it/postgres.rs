//! The suite on PostgreSQL, and what is particular to it. Each case has a database of its own.

mod append;
mod formats;
mod gather;
mod lost;
mod outage;
mod pool;
mod secure;
mod wakes;
mod workers;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};
use windlass_core::ids::{BlobNo, EntryNo, SessionNo};
use windlass_store::postgres::PostgresOptions;
use windlass_store::{
    Durability, Inbound, PostgresStore, RecordChange, Row, Sequence, Store, StoreError, StoreSpace,
};
use windlass_testkit::postgres::Cluster;
use windlass_testkit::store_suite::{
    SuiteStore, begin, held, journal, lookup, next, one, open as open_session,
};

windlass_testkit::store_suite!(suite, super::made().await);

/// The server of this process, if there can be one.
fn cluster() -> Option<&'static Cluster> {
    Cluster::of_process(env!("CARGO_TARGET_TMPDIR"))
}

/// A server that only this test uses.
fn alone(settings: impl FnOnce(&Path) -> anyhow::Result<String>) -> Option<Cluster> {
    Cluster::alone(env!("CARGO_TARGET_TMPDIR"), settings)
}

/// A store in a new database.
async fn made() -> Option<SuiteStore> {
    let url = cluster()?.database();
    Some(SuiteStore { store: open(&url).await, other: open(&url).await, folder: None })
}

/// One more who opens this database.
async fn open(url: &str) -> Arc<dyn Store> {
    Arc::new(PostgresStore::open(PostgresOptions::new(url)).await.unwrap())
}

/// A connection that somebody outside has to the database.
async fn outside(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(async move { connection.await.unwrap() });
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_kept_is_there_after_reopening() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let store = open(&url).await;
    assert_eq!(store.durability(), Durability::Full);
    let session = open_session(&store, "s").await;
    let (done, going) = (begin(&store, session, "done").await, begin(&store, session, "going").await);
    let blob = BlobNo(next(&store, Sequence::Blob).await);
    let piece = Row::Chunk { blob, seq: 0, data: b"bytes"[..].into() };
    let rows = vec![journal(done, 1, 3), Row::Close(done), piece];
    // Closing writes what waits.
    let sent = store.commit(vec![held(session, rows).into()]);
    let secret = store.secret().0;
    drop(store);
    assert!(sent.await.unwrap()[0].is_ok());

    let store = open(&url).await;
    assert_eq!(store.secret().0, secret);
    assert_eq!(store.session("s").await.unwrap().unwrap().head, EntryNo(5));
    assert!(!store.batch(lookup(session, "done")).await.unwrap().unwrap().open);
    assert_eq!(store.open_batches(None).await.unwrap()[0].no, going);
    assert_eq!(store.blob(blob, 1, 3).await.unwrap(), Some(b"yte".to_vec()));
    assert!(next(&store, Sequence::Batch).await > going.0);
    let receipt = one(&store, held(session, vec![journal(going, 1, 1)])).await.unwrap();
    assert_eq!(receipt.first, EntryNo(6), "the session goes on where it was");
    drop(store);
    let left = "SELECT count(*) FROM windlass.groups";
    assert_eq!(outside(&url).await.query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_wait_share_one() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let store = open(&url).await;
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    let before = store.commits();
    // While nobody can append, the lane has what it took and everybody else waits.
    let outside = outside(&url).await;
    outside.batch_execute("BEGIN; LOCK TABLE windlass.versions IN SHARE MODE").await.unwrap();
    let sent: Vec<_> =
        (1..65).map(|row| store.commit(vec![held(session, vec![journal(batch, row, 1)]).into()])).collect();
    outside.batch_execute("ROLLBACK").await.unwrap();
    for answer in sent {
        assert!(answer.await.unwrap()[0].is_ok());
    }
    let groups = store.commits() - before;
    assert!(groups <= 2, "64 commits took {groups} transactions");
}

/// Another session takes another lane, so one that waits holds up nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_waits_does_not_hold_up_the_next() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let store = open(&url).await;
    let (a, b) = (open_session(&store, "a").await, open_session(&store, "b").await);
    let outside = outside(&url).await;
    outside.batch_execute("BEGIN; SELECT FROM windlass.sessions WHERE name = 'a' FOR UPDATE").await.unwrap();
    let waiting = store.commit(vec![held(a, vec![]).into()]);
    begin(&store, b, "k").await;
    outside.batch_execute("ROLLBACK").await.unwrap();
    assert!(waiting.await.unwrap()[0].is_ok());
}

/// Each record of the whole store is locked by itself, so one that waits holds up those of its lane and no others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_waits_does_not_hold_up_the_next() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let (store, outside) = (open(&url).await, outside(&url).await);
    let put = |key: String| store.commit(vec![RecordChange::put(StoreSpace::Setting, key, [1]).into()]);
    assert!(put("waits".to_owned()).await.unwrap()[0].is_ok());
    outside
        .batch_execute("BEGIN; SELECT FROM windlass.records WHERE key = 'waits' FOR UPDATE")
        .await
        .unwrap();
    let waiting = put("waits".to_owned());
    let waits = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
                 WHERE d.datname = current_database() AND l.locktype = 'tuple'";
    while outside.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
    let mut others: JoinSet<_> = (0..32).map(|no| put(format!("other {no}"))).collect();
    // There are four lanes, and keys are spread over them.
    for _ in 0..12 {
        assert!(others.join_next().await.unwrap().unwrap().unwrap()[0].is_ok());
    }
    outside.batch_execute("ROLLBACK").await.unwrap();
    assert!(waiting.await.unwrap()[0].is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failed_write_nothing_is_written_until_it_is_opened_anew() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let store = open(&url).await;
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    let broken = "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS
                      $$ BEGIN RAISE 'the disk is on fire'; END $$;
                  CREATE TRIGGER broken BEFORE INSERT ON windlass.journal FOR EACH ROW
                      WHEN (NEW.count = 7) EXECUTE FUNCTION broken()";
    outside(&url).await.batch_execute(broken).await.unwrap();
    let error = store.commit(vec![held(session, vec![journal(batch, 1, 7)]).into()]).await.unwrap_err();
    assert!(matches!(error, StoreError::Io { doing: "write", .. }), "{error:?}");
    let mut why: &dyn Error = &error;
    while let Some(deeper) = why.source() {
        why = deeper;
    }
    assert!(why.to_string().contains("on fire"), "{why}");
    for session in (0..4).map(|more| SessionNo(session.0 + more)) {
        let later = store.commit(vec![held(session, vec![]).into()]).await;
        assert!(matches!(later, Err(StoreError::Poisoned { .. })), "{later:?}");
    }
    let message = Inbound { session, key: "m".to_owned(), body: vec![] };
    assert!(matches!(store.post(message).await, Err(StoreError::Poisoned { .. })));
    assert_eq!(store.journal(batch).await.unwrap().len(), 1, "reading goes on");
    drop(store);
    assert!(one(&open(&url).await, held(session, vec![journal(batch, 1, 1)])).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_noticed() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let (store, outside) = (open(&url).await, outside(&url).await);
    for (damage, noticed_by_batch) in [
        ("UPDATE windlass.journal SET data = 'x' WHERE first = 2 AND session = $1", true),
        ("UPDATE windlass.journal SET link = '\\x00' WHERE first = 2 AND session = $1", true),
        ("UPDATE windlass.journal SET before = '\\x00' WHERE first = 3 AND session = $1", true),
        ("UPDATE windlass.journal SET session = 99 WHERE first = 2 AND session = $1", true),
        ("DELETE FROM windlass.journal WHERE first = 1 AND session = $1", false),
        ("DELETE FROM windlass.journal WHERE first = 2 AND session = $1", false),
        ("DELETE FROM windlass.journal WHERE first = 3 AND session = $1", false),
        ("UPDATE windlass.versions SET chain = '\\x00' WHERE version = 4 AND session = $1", false),
        ("UPDATE windlass.versions SET head = 2 WHERE version = 4 AND session = $1", false),
    ] {
        let session = open_session(&store, damage).await;
        let batch = begin(&store, session, "k").await;
        for row in 1..3 {
            one(&store, held(session, vec![journal(batch, row, 1)])).await.unwrap();
        }
        assert_eq!(store.history(session, None, 10).await.unwrap().len(), 3);
        assert_eq!(outside.execute(damage, &[&(session.0 as i64)]).await.unwrap(), 1);
        let history = store.history(session, None, 10).await;
        assert!(matches!(history, Err(StoreError::Damaged { .. })), "{damage}: {history:?}");
        let read = store.journal(batch).await;
        assert_eq!(matches!(read, Err(StoreError::Damaged { .. })), noticed_by_batch, "{damage}: {read:?}");
    }
}

/// How fast is not judged, only said: run it with `--no-capture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_share_commits() {
    let Some(cluster) = cluster() else { return };
    let store = open(&cluster.database()).await;
    for callers in [1, 64] {
        let (started, before) = (Instant::now(), store.commits());
        let running: Vec<_> = (0..callers)
            .map(|caller| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    let session = open_session(&store, &format!("{callers} {caller}")).await;
                    let batch = begin(&store, session, "k").await;
                    for row in 1..51 {
                        one(&store, held(session, vec![journal(batch, row, 1)])).await.unwrap();
                    }
                })
            })
            .collect();
        for caller in running {
            caller.await.unwrap();
        }
        let (took, groups) = (started.elapsed().as_secs_f64(), store.commits() - before);
        let changes = f64::from(callers) * 52.0;
        println!(
            "{callers} at once: {:.0} changes/s in {:.0} commits/s",
            changes / took,
            groups as f64 / took
        );
    }
}

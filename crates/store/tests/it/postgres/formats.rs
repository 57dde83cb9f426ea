//! Formats of the database: who may open which, and how one becomes the next.

use super::{cluster, open, outside};
use tokio_postgres::Client;
use windlass_core::ids::EntryNo;
use windlass_store::postgres::{MigratedFormats, PostgresOptions};
use windlass_store::{PostgresStore, StoreError};
use windlass_testkit::store_suite::{begin, held, journal, one, open as open_session};

/// The tables of format 5, as they were made.
const FORMAT_5: &str = include_str!("format-5.sql");

async fn refused(url: &str) -> StoreError {
    PostgresStore::open(PostgresOptions::new(url)).await.map(|_store| ()).unwrap_err()
}

async fn set(client: &Client, key: &str, format: u32) {
    let set = format!(
        "INSERT INTO windlass.meta (key, value) VALUES ('{key}', '\\x{format:08x}')
         ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    );
    client.batch_execute(&set).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_format_is_migrated_by_its_own_command() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let outside = outside(&url).await;
    outside.batch_execute(FORMAT_5).await.unwrap();
    set(&outside, "format", 5).await;
    let secret = [7; 32];
    let digest = *blake3::hash(&secret).as_bytes();
    let put = "INSERT INTO windlass.meta (key, value) VALUES ('secret', $1), ('secret_digest', $2)";
    outside.execute(put, &[&&secret[..], &&digest[..]]).await.unwrap();
    let old = "INSERT INTO windlass.sessions (no, name, name_key) VALUES (1, 'old', $1);";
    outside.execute(old, &[&&blake3::hash(b"old").as_bytes()[..]]).await.unwrap();
    let version =
        "INSERT INTO windlass.versions VALUES (1, 1, 1, 0, decode(repeat('00', 32), 'hex'), 0, false);
                   SELECT setval('windlass.session_no', 1)";
    outside.batch_execute(version).await.unwrap();

    let error = refused(&url).await;
    assert!(error.to_string().contains("run `windlass migrate`"), "{error}");
    let migrated = PostgresStore::migrate(PostgresOptions::new(&url)).await.unwrap();
    assert_eq!(migrated, MigratedFormats { from: Some(5), to: 6 });
    let again = PostgresStore::migrate(PostgresOptions::new(&url)).await.unwrap();
    assert_eq!(again, MigratedFormats { from: Some(6), to: 6 });
    let store = open(&url).await;
    assert_eq!(store.secret().0, secret);
    let session = store.session("old").await.unwrap().unwrap().no;
    let batch = begin(&store, session, "k").await;
    one(&store, held(session, vec![journal(batch, 1, 1)])).await.unwrap();
    assert_eq!(store.session("old").await.unwrap().unwrap().head, EntryNo(2));

    set(&outside, "format", 4).await;
    let error = PostgresStore::migrate(PostgresOptions::new(&url)).await.unwrap_err();
    let StoreError::Open { source: Some(source), .. } = &error else { panic!("{error:?}") };
    assert!(source.to_string().contains("make a new database"), "{source}");
}

/// A later migration adds something and leaves the rest: this version goes on beside the next one. Then it drops something.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_versions_work_side_by_side_until_the_older_is_dropped() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let outside = outside(&url).await;
    drop(open(&url).await);
    set(&outside, "format", 7).await;
    outside.batch_execute("ALTER TABLE windlass.batches ADD COLUMN later text").await.unwrap();
    let store = open(&url).await;
    let session = open_session(&store, "s").await;
    begin(&store, session, "k").await;
    let unchanged = PostgresStore::migrate(PostgresOptions::new(&url)).await.unwrap();
    assert_eq!(unchanged, MigratedFormats { from: Some(7), to: 7 });
    set(&outside, "usable_by", 7).await;
    let error = refused(&url).await;
    assert!(matches!(error, StoreError::Newer { found: 7, known: 6, .. }), "{error:?}");
}

/// Workers run as a role that may not create anything; that role cannot make a store by opening it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_needs_no_right_to_create() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let outside = outside(&url).await;
    outside.batch_execute("CREATE ROLE worker LOGIN").await.unwrap();
    let as_worker = url.replace("user=windlass", "user=worker");
    let error = refused(&as_worker).await;
    assert!(error.to_string().contains("run `windlass migrate` as a role that may create"), "{error}");
    let (a, b) = tokio::join!(
        PostgresStore::migrate(PostgresOptions::new(&url)),
        PostgresStore::migrate(PostgresOptions::new(&url)),
    );
    let mut made = [a.unwrap().from, b.unwrap().from];
    made.sort_unstable();
    assert_eq!(made, [None, Some(6)], "one of two who migrate waits for the other");
    outside.batch_execute("SELECT windlass.grant_use('worker')").await.unwrap();
    let store = open(&as_worker).await;
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    one(&store, held(session, vec![journal(batch, 1, 1)])).await.unwrap();
    assert_eq!(store.journal(batch).await.unwrap().len(), 2);
}

/// Rows of groups whose writers died long ago go; those of others stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_dead_writers_are_swept() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let postgres = PostgresStore::open(PostgresOptions::new(&url)).await.unwrap();
    let outside = outside(&url).await;
    let dead = "INSERT INTO windlass.groups (writer, no, void, at)
                SELECT 'dead', no, no % 2 = 0, now() - no * interval '8 days' FROM generate_series(1, 6) AS no";
    outside.batch_execute(dead).await.unwrap();
    assert_eq!(postgres.sweep().await.unwrap(), 3);
    let left: i64 = outside.query_one("SELECT max(no) FROM windlass.groups", &[]).await.unwrap().get(0);
    assert_eq!(left, 3);
    assert_eq!(postgres.sweep().await.unwrap(), 0);
}

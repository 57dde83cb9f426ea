//! Everything works through a pool in transaction mode, which hands each transaction to another connection.

use super::{cluster, open, outside};
use std::sync::{Arc, OnceLock};
use tokio::task::JoinSet;
use windlass_core::ids::EntryNo;
use windlass_store::PostgresStore;
use windlass_store::postgres::PostgresOptions;
use windlass_testkit::postgres::PgbouncerPool;
use windlass_testkit::store_suite::{SuiteStore, begin, held, journal, one, open as open_session};

windlass_testkit::store_suite!(as one test: the_suite_passes_through_a_pool, pooled().await);

/// The pool of this process, with fewer connections than a store wants.
fn pool() -> Option<&'static PgbouncerPool> {
    static POOL: OnceLock<Option<PgbouncerPool>> = OnceLock::new();
    let cluster = cluster()?;
    POOL.get_or_init(|| PgbouncerPool::start(cluster, 3)).as_ref()
}

async fn pooled() -> Option<SuiteStore> {
    let (cluster, pool) = (cluster()?, pool()?);
    let url = pool.url(&cluster.database());
    Some(SuiteStore { store: open(&url).await, other: open(&url).await, folder: None })
}

/// More connections than the server gives, and everybody writes and reads: slower, never an error. No setting stays behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_few_connections_serve_several_workers() {
    let (Some(cluster), Some(pool)) = (cluster(), pool()) else { return };
    let database = cluster.database();
    let url = pool.url(&database);
    let mut running = JoinSet::new();
    for worker in 0..3 {
        let options = PostgresOptions { writers: 6, readers: 3, ..PostgresOptions::new(&url) };
        let store: Arc<dyn windlass_store::Store> = Arc::new(PostgresStore::open(options).await.unwrap());
        for session in 0..8 {
            let store = Arc::clone(&store);
            running.spawn(async move {
                let session = open_session(&store, &format!("{worker} {session}")).await;
                let batch = begin(&store, session, "k").await;
                for row in 1..31 {
                    one(&store, held(session, vec![journal(batch, row, 1)])).await.unwrap();
                    assert_eq!(store.journal(batch).await.unwrap().len() as u32, row + 1);
                }
                assert_eq!(store.session_by_no(session).await.unwrap().unwrap().head, EntryNo(31));
            });
        }
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
    let outside = outside(&url).await;
    let settings = "SHOW lock_timeout; SHOW idle_in_transaction_session_timeout; SHOW search_path";
    for _any in 0..6 {
        for setting in outside.simple_query(settings).await.unwrap() {
            if let tokio_postgres::SimpleQueryMessage::Row(row) = setting {
                assert!(["0", "\"$user\", public"].contains(&row.get(0).unwrap()), "{:?}", row.get(0));
            }
        }
    }
}

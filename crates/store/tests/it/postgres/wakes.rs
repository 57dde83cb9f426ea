//! Waking the workers of other processes.

use super::{cluster, open, outside};
use std::sync::Arc;
use std::time::Duration;
use windlass_store::postgres::PostgresOptions;
use windlass_store::{PostgresStore, Store, WakeWay};
use windlass_testkit::postgres::PgbouncerPool;

const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until it is known how wakes travel.
async fn tested(store: &Arc<dyn Store>) -> WakeWay {
    let known = async {
        while store.wake_way() == WakeWay::Testing {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, known).await.unwrap();
    store.wake_way()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_woken_by_another_process() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let (one, other) = (open(&url).await, open(&url).await);
    assert_eq!((tested(&one).await, tested(&other).await), (WakeWay::Notify, WakeWay::Notify));
    let (mut mine, mut theirs) = (one.wakes("mine"), one.wakes("theirs"));
    for _wake in 0..3 {
        other.wake("mine");
        tokio::time::timeout(PATIENCE, mine.next()).await.expect("it is not woken");
    }
    assert!(tokio::time::timeout(Duration::from_millis(50), theirs.next()).await.is_err(), "nobody woke it");
    // While a connection is lost, wakes are: so everybody is woken when there is one again.
    let ended = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
                 WHERE application_name = 'windlass wake' AND datname = current_database()";
    assert_eq!(outside(&url).await.query_one(ended, &[]).await.unwrap().get::<_, i64>(0), 2);
    tokio::time::timeout(PATIENCE, theirs.next()).await.expect("it does not look");
    // Both lines come back.
    let again = async {
        loop {
            other.wake("theirs");
            if tokio::time::timeout(Duration::from_millis(100), theirs.next()).await.is_ok() {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("it is not woken again");
}

/// A pool swallows notifications without a word: that is found out. With the server's own address they come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_swallows_wakes_is_found_out() {
    let Some(cluster) = cluster() else { return };
    let Some(pool) = PgbouncerPool::start(cluster, 3) else { return };
    let database = cluster.database();
    let pooled = PostgresOptions::new(pool.url(&database));
    let direct = PostgresOptions { direct: Some(database.clone()), ..pooled.clone() };
    for (options, way) in [(pooled, WakeWay::Poll), (direct, WakeWay::Notify)] {
        let store: Arc<dyn Store> = Arc::new(PostgresStore::open(options).await.unwrap());
        assert_eq!(tested(&store).await, way);
    }
}

//! The suite on PostgreSQL, and what is particular to it. Each case has a database of its own.

use std::sync::Arc;
use windlass_store::postgres::Options;
use windlass_store::{PostgresStore, Store};
use windlass_testkit::postgres::Cluster;
use windlass_testkit::store_suite::Made;

windlass_testkit::store_suite!(suite, super::made().await);

/// The server of this process, if there can be one.
fn cluster() -> Option<&'static Cluster> {
    Cluster::of_process(env!("CARGO_TARGET_TMPDIR"))
}

/// A store in a new database.
async fn made() -> Option<Made> {
    let url = cluster()?.database();
    Some(Made { store: open(&url).await, folder: None })
}

/// One more who opens this database.
async fn open(url: &str) -> Arc<dyn Store> {
    Arc::new(PostgresStore::open(Options::new(url)).await.unwrap())
}

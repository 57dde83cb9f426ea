//! Every store against the one suite, and what is particular to SQLite.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod backup;
mod damage;
mod expiry;
mod folder;
mod led;
mod log;
#[cfg(feature = "postgres")]
mod postgres;
mod sqlite;
mod stall;
mod sync;

use std::sync::Arc;
use tempfile::TempDir;
use windlass_store::sqlite::Options;
use windlass_store::{MemoryStore, SqliteStore, Store};
use windlass_testkit::store_suite::SuiteStore;

windlass_testkit::store_suite!(memory_suite, super::memory());
windlass_testkit::store_suite!(sqlite_suite, super::in_folder());

fn memory() -> SuiteStore {
    let store = MemoryStore::new().unwrap();
    SuiteStore { store: Arc::new(store.clone()), other: Arc::new(store), folder: None }
}

fn in_folder() -> SuiteStore {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    SuiteStore { other: Arc::clone(&store), store, folder: Some(folder) }
}

fn open(folder: &TempDir) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(Options::new(folder.path())).unwrap())
}

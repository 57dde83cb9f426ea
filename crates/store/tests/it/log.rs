//! The write-ahead log beside a busy writer.

use std::sync::Arc;
use tempfile::TempDir;
use windlass_core::ids::BlobNo;
use windlass_store::sqlite::Options;
use windlass_store::{Durability, Row, SqliteStore, Store};
use windlass_testkit::store_suite::{held, open as open_session};

/// Less than the limit at which the writer waits for the log to be checkpointed, more than a loaded machine needs.
const LOG_BYTES_MAX: u64 = 48 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_begun_anew_beside_a_busy_writer() {
    let folder = TempDir::new().unwrap();
    let options = Options { durability: Durability::Relaxed, ..Options::new(folder.path()) };
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(options).unwrap());
    let session = open_session(&store, "s").await;
    let blob = BlobNo(store.reserve(windlass_store::Sequence::Blob, 1).await.unwrap());
    let piece: Arc<[u8]> = vec![7; 64 << 10].into();
    // Five times the limit, in small commits: there is always one more by the time that a checkpoint has ended.
    for seq in 0..5_120 {
        let row = Row::Chunk { blob, seq, data: piece.clone() };
        store.commit(vec![held(session, vec![row]).into()]).await.unwrap().pop().unwrap().unwrap();
    }
    let log = std::fs::metadata(folder.path().join("windlass.db-wal")).unwrap().len();
    assert!(log < LOG_BYTES_MAX, "the log has grown to {log} bytes");
}

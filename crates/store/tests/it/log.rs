//! The write-ahead log beside a busy writer.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tempfile::TempDir;
use windlass_core::ids::BlobNo;
use windlass_store::sqlite::Options;
use windlass_store::{Durability, Row, SqliteStore, Store};
use windlass_testkit::store_suite::{held, open as open_session};

/// The size of each commit.
const PIECE_BYTES: usize = 64 << 10;
/// Rather less than what makes the writer wait for the log, after which it begins anew however that is done.
const COMMITS_MAX: u64 = (48 << 20) / PIECE_BYTES as u64;
/// On a machine so loaded that the checkpointer gets no time, the log grows now and then: a longer run has other moments.
const COMMITS: u64 = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_begun_anew_beside_a_busy_writer() {
    let folder = TempDir::new().unwrap();
    let options = Options { durability: Durability::Relaxed, ..Options::new(folder.path()) };
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(options).unwrap());
    let session = open_session(&store, "s").await;
    let blob = BlobNo(store.reserve(windlass_store::Sequence::Blob, 1).await.unwrap());
    let piece: Arc<[u8]> = vec![7; PIECE_BYTES].into();
    let log = File::open(folder.path().join("windlass.db-wal")).unwrap();
    let (mut round, mut since) = (salts(&log), 0);
    // Small commits, one behind the other: there is always one more by the time that a checkpoint has ended.
    for seq in 0..COMMITS {
        let row = Row::Chunk { blob, seq: u32::try_from(seq).unwrap(), data: piece.clone() };
        store.commit(vec![held(session, vec![row]).into()]).await.unwrap().pop().unwrap().unwrap();
        since += 1;
        let now = salts(&log);
        if now != round {
            if since < COMMITS_MAX {
                return;
            }
            (round, since) = (now, 0);
        }
    }
    panic!("the log was never begun anew within {COMMITS_MAX} commits");
}

/// The numbers in the head of the log that change when it is begun anew.
fn salts(log: &File) -> [u8; 8] {
    let mut salts = [0; 8];
    log.read_exact_at(&mut salts, 16).unwrap();
    salts
}

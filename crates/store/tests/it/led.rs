//! Writes that a lone caller makes in its own thread, in the place of the writer's.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use windlass_core::ids::{BatchNo, SessionNo};
use windlass_store::sqlite::Options;
use windlass_store::{Answer, Durability, Health, Receipt, Refused, SqliteStore, Store};
use windlass_testkit::store_suite::{begin, held, journal, open as open_session};

/// A store whose commits wait for no disk, so that every one of them is fast.
fn open_fast(folder: &Path) -> Arc<dyn Store> {
    let options = Options { durability: Durability::Relaxed, ..Options::new(folder) };
    Arc::new(SqliteStore::open(options).unwrap())
}

/// A batch, and the next row of its journal.
struct Rows {
    session: SessionNo,
    batch: BatchNo,
    next: u32,
}

impl Rows {
    async fn open(store: &Arc<dyn Store>, name: &str) -> Rows {
        let session = open_session(store, name).await;
        Rows { session, batch: begin(store, session, name).await, next: 1 }
    }

    fn write(&mut self, store: &Arc<dyn Store>) -> Answer<Vec<Result<Receipt, Refused>>> {
        self.next += 1;
        store.commit_here(vec![held(self.session, vec![journal(self.batch, self.next - 1, 1)]).into()])
    }

    async fn count(&self, store: &Arc<dyn Store>) -> usize {
        store.history(self.session, None, 10_000).await.unwrap().len()
    }
}

/// Writes until a row was written before anybody could have been woken: the thread that asked has written it.
async fn write_until_led(store: &Arc<dyn Store>, rows: &mut Rows) {
    for _ in 0..1_000 {
        match rows.write(store).known() {
            Ok(written) => {
                written.unwrap().pop().unwrap().unwrap();
                return;
            }
            Err(answer) => answer.await.unwrap().pop().unwrap().unwrap(),
        };
    }
    panic!("no caller wrote in the writer's place");
}

#[tokio::test]
async fn a_lone_caller_writes_in_its_own_thread() {
    let folder = TempDir::new().unwrap();
    let store = open_fast(folder.path());
    let mut rows = Rows::open(&store, "s").await;
    for _ in 0..20 {
        write_until_led(&store, &mut rows).await;
    }
    let before = rows.count(&store).await;
    drop(store);
    assert_eq!(rows.count(&open_fast(folder.path())).await, before);
}

#[tokio::test]
async fn a_write_is_made_though_nobody_asks_for_its_answer() {
    let folder = TempDir::new().unwrap();
    let store = open_fast(folder.path());
    let mut rows = Rows::open(&store, "s").await;
    for _ in 0..20 {
        write_until_led(&store, &mut rows).await;
        let before = rows.count(&store).await;
        drop(rows.write(&store));
        let began = Instant::now();
        while rows.count(&store).await == before {
            assert!(began.elapsed() < Duration::from_secs(30), "it is never written");
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_a_caller_could_not_make_is_left_to_the_writer() {
    let above = TempDir::new().unwrap();
    let (data, away) = (above.path().join("data"), above.path().join("away"));
    let store = open_fast(&data);
    let mut rows = Rows::open(&store, "s").await;
    write_until_led(&store, &mut rows).await;
    let before = rows.count(&store).await;
    // The writer hears of it from the caller, and from nobody else.
    std::fs::rename(&data, &away).unwrap();
    let written = rows.write(&store).known().expect_err("it is not acknowledged");
    std::fs::rename(&away, &data).unwrap();
    let written = tokio::time::timeout(Duration::from_secs(30), written).await.expect("it is made");
    written.unwrap().pop().unwrap().unwrap();
    // Others may come meanwhile.
    write_until_led(&store, &mut rows).await;
    let others = rows.count(&store).await - before;
    std::fs::rename(&data, &away).unwrap();
    let written = rows.write(&store).known().expect_err("it is not acknowledged");
    store.health().wait_for(|health| *health != Health::Ready).await.unwrap();
    let later = rows.write(&store).known().expect_err("nor is one behind it");
    std::fs::rename(&away, &data).unwrap();
    written.await.unwrap().pop().unwrap().unwrap();
    later.await.unwrap().pop().unwrap().unwrap();
    assert_eq!(rows.count(&store).await, before + others + 2, "each row is there once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_and_the_writer_take_turns_and_nothing_is_left_behind() {
    let folder = TempDir::new().unwrap();
    let store = open_fast(folder.path());
    let writing = (0..8).map(|number: u32| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let mut rows = Rows::open(&store, &format!("s{number}")).await;
            for round in 0..200 {
                let answer = rows.write(&store);
                let written = match (round + number) % 3 {
                    0 => continue,
                    1 => answer.await,
                    _ => match answer.known() {
                        Ok(written) => written,
                        Err(answer) => answer.await,
                    },
                };
                written.unwrap().pop().unwrap().unwrap();
            }
            // Whatever was sent before it is written before it.
            rows.write(&store).await.unwrap().pop().unwrap().unwrap();
            rows.count(&store).await
        })
    });
    for written in writing.collect::<Vec<_>>() {
        assert_eq!(written.await.unwrap(), 202, "with the row that begins the batch");
    }
}

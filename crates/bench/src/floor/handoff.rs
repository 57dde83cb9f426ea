//! One writer thread behind a channel: what a durable call costs at least when many run at once.

use super::{FloorError, apart, sqlite};
use crate::rate::{Laps, MeasuredRate};
use rusqlite::Connection;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Rows that share one commit at most, as in Windlass.
const GROUP_MAX: usize = 1_024;

/// A row on its way to the writer, and where to say that it is durable.
pub(crate) struct HandoffRow {
    payload: Vec<u8>,
    durable: oneshot::Sender<()>,
}

/// One writer thread that commits everything that is waiting in one transaction, until nobody can send any more.
pub(crate) struct Handoff {
    rows: mpsc::Sender<HandoffRow>,
}

impl Handoff {
    /// Starts it on a new file in this folder; what ends with it is told when the thread is joined.
    pub(crate) fn start(
        folder: &Path,
        concurrent: usize,
    ) -> Result<(Handoff, JoinHandle<Result<(), FloorError>>), FloorError> {
        let mut db = sqlite::open(folder)?;
        let (rows, mut waiting) = mpsc::channel(concurrent.max(1));
        Ok((Handoff { rows }, std::thread::spawn(move || write(&mut db, &mut waiting))))
    }

    /// Waits until a row of so many bytes is durable. `false`: the writer has stopped.
    pub(crate) async fn commit(&self, bytes: usize) -> bool {
        let (durable, told) = oneshot::channel();
        let row = HandoffRow { payload: vec![0x5a; bytes], durable };
        self.rows.send(row).await.is_ok() && told.await.is_ok()
    }
}

/// Rows of `row_bytes` from so many tasks at once, through a channel, to one writer thread that commits everything
/// that is waiting in one transaction. Its median is what one task waited.
pub fn sqlite_handoff(
    dir: &Path,
    concurrent: usize,
    row_bytes: usize,
    span: Duration,
) -> Result<MeasuredRate, FloorError> {
    let folder = tempfile::tempdir_in(dir)?;
    let mut db = sqlite::open(folder.path())?;
    let (rows, mut waiting) = mpsc::channel(concurrent.max(1));
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || write(&mut db, &mut waiting));
        let rate = apart(|| tasks(rows, concurrent, row_bytes, span));
        match writer.join() {
            Ok(written) => written?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        rate
    })
}

/// Commits what is waiting until nobody can send any more.
fn write(db: &mut Connection, waiting: &mut mpsc::Receiver<HandoffRow>) -> Result<(), FloorError> {
    let mut group = Vec::with_capacity(GROUP_MAX);
    while waiting.blocking_recv_many(&mut group, GROUP_MAX) > 0 {
        sqlite::insert(db, group.iter().map(|row| row.payload.as_slice()))?;
        for row in group.drain(..) {
            // A task that went away needs no answer.
            let _ = row.durable.send(());
        }
    }
    Ok(())
}

/// The tasks: each sends a row and waits until it is durable.
fn tasks(
    rows: mpsc::Sender<HandoffRow>,
    concurrent: usize,
    row_bytes: usize,
    span: Duration,
) -> Result<MeasuredRate, FloorError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    runtime.block_on(async {
        let mut all = Laps::start(span);
        let task = |rows: mpsc::Sender<HandoffRow>| async move {
            let mut laps = Laps::start(span);
            while laps.more() {
                let began = Instant::now();
                let (durable, told) = oneshot::channel();
                let row = HandoffRow { payload: vec![0x5a; row_bytes], durable };
                // If the writer stopped, it says itself why.
                if rows.send(row).await.is_err() || told.await.is_err() {
                    break;
                }
                laps.note(began);
            }
            laps
        };
        let running: Vec<_> = (0..concurrent).map(|_| tokio::spawn(task(rows.clone()))).collect();
        drop(rows);
        for laps in running {
            match laps.await {
                Ok(laps) => all.join(laps),
                Err(ended) => std::panic::resume_unwind(ended.into_panic()),
            }
        }
        Ok(all.rate(1))
    })
}

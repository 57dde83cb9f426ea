//! A few connections for reading, on a thread of their own. Queries on one connection are pipelined.
//!
//! A query waits for its server however long that is away, like a write. How many may wait is limited.

use super::address::DatabaseAddress;
use super::connection::{Backoff, DatabaseFailure, DatabaseLink, answered};
use super::stalls::{ConnectionUser, Stalls};
use super::states::SqlMeaning;
use crate::{Answer, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, oneshot};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

/// The queries that may be under way or wait for their server; more are refused.
const QUERIES_MAX: usize = 4_096;

/// After silence a query is given twice the time, up to this many doublings.
const REPLY_DOUBLINGS_MAX: u32 = 4;

/// The time that a query over everything may take.
const LONG_REPLY: Duration = Duration::from_secs(600);

/// The pause between two sweeps.
const SWEEP_PAUSE: Duration = Duration::from_secs(3600);

/// The connections that read.
#[derive(Clone)]
pub(super) struct ReaderConnections {
    thread: Arc<ReaderThread>,
    shared: Arc<ReadersShared>,
}

/// The thread of the connections; it ends with the last of their users.
struct ReaderThread(Option<Runtime>);

struct ReadersShared {
    address: Arc<DatabaseAddress>,
    stalls: Arc<Stalls>,
    connections: Vec<Mutex<Option<Arc<DatabaseLink>>>>,
    next: AtomicUsize,
    under_way: AtomicUsize,
    /// The queries that told of a stall, and are not over.
    stalled: AtomicUsize,
}

/// A connection for one query, and how long its answers may take.
#[derive(Clone)]
pub(super) struct ReaderLink {
    pub link: Arc<DatabaseLink>,
    reply: Duration,
}

/// A value with its type.
pub(super) type Typed<'a> = (&'a (dyn ToSql + Sync), Type);

impl ReaderLink {
    /// The rows of a query.
    pub async fn rows(&self, sql: &str, params: &[Typed<'_>]) -> Result<Vec<Row>, ReadFailure> {
        Ok(answered(self.reply, self.link.client.query_typed(sql, params)).await?)
    }

    /// The link for a query that reads about everything.
    pub fn for_long(&self) -> ReaderLink {
        ReaderLink { reply: LONG_REPLY, ..self.clone() }
    }
}

/// A failed query.
pub(super) enum ReadFailure {
    /// The database failed.
    Database(DatabaseFailure),
    /// The answer is an error.
    Store(StoreError),
}

impl From<DatabaseFailure> for ReadFailure {
    fn from(failure: DatabaseFailure) -> ReadFailure {
        ReadFailure::Database(failure)
    }
}

impl From<tokio_postgres::Error> for ReadFailure {
    fn from(error: tokio_postgres::Error) -> ReadFailure {
        ReadFailure::Database(error.into())
    }
}

impl From<StoreError> for ReadFailure {
    fn from(error: StoreError) -> ReadFailure {
        ReadFailure::Store(error)
    }
}

impl ReaderConnections {
    /// Readers; they connect at the first use.
    pub fn start(
        address: Arc<DatabaseAddress>,
        stalls: Arc<Stalls>,
        connections: usize,
    ) -> std::io::Result<ReaderConnections> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("windlass-postgres-read")
            .enable_all()
            .build()?;
        let connections = (0..connections.max(1)).map(|_| Mutex::default()).collect();
        let [next, under_way, stalled] = [(); 3].map(|()| AtomicUsize::new(0));
        let shared = Arc::new(ReadersShared { address, stalls, connections, next, under_way, stalled });
        Ok(ReaderConnections { thread: Arc::new(ReaderThread(Some(runtime))), shared })
    }

    /// Runs work on the readers' thread, until it is done or nobody waits for it any more.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Answer<T> {
        let Some(runtime) = &self.thread.0 else { return Answer::ready(Err(StoreError::Closed)) };
        let (mut reply, answer) = oneshot::channel();
        runtime.spawn(async move {
            let done = tokio::select! {
                biased;
                () = reply.closed() => return,
                done = work => done,
            };
            // If the caller is gone, nobody needs the answer.
            drop(reply.send(done));
        });
        Answer::reply(answer)
    }

    /// Runs a task on the readers' thread.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.thread.0 {
            runtime.spawn(task);
        }
    }

    /// Sweeps from time to time, as long as there are readers.
    pub fn keep_sweeping(&self) {
        let (Some(runtime), thread) = (&self.thread.0, Arc::downgrade(&self.thread)) else { return };
        let shared = Arc::clone(&self.shared);
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(SWEEP_PAUSE).await;
                let Some(thread) = thread.upgrade() else { return };
                let readers = ReaderConnections { thread, shared: Arc::clone(&shared) };
                match super::read::sweep(&readers).await {
                    Ok(rows) => tracing::debug!(rows, "rows of dead writers are swept"),
                    Err(error) => tracing::warn!(%error, "rows of dead writers could not be swept"),
                }
            }
        });
    }

    /// Runs a query on one of the connections; on another one if that is lost.
    pub fn ask<T, Q, A>(&self, doing: &'static str, question: Q) -> Answer<T>
    where
        T: Send + 'static,
        Q: Fn(ReaderLink) -> A + Send + Sync + 'static,
        A: Future<Output = Result<T, ReadFailure>> + Send,
    {
        let shared = Arc::clone(&self.shared);
        let Some(place) = ReaderPlace::of(&shared) else {
            let because = format!("{QUERIES_MAX} queries wait for the database").into();
            return Answer::ready(Err(StoreError::Stalled { because }));
        };
        self.run(async move {
            let _place = place;
            let (mut backoff, mut silences, mut stall) = (Backoff::new(), 0, None);
            loop {
                let reply = shared.address.reply * 2_u32.pow(REPLY_DOUBLINGS_MAX.min(silences));
                let failure = match shared.asked(&question, reply).await {
                    Ok(answer) => return Ok(answer),
                    Err(ReadFailure::Store(error)) => return Err(error),
                    Err(ReadFailure::Database(failure)) => failure,
                };
                if failure.meaning() == SqlMeaning::Final {
                    return Err(StoreError::Io { doing, source: Box::new(failure) });
                }
                tracing::debug!(failure = failure.told(), doing, "PostgreSQL is asked again");
                silences += u32::from(matches!(failure, DatabaseFailure::Silent(_)));
                if shared.stalls.note(ConnectionUser::Readers, &failure, backoff.lasted()).is_some() {
                    stall.get_or_insert_with(|| ReaderStall::of(&shared));
                }
                backoff.pause().await;
            }
        })
    }
}

/// A place among the queries that may be under way.
struct ReaderPlace(Arc<ReadersShared>);

impl ReaderPlace {
    fn of(shared: &Arc<ReadersShared>) -> Option<ReaderPlace> {
        let place = ReaderPlace(Arc::clone(shared));
        let before = shared.under_way.fetch_add(1, Ordering::Relaxed);
        (before < QUERIES_MAX).then_some(place)
    }
}

impl Drop for ReaderPlace {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A query that told of a stall. The stall is over with the last of them, also if nobody waits for it any more.
struct ReaderStall(Arc<ReadersShared>);

impl ReaderStall {
    fn of(shared: &Arc<ReadersShared>) -> ReaderStall {
        shared.stalled.fetch_add(1, Ordering::Relaxed);
        ReaderStall(Arc::clone(shared))
    }
}

impl Drop for ReaderStall {
    fn drop(&mut self) {
        if self.0.stalled.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.stalls.clear(ConnectionUser::Readers);
        }
    }
}

impl ReadersShared {
    async fn asked<T, A>(&self, question: impl Fn(ReaderLink) -> A, reply: Duration) -> Result<T, ReadFailure>
    where
        A: Future<Output = Result<T, ReadFailure>>,
    {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        let link = {
            let mut kept = self.connections[place].lock().await;
            match &*kept {
                Some(link) if !link.client.is_closed() => Arc::clone(link),
                _ => Arc::clone(kept.insert(Arc::new(self.address.connect("read", |_| {}).await?))),
            }
        };
        let answer = question(ReaderLink { link: Arc::clone(&link), reply }).await;
        if let Err(ReadFailure::Database(failure)) = &answer
            && failure.meaning() == SqlMeaning::Lost
        {
            let mut kept = self.connections[place].lock().await;
            if kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, &link)) {
                *kept = None;
            }
        }
        answer
    }
}

impl Drop for ReaderThread {
    fn drop(&mut self) {
        // Waiting is not allowed where stores are dropped, and reads need no clean end.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

//! A few connections for reading, on a thread of their own. Queries on one connection are pipelined.

use super::connection::{DatabaseFailure, Meaning, Patience, answered, connect};
use crate::{Answer, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, oneshot};
use tokio_postgres::{Client, Config};

/// The connections that read.
#[derive(Clone)]
pub(super) struct ReaderConnections {
    thread: Arc<ReaderThread>,
    shared: Arc<ReadersShared>,
}

/// The thread of the connections; it ends with the last of their users.
struct ReaderThread(Option<Runtime>);

struct ReadersShared {
    config: Config,
    patience: Duration,
    connections: Vec<Mutex<Option<Arc<Client>>>>,
    next: AtomicUsize,
}

/// A failed query.
pub(super) enum ReadFailure {
    /// The database failed.
    Sql(tokio_postgres::Error),
    /// The answer is an error.
    Store(StoreError),
}

impl From<tokio_postgres::Error> for ReadFailure {
    fn from(error: tokio_postgres::Error) -> ReadFailure {
        ReadFailure::Sql(error)
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
        config: Config,
        patience: Duration,
        connections: usize,
    ) -> std::io::Result<ReaderConnections> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("windlass-postgres-read")
            .enable_all()
            .build()?;
        let connections = (0..connections.max(1)).map(|_| Mutex::default()).collect();
        let shared = Arc::new(ReadersShared { config, patience, connections, next: AtomicUsize::new(0) });
        Ok(ReaderConnections { thread: Arc::new(ReaderThread(Some(runtime))), shared })
    }

    /// Runs work on the readers' thread.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Answer<T> {
        let Some(runtime) = &self.thread.0 else { return Answer::ready(Err(StoreError::Closed)) };
        let (reply, answer) = oneshot::channel();
        runtime.spawn(async move {
            // If the caller is gone, nobody needs the answer.
            drop(reply.send(work.await));
        });
        Answer::reply(answer)
    }

    /// Runs a query on one of the connections; on another one if that is lost.
    pub fn ask<T, Q, A>(&self, doing: &'static str, question: Q) -> Answer<T>
    where
        T: Send + 'static,
        Q: Fn(Arc<Client>) -> A + Send + Sync + 'static,
        A: Future<Output = Result<T, ReadFailure>> + Send,
    {
        let shared = Arc::clone(&self.shared);
        self.run(async move {
            let mut patience = Patience::new(shared.patience);
            loop {
                let failure = match shared.asked(&question).await {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err(error)) => return Err(error),
                    Err(failure) => failure,
                };
                let tried = patience.after(failure).await;
                tried.map_err(|failure| StoreError::Io { doing, source: Box::new(failure) })?;
            }
        })
    }
}

impl ReadersShared {
    async fn asked<T, A>(
        &self,
        question: impl Fn(Arc<Client>) -> A,
    ) -> Result<Result<T, StoreError>, DatabaseFailure>
    where
        A: Future<Output = Result<T, ReadFailure>>,
    {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        let client = {
            let mut kept = self.connections[place].lock().await;
            match &*kept {
                Some(client) if !client.is_closed() => Arc::clone(client),
                _ => Arc::clone(kept.insert(Arc::new(connect(&self.config).await?))),
            }
        };
        let answer = answered(async {
            match question(Arc::clone(&client)).await {
                Ok(answer) => Ok(Ok(answer)),
                Err(ReadFailure::Store(error)) => Ok(Err(error)),
                Err(ReadFailure::Sql(error)) => Err(error),
            }
        });
        let answer = answer.await;
        if let Err(failure) = &answer
            && failure.meaning() == Meaning::Lost
        {
            let mut kept = self.connections[place].lock().await;
            if kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, &client)) {
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

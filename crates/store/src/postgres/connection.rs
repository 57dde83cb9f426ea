//! Connections, and the meaning of their failures.

use std::time::Duration;
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

/// A server that is silent for this long counts as lost; the effect of the request is then checked on another connection.
const REPLY_MAX: Duration = Duration::from_secs(30);

/// The maximum pause between attempts.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The setup of every connection. Windlass always queries by key, so a plan made while a table was small must
/// not scan it when it is large.
const SETTINGS: &str = "
    SET synchronous_commit = on;
    SET default_transaction_isolation = 'read committed';
    SET enable_seqscan = off;
    SET lock_timeout = '20s'";

/// A failure of the database.
#[derive(Debug, thiserror::Error)]
pub(super) enum DatabaseFailure {
    #[error("PostgreSQL refused")]
    Sql(#[from] tokio_postgres::Error),
    #[error("PostgreSQL did not answer within {REPLY_MAX:?}")]
    Silent,
    #[error("PostgreSQL answered something impossible: {0}")]
    Impossible(&'static str),
    #[error("the answer to a COMMIT was lost, and its outcome could not be determined")]
    Undecided(#[source] Box<DatabaseFailure>),
}

/// The meaning of a failure for a retry.
#[derive(PartialEq, Eq)]
pub(super) enum Meaning {
    /// The connection is gone.
    Lost,
    /// Another transaction interfered; the rows must be read again.
    Raced,
    /// It would fail again.
    Final,
}

impl DatabaseFailure {
    pub fn meaning(&self) -> Meaning {
        let error = match self {
            DatabaseFailure::Sql(error) => error,
            DatabaseFailure::Silent => return Meaning::Lost,
            DatabaseFailure::Impossible(_) | DatabaseFailure::Undecided(_) => return Meaning::Final,
        };
        // An error without a code is not the server's: the connection ended, or was never made.
        let Some(code) = error.code() else { return Meaning::Lost };
        let lost = [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        ];
        let raced = [
            SqlState::UNIQUE_VIOLATION,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::LOCK_NOT_AVAILABLE,
        ];
        if error.is_closed() || lost.contains(code) || code.code().starts_with("08") {
            Meaning::Lost
        } else if raced.contains(code) {
            Meaning::Raced
        } else {
            Meaning::Final
        }
    }
}

/// Connects. A task of the calling runtime drives the connection.
pub(super) async fn connect(config: &Config) -> Result<Client, DatabaseFailure> {
    answered(async {
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(async move {
            // The client reports the same error to its callers.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL ended");
            }
        });
        client.batch_execute(SETTINGS).await?;
        Ok(client)
    })
    .await
}

/// Waits for an answer, for a limited time.
pub(super) async fn answered<T>(
    answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, DatabaseFailure> {
    match tokio::time::timeout(REPLY_MAX, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_elapsed) => Err(DatabaseFailure::Silent),
    }
}

/// How long an operation is retried.
pub(super) struct Patience {
    until: Instant,
    pause: Duration,
}

impl Patience {
    pub fn new(most: Duration) -> Patience {
        Patience { until: Instant::now() + most, pause: Duration::from_millis(5) }
    }

    /// Waits before the next attempt, or returns the failure: it is final, or patience has ended.
    pub async fn after(&mut self, failure: DatabaseFailure) -> Result<(), DatabaseFailure> {
        if failure.meaning() == Meaning::Final || Instant::now() + self.pause > self.until {
            return Err(failure);
        }
        tracing::debug!(%failure, "PostgreSQL is asked again");
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}

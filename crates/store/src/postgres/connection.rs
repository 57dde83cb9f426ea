//! Connections, and what their failures mean.

use std::time::Duration;
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

/// A server that says nothing for this long is taken for lost; what it did is then found out on another connection.
const REPLY_MAX: Duration = Duration::from_secs(30);

/// Pauses between attempts grow up to this.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// How every connection is set up. What Windlass asks is always by key, so a plan made while a table was small must
/// not scan it when it is large.
const SETTINGS: &str = "
    SET synchronous_commit = on;
    SET default_transaction_isolation = 'read committed';
    SET enable_seqscan = off;
    SET lock_timeout = '20s'";

/// Why the database did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("PostgreSQL refused")]
    Sql(#[from] tokio_postgres::Error),
    #[error("PostgreSQL did not answer within {REPLY_MAX:?}")]
    Silent,
    #[error("PostgreSQL answered something impossible: {0}")]
    Impossible(&'static str),
    #[error("the answer to a COMMIT was lost, and whether it was done could not be found out")]
    Undecided(#[source] Box<Failure>),
}

/// What a failure means for whoever tries again.
#[derive(PartialEq, Eq)]
pub(super) enum Meaning {
    /// The connection is gone.
    Lost,
    /// Somebody else was in the way; what is there must be read again.
    Raced,
    /// It would fail again.
    Final,
}

impl Failure {
    pub fn meaning(&self) -> Meaning {
        let error = match self {
            Failure::Sql(error) => error,
            Failure::Silent => return Meaning::Lost,
            Failure::Impossible(_) | Failure::Undecided(_) => return Meaning::Final,
        };
        // Without a code it is not the server that spoke: the connection ended, or was never made.
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

/// Connects. The connection is driven by a task of the runtime this is called on.
pub(super) async fn connect(config: &Config) -> Result<Client, Failure> {
    answered(async {
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(async move {
            // Whoever waits for an answer is told the same by the client.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL ended");
            }
        });
        client.batch_execute(SETTINGS).await?;
        Ok(client)
    })
    .await
}

/// Waits for an answer, not forever.
pub(super) async fn answered<T>(
    answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(REPLY_MAX, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_elapsed) => Err(Failure::Silent),
    }
}

/// How long something is tried again.
pub(super) struct Patience {
    until: Instant,
    pause: Duration,
}

impl Patience {
    pub fn new(most: Duration) -> Patience {
        Patience { until: Instant::now() + most, pause: Duration::from_millis(5) }
    }

    /// Waits before the next attempt, or gives the failure back: it is final, or patience has ended.
    pub async fn after(&mut self, failure: Failure) -> Result<(), Failure> {
        if failure.meaning() == Meaning::Final || Instant::now() + self.pause > self.until {
            return Err(failure);
        }
        tracing::debug!(%failure, "PostgreSQL is asked again");
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}

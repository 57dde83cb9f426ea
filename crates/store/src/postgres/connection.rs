//! Connections, and the meaning of their failures.
//!
//! Nothing is left behind on a connection between two transactions: no setting, no prepared statement, no lock. So a pool in
//! between, such as pgbouncer in transaction mode, may hand each transaction to another server process.

use super::statements::TypedStatement;
use super::states::{SqlMeaning, meaning_of, passes};
use std::error::Error as _;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_postgres::error::Severity;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Connection, Error, Row};

/// The pauses between attempts: the first one, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// A failure of the database.
#[derive(Debug, thiserror::Error)]
pub(super) enum DatabaseFailure {
    #[error("PostgreSQL refused")]
    Sql(#[from] Error),
    #[error("PostgreSQL did not answer within {0:?}")]
    Silent(Duration),
    /// It committed, and a replica may not have it.
    #[error(
        "PostgreSQL committed with a warning ({0}); nothing is acknowledged until a later commit comes without one"
    )]
    Warned(String),
    #[error("{what}")]
    Setup {
        what: String,
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    #[error(
        "PostgreSQL lacks commits that were acknowledged (the last ones of {0} of this worker's connections): it was set back, or \
         a replica without them took over; find out what is missing, then restart this worker"
    )]
    Forgot(usize),
    #[error("PostgreSQL answered something impossible: {0}")]
    Impossible(&'static str),
    #[error("the answer to a COMMIT was lost, and its outcome could not be determined")]
    Undecided(#[source] Box<DatabaseFailure>),
}

impl DatabaseFailure {
    /// The meaning of the failure for whoever tries again.
    pub fn meaning(&self) -> SqlMeaning {
        match self {
            // An error without a state is not the server's: the connection ended, or was never made.
            DatabaseFailure::Sql(error) if error.is_closed() => SqlMeaning::Lost,
            DatabaseFailure::Sql(error) => {
                error.code().map_or(SqlMeaning::Lost, |code| meaning_of(code.code()))
            }
            DatabaseFailure::Silent(_) | DatabaseFailure::Warned(_) => SqlMeaning::Lost,
            // Whoever runs the worker can put the file, the command or the certificate right.
            DatabaseFailure::Setup { .. } => SqlMeaning::Lost,
            DatabaseFailure::Forgot(_) | DatabaseFailure::Impossible(_) => SqlMeaning::Final,
            DatabaseFailure::Undecided(_) => SqlMeaning::Final,
        }
    }

    /// Whether the server only has to start, or to come back.
    pub fn is_outage(&self) -> bool {
        match self {
            DatabaseFailure::Silent(_) => true,
            DatabaseFailure::Sql(error) => match error.code() {
                Some(code) => passes(code.code()),
                // It went away before or in the middle of an answer.
                None => {
                    let is_lost = error.is_closed() || chain(error).any(|cause| cause.is::<std::io::Error>());
                    is_lost && !is_tls(error)
                }
            },
            DatabaseFailure::Warned(_) | DatabaseFailure::Setup { .. } | DatabaseFailure::Forgot(_) => false,
            DatabaseFailure::Impossible(_) | DatabaseFailure::Undecided(_) => false,
        }
    }

    /// Advice for whoever opens a store.
    pub fn help(&self) -> &'static str {
        let DatabaseFailure::Sql(error) = self else {
            return "see that the server runs and lets this user in";
        };
        if is_tls(error) {
            return "see that the server speaks TLS and shows a certificate that sslmode accepts";
        }
        match error.code().map_or("", |code| code.code()) {
            "28P01" => "see that the password is right",
            "28000" => "see that the server's pg_hba.conf lets this user in from here",
            "3D000" => "create the database first",
            "42501" => {
                "run `windlass migrate` as a role that may create a schema, and grant this role the use of it"
            }
            _ => "see that the server runs and lets this user in",
        }
    }

    /// The failure with its causes.
    pub fn told(&self) -> String {
        let mut told = self.to_string();
        for cause in std::iter::successors(self.source(), |cause| (*cause).source()) {
            told.push_str(&format!(": {cause}"));
        }
        told
    }
}

/// An error's causes.
fn chain(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}

fn is_tls(error: &Error) -> bool {
    // The library says so in words only.
    chain(error).any(|cause| cause.is::<super::tls::TlsFault>()) || error.to_string().contains("TLS")
}

/// A parameter of a statement.
pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

/// A connection.
pub(super) struct DatabaseLink {
    pub client: Client,
    /// The last warning of the server that was not [taken](DatabaseLink::warning).
    pub warned: Arc<Mutex<Option<String>>>,
}

impl DatabaseLink {
    /// Runs a query. The statement has no name, so it leaves nothing on the connection.
    pub async fn query(&self, sql: &TypedStatement, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        self.client.query_typed(sql.text, &sql.typed(params)).await
    }

    /// Executes a statement; how many rows it changed.
    pub async fn execute(&self, sql: &TypedStatement, params: &[Param<'_>]) -> Result<u64, Error> {
        self.client.execute_typed(sql.text, &sql.typed(params)).await
    }

    /// The server's last warning since this was asked before.
    pub fn warning(&self) -> Option<String> {
        self.warned.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Drives a connection to its end, and keeps its last warning. A warning comes before the answer to the statement that caused it.
pub(super) async fn drive<S, T>(
    mut connection: Connection<S, T>,
    warned: Arc<Mutex<Option<String>>>,
    mut notified: impl FnMut(&str),
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let ended = poll_fn(|cx| {
        loop {
            match ready!(connection.poll_message(cx)) {
                Some(Ok(AsyncMessage::Notice(notice))) => {
                    tracing::debug!(%notice, "PostgreSQL says something");
                    if notice.parsed_severity() == Some(Severity::Warning) {
                        *warned.lock().unwrap_or_else(PoisonError::into_inner) = Some(notice.to_string());
                    }
                }
                Some(Ok(AsyncMessage::Notification(notification))) => notified(notification.payload()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Ready(Ok(())),
            }
        }
    });
    // The client reports the same error to its callers.
    if let Err(error) = ended.await {
        tracing::debug!(%error, "a connection to PostgreSQL ended");
    }
}

/// Waits for an answer, for a limited time.
pub(super) async fn answered<T, E: Into<DatabaseFailure>>(
    most: Duration,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, DatabaseFailure> {
    match tokio::time::timeout(most, answer).await {
        Ok(answer) => answer.map_err(Into::into),
        Err(_elapsed) => Err(DatabaseFailure::Silent(most)),
    }
}

/// The pauses between attempts, each longer than the one before, up to a limit.
pub(super) struct Backoff {
    since: Instant,
    pause: Duration,
}

impl Backoff {
    pub fn new() -> Backoff {
        Backoff { since: Instant::now(), pause: PAUSE_MIN }
    }

    /// How long it has been tried.
    pub fn lasted(&self) -> Duration {
        self.since.elapsed()
    }

    /// Waits before the next attempt. Workers that lost their server at once do not come back at once.
    pub async fn pause(&mut self) {
        let mut chance = [0; 2];
        // Without randomness everybody waits equally long.
        let _drawn = getrandom::fill(&mut chance);
        let jitter = self.pause * u32::from(u16::from_le_bytes(chance)) / u32::from(u16::MAX) / 2;
        tokio::time::sleep(self.pause / 2 + jitter).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

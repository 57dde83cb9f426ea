//! How a store is opened, and opening it: connect, create or refuse the tables.

use super::address::DatabaseAddress;
use super::connection::{Backoff, DatabaseFailure, DatabaseLink};
use super::random;
use super::readers::ReaderConnections;
use super::schema::{self, MigratedFormats, OpeningParams};
use super::states::SqlMeaning;
use crate::limits::StoreLimits;
use crate::{Durability, StoreError};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::handle::Secret;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Its address, in libpq's format: `host=… user=… dbname=…` or `postgresql://…`. Several hosts may be named; the one that can be
    /// written to is used. Beyond what the library understands: `sslmode` up to `verify-full` (the default unless all hosts are on this
    /// machine), `sslrootcert`, `sslcert`, `sslkey`; `password_file`, and `password_command`, which is run by the shell: both are
    /// asked for each connection.
    pub url: String,
    /// The address of the server itself, if `url` is that of a pool: for notifications and migrations.
    pub direct: Option<String>,
    /// Connections that write; each is a lane of sessions. One more is for workers' records.
    pub writers: usize,
    /// Connections that read.
    pub readers: usize,
    /// How long [`PostgresStore::open`](super::PostgresStore::open) waits for a server that is away, and closing for the last writes.
    pub patience: Duration,
    /// The least durability that the server must give.
    pub durability: Durability,
    /// The effective limits.
    pub limits: StoreLimits,
}

impl PostgresOptions {
    /// A store in this database, with a few connections and the usual limits.
    pub fn new(url: impl Into<String>) -> PostgresOptions {
        PostgresOptions {
            url: url.into(),
            direct: None,
            writers: 4,
            readers: 2,
            patience: Duration::from_secs(10),
            durability: Durability::Full,
            limits: StoreLimits::default(),
        }
    }

    /// Parses an address.
    pub(super) fn address(&self, text: &str) -> Result<DatabaseAddress, StoreError> {
        let lease = Duration::from_millis(self.limits.lease_ms);
        DatabaseAddress::parse(text, lease).map_err(|fault| StoreError::Open {
            path: "postgresql:".into(),
            help: "write it as postgres://user@host/database".to_owned(),
            source: Some(Box::new(fault)),
        })
    }

    /// The secret of the store, and the durability of its server. Creates the tables if there are none. `outage`: how long a server
    /// that is away is waited for.
    pub(super) async fn opened(
        &self,
        address: &Arc<DatabaseAddress>,
        readers: &ReaderConnections,
        outage: Duration,
    ) -> Result<(Secret, Durability), StoreError> {
        let opened = match self.asked(address, readers, outage, read).await? {
            Some(opened) => opened,
            None => {
                self.migrated(address, readers, outage).await?;
                let opened = self.asked(address, readers, outage, read).await?;
                opened.ok_or_else(|| refused(address, "its tables were dropped meanwhile", None))?
            }
        };
        if opened.usable_by > schema::KNOWN {
            let (path, found, known) = (address.name.clone(), opened.format, schema::KNOWN);
            return Err(StoreError::Newer { path, found, known });
        }
        if opened.format < schema::KNOWN {
            let (found, needed) = (opened.format, schema::KNOWN);
            let help =
                format!("its format is {found}, and this Windlass needs {needed}; run `windlass migrate`");
            return Err(refused(address, &help, None));
        }
        if opened.durability < self.durability {
            let help = format!(
                "its server gives commits the durability `{}`, and `{}` is asked for: look at fsync, full_page_writes and \
                 synchronous_standby_names",
                opened.durability, self.durability
            );
            return Err(refused(address, &help, None));
        }
        let damaged = || refused(address, "its secret is damaged; restore it from a backup", None);
        Ok((opened.secret.ok_or_else(damaged)?, opened.durability))
    }

    /// Brings the tables to the newest format.
    pub(super) async fn migrated(
        &self,
        address: &Arc<DatabaseAddress>,
        readers: &ReaderConnections,
        outage: Duration,
    ) -> Result<MigratedFormats, StoreError> {
        let secret = random()?;
        let migrate =
            move |link: DatabaseLink, reply| async move { schema::migrate(&link, reply, secret).await };
        self.asked(address, readers, outage, migrate).await
    }

    /// Does something on a connection of its own, on the readers' thread. A server that is about to start is waited for.
    async fn asked<T, A>(
        &self,
        address: &Arc<DatabaseAddress>,
        readers: &ReaderConnections,
        outage: Duration,
        question: impl Fn(DatabaseLink, Duration) -> A + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + Unpin + 'static,
        A: Future<Output = Result<T, DatabaseFailure>> + Send,
    {
        let (connecting, patience) = (Arc::clone(address), self.patience);
        let answer = readers.run(async move {
            let mut backoff = Backoff::new();
            loop {
                let failure = match connecting.connect("open", |_| {}).await {
                    Ok(link) => match question(link, connecting.reply).await {
                        Ok(answer) => return Ok(Ok(answer)),
                        Err(failure) => failure,
                    },
                    Err(failure) => failure,
                };
                let most = if failure.is_outage() { outage } else { patience };
                let may_help = failure.is_outage() || failure.meaning() == SqlMeaning::Raced;
                if !may_help || backoff.lasted() >= most {
                    return Ok(Err(failure));
                }
                backoff.pause().await;
            }
        });
        answer.await?.map_err(|failure| match failure.is_outage() {
            true => {
                let (path, help) = (address.name.clone(), failure.help().to_owned());
                StoreError::Away { path, help, source: Box::new(failure) }
            }
            false => refused(address, failure.help(), Some(Box::new(failure))),
        })
    }
}

async fn read(link: DatabaseLink, reply: Duration) -> Result<Option<OpeningParams>, DatabaseFailure> {
    schema::read(&link, reply).await
}

/// A database that cannot be opened.
pub(super) fn refused(
    address: &DatabaseAddress,
    help: &str,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
) -> StoreError {
    StoreError::Open { path: address.name.clone(), help: help.to_owned(), source }
}

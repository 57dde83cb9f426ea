//! The store on PostgreSQL: **a spike** that keeps the contract honest, not yet a store to run on.
//!
//! It passes the suite of every store, and shows what the contract means where several processes write: a write
//! goes `commit` → `queue` of the session's `lane` → one transaction per `group`, whose changes
//! are judged (`judge`) while their sessions' rows are locked → answer. A read goes to one of the `readers`.
//!
//! When the answer to a COMMIT is lost, the lane reads back whether it was done: each group carries a number that
//! its transaction writes into the lane's own row, and whoever reads that row waits for the transaction. If it
//! cannot be found out, the write is an error and the store is poisoned; nothing is acknowledged on a guess.
//!
//! What is missing: a policy for migrations (there is one format, and no step); TLS; removing the rows of writers
//! that died; waking an owner when a message was posted, which looks for itself now; failover to a replica that may
//! lack what was acknowledged; and tuning (the COMMIT is its own round trip, and nothing is known of pools in between
//! such as pgbouncer).

mod connection;
mod group;
mod history;
mod judge;
mod lane;
mod read;
mod readers;
mod schema;
mod statements;

use crate::change::{Change, Receipt, Refused};
use crate::queue::{Queue, Request};
use crate::{
    Answer, BatchRow, BlobSize, Durability, Inbound, JournalRow, Posted, Record, RecordPage, Removal,
    Removed, Sequence, SessionRow, Space, Store, StoreError,
};
use connection::Failure;
use lane::Lanes;
use readers::Readers;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_postgres::Config;
use windlass_core::handle::Secret;
use windlass_core::ids::{BatchNo, BlobNo, CallId, EntryNo, Lookup, Mark, SessionNo};
use windlass_core::limits::Limits;

/// A queue holds this many groups; past that whoever writes must wait.
const GROUPS_WAITING_MAX: usize = 16;

/// A server that takes longer to be reached is tried again.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// A store in a database that others may share.
///
/// Dropping it writes what waits.
pub struct PostgresStore {
    lanes: Arc<Lanes>,
    threads: Vec<JoinHandle<()>>,
    readers: Readers,
    secret: Secret,
    durability: Durability,
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it is, as libpq writes it: `host=… user=… dbname=…` or `postgresql://…`.
    pub url: String,
    /// Connections that write; each is a lane of sessions.
    pub writers: usize,
    /// Connections that read.
    pub readers: usize,
    /// How long a lost connection is made anew before the write, or the read, fails.
    pub patience: Duration,
    /// The limits in force.
    pub limits: Limits,
}

impl Options {
    /// A store in this database, with a few connections and the usual limits.
    pub fn new(url: impl Into<String>) -> Options {
        let patience = Duration::from_secs(10);
        Options { url: url.into(), writers: 4, readers: 2, patience, limits: Limits::default() }
    }
}

impl PostgresStore {
    /// Opens the store of a database, making its tables if there are none. Others may open it too.
    pub async fn open(options: Options) -> Result<PostgresStore, StoreError> {
        let place = Place::of(&options)?;
        let no_thread =
            |error: std::io::Error| place.refused("no thread could be started", Some(Box::new(error)));
        let readers = Readers::start(place.config.clone(), options.patience, options.readers);
        let readers = readers.map_err(no_thread)?;
        let opened = place.open(&readers).await?;
        if opened.format > schema::KNOWN {
            return Err(StoreError::Newer {
                path: place.name.clone(),
                found: opened.format,
                known: schema::KNOWN,
            });
        }
        let damaged = || place.refused("its secret is damaged; restore it from a backup", None);
        let secret = opened.secret.ok_or_else(damaged)?;
        let group_max = options.limits.group_changes_max as usize;
        let lanes = Arc::new(Lanes {
            queues: (0..options.writers.max(1)).map(|_| Queue::new(group_max * GROUPS_WAITING_MAX)).collect(),
            config: place.config.clone(),
            patience: options.patience,
            group_max,
            commits: AtomicU64::new(0),
        });
        let durability = if opened.fsync { Durability::Full } else { Durability::Relaxed };
        let mut store = PostgresStore { lanes, threads: Vec::new(), readers, secret, durability };
        let mut starting = Vec::new();
        for at in 0..store.lanes.queues.len() {
            let (thread, ready) = lane::start(&store.lanes, at, random()?).map_err(no_thread)?;
            store.threads.push(thread);
            starting.push(ready);
        }
        for ready in starting {
            ready.await.map_err(|_gone| StoreError::Closed)?.map_err(|failure| place.failed(failure))?;
        }
        Ok(store)
    }

    /// The lane of a session, always the same.
    fn lane(&self, session: SessionNo) -> usize {
        (session.0 % self.lanes.queues.len() as u64) as usize
    }

    /// Hands changes to a lane.
    fn send(&self, lane: usize, changes: Vec<Change>) -> oneshot::Receiver<Result<Vec<Told>, StoreError>> {
        let (reply, answer) = oneshot::channel();
        self.lanes.queues[lane].push(Request::Commit { changes, reply });
        answer
    }

    /// A commit over several lanes. All of it is handed over before this returns, because sending gives the order.
    fn scatter(&self, changes: Vec<Change>) -> Answer<Vec<Told>> {
        let mut parts: Vec<(Vec<usize>, Vec<Change>)> = vec![Default::default(); self.lanes.queues.len()];
        let count = changes.len();
        for (place, change) in changes.into_iter().enumerate() {
            let part = &mut parts[self.lane(change.session)];
            part.0.push(place);
            part.1.push(change);
        }
        let sent: Vec<_> = parts
            .into_iter()
            .enumerate()
            .filter(|(_, (_, changes))| !changes.is_empty())
            .map(|(lane, (places, changes))| (places, self.send(lane, changes)))
            .collect();
        Answer::boxed(async move {
            let mut told = vec![None; count];
            let mut failed = None;
            for (places, answer) in sent {
                match answer.await.unwrap_or(Err(StoreError::Closed)) {
                    Ok(answers) => places.into_iter().zip(answers).for_each(|(at, one)| told[at] = Some(one)),
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            match failed {
                Some(error) => Err(error),
                None => told.into_iter().collect::<Option<_>>().ok_or(StoreError::Closed),
            }
        })
    }
}

/// What a change is told.
type Told = Result<Receipt, Refused>;

impl Store for PostgresStore {
    fn commit(&self, changes: Vec<Change>) -> Answer<Vec<Result<Receipt, Refused>>> {
        let Some(first) = changes.first() else { return Answer::ready(Ok(Vec::new())) };
        let lane = self.lane(first.session);
        if changes.iter().all(|change| self.lane(change.session) == lane) {
            Answer::reply(self.send(lane, changes))
        } else {
            self.scatter(changes)
        }
    }

    fn post(&self, message: Inbound) -> Answer<Posted> {
        let (reply, answer) = oneshot::channel();
        self.lanes.queues[self.lane(message.session)].push(Request::Post { message, reply });
        Answer::reply(answer)
    }

    fn remove(&self, piece: Removal) -> Answer<Result<Removed, Refused>> {
        let (reply, answer) = oneshot::channel();
        self.lanes.queues[self.lane(piece.session)].push(Request::Remove { piece, marks: Vec::new(), reply });
        Answer::reply(answer)
    }

    fn reserve(&self, what: Sequence, count: u64) -> Answer<u64> {
        read::reserve(&self.readers, what, count)
    }

    fn session(&self, name: &str) -> Answer<Option<SessionRow>> {
        read::session(&self.readers, name)
    }

    fn session_by_no(&self, no: SessionNo) -> Answer<Option<SessionRow>> {
        read::session_by_no(&self.readers, no)
    }

    fn sessions(&self, after: Option<SessionNo>, limit: u64) -> Answer<Vec<SessionRow>> {
        read::sessions(&self.readers, after, limit)
    }

    fn batch(&self, lookup: Lookup) -> Answer<Option<BatchRow>> {
        read::batch(&self.readers, lookup)
    }

    fn open_batches(&self, session: Option<SessionNo>) -> Answer<Vec<BatchRow>> {
        read::open_batches(&self.readers, session)
    }

    fn journal(&self, batch: BatchNo) -> Answer<Vec<JournalRow>> {
        history::of_batch(&self.readers, batch)
    }

    fn history(&self, session: SessionNo, before: Option<EntryNo>, limit: u64) -> Answer<Vec<JournalRow>> {
        history::of_session(&self.readers, session, before, limit)
    }

    fn journal_after(&self, session: SessionNo, after: EntryNo, limit: u64) -> Answer<Vec<JournalRow>> {
        history::forward(&self.readers, session, after, limit)
    }

    fn blob(&self, blob: BlobNo, offset: u64, len: u64) -> Answer<Option<Vec<u8>>> {
        read::blob(&self.readers, blob, offset, len)
    }

    fn blob_size(&self, blob: BlobNo) -> Answer<Option<BlobSize>> {
        read::blob_size(&self.readers, blob)
    }

    fn inbound(&self, session: SessionNo, limit: u64) -> Answer<Vec<Inbound>> {
        read::inbound(&self.readers, session, limit)
    }

    fn marked(&self, mark: Mark) -> Answer<Option<CallId>> {
        read::marked(&self.readers, mark)
    }

    fn record(&self, session: SessionNo, space: Space, key: &str) -> Answer<Option<Record>> {
        read::record(&self.readers, session, space, key)
    }

    fn records(&self, page: RecordPage<'_>) -> Answer<Vec<Record>> {
        read::records(&self.readers, page)
    }

    fn count_records(&self, session: SessionNo, space: Space) -> Answer<u64> {
        read::count_records(&self.readers, session, space)
    }

    fn secret(&self) -> &Secret {
        &self.secret
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn last_owner_died(&self) -> bool {
        false
    }

    fn commits(&self) -> u64 {
        self.lanes.commits.load(Ordering::Relaxed)
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.lanes.queues.iter().for_each(Queue::close);
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing left to write; what it sent last, the server has or has not.
            let _ended = thread.join();
        }
    }
}

/// The database that is opened.
struct Place {
    /// Without password.
    name: PathBuf,
    config: Config,
}

impl Place {
    fn of(options: &Options) -> Result<Place, StoreError> {
        let parsed = options.url.parse::<Config>();
        let name = |config: &Config| format!("postgresql:{}", config.get_dbname().unwrap_or_default()).into();
        match parsed {
            Ok(mut config) => {
                // A transaction of a worker that stands still must not keep its locks longer than its lease.
                let idle = format!("-c idle_in_transaction_session_timeout={}", options.limits.lease_ms);
                let given = config.get_options().map(|given| format!("{given} {idle}")).unwrap_or(idle);
                config.application_name("windlass").connect_timeout(CONNECT_MAX).options(&given);
                Ok(Place { name: name(&config), config })
            }
            Err(error) => {
                let place = Place { name: name(&Config::new()), config: Config::new() };
                Err(place.refused("its address cannot be read", Some(Box::new(error))))
            }
        }
    }

    /// Makes the tables if need be, on the readers' thread.
    async fn open(&self, readers: &Readers) -> Result<schema::Opened, StoreError> {
        let (config, secret) = (self.config.clone(), random()?);
        let opened = readers.run(async move {
            Ok(match connection::connect(&config).await {
                Ok(mut client) => connection::answered(schema::open(&mut client, secret)).await,
                Err(failure) => Err(failure),
            })
        });
        opened.await?.map_err(|failure| self.failed(failure))
    }

    fn failed(&self, failure: Failure) -> StoreError {
        self.refused("see that the server runs and lets this user in", Some(Box::new(failure)))
    }

    fn refused(&self, help: &str, source: Option<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
        StoreError::Open { path: self.name.clone(), help: help.to_owned(), source }
    }
}

fn random<const N: usize>() -> Result<[u8; N], StoreError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| StoreError::Io { doing: "draw random numbers", source: Box::new(error) })?;
    Ok(bytes)
}

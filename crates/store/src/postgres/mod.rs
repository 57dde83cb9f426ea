//! The store on PostgreSQL: **a spike** that tests the contract, not yet a store for production.
//!
//! It passes the suite of every store, and shows the contract with several writing processes. A write goes `commit` → `queue` of the
//! session's `lane` → one transaction per group → answer; a read goes to one of the `readers`.
//!
//! A commit appends. Each group inserts a `version` behind the last one of each session it writes to: the session's state from then
//! on. The key refuses a writer that is not at the end, and taking a session is a version, so a former owner is refused by its own
//! append. A group of entries and batches whose sessions' versions are known is one statement (`append`); any other one is judged
//! (`group`, `judge`) from what is read while its sessions' rows are locked. No row is updated by either.
//!
//! When the answer to a COMMIT is lost, the lane looks for the row that each group inserts for itself, after waiting for the transaction.
//! If it is not there, a void row takes its place, and the group can never be committed. If it cannot be found out, the write is
//! an error and the store is poisoned; nothing is acknowledged on a guess.
//!
//! Missing: a policy for migrations (there is one format); TLS; deleting the rows of groups of
//! dead writers; waking an owner when a message was posted, which polls now; failover to a replica that may lack
//! acknowledged writes, which is noticed and closes the store; and tuning (groups are not gathered, and pools in between
//! such as pgbouncer are untested).

mod append;
mod connection;
mod group;
mod history;
mod judge;
mod known;
mod lane;
mod numbers;
mod read;
mod readers;
mod schema;
mod statements;
mod version;

use crate::change::{Change, Receipt, Refused};
use crate::limits::StoreLimits;
use crate::queue::{WriteQueue, WriteRequest};
use crate::record::gone_hash;
use crate::sqlite::RemovalRest;
use crate::{
    Answer, BatchRow, BlobSize, Durability, Inbound, JournalRow, KeptBatch, Posted, RecordPage, Removal,
    Removed, Sequence, SessionPage, SessionRow, Shelf, Space, Store, StoreError, StoreUsage, StoredRecord,
};
use connection::DatabaseFailure;
use known::KnownSessions;
use lane::Lanes;
use numbers::NumberBlocks;
use readers::ReaderConnections;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_postgres::Config;
use windlass_core::handle::Secret;
use windlass_core::ids::{BatchNo, BlobNo, CallId, EntryNo, Fence, Lookup, Mark, SessionNo};

/// The capacity of a queue in groups; above it writers must wait.
const GROUPS_WAITING_MAX: usize = 16;

/// A server that takes longer to connect to is tried again.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// A store in a database that other processes may share.
///
/// Dropping it writes pending changes.
pub struct PostgresStore {
    lanes: Arc<Lanes>,
    threads: Vec<JoinHandle<()>>,
    readers: ReaderConnections,
    numbers: NumberBlocks,
    secret: Secret,
    durability: Durability,
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Its address, in libpq's format: `host=… user=… dbname=…` or `postgresql://…`.
    pub url: String,
    /// Connections that write; each is a lane of sessions.
    pub writers: usize,
    /// Connections that read.
    pub readers: usize,
    /// How long a lost connection is retried before the write or the read fails.
    pub patience: Duration,
    /// The effective limits.
    pub limits: StoreLimits,
}

impl PostgresOptions {
    /// A store in this database, with a few connections and the usual limits.
    pub fn new(url: impl Into<String>) -> PostgresOptions {
        let patience = Duration::from_secs(10);
        PostgresOptions { url: url.into(), writers: 4, readers: 2, patience, limits: StoreLimits::default() }
    }
}

impl PostgresStore {
    /// Opens the store of a database, creating its tables if there are none. Other processes may open it too.
    pub async fn open(options: PostgresOptions) -> Result<PostgresStore, StoreError> {
        let place = DatabasePlace::of(&options)?;
        let no_thread =
            |error: std::io::Error| place.refused("no thread could be started", Some(Box::new(error)));
        let readers = ReaderConnections::start(place.config.clone(), options.patience, options.readers);
        let readers = readers.map_err(no_thread)?;
        let opened = place.open(&readers).await?;
        if opened.format > schema::KNOWN {
            return Err(StoreError::Newer {
                path: place.name.clone(),
                found: opened.format,
                known: schema::KNOWN,
            });
        }
        if opened.format < schema::KNOWN {
            return Err(
                place.refused("its format is older and there is no migration; make a new database", None)
            );
        }
        let damaged = || place.refused("its secret is damaged; restore it from a backup", None);
        let secret = opened.secret.ok_or_else(damaged)?;
        let group_max = options.limits.group_changes_max as usize;
        let lanes = Arc::new(Lanes {
            queues: (0..options.writers.max(1))
                .map(|_| WriteQueue::new(group_max * GROUPS_WAITING_MAX))
                .collect(),
            config: place.config.clone(),
            secret: secret.clone(),
            patience: options.patience,
            group_max,
            commits: AtomicU64::new(0),
            known: KnownSessions::default(),
        });
        let durability = if opened.fsync { Durability::Full } else { Durability::Relaxed };
        let (threads, numbers) = (Vec::new(), NumberBlocks::default());
        let mut store = PostgresStore { lanes, threads, readers, numbers, secret, durability };
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

    /// The lane of a change: its session's, or always the same for a record of the whole store.
    fn lane_of(&self, change: &Change) -> usize {
        match change {
            Change::Session(change) => self.lane(change.session),
            Change::Record(change) => {
                let lock = judge::lock_of(change.space, &change.key).cast_unsigned();
                (lock % self.lanes.queues.len() as u64) as usize
            }
        }
    }

    /// Hands changes to a lane.
    fn send(
        &self,
        lane: usize,
        changes: Vec<Change>,
    ) -> oneshot::Receiver<Result<Vec<ChangeResult>, StoreError>> {
        let (reply, answer) = oneshot::channel();
        self.lanes.queues[lane].push(WriteRequest::Commit { changes, reply });
        answer
    }

    /// A commit over several lanes. All of it is queued before this returns, because sending decides the order.
    fn scatter(&self, changes: Vec<Change>) -> Answer<Vec<ChangeResult>> {
        let mut parts: Vec<(Vec<usize>, Vec<Change>)> = vec![Default::default(); self.lanes.queues.len()];
        let count = changes.len();
        for (place, change) in changes.into_iter().enumerate() {
            let part = &mut parts[self.lane_of(&change)];
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

/// The result of a change.
type ChangeResult = Result<Receipt, Refused>;

impl Store for PostgresStore {
    fn commit(&self, changes: Vec<Change>) -> Answer<Vec<Result<Receipt, Refused>>> {
        let Some(first) = changes.first() else { return Answer::ready(Ok(Vec::new())) };
        let lane = self.lane_of(first);
        if changes.iter().all(|change| self.lane_of(change) == lane) {
            Answer::reply(self.send(lane, changes))
        } else {
            self.scatter(changes)
        }
    }

    fn post(&self, message: Inbound) -> Answer<Posted> {
        let (reply, answer) = oneshot::channel();
        self.lanes.queues[self.lane(message.session)].push(WriteRequest::Post { message, reply });
        Answer::reply(answer)
    }

    fn remove(&self, piece: Removal) -> Answer<Result<Removed, Refused>> {
        let (reply, answer) = oneshot::channel();
        self.lanes.queues[self.lane(piece.session)].push(WriteRequest::Remove {
            piece,
            rest: RemovalRest::default(),
            reply,
        });
        Answer::reply(answer)
    }

    fn reserve(&self, what: Sequence, count: u64) -> Answer<u64> {
        self.numbers.reserve(&self.readers, what, count)
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

    fn sessions_by_name(&self, page: SessionPage<'_>) -> Answer<Vec<SessionRow>> {
        read::sessions_by_name(&self.readers, page)
    }

    fn sessions_with(&self, space: Space, after: Option<SessionNo>, limit: u64) -> Answer<Vec<SessionRow>> {
        read::sessions_with(&self.readers, space, after, limit)
    }

    fn batch(&self, lookup: Lookup) -> Answer<Option<BatchRow>> {
        read::batch(&self.readers, lookup)
    }

    fn is_new(&self, session: SessionNo, fence: Fence, lookup: Lookup) -> bool {
        self.lanes.known.is_new(session, fence, lookup)
    }

    fn batch_by_no(&self, no: BatchNo) -> Answer<Option<BatchRow>> {
        read::batch_by_no(&self.readers, no)
    }

    fn kept_batches(&self, after: BatchNo, limit: u64) -> Answer<Vec<KeptBatch>> {
        read::kept_batches(&self.readers, after, limit)
    }

    fn usage(&self) -> Answer<StoreUsage> {
        read::usage(&self.readers)
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

    fn record(&self, shelf: Shelf, key: &str) -> Answer<Option<StoredRecord>> {
        read::record(&self.readers, shelf, key)
    }

    fn records(&self, page: RecordPage<'_>) -> Answer<Vec<StoredRecord>> {
        read::records(&self.readers, page)
    }

    fn count_records(&self, shelf: Shelf) -> Answer<u64> {
        read::count_records(&self.readers, shelf)
    }

    fn blob_session(&self, blob: BlobNo) -> Answer<Option<SessionNo>> {
        read::blob_session(&self.readers, blob)
    }

    fn gone(&self, name: &str) -> Answer<Option<Vec<u8>>> {
        read::gone(&self.readers, *gone_hash(&self.secret, name).as_bytes())
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
        self.lanes.queues.iter().for_each(WriteQueue::close);
        for thread in self.threads.drain(..) {
            // A panicked thread has nothing left to write; its last message has reached the server or not.
            let _ended = thread.join();
        }
    }
}

/// The database to open.
struct DatabasePlace {
    /// Without the password.
    name: PathBuf,
    config: Config,
}

impl DatabasePlace {
    fn of(options: &PostgresOptions) -> Result<DatabasePlace, StoreError> {
        let parsed = options.url.parse::<Config>();
        let name = |config: &Config| format!("postgresql:{}", config.get_dbname().unwrap_or_default()).into();
        match parsed {
            Ok(mut config) => {
                // A transaction of a stopped worker must not keep its locks longer than its lease.
                let idle = format!("-c idle_in_transaction_session_timeout={}", options.limits.lease_ms);
                let given = config.get_options().map(|given| format!("{given} {idle}")).unwrap_or(idle);
                config.application_name("windlass").connect_timeout(CONNECT_MAX).options(&given);
                Ok(DatabasePlace { name: name(&config), config })
            }
            Err(error) => {
                let place = DatabasePlace { name: name(&Config::new()), config: Config::new() };
                Err(place.refused("its address cannot be read", Some(Box::new(error))))
            }
        }
    }

    /// Creates the tables if necessary, on the readers' thread.
    async fn open(&self, readers: &ReaderConnections) -> Result<schema::OpeningParams, StoreError> {
        let (config, secret) = (self.config.clone(), random()?);
        let opened = readers.run(async move {
            Ok(match connection::connect(&config).await {
                Ok(mut client) => connection::answered(schema::open(&mut client, secret)).await,
                Err(failure) => Err(failure),
            })
        });
        opened.await?.map_err(|failure| self.failed(failure))
    }

    fn failed(&self, failure: DatabaseFailure) -> StoreError {
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

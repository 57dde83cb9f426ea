//! The store on PostgreSQL, which several processes share.
//!
//! A write goes `commit` → `queue` of the session's `lane` → one transaction per group → answer; a read goes to one of the `readers`.
//!
//! A commit appends. Each group inserts a `version` behind the last one of each session it writes to: the session's state from then
//! on. The key refuses a writer that is not at the end, and taking a session is a version, so a former owner is refused by its own
//! append. A group of entries and batches whose sessions' versions are known is one statement (`append`); any other one is judged
//! (`group`, `judge`) from what is read while its sessions' rows are locked. No row is updated by either.
//!
//! When the answer to a COMMIT is lost, or comes with a warning, the lane looks for the row that each group inserts for itself (`doubt`),
//! after waiting for the transaction. If it is not there, a void row takes its place, and the group can never be committed. Nothing is
//! acknowledged on a guess.
//!
//! An outage heals by itself, however long it lasts: lanes and readers connect again until they can (`states` says what each failure
//! means), and `health` says why nothing is written meanwhile. Connections keep no state (`connection`), so pools may stand in between.

mod address;
mod append;
mod connection;
mod doubt;
mod gather;
mod group;
mod history;
mod judge;
mod known;
mod lane;
mod lookups;
mod numbers;
mod options;
mod read;
mod readers;
mod schema;
mod server;
mod stalls;
mod statements;
mod states;
mod tls;
mod version;
mod wakes;

use crate::change::{Change, Receipt, Refused};
use crate::queue::{WriteQueue, WriteRequest};
use crate::record::gone_hash;
use crate::sqlite::RemovalRest;
use crate::{
    Answer, BatchRow, BlobSize, Durability, Health, Inbound, JournalRow, KeptBatch, Posted, RecordPage,
    Removal, Removed, Sequence, SessionPage, SessionRow, Shelf, Space, Store, StoreError, StoreSpace,
    StoreUsage, StoredRecord, WakeWay, Wakes,
};
use doubt::LastGroup;
use known::KnownSessions;
use lane::Lanes;
use lookups::{PageKey, PostgresLookups, name_key};
use numbers::NumberBlocks;
use readers::ReaderConnections;
use server::ServerDurability;
use stalls::Stalls;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};
use wakes::{WakeAddresses, WakeLine};
use windlass_core::handle::Secret;
use windlass_core::ids::{BatchNo, BlobNo, CallId, EntryNo, Fence, Lookup, Mark, SessionNo};

pub use options::PostgresOptions;
pub use schema::MigratedFormats;
pub use states::{SQL_STATES, SqlMeaning, SqlStateRow};

/// The capacity of a queue in groups; above it writers must wait.
const GROUPS_WAITING_MAX: usize = 16;

/// A store in a database that other processes may share.
///
/// Dropping it writes pending changes; those that cannot be written within [`PostgresOptions::patience`] fail.
pub struct PostgresStore {
    lanes: Arc<Lanes>,
    threads: Vec<JoinHandle<()>>,
    readers: ReaderConnections,
    lookups: PostgresLookups,
    numbers: NumberBlocks,
    secret: Secret,
    patience: Duration,
    wake_addresses: WakeAddresses,
    /// `None`: it could not be started.
    wake_line: OnceLock<Option<WakeLine>>,
}

impl PostgresStore {
    /// Opens the store of a database, creating its tables if there are none. Other processes may open it too.
    pub async fn open(options: PostgresOptions) -> Result<PostgresStore, StoreError> {
        let outage = options.patience;
        PostgresStore::open_within(options, outage).await
    }

    /// Like [`open`](PostgresStore::open), but a server that cannot be reached or is starting is waited for, however long that takes.
    /// `away` is called with each [`StoreError::Away`], about twice a second.
    pub async fn open_patiently(
        options: PostgresOptions,
        mut away: impl FnMut(&StoreError),
    ) -> Result<PostgresStore, StoreError> {
        let mut backoff = connection::Backoff::new();
        loop {
            match PostgresStore::open_within(options.clone(), Duration::ZERO).await {
                Err(error @ StoreError::Away { .. }) => away(&error),
                opened => return opened,
            }
            backoff.pause().await;
        }
    }

    async fn open_within(options: PostgresOptions, outage: Duration) -> Result<PostgresStore, StoreError> {
        let address = Arc::new(options.address(&options.url)?);
        let no_thread = |error: std::io::Error| {
            options::refused(&address, "no thread could be started", Some(Box::new(error)))
        };
        let stalls = Arc::new(Stalls::default());
        let readers = ReaderConnections::start(Arc::clone(&address), Arc::clone(&stalls), options.readers);
        let readers = readers.map_err(no_thread)?;
        let (secret, durability) = options.opened(&address, &readers, outage).await?;
        let writers = options.writers.max(1);
        let group_max = options.limits.group_changes_max as usize;
        let lasts: Result<Vec<_>, StoreError> =
            (0..=writers).map(|_| Ok(LastGroup::new(random()?))).collect();
        let lanes = Arc::new(Lanes {
            queues: (0..=writers).map(|_| WriteQueue::refusing(group_max * GROUPS_WAITING_MAX)).collect(),
            lasts: lasts?,
            address: Arc::clone(&address),
            secret: secret.clone(),
            lease: Duration::from_millis(options.limits.lease_ms),
            group_max,
            commits: AtomicU64::new(0),
            known: KnownSessions::default(),
            stalls,
            durability: ServerDurability::default(),
            closing: OnceLock::new(),
        });
        lanes.durability.note(durability);
        let direct = options.direct.as_deref().map(|direct| options.address(direct)).transpose()?;
        let direct = direct.map_or_else(|| Arc::clone(&address), Arc::new);
        let mut store = PostgresStore {
            lanes,
            threads: Vec::new(),
            readers,
            lookups: PostgresLookups::default(),
            numbers: NumberBlocks::default(),
            secret,
            patience: options.patience,
            wake_addresses: WakeAddresses { direct, shared: Arc::clone(&address) },
            wake_line: OnceLock::new(),
        };
        for at in 0..store.lanes.queues.len() {
            store.threads.push(lane::start(&store.lanes, at).map_err(no_thread)?);
        }
        store.readers.keep_sweeping();
        Ok(store)
    }

    /// Deletes rows that nobody looks for any more, as every store does once an hour; how many.
    pub fn sweep(&self) -> Answer<u64> {
        read::sweep(&self.readers)
    }

    /// The line that wakes, if there can be one: without it everybody polls.
    fn wake_line(&self) -> Option<&WakeLine> {
        let start = || match WakeLine::start(self.wake_addresses.clone()) {
            Ok(line) => Some(line),
            Err(error) => {
                tracing::warn!(%error, "workers cannot be woken");
                None
            }
        };
        self.wake_line.get_or_init(start).as_ref()
    }

    /// Brings a database to the format that this version needs, or creates its tables. Workers of the version before go on meanwhile.
    pub async fn migrate(options: PostgresOptions) -> Result<MigratedFormats, StoreError> {
        let address = Arc::new(options.address(options.direct.as_ref().unwrap_or(&options.url))?);
        let readers = ReaderConnections::start(Arc::clone(&address), Arc::default(), 1);
        let readers = readers.map_err(|error| {
            options::refused(&address, "no thread could be started", Some(Box::new(error)))
        })?;
        options.migrated(&address, &readers, options.patience).await
    }

    /// How many lanes sessions have. One more is for workers' records.
    fn session_lanes(&self) -> u64 {
        self.lanes.queues.len() as u64 - 1
    }

    /// The lane of a session, always the same.
    fn lane(&self, session: SessionNo) -> usize {
        (session.0 % self.session_lanes()) as usize
    }

    /// The lane of a change: its session's, or always the same for a record of the whole store. Heartbeats have one of their own.
    fn lane_of(&self, change: &Change) -> usize {
        match change {
            Change::Session(change) => self.lane(change.session),
            Change::Record(change) if change.space == StoreSpace::Worker => self.lanes.queues.len() - 1,
            Change::Record(change) => {
                let lock = judge::lock_of(change.space, &change.key).cast_unsigned();
                (lock % self.session_lanes()) as usize
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
        self.lookups.names.ask(&self.readers, name_key(name))
    }

    fn session_by_no(&self, no: SessionNo) -> Answer<Option<SessionRow>> {
        self.lookups.sessions.ask(&self.readers, no)
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
        self.lookups.lookups.ask(&self.readers, lookup)
    }

    fn is_new(&self, session: SessionNo, fence: Fence, lookup: Lookup) -> bool {
        self.lanes.known.is_new(session, fence, lookup)
    }

    fn batch_by_no(&self, no: BatchNo) -> Answer<Option<BatchRow>> {
        self.lookups.batches.ask(&self.readers, no)
    }

    fn kept_batches(&self, after: BatchNo, limit: u64) -> Answer<Vec<KeptBatch>> {
        read::kept_batches(&self.readers, after, limit)
    }

    fn usage(&self) -> Answer<StoreUsage> {
        read::usage(&self.readers)
    }

    fn open_batches(&self, session: Option<SessionNo>) -> Answer<Vec<BatchRow>> {
        match session {
            Some(session) => self.lookups.open.ask(&self.readers, session),
            None => read::open_batches(&self.readers),
        }
    }

    fn journal(&self, batch: BatchNo) -> Answer<Vec<JournalRow>> {
        self.lookups.journals.ask(&self.readers, batch)
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
        self.lookups.messages.ask(&self.readers, (session, limit))
    }

    fn marked(&self, mark: Mark) -> Answer<Option<CallId>> {
        read::marked(&self.readers, mark)
    }

    fn record(&self, shelf: Shelf, key: &str) -> Answer<Option<StoredRecord>> {
        self.lookups.records.ask(&self.readers, (shelf, key.to_owned()))
    }

    fn records(&self, page: RecordPage<'_>) -> Answer<Vec<StoredRecord>> {
        self.lookups.pages.ask(&self.readers, PageKey::of(page))
    }

    fn count_records(&self, shelf: Shelf) -> Answer<u64> {
        self.lookups.counts.ask(&self.readers, shelf)
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
        self.lanes.durability.get()
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.lanes.stalls.health().watch()
    }

    fn wake(&self, target: &str) {
        if let Some(line) = self.wake_line() {
            line.wake(target);
        }
    }

    fn wakes(&self, target: &str) -> Wakes {
        self.wake_line().map_or_else(Wakes::never, |line| line.wakes(target))
    }

    fn wake_way(&self) -> WakeWay {
        self.wake_line().map_or(WakeWay::Poll, WakeLine::way)
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
        let until = Instant::now() + self.patience;
        self.lanes.closing.get_or_init(|| until);
        self.lanes.queues.iter().for_each(WriteQueue::close);
        for thread in self.threads.drain(..) {
            // A panicked thread has nothing left to write; its last message has reached the server or not.
            let _ended = thread.join();
        }
    }
}

fn random<const N: usize>() -> Result<[u8; N], StoreError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| StoreError::Io { doing: "draw random numbers", source: Box::new(error) })?;
    Ok(bytes)
}

//! A lane: one queue, one thread, one connection, one group after the other. A session always uses the same lane, so
//! its changes apply in the order in which they were sent; several lanes have several transactions in flight.

use super::append::PlainGroup;
use super::connection::{DatabaseFailure, Meaning, Patience, answered, connect};
use super::group::{GroupFault, GroupMark, GroupOutcome, JudgedGroup, Writing};
use super::known::{KnownSessions, TAKEN_LOOKUPS_MAX, TakenSession};
use super::statements::PostgresStatements;
use super::version::KnownVersions;
use crate::queue::{self, EndOnDrop, Gather, WriteOutcome, WriteQueue, WriteRequest};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio_postgres::Config;
use windlass_core::handle::Secret;

/// Shared by all lanes of a store.
pub(super) struct Lanes {
    pub queues: Vec<WriteQueue>,
    pub config: Config,
    pub secret: Secret,
    pub patience: Duration,
    pub group_max: usize,
    pub commits: AtomicU64,
    pub known: KnownSessions,
}

impl Lanes {
    /// From here on the recorded state is unknown, until the store is opened again.
    fn poison(&self, because: &Arc<str>) {
        self.queues.iter().for_each(|queue| queue.poison(because));
    }
}

/// Whether a lane could connect.
pub(super) type LaneReady = oneshot::Receiver<Result<(), DatabaseFailure>>;

/// Starts the thread of a lane; the receiver reports that it has connected.
pub(super) fn start(
    lanes: &Arc<Lanes>,
    at: usize,
    writer: [u8; 16],
) -> std::io::Result<(JoinHandle<()>, LaneReady)> {
    let (ready, started) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let lane = WriterLane {
        lanes: Arc::clone(lanes),
        at,
        mark: GroupMark { writer, group: 0 },
        versions: KnownVersions::default(),
        connection: None,
    };
    let name = format!("windlass-postgres-{at}");
    let thread = std::thread::Builder::new().name(name).spawn(move || lane.run(&runtime, ready))?;
    Ok((thread, started))
}

struct WriterLane {
    lanes: Arc<Lanes>,
    at: usize,
    /// The last group whose outcome is known.
    mark: GroupMark,
    versions: KnownVersions,
    connection: Option<Writing>,
}

/// How a group is written. Each attempt goes further than the one before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GroupWay {
    /// In one statement, if it needs no question.
    Append,
    /// Its sessions are locked and read.
    Judge,
    /// Somebody else appended to a session after it was read: so its owner is blocked first.
    Block,
}

impl GroupWay {
    /// The way of the next attempt, after one that somebody else raced or that failed otherwise.
    fn after(self, raced: bool) -> GroupWay {
        match self {
            GroupWay::Append => GroupWay::Judge,
            GroupWay::Judge | GroupWay::Block if raced => GroupWay::Block,
            GroupWay::Judge | GroupWay::Block => self,
        }
    }
}

impl WriterLane {
    fn run(mut self, runtime: &Runtime, ready: oneshot::Sender<Result<(), DatabaseFailure>>) {
        let lanes = Arc::clone(&self.lanes);
        let queue = &lanes.queues[self.at];
        let _told = EndOnDrop(queue);
        let entered = runtime.block_on(async { self.connected().await.map(|_connection| ()) });
        let failed = entered.is_err();
        if ready.send(entered).is_err() || failed {
            return;
        }
        while let Some(group) = queue.take(lanes.group_max, Gather::default()) {
            match runtime.block_on(self.write(&group)) {
                Ok(told) => {
                    for taken in lanes.known.note(&group, &told) {
                        runtime.block_on(self.learn(taken));
                    }
                    group.into_iter().zip(told).for_each(|(request, told)| request.answer(told));
                }
                Err(failure) => {
                    tracing::error!(%failure, "a write failed; the store is closed until it is opened anew");
                    lanes.poison(&failure.to_string().into());
                    queue::fail_group(group, failure);
                    return;
                }
            }
        }
        runtime.block_on(self.leave());
    }

    /// Writes a group with retries, and finds out whether it was written when no answer came.
    async fn write(&mut self, group: &[WriteRequest]) -> Result<Vec<WriteOutcome>, DatabaseFailure> {
        let mut patience = Patience::new(self.lanes.patience);
        let mut way = GroupWay::Append;
        loop {
            let failure = match self.attempt(group, way).await {
                Ok(GroupOutcome::Nothing(told)) => return Ok(told),
                Ok(GroupOutcome::Committed(done)) => return Ok(self.committed(done)),
                Err(GroupFault::Undone(failure)) => {
                    self.undo(&failure).await;
                    failure
                }
                Err(GroupFault::InDoubt { failure, group }) => {
                    self.connection = None;
                    if self.decide().await.map_err(|why| DatabaseFailure::Undecided(Box::new(why)))? {
                        return Ok(self.committed(group));
                    }
                    // Its number is void now.
                    self.mark.group += 1;
                    failure
                }
            };
            let (raced, tried) = (failure.meaning() == Meaning::Raced, way);
            way = way.after(raced);
            // What is there already is read at once; a pause helps only where somebody is in the way.
            if tried == GroupWay::Append && raced {
                continue;
            }
            patience.after(failure).await?;
        }
    }

    /// Reads which batches a session has that was taken just now. If that fails or there are too many, each is asked for.
    async fn learn(&mut self, taken: TakenSession) {
        let Ok(connection) = self.connected().await else { return };
        match answered(connection.lookups(taken.session, TAKEN_LOOKUPS_MAX + 1)).await {
            Ok(lookups) if lookups.len() <= TAKEN_LOOKUPS_MAX => self.lanes.known.learn(taken, lookups),
            Ok(_) | Err(_) => {}
        }
    }

    async fn attempt(&mut self, group: &[WriteRequest], way: GroupWay) -> Result<GroupOutcome, GroupFault> {
        let mark = GroupMark { group: self.mark.group + 1, ..self.mark };
        let secret = self.lanes.secret.clone();
        let plain = match way {
            GroupWay::Append => PlainGroup::of(group, &self.versions, &secret),
            GroupWay::Judge | GroupWay::Block => None,
        };
        // Only a group that is durable says where its sessions are.
        self.versions.forget(group);
        let connection = self.connected().await.map_err(GroupFault::Undone)?;
        match plain {
            Some(plain) => connection.append(plain, mark).await,
            None => connection.group(group, mark, way == GroupWay::Block).await,
        }
    }

    fn committed(&mut self, done: JudgedGroup) -> Vec<WriteOutcome> {
        self.mark.group += 1;
        self.lanes.commits.fetch_add(1, Ordering::Relaxed);
        self.versions.note(done.versions);
        done.told
    }

    /// Finds out whether the group in doubt is there; if not, it never will be.
    async fn decide(&mut self) -> Result<bool, DatabaseFailure> {
        let mark = GroupMark { group: self.mark.group + 1, ..self.mark };
        let mut patience = Patience::new(self.lanes.patience);
        loop {
            let asked = match self.connected().await {
                Ok(connection) => connection.is_done(mark).await,
                Err(failure) => Err(failure),
            };
            match asked {
                Ok(done) => {
                    tracing::info!(done, "the answer to a COMMIT was lost; it was read back");
                    return Ok(done);
                }
                Err(failure) => {
                    self.connection = None;
                    patience.after(failure).await?;
                }
            }
        }
    }

    /// Prepares the connection for another group, or drops it.
    async fn undo(&mut self, failure: &DatabaseFailure) {
        if failure.meaning() != Meaning::Lost
            && let Some(connection) = &self.connection
            && answered(connection.client.batch_execute("ROLLBACK")).await.is_ok()
        {
            return;
        }
        self.connection = None;
    }

    async fn connected(&mut self) -> Result<&Writing, DatabaseFailure> {
        let connection = match self.connection.take() {
            Some(connection) if !connection.client.is_closed() => connection,
            _ => {
                let client = connect(&self.lanes.config).await?;
                let sql = answered(PostgresStatements::prepare(&client)).await?;
                let connection = Writing { client, sql, secret: self.lanes.secret.clone() };
                connection.remembers(self.mark).await?;
                connection
            }
        };
        Ok(self.connection.insert(connection))
    }

    async fn leave(&mut self) {
        let Some(connection) = &self.connection else { return };
        // Rows that stay are a few bytes, and harmless.
        let _left = connection.leave(self.mark).await;
    }
}

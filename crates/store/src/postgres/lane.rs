//! A lane: one queue, one thread, one connection, one group after the other. A session always uses the same lane, so
//! its changes apply in the order in which they were sent; several lanes have several transactions in flight. One more lane has
//! the records of workers only: a heartbeat never waits behind anything else.
//!
//! A lane connects when it has something to write. However long the server is away, the lane keeps its group and tries again;
//! nothing is answered on a guess, and nothing is given up but at the end of the store.

use super::address::DatabaseAddress;
use super::append::PlainGroup;
use super::connection::{Backoff, DatabaseFailure, answered};
use super::doubt::{GroupMark, LastGroup};
use super::group::{GroupFault, GroupOutcome, JudgedGroup, WriteTimes, Writing};
use super::known::{KnownSessions, TAKEN_LOOKUPS_MAX, TakenSession};
use super::server::ServerDurability;
use super::stalls::{ConnectionUser, Stalls};
use super::states::SqlMeaning;
use super::version::KnownVersions;
use crate::queue::{self, EndOnDrop, Gather, WriteOutcome, WriteQueue, WriteRequest};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use windlass_core::handle::Secret;

/// After silence the server is given twice the time, up to this many doublings: a group may take long.
const REPLY_DOUBLINGS_MAX: u32 = 4;

/// Shared by all lanes of a store.
pub(super) struct Lanes {
    /// The last one is that of workers' records.
    pub queues: Vec<WriteQueue>,
    /// The last groups of the lanes.
    pub lasts: Vec<LastGroup>,
    pub address: Arc<DatabaseAddress>,
    pub secret: Secret,
    pub lease: Duration,
    pub group_max: usize,
    pub commits: AtomicU64,
    pub known: KnownSessions,
    pub stalls: Arc<Stalls>,
    pub durability: ServerDurability,
    /// Set once the store is closed: when whatever is not written then is given up.
    pub closing: OnceLock<Instant>,
}

impl Lanes {
    /// From here on the recorded state is unknown, until the store is opened again.
    fn poison(&self, because: &Arc<str>) {
        self.stalls.close(because);
        self.queues.iter().for_each(|queue| queue.poison(because));
    }

    /// Whether nobody waits any longer.
    fn is_given_up(&self) -> bool {
        self.closing.get().is_some_and(|until| Instant::now() >= *until)
    }
}

/// Starts the thread of a lane.
pub(super) fn start(lanes: &Arc<Lanes>, at: usize) -> std::io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let lane = WriterLane {
        lanes: Arc::clone(lanes),
        at,
        mark: lanes.lasts[at].start(),
        versions: KnownVersions::default(),
        connection: None,
        silences: 0,
        stalled: false,
    };
    let name = format!("windlass-postgres-{at}");
    std::thread::Builder::new().name(name).spawn(move || lane.run(&runtime))
}

struct WriterLane {
    lanes: Arc<Lanes>,
    at: usize,
    /// The last group whose outcome is known.
    mark: GroupMark,
    versions: KnownVersions,
    connection: Option<Writing>,
    /// How often the server was silent since the last answer.
    silences: u32,
    /// Whether it was told that this lane is stalled.
    stalled: bool,
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
    fn run(mut self, runtime: &Runtime) {
        let lanes = Arc::clone(&self.lanes);
        let queue = &lanes.queues[self.at];
        let _told = EndOnDrop(queue);
        let mut gather = Gather::default();
        while let Some(group) = queue.take(lanes.group_max, gather) {
            let began = Instant::now();
            match runtime.block_on(self.write(&group)) {
                Ok(told) => {
                    for taken in lanes.known.note(&group, &told) {
                        runtime.block_on(self.learn(taken));
                    }
                    gather = Gather::after(&group, began.elapsed());
                    group.into_iter().zip(told).for_each(|(request, told)| request.answer(told));
                }
                Err(failure) => {
                    let because = failure.told();
                    tracing::error!(%because, "a write failed; the store is closed until it is opened anew");
                    lanes.poison(&because.into());
                    queue::fail_group(group, failure);
                    return;
                }
            }
        }
        runtime.block_on(self.leave());
    }

    /// Writes a group, however long it takes, and finds out whether it was written when no answer came.
    async fn write(&mut self, group: &[WriteRequest]) -> Result<Vec<WriteOutcome>, DatabaseFailure> {
        let mut backoff = Backoff::new();
        let mut way = GroupWay::Append;
        loop {
            let failure = match self.attempt(group, way).await {
                Ok(GroupOutcome::Nothing(told)) => {
                    self.works();
                    return Ok(told);
                }
                Ok(GroupOutcome::Committed(done)) => return Ok(self.committed(done)),
                Err(GroupFault::Undone(failure)) => {
                    self.undo(&failure).await;
                    failure
                }
                Err(GroupFault::InDoubt { failure, group }) => {
                    if self.decide(failure, &mut backoff).await? {
                        return Ok(self.committed(group));
                    }
                    // Its number is void now.
                    self.mark.group += 1;
                    way = way.after(false);
                    continue;
                }
            };
            let (raced, tried) = (failure.meaning() == SqlMeaning::Raced, way);
            way = way.after(raced);
            // What is there already is read at once; a pause helps only where somebody is in the way.
            if tried == GroupWay::Append && raced {
                continue;
            }
            self.pause(failure, &mut backoff).await?;
        }
    }

    /// Waits before the next attempt. Returns the failure if it is final, or if the store is closed and nobody waits any more.
    async fn pause(
        &mut self,
        failure: DatabaseFailure,
        backoff: &mut Backoff,
    ) -> Result<(), DatabaseFailure> {
        if failure.meaning() == SqlMeaning::Final || self.lanes.is_given_up() {
            return Err(failure);
        }
        tracing::debug!(failure = failure.told(), lane = self.at, "PostgreSQL is asked again");
        if let DatabaseFailure::Silent(_) = failure {
            self.silences += 1;
        }
        if let Some(because) = self.lanes.stalls.note(self.user(), &failure, backoff.lasted()) {
            self.lanes.queues[self.at].stall(Some(because));
            self.stalled = true;
        }
        backoff.pause().await;
        Ok(())
    }

    /// Notes that the server did what it was asked.
    fn works(&mut self) {
        self.silences = 0;
        if std::mem::take(&mut self.stalled) {
            self.lanes.queues[self.at].stall(None);
            self.lanes.stalls.clear(self.user());
        }
    }

    fn user(&self) -> ConnectionUser {
        ConnectionUser::Lane(self.at)
    }

    /// Reads which batches a session has that was taken just now. If that fails or there are too many, each is asked for.
    async fn learn(&mut self, taken: TakenSession) {
        let Ok(connection) = self.connected().await else { return };
        let asked = connection.lookups(taken.session, TAKEN_LOOKUPS_MAX + 1);
        match answered(connection.times.reply, asked).await {
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
        self.lanes.lasts[self.at].note(self.mark.group);
        self.lanes.commits.fetch_add(1, Ordering::Relaxed);
        self.versions.note(done.versions);
        self.works();
        done.told
    }

    /// Finds out whether the group in doubt is there; if not, it never will be.
    async fn decide(
        &mut self,
        mut failure: DatabaseFailure,
        backoff: &mut Backoff,
    ) -> Result<bool, DatabaseFailure> {
        let mark = GroupMark { group: self.mark.group + 1, ..self.mark };
        // Whether its server has answered or not, that connection is of no use.
        self.connection = None;
        loop {
            let undecided = |why| DatabaseFailure::Undecided(Box::new(why));
            self.pause(failure, backoff).await.map_err(undecided)?;
            let asked = match self.connected().await {
                Ok(connection) => connection.is_done(mark).await,
                Err(failure) => Err(failure),
            };
            failure = match asked {
                Ok(done) => {
                    tracing::info!(done, "the answer to a COMMIT was lost; it was read back");
                    return Ok(done);
                }
                Err(failure) => failure,
            };
            // Of those who wait for a lock, and have waited in vain, nothing is left.
            if failure.meaning() != SqlMeaning::Raced {
                self.connection = None;
            }
        }
    }

    /// Prepares the connection for another group, or drops it.
    async fn undo(&mut self, failure: &DatabaseFailure) {
        if failure.meaning() != SqlMeaning::Lost
            && let Some(connection) = &self.connection
            && connection.rollback().await.is_ok()
        {
            return;
        }
        self.connection = None;
    }

    async fn connected(&mut self) -> Result<&Writing, DatabaseFailure> {
        let lanes = &self.lanes;
        let reply = lanes.address.reply * 2_u32.pow(self.silences.min(REPLY_DOUBLINGS_MAX));
        let times = WriteTimes { reply, idle: lanes.lease };
        let connection = match self.connection.take() {
            Some(connection) if !connection.link.client.is_closed() => Writing { times, ..connection },
            _ => {
                let link = lanes.address.connect(&format!("write {}", self.at), |_| {}).await?;
                let connection = Writing { link, secret: lanes.secret.clone(), times };
                connection.remembers(&lanes.lasts).await?;
                lanes.durability.note(connection.durability().await?);
                connection
            }
        };
        Ok(self.connection.insert(connection))
    }

    async fn leave(&mut self) {
        let Some(connection) = &self.connection else { return };
        // Nobody may look for rows that are about to go.
        self.lanes.lasts[self.at].note(0);
        // Rows that stay are a few bytes, and harmless.
        let _left = connection.leave(self.mark).await;
    }
}

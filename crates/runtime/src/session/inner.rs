//! The memory of a runtime, which all rooms share: the store, the tools, the sessions, the planner, the wheel.

use crate::api::clock::{Clock, SystemClock};
use crate::api::error::BatchError;
use crate::api::limits::{EnforcedLimits, Limits};
use crate::api::locks::{LockRank, OrderedMutex};
use crate::api::retention::Retention;
use crate::api::secret::SecretKeySource;
use crate::session::away::Away;
use crate::session::events::Feeds;
use crate::session::gate::Gate;
use crate::session::held::due_us;
use crate::session::meters::Meters;
use crate::session::orders::AdoptedOrders;
use crate::session::outgoing::Outgoing;
use crate::session::owner::Session;
use crate::session::owners::{Embedded, Owners};
use crate::session::plugs::Plugs;
use crate::session::policy::PolicyCell;
use crate::session::sessions::OwnedSessions;
use crate::session::slots::Slots;
use crate::session::threads::Threads;
use crate::session::turns::Turns;
use crate::session::vault::Vaults;
use crate::session::wheel::Wheel;
use crate::session::worker::Leases;
use crate::tools::hooks::Hook;
use crate::tools::model::LanguageModel;
use crate::tools::projector::Projector;
use crate::tools::registry::{Host, Registry};
use crate::tools::transport::WebhookTransport;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::{Notify, watch};
use windlass_core::ids::{CallId, SessionNo};
use windlass_core::time::Timestamp;
use windlass_core::tool::Need;
use windlass_store::{Health, Store};

/// When a caller that was refused because the store cannot write should retry.
const STALL_RETRY_MS: u64 = 1_000;

/// Runs calls of tools, durably. Cheap to clone; all clones are one runtime.
///
/// ```
/// use windlass::{BatchRequest, CallRequest, Config, Runtime, ToolSpec, store::memory::MemoryStore, tool_fn};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::new(Config::new(MemoryStore::new()?));
/// runtime.register(tool_fn(ToolSpec { name: "ping".into(), ..ToolSpec::default() }, |_, _| async {
///     Ok(serde_json::json!("pong").into())
/// }))?;
/// let call = CallRequest { id: Some("c1".into()), tool: "ping".into(), ..CallRequest::default() };
/// let batch = BatchRequest { calls: vec![call], ..BatchRequest::default() };
/// let answer = runtime.submit("demo", batch).await?.settled().await?;
/// assert_eq!(answer.calls[0].model_text(), "pong");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Runtime(pub(crate) Arc<Inner>);

/// The parts of a runtime.
///
/// ```
/// use windlass::store::memory::MemoryStore;
/// use windlass::{Config, Limits, Runtime};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = Limits { calls_running_max: 4, ..Limits::default() };
/// let runtime = Runtime::new(Config { limits, ..Config::new(MemoryStore::new()?) });
/// assert_eq!(runtime.limits().calls_running_max, 4);
/// # Ok(()) }
/// ```
pub struct Config {
    /// The store of the journals.
    pub store: Arc<dyn Store>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The limits.
    pub limits: Limits,
    /// When records of calls expire; by default they never do.
    pub retention: Retention,
    /// The hooks, called in this order.
    pub hooks: Vec<Arc<dyn Hook>>,
    /// The language model that tools may ask with [`Cx::complete`](crate::Cx::complete). Without it none can.
    pub model: Option<Arc<dyn LanguageModel>>,
    /// Shapes what the model sees of ended calls; without it the default does.
    pub projector: Option<Arc<dyn Projector>>,
    /// The key that encrypts secrets. Without it none can be stored or used.
    pub secret_key: SecretKeySource,
    /// Delivers messages to [webhooks](crate::Runtime::webhooks). Without it they are recorded, and the next owner with one delivers them.
    pub webhooks: Option<Arc<dyn WebhookTransport>>,
    /// The parent of the folders with the files of sessions; created at the first use. Without it there are no files.
    pub files: Option<PathBuf>,
    /// Rules of the [policy](crate::policy) that the host declares, as `{"rules": […]}`: they apply beside those that
    /// [`Runtime::set_policy`] sets. If they differ from those stored, they become a new version. `None` leaves what is stored.
    pub policy: Option<serde_json::Value>,
    /// The secrets that each toolbox may read, by its name; its manifest must name them too. By default none.
    pub toolbox_secrets: BTreeMap<String, Vec<String>>,
    /// Folders in which a session may be opened with a [folder](crate::sessions::SessionOpening::folder) for its files. By default
    /// there are none.
    pub folders: Vec<PathBuf>,
    /// Whether other runtimes work on the same store. Then this one is a worker: it writes heartbeats, owns sessions only while
    /// they succeed, and takes over those of dead workers. `false`: everything in the store is this runtime's.
    pub shared: bool,
    /// The address of this worker's server, such as `http://worker-1.example.com:7420`, at which the other workers of a shared store reach it; it
    /// stands in the worker's record.
    pub address: Option<String>,
}

impl Config {
    /// The default configuration on this store.
    pub fn new(store: impl Store) -> Config {
        Config::on(Arc::new(store))
    }

    /// The default configuration on a store that others use too.
    pub fn on(store: Arc<dyn Store>) -> Config {
        Config {
            store,
            clock: Arc::new(SystemClock::default()),
            limits: Limits::default(),
            retention: Retention::default(),
            hooks: Vec::new(),
            model: None,
            projector: None,
            secret_key: SecretKeySource::None,
            webhooks: None,
            files: None,
            policy: None,
            toolbox_secrets: BTreeMap::new(),
            folders: Vec::new(),
            shared: false,
            address: None,
        }
    }
}

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Arc<EnforcedLimits>,
    pub(crate) retention: Retention,
    pub(crate) hooks: Vec<Arc<dyn Hook>>,
    pub(crate) model: Option<Arc<dyn LanguageModel>>,
    pub(crate) projector: Option<Arc<dyn Projector>>,
    pub(crate) webhooks: Option<Arc<dyn WebhookTransport>>,
    pub(crate) outgoing: Arc<Outgoing>,
    pub(crate) files: Option<Arc<Path>>,
    /// The address of its server, for other workers.
    pub(crate) address: Option<String>,
    /// When it was made.
    pub(crate) began_at: Timestamp,
    /// The policy in force.
    pub(crate) policy: PolicyCell,
    /// The numbers of the changes for all workers that it has adopted.
    pub(crate) adopted: AdoptedOrders,
    pub(crate) toolbox_secrets: BTreeMap<String, Vec<String>>,
    pub(crate) folders: Vec<PathBuf>,
    /// The secrets in memory.
    pub(crate) secrets: Arc<Vaults>,
    pub(crate) registry: Arc<Registry>,
    /// The services for tools.
    pub(crate) host: Arc<Host>,
    pub(crate) threads: Threads,
    pub(crate) tasks: tokio::runtime::Handle,
    pub(super) sessions: OrderedMutex<OwnedSessions, { LockRank::Sessions as u8 }>,
    pub(crate) open: AtomicU64,
    /// Notified when the last open call is over.
    pub(crate) idle: Notify,
    /// Calls that an earlier owner left open.
    pub(crate) taken_over: AtomicU64,
    /// Calls of a copy that were under way at its original.
    pub(crate) copied_calls: AtomicU64,
    pub(crate) wheel: Arc<Wheel>,
    pub(crate) turns: Turns,
    /// The followers of sessions.
    pub(crate) feeds: Feeds,
    pub(crate) meters: Meters,
    pub(crate) gate: Gate,
    /// Parked calls that are not in memory.
    pub(crate) away: Arc<Away>,
    /// Calls that wait for their tool.
    tool_waits: OrderedMutex<Vec<(Weak<Session>, CallId)>, { LockRank::ToolWaits as u8 }>,
    /// Whether the last owner of the store died: then one of its calls may have killed it.
    pub(crate) last_owner_died: bool,
    /// Whether a session was lost here and forgotten: its last writes may still be on their way to the store.
    pub(super) has_forgotten_lost: AtomicBool,
    /// Whether the store takes writes.
    pub(super) health: watch::Receiver<Health>,
    /// Until when every start is recorded before the attempt, by the clock that never jumps.
    careful_until_us: AtomicU64,
    chance: AtomicU64,
    /// Functions of the upper rooms.
    pub(crate) plugs: Plugs,
    /// State of features.
    pub(crate) slots: Slots,
    /// A number that marks records of this process.
    pub(crate) life: u64,
    /// How it comes to own sessions.
    pub(crate) owners: Box<dyn Owners>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.wheel.stop();
        self.feeds.end();
        self.away.stop();
        self.outgoing.stop();
        self.owners.leave(&*self.store);
    }
}

impl Inner {
    /// A runtime without background tasks yet.
    pub(crate) fn new(config: Config, plugs: Plugs) -> Arc<Inner> {
        let limits = Arc::new(EnforcedLimits::new(config.limits));
        let wheel = Arc::new(Wheel::new(config.clock.clone(), limits.clock_jump_ms));
        let (last_owner_died, health) = (config.store.last_owner_died(), config.store.health());
        let offers = config.files.iter().map(|_| Need::Files).collect();
        let host = Arc::new(Host { limits: limits.clone(), offers });
        let began_at = config.clock.now();
        Arc::new(Inner {
            retention: config.retention,
            store: config.store,
            clock: config.clock,
            hooks: config.hooks,
            model: config.model,
            projector: config.projector,
            webhooks: config.webhooks,
            outgoing: Arc::default(),
            files: config.files.map(Arc::from),
            address: config.address,
            began_at,
            policy: PolicyCell::new(config.policy),
            adopted: AdoptedOrders::default(),
            toolbox_secrets: config.toolbox_secrets,
            folders: config.folders,
            secrets: Arc::new(Vaults::new(config.secret_key)),
            registry: Arc::new(
                Registry::new(host.clone(), plugs.own_tools).with_catalog(plugs.catalog_tools),
            ),
            host,
            turns: Turns::new(&limits, config.shared),
            limits,
            threads: Threads::default(),
            tasks: tokio::runtime::Handle::current(),
            sessions: OrderedMutex::default(),
            open: AtomicU64::new(0),
            idle: Notify::new(),
            taken_over: AtomicU64::new(0),
            copied_calls: AtomicU64::new(0),
            wheel,
            feeds: Feeds::default(),
            meters: Meters::default(),
            gate: Gate::default(),
            away: Arc::default(),
            tool_waits: OrderedMutex::default(),
            last_owner_died,
            has_forgotten_lost: AtomicBool::new(false),
            health,
            careful_until_us: AtomicU64::new(0),
            chance: AtomicU64::new(seed()),
            slots: Slots::default(),
            plugs,
            life: seed(),
            owners: if config.shared { Box::<Leases>::default() } else { Box::new(Embedded) },
        })
    }

    /// A pseudo-random number over all of `u64`, to spread waits (splitmix64).
    pub(crate) fn chance(&self) -> u64 {
        let mut mixed = self.chance.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Whether every start is recorded before the attempt.
    pub(crate) fn is_careful(&self) -> bool {
        let until_us = self.careful_until_us.load(Ordering::Relaxed);
        until_us > 0 && !windlass_core::mutant::breaks("careless") && self.clock.elapsed_us() < until_us
    }

    /// An owner died: one of its calls may have killed it, so for a while every start is recorded before the attempt.
    pub(crate) fn be_careful(&self) {
        let until_us = due_us(self.clock.elapsed_us(), self.limits.careful_ms);
        self.careful_until_us.fetch_max(until_us, Ordering::Relaxed);
    }

    /// Registers a call that waits for its tool: it is woken when the registry changes.
    pub(crate) fn waits_for_tool(&self, session: &Arc<Session>, call: CallId) {
        let mut waits = self.tool_waits.lock();
        waits.push((Arc::downgrade(session), call));
    }

    /// The tools have changed: calls that wait for one look again.
    pub(crate) fn tools_changed(self: &Arc<Inner>) {
        let waits = std::mem::take(&mut *self.tool_waits.lock());
        for (session, call) in waits {
            if let Some(session) = session.upgrade() {
                session.wake(self, call);
            }
        }
    }

    /// Counts calls as open, or refuses them.
    pub(crate) fn opened(&self, now_us: u64, session: SessionNo, count: u64) -> Result<(), BatchError> {
        // Open calls are joined even while nothing can be written.
        if count > 0
            && let Some(because) = self.health.borrow().problem()
        {
            return Err(BatchError::Stalled { because: because.clone(), retry_after_ms: STALL_RETRY_MS });
        }
        self.turns.expect(now_us, session, count)?;
        self.open.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    /// Counts calls that an earlier owner left. Recorded calls are never refused, however many are open.
    pub(crate) fn count_taken_over(&self, count: u64) {
        self.open.fetch_add(count, Ordering::Relaxed);
        self.taken_over.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts nested calls as open.
    pub(crate) fn opened_inside(&self, count: u64) {
        self.turns.expect_inside(count);
        self.open.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts calls as closed.
    pub(crate) fn closed(&self, count: u64) {
        if count > 0 && self.open.fetch_sub(count, Ordering::Relaxed) == count {
            self.idle.notify_waiters();
        }
    }
}

/// The seed of this runtime's pseudo-random numbers.
fn seed() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness waits are still spread by earlier draws.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

//! The runtime: tools, sessions, and the one way in.

mod limits;
mod look;
mod owned;

pub(crate) use limits::Bounds;
pub use limits::{RunningLimits, SessionLimits, ZeroLimit};

use crate::answer::CallAnswer;
use crate::artifacts;
use crate::ask::{self, AskError, Asked, Connecting, Resolution, Signal, Target};
use crate::away::{self, Away};
use crate::children;
use crate::clock::{Clock, SystemClock};
use crate::error::{BatchError, chain};
use crate::events::Feeds;
use crate::gate::Gate;
use crate::held::due_us;
use crate::hooks::Hook;
use crate::inside::Completed;
use crate::inspect::{self, OpenQuestion};
use crate::provider::Provider;
use crate::registry::{Host, Listed, NoSuchTool, RegisterError, Registered, Registry};
use crate::removal;
use crate::request::BatchRequest;
use crate::schedules;
use crate::scope::{Overlay, OverlayGuard};
use crate::session::Session;
use crate::stream::{self, StreamRequest, StreamedBatch};
use crate::submit::{self, Submitted};
use crate::threads::Threads;
use crate::tool::Tool;
use crate::trace::Meters;
use crate::turns::Turns;
use crate::wheel::{self, Wheel};
use crate::worker::{self, Worker};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use tokio::sync::Notify;
use windlass_core::handle::{Handle, Kind};
use windlass_core::ids::CallId;
use windlass_core::limits::Limits;
use windlass_core::tool::Need;
use windlass_store::{SessionRow, Store};

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

/// What a runtime is made of.
pub struct Config {
    /// Where journals live.
    pub store: Arc<dyn Store>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// What is too much.
    pub limits: Limits,
    /// Who sees every call, in this order.
    pub hooks: Vec<Arc<dyn Hook>>,
    /// Where the folders with the files of sessions are; made when it is first used. Without one there are no files.
    pub files: Option<PathBuf>,
    /// Whether other runtimes work on the same store. Then this one is a worker: it says that it is alive, owns sessions only
    /// while it does, and takes over those of workers that died. `false`: all that is there is this one's.
    pub shared: bool,
}

impl Config {
    /// The usual configuration on this store.
    pub fn new(store: impl Store) -> Config {
        let clock = Arc::new(SystemClock::default());
        let (limits, hooks) = (Limits::default(), Vec::new());
        Config { store: Arc::new(store), clock, limits, hooks, files: None, shared: false }
    }
}

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) hooks: Vec<Arc<dyn Hook>>,
    pub(crate) files: Option<Arc<Path>>,
    pub(crate) registry: Registry,
    /// What tools may need.
    host: Arc<Host>,
    pub(crate) threads: Threads,
    pub(crate) tasks: tokio::runtime::Handle,
    sessions: Mutex<owned::Sessions>,
    open: AtomicU64,
    /// Told when the last open call is over.
    idle: Notify,
    /// Calls that an earlier owner had left open.
    taken_over: AtomicU64,
    pub(crate) wheel: Arc<Wheel>,
    pub(crate) turns: Turns,
    /// Who follows which session.
    pub(crate) feeds: Feeds,
    pub(crate) meters: Meters,
    pub(crate) gate: Gate,
    /// Parked calls that are not in memory.
    pub(crate) away: Arc<Away>,
    /// Calls that wait for their tool.
    tool_waits: Mutex<Vec<(Weak<Session>, CallId)>>,
    /// Whether the last owner of the store was cut off: then what it ran may be what killed it.
    pub(crate) last_owner_died: bool,
    /// Until when every start is recorded before it is made, by the clock that never jumps.
    careful_until_us: AtomicU64,
    chance: AtomicU64,
    /// When schedules are to be looked at.
    pub(crate) schedules: schedules::Alarms,
    /// How often what is set for a session was removed.
    pub(crate) removals: AtomicU64,
    /// What its host sets for child sessions that calls open.
    pub(crate) sets_for_children: OnceLock<children::Sets>,
    /// Set if it shares its store with others.
    pub(crate) worker: Option<Worker>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.wheel.stop();
        self.feeds.end();
        self.away.stop();
        if let Some(worker) = &self.worker {
            worker.leave(&*self.store);
        }
    }
}

impl Runtime {
    /// A runtime without tools. Must be called within a tokio runtime, which then drives the calls.
    pub fn new(config: Config) -> Runtime {
        let limits = Arc::new(config.limits);
        let wheel = Arc::new(Wheel::new(config.clock.clone()));
        let last_owner_died = config.store.last_owner_died();
        let offers = config.files.iter().map(|_| Need::Files).collect();
        let host = Arc::new(Host { limits: limits.clone(), offers });
        let inner = Arc::new(Inner {
            store: config.store,
            clock: config.clock,
            hooks: config.hooks,
            files: config.files.map(Arc::from),
            registry: Registry::new(host.clone()),
            host,
            turns: Turns::new(&limits),
            limits,
            threads: Threads::default(),
            tasks: tokio::runtime::Handle::current(),
            sessions: Mutex::default(),
            open: AtomicU64::new(0),
            idle: Notify::new(),
            taken_over: AtomicU64::new(0),
            wheel: wheel.clone(),
            feeds: Feeds::default(),
            meters: Meters::default(),
            gate: Gate::default(),
            away: Arc::default(),
            tool_waits: Mutex::default(),
            last_owner_died,
            careful_until_us: AtomicU64::new(0),
            chance: AtomicU64::new(seed()),
            schedules: schedules::Alarms::default(),
            removals: AtomicU64::new(0),
            sets_for_children: OnceLock::new(),
            worker: config.shared.then(Worker::default),
        });
        if last_owner_died {
            inner.be_careful();
        }
        worker::begin(&inner);
        wheel.collect_at(inner.clock.elapsed_us().saturating_add(artifacts::sweep_us(&inner.limits)));
        inner.tasks.spawn(wheel::keep(wheel, Arc::downgrade(&inner)));
        inner.tasks.spawn(away::keep_leaving(inner.away.clone(), Arc::downgrade(&inner)));
        inner.tasks.spawn(away::keep_waking(inner.away.clone(), Arc::downgrade(&inner)));
        let watching = Arc::downgrade(&inner);
        inner.registry.watch(move || {
            if let Some(rt) = watching.upgrade() {
                rt.tools_changed();
            }
        });
        Runtime(inner)
    }

    /// Adds a tool. Its schemas are compiled now; a name that cannot be told from a registered one is refused.
    pub fn register(&self, tool: impl Tool) -> Result<(), RegisterError> {
        self.register_shared(Arc::new(tool))
    }

    /// Adds a tool that is shared.
    pub fn register_shared(&self, tool: Arc<dyn Tool>) -> Result<(), RegisterError> {
        let registered = self.0.registry.register(tool)?;
        self.0.turns.set_tool(&self.0, &registered);
        Ok(())
    }

    /// Puts a tool in the place of the one with its name, and returns that one.
    pub fn replace(&self, tool: impl Tool) -> Result<Option<Arc<Registered>>, RegisterError> {
        let (registered, old) = self.0.registry.replace(Arc::new(tool))?;
        self.0.turns.set_tool(&self.0, &registered);
        Ok(old)
    }

    /// Takes a tool away and returns it. Calls that run keep it.
    pub fn unregister(&self, name: &str) -> Option<Arc<Registered>> {
        let gone = self.0.registry.unregister(name);
        if let Some(tool) = &gone {
            self.0.turns.remove_tool(&self.0, tool);
        }
        gone
    }

    /// All tools that are registered or provided, by name.
    pub fn tools(&self) -> Vec<Listed> {
        self.0.registry.list()
    }

    /// Takes a batch: what is recorded is answered, what is open is joined, what never ran is run. A session
    /// is opened by its first use; if it was left with open calls, they go on first, each by its class.
    pub async fn submit(&self, session: &str, batch: BatchRequest) -> Result<Submitted, BatchError> {
        submit::submit(&self.0, session, batch).await
    }

    /// Opens a batch whose calls come one after the other, or joins the one of this key. Submitting under its key is a push
    /// too, and does not close it.
    pub async fn open_batch(
        &self,
        session: &str,
        request: StreamRequest,
    ) -> Result<StreamedBatch, BatchError> {
        stream::open(&self.0, session, request).await
    }

    /// Takes over every session that was left with open calls. Returns how many calls go on. A session whose journal
    /// cannot be read stands still; the others go on.
    pub async fn resume(&self) -> Result<u64, BatchError> {
        let before = self.0.taken_over.load(Ordering::Relaxed);
        let mut after = None;
        loop {
            let sessions = self.0.store.sessions(after, SESSIONS_PAGE).await?;
            let Some(last) = sessions.last() else { break };
            after = Some(last.no);
            for row in &sessions {
                match self.take_over(row).await {
                    Err(error @ BatchError::Unreadable { .. }) => {
                        tracing::error!(session = %row.name, error = %chain(&error), "a session stands still");
                    }
                    Err(BatchError::Owned { .. }) => {}
                    taken => taken?,
                }
            }
        }
        removal::go_on_with_all(&self.0).await?;
        schedules::resume(&self.0).await?;
        // What the last owner left to nobody may be due: a process that is short-lived never looks otherwise.
        artifacts::look_over(&self.0).await;
        Ok(self.0.taken_over.load(Ordering::Relaxed) - before)
    }

    async fn take_over(&self, row: &SessionRow) -> Result<(), BatchError> {
        if !self.0.store.open_batches(Some(row.no)).await?.is_empty() {
            self.0.session(&row.name).await?;
        }
        Ok(())
    }

    /// Whether this text is the handle of a call of this runtime's store.
    pub fn is_call(&self, handle: &str) -> bool {
        Handle::parse(handle).and_then(|handle| handle.open(self.0.store.secret(), Kind::Call)).is_some()
    }

    /// Asks calls to stop. Durable when this returns; each call writes its own end.
    pub async fn cancel(&self, target: Target<'_>, reason: Option<&str>) -> Result<Asked, AskError> {
        ask::cancel(&self.0, target, reason).await
    }

    /// Says how a call that ended as unknown ended after all.
    pub async fn resolve(&self, call: &str, resolution: Resolution) -> Result<CallAnswer, AskError> {
        ask::resolve_call(&self.0, call, &resolution).await
    }

    /// Asks the tool of a call that ended as unknown whether it took effect, and resolves it if the tool can tell.
    pub async fn reconcile(&self, call: &str) -> Result<CallAnswer, AskError> {
        ask::reconcile(&self.0, call).await
    }

    /// Answers what a call waits for, by its [key](crate::CompletionKey). Durable when this returns; the first answer
    /// counts, the same again is fine.
    pub async fn complete(&self, key: &str, answer: Completed) -> Result<(), AskError> {
        ask::complete(&self.0, key, &ask::completion(&answer)?).await
    }

    /// The questions of all sessions that wait for an answer, oldest batch first.
    pub async fn questions(&self) -> Result<Vec<OpenQuestion>, BatchError> {
        inspect::questions(&*self.0.store, self.0.clock.now()).await
    }

    /// Answers a [question](Self::questions), by its id. Durable when this returns; the first answer counts, the same again
    /// is fine, and one that does not fit what is asked is refused.
    pub async fn answer(&self, id: &str, answer: &serde_json::Value) -> Result<(), AskError> {
        ask::answer(&self.0, id, answer).await
    }

    /// Ends a call of a [tool that its caller runs](crate::client_tool), by its handle. Durable when this returns; the first
    /// result counts, the same again is fine.
    pub async fn client_result(&self, call: &str, result: Completed) -> Result<(), AskError> {
        ask::client_result(&self.0, call, &ask::completion(&result)?).await
    }

    /// Says that a session is connected to this provider, or that somebody declined to connect it: all its calls that wait for
    /// that run again, or fail. Durable when this returns.
    pub async fn connected(
        &self,
        session: &str,
        provider: &str,
        connected: bool,
    ) -> Result<Connecting, AskError> {
        ask::connect(&self.0, session, (provider, connected)).await
    }

    /// Sends a signal to a call whose tool [declares](windlass_core::tool::ToolSpec::signals) it. It is durable when this
    /// returns, and received once, with [`Cx::on_signal`](crate::Cx::on_signal); what comes early is kept.
    pub async fn signal(&self, call: &str, signal: Signal<'_>) -> Result<(), AskError> {
        ask::signal(&self.0, call, signal).await
    }

    /// Lets a call that waits as `tool_changed` go on under what its tool has become.
    pub async fn accept(&self, call: &str) -> Result<(), AskError> {
        ask::accept(&self.0, call).await
    }

    /// How many stopped attempts still block a thread, because their tools ignore the word to stop.
    pub fn stuck_attempts(&self) -> u64 {
        self.0.threads.stuck()
    }

    /// How many calls are open.
    pub fn open_calls(&self) -> u64 {
        self.0.open.load(Ordering::Relaxed)
    }

    /// Waits until no call is open.
    pub async fn idle(&self) {
        loop {
            let notified = self.0.idle.notified();
            if self.open_calls() == 0 {
                return;
            }
            notified.await;
        }
    }

    /// Its id as one of several workers on a store, while it has a lease.
    pub fn worker(&self) -> Option<String> {
        self.0.worker.as_ref()?.id_now().map(|id| id.to_string())
    }

    /// What time it is.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    /// Where journals live.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// An overlay without tools, for [`attach`](Self::attach) or [`BatchRequest::overlay`].
    pub fn overlay(&self) -> Overlay {
        Overlay::new(self.0.host.clone())
    }

    /// Puts an overlay above the tools of a session until the guard is dropped. Overlays are not recorded: after a
    /// restart the host attaches them again, and calls whose tools are missing wait for that.
    pub fn attach(&self, session: &str, overlay: impl Into<Arc<Overlay>>) -> OverlayGuard {
        let no = self.0.registry.attach(session, overlay.into());
        OverlayGuard { rt: Arc::downgrade(&self.0), session: session.to_string(), no }
    }

    /// Lets no call of this registered or provided tool start until it is resumed; those that run go on. What
    /// replaces it is paused too; what shadows it in an overlay is another tool.
    pub fn pause(&self, tool: &str) -> Result<(), NoSuchTool> {
        self.0.registry.set_paused(tool, true)
    }

    /// Lets calls of this tool start again.
    pub fn resume_tool(&self, tool: &str) -> Result<(), NoSuchTool> {
        self.0.registry.set_paused(tool, false)
    }

    /// Adds the tools of a provider; each is loaded when it is first used. A name that cannot be told from one that
    /// is there refuses all of them.
    pub fn provide(&self, provider: Arc<dyn Provider>) -> Result<(), RegisterError> {
        self.0.registry.provide(provider)
    }

    /// Asks a provider anew which tools it has, and forgets what was loaded. Calls that run keep their tools.
    pub fn refresh(&self, provider: &Arc<dyn Provider>) -> Result<(), RegisterError> {
        self.0.registry.refresh(provider)
    }

    /// Takes a provider and its tools away. Calls that run keep their tools.
    pub fn withdraw(&self, provider: &Arc<dyn Provider>) -> Result<(), RegisterError> {
        self.0.registry.withdraw(provider)
    }
}

/// Where the chances of this runtime begin.
fn seed() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness waits are still spread by what was drawn before.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Sessions are looked through in pages of this size.
const SESSIONS_PAGE: u64 = 1_000;

impl Inner {
    /// A number from all of `u64`, for waits that are to be spread (splitmix64).
    pub(crate) fn chance(&self) -> u64 {
        let mut mixed = self.chance.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Whether every start is recorded before it is made.
    pub(crate) fn is_careful(&self) -> bool {
        let until_us = self.careful_until_us.load(Ordering::Relaxed);
        until_us > 0 && !windlass_core::mutant::breaks("careless") && self.clock.elapsed_us() < until_us
    }

    /// An owner died: what it ran may be what killed it, so for a while every start is recorded before it is made.
    pub(crate) fn be_careful(&self) {
        let until_us = due_us(self.clock.elapsed_us(), self.limits.careful_ms);
        self.careful_until_us.fetch_max(until_us, Ordering::Relaxed);
    }

    /// A call waits for its tool: it is woken when the registry changes.
    pub(crate) fn waits_for_tool(&self, session: &Arc<Session>, call: CallId) {
        let mut waits = self.tool_waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.push((Arc::downgrade(session), call));
    }

    /// The tools are others than before: whoever waits for one looks again.
    pub(crate) fn tools_changed(self: &Arc<Inner>) {
        let waits = std::mem::take(&mut *self.tool_waits.lock().unwrap_or_else(PoisonError::into_inner));
        for (session, call) in waits {
            if let Some(session) = session.upgrade() {
                session.wake(self, call);
            }
        }
    }

    /// Counts calls as open, or refuses them.
    pub(crate) fn opened(&self, now_us: u64, count: u64) -> Result<(), BatchError> {
        self.turns.expect(now_us, count)?;
        self.open.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    /// Counts calls that an earlier owner left. What was recorded is never refused, however much is open.
    pub(crate) fn take_over_calls(&self, count: u64) {
        self.open.fetch_add(count, Ordering::Relaxed);
        self.taken_over.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts calls inside others as open.
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

/// Whether a session may be named so.
pub fn check_session_name(name: &str) -> Result<(), BatchError> {
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    if fits {
        return Ok(());
    }
    Err(BatchError::Shape {
        what: format!("a session is named by 1 to 64 of a-z, A-Z, 0-9, _, . and -; {name:?} is not"),
    })
}

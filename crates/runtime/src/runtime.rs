//! The runtime: tools, sessions, and the one entry point.

mod copies;
mod limits;
mod look;
mod taking;

pub use copies::JudgedCopy;

use crate::api::answer::CallAnswer;
use crate::api::clock::Clock;
use crate::api::error::{BatchError, SessionError, chain};
use crate::api::pending::Completed;
use crate::features::awaits;
use crate::features::catalog;
use crate::features::inbox;
use crate::features::orders;
use crate::features::retention;
use crate::features::schedules;
use crate::features::tasks;
use crate::features::toolboxes;
use crate::features::triggers;
use crate::features::webhooks;
use crate::mailbox::ask::{self, AskError, Asked, Connecting, Resolution, Signal, Target};
use crate::mailbox::closing;
use crate::path::drive;
use crate::path::stream::{self, StreamRequest, StreamedBatch};
use crate::path::submit::{self, Submitted};
use crate::read::inspect::{self, OpenQuestion};
use crate::session::artifacts;
use crate::session::away;
use crate::session::inner::{Config, Inner, Runtime};
use crate::session::owner::Session;
use crate::session::plugs::{FollowUp, Plugs};
use crate::session::wheel;
use crate::session::worker;
use crate::tools::provider::Provider;
use crate::tools::registry::{Listed, RegisterError, Registered};
use crate::tools::request::BatchRequest;
use crate::tools::scope::{Overlay, OverlayGuard};
use crate::tools::tool::Tool;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::CallId;
use windlass_core::time::Timestamp;
use windlass_store::Store;

/// Functions that the upper rooms provide to the engine.
const PLUGS: Plugs = Plugs {
    open_or_take: taking::open_or_take,
    resume: |rt| Box::pin(taking::resume(rt)),
    drive: drive::start,
    drive_here: |held| Box::pin(drive::start_here(held)),
    adopt_orders: orders::adopt,
    follow_up,
    own_tools: || tasks::tools::all().into(),
    catalog_tools: || catalog::tools::all().into(),
};

/// Does the follow-up work of a call's change.
fn follow_up(rt: &Arc<Inner>, session: &Arc<Session>, follow_up: FollowUp) {
    match follow_up {
        FollowUp::Noticed(notices) => inbox::wrote(rt, session, notices),
        FollowUp::ScheduledEnded => schedules::look_soon(rt, &session.name),
        FollowUp::TasksEnded(calls) => awaits::ended(rt, session, calls),
        FollowUp::EventsDue(calls) => triggers::emit_planned(rt, session, calls),
        FollowUp::HandedEnded(hashes) => toolboxes::ended(rt, &hashes),
        FollowUp::StopChildren { sessions, reason } => closing::stop_soon(rt, sessions, reason),
    }
}

impl Runtime {
    /// Makes a runtime without tools. Must be called within a tokio runtime, which then drives the calls.
    pub fn new(config: Config) -> Runtime {
        let inner = Inner::new(config, PLUGS);
        if inner.last_owner_died {
            inner.be_careful();
        }
        inner.owners.begin(&inner);
        inner.wheel.collect_at(inner.clock.elapsed_us().saturating_add(artifacts::sweep_us(&inner.limits)));
        retention::begin(&inner);
        orders::begin(&inner);
        webhooks::begin(&inner);
        toolboxes::begin(&inner);
        inner.tasks.spawn(wheel::keep(inner.wheel.clone(), Arc::downgrade(&inner)));
        inner.tasks.spawn(away::keep_evicting(inner.away.clone(), Arc::downgrade(&inner)));
        inner.tasks.spawn(away::keep_waking(inner.away.clone(), Arc::downgrade(&inner)));
        let watching = Arc::downgrade(&inner);
        inner.registry.watch(move || {
            if let Some(rt) = watching.upgrade() {
                rt.tools_changed();
            }
        });
        Runtime(inner)
    }

    /// Adds a tool. Its schemas are compiled now; a name too similar to a registered one is refused.
    pub fn register(&self, tool: impl Tool) -> Result<(), RegisterError> {
        self.register_shared(Arc::new(tool))
    }

    /// Adds a shared tool.
    pub fn register_shared(&self, tool: Arc<dyn Tool>) -> Result<(), RegisterError> {
        let registered = self.0.registry.register(tool)?;
        self.0.turns.set_tool(&self.0, &registered);
        Ok(())
    }

    /// Replaces the tool with this name, and returns the old one.
    pub fn replace(&self, tool: impl Tool) -> Result<Option<Arc<Registered>>, RegisterError> {
        let (registered, old) = self.0.registry.replace(Arc::new(tool))?;
        self.0.turns.set_tool(&self.0, &registered);
        Ok(old)
    }

    /// Removes a tool and returns it. Running calls keep it.
    pub fn unregister(&self, name: &str) -> Option<Arc<Registered>> {
        let gone = self.0.registry.unregister(name);
        if let Some(tool) = &gone {
            self.0.turns.remove_tool(&self.0, tool);
        }
        gone
    }

    /// All registered and provided tools, by name.
    pub fn tools(&self) -> Vec<Listed> {
        self.0.registry.list()
    }

    /// The registered or provided tool of this name.
    pub fn tool(&self, name: &str) -> Option<Listed> {
        self.0.registry.list().into_iter().find(|listed| listed.summary.name == name)
    }

    /// Submits a batch: recorded calls are answered, open ones joined, new ones run. A session is opened by
    /// its first use; calls that an earlier owner left open continue first, each by its class.
    pub async fn submit(&self, session: &str, batch: BatchRequest) -> Result<Submitted, BatchError> {
        submit::submit(&self.0, session, batch).await
    }

    /// As [`submit`](Runtime::submit), for a caller that waits for the end at once and is polled whenever it is woken: calls that have
    /// to wait are driven by [`Submitted::ended`] or [`Submitted::settled`] in the caller's own task, which saves changes of threads, and
    /// the ends of calls that end together one change. Until one of the two is polled such calls stand still; once it, or the value that
    /// is returned here, is dropped, they go on by themselves.
    pub async fn submit_here(&self, session: &str, batch: BatchRequest) -> Result<Submitted, BatchError> {
        submit::submit_here(&self.0, session, batch).await
    }

    /// Opens a batch for streamed calls, or joins the one of this key. Submitting under its key is a push
    /// too, and does not close it.
    pub async fn open_batch(
        &self,
        session: &str,
        request: StreamRequest,
    ) -> Result<StreamedBatch, BatchError> {
        stream::open(&self.0, session, request).await
    }

    /// Takes over every session that was left with open calls. Returns the number of calls that continue. A session
    /// whose journal cannot be read stands still; the others continue. A [copy](Self::judge_copy) is judged first.
    pub async fn resume(&self) -> Result<u64, SessionError> {
        self.judge_copy().await?;
        let before = self.0.taken_over.load(Ordering::Relaxed);
        match self.0.owners.worker() {
            Some(worker) => worker::take_left(&self.0, &worker).await?,
            None => {
                self.take_all_left().await?;
                taking::resume(&self.0).await?;
            }
        }
        // Artifacts that the last owner left for removal may be due: a short-lived process would never look otherwise.
        artifacts::look_over(&self.0).await;
        Ok(self.0.taken_over.load(Ordering::Relaxed) - before)
    }

    async fn take_all_left(&self) -> Result<(), SessionError> {
        let mut after = None;
        loop {
            let sessions = self.0.store.sessions(after, SESSIONS_PAGE).await?;
            let Some(last) = sessions.last() else { return Ok(()) };
            after = Some(last.no);
            for row in &sessions {
                match self.0.store.open_batches(Some(row.no)).await.map_err(SessionError::from) {
                    Err(error @ SessionError::Unreadable { .. }) => {
                        tracing::error!(session = %row.name, error = %chain(&error), "a session stands still");
                    }
                    Err(error) => return Err(error),
                    Ok(open) if open.is_empty() => {}
                    Ok(_) => drop(self.0.left_session(&row.name).await?),
                }
            }
        }
    }

    /// Whether this text is the handle of a call of this runtime's store.
    pub fn is_call(&self, handle: &str) -> bool {
        Handle::parse(handle)
            .and_then(|handle| handle.open(self.0.store.secret(), HandleKind::Call))
            .is_some()
    }

    /// Whether this text is the handle of a call that can have been started from this runtime's own data, and
    /// not only from the original or a copy of it, which have the same secret.
    pub fn may_have_started(&self, handle: &str) -> bool {
        let opened =
            Handle::parse(handle).and_then(|handle| handle.open(self.0.store.secret(), HandleKind::Call));
        opened.is_some_and(|call| self.0.store.may_have_started(CallId::unpacked(call).batch))
    }

    /// Cancels calls. Durable when this returns; each call writes its own end.
    pub async fn cancel(&self, target: Target<'_>, reason: Option<&str>) -> Result<Asked, AskError> {
        ask::cancel(&self.0, target, reason).await
    }

    /// Resolves a call that ended as unknown.
    pub async fn resolve(&self, call: &str, resolution: Resolution) -> Result<CallAnswer, AskError> {
        ask::resolve_call(&self.0, call, &resolution).await
    }

    /// Asks the tool of a call that ended as unknown whether it took effect, and resolves the call if the tool knows.
    pub async fn reconcile(&self, call: &str) -> Result<CallAnswer, AskError> {
        ask::reconcile(&self.0, call).await
    }

    /// Completes a call's wait, by its [key](crate::wait::CompletionKey). Durable when this returns; the first
    /// answer counts, and repeating it is fine.
    pub async fn complete(&self, key: &str, answer: Completed) -> Result<(), AskError> {
        ask::complete(&self.0, key, &ask::completion(&answer, &self.0.limits)?).await
    }

    /// The open questions of all sessions, oldest batch first.
    pub async fn questions(&self) -> Result<Vec<OpenQuestion>, SessionError> {
        inspect::questions(&*self.0.store, self.0.clock.now()).await
    }

    /// Answers a [question](Self::questions), by its id. Durable when this returns; the first answer counts,
    /// repeating it is fine, and an answer that does not match the question's schema is refused.
    pub async fn answer(&self, id: &str, answer: &serde_json::Value) -> Result<(), AskError> {
        ask::answer(&self.0, id, answer).await
    }

    /// Posts the result of a call to a [tool that its caller runs](crate::tool::client_tool), by its handle.
    /// Durable when this returns; the first result counts, and repeating it is fine.
    pub async fn client_result(&self, call: &str, result: Completed) -> Result<(), AskError> {
        ask::client_result(&self.0, call, &ask::completion(&result, &self.0.limits)?).await
    }

    /// Reports that a session is connected to this provider, or that the connection was declined: all its
    /// calls that wait for the connection run again, or fail. Durable when this returns.
    pub async fn connected(
        &self,
        session: &str,
        provider: &str,
        connected: bool,
    ) -> Result<Connecting, AskError> {
        ask::connect(&self.0, session, provider, connected).await
    }

    /// Sends a signal to a call whose tool [declares](windlass_core::tool::ToolSpec::signals) it. Durable when this
    /// returns; the call receives it once, with [`Cx::on_signal`](crate::Cx::on_signal), and early signals are kept.
    pub async fn signal(&self, call: &str, signal: Signal<'_>) -> Result<(), AskError> {
        ask::signal(&self.0, call, signal).await
    }

    /// Lets a call that waits as `tool_changed` continue with the changed tool.
    pub async fn accept(&self, call: &str) -> Result<(), AskError> {
        ask::accept(&self.0, call).await
    }

    /// The number of stopped attempts that still block a thread, because their tools ignore the stop signal.
    pub fn stuck_attempts(&self) -> u64 {
        self.0.threads.stuck()
    }

    /// The number of open calls.
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
        self.0.owners.id().map(|id| id.to_string())
    }

    /// The clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    /// Waits so long by the clock that never jumps. It is for waits that nearly always end early, such as the longest time that an answer
    /// is held: all of them share one timer, so beginning one and dropping it wakes nobody.
    pub fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send + Unpin + use<> {
        self.0.wheel.sleep(time)
    }

    /// How long ago this time was recorded, in microseconds, even if the wall clock has jumped since this
    /// process began. A time that this process did not record is at least as old as the process.
    pub fn age_us(&self, recorded: Timestamp) -> u64 {
        self.0.wheel.age_us(recorded)
    }

    /// The store of the journals.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// An empty overlay, for [`attach`](Self::attach) or [`BatchRequest::overlay`].
    pub fn overlay(&self) -> Overlay {
        Overlay::new(self.0.host.clone())
    }

    /// Adds an overlay above the tools of a session until the guard is dropped. Overlays are not recorded:
    /// after a restart the host attaches them again, and calls whose tools are missing wait for that.
    pub fn attach(&self, session: &str, overlay: impl Into<Arc<Overlay>>) -> OverlayGuard {
        let no = self.0.registry.attach(session, overlay.into());
        OverlayGuard { registry: Arc::downgrade(&self.0.registry), session: session.to_string(), no }
    }

    /// Adds the tools of a provider; each is loaded at its first use. If any name is too similar to an
    /// existing one, all are refused.
    pub fn provide(&self, provider: Arc<dyn Provider>) -> Result<(), RegisterError> {
        self.0.registry.provide(provider)
    }

    /// Asks a provider again for its tools, and forgets loaded ones. Running calls keep their tools.
    pub fn refresh(&self, provider: &Arc<dyn Provider>) -> Result<(), RegisterError> {
        self.0.registry.refresh(provider)
    }

    /// Removes a provider and its tools. Running calls keep their tools.
    pub fn withdraw(&self, provider: &Arc<dyn Provider>) -> Result<(), RegisterError> {
        self.0.registry.withdraw(provider)
    }
}

/// The page size for reading sessions.
const SESSIONS_PAGE: u64 = 1_000;

//! Shared state of all handlers: the runtime, sessions, tokens, and whether the server is stopping.

use crate::access::{Caller, TokenScope};
use crate::bodies::Bodies;
use crate::problem::{Problem, ProblemCode};
use crate::sessions::Sessions;
use crate::tokens::Tokens;
use crate::undisturbed::undisturbed;
use crate::view::{self, SESSIONS_MAX, ShownBatch, View, Whose};
use crate::wire::AnswerWait;
use crate::workers::WorkerLinks;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use windlass::error::AskError;
use windlass::sessions::SessionStanding;
use windlass::{BatchAnswer, Runtime, Submitted};
use windlass_core::handle::{Handle, HandleKind, Secret, open_question_id};
use windlass_core::ids::CallId;
use windlass_core::narration::Locale;
use windlass_core::time::Timestamp;
use windlass_mcp::upstream::Forwarding;
use windlass_mcp::{Gateway, McpListing};

/// Shared state of all handlers. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Api(Arc<ApiParts>);

struct ApiParts {
    runtime: Runtime,
    sessions: Sessions,
    tokens: Tokens,
    bodies: Bodies,
    draining: watch::Sender<bool>,
    /// The data folder, if there is one.
    folder: Option<PathBuf>,
    /// The first address that it is served at.
    address: OnceLock<SocketAddr>,
    mcp: Gateway,
    /// The connections to other workers.
    links: WorkerLinks,
    /// The tools that the MCP door lists, if that was said.
    mcp_listing: OnceLock<McpListing>,
}

impl Api {
    /// The API of this runtime, whose store is in `folder`, if it has one.
    pub fn new(runtime: &Runtime, folder: Option<&Path>) -> Api {
        let (runtime, tokens) = (runtime.clone(), Tokens::new(runtime, folder));
        let sessions = Sessions::of(&runtime);
        let (bodies, draining) = (Bodies::new(runtime.limits()), watch::Sender::new(false));
        let (folder, address) = (folder.map(Path::to_path_buf), OnceLock::new());
        let mcp = Gateway::new(&runtime, draining.subscribe());
        let mcp_listing = OnceLock::new();
        Api(Arc::new(ApiParts {
            runtime,
            sessions,
            tokens,
            bodies,
            draining,
            folder,
            address,
            mcp,
            links: WorkerLinks::default(),
            mcp_listing,
        }))
    }

    /// Takes no more work, and answers waiting requests with the current state.
    pub fn drain(&self) {
        self.0.draining.send_replace(true);
    }

    /// Whether it has stopped taking work.
    pub fn is_draining(&self) -> bool {
        *self.0.draining.borrow()
    }

    /// The runtime.
    pub fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    /// The sessions and their principals.
    pub fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    /// The tokens.
    pub fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    /// The secret of the store.
    pub(crate) fn secret(&self) -> &Secret {
        self.0.runtime.store().secret()
    }

    /// The connections to other workers.
    pub(crate) fn links(&self) -> &WorkerLinks {
        &self.0.links
    }

    /// The data folder, if there is one.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.0.folder.as_deref()
    }

    /// It is served at this address.
    pub(crate) fn served_at(&self, address: SocketAddr) {
        // The first one stands: links of the dashboard lead there.
        let _ = self.0.address.set(address);
    }

    /// Where this machine's browsers find the dashboard, if it is served at an address.
    pub fn page_url(&self) -> Option<String> {
        let mut address = *self.0.address.get()?;
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            IpAddr::V4(_) | IpAddr::V6(_) => {}
        }
        Some(format!("http://{address}"))
    }

    /// The runtime as an MCP server.
    pub(crate) fn mcp(&self) -> &Gateway {
        &self.0.mcp
    }

    /// Has the MCP door list these tools for clients that do not say what they want. The first word stands.
    pub fn set_mcp_listing(&self, listing: McpListing) {
        let _ = self.0.mcp_listing.set(listing);
    }

    /// Has clients of the MCP door get what the entries of servers of others forward. The first word stands.
    pub fn forward_mcp(&self, forwarding: Forwarding) {
        self.0.mcp.forward(forwarding);
    }

    /// The tools that the MCP door lists for clients that do not say what they want.
    pub(crate) fn mcp_listing(&self) -> McpListing {
        self.0.mcp_listing.get().copied().unwrap_or_default()
    }

    /// How long no MCP client has asked for anything; none while one is being answered or listens.
    pub fn mcp_quiet_for(&self) -> Option<std::time::Duration> {
        self.0.mcp.quiet_for()
    }

    pub(crate) fn bodies(&self) -> &Bodies {
        &self.0.bodies
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.runtime.clock().now()
    }

    /// Checks that the caller may use the session; an unused one becomes the caller's.
    pub async fn claim(&self, caller: &Caller, session: &str) -> Result<(), Problem> {
        self.0.tokens.check_again(caller).await?;
        self.record_live(session).await?;
        self.0.sessions.claim(caller, session, self.now()).await
    }

    /// Checks that the caller may use the session; reports it as missing otherwise.
    pub(crate) async fn session(&self, caller: &Caller, session: &str) -> Result<(), Problem> {
        self.0.tokens.check_again(caller).await?;
        self.record_live(session).await?;
        self.0.sessions.check(caller, session).await
    }

    /// Checks that the caller may use the session, or may open it.
    pub(crate) async fn usable_session(&self, caller: &Caller, session: &str) -> Result<(), Problem> {
        self.0.tokens.check_again(caller).await?;
        self.record_live(session).await?;
        self.0.sessions.check_usable(caller, session).await
    }

    /// Records a session that this process uses without an API request, before any other record of it: it
    /// belongs to the local principal.
    async fn record_live(&self, session: &str) -> Result<(), Problem> {
        let ApiParts { runtime, sessions, .. } = &*self.0;
        let is_unused = sessions.standing(session).await? == SessionStanding::Unused;
        if is_unused && !runtime.live_in(session).is_empty() {
            sessions.claim(&Caller::local(), session, self.now()).await?;
        }
        Ok(())
    }

    /// The language of a session's messages for people.
    pub(crate) async fn locale(&self, session: &str) -> Result<Locale, Problem> {
        let setting = self.0.sessions.setting(session).await?;
        Ok(setting.and_then(|setting| setting.about.locale).map_or(Locale::English, |tag| Locale::of(&tag)))
    }

    /// Checks that the store takes writes.
    pub(crate) fn can_write(&self) -> Result<(), Problem> {
        match self.0.runtime.store().health().borrow().problem() {
            None => Ok(()),
            Some(_) => Err(Problem::store_unavailable()),
        }
    }

    /// Checks that this worker may own sessions, if it is one of several.
    pub(crate) fn has_lease(&self) -> Result<(), Problem> {
        let runtime = self.runtime();
        if !runtime.is_shared() || runtime.worker().is_some() {
            return Ok(());
        }
        let told = "this worker has no lease, so it owns no session: its heartbeats do not reach the store, or did not for too long; \
                    it goes on by itself once they do";
        Err(Problem { retry_after_ms: Some(1_000), ..Problem::new(ProblemCode::StoreUnavailable, told) })
    }

    /// The outcome of work that needs the store, unless the store is a database that is away: nothing can be read there then, and the
    /// caller is not left waiting.
    pub(crate) async fn while_it_reads<T>(
        &self,
        work: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        if !self.runtime().is_shared() {
            return work.await;
        }
        let mut health = self.runtime().store().health();
        tokio::select! {
            biased;
            Ok(_) = health.wait_for(|health| health.problem().is_some()) => Err(Problem::store_unavailable()),
            done = work => done,
        }
    }

    /// The response to a changing request, unless the store stops taking writes first: then the caller is not
    /// left waiting. Work already begun continues, as if the caller had disconnected.
    pub(crate) async fn while_it_writes(&self, work: impl Future<Output = Response>) -> Response {
        let mut health = self.0.runtime.store().health();
        let stalled = async {
            if health.wait_for(|health| health.problem().is_some()).await.is_err() {
                // A store that never stalls sends no change.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = stalled => Problem::store_unavailable().into_response(),
            response = work => response,
        }
    }

    /// Checks that the server takes work.
    pub(crate) fn takes_work(&self) -> Result<(), Problem> {
        if !self.is_draining() {
            return Ok(());
        }
        let told = "the server is stopping and takes no more calls; try again once it has restarted";
        Err(Problem { retry_after_ms: Some(1_000), ..Problem::new(ProblemCode::Draining, told) })
    }

    /// Waits until the server drains.
    pub(crate) async fn drains(&self) {
        let mut draining = self.0.draining.subscribe();
        // The sender lives as long as the API.
        let _ = draining.wait_for(|draining| *draining).await;
    }

    /// Removes a session with all its data. If the server stops first, the next one finishes the removal.
    pub(crate) async fn remove(&self, session: String) -> Result<(), Problem> {
        let mut draining = self.0.draining.subscribe();
        let removing = undisturbed({
            let runtime = self.0.runtime.clone();
            async move { runtime.remove_session(&session).await.map(drop) }
        });
        tokio::select! {
            removed = removing => removed,
            _ = draining.wait_for(|draining| *draining) => self.takes_work(),
        }
    }

    /// Checks that the caller may use this call; returns its session.
    pub(crate) async fn call(&self, caller: &Caller, handle: &str) -> Result<String, Problem> {
        let not_found = || Problem::from(AskError::NotFound { what: format!("call {handle:?}") });
        let secret = self.0.runtime.store().secret();
        let call = Handle::parse(handle).and_then(|handle| handle.open(secret, HandleKind::Call));
        let call = call.map(CallId::unpacked).ok_or_else(not_found)?;
        self.session_of(caller, call).await?.ok_or_else(not_found)
    }

    /// Checks that the caller may use this question.
    pub(crate) async fn question(&self, caller: &Caller, id: &str) -> Result<(), Problem> {
        let not_found = || Problem::from(AskError::NoQuestion);
        let (call, _) = open_question_id(self.0.runtime.store().secret(), id).ok_or_else(not_found)?;
        self.session_of(caller, call).await?.map(drop).ok_or_else(not_found)
    }

    /// The session of a call, if the caller may use it.
    async fn session_of(&self, caller: &Caller, call: CallId) -> Result<Option<String>, Problem> {
        let Some(session) = self.0.runtime.session_of(call).await? else { return Ok(None) };
        match self.session(caller, &session).await {
            Ok(()) => Ok(Some(session)),
            Err(problem) if problem.code == ProblemCode::NotFound => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// Visits all sessions that the caller may use; fails if there are too many.
    pub(crate) async fn in_reach<T>(
        &self,
        caller: &Caller,
        look: impl AsyncFnOnce(Whose<'_>) -> Result<T, AskError>,
    ) -> Result<(T, Option<String>), Problem> {
        if caller.has(TokenScope::Admin) {
            return Ok((look(Whose::All).await?, None));
        }
        let limit = usize::try_from(SESSIONS_MAX).unwrap_or(usize::MAX);
        let (names, more) = self.0.sessions.page(caller, None, limit).await?;
        Ok((look(Whose::These(&names)).await?, more.map(|_| view::left_out())))
    }

    /// How long the answer to a batch waits.
    pub(crate) fn waits(&self, wait: AnswerWait, ms: Option<u64>) -> Result<BatchWait, Problem> {
        let limits = self.0.runtime.limits();
        let (ms, max) = (ms.unwrap_or(limits.wait_ms), limits.wait_ms_max);
        if ms > max {
            let told = format!("timeout_ms is at most {max}, and {ms} is more; ask again when it is over");
            return Err(Problem::new(ProblemCode::BadBatch, told));
        }
        Ok(BatchWait { until: wait, most: Duration::from_millis(ms) })
    }

    /// The answer to a batch, once its wait is satisfied or has timed out.
    pub(crate) async fn answer(
        &self,
        session: &str,
        submitted: Submitted,
        wait: BatchWait,
    ) -> Result<Shown, Problem> {
        let asked_at = self.now();
        let answer = self.settled(&submitted, wait).await?;
        Ok(self.shown(session, answer, asked_at))
    }

    /// The answers of a submitted batch, once its wait is satisfied or has timed out.
    pub(crate) async fn settled(
        &self,
        submitted: &Submitted,
        wait: BatchWait,
    ) -> Result<BatchAnswer, Problem> {
        self.wait_for(submitted, wait).await?;
        Ok(submitted.now().await?)
    }

    /// The response to a push. A push that waits for nothing gets a receipt: the batch is answered when it is closed.
    pub(crate) async fn pushed(
        &self,
        session: &str,
        submitted: Submitted,
        wait: BatchWait,
    ) -> Result<Shown, Problem> {
        if wait.until != AnswerWait::None {
            return self.answer(session, submitted, wait).await;
        }
        let asked_at = self.now();
        Ok(self.shown(session, submitted.receipt().await?, asked_at))
    }

    /// Waits until the condition holds or times out.
    async fn wait_for(&self, submitted: &Submitted, wait: BatchWait) -> Result<(), Problem> {
        let mut draining = self.0.draining.subscribe();
        let waiting = async {
            match wait.until {
                AnswerWait::None => Ok(()),
                AnswerWait::Settled => submitted.ended().await,
                AnswerWait::Inline => {
                    // The batch is acknowledged while calls wait for people, so it is recorded before waiting.
                    submitted.admitted().await?;
                    submitted.stands_still().await
                }
            }
        };
        tokio::select! {
            waited = waiting => waited?,
            () = self.0.runtime.sleep(wait.most) => {}
            _ = draining.wait_for(|draining| *draining) => {}
        }
        Ok(())
    }

    fn shown(&self, session: &str, answer: BatchAnswer, asked_at: Timestamp) -> Shown {
        let before = |call: &&windlass::CallAnswer| {
            call.is_recorded()
                && !call.is_conflict()
                && call.call().end().is_some_and(|end| end.at < asked_at)
        };
        let recorded = answer.calls.iter().filter(before).count();
        if answer.calls.iter().all(|call| call.call().end().is_some()) {
            // The answers are complete.
            return Shown::Over { answer, recorded };
        }
        let mut shown = View::of_session(&self.0.runtime, session).batch(&answer);
        shown.recorded = (recorded > 0).then_some(recorded);
        Shown::Open(shown)
    }
}

/// How long the answer to a batch waits, and for which calls.
#[derive(Clone, Copy)]
pub(crate) struct BatchWait {
    pub(crate) until: AnswerWait,
    most: Duration,
}

/// A rendered answer to a batch.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Shown {
    /// Every call has ended.
    Over {
        #[serde(flatten)]
        answer: BatchAnswer,
        /// The number of calls that had ended before the request.
        #[serde(skip_serializing_if = "is_none")]
        recorded: usize,
    },
    /// The current state.
    Open(ShownBatch),
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

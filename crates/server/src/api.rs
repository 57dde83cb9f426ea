//! What every handler works with: the runtime, whose sessions and tokens there are, and whether the server is stopping.

use crate::access::{Caller, LOCAL, Scope};
use crate::extract::Bodies;
use crate::problem::Problem;
use crate::sessions::{self, Sessions};
use crate::tokens::Tokens;
use crate::undisturbed::undisturbed;
use crate::view::{self, SESSIONS_MAX, View, Whose};
use crate::wire::Wait;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use windlass::core::handle::{Handle, Kind, open_question_id};
use windlass::core::ids::CallId;
use windlass::core::narration::Locale;
use windlass::core::time::Timestamp;
use windlass::{AskError, BatchAnswer, Runtime, Submitted};

/// What every handler works with. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Api(Arc<Inner>);

struct Inner {
    runtime: Runtime,
    sessions: Sessions,
    tokens: Tokens,
    bodies: Bodies,
    draining: watch::Sender<bool>,
}

impl Api {
    /// The API of this runtime, whose store lies in `folder`, if it does.
    pub fn new(runtime: &Runtime, folder: Option<&Path>) -> Api {
        let (runtime, tokens) = (runtime.clone(), Tokens::new(runtime, folder));
        let sessions = Sessions::of(&runtime);
        let (bodies, draining) = (Bodies::new(runtime.limits().bodies_bytes_max), watch::Sender::new(false));
        Api(Arc::new(Inner { runtime, sessions, tokens, bodies, draining }))
    }

    /// Takes no more work, and lets those who wait for calls go with what there is.
    pub fn drain(&self) {
        self.0.draining.send_replace(true);
    }

    /// Whether it takes no more work.
    pub fn is_draining(&self) -> bool {
        *self.0.draining.borrow()
    }

    /// The runtime.
    pub fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    /// Whose sessions there are.
    pub fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    /// The tokens there are.
    pub fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    pub(crate) fn bodies(&self) -> &Bodies {
        &self.0.bodies
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.runtime.clock().now()
    }

    /// The session is there for the caller; one that nobody has used is the caller's from now on.
    pub async fn claim(&self, caller: &Caller, session: &str) -> Result<(), Problem> {
        match self.owner(session).await? {
            Some(owner) => sessions::reached(caller, &owner, session),
            None => self.0.sessions.claim(caller, session, self.now()).await,
        }
    }

    /// The session is there for the caller, or it is told as one that is not.
    pub(crate) async fn session(&self, caller: &Caller, session: &str) -> Result<(), Problem> {
        let owner = self.owner(session).await?.ok_or_else(|| sessions::not_found(session))?;
        sessions::reached(caller, &owner, session)
    }

    /// Whose a session is. One that this process uses without anybody having asked here is the local principal's, also before
    /// anything of it is recorded.
    async fn owner(&self, session: &str) -> Result<Option<Arc<str>>, Problem> {
        let Inner { runtime, sessions, .. } = &*self.0;
        let owner = sessions.owner(session).await?;
        if owner.is_some() || runtime.live_in(session).is_empty() {
            return Ok(owner);
        }
        sessions.claim(&Caller::local(), session, self.now()).await?;
        sessions.owner(session).await
    }

    /// The language in which people are told what happens in a session.
    pub(crate) async fn locale(&self, session: &str) -> Result<Locale, Problem> {
        let setting = self.0.sessions.setting(session).await?;
        Ok(setting.and_then(|setting| setting.locale).map_or(Locale::English, Locale::from))
    }

    /// Work is taken.
    pub(crate) fn takes_work(&self) -> Result<(), Problem> {
        if !self.is_draining() {
            return Ok(());
        }
        let told = "the server is stopping and takes no more calls; ask its successor";
        Err(Problem { retry_after_ms: Some(1_000), ..Problem::new("draining", told) })
    }

    /// Removes a session with everything it had. If the server stops before that is done, the next one goes on.
    pub(crate) async fn remove(&self, session: String) -> Result<(), Problem> {
        let owner = self.0.sessions.owner(&session).await?.unwrap_or_else(|| LOCAL.into());
        let mut draining = self.0.draining.subscribe();
        let removing = undisturbed({
            let (runtime, settings) = (self.0.runtime.clone(), sessions::settings(&owner, &session));
            async move { runtime.remove_session(&session, settings).await.map(drop) }
        });
        tokio::select! {
            removed = removing => removed,
            _ = draining.wait_for(|draining| *draining) => self.takes_work(),
        }
    }

    /// The call of this handle is there for the caller; answers its session.
    pub(crate) async fn call(&self, caller: &Caller, handle: &str) -> Result<String, Problem> {
        let not_found = || Problem::from(AskError::NotFound { what: format!("call {handle:?}") });
        let secret = self.0.runtime.store().secret();
        let call = Handle::parse(handle).and_then(|handle| handle.open(secret, Kind::Call));
        let call = call.map(CallId::unpacked).ok_or_else(not_found)?;
        self.session_of(caller, call).await?.ok_or_else(not_found)
    }

    /// The question of this id is there for the caller.
    pub(crate) async fn question(&self, caller: &Caller, id: &str) -> Result<(), Problem> {
        let not_found = || Problem::from(AskError::NoQuestion);
        let (call, _) = open_question_id(self.0.runtime.store().secret(), id).ok_or_else(not_found)?;
        self.session_of(caller, call).await?.map(drop).ok_or_else(not_found)
    }

    /// The session of a call, if it is there for the caller.
    async fn session_of(&self, caller: &Caller, call: CallId) -> Result<Option<String>, Problem> {
        let Some(session) = self.0.runtime.session_of(call).await? else { return Ok(None) };
        match self.session(caller, &session).await {
            Ok(()) => Ok(Some(session)),
            Err(problem) if problem.code == "not_found" => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// Looks at something of all sessions that are there for the caller, or says that there are too many to look at all.
    pub(crate) async fn in_reach(
        &self,
        caller: &Caller,
        look: impl AsyncFnOnce(Whose<'_>) -> Result<Value, AskError>,
    ) -> Result<Value, Problem> {
        if caller.has(Scope::Admin) {
            return Ok(look(Whose::All).await?);
        }
        let limit = usize::try_from(SESSIONS_MAX).unwrap_or(usize::MAX);
        let (names, more) = self.0.sessions.page(caller, None, limit).await?;
        let mut shown = look(Whose::These(&names)).await?;
        if more.is_some() {
            shown["left_out"] = view::left_out().into();
        }
        Ok(shown)
    }

    /// For how long the answer to a batch waits.
    pub(crate) fn waits(&self, (wait, ms): (Wait, Option<u64>)) -> Result<(Wait, Duration), Problem> {
        let limits = self.0.runtime.limits();
        let (ms, max) = (ms.unwrap_or(limits.wait_ms), limits.wait_ms_max);
        if ms > max {
            let told = format!("timeout_ms is at most {max}, and {ms} is more; ask again when it is over");
            return Err(Problem::new("bad_batch", told));
        }
        Ok((wait, Duration::from_millis(ms)))
    }

    /// The answer to a batch, once what it waits for is so or took too long.
    pub(crate) async fn answer(
        &self,
        (session, submitted): (&str, Submitted),
        (wait, most): (Wait, Duration),
    ) -> Result<Shown, Problem> {
        let asked_at = self.now();
        let mut draining = self.0.draining.subscribe();
        let waiting = async {
            match wait {
                Wait::None => Ok(()),
                Wait::Settled => submitted.ended().await,
                Wait::Inline => {
                    // It is acknowledged while calls wait for people, so it is recorded before it waits.
                    submitted.admitted().await?;
                    submitted.stands_still().await
                }
            }
        };
        tokio::select! {
            waited = waiting => waited?,
            () = tokio::time::sleep(most) => {}
            _ = draining.wait_for(|draining| *draining) => {}
        }
        let answer = submitted.now().await?;
        let before = |call: &&windlass::CallAnswer| {
            call.is_recorded()
                && !call.is_conflict()
                && call.call().end().is_some_and(|end| end.at < asked_at)
        };
        let recorded = answer.calls.iter().filter(before).count();
        if answer.calls.iter().all(|call| call.call().end().is_some()) {
            // Its answers say all there is to say.
            return Ok(Shown::Over { answer, recorded });
        }
        let mut shown = View::of_session(&self.0.runtime, session).batch(&answer);
        if recorded > 0 {
            shown["recorded"] = recorded.into();
        }
        Ok(Shown::Open(shown))
    }
}

/// The answer to a batch, as it is written.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Shown {
    /// Every call has ended.
    Over {
        #[serde(flatten)]
        answer: BatchAnswer,
        /// So many of them had before it was asked for.
        #[serde(skip_serializing_if = "is_none")]
        recorded: usize,
    },
    /// As it stands.
    Open(Value),
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

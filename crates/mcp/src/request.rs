//! The life of one `tools/call`: its place, its start, the ladder of answers, its delivery.
//!
//! It runs in a task of its own, so that a client that disconnects leaves nothing half done. Being told of that, the task
//! cancels what has not started and what only reads; everything else goes on, and an identical call joins it.

mod begun;
mod ladder;

use crate::conversation::{ConversationVoice, Fate, FateListener};
use crate::delivery::{HeldLine, LineName};
use crate::gateway::{Gateway, Visitor};
use crate::message::{self, RpcError};
use crate::peer::{Era, Peer};
use crate::people;
use crate::result;
use begun::{BegunCall, BegunWork};
pub(crate) use ladder::RequestState;
use ladder::Rung;
use serde_json::{Map, Value};
use std::time::Duration;
use windlass::ask::Target;
use windlass::inspect;
use windlass::trace::TraceParent;

/// How long a cancelled call may take to end before an identical one is let through to join it.
const CANCEL_WAIT: Duration = Duration::from_secs(5);
/// Numbers that a line may be behind its note, which is written after each delivery: what was delivered right before a crash.
const BEHIND_MAX: u64 = 64;

/// A call that a client asks for.
pub(crate) struct McpCall {
    /// Its tool's own name.
    pub(crate) tool: String,
    pub(crate) args: Value,
    /// Binds state that the client keeps to this call.
    pub(crate) digest: String,
    pub(crate) is_read: bool,
    /// Its answer is its end, however long that takes.
    pub(crate) stays_direct: bool,
    /// It may ask a person while its body runs, so that nothing tells that it stands still.
    pub(crate) asks_inside: bool,
    pub(crate) identity: CallIdentity,
    /// The answers of a person to what the call asked.
    pub(crate) answers: Map<String, Value>,
    /// How often the client was told to repeat it.
    pub(crate) round: u64,
    pub(crate) traceparent: Option<TraceParent>,
}

/// How a call is told from others.
pub(crate) enum CallIdentity {
    /// It is the batch of this key: the caller named it, or repeats it with our own state.
    Key(String),
    /// It is the next of its line, unless the client's id names an earlier one.
    Line { client_id: Option<String> },
    /// It was begun before: this request only waits for it.
    Earlier { call: String, key: String },
    /// It is new: it only reads.
    Fresh,
}

/// A `tools/call` on its way.
pub(crate) struct CallTask {
    pub(crate) gateway: Gateway,
    pub(crate) visitor: Visitor,
    pub(crate) peer: Peer,
    pub(crate) id: Value,
    pub(crate) call: McpCall,
}

impl CallTask {
    /// Runs it to its end.
    pub(crate) async fn run(self, voice: ConversationVoice, mut listener: FateListener) {
        let line = match self.line(&mut listener).await {
            LineAccess::Free => None,
            LineAccess::Held(line) => Some(line),
            LineAccess::Busy => {
                let told = "An identical call is being answered right now, and this one waited for it in vain. Wait for its answer, or try again.";
                let busy = self.signed(result::text(told, true));
                voice.answer(message::answer(&self.id, busy), &mut listener).await;
                return;
            }
            LineAccess::Gone => return,
        };
        // Not dropped with the client: a call that is half submitted would be nobody's.
        let begun = match self.begin(line.as_ref()).await {
            Ok(begun) => begun,
            Err(error) => {
                voice.answer(error.answer(&self.id), &mut listener).await;
                return;
            }
        };
        let seen = tokio::select! {
            // First: a request that was cancelled has no answer, even if that is there by now.
            biased;
            fate = listener.fate() => {
                self.abandon(&begun, fate).await;
                return;
            }
            () = self.gateway.closes(), if self.visitor.bridge.is_some() => return,
            seen = self.watch(&begun, &voice) => seen,
        };
        let rung = match seen {
            Ok(seen) => self.rung(&begun, seen).await,
            Err(error) => Err(error),
        };
        let (answer, is_over) = match rung {
            Ok(Rung { result, is_over }) => (message::answer(&self.id, result), is_over),
            Err(error) => (error.answer(&self.id), false),
        };
        let fate = voice.answer(answer, &mut listener).await;
        if fate == Fate::Delivered && is_over {
            self.delivered(&begun, line).await;
        }
    }

    /// Waits for the call's turn in its line.
    async fn line(&self, listener: &mut FateListener) -> LineAccess {
        if !matches!(self.call.identity, CallIdentity::Line { .. }) {
            return LineAccess::Free;
        }
        let name = LineName { session: self.visitor.session.clone(), digest: self.call.digest.clone() };
        tokio::select! {
            biased;
            line = self.gateway.lines().hold(self.gateway.runtime(), name) => LineAccess::Held(line),
            _ = listener.fate() => LineAccess::Gone,
            () = self.gateway.closes() => LineAccess::Gone,
            () = self.gateway.runtime().sleep(self.hold()) => LineAccess::Busy,
        }
    }

    /// Submits the call, or joins the one that it is.
    async fn begin(&self, line: Option<&HeldLine>) -> Result<BegunCall, RpcError> {
        let (runtime, session) = (self.gateway.runtime(), &self.visitor.session);
        let begun = match (&self.call.identity, line) {
            (CallIdentity::Earlier { call, key }, _) => BegunCall::earlier(runtime, session, call, key),
            (CallIdentity::Key(key), _) => {
                BegunCall::submit(runtime, session, key.clone(), &self.call).await?
            }
            (CallIdentity::Line { client_id }, Some(line)) => {
                let number = self.number(line, client_id.as_deref()).await?;
                BegunCall::submit(runtime, session, line.name().key(number), &self.call).await?
            }
            (CallIdentity::Line { .. } | CallIdentity::Fresh, _) => {
                let key = windlass::batch::fresh_key().map_err(|error| RpcError::internal(&error))?;
                BegunCall::submit(runtime, session, key, &self.call).await?
            }
        };
        if !self.call.answers.is_empty() {
            let call = begun.handle().await?;
            let taken = people::take(&self.gateway, &self.visitor, &call, &self.call.answers).await;
            taken.map_err(|error| RpcError::params(error.to_string()))?;
        }
        Ok(begun)
    }

    /// The number of the call in its line: that of one which is open, or took effect a short while ago, unless it was delivered.
    async fn number(&self, line: &HeldLine, client_id: Option<&str>) -> Result<u64, RpcError> {
        let runtime = self.gateway.runtime();
        let internal = |error| RpcError::internal(&error);
        let note = line.note().await.map_err(internal)?;
        let first = note.number(client_id);
        let Some(row) = runtime
            .store()
            .session(&self.visitor.session)
            .await
            .map_err(|error| RpcError::internal(&error))?
        else {
            return Ok(first);
        };
        let join_us = i64::try_from(runtime.limits().mcp_join_ms.saturating_mul(1_000)).unwrap_or(i64::MAX);
        for number in first..first.saturating_add(BEHIND_MAX) {
            let found = inspect::batch(runtime.store(), &row, &line.name().key(number)).await;
            let calls = match found {
                Ok(Some((calls, _))) => calls,
                // Nothing is recorded: it is new, or open in memory.
                Ok(None) => return Ok(number),
                Err(windlass::error::SessionError::Expired { .. }) => continue,
                Err(error) => return Err(internal(error)),
            };
            let end = calls.first().and_then(|call| call.answer.call().end());
            let is_named = number < note.number(None);
            let stands = end
                .is_none_or(|end| end.stands() && runtime.clock().now().0.saturating_sub(end.at.0) < join_us);
            if stands || is_named {
                return Ok(number);
            }
        }
        Ok(first.saturating_add(BEHIND_MAX))
    }

    /// The client is gone: ends what it alone wanted. The line is held meanwhile, so that a repetition sees how it ended.
    async fn abandon(&self, begun: &BegunCall, fate: Fate) {
        // Before the modern era a broken connection is no cancel.
        if fate == Fate::Left && self.peer.era == Era::Legacy {
            return;
        }
        let BegunWork::Batch(submitted) = &begun.work else { return };
        let Ok(answer) = submitted.receipt().await else { return };
        let Some(answer) = answer.calls.first() else { return };
        let call = answer.call();
        let has_started = call.first_started_at.is_some() || call.attempts > 0;
        // A call that was there before may be awaited by others.
        if answer.is_recorded() || call.end().is_some() || (has_started && !self.call.is_read) {
            return;
        }
        let target = Target::Batch { session: &self.visitor.session, key: &begun.key };
        let asked =
            self.gateway.runtime().cancel(target, Some("The MCP client cancelled its request.")).await;
        match asked {
            Ok(_) => drop(tokio::time::timeout(CANCEL_WAIT, submitted.ended()).await),
            Err(error) => tracing::warn!(error = %error, "a call whose client has gone was not cancelled"),
        }
    }

    /// The end of the call has reached its client.
    async fn delivered(&self, begun: &BegunCall, line: Option<HeldLine>) {
        let client_id = match &self.call.identity {
            CallIdentity::Line { client_id } => client_id.as_deref(),
            CallIdentity::Key(_) | CallIdentity::Earlier { .. } | CallIdentity::Fresh => None,
        };
        self.gateway.delivered(&self.visitor.session, &begun.key, client_id, line).await;
    }
}

/// The turn of a call in its line.
enum LineAccess {
    /// It needs none.
    Free,
    Held(HeldLine),
    /// Another is answered for longer than this one may wait.
    Busy,
    /// The client is gone, or the server closes.
    Gone,
}

//! What people and programs ask of calls that are under way or over: cancel, resolve, accept.

mod owner;
mod signal;

pub use signal::Signal;
pub(crate) use signal::signal;

pub(crate) use owner::{
    accept, adopt, adopt_now, answer, cancel, client_result, complete, connect, reconcile,
    resolve as resolve_call,
};

use crate::children::Child;
use crate::clock::Clock;
use crate::error::BatchError;
use crate::inside::Completed;
use crate::session::fold;
use serde_json::Value;
use std::sync::Arc;
use windlass_core::ask::{Ask, Scope};
use windlass_core::batch::Batch;
use windlass_core::call::{Call, Reason, State};
use windlass_core::handle::{Handle, Kind, completion_name, open_completion_key, open_question_id};
use windlass_core::ids::{BatchNo, CallId, Lookup};
use windlass_core::limits::Limits;
use windlass_core::operation::{Answer, CLIENT, Completion, Operations, Question};
use windlass_core::outcome::JsonText;
use windlass_core::schema::{Role, Schema};
use windlass_core::time::Timestamp;
use windlass_core::{json, projection};
use windlass_store::{Inbound, Posted, SessionRow, Store};

/// What is to be cancelled.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// The call with this handle.
    Call(&'a str),
    /// All calls of a batch.
    Batch {
        /// The session's name.
        session: &'a str,
        /// The batch's key.
        key: &'a str,
    },
    /// All calls of the session of this name.
    Session(&'a str),
}

/// What became of a request to cancel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// So many open calls were asked to stop; each writes its own end.
    pub asked: u64,
    /// So many were over already; nothing changed for them.
    pub over: u64,
}

impl std::ops::AddAssign for Asked {
    fn add_assign(&mut self, other: Asked) {
        self.asked += other.asked;
        self.over += other.over;
    }
}

/// Whom a new connection reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connecting {
    /// So many calls waited for it.
    pub waiting: u64,
}

/// What an operator knows of a call that ended as unknown.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolution {
    /// It took effect, and this is its result.
    Landed(Value),
    /// It did not.
    DidNotHappen,
}

/// Why a request about a call was not taken.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AskError {
    /// There is none of that name.
    #[error("there is no {what}; `windlass calls` lists those there are")]
    NotFound {
        /// What was asked for.
        what: String,
    },
    /// The call cannot be treated so as it stands.
    #[error("the call is {state}; {hint}")]
    Unfit {
        /// Where it stands.
        state: &'static str,
        /// What could be done instead.
        hint: &'static str,
    },
    /// The call was resolved otherwise before.
    #[error("the call was resolved before, and otherwise; that stands")]
    Conflict,
    /// Another answer came before.
    #[error("it was answered before, and otherwise; the first answer stands")]
    Answered,
    /// No key of this store; a forged one is told the same.
    #[error("there is no wait with this key; write all of it, as the tool gave it out")]
    NoKey,
    /// No question of this store.
    #[error("there is no question with this id; `windlass questions` lists those there are")]
    NoQuestion,
    /// The call's tool takes no such signal.
    #[error(
        "the tool {tool:?} takes no signal {name:?}{}; a tool declares those it takes as `signals`",
        nearest.as_ref().map(|near| format!(", but {near:?}")).unwrap_or_default()
    )]
    NoSignal {
        /// The tool.
        tool: String,
        /// The signal.
        name: String,
        /// What was perhaps meant.
        nearest: Option<String>,
    },
    /// The call does not receive the signals that it has.
    #[error("the call has {max} signals that it has not received yet; send more when it has")]
    TooManySignals {
        /// The limit `signals_max`.
        max: u64,
    },
    /// Another signal has this key.
    #[error("another signal was sent to the call under this key; each signal has a key of its own")]
    KeyUsed,
    /// What is answered is over.
    #[error("what this answers is over: {what}")]
    Over {
        /// Why.
        what: &'static str,
    },
    /// What was given cannot be taken.
    #[error("{what}")]
    Invalid {
        /// What is wrong, and what to do.
        what: String,
    },
    /// The session cannot be had.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

/// Leaves the request to cancel for the next owner of the session; for a store that nobody drives. What reaches a session reaches
/// its children.
pub async fn post_cancel(
    store: &dyn Store,
    target: Target<'_>,
    reason: Option<&str>,
) -> Result<Asked, AskError> {
    let alone = post_cancel_alone(store, target, reason).await;
    let Target::Session(name) = target else { return alone };
    let children = Child::all(store, name).await?;
    let mut asked = unless_around(alone, &children)?;
    for child in &children {
        match Box::pin(post_cancel(store, Target::Session(child), reason)).await {
            // Nothing was ever done there.
            Err(AskError::NotFound { .. }) => {}
            reached => asked += reached?,
        }
    }
    Ok(asked)
}

/// A session in which nothing was ever done is there if it has children.
fn unless_around(alone: Result<Asked, AskError>, children: &[String]) -> Result<Asked, AskError> {
    match alone {
        Err(AskError::NotFound { .. }) if !children.is_empty() => Ok(Asked::default()),
        alone => alone,
    }
}

/// The same without its children.
async fn post_cancel_alone(
    store: &dyn Store,
    target: Target<'_>,
    reason: Option<&str>,
) -> Result<Asked, AskError> {
    let (session, scope, calls) = find(store, target).await?;
    let over = calls.iter().filter(|call| call.end().is_some()).count() as u64;
    let asked = calls.len() as u64 - over;
    if asked > 0 {
        let ask = Ask::Cancel { scope, reason: reason.map(shortened) };
        post(store, &session, &ask).await?;
    }
    Ok(Asked { asked, over })
}

/// Leaves the resolution of a call for the next owner of its session; for a store that nobody drives.
pub async fn post_resolve(store: &dyn Store, call: &str, resolution: &Resolution) -> Result<(), AskError> {
    let (session, id, recorded) = find_call(store, call).await?;
    let ask = resolve(id, resolution)?;
    check_unknown(&recorded, &recorded.state)?;
    post(store, &session, &ask).await
}

/// Leaves for the next owner of its session that a call may go on although its tool has changed.
pub async fn post_accept(store: &dyn Store, call: &str) -> Result<(), AskError> {
    let (session, id, recorded) = find_call(store, call).await?;
    check_changed(&recorded)?;
    post(store, &session, &Ask::Accept { call: id }).await
}

/// Leaves an answer from outside for the owner of the session. The key is all that is needed; an answer is durable when
/// this returns. The first one counts, the same again is fine.
pub async fn post_complete(
    store: &dyn Store,
    key: &str,
    completion: &Completion,
    clock: &dyn Clock,
) -> Result<SessionRow, AskError> {
    // The same for a forged key as for one of another store.
    let (id, sum) = open_completion_key(store.secret(), key).ok_or(AskError::NoKey)?;
    let (session, call, _) = find_id(store, id).await?.ok_or(AskError::NoKey)?;
    let mut names = call.operations.as_deref().into_iter().flat_map(Operations::keys);
    let name = names.find(|name| completion_name(store.secret(), name) == sum).ok_or(AskError::NoKey)?;
    let ask = Ask::Complete { call: id, name: name.clone(), completion: completion.clone() };
    post_answered(store, (&session, &call), ask, clock).await?;
    Ok(session)
}

/// Leaves the result of a tool that its caller runs for the owner of the session, under the exact call. It is durable when
/// this returns. The first one counts, the same again is fine.
pub async fn post_client_result(
    store: &dyn Store,
    call: &str,
    completion: &Completion,
    clock: &dyn Clock,
) -> Result<SessionRow, AskError> {
    let (session, id, recorded) = find_call(store, call).await?;
    if !recorded.operations.as_deref().is_some_and(|operations| operations.has_key(CLIENT) == Ok(true)) {
        let hint = "only a call that its caller runs, and that waits for that, takes a result";
        return Err(AskError::Unfit { state: recorded.state.name(), hint });
    }
    let ask = Ask::Complete { call: id, name: CLIENT.into(), completion: completion.clone() };
    post_answered(store, (&session, &recorded), ask, clock).await?;
    Ok(session)
}

/// Leaves for the next owner of the session that it was connected to this provider, or that somebody declined to.
pub async fn post_connected(
    store: &dyn Store,
    session: &str,
    provider: &str,
    connected: bool,
) -> Result<Connecting, AskError> {
    find_and_post_connected(store, session, (provider, connected)).await.map(|(_, reached)| reached)
}

/// The same, and says which session that is.
async fn find_and_post_connected(
    store: &dyn Store,
    session: &str,
    (provider, connected): (&str, bool),
) -> Result<(SessionRow, Connecting), AskError> {
    let (session, _, calls) = find(store, Target::Session(session)).await?;
    let waits = |call: &&Call| call.unconnected().is_some_and(|said| *said.provider == *provider);
    let waiting = calls.iter().filter(waits).count() as u64;
    // One that runs may be about to say that it needs it.
    if calls.iter().any(|call| call.end().is_none()) {
        post(store, &session, &Ask::Connect { provider: provider.into(), connected }).await?;
    }
    Ok((session, Connecting { waiting }))
}

/// Leaves the answer to a question for the owner of the session, if it fits what is asked. It is durable when this
/// returns. The first one counts, the same again is fine.
pub async fn post_answer(
    store: &dyn Store,
    id: &str,
    answer: &Value,
    clock: &dyn Clock,
) -> Result<SessionRow, AskError> {
    let (of, sum) = open_question_id(store.secret(), id).ok_or(AskError::NoQuestion)?;
    let (session, call, _) = find_id(store, of).await?.ok_or(AskError::NoQuestion)?;
    let mut asked = call.operations.as_deref().into_iter().flat_map(Operations::questions);
    let (name, question) =
        asked.find(|(name, _)| completion_name(store.secret(), name) == sum).ok_or(AskError::NoQuestion)?;
    let completion = Completion::Ok(kept(answer)?);
    check_fits(question, answer)?;
    let ask = Ask::Complete { call: of, name: name.clone(), completion };
    post_answered(store, (&session, &call), ask, clock).await?;
    Ok(session)
}

/// Leaves an answer, unless there is one or it is too late. What is durable before the deadline is found by whoever decides
/// that it has passed; what became durable later is acknowledged only if it was taken all the same.
async fn post_answered(
    store: &dyn Store,
    (session, call): (&SessionRow, &Call),
    ask: Ask,
    clock: &dyn Clock,
) -> Result<(), AskError> {
    let Ask::Complete { call: id, name, completion } = &ask else { return post(store, session, &ask).await };
    if answered(call, (name, completion), clock.now())? {
        return Ok(());
    }
    post(store, session, &ask).await?;
    let until = call.operations.as_deref().and_then(|operations| operations.wait(name).0);
    if until.is_none_or(|until| clock.now() < until.wake_at) {
        return Ok(());
    }
    let now = find_id(store, *id).await?;
    match now.map(|(_, call, _)| answered(&call, (name, completion), clock.now())) {
        Some(Ok(true)) => Ok(()),
        Some(Err(error)) => Err(error),
        Some(Ok(false)) | None => Err(AskError::Over { what: "its deadline has passed" }),
    }
}

/// Whether this very answer is recorded; or why it can be none.
fn answered(call: &Call, (name, completion): (&str, &Completion), now: Timestamp) -> Result<bool, AskError> {
    let wait = call.operations.as_deref().map(|operations| operations.wait(name));
    match wait {
        Some((_, Some(Answer::Given(given)))) if given == completion => Ok(true),
        Some((_, Some(Answer::Given(_)))) => Err(AskError::Answered),
        Some((_, Some(Answer::TimedOut))) => Err(AskError::Over { what: "its deadline has passed" }),
        _ if call.end().is_some() => Err(AskError::Over { what: "the call has ended" }),
        Some((Some(until), None)) if now >= until.wake_at => {
            Err(AskError::Over { what: "its deadline has passed" })
        }
        Some((_, None)) | None => Ok(false),
    }
}

/// Whether an answer is one to this question.
fn check_fits(question: &Question, answer: &Value) -> Result<(), AskError> {
    let limits = Limits::default();
    let Some(schema) = question.schema.as_deref() else { return Ok(()) };
    let unread = |what: String| BatchError::Unreadable { what };
    let schema: Value = serde_json::from_str(schema).map_err(|error| unread(error.to_string()))?;
    // What was refused was never asked.
    let schema =
        Schema::compile(&schema, Role::Answer, "", &limits).map_err(|refused| unread(refused.to_string()))?;
    let size = json::measure_result(answer, &limits)
        .map_err(|problem| AskError::Invalid { what: problem.to_string() })?;
    schema.validate(answer, size).map_err(|invalid| AskError::Invalid {
        what: format!("the answer does not fit the question's schema\n{invalid}"),
    })
}

/// Checks an answer from outside, before it is kept.
pub fn completion(answer: &Completed) -> Result<Completion, AskError> {
    match answer {
        Completed::Ok(value) => kept(value).map(Completion::Ok),
        Completed::Error { code, message } => {
            check_error(code, message)?;
            Ok(Completion::Error { code: code.clone(), message: message.clone() })
        }
        Completed::Cancelled => Ok(Completion::Cancelled),
    }
}

/// A value from outside, as it is recorded.
fn kept(value: &Value) -> Result<JsonText, AskError> {
    json::measure_result(value, &Limits::default())
        .map_err(|problem| AskError::Invalid { what: format!("the value cannot be kept: {problem}") })?;
    Ok(value.to_string().into())
}

/// Why a code is no longer than this: it is a word for programs.
const CODE_CHARS_MAX: usize = 64;
/// Why a message is no longer than this: a model reads it whole.
const MESSAGE_CHARS_MAX: usize = 10_000;

fn check_error(code: &str, message: &str) -> Result<(), AskError> {
    let what = match (code.chars().count(), message.chars().count()) {
        (1..=CODE_CHARS_MAX, 1..=MESSAGE_CHARS_MAX) => return Ok(()),
        (1..=CODE_CHARS_MAX, _) => format!("the message of an error has 1 to {MESSAGE_CHARS_MAX} characters"),
        (_, _) => {
            format!("the code of an error has 1 to {CODE_CHARS_MAX} characters; say more in its message")
        }
    };
    Err(AskError::Invalid { what })
}

/// Why a reason is no longer than this: it lies in the journal of every call it reaches.
const REASON_CHARS_MAX: usize = 1_000;

fn shortened(reason: &str) -> String {
    reason.chars().take(REASON_CHARS_MAX).collect()
}

fn resolve(call: CallId, resolution: &Resolution) -> Result<Ask, AskError> {
    let landed = match resolution {
        Resolution::DidNotHappen => None,
        Resolution::Landed(value) => {
            let limits = Limits::default();
            json::measure_result(value, &limits).map_err(|problem| AskError::Invalid {
                what: format!("the value cannot be kept: {problem}"),
            })?;
            let text = value.to_string();
            if !projection::fits(&text, &limits) {
                let what =
                    "the value is too long for an answer; give a shorter one that says where the rest is";
                return Err(AskError::Invalid { what: what.to_string() });
            }
            Some(text.into())
        }
    };
    Ok(Ask::Resolve { call, landed })
}

fn check_unknown(call: &Call, state: &State) -> Result<(), AskError> {
    match call.end() {
        Some(end) if end.is_unknown() || end.resolved.is_some() => Ok(()),
        Some(_) => {
            Err(AskError::Unfit { state: state.name(), hint: "only a call that is unknown can be resolved" })
        }
        None => Err(AskError::Unfit {
            state: state.name(),
            hint: "it is still open: wait for its end, or cancel it",
        }),
    }
}

fn check_changed(call: &Call) -> Result<(), AskError> {
    let waits = call.parked.is_some_and(|(parked, _)| parked.reason == Reason::ToolChanged);
    if waits {
        return Ok(());
    }
    Err(AskError::Unfit {
        state: call.state.name(),
        hint: "only a call that waits because its tool has changed can be accepted",
    })
}

async fn post(store: &dyn Store, session: &SessionRow, ask: &Ask) -> Result<(), AskError> {
    let (session, key) = (session.no, ask.key(session.head.0));
    let posted = point!("inbound.post", store.post(Inbound { session, key, body: ask.encode() }).await);
    match posted.map_err(BatchError::from)? {
        Posted::New | Posted::Again => Ok(()),
        // Only a resolution can differ in what matters; who cancels again may give another reason.
        Posted::Differs if matches!(ask, Ask::Resolve { .. }) => Err(AskError::Conflict),
        Posted::Differs if matches!(ask, Ask::Complete { .. }) => Err(AskError::Answered),
        Posted::Differs if matches!(ask, Ask::Signal { .. }) => Err(AskError::KeyUsed),
        Posted::Differs => Ok(()),
    }
}

/// What a cancel reaches, as it is recorded.
async fn find(store: &dyn Store, target: Target<'_>) -> Result<(SessionRow, Scope, Vec<Call>), AskError> {
    let (name, key) = match target {
        Target::Call(handle) => {
            let (session, id, call) = find_call(store, handle).await?;
            return Ok((session, Scope::Call(id), vec![call]));
        }
        Target::Batch { session, key } => (session, Some(key)),
        Target::Session(session) => (session, None),
    };
    let row = store.session(name).await.map_err(BatchError::from)?;
    let session = row.ok_or_else(|| AskError::NotFound { what: format!("session {name:?}") })?;
    let Some(key) = key else {
        let mut calls = Vec::new();
        for row in store.open_batches(Some(session.no)).await.map_err(BatchError::from)? {
            calls.extend(read(store, row.no).await?.map(|batch| batch.calls).unwrap_or_default());
        }
        return Ok((session, Scope::Session, calls));
    };
    let row = store.batch(Lookup::of(session.no, key)).await.map_err(BatchError::from)?;
    let row = row.ok_or_else(|| AskError::NotFound { what: format!("batch {key:?} in session {name:?}") })?;
    let calls = read(store, row.no).await?.map(|batch| batch.calls).unwrap_or_default();
    Ok((session, Scope::Batch(row.no), calls))
}

/// A call by its handle, as it is recorded.
pub(crate) async fn find_call(
    store: &dyn Store,
    handle: &str,
) -> Result<(SessionRow, CallId, Call), AskError> {
    let unknown = || AskError::NotFound { what: format!("call {handle:?}") };
    let id = opened(store, handle).ok_or_else(unknown)?;
    let (session, call, _) = find_id(store, id).await?.ok_or_else(unknown)?;
    Ok((session, id, call))
}

/// A call by its number, as it is recorded, and the key of its batch.
pub(crate) async fn find_id(
    store: &dyn Store,
    id: CallId,
) -> Result<Option<(SessionRow, Call, Arc<str>)>, BatchError> {
    let rows = store.journal(id.batch).await?;
    let Some(first) = rows.first() else { return Ok(None) };
    let session = store.session_by_no(first.session).await?;
    let mut batch = fold(&rows)?;
    let place = usize::from(id.ordinal.0);
    let call = (place < batch.calls.len()).then(|| batch.calls.swap_remove(place));
    Ok(session.zip(call).map(|(session, call)| (session, call, batch.opening.key)))
}

fn opened(store: &dyn Store, handle: &str) -> Option<CallId> {
    Handle::parse(handle)?.open(store.secret(), Kind::Call).map(CallId::unpacked)
}

async fn read(store: &dyn Store, batch: BatchNo) -> Result<Option<Batch>, AskError> {
    let rows = store.journal(batch).await.map_err(BatchError::from)?;
    if rows.is_empty() { Ok(None) } else { Ok(Some(fold(&rows)?)) }
}

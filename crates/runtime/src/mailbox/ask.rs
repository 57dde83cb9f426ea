//! Requests of people and programs about running or finished calls: cancel, resolve, accept.

mod extras;
mod owner;
mod signal;

pub use signal::Signal;
pub(crate) use signal::signal;

pub(super) use owner::hear;
pub(crate) use owner::{
    accept, answer, cancel, client_result, complete, connect, reconcile, resolve as resolve_call,
};

pub use crate::api::answer::Asked;
use crate::api::clock::Clock;
use crate::api::error::{Lost, SessionError};
use crate::api::journal::{find_id, read_batch};
use crate::api::limits::Limits;
use crate::api::pending::Completed;
use crate::session::kin::Child;
use serde_json::Value;
use windlass_args::json;
use windlass_args::schema::{Schema, SchemaRole};
use windlass_core::ask::{Ask, Scope};
use windlass_core::call::{Call, Reason, State};
use windlass_core::handle::{Handle, HandleKind, completion_name, open_completion_key, open_question_id};
use windlass_core::ids::{CallId, Lookup, Ordinal};
use windlass_core::operation::{CLIENT, Completion, Operations, Question, WaitOutcome};
use windlass_core::outcome::JsonText;
use windlass_core::projection;
use windlass_core::time::Timestamp;
use windlass_store::{Inbound, Posted, SessionRow, Store};

/// The target of a cancellation.
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
    /// One call of a batch, by the id that the model gave it.
    CallOf {
        /// The session's name.
        session: &'a str,
        /// The batch's key.
        key: &'a str,
        /// The model's id of the call.
        id: &'a str,
    },
    /// All calls of the session of this name.
    Session(&'a str),
}

/// The calls that a new connection affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connecting {
    /// The number of calls that waited for it.
    pub waiting: u64,
}

/// The outcome of a call that ended as unknown, as an operator knows it.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolution {
    /// It took effect, with this result.
    Landed(Value),
    /// It did not take effect.
    DidNotHappen,
}

/// Why a request about a call was refused.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// There is no such object.
    #[error("there is no {what}; `windlass calls` lists all calls")]
    NotFound {
        /// The requested object.
        what: String,
    },
    /// The call's state does not allow this.
    #[error("the call is {state}; {hint}")]
    Unfit {
        /// Its state.
        state: &'static str,
        /// An alternative.
        hint: &'static str,
    },
    /// The reason for a cancel is too long to be kept.
    #[error("a reason has at most {max} characters; shorten it")]
    LongReason {
        /// The most characters it may have.
        max: usize,
    },
    /// Files of a removed session still exist.
    #[error(
        "the files of the session could not be removed: {what}; it is removed once they can be, so try again"
    )]
    FilesLeft {
        /// The reason.
        what: String,
    },
    /// The call was resolved differently before.
    #[error("the call was resolved differently before; that resolution stands")]
    Conflict,
    /// Another answer came before.
    #[error("it was answered differently before; the first answer stands")]
    Answered,
    /// Not a key of this store; a forged one gets the same error.
    #[error("there is no wait with this key; use the whole key, as the tool issued it")]
    NoKey,
    /// Not an approval of this store.
    #[error("there is no approval with this id; `windlass approvals` lists all open approvals")]
    NoApproval,
    /// The call has changed since the approver was shown it.
    #[error("the call is not what was shown with this digest; look at it again, its digest is {digest}")]
    StaleDigest {
        /// The digest now.
        digest: String,
    },
    /// The rule that asks wants another person.
    #[error("{principal:?} made the call, and the rule that asks wants another person's approval")]
    FourEyes {
        /// The principal that made the call and wants to approve it.
        principal: String,
    },
    /// Not a question of this store.
    #[error("there is no question with this id; `windlass questions` lists all open questions")]
    NoQuestion,
    /// The call's tool takes no such signal.
    #[error(
        "the tool {tool:?} takes no signal {name:?}{}; a tool declares its signals as `signals`",
        nearest.as_ref().map(|near| format!(", but {near:?}")).unwrap_or_default()
    )]
    NoSignal {
        /// The tool.
        tool: String,
        /// The signal.
        name: String,
        /// The most similar signal.
        nearest: Option<String>,
    },
    /// The call has too many signals that it has not received.
    #[error("the call has {max} signals that it has not received yet; send more when it has")]
    TooManySignals {
        /// The limit `signals_max`.
        max: u64,
    },
    /// Another signal has this key.
    #[error("another signal was sent to the call under this key; each signal has a key of its own")]
    KeyUsed,
    /// The wait is over.
    #[error("the wait for this answer is over: {what}")]
    Over {
        /// The reason.
        what: &'static str,
    },
    /// The value is invalid.
    #[error("{what}")]
    Invalid {
        /// The mistake, and what to do.
        what: String,
    },
    /// The request is malformed: a page that does not exist, a size that is not allowed.
    #[error("{what}")]
    Shape {
        /// Where and what, and what to do.
        what: String,
    },
    /// The session cannot be used.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl AskError {
    /// Whether the session, batch or call that was named does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, AskError::NotFound { .. } | AskError::Session(SessionError::NotFound { .. }))
    }
}

/// Posts a request to cancel for the next owner of the session; for a store without an owner. A request for a
/// session also reaches its children.
pub async fn post_cancel(
    store: &dyn Store,
    target: Target<'_>,
    reason: Option<&str>,
) -> Result<Asked, AskError> {
    check_reason(reason)?;
    let alone = post_cancel_alone(store, target, reason).await;
    let Target::Session(name) = target else { return alone };
    let children = Child::all(store, name).await?;
    let mut asked = unless_around(alone, &children)?;
    for child in &children {
        match Box::pin(post_cancel(store, Target::Session(child), reason)).await {
            // The session was never used.
            Err(error) if error.is_not_found() => {}
            reached => asked += reached?,
        }
    }
    Ok(asked)
}

/// A session that was never used exists if it has children.
fn unless_around(alone: Result<Asked, AskError>, children: &[String]) -> Result<Asked, AskError> {
    match alone {
        Err(error) if error.is_not_found() && !children.is_empty() => Ok(Asked::default()),
        alone => alone,
    }
}

/// Posts a request to cancel without the children.
async fn post_cancel_alone(
    store: &dyn Store,
    target: Target<'_>,
    reason: Option<&str>,
) -> Result<Asked, AskError> {
    let (session, scope, calls) = find(store, target).await?;
    let over = calls.iter().filter(|call| call.end().is_some()).count() as u64;
    let asked = calls.len() as u64 - over;
    if asked > 0 {
        let ask = Ask::Cancel { scope, reason: reason.map(str::to_string) };
        post(store, &session, &ask).await?;
    }
    Ok(Asked { asked, over })
}

/// Posts the resolution of a call for the next owner of its session; for a store without an owner.
pub async fn post_resolve(
    store: &dyn Store,
    call: &str,
    resolution: &Resolution,
    limits: &Limits,
) -> Result<(), AskError> {
    let (session, id, recorded) = find_call(store, call).await?;
    let ask = resolve(id, resolution, limits)?;
    check_unknown(&recorded, &recorded.state)?;
    post(store, &session, &ask).await
}

/// Posts for the next owner of its session that a call may continue although its tool has changed.
pub async fn post_accept(store: &dyn Store, call: &str) -> Result<(), AskError> {
    let (session, id, recorded) = find_call(store, call).await?;
    check_changed(&recorded)?;
    post(store, &session, &Ask::Accept { call: id }).await
}

/// Posts an external answer for the owner of the session. The key is enough; the answer is durable when this
/// returns. The first one counts, and repeating it is fine.
pub async fn post_complete(
    store: &dyn Store,
    key: &str,
    completion: &Completion,
    clock: &dyn Clock,
) -> Result<SessionRow, AskError> {
    // A forged key looks like one of another store.
    let (id, sum) = open_completion_key(store.secret(), key).ok_or(AskError::NoKey)?;
    let (session, call, _) = find_id(store, id).await?.ok_or(AskError::NoKey)?;
    let mut names = call.operations.as_deref().into_iter().flat_map(Operations::keys);
    let name = names.find(|name| completion_name(store.secret(), name) == sum).ok_or(AskError::NoKey)?;
    let completion = extras::with_sizes(store, session.no, completion).await?;
    let ask = Ask::Complete { call: id, name: name.clone(), completion };
    post_answered(store, &session, &call, ask, clock).await?;
    Ok(session)
}

/// Posts the result of a tool that its caller runs for the owner of the session, under the exact call.
/// Durable when this returns. The first one counts, and repeating it is fine.
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
    let completion = extras::with_sizes(store, session.no, completion).await?;
    let ask = Ask::Complete { call: id, name: CLIENT.into(), completion };
    post_answered(store, &session, &recorded, ask, clock).await?;
    Ok(session)
}

/// Posts for the next owner of the session that it was connected to this provider, or that the connection was declined.
pub async fn post_connected(
    store: &dyn Store,
    session: &str,
    provider: &str,
    connected: bool,
) -> Result<Connecting, AskError> {
    find_and_post_connected(store, session, provider, connected).await.map(|(_, reached)| reached)
}

/// Posts a connection report, and returns the session.
async fn find_and_post_connected(
    store: &dyn Store,
    session: &str,
    provider: &str,
    connected: bool,
) -> Result<(SessionRow, Connecting), AskError> {
    let (session, _, calls) = find(store, Target::Session(session)).await?;
    let waits = |call: &&Call| call.unconnected().is_some_and(|said| *said.provider == *provider);
    let waiting = calls.iter().filter(waits).count() as u64;
    // A running call may be about to need it.
    if calls.iter().any(|call| call.end().is_none()) {
        post(store, &session, &Ask::Connect { provider: provider.into(), connected }).await?;
    }
    Ok((session, Connecting { waiting }))
}

/// The clock and the limits for an answer.
#[derive(Clone, Copy)]
pub struct AnswerRules<'a> {
    /// The clock.
    pub clock: &'a dyn Clock,
    /// The limits that are configured.
    pub limits: &'a Limits,
}

/// Posts the answer to a question for the owner of the session, if it matches the question's schema. Durable
/// when this returns. The first one counts, and repeating it is fine.
pub async fn post_answer(
    store: &dyn Store,
    id: &str,
    answer: &Value,
    by: AnswerRules<'_>,
) -> Result<SessionRow, AskError> {
    let AnswerRules { clock, limits } = by;
    let (of, sum) = open_question_id(store.secret(), id).ok_or(AskError::NoQuestion)?;
    let (session, call, _) = find_id(store, of).await?.ok_or(AskError::NoQuestion)?;
    let mut asked = call.operations.as_deref().into_iter().flat_map(Operations::questions);
    let (name, question) =
        asked.find(|(name, _)| completion_name(store.secret(), name) == sum).ok_or(AskError::NoQuestion)?;
    let completion = Completion::ok(kept(answer, limits)?);
    check_fits(question, answer, limits)?;
    let ask = Ask::Complete { call: of, name: name.clone(), completion };
    post_answered(store, &session, &call, ask, clock).await?;
    Ok(session)
}

/// Posts an answer, unless there is one or it is too late. An answer that is durable before the deadline is
/// found by the timeout decision; a later one is acknowledged only if it was taken all the same.
async fn post_answered(
    store: &dyn Store,
    session: &SessionRow,
    call: &Call,
    ask: Ask,
    clock: &dyn Clock,
) -> Result<(), AskError> {
    let Ask::Complete { call: id, name, completion } = &ask else { return post(store, session, &ask).await };
    if answered(call, name, completion, clock.now())? {
        return Ok(());
    }
    post(store, session, &ask).await?;
    let until = call.operations.as_deref().and_then(|operations| operations.wait(name).0);
    let Some(until) = until else { return Ok(()) };
    // The wait may be over by now, even before the wall clock says so: it may have been set back.
    let now = find_id(store, *id).await?;
    match now.map(|(_, call, _)| answered(&call, name, completion, clock.now())) {
        Some(Ok(true)) => Ok(()),
        Some(Err(error)) => Err(error),
        Some(Ok(false)) if clock.now() < until.wake_at => Ok(()),
        Some(Ok(false)) | None => Err(AskError::Over { what: "its deadline has passed" }),
    }
}

/// Whether this very answer is recorded; or why it is refused.
fn answered(call: &Call, name: &str, completion: &Completion, now: Timestamp) -> Result<bool, AskError> {
    let wait = call.operations.as_deref().map(|operations| operations.wait(name));
    match wait {
        Some((_, Some(WaitOutcome::Given(given)))) if given == completion => Ok(true),
        Some((_, Some(WaitOutcome::Given(_)))) => Err(AskError::Answered),
        Some((_, Some(WaitOutcome::TimedOut))) => Err(AskError::Over { what: "its deadline has passed" }),
        _ if call.end().is_some() => Err(AskError::Over { what: "the call has ended" }),
        Some((Some(until), None)) if now >= until.wake_at => {
            Err(AskError::Over { what: "its deadline has passed" })
        }
        Some((_, None)) | None => Ok(false),
    }
}

/// Checks an answer against the question's schema.
fn check_fits(question: &Question, answer: &Value, limits: &Limits) -> Result<(), AskError> {
    let Some(schema) = question.schema.as_deref() else { return Ok(()) };
    let schema_of = "the schema of a question";
    let schema: Value =
        serde_json::from_str(schema).map_err(|error| SessionError::undecodable(schema_of, error))?;
    // A refused schema was never asked.
    let schema = Schema::compile(&schema, SchemaRole::Answer, "", &limits.args())
        .map_err(|refused| SessionError::undecodable(schema_of, refused))?;
    let size = json::measure_result(answer, &limits.args())
        .map_err(|problem| AskError::Invalid { what: problem.to_string() })?;
    schema.validate(answer, size).map_err(|invalid| AskError::Invalid {
        what: format!("the answer does not fit the question's schema\n{invalid}"),
    })
}

/// Checks an external answer, before it is stored.
pub fn completion(answer: &Completed, limits: &Limits) -> Result<Completion, AskError> {
    match answer {
        Completed::Ok(output) => {
            let extras = extras::of_output(output, limits)?;
            Ok(Completion::Ok { value: kept(&output.value, limits)?, extras })
        }
        Completed::Error { code, message, extras } => {
            check_error(code, message)?;
            let extras = extras.as_deref().map(|extras| extras::of_error(extras, limits)).transpose()?;
            Ok(Completion::Error { code: code.clone(), message: message.clone(), extras: extras.flatten() })
        }
        Completed::Cancelled => Ok(Completion::Cancelled),
        Completed::TimedOut => Ok(Completion::TimedOut),
    }
}

/// An external value in recorded form.
pub(super) fn kept(value: &Value, limits: &Limits) -> Result<JsonText, AskError> {
    json::measure_result(value, &limits.args())
        .map_err(|problem| AskError::Invalid { what: format!("the value cannot be kept: {problem}") })?;
    Ok(value.to_string().into())
}

/// The maximum length of a code: it is a word for programs.
const CODE_CHARS_MAX: usize = 64;
/// The maximum length of a message: a model reads it whole.
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

/// A reason lies in the journal of every call it reaches, so it has at most this many characters.
pub(crate) const REASON_CHARS_MAX: usize = 1_000;

/// Refuses a reason for a cancel that is too long; every way to cancel begins with this.
pub fn check_reason(reason: Option<&str>) -> Result<(), AskError> {
    match reason {
        Some(reason) if reason.chars().count() > REASON_CHARS_MAX => {
            Err(AskError::LongReason { max: REASON_CHARS_MAX })
        }
        Some(_) | None => Ok(()),
    }
}

fn resolve(call: CallId, resolution: &Resolution, limits: &Limits) -> Result<Ask, AskError> {
    let landed = match resolution {
        Resolution::DidNotHappen => None,
        Resolution::Landed(value) => {
            json::measure_result(value, &limits.args()).map_err(|problem| AskError::Invalid {
                what: format!("the value cannot be kept: {problem}"),
            })?;
            let text = value.to_string();
            if !projection::fits(&text, &limits.call()) {
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
    match posted.map_err(SessionError::from)? {
        Posted::New | Posted::Again => Ok(()),
        Posted::NoSession => Err(SessionError::from(Lost::Removed).into()),
        // Only a resolution can differ in what matters; a repeated cancel may give another reason.
        Posted::Differs if matches!(ask, Ask::Resolve { .. }) => Err(AskError::Conflict),
        Posted::Differs if matches!(ask, Ask::Complete { .. }) => Err(AskError::Answered),
        Posted::Differs if matches!(ask, Ask::Signal { .. }) => Err(AskError::KeyUsed),
        Posted::Differs => Ok(()),
    }
}

/// The recorded calls that a cancel reaches.
async fn find(store: &dyn Store, target: Target<'_>) -> Result<(SessionRow, Scope, Vec<Call>), AskError> {
    let (name, key) = match target {
        Target::Call(handle) => {
            let (session, id, call) = find_call(store, handle).await?;
            return Ok((session, Scope::Call(id), vec![call]));
        }
        Target::Batch { session, key } | Target::CallOf { session, key, .. } => (session, Some(key)),
        Target::Session(session) => (session, None),
    };
    let row = store.session(name).await.map_err(SessionError::from)?;
    let session = row.ok_or_else(|| SessionError::NotFound { session: name.to_string() })?;
    let Some(key) = key else {
        let mut calls = Vec::new();
        for row in store.open_batches(Some(session.no)).await.map_err(SessionError::from)? {
            calls.extend(read_batch(store, row.no).await?.map(|batch| batch.calls).unwrap_or_default());
        }
        return Ok((session, Scope::Session, calls));
    };
    let row = store.batch(Lookup::of(session.no, key)).await.map_err(SessionError::from)?;
    let row = row.ok_or_else(|| AskError::NotFound { what: format!("batch {key:?} in session {name:?}") })?;
    let mut calls = read_batch(store, row.no).await?.map(|batch| batch.calls).unwrap_or_default();
    let Target::CallOf { id, .. } = target else { return Ok((session, Scope::Batch(row.no), calls)) };
    let place = calls.iter().position(|call| *call.opened.id == *id);
    let place = place.ok_or_else(|| AskError::NotFound { what: format!("call {id:?} in batch {key:?}") })?;
    let call = CallId { batch: row.no, ordinal: Ordinal(place as u16) };
    Ok((session, Scope::Call(call), vec![calls.swap_remove(place)]))
}

/// A recorded call by its handle.
pub(crate) async fn find_call(
    store: &dyn Store,
    handle: &str,
) -> Result<(SessionRow, CallId, Call), AskError> {
    let unknown = || AskError::NotFound { what: format!("call {handle:?}") };
    let id = opened(store, handle).ok_or_else(unknown)?;
    let (session, call, _) = find_id(store, id).await?.ok_or_else(unknown)?;
    Ok((session, id, call))
}

fn opened(store: &dyn Store, handle: &str) -> Option<CallId> {
    Handle::parse(handle)?.open(store.secret(), HandleKind::Call).map(CallId::unpacked)
}

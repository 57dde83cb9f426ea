//! How the owner of a session takes requests about its calls, and turns them into entries.

use super::{
    AnswerRules, AskError, Asked, Connecting, Resolution, Target, check_changed, check_unknown, opened,
};
use crate::api::answer::CallAnswer;
use crate::api::error::SessionError;
use crate::api::journal::{find_id, read_batch};
use crate::api::output::Reconciled;
use crate::mailbox::closing;
use crate::path::stage::attempt;
use crate::path::stage::reconcile as stage;
use crate::path::stage::result;
use crate::session::adopting::{AdoptedNews, adopt, amend, load, reach};
use crate::session::batch::{self, OpenBatch, Used};
use crate::session::held::{CallPast, DriveContext, due_us};
use crate::session::inner::Inner;
use crate::session::kin::Child;
use crate::session::owner::Session;
use std::sync::Arc;
use tokio::sync::mpsc;
use windlass_core::ask::Scope;
use windlass_core::call::{CallClock, Resolved, Resolver};
use windlass_core::failure::Failure;
use windlass_core::handle::{open_completion_key, open_question_id};
use windlass_core::ids::{AttemptNo, CallId};
use windlass_core::operation::Completion;
use windlass_core::outcome::Outcome;
use windlass_core::projection;
use windlass_core::tool::EffectClass;
use windlass_store::SessionRow;

/// Cancels calls. Those that the store does not have yet are recorded first, so that the cancel is durable too.
pub(crate) async fn cancel(
    rt: &Arc<Inner>,
    target: Target<'_>,
    reason: Option<&str>,
) -> Result<Asked, AskError> {
    super::check_reason(reason)?;
    let scrubbed = match reason {
        Some(reason) => scrubbed_reason(rt, target, reason).await?,
        None => None,
    };
    let reason = scrubbed.as_deref().or(reason);
    let alone = cancel_alone(rt, target, reason).await;
    let Target::Session(name) = target else { return alone };
    let children = Child::all(&*rt.store, name).await?;
    let mut asked = super::unless_around(alone, &children)?;
    for child in &children {
        asked += Box::pin(closing::stop(rt, child, reason)).await?;
    }
    Ok(asked)
}

/// A reason without secrets; `None` if there are none in it.
async fn scrubbed_reason(
    rt: &Arc<Inner>,
    target: Target<'_>,
    reason: &str,
) -> Result<Option<String>, AskError> {
    if !rt.has_secrets().await? {
        return Ok(None);
    }
    let session = match target {
        Target::Call(handle) => super::find_call(&*rt.store, handle).await.ok().map(|(row, ..)| row.name),
        Target::Batch { session, .. } | Target::CallOf { session, .. } | Target::Session(session) => {
            Some(session.to_string())
        }
    };
    let Some(session) = session else { return Ok(None) };
    let known = rt.secrets_of(&session).await?;
    Ok(known.map(|known| known.scrub(reason).into_owned()))
}

/// An answer from outside without secrets. `session` finds its session.
async fn scrubbed(
    rt: &Arc<Inner>,
    completion: &Completion,
    session: impl AsyncFnOnce() -> Result<Option<String>, AskError>,
) -> Result<Completion, AskError> {
    let mut completion = completion.clone();
    if rt.has_secrets().await?
        && let Some(session) = session().await?
        && let Some(known) = rt.secrets_of(&session).await?
    {
        known.scrub_completion(&mut completion);
    }
    Ok(completion)
}

/// Cancels calls without the children of a session.
async fn cancel_alone(rt: &Arc<Inner>, target: Target<'_>, reason: Option<&str>) -> Result<Asked, AskError> {
    let open = open_here(rt, target);
    if windlass_core::mutant::breaks("cancel-early-ack") && !open.is_empty() {
        return Ok(tell_and_forget(rt, target, &open));
    }
    for (session, batch) in open {
        batch.record(&session.lane).await.map_err(SessionError::from)?;
    }
    let (row, ..) = super::find(&*rt.store, target).await?;
    reach_session(rt, &row.name).await?;
    let asked = super::post_cancel_alone(&*rt.store, target, reason).await?;
    hear(rt, &row).await?;
    Ok(asked)
}

/// The session, taken over if necessary; `None` if another worker owns it.
pub(super) async fn reach_session(rt: &Arc<Inner>, name: &str) -> Result<Option<Arc<Session>>, SessionError> {
    match rt.session(name).await {
        Ok(session) => Ok(Some(session)),
        Err(SessionError::Owned { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Has the messages of a session adopted: here, or by the worker that owns it. A worker that takes the
/// session in between finds them, since they were posted before this reads the owner.
pub(in crate::mailbox) async fn hear(rt: &Arc<Inner>, row: &SessionRow) -> Result<(), SessionError> {
    match rt.session(&row.name).await {
        Ok(session) => adopt(rt, &session).await,
        Err(SessionError::Owned { worker, .. }) => rt.owners.knock(rt, &worker, row.no).await,
        Err(error) => Err(error),
    }
}

/// The open batches in this runtime that a cancel reaches.
pub(super) fn open_here(rt: &Inner, target: Target<'_>) -> Vec<(Arc<Session>, Used)> {
    let wanted = match target {
        Target::Call(handle) => opened(&*rt.store, handle).map(|call| call.batch),
        Target::Batch { .. } | Target::CallOf { .. } | Target::Session(_) => None,
    };
    let reaches = |session: &Session, batch: &OpenBatch| match target {
        Target::Call(_) => Some(batch.head.no) == wanted,
        Target::Batch { session: name, key } | Target::CallOf { session: name, key, .. } => {
            *session.name == *name && *batch.head.place.batch_key == *key
        }
        Target::Session(name) => *session.name == *name,
    };
    let mut found = Vec::new();
    // A session that a worker has lost is another's.
    for session in
        rt.owned().iter().filter(|session| !rt.owners.has_others() || session.lane.lost().is_none())
    {
        let batches = session.open_batches().into_iter().filter(|batch| reaches(session, batch));
        found.extend(batches.map(|batch| (session.clone(), batch)));
    }
    found
}

/// Cancels open calls without a record: the mutant that acknowledges a cancel which a crash loses.
fn tell_and_forget(rt: &Arc<Inner>, target: Target<'_>, open: &[(Arc<Session>, Used)]) -> Asked {
    let (ack, _) = mpsc::channel(1);
    let told = AdoptedNews { what: batch::CallDemand::Cancel(None), ack };
    let mut asked = Asked::default();
    for (session, batch) in open {
        let scope = match target {
            Target::Call(handle) => match opened(&*rt.store, handle) {
                Some(call) => Scope::Call(call),
                None => continue,
            },
            Target::Batch { .. } | Target::CallOf { .. } | Target::Session(_) => Scope::Batch(batch.head.no),
        };
        asked.asked += reach(rt, session, batch, scope, &told).asked;
    }
    asked
}

/// Resolves a call that ended as unknown.
pub(crate) async fn resolve(
    rt: &Arc<Inner>,
    call: &str,
    resolution: &Resolution,
) -> Result<CallAnswer, AskError> {
    let (row, id, _) = super::find_call(&*rt.store, call).await?;
    reach_session(rt, &row.name).await?;
    let mut resolution = resolution.clone();
    if let Resolution::Landed(value) = &mut resolution
        && let Some(known) = rt.secrets_of(&row.name).await?
    {
        known.scrub_value(value);
    }
    super::post_resolve(&*rt.store, call, &resolution, &rt.limits).await?;
    hear(rt, &row).await?;
    let until_us = due_us(rt.clock.elapsed_us(), rt.limits.lease_ms);
    loop {
        let answer = answer_of(rt, id).await?;
        let is_resolved = answer.call().end().is_some_and(|end| end.resolved.is_some());
        let now_us = rt.clock.elapsed_us();
        // Here that is done at once; another worker hears of it a little later.
        if !rt.owners.has_others() || is_resolved || now_us >= until_us {
            return Ok(answer);
        }
        rt.wheel.until(due_us(now_us, rt.limits.knock_ms)).await;
    }
}

/// Asks the tool of a call that ended as unknown whether it took effect.
pub(crate) async fn reconcile(rt: &Arc<Inner>, call: &str) -> Result<CallAnswer, AskError> {
    let (row, id, recorded) = super::find_call(&*rt.store, call).await?;
    check_unknown(&recorded, &recorded.state)?;
    let session = rt.session(&row.name).await?;
    let unfit = |hint| AskError::Unfit { state: recorded.state.name(), hint };
    if recorded.same_as().is_some() {
        // The other side has never seen its own key.
        return Err(unfit(
            "it never ran itself: ask about the call it is the same as, then say here what happened",
        ));
    }
    if recorded.doubted_steps && recorded.class() != Some(EffectClass::Stepped) {
        return Err(unfit(
            "its tool was stepped once, and is asked about none of those steps: say yourself what happened",
        ));
    }
    let batch = {
        let admission = session.admit().await;
        load(rt, &admission, id.batch).await?
    };
    let hold = Arc::new(DriveContext { rt: rt.clone(), session: session.clone(), batch });
    let since_us = rt.clock.elapsed_us();
    let past = CallPast {
        clock: CallClock::starting(since_us),
        moved_us: rt.wheel.moved_us(),
        ..CallPast::default()
    };
    let mut held = hold.call(id, Arc::new(recorded.clone()), past);
    let tool = match attempt::pin(&mut held).await.map_err(SessionError::from)? {
        attempt::Pinned::Tool(tool) if tool.reconciles => tool,
        attempt::Pinned::Tool(_) => {
            return Err(unfit("its tool cannot be asked: say yourself what happened"));
        }
        attempt::Pinned::Again | attempt::Pinned::Accepted | attempt::Pinned::Missing => {
            return Err(unfit("its tool is not there, is paused or has changed: say yourself what happened"));
        }
    };
    let said = stage::ask(&mut held, &tool, AttemptNo(recorded.attempts)).await;
    let outcome = match said {
        Ok(Reconciled::Landed(output)) => match result::success(&mut held, &tool, output).await {
            Ok(success) => Outcome::Succeeded(success),
            Err(failure) => return Err(AskError::Invalid { what: failure.message }),
        },
        Ok(Reconciled::Failed(error)) => Outcome::Failed(stage::failed(&mut held, error).await),
        Ok(Reconciled::DidNotHappen) => Outcome::Failed(Box::new(Failure::did_not_happen())),
        Ok(Reconciled::Unknown) => return Err(unfit("its tool cannot tell: say yourself what happened")),
        Err(what) => return Err(AskError::Invalid { what: format!("the tool could not be asked: {what}") }),
    };
    let model = match held.model.take() {
        Some(model) => model,
        None => projection::project(&outcome, None, &held.answer_limits()),
    };
    let resolved = Resolved { outcome, model, by: Resolver::Tool };
    if !amend(rt, &session, id, resolved, held.take_rows()).await? {
        return Err(AskError::Conflict);
    }
    answer_of(rt, id).await
}

/// Completes a call's wait.
pub(crate) async fn complete(rt: &Arc<Inner>, key: &str, completion: &Completion) -> Result<(), AskError> {
    let completion = scrubbed(rt, completion, async || {
        let Some((id, _)) = open_completion_key(rt.store.secret(), key) else { return Ok(None) };
        Ok(find_id(&*rt.store, id).await?.map(|(session, ..)| session.name))
    });
    let completion = completion.await?;
    let row = super::post_complete(&*rt.store, key, &completion, &*rt.clock).await?;
    Ok(hear(rt, &row).await?)
}

/// Takes the result of a tool that its caller runs.
pub(crate) async fn client_result(
    rt: &Arc<Inner>,
    call: &str,
    completion: &Completion,
) -> Result<(), AskError> {
    let completion =
        scrubbed(rt, completion, async || Ok(Some(super::find_call(&*rt.store, call).await?.0.name)));
    let completion = completion.await?;
    let row = super::post_client_result(&*rt.store, call, &completion, &*rt.clock).await?;
    Ok(hear(rt, &row).await?)
}

/// Reports whether a session is connected to a provider.
pub(crate) async fn connect(
    rt: &Arc<Inner>,
    name: &str,
    provider: &str,
    connected: bool,
) -> Result<Connecting, AskError> {
    for (session, batch) in open_here(rt, Target::Session(name)) {
        batch.record(&session.lane).await.map_err(SessionError::from)?;
    }
    let (row, reached) = super::find_and_post_connected(&*rt.store, name, provider, connected).await?;
    hear(rt, &row).await?;
    Ok(reached)
}

/// Answers a question that a call asks.
pub(crate) async fn answer(rt: &Arc<Inner>, id: &str, answer: &serde_json::Value) -> Result<(), AskError> {
    let by = AnswerRules { clock: &*rt.clock, limits: &rt.limits };
    let mut answer = std::borrow::Cow::Borrowed(answer);
    if rt.has_secrets().await?
        && let Some((of, _)) = open_question_id(rt.store.secret(), id)
        && let Some((session, ..)) = find_id(&*rt.store, of).await?
        && let Some(known) = rt.secrets_of(&session.name).await?
    {
        known.scrub_value(answer.to_mut());
    }
    let row = super::post_answer(&*rt.store, id, &answer, by).await?;
    Ok(hear(rt, &row).await?)
}

/// Lets a call continue with the changed tool.
pub(crate) async fn accept(rt: &Arc<Inner>, call: &str) -> Result<(), AskError> {
    let (row, _, recorded) = super::find_call(&*rt.store, call).await?;
    check_changed(&recorded)?;
    reach_session(rt, &row.name).await?;
    super::post_accept(&*rt.store, call).await?;
    Ok(hear(rt, &row).await?)
}

async fn answer_of(rt: &Arc<Inner>, id: CallId) -> Result<CallAnswer, AskError> {
    let batch = read_batch(&*rt.store, id.batch).await?;
    let found = batch.and_then(|mut batch| {
        let (place, parent) = (usize::from(id.ordinal.0), batch.opening.parent);
        (place < batch.calls.len()).then(|| (batch.calls.swap_remove(place), parent))
    });
    let (call, parent) = found.ok_or_else(|| AskError::NotFound { what: format!("call {id}") })?;
    let (store, call, parent) = (rt.store.clone(), Arc::new(call), parent.map(|parent| parent.call));
    Ok(CallAnswer { id, store, call, recorded: true, conflict: None, parent })
}

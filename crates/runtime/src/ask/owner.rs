//! How the owner of a session takes what is asked of its calls, and makes it into entries.

use super::{AskError, Asked, Connecting, Resolution, Target, check_changed, check_unknown, opened};
use crate::answer::CallAnswer;
use crate::away;
use crate::batch::{self, Heard, OpenBatch, Reached, Signalled, Used};
use crate::children::{self, Child};
use crate::error::{BatchError, Lost, chain};
use crate::held::{Ack, Hold, Past, due_us};
use crate::runtime::Inner;
use crate::session::{Session, Whereabouts};
use crate::stage::{attempt, reconcile as stage, result};
use crate::tool::Reconciled;
use crate::worker::knock;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use tokio::sync::mpsc;
use windlass_core::ask::{Ask, Scope};
use windlass_core::call::{Fact, Resolved, Resolver};
use windlass_core::failure::Failure;
use windlass_core::ids::{AttemptNo, BatchNo, CallId, Ordinal};
use windlass_core::operation::Completion;
use windlass_core::outcome::{JsonText, Outcome, Success, Value};
use windlass_core::projection;
use windlass_store::{Inbound, Row, SessionRow};

/// Asks calls to stop. Those that the store does not know yet are recorded first, so that the cancel is durable too.
pub(crate) async fn cancel(
    rt: &Arc<Inner>,
    target: Target<'_>,
    reason: Option<&str>,
) -> Result<Asked, AskError> {
    let alone = cancel_alone(rt, target, reason).await;
    let Target::Session(name) = target else { return alone };
    let children = Child::all(&*rt.store, name).await?;
    let mut asked = super::unless_around(alone, &children)?;
    for child in &children {
        asked += Box::pin(children::stop(rt, child, reason)).await?;
    }
    Ok(asked)
}

/// The same without the children of a session.
async fn cancel_alone(rt: &Arc<Inner>, target: Target<'_>, reason: Option<&str>) -> Result<Asked, AskError> {
    let open = open_here(rt, target);
    if windlass_core::mutant::breaks("cancel-early-ack") && !open.is_empty() {
        return Ok(tell_and_forget(rt, target, &open));
    }
    for (session, batch) in open {
        batch.record(&session.lane).await.map_err(BatchError::from)?;
    }
    let (row, ..) = super::find(&*rt.store, target).await?;
    reach_session(rt, &row.name).await?;
    let asked = super::post_cancel_alone(&*rt.store, target, reason).await?;
    hear(rt, &row).await?;
    Ok(asked)
}

/// The session, taken over if it must be; nothing if another worker owns it.
pub(super) async fn reach_session(rt: &Arc<Inner>, name: &str) -> Result<Option<Arc<Session>>, BatchError> {
    match rt.session(name).await {
        Ok(session) => Ok(Some(session)),
        Err(BatchError::Owned { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Has what was left for a session heard: here, or by the worker that owns it. Whoever takes the session in between finds it there,
/// since it was left before this looks who that is.
pub(super) async fn hear(rt: &Arc<Inner>, row: &SessionRow) -> Result<(), BatchError> {
    match rt.session(&row.name).await {
        Ok(session) => adopt(rt, &session).await,
        Err(BatchError::Owned { worker, .. }) => knock(rt, &worker, row.no).await,
        Err(error) => Err(error),
    }
}

/// The open batches in this runtime that a cancel reaches.
pub(super) fn open_here(rt: &Inner, target: Target<'_>) -> Vec<(Arc<Session>, Used)> {
    let wanted = match target {
        Target::Call(handle) => opened(&*rt.store, handle).map(|call| call.batch),
        Target::Batch { .. } | Target::Session(_) => None,
    };
    let reaches = |session: &Session, batch: &OpenBatch| match target {
        Target::Call(_) => Some(batch.head.no) == wanted,
        Target::Batch { session: name, key } => *session.name == *name && *batch.head.place.batch_key == *key,
        Target::Session(name) => *session.name == *name,
    };
    let mut found = Vec::new();
    // What a worker has lost is another's.
    for session in rt.owned().iter().filter(|session| rt.worker.is_none() || session.lane.lost().is_none()) {
        let batches = session.open_batches().into_iter().filter(|batch| reaches(session, batch));
        found.extend(batches.map(|batch| (session.clone(), batch)));
    }
    found
}

/// Tells open calls and leaves nothing behind: the mutant that acknowledges a cancel which a crash loses.
fn tell_and_forget(rt: &Arc<Inner>, target: Target<'_>, open: &[(Arc<Session>, Used)]) -> Asked {
    let (ack, _) = mpsc::channel(1);
    let told = (batch::Asked::Cancel(None), ack);
    let mut asked = Asked::default();
    for (session, batch) in open {
        let scope = match target {
            Target::Call(handle) => match opened(&*rt.store, handle) {
                Some(call) => Scope::Call(call),
                None => continue,
            },
            Target::Batch { .. } | Target::Session(_) => Scope::Batch(batch.head.no),
        };
        asked.asked += reach(rt, (session, batch), scope, &told).asked;
    }
    asked
}

/// Tells every open call of a batch that it is meant for.
fn reach(rt: &Arc<Inner>, (session, batch): (&Arc<Session>, &Used), scope: Scope, told: &Told) -> Asked {
    let mut asked = Asked::default();
    let ordinals = match scope {
        Scope::Call(call) => call.ordinal.0..call.ordinal.0 + 1,
        Scope::Batch(_) | Scope::Session => 0..batch.len() as u16,
    };
    let (what, ack) = told;
    for ordinal in ordinals.map(Ordinal) {
        let heard = Heard { what: what.clone(), ack: Some(ack.clone()) };
        let reached = batch.ask(ordinal, heard);
        if reached == Reached::Parked {
            session.wake(rt, CallId { batch: batch.head.no, ordinal });
        }
        asked.over += u64::from(reached == Reached::Over);
        asked.asked += u64::from(reached != Reached::Over);
    }
    asked
}

/// What calls are told, and what is dropped when all have recorded it.
type Told = (batch::Asked, Ack);

/// The batches that something is meant for: those in memory, and the numbers of those that are not.
async fn meant(
    rt: &Arc<Inner>,
    session: &Session,
    (scope, what): (Scope, &batch::Asked),
) -> Result<(Vec<Used>, Vec<BatchNo>), BatchError> {
    let provider = if let batch::Asked::Connect { provider, .. } = what { Some(&**provider) } else { None };
    let (mut here, listed) = match scope {
        Scope::Call(CallId { batch, .. }) | Scope::Batch(batch) => (Vec::new(), vec![batch]),
        Scope::Session => {
            // Listed first: what leaves memory or comes back meanwhile is looked for where it is by then.
            let listed = rt.store.open_batches(Some(session.lane.session())).await?;
            (session.open_batches(), listed.into_iter().map(|row| row.no).collect())
        }
    };
    let known: BTreeSet<BatchNo> = here.iter().map(|batch| batch.head.no).collect();
    let mut away = Vec::new();
    for no in listed.into_iter().filter(|no| !known.contains(no)) {
        match session.whereabouts(rt, no, provider) {
            Whereabouts::Here(batch) => here.push(batch),
            Whereabouts::Away => away.push(no),
            Whereabouts::Over => {}
        }
    }
    Ok((here, away))
}

/// Tells the calls of one batch that is not in memory: it is read back for that. Whether it was.
async fn tell_away(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    (scope, told): (Scope, &Told),
    away: BatchNo,
) -> Result<(), away::Stuck> {
    if let Some(batch) = away::fetch(rt, session, away).await? {
        reach(rt, (session, &batch), scope, told);
    }
    Ok(())
}

/// The same for a whole session: only as many are read back as can wait for their turns.
async fn tell_all_away(rt: Weak<Inner>, session: Arc<Session>, told: Told, away: Vec<BatchNo>) {
    for no in away {
        let Some(rt) = away::room(&session.away, &rt).await else { return unheard(told) };
        if let Err(away::Stuck) = tell_away(&rt, &session, (Scope::Session, &told), no).await {
            return unheard(told);
        }
    }
}

/// Not all have heard it, so it stays there for whoever can read their batches.
fn unheard(told: Told) {
    std::mem::forget(told);
}

/// Takes what was asked of a session's calls and not taken yet.
pub(crate) async fn adopt(rt: &Arc<Inner>, session: &Arc<Session>) -> Result<(), BatchError> {
    let mut asking = session.asking.lock().await;
    let most = rt.limits.inbound_page + asking.len() as u64;
    for Inbound { key, body, .. } in rt.store.inbound(session.lane.session(), most).await? {
        if !asking.insert(key.clone()) {
            continue;
        }
        moment!("at.adopt");
        let told = match Ask::decode(&body) {
            Ok(Ask::Cancel { scope, reason }) => (scope, batch::Asked::Cancel(reason.map(Into::into))),
            Ok(Ask::Complete { call, name, completion }) => {
                (Scope::Call(call), batch::Asked::Complete { name, completion })
            }
            Ok(Ask::Connect { provider, connected }) => {
                (Scope::Session, batch::Asked::Connect { provider, connected })
            }
            Ok(Ask::Signal { call, name, payload, .. }) => {
                let signal = Signalled::new(name, payload, key.clone());
                (Scope::Call(call), batch::Asked::Signal(Arc::new(signal)))
            }
            Ok(Ask::Accept { call }) => (Scope::Call(call), batch::Asked::Accept),
            Ok(Ask::Resolve { call, landed }) => {
                let resolved = resolution(landed, Resolver::Operator, rt);
                let rows = vec![Row::Adopt { key: key.clone() }];
                let done = amend(rt, session, (call, resolved), rows).await?;
                asking.remove(&key);
                if !done {
                    tracing::warn!(session = %session.name, %call, "a resolution came too late, and changes nothing");
                    session.lane.commit_rows(vec![Row::Adopt { key }]).await?;
                }
                continue;
            }
            // It stays there for a Windlass that can read it.
            Err(error) => {
                tracing::error!(session = %session.name, error = %chain(&error), "a message is not taken");
                continue;
            }
        };
        if let Err(error) = tell(rt, session, &key, told).await {
            asking.remove(&key);
            return Err(error);
        }
    }
    Ok(())
}

/// The same before it is decided that something was not asked in time. A message that cannot be read is no reason to stop.
pub(crate) async fn adopt_now(on: &Hold) -> Result<(), Lost> {
    match adopt(&on.rt, &on.session).await {
        Err(BatchError::Lost(lost)) => Err(lost),
        Err(error) => {
            tracing::error!(session = %on.session.name, error = %chain(&error), "messages are not taken");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Tells open calls, and marks the message as adopted once all of them have recorded it.
async fn tell(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    key: &str,
    (scope, what): (Scope, batch::Asked),
) -> Result<(), BatchError> {
    let (here, away) = meant(rt, session, (scope, &what)).await?;
    let (ack, mut acked) = mpsc::channel(1);
    let signal = what.signal();
    let told = (what, ack);
    for batch in &here {
        reach(rt, (session, batch), scope, &told);
    }
    match (scope, &*away) {
        (_, []) => drop(told),
        (Scope::Session, _) => {
            rt.tasks.spawn(tell_all_away(Arc::downgrade(rt), session.clone(), told, away));
        }
        // Here and now: what is told to a call after this comes after it.
        (Scope::Call(_) | Scope::Batch(_), &[no, ..]) => {
            if let Err(away::Stuck) = tell_away(rt, session, (scope, &told), no).await {
                unheard(told);
            }
        }
    }
    let (lane, session, key) = (session.lane.clone(), Arc::downgrade(session), key.to_string());
    rt.tasks.spawn(async move {
        acked.recv().await;
        // Whoever records a signal adopts it in the same change.
        if !signal.is_some_and(|signal| signal.is_adopted()) {
            // If the session is lost, its next owner adopts the message.
            let _ = lane.commit_rows(vec![Row::Adopt { key: key.clone() }]).await;
        }
        if let Some(session) = session.upgrade() {
            session.asking.lock().await.remove(&key);
        }
    });
    Ok(())
}

/// Says how a call that ended as unknown ended after all.
pub(crate) async fn resolve(
    rt: &Arc<Inner>,
    call: &str,
    resolution: &Resolution,
) -> Result<CallAnswer, AskError> {
    let (row, id, _) = super::find_call(&*rt.store, call).await?;
    reach_session(rt, &row.name).await?;
    super::post_resolve(&*rt.store, call, resolution).await?;
    hear(rt, &row).await?;
    let until_us = due_us(rt.clock.elapsed_us(), rt.limits.lease_ms);
    loop {
        let answer = answer_of(rt, id).await?;
        let is_resolved = answer.call().end().is_some_and(|end| end.resolved.is_some());
        let now_us = rt.clock.elapsed_us();
        // Here that is so at once; another worker hears of it a little later.
        if rt.worker.is_none() || is_resolved || now_us >= until_us {
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
        // Its own key is none that the other side has ever seen.
        return Err(unfit(
            "it never ran itself: ask about the call it is the same as, then say here what happened",
        ));
    }
    let batch = {
        let _admission = session.admission.lock().await;
        load(rt, &session, id.batch).await?
    };
    let hold = Arc::new(Hold { rt: rt.clone(), session: session.clone(), batch });
    let since_us = rt.clock.elapsed_us();
    let past = Past { since_us, counted_us: 0, fresh: false, waited: false, parked_at: None };
    let mut held = hold.call(id, Arc::new(recorded.clone()), past);
    let tool = match attempt::pin(&mut held).await.map_err(BatchError::from)? {
        attempt::Pinned::Tool(tool) if tool.reconciles => tool,
        attempt::Pinned::Tool(_) => {
            return Err(unfit("its tool cannot be asked: say yourself what happened"));
        }
        attempt::Pinned::Again | attempt::Pinned::Wait(_) => {
            return Err(unfit("its tool is not there, is paused or has changed: say yourself what happened"));
        }
    };
    let said = stage::ask(&mut held, &tool, AttemptNo(recorded.attempts)).await;
    let outcome = match said {
        Ok(Reconciled::Landed(output)) => match result::success(&mut held, &tool, output).await {
            Ok(success) => Outcome::Succeeded(success),
            Err(failure) => return Err(AskError::Invalid { what: failure.message }),
        },
        Ok(Reconciled::DidNotHappen) => Outcome::Failed(Box::new(Failure::did_not_happen())),
        Ok(Reconciled::Unknown) => return Err(unfit("its tool cannot tell: say yourself what happened")),
        Err(what) => return Err(AskError::Invalid { what: format!("the tool could not be asked: {what}") }),
    };
    let model = match held.model.take() {
        Some(model) => model,
        None => projection::project(&outcome, None, &rt.limits),
    };
    let resolved = Resolved { outcome, model, by: Resolver::Tool };
    if !amend(rt, &session, (id, resolved), held.take_rows()).await? {
        return Err(AskError::Conflict);
    }
    answer_of(rt, id).await
}

/// Answers what a call waits for.
pub(crate) async fn complete(rt: &Arc<Inner>, key: &str, completion: &Completion) -> Result<(), AskError> {
    let row = super::post_complete(&*rt.store, key, completion, &*rt.clock).await?;
    Ok(hear(rt, &row).await?)
}

/// Takes the result of a tool that its caller runs.
pub(crate) async fn client_result(
    rt: &Arc<Inner>,
    call: &str,
    completion: &Completion,
) -> Result<(), AskError> {
    let row = super::post_client_result(&*rt.store, call, completion, &*rt.clock).await?;
    Ok(hear(rt, &row).await?)
}

/// Says whether a session is connected to what its calls wait for.
pub(crate) async fn connect(
    rt: &Arc<Inner>,
    name: &str,
    (provider, connected): (&str, bool),
) -> Result<Connecting, AskError> {
    for (session, batch) in open_here(rt, Target::Session(name)) {
        batch.record(&session.lane).await.map_err(BatchError::from)?;
    }
    let (row, reached) = super::find_and_post_connected(&*rt.store, name, (provider, connected)).await?;
    hear(rt, &row).await?;
    Ok(reached)
}

/// Answers a question that a call asks.
pub(crate) async fn answer(rt: &Arc<Inner>, id: &str, answer: &serde_json::Value) -> Result<(), AskError> {
    let row = super::post_answer(&*rt.store, id, answer, &*rt.clock).await?;
    Ok(hear(rt, &row).await?)
}

/// Lets a call go on under what its tool has become.
pub(crate) async fn accept(rt: &Arc<Inner>, call: &str) -> Result<(), AskError> {
    let (row, _, recorded) = super::find_call(&*rt.store, call).await?;
    check_changed(&recorded)?;
    reach_session(rt, &row.name).await?;
    super::post_accept(&*rt.store, call).await?;
    Ok(hear(rt, &row).await?)
}

fn resolution(landed: Option<JsonText>, by: Resolver, rt: &Inner) -> Resolved {
    let outcome = match landed {
        Some(text) => Outcome::Succeeded(Success { value: Value::Inline(text), parts: Vec::new() }),
        None => Outcome::Failed(Box::new(Failure::did_not_happen())),
    };
    let model = projection::project(&outcome, None, &rt.limits);
    Resolved { outcome, model, by }
}

/// Adds a resolution to a call that is over. `false`: it is not one that can be resolved any more.
async fn amend(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    (call, resolved): (CallId, Resolved),
    rows: Vec<Row>,
) -> Result<bool, BatchError> {
    // Nobody else may load the batch meanwhile: both would write its next row.
    let _admission = session.admission.lock().await;
    let batch = load(rt, session, call.batch).await?;
    let fact = Fact::Resolved(Box::new(resolved));
    let Ok((commit, amended)) = batch.amend(&session.lane, (call.ordinal, rt.clock.now(), &fact), rows)
    else {
        return Ok(false);
    };
    commit.durable().await?;
    batch.amended(call.ordinal, amended);
    Ok(true)
}

/// A batch of the session, from memory or from its journal.
async fn load(rt: &Arc<Inner>, session: &Arc<Session>, no: BatchNo) -> Result<Used, BatchError> {
    if let Some(open) = session.fetch(rt, no).await? {
        return Ok(open);
    }
    let (row, folded, rows) = session.read_no(no).await?;
    Ok(Used::new(Arc::new(OpenBatch::recorded(session.head(&row, &folded)?, &folded, rows))))
}

async fn answer_of(rt: &Arc<Inner>, id: CallId) -> Result<CallAnswer, AskError> {
    let batch = super::read(&*rt.store, id.batch).await?;
    let found = batch.and_then(|mut batch| {
        let (place, parent) = (usize::from(id.ordinal.0), batch.opening.parent);
        (place < batch.calls.len()).then(|| (batch.calls.swap_remove(place), parent))
    });
    let (call, parent) = found.ok_or_else(|| AskError::NotFound { what: format!("call {id}") })?;
    let (store, call, parent) = (rt.store.clone(), Arc::new(call), parent.map(|parent| parent.call));
    Ok(CallAnswer { id, store, call, recorded: true, conflict: None, parent })
}

//! Adopting messages: the owner of a session takes messages posted for its calls, and has the calls record them.

use crate::api::answer::Asked;
use crate::api::error::{Lost, SessionError, chain};
use crate::session::admission::Admission;
use crate::session::away::{self, APPROVAL_WAIT};
use crate::session::batch::{self, DemandReach, HeardDemand, OpenBatch, SignalDelivery, Used};
use crate::session::grants;
use crate::session::held::{Ack, DriveContext};
use crate::session::inner::Inner;
use crate::session::notices;
use crate::session::owner::{Session, Whereabouts};
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use tokio::sync::mpsc;
use windlass_core::ask::{Ask, Scope};
use windlass_core::call::{Fact, Resolved, Resolver};
use windlass_core::failure::Failure;
use windlass_core::ids::{BatchNo, CallId, Ordinal};
use windlass_core::outcome::{JsonText, Outcome, Success, Value};
use windlass_core::projection;
use windlass_store::{Inbound, Row};

/// Passes a message to every open call of a batch that it is for.
pub(crate) fn reach(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    batch: &Used,
    scope: Scope,
    told: &AdoptedNews,
) -> Asked {
    let mut asked = Asked::default();
    let ordinals = match scope {
        Scope::Call(call) => call.ordinal.0..call.ordinal.0 + 1,
        Scope::Batch(_) | Scope::Session => 0..batch.len() as u16,
    };
    for ordinal in ordinals.map(Ordinal) {
        let heard = HeardDemand { what: told.what.clone(), ack: Some(told.ack.clone()) };
        let reached = batch.ask(ordinal, heard);
        if reached == DemandReach::Parked {
            session.wake(rt, CallId { batch: batch.head.no, ordinal });
        }
        asked.over += u64::from(reached == DemandReach::Over);
        asked.asked += u64::from(reached != DemandReach::Over);
    }
    asked
}

/// A demand that calls are told of.
pub(crate) struct AdoptedNews {
    pub(crate) what: batch::CallDemand,
    /// Dropped when all of them have recorded it.
    pub(crate) ack: Ack,
}

/// The batches a message is for: those in memory, and the numbers of the others.
async fn meant(
    rt: &Arc<Inner>,
    session: &Session,
    scope: Scope,
    what: &batch::CallDemand,
) -> Result<(Vec<Used>, Vec<BatchNo>), SessionError> {
    let provider = match what {
        batch::CallDemand::Connect { provider, .. } => Some(&**provider),
        batch::CallDemand::Rejudge => Some(APPROVAL_WAIT),
        batch::CallDemand::Cancel(_)
        | batch::CallDemand::Decided(_)
        | batch::CallDemand::Approval(_)
        | batch::CallDemand::Accept
        | batch::CallDemand::Same(_)
        | batch::CallDemand::Look
        | batch::CallDemand::Complete { .. }
        | batch::CallDemand::Signal(_) => None,
    };
    let (mut here, listed) = match scope {
        Scope::Call(CallId { batch, .. }) | Scope::Batch(batch) => (Vec::new(), vec![batch]),
        Scope::Session => {
            // Listed first: a batch that leaves memory or comes back meanwhile is looked up where it is by then.
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

/// Passes a message to the calls of a batch that is not in memory, by reading it back. Returns whether it was read.
async fn tell_away(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    scope: Scope,
    told: &AdoptedNews,
    away: BatchNo,
) -> Result<(), away::Stuck> {
    if let Some(batch) = away::fetch(rt, session, away).await? {
        reach(rt, session, &batch, scope, told);
    }
    Ok(())
}

/// Passes a message to all calls of a session that are not in memory: only as many are read back as can wait for their turns.
async fn tell_all_away(rt: Weak<Inner>, session: Arc<Session>, told: AdoptedNews, away: Vec<BatchNo>) {
    for no in away {
        let Some(rt) = away::room(&session.away, &rt).await else { return unheard(told) };
        if let Err(away::Stuck) = tell_away(&rt, &session, Scope::Session, &told, no).await {
            return unheard(told);
        }
    }
}

/// Not all calls have received it, so the message stays for a process that can read their batches.
fn unheard(told: AdoptedNews) {
    std::mem::forget(told);
}

/// Adopts all pending messages of a session.
pub(crate) async fn adopt(rt: &Arc<Inner>, session: &Arc<Session>) -> Result<(), SessionError> {
    let mut asking = session.asking.lock().await;
    let most = rt.limits.inbound_page + asking.len() as u64;
    for Inbound { key, body, .. } in rt.store.inbound(session.lane.session(), most).await? {
        if !asking.insert(key.clone()) {
            continue;
        }
        moment!("at.adopt");
        let (scope, what) = match Ask::decode(&body) {
            Ok(Ask::Cancel { scope, reason }) => (scope, batch::CallDemand::Cancel(reason.map(Into::into))),
            Ok(Ask::Complete { call, name, completion }) => {
                (Scope::Call(call), batch::CallDemand::Complete { name, completion })
            }
            Ok(Ask::Connect { provider, connected }) => {
                (Scope::Session, batch::CallDemand::Connect { provider, connected })
            }
            Ok(Ask::Signal { call, name, payload, .. }) => {
                let signal = SignalDelivery::new(name, payload, key.clone());
                (Scope::Call(call), batch::CallDemand::Signal(Arc::new(signal)))
            }
            Ok(Ask::Decide(decide)) => {
                (Scope::Call(decide.call), batch::CallDemand::Approval(Arc::from(decide)))
            }
            Ok(Ask::Grant(demand)) => {
                let adopted = grants::adopt(rt, session, &key, &demand).await;
                asking.remove(&key);
                adopted?;
                continue;
            }
            Ok(Ask::Accept { call }) => (Scope::Call(call), batch::CallDemand::Accept),
            Ok(Ask::Resolve { call, landed }) => {
                let resolved = resolution(landed, Resolver::Operator, rt);
                let rows = vec![Row::Adopt { key: key.clone() }];
                let done = match amend(rt, session, call, resolved, rows).await {
                    Err(SessionError::Expired { .. }) => false,
                    done => done?,
                };
                asking.remove(&key);
                if !done {
                    tracing::warn!(session = %session.name, %call, "a resolution came too late, and changes nothing");
                    session.lane.commit_rows(vec![Row::Adopt { key }]).await?;
                }
                continue;
            }
            // It stays for a Windlass that can read it.
            Err(error) => {
                tracing::error!(session = %session.name, error = %chain(&error), "a message is not taken");
                continue;
            }
        };
        if let Err(error) = tell(rt, session, &key, scope, what).await {
            asking.remove(&key);
            return Err(error);
        }
    }
    Ok(())
}

/// Adopts pending messages before a timeout is decided. A message that cannot be read is no reason to stop.
pub(crate) async fn adopt_now(on: &DriveContext) -> Result<(), Lost> {
    match adopt(&on.rt, &on.session).await {
        Err(SessionError::Lost(lost)) => Err(lost),
        Err(error) => {
            tracing::error!(session = %on.session.name, error = %chain(&error), "messages are not taken");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Passes a message to open calls, and marks it as adopted once all of them have recorded it.
async fn tell(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    key: &str,
    scope: Scope,
    what: batch::CallDemand,
) -> Result<(), SessionError> {
    let signal = what.signal();
    let mut acked = pass_on(rt, session, scope, what).await?;
    let (lane, session, key) = (session.lane.clone(), Arc::downgrade(session), key.to_string());
    rt.tasks.spawn(async move {
        acked.recv().await;
        // A signal is adopted in the change that records it.
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

/// Passes what was awaited to the call that awaits it, and removes the row of the wait once the call has recorded it. If this
/// process dies first, the next owner finds the row.
pub(crate) async fn deliver(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    call: CallId,
    what: batch::CallDemand,
    wait: Row,
) -> Result<(), SessionError> {
    let mut acked = pass_on(rt, session, Scope::Call(call), what).await?;
    let lane = session.lane.clone();
    rt.tasks.spawn(async move {
        acked.recv().await;
        let _ = lane.commit_rows(vec![wait]).await;
    });
    Ok(())
}

/// Has the calls of a session that wait for an approval judged again.
pub(crate) async fn judge_again(rt: &Arc<Inner>, session: &Arc<Session>) -> Result<(), SessionError> {
    pass_on(rt, session, Scope::Session, batch::CallDemand::Rejudge).await.map(drop)
}

/// Has them judged again as soon as there is time for it: an answer was remembered that may be theirs.
pub(crate) fn judge_again_soon(rt: &Arc<Inner>, session: &Arc<Session>) {
    let (weak, session) = (Arc::downgrade(rt), session.clone());
    rt.tasks.spawn(async move {
        let Some(rt) = weak.upgrade() else { return };
        match judge_again(&rt, &session).await {
            Ok(()) | Err(SessionError::Lost(_)) => {}
            Err(error) => {
                let error = crate::api::error::chain(&error);
                tracing::error!(session = %session.name, error, "calls that wait for an approval are not judged again");
            }
        }
    });
}

/// Asks a call to stop that ends with another one. That is not recorded: whoever ends the other call asks again after a crash.
pub(crate) async fn ask_to_stop(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    call: CallId,
    reason: &str,
) -> Result<(), SessionError> {
    let what = batch::CallDemand::Cancel(Some(reason.into()));
    pass_on(rt, session, Scope::Call(call), what).await.map(drop)
}

/// Passes a message to open calls: the channel is closed once all of them have recorded it.
async fn pass_on(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    scope: Scope,
    what: batch::CallDemand,
) -> Result<mpsc::Receiver<()>, SessionError> {
    let (here, away) = meant(rt, session, scope, &what).await?;
    let (ack, acked) = mpsc::channel(1);
    let told = AdoptedNews { what, ack };
    for batch in &here {
        reach(rt, session, batch, scope, &told);
    }
    match (scope, &*away) {
        (_, []) => drop(told),
        (Scope::Session, _) => {
            rt.tasks.spawn(tell_all_away(Arc::downgrade(rt), session.clone(), told, away));
        }
        // Synchronously: messages passed to a call later come after it.
        (Scope::Call(_) | Scope::Batch(_), &[no, ..]) => {
            if let Err(away::Stuck) = tell_away(rt, session, scope, &told, no).await {
                unheard(told);
            }
        }
    }
    Ok(acked)
}

fn resolution(landed: Option<JsonText>, by: Resolver, rt: &Inner) -> Resolved {
    let outcome = match landed {
        Some(text) => Outcome::Succeeded(Success { value: Value::Inline(text), ..Success::default() }),
        None => Outcome::Failed(Box::new(Failure::did_not_happen())),
    };
    let model = projection::project(&outcome, None, rt.limits.call());
    Resolved { outcome, model, by }
}

/// Adds a resolution to a call that is over. `false`: it can no longer be resolved.
pub(crate) async fn amend(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    call: CallId,
    resolved: Resolved,
    mut rows: Vec<Row>,
) -> Result<bool, SessionError> {
    rows.push(notices::known_row(call));
    // No other task may load the batch meanwhile: both would write its next row.
    let admission = session.admit().await;
    let batch = load(rt, &admission, call.batch).await?;
    let fact = Fact::Resolved(Box::new(resolved));
    let Ok((commit, amended)) = batch.amend(&session.lane, call.ordinal, rt.clock.now(), &fact, rows) else {
        return Ok(false);
    };
    commit.durable().await?;
    batch.amended(call.ordinal, amended);
    Ok(true)
}

/// A batch of the session, from memory or from its journal.
pub(crate) async fn load(
    rt: &Arc<Inner>,
    admission: &Admission<'_>,
    no: BatchNo,
) -> Result<Used, SessionError> {
    let session = admission.session();
    if let Some(open) = Session::fetch(admission, rt, no).await? {
        return Ok(open);
    }
    let (row, folded, rows) = session.read_no(no).await?;
    Ok(Used::new(Arc::new(OpenBatch::recorded(session.head(&row, &folded)?, &folded, rows, &rt.wheel))))
}

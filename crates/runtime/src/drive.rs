//! The path of a call, top to bottom. Everything that can happen to a call is an arm of one `match`.

use crate::error::Lost;
use crate::held::{Held, Hold};
use crate::session::Session;
use crate::stage::{attempt, park, prepare, reconcile, retry, settle};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use windlass_core::call::{Fact, Lost as LostAttempt, Step};
use windlass_core::ids::CallId;

/// What became of a call that was driven.
pub(crate) enum Driven {
    /// It ended; its end is noted and not committed yet.
    Ended(Box<Held>),
    /// It waits, and whoever wakes it drives it again.
    Parked,
}

/// Drives a call until it ends or has to wait.
async fn drive(mut held: Box<Held>) -> Result<Driven, Lost> {
    held.begin_stage();
    loop {
        held.hear()?;
        let step = held.call.next(held.decision_time());
        match step {
            Step::Done(_) => return Ok(Driven::Ended(held)),
            Step::Lose(attempt) => {
                let blamed = held.on.rt.last_owner_died;
                held.note(Fact::Lost(LostAttempt { attempt, blamed }))?;
            }
            // A call that may have taken effect keeps its claim until its end is in the lane: it enters too.
            Step::Attempt { .. } | Step::Reconcile(_) | Step::Settle(_) | Step::Park(_)
                if !held.admitted && held.call.attempts > 0 =>
            {
                match Session::admit(held) {
                    Some(admitted) => held = admitted,
                    None => return Ok(Driven::Parked),
                }
            }
            Step::Attempt { .. } | Step::Park(_) if let Some(late) = held.overdue() => {
                settle::overdue(&mut held, late)?;
            }
            // How long it may wait its tool says, if that is there.
            Step::Prepare => match (prepare::missing(&held), held.overdue()) {
                (Some(_), Some(late)) => settle::overdue(&mut held, late)?,
                (Some(reason), None) => return park::wait_for_tool(held, reason).await,
                (None, _) => prepare::note(&mut held).await?,
            },
            Step::Attempt { .. } if !held.admitted => match Session::admit(held) {
                Some(admitted) => held = admitted,
                None => return Ok(Driven::Parked),
            },
            Step::Attempt { attempt, intent, redrive } => match attempt::pin(&mut held)? {
                attempt::Pinned::Tool(tool) => {
                    attempt::run(&mut held, &tool, attempt::Start { attempt, intent, redrive }).await?;
                }
                attempt::Pinned::Again => prepare::note(&mut held).await?,
                attempt::Pinned::Wait(reason) => return park::wait_for_tool(held, reason).await,
            },
            Step::Reconcile(attempt) => match attempt::pin(&mut held)? {
                attempt::Pinned::Tool(tool) => reconcile::note(&mut held, &tool, attempt).await?,
                attempt::Pinned::Again => settle::unknown(&mut held)?,
                attempt::Pinned::Wait(_) if held.overdue().is_some() => settle::unknown(&mut held)?,
                attempt::Pinned::Wait(reason) => return park::wait_for_tool(held, reason).await,
            },
            Step::Retry { after_ms } => retry::note(&mut held, after_ms).await?,
            Step::Park(parked) => return park::until(held, parked).await,
            Step::Settle(_) => settle::note(&mut held)?,
        }
    }
}

/// Commits the ends of calls of one batch together, gives their claims on, and answers.
async fn finish(mut ended: Vec<Box<Held>>) {
    let Some(first) = ended.first() else { return };
    let on = first.on.clone();
    let Hold { rt, session, batch } = &*on;
    let admitted = ended.iter().filter(|held| held.admitted).count();
    let queued: Vec<CallId> = ended.iter().filter(|held| held.queued).map(|held| held.id).collect();
    let release = || session.leave(rt, (admitted, &queued)).into_iter().for_each(start);
    if cfg!(feature = "mutant-claim-released-early") {
        release();
        tokio::task::yield_now().await;
    }
    let commit = batch.send(&session.lane, &mut ended);
    // The ends are in the lane: whatever starts now commits its intent behind them.
    if !cfg!(feature = "mutant-claim-released-early") {
        release();
    }
    let count = ended.len() as u64;
    let durable = if cfg!(feature = "mutant-early-ack") { Ok(()) } else { commit.durable().await };
    match durable {
        Ok(()) => {
            if batch.settle(ended) {
                session.forget(batch);
            }
        }
        Err(lost) => rt.closed(session.lose(lost)),
    }
    rt.closed(count);
}

/// Drives calls of one batch in their order: each as far as it gets at once in the caller's own task, the rest
/// in tasks of their own. A caller that goes away stops nothing.
pub(crate) async fn start_all(calls: Vec<Box<Held>>) {
    let Some(on) = calls.first().map(|held| held.on.clone()) else { return };
    let mut ended = Vec::with_capacity(calls.len());
    // One call after the other is driven in the same memory, until one is left in it.
    let mut free = None;
    for held in calls {
        let driving = drive(held);
        let mut driving = match free.take() {
            Some(mut memory) => {
                Pin::set(&mut memory, driving);
                memory
            }
            None => Box::pin(driving),
        };
        match poll_once(driving.as_mut()).await {
            Some(driven) => {
                match driven {
                    Ok(Driven::Ended(held)) => ended.push(held),
                    Ok(Driven::Parked) => {}
                    Err(lost) => give_up(&on, lost),
                }
                free = Some(driving);
            }
            None => {
                on.rt.tasks.spawn(drive_on(driving, on.clone()));
            }
        }
    }
    if !ended.is_empty() {
        let mut finishing = Box::pin(finish(ended));
        if poll_once(finishing.as_mut()).await.is_none() {
            on.rt.tasks.spawn(finishing);
        }
    }
}

/// Drives a call to its end or until it has to wait.
async fn drive_on(driving: Pin<Box<impl Future<Output = Result<Driven, Lost>>>>, on: Arc<Hold>) {
    match driving.await {
        Ok(Driven::Ended(held)) => finish(vec![held]).await,
        Ok(Driven::Parked) => {}
        Err(lost) => give_up(&on, lost),
    }
}

/// Drives a call whose turn has come in a task of its own.
pub(crate) fn start(held: Box<Held>) {
    let on = held.on.clone();
    on.rt.tasks.spawn(drive_on(Box::pin(drive(held)), on.clone()));
}

/// A call cannot be driven on here: it is open in its journal, and no longer in this runtime. Nor are those that
/// waited for it.
fn give_up(on: &Hold, lost: Lost) {
    on.rt.closed(1 + on.session.lose(lost));
}

/// Polls a future once, and no more.
pub(crate) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

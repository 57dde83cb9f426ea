//! The path of a call, top to bottom. Everything that can happen to a call is an arm of one `match`.

use crate::background;
use crate::batch::Sent;
use crate::children;
use crate::error::Lost;
use crate::held::{Ended, Going, Held, Hold};
use crate::inside::{nested, still};
use crate::lane::Unanswered;
use crate::same;
use crate::schedules;
use crate::stage::{attempt, complete, join, park, prepare, reconcile, retry, settle};
use crate::turns::{Turn, Turns};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use windlass_core::call::{Cause, Fact, Lost as LostAttempt, Reason, Settlement, Step};
use windlass_core::ids::{AttemptNo, CallId};
use windlass_core::outcome::Effect;

/// What became of a call that was driven.
pub(crate) enum Driven {
    /// It ended; its end is noted and not committed yet.
    Ended(Box<Held>),
    /// It waits, and whoever wakes it drives it again.
    Parked,
}

/// Drives a call that has begun a stage, until it ends or has to wait.
async fn drive(mut held: Box<Held>) -> Result<Driven, Lost> {
    if background::may_be_due(&held) {
        Box::pin(background::detach(&mut held)).await?;
    }
    loop {
        held.hear()?;
        let step = held.call.next(held.decision_time());
        match step {
            // It ends after the last of the calls inside it.
            Step::Done(_)
            | Step::Reconcile(_)
            | Step::Return { .. }
            | Step::Retry { .. }
            | Step::Settle(_)
                if nested::has_open(&held) =>
            {
                let cancelled = held.call.cancel.is_some().then_some(Cause::Cancel);
                Box::pin(nested::end_open(&held, cancelled)).await?;
                held.begin_stage();
            }
            Step::Done(_) => return Ok(Driven::Ended(held)),
            Step::Lose(attempt) => note_lost(&mut held, attempt)?,
            Step::Join(_) | Step::Attempt(_) | Step::Park(_) if let Some(late) = held.overdue() => {
                settle::overdue(&mut held, late)?;
            }
            // A fresh one is refused if its tool is not there.
            Step::Prepare if held.past.fresh => prepare::note(&mut held).await?,
            Step::Prepare if !held.waits_for_tool => match Box::pin(prepare::must_wait(&mut held)).await {
                // How long it may wait its tool says, if that is there.
                true if let Some(late) = held.overdue() => settle::overdue(&mut held, late)?,
                true => held.waits_for_tool = true,
                false => prepare::note(&mut held).await?,
            },
            Step::Prepare => return Box::pin(park::wait_for_tool(held, Reason::NoSuchTool)).await,
            // Boxed, as all that is rare, so that most calls need no room for it.
            Step::Join(same) => match Box::pin(join::join(held, same)).await? {
                Some(joined) => held = joined,
                None => return Ok(Driven::Parked),
            },
            Step::Attempt(start) => match attempt::pin(&mut held).await? {
                // The tool comes first: whoever waits for it needs no turn.
                attempt::Pinned::Tool(tool) => match Turns::take(held) {
                    Turn::Now(started, now_us) => {
                        held = started;
                        attempt::run(&mut held, &tool, (start, now_us)).await?;
                    }
                    Turn::Later => return Ok(Driven::Parked),
                    Turn::Never(refused, why) => {
                        held = refused;
                        settle::no_turn(&mut held, &why)?;
                    }
                },
                attempt::Pinned::Again => prepare::note(&mut held).await?,
                attempt::Pinned::Wait(reason) => return Box::pin(park::wait_for_tool(held, reason)).await,
            },
            Step::Reconcile(attempt) => match attempt::pin(&mut held).await? {
                attempt::Pinned::Tool(tool) => Box::pin(reconcile::note(&mut held, &tool, attempt)).await?,
                attempt::Pinned::Again => settle::unknown(&mut held)?,
                attempt::Pinned::Wait(_) if held.overdue().is_some() => settle::unknown(&mut held)?,
                attempt::Pinned::Wait(reason) => return Box::pin(park::wait_for_tool(held, reason)).await,
            },
            Step::Return { attempt, .. } => match attempt::pin(&mut held).await? {
                attempt::Pinned::Tool(tool) => Box::pin(complete::note(&mut held, &tool, attempt)).await?,
                attempt::Pinned::Again => settle::unknown(&mut held)?,
                attempt::Pinned::Wait(reason) => return Box::pin(park::wait_for_tool(held, reason)).await,
            },
            Step::Retry { after_ms } => Box::pin(retry::note(&mut held, after_ms)).await?,
            Step::Park(parked) => return Ok(park::until(held, parked)),
            Step::Settle(Settlement::Cancelled(Effect::Landed)) if nested::speak_for(&held) => {
                Box::pin(settle::cancelled(&mut held)).await?;
            }
            Step::Settle(_) => settle::note(&mut held)?,
        }
    }
}

/// An attempt was running when its owner died.
fn note_lost(held: &mut Held, attempt: AttemptNo) -> Result<(), Lost> {
    let blamed = held.on.rt.last_owner_died || held.on.session.owner_died;
    held.note(Fact::Lost(LostAttempt { attempt, blamed }))
}

/// Commits the ends of calls of one batch together, gives their claims on, and answers. What is not durable yet is left to
/// whoever waits for that.
async fn finish(on: &Hold, going: &mut Going) -> Option<Unfinished> {
    let Hold { rt, session, batch } = on;
    let leaving = |going: &Going| rt.turns.leave(rt, going.ended.iter().map(|ended| (ended.id, ended.fresh)));
    if windlass_core::mutant::breaks("claim-released-early") {
        leaving(going);
        tokio::task::yield_now().await;
    }
    let Sent { commit, parked } = batch.send(&session.lane, going);
    // The ends are in the lane: whatever starts now commits its intent behind them.
    if !windlass_core::mutant::breaks("claim-released-early") {
        leaving(going);
    }
    session.wake_all(rt, batch, parked);
    let known = if windlass_core::mutant::breaks("early-ack") { Ok(Ok(())) } else { commit.known() };
    match known {
        Ok(durable) => {
            answer(on, std::mem::take(&mut going.ended), durable);
            None
        }
        Err(unanswered) => Some(Unfinished { ended: std::mem::take(&mut going.ended), unanswered }),
    }
}

/// Calls whose ends were sent, and are not known to be durable.
struct Unfinished {
    ended: Vec<Ended>,
    unanswered: Unanswered,
}

impl Unfinished {
    /// Waits for that, and answers.
    async fn wait(self, on: Arc<Hold>) {
        let durable = on.session.lane.resume(self.unanswered).durable().await;
        answer(&on, self.ended, durable);
    }
}

/// Answers calls whose ends are durable. If they cannot be, nothing of their session goes on here.
fn answer(on: &Hold, ended: Vec<Ended>, durable: Result<(), Lost>) {
    let Hold { rt, session, batch } = on;
    let count = ended.len() as u64;
    let was_scheduled = ended.iter().any(|ended| ended.call.is_scheduled());
    let children = children::of_ended(&ended);
    match durable {
        Ok(()) => {
            let told = same::ended(session, &ended);
            if batch.settle(ended, &session.loops, &rt.limits) {
                session.forget(batch);
            }
            same::tell(rt, session, told);
            // The next time may wait for it.
            if was_scheduled {
                schedules::look_soon(rt, &session.name);
            }
            if let Some(parent) = batch.head.parent {
                still::look(rt, session, parent.call);
            }
            children::stop_soon(rt, children, "the call that opened the session has ended");
        }
        Err(lost) => rt.closed(session.lose(rt, lost)),
    }
    rt.closed(count);
}

/// Which call is driven, and whether it was submitted to this runtime.
type Who = (CallId, bool);

/// Drives calls of one batch in their order: each as far as it gets at once in the caller's own task, the rest
/// in tasks of their own. A caller that goes away stops nothing.
pub(crate) async fn start_all(on: &Arc<Hold>, calls: impl Iterator<Item = Box<Held>>) {
    let mut going = Going::expecting(calls.size_hint().0);
    // One call after the other is driven in the same memory, until one is left in it.
    let (mut free, mut at) = (None, None);
    for mut held in calls {
        going.hand_on(&mut held);
        let who = (held.id, held.past.fresh);
        held.begin_stage_at(at.take());
        let mut driving = match free.take() {
            Some(mut memory) => {
                Pin::set(&mut memory, drive(held));
                memory
            }
            None => Box::pin(drive(held)),
        };
        match poll_once(driving.as_mut()).await {
            Some(driven) => {
                match driven {
                    Ok(Driven::Ended(held)) => {
                        // It has ended a moment ago, and nothing happened since.
                        at = Some(held.now());
                        going.end(held);
                        // Its end may decide that those behind it are not to run.
                        if on.batch.asks_of_siblings() {
                            finish_now(on, &mut going).await;
                        }
                    }
                    Ok(Driven::Parked) => {}
                    Err(lost) => give_up(on, who, lost),
                }
                free = Some(driving);
            }
            None => {
                on.rt.tasks.spawn(drive_on(driving, on.clone(), who));
            }
        }
    }
    finish_now(on, &mut going).await;
}

/// Sends the ends of calls; their answers may come later.
async fn finish_now(on: &Arc<Hold>, going: &mut Going) {
    if going.is_empty() {
        return;
    }
    if let Some(unfinished) = finish(on, going).await {
        on.rt.tasks.spawn(unfinished.wait(on.clone()));
    }
}

/// Drives a call to its end or until it has to wait.
async fn drive_on(driving: Pin<Box<impl Future<Output = Result<Driven, Lost>>>>, on: Arc<Hold>, who: Who) {
    match driving.await {
        Ok(Driven::Ended(held)) => {
            let mut going = Going::default();
            going.end(held);
            if let Some(unfinished) = finish(&on, &mut going).await {
                unfinished.wait(on).await;
            }
        }
        Ok(Driven::Parked) => {}
        Err(lost) => give_up(&on, who, lost),
    }
}

/// Drives a call that was parked in a task of its own.
pub(crate) fn start(held: Box<Held>) {
    let (on, who) = (held.on.clone(), (held.id, held.past.fresh));
    on.rt.tasks.spawn(drive_on(Box::pin(drive_anew(held)), on.clone(), who));
}

/// Its stage begins when somebody has time for it.
async fn drive_anew(mut held: Box<Held>) -> Result<Driven, Lost> {
    held.begin_stage();
    drive(held).await
}

/// A call cannot be driven on here: it is open in its journal, and no longer in this runtime. Nor are those that
/// waited for it.
pub(crate) fn give_up(on: &Hold, who: Who, lost: Lost) {
    on.rt.turns.leave(&on.rt, [who]);
    on.rt.closed(1 + on.session.lose(&on.rt, lost));
}

/// Polls a future once, and no more.
pub(crate) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

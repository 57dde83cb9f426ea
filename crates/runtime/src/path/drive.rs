//! The path of a call, top to bottom. Everything that can happen to a call is an arm of one `match`.

use crate::api::error::Lost;
use crate::api::polling::{FutureRoom, poll_once};
use crate::path::attached;
use crate::path::background;
use crate::path::kept::{DriveRest, KeptDrive};
use crate::path::nested;
use crate::path::stage::aside;
use crate::path::stage::attempt::{self, handing};
use crate::path::stage::authorize;
use crate::path::stage::complete;
use crate::path::stage::join;
use crate::path::stage::park;
use crate::path::stage::prepare;
use crate::path::stage::reconcile;
use crate::path::stage::retry;
use crate::path::stage::settle;
use crate::path::together;
use crate::session::batch::{Sent, StartsHeldBack};
use crate::session::held::{DriveContext, EndedCall, Going, Held};
use crate::session::inner::Inner;
use crate::session::kin::of_ended;
use crate::session::lane::UnansweredChange;
use crate::session::owner::Session;
use crate::session::permission::HeldPermit;
use crate::session::plugs::FollowUp;
use crate::session::same;
use crate::session::still;
use crate::session::turns::{DrivenCall, Turn, Turns};
use crate::session::worker::names;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use windlass_core::call::{Call, Cause, Fact, Illegal, LostAttempt, Settlement, Step};
use windlass_core::ids::{AttemptNo, CallId};
use windlass_core::outcome::Effect;

/// The outcome of driving a call.
pub(crate) enum DriveOutcome {
    /// It ended; its end is noted and not committed yet.
    Ended(Box<Held>),
    /// It waits, and whoever wakes it drives it again.
    Parked,
}

/// Drives a call that has begun a stage, until it ends or has to wait.
#[expect(clippy::too_many_lines, reason = "the path of a call is one match, in order")]
async fn drive(mut held: Box<Held>) -> Result<DriveOutcome, Lost> {
    if held.look_at_clocks() && background::may_be_due(&held) {
        Box::pin(background::detach(&mut held)).await?;
    }
    loop {
        held.hear()?;
        match held.next() {
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
            // And after the tasks that end with it.
            Step::Done(_) if held.has_attached_tasks() => {
                Box::pin(attached::end(&mut held)).await?;
                held.begin_stage();
            }
            Step::Done(_) => return Ok(DriveOutcome::Ended(held)),
            Step::Lose(attempt) => note_lost(&mut held, attempt)?,
            Step::Continue(attempt) => match Box::pin(handing::go_on(held, attempt)).await? {
                Some(continued) => held = continued,
                None => return Ok(DriveOutcome::Parked),
            },
            // A fresh one is refused if its tool is not there.
            Step::Prepare if held.past.fresh => prepare::note(&mut held).await?,
            Step::Prepare => Box::pin(prepare::once_there(&mut held)).await?,
            Step::AwaitTool(reason) => return Box::pin(park::wait_for_tool(held, reason)).await,
            Step::Authorize => Box::pin(authorize::note(&mut held)).await?,
            Step::Ask => match Box::pin(authorize::ask(held)).await? {
                Some(unjudged) => held = unjudged,
                None => return Ok(DriveOutcome::Parked),
            },
            Step::ApproveByDefault => authorize::approve_by_default(&mut held)?,
            // Boxed, as all that is rare, so that most calls need no room for it.
            Step::Join(same) => match Box::pin(join::join(held, same)).await? {
                Some(joined) => held = joined,
                None => return Ok(DriveOutcome::Parked),
            },
            Step::Attempt(start) => match attempt::pin(&mut held).await? {
                // The tool comes first: whoever waits for it needs no turn.
                attempt::Pinned::Tool(tool) if !start.begins.is_under_way() && !held.is_permitted(&tool) => {
                    held.permit = HeldPermit::unjudged();
                }
                attempt::Pinned::Tool(tool) => match Turns::take(held) {
                    Turn::Now(started, now_us) => {
                        held = started;
                        let names = names::wanted(&held);
                        if !names.is_empty() && !Box::pin(names::take(&held, names)).await? {
                            names::park(held);
                            return Ok(DriveOutcome::Parked);
                        }
                        attempt::run(&mut held, &tool, start, now_us).await?;
                    }
                    Turn::Later => return Ok(DriveOutcome::Parked),
                    Turn::Never(refused, why) => {
                        held = refused;
                        settle::no_turn(&mut held, &why)?;
                    }
                },
                attempt::Pinned::Again => prepare::note(&mut held).await?,
                attempt::Pinned::Accepted => {}
                attempt::Pinned::Missing => {}
            },
            Step::Reconcile(attempt) => Box::pin(reconcile::note(&mut held, attempt)).await?,
            Step::Return { attempt, .. } => Box::pin(complete::note(&mut held, attempt)).await?,
            Step::SetAside(_) => aside::note(&mut held)?,
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
pub(crate) fn note_lost(held: &mut Held, attempt: AttemptNo) -> Result<(), Lost> {
    let blamed = held.on.rt.last_owner_died || held.on.session.owner_died;
    held.note(Fact::Lost(LostAttempt { attempt, blamed }))
}

/// Commits the ends of calls of one batch together, gives their claims on, and answers. What is not durable yet is left to
/// whoever waits for that.
pub(super) async fn finish(on: &DriveContext, going: &mut Going) -> Option<Unfinished> {
    if going.is_empty() {
        return None;
    }
    let DriveContext { rt, session, batch } = on;
    let Sent { commit, parked, notices } = batch.send_ends(rt, session, going).await;
    session.wake_all(rt, batch, parked);
    if notices > 0 {
        rt.follow_up(session, FollowUp::Noticed(notices));
    }
    match commit.known() {
        Ok(durable) => {
            answer(on, std::mem::take(&mut going.ended), durable);
            None
        }
        Err(unanswered) => Some(Unfinished { ended: std::mem::take(&mut going.ended), unanswered }),
    }
}

/// Calls whose ends were sent, and are not known to be durable.
pub(super) struct Unfinished {
    ended: Vec<EndedCall>,
    unanswered: UnansweredChange,
}

impl Unfinished {
    /// Waits for that, and answers.
    pub(super) async fn wait(self, on: Arc<DriveContext>) {
        let durable = on.session.lane.resume(self.unanswered).durable().await;
        answer(&on, self.ended, durable);
    }
}

/// Answers calls whose ends are durable. If they cannot be, nothing of their session goes on here.
fn answer(on: &DriveContext, ended: Vec<EndedCall>, durable: Result<(), Lost>) {
    let DriveContext { rt, session, batch } = on;
    let count = ended.len() as u64;
    let aftermath = Aftermath::of(&ended);
    match durable {
        Ok(()) => {
            let told = same::ended(session, &ended);
            names::left(rt, ended.iter().map(|ended| ended.id));
            if batch.settle(ended, &session.loops, &rt.limits) {
                session.forget(batch);
            }
            same::tell(rt, session, told);
            aftermath.follow_up(rt, session);
            if let Some(parent) = batch.head.parent {
                still::look(rt, session, parent.call);
            }
        }
        Err(lost) => rt.closed(session.lose(rt, lost)),
    }
    rt.closed(count);
}

/// The actions that follow the ends of calls once they are durable. Most calls have none.
#[derive(Default)]
struct Aftermath {
    was_scheduled: bool,
    tasks: Vec<CallId>,
    /// The calls that planned events.
    planners: Vec<CallId>,
    /// The child sessions that they opened.
    children: Vec<String>,
    /// The hashes of the tokens by which toolboxes had them.
    handed: Vec<Arc<str>>,
}

impl Aftermath {
    fn of(ended: &[EndedCall]) -> Aftermath {
        // All of it follows from being a task, or from operations.
        if ended.iter().all(|ended| ended.call.task.is_none() && ended.call.operations.is_none()) {
            return Aftermath::default();
        }
        let those = |is: fn(&Call) -> bool| -> Vec<CallId> {
            ended.iter().filter(|ended| is(&ended.call)).map(|ended| ended.id).collect()
        };
        Aftermath {
            was_scheduled: ended.iter().any(|ended| ended.call.is_scheduled()),
            tasks: those(|call| call.task.is_some()),
            planners: those(Call::has_planned_event),
            children: of_ended(ended),
            handed: ended.iter().filter_map(|ended| handed(&ended.call)).collect(),
        }
    }

    fn follow_up(self, rt: &Arc<Inner>, session: &Arc<Session>) {
        // The next time may wait for it.
        if self.was_scheduled {
            rt.follow_up(session, FollowUp::ScheduledEnded);
        }
        if !self.tasks.is_empty() {
            rt.follow_up(session, FollowUp::TasksEnded(self.tasks));
        }
        if !self.planners.is_empty() {
            rt.follow_up(session, FollowUp::EventsDue(self.planners));
        }
        if !self.handed.is_empty() {
            rt.follow_up(session, FollowUp::HandedEnded(self.handed));
        }
        rt.stop_children(session, self.children, "the call that opened the session has ended");
    }
}

/// The hash of the token by which a toolbox had the last attempt of a call.
fn handed(call: &Call) -> Option<Arc<str>> {
    Some(call.operations.as_deref()?.handover()?.token.clone())
}

/// Drives calls of one batch in their order: each as far as it gets at once in the caller's own task, the rest
/// in tasks of their own. A caller that goes away stops nothing.
pub(crate) async fn start_all(on: &Arc<DriveContext>, calls: impl Iterator<Item = Box<Held>>) {
    start_each(on, calls, &mut |rest| drop(on.rt.tasks.spawn(go_on(on.clone(), rest)))).await;
}

/// As [`start_all`]; what is left is for whoever waits for the calls.
pub(crate) async fn start_kept(on: &Arc<DriveContext>, calls: impl Iterator<Item = Box<Held>>) -> KeptDrive {
    let mut kept = Vec::new();
    start_each(on, calls, &mut |rest| kept.push(rest)).await;
    let rest: DriveRest = match kept.len() {
        0 => return KeptDrive::default(),
        1 => Box::pin(go_on(on.clone(), kept.remove(0))),
        _ => Box::pin(together::go_on(on.clone(), kept)),
    };
    KeptDrive::new(&on.rt.tasks, rest)
}

/// The rest of the way of a call that did not end at once.
pub(super) enum Rest {
    Driving(Driving, DrivenCall),
    Unfinished(Unfinished),
}

/// A call on its way.
pub(super) type Driving = Pin<Box<dyn Future<Output = Result<DriveOutcome, Lost>> + Send>>;

/// Drives calls as far as they get at once; whatever is left goes on elsewhere.
async fn start_each(
    on: &Arc<DriveContext>,
    calls: impl Iterator<Item = Box<Held>>,
    go_on: &mut (impl FnMut(Rest) + Send),
) {
    let mut going = Going::expecting(calls.size_hint().0);
    let (mut room, mut at) = (FutureRoom::default(), None);
    let starts = StartsHeldBack::begin(on);
    for mut held in calls {
        going.hand_on(&mut held);
        let who = DrivenCall::of(&held);
        held.begin_stage_at(at.take());
        let mut driving = room.place(drive(held));
        match poll_once(driving.as_mut()).await {
            Some(driven) => {
                match driven {
                    Ok(DriveOutcome::Ended(held)) => {
                        // It has ended a moment ago, and nothing happened since.
                        at = Some(held.now());
                        going.end(held);
                        // Its end may decide that those behind it are not to run.
                        if on.batch.asks_of_siblings() {
                            go_on_after(on, &mut going, go_on).await;
                        }
                    }
                    Ok(DriveOutcome::Parked) => {}
                    Err(lost) => stop(on, who, lost),
                }
                room.give_back(driving);
            }
            None => go_on(Rest::Driving(driving, who)),
        }
    }
    drop(starts);
    go_on_after(on, &mut going, go_on).await;
}

/// Sends the ends of calls; their answers may come later.
async fn go_on_after(on: &Arc<DriveContext>, going: &mut Going, go_on: &mut impl FnMut(Rest)) {
    if let Some(unfinished) = finish(on, going).await {
        go_on(Rest::Unfinished(unfinished));
    }
}

/// Goes on with a call until it ends or has to wait.
async fn go_on(on: Arc<DriveContext>, rest: Rest) {
    match rest {
        Rest::Driving(driving, who) => drive_on(driving, on, who).await,
        Rest::Unfinished(unfinished) => unfinished.wait(on).await,
    }
}

/// Drives a call to its end or until it has to wait.
async fn drive_on(
    driving: impl Future<Output = Result<DriveOutcome, Lost>>,
    on: Arc<DriveContext>,
    who: DrivenCall,
) {
    match driving.await {
        Ok(DriveOutcome::Ended(held)) => {
            let mut going = Going::default();
            going.end(held);
            if let Some(unfinished) = finish(&on, &mut going).await {
                unfinished.wait(on).await;
            }
        }
        Ok(DriveOutcome::Parked) => {}
        Err(lost) => stop(&on, who, lost),
    }
}

/// Drives a call that was parked in a task of its own.
pub(crate) fn start(held: Box<Held>) {
    let (on, who) = (held.on.clone(), DrivenCall::of(&held));
    on.rt.tasks.spawn(drive_on(drive_anew(held), on.clone(), who));
}

/// Drives a call that was parked in the caller's own task, as far as it gets at once.
pub(crate) async fn start_here(held: Box<Held>) {
    let on = held.on.clone();
    start_all(&on, std::iter::once(held)).await;
}

/// Its stage begins when somebody has time for it.
async fn drive_anew(mut held: Box<Held>) -> Result<DriveOutcome, Lost> {
    held.begin_stage();
    drive(held).await
}

/// A call cannot be driven on. A contradiction is its own; everything else that is wrong is its session's.
pub(super) fn stop(on: &Arc<DriveContext>, who: DrivenCall, lost: Lost) {
    match lost {
        Lost::Broken(illegal) => {
            on.rt.tasks.spawn(set_aside(on.clone(), who, illegal));
        }
        lost @ (Lost::Store(_) | Lost::Refused(_) | Lost::Lease | Lost::Removed) => give_up(on, who, lost),
    }
}

/// Ends a call as unknown that was about to get a fact which contradicts its record. The rest of its session goes on.
async fn set_aside(on: Arc<DriveContext>, who: DrivenCall, illegal: Illegal) {
    let driven = match aside::read_back(&on, who, &illegal).await {
        Ok(held) => drive(held).await,
        Err(lost) => Err(lost),
    };
    match driven {
        Ok(DriveOutcome::Ended(held)) => {
            let mut going = Going::default();
            going.end(held);
            if let Some(unfinished) = finish(&on, &mut going).await {
                unfinished.wait(on).await;
            }
        }
        Ok(DriveOutcome::Parked) => {}
        Err(lost) => give_up(&on, who, lost),
    }
}

/// A call cannot be driven on here: it is open in its journal, and no longer in this runtime. Nor are those that
/// waited for it.
pub(crate) fn give_up(on: &DriveContext, who: DrivenCall, lost: Lost) {
    on.rt.turns.leave(&on.rt, [who]);
    on.rt.closed(1 + on.session.lose(&on.rt, lost));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Args, BatchRequest, CallRequest, Config, Output, Runtime, ToolError, ToolSpec, tool_fn};
    use windlass_core::call::Kind;
    use windlass_core::ids::{CallId, Ordinal};
    use windlass_store::memory::MemoryStore;

    fn batch(key: &str, tools: &[&str]) -> BatchRequest {
        let call = |tool: &&str| CallRequest {
            id: Some(tool.to_string()),
            tool: tool.to_string(),
            args: Args::Json(serde_json::json!({})),
            ..CallRequest::default()
        };
        BatchRequest {
            key: Some(key.into()),
            calls: tools.iter().map(call).collect(),
            ..BatchRequest::default()
        }
    }

    fn spec(name: &str) -> ToolSpec {
        ToolSpec { name: name.into(), claims: Some(Vec::new()), ..ToolSpec::default() }
    }

    async fn states(runtime: &Runtime, batch: BatchRequest) -> Vec<&'static str> {
        let submitted = runtime.submit("s", batch).await.unwrap();
        submitted.settled().await.unwrap().calls.iter().map(|call| call.state()).collect()
    }

    #[tokio::test]
    async fn a_contradiction_ends_its_call_and_not_its_session() {
        let runtime = Runtime::new(Config::new(MemoryStore::new().unwrap()));
        let waits = tool_fn(spec("waits"), |_, _| async { Err(ToolError::needs_connection("mail", None)) });
        runtime.register(waits).unwrap();
        let echo = tool_fn(spec("echo"), |args, _| async { Ok(Output::from(args)) });
        runtime.register(echo).unwrap();
        let submitted = runtime.submit("s", batch("k", &["waits", "echo"])).await.unwrap();
        let session = runtime.0.owned_session("s").unwrap();
        // It is taken from where it waits, as whoever drives it would have it, and never comes back.
        let (used, parked) = loop {
            let used = session.open_batches().remove(0);
            match used.unpark(Ordinal(0)) {
                Some(parked) => break (used, parked),
                None => tokio::task::yield_now().await,
            }
        };
        let on = Arc::new(DriveContext { rt: runtime.0.clone(), session: session.clone(), batch: used });
        let id = CallId { batch: on.batch.head.no, ordinal: Ordinal(0) };
        drop(on.unpark(parked));
        let illegal = Illegal { state: "queued", fact: Kind::Lost, attempts: 1 };
        stop(&on, DrivenCall { id, fresh: true }, Lost::Broken(illegal));
        let answer = submitted.settled().await.unwrap();
        let found: Vec<_> = answer.calls.iter().map(|call| (call.state(), call.call().attempts)).collect();
        assert_eq!(found, [("unknown", 1), ("succeeded", 1)]);
        assert!(session.lane.lost().is_none(), "the session goes on");
        drop(on);
        assert_eq!(states(&runtime, batch("k2", &["echo"])).await, ["succeeded"]);
        assert_eq!(states(&runtime, batch("k", &["waits", "echo"])).await, ["unknown", "succeeded"]);
        runtime.idle().await;
        assert_eq!(runtime.kept(), 0);
    }
}

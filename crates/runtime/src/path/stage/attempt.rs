//! Run the tool once: commit the intent, run, note the end.

mod begin;
mod frame;
pub(crate) mod handing;
mod waits;

pub(crate) use frame::{AttemptFrame, context};

use crate::api::error::{Lost, SessionError, chain};
use crate::api::output::{Output, ToolError};
use crate::api::polling::{caught, poll_once};
use crate::attempt::threads::{self, Ran, in_place};
use crate::path::background;
use crate::path::grants;
use crate::path::nested;
use crate::path::stage::result;
use crate::path::stage::settle;
use crate::session::arguments;
use crate::session::batch::{AttemptRun, commit_start};
use crate::session::gate::Gate;
use crate::session::held::{Acceptance, Held};
use crate::session::log::{AttemptLog, Stream};
use crate::session::patience;
use crate::session::signal::{AttemptSignal, Began};
use crate::session::still;
use crate::session::turns::Turns;
use crate::session::vault::scrub_error;
use crate::tools::registry::{Registered, ToolLookup};
use begin::{begin_clock, check_lease, may_begin, may_start, too_many_stuck, withhold};
use serde_json::Value;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use waits::{leave, put_aside, wait_for_connection};
use windlass_core::attempt::Rules;
use windlass_core::call::{
    Abort, Accepted, Begins, CancelAsked, Cause, Fact, LatestEnd, Reason, Returned, Start, Stopped,
    ToolSearch,
};
use windlass_core::ids::AttemptNo;
use windlass_core::tool::EffectClass;

/// Whether the call can go on with its tool.
pub(crate) enum Pinned {
    /// It can, with this one.
    Tool(Arc<Registered>),
    /// The tool has changed, and the call was never started: it is prepared anew.
    Again,
    /// The tool has changed, and an operator accepted that: what is to be done is decided anew, by its class now.
    Accepted,
    /// It cannot, and what is to be done instead is decided anew: [why](Held::tool_search) is noted there.
    Missing,
}

/// Finds the tool the call is pinned to, as it is registered now.
pub(crate) async fn pin(held: &mut Held) -> Result<Pinned, Lost> {
    let registry = &held.on.rt.registry;
    let generation = registry.generation();
    held.looked_generation = generation;
    let tool = match &held.tool {
        Some(tool) if held.seen_generation == generation => tool.clone(),
        _ => match grants::find_tool(held).await {
            ToolLookup::Tool(tool) => tool,
            ToolLookup::Missing { .. } if grants::is_for_another(held).await => return Ok(Pinned::Again),
            // A provider that fails now may give it later.
            ToolLookup::Missing { .. } | ToolLookup::Unavailable(_) => {
                return Ok(missing(held, Reason::NoSuchTool));
            }
        },
    };
    if tool.is_paused() {
        return Ok(missing(held, Reason::ToolPaused));
    }
    if tool.link.as_ref().is_some_and(|link| link.is_away(held.on.rt.clock.elapsed_us())) {
        return Ok(missing(held, Reason::NoWorker));
    }
    if held.call.pin.is_some_and(|pin| pin.contract == tool.contract) {
        held.seen_generation = generation;
        held.tool = Some(tool.clone());
        return Ok(Pinned::Tool(tool));
    }
    if held.call.attempts == 0 {
        return Ok(Pinned::Again);
    }
    if std::mem::replace(&mut held.acceptance, Acceptance::NotGiven) == Acceptance::NotGiven {
        return Ok(missing(held, Reason::ToolChanged));
    }
    let (contract, class, reconciles) = (tool.contract, tool.class, tool.reconciles);
    held.note(Fact::Accepted(Accepted { contract, class, reconciles }))?;
    Ok(Pinned::Accepted)
}

fn missing(held: &mut Held, reason: Reason) -> Pinned {
    held.tool_search = ToolSearch::Missing(reason);
    Pinned::Missing
}

/// Runs the tool once. `now_us`: when the call had its turn.
pub(crate) async fn run(
    held: &mut Held,
    tool: &Arc<Registered>,
    start: Start,
    now_us: u64,
) -> Result<(), Lost> {
    let rt = held.on.rt.clone();
    if tool.stuck.load(Ordering::Relaxed) >= rt.limits.stuck_attempts_max {
        return settle::refused(held, Box::new(too_many_stuck(tool)));
    }
    let passage = Gate::try_pass(&rt, held);
    // It begins when it has its turn, unless it waits for something more.
    let mut began_us = passage.is_some().then_some(now_us);
    let _passage = match passage {
        Some(passage) => passage,
        None => Box::pin(Gate::pass(&rt, held)).await,
    };
    if !may_begin(held, tool, start)? {
        return Ok(());
    }
    let (Start { attempt, intent, begins }, due_at) = (start, held.call.decision_time(&held.moment()));
    // What it waits for next is another wait.
    held.past.clock.parked_us = None;
    let handed = handing::note_start(held, tool, start)?;
    let mut is_recorded = begins == Begins::Continued;
    if !is_recorded && (handed.is_some() || held.must_record(intent)) {
        // Boxed, as all that is rare here, so that those that return at once need no room for it.
        Box::pin(commit_start(held)).await?;
        (began_us, is_recorded) = (None, true);
        check_lease(held)?;
    }
    // The policy may have changed while the start became durable, the tool been paused, or the grant been revoked.
    if is_recorded && !begins.is_under_way() && !(may_start(held, tool) && grants::still_stands(held)) {
        return withhold(held, attempt);
    }
    let approved = held.permit.use_approval();
    let args = arguments(held);
    let began_us = begin_clock(held, began_us);
    let began = Began { attempt, at_us: began_us, is_recorded };
    moment!("at.start");
    let frame =
        AttemptFrame { approved, handed, ..AttemptFrame::new(held, began, begins == Begins::Redriven) };
    let signal = frame.signal.clone();
    if tool.spec.flags.background {
        Box::pin(keep_log(held, &signal, attempt)).await?;
    }
    signal.book.lend(held, due_at);
    let watched = match args {
        Ok(args) => watch(held, tool, args, frame).await,
        Err(error) => Watched::Ran(Ran::Returned(Err(error))),
    };
    end_output(held, &signal);
    let ended_us = rt.clock.elapsed_us();
    let ended = EndedAttempt { attempt, ran_us: ended_us.saturating_sub(began_us) };
    let left = signal.book.take_back(held);
    after_run(held, &signal, ended_us);
    moment!("at.end");
    if held.has_called() && !matches!(watched, Watched::Waits) {
        // Boxed, so that those that call nothing need no room for it.
        Box::pin(nested::end_open(held, signal.cause())).await?;
        held.begin_stage();
    }
    let fact = match watched {
        Watched::Waits => return Box::pin(put_aside(held, ended, left)).await,
        Watched::Ran(Ran::Returned(Ok(Output { pending: Some(pending), .. }))) => {
            return Box::pin(leave(held, tool, ended, *pending)).await;
        }
        Watched::Ran(Ran::Returned(Err(ToolError { connection: Some(connection), .. }))) => {
            return Box::pin(wait_for_connection(held, ended, *connection)).await;
        }
        Watched::Ran(ran) => returned(held, tool, ended, ran).await,
        Watched::Stopped(stop) => Fact::Stopped(stopped(held, tool, ended, stop, left.unsettled)?),
    };
    if let Some(ended) = handing::end_by_desk(held, attempt, &signal, &fact) {
        return ended;
    }
    held.spare.signal = Some(signal);
    // Who asked for the stop stands before it in the story.
    held.hear()?;
    held.note(fact)
}

/// Brings the clocks, the log and the turn of the call to the end of its attempt.
#[inline]
fn after_run(held: &mut Held, signal: &AttemptSignal, ended_us: u64) {
    held.look_at_clocks_after(ended_us);
    if held.call.task.is_some() {
        let rows = signal.log_rows(held.id, held.on.rt.clock.now());
        held.carry(rows);
    }
    // All its clocks stood still then.
    held.past.clock.since_us = held.past.clock.since_us.saturating_add(signal.book.excused_us(ended_us));
    Turns::ran(held, ended_us);
}

/// Logs the end of an attempt's output, which was held back because a secret might have begun there.
#[inline]
fn end_output(held: &Held, signal: &AttemptSignal) {
    if held.on.rt.secrets.is_used() {
        log_held_back(held, signal);
    }
}

#[cold]
fn log_held_back(held: &Held, signal: &AttemptSignal) {
    let Some(known) = held.on.session.lane.vault().known() else { return };
    for (stream, bytes) in signal.held_back(&known) {
        signal.log(stream, &bytes);
        signal.output(&bytes, held.on.rt.limits.partial_bytes_max as usize);
    }
}

/// An attempt that is over, however that came.
#[derive(Clone, Copy)]
struct EndedAttempt {
    attempt: AttemptNo,
    /// How long it ran, by the clock that never jumps.
    ran_us: u64,
}

/// The tool has returned, or says that its work was cut off.
async fn returned(held: &mut Held, tool: &Registered, ended: EndedAttempt, mut ran: Ran) -> Fact {
    let EndedAttempt { attempt, ran_us } = ended;
    if held.on.rt.secrets.is_used() {
        result::scrub_ran(held, tool, &mut ran);
    }
    let ran = match ran {
        Ran::Returned(Err(error)) if error.aborted => {
            let failure = result::aborted(held, tool, error);
            return Fact::Aborted(Box::new(Abort { attempt, ran_us, failure }));
        }
        ran @ (Ran::Returned(_) | Ran::Panicked(_) | Ran::Waits) => ran,
    };
    let waits = match result::of(held, tool, ran) {
        Ok(result) => return Fact::Returned(Returned { attempt, ran_us, result }),
        Err(waits) => waits,
    };
    let result = waits.await;
    held.begin_stage();
    Fact::Returned(Returned { attempt, ran_us, result })
}

/// The tool's arguments: as prepared, or from the record, with the secrets that they refer to.
fn arguments(held: &mut Held) -> Result<Value, ToolError> {
    let parsed = held.parsed.take();
    if held.on.rt.secrets.is_used()
        && let Some(revealed) = arguments::revealed(held)?
    {
        return Ok(revealed);
    }
    match parsed {
        Some(Ok(parsed)) => Ok(parsed.value),
        // Prepared arguments were parsed before; that they cannot be parsed now is ours to explain.
        Some(Err(_)) | None => arguments::parse(held)
            .map(|parsed| parsed.value)
            .map_err(|failure| ToolError::internal(failure.message)),
    }
}

/// An attempt was stopped, maybe with a step under way.
fn stopped(
    held: &mut Held,
    tool: &Registered,
    ended: EndedAttempt,
    stop: AttemptStop,
    unsettled: bool,
) -> Result<Stopped, Lost> {
    let EndedAttempt { attempt, ran_us } = ended;
    // Then it was told to stop because of that, and nothing is to be said of it.
    if let Some(lost) = held.on.session.lane.lost() {
        return Err(lost);
    }
    let AttemptStop { cause, stuck, .. } = stop;
    if let Some(reason) = stop.by_itself {
        // As if somebody had asked for it: then its class decides what can be said of its effect.
        held.note(Fact::CancelAsked(CancelAsked { reason: Some(reason) }))?;
    }
    if stuck {
        let (call, stuck) = (result::handle(held), held.on.rt.threads.stuck());
        tracing::error!(%call, tool = %tool.spec.name, stuck, "a stopped tool blocks its thread");
    }
    // All that a stepped call does are its steps and the calls inside it, which have journals of their own.
    let is_stepped = held.call.class() == Some(EffectClass::Stepped);
    let may_have_acted = stop.may_have_acted && (!is_stepped || unsettled);
    Ok(Stopped { attempt, ran_us, cause, may_have_acted, stuck, output: stop.output.map(Into::into) })
}

/// Keeps what the attempt says, behind what earlier ones of the task have said.
async fn keep_log(held: &Held, signal: &AttemptSignal, attempt: AttemptNo) -> Result<(), Lost> {
    let (store, limits) = (&*held.on.rt.store, &held.on.rt.limits);
    let session = held.on.session.lane.session();
    if held.call.task.is_none() || attempt.0 <= 1 {
        signal.keep_log(AttemptLog::new(limits));
        return Ok(());
    }
    match AttemptLog::read(store, session, held.id, limits).await {
        Ok(log) => signal.keep_log(log),
        Err(SessionError::Lost(lost)) => return Err(lost),
        Err(error) => {
            tracing::error!(call = %held.id, error = %chain(&error), "the log of a task cannot be read, and is not continued");
            return Ok(());
        }
    }
    signal.log(Stream::Windlass, format!("attempt {attempt} begins\n").as_bytes());
    Ok(())
}

/// The outcome of a watched attempt.
enum Watched {
    Ran(Ran),
    /// All it does is wait.
    Waits,
    Stopped(AttemptStop),
}

struct AttemptStop {
    cause: Cause,
    /// The reason of the tool, if it ended its call as cancelled by itself.
    by_itself: Option<Arc<str>>,
    may_have_acted: bool,
    stuck: bool,
    output: Option<String>,
}

/// Runs the tool where its flags say, and stops it when its time is up or somebody asked for that.
async fn watch(held: &Held, tool: &Arc<Registered>, args: Value, frame: AttemptFrame) -> Watched {
    // Whoever waits for a sleep or an answer is not quick.
    let is_quick = tool.spec.flags.quick && tool.class != EffectClass::Stepped;
    if !is_quick {
        return Box::pin(watch_elsewhere(held, tool, args, frame)).await;
    }
    let (signal, began_us) = (frame.signal.clone(), frame.began_us);
    let cx = context(held, frame);
    if held.on.batch.is_cancelled(held.id.ordinal) {
        return Watched::stopped(Cause::Cancel, &signal, StoppedRemains::NeverStarted);
    }
    let mut attempt = pin!(in_place(caught(|| tool.tool.run(args, &cx))));
    // Most quick tools are done at once, and need no deadline.
    if let Some(ran) = poll_once(attempt.as_mut()).await {
        return Watched::ran(without_secrets(held, ran), &signal);
    }
    match Box::pin(supervise(held, attempt, &signal, began_us)).await {
        Ok(ran) => Watched::ran(without_secrets(held, ran), &signal),
        Err(cause) => Watched::stopped(cause, &signal, StoppedRemains::Dropped),
    }
}

/// An error without secrets, before anything of it is cut off.
#[inline]
fn without_secrets(held: &Held, mut ran: Ran) -> Ran {
    if let Ran::Returned(Err(error)) = &mut ran
        && held.on.rt.secrets.is_used()
        && let Some(known) = held.on.session.lane.vault().known()
    {
        scrub_error(&known, error);
    }
    ran
}

/// Runs the tool on a thread for tools.
async fn watch_elsewhere(held: &Held, tool: &Arc<Registered>, args: Value, frame: AttemptFrame) -> Watched {
    let (signal, began_us) = (frame.signal.clone(), frame.began_us);
    let cx = context(held, frame);
    let batch = &held.on.batch;
    // Where siblings decide, it can be told to stop from before it starts: it never runs once its cancel is recorded.
    let early =
        (!tool.spec.flags.quick && batch.asks_of_siblings()).then(|| batch.runs(held.id.ordinal, &signal));
    if batch.is_cancelled(held.id.ordinal) {
        return Watched::stopped(Cause::Cancel, &signal, StoppedRemains::NeverStarted);
    }
    let unless_told = early.is_some().then(|| signal.clone());
    let mut attempt = match threads::start(&held.on.rt, tool, args, cx, unless_told) {
        Ok(attempt) => attempt,
        Err(error) => {
            return Watched::Ran(Ran::Returned(Err(ToolError::internal(format!("no threads: {error}")))));
        }
    };
    let supervised = {
        let returned = pin!(attempt.returned());
        supervise(held, returned, &signal, began_us).await
    };
    match supervised {
        Ok(ran) => Watched::ran(without_secrets(held, ran), &signal),
        Err(cause) => {
            let rt = &held.on.rt;
            let wait_until = crate::session::held::due_us(rt.clock.elapsed_us(), rt.limits.stop_wait_ms);
            let left = if attempt.give_up(rt, wait_until).await {
                StoppedRemains::Stuck
            } else {
                StoppedRemains::Dropped
            };
            Watched::stopped(cause, &signal, left)
        }
    }
}

/// A tool's reason for ending its call lies in the journal.
const CANCEL_REASON_CHARS_MAX: usize = 900;

/// How a stopped attempt was left.
#[derive(PartialEq)]
enum StoppedRemains {
    NeverStarted,
    Dropped,
    Stuck,
}

impl Watched {
    fn stopped(cause: Cause, signal: &AttemptSignal, left: StoppedRemains) -> Watched {
        let (may_have_acted, stuck) = (left != StoppedRemains::NeverStarted, left == StoppedRemains::Stuck);
        let output = signal.last_output();
        Watched::Stopped(AttemptStop { cause, by_itself: None, may_have_acted, stuck, output })
    }

    /// A result in time counts, unless the tool says that it only stopped because it was asked to.
    #[inline]
    fn ran(ran: Ran, signal: &AttemptSignal) -> Watched {
        match ran {
            Ran::Returned(Err(error)) => Watched::failed(error, signal),
            Ran::Waits => Watched::Waits,
            Ran::Returned(Ok(_)) | Ran::Panicked(_) => Watched::Ran(ran),
        }
    }

    #[cold]
    fn failed(error: ToolError, signal: &AttemptSignal) -> Watched {
        let (cause, by_itself) = match signal.cause() {
            Some(cause) if error.stopped || error.aborted || error.cancelled => (cause, None),
            None if error.cancelled => {
                let reason = error.message.chars().take(CANCEL_REASON_CHARS_MAX).collect::<String>();
                (Cause::Cancel, Some(format!("the tool itself: {reason}").into()))
            }
            Some(_) | None => return Watched::Ran(Ran::Returned(Err(error))),
        };
        let (may_have_acted, output) = (!error.did_not_happen, signal.last_output());
        Watched::Stopped(AttemptStop { cause, by_itself, may_have_acted, stuck: false, output })
    }
}

/// Why what runs in child sessions of an attempt is told to stop with it.
const OPENER_STOPPED: &str = "the call that opened the session was told to stop";

/// Waits for the attempt; tells it to stop when it is time; gives it up when its grace is over.
async fn supervise<F: Future<Output = Ran>>(
    held: &Held,
    mut attempt: std::pin::Pin<&mut F>,
    signal: &Arc<AttemptSignal>,
    began_us: u64,
) -> Result<Ran, Cause> {
    let (rt, mut logged_us) = (&held.on.rt, 0);
    let _runs = runs(held, signal);
    if signal.book.is_waiting_inside() {
        // What changed before it could be found.
        still::look(rt, &held.on.session, held.id);
    }
    let cause = loop {
        let is_task = held.call.task.is_some() || signal.book.is_detached();
        let rules = rules_now(held, is_task);
        let LatestEnd { attempt_us: due_us, total_us } = held.latest_end(began_us, &rules);
        let silent_us = crate::session::held::due_us(signal.alive_us(), rules.silence_ms);
        let stands_still = signal.book.stands_still();
        let late_us = due_us.saturating_add(signal.book.excused_us(rt.clock.elapsed_us()));
        let stops_us = if stands_still { u64::MAX } else { late_us.min(silent_us) };
        let log_us = match is_task && signal.has_unwritten_log() {
            true => crate::session::held::due_us(logged_us, rt.limits.log_write_ms),
            false => u64::MAX,
        };
        let inline_us = if is_task { u64::MAX } else { patience::due_us(held) };
        let wakes_us = stops_us.min(inline_us).min(log_us);
        tokio::select! {
            biased;
            ran = attempt.as_mut() => return Ok(ran),
            cause = signal.stop_requested() => break cause,
            () = signal.book.rung() => {
                if signal.book.hear(&held.on.batch, held.id.ordinal, rt.clock.now()) {
                    // If that cannot be recorded, neither can what comes after it.
                    if let Err(lost) = signal.book.commit(&held.on.batch, &held.on.session.lane).await {
                        rt.closed(held.on.session.lose(rt, lost));
                    }
                }
            }
            () = signal.book.goes_on(), if stands_still => {}
            () = rt.wheel.until(wakes_us), if wakes_us < u64::MAX => {
                let now_us = rt.clock.elapsed_us();
                if now_us >= log_us {
                    logged_us = now_us;
                    let rows = signal.log_rows(held.id, rt.clock.now());
                    // If that cannot be written, neither can its end.
                    if let Err(lost) = held.on.session.lane.commit_rows(rows).await {
                        rt.closed(held.on.session.lose(rt, lost));
                    }
                    continue;
                }
                if now_us >= inline_us {
                    Box::pin(background::detach_running(held, signal)).await;
                    continue;
                }
                if now_us >= due_us.saturating_add(signal.book.excused_us(now_us)) {
                    signal.stop(if due_us >= total_us { Cause::Total } else { Cause::Attempt });
                } else if signal.book.is_waiting() {
                    // What it waits for by name has a deadline of its own.
                    signal.alive(now_us);
                } else if now_us >= crate::session::held::due_us(signal.alive_us(), rules.silence_ms) {
                    signal.stop(Cause::Silence);
                }
            }
        }
    };
    moment!("at.stop");
    if signal.book.has_called() {
        nested::tell_to_stop(&held.on, held.id, Some(cause));
    }
    // What it runs in sessions of its own goes on for the next attempt, if there may be one.
    if matches!(cause, Cause::Cancel | Cause::Total) {
        rt.stop_children(&held.on.session, signal.book.children(), OPENER_STOPPED);
    }
    let grace_us = crate::session::held::due_us(rt.clock.elapsed_us(), held.rules().grace_ms);
    tokio::select! {
        biased;
        ran = attempt => Ok(ran),
        () = rt.wheel.until(grace_us) => Err(cause),
    }
}

/// The rules of a running attempt, whose call, or one around it, may have become a task since it began: then the deadlines
/// of a task count from its start.
fn rules_now(held: &Held, is_task: bool) -> Rules {
    let (parent, is_long) = (held.on.batch.head.parent, held.on.batch.head.task_deadlines);
    let detached = is_task || is_long || parent.is_some_and(|parent| held.on.session.is_in_task(parent));
    if detached { held.own_rules().for_task() } else { held.own_rules() }
}

/// From now on the attempt can be told to stop, and whoever follows is told that it runs, unless the journal says so.
fn runs<'a>(held: &'a Held, signal: &Arc<AttemptSignal>) -> AttemptRun<'a> {
    let runs = held.on.batch.runs(held.id.ordinal, signal);
    let feed = held.on.session.lane.feed();
    feed.changed();
    if feed.is_followed()
        && let Some(running) = signal.unrecorded(&*held.on.rt.clock)
    {
        feed.running(held.id, running);
    }
    runs
}

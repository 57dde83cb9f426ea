//! Run the tool once: commit the intent, run, note the end.

use crate::artifacts::Artifacts;
use crate::background;
use crate::children;
use crate::drive::poll_once;
use crate::error::{BatchError, Lost, chain};
use crate::gate::Gate;
use crate::held::{Held, due_us};
use crate::inside::{CompletionKey, Left as LeftBehind, Pending, nested, still};
use crate::log::{Log, Stream};
use crate::registry::{Found, Registered};
use crate::signal::Signal;
use crate::stage::{prepare, result, settle};
use crate::threads::{Ran, Threads, caught, in_place};
use crate::tool::{Connection, Cx, Output, ToolError};
use crate::turns::Turns;
use serde_json::Value;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use windlass_core::call::{
    Accepted, Begins, Cause, Fact, Intent, Parked, Reason, Result as Attempted, Returned, Start, Stopped,
    Suspended, Then, Unconnected,
};
use windlass_core::code::Code;
use windlass_core::failure::{Failure, FailureClass, Source};
use windlass_core::handle::completion_key;
use windlass_core::ids::AttemptNo;
use windlass_core::operation::{CLIENT, Did, Operation, Until};
use windlass_core::time::Timestamp;
use windlass_core::tool::EffectClass;

/// Whether the call can go on with its tool.
pub(crate) enum Pinned {
    /// It can, with this one.
    Tool(Arc<Registered>),
    /// The tool has changed, and the call was never started: it is prepared anew.
    Again,
    /// It waits for its tool.
    Wait(Reason),
}

/// Finds the tool the call is pinned to, as it is registered now.
pub(crate) async fn pin(held: &mut Held) -> Result<Pinned, Lost> {
    let registry = &held.on.rt.registry;
    let generation = registry.generation();
    held.looked_generation = generation;
    let tool = match &held.tool {
        Some(tool) if held.seen_generation == generation => tool.clone(),
        _ => match registry.look_up(&held.on.batch.head.place, &held.call.opened.tool).await {
            Found::Tool(tool) => tool,
            // A provider that fails now may give it later.
            Found::Missing { .. } | Found::Unavailable(_) => return Ok(Pinned::Wait(Reason::NoSuchTool)),
        },
    };
    if tool.is_paused() {
        return Ok(Pinned::Wait(Reason::ToolPaused));
    }
    if held.call.pin.is_some_and(|pin| pin.contract == tool.contract) {
        held.seen_generation = generation;
        held.tool = Some(tool.clone());
        return Ok(Pinned::Tool(tool));
    }
    if held.call.attempts == 0 {
        return Ok(Pinned::Again);
    }
    if !std::mem::take(&mut held.accepted) {
        return Ok(Pinned::Wait(Reason::ToolChanged));
    }
    let (contract, class, reconciles) = (tool.contract, tool.class, tool.reconciles);
    held.note(Fact::Accepted(Accepted { contract, class, reconciles }))?;
    held.tool = Some(tool.clone());
    Ok(Pinned::Tool(tool))
}

/// Runs the tool once. `now_us`: when the call had its turn.
pub(crate) async fn run(
    held: &mut Held,
    tool: &Arc<Registered>,
    (start, now_us): (Start, u64),
) -> Result<(), Lost> {
    let rt = held.on.rt.clone();
    if tool.stuck.load(Ordering::Relaxed) >= rt.limits.stuck_attempts_max {
        return settle::refused(held, Box::new(too_many_stuck(tool)));
    }
    let is_suspect = held.call.is_suspect() && !windlass_core::mutant::breaks("suspects-together");
    let passage = Gate::try_pass(&rt, is_suspect);
    // It begins when it has its turn, unless it waits for something more.
    let mut began_us = passage.is_some().then_some(now_us);
    let _passage = match passage {
        Some(passage) => passage,
        None => Box::pin(Gate::pass(&rt, held, is_suspect)).await,
    };
    let (Start { attempt, intent, begins }, due_at) = (start, held.decision_time());
    let jump = clock_jump(held);
    held.note(start.fact(jump))?;
    if (intent == Intent::First && !windlass_core::mutant::breaks("no-intent")) || rt.is_careful() {
        // Boxed, as all that is rare here, so that those that return at once need no room for it.
        Box::pin(held.commit()).await?;
        began_us = None;
    }
    let args = arguments(held);
    let began_us = began_us.unwrap_or_else(|| rt.clock.elapsed_us());
    moment!("at.start");
    let frame = Frame::new(held, attempt, begins == Begins::Redriven, began_us);
    let signal = frame.signal.clone();
    if tool.spec.flags.background {
        Box::pin(keep_log(held, (&signal, attempt))).await?;
    }
    signal.book.lend(held, due_at);
    let watched = match args {
        Ok(args) => watch(held, tool, args, frame).await,
        // Prepared arguments were parsed before; that they cannot be parsed now is ours to explain.
        Err(failure) => Watched::Ran(Ran::Returned(Err(ToolError::internal(failure.message)))),
    };
    let ended_us = rt.clock.elapsed_us();
    let ran_us = ended_us.saturating_sub(began_us);
    let left = signal.book.take_back(held);
    if held.call.task.is_some() {
        held.carry(signal.log_rows(held.id, rt.clock.now()));
    }
    // All its clocks stood still then.
    held.past.since_us = held.past.since_us.saturating_add(signal.book.excused_us(ended_us));
    Turns::ran(held, ended_us);
    moment!("at.end");
    if nested::has_called(held) && !matches!(watched, Watched::Waits) {
        // Boxed, so that those that call nothing need no room for it.
        Box::pin(nested::end_open(held, signal.cause())).await?;
    }
    let fact = match watched {
        Watched::Waits => return Box::pin(put_aside(held, (attempt, ran_us), left)).await,
        Watched::Ran(Ran::Returned(Ok(Output { pending: Some(pending), .. }))) => {
            return Box::pin(leave(held, tool, (attempt, ran_us), *pending)).await;
        }
        Watched::Ran(Ran::Returned(Err(ToolError { connection: Some(connection), .. }))) => {
            return Box::pin(wait_for_connection(held, (attempt, ran_us), *connection)).await;
        }
        Watched::Ran(ran) => {
            let result = match result::of(held, tool, ran) {
                Ok(result) => result,
                Err(waits) => waits.await,
            };
            Fact::Returned(Returned { attempt, ran_us, result })
        }
        Watched::Stopped(stop) => {
            Fact::Stopped(stopped((held, tool), (attempt, ran_us), stop, left.unsettled)?)
        }
    };
    held.spare.signal = Some(signal);
    held.begin_stage();
    // Who asked for the stop stands before it in the story.
    held.hear()?;
    held.note(fact)
}

/// What the tool is given: as it was prepared, or from the record.
fn arguments(held: &mut Held) -> Result<Value, Box<Failure>> {
    match held.parsed.take() {
        Some(Ok(parsed)) => Ok(parsed.value),
        Some(Err(_)) | None => prepare::parse(held).map(|parsed| parsed.value),
    }
}

/// An attempt was stopped, maybe with a step under way.
fn stopped(
    (held, tool): (&Held, &Registered),
    (attempt, ran_us): (AttemptNo, u64),
    stop: Stop,
    unsettled: bool,
) -> Result<Stopped, Lost> {
    // Then it was told to stop because of that, and nothing is to be said of it.
    if let Some(lost) = held.on.session.lane.lost() {
        return Err(lost);
    }
    let Stop { cause, stuck, .. } = stop;
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
async fn keep_log(held: &Held, (signal, attempt): (&Signal, AttemptNo)) -> Result<(), Lost> {
    let (store, limits) = (&*held.on.rt.store, &held.on.rt.limits);
    let session = held.on.session.lane.session();
    if held.call.task.is_none() || attempt.0 <= 1 {
        signal.keep_log(Log::new(limits));
        return Ok(());
    }
    match Log::read(store, (session, held.id), limits).await {
        Ok(log) => signal.keep_log(log),
        Err(BatchError::Lost(lost)) => return Err(lost),
        Err(error) => {
            tracing::error!(call = %held.id, error = %chain(&error), "the log of a task cannot be read, and is not continued");
            return Ok(());
        }
    }
    signal.log(Stream::Windlass, format!("attempt {attempt} begins\n").as_bytes());
    Ok(())
}

/// Puts an attempt aside whose body only waits. Its body runs again when something that it waits for is over.
async fn put_aside(
    held: &mut Held,
    (attempt, ran_us): (AttemptNo, u64),
    left: LeftBehind,
) -> Result<(), Lost> {
    held.begin_stage();
    let parked = parked(held, &left.waits);
    let suspended = Suspended { attempt, ran_us, parked, waits: left.waits, then: Then::Replay };
    held.note(Fact::Suspended(Box::new(suspended)))?;
    held.commit().await
}

/// What a call with these waits waits for, until when at most.
fn parked(held: &Held, waits: &[Arc<str>]) -> Parked {
    let now = held.now();
    let mut parked = Parked { reason: Reason::Sleep, wake_at: Timestamp(i64::MAX), length_us: u64::MAX };
    let Some(operations) = held.call.operations.as_deref() else { return parked };
    for name in waits {
        let until = match operations.sleep(name) {
            Ok(Some((until, _))) => until,
            Ok(None) | Err(_) => {
                // Of several things it waits for, a person can do something about a question.
                if parked.reason != Reason::Input {
                    parked.reason = match &**name {
                        CLIENT => Reason::Client,
                        name if operations.is_question(name) => Reason::Input,
                        name if operations.is_signal(name) => Reason::Signal,
                        _ => Reason::Completion,
                    };
                }
                let Some(until) = operations.wait(name).0 else { continue };
                until
            }
        };
        parked.wake_at = parked.wake_at.min(until.wake_at);
        parked.length_us = parked.length_us.min(until.wake_at.since(now).min(until.length_us));
    }
    parked
}

/// The tool has returned, and leaves the rest to the world outside.
async fn leave(
    held: &mut Held,
    tool: &Registered,
    (attempt, ran_us): (AttemptNo, u64),
    pending: Pending,
) -> Result<(), Lost> {
    held.begin_stage();
    let Some(name) = pending.key.as_ref().and_then(|key| own_name(held, key)) else {
        let result = Attempted::Failed(Box::new(without_key(tool)));
        return held.note(Fact::Returned(Returned { attempt, ran_us, result }));
    };
    let length = pending.deadline.unwrap_or(Duration::from_millis(held.on.rt.limits.completion_ms));
    let length_us = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
    let wake_at = Timestamp(held.now().0.saturating_add(i64::try_from(length_us).unwrap_or(i64::MAX)));
    let begun = Operation { name: name.clone(), did: Did::WaitBegan(Until { wake_at, length_us }) };
    // It may have waited for the same answer in its body, or the answer may be there.
    if held.call.takes(&begun) {
        held.note(Fact::Operation(Box::new(begun)))?;
    }
    let waits = vec![name];
    let parked = match parked(held, &waits) {
        // Answered before anybody waited for it.
        Parked { wake_at: Timestamp(i64::MAX), reason, .. } => Parked { reason, wake_at, length_us },
        parked => parked,
    };
    let suspended = Suspended { attempt, ran_us, parked, waits, then: Then::Return };
    held.note(Fact::Suspended(Box::new(suspended)))?;
    held.commit().await
}

/// The attempt did nothing, and is made anew once its session is connected.
async fn wait_for_connection(
    held: &mut Held,
    (attempt, ran_us): (AttemptNo, u64),
    Connection { provider, setup_url }: Connection,
) -> Result<(), Lost> {
    held.begin_stage();
    let limits = &held.on.rt.limits;
    let fits = |text: &str, max: u64| (1..=max).contains(&(text.chars().count() as u64));
    if !fits(&provider, limits.provider_chars_max)
        || setup_url.as_ref().is_some_and(|url| !fits(url, limits.setup_url_chars_max))
    {
        let what = "the provider of a connection or its setup URL is empty or too long".to_string();
        let result = Attempted::Failed(Box::new(result::internal(held, Code::Internal, what)));
        return held.note(Fact::Returned(Returned { attempt, ran_us, result }));
    }
    let length_us = limits.completion_ms.saturating_mul(1_000);
    let wake_at = Timestamp(held.now().0.saturating_add(i64::try_from(length_us).unwrap_or(i64::MAX)));
    let parked = Parked { reason: Reason::Connection, wake_at, length_us };
    let (provider, setup_url) = (provider.into(), setup_url.map(Into::into));
    let said = Unconnected { attempt, ran_us, parked, provider, setup_url };
    held.note(Fact::Unconnected(Box::new(said)))?;
    held.commit().await
}

/// The name of this key, if the call has given it out.
fn own_name(held: &Held, key: &CompletionKey) -> Option<Arc<str>> {
    let own = completion_key(held.on.rt.store.secret(), held.id, key.name()) == key.as_str();
    let taken = held.call.operations.as_deref()?.has_key(key.name()) == Ok(true);
    (own && taken).then(|| key.name().clone())
}

fn without_key(tool: &Registered) -> Failure {
    let message = format!(
        "The tool {:?} said that its result comes later, without a key of this call by which it could come.",
        tool.spec.name
    );
    Failure {
        class: FailureClass::Execution,
        source: Source::Tool,
        detail: Some(
            "the key is taken first: with Cx::completion, by a command with `completion = true` in windlass.toml"
                .to_string(),
        ),
        ..Failure::invalid_request(Code::PendingWithoutKey, message)
    }
}

/// What became of an attempt that was watched.
enum Watched {
    Ran(Ran),
    /// All it does is wait.
    Waits,
    Stopped(Stop),
}

struct Stop {
    cause: Cause,
    may_have_acted: bool,
    stuck: bool,
    output: Option<String>,
}

/// What one attempt is given.
pub(crate) struct Frame {
    pub(crate) attempt: AttemptNo,
    pub(crate) redrive: bool,
    /// When it must be over, by the clock that never jumps.
    pub(crate) due_us: u64,
    pub(crate) signal: Arc<Signal>,
}

impl Frame {
    fn new(held: &mut Held, attempt: AttemptNo, redrive: bool, now_us: u64) -> Frame {
        let due_us = due_us(now_us, held.call.rules().attempt_ms).min(held.total_due_us());
        Frame { attempt, redrive, due_us, signal: Signal::anew(held.spare.signal.take(), now_us) }
    }
}

/// Runs the tool where its flags say, and stops it when its time is up or somebody asked for that.
async fn watch(held: &Held, tool: &Arc<Registered>, args: Value, frame: Frame) -> Watched {
    // Whoever waits for a sleep or an answer is not quick.
    let is_quick = tool.spec.flags.quick && tool.class != EffectClass::Stepped;
    if !is_quick {
        return Box::pin(watch_elsewhere(held, tool, args, frame)).await;
    }
    let (signal, due_us) = (frame.signal.clone(), frame.due_us);
    let cx = context(held, frame);
    if held.on.batch.is_cancelled(held.id.ordinal) {
        return Watched::stopped(Cause::Cancel, &signal, Left::NeverStarted);
    }
    let mut attempt = pin!(in_place(caught(|| tool.tool.run(args, &cx))));
    // Most quick tools are done at once, and need no deadline.
    if let Some(ran) = poll_once(attempt.as_mut()).await {
        return Watched::ran(ran, &signal);
    }
    match Box::pin(supervise(held, attempt, (&signal, due_us))).await {
        Ok(ran) => Watched::ran(ran, &signal),
        Err(cause) => Watched::stopped(cause, &signal, Left::Dropped),
    }
}

/// Runs the tool on a thread for tools.
async fn watch_elsewhere(held: &Held, tool: &Arc<Registered>, args: Value, frame: Frame) -> Watched {
    let (signal, due_us) = (frame.signal.clone(), frame.due_us);
    let cx = context(held, frame);
    let batch = &held.on.batch;
    // Where siblings decide, it can be told to stop from before it starts: it never runs once its cancel is recorded.
    let early =
        (!tool.spec.flags.quick && batch.asks_of_siblings()).then(|| batch.runs(held.id.ordinal, &signal));
    if batch.is_cancelled(held.id.ordinal) {
        return Watched::stopped(Cause::Cancel, &signal, Left::NeverStarted);
    }
    let unless_told = early.is_some().then(|| signal.clone());
    let mut attempt = match Threads::start(&held.on.rt, tool, args, (cx, unless_told)) {
        Ok(attempt) => attempt,
        Err(error) => {
            return Watched::Ran(Ran::Returned(Err(ToolError::internal(format!("no threads: {error}")))));
        }
    };
    let supervised = {
        let returned = pin!(attempt.returned());
        supervise(held, returned, (&signal, due_us)).await
    };
    match supervised {
        Ok(ran) => Watched::ran(ran, &signal),
        Err(cause) => {
            let rt = &held.on.rt;
            let wait_until = crate::held::due_us(rt.clock.elapsed_us(), rt.limits.stop_wait_ms);
            let left = if attempt.give_up(rt, wait_until).await { Left::Stuck } else { Left::Dropped };
            Watched::stopped(cause, &signal, left)
        }
    }
}

/// How a stopped attempt was left.
#[derive(PartialEq)]
enum Left {
    NeverStarted,
    Dropped,
    Stuck,
}

impl Watched {
    fn stopped(cause: Cause, signal: &Signal, left: Left) -> Watched {
        let (may_have_acted, stuck) = (left != Left::NeverStarted, left == Left::Stuck);
        Watched::Stopped(Stop { cause, may_have_acted, stuck, output: signal.last_output() })
    }

    /// What the tool returned in time counts, unless it says that it only stopped because it was told to.
    fn ran(ran: Ran, signal: &Signal) -> Watched {
        match (ran, signal.cause()) {
            (Ran::Returned(Err(error)), Some(cause)) if error.stopped => Watched::Stopped(Stop {
                cause,
                may_have_acted: !error.did_not_happen,
                stuck: false,
                output: signal.last_output(),
            }),
            (Ran::Waits, _) => Watched::Waits,
            (ran, _) => Watched::Ran(ran),
        }
    }
}

/// Waits for the attempt; tells it to stop when it is time; gives it up when its grace is over.
async fn supervise<F: Future<Output = Ran>>(
    held: &Held,
    mut attempt: std::pin::Pin<&mut F>,
    (signal, due_us): (&Arc<Signal>, u64),
) -> Result<Ran, Cause> {
    let (rt, rules) = (&held.on.rt, held.call.rules());
    let _runs = held.on.batch.runs(held.id.ordinal, signal);
    if signal.book.is_waiting_inside() {
        // What changed before it could be found.
        still::look(rt, &held.on.session, held.id);
    }
    let mut logged_us = 0;
    let cause = loop {
        let silent_us = crate::held::due_us(signal.alive_us(), rules.silence_ms);
        let stands_still = signal.book.stands_still();
        let late_us = due_us.saturating_add(signal.book.excused_us(rt.clock.elapsed_us()));
        let stops_us = if stands_still { u64::MAX } else { late_us.min(silent_us) };
        let is_task = held.call.task.is_some() || signal.book.is_detached();
        let log_us = match is_task && signal.has_unwritten_log() {
            true => crate::held::due_us(logged_us, rt.limits.log_write_ms),
            false => u64::MAX,
        };
        let inline_us = if is_task { u64::MAX } else { background::due_us(held) };
        let wakes_us = stops_us.min(inline_us).min(log_us);
        tokio::select! {
            biased;
            ran = attempt.as_mut() => return Ok(ran),
            cause = signal.told() => break cause,
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
                let total = held.total_due_us();
                if now_us >= due_us.saturating_add(signal.book.excused_us(now_us)) {
                    signal.stop(if due_us >= total { Cause::Total } else { Cause::Attempt });
                } else if signal.book.is_waiting_inside() {
                    // Those it waits for have deadlines of their own.
                    signal.alive(now_us);
                } else if now_us >= crate::held::due_us(signal.alive_us(), rules.silence_ms) {
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
        children::stop_soon(rt, signal.book.children(), "the call that opened the session was told to stop");
    }
    let grace_us = crate::held::due_us(rt.clock.elapsed_us(), rules.grace_ms);
    tokio::select! {
        biased;
        ran = attempt => Ok(ran),
        () = rt.wheel.until(grace_us) => Err(cause),
    }
}

pub(crate) fn context(held: &Held, frame: Frame) -> Cx {
    let rules = held.call.rules();
    Cx {
        call: held.id,
        id: held.call.opened.id.clone(),
        attempt: frame.attempt,
        attempts_max: rules.attempts,
        redrive: frame.redrive,
        batch: held.on.batch.clone(),
        artifacts: Artifacts::new(held.on.session.lane.clone()),
        wheel: held.on.rt.wheel.clone(),
        hold: Arc::downgrade(&held.on),
        made: held.call.made.clone(),
        kinds: held.tool.as_ref().and_then(|tool| tool.kinds.clone()),
        is_put_aside: held.call.class() == Some(EffectClass::Stepped),
        due_us: frame.due_us,
        total_due_us: held.total_due_us(),
        grace_ms: rules.grace_ms,
        signal: frame.signal,
    }
}

/// By how much the wall clock jumped while the call was parked, if that is worth telling. What it waits for next is another wait.
fn clock_jump(held: &mut Held) -> Option<i64> {
    let (parked_at, parked_us) = held.past.parked_at.take()?;
    let clock = &held.on.rt.clock;
    let passed = i64::try_from(clock.elapsed_us().saturating_sub(parked_us)).unwrap_or(i64::MAX);
    let jump = clock.now().0.saturating_sub(parked_at.0).saturating_sub(passed);
    let most = held.on.rt.limits.clock_jump_ms.saturating_mul(1_000);
    (jump.unsigned_abs() > most).then_some(jump)
}

fn too_many_stuck(tool: &Registered) -> Failure {
    let message = format!(
        "The tool {:?} does not stop when it is told to, and too many of its calls still hang. Do without it.",
        tool.spec.name
    );
    Failure {
        class: FailureClass::ResourceLimit,
        source: Source::Runtime,
        did_not_happen: true,
        ..Failure::invalid_request(Code::ToolStuck, message)
    }
}

//! A call in the hands of whoever drives it: its state, and what it has noted and not yet committed.

use crate::away::Stub;
use crate::batch::{self, Heard, Used};
use crate::error::Lost;
use crate::registry::Registered;
use crate::request::Parsed;
use crate::runtime::Inner;
use crate::same::Answer;
use crate::session::Session;
use crate::signal::Signal;
use crate::wheel::{Alarm, When};
use std::sync::Arc;
use tokio::sync::mpsc;
use windlass_core::attempt::{Deadline, Rules};
use windlass_core::call::{Call, CancelAsked, Connected, Fact, Opened, State, Step};
use windlass_core::entry::Packer;
use windlass_core::ids::{CallId, Ordinal};
use windlass_core::json::Problem;
use windlass_core::loops::Loop;
use windlass_core::operation::{Did, Operation, Operations, signal_slot};
use windlass_core::outcome::ModelAnswer;
use windlass_core::plan::Wants;
use windlass_core::siblings::Decision;
use windlass_core::time::Timestamp;
use windlass_store::Row;

/// A call that is being driven, by this holder alone.
pub(crate) struct Held {
    pub(crate) on: Arc<Hold>,
    pub(crate) id: CallId,
    /// Nobody else has it before it has ended: then it is shared as it is, and not moved.
    pub(crate) call: Arc<Call>,
    /// Its tool, once prepared in this process.
    pub(crate) tool: Option<Arc<Registered>>,
    /// Its arguments, or what is wrong with them, while they need not be read from the journal.
    pub(crate) parsed: Option<Result<Parsed, Problem>>,
    /// What it claims, once prepared in this process and until the planner is told.
    pub(crate) claims: Option<Wants>,
    /// Whether the planner knows it: then it is told of its end.
    pub(crate) entered: bool,
    /// Whether the planner knows what it claims.
    pub(crate) claimed: bool,
    /// The loop that it only goes on with: then it is answered instead of run.
    pub(crate) goes_on_with: Option<Loop>,
    /// What the model is told, where it was made from a value that is kept beside the journal.
    pub(crate) model: Option<ModelAnswer>,
    /// How the call ended that it is the same as.
    pub(crate) answer: Option<Arc<Answer>>,
    /// What its past in this process means for it.
    pub(crate) past: Past,
    /// Whether an operator lets it go on under what its tool has become.
    pub(crate) accepted: bool,
    /// Whether it waits for its tool before it is prepared.
    pub(crate) waits_for_tool: bool,
    /// The registry when its tool was last looked for: what changes later wakes whoever waits for it.
    pub(crate) looked_generation: u64,
    /// The registry when its tool was last found: one that has not changed since has the same.
    pub(crate) seen_generation: u64,
    /// Whoever asked something of it waits until these are dropped: then it is recorded.
    acks: Vec<Ack>,
    /// When the stage it is in began: what is noted there is noted then.
    at: Timestamp,
    /// Packed at once, since whoever waits for a turn or an answer should take little room.
    notes: Packer,
    rows: Vec<Row>,
    /// What the call before it was done with.
    pub(crate) spare: Spare,
}

/// What one call after the other uses, as long as they are driven one after the other.
#[derive(Default)]
pub(crate) struct Spare {
    /// Empty: memory in which a result is written.
    pub(crate) scratch: String,
    /// The signal of an attempt that is over.
    pub(crate) signal: Option<Arc<Signal>>,
    /// The tool of a call that asked for it under the same name, and the registry when it was found.
    tool: Option<(Arc<Registered>, u64)>,
}

/// Dropped when what was asked is recorded.
pub(crate) type Ack = mpsc::Sender<()>;

/// What a call's past in this process means for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Past {
    /// Since when this process has it, by the clock that never jumps.
    pub(crate) since_us: u64,
    /// How long earlier owners had it; time in which nobody did is not counted.
    pub(crate) counted_us: u64,
    /// Whether it was submitted to this runtime, rather than taken over.
    pub(crate) fresh: bool,
    /// Whether it may have waited so long that a deadline has passed.
    pub(crate) waited: bool,
    /// When it was first parked since its last attempt, by the wall clock and by the one that never jumps.
    pub(crate) parked_at: Option<(Timestamp, u64)>,
}

impl Past {
    /// When so many milliseconds of the call's time have passed.
    pub(crate) fn due_us(&self, ms: u64) -> u64 {
        self.since_us.saturating_add(ms.saturating_mul(1_000).saturating_sub(self.counted_us))
    }
}

/// A call that was just submitted, until it is driven: then it takes the room of a [`Held`], and mostly gives it back
/// before the next one does.
pub(crate) struct Fresh {
    pub(crate) id: CallId,
    pub(crate) opened: Opened,
    pub(crate) parsed: Option<Result<Parsed, Problem>>,
    pub(crate) goes_on_with: Option<Loop>,
}

/// Calls that were just submitted together.
pub(crate) struct Submitted {
    pub(crate) on: Arc<Hold>,
    /// When they were.
    pub(crate) at: Timestamp,
    pub(crate) past: Past,
    pub(crate) calls: Vec<Fresh>,
}

impl Submitted {
    /// The calls one after the other, to be driven.
    pub(crate) fn into_calls(self) -> impl Iterator<Item = Box<Held>> {
        let Submitted { on, at, past, calls } = self;
        calls.into_iter().map(move |Fresh { id, opened, parsed, goes_on_with }| {
            let mut held = on.call(id, Arc::new(Call::new(opened, at)), past);
            held.parsed = parsed;
            held.goes_on_with = goes_on_with;
            held
        })
    }
}

/// What goes to the store with the next commit of a batch: what calls have noted, and those of them that ended.
#[derive(Default)]
pub(crate) struct Going {
    pub(crate) notes: Packer,
    /// Empty: the memory in which the next call makes its notes.
    room: Packer,
    /// What the last one that ended is done with.
    spare: Spare,
    pub(crate) rows: Vec<Row>,
    pub(crate) ended: Vec<Ended>,
    /// A call that goes on and of which it is noted that it is to stop.
    pub(crate) cancelled: Option<Ordinal>,
}

/// A call that ended, until that is durable.
pub(crate) struct Ended {
    pub(crate) id: CallId,
    pub(crate) call: Arc<Call>,
    /// Whether it was submitted to this runtime, rather than taken over.
    pub(crate) fresh: bool,
    /// Whether its tool is meant to be asked again and again.
    pub(crate) polls: bool,
    /// When.
    pub(crate) at: Timestamp,
    /// Whoever asked something of it waits until these are dropped.
    _acks: Vec<Ack>,
}

impl Going {
    /// Room for the ends of so many calls.
    pub(crate) fn expecting(calls: usize) -> Going {
        let mut going = Going { ended: Vec::with_capacity(calls), ..Going::default() };
        // The notes of one call need not be brought together.
        if calls > 1 {
            going.notes.reserve(calls * NOTES_BYTES);
        }
        going
    }

    /// Gives a call what the one before it is done with: also the memory in which that made its notes, if it has noted
    /// nothing, and the tool, if it asks for the same.
    pub(crate) fn hand_on(&mut self, held: &mut Held) {
        std::mem::swap(&mut held.spare, &mut self.spare);
        let asks_for_same = |last: &Ended| Arc::ptr_eq(&last.call.opened.tool, &held.call.opened.tool);
        if !self.ended.last().is_some_and(asks_for_same) {
            held.spare.tool = None;
        }
        if held.notes.is_empty() {
            std::mem::swap(&mut held.notes, &mut self.room);
        }
    }

    /// A call ended: its end goes with the others.
    pub(crate) fn end(&mut self, held: Box<Held>) {
        let Held { id, call, tool, past, at, acks, mut notes, mut rows, spare, seen_generation, .. } = *held;
        self.notes.append(&mut notes);
        self.room = notes;
        self.rows.append(&mut rows);
        let polls = tool.as_ref().is_some_and(|tool| tool.spec.flags.polls);
        self.spare = Spare { tool: tool.map(|tool| (tool, seen_generation)), ..spare };
        self.ended.push(Ended { id, call, fresh: past.fresh, polls, at, _acks: acks });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ended.is_empty()
    }
}

/// Room for what a call notes until it is first committed.
const NOTES_BYTES: usize = 256;

/// Where calls are driven; one for all that came together.
pub(crate) struct Hold {
    pub(crate) rt: Arc<Inner>,
    pub(crate) session: Arc<Session>,
    pub(crate) batch: Used,
}

impl Hold {
    pub(crate) fn call(self: &Arc<Hold>, id: CallId, call: Arc<Call>, past: Past) -> Box<Held> {
        Box::new(Held {
            on: self.clone(),
            id,
            at: call.opened_at,
            call,
            tool: None,
            parsed: None,
            claims: None,
            entered: false,
            claimed: false,
            goes_on_with: None,
            model: None,
            answer: None,
            past,
            accepted: false,
            waits_for_tool: false,
            looked_generation: 0,
            seen_generation: 0,
            acks: Vec::new(),
            notes: Packer::default(),
            rows: Vec::new(),
            spare: Spare::default(),
        })
    }
}

/// A call that waits. It does not hold on to where it is driven, which holds on to it.
pub(crate) struct Parked {
    id: CallId,
    call: Arc<Call>,
    tool: Option<Arc<Registered>>,
    parsed: Option<Result<Parsed, Problem>>,
    past: Past,
    /// Whoever waits has asked for its turn, so the planner knows it; and maybe what it claims.
    claimed: bool,
    accepted: bool,
    acks: Vec<Ack>,
    notes: Packer,
    rows: Vec<Row>,
    /// What wakes it at the latest.
    pub(crate) alarm: Option<Alarm>,
}

impl Parked {
    pub(crate) fn call(&self) -> &Call {
        &self.call
    }

    pub(crate) fn past(&self) -> &Past {
        &self.past
    }

    /// Whether it may go on without its caller, and does not yet.
    pub(crate) fn may_detach(&self) -> bool {
        self.tool.as_ref().is_some_and(|tool| tool.spec.flags.background) && self.call.task.is_none()
    }

    /// Whether it waits for the world outside or a recorded time, rather than for its turn, its tool or another call.
    pub(crate) fn waits_outside(&self) -> bool {
        matches!(self.call.state, State::Suspended(_) | State::Unconnected { .. } | State::Retrying(_))
    }

    /// Whether it waits for the world outside: that time its own clocks do not count.
    pub(crate) fn waits_for_the_world(&self) -> bool {
        self.call.parked.is_some_and(|(parked, _)| parked.reason.is_outside())
    }

    /// Whether all there is to it is recorded, or known to the planner.
    pub(crate) fn is_recorded(&self) -> bool {
        let Parked { claimed, accepted, acks, notes, rows, .. } = self;
        *claimed && !accepted && acks.is_empty() && notes.is_empty() && rows.is_empty()
    }

    /// Whether it has made nested calls.
    pub(crate) fn has_called(&self) -> bool {
        self.call.operations.as_deref().is_some_and(Operations::has_call)
    }
}

impl Hold {
    /// Goes on with a call that waited.
    pub(crate) fn unpark(self: &Arc<Hold>, parked: Parked) -> Box<Held> {
        let Parked { id, call, tool, parsed, past, claimed, accepted, acks, notes, rows, alarm } = parked;
        if let Some(alarm) = alarm {
            self.rt.wheel.clear(alarm);
        }
        let mut held = self.call(id, call, Past { waited: true, ..past });
        held.parsed = parsed;
        held.tool = tool;
        held.entered = true;
        held.claimed = claimed;
        held.accepted = accepted;
        held.acks = acks;
        held.notes = notes;
        held.rows = rows;
        held
    }
}

impl Held {
    /// Puts the call aside that was read back, as it was before it left memory. The planner knows it.
    pub(crate) fn asleep(self, stub: &Stub) -> Parked {
        let (due_us, wall) = stub.due;
        let alarm = self.on.rt.wheel.alarm(When { due_us, wall: Some(wall) }, &self.on.session, self.id);
        let past = self.past;
        Parked { past, ..self.park(Some(alarm)) }
    }

    /// Puts the call aside until something wakes it.
    pub(crate) fn park(self, alarm: Option<Alarm>) -> Parked {
        let now_us = self.on.rt.clock.elapsed_us();
        let past = Past { parked_at: self.past.parked_at.or(Some((self.at, now_us))), ..self.past };
        let Held { id, call, tool, parsed, claimed, accepted, acks, notes, rows, .. } = self;
        Parked { id, call, tool, parsed, past, claimed, accepted, acks, notes, rows, alarm }
    }

    /// Adds a fact to the call. It is written with the next commit, and nothing is acted on before that.
    pub(crate) fn note(&mut self, fact: Fact) -> Result<(), Lost> {
        let at = self.at;
        self.call_mut().apply(at, &fact).map_err(Lost::Broken)?;
        if self.notes.is_empty() {
            self.notes.reserve(NOTES_BYTES);
        }
        self.notes.fact(at, self.id.ordinal, &fact);
        self.on.rt.meters.noted(self, &fact);
        Ok(())
    }

    /// Notes what was asked of the call meanwhile. Mostly that is nothing.
    #[inline]
    pub(crate) fn hear(&mut self) -> Result<(), Lost> {
        if self.on.batch.was_asked() { self.hear_all() } else { Ok(()) }
    }

    fn hear_all(&mut self) -> Result<(), Lost> {
        for Heard { what, ack } in self.on.batch.hear(self.id.ordinal) {
            match what {
                batch::Asked::Cancel(reason) if self.call.cancel.is_none() && self.call.end().is_none() => {
                    self.note(Fact::CancelAsked(CancelAsked { reason }))?;
                }
                batch::Asked::Cancel(_) => {}
                batch::Asked::Decided(decision) => self.dismissed(decision),
                batch::Asked::Accept => self.accepted = true,
                batch::Asked::Same(answer) => self.answer = Some(answer),
                batch::Asked::Connect { provider, connected } => {
                    if self.call.unconnected().is_some_and(|said| said.provider == provider) {
                        self.note(Fact::Connected(Connected { connected }))?;
                    }
                }
                // Where it stands it finds out at its next step.
                batch::Asked::Look => {}
                batch::Asked::Signal(signal) => {
                    let known = self.call.operations.as_deref();
                    let slot = known.map_or_else(
                        || signal_slot(&signal.name, 1),
                        |operations| operations.next_signal(&signal.name),
                    );
                    let did = Did::Signalled { payload: signal.payload.clone() };
                    let operation = Operation { name: slot.into(), did };
                    // A call that is over receives none.
                    if self.call.takes(&operation) {
                        self.note(Fact::Operation(Box::new(operation)))?;
                    }
                    self.rows.extend(signal.adopt());
                }
                batch::Asked::Complete { name, completion } => {
                    let operation = Operation { name, did: Did::Completed(completion) };
                    // One that comes too late, or twice, changes nothing.
                    if self.call.takes(&operation) {
                        self.note(Fact::Operation(Box::new(operation)))?;
                    }
                }
            }
            self.acks.extend(ack);
        }
        Ok(())
    }

    /// Its batch was decided without it. That is recorded before all it has noted, so nothing is noted.
    pub(crate) fn dismissed(&mut self, decision: Decision) {
        self.call_mut().cancel = Some(batch::cancel(decision));
    }

    /// The call, to be changed by whoever drives it.
    #[inline]
    pub(crate) fn call_mut(&mut self) -> &mut Call {
        Arc::make_mut(&mut self.call)
    }

    /// The tool that the call before it was given, if the registry would give the same now.
    pub(crate) fn spare_tool(&mut self) -> Option<Arc<Registered>> {
        let (tool, generation) = self.spare.tool.take()?;
        (generation == self.seen_generation).then_some(tool)
    }

    /// The call inside which it runs, if it does.
    pub(crate) fn parent(&self) -> Option<CallId> {
        self.on.batch.head.parent.map(|parent| parent.call)
    }

    /// Gives what is noted to an attempt, which may have to record something behind it, and what is written with it.
    pub(crate) fn lend_notes(&mut self, notes: &mut Packer, rows: &mut Vec<Row>) {
        std::mem::swap(&mut self.notes, notes);
        rows.append(&mut self.rows);
    }

    /// Takes back what an attempt left, and who waits until it is recorded.
    pub(crate) fn take_back_notes(&mut self, notes: &mut Packer, acks: &mut Vec<Ack>) {
        std::mem::swap(&mut self.notes, notes);
        self.acks.append(acks);
    }

    /// Adds rows that travel with the next commit.
    pub(crate) fn carry(&mut self, rows: Vec<Row>) {
        self.rows.extend(rows);
    }

    /// Writes what was noted, and waits until it is durable.
    pub(crate) async fn commit(&mut self) -> Result<(), Lost> {
        let mut going = Going {
            notes: std::mem::take(&mut self.notes),
            rows: std::mem::take(&mut self.rows),
            cancelled: self.call.cancel.is_some().then_some(self.id.ordinal),
            ..Going::default()
        };
        let Hold { session, batch, .. } = &*self.on;
        batch.send(&session.lane, &mut going).commit.durable().await?;
        self.acks.clear();
        Ok(())
    }

    /// The rows it carries.
    pub(crate) fn take_rows(&mut self) -> Vec<Row> {
        std::mem::take(&mut self.rows)
    }

    /// A stage begins.
    pub(crate) fn begin_stage(&mut self) {
        self.begin_stage_at(None);
    }

    /// The same; the time need not be asked for if it just was.
    pub(crate) fn begin_stage_at(&mut self, at: Option<Timestamp>) {
        self.at = at.unwrap_or_else(|| self.on.rt.clock.now());
    }

    /// When the stage began.
    pub(crate) fn now(&self) -> Timestamp {
        self.at
    }

    /// The time by which it is decided what is to be done: a call that was parked as long as it was to be is due,
    /// whatever the wall clock says.
    #[inline]
    pub(crate) fn decision_time(&self) -> Timestamp {
        let Some((_, parked_us)) = self.past.parked_at else { return self.at };
        let parked = match &self.call.state {
            State::Suspended(suspended) => suspended.parked,
            State::Unconnected { said, .. } => said.parked,
            State::Retrying(parked) => *parked,
            State::Opened
            | State::Ready
            | State::Running { .. }
            | State::Interrupted { .. }
            | State::Returned { .. }
            | State::Stopped { .. }
            | State::Reconciled { .. }
            | State::Ended(_) => return self.at,
        };
        let is_due = self.on.rt.clock.elapsed_us().saturating_sub(parked_us) >= parked.length_us;
        if is_due { self.at.max(parked.wake_at) } else { self.at }
    }

    /// Until when it waits, if all that is to be done with it now is to wait.
    pub(crate) fn only_waits(&self) -> Option<windlass_core::call::Parked> {
        let Step::Park(parked) = self.call.next(self.decision_time()) else { return None };
        self.overdue().is_none().then_some(parked)
    }

    /// The deadline that ends it while it does not run, and when that is due by the clock that never jumps.
    pub(crate) fn deadline(&self) -> (Deadline, u64) {
        let rules = self.rules();
        // Who waits for the world outside has the deadline of that wait, and no other.
        let suspended =
            matches!(&self.call.state, State::Suspended(suspended) if suspended.parked.reason.is_outside());
        if suspended || matches!(self.call.state, State::Unconnected { .. }) {
            return (Deadline::Total, u64::MAX);
        }
        let total = self.total_due_us();
        if self.call.attempts > 0 {
            return (Deadline::Total, total);
        }
        let queue = self.past.due_us(rules.queue_ms);
        if queue <= total { (Deadline::Queue, queue) } else { (Deadline::Total, total) }
    }

    /// The deadline that has passed while it waited, if one has.
    pub(crate) fn overdue(&self) -> Option<Deadline> {
        // What it waited for is there, so it is not too late.
        if !self.past.waited || self.answer.is_some() {
            return None;
        }
        let (deadline, due_us) = self.deadline();
        (self.on.rt.clock.elapsed_us() >= due_us).then_some(deadline)
    }

    /// When the call must be over, by the clock that never jumps.
    pub(crate) fn total_due_us(&self) -> u64 {
        self.past.due_us(self.rules().total_ms).saturating_add(self.call.excused_us)
    }

    /// How its attempts are made; before it is prepared, as the limits and its caller say.
    pub(crate) fn rules(&self) -> Rules {
        if self.call.pin.is_some() {
            return self.call.rules();
        }
        let limits = &self.on.rt.limits;
        let rules = Rules { queue_ms: limits.queue_ms, total_ms: limits.total_ms, ..self.call.rules() };
        self.call.opened.deadlines.as_deref().map_or(rules, |asked| rules.shortened(asked))
    }
}

/// When so many milliseconds have passed since then.
pub(crate) fn due_us(since_us: u64, ms: u64) -> u64 {
    since_us.saturating_add(ms.saturating_mul(1_000))
}

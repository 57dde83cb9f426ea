//! A call in the hands of whoever drives it: its state, and what it has noted and not yet committed.

mod clocks;
mod decision;
mod live;
mod spare;

pub(crate) use live::LiveCall;
pub(crate) use spare::Spare;

use crate::api::error::Lost;
use crate::session::away::Stub;
use crate::session::batch::{self, HeardDemand, Used};
use crate::session::cx::CallPlace;
use crate::session::inner::Inner;
use crate::session::outgoing::{PersonWait, WebhookKind, wait_rows};
use crate::session::owner::Session;
use crate::session::permission::HeldPermit;
use crate::session::same::SharedEnd;
use crate::session::vault::ReferencePlace;
use crate::session::wheel::{Alarm, AwayDue, WakeTime};
use crate::tools::registry::Registered;
use crate::tools::request::{Parsed, RecordedRequest};
use std::sync::Arc;
use tokio::sync::mpsc;
use windlass_args::json::JsonProblem;
use windlass_core::call::{Call, CallClock, CancelAsked, Connected, Fact, Intent, State, ToolSearch};
use windlass_core::entry::Packer;
use windlass_core::ids::{CallId, Ordinal};
use windlass_core::loops::Loop;
use windlass_core::operation::{Did, Operation, Operations, signal_slot};
use windlass_core::outcome::ModelAnswer;
use windlass_core::plan::Wants;
use windlass_core::time::Timestamp;
use windlass_store::Row;

/// A call that is being driven, by this holder alone.
pub(crate) struct Held {
    pub(crate) on: Arc<DriveContext>,
    pub(crate) id: CallId,
    pub(crate) call: LiveCall,
    /// Its tool, once prepared in this process.
    pub(crate) tool: Option<Arc<Registered>>,
    /// Its arguments, or what is wrong with them, while they need not be read from the journal.
    pub(crate) parsed: Option<Result<Parsed, JsonProblem>>,
    /// Its claims, once prepared in this process and until the planner knows them.
    pub(crate) claims: Option<Wants>,
    /// How far the planner knows it.
    pub(crate) planned: PlannerKnowledge,
    /// The loop that it only goes on with: then it is answered instead of run.
    pub(crate) goes_on_with: Option<Loop>,
    /// Whether a secret was replaced in the value of its last attempt, which fitted its tool's output schema before.
    pub(crate) is_scrubbed: bool,
    /// The model's view, where it was made from a value stored beside the journal.
    pub(crate) model: Option<ModelAnswer>,
    /// How the call ended that it is the same as.
    pub(crate) answer: Option<Arc<SharedEnd>>,
    /// Its past in this process.
    pub(crate) past: CallPast,
    /// Which deadlines hold for it because of the calls around it, as far as was last looked.
    around: DeadlineColumn,
    /// Whether the tasks that end with it have ended.
    pub(crate) has_ended_tasks: bool,
    /// Whether an operator lets it go on under what its tool has become.
    pub(crate) acceptance: Acceptance,
    /// The result of the last look for its tool.
    pub(crate) tool_search: ToolSearch,
    /// The finding of the policy.
    pub(crate) permit: HeldPermit,
    /// The registry when its tool was last looked for: what changes later wakes whoever waits for it.
    pub(crate) looked_generation: u64,
    /// The registry when its tool was last found: one that has not changed since has the same.
    pub(crate) seen_generation: u64,
    /// Senders of messages wait until these are dropped: then the message is recorded.
    acks: Vec<Ack>,
    /// When the stage it is in began: what is noted there is noted then.
    at: Timestamp,
    /// Packed at once, since whoever waits for a turn or an answer should take little room.
    notes: Packer,
    rows: Vec<Row>,
    /// Buffers reused from the previous call.
    pub(crate) spare: Spare,
}

/// How far the planner knows a call. It is told of the end of every call that it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlannerKnowledge {
    /// Nothing.
    Nothing,
    /// The call, and not what it claims.
    Call,
    /// The call and what it claims.
    Claims,
}

/// Whether an operator lets a call go on under what its tool has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acceptance {
    NotGiven,
    Given,
}

/// Which deadlines hold for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeadlineColumn {
    /// Those of a call that somebody waits for.
    Inline,
    /// Those of a task.
    Task,
}

/// Dropped when what was asked is recorded.
pub(crate) type Ack = mpsc::Sender<()>;

/// The past of a call in this process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallPast {
    /// Since when it is open.
    pub(crate) clock: CallClock,
    /// Whether it was submitted to this runtime, rather than taken over.
    pub(crate) fresh: bool,
    /// Whether it may have waited so long that a deadline has passed.
    pub(crate) waited: bool,
    /// How much of the [moves](crate::session::wheel::Wheel::moved_us) of the wall clock the call's own times know of.
    pub(crate) moved_us: i64,
}

/// New calls that were submitted together, until they are driven: then each takes the room of a [`Held`], and mostly gives it
/// back before the next one does.
pub(crate) struct SubmittedCalls {
    pub(crate) on: Arc<DriveContext>,
    /// When they were.
    pub(crate) at: Timestamp,
    pub(crate) past: CallPast,
    pub(crate) calls: Vec<RecordedRequest>,
}

impl SubmittedCalls {
    /// The id of one of them.
    pub(crate) fn id_of(&self, call: &RecordedRequest) -> CallId {
        CallId { batch: self.on.batch.head.no, ordinal: call.ordinal }
    }

    /// The calls one after the other, to be driven.
    pub(crate) fn into_calls(self) -> impl Iterator<Item = Box<Held>> {
        let SubmittedCalls { on, at, past, calls } = self;
        calls.into_iter().map(move |RecordedRequest { opened, args, ordinal, goes_on_with }| {
            let id = CallId { batch: on.batch.head.no, ordinal };
            let mut held = on.call(id, Arc::new(Call::new(opened, at)), past);
            held.parsed = args;
            held.goes_on_with = goes_on_with;
            held
        })
    }
}

/// The content of a batch's next commit: notes of calls, and the calls that ended.
#[derive(Default)]
pub(crate) struct Going {
    pub(crate) notes: Packer,
    /// Empty: the memory in which the next call makes its notes.
    room: Packer,
    /// Buffers reused from the last ended call.
    spare: Spare,
    pub(crate) rows: Vec<Row>,
    pub(crate) ended: Vec<EndedCall>,
    /// A call that goes on and of which it is noted that it is to stop.
    pub(crate) cancelled: Option<Ordinal>,
}

/// A call that ended, until that is durable.
pub(crate) struct EndedCall {
    pub(crate) id: CallId,
    pub(crate) call: LiveCall,
    /// Whether it was submitted to this runtime, rather than taken over.
    pub(crate) fresh: bool,
    /// Whether its tool is meant to be asked again and again.
    pub(crate) polls: bool,
    /// When.
    pub(crate) at: Timestamp,
    /// Senders of messages wait until these are dropped.
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

    /// A call ended: its end goes with the others.
    pub(crate) fn end(&mut self, held: Box<Held>) {
        let Held { id, call, tool, past, at, acks, mut notes, mut rows, spare, seen_generation, .. } = *held;
        self.notes.append(&mut notes);
        self.room = notes;
        self.rows.append(&mut rows);
        let polls = tool.as_ref().is_some_and(|tool| tool.spec.flags.polls);
        self.spare = spare.with_tool(tool, seen_generation);
        self.ended.push(EndedCall { id, call, fresh: past.fresh, polls, at, _acks: acks });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ended.is_empty()
    }
}

/// Room for what a call notes until it is first committed.
const NOTES_BYTES: usize = 256;

/// Where calls are driven; one for all that came together.
pub(crate) struct DriveContext {
    pub(crate) rt: Arc<Inner>,
    pub(crate) session: Arc<Session>,
    pub(crate) batch: Used,
}

impl DriveContext {
    pub(crate) fn call(self: &Arc<DriveContext>, id: CallId, call: Arc<Call>, past: CallPast) -> Box<Held> {
        // A new one is judged once it is prepared, if there is anything to judge it by.
        let is_new = matches!(call.state, State::Opened);
        let permit = if is_new { HeldPermit::default() } else { HeldPermit::unjudged() };
        let has_task_deadlines = self.batch.head.task_deadlines;
        Box::new(Held {
            on: self.clone(),
            id,
            at: call.opened_at,
            call: LiveCall::new(call),
            tool: None,
            parsed: None,
            claims: None,
            planned: PlannerKnowledge::Nothing,
            goes_on_with: None,
            is_scrubbed: false,
            model: None,
            answer: None,
            past,
            around: if has_task_deadlines { DeadlineColumn::Task } else { DeadlineColumn::Inline },
            has_ended_tasks: false,
            acceptance: Acceptance::NotGiven,
            tool_search: ToolSearch::NotMissed,
            permit,
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
pub(crate) struct ParkedCall {
    id: CallId,
    call: LiveCall,
    tool: Option<Arc<Registered>>,
    parsed: Option<Result<Parsed, JsonProblem>>,
    past: CallPast,
    planned: PlannerKnowledge,
    acceptance: Acceptance,
    acks: Vec<Ack>,
    notes: Packer,
    rows: Vec<Row>,
    /// Its latest wake-up.
    pub(crate) alarm: Option<Alarm>,
}

impl ParkedCall {
    pub(crate) fn call(&self) -> &Call {
        &self.call
    }

    pub(crate) fn past(&self) -> &CallPast {
        &self.past
    }

    /// Whether it may go on without its caller, and does not yet.
    pub(crate) fn may_detach(&self) -> bool {
        self.tool.as_ref().is_some_and(|tool| tool.spec.flags.background) && self.call.task.is_none()
    }

    /// Whether it waits for the world outside or a recorded time, rather than for its turn, its tool or another call.
    pub(crate) fn waits_outside(&self) -> bool {
        let asks = matches!(self.call.state, State::AwaitingApproval { .. });
        asks || matches!(
            self.call.state,
            State::Suspended(_) | State::Unconnected { .. } | State::Retrying(_)
        )
    }

    /// Whether it waits for the world outside: that time its own clocks do not count.
    pub(crate) fn waits_for_the_world(&self) -> bool {
        self.call.parked.is_some_and(|(parked, _)| parked.reason.is_outside())
    }

    /// Whether all there is to it is recorded, or known to the planner.
    pub(crate) fn is_recorded(&self) -> bool {
        let ParkedCall { planned, acceptance, acks, notes, rows, .. } = self;
        let is_told = *planned == PlannerKnowledge::Claims && *acceptance == Acceptance::NotGiven;
        is_told && acks.is_empty() && notes.is_empty() && rows.is_empty()
    }

    /// Whether it has made nested calls.
    pub(crate) fn has_called(&self) -> bool {
        self.call.operations.as_deref().is_some_and(Operations::has_call)
    }
}

impl DriveContext {
    /// Goes on with a call that waited.
    pub(crate) fn unpark(self: &Arc<DriveContext>, parked: ParkedCall) -> Box<Held> {
        let ParkedCall { id, call, tool, parsed, past, planned, acceptance, acks, notes, rows, alarm } =
            parked;
        if let Some(alarm) = alarm {
            self.rt.wheel.clear(alarm);
        }
        let mut held = self.call(id, call.into_shared(), CallPast { waited: true, ..past });
        held.parsed = parsed;
        held.tool = tool;
        // Whoever waits has asked for its turn, so the planner knows it.
        held.planned = if planned == PlannerKnowledge::Claims { planned } else { PlannerKnowledge::Call };
        held.acceptance = acceptance;
        held.acks = acks;
        held.notes = notes;
        held.rows = rows;
        held
    }
}

impl Held {
    /// Whether it started tasks that end with it, and that were not told so.
    pub(crate) fn has_attached_tasks(&self) -> bool {
        let started = || self.call.operations.as_deref().is_some_and(Operations::has_attached_task);
        !self.has_ended_tasks && started()
    }

    /// Its place, for tools and hooks that look at it.
    pub(crate) fn place(&self) -> CallPlace<'_> {
        CallPlace { on: &self.on, call: self.id, id: &self.call.opened.id, attempts: self.call.attempts }
    }

    /// Puts the call aside that was read back, as it was before it left memory. The planner knows it.
    pub(crate) fn asleep(self, stub: &Stub) -> ParkedCall {
        let AwayDue { due_us, wall } = stub.due;
        let alarm = self.on.rt.wheel.alarm(WakeTime { due_us, wall: Some(wall) }, &self.on.session, self.id);
        let past = self.past;
        ParkedCall { past, ..self.park(Some(alarm)) }
    }

    /// Puts the call aside until something wakes it.
    pub(crate) fn park(self, alarm: Option<Alarm>) -> ParkedCall {
        let mut past = self.past;
        past.clock.parked_us.get_or_insert_with(|| self.on.rt.clock.elapsed_us());
        let Held { id, call, tool, parsed, planned, acceptance, acks, notes, rows, .. } = self;
        ParkedCall { id, call, tool, parsed, past, planned, acceptance, acks, notes, rows, alarm }
    }

    /// Adds a fact to the call. It is written with the next commit, and nothing is acted on before that.
    pub(crate) fn note(&mut self, mut fact: Fact) -> Result<(), Lost> {
        if self.on.rt.secrets.is_used() {
            self.scrub(&mut fact);
        }
        let at = self.at;
        self.call.apply(at, &fact).map_err(Lost::Broken)?;
        if self.notes.is_empty() {
            self.notes.reserve(NOTES_BYTES);
        }
        self.notes.fact(at, self.id.ordinal, &fact);
        self.on.rt.meters.noted(self, &fact);
        Ok(())
    }

    #[cold]
    fn scrub(&self, fact: &mut Fact) {
        if let Some(known) = self.on.session.lane.vault().known() {
            known.scrub_fact(fact);
        }
    }

    /// The place of references to secrets in its arguments.
    pub(crate) fn reference_place(&self) -> ReferencePlace<'_> {
        ReferencePlace {
            key: self.on.rt.store.secret(),
            session: self.on.session.lane.session(),
            batch: &self.on.batch.head.place.batch_key,
            call: &self.call.opened.id,
        }
    }

    /// Notes what was asked of the call meanwhile. Mostly that is nothing.
    #[inline]
    pub(crate) fn hear(&mut self) -> Result<(), Lost> {
        if self.on.batch.was_asked() { self.hear_all() } else { Ok(()) }
    }

    fn hear_all(&mut self) -> Result<(), Lost> {
        for HeardDemand { what, ack } in self.on.batch.hear(self.id.ordinal) {
            match what {
                batch::CallDemand::Cancel(reason)
                    if self.call.cancel.is_none() && self.call.end().is_none() =>
                {
                    self.note(Fact::CancelAsked(CancelAsked { reason }))?;
                }
                batch::CallDemand::Cancel(_) => {}
                // Recorded before all it has noted, so nothing is noted.
                batch::CallDemand::Decided(decision) => self.call.dismissed(decision),
                batch::CallDemand::Approval(decide) => self.hear_decision(&decide)?,
                batch::CallDemand::Accept => self.acceptance = Acceptance::Given,
                batch::CallDemand::Same(answer) => self.answer = Some(answer),
                batch::CallDemand::Connect { provider, connected } => {
                    if self.call.unconnected().is_some_and(|said| said.provider == provider) {
                        self.note(Fact::Connected(Connected { connected }))?;
                    }
                }
                // Where it stands it finds out at its next step.
                batch::CallDemand::Look => {}
                batch::CallDemand::Rejudge => {
                    self.permit.rejudge();
                    // There is nothing to record, so nobody waits for that.
                    continue;
                }
                batch::CallDemand::Signal(signal) => {
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
                batch::CallDemand::Complete { name, completion } => {
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

    /// Has webhooks hear of a wait for a person, in the change that records it.
    pub(crate) fn tell_webhooks(&mut self, kind: WebhookKind, name: &str, what: &str, until: Timestamp) {
        let (call, at) = (self.id, self.now());
        let tool = &*self.call.opened.tool;
        let wait = PersonWait { kind, call, tool, name, what, until: Some(until), at };
        let rows = wait_rows(&self.on.session.lane, &wait);
        self.carry(rows);
    }

    /// Writes what was noted, and waits until it is durable.
    pub(crate) async fn commit(&mut self) -> Result<(), Lost> {
        let mut going = Going {
            notes: std::mem::take(&mut self.notes),
            rows: std::mem::take(&mut self.rows),
            cancelled: self.call.cancel.is_some().then_some(self.id.ordinal),
            ..Going::default()
        };
        let DriveContext { session, batch, .. } = &*self.on;
        batch.send(&session.lane, &mut going).commit.durable().await?;
        self.recorded();
        Ok(())
    }

    /// Everything noted is durable: senders of messages are told.
    pub(crate) fn recorded(&mut self) {
        self.acks.clear();
    }

    /// The notes for its next commit, to be taken.
    pub(crate) fn notes(&mut self) -> &mut Packer {
        &mut self.notes
    }

    /// Whether rows travel with its next commit.
    pub(crate) fn carries_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Whether the start of an attempt must be durable before the tool runs.
    pub(crate) fn must_record(&self, intent: Intent) -> bool {
        (intent == Intent::First && !windlass_core::mutant::breaks("no-intent"))
            || self.on.rt.is_careful()
            // The use it takes of a grant is durable before it runs, whatever its class.
            || self.call.opened.grant.is_some()
    }

    /// The rows it carries.
    pub(crate) fn take_rows(&mut self) -> Vec<Row> {
        std::mem::take(&mut self.rows)
    }

    /// A stage begins.
    pub(crate) fn begin_stage(&mut self) {
        self.begin_stage_at(None);
    }

    /// Begins a stage; the time need not be read if it just was.
    pub(crate) fn begin_stage_at(&mut self, at: Option<Timestamp>) {
        self.at = at.unwrap_or_else(|| self.on.rt.clock.now());
        if self.past.moved_us != self.on.rt.wheel.moved_us() {
            self.clock_moved();
        }
    }

    /// When the stage began.
    pub(crate) fn now(&self) -> Timestamp {
        self.at
    }
}

/// When so many milliseconds have passed since then.
pub(crate) fn due_us(since_us: u64, ms: u64) -> u64 {
    since_us.saturating_add(ms.saturating_mul(1_000))
}

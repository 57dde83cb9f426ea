//! An open batch in memory: its calls, and the callers that wait for them.

mod alike;
mod answered;
mod asked;
mod away;
mod clocks;
mod running;
mod siblings;
mod stream;
mod together;
mod waited;
mod witness;
mod write;

pub(crate) use answered::AnswerNote;
pub(crate) use asked::{CallDemand, DemandReach, HeardDemand, SignalDelivery};
pub(crate) use away::{DepartingBatch, Used};
pub(crate) use running::AttemptRun;
pub(crate) use siblings::cancel;
pub(crate) use together::{StartsHeldBack, commit_start};
pub(crate) use waited::CallStanding;

use crate::api::error::Lost;
use crate::api::keys;
use crate::api::limits::EnforcedLimits;
use crate::api::locks::{LockGuard, LockRank, OrderedMutex};
use crate::api::traced::BatchTrace;
use crate::session::held::{EndedCall, Held, ParkedCall};
use crate::session::lane::{Commit, Lane};
use crate::session::loops::Loops;
use crate::session::owner::Session;
use crate::session::signal::AttemptSignal;
use crate::session::wheel::{Alarm, Wheel};
use crate::tools::place::BatchPlace;
use crate::tools::request;
use alike::Alike;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use stream::BatchStream;
use together::GatheringStarts;
use tokio::sync::Notify;
use windlass_core::batch::{Batch, Compared, Parent, compare};
use windlass_core::call::{Call, Cause, Opened, Wake};
use windlass_core::ids::{BatchNo, CallId, Lookup, Ordinal};
use windlass_core::siblings::{Siblings, Tally};
use windlass_core::time::Timestamp;
use witness::JournalWitness;

/// A batch whose calls are driven.
pub(crate) struct OpenBatch {
    pub(crate) head: BatchHead,
    state: OrderedMutex<BatchState, { LockRank::Batch as u8 }>,
    ended: Notify,
    /// Notified when a call is parked.
    stood: Notify,
    /// Whether a message ever came for one of its calls.
    asked: AtomicBool,
    /// The clocks.
    wheel: Arc<Wheel>,
    /// Its session, once it is one of the open batches there.
    session: Weak<Session>,
    /// Whether it may leave memory when nobody uses it.
    is_evictable: AtomicBool,
    /// The number of holders of its answers, who may wait for them.
    attended: AtomicUsize,
    /// Whether it was answered, provisionally or not.
    answered: AtomicBool,
    /// Whether one of its calls may wait for something that others need not wait for.
    may_give_way: AtomicBool,
    /// How many callers wait for its calls and are notified when one becomes a task.
    waiting: AtomicUsize,
}

/// The facts of a batch besides its calls.
pub(crate) struct BatchHead {
    pub(crate) no: BatchNo,
    pub(crate) lookup: Lookup,
    pub(crate) place: Arc<BatchPlace>,
    pub(crate) turn: Option<String>,
    pub(crate) siblings: Siblings,
    pub(crate) streamed: bool,
    /// The call that makes it, if it is nested.
    pub(crate) parent: Option<Parent>,
    pub(crate) wake: Wake,
    pub(crate) trace: BatchTrace,
    /// Whether the deadlines of tasks hold for its calls from their start.
    pub(crate) task_deadlines: bool,
    pub(crate) opened_at: Timestamp,
}

struct BatchState {
    slots: Vec<Slot>,
    /// A hash of each call's id, by ordinal: most ids are unique, and that is checked here.
    ids: Vec<u32>,
    /// The number of calls that have not ended durably.
    open: usize,
    /// The number of calls that the loop guard knows: those present when the batch was last over.
    noted: usize,
    written: StoredExtent,
    /// The tally of its calls' ends, if it has a sibling rule.
    tally: Option<Box<Tally>>,
    /// The state of a streamed batch.
    stream: Option<BatchStream>,
    /// Whether nothing of it can be recorded any more.
    lost: bool,
    /// The [moves](Wheel::moved_us) of the wall clock recorded in its journal.
    moved_us: i64,
    witness: JournalWitness,
    /// Starts that are about to be sent together.
    gathered: Option<Box<GatheringStarts>>,
}

/// How far the batch is stored.
#[derive(Default)]
struct StoredExtent {
    /// Whether it is recorded at all.
    recorded: bool,
    /// Whether it is recorded as open.
    open: bool,
    /// How many of its calls are recorded.
    calls: usize,
    /// How many of its calls are recorded as ended.
    ended: usize,
    /// The next row of its journal.
    row: u32,
}

struct Slot {
    opened: Opened,
    opened_at: Timestamp,
    /// Whether another call of the batch has the same id.
    has_twin: bool,
    stage: Stage,
    /// Whether its end was sent.
    ended: bool,
    /// Whether a cancel was sent. Kept only where the end of one call may cancel the others.
    cancelled: bool,
    /// Whether it was sent that its caller is answered before it has ended.
    is_provisional: bool,
    /// Whether its tool is meant to be polled.
    polls: bool,
    /// Messages not received yet.
    asked: Vec<HeardDemand>,
    /// The stop signal of its running attempt.
    signal: Option<Arc<AttemptSignal>>,
    /// Whether it is a task, durably or before anything of it is.
    is_task: bool,
}

enum Stage {
    /// A driver has it, or its end is on the way to the disk.
    Driven,
    /// It waits.
    Parked(Box<ParkedCall>),
    /// It ended, durably.
    Ended(Arc<Call>),
}

/// A sent change, and the calls to wake now.
#[must_use = "nothing may be acknowledged before it is durable"]
pub(crate) struct Sent<'a> {
    pub(crate) commit: Commit<'a>,
    /// Parked calls that it cancels.
    pub(crate) parked: Vec<Ordinal>,
    /// The number of notices in it.
    pub(crate) notices: u64,
}

/// The state found by one submission.
#[derive(Clone, Copy)]
pub(crate) struct Submission {
    /// The number of calls the batch had.
    pub(crate) before: usize,
    /// The time of the submission.
    pub(crate) at: Timestamp,
}

/// The source of a submitted call's answer.
pub(crate) enum CallPlacement {
    /// It is new, under this ordinal.
    New(Ordinal),
    /// It was submitted before, and is this call.
    Known(Ordinal),
    /// Another call has its identity; that one is untouched.
    Conflict(Ordinal, Compared),
}

impl OpenBatch {
    /// A batch that is not recorded yet, with capacity for its calls.
    pub(crate) fn new(head: BatchHead, calls: usize, wheel: &Arc<Wheel>) -> OpenBatch {
        let mut state = BatchState::new(StoredExtent::default(), Tally::of(head.siblings), calls);
        state.stream = head.streamed.then(BatchStream::new);
        OpenBatch::from(head, state, wheel)
    }

    /// A batch read from its journal of `rows` rows; calls that have not ended must be driven.
    pub(crate) fn recorded(head: BatchHead, batch: &Batch, rows: u32, wheel: &Arc<Wheel>) -> OpenBatch {
        let ended = batch.calls.iter().filter(|call| call.end().is_some()).count();
        let calls = batch.calls.len();
        let written = StoredExtent { recorded: true, open: batch.is_open(), calls, ended, row: rows };
        let mut state = BatchState::new(written, batch.tally.clone(), calls);
        state.stream = BatchStream::recorded(batch);
        state.witness = JournalWitness::recorded(batch);
        for call in &batch.calls {
            let alike = state.alike(&call.opened.id);
            let place = state.add(call.opened.clone(), call.opened_at, &alike);
            let slot = &mut state.slots[place];
            (slot.ended, slot.cancelled) = (call.end().is_some(), call.cancel.is_some());
            (slot.is_task, slot.is_provisional) = (call.task.is_some(), call.is_provisional);
            if call.end().is_some() {
                state.end(place, Arc::new(call.clone()));
            }
        }
        if ended == calls {
            state.noted = calls;
        }
        let moved_us = wheel.moves_told(batch.seen_at);
        // A call opened in a batch that is over was not there before.
        let moved_us = if batch.is_open() { moved_us } else { moved_us.max(wheel.moved_us()) };
        OpenBatch::from(head, state, wheel).told_of_moves(moved_us)
    }

    fn from(head: BatchHead, mut state: BatchState, wheel: &Arc<Wheel>) -> OpenBatch {
        state.moved_us = wheel.moved_us();
        let (ended, stood) = (Notify::new(), Notify::new());
        let (asked, is_evictable) = (AtomicBool::new(false), AtomicBool::new(false));
        let (session, waiting) = (Weak::new(), AtomicUsize::new(0));
        let (attended, answered, may_give_way) =
            (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false));
        OpenBatch {
            head,
            state: OrderedMutex::new(state),
            ended,
            stood,
            asked,
            wheel: wheel.clone(),
            session,
            is_evictable,
            attended,
            answered,
            may_give_way,
            waiting,
        }
    }

    /// Finds the place of a submitted call: it is one of those before this submission (below `before`), or
    /// conflicts with one; a different one of the same submission leaves both without an attempt, see
    /// [`has_twin`](Self::has_twin).
    pub(crate) fn place(
        &self,
        asked: &Opened,
        submission: Submission,
        limits: &EnforcedLimits,
    ) -> CallPlacement {
        let Submission { before, at } = submission;
        let mut state = self.lock();
        let mut conflict = None;
        let alike = state.alike(&asked.id);
        for &place in &alike.places {
            let ordinal = Ordinal(place as u16);
            match compare(&state.slots[place].opened, asked, limits.call()) {
                Compared::Same => return CallPlacement::Known(ordinal),
                other if place < before => conflict = Some(CallPlacement::Conflict(ordinal, other)),
                Compared::OtherTool | Compared::OtherArgs(_) => {}
            }
        }
        conflict.unwrap_or_else(|| {
            let place = state.add(asked.clone(), at, &alike);
            self.dismiss_added(&mut state, place);
            CallPlacement::New(Ordinal(place as u16))
        })
    }

    /// Reserves capacity for more calls.
    pub(crate) fn expect(&self, calls: usize) {
        let mut state = self.lock();
        state.slots.reserve(calls);
        state.ids.reserve(calls);
    }

    /// The number of calls with a new id.
    pub(crate) fn count_new(&self, calls: &[request::RecordedRequest]) -> usize {
        let state = self.lock();
        if state.slots.is_empty() {
            return calls.len();
        }
        calls.iter().filter(|asked| state.alike(&asked.opened.id).places.is_empty()).count()
    }

    /// Whether another call of the batch has the same id.
    pub(crate) fn has_twin(&self, ordinal: Ordinal) -> bool {
        self.lock().slots.get(usize::from(ordinal.0)).is_some_and(|slot| slot.has_twin)
    }

    /// The number of calls.
    pub(crate) fn len(&self) -> usize {
        self.lock().slots.len()
    }

    /// Parks a call until it is woken. `false`: a message came meanwhile, so it must be woken. The alarm is
    /// set under the lock: if it rings at once, it must find the call parked.
    pub(crate) fn park(&self, held: Held, alarm: impl FnOnce() -> Option<Alarm>) -> bool {
        let place = usize::from(held.id.ordinal.0);
        let undisturbed = match self.lock().slots.get_mut(place) {
            Some(slot) => {
                slot.stage = Stage::Parked(Box::new(held.park(alarm())));
                slot.asked.is_empty()
            }
            None => true,
        };
        self.stood.notify_waiters();
        undisturbed
    }

    /// Waits until a call of this batch has ended or was parked, counted from when this was called.
    pub(crate) fn moved(&self) -> impl Future<Output = ()> + '_ {
        let (ended, stood) = (self.ended.notified(), self.stood.notified());
        async move {
            tokio::select! {
                () = ended => {}
                () = stood => {}
            }
        }
    }

    /// Delivers a message to a call.
    pub(crate) fn ask(&self, ordinal: Ordinal, heard: HeardDemand) -> DemandReach {
        let mut state = self.lock();
        let Some(slot) = state.slots.get_mut(usize::from(ordinal.0)) else { return DemandReach::Over };
        let reached = match slot.stage {
            Stage::Ended(_) => return DemandReach::Over,
            Stage::Parked(ref parked) if !heard.what.concerns(parked.call()) => {
                return DemandReach::Over;
            }
            Stage::Parked(_) => DemandReach::Parked,
            Stage::Driven => DemandReach::Driven,
        };
        // Waking it is enough: it is judged before anything else. One that is driven may be about to wait for an approval.
        if let (CallDemand::Rejudge, DemandReach::Parked) = (&heard.what, reached) {
            return reached;
        }
        match (&heard.what, &slot.signal) {
            (CallDemand::Cancel(_), Some(signal)) => signal.stop(Cause::Cancel),
            (CallDemand::Complete { .. } | CallDemand::Signal(_), Some(signal)) => signal.book.ring(),
            (_, Some(_) | None) => {}
        }
        slot.asked.push(heard);
        self.asked.store(true, Ordering::SeqCst);
        reached
    }

    /// Whether a message ever came for one of its calls.
    pub(crate) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    /// Whether a call was asked to stop and has not received it.
    pub(crate) fn is_cancelled(&self, ordinal: Ordinal) -> bool {
        let cancels = |slot: &Slot| slot.asked.iter().any(|heard| heard.what.stops());
        self.was_asked() && self.lock().slots.get(usize::from(ordinal.0)).is_some_and(cancels)
    }

    /// Takes the pending messages of a call.
    pub(crate) fn hear(&self, ordinal: Ordinal) -> Vec<HeardDemand> {
        let mut state = self.lock();
        state
            .slots
            .get_mut(usize::from(ordinal.0))
            .map(|slot| std::mem::take(&mut slot.asked))
            .unwrap_or_default()
    }

    /// Takes the pending external answers and signals of a call.
    pub(crate) fn hear_answers(&self, ordinal: Ordinal) -> Vec<HeardDemand> {
        let mut state = self.lock();
        let Some(slot) = state.slots.get_mut(usize::from(ordinal.0)) else { return Vec::new() };
        slot.asked.extract_if(.., |heard| heard.what.is_answer()).collect()
    }

    /// Whether all its open calls wait for external answers, or for nested calls that do.
    pub(crate) fn waits_for_the_world(&self) -> bool {
        let mut running = Vec::new();
        for slot in &self.lock().slots {
            match (&slot.stage, &slot.signal) {
                (Stage::Ended(_), _) => {}
                (Stage::Parked(parked), _) if parked.waits_for_the_world() => {}
                (Stage::Driven, Some(signal)) => running.push(signal.clone()),
                (Stage::Parked(_), _) | (Stage::Driven, None) => return false,
            }
        }
        running.iter().all(|signal| signal.book.stands_still())
    }

    /// Visits the calls, as visible from outside: a parked or ended one whole, a driven one as requested.
    pub(crate) fn look(&self, mut see: impl FnMut(Ordinal, VisibleCall<'_>)) {
        for (slot, place) in self.lock().slots.iter().zip(0..) {
            let seen = match &slot.stage {
                Stage::Ended(_) => VisibleCall::Over,
                Stage::Parked(parked) => VisibleCall::Parked(&slot.opened, slot.opened_at, parked),
                Stage::Driven => VisibleCall::Driven(&slot.opened, slot.opened_at, slot.signal.as_deref()),
            };
            see(Ordinal(place), seen);
        }
    }

    /// A call as requested.
    pub(crate) fn asked_for(&self, ordinal: Ordinal) -> Option<Opened> {
        self.lock().slots.get(usize::from(ordinal.0)).map(|slot| slot.opened.clone())
    }

    /// Replaces a call by its amended state, which is durable.
    pub(crate) fn amended(&self, ordinal: Ordinal, call: Arc<Call>) {
        self.lock().end(usize::from(ordinal.0), call);
    }

    /// Takes a parked call.
    pub(crate) fn unpark(&self, ordinal: Ordinal) -> Option<ParkedCall> {
        let mut state = self.lock();
        let stage = &mut state.slots.get_mut(usize::from(ordinal.0))?.stage;
        match std::mem::replace(stage, Stage::Driven) {
            Stage::Parked(parked) => Some(*parked),
            other @ (Stage::Driven | Stage::Ended(_)) => {
                *stage = other;
                None
            }
        }
    }

    /// Marks calls as ended, durably, and notifies waiters. `true` if the batch is over.
    pub(crate) fn settle(&self, ended: Vec<EndedCall>, loops: &Loops, limits: &EnforcedLimits) -> bool {
        let mut state = self.lock();
        for EndedCall { id, call, polls, .. } in ended {
            let place = usize::from(id.ordinal.0);
            state.slots[place].polls = polls;
            state.witness.compare(id.ordinal, &call);
            state.end(place, call.into_shared());
        }
        let over = state.is_over();
        if over && keys::is_turn(&self.head.place.batch_key) {
            // Before waiters are notified: an answered caller may repeat the call at once.
            loops.note(self.head.no, state.unnoted(), limits);
            state.noted = state.slots.len();
        }
        drop(state);
        self.ended.notify_waiters();
        over
    }

    /// Whether it has no open call and gets no more.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over()
    }

    /// Drops the parked calls, which are still open in the journal, and returns their numbers. Waiters look
    /// again.
    pub(crate) fn abandon(&self) -> Vec<CallId> {
        let mut state = self.lock();
        let mut abandoned = Vec::new();
        for (slot, place) in state.slots.iter_mut().zip(0..) {
            if matches!(slot.stage, Stage::Parked(_)) {
                slot.stage = Stage::Driven;
                abandoned.push(CallId { batch: self.head.no, ordinal: Ordinal(place) });
            }
        }
        drop(state);
        self.ended.notify_waiters();
        abandoned
    }

    /// Waits until these calls have ended, or until nothing more can be recorded.
    pub(crate) async fn ended(
        &self,
        ordinals: impl ExactSizeIterator<Item = Ordinal> + Clone,
        lane: &Lane,
    ) -> Result<Vec<Arc<Call>>, Lost> {
        loop {
            let notified = self.ended.notified();
            if let Some(calls) = self.try_ended(ordinals.clone(), |_, call| call.clone()) {
                return Ok(calls);
            }
            if let Some(lost) = lane.lost() {
                return Err(lost);
            }
            notified.await;
        }
    }

    /// Maps these calls, with their places, if all of them have ended.
    pub(crate) fn try_ended<T>(
        &self,
        ordinals: impl ExactSizeIterator<Item = Ordinal>,
        mut made: impl FnMut(usize, &Arc<Call>) -> T,
    ) -> Option<Vec<T>> {
        let state = self.lock();
        let mut all = Vec::with_capacity(ordinals.len());
        for (place, ordinal) in ordinals.enumerate() {
            match state.slots.get(usize::from(ordinal.0)).map(|slot| &slot.stage) {
                Some(Stage::Ended(call)) => all.push(made(place, call)),
                _ => return None,
            }
        }
        Some(all)
    }

    /// Whether all of these calls have ended.
    pub(crate) fn have_ended(&self, ordinals: impl ExactSizeIterator<Item = Ordinal>) -> bool {
        self.try_ended(ordinals, |_, _| ()).is_some()
    }

    fn lock(&self) -> LockGuard<'_, BatchState> {
        self.state.lock()
    }
}

impl BatchState {
    fn new(written: StoredExtent, tally: Option<Box<Tally>>, calls: usize) -> BatchState {
        let (slots, ids) = (Vec::with_capacity(calls), Vec::with_capacity(calls));
        let witness = JournalWitness::new();
        let (open, noted, lost, moved_us) = (0, 0, false, 0);
        let (stream, gathered) = (None, None);
        BatchState { slots, ids, open, noted, written, tally, stream, lost, moved_us, witness, gathered }
    }

    /// Adds an open call, and returns its place.
    fn add(&mut self, opened: Opened, opened_at: Timestamp, alike: &Alike) -> usize {
        for &twin in &alike.places {
            self.slots[twin].has_twin = true;
        }
        self.ids.push(alike.fingerprint);
        let is_task = opened.task.is_some();
        self.slots.push(Slot {
            opened,
            opened_at,
            has_twin: !alike.places.is_empty(),
            stage: Stage::Driven,
            ended: false,
            cancelled: false,
            is_provisional: false,
            polls: false,
            asked: Vec::new(),
            signal: None,
            is_task,
        });
        self.open += 1;
        self.slots.len() - 1
    }

    /// A call ended, durably.
    fn end(&mut self, place: usize, call: Arc<Call>) {
        if let Some(slot) = self.slots.get_mut(place) {
            self.open -= usize::from(!matches!(slot.stage, Stage::Ended(_)));
            slot.stage = Stage::Ended(call);
            // Senders of messages have their answer.
            slot.asked.clear();
        }
    }

    /// The calls that the loop guard does not know yet; `None` for those that do not count.
    fn unnoted(&self) -> impl ExactSizeIterator<Item = Option<&Call>> {
        self.slots[self.noted..].iter().map(|slot| match &slot.stage {
            Stage::Ended(call) => (!slot.polls).then_some(&**call),
            Stage::Driven | Stage::Parked(_) => None,
        })
    }
}

/// A fact cannot be added: the call is not over, or its end does not allow the fact.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotOver;

/// A call as visible from outside.
pub(crate) enum VisibleCall<'a> {
    /// A driver has it; with the signal of its running attempt, if there is one.
    Driven(&'a Opened, Timestamp, Option<&'a AttemptSignal>),
    /// It waits.
    Parked(&'a Opened, Timestamp, &'a ParkedCall),
    /// It is over.
    Over,
}

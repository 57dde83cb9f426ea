//! An open batch in memory: its calls, and who waits for them.

mod asked;
mod away;
mod running;
mod siblings;
mod stream;
mod waited;
mod write;

pub(crate) use asked::{Asked, Heard, Reached, Signalled};
pub(crate) use away::{Leaving, Used};
pub use siblings::Decided;
pub(crate) use siblings::cancel;
pub(crate) use write::With;

use crate::error::Lost;
use crate::held::{Ended, Held, Parked};
use crate::lane::{Commit, Lane};
use crate::loops::{self, Loops};
use crate::request;
use crate::session::Session;
use crate::signal::Signal;
use crate::tool::Place;
use crate::wheel::Alarm;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use stream::Stream;
use tokio::sync::Notify;
use windlass_core::batch::{Batch, Compared, Parent, compare};
use windlass_core::call::{Call, Cause, Opened, Reason};
use windlass_core::ids::{BatchNo, CallId, Lookup, Ordinal};
use windlass_core::limits::Limits;
use windlass_core::siblings::{Siblings, Tally};
use windlass_core::time::Timestamp;

/// A batch that calls are driven for.
pub(crate) struct OpenBatch {
    pub(crate) head: Head,
    state: Mutex<State>,
    ended: Notify,
    /// Told when a call was put aside.
    stood: Notify,
    /// Whether something was ever asked of one of its calls.
    asked: AtomicBool,
    /// Its session, once it is one of the open ones there.
    session: Weak<Session>,
    /// Whether it may leave memory when nobody uses it.
    rests: AtomicBool,
    /// How many wait for calls of it and would be told that one goes on without them.
    waiting: AtomicUsize,
}

/// What is known of a batch before its calls.
pub(crate) struct Head {
    pub(crate) no: BatchNo,
    pub(crate) lookup: Lookup,
    pub(crate) place: Arc<Place>,
    pub(crate) turn: Option<String>,
    pub(crate) siblings: Siblings,
    pub(crate) streamed: bool,
    /// The call inside which its calls run, if they do.
    pub(crate) parent: Option<Parent>,
    pub(crate) opened_at: Timestamp,
}

struct State {
    slots: Vec<Slot>,
    /// A hash of each call's id, by ordinal: most calls have an id of their own, and that is seen here.
    ids: Vec<u64>,
    /// How many calls have not ended durably.
    open: usize,
    /// How many calls the loop guard knows of: those that were there when the batch was last over.
    noted: usize,
    written: Written,
    /// What the ends of its calls add up to, if it asks something of them together.
    tally: Option<Box<Tally>>,
    /// Where it stands, if its calls come one after the other.
    stream: Option<Stream>,
    /// Whether nothing of it can be recorded any more.
    lost: bool,
}

/// How far the store knows the batch.
#[derive(Default)]
struct Written {
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
    /// Whether its end was sent, and whether a cancel was. Kept only where the end of one call may cancel the others.
    ended: bool,
    cancelled: bool,
    /// Whether its tool is meant to be asked again and again.
    polls: bool,
    /// What was asked of it and not heard yet.
    asked: Vec<Heard>,
    /// By which its running attempt is told to stop.
    signal: Option<Arc<Signal>>,
    /// Whether it is a task, durably or before anything of it is.
    is_task: bool,
}

enum Stage {
    /// Somebody drives it, or its end is on the way to the disk.
    Driven,
    /// It waits.
    Parked(Box<Parked>),
    /// It ended, durably.
    Ended(Arc<Call>),
}

/// What was sent, and who has to be woken now.
#[must_use = "nothing may be acknowledged before it is durable"]
pub(crate) struct Sent<'a> {
    pub(crate) commit: Commit<'a>,
    /// Calls that are cancelled by it and parked.
    pub(crate) parked: Vec<Ordinal>,
}

/// What one submission found.
#[derive(Clone, Copy)]
pub(crate) struct Submission {
    /// How many calls the batch had.
    pub(crate) before: usize,
    /// When it came.
    pub(crate) at: Timestamp,
}

/// Where a submitted call is answered from.
pub(crate) enum Placed {
    /// It is new, under this ordinal.
    New(Ordinal),
    /// It was submitted before, and is this call.
    Known(Ordinal),
    /// Its identity is another call's; that one is untouched.
    Conflict(Ordinal, Compared),
}

impl OpenBatch {
    /// A batch that nobody has recorded yet, with room for so many calls.
    pub(crate) fn new(head: Head, calls: usize) -> OpenBatch {
        let mut state = State::new(Written::default(), Tally::of(head.siblings), calls);
        state.stream = head.streamed.then(Stream::new);
        OpenBatch::from(head, state)
    }

    /// A batch that was read back, with `rows` rows of journal; calls that have not ended are to be driven.
    pub(crate) fn recorded(head: Head, batch: &Batch, rows: u32) -> OpenBatch {
        let ended = batch.calls.iter().filter(|call| call.end().is_some()).count();
        let calls = batch.calls.len();
        let written = Written { recorded: true, open: batch.is_open(), calls, ended, row: rows };
        let mut state = State::new(written, batch.tally.clone(), calls);
        state.stream = Stream::recorded(batch);
        for call in &batch.calls {
            let alike = state.alike(&call.opened.id);
            let place = state.add(call.opened.clone(), call.opened_at, &alike);
            let slot = &mut state.slots[place];
            (slot.ended, slot.cancelled) = (call.end().is_some(), call.cancel.is_some());
            slot.is_task = call.task.is_some();
            if call.end().is_some() {
                state.end(place, Arc::new(call.clone()));
            }
        }
        if ended == calls {
            state.noted = calls;
        }
        OpenBatch::from(head, state)
    }

    fn from(head: Head, state: State) -> OpenBatch {
        let (ended, stood) = (Notify::new(), Notify::new());
        let (asked, rests) = (AtomicBool::new(false), AtomicBool::new(false));
        let (session, waiting) = (Weak::new(), AtomicUsize::new(0));
        OpenBatch { head, state: Mutex::new(state), ended, stood, asked, session, rests, waiting }
    }

    /// Finds the place of a submitted call: of those there were before this submission (below `before`) it is
    /// one or conflicts with one; a different one of the same submission leaves both without an attempt, see
    /// [`has_twin`](Self::has_twin).
    pub(crate) fn place(&self, asked: &Opened, submission: Submission, limits: &Limits) -> Placed {
        let Submission { before, at } = submission;
        let mut state = self.lock();
        let mut conflict = None;
        let alike = state.alike(&asked.id);
        for &place in &alike.places {
            let ordinal = Ordinal(place as u16);
            match compare(&state.slots[place].opened, asked, limits) {
                Compared::Same => return Placed::Known(ordinal),
                other if place < before => conflict = Some(Placed::Conflict(ordinal, other)),
                Compared::OtherTool | Compared::OtherArgs(_) => {}
            }
        }
        conflict.unwrap_or_else(|| {
            let place = state.add(asked.clone(), at, &alike);
            self.dismiss_added(&mut state, place);
            Placed::New(Ordinal(place as u16))
        })
    }

    /// Makes room for so many more calls.
    pub(crate) fn expect(&self, calls: usize) {
        let mut state = self.lock();
        state.slots.reserve(calls);
        state.ids.reserve(calls);
    }

    /// How many of these have an id that no call had before.
    pub(crate) fn count_new(&self, calls: &[request::Asked]) -> usize {
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

    /// How many calls it has.
    pub(crate) fn len(&self) -> usize {
        self.lock().slots.len()
    }

    /// Puts a call aside until something wakes it. `false`: something was asked of it meanwhile, so it must be.
    /// The alarm is set under the lock: if it rings at once, it must find the call parked.
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

    /// Where a call stands, for one who waits only while something goes on by itself.
    pub(crate) fn standing(&self, ordinal: Ordinal) -> Standing {
        let state = self.lock();
        let slot = state.slots.get(usize::from(ordinal.0));
        match slot.map(|slot| &slot.stage) {
            Some(_) if slot.is_some_and(|slot| slot.is_task) => Standing::Over,
            Some(Stage::Driven) => Standing::Driven,
            Some(Stage::Parked(parked)) => Standing::Parked(parked.call().parked.map(|(why, _)| why.reason)),
            Some(Stage::Ended(_)) | None => Standing::Over,
        }
    }

    /// Waits until something of this batch has ended or was put aside, counted from when this was called.
    pub(crate) fn moved(&self) -> impl Future<Output = ()> + '_ {
        let (ended, stood) = (self.ended.notified(), self.stood.notified());
        async move {
            tokio::select! {
                () = ended => {}
                () = stood => {}
            }
        }
    }

    /// Asks something of a call.
    pub(crate) fn ask(&self, ordinal: Ordinal, heard: Heard) -> Reached {
        let mut state = self.lock();
        let Some(slot) = state.slots.get_mut(usize::from(ordinal.0)) else { return Reached::Over };
        let reached = match slot.stage {
            Stage::Ended(_) => return Reached::Over,
            Stage::Parked(ref parked) if !heard.what.concerns(parked.call()) => return Reached::Over,
            Stage::Parked(_) => Reached::Parked,
            Stage::Driven => Reached::Driven,
        };
        match (&heard.what, &slot.signal) {
            (Asked::Cancel(_), Some(signal)) => signal.stop(Cause::Cancel),
            (Asked::Complete { .. } | Asked::Signal(_), Some(signal)) => signal.book.ring(),
            (_, Some(_) | None) => {}
        }
        slot.asked.push(heard);
        self.asked.store(true, Ordering::SeqCst);
        reached
    }

    /// Whether something was ever asked of one of its calls.
    pub(crate) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    /// Whether a call was asked to stop and has not heard it.
    pub(crate) fn is_cancelled(&self, ordinal: Ordinal) -> bool {
        let cancels = |slot: &Slot| slot.asked.iter().any(|heard| heard.what.stops());
        self.was_asked() && self.lock().slots.get(usize::from(ordinal.0)).is_some_and(cancels)
    }

    /// What was asked of a call since this was last looked at.
    pub(crate) fn hear(&self, ordinal: Ordinal) -> Vec<Heard> {
        let mut state = self.lock();
        state
            .slots
            .get_mut(usize::from(ordinal.0))
            .map(|slot| std::mem::take(&mut slot.asked))
            .unwrap_or_default()
    }

    /// What the world outside has answered or signalled since this was last looked at.
    pub(crate) fn hear_answers(&self, ordinal: Ordinal) -> Vec<Heard> {
        let mut state = self.lock();
        let Some(slot) = state.slots.get_mut(usize::from(ordinal.0)) else { return Vec::new() };
        slot.asked.extract_if(.., |heard| heard.what.is_answer()).collect()
    }

    /// Whether all its open calls wait for the world outside, or for calls inside them that do.
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

    /// The calls, as they can be seen from outside: a parked or ended one whole, a driven one as it was asked for.
    pub(crate) fn look(&self, mut see: impl FnMut(Ordinal, Seen<'_>)) {
        for (slot, place) in self.lock().slots.iter().zip(0..) {
            let seen = match &slot.stage {
                Stage::Ended(_) => Seen::Over,
                Stage::Parked(parked) => Seen::Parked(&slot.opened, slot.opened_at, parked),
                Stage::Driven => Seen::Driven(&slot.opened, slot.opened_at, slot.signal.as_deref()),
            };
            see(Ordinal(place), seen);
        }
    }

    /// A call as it was asked for.
    pub(crate) fn asked_for(&self, ordinal: Ordinal) -> Option<Opened> {
        self.lock().slots.get(usize::from(ordinal.0)).map(|slot| slot.opened.clone())
    }

    /// The call that was amended, durably.
    pub(crate) fn amended(&self, ordinal: Ordinal, call: Arc<Call>) {
        self.lock().end(usize::from(ordinal.0), call);
    }

    /// Takes a call that waits.
    pub(crate) fn unpark(&self, ordinal: Ordinal) -> Option<Parked> {
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

    /// Calls ended, durably: whoever waits is told. `true` if nothing of the batch is to come.
    pub(crate) fn settle(&self, ended: Vec<Ended>, loops: &Loops, limits: &Limits) -> bool {
        let mut state = self.lock();
        for Ended { id, call, polls, .. } in ended {
            let place = usize::from(id.ordinal.0);
            state.slots[place].polls = polls;
            state.end(place, call);
        }
        let over = state.is_over();
        if over && loops::is_turn(&self.head.place.batch_key) {
            // Before anybody is told: whoever is answered may ask for the same again at once.
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

    /// Lets go of the calls that wait, which are still open in the journal, and names them. Whoever waits for them
    /// looks again.
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

    /// What is made of each of these calls and its place among them, if all of them have ended.
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn new(written: Written, tally: Option<Box<Tally>>, calls: usize) -> State {
        let (slots, ids) = (Vec::with_capacity(calls), Vec::with_capacity(calls));
        State { slots, ids, open: 0, noted: 0, written, tally, stream: None, lost: false }
    }

    /// Adds a call, open, and says where.
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
            // Whoever asked something of it has their answer.
            slot.asked.clear();
        }
    }

    /// The calls that the loop guard does not know of; `None` for those that do not count.
    fn unnoted(&self) -> impl ExactSizeIterator<Item = Option<&Call>> {
        self.slots[self.noted..].iter().map(|slot| match &slot.stage {
            Stage::Ended(call) => (!slot.polls).then_some(&**call),
            Stage::Driven | Stage::Parked(_) => None,
        })
    }

    /// The calls with this id.
    fn alike(&self, id: &str) -> Alike {
        let fingerprint = fingerprint(id);
        if !self.ids.contains(&fingerprint) {
            return Alike { fingerprint, places: Vec::new() };
        }
        let same = |place: &usize| *self.slots[*place].opened.id == *id;
        let places = self.ids.iter().zip(0..).filter(|(of, _)| **of == fingerprint);
        Alike { fingerprint, places: places.map(|(_, place)| place).filter(same).collect() }
    }
}

/// A fact cannot be added: the call is not over, or not so that the fact could follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotOver;

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Somebody drives it.
    Driven,
    /// It waits: for what its journal says, or for its turn.
    Parked(Option<Reason>),
    /// It is over, or a task: nobody waits for it.
    Over,
}

/// A call as it can be seen from outside.
pub(crate) enum Seen<'a> {
    /// Somebody drives it; by what its attempt is reached, if one runs.
    Driven(&'a Opened, Timestamp, Option<&'a Signal>),
    /// It waits.
    Parked(&'a Opened, Timestamp, &'a Parked),
    /// It is over.
    Over,
}

/// The calls that have the id of another.
struct Alike {
    fingerprint: u64,
    places: Vec<usize>,
}

/// A hash that is the same for the same id, and quick: what it finds is compared.
fn fingerprint(id: &str) -> u64 {
    // FNV-1a.
    id.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

//! Whose turn it is: the one planner of a runtime, and the calls that wait for what it says.
//!
//! Whoever drives a call asks here before an attempt, and nobody else gives it a turn: a call that is woken for any
//! reason is driven, looks at itself, and asks again. So a wake that comes too early or twice changes nothing. The
//! lock is held for one change at a time, never over an await, and may be held while a batch's lock is taken.

mod wants;

pub(crate) use wants::undeclared;

use crate::away::{Plan, Stub};
use crate::background;
use crate::error::BatchError;
use crate::held::Held;
use crate::registry::Registered;
use crate::runtime::{Inner, RunningLimits, SessionLimits};
use crate::session::Session;
use crate::wheel::When;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::oneshot;
use wants::{by_class, claims};
use windlass_core::claim::Claims;
use windlass_core::ids::{CallId, SessionNo};
use windlass_core::limits::Limits;
use windlass_core::plan::{Arrival, Ask, Cap, Counts, Planner, Pool, Ready, Refused, ToolNo, Wants, Why};

/// The turns of a runtime's calls.
pub(crate) struct Turns(Mutex<State>);

struct State {
    planner: Planner,
    /// The limits in force.
    limits: Limits,
    /// Calls that are parked until they have a turn.
    waiting: BTreeMap<CallId, Weak<Session>>,
    /// Calls that want to go on after calls inside them, until there is room.
    returning: BTreeMap<CallId, oneshot::Sender<()>>,
    /// Calls that will never have one, until they are told.
    refused: BTreeMap<CallId, Refused>,
    /// Calls that rest and still count as running: only while nobody could use their room. Most leave before somebody can.
    resting: Vec<CallId>,
    /// Calls that were taken and have not asked for a turn yet.
    expected: u64,
    /// When the planner is asked again though nothing happened.
    alarm_us: Option<u64>,
    /// Empty between two changes; kept so that a change allocates nothing.
    ready: Ready,
}

/// What became of a call that asked for its turn.
pub(crate) enum Turn {
    /// It may start; and when that was, by the clock that never jumps.
    Now(Box<Held>, u64),
    /// It is parked, and woken when it may.
    Later,
    /// It may never.
    Never(Box<Held>, Refused),
}

/// A call that the planner does not know yet, and that is not prepared.
#[derive(Clone, Copy)]
pub(crate) struct Unprepared {
    session: SessionNo,
    call: CallId,
    parent: Option<CallId>,
    priority: i8,
    fresh: bool,
}

impl Unprepared {
    /// The call, unless the planner knows it.
    pub(crate) fn of(held: &Held) -> Option<Unprepared> {
        (!held.entered).then(|| Unprepared {
            session: held.on.session.lane.session(),
            call: held.id,
            parent: held.parent(),
            priority: held.call.opened.priority,
            fresh: held.past.fresh,
        })
    }
}

/// Calls that may go on, and where they are.
type Next = Vec<(Weak<Session>, CallId)>;

impl Turns {
    pub(crate) fn new(limits: &Limits) -> Turns {
        Turns(Mutex::new(State {
            planner: Planner::new(limits),
            limits: limits.clone(),
            waiting: BTreeMap::new(),
            returning: BTreeMap::new(),
            refused: BTreeMap::new(),
            resting: Vec::new(),
            expected: 0,
            alarm_us: None,
            ready: Ready::default(),
        }))
    }

    /// Makes room for calls that will ask for their turn, or says that there is none.
    pub(crate) fn expect(&self, now_us: u64, calls: u64) -> Result<(), BatchError> {
        // What is open already is joined, however much waits.
        if calls == 0 {
            return Ok(());
        }
        let mut state = self.lock();
        match state.planner.admit(now_us, calls.saturating_add(state.expected)) {
            Ok(()) => {
                state.expected += calls;
                Ok(())
            }
            Err(over) => {
                let (open, max) =
                    (state.planner.counts().queued + state.expected, state.limits.calls_queued_max);
                Err(BatchError::Overloaded { open, max, retry_after_ms: over.retry_after_us.div_ceil(1_000) })
            }
        }
    }

    /// Makes room for calls inside others, however much waits.
    pub(crate) fn expect_inside(&self, calls: u64) {
        self.lock().expected += calls;
    }

    /// So many of the expected calls will not come.
    pub(crate) fn expect_less(&self, calls: u64) {
        let mut state = self.lock();
        state.expected = state.expected.saturating_sub(calls);
    }

    /// Asks for the turn of a call. If it must wait it is parked, at the latest until its deadline.
    pub(crate) fn take(mut held: Box<Held>) -> Turn {
        let (on, id) = (held.on.clone(), held.id);
        let (rt, now_us) = (&on.rt, on.rt.clock.elapsed_us());
        let claims = (!held.claimed).then(|| claims(&mut held).unwrap_or_else(|| by_class(&held)));
        // A call that is new is not among those that rest, nor does it ask for what one of them is.
        let is_new = !held.entered && held.parent().is_none();
        let mut state = if is_new { rt.turns.lock_as_it_is() } else { rt.turns.lock() };
        // What was found out about it meanwhile it has not asked for.
        let mut turn = held.entered && held.claimed && state.planner.has_turn(id);
        if !turn && let Err(refused) = state.ask(&mut held, now_us, (claims, Arrival::New)) {
            return Turn::Never(held, refused);
        }
        let next = state.next(rt, || now_us, |started| turn |= started == id);
        if let Some(refused) = state.refused.remove(&id) {
            drop(state);
            go_on(rt, next);
            return Turn::Never(held, refused);
        }
        if turn {
            drop(state);
            go_on(rt, next);
            return Turn::Now(held, now_us);
        }
        state.waiting.insert(id, Arc::downgrade(&on.session));
        let due_us = held.deadline().1.min(background::due_us(&held));
        let alarm =
            || (due_us < u64::MAX).then(|| rt.wheel.alarm(When { due_us, wall: None }, &on.session, id));
        // Parked before the planner is let go: whoever is told that its turn has come must find it.
        let undisturbed = on.batch.park(*held, alarm);
        drop(state);
        go_on(rt, next);
        on.session.parked(rt, id, undisturbed);
        Turn::Later
    }

    /// An attempt of a call is over. Its room is free though its end may be recorded later, with its whole batch; what it claims
    /// is not.
    pub(crate) fn ran(held: &mut Held, now_us: u64) {
        if held.entered && held.claimed {
            let mut state = held.on.rt.turns.lock_as_it_is();
            if state.planner.is_idle() && state.resting.len() < RESTING_MAX {
                state.resting.push(held.id);
                return;
            }
        }
        Turns::rest(held, now_us);
    }

    /// A call does nothing that takes room until it asks for its next turn: it keeps its place and what it claims.
    pub(crate) fn rest(held: &mut Held, now_us: u64) {
        let on = held.on.clone();
        let rt = &on.rt;
        let claims = if held.claimed { None } else { claims(held) };
        let mut state = rt.turns.lock();
        let arrival = if held.call.attempts > 0 { Arrival::StartedParked } else { Arrival::Parked };
        // Refused is only who runs inside another call; that one is told when it asks for its turn.
        if let Err(refused) = state.ask(held, now_us, (claims, arrival)) {
            state.refused.insert(held.id, refused);
        }
        let next = state.next(rt, || now_us, |_| {});
        drop(state);
        go_on(rt, next);
    }

    /// A call enters anew, behind all others and with what it claims now; it does nothing until it asks for its turn.
    pub(crate) fn anew(held: &mut Held) {
        let on = held.on.clone();
        let (rt, now_us) = (&on.rt, on.rt.clock.elapsed_us());
        let claims = claims(held);
        held.claimed = claims.is_some();
        let wants = claims.unwrap_or(Wants::Unknown);
        let mut state = rt.turns.lock();
        if held.entered {
            state.planner.leave(held.id);
        }
        if let Err(refused) = state.enter(held, now_us, (wants, Arrival::Parked)) {
            state.refused.insert(held.id, refused);
        }
        let next = state.next(rt, || now_us, |_| {});
        drop(state);
        go_on(rt, next);
    }

    /// Calls leave memory: those that nobody can wait for are only counted from now on, and the others remembered.
    pub(crate) fn put_away(&self, calls: &mut [(CallId, Stub)]) {
        let mut state = self.lock();
        for (call, stub) in calls {
            stub.plan = if state.planner.put_away(*call) { Plan::Claimless } else { Plan::Remembered };
        }
    }

    /// Nothing of a session is in memory: those of its calls that are remembered are only counted from now on. `false`: they
    /// must be remembered.
    pub(crate) fn put_session_away(&self, calls: &[CallId]) -> bool {
        self.lock().planner.put_session_away(calls)
    }

    /// A call is in memory again, and is remembered: as having come when it did.
    pub(crate) fn come_back(held: &mut Held, plan: Plan) {
        let wants = match plan {
            Plan::Remembered => {
                (held.entered, held.claimed) = (true, true);
                return;
            }
            Plan::Claimless => Wants::Claims(Claims::NONE),
            Plan::Untold => claims(held).unwrap_or_else(|| by_class(held)),
        };
        let on = held.on.clone();
        let mut state = on.rt.turns.lock();
        state.planner.come_back();
        held.claimed = true;
        if let Err(refused) = state.enter(held, held.past.since_us, (wants, Arrival::StartedParked)) {
            state.refused.insert(held.id, refused);
        }
    }

    /// Calls that are not in memory will not be driven here any more.
    pub(crate) fn leave_away(&self, rt: &Arc<Inner>, calls: &[(CallId, Stub)]) {
        let is_remembered = |stub: &Stub| stub.plan == Plan::Remembered;
        for _ in calls.iter().filter(|(_, stub)| !is_remembered(stub)) {
            self.lock().planner.come_back();
        }
        let remembered = calls.iter().filter(|(_, stub)| is_remembered(stub));
        self.leave(rt, remembered.map(|(call, _)| (*call, false)));
    }

    /// How many calls that started before wait for room.
    pub(crate) fn again(&self) -> u64 {
        self.lock().planner.again()
    }

    /// Keeps the place of a call whose preparation waits for somebody: what it will claim is not known, so nothing that
    /// comes later in its session passes it.
    pub(crate) fn keep_place(&self, now_us: u64, unprepared: Unprepared) {
        let Unprepared { session, call, parent, priority, fresh } = unprepared;
        let (wants, arrival) = (Wants::Unknown, Arrival::Parked);
        let ask = Ask { priority, wants, arrival, parent, ..Ask::new(session, call, ToolNo::UNLIMITED) };
        let mut state = self.lock();
        match state.planner.enter(now_us, ask) {
            Ok(()) if fresh => state.expected = state.expected.saturating_sub(1),
            Ok(()) => {}
            Err(refused) => {
                state.refused.insert(call, refused);
            }
        }
    }

    /// A call only waits for calls inside it: others may have its room meanwhile.
    pub(crate) fn lend(rt: &Arc<Inner>, call: CallId) {
        rt.turns.change(rt, |state, _| {
            state.returning.remove(&call);
            state.planner.lend(call);
        });
    }

    /// A call that lent its room wants to go on, and is told when it may. `None`: at once.
    pub(crate) fn take_back(rt: &Arc<Inner>, call: CallId) -> Option<oneshot::Receiver<()>> {
        let mut told = None;
        rt.turns.change(rt, |state, _| {
            if state.planner.take_back(call) {
                let (tell, tells) = oneshot::channel();
                state.returning.insert(call, tell);
                told = Some(tells);
            }
        });
        told
    }

    /// Enters the calls that an earlier owner left: those that started first, since they hold what they claim; then
    /// the others in their order. None of them has a turn.
    pub(crate) fn take_over(left: &mut [Box<Held>]) {
        let started = |held: &&mut Box<Held>| held.call.attempts > 0;
        let rest = |held: &mut Box<Held>| {
            let now_us = held.on.rt.clock.elapsed_us();
            Turns::rest(held, now_us);
        };
        left.iter_mut().filter(started).for_each(rest);
        left.iter_mut().filter(|held| !started(held)).for_each(rest);
    }

    /// Calls are over, or will not be driven here any more: what they held is given on. With each: whether it was
    /// submitted here.
    pub(crate) fn leave(&self, rt: &Arc<Inner>, calls: impl IntoIterator<Item = (CallId, bool)>) {
        let mut state = self.lock_as_it_is();
        for (call, fresh) in calls {
            // Whoever never asked for a turn is no longer expected to.
            if !state.planner.leave(call) && fresh {
                state.expected = state.expected.saturating_sub(1);
            }
            state.waiting.remove(&call);
            state.returning.remove(&call);
            state.refused.remove(&call);
        }
        let State { resting, planner, .. } = &mut *state;
        resting.retain(|call| planner.is_in(*call));
        rt.away.made_room();
        let next = state.next(rt, || rt.clock.elapsed_us(), |_| {});
        drop(state);
        go_on(rt, next);
    }

    /// A call is a task from now on.
    pub(crate) fn detach(&self, rt: &Arc<Inner>, call: CallId) {
        self.change(rt, |state, _| _ = state.planner.detach(call));
    }

    /// A rate may allow something now.
    pub(crate) fn due(&self, rt: &Arc<Inner>) {
        self.change(rt, |state, _| state.alarm_us = None);
    }

    /// A tool is registered, maybe in the place of another.
    pub(crate) fn set_tool(&self, rt: &Arc<Inner>, tool: &Registered) {
        self.change(rt, |state, now_us| {
            // One that declares no limit matters only if one of its id did.
            if tool.is_limited() || state.planner.knows_tool(tool.spec.stable_id()) {
                state.announce(now_us, tool);
            }
        });
    }

    /// A tool is gone.
    pub(crate) fn remove_tool(&self, rt: &Arc<Inner>, tool: &Registered) {
        self.change(rt, |state, _| {
            if let Some(no) = state.planner.tool(tool.spec.stable_id()) {
                state.planner.remove_tool(no);
            }
        });
    }

    /// The limits of a group of tools are these from now on.
    pub(crate) fn set_group(&self, rt: &Arc<Inner>, group: &str, cap: Cap) {
        self.change(rt, |state, now_us| state.planner.set_group(now_us, group, cap));
    }

    /// So many calls of a session may run at once.
    pub(crate) fn set_session(&self, rt: &Arc<Inner>, session: SessionNo, limits: SessionLimits) {
        let max = limits.calls_running_max.map(|max| u32::try_from(max).unwrap_or(u32::MAX));
        self.change(rt, |state, _| state.planner.set_session(session, max));
    }

    /// A session is let go of: what bounds it is found again when it is taken.
    pub(crate) fn forget_session(&self, session: SessionNo) {
        self.lock().planner.set_session(session, None);
    }

    /// The limits of what runs and waits.
    pub(crate) fn limits(&self) -> RunningLimits {
        RunningLimits::of(&self.lock().limits)
    }

    /// These are the limits from now on.
    pub(crate) fn set_limits(&self, rt: &Arc<Inner>, limits: RunningLimits) {
        self.change(rt, |state, _| {
            limits.put_into(&mut state.limits);
            state.planner.set_limits(&state.limits);
        });
    }

    /// What each of these calls waits for.
    pub(crate) fn why(&self, now_us: u64, calls: impl Iterator<Item = CallId>) -> Vec<Option<Why>> {
        let state = self.lock();
        calls.map(|call| state.planner.why(now_us, call)).collect()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.lock().planner.counts()
    }

    /// How many things are remembered of calls.
    pub(crate) fn kept(&self) -> usize {
        let state = self.lock();
        let remembered = state.waiting.len() + state.returning.len() + state.refused.len();
        state.planner.kept() + remembered + usize::try_from(state.expected).unwrap_or(usize::MAX)
    }

    fn change(&self, rt: &Arc<Inner>, change: impl FnOnce(&mut State, u64)) {
        let now_us = rt.clock.elapsed_us();
        let mut state = self.lock();
        change(&mut state, now_us);
        let next = state.next(rt, || now_us, |_| {});
        drop(state);
        go_on(rt, next);
    }

    /// Everybody who rests is parked.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock_as_it_is();
        state.park_resting();
        state
    }

    /// For whoever cannot tell a call that rests from one that runs.
    fn lock_as_it_is(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// So many calls rest and count as running at most: whoever leaves looks at all of them.
const RESTING_MAX: usize = 256;

impl State {
    /// Somebody could use the room of calls that rest, or looks at them.
    fn park_resting(&mut self) {
        for call in self.resting.drain(..) {
            self.planner.park(call);
        }
    }

    /// Makes a call known, and what it claims, as far as it is not. `None` is not known yet, or no news.
    #[inline]
    fn ask(
        &mut self,
        held: &mut Held,
        now_us: u64,
        (wants, arrival): (Option<Wants>, Arrival),
    ) -> Result<(), Refused> {
        held.claimed |= wants.is_some();
        if !held.entered {
            return self.enter(held, now_us, (wants.unwrap_or(Wants::Unknown), arrival));
        }
        if let Some(wants) = wants {
            let claims = match &wants {
                Wants::Claims(claims) => claims.clone(),
                Wants::Inherited | Wants::Unknown => self.inherited(held),
            };
            match self.planner.reclaim(now_us, held.id, claims) {
                Ok(_) => {}
                // Its turn came, and then its tool was another: it asks anew.
                Err(Refused::TooLate { .. }) => {
                    self.planner.leave(held.id);
                    return self.enter(held, now_us, (wants, arrival));
                }
                Err(refused) => return Err(refused),
            }
        }
        let tool = self.tool_of(held, now_us);
        self.planner.retool(held.id, tool);
        if matches!(arrival, Arrival::New | Arrival::Started) {
            self.planner.wake(now_us, held.id);
        } else {
            self.planner.park(held.id);
        }
        Ok(())
    }

    /// What the call around a call claims.
    fn inherited(&self, held: &Held) -> Claims {
        let claims = held.parent().and_then(|parent| self.planner.claims(parent));
        claims.cloned().unwrap_or(Claims::NONE)
    }

    fn enter(
        &mut self,
        held: &mut Held,
        now_us: u64,
        (wants, arrival): (Wants, Arrival),
    ) -> Result<(), Refused> {
        let tool = self.tool_of(held, now_us);
        let session = held.on.session.lane.session();
        let pool = if held.call.task.is_some() { Pool::Tasks } else { Pool::default() };
        let parent = held.parent();
        let priority = held.call.opened.priority;
        let ask = Ask { session, call: held.id, tool, wants, priority, pool, parent, arrival };
        self.planner.enter(now_us, ask)?;
        if held.past.fresh && !held.entered {
            self.expected = self.expected.saturating_sub(1);
        }
        held.entered = true;
        Ok(())
    }

    /// The number of a call's tool, as far as it is known.
    fn tool_of(&mut self, held: &Held, now_us: u64) -> ToolNo {
        let Some(tool) = held.tool.as_ref().filter(|tool| tool.is_limited()) else {
            return ToolNo::UNLIMITED;
        };
        match self.planner.tool(tool.spec.stable_id()) {
            Some(no) if tool.is_announced() => no,
            Some(_) | None => self.announce(now_us, tool),
        }
    }

    fn announce(&mut self, now_us: u64, tool: &Registered) -> ToolNo {
        let groups: Vec<&str> = tool.spec.groups.iter().map(String::as_str).collect();
        tool.mark_announced();
        self.planner.set_tool(now_us, tool.spec.stable_id(), (tool.cap(), &groups))
    }

    /// What may go on after a change. Whoever is named and not parked is being driven, and asks. The time is asked for only if
    /// that may be somebody.
    fn next(&mut self, rt: &Inner, now_us: impl FnOnce() -> u64, mut started: impl FnMut(CallId)) -> Next {
        let mut next = Next::new();
        // After most changes nobody waits.
        if self.planner.is_quiet() {
            return next;
        }
        let now_us = now_us();
        self.planner.start_ready(now_us, &mut self.ready);
        if !self.resting.is_empty() && !self.planner.is_idle() {
            self.park_resting();
            self.planner.start_ready(now_us, &mut self.ready);
        }
        if let Some(due_us) = self.planner.next_due()
            && self.alarm_us.is_none_or(|alarm_us| due_us < alarm_us)
        {
            self.alarm_us = Some(due_us);
            rt.wheel.ask_turns(due_us);
        }
        if self.ready.start.is_empty() && self.ready.refuse.is_empty() {
            return next;
        }
        if !self.ready.start.is_empty() {
            rt.away.made_room();
        }
        for call in self.ready.start.drain(..) {
            started(call);
            if let Some(back) = self.returning.remove(&call) {
                let _ = back.send(());
            }
            next.extend(self.waiting.remove(&call).map(|session| (session, call)));
        }
        for (call, refused) in self.ready.refuse.drain(..) {
            self.refused.insert(call, refused);
            next.extend(self.waiting.remove(&call).map(|session| (session, call)));
        }
        next
    }
}

/// Drives calls whose turn has come. Mostly it is nobody's.
#[inline]
fn go_on(rt: &Arc<Inner>, next: Next) {
    if !next.is_empty() {
        wake(rt, next);
    }
}

fn wake(rt: &Arc<Inner>, next: Next) {
    for (session, call) in next {
        if let Some(session) = session.upgrade() {
            session.wake(rt, call);
        }
    }
}

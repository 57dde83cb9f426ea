//! Turns: the one planner of a runtime, and the calls that wait for it.
//!
//! The driver of a call asks here before an attempt, and nothing else gives it a turn: a call that is woken for any
//! reason is driven, checks itself, and asks again. So a wake that comes too early or twice changes nothing. The lock
//! is held for one change at a time, never over an await, and may be held while a batch's lock is taken.

mod leaving;
mod outside;
mod shares;
mod wants;

pub(crate) use leaving::DrivenCall;
pub(crate) use shares::ShareRaise;
pub(crate) use wants::undeclared;

use crate::api::error::BatchError;
use crate::api::limits::RunningLimits;
use crate::api::limits::{EnforcedLimits, Limits};
use crate::api::locks::{LockGuard, LockRank, OrderedMutex};
use crate::session::away::{AwayPlan, Stub};
use crate::session::held::{Held, PlannerKnowledge};
use crate::session::inner::Inner;
use crate::session::owner::Session;
use crate::session::patience;
use crate::session::wheel::WakeTime;
use crate::tools::registry::Registered;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use tokio::sync::{Notify, oneshot};
use wants::{by_class, claims};
use windlass_core::claim::Claims;
use windlass_core::ids::{CallId, SessionNo};
use windlass_core::plan::{Arrival, Counts, Entrant, Planner, Pool, Ready, ToolNo, TurnRefusal, Wants, Why};

/// The turns of a runtime's calls.
pub(crate) struct Turns(OrderedMutex<TurnsState, { LockRank::Turns as u8 }>);

struct TurnsState {
    planner: Planner,
    /// The effective limits.
    limits: Limits,
    /// Calls that are parked until they have a turn.
    waiting: BTreeMap<CallId, Weak<Session>>,
    /// Calls that want to continue after their nested calls, until there is room.
    returning: BTreeMap<CallId, oneshot::Sender<()>>,
    /// Calls that will never have a turn, until they learn it.
    refused: BTreeMap<CallId, TurnRefusal>,
    /// Finished attempts that still count as running: only while nobody could use their room. Most calls leave before that.
    resting: Vec<CallId>,
    /// Calls that were accepted and have not asked for a turn yet.
    expected: u64,
    /// When the planner is asked again without a change.
    alarm_us: Option<u64>,
    /// Whether limits of tools and groups hold over several workers.
    is_shared: bool,
    /// Counts how often this worker lost its shares of them.
    share_epoch: u64,
    shares_wanted: Arc<Notify>,
    /// Empty between two changes; kept so that a change allocates nothing.
    ready: Ready,
}

/// The answer to a call that asked for its turn.
pub(crate) enum Turn {
    /// It may start, with the time by the clock that never jumps.
    Now(Box<Held>, u64),
    /// It is parked, and woken when it may start.
    Later,
    /// It may never start.
    Never(Box<Held>, TurnRefusal),
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
        (held.planned == PlannerKnowledge::Nothing).then(|| Unprepared {
            session: held.on.session.lane.session(),
            call: held.id,
            parent: held.parent(),
            priority: held.call.opened.priority,
            fresh: held.past.fresh,
        })
    }
}

/// Calls that may continue, and their sessions.
type Next = Vec<(Weak<Session>, CallId)>;

impl Turns {
    pub(crate) fn new(limits: &EnforcedLimits, is_shared: bool) -> Turns {
        Turns(OrderedMutex::new(TurnsState {
            planner: Planner::new(limits.call()),
            limits: Limits::clone(limits),
            waiting: BTreeMap::new(),
            returning: BTreeMap::new(),
            refused: BTreeMap::new(),
            resting: Vec::new(),
            expected: 0,
            alarm_us: None,
            is_shared,
            share_epoch: 0,
            shares_wanted: Arc::default(),
            ready: Ready::default(),
        }))
    }

    /// Reserves room for calls that will ask for their turn, or refuses them.
    pub(crate) fn expect(&self, now_us: u64, session: SessionNo, calls: u64) -> Result<(), BatchError> {
        // Open calls are joined, however many wait.
        if calls == 0 {
            return Ok(());
        }
        let mut state = self.lock();
        state.planner.admit(now_us, session, calls, state.expected).map_err(outside::refused)?;
        state.expected += calls;
        Ok(())
    }

    /// Reserves room for nested calls, however many wait.
    pub(crate) fn expect_inside(&self, calls: u64) {
        self.lock().expected += calls;
    }

    /// This many of the expected calls will not come.
    pub(crate) fn expect_less(&self, calls: u64) {
        let mut state = self.lock();
        state.expected = state.expected.saturating_sub(calls);
    }

    /// Asks for the turn of a call. If it must wait it is parked, at the latest until its deadline.
    pub(crate) fn take(mut held: Box<Held>) -> Turn {
        let (on, id) = (held.on.clone(), held.id);
        let (rt, now_us) = (&on.rt, on.rt.clock.elapsed_us());
        let claims = (held.planned != PlannerKnowledge::Claims)
            .then(|| claims(&mut held).unwrap_or_else(|| by_class(&held)));
        // A new call is not one of those that rest, nor does it depend on one.
        let is_new = held.planned == PlannerKnowledge::Nothing && held.parent().is_none();
        let mut state = if is_new { rt.turns.lock_as_it_is() } else { rt.turns.lock() };
        // Facts found meanwhile are not part of its request.
        let mut turn = held.planned == PlannerKnowledge::Claims && state.planner.has_turn(id);
        if !turn && let Err(refused) = state.ask(&mut held, now_us, claims, Arrival::New) {
            return Turn::Never(held, refused);
        }
        let next = state.next(rt, || now_us, |started| turn |= started == id);
        if !is_new {
            let clock = &mut held.past.clock;
            clock.stood_us = state.planner.stood_us(now_us, id).max(clock.stood_us);
        }
        if let Some(refused) = take_out(&mut state.refused, id) {
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
        let due_us = held.due_us().min(patience::due_us(&held));
        let alarm =
            || (due_us < u64::MAX).then(|| rt.wheel.alarm(WakeTime { due_us, wall: None }, &on.session, id));
        // Parked before the planner's lock is released: a wake for its turn must find it.
        let undisturbed = on.batch.park(*held, alarm);
        drop(state);
        go_on(rt, next);
        on.session.parked(rt, id, undisturbed);
        Turn::Later
    }

    /// An attempt of a call is over. Its room is free though its end may be recorded later, with its whole
    /// batch; its claims are not.
    pub(crate) fn ran(held: &mut Held, now_us: u64) {
        if held.planned == PlannerKnowledge::Claims {
            let mut state = held.on.rt.turns.lock_as_it_is();
            if state.planner.is_idle() && state.resting.len() < RESTING_MAX {
                state.resting.push(held.id);
                return;
            }
        }
        Turns::release_room(held, now_us);
    }

    /// A call needs no room until it asks for its next turn: it keeps its place and its claims.
    pub(crate) fn release_room(held: &mut Held, now_us: u64) {
        let on = held.on.clone();
        let rt = &on.rt;
        let claims = if held.planned == PlannerKnowledge::Claims { None } else { claims(held) };
        let mut state = rt.turns.lock();
        let arrival = if held.call.attempts > 0 { Arrival::StartedParked } else { Arrival::Parked };
        // Only a nested call is refused; it learns so when it asks for its turn.
        if let Err(refused) = state.ask(held, now_us, claims, arrival) {
            state.refused.insert(held.id, refused);
        }
        state.gives_way(held, now_us);
        let next = state.next(rt, || now_us, |_| {});
        drop(state);
        go_on(rt, next);
    }

    /// Re-enters a call behind all others, with its current claims; it does nothing until it asks for its turn.
    pub(crate) fn anew(held: &mut Held) {
        let on = held.on.clone();
        let (rt, now_us) = (&on.rt, on.rt.clock.elapsed_us());
        let claims = claims(held);
        let mut state = rt.turns.lock();
        if held.planned != PlannerKnowledge::Nothing {
            state.planner.leave(held.id);
            held.planned = PlannerKnowledge::Call;
        }
        if let Err(refused) = state.enter(held, now_us, claims, Arrival::Parked) {
            state.refused.insert(held.id, refused);
        }
        let next = state.next(rt, || now_us, |_| {});
        drop(state);
        go_on(rt, next);
    }

    /// Calls leave memory: those that nobody can wait for are only counted from now on, the others remembered.
    pub(crate) fn evict(&self, calls: &mut [(CallId, Stub)]) {
        let mut state = self.lock();
        for (call, stub) in calls {
            stub.plan =
                if state.planner.forget_parked(*call) { AwayPlan::Claimless } else { AwayPlan::Remembered };
        }
    }

    /// Nothing of a session is in memory: its remembered calls are only counted from now on. `false`: they
    /// must be remembered.
    pub(crate) fn evict_session(&self, calls: &[CallId]) -> bool {
        self.lock().planner.forget_parked_session(calls)
    }

    /// A call is in memory again, and remembered with its original arrival.
    pub(crate) fn come_back(held: &mut Held, plan: AwayPlan) {
        let wants = match plan {
            AwayPlan::Remembered => {
                held.planned = PlannerKnowledge::Claims;
                return;
            }
            AwayPlan::Claimless => Wants::Claims(Claims::NONE),
            AwayPlan::Untold => claims(held).unwrap_or_else(|| by_class(held)),
        };
        let on = held.on.clone();
        let mut state = on.rt.turns.lock();
        state.planner.come_back();
        let since_us = held.past.clock.since_us;
        let arrival = if held.call.attempts > 0 { Arrival::StartedParked } else { Arrival::Parked };
        if let Err(refused) = state.enter(held, since_us, Some(wants), arrival) {
            state.refused.insert(held.id, refused);
        }
    }

    /// The number of calls that have started before and wait for room.
    pub(crate) fn again(&self) -> u64 {
        self.lock().planner.again()
    }

    /// Keeps the place of a call whose preparation waits: its claims are not known, so nothing later in its
    /// session overtakes it.
    pub(crate) fn keep_place(&self, now_us: u64, unprepared: Unprepared) {
        let Unprepared { session, call, parent, priority, fresh } = unprepared;
        let (wants, arrival, prepares) = (Wants::Unknown, Arrival::Parked, true);
        let new = Entrant::new(session, call, ToolNo::UNLIMITED);
        let ask = Entrant { priority, wants, arrival, parent, prepares, ..new };
        let mut state = self.lock();
        match state.planner.enter(now_us, ask) {
            Ok(()) if fresh => state.expected = state.expected.saturating_sub(1),
            Ok(()) => {}
            Err(refused) => {
                state.refused.insert(call, refused);
            }
        }
    }

    /// A call only waits for its nested calls: others may have its room meanwhile.
    pub(crate) fn lend(rt: &Arc<Inner>, call: CallId) {
        rt.turns.change(rt, |state, _| {
            state.returning.remove(&call);
            state.planner.lend(call);
        });
    }

    /// A call that lent its room wants to continue; the receiver says when it may. `None`: at once.
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

    /// Enters the calls that an earlier owner left: the started ones first, since they hold their claims;
    /// then the others in their order. None of them has a turn.
    pub(crate) fn enter_left(left: &mut [Box<Held>]) {
        let started = |held: &&mut Box<Held>| held.call.attempts > 0;
        let rest = |held: &mut Box<Held>| {
            let now_us = held.on.rt.clock.elapsed_us();
            Turns::release_room(held, now_us);
        };
        left.iter_mut().filter(started).for_each(rest);
        left.iter_mut().filter(|held| !started(held)).for_each(rest);
    }

    /// A call is a task from now on.
    pub(crate) fn detach(&self, rt: &Arc<Inner>, call: CallId) {
        self.change(rt, |state, _| _ = state.planner.detach(call));
    }

    /// A rate may allow a start now.
    pub(crate) fn due(&self, rt: &Arc<Inner>) {
        self.change(rt, |state, _| state.alarm_us = None);
    }

    /// The names above all `global:` ones that a call claims, in their order.
    pub(crate) fn global_names(&self, call: CallId) -> Vec<String> {
        let state = self.lock_as_it_is();
        let claims = state.planner.claims(call).into_iter().flat_map(Claims::iter);
        let global = claims.filter(|claim| claim.name.is_global());
        let names: BTreeSet<&str> = global.filter_map(|claim| claim.name.levels().next()).collect();
        names.into_iter().map(str::to_string).collect()
    }

    /// The current limits of running and waiting calls.
    pub(crate) fn limits(&self) -> RunningLimits {
        RunningLimits::of(&self.lock().limits)
    }

    /// Sets the limits of running and waiting calls.
    pub(crate) fn set_limits(&self, rt: &Arc<Inner>, limits: RunningLimits) {
        self.change(rt, |state, _| {
            limits.put_into(&mut state.limits);
            state.planner.set_limits(&state.limits.call());
        });
    }

    /// The waits of these calls.
    pub(crate) fn why(&self, now_us: u64, calls: impl Iterator<Item = CallId>) -> Vec<Option<Why>> {
        let state = self.lock();
        calls.map(|call| state.planner.why(now_us, call)).collect()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.lock().planner.counts()
    }

    /// The number of remembered objects.
    pub(crate) fn kept(&self) -> usize {
        let state = self.lock();
        let remembered = state.waiting.len() + state.returning.len() + state.refused.len();
        state.planner.kept() + remembered + usize::try_from(state.expected).unwrap_or(usize::MAX)
    }

    fn change(&self, rt: &Arc<Inner>, change: impl FnOnce(&mut TurnsState, u64)) {
        let now_us = rt.clock.elapsed_us();
        let mut state = self.lock();
        change(&mut state, now_us);
        let next = state.next(rt, || now_us, |_| {});
        drop(state);
        go_on(rt, next);
    }

    /// Locks the state, with all resting calls parked.
    fn lock(&self) -> LockGuard<'_, TurnsState> {
        let mut state = self.lock_as_it_is();
        state.park_resting();
        state
    }

    /// Locks the state for callers that cannot distinguish a resting call from a running one.
    fn lock_as_it_is(&self) -> LockGuard<'_, TurnsState> {
        self.0.lock()
    }
}

/// The maximum number of resting calls that count as running: each leaving call looks at all of them.
const RESTING_MAX: usize = 256;

impl TurnsState {
    /// Parks resting calls, because their room is needed or they are inspected.
    fn park_resting(&mut self) {
        for call in self.resting.drain(..) {
            self.planner.park(call);
        }
    }

    /// Makes a call and its claims known, as far as they are new. `None`: not known yet, or unchanged.
    #[inline]
    fn ask(
        &mut self,
        held: &mut Held,
        now_us: u64,
        wants: Option<Wants>,
        arrival: Arrival,
    ) -> Result<(), TurnRefusal> {
        if held.planned == PlannerKnowledge::Nothing {
            return self.enter(held, now_us, wants, arrival);
        }
        if let Some(wants) = wants {
            let claims = match &wants {
                Wants::Claims(claims) => claims.clone(),
                Wants::Inherited | Wants::Unknown => self.inherited(held),
            };
            match self.planner.reclaim(now_us, held.id, claims) {
                Ok(_) => {}
                // Its turn came, and then its tool was replaced: it asks again.
                Err(TurnRefusal::TooLate { .. }) => {
                    self.planner.leave(held.id);
                    return self.enter(held, now_us, Some(wants), arrival);
                }
                Err(refused) => return Err(refused),
            }
            held.planned = PlannerKnowledge::Claims;
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

    /// The claims of the call around a call.
    fn inherited(&self, held: &Held) -> Claims {
        let claims = held.parent().and_then(|parent| self.planner.claims(parent));
        claims.cloned().unwrap_or(Claims::NONE)
    }

    fn enter(
        &mut self,
        held: &mut Held,
        now_us: u64,
        wants: Option<Wants>,
        arrival: Arrival,
    ) -> Result<(), TurnRefusal> {
        let planned = if wants.is_some() { PlannerKnowledge::Claims } else { PlannerKnowledge::Call };
        let wants = wants.unwrap_or(Wants::Unknown);
        let tool = self.tool_of(held, now_us);
        let session = held.on.session.lane.session();
        let pool = if held.call.task.is_some() { Pool::Tasks } else { Pool::default() };
        let parent = held.parent();
        let priority = held.call.opened.priority;
        let is_parked = matches!(arrival, Arrival::Parked | Arrival::StartedParked);
        let (outside, answered) = (held.call.waits_outside(), is_parked && held.on.batch.is_left_alone());
        let prepares = false;
        let call = held.id;
        let ask = Entrant {
            session,
            call,
            tool,
            wants,
            priority,
            pool,
            parent,
            arrival,
            outside,
            answered,
            prepares,
        };
        self.planner.enter(now_us, ask)?;
        if held.past.fresh && held.planned == PlannerKnowledge::Nothing {
            self.expected = self.expected.saturating_sub(1);
        }
        held.planned = planned;
        Ok(())
    }

    /// The number of a call's tool, if it is known.
    fn tool_of(&mut self, held: &Held, now_us: u64) -> ToolNo {
        // Slots are of a process that waits for the nested call, and may have another for it.
        let is_free = |tool: &Registered| held.parent().is_some() && tool.is_limited_by_slots_alone();
        let Some(tool) = held.tool.as_ref().filter(|tool| tool.is_limited() && !is_free(tool)) else {
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
        let no = self.planner.set_tool(now_us, tool.spec.stable_id(), tool.cap(), &groups);
        if self.is_shared {
            self.planner.share_tool(now_us, no);
        }
        no
    }

    /// The calls that may continue after a change. A named call that is not parked is being driven, and asks.
    /// The time is read only if there may be one.
    fn next(&mut self, rt: &Inner, now_us: impl FnOnce() -> u64, mut started: impl FnMut(CallId)) -> Next {
        let mut next = Next::new();
        if self.is_shared && self.planner.shares_changed() {
            self.shares_wanted.notify_one();
        }
        // After most changes nobody waits.
        if self.planner.is_quiet() {
            return next;
        }
        let now_us = now_us();
        self.planner.start_ready(now_us, &mut self.ready);
        if self.is_shared && self.planner.shares_changed() {
            self.shares_wanted.notify_one();
        }
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
            if let Some(back) = take_out(&mut self.returning, call) {
                let _ = back.send(());
            }
            next.extend(take_out(&mut self.waiting, call).map(|session| (session, call)));
        }
        for (call, refused) in self.ready.refuse.drain(..) {
            self.refused.insert(call, refused);
            next.extend(self.waiting.remove(&call).map(|session| (session, call)));
        }
        next
    }
}

/// Removes the entry of a call. Mostly there are none at all, which is quicker to see than that one is missing.
#[inline]
fn take_out<T>(entries: &mut BTreeMap<CallId, T>, call: CallId) -> Option<T> {
    if entries.is_empty() { None } else { entries.remove(&call) }
}

/// Drives calls whose turn has come. Mostly there are none.
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

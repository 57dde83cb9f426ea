//! The plan: which calls may start now, by their claims and the available room.
//!
//! The [`Planner`] receives all events of calls and says which may continue. It does nothing by itself and
//! never reads the clock, so the same events give the same plan. A call passes three stages: its session's
//! queues, behind older calls that it collides with; the queues of `global:` names, which it joins only when
//! nothing in its session is before it; and a line for room to run. It keeps its places in the queues until
//! it leaves, so colliding calls wait; calls inside a call have queues of their own within it.

mod admit;
mod away;
mod count;
mod line;
mod numbers;
mod outside;
mod room;
mod share;
mod shift;
mod slab;
mod sorted;
mod start;
mod stuck;
mod trie;
mod why;

pub use admit::{Bound, Overloaded};
pub use room::{Cap, Pool, ToolNo};
pub use share::{LimitShare, ShareUse, SharedLimit};
pub use why::{Limit, Why};

use crate::claim::{self, Claims};
use crate::code::Code;
use crate::few::Few;
use crate::ids::{CallId, SessionNo};
use crate::limits::CallLimits;
use line::TurnLines;
use numbers::CallNumbers;
use outside::StillTime;
use room::PlanRoom;
use slab::{NONE, Slab};
use std::collections::BTreeSet;
use trie::{ClaimSpace, Trie};

/// A call that asks for its turn.
#[derive(Clone, Debug)]
pub struct Entrant {
    /// Its session.
    pub session: SessionNo,
    /// The call.
    pub call: CallId,
    /// Its tool, from [`Planner::set_tool`].
    pub tool: ToolNo,
    /// Its claims.
    pub wants: Wants,
    /// Higher goes first, among calls that do not collide. A nested call has its parent's.
    pub priority: i8,
    /// The pool of room it takes. A nested call takes its parent's.
    pub pool: Pool,
    /// The call that made it, if it is nested.
    pub parent: Option<CallId>,
    /// Its past.
    pub arrival: Arrival,
    /// Whether it waits for an external answer, if it has started and is parked.
    pub outside: bool,
    /// Whether its batch was answered, or nobody waits for that.
    pub answered: bool,
    /// Whether it is being prepared: then it keeps its place, even if its batch was answered.
    pub prepares: bool,
}

/// The claims of a call, as far as they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wants {
    /// These claims.
    Claims(Claims),
    /// The claims of the call around it.
    Inherited,
    /// It is not prepared: all younger calls wait, and so does it, until [`Planner::reclaim`].
    Unknown,
}

/// The past of a call before it was entered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrival {
    /// None.
    #[default]
    New,
    /// It is parked and never started.
    Parked,
    /// It started under an earlier owner. Enter these of a session before all others: they hold their claims.
    Started,
    /// It started under an earlier owner and is parked.
    StartedParked,
}

impl Entrant {
    /// A new call that writes its session.
    pub fn new(session: SessionNo, call: CallId, tool: ToolNo) -> Entrant {
        let wants = Wants::Claims(Claims::of(crate::tool::EffectClass::Once));
        let (pool, arrival) = (Pool::default(), Arrival::default());
        let (priority, parent) = (0, None);
        let (outside, answered, prepares) = (false, false, false);
        Entrant { session, call, tool, wants, priority, pool, parent, arrival, outside, answered, prepares }
    }
}

/// Why a call never gets a turn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TurnRefusal {
    /// It was entered before.
    #[error("call {call} has already asked for its turn")]
    Twice {
        /// The call.
        call: CallId,
    },
    /// It has started, or was not entered.
    #[error("the claims of call {call} can no longer change: it has started or is over")]
    TooLate {
        /// The call.
        call: CallId,
    },
    /// The call around it is not there, never started, or is over.
    #[error("the call {parent} is not running, so nothing can run inside it")]
    NoParent {
        /// The parent.
        parent: CallId,
    },
    /// It claims more than the call around it.
    #[error(
        "`{claim}` is outside the claims of the call around it: widen that tool's claims, or narrow this one's"
    )]
    NotCovered {
        /// The claim outside.
        claim: claim::Claim,
    },
    /// The room it needs is held by calls that wait for it.
    #[error(
        "{limit} is held by {held_by}, which waits for this call: raise the limit, or do not call this tool from there"
    )]
    WouldDeadlock {
        /// The full limit.
        limit: Limit,
        /// Its holder.
        held_by: CallId,
    },
}

impl TurnRefusal {
    /// The failure code of the call.
    pub fn code(&self) -> Code {
        match self {
            TurnRefusal::Twice { .. } | TurnRefusal::TooLate { .. } | TurnRefusal::NoParent { .. } => {
                Code::Internal
            }
            TurnRefusal::NotCovered { .. } => Code::ClaimNotCovered,
            TurnRefusal::WouldDeadlock { .. } => Code::WouldDeadlock,
        }
    }
}

/// The calls to act on now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// These may continue: start, run again, or resume after nested calls. They count as running.
    pub start: Vec<CallId>,
    /// These can never start: end them and [leave](Planner::leave).
    pub refuse: Vec<(CallId, TurnRefusal)>,
}

/// The effect of changed claims on a call's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaimed {
    /// The new claims are within the old ones.
    KeptPlace,
    /// They are not: younger calls that collide with them may have run, so it is behind all others now.
    QueuedAnew,
}

/// The number of calls in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Waiting for a claim or for room.
    pub queued: u64,
    /// Running, by [`Pool`].
    pub running: [u64; 2],
    /// Waiting for nested calls.
    pub lending: u64,
    /// Parked.
    pub parked: u64,
}

/// The order of all unfinished calls of a process.
#[derive(Debug)]
pub struct Planner {
    trie: Trie,
    lines: TurnLines,
    room: PlanRoom,
    calls: Slab<PlannedCall>,
    call_nos: CallNumbers,
    sessions: Slab<PlannedSession>,
    session_nos: Few<SessionNo, u32>,
    /// The queues of the names that hold across sessions.
    global: ClaimSpace,
    age: u64,
    counts: Counts,
    /// Queued calls that have started before.
    again: u64,
    /// Parked calls that were [forgotten](Planner::forget_parked).
    away: u64,
    /// Calls whose clocks stand still, so that those behind them are checked.
    still: u64,
    limits: Maxima,
    pace: QueuePace,
    /// A call that came to the lines while no other could start: it is put into its line only if something
    /// else happens before it starts. Mostly nothing does.
    alone: u32,
    /// Scratch space, empty between changes; kept so that a change allocates nothing.
    cleared: Vec<u32>,
    /// Calls found to wait for each other.
    deadlocked: Vec<(CallId, TurnRefusal)>,
    /// Whether a change since then can have made calls wait for each other.
    suspects_deadlock: bool,
    /// Whether nested calls wait for room that only lending calls hold, though these can continue for now.
    watches_deadlock: bool,
}

#[derive(Debug)]
struct Maxima {
    queued: u64,
    session_queued: u64,
    parked: u64,
    lead_us: i64,
    retry_us: (u64, u64),
}

/// The pace of the queue, to estimate when to retry.
#[derive(Debug, Default)]
struct QueuePace {
    started_us: u64,
    between_us: u64,
}

#[derive(Debug)]
struct PlannedSession {
    no: SessionNo,
    space: ClaimSpace,
    calls: u32,
    queued: u64,
    running: [u32; 2],
    lines: Vec<u32>,
    /// Its calls that wait for others because of their claims.
    blocked: BTreeSet<u32>,
}

#[derive(Debug)]
struct PlannedCall {
    id: CallId,
    session: u32,
    tool: u32,
    parent: u32,
    /// The queues of the nested calls, while there are any.
    inside: Option<Box<InnerQueues>>,
    claims: Claims,
    /// Its place in the queues of its session or of the call around it.
    own: u32,
    /// Its place in the queues of the global names.
    global: u32,
    /// Its line while it is in one.
    line: u32,
    age: u64,
    lead_us: i64,
    pool: Pool,
    stage: ClaimStage,
    doing: Doing,
    flags: CallFlags,
    stood: StillTime,
}

#[derive(Debug)]
struct InnerQueues {
    space: ClaimSpace,
    calls: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct CallFlags {
    parked: bool,
    started: bool,
    answered: bool,
    unprepared: bool,
    claims_global: bool,
    /// It has default claims, of its class or of the call around it, since its tool declares none.
    defaulted: bool,
    /// It is being prepared.
    prepares: bool,
    /// It has started, and waits for an external answer.
    outside: bool,
    /// It waits for nested calls that wait for external answers.
    waits_inside: bool,
    /// It waited behind a call whose clocks stood still, at the last check.
    behind: bool,
    priority: i8,
}

/// The progress of a call's claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimStage {
    /// It gave up its place.
    Away,
    /// It is in its own queues.
    Own,
    /// It is in the global queues as well.
    Global,
    /// Nothing is before it.
    Clear,
}

/// The state of a call with regard to room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    /// It is in a line for room.
    Lined,
    Running,
    /// It waits for nested calls, and holds only its tool's room.
    Lending,
    /// It did so, and is in a line to continue.
    Returning,
    /// It left before its nested calls did.
    Left,
    /// It can never start, and that was reported.
    Refused,
}

impl Planner {
    /// A planner with no calls.
    pub fn new(limits: &CallLimits) -> Planner {
        Planner {
            trie: Trie::default(),
            lines: TurnLines::default(),
            room: PlanRoom::new(limits),
            calls: Slab::default(),
            call_nos: CallNumbers::default(),
            sessions: Slab::default(),
            session_nos: Few::default(),
            global: ClaimSpace::EMPTY,
            age: 0,
            counts: Counts::default(),
            again: 0,
            away: 0,
            still: 0,
            limits: Maxima::of(limits),
            pace: QueuePace::default(),
            alone: NONE,
            cleared: Vec::new(),
            deadlocked: Vec::new(),
            suspects_deadlock: false,
            watches_deadlock: false,
        }
    }

    /// Enters a call behind all earlier ones of its session, or of the call around it.
    pub fn enter(&mut self, now_us: u64, ask: Entrant) -> Result<(), TurnRefusal> {
        if self.call_nos.get(ask.call).is_some() {
            return Err(TurnRefusal::Twice { call: ask.call });
        }
        let call = self.admitted(now_us, ask)?;
        let number = self.insert(call);
        self.look_behind(now_us, number);
        Ok(())
    }

    /// A call is over, in any way and state: its end was sent, or it was withdrawn before it started. `false`
    /// if it was not entered. While it has nested calls, its claims stay until the last of them left.
    pub fn leave(&mut self, call: CallId) -> bool {
        let Some(number) = self.find(call) else { return false };
        self.uncount(number);
        self.stop(number);
        let left = self.calls[number].id.batch;
        let was_still = self.calls[number].is_still();
        if was_still {
            self.resume_clocks(0, number);
        }
        self.calls[number].doing = Doing::Left;
        if self.calls[number].inside.is_none() {
            self.finish(number);
        }
        if was_still {
            self.advance_batch(left);
        }
        true
    }

    /// A call stops until [`wake`](Self::wake): it holds no room. If it has started it keeps its claims; if not, it keeps its
    /// place in its session until its batch was answered. `false` if it was not entered, parked before, or refused.
    pub fn park(&mut self, call: CallId) -> bool {
        if let Some(number) = self.find(call) {
            self.calls[number].flags.prepares = false;
        }
        let parks = |call: &PlannedCall| !call.flags.parked && call.doing != Doing::Refused;
        let Some(number) = self.find(call).filter(|&number| parks(&self.calls[number])) else {
            return false;
        };
        self.uncount(number);
        self.stop(number);
        self.unblock(number);
        self.calls[number].flags.parked = true;
        self.count(number);
        if !self.calls[number].flags.started {
            self.leave_global(number);
            if self.calls[number].flags.answered {
                self.go_away(number);
            }
        }
        true
    }

    /// A parked call continues as soon as it may. `false` if it was not parked.
    pub fn wake(&mut self, now_us: u64, call: CallId) -> bool {
        let Some(number) = self.find(call).filter(|&number| self.calls[number].flags.parked) else {
            return false;
        };
        self.uncount(number);
        self.calls[number].flags.parked = false;
        self.count(number);
        self.come_inside(now_us, number);
        self.look_behind(now_us, number);
        true
    }

    /// Whether a call was entered and has not left.
    pub fn is_in(&self, call: CallId) -> bool {
        self.find(call).is_some()
    }

    /// Whether a call has its turn: it runs, as far as is known here.
    pub fn has_turn(&self, call: CallId) -> bool {
        self.find(call).is_some_and(|number| self.calls[number].doing == Doing::Running)
    }

    /// A running call only waits for nested calls: its room in process and session is free meanwhile, that of
    /// its tool and groups is not. `false` if it does not run.
    pub fn lend(&mut self, call: CallId) -> bool {
        let Some(number) = self.find(call) else { return false };
        self.uncount(number);
        let lends = match self.calls[number].doing {
            Doing::Running => {
                self.give_room_back(number);
                true
            }
            Doing::Returning => {
                self.leave_line(number);
                true
            }
            Doing::Nothing | Doing::Lined | Doing::Lending | Doing::Left | Doing::Refused => false,
        };
        if lends {
            self.calls[number].doing = Doing::Lending;
            let tool = self.calls[number].tool;
            self.room.lend(tool, true);
            self.suspect(tool);
        }
        self.count(number);
        lends
    }

    /// A call that lent its room wants to continue: [`start_ready`](Self::start_ready) will name it, before
    /// others of its session. `false` if it lent nothing.
    pub fn take_back(&mut self, call: CallId) -> bool {
        let Some(number) = self.find(call).filter(|&number| self.calls[number].doing == Doing::Lending)
        else {
            return false;
        };
        self.uncount(number);
        self.room.lend(self.calls[number].tool, false);
        self.calls[number].doing = Doing::Returning;
        self.count(number);
        self.line_up(number);
        true
    }

    /// The caller no longer waits for a call: it counts among the tasks, even beyond their limit if it runs.
    pub fn detach(&mut self, call: CallId) -> bool {
        let Some(number) = self.find(call) else { return false };
        match self.calls[number].doing {
            Doing::Running => {
                self.give_room_back(number);
                self.calls[number].pool = Pool::Tasks;
                self.take_room(number);
            }
            Doing::Lined | Doing::Returning => {
                self.leave_line(number);
                self.calls[number].pool = Pool::Tasks;
                self.line_up(number);
            }
            Doing::Nothing | Doing::Lending | Doing::Left | Doing::Refused => {
                self.calls[number].pool = Pool::Tasks;
            }
        }
        true
    }

    /// The claims of a call that never started are known now, or have changed with its arguments.
    pub fn reclaim(&mut self, now_us: u64, call: CallId, claims: Claims) -> Result<Reclaimed, TurnRefusal> {
        let found = self.find(call).filter(|&number| !self.calls[number].flags.started);
        let number = found.ok_or(TurnRefusal::TooLate { call })?;
        let reclaimed = self.change_claims(now_us, number, claims)?;
        self.look_behind(now_us, number);
        Ok(reclaimed)
    }

    /// The claims of a call, if they are known.
    pub fn claims(&self, call: CallId) -> Option<&Claims> {
        self.find(call).map(|number| &self.calls[number].claims)
    }

    /// When a rate allows a start without another event.
    pub fn next_due(&self) -> Option<u64> {
        self.lines.next_due()
    }

    /// Adds a tool, or changes its limits and groups. The number stays the same for the same id.
    pub fn set_tool(&mut self, now_us: u64, id: &str, cap: Cap, groups: &[&str]) -> ToolNo {
        let no = self.room.set_tool(id, cap, groups, now_us);
        self.line_up_again();
        ToolNo(no)
    }

    /// The number of a tool that was added and is not gone.
    pub fn tool(&self, id: &str) -> Option<ToolNo> {
        self.room.find_tool(id)
    }

    /// Whether a tool was added, and is not gone with all its calls.
    pub fn knows_tool(&self, id: &str) -> bool {
        self.room.knows_tool(id)
    }

    /// Changes the limits of a group of tools.
    pub fn set_group(&mut self, now_us: u64, name: &str, cap: Cap) {
        self.room.set_group(name, cap, now_us);
        self.line_up_again();
    }

    /// Changes the limits. Running calls above a lower one finish normally.
    pub fn set_limits(&mut self, limits: &CallLimits) {
        self.room.set_limits(limits);
        self.limits = Maxima::of(limits);
        self.line_up_again();
    }

    /// Sets how many calls and tasks of a session run at once, if fewer than the general limit; `None`: that limit.
    pub fn set_session(&mut self, session: SessionNo, running_max: [Option<u32>; 2]) {
        if self.room.set_session(session, running_max) {
            self.line_up_again();
        }
    }

    /// A tool is gone: calls of it wait until [`set_tool`](Self::set_tool) adds one of the same id. Its
    /// number is forgotten with its last call.
    pub fn remove_tool(&mut self, tool: ToolNo) {
        self.room.remove_tool(tool);
        self.line_up_again();
        if tool != ToolNo::UNLIMITED {
            self.room.drop_tool_if_idle(tool.0);
        }
    }

    /// The number of remembered objects: 0 once every call has left.
    pub fn kept(&self) -> usize {
        self.trie.len() - self.global.roots()
            + self.lines.len()
            + self.calls.len()
            + self.sessions.len()
            + self.call_nos.len()
            + usize::try_from(self.away).unwrap_or(usize::MAX)
    }

    /// The number of a call that has not left.
    fn find(&self, call: CallId) -> Option<u32> {
        self.call_nos.get(call).filter(|&number| self.calls[number].doing != Doing::Left)
    }
}

impl Maxima {
    fn of(limits: &CallLimits) -> Maxima {
        let micros = |ms: u64| ms.saturating_mul(1_000);
        Maxima {
            queued: limits.calls_queued_max,
            session_queued: limits.session_calls_queued_max,
            parked: limits.calls_parked_max,
            lead_us: i64::try_from(micros(limits.priority_lead_ms)).unwrap_or(i64::MAX / 1_024),
            retry_us: (micros(limits.overload_wait_ms_min), micros(limits.overload_wait_ms_max)),
        }
    }
}

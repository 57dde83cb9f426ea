//! What may start now: the order of all unfinished calls, by what they claim and by what there is room for.
//!
//! The [`Planner`] is told what happens to calls and says which may go on. It does nothing by itself and asks nobody
//! the time, so the same story gives the same plan. A call passes three stages: its session's queues, where it stands
//! behind older calls that it collides with; the queues of `global:` names, which it joins only when nothing in its
//! session stands before it; and a line for room to run. It holds its places in the queues until it leaves, so whoever
//! collides with it waits; calls inside a call have queues of their own within it.

mod away;
mod line;
mod numbers;
mod room;
mod shift;
mod slab;
mod sorted;
mod start;
mod stuck;
mod trie;
mod why;

pub use room::{Cap, Pool, ToolNo};
pub use why::{Limit, Why};

use crate::claim::{self, Claims};
use crate::code::Code;
use crate::few::Few;
use crate::ids::{BatchNo, CallId, SessionNo};
use crate::limits::Limits;
use line::Lines;
use numbers::Numbers;
use room::Room;
use slab::{NONE, Slab};
use trie::{Space, Trie};

/// A call that asks for its turn.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Its session.
    pub session: SessionNo,
    /// Which call.
    pub call: CallId,
    /// Its tool, from [`Planner::set_tool`].
    pub tool: ToolNo,
    /// What it reads and writes.
    pub wants: Wants,
    /// Higher goes before, among calls that do not collide. A call inside another has that one's.
    pub priority: i8,
    /// Which room it takes. A call inside another takes that one's.
    pub pool: Pool,
    /// The call inside which it runs.
    pub parent: Option<CallId>,
    /// What has happened to it before.
    pub arrival: Arrival,
}

/// What a call reads and writes, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wants {
    /// This.
    Claims(Claims),
    /// What the call around it claims.
    Inherited,
    /// It is not prepared: everybody younger waits, and so does it, until [`Planner::reclaim`].
    Unknown,
}

/// What has happened to a call before it was entered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrival {
    /// Nothing.
    #[default]
    New,
    /// It is parked and never started.
    Parked,
    /// It started under an earlier owner. Enter these of a session before all others: they hold their claims.
    Started,
    /// It started under an earlier owner and is parked.
    StartedParked,
}

impl Ask {
    /// A new call that writes its session.
    pub fn new(session: SessionNo, call: CallId, tool: ToolNo) -> Ask {
        let wants = Wants::Claims(Claims::of(crate::tool::EffectClass::Once));
        let (pool, arrival) = (Pool::default(), Arrival::default());
        Ask { session, call, tool, wants, priority: 0, pool, parent: None, arrival }
    }
}

/// Why a call gets no turn, ever.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is in already.
    #[error("call {call} has asked for its turn before")]
    Twice {
        /// Which.
        call: CallId,
    },
    /// It has started, or is not in.
    #[error("what call {call} claims can no longer change: it has started or is over")]
    TooLate {
        /// Which.
        call: CallId,
    },
    /// The call around it is not there, never started, or is over.
    #[error("the call {parent} is not running, so nothing can run inside it")]
    NoParent {
        /// Which.
        parent: CallId,
    },
    /// It claims more than the call around it.
    #[error(
        "`{claim}` lies outside what the call around it claims: widen that tool's claims, or narrow this one's"
    )]
    NotCovered {
        /// What lies outside.
        claim: claim::Claim,
    },
    /// The room it needs is held by calls that wait for it.
    #[error(
        "{limit} is held by {held_by}, which waits for this call: raise the limit, or do not call this tool from there"
    )]
    WouldDeadlock {
        /// What is full.
        limit: Limit,
        /// Who holds it.
        held_by: CallId,
    },
}

impl Refused {
    /// The code under which the call fails.
    pub fn code(&self) -> Code {
        match self {
            Refused::Twice { .. } | Refused::TooLate { .. } | Refused::NoParent { .. } => Code::Internal,
            Refused::NotCovered { .. } => Code::ClaimNotCovered,
            Refused::WouldDeadlock { .. } => Code::WouldDeadlock,
        }
    }
}

/// There are too many calls to take more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many calls are waiting: come back in {} ms", retry_after_us.div_ceil(1_000))]
pub struct Overloaded {
    /// When there is probably room.
    pub retry_after_us: u64,
}

/// What is to be done now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// These may go on: start, run again, or take up what they left to wait for calls inside. They count as running.
    pub start: Vec<CallId>,
    /// These can never start: end them and [leave](Planner::leave).
    pub refuse: Vec<(CallId, Refused)>,
}

/// How a call kept its place when its claims changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaimed {
    /// The new claims lie within the old ones.
    KeptPlace,
    /// They do not: younger calls that collide with them may have run, so it stands behind all now.
    QueuedAnew,
}

/// How many calls there are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Waiting for a claim or for room.
    pub queued: u64,
    /// Running, by [`Pool`].
    pub running: [u64; 2],
    /// Waiting for calls inside.
    pub lending: u64,
    /// Parked.
    pub parked: u64,
}

/// The order of all unfinished calls of a process.
#[derive(Debug)]
pub struct Planner {
    trie: Trie,
    lines: Lines,
    room: Room,
    calls: Slab<Call>,
    call_nos: Numbers,
    sessions: Slab<Session>,
    session_nos: Few<SessionNo, u32>,
    /// The queues of the names that hold across sessions.
    global: Space,
    age: u64,
    counts: Counts,
    /// Those of the queued calls that have started before.
    again: u64,
    /// Parked calls that were [put away](Planner::put_away).
    away: u64,
    limits: Maxima,
    pace: Pace,
    /// A call that came to the lines while nobody could start from one: it is put into its line only if something else happens
    /// before it starts. Mostly nothing does.
    alone: u32,
    /// Used by each change and empty between them; kept so that a change allocates nothing.
    cleared: Vec<u32>,
    /// Calls that were found to wait for each other.
    deadlocked: Vec<(CallId, Refused)>,
    /// Whether something happened since that can have made calls wait for each other.
    suspects_deadlock: bool,
    /// Whether calls inside others wait for room that only lending calls hold, though these can go on for now.
    watches_deadlock: bool,
}

#[derive(Debug)]
struct Maxima {
    queued: u64,
    parked: u64,
    lead_us: i64,
    retry_us: (u64, u64),
}

/// How fast the queue moves: for telling when to come back.
#[derive(Debug, Default)]
struct Pace {
    started_us: u64,
    between_us: u64,
}

#[derive(Debug)]
struct Session {
    no: SessionNo,
    space: Space,
    calls: u32,
    running: [u32; 2],
    lines: Vec<u32>,
}

#[derive(Debug)]
struct Call {
    id: CallId,
    session: u32,
    tool: u32,
    parent: u32,
    /// The queues of the calls inside, while there are any.
    inside: Option<Box<Inside>>,
    claims: Claims,
    /// Its place in the queues of its session or of the call around it.
    own: u32,
    /// Its place in the queues of the global names.
    global: u32,
    /// Its line while it stands in one.
    line: u32,
    age: u64,
    lead_us: i64,
    pool: Pool,
    stage: Stage,
    doing: Doing,
    flags: Flags,
}

#[derive(Debug)]
struct Inside {
    space: Space,
    calls: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    parked: bool,
    started: bool,
    answered: bool,
    unprepared: bool,
    claims_global: bool,
    priority: i8,
}

/// How far a call's claims have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It gave up its place.
    Away,
    /// It stands in its own queues.
    Own,
    /// It stands in the global queues as well.
    Global,
    /// Nothing stands before it.
    Clear,
}

/// What a call does as far as room is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    /// It stands in a line for room.
    Lined,
    Running,
    /// It waits for calls inside, and holds its tool's room only.
    Lending,
    /// It did so, and stands in a line to go on.
    Returning,
    /// It left before the calls inside it did.
    Left,
    /// It can never start, and somebody was told.
    Refused,
}

impl Planner {
    /// A planner with no calls.
    pub fn new(limits: &Limits) -> Planner {
        Planner {
            trie: Trie::default(),
            lines: Lines::default(),
            room: Room::new(limits),
            calls: Slab::default(),
            call_nos: Numbers::default(),
            sessions: Slab::default(),
            session_nos: Few::default(),
            global: Space::EMPTY,
            age: 0,
            counts: Counts::default(),
            again: 0,
            away: 0,
            limits: Maxima::of(limits),
            pace: Pace::default(),
            alone: NONE,
            cleared: Vec::new(),
            deadlocked: Vec::new(),
            suspects_deadlock: false,
            watches_deadlock: false,
        }
    }

    /// Whether there is room for a batch of so many calls from outside. Calls inside others and due fires are entered
    /// without asking.
    pub fn admit(&self, now_us: u64, calls: u64) -> Result<(), Overloaded> {
        let over = (self.counts.queued + calls).saturating_sub(self.limits.queued);
        // What is admitted is queued first, and may be parked or not.
        let over = over.max((self.counts.parked + self.away + 1).saturating_sub(self.limits.parked));
        if over == 0 {
            return Ok(());
        }
        // A queue that stands still is no faster than it has been standing.
        let between_us = self.pace.between_us.max(now_us.saturating_sub(self.pace.started_us));
        let (least, most) = self.limits.retry_us;
        Err(Overloaded { retry_after_us: over.saturating_mul(between_us).clamp(least, most.max(least)) })
    }

    /// Puts a call behind all earlier ones of its session, or of the call around it.
    pub fn enter(&mut self, now_us: u64, ask: Ask) -> Result<(), Refused> {
        if self.call_nos.get(ask.call).is_some() {
            return Err(Refused::Twice { call: ask.call });
        }
        let call = self.admitted(now_us, ask)?;
        self.insert(call);
        Ok(())
    }

    /// A call is over, in whatever way and state: its end is handed on, or it was withdrawn before it started.
    /// `false` if it was not in. While there are calls inside it, its claims stay until the last of them left.
    pub fn leave(&mut self, call: CallId) -> bool {
        let Some(number) = self.find(call) else { return false };
        self.uncount(number);
        self.stop(number);
        self.calls[number].doing = Doing::Left;
        if self.calls[number].inside.is_none() {
            self.finish(number);
        }
        true
    }

    /// A call stops until [`wake`](Self::wake): it holds no room. If it has started it keeps its claims; if not, it
    /// keeps its place in its session until its batch was answered. `false` if it was not in, parked before, or refused.
    pub fn park(&mut self, call: CallId) -> bool {
        let parks = |call: &Call| !call.flags.parked && call.doing != Doing::Refused;
        let Some(number) = self.find(call).filter(|&number| parks(&self.calls[number])) else {
            return false;
        };
        self.uncount(number);
        self.stop(number);
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

    /// A parked call goes on as soon as it may. `false` if it was not parked.
    pub fn wake(&mut self, now_us: u64, call: CallId) -> bool {
        let Some(number) = self.find(call).filter(|&number| self.calls[number].flags.parked) else {
            return false;
        };
        self.uncount(number);
        self.calls[number].flags.parked = false;
        self.count(number);
        if self.calls[number].stage == Stage::Away {
            self.queue_anew(now_us, number);
        }
        self.advance(number);
        true
    }

    /// Whether a call is in: it was entered and has not left.
    pub fn is_in(&self, call: CallId) -> bool {
        self.find(call).is_some()
    }

    /// Whether a call has its turn: it runs, as far as is known here.
    pub fn has_turn(&self, call: CallId) -> bool {
        self.find(call).is_some_and(|number| self.calls[number].doing == Doing::Running)
    }

    /// A batch was answered: those of its calls that are parked and never started give up their places, and those
    /// that are parked later will.
    pub fn answered(&mut self, batch: BatchNo) {
        for number in self.call_nos.of_batch(batch) {
            let call = &mut self.calls[number];
            call.flags.answered = true;
            if call.flags.parked && !call.flags.started && call.stage == Stage::Own {
                self.go_away(number);
            }
        }
    }

    /// A running call does nothing but wait for calls inside: its room in process and session is free meanwhile, that
    /// of its tool and groups is not. `false` if it does not run.
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

    /// A call that lent its room wants to go on: [`start_ready`](Self::start_ready) will name it, before others of its
    /// session. `false` if it lent nothing.
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

    /// Its caller no longer waits for a call: it counts among the tasks, even beyond their limit if it runs.
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

    /// What a call that never started claims is known now, or has changed with its arguments.
    pub fn reclaim(&mut self, now_us: u64, call: CallId, claims: Claims) -> Result<Reclaimed, Refused> {
        match self.find(call).filter(|&number| !self.calls[number].flags.started) {
            Some(number) => self.change_claims(now_us, number, claims),
            None => Err(Refused::TooLate { call }),
        }
    }

    /// What a call claims, as far as it is known.
    pub fn claims(&self, call: CallId) -> Option<&Claims> {
        self.find(call).map(|number| &self.calls[number].claims)
    }

    /// When something may start without anything happening: a rate allows it then.
    pub fn next_due(&self) -> Option<u64> {
        self.lines.next_due()
    }

    /// Makes a tool known, or changes its limits and groups. The number stays the same for the same id.
    pub fn set_tool(&mut self, now_us: u64, id: &str, (cap, groups): (Cap, &[&str])) -> ToolNo {
        let no = self.room.set_tool(id, (cap, groups), now_us);
        self.line_up_again();
        ToolNo(no)
    }

    /// The number of a tool that was made known and is not gone.
    pub fn tool(&self, id: &str) -> Option<ToolNo> {
        self.room.find_tool(id)
    }

    /// Whether a tool was made known, and is not gone with all its calls.
    pub fn knows_tool(&self, id: &str) -> bool {
        self.room.knows_tool(id)
    }

    /// Changes the limits of a group of tools.
    pub fn set_group(&mut self, now_us: u64, name: &str, cap: Cap) {
        self.room.set_group(name, cap, now_us);
        self.line_up_again();
    }

    /// Changes the limits in force. What runs beyond a lower one ends in its own time.
    pub fn set_limits(&mut self, limits: &Limits) {
        self.room.set_limits(limits);
        self.limits = Maxima::of(limits);
        self.line_up_again();
    }

    /// Lets at most so many calls of a session run at once, if that is fewer than of every session; none: as many.
    pub fn set_session(&mut self, session: SessionNo, running_max: Option<u32>) {
        if self.room.set_session(session, running_max) {
            self.line_up_again();
        }
    }

    /// A tool is gone: calls of it wait until [`set_tool`](Self::set_tool) brings one of the same id. Its number is
    /// forgotten with its last call.
    pub fn remove_tool(&mut self, tool: ToolNo) {
        self.room.remove_tool(tool);
        self.line_up_again();
        if tool != ToolNo::UNLIMITED {
            self.room.drop_tool_if_idle(tool.0);
        }
    }

    /// How many calls there are.
    pub fn counts(&self) -> Counts {
        let parked = self.counts.parked + self.away;
        Counts { running: self.room.running.map(u64::from), parked, ..self.counts }
    }

    /// How many things are kept: none once every call has left.
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
    fn of(limits: &Limits) -> Maxima {
        let micros = |ms: u64| ms.saturating_mul(1_000);
        Maxima {
            queued: limits.calls_queued_max,
            parked: limits.calls_parked_max,
            lead_us: i64::try_from(micros(limits.priority_lead_ms)).unwrap_or(i64::MAX / 1_024),
            retry_us: (micros(limits.overload_wait_ms_min), micros(limits.overload_wait_ms_max)),
        }
    }
}

//! The story as the oracle knows it: all calls that ever were, and what is done to them.

use super::Event;
use super::outside::Piece;
use super::values::{Claimed, NAMES, SESSION, Values, collide, is_global, within};
use windlass_core::claim::{Claim, Claims};
use windlass_core::ids::{BatchNo, CallId, Ordinal, SessionNo};
use windlass_core::limits::CallLimits;
use windlass_core::plan::{Arrival, Cap, Entrant, Planner, Pool, Reclaimed, ToolNo, TurnRefusal, Wants};
use windlass_core::rate::Rate;

pub struct World {
    pub planner: Planner,
    pub now_us: u64,
    pub calls: Vec<Call>,
    pub tools: Vec<Tool>,
    /// Limit and rate of the one group.
    pub group_max: u32,
    pub group_rate: Rate,
    pub group_starts: Vec<u64>,
    pub limits: CallLimits,
    pub values: [Values; SESSIONS],
    pub global: Values,
    pub epoch: u64,
    places: u64,
    pub starts: u64,
    pub batches: u64,
    /// The work of calls before they gave up their claims to wait for an external answer.
    pub pieces: Vec<Piece>,
    pub deadlocks: u64,
    pub disturbed: Disturbed,
}

/// The disturbances of calls, besides letting them run to their end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disturbed {
    pub parked: u64,
    pub woken: u64,
    pub gave_way: u64,
    pub cancelled_waiting: u64,
    pub cancelled_running: u64,
}

impl std::ops::Add for Disturbed {
    type Output = Disturbed;

    fn add(self, other: Disturbed) -> Disturbed {
        Disturbed {
            parked: self.parked + other.parked,
            woken: self.woken + other.woken,
            gave_way: self.gave_way + other.gave_way,
            cancelled_waiting: self.cancelled_waiting + other.cancelled_waiting,
            cancelled_running: self.cancelled_running + other.cancelled_running,
        }
    }
}

pub const SESSIONS: usize = 3;

pub struct Tool {
    pub no: ToolNo,
    pub running_max: Option<u32>,
    pub rate: Option<Rate>,
    pub starts: Vec<u64>,
    pub grouped: bool,
}

#[derive(Clone, Debug)]
pub struct Call {
    pub id: CallId,
    pub session: usize,
    pub parent: Option<usize>,
    pub claims: Vec<Claimed>,
    pub unknown: bool,
    pub tool: usize,
    pub pool: usize,
    pub priority: i8,
    pub lead_us: i64,
    /// Where it stands among those it may collide with; none if it gave that up.
    pub place: Option<u64>,
    /// When it came to stand in the global queues.
    pub joined: Option<u64>,
    pub state: State,
    pub parked: bool,
    pub answered: bool,
    /// It claims what its class does.
    pub defaulted: bool,
    /// It waits for the world outside.
    pub outside: bool,
    /// It has given up what it claimed before.
    pub in_pieces: bool,
    /// The piece that it has come to has started.
    pub has_begun: bool,
    /// The number of its first start.
    pub started: Option<u64>,
    /// How often each session was served since this call's own was, while it stood ready.
    pub passed: [u32; SESSIONS],
    pub seen: (u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Waiting,
    Running,
    Lending,
    Returning,
    Refused,
    Left,
    Over,
}

/// A stream of small numbers from one, so that an event can need any count of them and still shrink.
pub struct Dice(u64);

impl Dice {
    pub fn of(event: Event) -> Dice {
        let (kind, a, b, c) = event;
        Dice(u64::from(kind) | u64::from(a) << 8 | u64::from(b) << 24 | u64::from(c) << 40)
    }

    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides
    }

    fn claims(&mut self) -> Vec<Claimed> {
        (0..self.roll(3)).map(|_| (self.roll(2) == 0, self.roll(NAMES.len()))).collect()
    }
}

impl World {
    pub fn new(sizes: [u8; 6]) -> World {
        let at_least = |size: u8, most: u8| u64::from(1 + size % most);
        let limits = CallLimits {
            calls_running_max: at_least(sizes[0], 6),
            session_calls_running_max: at_least(sizes[1], 4),
            tasks_running_max: at_least(sizes[2], 3),
            session_tasks_running_max: at_least(sizes[3], 2),
            priority_lead_ms: 1,
            ..CallLimits::default()
        };
        let mut planner = Planner::new(&limits);
        let (group_max, group_rate) = (1 + u32::from(sizes[4] % 3), Rate { count: 3, period_us: 70 });
        planner.set_group(0, "group", Cap { running_max: Some(group_max), rate: Some(group_rate) });
        let rate = Some(Rate { count: 2, period_us: 100 });
        let declared = [
            (None, None, false),
            (Some(1), None, false),
            (Some(2), None, true),
            (None, None, true),
            (None, rate, false),
        ];
        let tools = declared.into_iter().enumerate().map(|(at, (running_max, rate, grouped))| {
            let groups: &[&str] = if grouped { &["group"] } else { &[] };
            let no = planner.set_tool(0, &format!("tool-{at}"), Cap { running_max, rate }, groups);
            Tool { no, running_max, rate, starts: Vec::new(), grouped }
        });
        let tools = tools.collect();
        let mut world = World {
            planner,
            now_us: 0,
            calls: Vec::new(),
            tools,
            group_max,
            group_rate,
            group_starts: Vec::new(),
            limits,
            values: Default::default(),
            global: Values::default(),
            epoch: 0,
            places: 0,
            starts: 0,
            batches: 0,
            pieces: Vec::new(),
            deadlocks: 0,
            disturbed: Disturbed::default(),
        };
        world.recover(&mut Dice(u64::from(sizes[5])));
        world
    }

    /// Some calls that had started under an earlier owner; they held their claims together.
    fn recover(&mut self, dice: &mut Dice) {
        for _ in 0..dice.roll(4) {
            let (session, claims) = (dice.roll(SESSIONS), dice.claims());
            let global = |claims: &[Claimed]| -> Vec<Claimed> {
                claims.iter().copied().filter(|(_, name)| is_global(*name)).collect()
            };
            let meets = self.calls.iter().any(|other| {
                (other.session == session && collide(&other.claims, &claims))
                    || collide(&global(&other.claims), &global(&claims))
            });
            if !meets {
                let arrival = if dice.roll(2) == 0 { Arrival::Started } else { Arrival::StartedParked };
                let mut call = self.fresh(dice, session, claims);
                (call.started, call.has_begun) = (Some(0), true);
                call.seen = self.see(&call);
                call.parked = arrival == Arrival::StartedParked;
                self.enter(call, Wants::Unknown, arrival);
            }
        }
        self.settle();
    }

    pub fn event(&mut self, event: Event) {
        self.epoch += 1;
        let (dice, kind) = (&mut Dice::of(event), event.0 % 21);
        match kind {
            0..=4 => self.batch(dice),
            5 | 6 => self.nested(dice),
            7..=9 => drop(self.pick(dice, |world, at| world.may_end(at)).map(|at| self.leave(at))),
            10 => drop(
                self.pick(dice, |world, at| world.is_open(at)).map(|at| self.cancel(at, dice.roll(2) == 0)),
            ),
            11 => drop(self.pick(dice, |world, at| world.may_park(at)).map(|at| self.park(at))),
            12 => drop(
                self.pick(dice, |world, at| world.is_open(at) && world.calls[at].parked)
                    .map(|at| self.wake(at)),
            ),
            13 => drop(self.pick(dice, |world, at| world.is_open(at)).map(|at| self.answered(at))),
            14 => drop(
                self.pick(dice, |world, at| !world.calls[at].outside && world.may_lend(at))
                    .map(|at| self.lend(at)),
            ),
            15 => {
                self.now_us = self
                    .planner
                    .next_due()
                    .filter(|_| dice.roll(2) == 0)
                    .unwrap_or(self.now_us + dice.roll(400) as u64)
            }
            16 => drop(self.pick(dice, |world, at| world.is_open(at)).map(|at| self.change(at, dice))),
            17 | 18 => drop(
                self.pick(dice, |world, at| world.may_step_outside(at)).map(|at| self.step_outside(at, dice)),
            ),
            19 => drop(
                self.pick(dice, |world, at| world.is_open(at) && world.calls[at].outside)
                    .map(|at| self.come_back(at)),
            ),
            _ => self.configure(dice),
        }
        self.settle();
    }

    /// One of the calls of which this is so.
    fn pick(&self, dice: &mut Dice, so: impl Fn(&World, usize) -> bool) -> Option<usize> {
        let found: Vec<usize> = (0..self.calls.len()).filter(|&at| so(self, at)).collect();
        if found.is_empty() { None } else { Some(found[dice.roll(found.len())]) }
    }

    pub fn is_open(&self, at: usize) -> bool {
        !matches!(self.calls[at].state, State::Left | State::Over)
    }

    pub fn has_inside(&self, at: usize) -> bool {
        self.calls.iter().any(|call| call.parent == Some(at) && call.state != State::Over)
    }

    fn may_end(&self, at: usize) -> bool {
        self.calls[at].state == State::Running && !self.calls[at].parked && !self.has_inside(at)
    }

    fn may_lend(&self, at: usize) -> bool {
        self.may_end(at) || self.has_inside(at)
    }

    fn may_park(&self, at: usize) -> bool {
        self.is_open(at) && !self.calls[at].parked && self.calls[at].state != State::Refused
    }

    fn fresh(&mut self, dice: &mut Dice, session: usize, claims: Vec<Claimed>) -> Call {
        let priority = if dice.roll(3) == 0 { dice.roll(3) as i8 - 1 } else { 0 };
        let tool = dice.roll(2) * dice.roll(self.tools.len());
        let at = self.calls.len();
        Call {
            id: CallId { batch: BatchNo(self.batches), ordinal: Ordinal(at as u16) },
            session,
            parent: None,
            claims,
            unknown: false,
            tool,
            pool: usize::from(dice.roll(5) == 0),
            priority,
            lead_us: self.lead_us(priority),
            place: None,
            joined: None,
            state: State::Waiting,
            parked: false,
            answered: false,
            defaulted: false,
            outside: false,
            in_pieces: false,
            has_begun: false,
            started: None,
            passed: [0; SESSIONS],
            seen: (0, 0),
        }
    }

    pub fn lead_us(&self, priority: i8) -> i64 {
        self.now_us as i64 - 1_000 * i64::from(priority)
    }

    pub fn place(&mut self) -> Option<u64> {
        self.places += 1;
        Some(self.places)
    }

    fn batch(&mut self, dice: &mut Dice) {
        self.batches += 1;
        let session = dice.roll(SESSIONS);
        for _ in 0..1 + dice.roll(3) {
            let defaulted = dice.roll(3) == 0;
            let claims = if defaulted { vec![(dice.roll(2) == 0, SESSION)] } else { dice.claims() };
            let mut call = self.fresh(dice, session, claims);
            call.defaulted = defaulted;
            let arrival = if dice.roll(6) == 0 { Arrival::Parked } else { Arrival::New };
            call.parked = arrival == Arrival::Parked;
            call.unknown = dice.roll(8) == 0;
            call.defaulted &= !call.unknown;
            self.enter(call, Wants::Unknown, arrival);
        }
    }

    fn nested(&mut self, dice: &mut Dice) {
        let around = self.pick(dice, |world, at| {
            let call = &world.calls[at];
            let is_inside = !call.in_pieces && !call.outside;
            world.is_open(at) && call.started.is_some() && is_inside && world.depth(at) < 3
        });
        let Some(parent) = around else { return };
        let inherits = dice.roll(2) == 0;
        let claims = if inherits { self.calls[parent].claims.clone() } else { dice.claims() };
        let mut call = self.fresh(dice, self.calls[parent].session, claims);
        call.parent = Some(parent);
        (call.pool, call.lead_us) = (self.calls[parent].pool, self.calls[parent].lead_us);
        self.enter(call, if inherits { Wants::Inherited } else { Wants::Unknown }, Arrival::New);
        if self.calls[parent].state == State::Running && dice.roll(2) == 0 {
            self.lend(parent);
        }
    }

    fn depth(&self, at: usize) -> usize {
        self.around(at).count()
    }

    /// The calls around this one, and itself.
    pub fn around(&self, at: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(at), |&inner| self.calls[inner].parent)
    }

    fn enter(&mut self, mut call: Call, wants: Wants, arrival: Arrival) {
        let wants = match wants {
            Wants::Inherited => wants,
            _ if call.unknown => Wants::Unknown,
            _ => Wants::Claims(call.wanted()),
        };
        let pool = [Pool::Calls, Pool::Tasks][call.pool];
        let parent = call.parent.map(|parent| self.calls[parent].id);
        let (session, tool, priority) =
            (SessionNo(call.session as u64), self.tools[call.tool].no, call.priority);
        let ask = Entrant { wants, priority, pool, parent, arrival, ..Entrant::new(session, call.id, tool) };
        let covered = call.parent.is_none_or(|parent| within(&self.calls[parent].claims, &call.claims));
        let holder = call.parent.and_then(|parent| self.holder_around(parent, call.tool));
        match self.planner.enter(self.now_us, ask) {
            Ok(()) => {
                assert!(covered, "{:?} claims more than the call around it", call.id);
                assert!(holder.is_none(), "{:?} would wait for the calls around it", call.id);
                call.place = self.place();
                self.calls.push(call);
            }
            Err(TurnRefusal::NotCovered { .. }) => assert!(!covered),
            Err(TurnRefusal::WouldDeadlock { .. }) => assert!(covered && holder.is_some()),
            Err(other) => panic!("{other}"),
        }
    }

    /// A call around that holds a limit which this tool needs.
    fn holder_around(&self, parent: usize, tool: usize) -> Option<usize> {
        self.around(parent).find(|&at| {
            let call = &self.calls[at];
            let holds = matches!(call.state, State::Running | State::Lending | State::Returning);
            let same_tool = call.tool == tool && self.tools[tool].running_max.is_some();
            holds && (same_tool || (self.tools[call.tool].grouped && self.tools[tool].grouped))
        })
    }

    /// The state that a call sees at its first start.
    fn see(&self, call: &Call) -> (u64, u64) {
        (self.values[call.session].read(&own(&call.claims)), self.global.read(&global(&call.claims)))
    }

    pub fn started(&mut self, at: usize) {
        self.starts += 1;
        if !self.calls[at].has_begun {
            self.calls[at].started = Some(self.starts);
            self.calls[at].seen = self.see(&self.calls[at]);
            self.calls[at].has_begun = true;
        }
        self.calls[at].state = State::Running;
    }

    fn leave(&mut self, at: usize) {
        assert!(self.planner.leave(self.calls[at].id));
        self.calls[at].state = State::Left;
        (self.calls[at].parked, self.calls[at].unknown) = (false, false);
        let mut inner = Some(at);
        // Those around that left before are over with the last call inside them.
        while let Some(at) = inner.filter(|&at| self.calls[at].state == State::Left && !self.has_inside(at)) {
            self.calls[at].state = State::Over;
            let call = self.calls[at].clone();
            if call.has_begun {
                self.values[call.session].write(&own(&call.claims), at, call.seen.0);
                self.global.write(&global(&call.claims), at, call.seen.1);
            }
            inner = call.parent;
        }
    }

    /// Ends a call and those inside it, from the outside or from the inside.
    fn cancel(&mut self, at: usize, outer_first: bool) {
        let inside: Vec<usize> =
            (0..self.calls.len()).filter(|&inner| self.calls[inner].parent == Some(at)).collect();
        match self.calls[at].state {
            State::Waiting | State::Returning | State::Refused => self.disturbed.cancelled_waiting += 1,
            State::Running | State::Lending => self.disturbed.cancelled_running += 1,
            State::Left | State::Over => {}
        }
        if outer_first && self.is_open(at) {
            self.leave(at);
        }
        for inner in inside {
            self.cancel(inner, outer_first);
        }
        if self.is_open(at) {
            self.leave(at);
        }
    }

    pub fn park(&mut self, at: usize) {
        assert!(self.planner.park(self.calls[at].id));
        self.disturbed.parked += 1;
        let call = &mut self.calls[at];
        call.parked = true;
        call.state = State::Waiting;
        if call.started.is_none() {
            call.joined = None;
            call.place = call.place.filter(|_| !call.answered);
        }
    }

    pub fn wake(&mut self, at: usize) {
        let behind = self.held_up_by(at);
        assert!(self.planner.wake(self.now_us, self.calls[at].id));
        self.disturbed.woken += 1;
        (self.calls[at].parked, self.calls[at].outside) = (false, false);
        if self.calls[at].place.is_none() {
            self.stand_anew(at);
            behind.into_iter().for_each(|behind| self.stand_anew(behind));
        }
    }

    fn answered(&mut self, at: usize) {
        let batch = self.calls[at].id.batch;
        self.planner.answered(batch);
        for call in self.calls.iter_mut().filter(|call| call.id.batch == batch) {
            call.answered |= !matches!(call.state, State::Left | State::Over);
            if call.answered && call.parked && call.started.is_none() {
                call.place = None;
            }
        }
    }

    fn lend(&mut self, at: usize) {
        let call = &mut self.calls[at];
        if call.state == State::Lending {
            assert!(self.planner.take_back(call.id));
            call.state = State::Returning;
        } else if matches!(call.state, State::Running | State::Returning) {
            assert!(self.planner.lend(call.id));
            call.state = State::Lending;
        } else {
            assert!(!self.planner.lend(call.id) && !self.planner.take_back(call.id));
        }
    }

    /// Its claims become known or change, or its caller continues.
    fn change(&mut self, at: usize, dice: &mut Dice) {
        let call = self.calls[at].clone();
        if call.started.is_some() || dice.roll(4) == 0 {
            assert!(self.planner.detach(call.id));
            (self.calls[at].pool, self.calls[at].passed) = (1, [0; SESSIONS]);
            return;
        }
        self.reclaim(at, dice.claims());
    }

    fn reclaim(&mut self, at: usize, claims: Vec<Claimed>) {
        let call = self.calls[at].clone();
        let keeps = call.place.is_some() && (call.unknown || within(&call.claims, &claims));
        match self.planner.reclaim(self.now_us, call.id, claims_of(&claims)) {
            Err(TurnRefusal::NotCovered { .. }) => {
                let parent = call.parent.unwrap();
                assert!(!within(&self.calls[parent].claims, &claims));
                return;
            }
            Err(other) => panic!("{other}"),
            Ok(done) => assert_eq!(done == Reclaimed::KeptPlace, keeps),
        }
        let call = &mut self.calls[at];
        (call.claims, call.unknown, call.joined, call.passed) = (claims, false, None, [0; SESSIONS]);
        call.defaulted = false;
        if !keeps && call.place.is_some() {
            self.calls[at].place = self.place();
            if self.calls[at].parent.is_none() {
                self.calls[at].lead_us = self.lead_us(self.calls[at].priority);
            }
        }
    }

    fn configure(&mut self, dice: &mut Dice) {
        let at = 1 + dice.roll(self.tools.len() - 1);
        match dice.roll(2) {
            0 => {
                let running_max = [None, Some(1), Some(2)][dice.roll(3)];
                self.tools[at].running_max = running_max;
                let (rate, groups): (_, &[&str]) =
                    (self.tools[at].rate, if self.tools[at].grouped { &["group"] } else { &[] });
                self.planner.set_tool(self.now_us, &format!("tool-{at}"), Cap { running_max, rate }, groups);
            }
            _ => {
                self.limits.calls_running_max = 1 + dice.roll(6) as u64;
                self.limits.session_calls_running_max = 1 + dice.roll(4) as u64;
                self.planner.set_limits(&self.limits);
            }
        }
    }

    /// Lets everything run to its end, and looks at what is left of it.
    pub fn drain(&mut self) {
        for _ in 0..2_000 {
            self.epoch += 1;
            for at in 0..self.calls.len() {
                self.push_on(at);
            }
            self.settle();
            if self.calls.iter().all(|call| call.state == State::Over) {
                return self.judge_the_end();
            }
            self.now_us = self.planner.next_due().unwrap_or(self.now_us + 1);
        }
        panic!(
            "calls wait for each other: {:#?}",
            self.calls.iter().filter(|call| call.state != State::Over).collect::<Vec<_>>()
        );
    }

    fn push_on(&mut self, at: usize) {
        let call = &self.calls[at];
        if !self.is_open(at) {
            return;
        }
        if call.parked || call.outside {
            self.come_back(at);
        }
        let (unknown, state) = (self.calls[at].unknown, self.calls[at].state);
        if unknown {
            self.reclaim(at, Vec::new());
        }
        let inside = self.has_inside(at);
        match state {
            State::Refused => self.leave(at),
            State::Running if inside => self.lend(at),
            State::Running => self.leave(at),
            State::Lending if !inside => self.lend(at),
            _ => {}
        }
    }
}

pub fn own(claims: &[Claimed]) -> Vec<Claimed> {
    claims.iter().copied().filter(|(_, name)| !is_global(*name)).collect()
}

pub fn global(claims: &[Claimed]) -> Vec<Claimed> {
    claims.iter().copied().filter(|(_, name)| is_global(*name)).collect()
}

pub fn claims_of(claims: &[Claimed]) -> Claims {
    let limits = CallLimits::default();
    let texts = claims.iter().map(|&(writes, name)| {
        let mode = if writes { "write" } else { "read" };
        let text = format!("{mode} {}", NAMES[name]);
        Claim::parse(text.trim_end(), &limits).unwrap()
    });
    Claims::new(texts.collect(), &limits).unwrap()
}

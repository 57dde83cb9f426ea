//! The invariants after every event, found by comparing every call with every other.

use super::model::{Call, SESSIONS, State, World, global};
use super::values::{Values, collide};
use windlass_core::ids::CallId;
use windlass_core::plan::{Limit, Ready, TurnRefusal, Why};
use windlass_core::rate::Rate;

impl World {
    /// Lets start what may, and judges it.
    pub fn settle(&mut self) {
        self.join_globals();
        self.forget_passed();
        let (mut ready, quiet) = (Ready::default(), self.planner.is_quiet());
        self.planner.start_ready(self.now_us, &mut ready);
        assert!(!quiet || ready == Ready::default(), "it said that there was nothing to do for {ready:?}");
        for call in ready.start {
            let at = self.at(call);
            self.judge_start(at);
            self.judge_turn(at);
            if self.calls[at].state == State::Waiting {
                self.charge(at);
            }
            self.started(at);
        }
        for (call, refused) in ready.refuse {
            self.judge_refusal(self.at(call), &refused);
        }
        for at in 0..self.calls.len() {
            let idle = self.waits(at) && self.is_clear(at) && self.fits(at) && self.has_room(at);
            assert!(!idle || self.is_behind_globally(at), "{:?} could run and does not", self.calls[at]);
            self.judge_why(at);
        }
        self.forget_passed();
        self.judge_counts();
    }

    fn at(&self, call: CallId) -> usize {
        self.calls.iter().position(|other| other.id == call).unwrap()
    }

    /// Whether two calls stand in the same queues: those of a session, or those inside one call.
    fn beside(&self, left: usize, right: usize) -> bool {
        let (left, right) = (&self.calls[left], &self.calls[right]);
        left.session == right.session && left.parent == right.parent
    }

    /// Whether `other` stands before `at`, and they collide.
    fn is_before(&self, other: usize, at: usize) -> bool {
        let (one, two) = (&self.calls[other], &self.calls[at]);
        other != at
            && one.state != State::Over
            && self.beside(other, at)
            && matches!((one.place, two.place), (Some(one), Some(two)) if one < two)
            && self.may_collide(other, at)
    }

    /// Whether they collide; one that is not prepared collides with all that claim something.
    fn may_collide(&self, left: usize, right: usize) -> bool {
        let (left, right) = (&self.calls[left], &self.calls[right]);
        match (left.unknown, right.unknown) {
            (true, true) => true,
            (true, false) => !right.claims.is_empty(),
            (false, true) => !left.claims.is_empty(),
            (false, false) => collide(&left.claims, &right.claims),
        }
    }

    /// Whether `other` waits for the world outside and holds up `at`, which is of its batch, until somebody answers that.
    fn is_held_up(&self, other: usize, at: usize) -> bool {
        let (one, two) = (&self.calls[other], &self.calls[at]);
        let older = one.id.batch == two.id.batch && one.id.ordinal < two.id.ordinal;
        let gave_way = one.outside && one.place.is_none() && !one.answered && self.is_open(other);
        older && gave_way && self.beside(other, at) && self.may_collide(other, at)
    }

    pub fn is_clear(&self, at: usize) -> bool {
        let holds = |other: usize| self.is_before(other, at) || self.is_held_up(other, at);
        self.calls[at].place.is_some() && !(0..self.calls.len()).any(holds)
    }

    /// Whether a call is held back by nothing but others: it is neither parked nor unprepared nor refused.
    fn waits(&self, at: usize) -> bool {
        let call = &self.calls[at];
        !call.parked && !call.unknown && matches!(call.state, State::Waiting | State::Returning)
    }

    fn join_globals(&mut self) {
        for at in 0..self.calls.len() {
            let call = &self.calls[at];
            let may = call.state != State::Over
                && call.parent.is_none()
                && !call.unknown
                && (!call.parked || call.started.is_some())
                && !global(&call.claims).is_empty();
            if may && call.joined.is_none() && self.is_clear(at) {
                self.calls[at].joined = Some(self.epoch);
            }
        }
    }

    /// The calls of other sessions that came to a global name which this one needs, and when.
    fn global_rivals(&self, at: usize) -> impl Iterator<Item = (&Call, u64)> {
        let mine = &self.calls[at];
        let claims = global(&mine.claims);
        let top = mine.parent.is_none();
        self.calls.iter().filter_map(move |other| {
            let rival = top && other.state != State::Over && other.session != mine.session;
            let meets = rival && collide(&global(&other.claims), &claims);
            other.joined.filter(|_| meets).map(|joined| (other, joined))
        })
    }

    /// Whether someone who came no later than this call holds or waits for a global name that it needs.
    fn is_behind_globally(&self, at: usize) -> bool {
        let mine = self.calls[at].joined.unwrap_or(u64::MAX);
        self.calls[at].state == State::Waiting && self.global_rivals(at).any(|(_, joined)| joined <= mine)
    }

    fn holding(&self, so: impl Fn(&Call) -> bool) -> u32 {
        let holds = |call: &&Call| matches!(call.state, State::Running | State::Lending | State::Returning);
        self.calls.iter().filter(holds).filter(|call| so(call)).count() as u32
    }

    fn running(&self, so: impl Fn(&Call) -> bool) -> u64 {
        self.calls.iter().filter(|call| call.state == State::Running && so(call)).count() as u64
    }

    fn tool_is_full(&self, tool: usize) -> bool {
        self.tools[tool].running_max.is_some_and(|max| self.holding(|call| call.tool == tool) >= max)
    }

    fn group_is_full(&self) -> bool {
        self.holding(|call| self.tools[call.tool].grouped) >= self.group_max
    }

    fn rate_holds(&self, tool: usize) -> bool {
        let tool = &self.tools[tool];
        let own = tool.rate.is_none_or(|rate| has_token(rate, &tool.starts, self.now_us));
        own && (!tool.grouped || has_token(self.group_rate, &self.group_starts, self.now_us))
    }

    /// Whether its tool and group let it start.
    fn fits(&self, at: usize) -> bool {
        let tool = self.calls[at].tool;
        let open = !self.tool_is_full(tool) && self.rate_holds(tool);
        self.calls[at].state == State::Returning
            || (open && !(self.tools[tool].grouped && self.group_is_full()))
    }

    fn process_is_full(&self, pool: usize) -> bool {
        let max = [self.limits.calls_running_max, self.limits.tasks_running_max][pool];
        self.running(|call| call.pool == pool) >= max
    }

    fn session_is_full(&self, session: usize, pool: usize) -> bool {
        let max = [self.limits.session_calls_running_max, self.limits.session_tasks_running_max][pool];
        self.running(|call| call.pool == pool && call.session == session) >= max
    }

    fn has_room(&self, at: usize) -> bool {
        let call = &self.calls[at];
        !self.process_is_full(call.pool) && !self.session_is_full(call.session, call.pool)
    }

    fn charge(&mut self, at: usize) {
        let tool = &mut self.tools[self.calls[at].tool];
        tool.starts.push(self.now_us);
        if tool.grouped {
            self.group_starts.push(self.now_us);
        }
    }

    fn judge_start(&self, at: usize) {
        let call = &self.calls[at];
        assert!(self.waits(at), "{call:?} was not waiting");
        assert!(self.is_clear(at), "{call:?} started before an older one that it collides with");
        assert!(self.has_room(at) && self.fits(at), "{call:?} started beyond a limit");
        for (rival, joined) in self.global_rivals(at) {
            assert!(rival.started.is_none(), "{call:?} and {rival:?} hold one global name");
            assert!(joined >= call.joined.unwrap(), "{call:?} passed {rival:?}");
        }
    }

    /// Whether a call lacks nothing but room in the process.
    fn is_next(&self, at: usize) -> bool {
        let call = &self.calls[at];
        let stands = self.waits(at) && self.is_clear(at) && self.fits(at) && !self.is_behind_globally(at);
        stands && !self.session_is_full(call.session, call.pool)
    }

    /// Whether it was this call's turn: the first of its session, and nobody is passed twice by another session.
    fn judge_turn(&mut self, at: usize) {
        let mine = self.calls[at].clone();
        let turn = |call: &Call| (call.state != State::Returning, call.lead_us, call.place);
        for other in 0..self.calls.len() {
            let next = self.is_next(other) && self.calls[other].pool == mine.pool;
            let call = &mut self.calls[other];
            if call.session != mine.session && next {
                call.passed[mine.session] += 1;
                let times = call.passed[mine.session];
                assert!(times <= 1, "session {} was served twice while {call:?} stood ready", mine.session);
            } else if call.session == mine.session && call.pool == mine.pool {
                call.passed = [0; SESSIONS];
                let first = !next || mine.state == State::Returning || turn(&mine) <= turn(call);
                assert!(first, "{mine:?} passed {call:?}");
            }
        }
    }

    /// A call that something else holds back starts its wait again afterwards.
    fn forget_passed(&mut self) {
        for at in 0..self.calls.len() {
            if !self.is_next(at) {
                self.calls[at].passed = [0; SESSIONS];
            }
        }
    }

    /// A call is refused only if all that hold what it needs wait for calls inside.
    fn judge_refusal(&mut self, at: usize, refused: &TurnRefusal) {
        assert!(matches!(refused, TurnRefusal::WouldDeadlock { .. }), "{refused}");
        let call = &self.calls[at];
        let (tool, grouped) = (call.tool, self.tools[call.tool].grouped);
        assert!(call.parent.is_some() && self.waits(at) && self.is_clear(at));
        let lend = |so: &dyn Fn(&Call) -> bool| {
            self.calls
                .iter()
                .filter(|call| so(call))
                .all(|call| !matches!(call.state, State::Running | State::Returning) || call.parked)
        };
        let by_tool = self.tool_is_full(tool) && lend(&|call| call.tool == tool);
        let by_group = grouped && self.group_is_full() && lend(&|call| self.tools[call.tool].grouped);
        assert!(by_tool || by_group, "{call:?} was refused though someone will make room");
        self.calls[at].state = State::Refused;
        self.deadlocks += 1;
    }

    fn judge_why(&self, at: usize) {
        let call = &self.calls[at];
        let why = self.planner.why(self.now_us, call.id);
        let tool = &self.tools[call.tool];
        let so = match &why {
            None => matches!(call.state, State::Running | State::Left | State::Over),
            Some(Why::Parked) => call.parked,
            Some(Why::Unprepared) => call.unknown,
            Some(Why::Inside) => call.state == State::Lending,
            Some(Why::Claim { held_by, .. }) => {
                let other = self.at(*held_by);
                let global = self
                    .global_rivals(at)
                    .any(|(rival, joined)| rival.id == *held_by && Some(joined) <= call.joined);
                self.is_before(other, at) || self.is_held_up(other, at) || global
            }
            Some(Why::Limit(Limit::Process { .. })) => self.process_is_full(call.pool),
            Some(Why::Limit(Limit::Session { .. })) => self.session_is_full(call.session, call.pool),
            Some(Why::Limit(Limit::Tool { .. })) => self.tool_is_full(call.tool),
            Some(Why::Limit(Limit::Group { .. })) => tool.grouped && self.group_is_full(),
            Some(Why::Rate { until_us, .. }) => {
                !self.rate_holds(call.tool) && until_us.is_some_and(|until_us| until_us > self.now_us)
            }
            // Refused for the want of room, which there may be since: it leaves without a turn.
            Some(Why::Turn) => call.state == State::Refused,
            Some(Why::NoSuchTool) => false,
        };
        assert!(so, "{call:?} is told to wait because of {why:?}");
        if let Some(Why::Rate { until_us, .. }) = why
            && call.state == State::Waiting
            && self.has_room(at)
        {
            assert!(self.planner.next_due() <= until_us && self.planner.next_due().is_some());
        }
    }

    fn judge_counts(&self) {
        let count = |so: &dyn Fn(&Call) -> bool| self.calls.iter().filter(|call| so(call)).count() as u64;
        let counts = self.planner.counts();
        assert_eq!(counts.parked, count(&|call| call.parked));
        assert_eq!(counts.running, [0, 1].map(|pool| self.running(|call| call.pool == pool)));
        assert_eq!(counts.lending, count(&|call| call.state == State::Lending));
        let queued = |call: &Call| {
            !call.parked && matches!(call.state, State::Waiting | State::Returning | State::Refused)
        };
        assert_eq!(counts.queued, count(&queued));
    }

    /// Everything is over: nothing is kept, and the values are those of running one after the other.
    pub fn judge_the_end(&self) {
        assert_eq!((self.planner.kept(), self.planner.next_due()), (0, None));
        let order = |so: &dyn Fn(&Call) -> bool, key: &dyn Fn(&Call) -> Option<u64>| {
            let ran = |at: &usize| self.calls[*at].has_begun && so(&self.calls[*at]);
            let mut order: Vec<usize> = (0..self.calls.len()).filter(ran).collect();
            order.sort_by_key(|&at| key(&self.calls[at]));
            order
        };
        for session in 0..SESSIONS {
            let mut values = Values::default();
            let top = |call: &Call| call.parent.is_none() && call.session == session;
            // A call that gave up what it claims ran by the piece, each in its place.
            let pieces = self.pieces.iter().filter(|piece| self.calls[piece.at].session == session);
            let mut pieces: Vec<_> = pieces.map(|piece| (piece.place, piece.at)).collect();
            pieces.extend(order(&top, &|call| call.place).into_iter().map(|at| (self.calls[at].place, at)));
            pieces.sort();
            for (_, at) in pieces {
                self.run(at, &super::model::own, &mut values);
            }
            assert_eq!(values, self.values[session], "session {session}");
        }
        let mut values = Values::default();
        for at in order(&|call| call.parent.is_none(), &|call| call.started) {
            self.run(at, &global, &mut values);
        }
        assert_eq!(values, self.global, "global names");
    }

    /// Runs a call and those inside it, in order, alone.
    fn run(
        &self,
        at: usize,
        part: &dyn Fn(&[super::values::Claimed]) -> Vec<super::values::Claimed>,
        values: &mut Values,
    ) {
        let claims = part(&self.calls[at].claims);
        let seen = values.read(&claims);
        let inside = |inner: &usize| self.calls[*inner].parent == Some(at) && self.calls[*inner].has_begun;
        let mut inside: Vec<usize> = (0..self.calls.len()).filter(inside).collect();
        inside.sort_by_key(|&inner| self.calls[inner].place);
        for inner in inside {
            self.run(inner, part, values);
        }
        values.write(&claims, at, seen);
    }
}

/// Whether a bucket that was full at the beginning has a token after these starts, counted from the beginning.
fn has_token(rate: Rate, starts: &[u64], now_us: u64) -> bool {
    let (whole, most) = (rate.period_us, rate.period_us * u64::from(rate.count));
    let (mut left, mut last) = (most, 0);
    for &start in starts {
        left = (left + (start - last) * u64::from(rate.count)).min(most) - whole;
        last = start;
    }
    (left + (now_us - last) * u64::from(rate.count)).min(most) >= whole
}

//! Moving a call: from queue to line, from line to running, and out.

use super::line::{LineTurn, TurnLines};
use super::outside::StillTime;
use super::room::{Full, Pool, ToolNo};
use super::slab::NONE;
use super::trie::{ClaimSpace, PlaceClaims, PlaceOwner};
use super::{
    Arrival, CallFlags, ClaimStage, Doing, Entrant, InnerQueues, PlannedCall, PlannedSession, Planner,
    Reclaimed, TurnRefusal, Wants,
};
use crate::claim::Claims;
use crate::ids::{BatchNo, CallId, Ordinal, SessionNo};
use std::collections::BTreeSet;

impl Planner {
    /// The planned call for a request, if it is allowed.
    pub(super) fn admitted(&mut self, now_us: u64, ask: Entrant) -> Result<PlannedCall, TurnRefusal> {
        let parent = match ask.parent {
            None => NONE,
            Some(parent) => match self.find(parent) {
                Some(found) if self.calls[found].flags.started => found,
                _ => return Err(TurnRefusal::NoParent { parent }),
            },
        };
        let unprepared = ask.wants == Wants::Unknown;
        let inherited = ask.wants == Wants::Inherited && parent != NONE;
        let claims = match ask.wants {
            Wants::Claims(claims) => claims,
            Wants::Inherited if parent != NONE => self.calls[parent].claims.clone(),
            Wants::Inherited | Wants::Unknown => Claims::NONE,
        };
        let (mut lead_us, mut pool) = (self.lead_us(now_us, ask.priority), ask.pool);
        if parent != NONE {
            self.check_inside(parent, &claims)?;
            self.check_ancestors(parent, ask.tool.0)?;
            (lead_us, pool) = (self.calls[parent].lead_us, self.calls[parent].pool);
        }
        let flags = CallFlags {
            parked: matches!(ask.arrival, Arrival::Parked | Arrival::StartedParked),
            started: matches!(ask.arrival, Arrival::Started | Arrival::StartedParked),
            answered: ask.answered,
            unprepared,
            claims_global: claims.iter().any(|claim| claim.name.is_global()),
            defaulted: inherited || claims.are_default(),
            prepares: ask.prepares,
            outside: ask.outside && ask.arrival == Arrival::StartedParked,
            priority: ask.priority,
            ..CallFlags::default()
        };
        let session = self.session(ask.session);
        Ok(PlannedCall {
            id: ask.call,
            session,
            tool: ask.tool.0,
            parent,
            claims,
            lead_us,
            pool,
            flags,
            stood: StillTime { looked_us: now_us, total_us: 0 },
            ..PlannedCall::default()
        })
    }

    /// Checks that the call around it covers all claims of a nested call.
    fn check_inside(&self, parent: u32, claims: &Claims) -> Result<(), TurnRefusal> {
        match self.calls[parent].claims.uncovered(claims) {
            Some(claim) => Err(TurnRefusal::NotCovered { claim: claim.clone() }),
            None => Ok(()),
        }
    }

    /// The effective arrival of a call with this priority.
    fn lead_us(&self, now_us: u64, priority: i8) -> i64 {
        let now_us = i64::try_from(now_us).unwrap_or(i64::MAX);
        now_us.saturating_sub(self.limits.lead_us.saturating_mul(i64::from(priority)))
    }

    fn session(&mut self, no: SessionNo) -> u32 {
        if let Some(number) = self.session_nos.get(&no) {
            return *number;
        }
        let number = self.sessions.insert(PlannedSession { no, ..PlannedSession::default() });
        self.session_nos.insert(no, number);
        number
    }

    /// Adds a call.
    pub(super) fn insert(&mut self, call: PlannedCall) -> u32 {
        let (id, session, parent, tool) = (call.id, call.session, call.parent, call.tool);
        let number = self.calls.insert(call);
        self.call_nos.insert(id, number);
        self.sessions[session].calls += 1;
        self.room.tools[tool].calls += 1;
        if parent != NONE {
            let inside = self.calls[parent].inside.get_or_insert_with(InnerQueues::new);
            inside.calls += 1;
        }
        self.count(number);
        self.take_place(number);
        let CallFlags { outside, answered, parked, started, prepares, .. } = self.calls[number].flags;
        if outside {
            self.still += 1;
            self.give_way(number);
        } else if answered && parked && !started && !prepares {
            self.go_away(number);
        }
        self.advance(number);
        number
    }

    /// Changes the tool of a call that does not run. `false` if it runs or is not entered.
    pub fn retool(&mut self, call: CallId, tool: ToolNo) -> bool {
        let idle = |call: &PlannedCall| matches!(call.doing, Doing::Nothing | Doing::Lined);
        let Some(number) = self.find(call).filter(|&number| idle(&self.calls[number])) else { return false };
        let PlannedCall { doing, tool: old, .. } = self.calls[number];
        if old == tool.0 {
            return true;
        }
        if doing == Doing::Lined {
            self.leave_line(number);
        }
        self.calls[number].tool = tool.0;
        self.room.tools[tool.0].calls += 1;
        self.room.tools[old].calls -= 1;
        if old != ToolNo::UNLIMITED.0 {
            self.room.drop_tool_if_idle(old);
        }
        if doing == Doing::Lined {
            self.line_up(number);
        }
        true
    }

    /// The queues of a call: its session's, or those within the call around it.
    fn space(&self, number: u32) -> ClaimSpace {
        let call = &self.calls[number];
        match call.parent {
            NONE => self.sessions[call.session].space,
            parent => self.calls[parent].inside.as_ref().map_or(ClaimSpace::EMPTY, |inside| inside.space),
        }
    }

    fn set_space(&mut self, number: u32, space: ClaimSpace) {
        let call = &self.calls[number];
        match call.parent {
            NONE => self.sessions[call.session].space = space,
            parent => {
                if let Some(inside) = &mut self.calls[parent].inside {
                    inside.space = space;
                }
            }
        }
    }

    /// Queues it behind all others.
    fn take_place(&mut self, number: u32) {
        self.age += 1;
        let mut space = self.space(number);
        let call = &mut self.calls[number];
        (call.age, call.stage) = (self.age, ClaimStage::Own);
        let who = PlaceOwner { owner: number, age: self.age };
        call.own = self.trie.enter(&mut space, call.wanted(), who);
        self.set_space(number, space);
    }

    /// Gives up its place; others may be clear now.
    pub(super) fn go_away(&mut self, number: u32) {
        let call = &mut self.calls[number];
        call.stage = ClaimStage::Away;
        let own = std::mem::replace(&mut call.own, NONE);
        let mut cleared = std::mem::take(&mut self.cleared);
        self.trie.leave(own, &mut cleared);
        self.advance_all(cleared);
    }

    /// Gives up its place in the global queues: no other session waits for a parked call.
    pub(super) fn leave_global(&mut self, number: u32) {
        let call = &mut self.calls[number];
        if call.stage == ClaimStage::Away {
            return;
        }
        call.stage = ClaimStage::Own;
        let global = std::mem::replace(&mut call.global, NONE);
        let mut cleared = std::mem::take(&mut self.cleared);
        self.trie.leave(global, &mut cleared);
        self.advance_all(cleared);
    }

    /// Queues it behind all others, as if it came now.
    pub(super) fn queue_anew(&mut self, now_us: u64, number: u32) {
        if self.calls[number].parent == NONE {
            self.calls[number].lead_us = self.lead_us(now_us, self.calls[number].flags.priority);
        }
        self.take_place(number);
    }

    pub(super) fn change_claims(
        &mut self,
        now_us: u64,
        number: u32,
        claims: Claims,
    ) -> Result<Reclaimed, TurnRefusal> {
        let parent = self.calls[number].parent;
        if parent != NONE {
            self.check_inside(parent, &claims)?;
        }
        if self.calls[number].doing == Doing::Lined {
            self.leave_line(number);
            self.calls[number].doing = Doing::Nothing;
        }
        self.leave_global(number);
        let call = &mut self.calls[number];
        let within = call.flags.unprepared || call.claims.uncovered(&claims).is_none();
        call.flags.unprepared = false;
        call.flags.defaulted = claims.are_default();
        call.flags.claims_global = claims.iter().any(|claim| claim.name.is_global());
        call.claims = claims;
        if call.stage == ClaimStage::Away {
            return Ok(Reclaimed::QueuedAnew);
        }
        if within {
            self.narrow(number);
        } else {
            self.go_away(number);
            self.queue_anew(now_us, number);
        }
        self.advance(number);
        Ok(if within { Reclaimed::KeptPlace } else { Reclaimed::QueuedAnew })
    }

    fn narrow(&mut self, number: u32) {
        if self.calls[number].own == NONE {
            return;
        }
        let (mut space, mut cleared) = (self.space(number), std::mem::take(&mut self.cleared));
        let call = &mut self.calls[number];
        call.own = self.trie.narrow(&mut space, call.own, call.wanted(), &mut cleared);
        self.set_space(number, space);
        self.advance_all(cleared);
    }

    pub(super) fn advance_all(&mut self, mut cleared: Vec<u32>) {
        for number in cleared.drain(..) {
            self.advance(number);
        }
        self.cleared = cleared;
    }

    /// Moves a call on as far as its claims allow.
    pub(super) fn advance(&mut self, number: u32) {
        let PlannedCall { stage, own, flags, .. } = self.calls[number];
        let CallFlags { parked, started, unprepared, claims_global, .. } = flags;
        if unprepared || (parked && !started) {
            return;
        }
        let is_clear =
            stage == ClaimStage::Own && self.trie.is_clear(own) && self.sibling_before(number).is_none();
        let call = &mut self.calls[number];
        if is_clear {
            call.stage = ClaimStage::Clear;
            // A nested call's parent holds the global names already.
            if claims_global && call.parent == NONE {
                self.age += 1;
                let (wanted, who) =
                    (PlaceClaims::Globals(call.claims.slice()), PlaceOwner { owner: number, age: self.age });
                call.global = self.trie.enter(&mut self.global, wanted, who);
                call.stage = ClaimStage::Global;
            }
        }
        if call.stage == ClaimStage::Global && self.trie.is_clear(call.global) {
            call.stage = ClaimStage::Clear;
        }
        if call.doing != Doing::Nothing || parked {
            return;
        }
        match call.stage {
            ClaimStage::Clear => {
                call.doing = Doing::Lined;
                self.unblock(number);
                self.come_to_line(number);
            }
            ClaimStage::Own | ClaimStage::Global => self.block(number),
            ClaimStage::Away => {}
        }
    }

    /// Puts it into the line of its session at its gate.
    pub(super) fn line_up(&mut self, number: u32) {
        self.join_line();
        let PlannedCall { session, pool, tool, parent, .. } = self.calls[number];
        let gate = self.gate(number);
        let line = match self.lines.find(&self.sessions[session].lines, gate, pool) {
            Some(line) => line,
            None => {
                let line = self.lines.open_line(session, gate, pool);
                self.sessions[session].lines.push(line);
                line
            }
        };
        self.calls[number].line = line;
        self.lines.push(line, self.turn(number));
        if self.has_room(session, pool) {
            self.lines.join_ring(line);
        }
        if parent != NONE {
            self.suspect(tool);
        }
    }

    pub(super) fn leave_line(&mut self, number: u32) {
        if self.alone == number {
            self.alone = NONE;
            return;
        }
        let (turn, line) = (self.turn(number), std::mem::replace(&mut self.calls[number].line, NONE));
        self.lines.remove(line, turn);
    }

    /// A call that continues holds its tool's room already, so only process and session bound it.
    pub(super) fn gate(&self, number: u32) -> u32 {
        let call = &self.calls[number];
        let gated = call.doing != Doing::Returning && self.room.is_gated(call.tool);
        if gated { call.tool } else { ToolNo::UNLIMITED.0 }
    }

    fn turn(&self, number: u32) -> LineTurn {
        let call = &self.calls[number];
        let lead_us = if call.doing == Doing::Returning { i64::MIN } else { call.lead_us };
        LineTurn { lead_us, age: call.age, call: number }
    }

    pub(super) fn has_room(&self, session: u32, pool: Pool) -> bool {
        let session = &self.sessions[session];
        session.running[pool as usize] < self.room.session_max(session.no, pool)
    }

    /// Limits or gates have changed: all lines are formed again, the longest waiting first.
    pub(super) fn line_up_again(&mut self) {
        self.join_line();
        let sessions = self.session_nos.values();
        let mut lines: Vec<u32> = sessions.flat_map(|&no| self.sessions[no].lines.iter().copied()).collect();
        lines.sort_by_key(|&line| (!self.lines.line(line).stands, self.lines.line(line).since));
        let turns = lines.iter().flat_map(|&line| self.lines.turns(line));
        let waiting: Vec<u32> = turns.map(|turn| turn.call).collect();
        for &number in &waiting {
            self.leave_line(number);
        }
        for number in waiting {
            self.line_up(number);
        }
        self.lines.reopen_all();
    }

    /// The next call, if there is room for any.
    pub(super) fn next(&mut self, now_us: u64, pool: Pool) -> Option<u32> {
        while self.room.running[pool as usize] < self.room.running_max[pool as usize] {
            let (gate, line) = self.lines.next(pool)?;
            if !self.look(gate, pool, now_us) {
                continue;
            }
            let session = self.lines.line(line).session;
            let mut first = self.lines.first(line)?;
            for at in 0..self.sessions[session].lines.len() {
                let other = self.sessions[session].lines[at];
                let found = self.lines.line(other);
                if other == line || !found.stands || found.pool != pool {
                    continue;
                }
                let (gate, turn) = (found.gate, self.lines.first(other)?);
                if turn < first && self.lines.is_open(gate, pool) && self.look(gate, pool, now_us) {
                    first = turn;
                }
            }
            return Some(first.call);
        }
        None
    }

    /// Whether a gate is open; a closed one is shut until an event may have opened it.
    fn look(&mut self, gate: u32, pool: Pool, now_us: u64) -> bool {
        let Err(full) = self.room.fits(gate, now_us) else { return true };
        self.room.note_shut(gate, full);
        let mut due = None;
        match full {
            Full::Rate { due_us, .. } => due = Some(due_us),
            Full::Group { group, .. } => {
                let closed = &mut self.room.groups[group].closed;
                if !closed.contains(&gate) {
                    closed.push(gate);
                }
            }
            Full::Gone | Full::Tool { .. } => {}
        }
        self.lines.shut(gate, pool, due);
        false
    }

    /// A call starts, or continues after its nested calls.
    pub(super) fn start(&mut self, now_us: u64, number: u32) {
        self.uncount(number);
        self.leave_line(number);
        let call = &mut self.calls[number];
        if call.doing != Doing::Returning {
            self.room.take(call.tool, now_us);
        }
        (call.doing, call.flags.started) = (Doing::Running, true);
        if std::mem::take(&mut call.flags.behind) {
            call.stood.total_us += now_us.saturating_sub(call.stood.looked_us);
        }
        let (session, pool) = (call.session, call.pool);
        self.take_room(number);
        // Its session was served: the others come first.
        self.each_line(session, pool, TurnLines::requeue);
    }

    pub(super) fn take_room(&mut self, number: u32) {
        let PlannedCall { session, pool, .. } = self.calls[number];
        self.room.running[pool as usize] += 1;
        self.sessions[session].running[pool as usize] += 1;
        if !self.has_room(session, pool) {
            self.each_line(session, pool, TurnLines::leave_ring);
        }
    }

    fn each_line(&mut self, session: u32, pool: Pool, change: fn(&mut TurnLines, u32)) {
        for &line in &self.sessions[session].lines {
            if self.lines.line(line).pool == pool {
                change(&mut self.lines, line);
            }
        }
    }

    pub(super) fn give_room_back(&mut self, number: u32) {
        self.join_line();
        let PlannedCall { session, pool, .. } = self.calls[number];
        self.room.running[pool as usize] -= 1;
        let before = self.has_room(session, pool);
        self.sessions[session].running[pool as usize] -= 1;
        if !before && self.has_room(session, pool) {
            self.each_line(session, pool, TurnLines::join_ring);
        }
    }

    fn give_tool_back(&mut self, tool: u32) {
        self.room.give_back(tool);
        if tool == ToolNo::UNLIMITED.0 {
            return;
        }
        self.lines.reopen(tool);
        // After a limit was lowered, its current holders may be the ones that lend.
        self.suspect(tool);
        for at in 0..self.room.tools[tool].groups.len() {
            let group = self.room.tools[tool].groups[at];
            for gate in std::mem::take(&mut self.room.groups[group].closed) {
                self.lines.reopen(gate);
            }
        }
    }

    /// Ends a call's use of room. Its claims are not touched.
    pub(super) fn stop(&mut self, number: u32) {
        let PlannedCall { doing, tool, .. } = self.calls[number];
        match doing {
            Doing::Nothing | Doing::Left | Doing::Refused => {}
            Doing::Lined => self.leave_line(number),
            Doing::Running => {
                self.give_room_back(number);
                self.give_tool_back(tool);
            }
            Doing::Lending => {
                self.room.lend(tool, false);
                self.give_tool_back(tool);
            }
            Doing::Returning => {
                self.leave_line(number);
                self.give_tool_back(tool);
            }
        }
        self.calls[number].doing = Doing::Nothing;
    }

    /// Removes a call that has stopped and has no nested calls, and the calls around it that left before it.
    pub(super) fn finish(&mut self, mut number: u32) {
        loop {
            self.unblock(number);
            let gone = self.calls.remove(number);
            self.call_nos.remove(gone.id);
            let mut cleared = std::mem::take(&mut self.cleared);
            self.trie.leave(gone.global, &mut cleared);
            self.trie.leave(gone.own, &mut cleared);
            self.advance_all(cleared);
            self.room.tools[gone.tool].calls -= 1;
            if gone.tool != ToolNo::UNLIMITED.0 {
                self.room.drop_tool_if_idle(gone.tool);
            }
            let left = self.left_inside(gone.parent);
            self.leave_session(gone.session);
            if !left {
                return;
            }
            number = gone.parent;
        }
    }

    /// A nested call is gone. `true` if it was the last and this one left before.
    fn left_inside(&mut self, parent: u32) -> bool {
        if parent == NONE {
            return false;
        }
        let call = &mut self.calls[parent];
        let (doing, tool) = (call.doing, call.tool);
        let Some(inside) = &mut call.inside else { return false };
        inside.calls -= 1;
        if inside.calls == 0 {
            self.trie.close(inside.space);
            call.inside = None;
            self.give_way(parent);
            return doing == Doing::Left;
        }
        if matches!(doing, Doing::Lending | Doing::Left) {
            self.suspect(tool);
        }
        false
    }

    fn leave_session(&mut self, number: u32) {
        self.sessions[number].calls -= 1;
        if self.sessions[number].calls > 0 {
            return;
        }
        let gone = self.sessions.remove(number);
        self.session_nos.remove(&gone.no);
        self.trie.close(gone.space);
        for line in gone.lines {
            self.lines.close_line(line);
        }
    }
}

impl PlannedCall {
    fn wanted(&self) -> PlaceClaims<'_> {
        if self.flags.unprepared { PlaceClaims::Everything } else { PlaceClaims::Claims(self.claims.slice()) }
    }
}

impl InnerQueues {
    fn new() -> Box<InnerQueues> {
        Box::new(InnerQueues { space: ClaimSpace::EMPTY, calls: 0 })
    }
}

impl Default for PlannedSession {
    fn default() -> PlannedSession {
        let (lines, blocked) = (Vec::new(), BTreeSet::new());
        PlannedSession {
            no: SessionNo(0),
            space: ClaimSpace::EMPTY,
            calls: 0,
            queued: 0,
            running: [0; 2],
            lines,
            blocked,
        }
    }
}

/// The content of an empty slot.
impl Default for PlannedCall {
    fn default() -> PlannedCall {
        PlannedCall {
            id: CallId { batch: BatchNo(0), ordinal: Ordinal(0) },
            session: NONE,
            tool: ToolNo::UNLIMITED.0,
            parent: NONE,
            inside: None,
            claims: Claims::NONE,
            own: NONE,
            global: NONE,
            line: NONE,
            age: 0,
            lead_us: 0,
            pool: Pool::Calls,
            stage: ClaimStage::Away,
            doing: Doing::Nothing,
            flags: CallFlags::default(),
            stood: StillTime::default(),
        }
    }
}

//! Turns: the calls with nothing before them, in lines by session and gate.
//!
//! A gate is the set of a tool's own limits; all tools without limits share one. The calls of one session at
//! one gate are a line, and the lines at a gate are in a ring: a served session goes to its end, in all rings
//! at once. The next to be served is the line that has been waiting longest at an open gate. A gate that was
//! found shut is not checked again until an event may have opened it.

use super::room::Pool;
use super::slab::{NONE, Slab};
use super::sorted::Sorted;

/// The place of a call in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineTurn {
    /// Its arrival, minus the worth of its priority.
    pub(super) lead_us: i64,
    pub(super) age: u64,
    pub(super) call: u32,
}

#[derive(Debug, Default)]
pub(super) struct TurnLine {
    pub(super) session: u32,
    pub(super) gate: u32,
    pub(super) pool: Pool,
    turns: Sorted<LineTurn>,
    /// Whether it is in the ring of its gate: it is not empty and its session has room.
    pub(super) stands: bool,
    pub(super) since: u64,
    before: u32,
    after: u32,
}

#[derive(Clone, Copy, Debug)]
struct LineRing {
    first: u32,
    last: u32,
    /// Whether the gate may be open: it is among those to check.
    open: bool,
}

#[derive(Clone, Copy, Debug)]
struct LineGate {
    rings: [LineRing; 2],
    /// The turns in its lines.
    waiting: u32,
    due_us: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct TurnLines {
    lines: Slab<TurnLine>,
    gates: Vec<LineGate>,
    /// The gates to check, the one whose first line has been waiting longest first.
    open: [Sorted<(u64, u32)>; 2],
    /// The gates that open by themselves, and when.
    due: Sorted<(u64, u32)>,
    clock: u64,
}

const RING: LineRing = LineRing { first: NONE, last: NONE, open: false };

impl TurnLines {
    /// The line of a session at a gate, among the session's lines; `None` if it has none there.
    pub(super) fn find(&self, lines: &[u32], gate: u32, pool: Pool) -> Option<u32> {
        lines.iter().copied().find(|&line| self.lines[line].gate == gate && self.lines[line].pool == pool)
    }

    pub(super) fn open_line(&mut self, session: u32, gate: u32, pool: Pool) -> u32 {
        if self.gates.len() <= gate as usize {
            self.gates.resize(gate as usize + 1, LineGate { rings: [RING; 2], waiting: 0, due_us: None });
        }
        self.lines.insert(TurnLine { session, gate, pool, before: NONE, after: NONE, ..TurnLine::default() })
    }

    /// Removes an empty line.
    pub(super) fn close_line(&mut self, line: u32) {
        self.leave_ring(line);
        self.lines.remove(line);
    }

    pub(super) fn push(&mut self, line: u32, turn: LineTurn) {
        let TurnLine { turns, gate, .. } = &mut self.lines[line];
        turns.insert(turn);
        self.gates[*gate as usize].waiting += 1;
    }

    pub(super) fn remove(&mut self, line: u32, turn: LineTurn) {
        let TurnLine { turns, gate, .. } = &mut self.lines[line];
        turns.remove(&turn);
        self.gates[*gate as usize].waiting -= 1;
        if self.lines[line].turns.is_empty() {
            self.leave_ring(line);
        }
    }

    /// How many calls wait at a gate.
    pub(super) fn waiting(&self, gate: u32) -> u32 {
        self.gates.get(gate as usize).map_or(0, |gate| gate.waiting)
    }

    pub(super) fn first(&self, line: u32) -> Option<LineTurn> {
        self.lines[line].turns.first()
    }

    pub(super) fn line(&self, line: u32) -> &TurnLine {
        &self.lines[line]
    }

    /// All turns in a line, in order.
    pub(super) fn turns(&self, line: u32) -> Vec<LineTurn> {
        self.lines[line].turns.iter().collect()
    }

    /// Puts a line that is not empty at the end of its ring.
    pub(super) fn join_ring(&mut self, number: u32) {
        let TurnLine { gate, pool, stands, .. } = self.lines[number];
        if stands || self.lines[number].turns.is_empty() {
            return;
        }
        self.clock += 1;
        let ring = &mut self.gates[gate as usize].rings[pool as usize];
        let last = std::mem::replace(&mut ring.last, number);
        let line = &mut self.lines[number];
        (line.stands, line.since, line.before, line.after) = (true, self.clock, last, NONE);
        match last {
            NONE => {
                ring.first = number;
                ring.open = true;
                self.open[pool as usize].insert((self.clock, gate));
            }
            last => self.lines[last].after = number,
        }
    }

    /// Removes a line from its ring: it is empty, or its session has no room.
    pub(super) fn leave_ring(&mut self, number: u32) {
        let TurnLine { gate, pool, stands, since, before, after, .. } = self.lines[number];
        if !stands {
            return;
        }
        self.lines[number].stands = false;
        match after {
            NONE => self.gates[gate as usize].rings[pool as usize].last = before,
            after => self.lines[after].before = before,
        }
        if before != NONE {
            self.lines[before].after = after;
            return;
        }
        let ring = &mut self.gates[gate as usize].rings[pool as usize];
        ring.first = after;
        if ring.open {
            self.open[pool as usize].remove(&(since, gate));
            match after {
                NONE => ring.open = false,
                after => self.open[pool as usize].insert((self.lines[after].since, gate)),
            }
        }
        if self.gates[gate as usize].rings.iter().all(|ring| ring.first == NONE) {
            self.set_due(gate, None);
        }
    }

    /// Moves a line to the end of its ring; if it is alone, its wait starts again.
    pub(super) fn requeue(&mut self, number: u32) {
        let TurnLine { gate, pool, stands, since, before, after, .. } = self.lines[number];
        if !stands {
            return;
        }
        if before != NONE || after != NONE {
            self.leave_ring(number);
            self.join_ring(number);
            return;
        }
        self.clock += 1;
        self.lines[number].since = self.clock;
        if self.gates[gate as usize].rings[pool as usize].open {
            self.open[pool as usize].remove(&(since, gate));
            self.open[pool as usize].insert((self.clock, gate));
        }
    }

    /// The gate to check next, and the line that has been waiting there longest.
    pub(super) fn next(&self, pool: Pool) -> Option<(u32, u32)> {
        let (_, gate) = self.open[pool as usize].first()?;
        Some((gate, self.gates[gate as usize].rings[pool as usize].first))
    }

    /// Whether there is no gate to check.
    pub(super) fn are_shut(&self) -> bool {
        self.open.iter().all(Sorted::is_empty)
    }

    pub(super) fn is_open(&self, gate: u32, pool: Pool) -> bool {
        self.gates[gate as usize].rings[pool as usize].open
    }

    /// A gate was found shut; it opens by itself at `due_us`, if given.
    pub(super) fn shut(&mut self, gate: u32, pool: Pool, due_us: Option<u64>) {
        let ring = &mut self.gates[gate as usize].rings[pool as usize];
        if std::mem::take(&mut ring.open) {
            let since = self.lines[ring.first].since;
            self.open[pool as usize].remove(&(since, gate));
        }
        self.set_due(gate, due_us);
    }

    /// An event may have opened a gate.
    pub(super) fn reopen(&mut self, gate: u32) {
        let Some(found) = self.gates.get_mut(gate as usize) else { return };
        for (ring, open) in found.rings.iter_mut().zip(&mut self.open) {
            if ring.first != NONE && !std::mem::replace(&mut ring.open, true) {
                open.insert((self.lines[ring.first].since, gate));
            }
        }
    }

    /// Reopens every gate, after a change that may affect any.
    pub(super) fn reopen_all(&mut self) {
        (0..self.gates.len() as u32).for_each(|gate| self.reopen(gate));
    }

    /// Reopens the gates whose time has come.
    pub(super) fn reopen_due(&mut self, now_us: u64) {
        while let Some((due_us, gate)) = self.due.first() {
            if due_us > now_us {
                return;
            }
            self.set_due(gate, None);
            self.reopen(gate);
        }
    }

    /// When a gate opens by itself.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(due_us, _)| due_us).filter(|due_us| *due_us < u64::MAX)
    }

    fn set_due(&mut self, gate: u32, due_us: Option<u64>) {
        let old = std::mem::replace(&mut self.gates[gate as usize].due_us, due_us);
        if let Some(old_us) = old {
            self.due.remove(&(old_us, gate));
        }
        if let Some(due_us) = due_us {
            self.due.insert((due_us, gate));
        }
    }

    /// The number of lines, and of gates that wait for a time.
    pub(super) fn len(&self) -> usize {
        self.lines.len() + self.due.len()
    }
}

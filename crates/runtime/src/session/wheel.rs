//! One wheel of deadlines for a whole runtime, instead of a timer for each call.
//!
//! A watched attempt sleeps here as a task that is woken; a parked call has only an alarm here: no task, no
//! timer, no future.

use crate::api::clock::Clock;
use crate::api::locks::{LockRank, OrderedMutex};
use crate::session::ages::{Ages, ClockPair};
use crate::session::artifacts;
use crate::session::inner::Inner;
use crate::session::owner::Session;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use windlass_core::ids::{BatchNo, CallId};
use windlass_core::time::Timestamp;

/// All deadlines of a runtime, in the order in which they are due.
pub(crate) struct Wheel {
    clock: Arc<dyn Clock>,
    /// The ages of recorded times.
    ages: Ages,
    spokes: OrderedMutex<Spokes, { LockRank::Wheel as u8 }>,
    /// Notified when something is due before the keeper wakes.
    earlier: Notify,
}

#[derive(Default)]
struct Spokes {
    /// Ordered by the clock that never jumps.
    due: BTreeMap<Alarm, DueItem>,
    /// Those of them that are also due by the wall clock.
    by_wall: BTreeMap<(Timestamp, u64), Alarm>,
    /// Calls that are not in memory, with their due times by either clock. Little more than their numbers, since there are many.
    away: BTreeSet<(u64, u64)>,
    away_by_wall: BTreeSet<(Timestamp, u64)>,
    next: u64,
    /// Until when the keeper sleeps.
    keeper_until_us: u64,
    over: bool,
}

/// A position on the wheel: its due time, and a unique number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alarm {
    due_us: u64,
    number: u64,
}

enum DueItem {
    Task(Waker),
    Call {
        session: Weak<Session>,
        call: CallId,
        wall: Option<Timestamp>,
    },
    /// A call that is not in memory.
    Away(CallId),
    /// A job for a batch.
    Batch {
        session: Weak<Session>,
        batch: BatchNo,
        run: BatchJob,
    },
    /// A job for a session, which need not be in memory.
    Session {
        name: Arc<str>,
        wall: Option<Timestamp>,
        run: SessionJob,
    },
    /// A rate may allow a start.
    Turns,
    /// Unreferenced artifacts may have to be removed.
    Collect,
}

/// The job of a batch's alarm. It must not block.
pub(crate) type BatchJob = fn(&Arc<Inner>, Arc<Session>, BatchNo);

/// The job of a session's alarm. It must not block.
pub(crate) type SessionJob = fn(&Arc<Inner>, &Arc<str>);

/// When to wake a parked call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WakeTime {
    /// At the latest, by the clock that never jumps.
    pub(crate) due_us: u64,
    /// By the wall clock, if that is earlier.
    pub(crate) wall: Option<Timestamp>,
}

/// When a call that is not in memory is woken: by whichever clock comes first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AwayDue {
    /// By the clock that never jumps.
    pub(crate) due_us: u64,
    pub(crate) wall: Timestamp,
}

/// How often the wall clock is read while something waits for it: it may have been set forward, or the
/// machine may have slept.
const WALL_CHECK_US: u64 = 10_000_000;

/// A reading of the clocks at one moment.
pub(crate) struct ClockReading {
    pub(crate) now: Timestamp,
    pub(crate) now_us: u64,
    /// The sum of the wall clock's [moves](Wheel::moved_us).
    pub(crate) moved_us: i64,
}

/// Readings of two clocks this close together count as one moment.
const MOMENT_US: u64 = 100_000;

impl Wheel {
    pub(crate) fn new(clock: Arc<dyn Clock>, jump_ms: u64) -> Wheel {
        let ages = Ages::new(ClockPair { now: clock.now(), now_us: clock.elapsed_us() }, jump_ms);
        Wheel { clock, ages, spokes: OrderedMutex::default(), earlier: Notify::new() }
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn shared_clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// How long ago this time was recorded, whatever the wall clock was set to since.
    pub(crate) fn age_us(&self, at: Timestamp) -> u64 {
        let now_us = self.clock.elapsed_us();
        self.look_at(ClockPair { now: self.clock.now(), now_us });
        self.ages.age_us(at, now_us)
    }

    /// Converts a time that this process recorded to the current wall clock.
    pub(crate) fn as_now(&self, at: Timestamp, seen: &ClockReading) -> Timestamp {
        let age_us = i64::try_from(self.ages.age_us(at, seen.now_us)).unwrap_or(i64::MAX);
        Timestamp(seen.now.0.saturating_sub(age_us))
    }

    /// Reads both clocks at one moment.
    pub(crate) fn see(&self) -> ClockReading {
        loop {
            let moved_us = self.moved_us();
            let seen = self.readings();
            self.look_at(seen);
            if moved_us == self.moved_us() {
                return ClockReading { now: seen.now, now_us: seen.now_us, moved_us };
            }
        }
    }

    /// Checks the wall clock for a jump, and returns the time.
    #[inline]
    pub(crate) fn look(&self) -> Timestamp {
        let now = self.clock.now();
        self.look_at(ClockPair { now, now_us: self.clock.elapsed_us() });
        now
    }

    /// Looks whether the wall clock has jumped, by readings that are just made.
    #[inline]
    pub(crate) fn look_at(&self, seen: ClockPair) {
        if !self.ages.is_steady(seen) {
            // If the reader was held up in between, they only look like a jump.
            self.ages.look(|| self.readings());
        }
    }

    /// The sum of the wall clock's jumps since the process began, up to the last look.
    #[inline]
    pub(crate) fn moved_us(&self) -> i64 {
        self.ages.moved_us()
    }

    /// How much of the moves a journal covers whose last entry was recorded at this time: it had no owner
    /// since, or the clock was set. Moves too small to matter need not be recorded.
    pub(crate) fn moves_told(&self, seen_at: Timestamp) -> i64 {
        let seen = self.see();
        seen.moved_us.saturating_sub(self.ages.moved(seen.now.0.saturating_sub(seen_at.0)))
    }

    /// Whether the wall clock ever jumped in this process.
    #[inline]
    pub(crate) fn has_jumped(&self) -> bool {
        self.ages.has_jumped()
    }

    /// Both clocks at one moment.
    fn readings(&self) -> ClockPair {
        loop {
            let (before_us, now, after_us) =
                (self.clock.elapsed_us(), self.clock.now(), self.clock.elapsed_us());
            if after_us.saturating_sub(before_us) < MOMENT_US {
                return ClockPair { now, now_us: after_us };
            }
        }
    }

    /// Sleeps until this point of the clock that never jumps.
    pub(crate) fn until(&self, due_us: u64) -> WheelSleep<&Wheel> {
        WheelSleep { wheel: self, due_us, alarm: None }
    }

    /// Sleeps so long by that clock, for whoever has no hold on the wheel.
    pub(crate) fn sleep(self: &Arc<Wheel>, time: Duration) -> WheelSleep<Arc<Wheel>> {
        let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let due_us = self.clock.elapsed_us().saturating_add(time_us);
        WheelSleep { wheel: self.clone(), due_us, alarm: None }
    }

    /// Wakes a parked call then, unless the alarm is [cleared](Self::clear) before.
    pub(crate) fn alarm(&self, when: WakeTime, session: &Arc<Session>, call: CallId) -> Alarm {
        let due = DueItem::Call { session: Arc::downgrade(session), call, wall: when.wall };
        self.insert(when.due_us, due)
    }

    /// Runs the job with a batch then, if its session is in memory, unless the alarm is [cleared](Self::clear) before.
    pub(crate) fn alarm_batch(
        &self,
        due_us: u64,
        session: &Arc<Session>,
        batch: BatchNo,
        run: BatchJob,
    ) -> Alarm {
        self.insert(due_us, DueItem::Batch { session: Arc::downgrade(session), batch, run })
    }

    /// Runs the job with the session of this name then, unless the alarm is [cleared](Self::clear) before.
    pub(crate) fn alarm_session(&self, when: WakeTime, name: &Arc<str>, run: SessionJob) -> Alarm {
        self.insert(when.due_us, DueItem::Session { name: name.clone(), wall: when.wall, run })
    }

    /// Asks the planner again then.
    pub(crate) fn ask_turns(&self, due_us: u64) {
        self.insert(due_us, DueItem::Turns);
    }

    /// Looks for unreferenced artifacts then.
    pub(crate) fn collect_at(&self, due_us: u64) {
        self.insert(due_us, DueItem::Collect);
    }

    pub(crate) fn clear(&self, alarm: Alarm) {
        self.spokes.lock().remove(alarm);
    }

    /// The due times of calls that may leave memory, in their order. `None`: one of them is due by now.
    pub(crate) fn dues(&self, calls: &[(CallId, Alarm)]) -> Option<Vec<AwayDue>> {
        let spokes = self.spokes.lock();
        let due = |alarm: &Alarm| match spokes.due.get(alarm)? {
            DueItem::Call { wall: Some(wall), .. } => Some(AwayDue { due_us: alarm.due_us, wall: *wall }),
            DueItem::Call { .. } | DueItem::Task(_) | DueItem::Turns | DueItem::Batch { .. } => None,
            DueItem::Away(_) | DueItem::Collect | DueItem::Session { .. } => None,
        };
        calls.iter().map(|(_, alarm)| due(alarm)).collect()
    }

    /// Calls have left memory: their alarms are kept by number alone. A call that has become due meanwhile is
    /// looked for in its batch first, and found where it is by then.
    pub(crate) fn evict(&self, calls: &[(CallId, Alarm)]) {
        let mut spokes = self.spokes.lock();
        for (call, alarm) in calls {
            if let Some(DueItem::Call { wall: Some(wall), .. }) = spokes.remove(*alarm) {
                spokes.away.insert((alarm.due_us, call.packed()));
                spokes.away_by_wall.insert((wall, call.packed()));
            }
        }
    }

    /// A call is in memory again, or over: clears the alarm it had while it was away.
    pub(crate) fn clear_away(&self, call: CallId, due: AwayDue) {
        let mut spokes = self.spokes.lock();
        spokes.away.remove(&(due.due_us, call.packed()));
        spokes.away_by_wall.remove(&(due.wall, call.packed()));
    }

    /// The runtime is gone: nothing is due any more.
    pub(crate) fn stop(&self) {
        self.spokes.lock().over = true;
        self.earlier.notify_one();
    }

    fn insert(&self, due_us: u64, due: DueItem) -> Alarm {
        let mut spokes = self.spokes.lock();
        let alarm = Alarm { due_us, number: spokes.next };
        spokes.next += 1;
        if let Some(wall) = due.wall() {
            spokes.by_wall.insert((wall, alarm.number), alarm);
            // The keeper may not be watching the wall clock yet.
            spokes.keeper_until_us = 0;
            self.earlier.notify_one();
        }
        spokes.due.insert(alarm, due);
        if due_us < spokes.keeper_until_us {
            spokes.keeper_until_us = due_us;
            self.earlier.notify_one();
        }
        alarm
    }

    /// Takes the due items, and returns how long to sleep; `None` if the runtime is gone.
    fn turn(&self) -> Option<(Vec<DueItem>, u64)> {
        let (now_us, wall) = (self.clock.elapsed_us(), self.clock.now());
        self.look_at(ClockPair { now: wall, now_us });
        let mut spokes = self.spokes.lock();
        if spokes.over {
            return None;
        }
        let mut due = Vec::new();
        while let Some(first) = spokes.due.first_key_value().map(|(alarm, _)| *alarm) {
            if first.due_us > now_us {
                break;
            }
            due.extend(spokes.remove(first));
        }
        while let Some((&(at, _), &alarm)) = spokes.by_wall.first_key_value() {
            if at > wall {
                break;
            }
            due.extend(spokes.remove(alarm));
        }
        while let Some(&(at, call)) = spokes.away.first().filter(|(at, _)| *at <= now_us) {
            spokes.away.remove(&(at, call));
            due.push(DueItem::Away(CallId::unpacked(call)));
        }
        while let Some(&(at, call)) = spokes.away_by_wall.first().filter(|(at, _)| *at <= wall) {
            spokes.away_by_wall.remove(&(at, call));
            due.push(DueItem::Away(CallId::unpacked(call)));
        }
        let next = spokes.due.first_key_value().map_or(u64::MAX, |(alarm, _)| alarm.due_us);
        let next = spokes.away.first().map_or(next, |(due_us, _)| next.min(*due_us));
        let first = spokes.by_wall.first_key_value().map(|((at, _), _)| *at);
        let first = first.into_iter().chain(spokes.away_by_wall.first().map(|(at, _)| *at)).min();
        let look = first.map_or(u64::MAX, |at| now_us.saturating_add(at.since(wall).min(WALL_CHECK_US)));
        spokes.keeper_until_us = next.min(look);
        Some((due, spokes.keeper_until_us.saturating_sub(now_us)))
    }
}

impl DueItem {
    /// Its due time by the wall clock, if it has one.
    fn wall(&self) -> Option<Timestamp> {
        match self {
            DueItem::Call { wall, .. } | DueItem::Session { wall, .. } => *wall,
            DueItem::Task(_)
            | DueItem::Away(_)
            | DueItem::Batch { .. }
            | DueItem::Turns
            | DueItem::Collect => None,
        }
    }
}

impl Spokes {
    fn remove(&mut self, alarm: Alarm) -> Option<DueItem> {
        let due = self.due.remove(&alarm)?;
        if let Some(wall) = due.wall() {
            self.by_wall.remove(&(wall, alarm.number));
        }
        Some(due)
    }
}

/// Turns the wheel until its runtime is gone.
pub(crate) async fn keep(wheel: Arc<Wheel>, rt: Weak<Inner>) {
    while let Some((due, sleep_us)) = wheel.turn() {
        for due in due {
            match due {
                DueItem::Task(waker) => waker.wake(),
                DueItem::Turns => {
                    if let Some(rt) = rt.upgrade() {
                        rt.turns.due(&rt);
                    }
                }
                DueItem::Collect => {
                    if let Some(rt) = rt.upgrade() {
                        rt.tasks.spawn(artifacts::sweep(rt.clone()));
                    }
                }
                DueItem::Session { name, run, .. } => {
                    if let Some(rt) = rt.upgrade() {
                        run(&rt, &name);
                    }
                }
                DueItem::Batch { session, batch, run } => {
                    if let (Some(rt), Some(session)) = (rt.upgrade(), session.upgrade()) {
                        run(&rt, session, batch);
                    }
                }
                DueItem::Away(call) => {
                    if let Some(rt) = rt.upgrade() {
                        moment!("at.wake");
                        rt.away.wake(call);
                    }
                }
                DueItem::Call { session, call, .. } => {
                    if let (Some(rt), Some(session)) = (rt.upgrade(), session.upgrade()) {
                        moment!("at.wake");
                        session.wake(&rt, call);
                    }
                }
            }
        }
        if sleep_us > 0 {
            tokio::select! {
                () = wheel.earlier.notified() => {}
                () = wheel.clock.wait(sleep_us) => {}
            }
        }
    }
}

/// A sleep on the wheel.
pub(crate) struct WheelSleep<W: Deref<Target = Wheel>> {
    wheel: W,
    due_us: u64,
    alarm: Option<Alarm>,
}

impl<W: Deref<Target = Wheel> + Unpin> Future for WheelSleep<W> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.due_us == u64::MAX {
            return Poll::Pending;
        }
        if self.wheel.clock.elapsed_us() >= self.due_us {
            return Poll::Ready(());
        }
        if let Some(alarm) = self.alarm.take() {
            let mut spokes = self.wheel.spokes.lock();
            if let Some(DueItem::Task(waker)) = spokes.due.get_mut(&alarm) {
                waker.clone_from(cx.waker());
                drop(spokes);
                self.alarm = Some(alarm);
                return Poll::Pending;
            }
        }
        self.alarm = Some(self.wheel.insert(self.due_us, DueItem::Task(cx.waker().clone())));
        Poll::Pending
    }
}

impl<W: Deref<Target = Wheel>> Drop for WheelSleep<W> {
    fn drop(&mut self) {
        if let Some(alarm) = self.alarm {
            self.wheel.clear(alarm);
        }
    }
}

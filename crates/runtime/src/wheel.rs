//! One wheel of deadlines for a whole runtime, instead of a timer for each call.
//!
//! A watched attempt sleeps here as a task that is woken; a parked call has an alarm here and nothing else: no task,
//! no timer, no future.

use crate::artifacts;
use crate::clock::Clock;
use crate::runtime::Inner;
use crate::schedules;
use crate::session::Session;
use crate::stream;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;
use windlass_core::ids::{BatchNo, CallId};
use windlass_core::time::Timestamp;

/// All deadlines of a runtime, in the order in which they are due.
pub(crate) struct Wheel {
    clock: Arc<dyn Clock>,
    spokes: Mutex<Spokes>,
    /// Told when something is due earlier than the keeper sleeps.
    earlier: Notify,
}

#[derive(Default)]
struct Spokes {
    /// By the clock that never jumps.
    due: BTreeMap<Alarm, Due>,
    /// Those of them that are also due when the wall clock says so.
    by_wall: BTreeMap<(Timestamp, u64), Alarm>,
    /// Calls that are not in memory: when each is due by either clock. Little more than their numbers, since there are many.
    away: BTreeSet<(u64, u64)>,
    away_by_wall: BTreeSet<(Timestamp, u64)>,
    next: u64,
    /// How long the keeper sleeps.
    keeper_until_us: u64,
    over: bool,
}

/// Where something stands on the wheel: when it is due, and a number that makes it one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alarm {
    due_us: u64,
    number: u64,
}

enum Due {
    Task(Waker),
    Call {
        session: Weak<Session>,
        call: CallId,
        wall: Option<Timestamp>,
    },
    /// A call that is not in memory.
    Away(CallId),
    /// Nobody may have pushed to a streamed batch for too long.
    Stream {
        session: Weak<Session>,
        batch: BatchNo,
    },
    /// A schedule of a session.
    Schedules {
        session: Arc<str>,
        wall: Option<Timestamp>,
    },
    /// A rate may allow a start.
    Turns,
    /// What nothing refers to may have to go.
    Collect,
}

/// When a parked call is to be woken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct When {
    /// By the clock that never jumps, at the latest.
    pub(crate) due_us: u64,
    /// By the wall clock, if that is reached before.
    pub(crate) wall: Option<Timestamp>,
}

/// How often the wall clock is looked at while something waits for it: it may have been set forward, or the machine
/// may have slept.
const WALL_CHECK_US: u64 = 10_000_000;

impl Wheel {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Wheel {
        Wheel { clock, spokes: Mutex::default(), earlier: Notify::new() }
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn shared_clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// Sleeps until this point of the clock that never jumps.
    pub(crate) fn until(&self, due_us: u64) -> Sleep<'_> {
        Sleep { wheel: self, due_us, alarm: None }
    }

    /// Wakes a parked call then, unless the alarm is [cleared](Self::clear) before.
    pub(crate) fn alarm(&self, when: When, session: &Arc<Session>, call: CallId) -> Alarm {
        let due = Due::Call { session: Arc::downgrade(session), call, wall: when.wall };
        self.insert(when.due_us, due)
    }

    /// Has a streamed batch looked at then.
    pub(crate) fn alarm_stream(&self, due_us: u64, session: &Arc<Session>, batch: BatchNo) -> Alarm {
        self.insert(due_us, Due::Stream { session: Arc::downgrade(session), batch })
    }

    /// Has the schedules of a session looked at then, unless the alarm is [cleared](Self::clear) before.
    pub(crate) fn alarm_schedules(&self, when: When, session: &Arc<str>) -> Alarm {
        self.insert(when.due_us, Due::Schedules { session: session.clone(), wall: when.wall })
    }

    /// Has the planner asked again then.
    pub(crate) fn ask_turns(&self, due_us: u64) {
        self.insert(due_us, Due::Turns);
    }

    /// Has artifacts that nothing refers to looked for then.
    pub(crate) fn collect_at(&self, due_us: u64) {
        self.insert(due_us, Due::Collect);
    }

    pub(crate) fn clear(&self, alarm: Alarm) {
        self.lock().remove(alarm);
    }

    /// When calls are due that may leave memory, in their order. `None`: one of them is due by now.
    pub(crate) fn dues(&self, calls: &[(CallId, Alarm)]) -> Option<Vec<(u64, Timestamp)>> {
        let spokes = self.lock();
        let due = |alarm: &Alarm| match spokes.due.get(alarm)? {
            Due::Call { wall: Some(wall), .. } => Some((alarm.due_us, *wall)),
            Due::Call { .. } | Due::Task(_) | Due::Turns | Due::Stream { .. } => None,
            Due::Away(_) | Due::Collect | Due::Schedules { .. } => None,
        };
        calls.iter().map(|(_, alarm)| due(alarm)).collect()
    }

    /// Calls have left memory: what wakes them is kept by their number alone. One that has become due meanwhile is looked for in
    /// its batch first, and found where it is by then.
    pub(crate) fn put_away(&self, calls: &[(CallId, Alarm)]) {
        let mut spokes = self.lock();
        for (call, alarm) in calls {
            if let Some(Due::Call { wall: Some(wall), .. }) = spokes.remove(*alarm) {
                spokes.away.insert((alarm.due_us, call.packed()));
                spokes.away_by_wall.insert((wall, call.packed()));
            }
        }
    }

    /// A call that was put away is in memory again, or over: this does not wake it any more.
    pub(crate) fn clear_away(&self, call: CallId, (due_us, wall): (u64, Timestamp)) {
        let mut spokes = self.lock();
        spokes.away.remove(&(due_us, call.packed()));
        spokes.away_by_wall.remove(&(wall, call.packed()));
    }

    /// The runtime is gone: nothing is due any more.
    pub(crate) fn stop(&self) {
        self.lock().over = true;
        self.earlier.notify_one();
    }

    fn insert(&self, due_us: u64, due: Due) -> Alarm {
        let mut spokes = self.lock();
        let alarm = Alarm { due_us, number: spokes.next };
        spokes.next += 1;
        if let Some(wall) = due.wall() {
            spokes.by_wall.insert((wall, alarm.number), alarm);
            // The keeper may not be looking at the wall clock yet.
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

    /// Takes what is due, and says how long to sleep; nothing if the runtime is gone.
    fn turn(&self) -> Option<(Vec<Due>, u64)> {
        let (now_us, wall) = (self.clock.elapsed_us(), self.clock.now());
        let mut spokes = self.lock();
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
            due.push(Due::Away(CallId::unpacked(call)));
        }
        while let Some(&(at, call)) = spokes.away_by_wall.first().filter(|(at, _)| *at <= wall) {
            spokes.away_by_wall.remove(&(at, call));
            due.push(Due::Away(CallId::unpacked(call)));
        }
        let next = spokes.due.first_key_value().map_or(u64::MAX, |(alarm, _)| alarm.due_us);
        let next = spokes.away.first().map_or(next, |(due_us, _)| next.min(*due_us));
        let first = spokes.by_wall.first_key_value().map(|((at, _), _)| *at);
        let first = first.into_iter().chain(spokes.away_by_wall.first().map(|(at, _)| *at)).min();
        let look = first.map_or(u64::MAX, |at| now_us.saturating_add(at.since(wall).min(WALL_CHECK_US)));
        spokes.keeper_until_us = next.min(look);
        Some((due, spokes.keeper_until_us.saturating_sub(now_us)))
    }

    fn lock(&self) -> MutexGuard<'_, Spokes> {
        self.spokes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Due {
    /// When it is due by the wall clock, if it goes by that too.
    fn wall(&self) -> Option<Timestamp> {
        match self {
            Due::Call { wall, .. } | Due::Schedules { wall, .. } => *wall,
            Due::Task(_) | Due::Away(_) | Due::Stream { .. } | Due::Turns | Due::Collect => None,
        }
    }
}

impl Spokes {
    fn remove(&mut self, alarm: Alarm) -> Option<Due> {
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
                Due::Task(waker) => waker.wake(),
                Due::Turns => {
                    if let Some(rt) = rt.upgrade() {
                        rt.turns.due(&rt);
                    }
                }
                Due::Collect => {
                    if let Some(rt) = rt.upgrade() {
                        rt.tasks.spawn(artifacts::sweep(rt.clone()));
                    }
                }
                Due::Schedules { session, .. } => {
                    if let Some(rt) = rt.upgrade() {
                        schedules::look_soon(&rt, &session);
                    }
                }
                Due::Stream { session, batch } => {
                    if let (Some(rt), Some(session)) = (rt.upgrade(), session.upgrade()) {
                        rt.tasks.spawn(stream::close_idle(rt.clone(), session, batch));
                    }
                }
                Due::Away(call) => {
                    if let Some(rt) = rt.upgrade() {
                        moment!("at.wake");
                        rt.away.wake(call);
                    }
                }
                Due::Call { session, call, .. } => {
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
pub(crate) struct Sleep<'a> {
    wheel: &'a Wheel,
    due_us: u64,
    alarm: Option<Alarm>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.due_us == u64::MAX {
            return Poll::Pending;
        }
        if self.wheel.clock.elapsed_us() >= self.due_us {
            return Poll::Ready(());
        }
        if let Some(alarm) = self.alarm.take() {
            let mut spokes = self.wheel.lock();
            if let Some(Due::Task(waker)) = spokes.due.get_mut(&alarm) {
                waker.clone_from(cx.waker());
                drop(spokes);
                self.alarm = Some(alarm);
                return Poll::Pending;
            }
        }
        self.alarm = Some(self.wheel.insert(self.due_us, Due::Task(cx.waker().clone())));
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(alarm) = self.alarm {
            self.wheel.clear(alarm);
        }
    }
}

//! Running schedules: they are checked when one of them is due, and start calls.
//!
//! Memory holds only one alarm for each session that has an enabled schedule. A time is used in one change:
//! the call, that it is a task, and the schedule's new position. So after an interruption a time is used or
//! not, and the batch of a call is identified by its schedule and its time: nothing is started twice.

use super::kept::{self, KeptSchedule, ScheduleRecord};
use crate::api::error::{BatchError, SessionError, chain};
use crate::api::keys;
use crate::api::locks::{LockRank, OrderedMutex};
use crate::mailbox::ask::{self, AskError, Target};
use crate::path::drive;
use crate::path::submit;
use crate::session::inner::Inner;
use crate::session::owner::{Session, Whereabouts};
use crate::session::turns::DrivenCall;
use crate::session::wheel::{Alarm, WakeTime};
use crate::tools::request::{Args, BatchRequest, CallRequest, check};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;
use windlass_core::call::{Detached, DetachedBy};
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::{CallId, SessionNo};
use windlass_core::mutant;
use windlass_core::schedule::{ScheduleDecision, ScheduleStanding, decide};
use windlass_core::time::Timestamp;
use windlass_store::{SessionRow, Space};

/// The pause before a failed start is retried.
const AGAIN_US: u64 = 1_000_000;
/// The page size for reading sessions with schedules.
const PAGE: u64 = 100;

/// The alarms of sessions with schedules.
#[derive(Default)]
pub(crate) struct Alarms(OrderedMutex<HashMap<Arc<str>, Alarm>, { LockRank::Alarms as u8 }>);

/// Serialises writes and checks of a session's schedules.
#[derive(Default)]
struct SchedulesLock(Arc<tokio::sync::Mutex<()>>);

/// The right to write the schedules of a session and to start what is due of them, until this is dropped.
pub(super) struct SchedulesGuard<'a> {
    session: &'a Arc<Session>,
    _held: OwnedMutexGuard<()>,
}

impl<'a> SchedulesGuard<'a> {
    pub(super) async fn take(session: &'a Arc<Session>) -> SchedulesGuard<'a> {
        let lock = session.slots.of::<SchedulesLock>().0.clone();
        SchedulesGuard { session, _held: lock.lock_owned().await }
    }

    /// The session whose schedules they are.
    pub(super) fn session(&self) -> &'a Arc<Session> {
        self.session
    }
}

impl Alarms {
    /// Sets when the schedules of a session are checked next.
    fn set(&self, rt: &Inner, session: &Arc<str>, when: Option<WakeTime>) {
        let mut alarms = self.0.lock();
        let before = match when {
            Some(when) => alarms.insert(session.clone(), rt.wheel.alarm_session(when, session, look_soon)),
            None => alarms.remove(session),
        };
        before.into_iter().for_each(|alarm| rt.wheel.clear(alarm));
    }
}

/// Takes every session that has an enabled schedule.
pub(crate) async fn resume(rt: &Arc<Inner>) -> Result<(), SessionError> {
    let mut after = None;
    loop {
        let found = rt.store.sessions_with(Space::Armed, after, PAGE).await?;
        let Some(last) = found.last() else { return Ok(()) };
        after = Some(last.no);
        for SessionRow { name, .. } in &found {
            rt.left_session(name).await?;
        }
    }
}

/// Disables every schedule of a copy: the original continues them. Returns their number.
pub(crate) async fn disable_all(rt: &Arc<Inner>) -> Result<u64, SessionError> {
    let mut disabled = 0;
    loop {
        // A disabled schedule is not found again, so every page is the first.
        let found = rt.store.sessions_with(Space::Armed, None, PAGE).await?;
        if found.is_empty() {
            return Ok(disabled);
        }
        for session in &found {
            disabled += disable(rt, &session.name).await?;
        }
    }
}

async fn disable(rt: &Arc<Inner>, name: &str) -> Result<u64, SessionError> {
    let session = rt.session(name).await?;
    let _schedules = SchedulesGuard::take(&session).await;
    let (mut rows, mut disabled) = (Vec::new(), 0);
    for mut schedule in kept::all(&*rt.store, session.lane.session()).await? {
        let kept = &mut schedule.kept;
        if kept.enabled {
            (kept.enabled, kept.waits_us) = (false, None);
            kept.generation += 1;
            rows.extend(schedule.rows());
            disabled += 1;
        }
    }
    session.lane.commit_rows(rows).await?;
    Ok(disabled)
}

/// Whether a session has an enabled schedule.
pub(crate) async fn is_scheduled(rt: &Inner, session: SessionNo) -> Result<bool, SessionError> {
    Ok(rt.store.count_records(Space::Armed.of(session)).await? > 0)
}

/// The session is removed: its schedules are not checked any more.
pub(crate) fn forget(rt: &Inner, session: &str) {
    rt.slots.of::<Alarms>().set(rt, &session.into(), None);
}

/// Checks the schedules of a session in a task of its own: one may be due, or a run has ended.
pub(crate) fn look_soon(rt: &Arc<Inner>, session: &Arc<str>) {
    let (weak, name) = (Arc::downgrade(rt), session.clone());
    rt.tasks.spawn(async move {
        if let Some(rt) = weak.upgrade() {
            look(&rt, &name).await;
        }
    });
}

async fn look(rt: &Arc<Inner>, name: &Arc<str>) {
    let again_us = match look_at(rt, name).await {
        Ok(()) => return,
        // Its next owner, or its owner, continues.
        Err(BatchError::Session(SessionError::Lost(_) | SessionError::Owned { .. })) => return,
        // It never starts anything again.
        Err(BatchError::Session(SessionError::Closed { .. } | SessionError::Gone { .. })) => return,
        Err(BatchError::Overloaded { retry_after_ms, .. } | BatchError::Stalled { retry_after_ms, .. }) => {
            retry_after_ms.saturating_mul(1_000)
        }
        Err(error) => {
            tracing::error!(session = %name, error = %chain(&error), "a schedule could not start its call");
            AGAIN_US
        }
    };
    let due_us = rt.clock.elapsed_us().saturating_add(again_us.max(AGAIN_US));
    rt.slots.of::<Alarms>().set(rt, name, Some(WakeTime { due_us, wall: None }));
}

async fn look_at(rt: &Arc<Inner>, name: &Arc<str>) -> Result<(), BatchError> {
    // This must not open a removed session again, and nothing of a copy is started.
    if rt.store.is_copy() || rt.store.session(name).await?.is_none() {
        return Ok(());
    }
    let session = rt.session(name).await?;
    go_on(rt, &SchedulesGuard::take(&session).await).await
}

/// Uses the times that are due and sees to it that the next ones are looked at.
pub(super) async fn go_on(rt: &Arc<Inner>, schedules: &SchedulesGuard<'_>) -> Result<(), BatchError> {
    let session = schedules.session();
    session.check_takes(rt).await?;
    let mut next: Option<Timestamp> = None;
    let mut refused = Ok(());
    for mut schedule in kept::all(&*rt.store, session.lane.session()).await? {
        if !schedule.kept.enabled {
            continue;
        }
        match use_due(rt, session, &mut schedule).await {
            Err(error @ BatchError::Session(SessionError::Lost(_))) => return Err(error),
            // The others continue; this one is checked again.
            Err(error) => refused = refused.and(Err(error)),
            Ok(()) => {
                let found = schedule.kept.next(&schedule.kept.times()?);
                next = next.into_iter().chain(found).min();
            }
        }
    }
    let when = next.map(|next| {
        let due_us = rt.clock.elapsed_us().saturating_add(next.since(rt.clock.now()));
        WakeTime { due_us, wall: Some(next) }
    });
    rt.slots.of::<Alarms>().set(rt, &session.name, when);
    refused
}

/// Uses the due times of one schedule.
async fn use_due(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    schedule: &mut ScheduleRecord,
) -> Result<(), BatchError> {
    let kept = &mut schedule.kept;
    let times = kept.times()?;
    let open = |run: &u64| is_open(rt, session, CallId::unpacked(*run));
    let runs: Vec<u64> = kept.runs.iter().copied().filter(open).collect();
    let (waits, is_open) = (kept.waits_us.map(Timestamp), !runs.is_empty());
    let standing = ScheduleStanding { handled: kept.handled(), waits, is_open };
    let decision = decide(&times, kept.rules()?, standing, rt.clock.now(), rt.limits.call());
    let is_over = kept.enabled && times.after(decision.handled).is_none() && decision.waits.is_none();
    if decision.fire.is_empty() && decision.skipped == 0 && decision.waits == waits && !is_over {
        return Ok(());
    }
    if decision.cancels {
        cancel(rt, &runs).await?;
    }
    kept.runs = runs;
    kept.skipped += decision.skipped;
    let ScheduleDecision { fire, waits, handled, .. } = decision;
    let progress = ScheduleProgress { handled, waits };
    let count = fire.len();
    for (place, nominal) in fire.into_iter().enumerate() {
        // Its new position is written with the last of them.
        let last = (place + 1 == count).then_some(progress);
        start(rt, session, schedule, nominal, last).await?;
    }
    if count == 0 {
        stand(&mut schedule.kept, &times, progress);
        session.lane.commit_rows(schedule.rows()).await?;
    }
    Ok(())
}

/// How far the times of a schedule are dealt with.
#[derive(Clone, Copy)]
struct ScheduleProgress {
    /// All times until then are.
    handled: Timestamp,
    /// The time that waits for the end of a run.
    waits: Option<Timestamp>,
}

/// Notes how far a schedule is; if no other time is to come it is over.
fn stand(kept: &mut KeptSchedule, times: &windlass_core::schedule::Times, progress: ScheduleProgress) {
    let ScheduleProgress { handled, waits } = progress;
    kept.handled_us = kept.handled_us.max(handled.0);
    kept.waits_us = waits.map(|at| at.0);
    kept.enabled = times.after(kept.handled()).is_some() || waits.is_some();
}

/// Starts the call of one time, unless it was started before.
async fn start(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    schedule: &mut ScheduleRecord,
    nominal: Timestamp,
    last: Option<ScheduleProgress>,
) -> Result<(), BatchError> {
    let ScheduleRecord { id, kept } = schedule;
    let times = kept.times()?;
    let admission = session.admit().await;
    admission.check_stays()?;
    let call = CallRequest {
        id: Some("run".to_string()),
        tool: kept.tool.clone(),
        args: Args::Json(kept.args.clone()),
        ..CallRequest::default()
    };
    let mut checked = check(BatchRequest { calls: vec![call], ..BatchRequest::default() }, &rt.limits)?;
    let title = kept.title.as_deref().map(Arc::from);
    let task = Detached {
        by: DetachedBy::Scheduled,
        wake: kept.wake(),
        title,
        starter: None,
        depth: 0,
        budget_ms: None,
        tags: Vec::new(),
    };
    checked.calls.iter_mut().for_each(|asked| asked.opened.task = Some(Box::new(task.clone())));
    let key: Arc<str> = keys::scheduled(id, nominal).into();
    let fresh = match submit::find_or_make(rt, &admission, &checked, &key).await {
        Err(BatchError::Session(SessionError::Expired { .. })) => None,
        Ok(batch) if batch.len() > 0 => {
            session.forget(&batch);
            None
        }
        found => Some(found?),
    };
    let Some(batch) = fresh else {
        // The clock was set back, and the schedule written again since.
        kept.handled_us = kept.handled_us.max(nominal.0);
        last.into_iter().for_each(|last| stand(kept, &times, last));
        session.lane.commit_rows(kept.rows(id)).await?;
        return Ok(());
    };
    let (_, new) = submit::place(rt, session, &batch, checked.calls)?;
    let on = new.on.clone();
    for mut held in new.into_calls() {
        kept.fired(nominal, held.id);
        last.into_iter().for_each(|last| stand(kept, &times, last));
        let who = DrivenCall::of(&held);
        if mutant::breaks("fire-apart") {
            session.lane.commit_rows(kept.rows(id)).await?;
        } else {
            held.carry(kept.rows(id));
        }
        if let Err(lost) = held.commit().await {
            drive::give_up(&on, who, lost.clone());
            return Err(lost.into());
        }
        drive::start_all(&on, std::iter::once(held)).await;
    }
    Ok(())
}

fn is_open(rt: &Inner, session: &Session, call: CallId) -> bool {
    match session.whereabouts(rt, call.batch, None) {
        Whereabouts::Here(batch) => !batch.has_ended(call.ordinal),
        Whereabouts::Away => true,
        Whereabouts::Over => false,
    }
}

/// Cancels open runs: the next one replaces them.
async fn cancel(rt: &Arc<Inner>, runs: &[u64]) -> Result<(), SessionError> {
    for run in runs {
        let handle = Handle::seal(rt.store.secret(), HandleKind::Call, *run).to_string();
        let reason = "its schedule starts the next run";
        let asked = ask::cancel(rt, Target::Call(&handle), Some(reason)).await;
        // A run that has ended meanwhile is fine.
        if let Err(AskError::Session(error)) = asked {
            return Err(error);
        }
    }
    Ok(())
}

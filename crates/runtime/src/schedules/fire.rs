//! What schedules do by themselves: they are looked at when one of them is due, and start calls.
//!
//! All that is in memory is one alarm for each session that has an enabled schedule. A time is used in one change: the call, that
//! it is a task, and where its schedule then stands. So whoever was cut off finds a time used or not used, and the batch of a
//! call is known by its schedule and its time: nothing is started twice.

use super::kept::{self, Kept};
use super::{SCHEDULED, key, marker};
use crate::ask::{self, AskError, Target};
use crate::drive;
use crate::error::{BatchError, chain};
use crate::request::{Args, BatchRequest, CallRequest, check};
use crate::runtime::Inner;
use crate::session::{Session, Whereabouts};
use crate::submit;
use crate::wheel::{Alarm, When};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use windlass_core::call::{Detached, DetachedBy};
use windlass_core::handle::{Handle, Kind};
use windlass_core::ids::CallId;
use windlass_core::mutant;
use windlass_core::schedule::{Decision, Standing, decide};
use windlass_core::time::Timestamp;
use windlass_store::{RecordPage, Row, STORE, Space};

/// How long is waited before what could not be done is tried again.
const AGAIN_US: u64 = 1_000_000;
/// Sessions with schedules are looked through in pages of this size.
const PAGE: u64 = 100;

/// When the schedules of which session are to be looked at.
#[derive(Default)]
pub(crate) struct Alarms(Mutex<HashMap<Arc<str>, Alarm>>);

impl Alarms {
    /// The schedules of a session are looked at then, and no earlier.
    fn set(&self, rt: &Inner, session: &Arc<str>, when: Option<When>) {
        let mut alarms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match when {
            Some(when) => alarms.insert(session.clone(), rt.wheel.alarm_schedules(when, session)),
            None => alarms.remove(session),
        };
        before.into_iter().for_each(|alarm| rt.wheel.clear(alarm));
    }
}

/// Takes every session that has an enabled schedule.
pub(crate) async fn resume(rt: &Arc<Inner>) -> Result<(), BatchError> {
    let mut after: Option<String> = None;
    loop {
        let (session, space) = (STORE, Space::Setting);
        let page = RecordPage { session, space, prefix: SCHEDULED, after: after.as_deref(), limit: PAGE };
        let found = rt.store.records(page).await?;
        let Some(last) = found.last() else { return Ok(()) };
        after = Some(last.key.clone());
        for name in found.iter().filter_map(|record| record.key.strip_prefix(SCHEDULED)) {
            match rt.session(name).await {
                Err(error @ BatchError::Unreadable { .. }) => {
                    tracing::error!(session = %name, error = %chain(&error), "the schedules of a session stand still");
                }
                Err(BatchError::Owned { .. }) => {}
                taken => drop(taken?),
            }
        }
    }
}

/// Whether a session has an enabled schedule.
pub(crate) async fn is_scheduled(rt: &Inner, session: &str) -> Result<bool, BatchError> {
    Ok(rt.store.record(STORE, Space::Setting, &marker(session)).await?.is_some())
}

/// The session is removed: nothing of it is looked at any more.
pub(crate) fn forget(rt: &Inner, session: &str) {
    rt.schedules.set(rt, &session.into(), None);
}

/// Has the schedules of a session looked at in a task of its own: something of them may be due, or a run has ended.
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
        // Its next owner goes on with it, or its owner does.
        Err(BatchError::Lost(_) | BatchError::Owned { .. }) => return,
        // It never starts anything again.
        Err(BatchError::SessionClosed { .. }) => return,
        Err(BatchError::Overloaded { retry_after_ms, .. }) => retry_after_ms.saturating_mul(1_000),
        Err(error) => {
            tracing::error!(session = %name, error = %chain(&error), "a schedule could not start its call");
            AGAIN_US
        }
    };
    let due_us = rt.clock.elapsed_us().saturating_add(again_us.max(AGAIN_US));
    rt.schedules.set(rt, name, Some(When { due_us, wall: None }));
}

async fn look_at(rt: &Arc<Inner>, name: &Arc<str>) -> Result<(), BatchError> {
    // A session that was removed must not be opened anew by this.
    if rt.store.session(name).await?.is_none() {
        return Ok(());
    }
    let session = rt.session(name).await?;
    let _alone = session.schedules.lock().await;
    go_on(rt, &session).await
}

/// Uses the times that are due and sees to it that the next ones are looked at. Asked by who has the schedules of the session.
pub(super) async fn go_on(rt: &Arc<Inner>, session: &Arc<Session>) -> Result<(), BatchError> {
    session.check_takes(rt).await?;
    let mut next: Option<Timestamp> = None;
    let mut refused = Ok(());
    for (id, mut kept, _) in kept::all(&*rt.store, session.lane.session()).await? {
        if !kept.enabled {
            continue;
        }
        match use_due(rt, session, (&id, &mut kept)).await {
            Err(error @ BatchError::Lost(_)) => return Err(error),
            // The others go on; this one is looked at again.
            Err(error) => refused = refused.and(Err(error)),
            Ok(()) => {
                let found = kept.next(&kept.times()?);
                next = next.into_iter().chain(found).min();
            }
        }
    }
    let when = next.map(|next| {
        let due_us = rt.clock.elapsed_us().saturating_add(next.since(rt.clock.now()));
        When { due_us, wall: Some(next) }
    });
    rt.schedules.set(rt, &session.name, when);
    refused
}

/// Uses what is due of one schedule.
async fn use_due(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    (id, kept): (&str, &mut Kept),
) -> Result<(), BatchError> {
    let times = kept.times()?;
    let open = |run: &u64| is_open(rt, session, CallId::unpacked(*run));
    let runs: Vec<u64> = kept.runs.iter().copied().filter(open).collect();
    let (waits, is_open) = (kept.waits_us.map(Timestamp), !runs.is_empty());
    let standing = Standing { handled: kept.handled(), waits, is_open };
    let decision = decide((&times, kept.rules()?), standing, rt.clock.now(), &rt.limits);
    let is_over = kept.enabled && times.after(decision.handled).is_none() && decision.waits.is_none();
    if decision.fire.is_empty() && decision.skipped == 0 && decision.waits == waits && !is_over {
        return Ok(());
    }
    if decision.cancels {
        cancel(rt, &runs).await?;
    }
    kept.runs = runs;
    kept.skipped += decision.skipped;
    let Decision { fire, waits, handled, .. } = decision;
    let count = fire.len();
    for (place, nominal) in fire.into_iter().enumerate() {
        // Where it stands is told with the last of them.
        let last = (place + 1 == count).then_some((handled, waits));
        start(rt, session, (id, kept), (nominal, last)).await?;
    }
    if count == 0 {
        stand(kept, &times, (handled, waits));
        session.lane.commit_rows(kept.rows(id)).await?;
        free(rt, session, kept).await?;
    }
    Ok(())
}

/// All its times until then are dealt with; if no other is to come it is over.
fn stand(
    kept: &mut Kept,
    times: &windlass_core::schedule::Times,
    (handled, waits): (Timestamp, Option<Timestamp>),
) {
    kept.handled_us = kept.handled_us.max(handled.0);
    kept.waits_us = waits.map(|at| at.0);
    kept.enabled = times.after(kept.handled()).is_some() || waits.is_some();
}

/// Starts the call of one time, unless that was started before.
async fn start(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    (id, kept): (&str, &mut Kept),
    (nominal, last): (Timestamp, Option<(Timestamp, Option<Timestamp>)>),
) -> Result<(), BatchError> {
    let times = kept.times()?;
    let _admission = session.admission.lock().await;
    session.check_stays()?;
    let call = CallRequest {
        id: Some("run".to_string()),
        tool: kept.tool.clone(),
        args: Args::Json(kept.args.clone()),
        ..CallRequest::default()
    };
    let mut checked = check(BatchRequest { calls: vec![call], ..BatchRequest::default() }, &rt.limits)?;
    let title = kept.title.as_deref().map(Arc::from);
    let task = Detached { by: DetachedBy::Scheduled, wake: kept.wake(), title, starter: None, depth: 0 };
    checked.calls.iter_mut().for_each(|asked| asked.opened.task = Some(Box::new(task.clone())));
    let key: Arc<str> = key(id, nominal).into();
    let batch = submit::find_or_make(rt, session, (&checked, &key)).await?;
    if batch.len() > 0 {
        // The clock was put back, and the schedule written anew since.
        session.forget(&batch);
        kept.handled_us = kept.handled_us.max(nominal.0);
        last.into_iter().for_each(|last| stand(kept, &times, last));
        session.lane.commit_rows(kept.rows(id)).await?;
        return free(rt, session, kept).await;
    }
    let (_, new) = submit::place(rt, session, &batch, checked.calls)?;
    let on = new.on.clone();
    for mut held in new.into_calls() {
        kept.fired(nominal, held.id);
        last.into_iter().for_each(|last| stand(kept, &times, last));
        let who = (held.id, true);
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
    free(rt, session, kept).await
}

/// If no schedule of the session is enabled any more, nobody need look for it.
async fn free(rt: &Arc<Inner>, session: &Arc<Session>, kept: &Kept) -> Result<(), BatchError> {
    if kept.enabled || rt.store.count_records(session.lane.session(), Space::Armed).await? > 0 {
        return Ok(());
    }
    let row = Row::Remove { space: Space::Setting, key: marker(&session.name) };
    Ok(session.lane.commit_rows(vec![row]).await?)
}

fn is_open(rt: &Inner, session: &Session, call: CallId) -> bool {
    match session.whereabouts(rt, call.batch, None) {
        Whereabouts::Here(batch) => !batch.has_ended(call.ordinal),
        Whereabouts::Away => true,
        Whereabouts::Over => false,
    }
}

/// Asks the runs that are open to stop: the next one takes their place.
async fn cancel(rt: &Arc<Inner>, runs: &[u64]) -> Result<(), BatchError> {
    for run in runs {
        let handle = Handle::seal(rt.store.secret(), Kind::Call, *run).to_string();
        let reason = "its schedule starts the next run";
        let asked = ask::cancel(rt, Target::Call(&handle), Some(reason)).await;
        // One that has ended meanwhile is as good.
        if let Err(AskError::Batch(error)) = asked {
            return Err(error);
        }
    }
    Ok(())
}

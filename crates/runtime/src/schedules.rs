//! The schedules of a session: calls that are started at their times, by nobody.
//!
//! A schedule is a record of its session, written by its owner alone and under one lock from the look at what is there until that
//! is durable. So an edit, a removal and a time that is due meet one after the other, and each sees what the others left.

mod fire;
mod kept;

pub(crate) use fire::{Alarms, forget, is_scheduled, look_soon, resume};

use crate::answer;
use crate::clock::{Clock, SystemClock};
use crate::error::BatchError;
use crate::runtime::{Inner, Runtime, check_session_name};
use crate::session::Session;
use crate::standing;
use kept::Kept;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use windlass_core::call::Wake;
use windlass_core::ids::SessionNo;
use windlass_core::limits::Limits;
use windlass_core::schedule::{CatchUp, Overlap, Times, Written};
use windlass_core::time::Timestamp;
use windlass_store::{Guard, Record, Row, Space, Store};

/// The keys of batches that schedules start begin so, and no others do.
pub(crate) const KEY_PREFIX: &str = "schedule:";
/// How keys of records about sessions begin that have an enabled schedule.
const SCHEDULED: &str = "scheduled/";

/// The key of the batch that a schedule starts at this time.
fn key(id: &str, nominal: Timestamp) -> String {
    format!("{KEY_PREFIX}{id}/{}", nominal.0)
}

/// The schedule that has started the batch of this key, if one has.
pub(crate) fn schedule_of(key: &str) -> Option<&str> {
    key.strip_prefix(KEY_PREFIX)?.rsplit_once('/').map(|(id, _)| id)
}

/// The key of the record by which a session with an enabled schedule is found.
pub(crate) fn marker(session: &str) -> String {
    format!("{SCHEDULED}{session}")
}

/// A schedule, as somebody asks for it.
#[derive(Clone, Debug)]
pub struct NewSchedule {
    /// Its id, 1–64 of `[a-zA-Z0-9_.-]`; without one it gets one. Asking for the same again under one id changes nothing.
    pub id: Option<String>,
    /// Five fields: minute, hour, day of the month, month, day of the week.
    pub cron: Option<String>,
    /// One time instead: RFC 3339, or a time by the clocks of the zone.
    pub at: Option<String>,
    /// An IANA zone; UTC if it is not said.
    pub zone: Option<String>,
    /// The tool that is called; it must have the flag `background`.
    pub tool: String,
    /// The arguments of the call.
    pub args: Value,
    /// What people call it.
    pub title: Option<String>,
    /// What becomes of times that nobody was there for.
    pub catch_up: CatchUp,
    /// What becomes of a time at which an earlier run is open.
    pub overlap: Overlap,
    /// When the session is told of a run.
    pub wake: Wake,
    /// Whether it starts anything.
    pub enabled: bool,
    /// Who asks for it.
    pub owner: Option<String>,
}

impl Default for NewSchedule {
    fn default() -> NewSchedule {
        NewSchedule {
            id: None,
            cron: None,
            at: None,
            zone: None,
            tool: String::new(),
            args: Value::Null,
            title: None,
            catch_up: CatchUp::One,
            overlap: Overlap::Skip,
            wake: Wake::OnEnd,
            enabled: true,
            owner: None,
        }
    }
}

/// What is changed of a schedule; what is not said stays.
#[derive(Clone, Debug, Default)]
pub struct ScheduleEdit {
    /// Only if it still has this generation.
    pub generation: Option<u64>,
    /// From now on by this cron, instead of the one or the time it had.
    pub cron: Option<String>,
    /// From now on at this one time, instead of the one or the cron it had.
    pub at: Option<String>,
    /// In this zone.
    pub zone: Option<String>,
    /// With these arguments.
    pub args: Option<Value>,
    /// Called so by people.
    pub title: Option<String>,
    /// See [`NewSchedule::catch_up`].
    pub catch_up: Option<CatchUp>,
    /// See [`NewSchedule::overlap`].
    pub overlap: Option<Overlap>,
    /// Whether it starts anything.
    pub enabled: Option<bool>,
}

/// A schedule, as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Schedule {
    /// Its id.
    pub id: String,
    /// Whether it starts anything.
    pub enabled: bool,
    /// Its cron, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Its one time, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Its zone.
    pub zone: String,
    /// The tool that is called.
    pub tool: String,
    /// With these arguments.
    pub args: Value,
    /// What people call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What becomes of times that nobody was there for.
    pub catch_up: String,
    /// What becomes of a time at which an earlier run is open.
    pub overlap: String,
    /// When the session is told of a run.
    pub wake: String,
    /// Who asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Which writing of it this is.
    pub generation: u64,
    /// When it was made.
    #[serde(rename = "created", serialize_with = "answer::as_wall_time")]
    pub created_at: Timestamp,
    /// Its next time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The time that waits for the end of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// The last time that was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// The task that it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_task: Option<String>,
    /// How many calls it has started.
    pub count: u64,
    /// How many of its times were skipped.
    pub skipped: u64,
}

/// Why something was not done with a schedule.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ScheduleError {
    /// There is none of that id.
    #[error("there is no schedule {id:?} in this session; `windlass schedules list` shows those there are")]
    NotFound {
        /// The id.
        id: String,
    },
    /// It cannot be as it is asked for.
    #[error("{what}")]
    Invalid {
        /// What is wrong, and what would be right.
        what: String,
    },
    /// Another has this id.
    #[error("another schedule has the id {id:?}; edit that one, or give this one an id of its own")]
    Exists {
        /// The id.
        id: String,
    },
    /// Somebody else wrote it.
    #[error(
        "the schedule was written by somebody else (its generation is {now}); read it and go on from that"
    )]
    Changed {
        /// Its generation.
        now: u64,
    },
    /// There are as many as there may be.
    #[error("the session has {max} {what} and may have no more; {hint}")]
    Full {
        /// Of which kind.
        what: &'static str,
        /// The limit.
        max: u64,
        /// What to do.
        hint: &'static str,
    },
    /// Only whoever owns the session changes its schedules.
    #[error("nobody owns the session, so its schedules cannot be changed; start its owner first")]
    NotOwned,
    /// The session cannot be had.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

/// The schedules of one session. See [`Runtime::schedules`].
pub struct Schedules {
    store: Arc<dyn Store>,
    session: String,
    /// Whoever owns the session, or may.
    rt: Option<Arc<Inner>>,
}

impl Runtime {
    /// The schedules of the session of this name. The first one that is made opens it.
    pub fn schedules(&self, session: &str) -> Schedules {
        Schedules::owned(&self.0, session)
    }
}

/// The next times of what would be a schedule, each in UTC and by the clocks of its zone; at most so many, or the limit
/// `schedule_preview_max`.
pub fn preview(
    written: Written<'_>,
    most: u64,
    now: Timestamp,
    limits: &Limits,
) -> Result<Vec<(Timestamp, String)>, ScheduleError> {
    let times = times(written, now, limits)?;
    let found = times.preview(now, most.min(limits.schedule_preview_max));
    Ok(found.into_iter().map(|at| (at, times.local(at))).collect())
}

/// Those of a session that are enabled, by id.
pub(crate) async fn enabled(store: &dyn Store, session: SessionNo) -> Result<Vec<Schedule>, BatchError> {
    let found = kept::all(store, session).await?;
    let enabled = found.iter().filter(|(_, kept, _)| kept.enabled);
    Ok(enabled.map(|(id, kept, _)| kept.shown(id, store.secret())).collect())
}

fn times(written: Written<'_>, now: Timestamp, limits: &Limits) -> Result<Times, ScheduleError> {
    let max = limits.schedule_text_chars_max;
    let texts = [written.cron, written.at, written.zone];
    if texts.into_iter().flatten().any(|text| text.chars().count() as u64 > max) {
        let what = format!("cron, time and zone have at most {max} characters each; write less");
        return Err(ScheduleError::Invalid { what });
    }
    Times::new(written, now, limits).map_err(|problem| ScheduleError::Invalid { what: problem.to_string() })
}

impl Schedules {
    /// The schedules of a session of a store that nobody drives: they can be looked at.
    pub fn recorded(store: Arc<dyn Store>, session: &str) -> Schedules {
        Schedules { store, session: session.to_string(), rt: None }
    }

    pub(crate) fn owned(rt: &Arc<Inner>, session: &str) -> Schedules {
        Schedules { store: rt.store.clone(), session: session.to_string(), rt: Some(rt.clone()) }
    }

    /// All of them, by id.
    pub async fn list(&self) -> Result<Vec<Schedule>, ScheduleError> {
        let Some(session) = self.number().await? else { return Ok(Vec::new()) };
        let found = kept::all(&*self.store, session).await?;
        Ok(found.iter().map(|(id, kept, _)| kept.shown(id, self.store.secret())).collect())
    }

    /// The one of this id.
    pub async fn get(&self, id: &str) -> Result<Schedule, ScheduleError> {
        let session = self.number().await?.ok_or_else(|| not_found(id))?;
        let record = self.record(session, id).await?.ok_or_else(|| not_found(id))?;
        Ok(kept::read(&record)?.shown(id, self.store.secret()))
    }

    /// Makes one, durably. The same again under the same id is fine; the second value says whether it is new.
    pub async fn create(&self, new: NewSchedule) -> Result<(Schedule, bool), ScheduleError> {
        let rt = self.rt.as_ref().ok_or(ScheduleError::NotOwned)?;
        check_session_name(&self.session)?;
        let id = match &new.id {
            Some(id) => {
                standing::check_id("schedule", id).map_err(invalid)?;
                id.clone()
            }
            None => standing::fresh_id()?,
        };
        // Taken first: which tools it has is known of a session that is owned.
        let session = rt.session(&self.session).await?;
        let kept = self.accepted(rt, new).await?;
        let _alone = session.schedules.lock().await;
        session.check_takes(rt).await?;
        let no = session.lane.session();
        if let Some(record) = self.record(no, &id).await? {
            let there = kept::read(&record)?;
            return match kept.asks_the_same(&there) {
                true => Ok((there.shown(&id, self.store.secret()), false)),
                false => Err(ScheduleError::Exists { id }),
            };
        }
        self.check_room(rt, (no, &id), kept.enabled).await?;
        let guard = Guard::Generation { space: Space::Schedule, key: id.clone(), is: 0 };
        self.write((rt, &session), (&id, &kept), guard).await?;
        Ok((kept.shown(&id, self.store.secret()), true))
    }

    /// Changes one, durably: from then on it goes by what it was changed to, and what was due before is over.
    pub async fn edit(&self, id: &str, edit: ScheduleEdit) -> Result<Schedule, ScheduleError> {
        let rt = self.rt.as_ref().ok_or(ScheduleError::NotOwned)?;
        let session = self.open(rt, id).await?;
        let _alone = session.schedules.lock().await;
        session.check_takes(rt).await?;
        let no = session.lane.session();
        let record = self.record(no, id).await?.ok_or_else(|| not_found(id))?;
        let before = kept::read(&record)?;
        if edit.generation.is_some_and(|expected| expected != before.generation) {
            return Err(ScheduleError::Changed { now: before.generation });
        }
        let after = self.edited(rt, &before, edit).await?;
        self.check_room(rt, (no, id), after.enabled).await?;
        let guard = Guard::Generation { space: Space::Schedule, key: id.to_string(), is: record.generation };
        self.write((rt, &session), (id, &after), guard).await?;
        Ok(after.shown(id, self.store.secret()))
    }

    /// Removes one. What it has started goes on. `false`: there was none.
    pub async fn remove(&self, id: &str) -> Result<bool, ScheduleError> {
        let rt = self.rt.as_ref().ok_or(ScheduleError::NotOwned)?;
        let session = match self.open(rt, id).await {
            Err(ScheduleError::NotFound { .. }) => return Ok(false),
            opened => opened?,
        };
        let _alone = session.schedules.lock().await;
        let no = session.lane.session();
        if self.record(no, id).await?.is_none() {
            return Ok(false);
        }
        let mut rows: Vec<Row> =
            [Space::Schedule, Space::Armed].map(|space| Row::Remove { space, key: id.to_string() }).into();
        let armed = self.store.record(no, Space::Armed, id).await.map_err(BatchError::from)?;
        let others = self.armed(no).await? - u64::from(armed.is_some());
        if others == 0 {
            rows.push(Row::Remove { space: Space::Setting, key: marker(&self.session) });
        }
        session.lane.commit_rows(rows).await.map_err(BatchError::from)?;
        fire::go_on(rt, &session).await?;
        Ok(true)
    }

    /// Writes one that was made or changed, and goes on by it.
    async fn write(
        &self,
        (rt, session): (&Arc<Inner>, &Arc<Session>),
        (id, kept): (&str, &Kept),
        guard: Guard,
    ) -> Result<(), ScheduleError> {
        let no = session.lane.session();
        let (key, limits) = (id.to_string(), &rt.limits);
        let mut guards =
            vec![guard, Guard::Room { space: Space::Schedule, key: key.clone(), max: limits.schedules_max }];
        let mut rows = kept.rows(id);
        let mark = (Space::Setting, marker(&self.session));
        if kept.enabled {
            guards.push(Guard::Room { space: Space::Armed, key, max: limits.schedules_enabled_max });
            rows.push(Row::Put { space: mark.0, key: mark.1, value: Arc::default() });
        } else {
            let armed = self.store.record(no, Space::Armed, id).await.map_err(BatchError::from)?;
            if self.armed(no).await? == u64::from(armed.is_some()) {
                rows.push(Row::Remove { space: mark.0, key: mark.1 });
            }
        }
        session.lane.send(guards, rows).durable().await.map_err(BatchError::from)?;
        Ok(fire::go_on(rt, session).await?)
    }

    /// A schedule that is asked for, if it can be.
    async fn accepted(&self, rt: &Arc<Inner>, new: NewSchedule) -> Result<Kept, ScheduleError> {
        let now = rt.clock.now();
        let NewSchedule {
            cron, at, zone, tool, args, title, catch_up, overlap, wake, enabled, owner, ..
        } = new;
        let written = Written { cron: cron.as_deref(), at: at.as_deref(), zone: zone.as_deref() };
        let times = times(written, now, &rt.limits)?;
        standing::check_title(title.as_deref(), &rt.limits).map_err(invalid)?;
        let args = standing::target(rt, &self.session, (&tool, args)).await.map_err(invalid)?;
        let kept = Kept {
            cron,
            at,
            zone: times.zone().to_string(),
            tool,
            args,
            title,
            catch_up: catch_up.to_string(),
            overlap: overlap.to_string(),
            wake: wake.to_string(),
            enabled,
            owner,
            created_us: now.0,
            generation: 1,
            handled_us: now.0,
            waits_us: None,
            last: None,
            count: 0,
            skipped: 0,
            runs: Vec::new(),
        };
        kept.check_size()?;
        Ok(kept)
    }

    /// A schedule as it is after an edit, if it can be.
    async fn edited(
        &self,
        rt: &Arc<Inner>,
        before: &Kept,
        edit: ScheduleEdit,
    ) -> Result<Kept, ScheduleError> {
        let mut after = before.clone();
        if edit.cron.is_some() || edit.at.is_some() {
            (after.cron, after.at) = (edit.cron, edit.at);
        }
        after.zone = edit.zone.unwrap_or(after.zone);
        after.enabled = edit.enabled.unwrap_or(after.enabled);
        if let Some(args) = edit.args {
            after.args = standing::target(rt, &self.session, (&after.tool, args)).await.map_err(invalid)?;
        }
        standing::check_title(edit.title.as_deref(), &rt.limits).map_err(invalid)?;
        after.title = edit.title.or(after.title);
        after.catch_up = edit.catch_up.map_or(after.catch_up, |rule| rule.to_string());
        after.overlap = edit.overlap.map_or(after.overlap, |rule| rule.to_string());
        let now = rt.clock.now();
        let written =
            Written { cron: after.cron.as_deref(), at: after.at.as_deref(), zone: Some(&after.zone) };
        // One that is over may be renamed; to go on it needs a time that is to come.
        let is_same = (&after.cron, &after.at, &after.zone) == (&before.cron, &before.at, &before.zone);
        if after.enabled || !is_same {
            after.zone = times(written, now, &rt.limits)?.zone().to_string();
        }
        after.generation += 1;
        after.handled_us = now.0;
        after.waits_us = None;
        after.check_size()?;
        Ok(after)
    }

    async fn check_room(
        &self,
        rt: &Inner,
        (session, id): (SessionNo, &str),
        enabled: bool,
    ) -> Result<(), ScheduleError> {
        let (max, most) = (rt.limits.schedules_enabled_max, rt.limits.schedules_max);
        let has = async |space| {
            let record = self.store.record(session, space, id).await.map_err(BatchError::from)?;
            Ok::<_, ScheduleError>(record.is_some())
        };
        if enabled && !has(Space::Armed).await? && self.armed(session).await? >= max {
            let (what, hint) = ("enabled schedules", "disable or remove one first");
            return Err(ScheduleError::Full { what, max, hint });
        }
        let count = self.store.count_records(session, Space::Schedule).await.map_err(BatchError::from)?;
        if !has(Space::Schedule).await? && count >= most {
            let (what, hint) = ("schedules", "remove one first");
            return Err(ScheduleError::Full { what, max: most, hint });
        }
        Ok(())
    }

    /// How many are enabled.
    async fn armed(&self, session: SessionNo) -> Result<u64, ScheduleError> {
        Ok(self.store.count_records(session, Space::Armed).await.map_err(BatchError::from)?)
    }

    /// The session, owned here, if somebody has used it.
    async fn open(&self, rt: &Arc<Inner>, id: &str) -> Result<Arc<Session>, ScheduleError> {
        self.number().await?.ok_or_else(|| not_found(id))?;
        Ok(rt.session(&self.session).await?)
    }

    async fn number(&self) -> Result<Option<SessionNo>, ScheduleError> {
        let row = self.store.session(&self.session).await.map_err(BatchError::from)?;
        Ok(row.map(|row| row.no))
    }

    async fn record(&self, session: SessionNo, id: &str) -> Result<Option<Record>, ScheduleError> {
        Ok(self.store.record(session, Space::Schedule, id).await.map_err(BatchError::from)?)
    }

    /// What time it is for whoever looks.
    pub fn now(&self) -> Timestamp {
        self.rt.as_ref().map_or_else(|| SystemClock::default().now(), |rt| rt.clock.now())
    }
}

impl Kept {
    /// Whether somebody asks for what is there.
    fn asks_the_same(&self, there: &Kept) -> bool {
        let times = |kept: &Kept| (kept.cron.clone(), kept.at.clone(), kept.zone.clone());
        let rules = |kept: &Kept| (kept.catch_up.clone(), kept.overlap.clone(), kept.wake.clone());
        let what = |kept: &Kept| (kept.tool.clone(), kept.args.clone(), kept.title.clone());
        times(self) == times(there) && rules(self) == rules(there) && what(self) == what(there)
    }
}

fn invalid(what: String) -> ScheduleError {
    ScheduleError::Invalid { what }
}

fn not_found(id: &str) -> ScheduleError {
    ScheduleError::NotFound { id: id.to_string() }
}

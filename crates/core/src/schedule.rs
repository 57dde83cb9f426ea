//! Schedules: their times, and which due times are used.
//!
//! A time of a schedule is identified by its instant, its nominal time. Cron is read on civil time; a civil
//! time that a zone skips falls on the first instant after the gap, one that it has twice on the first of the
//! two. So the nominal times of a schedule rise, and several that fall on one instant are one.

mod cron;

pub use cron::Cron;

use crate::limits::CallLimits;
use crate::time::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use windlass_args::named;

/// A mistake in a schedule, with what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleProblem {
    /// Both cron and time, or neither.
    #[error("{0}")]
    Rhythm(String),
    /// The cron cannot be parsed, or never matches.
    #[error("{0}")]
    Cron(String),
    /// There is no such zone.
    #[error(
        "there is no time zone {0:?}; name one of the IANA database, such as \"Europe/Berlin\", or \"UTC\""
    )]
    Zone(String),
    /// The single time cannot be parsed, or is over.
    #[error("{0}")]
    Time(String),
    /// It would fire too often.
    #[error(
        "the cron {cron:?} comes round after {minutes} min, and a schedule may do so every {min_ms} ms at the most; make it rarer"
    )]
    TooOften {
        /// The cron.
        cron: String,
        /// The fewest minutes between two of its times.
        minutes: u64,
        /// The limit `schedule_interval_ms_min`.
        min_ms: u64,
    },
}

/// The times of a schedule.
#[derive(Clone, Debug)]
pub struct Times {
    zone: TimeZone,
    rhythm: Rhythm,
}

#[derive(Clone, Copy, Debug)]
enum Rhythm {
    Cron(Cron),
    Once(Timestamp),
}

/// The times as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenTimes<'a> {
    /// Five fields.
    pub cron: Option<&'a str>,
    /// One time, in RFC 3339 or civil time of the zone.
    pub at: Option<&'a str>,
    /// An IANA zone; `None` is UTC.
    pub zone: Option<&'a str>,
}

impl Times {
    /// Parses the times of a new schedule.
    pub fn new(
        written: WrittenTimes<'_>,
        now: Timestamp,
        limits: &CallLimits,
    ) -> Result<Times, ScheduleProblem> {
        let times = Times::read(written)?;
        match times.rhythm {
            Rhythm::Once(at) if at <= now => {
                let (at, now) = (shown(at), shown(now));
                Err(ScheduleProblem::Time(format!(
                    "the time {at} is over, it is {now}; name one that is to come"
                )))
            }
            Rhythm::Cron(cron) => {
                let (minutes, min_ms) = (cron.shortest_minutes(), limits.schedule_interval_ms_min);
                if minutes.saturating_mul(60_000) < min_ms {
                    let cron = written.cron.unwrap_or_default().to_string();
                    return Err(ScheduleProblem::TooOften { cron, minutes, min_ms });
                }
                Ok(times)
            }
            Rhythm::Once(_) => Ok(times),
        }
    }

    /// Parses recorded times, without checking them again.
    pub fn read(written: WrittenTimes<'_>) -> Result<Times, ScheduleProblem> {
        let zone = match written.zone {
            Some(name) => TimeZone::get(name).map_err(|_| ScheduleProblem::Zone(name.to_string()))?,
            None => TimeZone::UTC,
        };
        let rhythm = match (written.cron, written.at) {
            (Some(cron), None) => Rhythm::Cron(Cron::parse(cron)?),
            (None, Some(at)) => Rhythm::Once(one_time(at, &zone)?),
            (Some(_), Some(_)) => {
                let what = "a schedule has a cron or one time, and this has both; leave one of them out";
                return Err(ScheduleProblem::Rhythm(what.to_string()));
            }
            (None, None) => {
                let what = "a schedule needs a cron, as in \"0 9 * * MON-FRI\", or one time, as in \
                            \"2030-01-31T09:00:00Z\"";
                return Err(ScheduleProblem::Rhythm(what.to_string()));
            }
        };
        Ok(Times { zone, rhythm })
    }

    /// The name of its zone.
    pub fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// The first time after this instant. `None`: there is none.
    pub fn after(&self, instant: Timestamp) -> Option<Timestamp> {
        match self.rhythm {
            Rhythm::Once(at) => (at > instant).then_some(at),
            Rhythm::Cron(cron) => {
                // While a civil time occurs for the second time, the following ones may be over.
                let mut civil = self.civil(instant)?;
                loop {
                    civil = cron.after(civil)?;
                    let found = self.instant(civil)?;
                    if found > instant {
                        return Some(found);
                    }
                }
            }
        }
    }

    /// The last time until this instant. `None`: there is none.
    pub fn until(&self, instant: Timestamp) -> Option<Timestamp> {
        match self.rhythm {
            Rhythm::Once(at) => (at <= instant).then_some(at),
            Rhythm::Cron(cron) => {
                let mut found = cron.at_or_before(self.latest_civil(instant)?)?;
                loop {
                    let at = self.instant(found)?;
                    if at <= instant {
                        return Some(at);
                    }
                    found = cron.at_or_before(found.checked_sub(jiff::Span::new().minutes(1)).ok()?)?;
                }
            }
        }
    }

    /// The next times after this instant, at most `most`.
    pub fn preview(&self, after: Timestamp, most: u64) -> Vec<Timestamp> {
        let next = |at: &Timestamp| self.after(*at);
        std::iter::successors(self.after(after), next).take(usize::try_from(most).unwrap_or(0)).collect()
    }

    /// The local time in its zone, with its offset.
    pub fn local(&self, instant: Timestamp) -> String {
        let Some(at) = point(instant) else { return String::new() };
        at.to_zoned(self.zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    }

    fn civil(&self, instant: Timestamp) -> Option<DateTime> {
        Some(self.zone.to_datetime(point(instant)?))
    }

    /// The latest civil time that the zone's clocks have shown until shortly before: before they were last
    /// set back they may have shown a later one.
    fn latest_civil(&self, instant: Timestamp) -> Option<DateTime> {
        let (at, shown) = (point(instant)?, self.civil(instant)?);
        let behind = at.checked_add(jiff::SignedDuration::from_nanos(1)).ok()?;
        let Some(last) = self.zone.preceding(behind).next().map(|change| change.timestamp()) else {
            return Some(shown);
        };
        let before = last.checked_sub(jiff::SignedDuration::from_nanos(1)).ok()?;
        Some(shown.max(self.zone.to_datetime(before)))
    }

    /// The instant of a civil time.
    fn instant(&self, civil: DateTime) -> Option<Timestamp> {
        let (early, late) = match self.zone.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Unambiguous { offset } => return timestamp(offset.to_timestamp(civil).ok()?),
            // The first of the two.
            AmbiguousOffset::Fold { before, .. } => return timestamp(before.to_timestamp(civil).ok()?),
            AmbiguousOffset::Gap { before, after } => {
                (after.to_timestamp(civil).ok()?, before.to_timestamp(civil).ok()?)
            }
        };
        // The clocks are set forward between these two.
        let changes = self.zone.following(early).take_while(|change| change.timestamp() <= late);
        let jump = changes.into_iter().find(|change| self.zone.to_datetime(change.timestamp()) > civil);
        timestamp(jump.map_or(late, |change| change.timestamp()))
    }
}

fn one_time(text: &str, zone: &TimeZone) -> Result<Timestamp, ScheduleProblem> {
    let unreadable = || {
        let what = "as in \"2030-01-31T09:00:00Z\", or without the Z by the clocks of its zone";
        ScheduleProblem::Time(format!("the time {text:?} cannot be read; write it {what}"))
    };
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return timestamp(at).ok_or_else(unreadable);
    }
    let civil: DateTime = text.parse().map_err(|_| unreadable())?;
    let times = Times { zone: zone.clone(), rhythm: Rhythm::Once(Timestamp(0)) };
    times.instant(civil).ok_or_else(unreadable)
}

fn point(instant: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_microsecond(instant.0).ok()
}

#[expect(clippy::unnecessary_wraps, reason = "it is the end of calculations that may have none")]
fn timestamp(at: jiff::Timestamp) -> Option<Timestamp> {
    Some(Timestamp(at.as_microsecond()))
}

fn shown(at: Timestamp) -> String {
    point(at).map_or_else(String::new, |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

named! {
    /// How to handle times missed while no process was running.
    CatchUp {
        /// Skip them.
        Skip = "skip",
        /// Run once, for the last of them.
        One = "one",
        /// Run once for each of the latest missed times, up to a limit.
        All = "all",
    }
}

named! {
    /// How to handle a time at which an earlier run is still open.
    Overlap {
        /// Skip it.
        Skip = "skip",
        /// The last such time waits for the end of the run.
        QueueOne = "queue_one",
        /// Both run.
        Allow = "allow",
        /// The earlier run is cancelled.
        CancelPrevious = "cancel_previous",
    }
}

/// How due times are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FiringRules {
    /// The rule for missed times.
    pub catch_up: CatchUp,
    /// The rule for times at which an earlier run is open.
    pub overlap: Overlap,
}

/// The position of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleStanding {
    /// Its times until then were used or skipped.
    pub handled: Timestamp,
    /// The time that waits for the end of a run.
    pub waits: Option<Timestamp>,
    /// Whether a run is open.
    pub is_open: bool,
}

/// The decision about a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleDecision {
    /// The times to use now, in order.
    pub fire: Vec<Timestamp>,
    /// The time that waits for the end of a run.
    pub waits: Option<Timestamp>,
    /// Whether runs that are open are cancelled.
    pub cancels: bool,
    /// The number of skipped times; counted up to the limit `schedule_missed_max`.
    pub skipped: u64,
    /// All times until then are handled.
    pub handled: Timestamp,
}

/// Decides about a schedule now. The time of the last check does not affect its cost.
pub fn decide(
    times: &Times,
    rules: FiringRules,
    standing: ScheduleStanding,
    now: Timestamp,
    limits: &CallLimits,
) -> ScheduleDecision {
    let ScheduleStanding { handled, waits, is_open } = standing;
    let due = latest(times, handled, now, limits.schedule_missed_max.max(1));
    // Unchecked times are handled too; a clock that was set back handles nothing again.
    let handled = due.first().copied().unwrap_or(handled);
    let count = due.len() as u64;
    let on_time = |at: &Timestamp| now.since(*at) <= limits.schedule_late_ms.saturating_mul(1_000);
    let most = match rules.catch_up {
        CatchUp::Skip => usize::from(due.first().is_some_and(on_time)),
        CatchUp::One => 1,
        CatchUp::All => usize::try_from(limits.schedule_catch_up_max).unwrap_or(usize::MAX),
    };
    let wanted: Vec<Timestamp> = waits.into_iter().chain(due.into_iter().take(most).rev()).collect();
    let total = count + u64::from(waits.is_some());
    let overlapped = overlap(rules.overlap, wanted, is_open);
    let kept = overlapped.fire.len() as u64 + u64::from(overlapped.waits.is_some());
    ScheduleDecision { skipped: total.saturating_sub(kept), handled, ..overlapped }
}

/// The times after `handled` until `now`, the latest first, at most `most`.
fn latest(times: &Times, handled: Timestamp, now: Timestamp, most: u64) -> Vec<Timestamp> {
    let before = |at: &Timestamp| times.until(Timestamp(at.0 - 1));
    std::iter::successors(times.until(now), before)
        .take_while(|at| *at > handled)
        .take(usize::try_from(most).unwrap_or(usize::MAX))
        .collect()
}

/// Which of these times are used now.
fn overlap(rule: Overlap, mut wanted: Vec<Timestamp>, is_open: bool) -> ScheduleDecision {
    let (mut waits, mut cancels) = (None, false);
    match rule {
        Overlap::Allow => {}
        Overlap::Skip if is_open => wanted.clear(),
        Overlap::Skip => wanted.truncate(1),
        Overlap::QueueOne if is_open => {
            waits = wanted.pop();
            wanted.clear();
        }
        Overlap::QueueOne if wanted.len() > 1 => {
            waits = wanted.pop();
            wanted.truncate(1);
        }
        Overlap::QueueOne => {}
        Overlap::CancelPrevious => {
            cancels = is_open && !wanted.is_empty();
            wanted.drain(..wanted.len().saturating_sub(1));
        }
    }
    ScheduleDecision { fire: wanted, waits, cancels, skipped: 0, handled: Timestamp(0) }
}

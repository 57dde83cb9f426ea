//! Limits: all of them, those that can be changed while calls run, and those of one session.

mod joined;

pub use joined::Limits;

use serde::{Deserialize, Serialize};
use windlass_args::limits::ArgLimits;
use windlass_core::attempt::{Deadlines, Rules};
use windlass_core::limits::CallLimits;
use windlass_core::projection::{AnswerBudget, BudgetError};
use windlass_core::tool::EffectClass;

/// The limits of a runtime, with the parts that the crates below take at hand: every call asks for them.
#[derive(Clone, Debug)]
pub(crate) struct EnforcedLimits {
    all: Limits,
    call: CallLimits,
    unprepared: Rules,
}

impl EnforcedLimits {
    pub(crate) fn new(all: Limits) -> EnforcedLimits {
        let (call, queue_ms, total_ms) = (all.call(), all.queue_ms, all.total_ms);
        let detached = Rules::detached(&Deadlines::default(), &call);
        let unprepared = Rules { queue_ms, total_ms, detached, ..Rules::unsaid(EffectClass::Once) };
        EnforcedLimits { all, call, unprepared }
    }

    /// The rules of a call before it is prepared, unless its caller gives it less time.
    pub(crate) fn unprepared(&self) -> &Rules {
        &self.unprepared
    }

    /// The limits on arguments and results.
    #[inline]
    pub(crate) fn args(&self) -> &ArgLimits {
        &self.call.args
    }

    /// The limits of the rules of a call.
    #[inline]
    pub(crate) fn call(&self) -> &CallLimits {
        &self.call
    }
}

impl Default for EnforcedLimits {
    fn default() -> EnforcedLimits {
        EnforcedLimits::new(Limits::default())
    }
}

impl std::ops::Deref for EnforcedLimits {
    type Target = Limits;

    #[inline]
    fn deref(&self) -> &Limits {
        &self.all
    }
}

/// The limits that can be changed while calls run, named as in [`Limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningLimits {
    /// Calls running at once in the process.
    pub calls_running_max: u64,
    /// Calls of one session running at once.
    pub session_calls_running_max: u64,
    /// Calls waiting for their start; above this, batches are refused.
    pub calls_queued_max: u64,
    /// Calls of one session waiting for their start; above this, its batches are refused.
    pub session_calls_queued_max: u64,
    /// Parked calls; above this, batches are refused.
    pub calls_parked_max: u64,
}

/// A limit of zero, which would block everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit `{limit}` is 0, which would block everything; set at least 1, or pause the tools")]
pub struct ZeroLimit {
    /// The limit's name.
    pub limit: &'static str,
}

impl RunningLimits {
    pub(crate) fn of(limits: &Limits) -> RunningLimits {
        RunningLimits {
            calls_running_max: limits.calls_running_max,
            session_calls_running_max: limits.session_calls_running_max,
            calls_queued_max: limits.calls_queued_max,
            session_calls_queued_max: limits.session_calls_queued_max,
            calls_parked_max: limits.calls_parked_max,
        }
    }

    pub(crate) fn put_into(self, limits: &mut Limits) {
        limits.calls_running_max = self.calls_running_max;
        limits.session_calls_running_max = self.session_calls_running_max;
        limits.calls_queued_max = self.calls_queued_max;
        limits.session_calls_queued_max = self.session_calls_queued_max;
        limits.calls_parked_max = self.calls_parked_max;
    }

    pub(crate) fn check(self) -> Result<(), ZeroLimit> {
        let named = [
            ("calls_running_max", self.calls_running_max),
            ("session_calls_running_max", self.session_calls_running_max),
            ("calls_queued_max", self.calls_queued_max),
            ("session_calls_queued_max", self.session_calls_queued_max),
            ("calls_parked_max", self.calls_parked_max),
        ];
        let zero = named.into_iter().find(|(_, max)| *max == 0);
        zero.map_or(Ok(()), |(limit, _)| Err(ZeroLimit { limit }))
    }
}

/// Limits of one session, tighter than the general ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SessionLimits {
    /// Calls of it that run at once: 1 to `session_calls_running_max`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_running_max: Option<u64>,
    /// Tasks of it that run at once: 1 to `session_tasks_running_max`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks_running_max: Option<u64>,
    /// How long its callers wait for a call that may go on in the background, in milliseconds, where neither the call nor its
    /// tool says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline_ms: Option<u64>,
    /// Its batches expire this many milliseconds after their last entry; 0: not by their age. Instead of the general
    /// [rule](crate::limits::Retention).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_age_ms: Option<u64>,
    /// Its oldest batches expire while its journal has more bytes than this; 0: not by its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_bytes: Option<u64>,
    /// How many bytes the answers of its calls may have, where neither the call nor its tool says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_bytes_max: Option<u64>,
    /// How many lines the answers of its calls may have, where neither the call nor its tool says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_lines_max: Option<u64>,
}

impl SessionLimits {
    /// The budget of the answers of its calls.
    pub(crate) fn answer(&self) -> AnswerBudget {
        AnswerBudget { bytes_max: self.answer_bytes_max, lines_max: self.answer_lines_max }
    }

    /// Refuses a bound of nothing, and one above the general limit, which would bound nothing.
    pub fn check(self, limits: &Limits) -> Result<(), SessionBoundError> {
        let bounds = [
            ("calls", self.calls_running_max, limits.session_calls_running_max),
            ("tasks", self.tasks_running_max, limits.session_tasks_running_max),
        ];
        for (what, asked, max) in bounds {
            if asked.is_some_and(|asked| !(1..=max).contains(&asked)) {
                return Err(SessionBoundError::Running { what, max });
            }
        }
        Ok(self.answer().check(&limits.call())?)
    }
}

/// Why a session cannot be bounded so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionBoundError {
    /// It bounds nothing, or everything.
    #[error("of a session 1 to {max} {what} run at once; ask for as many, or for none in particular")]
    Running {
        /// Calls or tasks.
        what: &'static str,
        /// The limit `session_calls_running_max` or `session_tasks_running_max`.
        max: u64,
    },
    /// Answers cannot have this budget.
    #[error(transparent)]
    Answer(#[from] BudgetError),
}

//! The rules of a call's attempts: whether to retry, when, and how long each may take.

use crate::limits::CallLimits;
use crate::tool::{EffectClass, ToolSpec};
use windlass_args::named;

/// Time limits in milliseconds, where given. A call may shorten its tool's limits, never lengthen them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadlines {
    /// From being recorded to the first start.
    pub queue_ms: Option<u64>,
    /// One attempt.
    pub attempt_ms: Option<u64>,
    /// Since the last output or heartbeat of an attempt.
    pub silence_ms: Option<u64>,
    /// From being recorded to the end.
    pub total_ms: Option<u64>,
}

impl Deadlines {
    /// Whether none is given.
    pub fn is_empty(&self) -> bool {
        *self == Deadlines::default()
    }
}

/// How often a tool may be tried, and how long to wait between; absent fields have the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryRule {
    /// The maximum number of attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The longest wait before the second attempt, in milliseconds; it doubles with each further one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_ms: Option<u64>,
    /// The longest wait overall, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_ms: Option<u64>,
}

named! {
    /// The deadline that ran out.
    Deadline {
        /// Until the first start.
        Queue = "queue",
        /// Of one attempt.
        Attempt = "attempt",
        /// Without a sign of life.
        Silence = "silence",
        /// Of the whole call.
        Total = "total",
    }
}

/// The deadlines of a call that continues without a caller, in milliseconds. [`Rules::NONE`] means no deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskDeadlines {
    /// From being recorded to the first start.
    pub queue_ms: u64,
    /// One attempt, from its start, even if the call became a task during it.
    pub attempt_ms: u64,
    /// Since the last progress, output or heartbeat of an attempt.
    pub silence_ms: u64,
    /// From being recorded to the end.
    pub total_ms: u64,
}

/// The effective rules of one call: fixed when it is prepared, and recorded where they are not the defaults.
/// [`Rules::NONE`] means no deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// From being recorded to the first start.
    pub queue_ms: u64,
    /// One attempt.
    pub attempt_ms: u64,
    /// Since the last output or heartbeat of an attempt.
    pub silence_ms: u64,
    /// From being recorded to the end.
    pub total_ms: u64,
    /// How long an attempt may continue after it was asked to stop.
    pub grace_ms: u64,
    /// The maximum number of attempts.
    pub attempts: u32,
    /// The longest wait before the second attempt.
    pub base_ms: u64,
    /// The longest wait overall.
    pub cap_ms: u64,
    /// The number of deaths of its owner after which it is set aside.
    pub deaths: u32,
    /// The deadlines that replace those above once the call is a task.
    pub detached: TaskDeadlines,
}

impl Rules {
    /// No deadline.
    pub const NONE: u64 = u64::MAX;

    /// The rules of a journal that records none. Released: they never change, whatever the defaults become.
    pub fn unsaid(class: EffectClass) -> Rules {
        Rules {
            queue_ms: 600_000,
            attempt_ms: 30_000,
            silence_ms: Rules::NONE,
            total_ms: 600_000,
            grace_ms: 50,
            attempts: if class == EffectClass::Once { 1 } else { 3 },
            base_ms: 200,
            cap_ms: 30_000,
            deaths: 3,
            detached: Rules::UNSAID_DETACHED,
        }
    }

    /// The deadlines of tasks in a journal that records none. Released: they never change.
    const UNSAID_DETACHED: TaskDeadlines = TaskDeadlines {
        queue_ms: Rules::NONE,
        attempt_ms: 3_600_000,
        silence_ms: 600_000,
        total_ms: 86_400_000,
    };

    /// The deadlines of a task under these rules, where the journal does not record them: a deadline that is not the default was
    /// requested and applies to tasks too, a default one is replaced by that of tasks. Released: it never changes.
    pub fn unsaid_detached(&self) -> TaskDeadlines {
        let (usual, tasks) = (Rules::unsaid(EffectClass::Once), Rules::UNSAID_DETACHED);
        let pick = |ours: u64, usual: u64, of_tasks: u64| if ours == usual { of_tasks } else { ours };
        TaskDeadlines {
            queue_ms: pick(self.queue_ms, usual.queue_ms, tasks.queue_ms),
            attempt_ms: pick(self.attempt_ms, usual.attempt_ms, tasks.attempt_ms),
            silence_ms: pick(self.silence_ms, usual.silence_ms, tasks.silence_ms),
            total_ms: pick(self.total_ms, usual.total_ms, tasks.total_ms),
        }
    }

    /// The rules with the deadlines of a task.
    pub fn for_task(self) -> Rules {
        let TaskDeadlines { queue_ms, attempt_ms, silence_ms, total_ms } = self.detached;
        Rules { queue_ms, attempt_ms, silence_ms, total_ms, ..self }
    }

    /// The rules of a tool's calls: its own, else the defaults.
    pub fn of(spec: &ToolSpec, limits: &CallLimits) -> Rules {
        let attempt_ms = spec.deadlines.attempt_ms.unwrap_or(limits.attempt_ms);
        let attempts = match spec.effect_class() {
            EffectClass::Once => 1,
            EffectClass::Read | EffectClass::Keyed | EffectClass::Stepped => {
                u32::try_from(limits.retry_attempts).unwrap_or(u32::MAX)
            }
        };
        Rules {
            queue_ms: spec.deadlines.queue_ms.unwrap_or(limits.queue_ms),
            attempt_ms,
            silence_ms: spec.deadlines.silence_ms.unwrap_or(Rules::NONE),
            // A tool that allows one attempt an hour has not asked for ten minutes in all.
            total_ms: spec.deadlines.total_ms.unwrap_or(limits.total_ms.max(attempt_ms)),
            grace_ms: spec.grace_ms.unwrap_or(limits.grace_ms),
            attempts: spec.retry.attempts.unwrap_or(attempts).max(1),
            base_ms: spec.retry.base_ms.unwrap_or(limits.retry_base_ms),
            cap_ms: spec.retry.cap_ms.unwrap_or(limits.retry_cap_ms),
            deaths: u32::try_from(limits.deaths_max).unwrap_or(u32::MAX),
            detached: Rules::detached(&spec.deadlines, limits),
        }
    }

    /// The deadlines of a tool's tasks: those the tool states, else the defaults.
    pub fn detached(stated: &Deadlines, limits: &CallLimits) -> TaskDeadlines {
        let attempt_ms = stated.attempt_ms.unwrap_or(limits.task_attempt_ms);
        TaskDeadlines {
            queue_ms: stated.queue_ms.unwrap_or(Rules::NONE),
            attempt_ms,
            silence_ms: stated.silence_ms.unwrap_or(limits.task_silence_ms),
            total_ms: stated.total_ms.unwrap_or(limits.task_total_ms.max(attempt_ms)),
        }
    }

    /// These rules, shortened by a call's deadlines.
    pub fn shortened(self, asked: &Deadlines) -> Rules {
        let shorter = |ours: u64, theirs: Option<u64>| theirs.map_or(ours, |theirs| ours.min(theirs));
        Rules {
            queue_ms: shorter(self.queue_ms, asked.queue_ms),
            attempt_ms: shorter(self.attempt_ms, asked.attempt_ms),
            silence_ms: shorter(self.silence_ms, asked.silence_ms),
            total_ms: shorter(self.total_ms, asked.total_ms),
            detached: TaskDeadlines {
                queue_ms: shorter(self.detached.queue_ms, asked.queue_ms),
                attempt_ms: shorter(self.detached.attempt_ms, asked.attempt_ms),
                silence_ms: shorter(self.detached.silence_ms, asked.silence_ms),
                total_ms: shorter(self.detached.total_ms, asked.total_ms),
            },
            ..self
        }
    }

    /// How long to wait before the next attempt after `tries` of them, in microseconds: the tool's request,
    /// else between zero and the doubled base, by `chance` (a number from all of `u64`).
    pub fn delay_us(&self, tries: u32, asked_ms: Option<u64>, chance: u64) -> u64 {
        if let Some(asked) = asked_ms {
            return asked.saturating_mul(1_000);
        }
        let doubled = self.base_ms.saturating_mul(1 << tries.saturating_sub(1).min(32));
        let most = u128::from(doubled.min(self.cap_ms).saturating_mul(1_000));
        // The high half of the product: an even share of `most`.
        u64::try_from((most * u128::from(chance)) >> 64).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_what_a_silent_journal_means() {
        for &class in EffectClass::ALL {
            let spec = ToolSpec { class: Some(class), ..ToolSpec::default() };
            assert_eq!(Rules::of(&spec, &CallLimits::default()), Rules::unsaid(class), "{class}");
        }
    }

    #[test]
    fn a_call_shortens_and_never_lengthens() {
        let ours = Rules::unsaid(EffectClass::Read);
        let asked = Deadlines { queue_ms: Some(5), total_ms: Some(u64::MAX - 1), ..Deadlines::default() };
        let detached = TaskDeadlines { queue_ms: 5, ..ours.detached };
        assert_eq!(ours.shortened(&asked), Rules { queue_ms: 5, detached, ..ours });
        let silence = Deadlines { silence_ms: Some(7), ..Deadlines::default() };
        assert_eq!(ours.shortened(&silence).silence_ms, 7);
    }

    #[test]
    fn a_deadline_that_a_tool_states_holds_for_its_tasks_and_a_call_shortens_both_columns() {
        let own =
            |deadlines| Rules::of(&ToolSpec { deadlines, ..ToolSpec::default() }, &CallLimits::default());
        let stated =
            Deadlines { queue_ms: Some(1), attempt_ms: Some(2), silence_ms: Some(3), total_ms: Some(4) };
        let all = TaskDeadlines { queue_ms: 1, attempt_ms: 2, silence_ms: 3, total_ms: 4 };
        assert_eq!(own(stated).detached, all);
        assert_eq!(own(Deadlines::default()).shortened(&stated).detached, all);
        // Longer than the inline column, shorter than that of tasks.
        let asked = Deadlines { attempt_ms: Some(60_000), ..Deadlines::default() };
        let rules = own(Deadlines::default()).shortened(&asked);
        assert_eq!((rules.attempt_ms, rules.for_task().attempt_ms), (30_000, 60_000));
        let day = Deadlines { attempt_ms: Some(200_000_000), ..Deadlines::default() };
        assert_eq!(own(day).for_task().total_ms, 200_000_000, "no shorter than one attempt");
    }

    #[test]
    fn rules_of_a_journal_without_a_column_of_tasks_keep_what_was_asked_for() {
        let usual = Rules::unsaid(EffectClass::Read);
        assert_eq!(usual.unsaid_detached(), usual.detached);
        let older = Rules { attempt_ms: 5_000, silence_ms: 7, ..usual };
        let kept = TaskDeadlines { attempt_ms: 5_000, silence_ms: 7, ..usual.detached };
        assert_eq!(older.unsaid_detached(), kept);
    }

    #[test]
    fn waits_double_up_to_the_cap_and_chance_takes_a_share() {
        let rules = Rules::unsaid(EffectClass::Read);
        let most = |tries| rules.delay_us(tries, None, u64::MAX) / 1_000;
        assert_eq!([1, 2, 3, 8, 9, 200].map(most), [199, 399, 799, 25_599, 29_999, 29_999]);
        assert_eq!(rules.delay_us(3, None, 0), 0);
        assert_eq!(rules.delay_us(1, None, 1 << 63), 100_000);
        assert_eq!(rules.delay_us(1, Some(7), 0), 7_000, "what the tool asks for wins");
    }

    #[test]
    fn a_long_attempt_lengthens_the_default_total() {
        let deadlines = Deadlines { attempt_ms: Some(3_600_000), ..Deadlines::default() };
        let spec = ToolSpec { deadlines, ..ToolSpec::default() };
        assert_eq!(Rules::of(&spec, &CallLimits::default()).total_ms, 3_600_000);
    }
}

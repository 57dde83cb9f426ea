//! Again or not, when, and how long: the rules by which a call's attempts are made.

use crate::failure::named;
use crate::limits::Limits;
use crate::tool::{EffectClass, ToolSpec};

/// The longest that something may take, in milliseconds, where it was said. A call may shorten what its tool
/// says, never lengthen it.
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
    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        *self == Deadlines::default()
    }
}

/// How often a tool may be tried, and how long to wait between; what is not said is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryRule {
    /// How often at most.
    pub attempts: Option<u32>,
    /// The longest wait before the second attempt, in milliseconds; it doubles with each further one.
    pub base_ms: Option<u64>,
    /// The longest wait of all, in milliseconds.
    pub cap_ms: Option<u64>,
}

named! {
    /// Which deadline ran out.
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

/// The rules in force for one call: fixed when it is prepared, and recorded where they are not the usual ones.
/// [`Rules::NONE`] stands for a deadline that there is not.
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
    /// How long an attempt may go on after it was told to stop.
    pub grace_ms: u64,
    /// How often it is tried at most.
    pub attempts: u32,
    /// The longest wait before the second attempt.
    pub base_ms: u64,
    /// The longest wait of all.
    pub cap_ms: u64,
    /// After how many deaths of its owner it is set aside.
    pub deaths: u32,
}

impl Rules {
    /// No deadline.
    pub const NONE: u64 = u64::MAX;

    /// What a journal means that says nothing of rules. Released: it never changes, whatever the defaults become.
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
        }
    }

    /// The rules of a tool's calls: what it says, else the default.
    pub fn of(spec: &ToolSpec, limits: &Limits) -> Rules {
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
            // Whoever allows one attempt an hour has not asked for ten minutes in all.
            total_ms: spec.deadlines.total_ms.unwrap_or(limits.total_ms.max(attempt_ms)),
            grace_ms: spec.grace_ms.unwrap_or(limits.grace_ms),
            attempts: spec.retry.attempts.unwrap_or(attempts).max(1),
            base_ms: spec.retry.base_ms.unwrap_or(limits.retry_base_ms),
            cap_ms: spec.retry.cap_ms.unwrap_or(limits.retry_cap_ms),
            deaths: u32::try_from(limits.deaths_max).unwrap_or(u32::MAX),
        }
    }

    /// The same, shortened by what a call asks for.
    pub fn shortened(self, asked: &Deadlines) -> Rules {
        let shorter = |ours: u64, theirs: Option<u64>| theirs.map_or(ours, |theirs| ours.min(theirs));
        Rules {
            queue_ms: shorter(self.queue_ms, asked.queue_ms),
            attempt_ms: shorter(self.attempt_ms, asked.attempt_ms),
            silence_ms: shorter(self.silence_ms, asked.silence_ms),
            total_ms: shorter(self.total_ms, asked.total_ms),
            ..self
        }
    }

    /// How long to wait before the next attempt after `tries` of them, in microseconds: what the tool asked for,
    /// else somewhere between nothing and the doubled base, as `chance` (a number from all of `u64`) falls.
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
            assert_eq!(Rules::of(&spec, &Limits::default()), Rules::unsaid(class), "{class}");
        }
    }

    #[test]
    fn a_call_shortens_and_never_lengthens() {
        let ours = Rules::unsaid(EffectClass::Read);
        let asked = Deadlines { queue_ms: Some(5), total_ms: Some(u64::MAX - 1), ..Deadlines::default() };
        assert_eq!(ours.shortened(&asked), Rules { queue_ms: 5, ..ours });
        let silence = Deadlines { silence_ms: Some(7), ..Deadlines::default() };
        assert_eq!(ours.shortened(&silence).silence_ms, 7);
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
        assert_eq!(Rules::of(&spec, &Limits::default()).total_ms, 3_600_000);
    }
}

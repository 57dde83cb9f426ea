//! The deadlines of a tool's calls, how often they may be tried, and how long their answers may be.

use super::place::{ConfigError, DeclarationSource};
use crate::command::Later;
use serde::Deserialize;
use std::ops::RangeInclusive;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};
use windlass::{AnswerBudget, Deadlines, RetryRule};

/// The times in a tool's table; its other keys are read elsewhere. All times are milliseconds.
#[derive(Deserialize)]
pub(super) struct TimeRules {
    timeout_ms: Option<Spanned<i64>>,
    queue_ms: Option<Spanned<i64>>,
    total_ms: Option<Spanned<i64>>,
    silence_ms: Option<Spanned<i64>>,
    grace_ms: Option<Spanned<i64>>,
    inline_ms: Option<Spanned<i64>>,
    completion_ms: Option<Spanned<i64>>,
    client_ms: Option<Spanned<i64>>,
    answer_bytes_max: Option<Spanned<i64>>,
    answer_lines_max: Option<Spanned<i64>>,
    #[serde(default)]
    retry: RetryTable,
}

#[derive(Default, Deserialize)]
struct RetryTable {
    attempts: Option<Spanned<i64>>,
    base_ms: Option<Spanned<i64>>,
    cap_ms: Option<Spanned<i64>>,
}

/// A year. A larger value has the wrong unit.
pub(super) const WAIT_MS_MAX: i64 = 366 * 24 * 3_600_000;
/// Ten minutes. A cancellation waits for as long.
const GRACE_MS_MAX: i64 = 600_000;
/// At the default cap of 30 seconds these take most of a day.
const ATTEMPTS_MAX: i64 = 1_000;

impl TimeRules {
    /// Reads them from the table of a tool.
    pub(super) fn read(
        source: &DeclarationSource<'_>,
        table: Spanned<DeValue<'_>>,
    ) -> Result<TimeRules, ConfigError> {
        TimeRules::deserialize(ValueDeserializer::from(table)).map_err(|error| source.rejected(error))
    }

    /// The declared deadlines.
    pub(super) fn deadlines(&self, source: &DeclarationSource<'_>) -> Result<Deadlines, ConfigError> {
        let time = |key, given: &Option<Spanned<i64>>| {
            let hint = "milliseconds; remove it for the default";
            number(source, key, given.as_ref(), 1..=WAIT_MS_MAX, hint)
        };
        Ok(Deadlines {
            queue_ms: time("queue_ms", &self.queue_ms)?,
            attempt_ms: time("timeout_ms", &self.timeout_ms)?,
            silence_ms: time("silence_ms", &self.silence_ms)?,
            total_ms: time("total_ms", &self.total_ms)?,
        })
    }

    /// The declared grace.
    pub(super) fn grace_ms(&self, source: &DeclarationSource<'_>) -> Result<Option<u64>, ConfigError> {
        let hint = "milliseconds; 0 kills at once";
        number(source, "grace_ms", self.grace_ms.as_ref(), 0..=GRACE_MS_MAX, hint)
    }

    /// The declared budget of answers. The runtime knows how large it may be.
    pub(super) fn answer(&self, source: &DeclarationSource<'_>) -> Result<AnswerBudget, ConfigError> {
        let max = |key, given: &Option<Spanned<i64>>, min, hint| {
            number(source, key, given.as_ref(), min..=i64::MAX, hint)
        };
        Ok(AnswerBudget {
            bytes_max: max(
                "answer_bytes_max",
                &self.answer_bytes_max,
                512,
                "bytes; remove it for the default",
            )?,
            lines_max: max(
                "answer_lines_max",
                &self.answer_lines_max,
                8,
                "lines; remove it for the default",
            )?,
        })
    }

    /// How long a caller waits for a call that may continue in the background.
    pub(super) fn inline_ms(
        &self,
        source: &DeclarationSource<'_>,
        background: Option<&Spanned<bool>>,
    ) -> Result<Option<u64>, ConfigError> {
        if let Some(given) = &self.inline_ms
            && background.is_none_or(|background| !background.get_ref())
        {
            let message = "`inline_ms` is how long a caller waits for what may go on in the background, which needs \
                           background = true";
            return Err(source.value_error(given.span(), message));
        }
        let hint = "milliseconds; 0 does not wait";
        number(source, "inline_ms", self.inline_ms.as_ref(), 0..=WAIT_MS_MAX, hint)
    }

    /// How the result may come later, if it may.
    pub(super) fn later(
        &self,
        source: &DeclarationSource<'_>,
        completion: bool,
    ) -> Result<Option<Later>, ConfigError> {
        let hint = "milliseconds; remove it for the default";
        let ms = number(source, "completion_ms", self.completion_ms.as_ref(), 1..=WAIT_MS_MAX, hint)?;
        match (&self.completion_ms, completion) {
            (Some(given), false) => {
                let message = "`completion_ms` bounds the wait for a result that comes later, which needs completion = true";
                Err(source.value_error(given.span(), message))
            }
            (_, true) => Ok(Some(Later { within: ms.map(Duration::from_millis) })),
            (None, false) => Ok(None),
        }
    }

    /// How long a call waits for its caller, who runs the tool, if it has a time of its own.
    pub(super) fn client(
        &self,
        source: &DeclarationSource<'_>,
        client: bool,
    ) -> Result<Option<Duration>, ConfigError> {
        if let (Some(given), false) = (&self.client_ms, client) {
            let message =
                "`client_ms` bounds the wait for the caller who runs the tool, which needs client = true";
            return Err(source.value_error(given.span(), message));
        }
        let hint = "milliseconds; remove it for the default";
        let ms = number(source, "client_ms", self.client_ms.as_ref(), 1..=WAIT_MS_MAX, hint)?;
        Ok(ms.map(Duration::from_millis))
    }

    /// The declared retry rule.
    pub(super) fn retry(&self, source: &DeclarationSource<'_>) -> Result<RetryRule, ConfigError> {
        let retry = &self.retry;
        let wait = |key, given: &Option<Spanned<i64>>| {
            number(source, key, given.as_ref(), 0..=WAIT_MS_MAX, "milliseconds; 0 does not wait")
        };
        let hint = "times; 1 tries once and never again";
        let attempts = number(source, "retry.attempts", retry.attempts.as_ref(), 1..=ATTEMPTS_MAX, hint)?;
        let base_ms = wait("retry.base_ms", &retry.base_ms)?;
        let cap_ms = wait("retry.cap_ms", &retry.cap_ms)?;
        if let (Some(base), Some(cap), Some(given)) = (base_ms, cap_ms, &retry.cap_ms)
            && cap < base
        {
            let message = format!(
                "`retry.cap_ms` is the longest wait, and with {cap} shorter than `retry.base_ms`, the first one, \
                 with {base}; make it at least as long"
            );
            return Err(source.value_error(given.span(), message));
        }
        Ok(RetryRule { attempts, base_ms, cap_ms })
    }
}

/// A number within a range, or what to write instead.
pub(super) fn number<N: TryFrom<i64>>(
    source: &DeclarationSource<'_>,
    key: &str,
    given: Option<&Spanned<i64>>,
    range: RangeInclusive<i64>,
    hint: &str,
) -> Result<Option<N>, ConfigError> {
    let Some(given) = given else { return Ok(None) };
    let number = *given.get_ref();
    match N::try_from(number).ok().filter(|_| range.contains(&number)) {
        Some(number) => Ok(Some(number)),
        None => {
            let (least, most) = range.into_inner();
            let message = format!("`{key}` is {number}, and must be {least} to {most} {hint}");
            Err(source.value_error(given.span(), message))
        }
    }
}

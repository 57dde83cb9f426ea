//! The budget of an answer: how much of a model's context it may take.

use super::ANSWER_BYTES_MIN;
use crate::limits::CallLimits;

/// Fewer lines count as this: the first and the last ones are always shown.
pub const ANSWER_LINES_MIN: u64 = 8;

/// How long the model's view of a call may be, where somebody says so: the call, else its tool, else its session. Absent fields
/// are left to the next of them, and at last to the limits `answer_bytes_max` and `answer_lines_max`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerBudget {
    /// The maximum number of bytes: 512 to the limit `answer_budget_bytes_max`.
    pub bytes_max: Option<u64>,
    /// The maximum number of lines: 8 to the limit `answer_budget_lines_max`.
    pub lines_max: Option<u64>,
}

impl AnswerBudget {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == AnswerBudget::default()
    }

    /// This budget, with the fields of the other where it says nothing.
    pub fn or(self, other: AnswerBudget) -> AnswerBudget {
        AnswerBudget {
            bytes_max: self.bytes_max.or(other.bytes_max),
            lines_max: self.lines_max.or(other.lines_max),
        }
    }

    /// The limits of an answer under this budget.
    pub fn limits(self, limits: &CallLimits) -> CallLimits {
        CallLimits {
            answer_bytes_max: self.bytes_max.unwrap_or(limits.answer_bytes_max),
            answer_lines_max: self.lines_max.unwrap_or(limits.answer_lines_max),
            ..*limits
        }
    }

    /// Refuses a budget that could not be kept, and one that would fill the journal.
    pub fn check(self, limits: &CallLimits) -> Result<(), BudgetError> {
        let ranges = [
            ("answer_bytes_max", self.bytes_max, ANSWER_BYTES_MIN, limits.answer_budget_bytes_max),
            ("answer_lines_max", self.lines_max, ANSWER_LINES_MIN, limits.answer_budget_lines_max),
        ];
        for (field, given, min, max) in ranges {
            if let Some(value) = given.filter(|given| !(min..=max).contains(given)) {
                return Err(BudgetError { field, value, min, max });
            }
        }
        Ok(())
    }
}

/// An answer cannot have this budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}; give {min} to {max}, or leave it out for the default")]
pub struct BudgetError {
    /// The field.
    pub field: &'static str,
    /// The given number.
    pub value: u64,
    /// The smallest one.
    pub min: u64,
    /// The largest one.
    pub max: u64,
}

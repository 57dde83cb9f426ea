//! The budget of the answers of a session, and the one that counts for a call.

use crate::api::limits::SessionLimits;
use crate::session::held::Held;
use crate::tools::registry::Registered;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use windlass_core::limits::CallLimits;
use windlass_core::projection::AnswerBudget;

/// The budget that a session gives the answers of its calls; `u64::MAX`: as for any session.
#[derive(Debug)]
pub(crate) struct SessionBudget {
    bytes_max: AtomicU64,
    lines_max: AtomicU64,
}

impl Default for SessionBudget {
    fn default() -> SessionBudget {
        SessionBudget { bytes_max: AtomicU64::new(u64::MAX), lines_max: AtomicU64::new(u64::MAX) }
    }
}

impl SessionBudget {
    pub(crate) fn set(&self, limits: &SessionLimits) {
        let AnswerBudget { bytes_max, lines_max } = limits.answer();
        self.bytes_max.store(bytes_max.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.lines_max.store(lines_max.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn get(&self) -> AnswerBudget {
        let given = |max: &AtomicU64| Some(max.load(Ordering::Relaxed)).filter(|max| *max != u64::MAX);
        AnswerBudget { bytes_max: given(&self.bytes_max), lines_max: given(&self.lines_max) }
    }
}

/// The budget that a call is prepared with: its own, else that of its tool, else that of its session.
pub(crate) fn chosen(held: &Held, tool: Option<&Registered>) -> Option<Box<AnswerBudget>> {
    let own = held.call.opened.answer.as_deref().copied().unwrap_or_default();
    let of_tool = tool.map(|tool| tool.spec.answer).unwrap_or_default();
    let budget = own.or(of_tool).or(held.on.session.answer.get());
    (!budget.is_empty()).then(|| Box::new(budget))
}

impl Held {
    /// The limits of its answer: by the recorded budget once it is prepared, so that they stay what they were after a restart.
    pub(crate) fn answer_limits(&self) -> Cow<'_, CallLimits> {
        let limits = self.on.rt.limits.call();
        let budget = match self.call.pin {
            Some(_) => self.call.answer.as_deref().copied(),
            None => chosen(self, self.tool.as_deref()).map(|chosen| *chosen),
        };
        budget.map_or(Cow::Borrowed(limits), |budget| Cow::Owned(budget.limits(limits)))
    }
}

//! The parameters of an attempt, and the context that its tool gets.

use crate::session::artifacts::Artifacts;
use crate::session::cx::Cx;
use crate::session::held::Held;
use crate::session::permission::ApprovedContent;
use crate::session::signal::{AttemptSignal, Began};
use crate::tools::toolbox::HandedAttempt;
use std::sync::Arc;
use windlass_core::ids::AttemptNo;
use windlass_core::tool::EffectClass;

/// The parameters of one attempt.
pub(crate) struct AttemptFrame {
    pub(crate) attempt: AttemptNo,
    pub(crate) redrive: bool,
    /// When it began, by the clock that never jumps.
    pub(crate) began_us: u64,
    pub(crate) signal: Arc<AttemptSignal>,
    /// The tool's hold on the content that a person approved for it.
    pub(crate) approved: Option<ApprovedContent>,
    /// How it is handed to a toolbox, if it is.
    pub(crate) handed: Option<HandedAttempt>,
}

impl AttemptFrame {
    pub(super) fn new(held: &mut Held, began: Began, redrive: bool) -> AttemptFrame {
        let may_detach = may_detach(held);
        let signal = AttemptSignal::anew(held.spare.signal.take(), began, may_detach);
        AttemptFrame {
            attempt: began.attempt,
            redrive,
            began_us: began.at_us,
            signal,
            approved: None,
            handed: None,
        }
    }
}

/// Whether the call, or one around it, may become a task while an attempt runs.
fn may_detach(held: &Held) -> bool {
    match held.on.batch.head.parent {
        Some(parent) => {
            let around = held.on.session.find_no(parent.call.batch);
            let signal = around.and_then(|batch| batch.signal_of(parent.call.ordinal));
            signal.is_some_and(|signal| signal.may_detach)
        }
        None => held.call.task.is_none() && held.tool.as_ref().is_some_and(|tool| tool.spec.flags.background),
    }
}

/// The context that the tool of an attempt gets.
pub(crate) fn context(held: &Held, frame: AttemptFrame) -> Cx {
    let rules = held.own_rules();
    let answer = held.answer_limits();
    Cx {
        call: held.id,
        id: held.call.opened.id.clone(),
        attempt: frame.attempt,
        attempts_max: rules.attempts,
        redrive: frame.redrive,
        batch: held.on.batch.clone(),
        artifacts: Artifacts::new(held.on.session.lane.clone()),
        wheel: held.on.rt.wheel.clone(),
        hold: Arc::downgrade(&held.on),
        made: held.call.made.clone(),
        approved: frame.approved,
        kinds: held.tool.as_ref().and_then(|tool| tool.kinds.clone()),
        is_put_aside: held.call.class() == Some(EffectClass::Stepped),
        inline_end: held.latest_end(frame.began_us, &rules),
        answer_bytes_max: answer.answer_bytes_max,
        answer_lines_max: answer.answer_lines_max,
        task_end: held.latest_end(frame.began_us, &rules.for_task()),
        grace_ms: rules.grace_ms,
        handed: frame.handed,
        signal: frame.signal,
    }
}

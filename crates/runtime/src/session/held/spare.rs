//! Memory and handles that one call hands on to the next: nothing of them says anything of a call.

use super::{EndedCall, Going, Held};
use crate::session::signal::AttemptSignal;
use crate::tools::registry::Registered;
use std::sync::Arc;
use windlass_core::call::Opened;

/// Memory and handles that calls hand on while they are driven one after the other.
#[derive(Default)]
pub(crate) struct Spare {
    /// Empty: memory in which a result is written.
    pub(crate) scratch: String,
    /// The signal of an attempt that is over.
    pub(crate) signal: Option<Arc<AttemptSignal>>,
    /// The tool of a call that asked for it under the same name, and the registry when it was found.
    tool: Option<(Arc<Registered>, u64)>,
}

impl Spare {
    /// The same, with the tool of a call that is over, as the registry had it then.
    pub(super) fn with_tool(self, tool: Option<Arc<Registered>>, generation: u64) -> Spare {
        Spare { tool: tool.map(|tool| (tool, generation)), ..self }
    }
}

impl Going {
    /// Gives a call what the one before it is done with: also the memory in which that made its notes, if it has noted
    /// nothing, and the tool, if it asks for the same.
    pub(crate) fn hand_on(&mut self, held: &mut Held) {
        std::mem::swap(&mut held.spare, &mut self.spare);
        let (opened, by_session) = (&held.call.opened, |opened: &Opened| opened.grant.is_none());
        // A tool that a grant is for is not handed on: the next call may not have it.
        let asks_for_same = |last: &EndedCall| {
            let last = &last.call.opened;
            Arc::ptr_eq(&last.tool, &opened.tool) && by_session(last) && by_session(opened)
        };
        if !self.ended.last().is_some_and(asks_for_same) {
            held.spare.tool = None;
        }
        if held.notes.is_empty() {
            std::mem::swap(&mut held.notes, &mut self.room);
        }
    }
}

impl Held {
    /// The tool that the call before it was given, if the registry would give the same now.
    pub(crate) fn spare_tool(&mut self) -> Option<Arc<Registered>> {
        let (tool, generation) = self.spare.tool.take()?;
        (generation == self.seen_generation).then_some(tool)
    }
}

//! A person's answer to the approval of a call.

use super::Held;
use crate::api::error::Lost;
use crate::session::adopting;
use crate::session::permission::{HeldPermit, Remembered};
use windlass_core::ask::Decide;
use windlass_core::call::{ApprovalAnswer, ApprovalAnswered, Fact};
use windlass_core::outcome::JsonText;
use windlass_store::{Row, Space};

impl Held {
    /// Notes the answer to the open approval, with the record by which it is remembered. An answer to another one, one of
    /// whoever may not give it, or one that edits what has started changes nothing.
    pub(super) fn hear_decision(&mut self, decide: &Decide) -> Result<(), Lost> {
        let answered = &decide.answered;
        let open = self.call.open_approval().filter(|asked| asked.number == answered.number);
        let Some(asked) = open.cloned() else { return Ok(()) };
        let is_own = answered.by.as_deref() == self.place().principal();
        if asked.four_eyes && is_own && !windlass_core::mutant::breaks("two-eyes") {
            return Ok(());
        }
        let approves = matches!(answered.answer, ApprovalAnswer::Approved { .. });
        let edits = matches!(answered.answer, ApprovalAnswer::Approved { args: Some(_), .. });
        if edits && self.call.attempts > 0 {
            return Ok(());
        }
        let may_remember = approves && !asked.four_eyes && !asked.untrusted;
        let remembered =
            decide.remember.as_ref().filter(|_| may_remember).and_then(|text| self.remember(text));
        let fact = ApprovalAnswered { remembered, ..answered.clone() };
        self.note(Fact::ApprovalAnswered(Box::new(fact)))?;
        self.permit = HeldPermit::unjudged();
        if edits {
            // What runs is prepared anew.
            (self.parsed, self.claims) = (None, None);
        }
        Ok(())
    }

    /// Puts the record of a remembered answer, and returns its id.
    fn remember(&mut self, text: &JsonText) -> Option<std::sync::Arc<str>> {
        let remembered: Remembered = serde_json::from_str(text).ok()?;
        let (id, value) = (remembered.id.clone(), text.as_bytes().into());
        self.rows.push(Row::Put { space: Space::Remembered, key: id.clone(), value });
        self.on.session.remember(remembered);
        adopting::judge_again_soon(&self.on.rt, &self.on.session);
        Some(id.into())
    }
}

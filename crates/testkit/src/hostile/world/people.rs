//! People of a world: they approve, edit, deny and remember at random, twice at once, and in the name of others.

use super::HostileWorld;
use crate::hostile::chances::{self, PRINCIPALS};
use crate::hostile::truth::{ApprovalTruth, RememberedTruth};
use anyhow::Result;
use serde_json::Value;
use windlass::approvals::{ApprovalDecision, Remember, RememberedArgs};
use windlass::inspect::WaitingCall;

const US_PER_MS: u64 = 1_000;

impl HostileWorld {
    /// A person answers, in one of the ways in which people do.
    pub(super) async fn decide(&mut self, waits: &WaitingCall) -> Result<()> {
        if !self.is_seen(waits) {
            return Ok(());
        }
        let by = self.chance.one_of(&PRINCIPALS);
        let digest = match self.chance.percent(5) {
            true => "0".repeat(64),
            false => waits.digest.clone().unwrap_or_default(),
        };
        let yes = ApprovalDecision { approve: true, digest: digest.clone(), ..ApprovalDecision::default() };
        let no = ApprovalDecision { approve: false, digest, ..ApprovalDecision::default() };
        let raced = self.chance.percent(12);
        if !raced && self.chance.percent(30) {
            if self.runtime.decide(&waits.id, &no, by).await.is_ok() {
                self.denied(waits);
            }
            return Ok(());
        }
        self.numbers += 1;
        let edits = !raced && self.chance.percent(25);
        let remembers = !raced && self.chance.percent(25);
        let args = edits.then(|| chances::edited(&mut self.chance, self.numbers));
        let remember = remembers.then(|| chances::remembered(&mut self.chance));
        let decision = ApprovalDecision { args: args.clone(), remember: remember.clone(), ..yes };
        // It may run before the answer is acknowledged.
        self.approving(waits, args, remember, by);
        let other = self.chance.one_of(&PRINCIPALS);
        let (runtime, id) = (&self.runtime, &waits.id);
        let approved = match raced {
            false => runtime.decide(id, &decision, by).await.is_ok(),
            true => {
                let (first, second) =
                    tokio::join!(runtime.decide(id, &decision, by), runtime.decide(id, &no, other));
                self.counts.raced += 1;
                if first.is_ok() && second.is_ok() {
                    let line = format!("R6: {id} was approved and denied at once");
                    self.truth.now().violations.push(line);
                }
                if first.is_err() && second.is_ok() {
                    self.denied(waits);
                }
                first.is_ok()
            }
        };
        self.counts.refused_answers += u64::from(!approved && !raced);
        self.approved(waits, approved);
        Ok(())
    }

    /// Whether a question was there at the last look: one that came up since is looked at first.
    fn is_seen(&self, waits: &WaitingCall) -> bool {
        let truth = self.truth.now();
        let asked = truth.calls.get(&waits.call).and_then(|call| call.asked.as_ref());
        asked.is_some_and(|asked| asked.id == waits.id)
    }

    /// A person approves a call as it was shown.
    pub(super) async fn approve(&mut self, waits: &WaitingCall) -> Result<()> {
        if !self.is_seen(waits) {
            return Ok(());
        }
        let by = PRINCIPALS[2];
        let digest = waits.digest.clone().unwrap_or_default();
        let yes = ApprovalDecision { approve: true, digest, ..ApprovalDecision::default() };
        self.approving(waits, None, None, by);
        let approved = self.runtime.decide(&waits.id, &yes, by).await.is_ok();
        self.approved(waits, approved);
        Ok(())
    }

    fn denied(&mut self, waits: &WaitingCall) {
        if let Some(call) = self.truth.now().calls.get_mut(&waits.call) {
            (call.denied, call.asked) = (true, None);
            call.answered.clone_from(&waits.id);
        }
        self.counts.denied_by_people += 1;
    }

    /// Notes an approval that is about to be given.
    fn approving(
        &mut self,
        waits: &WaitingCall,
        edited: Option<Value>,
        remember: Option<Remember>,
        by: &str,
    ) {
        let mut truth = self.truth.now();
        let now = truth.now;
        let Some(call) = truth.calls.get_mut(&waits.call) else { return };
        let Some(asked) = &call.asked else { return };
        let covered = asked.covered.clone();
        let args = edited.clone().unwrap_or_else(|| covered.args().clone());
        let (sources, version) = (covered.sources().clone(), covered.version());
        call.approving = Some(ApprovalTruth { covered, edited, by: Some(by.to_owned()) });
        let Some(remember) = remember else { return };
        let pointers = match remember.args {
            RememberedArgs::Same => vec![String::new()],
            RememberedArgs::At(pointers) => pointers,
            RememberedArgs::Any => Vec::new(),
        };
        let at = |pointer: String| {
            let value = args.pointer(&pointer).cloned();
            (pointer, value)
        };
        let remembered = RememberedTruth {
            id: String::new(),
            question: waits.id.clone(),
            version,
            sources,
            args: pointers.into_iter().map(at).collect(),
            until: remember.for_ms.map(|ms| now + (ms * US_PER_MS) as i64),
        };
        truth.sessions.entry(waits.session.clone()).or_default().remembered.push(remembered);
    }

    /// The approval was given, or refused.
    fn approved(&mut self, waits: &WaitingCall, is_given: bool) {
        let mut truth = self.truth.now();
        let known = &mut truth.sessions.entry(waits.session.clone()).or_default().remembered;
        if !is_given {
            known.retain(|known| known.question != waits.id);
        }
        let Some(call) = truth.calls.get_mut(&waits.call) else { return };
        let approving = call.approving.take();
        if is_given {
            (call.asked, call.approval) = (None, approving);
            call.answered.clone_from(&waits.id);
            if let Some(edited) = call.approval.as_ref().and_then(|approval| approval.edited.clone()) {
                call.args = Some(edited);
            }
        }
    }

    /// Somebody has a remembered answer forgotten.
    pub(super) async fn forget(&mut self) -> Result<()> {
        let session = format!("s{}", self.chance.below(3));
        let mut known = self.truth.now().sessions.get(&session).cloned().unwrap_or_default().remembered;
        known.retain(|known| !known.id.is_empty());
        if known.is_empty() {
            return Ok(());
        }
        let id = &known[self.chance.below(known.len() as u64) as usize].id;
        self.runtime.forget_remembered(&session, id).await?;
        let mut truth = self.truth.now();
        truth.sessions.entry(session).or_default().remembered.retain(|known| known.id != *id);
        self.counts.forgotten += 1;
        Ok(())
    }
}

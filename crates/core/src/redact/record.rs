//! Facts without the values of secrets: whatever is recorded passes here first, where a secret is known.

use super::SecretMatcher;
use crate::call::{
    ApprovalAnswer, Fact, Model, PreparedCall, PreparedResult, Resolved, Result as Attempted, Verdict,
};
use crate::failure::Failure;
use crate::operation::{AnswerExtras, Completion, Did, Question, StepResult};
use crate::outcome::{JsonText, ModelAnswer, Outcome, Part, SideOutput, Success, Value};
use std::borrow::Cow;
use std::sync::Arc;

impl SecretMatcher {
    /// Replaces secrets in a fact. Submitted arguments are not touched: they hold references where a secret stood.
    pub fn scrub_fact(&self, fact: &mut Fact) {
        match fact {
            Fact::Prepared(PreparedCall { made: Some(made), .. }) => self.scrub_prepared(Arc::make_mut(made)),
            Fact::Returned(returned) => self.scrub_attempted(&mut returned.result),
            Fact::Ended(ended) => {
                ended.outcome.iter_mut().for_each(|outcome| self.scrub_outcome(outcome));
                if let Model::Own(answer) = &mut ended.model {
                    self.scrub_answer(answer);
                }
            }
            Fact::Stopped(stopped) => self.scrub_shared(&mut stopped.output),
            Fact::Reconciled(reconciled) => match &mut reconciled.verdict {
                Verdict::Landed(success) => self.scrub_success(success),
                Verdict::Failed(failure) => self.scrub_failure(failure),
                Verdict::DidNotHappen | Verdict::Unknown => {}
            },
            Fact::CancelAsked(asked) => self.scrub_shared(&mut asked.reason),
            Fact::Resolved(resolved) => {
                let Resolved { outcome, model, .. } = &mut **resolved;
                self.scrub_outcome(outcome);
                self.scrub_answer(model);
            }
            Fact::Operation(operation) => self.scrub_did(&mut operation.did),
            Fact::Unconnected(said) => self.scrub_shared(&mut said.setup_url),
            Fact::Detached(detached) => {
                self.scrub_shared(&mut detached.title);
                detached.tags.iter_mut().for_each(|tag| self.scrub_string(tag));
            }
            Fact::SetAside(aside) => {
                if let Cow::Owned(scrubbed) = self.scrub(&aside.why) {
                    aside.why = scrubbed.into();
                }
            }
            Fact::Aborted(abort) => self.scrub_failure(&mut abort.failure),
            Fact::ApprovalAnswered(answered) => match &mut answered.answer {
                ApprovalAnswer::Approved { args, .. } => {
                    args.iter_mut().for_each(|args| self.scrub_text(args))
                }
                ApprovalAnswer::Denied { reason } => self.scrub_shared(reason),
            },
            Fact::Opened(_)
            | Fact::Prepared(_)
            | Fact::Started(_)
            | Fact::Lost(_)
            | Fact::Parked(_)
            | Fact::Accepted(_)
            | Fact::SameAs(_)
            | Fact::First
            | Fact::Suspended(_)
            | Fact::Resumed(_)
            | Fact::Connected(_)
            | Fact::CopyFound
            | Fact::Judged(_)
            | Fact::ApprovalAsked(_)
            | Fact::Withheld(_)
            | Fact::StartRefused => {}
        }
    }

    /// Replaces secrets in an operation.
    pub fn scrub_did(&self, did: &mut Did) {
        match did {
            Did::StepStarted { input } => self.scrub_text(input),
            Did::StepEnded { input, result } => {
                self.scrub_text(input);
                match result {
                    StepResult::Ok(text) => self.scrub_text(text),
                    StepResult::Failed(failure) => self.scrub_failure(failure),
                }
            }
            Did::Completed(completion) => self.scrub_completion(completion),
            Did::Asked(question) => self.scrub_question(Arc::make_mut(question)),
            Did::PairsRead { asked, found } => {
                self.scrub_text(asked);
                self.scrub_text(found);
            }
            Did::PairWritten { asked, .. } | Did::Spawned { asked } | Did::ChildOpened { asked } => {
                self.scrub_text(asked);
            }
            Did::Emitted { payload, .. } | Did::EventPlanned { payload, .. } | Did::Signalled { payload } => {
                self.scrub_text(payload);
            }
            Did::Awaited { what, .. } => self.scrub_text(what),
            Did::Said { message } => self.scrub_text(message),
            Did::SleepBegan(_)
            | Did::SleepEnded
            | Did::KeyTaken
            | Did::WaitBegan(_)
            | Did::TimedOut
            | Did::Called { .. }
            | Did::Handed(_)
            | Did::SignalAwaited(_)
            | Did::Attached { .. } => {}
        }
    }

    /// Replaces secrets in a question.
    pub fn scrub_question(&self, question: &mut Question) {
        if let Cow::Owned(scrubbed) = self.scrub(&question.text) {
            question.text = scrubbed.into();
        }
        question.schema.iter_mut().for_each(|schema| self.scrub_text(schema));
    }

    /// Replaces secrets in an answer from outside.
    pub fn scrub_completion(&self, completion: &mut Completion) {
        let scrub_extras = |extras: &mut Option<Box<AnswerExtras>>| {
            let Some(AnswerExtras { parts, raw, control }) = extras.as_deref_mut() else { return };
            self.scrub_parts(parts);
            raw.iter_mut().chain(control).for_each(|text| self.scrub_text(text));
        };
        match completion {
            Completion::Ok { value, extras } => {
                self.scrub_text(value);
                scrub_extras(extras);
            }
            Completion::Error { code, message, extras } => {
                self.scrub_string(code);
                self.scrub_string(message);
                scrub_extras(extras);
            }
            Completion::Cancelled | Completion::TimedOut => {}
        }
    }

    /// Replaces secrets in a failure.
    pub fn scrub_failure(&self, failure: &mut Failure) {
        self.scrub_string(&mut failure.message);
        let texts = [&mut failure.tool_code, &mut failure.detail];
        texts.into_iter().flatten().for_each(|text| self.scrub_string(text));
        if let Some(raw) = &mut failure.raw
            && let Cow::Owned(scrubbed) = self.scrub_json(raw)
        {
            *raw = scrubbed;
        }
        self.scrub_parts(&mut failure.parts);
        self.scrub_side(&mut failure.side);
    }

    /// Replaces secrets in parts of an answer.
    pub fn scrub_parts(&self, parts: &mut [Part]) {
        for part in parts {
            match part {
                Part::Text(text) => self.scrub_string(text),
                Part::Json(text) => self.scrub_text(text),
                Part::Image { data, .. } => {
                    if let Cow::Owned(scrubbed) = self.scrub_bytes(data) {
                        *data = scrubbed.into();
                    }
                }
                Part::File { name, .. } => self.scrub_string(name),
                Part::KeptImage { .. } => {}
            }
        }
    }

    /// Replaces secrets in a text.
    pub fn scrub_string(&self, text: &mut String) {
        if let Cow::Owned(scrubbed) = self.scrub(text) {
            *text = scrubbed;
        }
    }

    /// Replaces secrets in a JSON text.
    pub fn scrub_text(&self, text: &mut JsonText) {
        if let Cow::Owned(scrubbed) = self.scrub_json(text) {
            *text = scrubbed.into();
        }
    }

    fn scrub_shared(&self, text: &mut Option<Arc<str>>) {
        if let Some(text) = text
            && let Cow::Owned(scrubbed) = self.scrub(text)
        {
            *text = scrubbed.into();
        }
    }

    fn scrub_prepared(&self, made: &mut PreparedResult) {
        made.args.iter_mut().chain(&mut made.payload).for_each(|text| self.scrub_text(text));
        made.answer.iter_mut().for_each(|answer| self.scrub_success(answer));
        for repair in &mut made.repairs {
            self.scrub_string(&mut repair.at);
            repair.was.iter_mut().for_each(|was| self.scrub_string(was));
        }
    }

    fn scrub_attempted(&self, result: &mut Attempted) {
        match result {
            Attempted::Ok(success) => self.scrub_success(success),
            Attempted::Failed(failure) => self.scrub_failure(failure),
        }
    }

    fn scrub_success(&self, success: &mut Success) {
        if let Value::Inline(text) = &mut success.value {
            self.scrub_text(text);
        }
        self.scrub_parts(&mut success.parts);
        self.scrub_side(&mut success.side);
    }

    fn scrub_side(&self, side: &mut Option<Box<SideOutput>>) {
        let control = side.as_deref_mut().and_then(|side| side.control.as_mut());
        control.into_iter().for_each(|control| self.scrub_text(control));
    }

    fn scrub_outcome(&self, outcome: &mut Outcome) {
        match outcome {
            Outcome::Succeeded(success) => self.scrub_success(success),
            Outcome::Failed(failure) => self.scrub_failure(failure),
            Outcome::Denied { reason } => self.scrub_string(reason),
            Outcome::Cancelled { .. } | Outcome::Unknown => {}
        }
    }

    fn scrub_answer(&self, answer: &mut ModelAnswer) {
        self.scrub_parts(&mut answer.parts);
    }
}

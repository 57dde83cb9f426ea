//! Calls of other tools from inside a call.
//!
//! They are ordinary batches of the same session, each with a journal of its own, under keys that follow from the call and
//! the name. So a replay finds what is recorded, joins what is open, and runs nothing twice.

use crate::api::answer::{BatchAnswer, CallAnswer};
use crate::api::decided::Decided;
use crate::api::error::{BatchError, Lost, SessionError};
use crate::api::keys;
use crate::api::misuse::{Misuse, StepError};
use crate::path::submit;
use crate::session::batch::{self, DemandReach, HeardDemand, Used};
use crate::session::cx::Cx;
use crate::session::held::{DriveContext, Held};
use crate::session::signal::AttemptSignal;
use crate::session::still;
use crate::session::turns::Turns;
use crate::tools::request::{Args, BatchRequest, CallRequest};
use serde::Serialize;
use std::sync::Arc;
use windlass_core::batch::{Batch, Parent};
use windlass_core::call::{Call, Cause};
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::{CallId, Lookup, Ordinal};
use windlass_core::operation::{Did, Operations};
use windlass_core::outcome::{Effect, Outcome};
use windlass_core::siblings::{Decision, Siblings};
use windlass_core::tool::EffectClass;

/// Calls that a tool makes together.
#[derive(Clone, Debug, Default)]
pub struct NestedBatch {
    /// The calls, in order. Those without an id get one by their place.
    pub calls: Vec<CallRequest>,
    /// How the end of one call affects the others.
    pub siblings: Siblings,
}

impl Cx {
    /// Calls another tool, durably and with an identity of its own: a replay is told what is recorded, joins what is still
    /// open, and runs nothing twice. A call that failed is made again when this one is tried again. It has the time that
    /// this one has left, and what this one claims unless its tool declares less.
    ///
    /// ```
    /// # use windlass::{Cx, Output, ToolError}; use serde_json::{Value, json};
    /// async fn forecast(args: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     let place: Value = cx.call("locate", "geocode", &args["city"]).await?.value()?;
    ///     let weather = cx.call("weather", "get_weather", json!({ "location": place })).await?;
    ///     Ok(json!({ "told": weather.model_text() }).into())
    /// }
    /// ```
    pub async fn call(&self, name: &str, tool: &str, args: impl Serialize) -> Result<CallAnswer, StepError> {
        let args = serde_json::to_value(args).map_err(|error| Misuse::unkept(name, error))?;
        let fits = name.chars().count() as u64 <= self.limits().call_id_chars_max
            && !name.chars().any(char::is_control);
        let id = fits.then(|| name.to_string());
        let call =
            CallRequest { id, tool: tool.to_string(), args: Args::Json(args), ..CallRequest::default() };
        let answer = self.batch(name, NestedBatch { calls: vec![call], ..NestedBatch::default() }).await?;
        Ok(answer.calls.into_iter().next().ok_or(Misuse::Over)?)
    }

    /// Makes several calls together, which may be a race or need a quorum.
    pub async fn batch(&self, name: &str, batch: NestedBatch) -> Result<BatchAnswer, StepError> {
        if self.is_stopping() {
            return Err(StepError::Stopped);
        }
        self.come_back_inside().await;
        let (recorded, round) = self.book().begin_call(name, self.limits().operations_max)?;
        let known = recorded.map_or(0, |called| called.generation);
        // What failed in an earlier try is called again in this one.
        let again = recorded.is_none_or(|called| called.round < round);
        let mut rounds = Rounds::new(batch);
        for generation in 1..=known + u32::from(again) {
            let Some(calls) = rounds.next() else { break };
            if generation > known {
                self.book().note(self.now(), name, Did::Called { generation })?;
                // What is called commits behind it, so whoever finds that finds this too.
                self.book().send(&self.batch, self.artifacts.lane());
                moment!("at.call");
            }
            let answer = self.run_round(name, generation, calls).await?;
            rounds.answered(answer);
        }
        Ok(rounds.answer())
    }

    async fn run_round(
        &self,
        name: &str,
        generation: u32,
        NestedBatch { calls, siblings }: NestedBatch,
    ) -> Result<BatchAnswer, StepError> {
        let hold = self.hold.upgrade().ok_or(Misuse::Over)?;
        let place = &self.batch.head.place;
        let (inputs, overlay) = (place.inputs.clone(), place.shared_overlay());
        let calls = calls.into_iter().map(|call| self.in_time(call)).collect();
        let observer = self.observer();
        let request = BatchRequest { calls, inputs, overlay, observer, siblings, ..BatchRequest::default() };
        let depth = self.depth() + 1;
        let mut key = keys::nested(self.handle(), name, generation);
        if windlass_core::mutant::breaks("nested-again") && self.is_redrive() {
            key.push('~');
        }
        let asked = NestedRequest {
            key: key.into(),
            parent: Parent { call: self.call, depth },
            signal: self.signal.clone(),
        };
        let tasks = hold.rt.tasks.clone();
        // Before anything is called: whoever finds it there finds that it is waited for.
        let lent = LentRoom::begin(self);
        // No tool may own the runtime, so it waits for a task of the runtime's that does.
        let running = tasks.spawn(asked.run(hold, request));
        let answered = running.await;
        lent.end().await;
        self.heartbeat();
        match answered.map_err(|_| Misuse::Over)? {
            Ok(NestedReply::All(answer)) if self.is_stopping() && answer.calls.iter().any(is_cancelled) => {
                Err(StepError::Stopped)
            }
            Ok(NestedReply::All(answer)) => Ok(answer),
            Ok(NestedReply::Diverged(what)) => {
                let found = format!("it is recorded with {what}");
                Err(Misuse::Diverged { name: name.to_string(), found }.into())
            }
            Ok(NestedReply::Over) => Err(StepError::Stopped),
            Err(BatchError::Session(SessionError::Lost(lost))) => Err(StepError::Lost(lost)),
            Err(error) => Err(Misuse::unkept(name, error).into()),
        }
    }

    /// How many calls and events lie between this call and whoever asked first.
    pub(crate) fn depth(&self) -> u32 {
        let started = || self.batch.asked_for(self.call.ordinal).map_or(0, |asked| asked.depth());
        let own = self.batch.head.parent.map_or_else(started, |parent| parent.depth);
        let session = self.hold.upgrade().map_or(0, |hold| hold.session.depth());
        own.max(session)
    }

    /// A nested call has at most the time that is left of the call around it.
    pub(crate) fn in_time(&self, mut call: CallRequest) -> CallRequest {
        // While the call may still become a task, the calls inside it must not end before that one would.
        let total_us =
            if self.signal.may_detach { self.task_end.total_us } else { self.latest_end().total_us };
        if total_us < u64::MAX {
            let now_us = self.clock().elapsed_us();
            let due_us = total_us.saturating_add(self.book().excused_us(now_us));
            let left_us = due_us.saturating_sub(now_us);
            let left_ms = (left_us / 1_000).max(1);
            let shorter = |ms: Option<u64>| Some(ms.map_or(left_ms, |ms| ms.min(left_ms)));
            call.deadlines.total_ms = shorter(call.deadlines.total_ms);
            call.deadlines.queue_ms = shorter(call.deadlines.queue_ms);
        }
        call
    }
}

pub(crate) fn is_cancelled(answer: &CallAnswer) -> bool {
    matches!(answer.call().outcome(), Some(Outcome::Cancelled { .. }))
}

/// A nested request, and its caller.
pub(crate) struct NestedRequest {
    pub(crate) key: Arc<str>,
    pub(crate) parent: Parent,
    /// Of the attempt that calls.
    signal: Arc<AttemptSignal>,
}

enum NestedReply {
    All(BatchAnswer),
    /// Another call is recorded under the name.
    Diverged(String),
    /// The attempt that called is over.
    Over,
}

impl NestedRequest {
    async fn run(self, hold: Arc<DriveContext>, request: BatchRequest) -> Result<NestedReply, BatchError> {
        let Some(submitted) = submit::submit_inside(&hold, &self, request).await? else {
            return Ok(NestedReply::Over);
        };
        match submitted.difference() {
            Some(what) => Ok(NestedReply::Diverged(what)),
            None => submitted.settled().await.map(NestedReply::All),
        }
    }

    /// Whether the attempt that calls still may.
    pub(crate) fn is_wanted(&self) -> bool {
        self.signal.cause().is_none() && self.signal.book.is_lent()
    }
}

/// The calls made under one name. Each time that the call around them is tried again, those of them run again that did not
/// end so that it stands.
struct Rounds {
    asked: NestedBatch,
    answers: Vec<Option<CallAnswer>>,
    key: Arc<str>,
    decided: Option<Decided>,
}

impl Rounds {
    fn new(mut asked: NestedBatch) -> Rounds {
        asked.calls = named(asked.calls);
        let answers = asked.calls.iter().map(|_| None).collect();
        Rounds { asked, answers, key: "".into(), decided: None }
    }

    /// The next calls to make, if there are any.
    fn next(&self) -> Option<NestedBatch> {
        if self.decided.as_ref().is_some_and(|decided| decided.decision == Decision::Reached) {
            return None;
        }
        let calls: Vec<CallRequest> = self.open().map(|place| self.asked.calls[place].clone()).collect();
        let siblings = match self.asked.siblings {
            Siblings::Quorum(needed) => Siblings::Quorum(needed.saturating_sub(self.succeeded()).max(1)),
            siblings @ (Siblings::Independent | Siblings::FailFast | Siblings::Race) => siblings,
        };
        // The first time it is refused if so many cannot succeed; later it stays as it is recorded.
        let again = self.answers.iter().any(Option::is_some);
        let in_vain = matches!(siblings, Siblings::Quorum(needed) if again && needed as usize > calls.len());
        (!calls.is_empty() && !in_vain).then_some(NestedBatch { calls, siblings })
    }

    fn answered(&mut self, answer: BatchAnswer) {
        let won: Vec<Arc<str>> = self
            .ends()
            .filter(|(_, end)| succeeded(end))
            .map(|(call, _)| Arc::from(&call.opened.id))
            .collect();
        self.decided = answer.decided.map(|decided| Decided {
            siblings: self.asked.siblings,
            decision: decided.decision,
            winners: won.into_iter().chain(decided.winners).collect(),
        });
        let open: Vec<usize> = self.open().collect();
        for (place, call) in open.into_iter().zip(answer.calls) {
            self.answers[place] = Some(call);
        }
        self.key = answer.key;
    }

    fn answer(self) -> BatchAnswer {
        BatchAnswer {
            key: self.key,
            calls: self.answers.into_iter().flatten().collect(),
            decided: self.decided,
        }
    }

    /// The places of those that never ran, or ended so that it does not stand.
    fn open(&self) -> impl Iterator<Item = usize> {
        let answers = self.answers.iter().enumerate();
        answers.filter(|(_, answer)| !answer.as_ref().is_some_and(stands)).map(|(place, _)| place)
    }

    fn ends(&self) -> impl Iterator<Item = (&Call, &Outcome)> {
        let calls = self.answers.iter().flatten().map(CallAnswer::call);
        calls.filter_map(|call| Some((call, call.outcome()?)))
    }

    fn succeeded(&self) -> u32 {
        self.ends().filter(|(_, end)| succeeded(end)).count() as u32
    }
}

/// Gives calls without an id one by their place.
pub(crate) fn named(mut calls: Vec<CallRequest>) -> Vec<CallRequest> {
    for (place, call) in calls.iter_mut().enumerate() {
        call.id.get_or_insert_with(|| format!("call-{}", place + 1));
    }
    calls
}

/// Whether it took effect, or may have: then it is not made again.
fn stands(answer: &CallAnswer) -> bool {
    answer.call().end().is_some_and(|end| end.stands())
}

fn succeeded(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Succeeded(_))
}

/// A call waits for calls inside it, and lends its room to others meanwhile.
pub(crate) struct LentRoom<'a> {
    cx: &'a Cx,
    over: bool,
}

impl<'a> LentRoom<'a> {
    pub(crate) fn begin(cx: &'a Cx) -> LentRoom<'a> {
        let count = cx.book().waits_inside(1);
        if let Some(hold) = cx.hold.upgrade() {
            still::look(&hold.rt, &hold.session, cx.call);
            if count == 1 {
                Turns::lend(&hold.rt, cx.call);
            }
        }
        LentRoom { cx, over: false }
    }

    /// Goes on as soon as there is room again, unless other calls inside are waited for still.
    pub(crate) async fn end(mut self) {
        self.over = true;
        let back = match self.cx.book().waits_inside(-1) {
            0 => self.cx.hold.upgrade().and_then(|hold| {
                still::look(&hold.rt, &hold.session, self.cx.call);
                Turns::take_back(&hold.rt, self.cx.call)
            }),
            _ => {
                self.cx.look_still();
                None
            }
        };
        if let Some(back) = back {
            let _ = back.await;
        }
    }
}

impl Drop for LentRoom<'_> {
    fn drop(&mut self) {
        // The tool waits no more, and goes on at once: its room is counted again as soon as there is some.
        if !self.over
            && self.cx.book().waits_inside(-1) == 0
            && let Some(hold) = self.cx.hold.upgrade()
        {
            still::look(&hold.rt, &hold.session, self.cx.call);
            drop(Turns::take_back(&hold.rt, self.cx.call));
        }
    }
}

/// Whether calls inside this one have not ended.
pub(crate) fn has_open(held: &Held) -> bool {
    held.has_called() && !held.on.session.inside(held.id).is_empty()
}

/// Whether what it did is what the calls inside it did; whoever must not be repeated, and is asked after, answers for them.
pub(crate) fn speak_for(held: &Held) -> bool {
    held.has_called() && held.call.class() == Some(EffectClass::Stepped)
}

/// Whether it is known of all calls inside a call what they did. None of them is open. What cannot be read is not known.
pub(crate) async fn are_known(held: &Held) -> bool {
    let DriveContext { rt, session, .. } = &*held.on;
    let call = Handle::seal(rt.store.secret(), HandleKind::Call, held.id.packed());
    let calls = held.call.operations.as_deref().into_iter().flat_map(Operations::calls);
    let keys =
        calls.flat_map(|(name, called)| (1..=called.generation).map(move |no| keys::nested(call, name, no)));
    for key in keys.collect::<Vec<_>>() {
        let known = match rt.store.batch(Lookup::of(session.lane.session(), &key)).await {
            Ok(Some(row)) => session.read(&row).await.is_ok_and(|(batch, _)| is_known(&batch)),
            // It was never made: refused, or told to stop before.
            Ok(None) => true,
            Err(_) => false,
        };
        if !known {
            return false;
        }
    }
    true
}

fn is_known(batch: &Batch) -> bool {
    batch.calls.iter().all(|call| match call.outcome() {
        // As of a step: it has done nothing only if it says so.
        Some(Outcome::Failed(_)) => call.effect() != Effect::Unknown,
        Some(_) => call.end().is_some_and(|end| !end.is_unknown()),
        None => false,
    })
}

/// Asks the calls inside a call to stop, and waits until they have ended. The attempt that made them is over.
pub(crate) async fn end_open(held: &Held, cause: Option<Cause>) -> Result<(), Lost> {
    let session = &held.on.session;
    // What is being submitted now is submitted then, and nothing after it.
    drop(session.admit().await);
    for batch in tell_to_stop(&held.on, held.id, cause) {
        let ordinals: Vec<Ordinal> = (0..batch.len() as u16).map(Ordinal).collect();
        batch.ended(ordinals.iter().copied(), &session.lane).await?;
    }
    Ok(())
}

/// Asks the calls inside a call to stop. Each tells those inside it.
pub(crate) fn tell_to_stop(on: &DriveContext, call: CallId, cause: Option<Cause>) -> Vec<Used> {
    let reason = match cause {
        Some(Cause::Cancel) => "the call around it was cancelled",
        Some(Cause::Attempt | Cause::Silence | Cause::Total) => "the call around it took too long",
        None => "the call around it ended without waiting for it",
    };
    let inside = on.session.inside(call);
    for batch in &inside {
        for ordinal in (0..batch.len() as u16).map(Ordinal) {
            let heard = HeardDemand { what: batch::CallDemand::Cancel(Some(reason.into())), ack: None };
            if batch.ask(ordinal, heard) == DemandReach::Parked {
                on.session.wake(&on.rt, CallId { batch: batch.head.no, ordinal });
            }
        }
    }
    inside
}

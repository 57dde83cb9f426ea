//! Events that a running call emits.

use super::host::check_key;
use super::occur::{Emission, EventEmitter, EventPayload, ToldEvent};
use super::planned;
use crate::api::misuse::{Misuse, StepError};
use crate::path::submit::Starter;
use crate::session::cx::Cx;
use crate::tools::registry::KindMismatch;
use serde::Serialize;
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::operation::Did;
use windlass_store::{Row, Space};

impl Cx {
    /// Emits an event of a kind that the tool [declares](windlass_core::tool::ToolSpec::emits). Durable when this
    /// returns, and emitted once, however often the body runs. The calls that it [triggers](crate::Runtime::triggers) are durable with it.
    ///
    /// ```
    /// # use windlass::{Cx, Output, ToolError}; use serde_json::{Value, json};
    /// async fn sell(args: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     let sold = cx.emit("sold", "sold", json!({ "item": args["item"] })).await?;
    ///     Ok(json!({ "event": sold.number, "started": sold.tasks.len() }).into())
    /// }
    /// ```
    pub async fn emit(&self, name: &str, kind: &str, payload: impl Serialize) -> Result<Emission, StepError> {
        self.tell_event(name, kind, payload, None).await
    }

    /// Emits an event that is unique in the session by its kind and this key, whichever call emits it: for tools that look
    /// again and again and see the same thing twice. If there was such an event, nothing is emitted, and its number is
    /// returned.
    ///
    /// ```
    /// # use windlass::{Cx, Output, ToolError}; use serde_json::{Value, json};
    /// async fn poll(args: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     let mail = json!({ "id": "m-17", "subject": "Doors" });
    ///     let told = cx.emit_once("m-17", "mail_arrived", "m-17", mail).await?;
    ///     Ok(json!({ "new": told.is_new }).into())
    /// }
    /// ```
    pub async fn emit_once(
        &self,
        name: &str,
        kind: &str,
        key: &str,
        payload: impl Serialize,
    ) -> Result<Emission, StepError> {
        check_key(key, self.limits().batch_key_chars_max).map_err(|what| Misuse::unkept(name, what))?;
        self.tell_event(name, kind, payload, Some(key.to_string())).await
    }

    /// Plans an event that is emitted if the call succeeds, right after it has: with a failed, cancelled or unknown call it
    /// never is. The plan is durable when this returns.
    pub async fn emit_with_result(
        &self,
        name: &str,
        kind: &str,
        payload: impl Serialize,
    ) -> Result<(), StepError> {
        let EventPayload { text, .. } = self.event_payload(name, kind, payload)?;
        let book = self.book();
        if book.has_planned(name, kind, &text, self.limits().operations_max)? {
            return Ok(());
        }
        let key = planned::key(self.call, name);
        let plan = Row::Put { space: Space::Awaited, key, value: Default::default() };
        let did = Did::EventPlanned { event: kind.into(), payload: text };
        book.note_with(self.now(), name, did, vec![plan])?;
        self.commit().await
    }

    async fn tell_event(
        &self,
        name: &str,
        kind: &str,
        payload: impl Serialize,
        once_by: Option<String>,
    ) -> Result<Emission, StepError> {
        let payload = self.event_payload(name, kind, payload)?;
        let book = self.book();
        if let Some((numbered, triggered)) =
            book.emitted(name, kind, &payload.text, self.limits().operations_max)?
        {
            let task = |call: u64| Handle::seal(self.store_secret(), HandleKind::Call, call);
            let tasks = triggered.iter().map(|one| task(one.call.packed())).collect();
            return Ok(Emission { number: numbered.number, tasks, is_new: !numbered.is_again });
        }
        let hold = self.hold.upgrade().ok_or(Misuse::Over)?;
        let wakes = self.kinds.as_ref().and_then(|kinds| kinds.wake_text(kind, &payload.value));
        let (rt, session, signal) = (hold.rt.clone(), hold.session.clone(), self.signal.clone());
        let by = Starter { call: self.call, depth: self.depth() };
        let tasks = rt.tasks.clone();
        let source = EventEmitter::Call { hold, signal, by, name: name.to_string() };
        let (kind, observer) = (kind.into(), self.observer());
        let event = ToldEvent { rt, session, source, kind, payload, once_by, wakes, observer };
        // Another part of the body may only wait by now.
        let _writes = self.book().writes();
        // In a task of the runtime, like all work for a tool: work that has begun is finished.
        let told = tasks.spawn(event.tell()).await.map_err(|_| Misuse::Over)?;
        told.map_err(|unsent| unsent.into_step_error(name))
    }

    /// The payload of an event of a declared kind.
    fn event_payload(
        &self,
        name: &str,
        kind: &str,
        payload: impl Serialize,
    ) -> Result<EventPayload, StepError> {
        let value = serde_json::to_value(payload).map_err(|error| Misuse::unkept(name, error))?;
        let undeclared = KindMismatch::Undeclared { nearest: None };
        let kinds = self.kinds.as_ref().ok_or(undeclared);
        let text = kinds.and_then(|kinds| kinds.event(kind, &value, self.artifacts.limits()));
        let text = text.map_err(|unfit| match unfit {
            KindMismatch::Undeclared { nearest } => Misuse::undeclared("event", "emits", kind, nearest),
            KindMismatch::Payload(why) => Misuse::unkept(name, why),
        })?;
        Ok(EventPayload { text, value }.without_secrets(self.artifacts.lane().vault()))
    }
}

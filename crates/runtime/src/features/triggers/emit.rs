//! Events that a running call emits.

use crate::api::misuse::{Misuse, StepError};
use crate::features::triggers::{self, EventPayload, ToldEvent};
use crate::path::submit::Starter;
use crate::session::book::told::Unsent;
use crate::session::cx::Cx;
use crate::tools::registry::KindMismatch;
use serde::Serialize;
use std::sync::Arc;
use windlass_core::operation::Did;

impl Cx {
    /// Emits an event of a kind that the tool [declares](windlass_core::tool::ToolSpec::emits). Durable when this
    /// returns, and emitted once, however often the body runs. The calls that it [triggers](crate::Runtime::triggers) are durable with it.
    ///
    /// ```
    /// # use windlass::{Cx, Output, ToolError}; use serde_json::{Value, json};
    /// async fn sell(args: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     cx.emit("sold", "sold", json!({ "item": args["item"] })).await?;
    ///     Ok(json!("sold").into())
    /// }
    /// ```
    pub async fn emit(&self, name: &str, kind: &str, payload: impl Serialize) -> Result<(), StepError> {
        let value = serde_json::to_value(payload).map_err(|error| Misuse::unkept(name, error))?;
        let undeclared = KindMismatch::Undeclared { nearest: None };
        let payload = self
            .kinds
            .as_ref()
            .ok_or(undeclared)
            .and_then(|kinds| kinds.event(kind, &value, self.artifacts.limits()));
        let payload = payload.map_err(|unfit| match unfit {
            KindMismatch::Undeclared { nearest } => Misuse::undeclared("event", "emits", kind, nearest),
            KindMismatch::Payload(why) => Misuse::unkept(name, why),
        })?;
        let book = self.book();
        if book.has_emitted(name, kind, &payload, self.limits().operations_max)? {
            return Ok(());
        }
        let session = self.hold.upgrade().ok_or(Misuse::Over)?.session.clone();
        let is_awaited = triggers::is_awaited(&session, kind).await;
        let is_awaited = is_awaited.map_err(|error| Unsent::from(error).into_step_error(name))?;
        drop(session);
        if is_awaited {
            return self.trigger(name, kind, EventPayload { text: payload, value }).await;
        }
        let triggered = Arc::default();
        book.note(self.now(), name, Did::Emitted { event: kind.into(), payload, triggered })?;
        self.commit().await
    }

    /// Emits an event that may start calls.
    async fn trigger(&self, name: &str, kind: &str, payload: EventPayload) -> Result<(), StepError> {
        let hold = self.hold.upgrade().ok_or(Misuse::Over)?;
        let (signal, by) = (self.signal.clone(), Starter { call: self.call, depth: self.depth() });
        let tasks = hold.rt.tasks.clone();
        let event = ToldEvent { hold, signal, by, name: name.to_string(), kind: kind.into(), payload };
        // Another part of the body may only wait by now.
        let _writes = self.book().writes();
        // In a task of the runtime, like all work for a tool: work that has begun is finished.
        let told = tasks.spawn(event.tell()).await.map_err(|_| Misuse::Over)?;
        told.map_err(|unsent| unsent.into_step_error(name))
    }
}

//! What a call tells of and is told while it runs: events that its tool declares, and signals.

use super::told::Unsent;
use super::{Misuse, StepError, read};
use crate::registry::Unfit;
use crate::submit::Starter;
use crate::tool::Cx;
use crate::triggers::{self, Event};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::operation::{Completion, Did};
use windlass_core::outcome::JsonText;

impl Cx {
    /// Tells of an event of a kind that the tool [declares](windlass_core::tool::ToolSpec::emits). It is durable when this
    /// returns, and told once, however often the body runs. What it [triggers](crate::Runtime::triggers) is durable with it.
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
        let undeclared = Unfit::Undeclared { nearest: None };
        let payload =
            self.kinds.as_ref().ok_or(undeclared).and_then(|kinds| kinds.event(kind, &value, self.limits()));
        let payload = payload.map_err(|unfit| match unfit {
            Unfit::Undeclared { nearest } => Misuse::undeclared(("event", "emits"), kind, nearest),
            Unfit::Payload(why) => Misuse::unkept(name, why),
        })?;
        let book = self.book();
        if book.has_emitted(name, (kind, &payload), self.limits().operations_max)? {
            return Ok(());
        }
        let session = self.hold.upgrade().ok_or(Misuse::Over)?.session.clone();
        let is_awaited = triggers::is_awaited(&session, kind).await;
        let is_awaited = is_awaited.map_err(|error| Unsent::from(error).told(name))?;
        drop(session);
        if is_awaited {
            return self.trigger(name, kind, (payload, value)).await;
        }
        let triggered = Arc::default();
        book.note(self.now(), name, Did::Emitted { event: kind.into(), payload, triggered })?;
        self.commit().await
    }

    /// Tells of an event that may start calls.
    async fn trigger(&self, name: &str, kind: &str, payload: (JsonText, Value)) -> Result<(), StepError> {
        let hold = self.hold.upgrade().ok_or(Misuse::Over)?;
        let (signal, by) = (self.signal.clone(), Starter { call: self.call, depth: self.depth() });
        let tasks = hold.rt.tasks.clone();
        let event = Event { hold, signal, by, name: name.to_string(), kind: kind.into(), payload };
        // Another part of the body may only wait by now.
        let _writes = self.book().writes();
        // In a task of the runtime's, as whatever else a tool has it do: what has begun is finished.
        let told = tasks.spawn(event.tell()).await.map_err(|_| Misuse::Over)?;
        told.map_err(|unsent| unsent.told(name))
    }

    /// Receives the next signal of a name that the tool [declares](windlass_core::tool::ToolSpec::signals), sent with
    /// [`Runtime::signal`](crate::Runtime::signal). They come in the order in which they were sent, each once, and those
    /// that come early are kept. `None`: none came until the deadline that was given the first time; without one in a day.
    /// A body that runs again is told the same ones again.
    ///
    /// ```
    /// # use windlass::{Cx, Output, ToolError}; use serde_json::{Value, json};
    /// async fn collect(_: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     let mut items = Vec::new();
    ///     while let Some(item) = cx.on_signal("item", None).await? {
    ///         if item.is_null() {
    ///             break;
    ///         }
    ///         items.push(item);
    ///     }
    ///     Ok(json!(items).into())
    /// }
    /// ```
    pub async fn on_signal(
        &self,
        name: &str,
        deadline: Option<Duration>,
    ) -> Result<Option<Value>, StepError> {
        if !self.kinds.as_ref().is_some_and(|kinds| kinds.takes(name)) {
            return Err(Misuse::undeclared(("signal", "signals"), name, None).into());
        }
        let length = deadline.unwrap_or(Duration::from_millis(self.limits().completion_ms));
        let begun = (self.now(), self.until(length));
        let (slot, until) = self.book().begin_signal(name, begun, self.limits().operations_max)?;
        match self.answer(&slot, until).await? {
            Some(Completion::Ok(payload)) => Ok(Some(read(name, &payload)?)),
            Some(Completion::Error { .. } | Completion::Cancelled) | None => Ok(None),
        }
    }
}

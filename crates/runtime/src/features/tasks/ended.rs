//! Waiting for the end of any call by its handle.

use super::{AwaitedTask, not_found};
use crate::api::answer::CallAnswer;
use crate::api::error::SessionError;
use crate::api::journal::find_id;
use crate::mailbox::ask::AskError;
use crate::session::inner::Runtime;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::CallId;

impl Runtime {
    /// Waits until a recorded call of this session has ended, at most `within`, whether or not it continues as a task.
    /// Returns the call as it is then.
    pub async fn call_ended(
        &self,
        session: &str,
        call: &str,
        within: Duration,
    ) -> Result<CallAnswer, AskError> {
        let (id, found) = self.recorded_call(session, call).await?;
        if found.call.end().is_some() {
            return Ok(found);
        }
        let rt = &self.0;
        let session_held = rt.session(session).await?;
        let Some(batch) = session_held.find_away(rt, id.batch).await? else { return Ok(found) };
        let within_us = u64::try_from(within.as_micros()).unwrap_or(u64::MAX);
        let due_us = rt.clock.elapsed_us().saturating_add(within_us);
        let (ordinal, lane, wheel) = (id.ordinal, session_held.lane.clone(), rt.wheel.clone());
        drop(session_held);
        AwaitedTask { batch, ordinal, lane, wheel, due_us }.over().await.map_err(SessionError::from)?;
        Ok(self.recorded_call(session, call).await?.1)
    }

    async fn recorded_call(&self, session: &str, call: &str) -> Result<(CallId, CallAnswer), AskError> {
        let store = &self.0.store;
        let opened = Handle::parse(call).and_then(|handle| handle.open(store.secret(), HandleKind::Call));
        let id = opened.map(CallId::unpacked).ok_or_else(|| not_found(call))?;
        let found = find_id(&**store, id).await?.filter(|(row, ..)| row.name == session);
        let (_, recorded, _) = found.ok_or_else(|| not_found(call))?;
        let (store, call) = (store.clone(), Arc::new(recorded));
        Ok((id, CallAnswer { id, store, call, recorded: true, conflict: None, parent: None }))
    }
}

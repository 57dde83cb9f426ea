//! A call that was submitted or joined.

use super::McpCall;
use crate::message::{INTERNAL, RpcError};
use std::time::Duration;
use windlass::error::AskError;
use windlass::tasks::Wake;
use windlass::{Args, BatchError, BatchRequest, CallAnswer, CallRequest, Runtime, Submitted};

/// The id of the one call in a batch.
const CALL_ID: &str = "call";
/// A wait for an end is renewed so often.
const ENDED_WAIT: Duration = Duration::from_secs(600);

/// A call that was submitted or joined.
pub(crate) struct BegunCall {
    runtime: Runtime,
    session: String,
    /// The key of its batch.
    pub(crate) key: String,
    pub(crate) work: BegunWork,
}

/// The way in which the end of a call is awaited.
pub(crate) enum BegunWork {
    Batch(Submitted),
    /// A call that was begun before, by its handle.
    Earlier(String),
}

impl BegunCall {
    /// Submits the call under this key, or joins the batch that has it.
    pub(crate) async fn submit(
        runtime: &Runtime,
        session: &str,
        key: String,
        asked: &McpCall,
    ) -> Result<BegunCall, RpcError> {
        let call = CallRequest {
            id: Some(CALL_ID.to_string()),
            tool: asked.tool.clone(),
            args: Args::Json(asked.args.clone()),
            ..CallRequest::default()
        };
        let batch = BatchRequest {
            key: Some(key.clone()),
            calls: vec![call],
            // The door itself tells of its end.
            wake: Wake::Silent,
            // The client is answered before the call has ended, so it may take as long as any that nobody waits for.
            task_deadlines: true,
            traceparent: asked.traceparent,
            ..BatchRequest::default()
        };
        // Answers of a person are taken before anybody waits for its end.
        let submitted = match asked.answers.is_empty() {
            true => runtime.submit_here(session, batch).await,
            false => runtime.submit(session, batch).await,
        };
        let submitted = submitted.map_err(refused)?;
        Ok(BegunCall {
            runtime: runtime.clone(),
            session: session.to_string(),
            key,
            work: BegunWork::Batch(submitted),
        })
    }

    /// The call of this handle in the batch of this key.
    pub(crate) fn earlier(runtime: &Runtime, session: &str, handle: &str, key: &str) -> BegunCall {
        let work = BegunWork::Earlier(handle.to_string());
        BegunCall { runtime: runtime.clone(), session: session.to_string(), key: key.to_string(), work }
    }

    /// Waits for its end.
    pub(crate) async fn ended(&self) -> Result<CallAnswer, RpcError> {
        let handle = match &self.work {
            BegunWork::Batch(submitted) => {
                submitted.ended().await.map_err(refused)?;
                let answer = self.now().await?;
                if answer.call().end().is_some() || answer.is_conflict() {
                    return Ok(answer);
                }
                // Its tool goes on in the background.
                answer.handle().to_string()
            }
            BegunWork::Earlier(handle) => handle.clone(),
        };
        loop {
            let answer = self.earlier_call(&handle, ENDED_WAIT).await?;
            if answer.call().end().is_some() {
                return Ok(answer);
            }
        }
    }

    /// Waits until it goes on only if somebody outside does something.
    pub(crate) async fn stands_still(&self) -> Result<(), RpcError> {
        match &self.work {
            BegunWork::Batch(submitted) => submitted.stands_still().await.map_err(refused),
            BegunWork::Earlier(_) => std::future::pending().await,
        }
    }

    /// The call as it is now. It is recorded once this returns.
    pub(crate) async fn now(&self) -> Result<CallAnswer, RpcError> {
        match &self.work {
            BegunWork::Batch(submitted) => {
                let mut answer = submitted.receipt().await.map_err(refused)?;
                answer.calls.pop().ok_or_else(|| RpcError::new(INTERNAL, "the batch has no call"))
            }
            BegunWork::Earlier(handle) => self.earlier_call(handle, Duration::ZERO).await,
        }
    }

    async fn earlier_call(&self, handle: &str, within: Duration) -> Result<CallAnswer, RpcError> {
        let answer = self.runtime.call_ended(&self.session, handle, within).await;
        answer.map_err(|error| {
            if let AskError::Session(error) = &error {
                return RpcError::internal(error);
            }
            RpcError::params(error.to_string())
        })
    }

    /// Its handle, which is its task's. It is recorded once this returns.
    pub(crate) async fn handle(&self) -> Result<String, RpcError> {
        match &self.work {
            BegunWork::Batch(_) => Ok(self.now().await?.handle().to_string()),
            BegunWork::Earlier(handle) => Ok(handle.clone()),
        }
    }
}

/// A batch that was not taken.
fn refused(error: BatchError) -> RpcError {
    match &error {
        BatchError::Shape { .. } | BatchError::Closed { .. } => RpcError::params(error.to_string()),
        BatchError::Overloaded { .. } => RpcError::new(INTERNAL, error.to_string()),
        BatchError::Stalled { .. } => {
            RpcError::new(INTERNAL, "the store cannot write now, so the call was not made; try again later")
        }
        BatchError::Session(error) => RpcError::internal(error),
        // A kind that this crate does not know yet.
        _ => RpcError::internal(&error),
    }
}

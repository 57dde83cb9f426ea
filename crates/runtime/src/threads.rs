//! Where tools run: quick ones in place, others on threads that are not the runtime's own, so that a tool that
//! blocks its thread stops at most other tools.

use crate::registry::Registered;
use crate::runtime::Inner;
use crate::tool::{Cx, Output, ToolError, ToolFuture};
use serde_json::Value;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinError;
use windlass_core::limits::Limits;

/// How an attempt came back.
pub(crate) enum Ran {
    /// It returned.
    Returned(Result<Output, ToolError>),
    /// It panicked, saying this.
    Panicked(String),
}

/// The threads on which tools run; started with the first tool that needs them.
#[derive(Default)]
pub(crate) struct Threads {
    runtime: OnceLock<std::io::Result<Runtime>>,
}

impl Threads {
    /// Runs one attempt where the tool's flags say.
    pub(crate) async fn run(rt: &Inner, tool: &Arc<Registered>, args: Value, cx: Cx) -> Ran {
        let flags = tool.spec.flags;
        if flags.quick {
            return in_place(|| tool.tool.run(args, &cx)).await;
        }
        let tool = tool.clone();
        let attempt = async move { tool.tool.run(args, &cx).await };
        let threads = match rt.threads.handle(&rt.limits) {
            Ok(threads) => threads,
            Err(error) => return Ran::Returned(Err(ToolError::internal(format!("no threads: {error}")))),
        };
        let joined = if flags.cpu_bound {
            threads.spawn_blocking(move || Handle::current().block_on(attempt)).await
        } else {
            threads.spawn(attempt).await
        };
        joined.map_or_else(|error| Ran::Panicked(panic_text(error)), Ran::Returned)
    }

    fn handle(&self, limits: &Limits) -> Result<&Handle, &std::io::Error> {
        let started = self.runtime.get_or_init(|| {
            Builder::new_multi_thread()
                .worker_threads(limits.tool_threads_max as usize)
                .max_blocking_threads(limits.blocking_threads_max as usize)
                .thread_name("windlass-tool")
                .enable_all()
                .build()
        });
        started.as_ref().map(Runtime::handle)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A tool that blocks its thread must not block whoever drops the runtime.
        if let Some(Ok(runtime)) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Makes an attempt and polls it in the caller's task, and catches its panic in both.
async fn in_place<'a>(attempt: impl FnOnce() -> ToolFuture<'a>) -> Ran {
    let mut attempt = match catch_unwind(AssertUnwindSafe(attempt)) {
        Ok(attempt) => attempt,
        Err(panic) => return Ran::Panicked(text(&*panic)),
    };
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| attempt.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ran::Returned),
        Err(panic) => Poll::Ready(Ran::Panicked(text(&*panic))),
    })
    .await
}

fn panic_text(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => text(&*panic),
        Err(error) => error.to_string(),
    }
}

/// What a panic said.
pub(crate) fn text(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().map(|text| text.to_string());
    said.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_string())
}

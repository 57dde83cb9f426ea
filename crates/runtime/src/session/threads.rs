//! The threads on which tools run, apart from the runtime's own: a tool that blocks its thread stops at most other tools.

use crate::api::limits::Limits;
use crate::api::locks::{LockRank, OrderedMutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::runtime::{Builder, Handle, Runtime};

/// The threads on which tools run; started with the first tool that needs them.
#[derive(Default)]
pub(crate) struct Threads {
    /// The last pool takes new attempts. A pool with blocked threads is left to its tools.
    pools: OrderedMutex<Vec<ThreadPool>, { LockRank::ThreadPools as u8 }>,
    /// Stopped attempts that still block a thread.
    stuck: Arc<AtomicU64>,
}

impl Threads {
    /// The counter of stopped attempts that still block a thread.
    pub(crate) fn stuck_count(&self) -> Arc<AtomicU64> {
        self.stuck.clone()
    }

    /// The number of stopped attempts that still block a thread.
    pub(crate) fn stuck(&self) -> u64 {
        self.stuck.load(Ordering::Relaxed)
    }

    pub(crate) fn pool(&self, limits: &Limits) -> std::io::Result<(Handle, Arc<ThreadLoad>)> {
        let mut pools = self.pools.lock();
        if let Some(ThreadPool { runtime: Some(runtime), load }) = pools.last()
            && load.stuck.load(Ordering::SeqCst) == 0
        {
            return Ok((runtime.handle().clone(), load.clone()));
        }
        pools.retain(|pool| pool.load.running.load(Ordering::SeqCst) > 0);
        let runtime = Builder::new_multi_thread()
            .worker_threads(limits.tool_threads_max as usize)
            .max_blocking_threads(limits.blocking_threads_max as usize)
            .thread_name("windlass-tool")
            .enable_all()
            .build()?;
        let (handle, load) = (runtime.handle().clone(), Arc::<ThreadLoad>::default());
        pools.push(ThreadPool { runtime: Some(runtime), load: load.clone() });
        Ok((handle, load))
    }
}

/// A set of threads.
struct ThreadPool {
    runtime: Option<Runtime>,
    load: Arc<ThreadLoad>,
}

/// The load of a set of threads.
#[derive(Default)]
pub(crate) struct ThreadLoad {
    pub(crate) running: AtomicU64,
    pub(crate) stuck: AtomicU64,
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        // A tool that blocks its thread must not block the drop of the runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

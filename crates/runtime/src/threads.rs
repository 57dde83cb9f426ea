//! Where tools run: quick ones in place, others on threads that are not the runtime's own, so that a tool that
//! blocks its thread stops at most other tools.

use crate::inside::until_it_waits;
use crate::registry::Registered;
use crate::runtime::Inner;
use crate::signal::Signal;
use crate::tool::{Cx, Output, ToolError, ToolFuture};
use serde_json::Value;
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinHandle};
use windlass_core::limits::Limits;

/// How an attempt came back.
pub(crate) enum Ran {
    /// It returned.
    Returned(Result<Output, ToolError>),
    /// It panicked, saying this.
    Panicked(String),
    /// All it does is wait, and its body was dropped: it runs again when it is woken.
    Waits,
}

/// The threads on which tools run; started with the first tool that needs them.
#[derive(Default)]
pub(crate) struct Threads {
    /// The last one takes new attempts. One in which tools block threads is left to them.
    pools: Mutex<Vec<Pool>>,
    /// Attempts that were stopped and still block a thread.
    stuck: Arc<AtomicU64>,
}

/// A set of threads.
struct Pool {
    runtime: Option<Runtime>,
    load: Arc<Load>,
}

/// What a set of threads has to do.
#[derive(Default)]
struct Load {
    running: AtomicU64,
    stuck: AtomicU64,
}

impl Threads {
    /// Starts one attempt on a thread that is not the runtime's own; unless it is told to stop before that has it.
    pub(crate) fn start(
        rt: &Inner,
        tool: &Arc<Registered>,
        args: Value,
        (cx, unless_told): (Cx, Option<Arc<Signal>>),
    ) -> std::io::Result<Attempt> {
        let (threads, load) = rt.threads.pool(&rt.limits)?;
        let (state, changed) = (AtomicU8::new(RUNS), Notify::new());
        let life = Life { state, changed, load, tool: tool.clone(), stuck: rt.threads.stuck.clone() };
        let life = Arc::new(life);
        life.load.running.fetch_add(1, Ordering::SeqCst);
        let guard = Guard(life.clone());
        let attempt = async move {
            let life = guard;
            if unless_told.is_some_and(|signal| signal.cause().is_some()) {
                return Some(Err(ToolError::stopped().did_not_happen()));
            }
            let body = life.0.tool.tool.run(args, &cx);
            match cx.is_put_aside {
                true => until_it_waits(body, &cx.signal.book).await,
                false => Some(body.await),
            }
        };
        let joined = if tool.spec.flags.cpu_bound {
            // A thread that blocks cannot be aborted: whoever gives the attempt up tells it.
            let stop = life.clone();
            let stoppable = async move {
                tokio::select! {
                    biased;
                    ran = attempt => ran,
                    () = stop.reaches(GIVEN_UP) => Some(Err(ToolError::stopped())),
                }
            };
            threads.spawn_blocking(move || Handle::current().block_on(stoppable))
        } else {
            threads.spawn(attempt)
        };
        Ok(Attempt { joined, life })
    }

    /// How many attempts were stopped and still block a thread.
    pub(crate) fn stuck(&self) -> u64 {
        self.stuck.load(Ordering::Relaxed)
    }

    fn pool(&self, limits: &Limits) -> std::io::Result<(Handle, Arc<Load>)> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Pool { runtime: Some(runtime), load }) = pools.last()
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
        let (handle, load) = (runtime.handle().clone(), Arc::<Load>::default());
        pools.push(Pool { runtime: Some(runtime), load: load.clone() });
        Ok((handle, load))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A tool that blocks its thread must not block whoever drops the runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// An attempt on a thread that is not the runtime's own.
pub(crate) struct Attempt {
    /// `None`: all it does is wait.
    joined: JoinHandle<Option<Result<Output, ToolError>>>,
    life: Arc<Life>,
}

impl Attempt {
    /// Waits for its return.
    pub(crate) async fn returned(&mut self) -> Ran {
        match (&mut self.joined).await {
            Ok(Some(returned)) => Ran::Returned(returned),
            Ok(None) => Ran::Waits,
            Err(error) => Ran::Panicked(panic_text(error)),
        }
    }

    /// Drops its future as soon as it lets go of its thread, and waits for that until `due_us`. `true`: it still
    /// blocks its thread; it is counted until it lets go.
    pub(crate) async fn give_up(self, rt: &Inner, due_us: u64) -> bool {
        self.life.give_up();
        self.joined.abort();
        tokio::select! {
            biased;
            () = self.life.reaches(OVER) => false,
            () = rt.wheel.until(due_us) => self.life.is_stuck(),
        }
    }
}

const RUNS: u8 = 0;
const GIVEN_UP: u8 = 1;
const STUCK: u8 = 2;
const OVER: u8 = 3;

/// Whether an attempt still has its thread.
struct Life {
    state: AtomicU8,
    changed: Notify,
    load: Arc<Load>,
    tool: Arc<Registered>,
    stuck: Arc<AtomicU64>,
}

impl Life {
    fn give_up(&self) {
        let _ = self.state.compare_exchange(RUNS, GIVEN_UP, Ordering::SeqCst, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    async fn reaches(&self, wanted: u8) {
        loop {
            let changed = self.changed.notified();
            if self.state.load(Ordering::SeqCst) >= wanted {
                return;
            }
            changed.await;
        }
    }

    /// Counts it as stuck, unless it is over by now.
    fn is_stuck(&self) -> bool {
        // Counted first: whoever ends it takes it off again only if it is marked.
        self.counts().for_each(|count| _ = count.fetch_add(1, Ordering::SeqCst));
        let stuck = self.state.compare_exchange(GIVEN_UP, STUCK, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if !stuck {
            self.counts().for_each(|count| _ = count.fetch_sub(1, Ordering::SeqCst));
        }
        stuck
    }

    fn counts(&self) -> impl Iterator<Item = &AtomicU64> {
        [&self.load.stuck, &self.tool.stuck, &*self.stuck].into_iter()
    }
}

/// Lies in the attempt's future, and so goes with it.
struct Guard(Arc<Life>);

impl Drop for Guard {
    fn drop(&mut self) {
        if self.0.state.swap(OVER, Ordering::SeqCst) == STUCK {
            self.0.counts().for_each(|count| _ = count.fetch_sub(1, Ordering::SeqCst));
        }
        self.0.load.running.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

/// Polls an attempt in the caller's task, and catches its panic; it may have panicked before that.
pub(crate) async fn in_place(started: Result<ToolFuture<'_>, String>) -> Ran {
    let returned = match started {
        Ok(attempt) => polled(attempt).await,
        Err(panic) => Err(panic),
    };
    returned.map_or_else(Ran::Panicked, Ran::Returned)
}

/// Runs somebody else's code, and gives back the words of its panic.
pub(crate) fn caught<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| text(&*panic))
}

/// Polls somebody else's future, and gives back the words of its panic.
pub(crate) async fn polled<F: Future + Unpin>(mut future: F) -> Result<F::Output, String> {
    std::future::poll_fn(|cx| match caught(|| std::pin::Pin::new(&mut future).poll(cx)) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
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
fn text(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().map(|text| text.to_string());
    said.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_string())
}

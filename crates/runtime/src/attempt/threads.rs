//! The threads of tools: quick tools run in place, others on threads apart from the runtime's own, so that a
//! tool that blocks its thread stops at most other tools.

use crate::api::output::{Output, ToolError};
use crate::api::polling::{polled, text};
use crate::attempt::inside::until_it_waits;
use crate::session::cx::Cx;
use crate::session::inner::Inner;
use crate::session::signal::AttemptSignal;
use crate::session::threads::ThreadLoad;
use crate::tools::registry::Registered;
use crate::tools::tool::ToolFuture;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinHandle};

/// The outcome of an attempt.
pub(crate) enum Ran {
    /// It returned.
    Returned(Result<Output, ToolError>),
    /// It panicked, with this message.
    Panicked(String),
    /// It only waits, and its body was dropped: it runs again when it is woken.
    Waits,
}

/// Starts one attempt on a tool thread, unless it is stopped before a thread takes it.
pub(crate) fn start(
    rt: &Inner,
    tool: &Arc<Registered>,
    args: Value,
    cx: Cx,
    unless_told: Option<Arc<AttemptSignal>>,
) -> std::io::Result<Attempt> {
    let (threads, load) = rt.threads.pool(&rt.limits)?;
    let (state, changed) = (AtomicU8::new(RUNS), Notify::new());
    let life = Life { state, changed, load, tool: tool.clone(), stuck: rt.threads.stuck_count() };
    let life = Arc::new(life);
    life.load.running.fetch_add(1, Ordering::SeqCst);
    let guard = AttemptGuard(life.clone());
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
        // A blocked thread cannot be aborted: giving the attempt up notifies it.
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

/// An attempt on a tool thread.
pub(crate) struct Attempt {
    /// `None`: it only waits.
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

    /// Drops its future as soon as it releases its thread, and waits for that until `due_us`. `true`: it
    /// still blocks its thread; it is counted until it releases it.
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
    load: Arc<ThreadLoad>,
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
        // Counted first: its end uncounts it only if it is marked.
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

/// Dropped with the attempt's future.
struct AttemptGuard(Arc<Life>);

impl Drop for AttemptGuard {
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

fn panic_text(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => text(&*panic),
        Err(error) => error.to_string(),
    }
}

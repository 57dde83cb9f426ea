//! Metrics, logs and spans, all made in one place from the facts that calls note.
//!
//! A metric is a relaxed counter of the call's tool: it costs only the call, and no lock. Momentary values
//! (running, parked, queued) are computed when they are read.

use crate::api::locks::{LockRank, OrderedMutex};
use crate::api::traced::{BatchTrace, TraceParent, attempt_span, call_span};
use crate::session::held::{DriveContext, Held};
use crate::tools::meter::{Meter, STATES};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc;
use windlass_core::call::{Call, Ended, Fact, Parked, Reason, Result as Attempted};
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::{AttemptNo, CallId, Ordinal};
use windlass_core::outcome::{Outcome, Value};
use windlass_core::time::Timestamp;

/// The counters of a runtime.
#[derive(Default)]
pub(crate) struct Meters {
    pub(crate) tools: OrderedMutex<BTreeMap<String, Arc<Meter>>, { LockRank::Meters as u8 }>,
    /// For calls without a tool: names invented by models must not become names of series.
    pub(crate) nameless: Meter,
    /// Spans that were not taken in time.
    pub(crate) lost_spans: AtomicU64,
    spans: OnceLock<Spans>,
    /// The tasks that open calls have started, while somebody takes spans.
    started: OrderedMutex<BTreeMap<CallId, Vec<CallId>>, { LockRank::StartedTasks as u8 }>,
}

/// The links of one span: the default limit of OpenTelemetry.
const LINKS_MAX: usize = 128;
/// Open calls whose tasks are remembered for their spans.
const STARTERS_MAX: usize = 10_000;

/// The receiver of spans, and their content.
struct Spans {
    to: mpsc::Sender<TraceSpan>,
    contents: bool,
}

/// A span of a trace.
#[derive(Clone, Debug)]
pub enum TraceSpan {
    /// An ended call.
    Call(Box<CallSpan>),
    /// An ended attempt of a call; that of the call itself follows.
    Attempt(AttemptSpan),
}

/// An ended attempt, as a trace shows it.
#[derive(Clone, Copy, Debug)]
pub struct AttemptSpan {
    /// The trace of its call.
    pub trace: u128,
    /// Its own span.
    pub span: u64,
    /// The span of its call.
    pub parent: u64,
    /// Its number, from 1.
    pub attempt: AttemptNo,
    /// Its end: `returned`, `failed`, `stopped`, `aborted`, `suspended`, `lost`.
    pub end: &'static str,
    /// The code of its failure, if it failed.
    pub code: Option<&'static str>,
    /// When it began, by its length. That of a lost attempt is known for the first attempt only; others have no length.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
}

/// An ended call, as a trace shows it.
#[derive(Clone, Debug)]
pub struct CallSpan {
    /// Shared by all calls of a batch and those inside them: that of the caller, if it said one.
    pub trace: u128,
    /// Its own span.
    pub span: u64,
    /// The span inside which it was called: a nested call's, or the caller's own.
    pub parent: Option<u64>,
    /// For a task: the span of the call that started it.
    pub link: Option<TraceParent>,
    /// The spans of the tasks that it started, as far as this process knows of them.
    pub tasks: Vec<TraceParent>,
    /// The call's handle.
    pub call: Handle,
    /// The model's id of the call.
    pub id: Arc<str>,
    /// The session's name.
    pub session: Arc<str>,
    /// The batch's key.
    pub batch: Arc<str>,
    /// The tool, as requested.
    pub tool: Arc<str>,
    /// Its final state.
    pub state: &'static str,
    /// The code of its failure, if it failed.
    pub code: Option<&'static str>,
    /// The number of attempts.
    pub attempts: u32,
    /// When it was requested.
    pub opened_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Its arguments and its result as JSON, if the receiver wants them.
    pub contents: Option<(Arc<str>, Option<Arc<str>>)>,
}

impl Meters {
    /// Counts and logs a fact of a call.
    pub(crate) fn noted(&self, held: &Held, fact: &Fact) {
        if let Fact::Started(_) = fact {
            up(&self.meter(held).attempts);
        } else if let Fact::Parked(Parked { reason: Reason::Retry, .. }) = fact {
            up(&self.meter(held).retries);
        } else if let Fact::Ended(ended) = fact {
            self.ended(held, ended);
        }
        if let Some(spans) = self.spans.get() {
            self.trace_attempt(held, fact, spans);
        }
    }

    /// Sends the span of an attempt, if the fact ends one.
    fn trace_attempt(&self, held: &Held, fact: &Fact, spans: &Spans) {
        let (attempt, ran_us, end, code) = if let Fact::Returned(returned) = fact {
            let (end, code) = match &returned.result {
                Attempted::Ok(_) => ("returned", None),
                Attempted::Failed(failure) => ("failed", Some(failure.code.as_str())),
            };
            (returned.attempt, returned.ran_us, end, code)
        } else if let Fact::Stopped(stopped) = fact {
            (stopped.attempt, stopped.ran_us, "stopped", Some(stopped.cause.as_str()))
        } else if let Fact::Aborted(abort) = fact {
            (abort.attempt, abort.ran_us, "aborted", Some(abort.failure.code.as_str()))
        } else if let Fact::Suspended(suspended) = fact {
            (suspended.attempt, suspended.ran_us, "suspended", None)
        } else if let Fact::Lost(lost) = fact {
            let first = held.call.first_started_at.filter(|_| held.call.attempts == 1);
            let length_us = first.map_or(0, |first| held.now().0.saturating_sub(first.0));
            (lost.attempt, u64::try_from(length_us).unwrap_or(0), "lost", Some("lost"))
        } else {
            return;
        };
        let (ended_at, place) = (held.now(), held.on.trace_place(held.id));
        let started_at = Timestamp(ended_at.0.saturating_sub(i64::try_from(ran_us).unwrap_or(i64::MAX)));
        let span = AttemptSpan {
            trace: place.trace,
            span: attempt_span(place.call, attempt),
            parent: call_span(place.call),
            attempt,
            end,
            code,
            started_at,
            ended_at,
        };
        if spans.to.try_send(TraceSpan::Attempt(span)).is_err() {
            up(&self.lost_spans);
        }
    }

    /// A call has started a task, now or in an earlier run of its body.
    pub(crate) fn started(&self, starter: CallId, task: CallId) {
        if !self.is_traced() {
            return;
        }
        let mut started = self.started.lock();
        let tasks = started.entry(starter).or_default();
        if tasks.len() < LINKS_MAX && !tasks.contains(&task) {
            tasks.push(task);
        }
        // Calls that end elsewhere are never asked for theirs.
        while started.len() > STARTERS_MAX {
            started.pop_first();
        }
    }

    /// Whether somebody takes spans.
    pub(crate) fn is_traced(&self) -> bool {
        self.spans.get().is_some()
    }

    fn ended(&self, held: &Held, ended: &Ended) {
        let meter = self.meter(held);
        let state = held.call.state.name();
        if let Some(place) = STATES.iter().position(|known| *known == state) {
            up(&meter.ended[place]);
        }
        meter.queued.add(ended.spent.queued_us);
        meter.ran.add(ended.spent.ran_us);
        let (session, call) = (&held.on.session.name, &held.call);
        // Debug formatting escapes text of models and tools.
        tracing::debug!(
            target: "windlass::trace",
            session = ?session, batch = ?held.on.batch.head.place.batch_key, id = ?call.opened.id, tool = ?call.opened.tool,
            state, code = code(call), attempts = call.attempts, queued_us = ended.spent.queued_us,
            ran_us = ended.spent.ran_us, "a call is over"
        );
        if let Some(spans) = self.spans.get()
            && spans.to.try_send(TraceSpan::Call(Box::new(self.span(held, spans.contents)))).is_err()
        {
            up(&self.lost_spans);
        }
    }

    /// Sends a span for every call that ends from now on; those not taken in time are dropped and counted.
    pub(crate) fn trace(&self, spans_max: usize, contents: bool) -> Option<mpsc::Receiver<TraceSpan>> {
        let (to, spans) = mpsc::channel(spans_max);
        self.spans.set(Spans { to, contents }).ok().map(|()| spans)
    }

    fn span(&self, held: &Held, contents: bool) -> CallSpan {
        let tasks = self.started.lock().remove(&held.id).unwrap_or_default();
        let (call, head, place) = (&held.call, &held.on.batch.head, held.on.trace_place(held.id));
        let nested = held.parent().map(|call| call_span(held.on.handle(call)));
        let result = || match call.outcome()? {
            Outcome::Succeeded(success) => match &success.value {
                Value::Inline(text) => Some(text.clone()),
                Value::Kept { .. } => None,
            },
            Outcome::Failed(failure) => Some(failure.message.as_str().into()),
            Outcome::Denied { .. } | Outcome::Cancelled { .. } | Outcome::Unknown => None,
        };
        CallSpan {
            trace: place.trace,
            span: call_span(place.call),
            parent: nested.or_else(|| head.trace.parent().map(|parent| parent.span)),
            link: head.trace.link(),
            tasks: tasks.into_iter().map(|task| held.on.task_span(task)).collect(),
            call: place.call,
            id: Arc::from(&call.opened.id),
            session: held.on.session.name.clone(),
            batch: head.place.batch_key.clone(),
            tool: call.opened.tool.clone(),
            state: call.state.name(),
            code: code(call),
            attempts: call.attempts,
            opened_at: call.opened_at,
            ended_at: held.now(),
            contents: contents.then(|| (Arc::from(&call.opened.args.text), result())),
        }
    }

    fn meter<'a>(&'a self, held: &'a Held) -> &'a Meter {
        match &held.tool {
            Some(tool) => tool.meter.get_or_init(|| self.of(&tool.spec.name)),
            None => &self.nameless,
        }
    }

    /// The counters of the tool of this name, shared with its replacements.
    fn of(&self, name: &str) -> Arc<Meter> {
        let mut tools = self.tools.lock();
        tools.entry(name.to_string()).or_default().clone()
    }
}

fn up(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn code(call: &Call) -> Option<&'static str> {
    match call.outcome()? {
        Outcome::Failed(failure) => Some(failure.code.as_str()),
        Outcome::Succeeded(_) | Outcome::Denied { .. } | Outcome::Cancelled { .. } | Outcome::Unknown => None,
    }
}

/// The place of a call in traces.
pub(crate) struct SpanPlace {
    pub(crate) trace: u128,
    pub(crate) call: Handle,
}

impl DriveContext {
    fn handle(&self, call: CallId) -> Handle {
        Handle::seal(self.rt.store.secret(), HandleKind::Call, call.packed())
    }

    /// The span of a task, which has a trace of its own.
    fn task_span(&self, task: CallId) -> TraceParent {
        let own = self.handle(CallId { batch: task.batch, ordinal: Ordinal(0) });
        TraceParent { trace: own.0, span: call_span(self.handle(task)), flags: 1 }
    }

    /// The trace of a call of this batch: that of its caller, or one of its own.
    pub(crate) fn trace_place(&self, call: CallId) -> SpanPlace {
        let head = &self.batch.head;
        let own = || self.handle(CallId { batch: self.session.outermost(head), ordinal: Ordinal(0) }).0;
        let trace = head.trace.parent().map_or_else(own, |parent| parent.trace);
        SpanPlace { trace, call: self.handle(call) }
    }

    /// The span that others continue: of an attempt, or of the whole call. `None`: nobody traces it.
    pub(crate) fn trace_parent(&self, call: CallId, attempt: Option<AttemptNo>) -> Option<TraceParent> {
        let inbound = self.batch.head.trace.parent();
        if inbound.is_none() && !self.rt.meters.is_traced() {
            return None;
        }
        let SpanPlace { trace, call } = self.trace_place(call);
        let span = attempt.map_or_else(|| call_span(call), |attempt| attempt_span(call, attempt));
        // A caller that does not record its trace does not want ours recorded either.
        Some(TraceParent { trace, span, flags: inbound.map_or(1, |inbound| inbound.flags) })
    }

    /// The place in traces of a task that this call starts.
    pub(crate) fn trace_link(&self, starter: CallId) -> BatchTrace {
        BatchTrace::started_by(self.trace_parent(starter, None))
    }
}

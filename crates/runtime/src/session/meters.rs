//! Metrics, logs and spans, all made in one place from the facts that calls note.
//!
//! A metric is a relaxed counter of the call's tool: it costs only the call, and no lock. Momentary values
//! (running, parked, queued) are computed when they are read.

use crate::api::locks::{LockRank, OrderedMutex};
use crate::session::held::Held;
use crate::tools::meter::{Meter, STATES};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc;
use windlass_core::call::{Call, Ended, Fact, Parked, Reason};
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::{CallId, Ordinal};
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
}

/// The receiver of spans, and their content.
struct Spans {
    to: mpsc::Sender<CallSpan>,
    contents: bool,
}

/// A finished call, as a trace shows it.
#[derive(Clone, Debug)]
pub struct CallSpan {
    /// Shared by all calls of a batch and those inside them.
    pub trace: Handle,
    /// The call's handle.
    pub call: Handle,
    /// The call that made it, if it is nested.
    pub parent: Option<Handle>,
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
            && spans.to.try_send(span(held, spans.contents)).is_err()
        {
            up(&self.lost_spans);
        }
    }

    /// Sends a span for every call that ends from now on; those not taken in time are dropped and counted.
    pub(crate) fn trace(&self, spans_max: usize, contents: bool) -> Option<mpsc::Receiver<CallSpan>> {
        let (to, spans) = mpsc::channel(spans_max);
        self.spans.set(Spans { to, contents }).ok().map(|()| spans)
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

fn span(held: &Held, contents: bool) -> CallSpan {
    let (call, head, secret) = (&held.call, &held.on.batch.head, held.on.rt.store.secret());
    let handle = |call: CallId| Handle::seal(secret, HandleKind::Call, call.packed());
    let result = || match call.outcome()? {
        Outcome::Succeeded(success) => match &success.value {
            Value::Inline(text) => Some(text.clone()),
            Value::Kept { .. } => None,
        },
        Outcome::Failed(failure) => Some(failure.message.as_str().into()),
        Outcome::Denied { .. } | Outcome::Cancelled { .. } | Outcome::Unknown => None,
    };
    CallSpan {
        trace: handle(CallId { batch: held.on.session.outermost(head), ordinal: Ordinal(0) }),
        call: handle(held.id),
        parent: held.parent().map(handle),
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

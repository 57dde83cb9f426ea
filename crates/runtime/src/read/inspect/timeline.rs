//! The spans of calls, with those of their nested calls.

use super::{RecordedCall, recorded};
use crate::api::error::SessionError;
use crate::api::journal::{entries, fold};
use crate::api::keys;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use windlass_core::call::{Fact, InsideTime, LiveAttempt, TimeSpan, spans};
use windlass_core::entry::{Entry, EntryEvent};
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::{BatchNo, CallId, Lookup, Ordinal};
use windlass_core::operation::Did;
use windlass_core::time::Timestamp;
use windlass_store::{SessionRow, Store};

/// A timeline with more nested calls than this leaves out the others.
const NESTED_MAX: usize = 2_000;

/// The spans of the calls of a batch, and their nested calls.
#[derive(Default)]
pub struct BatchTimeline {
    /// The spans of each call, nested ones included.
    pub spans: HashMap<CallId, Vec<TimeSpan>>,
    /// The nested calls, each behind the call that made it.
    pub nested: Vec<RecordedCall>,
}

/// The timeline of a batch, or of one call of it. `running`: attempts whose start is not recorded yet.
pub async fn timeline(
    store: &Arc<dyn Store>,
    session: &SessionRow,
    batch: BatchNo,
    only: Option<Ordinal>,
    running: &HashMap<CallId, LiveAttempt>,
) -> Result<BatchTimeline, SessionError> {
    let mut reading = TimelineReading { store, session, running, found: BatchTimeline::default() };
    reading.read(batch, only).await?;
    Ok(reading.found)
}

struct TimelineReading<'a> {
    store: &'a Arc<dyn Store>,
    session: &'a SessionRow,
    running: &'a HashMap<CallId, LiveAttempt>,
    found: BatchTimeline,
}

type ReadFuture<'a> = Pin<Box<dyn Future<Output = Result<Option<InsideTime>, SessionError>> + Send + 'a>>;

/// The time of nested calls, by the call that made them, their name and their generation.
type InsideTimes = BTreeMap<(Ordinal, Arc<str>, u32), InsideTime>;

impl TimelineReading<'_> {
    /// Adds the calls of a batch; returns the time that they took together. `None`: it is not recorded.
    fn read(&mut self, batch: BatchNo, only: Option<Ordinal>) -> ReadFuture<'_> {
        Box::pin(async move {
            let rows = self.store.journal(batch).await?;
            if rows.is_empty() {
                return Ok(None);
            }
            let (all, folded) = (entries(&rows)?, fold(&rows)?);
            let is_wanted = |ordinal: Ordinal| only.is_none_or(|only| only == ordinal);
            let is_nested = folded.opening.parent.is_some();
            if is_nested && only.is_none() {
                let room = NESTED_MAX.saturating_sub(self.found.nested.len());
                let calls = recorded(self.store, self.session, batch, &folded);
                self.found.nested.extend(calls.into_iter().take(room));
            }
            let inside = self.inside(batch, &all, &is_wanted).await?;
            for ordinal in (0..).take(folded.calls.len()).map(Ordinal).filter(|ordinal| is_wanted(*ordinal)) {
                let call = CallId { batch, ordinal };
                let find =
                    |name: &str, generation| inside.get(&(ordinal, Arc::from(name), generation)).copied();
                let running = self.running.get(&call).copied();
                self.found.spans.insert(call, spans(facts(&all, ordinal), running, &find));
            }
            let ends = folded.calls.iter().map(|call| call.end().map(|end| end.at));
            let to = ends.collect::<Option<Vec<Timestamp>>>().and_then(|ends| ends.into_iter().max());
            let from = folded.calls.iter().map(|call| call.opened_at).min();
            Ok(from.map(|from| InsideTime { from, to }))
        })
    }

    /// Adds the calls that the wanted calls made; returns the time of each batch of them.
    async fn inside(
        &mut self,
        batch: BatchNo,
        entries: &[Entry],
        is_wanted: &(dyn Fn(Ordinal) -> bool + Sync),
    ) -> Result<InsideTimes, SessionError> {
        let mut times = InsideTimes::new();
        for entry in entries {
            let EntryEvent::Call { ordinal, fact: Fact::Operation(operation) } = &entry.event else {
                continue;
            };
            let Did::Called { generation } = operation.did else { continue };
            if !is_wanted(*ordinal) || self.found.nested.len() >= NESTED_MAX {
                continue;
            }
            let call = CallId { batch, ordinal: *ordinal }.packed();
            let handle = Handle::seal(self.store.secret(), HandleKind::Call, call);
            let key = keys::nested(handle, &operation.name, generation);
            let Some(found) = self.store.batch(Lookup::of(self.session.no, &key)).await? else { continue };
            if let Some(time) = self.read(found.no, None).await? {
                times.insert((*ordinal, operation.name.clone(), generation), time);
            }
        }
        Ok(times)
    }
}

/// The facts of one call, in order.
fn facts(entries: &[Entry], wanted: Ordinal) -> impl Iterator<Item = (Timestamp, &Fact)> {
    entries.iter().filter_map(move |entry| match &entry.event {
        EntryEvent::Call { ordinal, fact } if *ordinal == wanted => Some((entry.at, fact)),
        EntryEvent::Call { .. }
        | EntryEvent::Batch(_)
        | EntryEvent::Closed(_)
        | EntryEvent::Answered(_)
        | EntryEvent::ClockMoved(_) => None,
    })
}

//! Batches in lists, and calls with their spans.

use super::{SESSIONS_MAX, ShownBatch, ShownCall, UnreadableSession, View, Whose, left_out};
use crate::wire::overview::{BatchSummary, BatchesQuery, SpanView};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use windlass::error::{AskError, SessionError};
use windlass::inspect::{self, BatchTimeline, ListedBatch, LiveAttempt, OpenCall, SpanKind, TimeSpan};
use windlass::time::wall_time;
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::{AttemptNo, CallId, Lookup};
use windlass_core::time::Timestamp;

/// The number of tools that a batch in a list names.
const TOOLS_MAX: usize = 8;

/// A page of batches.
#[derive(Default, Serialize, JsonSchema)]
#[schemars(rename = "PageOfBatch")]
pub struct BatchPage {
    /// The items of this page.
    pub items: Vec<BatchSummary>,
    /// The value of `after` for the next page; `null` on the last.
    pub next: Option<String>,
    /// Sessions whose journals cannot be read; absent if all can.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub unreadable: Vec<UnreadableSession>,
}

impl View {
    /// A page of batches, newest first; unrecorded ones come before all others.
    pub async fn batches(&self, whose: Whose<'_>, query: &BatchesQuery) -> Result<BatchPage, AskError> {
        let limit = super::limit(query.limit)?;
        let mut sessions = self.sessions(whose).await?;
        sessions.truncate(usize::try_from(SESSIONS_MAX).unwrap_or(usize::MAX));
        let after = query.after.as_deref().map(super::handle).transpose()?;
        let mut items = if after.is_none() { self.unrecorded_batches(whose).await? } else { Vec::new() };
        items.truncate(limit);
        let room = limit - items.len();
        let page = inspect::batches(&self.store, &sessions, after, room).await?;
        items.extend(page.batches.iter().map(|batch| self.summary(batch)));
        let told = |(session, what)| UnreadableSession { session, what };
        let unreadable = page.unreadable.into_iter().map(told).collect();
        Ok(BatchPage { items, next: page.next.map(|next| next.to_string()), unreadable })
    }

    /// The latest batches, and why some are missing.
    pub(crate) async fn latest(
        &self,
        whose: Whose<'_>,
        limit: usize,
    ) -> Result<(Vec<BatchSummary>, Option<String>), AskError> {
        let query = BatchesQuery { limit: Some(limit as u64), after: None };
        let is_more = self.sessions(whose).await?.len() as u64 > SESSIONS_MAX;
        Ok((self.batches(whose, &query).await?.items, is_more.then(left_out)))
    }

    fn summary(&self, batch: &ListedBatch) -> BatchSummary {
        let mut states = BTreeMap::<String, u64>::new();
        for call in &batch.calls {
            *states.entry(self.stands(&call.answer).0.to_string()).or_default() += 1;
        }
        let first = batch.calls.first();
        BatchSummary {
            session: batch.session.clone(),
            key: batch.key.clone(),
            turn: first.and_then(|first| first.turn.clone()),
            opened_at: wall_time(first.map(|first| first.opened_at).unwrap_or_default()),
            states,
            tools: few_tools(batch.calls.iter().map(|call| call.answer.tool())),
        }
    }

    /// The batches of which nothing is recorded, newest first.
    async fn unrecorded_batches(&self, whose: Whose<'_>) -> Result<Vec<BatchSummary>, AskError> {
        let mut batches: BTreeMap<(&str, &str), Vec<&OpenCall>> = BTreeMap::new();
        for call in self.unrecorded().await? {
            if whose.has(&call.session) && call.parent.is_none() {
                batches.entry((&call.session, &call.batch)).or_default().push(call);
            }
        }
        let mut found = Vec::new();
        for ((session, key), calls) in batches {
            // Pushed calls of a batch that is recorded are no batch of their own.
            if self.is_batch_recorded(session, key).await? {
                continue;
            }
            let mut states = BTreeMap::<String, u64>::new();
            calls.iter().for_each(|call| *states.entry(call.state.to_string()).or_default() += 1);
            let opened_at = calls.iter().map(|call| call.opened_at).min().unwrap_or_default();
            let summary = BatchSummary {
                session: session.to_string(),
                key: key.to_string(),
                turn: calls.first().and_then(|call| call.turn.clone()),
                opened_at: wall_time(opened_at),
                states,
                tools: few_tools(calls.iter().map(|call| call.tool.as_str())),
            };
            found.push((opened_at, summary));
        }
        found.sort_by_key(|(opened_at, _)| std::cmp::Reverse(*opened_at));
        Ok(found.into_iter().map(|(_, summary)| summary).collect())
    }

    async fn is_batch_recorded(&self, session: &str, key: &str) -> Result<bool, SessionError> {
        let Some(row) = self.store.session(session).await? else { return Ok(false) };
        Ok(self.store.batch(Lookup::of(row.no, key)).await?.is_some())
    }

    /// A batch whose calls have their spans, and the calls that they made theirs.
    pub async fn batch_with_spans(&self, session: &str, key: &str) -> Result<ShownBatch, AskError> {
        let mut shown = self.find_batch(session, key).await?;
        let row = self.store.session(session).await.map_err(SessionError::from)?;
        let batch = match &row {
            Some(row) => self.store.batch(Lookup::of(row.no, key)).await.map_err(SessionError::from)?,
            None => None,
        };
        let found = match (&row, batch) {
            (Some(row), Some(batch)) => {
                inspect::timeline(&self.store, row, batch.no, None, &self.running()).await?
            }
            _ => BatchTimeline::default(),
        };
        self.add_spans(&mut shown.calls, &found);
        Ok(shown)
    }

    /// Adds spans to a call, and the calls that it made with theirs.
    pub(super) async fn add_call_spans(&self, shown: &mut ShownCall, call: &str) -> Result<(), AskError> {
        let id = self.id_of(call);
        let row = match (id, &shown.more.session) {
            (Some(_), Some(session)) => self.store.session(session).await.map_err(SessionError::from)?,
            _ => None,
        };
        let found = match (id, row) {
            (Some(id), Some(row)) => {
                inspect::timeline(&self.store, &row, id.batch, Some(id.ordinal), &self.running()).await?
            }
            _ => BatchTimeline::default(),
        };
        self.add_spans(std::slice::from_mut(shown), &found);
        Ok(())
    }

    fn add_spans(&self, calls: &mut [ShownCall], found: &BatchTimeline) {
        let spans: HashMap<String, &Vec<TimeSpan>> =
            found.spans.iter().map(|(id, spans)| (self.handle_of(*id), spans)).collect();
        let mut nested: Vec<ShownCall> = found.nested.iter().map(|call| self.whole(call)).collect();
        let mut known: HashSet<String> = calls.iter().chain(&nested).map(ShownCall::handle).collect();
        // Calls inside of which nothing is recorded yet, each behind the one that made it.
        let mut fresh: Vec<&OpenCall> =
            self.open.values().filter(|call| !known.contains(&call.call)).collect();
        fresh.sort_by(|left, right| (left.opened_at, &left.call).cmp(&(right.opened_at, &right.call)));
        for call in fresh {
            if call.parent.as_ref().is_some_and(|parent| known.contains(parent)) {
                known.insert(call.call.clone());
                nested.push(ShownCall::unrecorded(call));
            }
        }
        for call in calls.iter_mut().chain(&mut nested) {
            let handle = call.handle();
            let views = match (spans.get(&handle), self.open.get(&handle)) {
                (Some(spans), _) => spans.iter().map(SpanView::from).collect(),
                (None, Some(open)) => unrecorded_spans(open).iter().map(SpanView::from).collect(),
                (None, None) => Vec::new(),
            };
            call.more.spans = Some(views);
        }
        let mut under: HashMap<String, Vec<ShownCall>> = HashMap::new();
        let roots: HashMap<String, String> = roots(calls, &nested);
        for call in nested {
            if let Some(root) = roots.get(&call.handle()) {
                under.entry(root.clone()).or_default().push(call);
            }
        }
        for call in calls {
            call.more.nested = under.remove(&call.handle());
        }
    }

    /// The running attempts whose start is not recorded.
    fn running(&self) -> HashMap<CallId, LiveAttempt> {
        let live = self.open.values().filter_map(|call| {
            let running = call.running?;
            let attempt = LiveAttempt { attempt: AttemptNo(running.attempt), at: running.at };
            Some((self.id_of(&call.call)?, attempt))
        });
        live.collect()
    }

    fn id_of(&self, call: &str) -> Option<CallId> {
        Handle::parse(call)?.open(self.store.secret(), HandleKind::Call).map(CallId::unpacked)
    }

    fn handle_of(&self, call: CallId) -> String {
        Handle::seal(self.store.secret(), HandleKind::Call, call.packed()).to_string()
    }
}

/// The call of a list below which each nested call stands, however deep.
fn roots(calls: &[ShownCall], nested: &[ShownCall]) -> HashMap<String, String> {
    let mut roots: HashMap<String, String> =
        calls.iter().map(|call| (call.handle(), call.handle())).collect();
    // Each stands behind the one that made it.
    for call in nested {
        if let Some(root) = call.parent().and_then(|parent| roots.get(&parent).cloned()) {
            roots.insert(call.handle(), root);
        }
    }
    roots
}

/// The spans of a call of which nothing is recorded.
fn unrecorded_spans(call: &OpenCall) -> Vec<TimeSpan> {
    let span = |kind, from: Timestamp, to, attempt| TimeSpan {
        kind,
        from,
        to,
        attempt,
        end: None,
        why: None,
        name: None,
    };
    let running = call.running;
    let mut spans = vec![span(SpanKind::Queue, call.opened_at, running.map(|running| running.at), None)];
    spans.extend(
        running.map(|running| span(SpanKind::Attempt, running.at, None, Some(AttemptNo(running.attempt)))),
    );
    spans
}

fn few_tools<'a>(tools: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut few: Vec<String> = Vec::new();
    for tool in tools {
        if few.len() < TOOLS_MAX && !few.iter().any(|known| known == tool) {
            few.push(tool.to_string());
        }
    }
    few
}

//! Looking at what is recorded, without owning anything: lists of calls, one call, its journal as a story.

use crate::answer::{CallAnswer, wall_time};
use crate::error::BatchError;
use crate::session::fold;
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::batch::Batch;
use windlass_core::call::{Fact, Result as Attempted};
use windlass_core::entry::{self, Event};
use windlass_core::handle::{Handle, Kind};
use windlass_core::ids::{BatchNo, CallId, EntryNo, Ordinal};
use windlass_core::outcome::{Outcome, Value};
use windlass_core::time::Timestamp;
use windlass_store::{SessionRow, Store};

/// Journal rows are read in pages of this size.
const ROWS_PAGE: u64 = 256;

/// A recorded call, and where it belongs.
pub struct Recorded {
    /// The session's name.
    pub session: String,
    /// The batch's key.
    pub batch_key: String,
    /// When it was asked for.
    pub opened_at: Timestamp,
    /// The call as callers see it.
    pub answer: CallAnswer,
}

/// One line of a call's story.
pub struct Line {
    /// The entry's number in its session.
    pub entry: EntryNo,
    /// When it was noted.
    pub at: Timestamp,
    /// What kind of fact.
    pub kind: &'static str,
    /// What it says.
    pub text: String,
}

/// The latest calls of a session, newest batch first, at most `limit`.
pub async fn calls(
    store: &Arc<dyn Store>,
    session: &SessionRow,
    limit: usize,
) -> Result<Vec<Recorded>, BatchError> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mut before = None;
    while found.len() < limit {
        let rows = store.history(session.no, before, ROWS_PAGE).await?;
        let Some(last) = rows.last() else { break };
        before = Some(last.first);
        for row in &rows {
            if seen.insert(row.batch) {
                let folded = fold(&store.journal(row.batch).await?)?;
                found.extend(recorded(store, session, (row.batch, &folded)));
            }
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// The call of this handle, and its story. `None`: there is none.
pub async fn call(
    store: &Arc<dyn Store>,
    handle: Handle,
) -> Result<Option<(Recorded, Vec<Line>)>, BatchError> {
    let Some(id) = handle.open(store.secret(), Kind::Call).map(CallId::unpacked) else { return Ok(None) };
    let rows = store.journal(id.batch).await?;
    let Some(session) = rows.first().map(|row| row.session) else { return Ok(None) };
    let Some(session) = store.session_by_no(session).await? else { return Ok(None) };
    let folded = fold(&rows)?;
    let mut lines = Vec::new();
    for row in &rows {
        let entries = entry::unpack(&row.data)
            .map_err(|problem| BatchError::Unreadable { what: problem.to_string() })?;
        for (entry, number) in entries.iter().zip(row.first.0..) {
            lines.extend(line(EntryNo(number), (entry.at, &entry.event), id.ordinal));
        }
    }
    let calls = recorded(store, &session, (id.batch, &folded));
    let found = calls.into_iter().find(|call| call.answer.id == id);
    Ok(found.map(|call| (call, lines)))
}

fn recorded(store: &Arc<dyn Store>, session: &SessionRow, (no, batch): (BatchNo, &Batch)) -> Vec<Recorded> {
    let calls = batch.calls.iter().zip(0..);
    calls
        .map(|(call, place)| Recorded {
            session: session.name.clone(),
            batch_key: batch.opening.key.to_string(),
            opened_at: call.opened_at,
            answer: CallAnswer {
                id: CallId { batch: no, ordinal: Ordinal(place) },
                store: store.clone(),
                call: Arc::new(call.clone()),
                recorded: true,
                conflict: None,
            },
        })
        .collect()
}

fn line(entry: EntryNo, (at, event): (Timestamp, &Event), ordinal: Ordinal) -> Option<Line> {
    let (kind, text) = match event {
        Event::Batch(opening) => ("batch", format!("batch {} was asked for", opening.key)),
        Event::Call { ordinal: of, fact } if *of == ordinal => (fact.kind().as_str(), story(fact)),
        Event::Call { .. } => return None,
    };
    Some(Line { entry, at, kind, text })
}

fn story(fact: &Fact) -> String {
    match fact {
        Fact::Opened(opened) => {
            format!("{} was asked for as {} with {}", opened.tool, opened.id, shorten(&opened.args.text))
        }
        Fact::Prepared(prepared) => {
            format!("the arguments fit; class {}, contract {}", prepared.class, prepared.contract)
        }
        Fact::Started(started) if started.redrive => {
            format!("attempt {} starts, because an earlier one was lost with its owner", started.attempt)
        }
        Fact::Started(started) => format!("attempt {} starts", started.attempt),
        Fact::Lost(lost) => format!("the owner died while attempt {} was running", lost.attempt),
        Fact::Returned(returned) => {
            let ran = format!("attempt {} ran {} ms", returned.attempt, returned.ran_us / 1_000);
            match &returned.result {
                Attempted::Ok(success) => format!("{ran} and returned {}", value(&success.value)),
                Attempted::Failed(failure) => format!("{ran} and failed: {}", shorten(&failure.message)),
            }
        }
        Fact::Stopped(_)
        | Fact::Reconciled(_)
        | Fact::Parked(_)
        | Fact::CancelAsked(_)
        | Fact::Accepted(_)
        | Fact::Resolved(_) => String::new(),
        Fact::Ended(ended) => match &ended.outcome {
            None => "the call is over, as the attempt returned".to_string(),
            Some(Outcome::Failed(failure)) => {
                format!("the call failed with {}: {}", failure.code, shorten(&failure.message))
            }
            Some(Outcome::Unknown) => {
                "it is not known whether the lost attempt took effect, and it must not be repeated"
                    .to_string()
            }
            Some(outcome) => format!("the call is over: {}", outcome.name()),
        },
    }
}

fn value(value: &Value) -> String {
    match value {
        Value::Inline(text) => shorten(text),
        Value::Kept { kept, .. } => format!("{} bytes, kept as artifact {}", kept.bytes, kept.artifact),
    }
}

/// The first line or so of a text, with controls made visible.
fn shorten(text: &str) -> String {
    const SHOWN: usize = 80;
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    shown = shown.replace("\\\"", "\"").replace("\\'", "'");
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

/// How far a later time lies behind an earlier one, for people.
pub fn elapsed(from: Timestamp, to: Timestamp) -> String {
    match to.since(from) {
        us if us < 1_000 => format!("{us} µs"),
        us if us < 1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        us => format!("{:.2} s", us as f64 / 1e6),
    }
}

impl serde::Serialize for Line {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("entry", &self.entry.0)?;
        map.serialize_entry("at", &wall_time(self.at))?;
        map.serialize_entry("kind", self.kind)?;
        map.serialize_entry("text", &self.text)?;
        map.end()
    }
}

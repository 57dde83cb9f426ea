//! The story of a call, with those of the calls inside it below the entries that made them.

use super::Line;
use crate::error::BatchError;
use crate::inside::nested;
use crate::story::story;
use std::future::Future;
use std::pin::Pin;
use windlass_core::batch::{ClosedBy, Opening};
use windlass_core::call::Fact;
use windlass_core::entry::{self, Entry, Event};
use windlass_core::handle::{Handle, Kind};
use windlass_core::ids::{BatchNo, CallId, EntryNo, Lookup, Ordinal, SessionNo};
use windlass_core::operation::Did;
use windlass_core::siblings::Siblings;
use windlass_store::{JournalRow, Store};

/// A story with more lines than this is told without the calls inside that come then.
const LINES_MAX: usize = 2_000;

/// The lines of a call whose batch has these rows.
pub(super) async fn lines(
    store: &dyn Store,
    (session, call): (SessionNo, CallId),
    rows: &[JournalRow],
) -> Result<Vec<Line>, BatchError> {
    let mut telling = Telling { store, session, lines: Vec::new() };
    telling.tell(rows, Part { batch: call.batch, only: Some(call.ordinal), depth: 0 }).await?;
    Ok(telling.lines)
}

struct Telling<'a> {
    store: &'a dyn Store,
    session: SessionNo,
    lines: Vec<Line>,
}

/// What is told of a batch.
#[derive(Clone, Copy)]
struct Part {
    batch: BatchNo,
    /// One call, or all of them.
    only: Option<Ordinal>,
    depth: u32,
}

type Told<'a> = Pin<Box<dyn Future<Output = Result<(), BatchError>> + Send + 'a>>;

impl Telling<'_> {
    fn tell<'a>(&'a mut self, rows: &'a [JournalRow], part: Part) -> Told<'a> {
        Box::pin(async move {
            for row in rows {
                let entries = entry::unpack(&row.data)
                    .map_err(|problem| BatchError::Unreadable { what: problem.to_string() })?;
                for (entry, number) in entries.iter().zip(row.first.0..) {
                    self.lines.extend(self.line(EntryNo(number), entry, part));
                    self.tell_inside(entry, part).await?;
                }
            }
            Ok(())
        })
    }

    /// Tells what was called, if something was.
    async fn tell_inside(&mut self, entry: &Entry, part: Part) -> Result<(), BatchError> {
        let Event::Call { ordinal, fact: Fact::Operation(operation) } = &entry.event else { return Ok(()) };
        let Did::Called { generation } = operation.did else { return Ok(()) };
        if part.only.is_some_and(|only| only != *ordinal) || self.lines.len() > LINES_MAX {
            return Ok(());
        }
        let key = nested::key(self.handle(part.batch, *ordinal), &operation.name, generation);
        let Some(found) = self.store.batch(Lookup::of(self.session, &key)).await? else { return Ok(()) };
        let rows = self.store.journal(found.no).await?;
        self.tell(&rows, Part { batch: found.no, only: None, depth: part.depth + 1 }).await
    }

    fn line(&self, number: EntryNo, entry: &Entry, part: Part) -> Option<Line> {
        let (kind, text, ordinal) = match &entry.event {
            // Of a nested batch the entry that made it has told.
            Event::Batch(opening) if part.depth > 0 && opening.siblings == Siblings::Independent => {
                return None;
            }
            Event::Batch(opening) => ("batch", opening_story(opening), None),
            Event::Closed(by) => ("closed", closed_story(*by).to_string(), None),
            Event::Call { ordinal, .. } if part.only.is_some_and(|only| only != *ordinal) => return None,
            Event::Call { ordinal, fact } => {
                (fact.kind().as_str(), story(fact, self.store.secret()), Some(*ordinal))
            }
        };
        let call = self.handle(part.batch, ordinal.or(part.only).unwrap_or(Ordinal(0)));
        Some(Line { entry: number, at: entry.at, after_us: 0, kind, text, depth: part.depth, call })
    }

    fn handle(&self, batch: BatchNo, ordinal: Ordinal) -> Handle {
        Handle::seal(self.store.secret(), Kind::Call, CallId { batch, ordinal }.packed())
    }
}

fn closed_story(by: ClosedBy) -> &'static str {
    match by {
        ClosedBy::Caller => "the batch was closed by its caller",
        ClosedBy::Idle => "the batch was closed, because nobody had pushed to it for too long",
        ClosedBy::Restart => "the batch was closed, because its owner was gone",
    }
}

fn opening_story(opening: &Opening) -> String {
    let asked = format!("batch {} was asked for", opening.key);
    if opening.siblings == Siblings::Independent {
        return asked;
    }
    format!("{asked}, its calls as {}", opening.siblings)
}

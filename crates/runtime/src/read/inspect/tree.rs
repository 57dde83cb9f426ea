//! The story of a call, with those of its nested calls below the entries that made them.

use super::Line;
use crate::api::error::SessionError;
use crate::api::journal::unreadable;
use crate::api::keys;
use crate::read::story::story;
use crate::tools::place::BatchPlace;
use crate::tools::registry::Registry;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use windlass_core::batch::{ClockMove, ClosedBy, Opening, ProvisionalAnswer};
use windlass_core::call::Fact;
use windlass_core::entry::{self, Entry, EntryEvent};
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::{BatchNo, CallId, EntryNo, Lookup, Ordinal, SessionNo};
use windlass_core::operation::Did;
use windlass_core::redact::{RedactedArgs, SecretNames};
use windlass_core::siblings::Siblings;
use windlass_store::{JournalRow, SessionRow, Store};

/// A story with more lines than this leaves out further nested calls.
const LINES_MAX: usize = 2_000;

/// The lines of a call whose batch has these rows. Tools, if they are known, declare which arguments are secret.
pub(super) async fn lines(
    store: &dyn Store,
    tools: Option<&Registry>,
    session: &SessionRow,
    call: CallId,
    rows: &[JournalRow],
) -> Result<Vec<Line>, SessionError> {
    let name = session.name.as_str().into();
    let place = BatchPlace::new(name, Arc::default(), None);
    let mut telling =
        Telling { store, session: session.no, tools, place, secrets: BTreeMap::new(), lines: Vec::new() };
    telling.tell(rows, TreePart { batch: call.batch, only: Some(call.ordinal), depth: 0 }).await?;
    Ok(telling.lines)
}

struct Telling<'a> {
    store: &'a dyn Store,
    session: SessionNo,
    tools: Option<&'a Registry>,
    /// The surroundings for looking up its tools.
    place: BatchPlace,
    /// The secrets of each call in the story.
    secrets: BTreeMap<CallId, CallSecrets>,
    lines: Vec<Line>,
}

/// The parts of a call that people are not shown.
#[derive(Default)]
struct CallSecrets {
    names: SecretNames,
    args: RedactedArgs,
}

/// The part of a batch in a story.
#[derive(Clone, Copy)]
struct TreePart {
    batch: BatchNo,
    /// One call, or all of them.
    only: Option<Ordinal>,
    depth: u32,
}

type TellFuture<'a> = Pin<Box<dyn Future<Output = Result<(), SessionError>> + Send + 'a>>;

impl Telling<'_> {
    fn tell<'a>(&'a mut self, rows: &'a [JournalRow], part: TreePart) -> TellFuture<'a> {
        Box::pin(async move {
            for row in rows {
                let entries = entry::unpack(&row.data).map_err(|problem| unreadable(row, problem))?;
                for (entry, number) in entries.iter().zip(row.first.0..) {
                    let line = self.line(EntryNo(number), entry, part);
                    self.lines.extend(line);
                    self.tell_inside(entry, part).await?;
                }
            }
            Ok(())
        })
    }

    /// Adds the stories of nested calls, if there are any.
    async fn tell_inside(&mut self, entry: &Entry, part: TreePart) -> Result<(), SessionError> {
        let EntryEvent::Call { ordinal, fact: Fact::Operation(operation) } = &entry.event else {
            return Ok(());
        };
        let Did::Called { generation } = operation.did else { return Ok(()) };
        if part.only.is_some_and(|only| only != *ordinal) || self.lines.len() > LINES_MAX {
            return Ok(());
        }
        let key = keys::nested(self.handle(part.batch, *ordinal), &operation.name, generation);
        let Some(found) = self.store.batch(Lookup::of(self.session, &key)).await? else { return Ok(()) };
        let rows = self.store.journal(found.no).await?;
        self.tell(&rows, TreePart { batch: found.no, only: None, depth: part.depth + 1 }).await
    }

    fn line(&mut self, number: EntryNo, entry: &Entry, part: TreePart) -> Option<Line> {
        let (kind, text, ordinal) = match &entry.event {
            // The entry that made a nested batch has described it.
            EntryEvent::Batch(opening) if part.depth > 0 && opening.siblings == Siblings::Independent => {
                return None;
            }
            EntryEvent::Batch(opening) => ("batch", opening_story(opening), None),
            EntryEvent::Closed(by) => ("closed", closed_story(*by).to_string(), None),
            EntryEvent::ClockMoved(moved) => ("clock_moved", moved_story(*moved), None),
            EntryEvent::Answered(answer) if part.only.is_some_and(|only| !answer.calls.contains(&only)) => {
                return None;
            }
            EntryEvent::Answered(answer) => ("answered", answered_story(answer, part.only.is_some()), None),
            EntryEvent::Call { ordinal, .. } if part.only.is_some_and(|only| only != *ordinal) => {
                return None;
            }
            EntryEvent::Call { ordinal, fact } => {
                let call = CallId { batch: part.batch, ordinal: *ordinal };
                (fact.kind().as_str(), self.story(call, fact), Some(*ordinal))
            }
        };
        let name = match &entry.event {
            EntryEvent::Call { fact: Fact::Operation(operation), .. } => Some(operation.name.to_string()),
            EntryEvent::Call { .. }
            | EntryEvent::Batch(_)
            | EntryEvent::Closed(_)
            | EntryEvent::ClockMoved(_)
            | EntryEvent::Answered(_) => None,
        };
        let call = self.handle(part.batch, ordinal.or(part.only).unwrap_or(Ordinal(0)));
        Some(Line { entry: number, at: entry.at, after_us: 0, kind, name, text, depth: part.depth, call })
    }

    fn story(&mut self, call: CallId, fact: &Fact) -> String {
        if let Fact::Opened(opened) = fact {
            let tool = self.tools.and_then(|tools| tools.known_for(&self.place, opened));
            let names = tool.map(|tool| tool.secret_names.clone()).unwrap_or_default();
            let args = RedactedArgs::of_text(&opened.args.text, &names).into_told();
            self.secrets.insert(call, CallSecrets { names, args });
        }
        let secrets = self.secrets.entry(call).or_default();
        let told = story(fact, self.store.secret(), &secrets.names);
        secrets.args.scrub(&told).into_owned()
    }

    fn handle(&self, batch: BatchNo, ordinal: Ordinal) -> Handle {
        Handle::seal(self.store.secret(), HandleKind::Call, CallId { batch, ordinal }.packed())
    }
}

fn answered_story(answer: &ProvisionalAnswer, is_one: bool) -> String {
    match answer.calls.len() {
        _ if is_one => "its caller was answered before it had ended".to_string(),
        1 => "the caller was answered before 1 call had ended".to_string(),
        calls => format!("the caller was answered before {calls} calls had ended"),
    }
}

fn moved_story(ClockMove { by_us }: ClockMove) -> String {
    let ms = by_us.unsigned_abs() / 1_000;
    match by_us < 0 {
        true => format!("the system clock was set back by {ms} ms"),
        false => format!(
            "the system clock advanced by {ms} ms while no process owned the session, or it was set forward; \
                          deadlines do not count that time"
        ),
    }
}

fn closed_story(by: ClosedBy) -> &'static str {
    match by {
        ClosedBy::Caller => "the batch was closed by its caller",
        ClosedBy::Idle => "the batch was closed, because no call was pushed to it for too long",
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

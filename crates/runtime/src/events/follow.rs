//! Entries become events: each is folded into the batch it belongs to, so an event knows its call.

use super::tell::{self, Outline, Spoken};
use crate::batch::OpenBatch;
use crate::error::BatchError;
use crate::registry::Registry;
use crate::runtime::Inner;
use crate::tool::Place;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use windlass_core::batch::{Batch, Broken};
use windlass_core::call::{Given, Kind, Opened};
use windlass_core::entry::{self, Entry};
use windlass_core::handle::{Handle, Kind as HandleKind, Secret};
use windlass_core::ids::{BatchNo, CallId, EntryNo, Ordinal};
use windlass_core::narration::{Locale, Narration, Speaker, narrate};
use windlass_core::time::Timestamp;
use windlass_store::{JournalRow, SessionRow, Store, StoreError};

/// Journal rows are read in pages of at most so many.
const PAGE_ROWS: u64 = 64;
/// A page ends behind the row with which it has so many events.
const PAGE_EVENTS: usize = 256;
/// Open batches of which a follower remembers where they stand; the others it reads again.
const BATCHES_MAX: usize = 64;

/// One entry that matters, and its call.
#[derive(Clone, Debug)]
pub struct Event {
    /// Where it stands in the journal of its session: whoever continues behind it misses nothing.
    pub cursor: EntryNo,
    /// When it was noted.
    pub at: Timestamp,
    /// What happened.
    pub kind: Kind,
    /// To which call.
    pub subject: Arc<Subject>,
    /// The state of the call from then on.
    pub state: &'static str,
    /// What there is to say of it, by field.
    pub told: Outline,
    /// What people are told, if they are.
    pub(super) spoken: Option<Spoken>,
}

/// A call that is told of.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its handle.
    pub call: Handle,
    /// The model's id of it.
    pub id: Arc<str>,
    /// The session's name.
    pub session: Arc<str>,
    /// The batch's key.
    pub batch: Arc<str>,
    /// The turn of the conversation, if the caller said so.
    pub turn: Option<Arc<str>>,
    /// The call inside which it runs, if it does.
    pub parent: Option<Handle>,
    /// The tool, as it was asked for.
    pub tool: Arc<str>,
    /// The arguments, or their beginning as text.
    pub args: Json,
    /// How many bytes the arguments have, where they are not whole.
    pub args_bytes: Option<u64>,
    /// What people call the tool, if that is known.
    pub title: String,
    narrations: Vec<Narration>,
    /// The arguments that the model wrote as text, where that is JSON.
    read: Option<Json>,
    /// All of this that events say, as it is written.
    pub(super) written: OnceLock<Box<[u8]>>,
}

impl Subject {
    pub(super) fn speaker(&self) -> Speaker<'_> {
        let (tool, title) = (&*self.tool, self.title.as_str());
        Speaker { tool, title, narrations: &self.narrations, args: self.read.as_ref().unwrap_or(&self.args) }
    }
}

impl Event {
    /// What people are told, if they are: not every entry is worth a sentence.
    pub fn narration(&self, locale: Locale) -> Option<String> {
        Some(narrate(self.subject.speaker(), self.spoken.as_ref()?.told(), locale))
    }
}

/// Events that follow each other without a gap.
pub struct Page {
    /// They come behind this entry.
    pub after: EntryNo,
    /// Everything up to this entry is in it, as far as it matters.
    pub end: EntryNo,
    /// In order.
    pub events: Vec<Event>,
    /// Where its batches stand at its end, for whoever reads on first.
    follower: std::sync::Mutex<Option<Follower>>,
    rendered: [OnceLock<Arc<[u8]>>; Locale::ALL.len()],
}

impl Page {
    /// The page as somebody shows it, made once for all who read it in this language.
    pub fn rendered(&self, locale: Locale, render: impl FnOnce(&Page) -> Vec<u8>) -> Arc<[u8]> {
        let place = Locale::ALL.iter().position(|known| *known == locale).unwrap_or_default();
        self.rendered[place].get_or_init(|| render(self).into()).clone()
    }

    pub(super) fn take_follower(&self) -> Option<Follower> {
        self.follower.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }

    /// About how much memory it takes.
    pub(super) fn weight(&self) -> usize {
        let rendered: usize = self.rendered.iter().filter_map(OnceLock::get).map(|text| text.len()).sum();
        rendered + self.events.len() * EVENT_BYTES
    }
}

/// About what an event takes beside its texts.
const EVENT_BYTES: usize = 512;

/// Where events are read from.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) store: &'a Arc<dyn Store>,
    pub(super) session: &'a SessionRow,
    /// What comes behind this entry is not told yet.
    pub(super) upto: EntryNo,
    /// Who knows the tools, if somebody does.
    pub(super) tools: Option<&'a Registry>,
    /// So much of a text is told.
    pub(super) text_bytes_max: u64,
}

/// Reads the events of a session from the record alone, without owning anything.
pub struct Record {
    store: Arc<dyn Store>,
    session: SessionRow,
    follower: Option<Follower>,
    cursor: EntryNo,
}

impl Record {
    /// From behind this entry.
    pub fn new(store: &Arc<dyn Store>, session: SessionRow, after: EntryNo) -> Record {
        Record { store: store.clone(), session, follower: None, cursor: after }
    }

    /// Everything up to here was read.
    pub fn cursor(&self) -> EntryNo {
        self.cursor
    }

    /// The next page; `None` if no more is recorded for now.
    pub async fn next(&mut self) -> Result<Option<Page>, BatchError> {
        let limits = windlass_core::limits::Limits::default();
        let (store, session, upto) = (&self.store, &self.session, EntryNo(u64::MAX));
        let source =
            Source { store, session, upto, tools: None, text_bytes_max: limits.event_text_bytes_max };
        let rows = source.rows(self.cursor).await?;
        let page = source.page(&rows, self.cursor, || self.follower.take()).await?;
        if let Some(page) = &page {
            self.cursor = page.end;
            self.follower = page.take_follower();
        }
        Ok(page)
    }
}

impl Source<'_> {
    /// The rows of the journal behind an entry, as far as they are read at once.
    pub(super) async fn rows(self, after: EntryNo) -> Result<Vec<JournalRow>, BatchError> {
        Ok(self.store.journal_after(self.session.no, after, PAGE_ROWS).await?)
    }

    /// The events of rows behind an entry; `None` if there is none for now. The follower that stands there is asked for only
    /// if there is something.
    pub(super) async fn page(
        self,
        rows: &[JournalRow],
        after: EntryNo,
        follower: impl FnOnce() -> Option<Follower>,
    ) -> Result<Option<Page>, BatchError> {
        let rows = &rows[..rows.partition_point(|row| row.first <= self.upto)];
        if rows.is_empty() {
            return Ok(None);
        }
        let mut follower = follower().unwrap_or_default();
        let (mut events, mut end) = (Vec::new(), after);
        for row in rows {
            events.extend(follower.follow(self, row, after).await?);
            end = EntryNo(row.first.0 + u64::from(row.count) - 1);
            if events.len() >= PAGE_EVENTS {
                break;
            }
        }
        let follower = std::sync::Mutex::new(Some(follower));
        Ok(Some(Page { after, end, events, follower, rendered: Default::default() }))
    }

    pub(super) fn secret(&self) -> &Secret {
        self.store.secret()
    }
}

/// Where the open batches of a session stand at an entry.
#[derive(Default)]
pub(super) struct Follower {
    batches: BTreeMap<BatchNo, Followed>,
}

/// A batch up to one of its rows.
struct Followed {
    batch: Batch,
    rows: u32,
    entries: usize,
    subjects: Vec<Option<Arc<Subject>>>,
}

impl Follower {
    /// Adds a row: the events of those of its entries that come behind `after`.
    async fn follow(
        &mut self,
        source: Source<'_>,
        row: &JournalRow,
        after: EntryNo,
    ) -> Result<Vec<Event>, BatchError> {
        let mut events = Vec::new();
        let known = self.batches.remove(&row.batch).filter(|followed| followed.rows == row.row);
        let mut followed = match known {
            Some(followed) => Some(followed),
            None if row.row == 0 => None,
            None => Followed::read(source, row).await?,
        };
        for (entry, number) in unpack(row)?.into_iter().zip(row.first.0..) {
            let event = match &mut followed {
                None => {
                    followed = Some(Followed::new(&entry, row)?);
                    None
                }
                Some(followed) => followed.add(source, row, (&entry, EntryNo(number)))?,
            };
            events.extend(event.filter(|_| number > after.0));
        }
        if let Some(mut followed) = followed.filter(|followed| followed.batch.is_open()) {
            followed.rows = row.row + 1;
            self.batches.insert(row.batch, followed);
            if self.batches.len() > BATCHES_MAX {
                self.batches.pop_first();
            }
        }
        Ok(events)
    }
}

impl Followed {
    fn new(entry: &Entry, row: &JournalRow) -> Result<Followed, BatchError> {
        let batch = Batch::fold([entry]).map_err(|broken| unreadable(row, broken.to_string()))?;
        Ok(Followed { batch, rows: row.row, entries: 1, subjects: Vec::new() })
    }

    /// The batch of a row, up to that row.
    async fn read(source: Source<'_>, row: &JournalRow) -> Result<Option<Followed>, BatchError> {
        let mut followed: Option<Followed> = None;
        let rows = source.store.journal(row.batch).await?;
        for earlier in rows.iter().filter(|earlier| earlier.row < row.row) {
            for entry in unpack(earlier)? {
                match &mut followed {
                    Some(followed) => followed.fold(&entry, earlier)?,
                    None => followed = Some(Followed::new(&entry, earlier)?),
                }
            }
        }
        Ok(followed)
    }

    fn fold(&mut self, entry: &Entry, row: &JournalRow) -> Result<(), BatchError> {
        let added = self.batch.apply(self.entries, entry);
        self.entries += 1;
        added.map_err(|broken: Broken| unreadable(row, broken.to_string()))
    }

    /// Adds an entry, and tells of it if it matters.
    fn add(
        &mut self,
        source: Source<'_>,
        row: &JournalRow,
        (entry, cursor): (&Entry, EntryNo),
    ) -> Result<Option<Event>, BatchError> {
        self.fold(entry, row)?;
        let entry::Event::Call { ordinal, fact } = &entry.event else { return Ok(None) };
        if !tell::matters(fact) {
            return Ok(None);
        }
        let subject = self.subject(source, CallId { batch: row.batch, ordinal: *ordinal });
        let (Some(subject), Some(call)) = (subject, self.batch.calls.get(usize::from(ordinal.0))) else {
            return Ok(None);
        };
        let (told, spoken) = tell::tell(fact, call, (source.secret(), source.text_bytes_max));
        let state = call.state.name();
        Ok(Some(Event { cursor, at: entry.at, kind: fact.kind(), subject, state, told, spoken }))
    }

    fn subject(&mut self, source: Source<'_>, id: CallId) -> Option<Arc<Subject>> {
        let place = usize::from(id.ordinal.0);
        if self.subjects.len() <= place {
            self.subjects.resize(place + 1, None);
        }
        if self.subjects[place].is_none() {
            self.subjects[place] = self.make_subject(source, id).map(Arc::new);
        }
        self.subjects[place].clone()
    }

    fn make_subject(&self, source: Source<'_>, id: CallId) -> Option<Subject> {
        let opening = &self.batch.opening;
        let asked = &self.batch.calls.get(usize::from(id.ordinal.0))?.opened;
        let place = Place::new(source.session.name.as_str().into(), opening.key.clone(), None);
        let parent = opening.parent.map(|parent| parent.call);
        let named =
            Named { secret: source.secret(), tools: source.tools, text_bytes_max: source.text_bytes_max };
        Some(named.subject((id, parent), (&place, opening.turn.as_deref()), asked))
    }
}

/// Who can say of a call what is not in it.
struct Named<'a> {
    secret: &'a Secret,
    tools: Option<&'a Registry>,
    text_bytes_max: u64,
}

impl Named<'_> {
    fn subject(
        &self,
        (id, parent): (CallId, Option<CallId>),
        (place, turn): (&Place, Option<&str>),
        asked: &Opened,
    ) -> Subject {
        let handle = |call: CallId| Handle::seal(self.secret, HandleKind::Call, call.packed());
        let tool = self.tools.and_then(|tools| tools.known(place, &asked.tool));
        let (args, args_bytes) = match asked.args.given {
            Given::Json => tell::bounded(&asked.args.text, self.text_bytes_max),
            Given::Text => tell::bounded_text(&asked.args.text, self.text_bytes_max),
        };
        let text = args.as_str().filter(|_| args_bytes.is_none());
        let read = text.and_then(|text| serde_json::from_str(text).ok());
        let spec = tool.as_ref().map(|tool| &tool.spec);
        Subject {
            call: handle(id),
            id: Arc::from(&asked.id),
            session: place.session.clone(),
            batch: place.batch_key.clone(),
            turn: turn.map(Arc::from),
            parent: parent.map(handle),
            tool: asked.tool.clone(),
            args,
            args_bytes,
            title: spec.map(|spec| spec.title.clone()).unwrap_or_default(),
            narrations: spec.map(|spec| spec.narration.clone()).unwrap_or_default(),
            read,
            written: OnceLock::new(),
        }
    }
}

impl Subject {
    /// A call that is open here.
    pub(super) fn running(rt: &Inner, batch: &OpenBatch, ordinal: Ordinal) -> Option<Subject> {
        let (head, asked) = (&batch.head, batch.asked_for(ordinal)?);
        let named = Named {
            secret: rt.store.secret(),
            tools: Some(&rt.registry),
            text_bytes_max: rt.limits.event_text_bytes_max,
        };
        let (id, parent) = (CallId { batch: head.no, ordinal }, head.parent.map(|parent| parent.call));
        Some(named.subject((id, parent), (&head.place, head.turn.as_deref()), &asked))
    }
}

fn unpack(row: &JournalRow) -> Result<Vec<Entry>, BatchError> {
    entry::unpack(&row.data).map_err(|problem| unreadable(row, problem.to_string()))
}

fn unreadable(row: &JournalRow, what: String) -> BatchError {
    let (session, entry) = (row.session, row.first);
    StoreError::Damaged { session, entry: entry.0, what }.into()
}

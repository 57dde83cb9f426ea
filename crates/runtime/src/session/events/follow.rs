//! Turns entries into events: each is folded into its batch, so an event knows its call.

use super::tell::{self, Outline, Spoken};
use crate::api::error::SessionError;
use crate::api::journal::unreadable;
use crate::api::locks::{LockRank, OrderedMutex};
use crate::session::batch::OpenBatch;
use crate::session::inner::{Inner, Runtime};
use crate::tools::place::BatchPlace;
use crate::tools::registry::Registry;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use windlass_core::batch::{Batch, Broken};
use windlass_core::call::{Kind, Opened};
use windlass_core::entry::{self, Entry};
use windlass_core::handle::{Handle, HandleKind, Secret};
use windlass_core::ids::{BatchNo, CallId, EntryNo, Ordinal};
use windlass_core::narration::{Locale, Narration, Narrator, Speaker, narrate};
use windlass_core::redact::{RedactedArgs, SecretNames};
use windlass_core::time::Timestamp;
use windlass_store::{JournalRow, SessionRow, Store};

/// The maximum number of journal rows read at once.
const PAGE_ROWS: u64 = 64;
/// A page ends after the row that brings it to this many events.
const PAGE_EVENTS: usize = 256;
/// The number of open batches whose state a follower remembers; the others are read again.
const BATCHES_MAX: usize = 64;

/// A relevant entry, with its call.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its position in the journal of its session: continuing after it misses nothing.
    pub cursor: EntryNo,
    /// When it was noted.
    pub at: Timestamp,
    /// Its kind.
    pub kind: Kind,
    /// Its call.
    pub subject: Arc<Subject>,
    /// The state of the call from then on.
    pub state: &'static str,
    /// Its details, by field.
    pub told: Outline,
    /// The sentence for people, if there is one.
    pub(super) spoken: Option<Spoken>,
}

/// The call of an event.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its handle.
    pub call: Handle,
    /// The model's id of the call.
    pub id: Arc<str>,
    /// The session's name.
    pub session: Arc<str>,
    /// The batch's key.
    pub batch: Arc<str>,
    /// The turn of the conversation, if the caller gave one.
    pub turn: Option<Arc<str>>,
    /// The call that made it, if it is nested.
    pub parent: Option<Handle>,
    /// The tool, as requested.
    pub tool: Arc<str>,
    /// The arguments, with their secrets masked, or their beginning as text.
    pub args: Json,
    /// The size of the arguments, where they are cut.
    pub args_bytes: Option<u64>,
    /// The title of the tool, if it is known.
    pub title: String,
    narrations: Vec<Narration>,
    narrator: Option<Narrator>,
    /// The arguments for sentences, and the secrets to mask.
    pub(super) redacted: RedactedArgs,
    /// The number of the call.
    pub(super) number: CallId,
    /// The serialised part that all its events share.
    pub(super) written: OnceLock<Box<[u8]>>,
}

impl Subject {
    pub(super) fn speaker(&self) -> Speaker<'_> {
        let (tool, title) = (&*self.tool, self.title.as_str());
        let narrator = self.narrator.as_ref();
        Speaker { tool, title, narrations: &self.narrations, narrator, args: &self.redacted }
    }
}

impl Event {
    /// The sentence for people, if there is one: not every entry is worth a sentence.
    pub fn narration(&self, locale: Locale) -> Option<String> {
        Some(narrate(self.subject.speaker(), self.spoken.as_ref()?.narrative(), locale))
    }
}

/// Consecutive events without a gap.
pub struct Page {
    /// The entry before them.
    pub after: EntryNo,
    /// The last of the entries after that one whose batches have expired, if there are such: nothing is known of them any more.
    pub expired: Option<EntryNo>,
    /// Everything relevant up to this entry is in it.
    pub end: EntryNo,
    /// In order.
    pub events: Vec<Event>,
    /// The state of its batches at its end, for the first reader that continues.
    follower: OrderedMutex<Option<Follower>, { LockRank::Follower as u8 }>,
    rendered: [OnceLock<Arc<[u8]>>; Locale::ALL.len()],
}

impl Page {
    /// The rendered page, made once for all readers in this language. A language without messages, and
    /// without sentences of the page's tools, is English.
    pub fn rendered(&self, locale: Locale, render: impl FnOnce(&Page) -> Vec<u8>) -> Arc<[u8]> {
        let is_spoken = || {
            let mut narrations = self.events.iter().flat_map(|event| &event.subject.narrations);
            let has_narrator = self.events.iter().any(|event| event.subject.narrator.is_some());
            has_narrator || narrations.any(|narration| narration.locale == locale)
        };
        match Locale::ALL.iter().position(|known| *known == locale) {
            None if is_spoken() => render(self).into(),
            place => self.rendered[place.unwrap_or_default()].get_or_init(|| render(self).into()).clone(),
        }
    }

    pub(super) fn take_follower(&self) -> Option<Follower> {
        self.follower.lock().take()
    }

    /// Its approximate size in memory.
    pub(super) fn weight(&self) -> usize {
        let rendered: usize = self.rendered.iter().filter_map(OnceLock::get).map(|text| text.len()).sum();
        rendered + self.events.len() * EVENT_BYTES
    }
}

/// The approximate size of an event without its texts.
const EVENT_BYTES: usize = 512;

/// The source of events.
#[derive(Clone, Copy)]
pub(super) struct EventSource<'a> {
    pub(super) store: &'a Arc<dyn Store>,
    pub(super) session: &'a SessionRow,
    /// Entries after this one are not delivered yet.
    pub(super) upto: EntryNo,
    /// The tools, if they are known.
    pub(super) tools: Option<&'a Registry>,
    /// The maximum length of a text.
    pub(super) text_bytes_max: u64,
}

/// Reads the events of a session from the record alone, without owning anything.
pub struct Record {
    store: Arc<dyn Store>,
    session: SessionRow,
    follower: Option<Follower>,
    cursor: EntryNo,
    tools: Option<Runtime>,
}

impl Record {
    /// Starts after this entry.
    pub fn new(store: &Arc<dyn Store>, session: SessionRow, after: EntryNo) -> Record {
        Record { store: store.clone(), session, follower: None, cursor: after, tools: None }
    }

    /// Renders calls as a runtime with these tools would: with their titles and sentences, without their secrets.
    pub fn with_tools(self, runtime: &Runtime) -> Record {
        Record { tools: Some(runtime.clone()), ..self }
    }

    /// Everything up to here was read.
    pub fn cursor(&self) -> EntryNo {
        self.cursor
    }

    /// The next page; `None` if no more is recorded yet.
    pub async fn next(&mut self) -> Result<Option<Page>, SessionError> {
        let limits = crate::api::limits::Limits::default();
        let (store, session, upto) = (&self.store, &self.session, EntryNo(u64::MAX));
        let tools = self.tools.as_ref().map(|runtime| &*runtime.0.registry);
        let source = EventSource { store, session, upto, tools, text_bytes_max: limits.event_text_bytes_max };
        let rows = source.rows(self.cursor).await?;
        let page = source.page(&rows, self.cursor, || self.follower.take()).await?;
        if let Some(page) = &page {
            self.cursor = page.end;
            self.follower = page.take_follower();
        }
        Ok(page)
    }
}

impl EventSource<'_> {
    /// The journal rows after an entry, as far as they are read at once.
    pub(super) async fn rows(self, after: EntryNo) -> Result<Vec<JournalRow>, SessionError> {
        Ok(self.store.journal_after(self.session.no, after, PAGE_ROWS).await?)
    }

    /// The events of the rows after an entry; `None` if there are none yet. `follower` is called only if
    /// there are rows.
    pub(super) async fn page(
        self,
        rows: &[JournalRow],
        after: EntryNo,
        follower: impl FnOnce() -> Option<Follower>,
    ) -> Result<Option<Page>, SessionError> {
        let rows = &rows[..rows.partition_point(|row| row.first <= self.upto)];
        if rows.is_empty() {
            return Ok(self.all_expired(after));
        }
        let mut follower = follower().unwrap_or_default();
        let (mut events, mut end) = (Vec::new(), after);
        let before = EntryNo(rows[0].first.0.saturating_sub(1));
        let expired = Some(before).filter(|before| *before > after);
        for row in rows {
            // A page says what expired before it, and nothing expired within it.
            if end > after && row.first.0 > end.0 + 1 {
                break;
            }
            events.extend(follower.follow(self, row, after).await?);
            end = EntryNo(row.first.0 + u64::from(row.count) - 1);
            if events.len() >= PAGE_EVENTS {
                break;
            }
        }
        let follower = OrderedMutex::new(Some(follower));
        Ok(Some(Page { after, expired, end, events, follower, rendered: Default::default() }))
    }

    /// The page of entries after this one that have all expired; `None` if there are no such entries. The session was read before
    /// its rows, so none of these entries is newer than the rows.
    fn all_expired(self, after: EntryNo) -> Option<Page> {
        let end = self.session.head.min(self.upto);
        let (events, follower, rendered) = (Vec::new(), OrderedMutex::default(), Default::default());
        (end > after).then_some(Page { after, expired: Some(end), end, events, follower, rendered })
    }

    pub(super) fn secret(&self) -> &Secret {
        self.store.secret()
    }
}

/// The state of a session's open batches at an entry.
#[derive(Default)]
pub(super) struct Follower {
    batches: BTreeMap<BatchNo, FollowedBatch>,
}

/// A batch up to one of its rows.
struct FollowedBatch {
    batch: Batch,
    rows: u32,
    entries: usize,
    subjects: Vec<Option<Arc<Subject>>>,
}

impl Follower {
    /// Adds a row: returns the events of its entries after `after`.
    async fn follow(
        &mut self,
        source: EventSource<'_>,
        row: &JournalRow,
        after: EntryNo,
    ) -> Result<Vec<Event>, SessionError> {
        let mut events = Vec::new();
        let known = self.batches.remove(&row.batch).filter(|followed| followed.rows == row.row);
        let mut followed = match known {
            Some(followed) => Some(followed),
            None if row.row == 0 => None,
            None => match FollowedBatch::read(source, row).await? {
                Some(followed) => Some(followed),
                // It expired after this row was read.
                None => return Ok(events),
            },
        };
        for (entry, number) in unpack(row)?.into_iter().zip(row.first.0..) {
            let event = match &mut followed {
                None => {
                    followed = Some(FollowedBatch::new(&entry, row)?);
                    None
                }
                Some(followed) => followed.add(source, row, &entry, EntryNo(number))?,
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

impl FollowedBatch {
    fn new(entry: &Entry, row: &JournalRow) -> Result<FollowedBatch, SessionError> {
        let batch = Batch::fold([entry]).map_err(|broken| unreadable(row, broken))?;
        Ok(FollowedBatch { batch, rows: row.row, entries: 1, subjects: Vec::new() })
    }

    /// The batch of a row, up to that row.
    async fn read(source: EventSource<'_>, row: &JournalRow) -> Result<Option<FollowedBatch>, SessionError> {
        let mut followed: Option<FollowedBatch> = None;
        let rows = source.store.journal(row.batch).await?;
        for earlier in rows.iter().filter(|earlier| earlier.row < row.row) {
            for entry in unpack(earlier)? {
                match &mut followed {
                    Some(followed) => followed.fold(&entry, earlier)?,
                    None => followed = Some(FollowedBatch::new(&entry, earlier)?),
                }
            }
        }
        Ok(followed)
    }

    fn fold(&mut self, entry: &Entry, row: &JournalRow) -> Result<(), SessionError> {
        let added = self.batch.apply(self.entries, entry);
        self.entries += 1;
        added.map_err(|broken: Broken| unreadable(row, broken))
    }

    /// Adds an entry, and returns its event if it is relevant.
    fn add(
        &mut self,
        source: EventSource<'_>,
        row: &JournalRow,
        entry: &Entry,
        cursor: EntryNo,
    ) -> Result<Option<Event>, SessionError> {
        self.fold(entry, row)?;
        let entry::EntryEvent::Call { ordinal, fact } = &entry.event else { return Ok(None) };
        if !tell::matters(fact) {
            return Ok(None);
        }
        let subject = self.subject(source, CallId { batch: row.batch, ordinal: *ordinal });
        let (Some(subject), Some(call)) = (subject, self.batch.calls.get(usize::from(ordinal.0))) else {
            return Ok(None);
        };
        let (mut told, spoken) = tell::tell(fact, call, source.secret(), source.text_bytes_max);
        told.scrub(&subject.redacted);
        let state = call.state.name();
        Ok(Some(Event { cursor, at: entry.at, kind: fact.kind(), subject, state, told, spoken }))
    }

    fn subject(&mut self, source: EventSource<'_>, id: CallId) -> Option<Arc<Subject>> {
        let place = usize::from(id.ordinal.0);
        if self.subjects.len() <= place {
            self.subjects.resize(place + 1, None);
        }
        if self.subjects[place].is_none() {
            self.subjects[place] = self.make_subject(source, id).map(Arc::new);
        }
        self.subjects[place].clone()
    }

    fn make_subject(&self, source: EventSource<'_>, id: CallId) -> Option<Subject> {
        let opening = &self.batch.opening;
        let asked = &self.batch.calls.get(usize::from(id.ordinal.0))?.opened;
        let place = BatchPlace::new(source.session.name.as_str().into(), opening.key.clone(), None);
        let parent = opening.parent.map(|parent| parent.call);
        let named =
            CallNames { secret: source.secret(), tools: source.tools, text_bytes_max: source.text_bytes_max };
        Some(named.subject(id, parent, &place, opening.turn.as_deref(), asked))
    }
}

/// Sources of names for a call.
struct CallNames<'a> {
    secret: &'a Secret,
    tools: Option<&'a Registry>,
    text_bytes_max: u64,
}

impl CallNames<'_> {
    fn subject(
        &self,
        id: CallId,
        parent: Option<CallId>,
        place: &BatchPlace,
        turn: Option<&str>,
        asked: &Opened,
    ) -> Subject {
        let handle = |call: CallId| Handle::seal(self.secret, HandleKind::Call, call.packed());
        let tool = self.tools.and_then(|tools| tools.known(place, &asked.tool));
        let unknown = SecretNames::default();
        let names = tool.as_ref().map_or(&unknown, |tool| &tool.secret_names);
        let (redacted, (args, args_bytes)) = tell::arguments(&asked.args, names, self.text_bytes_max);
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
            narrator: spec.and_then(|spec| spec.narrator.clone()),
            redacted,
            number: id,
            written: OnceLock::new(),
        }
    }
}

impl Subject {
    /// The subject for a call that is open here.
    pub(super) fn running(rt: &Inner, batch: &OpenBatch, ordinal: Ordinal) -> Option<Subject> {
        let (head, asked) = (&batch.head, batch.asked_for(ordinal)?);
        let named = CallNames {
            secret: rt.store.secret(),
            tools: Some(&rt.registry),
            text_bytes_max: rt.limits.event_text_bytes_max,
        };
        let (id, parent) = (CallId { batch: head.no, ordinal }, head.parent.map(|parent| parent.call));
        Some(named.subject(id, parent, &head.place, head.turn.as_deref(), &asked))
    }
}

fn unpack(row: &JournalRow) -> Result<Vec<Entry>, SessionError> {
    entry::unpack(&row.data).map_err(|problem| unreadable(row, problem))
}

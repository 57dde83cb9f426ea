//! The bells of sessions, and the pages that their readers share.
//!
//! A session without readers pays one relaxed load per commit. While it has some, a task of the runtime hears
//! of commits and of reports of running calls, reads the new entries, and rings for all readers at once, at
//! most every `event_frame_ms` or so: readers that keep up find their page made.

use super::changed::ChangeMarks;
use super::follow::{Event, EventSource, Follower, Page, Subject};
use super::frames::{LastFrames, OUTPUT_BYTES_MAX, WORDS_MAX};
use super::recent::{EntryRows, Recent};
use super::{RunningAttempt, Words};
use crate::api::error::SessionError;
use crate::api::locks::{LockRank, OrderedMutex};
use crate::api::polling::poll_once;
use crate::api::progress::Progress;
use crate::session::batch::VisibleCall;
use crate::session::inner::Inner;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use windlass_core::call::Kind;
use windlass_core::ids::{CallId, EntryNo, SessionNo};
use windlass_store::SessionRow;

/// How many pages are kept for later readers.
const PAGES_MAX: usize = 16;
/// Their maximum total size.
const PAGES_BYTES_MAX: usize = 8 << 20;
/// The number of beats in a pause.
const BEATS: u64 = 2;

/// The feeds of all sessions that are owned or followed here.
#[derive(Default)]
pub(crate) struct Feeds {
    known: OrderedMutex<FeedNames, { LockRank::FeedNames as u8 }>,
    /// The number of followers.
    pub(crate) readers: AtomicU64,
    /// The sessions that have changed, for those that follow all.
    pub(crate) marks: Arc<ChangeMarks>,
}

#[derive(Default)]
struct FeedNames {
    by_name: HashMap<Arc<str>, Weak<Feed>>,
    /// At this many names, those of dropped feeds are swept out.
    sweep_at: usize,
}

/// The minimum number of names for a sweep.
const SWEEP_MIN: usize = 64;

impl Feeds {
    /// The feed of a session, whether it exists or not.
    pub(crate) fn feed(&self, name: &str) -> Arc<Feed> {
        let mut known = self.known.lock();
        if let Some(feed) = known.by_name.get(name).and_then(Weak::upgrade) {
            return feed;
        }
        if known.by_name.len() >= known.sweep_at {
            known.by_name.retain(|_, feed| feed.strong_count() > 0);
            known.sweep_at = SWEEP_MIN.max(2 * known.by_name.len());
        }
        let feed = Arc::new(Feed::new(name.into(), self.marks.clone()));
        known.by_name.insert(feed.name.clone(), Arc::downgrade(&feed));
        feed
    }

    /// A session is removed: its followers have seen its end, and a follower of the same name from now on
    /// follows another.
    pub(crate) fn remove(&self, name: &str) {
        let feed = self.known.lock().by_name.remove(name);
        self.marks.mark(&name.into());
        if let Some(feed) = feed.as_ref().and_then(Weak::upgrade) {
            feed.ring.send_modify(|ring| ring.over = true);
        }
    }

    /// The runtime ends, and so do all followers.
    pub(crate) fn end(&self) {
        let feeds: Vec<_> = self.known.lock().by_name.values().filter_map(Weak::upgrade).collect();
        for feed in feeds {
            feed.ring.send_modify(|ring| ring.over = true);
        }
    }
}

/// The signal that wakes readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReaderRing {
    /// The last entry seen.
    pub(super) head: EntryNo,
    /// Counts reports of running calls.
    words: u64,
    /// Counts notices for the session's agent.
    pub(super) notices: u64,
    /// The store did not return the session's position: readers find out why.
    pub(super) trouble: bool,
    /// No more will come.
    pub(super) over: bool,
}

/// The events of one session, for all its followers.
pub(crate) struct Feed {
    name: Arc<str>,
    marks: Arc<ChangeMarks>,
    /// The number of followers: read with every commit.
    readers: AtomicU32,
    /// Notifies the ringer.
    happened: Notify,
    ring: watch::Sender<ReaderRing>,
    /// The ringer task, while there are followers.
    ringer: OrderedMutex<Option<AbortHandle>, { LockRank::Ringer as u8 }>,
    pages: OrderedMutex<VecDeque<Arc<Page>>, { LockRank::Pages as u8 }>,
    /// Held while reading the journal, so that only one of several readers makes a page.
    reading: tokio::sync::Mutex<()>,
    said: OrderedMutex<FeedNews, { LockRank::FeedNews as u8 }>,
    /// Rows written while there are followers.
    recent: OrderedMutex<Recent, { LockRank::Recent as u8 }>,
    /// The session, once it was seen.
    session: OnceLock<SessionRow>,
}

/// Reports of running calls, and their starts.
#[derive(Default)]
struct FeedNews {
    /// Since the last ring.
    new: BTreeMap<CallId, New>,
    /// The last reports.
    last: LastFrames,
    /// Running attempts whose start is not recorded.
    running: LastFrames,
    /// The number of rings for frames.
    count: u64,
}

#[derive(Default)]
struct New {
    running: Option<RunningAttempt>,
    progress: Option<Progress>,
    status: Option<String>,
    output: Vec<u8>,
}

impl FeedNews {
    /// The start of an attempt has a cursor from now on, and so have those before it. An attempt that began after it has none.
    fn recorded(&mut self, event: &Event) {
        let attempt = event.told.get("attempt").and_then(serde_json::Value::as_u64).unwrap_or(u64::MAX);
        let is_recorded = |running: &RunningAttempt| u64::from(running.attempt) <= attempt;
        if self.running.running(&event.subject.call).as_ref().is_some_and(is_recorded) {
            self.running.remove(&event.subject.call);
        }
        if let Some(new) = self.new.get_mut(&event.subject.number) {
            new.running = new.running.filter(|running| !is_recorded(running));
        }
    }
}

impl Feed {
    fn new(name: Arc<str>, marks: Arc<ChangeMarks>) -> Feed {
        let (ring, _) = watch::channel(ReaderRing {
            head: EntryNo(0),
            words: 0,
            notices: 0,
            trouble: false,
            over: false,
        });
        Feed {
            name,
            marks,
            readers: AtomicU32::new(0),
            happened: Notify::new(),
            ring,
            ringer: OrderedMutex::default(),
            pages: OrderedMutex::default(),
            reading: tokio::sync::Mutex::default(),
            said: OrderedMutex::default(),
            recent: OrderedMutex::default(),
            session: OnceLock::new(),
        }
    }

    /// Whether there are followers.
    pub(crate) fn is_followed(&self) -> bool {
        self.readers.load(Ordering::Relaxed) > 0
    }

    /// Something of the session changed that is not recorded: calls were asked for, or one runs.
    pub(crate) fn changed(&self) {
        self.marks.mark(&self.name);
    }

    /// Entries of the session became durable, numbered from this one on.
    pub(crate) fn committed(&self, session: SessionNo, first: EntryNo, written: Option<EntryRows>) {
        self.changed();
        if !self.is_followed() {
            return;
        }
        if let Some(written) = written {
            let mut recent = self.recent.lock();
            written.numbered(session, first).for_each(|row| recent.add(row));
        }
        self.happened.notify_one();
    }

    /// The session's position by the rows written here; `None`: the store knows better.
    fn written(&self) -> Option<SessionRow> {
        let head = self.recent.lock().head(self.ring.borrow().head)?;
        self.session.get().map(|session| SessionRow { head, ..session.clone() })
    }

    /// Reports that so many notices for the session's agent are durable.
    pub(crate) fn noticed(&self, notices: u64) {
        self.changed();
        self.ring.send_modify(|ring| ring.notices += notices);
    }

    /// Reports that an attempt runs whose start is not recorded yet.
    pub(crate) fn running(&self, call: CallId, running: RunningAttempt) {
        self.say(call, |new| new.running = Some(running));
    }

    /// Reports the progress of a running call.
    pub(crate) fn progress(&self, call: CallId, progress: &Progress) {
        self.say(call, |new| new.progress = Some(progress.clone()));
    }

    /// Reports the status of a running call.
    pub(crate) fn status(&self, call: CallId, status: &str) {
        self.say(call, |new| new.status = Some(status.to_string()));
    }

    /// Reports output of a running call.
    pub(crate) fn output(&self, call: CallId, bytes: &[u8]) {
        self.say(call, |new| {
            let bytes = &bytes[bytes.len().saturating_sub(OUTPUT_BYTES_MAX)..];
            let excess = (new.output.len() + bytes.len()).saturating_sub(OUTPUT_BYTES_MAX);
            new.output.drain(..excess);
            new.output.extend(bytes);
        });
    }

    fn say(&self, call: CallId, add: impl FnOnce(&mut New)) {
        self.changed();
        if !self.is_followed() {
            return;
        }
        let mut said = self.said.lock();
        if said.new.len() >= WORDS_MAX && !said.new.contains_key(&call) {
            return;
        }
        add(said.new.entry(call).or_default());
        drop(said);
        self.happened.notify_one();
    }

    /// Adds a follower. The first one starts the ringer.
    pub(super) fn join(self: &Arc<Feed>, rt: &Arc<Inner>) -> watch::Receiver<ReaderRing> {
        let mut ringer = self.ringer.lock();
        self.readers.fetch_add(1, Ordering::SeqCst);
        let is_first = ringer.is_none();
        if is_first {
            let pause_us = rt.limits.event_frame_ms.saturating_mul(1_000);
            let looks = Duration::from_millis(rt.limits.event_look_ms);
            let ringing = rt.tasks.spawn(ring(Arc::downgrade(rt), self.clone(), pause_us, looks));
            *ringer = Some(ringing.abort_handle());
        }
        drop(ringer);
        if is_first {
            self.tell_running(rt);
        }
        self.ring.subscribe()
    }

    /// Reports running attempts. An attempt that begins meanwhile is seen here or sees the follower: both
    /// look under the lock of its batch.
    fn tell_running(&self, rt: &Inner) {
        let Some(session) = rt.owned_session(&self.name) else { return };
        for batch in session.open_batches() {
            let mut found = Vec::new();
            batch.look(|ordinal, seen| {
                if let VisibleCall::Driven(_, _, Some(signal)) = seen {
                    let call = CallId { batch: batch.head.no, ordinal };
                    found.push((call, signal.unrecorded(&*rt.clock), signal.last_words()));
                }
            });
            for (call, running, (progress, status)) in found {
                if running.is_none() && progress.is_none() && status.is_none() {
                    continue;
                }
                self.say(call, |new| {
                    new.running = new.running.or(running);
                    new.progress = new.progress.take().or(progress);
                    new.status = new.status.take().or(status);
                });
            }
        }
    }

    /// Removes a follower. The last one leaves nothing behind.
    pub(super) fn leave(&self) {
        let mut ringer = self.ringer.lock();
        if self.readers.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        if let Some(ringing) = ringer.take() {
            ringing.abort();
        }
        let mut said = self.said.lock();
        // The count continues, or the next reader would miss a ring with the same number.
        *said = FeedNews { count: said.count, ..FeedNews::default() };
        drop(said);
        *self.recent.lock() = Recent::default();
        self.pages.lock().clear();
    }

    /// The session was seen with this head.
    pub(super) fn saw(&self, head: EntryNo) {
        self.ring.send_if_modified(|ring| {
            let news = head > ring.head;
            ring.head = ring.head.max(head);
            news
        });
    }

    /// The page after an entry: as another reader made it, or from the journal.
    pub(super) async fn page(&self, rt: &Inner, after: EntryNo) -> Result<Option<Arc<Page>>, SessionError> {
        if let Some(page) = self.known(after) {
            return Ok(Some(page));
        }
        let reading = self.start_reading().await;
        if let Some(page) = self.known(after) {
            return Ok(Some(page));
        }
        let Some(session) = rt.store.session(&self.name).await? else { return Ok(None) };
        // Not further than the ring: so all readers that keep up are at the same entry, and share the next page.
        let upto = self.ring.borrow().head;
        reading.read(rt, &session, after, upto).await
    }

    /// Reads new entries for all readers that keep up, before it rings. If they cannot be read, the readers find out themselves.
    async fn read_ahead(&self, rt: &Inner, session: &SessionRow) {
        let reading = self.start_reading().await;
        let after = self.ring.borrow().head;
        if after < session.head && self.known(after).is_none() {
            let _ = reading.read(rt, session, after, session.head).await;
        }
    }

    fn known(&self, after: EntryNo) -> Option<Arc<Page>> {
        self.pages.lock().iter().find(|page| page.after == after).cloned()
    }

    /// Waits until nobody else reads the journal.
    async fn start_reading(&self) -> PageReading<'_> {
        PageReading { feed: self, _held: self.reading.lock().await }
    }

    /// Drops reports of attempts that are over.
    fn fall_silent(&self, page: &Page) {
        let mut said = self.said.lock();
        if said.last.is_empty() && said.running.is_empty() && said.new.is_empty() {
            return;
        }
        for event in &page.events {
            let is_end = is_end_of_attempt(event.kind);
            if is_end {
                said.last.remove(&event.subject.call);
            }
            if is_end || event.kind == Kind::Started {
                said.recorded(event);
            }
            if event.kind == Kind::Ended {
                // It may have reported something right before that, without a ring yet.
                said.new.remove(&event.subject.number);
            }
        }
    }

    /// The frames since the last look.
    pub(super) fn words_since(&self, heard: &mut u64) -> Vec<Arc<Words>> {
        let said = self.said.lock();
        let since = std::mem::replace(heard, said.count);
        if since == said.count {
            return Vec::new();
        }
        said.running.since(since).chain(said.last.since(since)).collect()
    }

    /// Makes frames of the reports since the last ring; returns the number of rings for frames so far.
    fn gather(&self, rt: &Inner) -> u64 {
        let new = std::mem::take(&mut self.said.lock().new);
        let words: Vec<_> = new.into_iter().flat_map(|(call, new)| self.words(rt, call, new)).collect();
        let mut said = self.said.lock();
        if !words.is_empty() {
            said.count += 1;
        }
        let count = said.count;
        for words in words {
            let frames = if words.running.is_some() { &mut said.running } else { &mut said.last };
            frames.add(count, words);
        }
        count
    }

    /// The frames of a call: that it runs, and its reports.
    fn words(&self, rt: &Inner, call: CallId, new: New) -> Vec<Words> {
        let batch = rt.owned_session(&self.name).and_then(|session| session.find_no(call.batch));
        // Its end may be on its way to the readers.
        let batch = batch.filter(|batch| !batch.has_ended(call.ordinal));
        let subject = batch.and_then(|batch| Subject::running(rt, &batch, call.ordinal));
        let Some(subject) = subject.map(Arc::new) else { return Vec::new() };
        let scrub = |text: String| subject.redacted.scrub(&text).into_owned();
        let output = String::from_utf8_lossy(&new.output).into_owned();
        let said = Words {
            subject: subject.clone(),
            running: None,
            progress: new.progress.map(|said| Progress {
                unit: said.unit.map(scrub),
                label: said.label.map(scrub),
                ..said
            }),
            status: new.status.map(scrub),
            output: (!output.is_empty()).then(|| scrub(output)),
        };
        let says = said.progress.is_some() || said.status.is_some() || said.output.is_some();
        let running = new.running.map(|_| Words {
            subject: subject.clone(),
            running: new.running,
            progress: None,
            status: None,
            output: None,
        });
        running.into_iter().chain(says.then_some(said)).collect()
    }
}

/// The right to read the journal for pages, until this is dropped: of all who want a page one makes it.
struct PageReading<'a> {
    feed: &'a Feed,
    _held: tokio::sync::MutexGuard<'a, ()>,
}

impl PageReading<'_> {
    /// Makes the page behind an entry, up to another.
    async fn read(
        &self,
        rt: &Inner,
        session: &SessionRow,
        after: EntryNo,
        upto: EntryNo,
    ) -> Result<Option<Arc<Page>>, SessionError> {
        let feed = self.feed;
        let tools = Some(&*rt.registry);
        let (store, text_bytes_max) = (&rt.store, rt.limits.event_text_bytes_max);
        let source = EventSource { store, session, upto, tools, text_bytes_max };
        let recent = feed.recent.lock().take(after, upto);
        let rows = if recent.is_empty() { source.rows(after).await? } else { recent };
        let page = source.page(&rows, after, || before(&feed.pages.lock(), after)).await?;
        let Some(page) = page.map(Arc::new) else { return Ok(None) };
        // What did not fit into the page is for the next one.
        let behind = rows.into_iter().filter(|row| row.first > page.end && row.first <= upto);
        behind.for_each(|row| feed.recent.lock().add(row));
        feed.fall_silent(&page);
        let mut pages = feed.pages.lock();
        pages.push_back(page.clone());
        while pages.len() > PAGES_MAX
            || pages.iter().map(|page| page.weight()).sum::<usize>() > PAGES_BYTES_MAX
        {
            pages.pop_front();
        }
        Ok(Some(page))
    }
}

/// The state of the batches at the end of the page before.
fn before(pages: &VecDeque<Arc<Page>>, after: EntryNo) -> Option<Follower> {
    pages.iter().find(|page| page.end == after).and_then(|page| page.take_follower())
}

fn is_end_of_attempt(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Returned
            | Kind::Stopped
            | Kind::Lost
            | Kind::Suspended
            | Kind::Unconnected
            | Kind::Ended
            | Kind::CopyFound
    )
}

/// Rings when something happened, and then at its next [`Beat`] at the earliest; looks by itself after `looks`.
async fn ring(rt: Weak<Inner>, feed: Arc<Feed>, pause_us: u64, looks: Duration) {
    let mut beat = Beat::default();
    loop {
        // Without a notification it is a write of another process, or a commit that was not waited for.
        let was_due = poll_once(pin!(feed.happened.notified())).await.is_some();
        let told = was_due || tokio::time::timeout(looks, feed.happened.notified()).await.is_ok();
        let Some(rt) = rt.upgrade() else { return };
        let clock = rt.clock.clone();
        let words = feed.gather(&rt);
        let row = match feed.written().filter(|_| told) {
            Some(written) => Ok(Some(written)),
            None => rt.store.session(&feed.name).await,
        };
        if let Ok(Some(session)) = &row {
            feed.session.get_or_init(|| session.clone());
            feed.read_ahead(&rt, session).await;
        }
        drop(rt);
        feed.ring.send_if_modified(|ring| {
            let before = *ring;
            match &row {
                Ok(row) => ring.head = row.as_ref().map_or(ring.head, |row| row.head.max(ring.head)),
                Err(_) => ring.trouble = true,
            }
            ring.words = words;
            *ring != before
        });
        tokio::time::sleep(beat.next(pause_us, clock.elapsed_us(), was_due)).await;
    }
}

/// When a busy session rings next: sessions that ring together cost less than sessions that wake their
/// readers one after the other, so all follow the beats of the runtime's clock.
#[derive(Default)]
struct Beat {
    /// When the last ring was due.
    due_us: u64,
}

impl Beat {
    /// After a ring: the time until the first beat after the pause. A ring that was due is not late by the
    /// time that ringing took.
    fn next(&mut self, pause_us: u64, now_us: u64, was_due: bool) -> Duration {
        let rang_us = if was_due { self.due_us.max(now_us.saturating_sub(pause_us / 2)) } else { now_us };
        let every_us = (pause_us / BEATS).max(1);
        self.due_us = rang_us.saturating_add(pause_us).div_ceil(every_us).saturating_mul(every_us);
        Duration::from_micros(self.due_us.saturating_sub(now_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_session_rings_at_the_beats() {
        let mut beat = Beat::default();
        let mut next = |now_ms: u64, was_due| beat.next(50_000, now_ms * 1_000, was_due).as_millis();
        assert_eq!(next(7, false), 68, "until 75: the first beat after a whole pause");
        assert_eq!(next(76, true), 49, "until 125: what ringing took is not added");
        assert_eq!(
            next(140, false),
            60,
            "until 200: what came after 125 is told at once, and nothing for a pause"
        );
        assert_eq!(next(245, true), 30, "until 275: who is far behind still pauses");
        assert!(Beat::default().next(u64::MAX, 1, false).as_micros() > 0, "for ever, if so it is set");
    }
}

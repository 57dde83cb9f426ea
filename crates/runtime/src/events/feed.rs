//! The bells of sessions, and the pages that their readers share.
//!
//! A session that nobody follows pays one relaxed load per commit. While somebody does, a task of the runtime hears of
//! commits and of what running calls say, reads what is new, and rings for all readers at once, at most every
//! `event_frame_ms` or so: whoever keeps up finds its page made.

use super::Words;
use super::follow::{Follower, Page, Source, Subject};
use super::recent::{Recent, Written};
use crate::drive::poll_once;
use crate::error::BatchError;
use crate::progress::Progress;
use crate::runtime::Inner;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use windlass_core::call::Kind;
use windlass_core::handle::Handle;
use windlass_core::ids::{CallId, EntryNo, SessionNo};
use windlass_store::SessionRow;

/// Pages that are kept for those who come after the first.
const PAGES_MAX: usize = 16;
/// What they may weigh together.
const PAGES_BYTES_MAX: usize = 8 << 20;
/// So many beats a pause has.
const BEATS: u64 = 2;
/// Running calls of a session whose last words are kept.
const WORDS_MAX: usize = 1_024;
/// So much of what a call writes is told at once.
const OUTPUT_BYTES_MAX: usize = 4 << 10;

/// The feeds of all sessions that are owned or followed here.
#[derive(Default)]
pub(crate) struct Feeds {
    known: Mutex<Known>,
    /// How many follow.
    pub(crate) readers: AtomicU64,
}

#[derive(Default)]
struct Known {
    by_name: HashMap<Arc<str>, Weak<Feed>>,
    /// With so many names those of feeds that are gone are swept out.
    sweep_at: usize,
}

/// Fewer names than this are not worth sweeping.
const SWEEP_MIN: usize = 64;

impl Feeds {
    /// The feed of a session, whether that exists or not.
    pub(crate) fn feed(&self, name: &str) -> Arc<Feed> {
        let mut known = lock(&self.known);
        if let Some(feed) = known.by_name.get(name).and_then(Weak::upgrade) {
            return feed;
        }
        if known.by_name.len() >= known.sweep_at {
            known.by_name.retain(|_, feed| feed.strong_count() > 0);
            known.sweep_at = SWEEP_MIN.max(2 * known.by_name.len());
        }
        let feed = Arc::new(Feed::new(name.into()));
        known.by_name.insert(feed.name.clone(), Arc::downgrade(&feed));
        feed
    }

    /// A session is removed: whoever follows it has seen its end, and whoever follows one of its name from now on follows
    /// another.
    pub(crate) fn remove(&self, name: &str) {
        let feed = lock(&self.known).by_name.remove(name);
        if let Some(feed) = feed.as_ref().and_then(Weak::upgrade) {
            feed.ring.send_modify(|ring| ring.over = true);
        }
    }

    /// The runtime ends: so do all who follow.
    pub(crate) fn end(&self) {
        let feeds: Vec<_> = lock(&self.known).by_name.values().filter_map(Weak::upgrade).collect();
        for feed in feeds {
            feed.ring.send_modify(|ring| ring.over = true);
        }
    }
}

/// What readers are woken with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ring {
    /// The last entry that was seen.
    pub(super) head: EntryNo,
    /// Counts what running calls said.
    words: u64,
    /// The store did not say where the session stands: whoever reads finds out what is wrong.
    pub(super) trouble: bool,
    /// Nothing will follow.
    pub(super) over: bool,
}

/// What happens in one session, for all who follow it.
pub(crate) struct Feed {
    name: Arc<str>,
    /// How many follow: looked at with every commit.
    readers: AtomicU32,
    /// Told to whoever rings.
    happened: Notify,
    ring: watch::Sender<Ring>,
    /// Whoever rings, while somebody follows.
    ringer: Mutex<Option<AbortHandle>>,
    pages: Mutex<VecDeque<Arc<Page>>>,
    /// Held by whoever reads the journal, so that of all who want a page one makes it.
    reading: tokio::sync::Mutex<()>,
    said: Mutex<Said>,
    /// What was written while somebody follows.
    recent: Mutex<Recent>,
    /// The session, once it was seen.
    session: OnceLock<SessionRow>,
}

/// What running calls say.
#[derive(Default)]
struct Said {
    /// Since it last rang.
    new: BTreeMap<CallId, New>,
    /// The last of it by handle, and when it rang for that.
    last: BTreeMap<Handle, (u64, Arc<Words>)>,
    /// How often it rang for words.
    count: u64,
}

#[derive(Default)]
struct New {
    progress: Option<Progress>,
    status: Option<String>,
    output: Vec<u8>,
}

impl Feed {
    fn new(name: Arc<str>) -> Feed {
        let (ring, _) = watch::channel(Ring { head: EntryNo(0), words: 0, trouble: false, over: false });
        Feed {
            name,
            readers: AtomicU32::new(0),
            happened: Notify::new(),
            ring,
            ringer: Mutex::default(),
            pages: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
            said: Mutex::default(),
            recent: Mutex::default(),
            session: OnceLock::new(),
        }
    }

    /// Whether somebody follows.
    pub(crate) fn is_followed(&self) -> bool {
        self.readers.load(Ordering::Relaxed) > 0
    }

    /// Something of the session became durable, with its entries numbered from this one on.
    pub(crate) fn committed(&self, (session, first): (SessionNo, EntryNo), written: Option<Written>) {
        if !self.is_followed() {
            return;
        }
        if let Some(written) = written {
            let mut recent = lock(&self.recent);
            written.numbered(session, first).for_each(|row| recent.add(row));
        }
        self.happened.notify_one();
    }

    /// How far the session is by what was written here alone; `None`: the store knows better.
    fn written(&self) -> Option<SessionRow> {
        let head = lock(&self.recent).head(self.ring.borrow().head)?;
        self.session.get().map(|session| SessionRow { head, ..session.clone() })
    }

    /// A running call says how far it is.
    pub(crate) fn progress(&self, call: CallId, progress: &Progress) {
        self.say(call, |new| new.progress = Some(progress.clone()));
    }

    /// A running call says what it does.
    pub(crate) fn status(&self, call: CallId, status: &str) {
        self.say(call, |new| new.status = Some(status.to_string()));
    }

    /// A running call writes.
    pub(crate) fn output(&self, call: CallId, bytes: &[u8]) {
        self.say(call, |new| {
            let bytes = &bytes[bytes.len().saturating_sub(OUTPUT_BYTES_MAX)..];
            let excess = (new.output.len() + bytes.len()).saturating_sub(OUTPUT_BYTES_MAX);
            new.output.drain(..excess);
            new.output.extend(bytes);
        });
    }

    fn say(&self, call: CallId, add: impl FnOnce(&mut New)) {
        if !self.is_followed() {
            return;
        }
        let mut said = lock(&self.said);
        if said.new.len() >= WORDS_MAX && !said.new.contains_key(&call) {
            return;
        }
        add(said.new.entry(call).or_default());
        drop(said);
        self.happened.notify_one();
    }

    /// Somebody follows. The first makes it ring.
    pub(super) fn join(self: &Arc<Feed>, rt: &Arc<Inner>) -> watch::Receiver<Ring> {
        let mut ringer = lock(&self.ringer);
        self.readers.fetch_add(1, Ordering::SeqCst);
        if ringer.is_none() {
            let pause_us = rt.limits.event_frame_ms.saturating_mul(1_000);
            let looks = Duration::from_millis(rt.limits.event_look_ms);
            let ringing = rt.tasks.spawn(ring(Arc::downgrade(rt), self.clone(), (pause_us, looks)));
            *ringer = Some(ringing.abort_handle());
        }
        self.ring.subscribe()
    }

    /// Somebody follows no more. The last one leaves nothing behind.
    pub(super) fn leave(&self) {
        let mut ringer = lock(&self.ringer);
        if self.readers.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        if let Some(ringing) = ringer.take() {
            ringing.abort();
        }
        *lock(&self.said) = Said::default();
        *lock(&self.recent) = Recent::default();
        lock(&self.pages).clear();
    }

    /// The session was seen with this head.
    pub(super) fn saw(&self, head: EntryNo) {
        self.ring.send_if_modified(|ring| {
            let news = head > ring.head;
            ring.head = ring.head.max(head);
            news
        });
    }

    /// The page behind an entry: as somebody read it before, or from the journal.
    pub(super) async fn page(&self, rt: &Inner, after: EntryNo) -> Result<Option<Arc<Page>>, BatchError> {
        if let Some(page) = self.known(after) {
            return Ok(Some(page));
        }
        let _reading = self.reading.lock().await;
        if let Some(page) = self.known(after) {
            return Ok(Some(page));
        }
        let Some(session) = rt.store.session(&self.name).await? else { return Ok(None) };
        // Not further than it rang: so all who keep up stand at the same entry, and share what comes behind it.
        let upto = self.ring.borrow().head;
        self.read(rt, &session, (after, upto)).await
    }

    /// Reads what is new for all who keep up, before it rings for it. What cannot be read they are told themselves.
    async fn read_ahead(&self, rt: &Inner, session: &SessionRow) {
        let _reading = self.reading.lock().await;
        let after = self.ring.borrow().head;
        if after < session.head && self.known(after).is_none() {
            let _ = self.read(rt, session, (after, session.head)).await;
        }
    }

    fn known(&self, after: EntryNo) -> Option<Arc<Page>> {
        lock(&self.pages).iter().find(|page| page.after == after).cloned()
    }

    /// Makes the page behind an entry, up to another. Asked for by who has the reading.
    async fn read(
        &self,
        rt: &Inner,
        session: &SessionRow,
        (after, upto): (EntryNo, EntryNo),
    ) -> Result<Option<Arc<Page>>, BatchError> {
        let tools = Some(&rt.registry);
        let (store, text_bytes_max) = (&rt.store, rt.limits.event_text_bytes_max);
        let source = Source { store, session, upto, tools, text_bytes_max };
        let recent = lock(&self.recent).take(after, upto);
        let rows = if recent.is_empty() { source.rows(after).await? } else { recent };
        let page = source.page(&rows, after, || before(&lock(&self.pages), after)).await?;
        let Some(page) = page.map(Arc::new) else { return Ok(None) };
        // What did not fit into the page is for the next one.
        let behind = rows.into_iter().filter(|row| row.first > page.end && row.first <= upto);
        behind.for_each(|row| lock(&self.recent).add(row));
        self.fall_silent(&page);
        let mut pages = lock(&self.pages);
        pages.push_back(page.clone());
        while pages.len() > PAGES_MAX
            || pages.iter().map(|page| page.weight()).sum::<usize>() > PAGES_BYTES_MAX
        {
            pages.pop_front();
        }
        Ok(Some(page))
    }

    /// What was said by attempts that are over is of no interest any more.
    fn fall_silent(&self, page: &Page) {
        let mut said = lock(&self.said);
        if said.last.is_empty() {
            return;
        }
        for event in &page.events {
            if is_end_of_attempt(event.kind) {
                said.last.remove(&event.subject.call);
            }
        }
    }

    /// What was said since somebody last looked.
    pub(super) fn words_since(&self, heard: &mut u64) -> Vec<Arc<Words>> {
        let said = lock(&self.said);
        let since = std::mem::replace(heard, said.count);
        if since == said.count {
            return Vec::new();
        }
        let news = said.last.values().filter(|(count, _)| *count > since);
        news.map(|(_, words)| words.clone()).collect()
    }

    /// Makes words of what was said since it last rang; how often it rang for words by now.
    fn gather(&self, rt: &Inner) -> u64 {
        let new = std::mem::take(&mut lock(&self.said).new);
        let words: Vec<_> = new.into_iter().filter_map(|(call, new)| self.words(rt, call, new)).collect();
        let mut said = lock(&self.said);
        if !words.is_empty() {
            said.count += 1;
        }
        let count = said.count;
        for words in words {
            said.last.insert(words.call(), (count, Arc::new(words)));
        }
        while said.last.len() > WORDS_MAX {
            // Only stuck tools that were given up go on talking after their end.
            said.last.pop_first();
        }
        count
    }

    fn words(&self, rt: &Inner, call: CallId, new: New) -> Option<Words> {
        let batch = rt.owned_session(&self.name)?.find_no(call.batch)?;
        let subject = Arc::new(Subject::running(rt, &batch, call.ordinal)?);
        let output = String::from_utf8_lossy(&new.output);
        let output = (!output.is_empty()).then(|| output.into_owned());
        Some(Words { subject, progress: new.progress, status: new.status, output })
    }
}

/// Where the batches stand behind the page that ends there.
fn before(pages: &VecDeque<Arc<Page>>, after: EntryNo) -> Option<Follower> {
    pages.iter().find(|page| page.end == after).and_then(|page| page.take_follower())
}

fn is_end_of_attempt(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Returned | Kind::Stopped | Kind::Lost | Kind::Suspended | Kind::Unconnected | Kind::Ended
    )
}

/// Rings when something happened, and then at its next [`Beat`] at the earliest; looks by itself after `looks`.
async fn ring(rt: Weak<Inner>, feed: Arc<Feed>, (pause_us, looks): (u64, Duration)) {
    let mut beat = Beat::default();
    loop {
        // What nobody told of is what another process wrote, or what was committed for somebody who did not wait for it.
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
        tokio::time::sleep(beat.next(pause_us, (clock.elapsed_us(), was_due))).await;
    }
}

/// When a session that is busy rings next: sessions that ring at the same time cost less than those that wake their readers one
/// after the other, so all of them keep to the beats of the runtime's clock.
#[derive(Default)]
struct Beat {
    /// When it was last to ring.
    due_us: u64,
}

impl Beat {
    /// It has just rung: how long until the first beat after which the pause is over. Whoever had something to ring for when
    /// it was due is not late by what ringing took.
    fn next(&mut self, pause_us: u64, (now_us, was_due): (u64, bool)) -> Duration {
        let rang_us = if was_due { self.due_us.max(now_us.saturating_sub(pause_us / 2)) } else { now_us };
        let every_us = (pause_us / BEATS).max(1);
        self.due_us = rang_us.saturating_add(pause_us).div_ceil(every_us).saturating_mul(every_us);
        Duration::from_micros(self.due_us.saturating_sub(now_us))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_session_rings_at_the_beats() {
        let mut beat = Beat::default();
        let mut next = |now_ms: u64, was_due| beat.next(50_000, (now_ms * 1_000, was_due)).as_millis();
        assert_eq!(next(7, false), 68, "until 75: the first beat after a whole pause");
        assert_eq!(next(76, true), 49, "until 125: what ringing took is not added");
        assert_eq!(
            next(140, false),
            60,
            "until 200: what came after 125 is told at once, and nothing for a pause"
        );
        assert_eq!(next(245, true), 30, "until 275: who is far behind still pauses");
        assert!(Beat::default().next(u64::MAX, (1, false)).as_micros() > 0, "for ever, if so it is set");
    }
}

//! Following the events of a session as they happen.
//!
//! A follower is a cursor over the session's journal, and a bell that rings after commits: it reads the entries after
//! its cursor, at its own pace. So no reader slows a tool, a late reader costs no memory, and one that returns with a
//! cursor misses nothing. `follow` makes events of entries, `feed` rings and shares pages.

mod changed;
mod feed;
mod follow;
mod frames;
mod recent;
mod tell;

pub use changed::{ChangedSessions, Changes};
pub(crate) use feed::{Feed, Feeds};
pub use follow::{Event, Page, Record, Subject};
pub(crate) use recent::EntryRows;
pub use tell::Outline;

use crate::api::error::SessionError;
use crate::api::progress::Progress;
use crate::session::inner::Inner;
use crate::tools::request::check_session_name;
use feed::ReaderRing;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use tokio::sync::watch;
use windlass_core::handle::Handle;
use windlass_core::ids::{CallId, EntryNo};
use windlass_core::narration::{Locale, Narrative, narrate};
use windlass_core::time::Timestamp;

/// A follower of a session. Dropping it ends the following.
///
/// ```
/// use windlass::events::{Kind, News};
/// use windlass::ids::EntryNo;
/// # use windlass::{BatchRequest, CallRequest, Config, Runtime, ToolSpec, store::memory::MemoryStore, tool_fn};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = Runtime::new(Config::new(MemoryStore::new()?));
/// # runtime.register(tool_fn(ToolSpec { name: "ping".into(), ..ToolSpec::default() }, |_, _| async {
/// #     Ok(serde_json::json!("pong").into())
/// # }))?;
/// # let call = CallRequest { id: Some("c1".into()), tool: "ping".into(), ..CallRequest::default() };
/// # let batch = BatchRequest { calls: vec![call], ..BatchRequest::default() };
/// # runtime.submit("demo", batch).await?.settled().await?;
///
/// // From the beginning of the journal; `None` follows from now on.
/// let mut events = runtime.events("demo", Some(EntryNo(0))).await?;
/// 'following: while let Some(news) = events.next().await {
///     let News::Page(page) = news? else { continue };
///     for event in &page.events {
///         println!("{} {}", event.cursor, event.kind);
///         if event.kind == Kind::Ended {
///             break 'following;
///         }
///     }
/// }
/// # Ok(()) }
/// ```
pub struct Events {
    rt: Weak<Inner>,
    feed: Arc<Feed>,
    ring: watch::Receiver<ReaderRing>,
    cursor: EntryNo,
    /// Frames up to here were delivered.
    heard: u64,
    /// Notices up to here were reported.
    noticed: u64,
    /// No more events will come.
    over: bool,
}

/// An item of the stream.
#[derive(Clone)]
#[non_exhaustive]
pub enum News {
    /// Entries were committed.
    Page(Arc<Page>),
    /// Calls run whose start is not recorded, or running calls have reported something. Such frames have no
    /// cursor, and only the last of each is delivered.
    Words(Vec<Arc<Words>>),
    /// So many notices came for the session's agent: its inbox has them. Such a frame has no cursor.
    Notices(u64),
}

/// A frame: an unrecorded fact of a running call, so it has no cursor. Either an attempt runs whose start is
/// not recorded yet, or the attempt has reported something.
#[derive(Clone, Debug)]
pub struct Words {
    /// The call.
    pub subject: Arc<Subject>,
    /// The running attempt, if the frame is about its start.
    pub running: Option<RunningAttempt>,
    /// Its progress.
    pub progress: Option<Progress>,
    /// Its status.
    pub status: Option<String>,
    /// The end of its output since the last frame.
    pub output: Option<String>,
}

/// A running attempt whose start is not recorded yet: that of a `read` call is written with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningAttempt {
    /// Its number.
    pub attempt: u32,
    /// When it began.
    pub at: Timestamp,
}

/// Why a session cannot be followed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventsError {
    /// There are too many followers.
    #[error("{max} readers already follow events; end some, or raise the limit event_readers_max")]
    TooMany {
        /// The limit `event_readers_max`.
        max: u64,
    },
    /// The session has no such cursor.
    #[error("the session has {head} entries and no {cursor}; use the cursor of one of its events, or 0")]
    PastEnd {
        /// The given cursor.
        cursor: EntryNo,
        /// The last entry.
        head: EntryNo,
    },
    /// Its name is invalid, or its journal cannot be read.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl Events {
    /// Follows a session after `after`, or from now on.
    pub(crate) async fn new(
        rt: &Arc<Inner>,
        session: &str,
        after: Option<EntryNo>,
    ) -> Result<Events, EventsError> {
        check_session_name(session)?;
        let max = rt.limits.event_readers_max;
        if rt.feeds.readers.fetch_add(1, Ordering::Relaxed) >= max {
            rt.feeds.readers.fetch_sub(1, Ordering::Relaxed);
            return Err(EventsError::TooMany { max });
        }
        let feed = rt.feeds.feed(session);
        // From here on it rings, and dropping this frees the place.
        let ring = feed.join(rt);
        let noticed = ring.borrow().notices;
        let mut events = Events {
            rt: Arc::downgrade(rt),
            feed,
            ring,
            cursor: after.unwrap_or(EntryNo(0)),
            heard: 0,
            noticed,
            over: false,
        };
        let head =
            rt.store.session(session).await.map_err(SessionError::from)?.map_or(EntryNo(0), |row| row.head);
        events.feed.saw(head);
        match after {
            Some(cursor) if cursor > head => return Err(EventsError::PastEnd { cursor, head }),
            Some(_) => {}
            None => events.cursor = head,
        }
        Ok(events)
    }

    /// The last delivered entry, or the start.
    pub fn cursor(&self) -> EntryNo {
        self.cursor
    }

    /// Waits for the next item. `None`: there will be none, because the runtime is gone or the journal could
    /// not be read, which was reported. Nothing is lost if this is dropped before it is ready.
    pub async fn next(&mut self) -> Option<Result<News, SessionError>> {
        while !self.over {
            let ring = *self.ring.borrow_and_update();
            if self.cursor < ring.head || ring.trouble {
                let rt = self.rt.upgrade()?;
                match self.feed.page(&rt, self.cursor).await {
                    Ok(Some(page)) => {
                        self.cursor = page.end;
                        if page.events.is_empty() && page.expired.is_none() {
                            continue;
                        }
                        return Some(Ok(News::Page(page)));
                    }
                    Ok(None) => {}
                    Err(error) => {
                        self.over = true;
                        return Some(Err(error));
                    }
                }
            }
            let words = self.feed.words_since(&mut self.heard);
            if !words.is_empty() {
                return Some(Ok(News::Words(words)));
            }
            if ring.notices > self.noticed {
                let new = ring.notices - self.noticed;
                self.noticed = ring.notices;
                return Some(Ok(News::Notices(new)));
            }
            if ring.over || self.ring.changed().await.is_err() {
                return None;
            }
        }
        None
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.feed.leave();
        if let Some(rt) = self.rt.upgrade() {
            rt.feeds.readers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Words {
    /// The call's handle.
    pub fn call(&self) -> Handle {
        self.subject.call
    }

    /// The kind of frame: `running`, or `progress`.
    pub fn kind(&self) -> &'static str {
        if self.running.is_some() { "running" } else { "progress" }
    }

    /// The sentence for people.
    pub fn narration(&self, locale: Locale) -> Option<String> {
        if self.running.is_some() {
            return Some(narrate(self.subject.speaker(), Narrative::Started, locale));
        }
        let said = self.progress.as_ref().map(ToString::to_string).filter(|said| !said.is_empty());
        let said = said.or_else(|| self.status.clone())?;
        Some(narrate(self.subject.speaker(), Narrative::Progress(&said), locale))
    }
}

/// The sentence about an open call that its first event said or will say. `None`: it is not open here.
pub(crate) fn narration(rt: &Inner, session: &str, call: CallId, locale: Locale) -> Option<String> {
    let batch = rt.owned_session(session)?.find_no(call.batch)?;
    let subject = Subject::running(rt, &batch, call.ordinal)?;
    Some(narrate(subject.speaker(), Narrative::Started, locale))
}

//! What happens in a session, told as it happens.
//!
//! Whoever follows is a cursor over the session's journal, and a bell that rings when something was committed: it reads
//! what lies behind its cursor, at its own pace. So nobody who reads slows a tool, nobody who is late costs memory, and
//! who comes back with a cursor misses nothing. `follow` makes events of entries, `feed` rings and shares what was read.

mod feed;
mod follow;
mod recent;
mod tell;

pub(crate) use feed::{Feed, Feeds};
pub use follow::{Event, Page, Record, Subject};
pub(crate) use recent::Written;
pub use tell::Outline;

use crate::error::BatchError;
use crate::progress::Progress;
use crate::runtime::{Inner, check_session_name};
use feed::Ring;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use tokio::sync::watch;
use windlass_core::handle::Handle;
use windlass_core::ids::EntryNo;
use windlass_core::narration::{Locale, Told, narrate};

/// Follows a session. Dropping it ends that.
pub struct Events {
    rt: Weak<Inner>,
    feed: Arc<Feed>,
    ring: watch::Receiver<Ring>,
    cursor: EntryNo,
    /// The words up to here were told.
    heard: u64,
    /// Nothing more can be told.
    over: bool,
}

/// What there is to tell.
#[derive(Clone)]
pub enum News {
    /// Entries were committed.
    Page(Arc<Page>),
    /// Running calls have said something. That is not recorded, has no cursor, and only the last of it is told.
    Words(Vec<Arc<Words>>),
}

/// What a running call said of itself.
#[derive(Clone, Debug)]
pub struct Words {
    /// The call that says it.
    pub subject: Arc<Subject>,
    /// How far it is.
    pub progress: Option<Progress>,
    /// What it does.
    pub status: Option<String>,
    /// The last of what it wrote since it was last told of.
    pub output: Option<String>,
}

/// Why a session cannot be followed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EventsError {
    /// Too many follow already.
    #[error("{max} readers follow events already; end some, or raise the limit event_readers_max")]
    TooMany {
        /// The limit `event_readers_max`.
        max: u64,
    },
    /// The cursor is none of this session.
    #[error(
        "the session has {head} entries and no {cursor}; begin with a cursor that one of its events had, or with 0"
    )]
    PastEnd {
        /// What was given.
        cursor: EntryNo,
        /// The last entry there is.
        head: EntryNo,
    },
    /// Its name is none, or its journal cannot be read.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

impl Events {
    /// Follows a session from behind `after`, or from now on.
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
        // From here on it rings, and dropping this gives the place back.
        let ring = feed.join(rt);
        let mut events = Events {
            rt: Arc::downgrade(rt),
            feed,
            ring,
            cursor: after.unwrap_or(EntryNo(0)),
            heard: 0,
            over: false,
        };
        let head =
            rt.store.session(session).await.map_err(BatchError::from)?.map_or(EntryNo(0), |row| row.head);
        events.feed.saw(head);
        match after {
            Some(cursor) if cursor > head => return Err(EventsError::PastEnd { cursor, head }),
            Some(_) => {}
            None => events.cursor = head,
        }
        Ok(events)
    }

    /// The last entry that was told, or behind which it began.
    pub fn cursor(&self) -> EntryNo {
        self.cursor
    }

    /// Waits for news. `None`: there will be none, because the runtime is gone or the journal could not be read, which was
    /// told. Nothing is lost if this is dropped before it is ready.
    pub async fn next(&mut self) -> Option<Result<News, BatchError>> {
        while !self.over {
            let ring = *self.ring.borrow_and_update();
            if self.cursor < ring.head || ring.trouble {
                let rt = self.rt.upgrade()?;
                match self.feed.page(&rt, self.cursor).await {
                    Ok(Some(page)) => {
                        self.cursor = page.end;
                        if page.events.is_empty() {
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

    /// What people are told.
    pub fn narration(&self, locale: Locale) -> Option<String> {
        let said = self.progress.as_ref().map(ToString::to_string).filter(|said| !said.is_empty());
        let said = said.or_else(|| self.status.clone())?;
        Some(narrate(self.subject.speaker(), Told::Progress(&said), locale))
    }
}

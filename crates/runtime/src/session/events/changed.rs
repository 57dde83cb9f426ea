//! Which sessions have changed, for readers that follow all of them.
//!
//! A change is marked with a growing number under the session's name, however often the session changes, so a busy session costs
//! one entry and a slow reader nothing. Without readers a change costs one relaxed load.

use crate::api::error::SessionError;
use crate::api::locks::{LockRank, OrderedMutex};
use crate::session::events::EventsError;
use crate::session::inner::Inner;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use windlass_core::ids::{EntryNo, SessionNo};

/// So many changed sessions are remembered by name; when there are more, readers are told that there are.
const NAMES_MAX: usize = 1_024;
/// The page size for looking at the sessions of other workers.
const SESSIONS_PAGE: u64 = 1_000;
/// So many sessions are watched for writes of other workers.
const SESSIONS_MAX: usize = 10_000;

/// The marks of all sessions.
pub(crate) struct ChangeMarks {
    readers: AtomicU32,
    marked: OrderedMutex<MarkedNames, { LockRank::ChangeMarks as u8 }>,
    /// The number of the last mark.
    bell: watch::Sender<u64>,
}

#[derive(Default)]
struct MarkedNames {
    last: u64,
    /// Marks up to this number were forgotten.
    forgotten: u64,
    by_name: HashMap<Arc<str>, u64>,
}

impl Default for ChangeMarks {
    fn default() -> ChangeMarks {
        ChangeMarks {
            readers: AtomicU32::new(0),
            marked: OrderedMutex::default(),
            bell: watch::Sender::new(0),
        }
    }
}

impl ChangeMarks {
    /// Something of this session changed, recorded or not.
    pub(crate) fn mark(&self, session: &Arc<str>) {
        if self.readers.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut marked = self.marked.lock();
        marked.last += 1;
        let last = marked.last;
        if marked.by_name.len() >= NAMES_MAX && !marked.by_name.contains_key(session) {
            marked.by_name.clear();
            marked.forgotten = last - 1;
        }
        marked.by_name.insert(session.clone(), last);
        drop(marked);
        self.bell.send_replace(last);
    }

    /// The sessions marked since `seen`, which becomes the last mark.
    fn since(&self, seen: &mut u64) -> ChangedSessions {
        let marked = self.marked.lock();
        let is_new = |(name, mark): (&Arc<str>, &u64)| (*mark > *seen).then(|| name.clone());
        let mut sessions: Vec<Arc<str>> = marked.by_name.iter().filter_map(is_new).collect();
        sessions.sort();
        let more = marked.forgotten > *seen;
        *seen = marked.last;
        ChangedSessions { sessions, more }
    }
}

/// Sessions that have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedSessions {
    /// Their names, sorted.
    pub sessions: Vec<Arc<str>>,
    /// Whether others have changed, too, whose names were not kept.
    pub more: bool,
}

/// A follower of all sessions: it tells which have changed, recorded or not. Dropping it ends the following.
///
/// ```
/// # use windlass::{BatchRequest, CallRequest, Config, Runtime, ToolSpec, store::memory::MemoryStore, tool_fn};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = Runtime::new(Config::new(MemoryStore::new()?));
/// # runtime.register(tool_fn(ToolSpec { name: "ping".into(), ..ToolSpec::default() }, |_, _| async {
/// #     Ok(serde_json::json!("pong").into())
/// # }))?;
/// let mut changes = runtime.changes()?;
/// # let call = CallRequest { id: Some("c1".into()), tool: "ping".into(), ..CallRequest::default() };
/// # let batch = BatchRequest { calls: vec![call], ..BatchRequest::default() };
/// runtime.submit("demo", batch).await?.settled().await?;
/// let changed = changes.next().await.ok_or("the runtime has ended")??;
/// assert_eq!(&*changed.sessions[0], "demo");
/// # Ok(()) }
/// ```
pub struct Changes {
    rt: Weak<Inner>,
    marks: Arc<ChangeMarks>,
    bell: watch::Receiver<u64>,
    seen: u64,
    /// The last entry of each session, where other workers write to the store, once they were looked at.
    heads: Option<BTreeMap<SessionNo, EntryNo>>,
}

impl Changes {
    pub(crate) fn new(rt: &Arc<Inner>) -> Result<Changes, EventsError> {
        let max = rt.limits.event_readers_max;
        if rt.feeds.readers.fetch_add(1, Ordering::Relaxed) >= max {
            rt.feeds.readers.fetch_sub(1, Ordering::Relaxed);
            return Err(EventsError::TooMany { max });
        }
        let marks = rt.feeds.marks.clone();
        marks.readers.fetch_add(1, Ordering::SeqCst);
        let seen = marks.marked.lock().last;
        let bell = marks.bell.subscribe();
        Ok(Changes { rt: Arc::downgrade(rt), marks, bell, seen, heads: None })
    }

    /// Waits for the next changes. What changes before the next call is told then, once. `None`: the runtime has ended.
    ///
    /// Nothing is lost if this is cancelled.
    pub async fn next(&mut self) -> Option<Result<ChangedSessions, SessionError>> {
        loop {
            let (looks, has_others) = {
                let rt = self.rt.upgrade()?;
                (Duration::from_millis(rt.limits.event_look_ms), rt.owners.has_others())
            };
            let seen = self.seen;
            let rings = self.bell.wait_for(|last| *last > seen);
            // The look also notices that the runtime is gone, and writes of other workers.
            if let Ok(rung) = tokio::time::timeout(looks, rings).await {
                rung.ok()?;
                return Some(Ok(self.marks.since(&mut self.seen)));
            }
            if !has_others {
                continue;
            }
            match self.look().await {
                Ok(changed) if changed == ChangedSessions::default() => {}
                changed => return Some(changed),
            }
        }
    }

    /// The sessions that have other last entries than at the last look: those that other workers wrote to. The first look only
    /// remembers.
    async fn look(&mut self) -> Result<ChangedSessions, SessionError> {
        let Some(rt) = self.rt.upgrade() else { return Ok(ChangedSessions::default()) };
        let (mut heads, mut changed, mut after) = (BTreeMap::new(), ChangedSessions::default(), None);
        loop {
            let rows = rt.store.sessions(after, SESSIONS_PAGE).await?;
            after = rows.last().map(|row| row.no);
            for row in rows {
                if let Some(known) = &self.heads
                    && known.get(&row.no) != Some(&row.head)
                {
                    changed.sessions.push(row.name.as_str().into());
                }
                heads.insert(row.no, row.head);
            }
            if after.is_none() || heads.len() >= SESSIONS_MAX {
                break;
            }
        }
        changed.sessions.sort();
        self.heads = Some(heads);
        Ok(changed)
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.marks.readers.fetch_sub(1, Ordering::SeqCst);
        if let Some(rt) = self.rt.upgrade() {
            rt.feeds.readers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_told_once_however_often_it_changed_and_too_many_are_told_as_more() {
        let marks = ChangeMarks::default();
        marks.mark(&"a".into());
        let mut seen = 0;
        assert_eq!(marks.since(&mut seen), ChangedSessions::default(), "nobody follows");
        marks.readers.store(1, Ordering::Relaxed);
        for name in ["b", "a", "a", "a"] {
            marks.mark(&name.into());
        }
        let both = vec!["a".into(), "b".into()];
        assert_eq!(marks.since(&mut seen), ChangedSessions { sessions: both, more: false });
        assert_eq!(marks.since(&mut seen), ChangedSessions::default());
        let mut slow = seen;
        for number in 0..=NAMES_MAX {
            marks.mark(&format!("s{number}").into());
            if number == 5 {
                assert_eq!(marks.since(&mut seen).sessions.len(), 6);
            }
        }
        assert!(marks.since(&mut slow).more);
        assert!(marks.since(&mut seen).more);
        marks.mark(&"last".into());
        assert_eq!(marks.since(&mut slow), ChangedSessions { sessions: vec!["last".into()], more: false });
    }
}

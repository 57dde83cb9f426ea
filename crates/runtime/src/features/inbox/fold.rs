//! The limit of an unread inbox: the oldest notices of a kind become one, which lists their calls.

use super::kept;
use crate::api::error::{SessionError, chain};
use crate::api::limits::Limits;
use crate::session::inner::Inner;
use crate::session::notices::{KeptNotice, NoticeKind, key};
use crate::session::owner::Session;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Notify;
use windlass_core::ids::CallId;
use windlass_core::time::Timestamp;
use windlass_store::{RecordPage, Row, Space};

/// The number of a session's unacknowledged notices, as far as it is known.
pub(crate) struct Unread {
    /// Serialises taking and returning notices.
    pub(super) alone: tokio::sync::Mutex<()>,
    count: AtomicU64,
    /// Whether a task counts or folds them.
    is_watched: AtomicBool,
    /// Notified when a notice is on its way to the store, or may be taken again.
    pub(super) arrived: Notify,
}

/// Not counted yet in this process.
const UNKNOWN: u64 = u64::MAX;

impl Default for Unread {
    fn default() -> Unread {
        Unread {
            alone: tokio::sync::Mutex::default(),
            count: AtomicU64::new(UNKNOWN),
            is_watched: AtomicBool::new(false),
            arrived: Notify::new(),
        }
    }
}

impl Unread {
    /// Uncounts acknowledged notices.
    pub(super) fn read(&self, notices: u64) {
        self.change(|count| count.saturating_sub(notices));
    }

    /// Whether as many are unacknowledged as may be.
    pub(super) fn is_full(&self, max: u64) -> bool {
        let count = self.count.load(Ordering::SeqCst);
        count != UNKNOWN && count >= max
    }

    fn change(&self, change: impl Fn(u64) -> u64) -> u64 {
        let changed = |count| if count == UNKNOWN { UNKNOWN } else { change(count) };
        let before =
            self.count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| Some(changed(count)));
        changed(before.unwrap_or(UNKNOWN))
    }
}

/// Notices were written: if too many are unread now, the oldest are folded.
pub(crate) fn wrote(rt: &Arc<Inner>, session: &Arc<Session>, notices: u64) {
    let inbox = session.slots.of::<Unread>();
    inbox.arrived.notify_waiters();
    tell_followers(rt, session, notices);
    let unread = inbox.change(|count| count.saturating_add(notices));
    if unread <= room(&rt.limits) || session.slots.of::<Unread>().is_watched.swap(true, Ordering::SeqCst) {
        return;
    }
    let (rt, session) = (rt.clone(), session.clone());
    rt.tasks.clone().spawn(async move {
        loop {
            if let Err(error) = fold(&rt, &session).await {
                tracing::error!(session = %session.name, error = %chain(&error), "notices are not folded");
                session.slots.of::<Unread>().is_watched.store(false, Ordering::SeqCst);
                return;
            }
            session.slots.of::<Unread>().is_watched.store(false, Ordering::SeqCst);
            // Notices written meanwhile found that a task is at work.
            let unread = session.slots.of::<Unread>().count.load(Ordering::SeqCst);
            if unread <= room(&rt.limits)
                || session.slots.of::<Unread>().is_watched.swap(true, Ordering::SeqCst)
            {
                return;
            }
        }
    });
}

/// Tells the followers of the session, if there are some, once the notices are durable.
fn tell_followers(rt: &Inner, session: &Arc<Session>, notices: u64) {
    if !session.lane.feed().is_followed() {
        return;
    }
    let lane = session.lane.clone();
    rt.tasks.spawn(async move {
        // Everything sent before is durable then.
        if lane.commit_rows(Vec::new()).await.is_ok() {
            lane.feed().noticed(notices);
        }
    });
}

/// The number of unread notices above which the oldest are folded: early, so that later ones find room.
fn room(limits: &Limits) -> u64 {
    limits.notices_queued_max.saturating_sub(together(limits))
}

/// The number of notices that become one.
fn together(limits: &Limits) -> u64 {
    limits.notices_folded_max.min(limits.notices_queued_max / 2).max(2)
}

/// A notice that nobody has taken.
struct QueuedNotice {
    key: String,
    kept: KeptNotice,
}

/// Counts the notices, and folds the oldest of the most frequent kind until few enough are left.
async fn fold(rt: &Inner, session: &Session) -> Result<(), SessionError> {
    let inbox = session.slots.of::<Unread>();
    let _alone = inbox.alone.lock().await;
    let written = session.slots.of::<Unread>().count.load(Ordering::SeqCst);
    let (mut count, mut by_kind) = read(rt, session).await?;
    while count > room(&rt.limits) {
        let most = by_kind.values_mut().max_by_key(|queued| queued.len());
        let Some(folded) = most.map(|queued| oldest(queued, together(&rt.limits))) else { break };
        if folded.len() < 2 {
            break;
        }
        count -= folded.len() as u64 - 1;
        session.lane.commit_rows(rows(folded)).await?;
    }
    // Notices written during the count are counted twice at most, and then folded too early.
    let since = match (written, session.slots.of::<Unread>().count.load(Ordering::SeqCst)) {
        (UNKNOWN, _) => 0,
        (before, now) => now.saturating_sub(before),
    };
    session.slots.of::<Unread>().count.store(count.saturating_add(since), Ordering::SeqCst);
    Ok(())
}

/// Takes the oldest notices that together are about this many calls.
fn oldest(queued: &mut Vec<QueuedNotice>, most: u64) -> Vec<QueuedNotice> {
    let mut calls = 0;
    let fits = |queued: &&QueuedNotice| {
        calls += queued.kept.calls();
        calls <= most
    };
    let count = queued.iter().take_while(fits).count();
    queued.drain(..count).collect()
}

/// The number of notices, and those that can be folded, oldest first: untaken ones, about fewer calls than
/// allowed.
async fn read(
    rt: &Inner,
    session: &Session,
) -> Result<(u64, BTreeMap<&'static str, Vec<QueuedNotice>>), SessionError> {
    let (mut count, mut by_kind) = (0, BTreeMap::<&'static str, Vec<QueuedNotice>>::new());
    let (now, mut after) = (rt.clock.now(), None::<String>);
    loop {
        let (space, limit) = (Space::Notice, rt.limits.notices_folded_max.max(1));
        let page = RecordPage {
            shelf: space.of(session.lane.session()),
            prefix: "",
            after: after.as_deref(),
            limit,
        };
        let records = rt.store.records(page).await?;
        let Some(last) = records.last() else { break };
        after = Some(last.key.clone());
        count += records.len() as u64;
        for record in &records {
            let kept = kept(record)?;
            let is_foldable = kept.call.is_some() && kept.calls() < together(&rt.limits);
            if is_foldable && !kept.is_leased(Some(rt), now) {
                by_kind
                    .entry(name(kept.kind))
                    .or_default()
                    .push(QueuedNotice { key: record.key.clone(), kept });
            }
        }
    }
    by_kind.values_mut().for_each(|queued| queued.sort_by_key(|queued| queued.kept.created_us));
    Ok((count, by_kind))
}

fn name(kind: NoticeKind) -> &'static str {
    match kind {
        NoticeKind::TaskEnded => "task_ended",
        NoticeKind::CallEnded => "call_ended",
        NoticeKind::TaskMessage => "task_message",
        NoticeKind::TaskAsks => "task_asks",
        NoticeKind::TaskWaits => "task_waits",
        NoticeKind::Event => "event",
        NoticeKind::Posted => "posted",
    }
}

/// Replaces these notices by one, as old as the oldest.
fn rows(folded: Vec<QueuedNotice>) -> Vec<Row> {
    let mut rows = Vec::with_capacity(folded.len() + 1);
    let of = |kept: &KeptNotice| match kept.folded.is_empty() {
        true => kept.call.into_iter().collect(),
        false => kept.folded.clone(),
    };
    let calls = folded.iter().flat_map(|queued| of(&queued.kept)).collect();
    if let Some(QueuedNotice { kept: oldest, .. }) = folded.first() {
        let (call, at) = (CallId::unpacked(oldest.call.unwrap_or(0)), Timestamp(oldest.created_us));
        let one = KeptNotice { folded: calls, ..KeptNotice::new(oldest.kind, call, at) };
        rows.push(one.row(&key(call, 0, at, "all")));
    }
    // First: the oldest may have been folded before, under the key of the new one.
    let gone = folded.into_iter().map(|queued| Row::Remove { space: Space::Notice, key: queued.key });
    rows.splice(0..0, gone);
    rows
}

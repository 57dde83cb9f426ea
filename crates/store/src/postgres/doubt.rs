//! Groups whose outcome is not known: the row that each group inserts for itself, and looking for it.

use super::connection::{DatabaseFailure, Param, answered};
use super::group::Writing;
use super::statements as sql;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Rows of groups are swept after 30 days (`windlass.sweep`). A writer that wrote nothing for so many seconds does not look for
/// its last one.
const LOOKED_FOR_SECONDS_MAX: u64 = 7 * 24 * 3600;

/// The writer and the number of a group.
#[derive(Clone, Copy)]
pub(super) struct GroupMark {
    pub writer: [u8; 16],
    pub group: i64,
}

/// The last group of a lane that was acknowledged, for all lanes to look for.
pub(super) struct LastGroup {
    writer: [u8; 16],
    group: AtomicI64,
    /// Seconds since 1970.
    at: AtomicU64,
}

impl LastGroup {
    pub fn new(writer: [u8; 16]) -> LastGroup {
        LastGroup { writer, group: AtomicI64::new(0), at: AtomicU64::new(0) }
    }

    /// The mark before the first group.
    pub fn start(&self) -> GroupMark {
        GroupMark { writer: self.writer, group: 0 }
    }

    /// Notes a group that is durable, before it is acknowledged. 0: there is none any more.
    pub fn note(&self, group: i64) {
        self.at.store(now(), Ordering::Relaxed);
        self.group.store(group, Ordering::Release);
    }

    /// The group that the server must have.
    fn expected(&self) -> Option<i64> {
        let group = self.group.load(Ordering::Acquire);
        let is_recent = now().saturating_sub(self.at.load(Ordering::Relaxed)) < LOOKED_FOR_SECONDS_MAX;
        (group > 0 && is_recent).then_some(group)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Writing {
    /// Whether this group was committed; if not, it never will be. Waits for a transaction that has not ended. The answer itself
    /// comes with a commit that waits for replicas, so whatever it says is durable.
    pub async fn is_done(&self, mark: GroupMark) -> Result<bool, DatabaseFailure> {
        let params: [Param<'_>; 3] = [&self.times.lock_ms(), &&mark.writer[..], &mark.group];
        let rows = self.unwarned(self.link.query(&sql::DECIDE, &params)).await?;
        let row = rows.first().ok_or(DatabaseFailure::Impossible("a function returned nothing"))?;
        row.try_get::<_, Option<bool>>(0)?.ok_or(DatabaseFailure::Impossible("the writer's own row is gone"))
    }

    /// Checks that the last group of each lane is there: a server that lacks one has lost acknowledged writes.
    pub async fn remembers(&self, lasts: &[LastGroup]) -> Result<(), DatabaseFailure> {
        let expected = lasts.iter().filter_map(|last| Some((&last.writer[..], last.expected()?)));
        let (writers, groups): (Vec<&[u8]>, Vec<i64>) = expected.unzip();
        if writers.is_empty() {
            return Ok(());
        }
        let found =
            answered(self.times.reply, self.link.query(&sql::FORGOTTEN, &[&writers, &groups])).await?;
        let row = found.first().ok_or(DatabaseFailure::Impossible("a count returned nothing"))?;
        match row.try_get::<_, i64>(0)? {
            0 => Ok(()),
            forgotten => Err(DatabaseFailure::Forgot(forgotten as usize)),
        }
    }

    /// Deletes the rows of the groups of a writer that ends.
    pub async fn leave(&self, mark: GroupMark) -> Result<u64, DatabaseFailure> {
        answered(self.times.reply, self.link.execute(&sql::FORGET_GROUPS, &[&&mark.writer[..]])).await
    }
}
